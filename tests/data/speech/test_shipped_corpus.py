"""What is promised of the corpus that ships: size, voices, vocabulary, and a manifest that fits its audio."""

from __future__ import annotations

import json
import runpy
import shutil
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import soundfile

from labkit.data.speech.alphabet import Alphabet, outputs_needed
from labkit.data.speech.layouts import DIGITS
from labkit.data.store import shipped_datasets

FOLDER = shipped_datasets() / "speech"


@pytest.fixture(scope="module")
def lines() -> list[dict]:
    return [json.loads(line) for line in (FOLDER / "manifest.jsonl").read_text().splitlines()]


def test_it_lasts_an_hour_weighs_at_most_14_mb_and_can_be_written(lines):
    assert sum(line["duration"] for line in lines) > 3600
    assert sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file()) <= 14e6
    assert all(outputs_needed(line["text"]) <= line["duration"] * 25 for line in lines)  # outputs a second


def test_voices_are_of_one_split_and_words_of_a_small_grammar(lines):
    voices, variants, words = defaultdict(set), defaultdict(set), defaultdict(set)
    for line in lines:
        # A speaker is named SPLIT-NUMBER-VARIANT; the variant is what makes espeak-ng sound like another person.
        split, _, variant = line["speaker"].split("-")
        voices[line["split"]].add(line["speaker"])
        variants[variant].add(split)
        words[line["split"]] |= set(line["text"].split())
    assert all(len(of_variant) == 1 for of_variant in variants.values())
    train, validation, test = voices["train"], voices["validation"], voices["test"]
    assert len(train | validation | test) == len(train) + len(validation) + len(test) >= 24
    assert len(validation) >= 3 and len(test) >= 4
    assert words["test"] | words["validation"] <= words["train"]
    assert {*DIGITS, "set", "start", "stop", "run", "jobs"} <= words["train"]
    assert len(words["train"]) <= 60 and not Alphabet().outside("".join(words["train"]))


def test_utterances_lie_one_after_the_other_inside_their_files(lines):
    files = defaultdict(list)
    for line in lines:
        files[line["audio_filepath"]].append(line)
    assert {FOLDER / name for name in files} == set((FOLDER / "audio").iterdir())
    for name, of_file in files.items():
        info = soundfile.info(FOLDER / name)
        assert (info.samplerate, info.channels, info.subtype) == (16_000, 1, "OPUS")
        ends = [line["offset"] + line["duration"] for line in of_file]
        starts = [line["offset"] for line in of_file]
        assert all(end < start for end, start in zip(ends, starts[1:], strict=False))
        assert ends[-1] <= info.duration


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_offsets_cut_between_words_not_through_them(lines, split):
    name = next(line["audio_filepath"] for line in lines if line["split"] == split)
    wave, rate_hz = soundfile.read(FOLDER / Path(name), dtype="float32")
    edge = round(0.03 * rate_hz)  # utterances begin and end with at least 60 ms without speech
    for line in (line for line in lines if line["audio_filepath"] == name):
        start = round(line["offset"] * rate_hz)
        cut = wave[start : start + round(line["duration"] * rate_hz)]
        loud = np.sqrt(np.mean(cut**2))
        assert np.sqrt(np.mean(cut[:edge] ** 2)) < 0.3 * loud, line
        assert np.sqrt(np.mean(cut[-edge:] ** 2)) < 0.3 * loud, line


def test_the_script_makes_the_utterances_that_ship(lines, tmp_path):
    if shutil.which("espeak-ng") is None:
        pytest.skip("needs espeak-ng, which only rebuilding the corpus needs")
    if not (FOLDER / "make.py").is_file():
        pytest.skip("needs a checkout: the script that makes the corpus is not in the wheel")
    make = runpy.run_path(str(FOLDER / "make.py"))
    (tmp_path / "audio").mkdir()
    voice = make["voices"]()[-1]
    made = make["make_voice"](voice, tmp_path, 10.0)
    shipped = [line for line in lines if line["speaker"] == voice.name][: len(made)]
    # Another version of espeak-ng may speak a little faster or slower: texts are the same, durations alike.
    assert [line["text"] for line in made] == [line["text"] for line in shipped]
    seconds = sum(line["duration"] for line in made)
    assert seconds == pytest.approx(sum(line["duration"] for line in shipped), rel=0.1)


def test_the_dataset_card_states_what_ships(lines):
    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    for split in ("train", "validation", "test"):
        of_split = [line for line in lines if line["split"] == split]
        minutes = sum(line["duration"] for line in of_split) / 60
        voices = len({line["speaker"] for line in of_split})
        assert f"| {split} | {len(of_split):,} | {voices} | {minutes:.1f} |" in card
    words = {word for line in lines for word in line["text"].split()}
    assert f"{len(words)} words" in card
    assert f"{sum(path.stat().st_size for path in FOLDER.rglob('*') if path.is_file()) / 1e6:.1f} MB" in card

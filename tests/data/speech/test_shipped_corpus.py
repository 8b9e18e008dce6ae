"""What is promised of the corpus that ships: size, voices, vocabulary, and a manifest that fits its audio."""

from __future__ import annotations

import json
from collections import defaultdict

import numpy as np
import pytest
import soundfile

from labkit.data.speech.layouts import DIGITS
from labkit.project import shipped_datasets

FOLDER = shipped_datasets() / "speech"


@pytest.fixture(scope="module")
def lines() -> list[dict]:
    return [json.loads(line) for line in (FOLDER / "manifest.jsonl").read_text().splitlines()]


def test_it_lasts_an_hour_weighs_at_most_14_mb_and_its_card_says_so(lines):
    assert sum(line["duration"] for line in lines) > 3600
    size_bytes = sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file())
    assert size_bytes <= 14e6
    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    for split in ("train", "validation", "test"):
        of_split = [line for line in lines if line["split"] == split]
        minutes = sum(line["duration"] for line in of_split) / 60
        voices = len({line["speaker"] for line in of_split})
        assert f"| {split} | {len(of_split):,} | {voices} | {minutes:.1f} |" in card
    words = {word for line in lines for word in line["text"].split()}
    assert f"{len(words)} words" in card and f"{size_bytes / 1e6:.1f} MB" in card


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
    assert {*DIGITS, "set", "start", "stop", "run", "jobs"} <= words["train"] and len(words["train"]) <= 60


def test_utterances_lie_one_after_the_other_in_their_files_and_are_cut_between_words(lines):
    files = defaultdict(list)
    for line in lines:
        files[line["audio_filepath"]].append(line)
    assert {FOLDER / name for name in files} == set((FOLDER / "audio").iterdir())
    for number, (name, of_file) in enumerate(files.items()):
        info = soundfile.info(FOLDER / name)
        assert (info.samplerate, info.channels, info.subtype) == (16_000, 1, "OPUS")
        ends = [line["offset"] + line["duration"] for line in of_file]
        assert all(end < line["offset"] for end, line in zip(ends, of_file[1:], strict=False))
        assert ends[-1] <= info.duration
        if number % 8:
            continue
        wave, _ = soundfile.read(FOLDER / name, dtype="float32")
        for line in of_file:  # utterances begin and end with at least 60 ms without speech
            cut = wave[round(line["offset"] * 16_000) :][: round(line["duration"] * 16_000)]
            loud = np.sqrt(np.mean(cut**2))
            assert max(np.sqrt(np.mean(end**2)) for end in (cut[:480], cut[-480:])) < 0.3 * loud, line

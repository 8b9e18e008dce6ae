"""The layouts that are recognised, and how their utterances are divided among the splits."""

from __future__ import annotations

import json
import sys

import pytest

from labkit.data.speech import load_speech
from labkit.data.speech.utterance import SPLITS
from labkit.errors import DataError, UserError

WORDS = ("one", "two", "three", "four", "five", "six")


def sentences(speech) -> dict[str, set[str]]:
    return {name: set(speech.split(name).texts) for name in SPLITS}


@pytest.fixture
def write_librispeech(tmp_path, write_audio):
    """`write(subset, speakers)`: one chapter a speaker, two utterances a chapter."""

    def write(subset: str, speakers: range):
        for speaker in speakers:
            chapter = tmp_path / "LibriSpeech" / subset / str(speaker) / "7"
            lines = []
            for index in range(2):
                name = f"{speaker}-7-{index:04d}"
                write_audio(chapter / f"{name}.flac", seconds=2, seed=speaker + index)
                lines.append(f"{name} {subset.partition('-')[0].upper()} IT'S {WORDS[speaker % 6].upper()}\n")
            (chapter / f"{speaker}-7.trans.txt").write_text("".join(lines))
        return tmp_path

    return write


@pytest.fixture
def write_common_voice(tmp_path, write_audio):
    """`write(tables)`: {file: [(clip, sentence)]}"""

    def write(tables: dict[str, list[tuple[str, str]]]):
        for table, rows in tables.items():
            lines = ["client_id\tpath\tsentence\tage"]
            for clip, sentence in rows:
                write_audio(tmp_path / "en" / "clips" / clip, seconds=2, rate_hz=32_000, format="MP3")
                lines.append(f"client-{clip}\t{clip}\t{sentence}\ttwenties")
            (tmp_path / "en" / table).write_text("\n".join(lines) + "\n", encoding="utf-8")
        return tmp_path / "en"

    return write


def test_librispeechs_subsets_are_the_splits(write_librispeech):
    write_librispeech("train-clean-100", range(4))
    write_librispeech("dev-clean", range(4, 5))
    folder = write_librispeech("test-other", range(5, 6))
    assert sentences(load_speech(str(folder))) == {
        "train": {f"train it's {word}" for word in WORDS[:4]},
        "validation": {"dev it's five"},
        "test": {"test it's six"},
    }


def test_one_subset_of_librispeech_is_divided_by_speaker(write_librispeech):
    folder = write_librispeech("dev-clean", range(6))
    speech = load_speech(str(folder / "LibriSpeech" / "dev-clean"))
    speakers = [set(speech.split(name).speakers) for name in SPLITS]
    assert [len(of_split) for of_split in speakers] == [4, 1, 1]
    assert len(set.union(*speakers)) == 6
    assert "divided by speaker" in speech.info["notes"][0]


def test_common_voices_tables_are_the_splits_and_punctuation_goes(write_common_voice):
    folder = write_common_voice(
        {
            "train.tsv": [("a.mp3", "“It’s one,” he said."), ("b.mp3", "Two: a-b!")],
            "dev.tsv": [("c.mp3", "Three?")],
            "test.tsv": [("d.mp3", 'Say "four"')],
        }
    )
    speech = load_speech(str(folder))
    assert sentences(speech) == {
        "train": {"it's one he said", "two a b"},
        "validation": {"three"},
        "test": {"say four"},
    }
    assert speech.info["files_resampled"] == 4


def test_a_missing_clip_is_refused_with_its_table_and_line(write_common_voice):
    folder = write_common_voice({"train.tsv": [(f"{word}.mp3", word) for word in WORDS]})
    (folder / "clips" / "two.mp3").unlink()
    with pytest.raises(DataError) as caught:
        load_speech(str(folder))
    assert (caught.value.file, caught.value.line, caught.value.field) == (folder / "train.tsv", 3, "path")


def test_latin_1_in_a_common_voice_table_is_refused_with_its_line_or_skipped(write_common_voice):
    folder = write_common_voice({"train.tsv": [(f"{word}.mp3", word) for word in WORDS]})
    table = folder / "train.tsv"
    table.write_bytes(table.read_bytes().replace(b"\tthree\t", b"\tthre\xe9\t"))
    with pytest.raises(DataError, match="not UTF-8") as caught:
        load_speech(str(folder))
    assert (caught.value.file, caught.value.line) == (table, 4)
    assert load_speech(str(folder), on_bad_row="skip").info["skipped"]["rows"] == 1


def test_a_common_voice_table_without_a_column_is_refused(write_common_voice):
    folder = write_common_voice({"train.tsv": [("a.mp3", "one")]})
    (folder / "train.tsv").write_text("client_id\tpath\n")
    with pytest.raises(DataError, match="'sentence' is missing"):
        load_speech(str(folder))


def test_punctuation_in_a_manifest_is_refused_and_can_be_removed(write_manifest):
    manifest = write_manifest({"audio": "0.wav", "text": "one, two."})
    with pytest.raises(DataError, match="punctuation"):
        load_speech(str(manifest))
    speech = load_speech(str(manifest), punctuation="remove")
    assert "one two" in set().union(*sentences(speech).values())


def test_a_manifest_without_splits_is_divided_by_speaker_and_seed(tmp_path, write_audio):
    rows = []
    for number in range(30):
        write_audio(tmp_path / f"{number}.wav", seed=number)
        rows.append({"audio": f"{number}.wav", "text": "one", "speaker": f"speaker{number % 10}"})
    (tmp_path / "m.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def speakers(seed: int) -> list[set[str]]:
        speech = load_speech(str(tmp_path / "m.jsonl"), seed=seed)
        return [set(speech.split(name).speakers) for name in SPLITS]

    divided = speakers(0)
    assert [len(of_split) for of_split in divided] == [8, 1, 1]
    assert len(set.union(*divided)) == 10
    assert any(speakers(seed) != divided for seed in (1, 2, 3))


@pytest.mark.parametrize("given_as", ["absolute", "relative", "link"])
def test_audio_may_lie_outside_the_manifests_folder(tmp_path, write_audio, given_as):
    audio = write_audio(tmp_path / "audio" / "a.wav")
    folder = tmp_path / "manifests"
    folder.mkdir()
    if given_as == "link":
        (folder / "a.wav").symlink_to(audio)
    name = {"absolute": str(audio), "relative": "../audio/a.wav", "link": "a.wav"}[given_as]
    rows = [{"audio": name, "text": "one", "split": split} for split in ("train", "dev", "test")]
    (folder / "m.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert len(load_speech(str(folder)).split("train")) == 1


@pytest.mark.skipif(sys.platform in ("win32", "darwin"), reason="names of files are Unicode there")
def test_a_folder_may_have_a_name_that_is_not_utf8(tmp_path, write_manifest):
    write_manifest()
    folder = tmp_path.rename(tmp_path.with_name("caf\udce9"))
    assert len(load_speech(str(folder / "utterances.jsonl"), cache_dir=folder / "cache").split("train")) == 4


def test_another_model_does_not_make_the_same_data_others(write_manifest):
    manifest = write_manifest({"audio": "0.wav", "text": "one"})
    marks = {load_speech(str(manifest), frames_an_output=frames).fingerprint for frames in (2, 4)}
    assert len(marks) == 1


def test_a_click_log_is_told_apart_from_speech():
    with pytest.raises(UserError, match="labkit train dlrm"):
        load_speech("synthetic")

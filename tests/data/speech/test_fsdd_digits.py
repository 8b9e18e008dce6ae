"""The Free Spoken Digit Dataset as connected digits, on recordings made here and on the real ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from labkit.data.bad_rows import BadRows
from labkit.data.speech import load_speech
from labkit.data.speech.fsdd import read_fsdd
from labkit.data.speech.load import read_source
from labkit.data.speech.utterance import SPLITS, Utterance
from labkit.errors import DataError

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@pytest.fixture
def recordings(tmp_path) -> Path:
    """Names of recordings of two speakers; what is in the files is not looked at."""
    folder = tmp_path / "recordings"
    folder.mkdir()
    for speaker in ("anna", "ben"):
        for digit in range(10):
            for index in range(15):
                (folder / f"{digit}_{speaker}_{index}.wav").touch()
    return folder


def parts(utterance: Utterance) -> list[tuple[str, str, int]]:
    """Digit, speaker and index of each recording in an utterance."""
    names = [segment.audio.stem.split("_") for segment in utterance.segments]
    return [(DIGITS[int(digit)], speaker, int(index)) for digit, speaker, index in names]


def test_utterances_are_one_to_six_digits_of_one_speaker(recordings):
    utterances = read_fsdd(recordings, seed=0).utterances
    assert {len(each.segments) for each in utterances} == {1, 2, 3, 4, 5, 6}
    for each in utterances:
        assert each.text.split() == [word for word, _, _ in parts(each)]
        assert {speaker for _, speaker, _ in parts(each)} == {each.speaker}


def test_no_recording_is_in_two_splits_and_the_test_split_is_the_official_one(recordings):
    used = {split: set() for split in SPLITS}
    for each in read_fsdd(recordings, seed=0).utterances:
        used[each.split] |= set(parts(each))
    assert used["test"] == {(word, who, index) for word in DIGITS for who in ("anna", "ben") for index in range(5)}
    assert not used["train"] & used["validation"]
    assert len(used["train"]) + len(used["validation"]) + len(used["test"]) == 300


def test_the_seed_says_what_is_put_together(recordings):
    def texts(seed: int) -> list[str]:
        return [each.text for each in read_fsdd(recordings, seed).utterances]

    assert texts(0) == texts(0)
    assert texts(0) != texts(1)


def test_a_folder_without_the_test_recordings_is_refused(recordings):
    for index in range(5):
        for path in recordings.glob(f"*_{index}.wav"):
            path.unlink()
    with pytest.raises(DataError, match="no recording of the test split"):
        read_source(str(recordings), BadRows("error"), seed=0)


def test_the_real_recordings_are_dealt_into_some_thousand_utterances(shared_data):
    utterances = read_fsdd(shared_data / "fsdd" / "recordings", seed=0).utterances
    of_split = {split: [each for each in utterances if each.split == split] for split in SPLITS}
    assert 4_000 < len(of_split["train"]) < 8_000
    assert 200 < len(of_split["validation"]) < 400
    assert 200 < len(of_split["test"]) < 400
    assert {each.speaker for each in of_split["test"]} == {"george", "jackson", "lucas", "nicolas"}
    assert len({part for each in of_split["test"] for part in parts(each)}) == 200


def test_real_recordings_become_connected_digits(shared_data, tmp_path):
    for path in (shared_data / "fsdd" / "recordings").glob("*.wav"):
        # Two training recordings of each digit and speaker are enough here.
        if int(path.stem.rpartition("_")[2]) < 10:
            (tmp_path / path.name).symlink_to(path)
    speech = load_speech(str(tmp_path))
    test = speech.split("test")
    # A spoken digit takes a fifth of a second to one second and a half, silence included.
    frames_a_digit = test.lengths.sum() / sum(len(text.split()) for text in test.texts)
    assert 20 < frames_a_digit < 150
    assert speech.info["files_resampled"] == 4 * 10 * 10
    assert speech.info["skipped"]["rows"] == 0

"""Which recordings paths lead to, what is wrong with others, which are normalised together, and their error rates."""

import json
import os
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile
from made_recogniser import tiny_model, write_speech_run

from labkit.data.speech import Segment, Utterance, Voice, load_speech
from labkit.errors import UserError
from labkit.transcription import (
    Recogniser,
    Recording,
    Tally,
    find_recordings,
    read_recogniser,
    transcribe,
    transcripts,
)


def names(*paths, **options) -> list[str]:
    return [each.name if isinstance(each, Recording) else str(each) for each in find_recordings(paths, **options)]


def test_folders_are_walked_in_order_and_what_is_no_audio_is_left_alone(tmp_path):
    for name in ("b.wav", "a.FLAC", "inner/z.ogg", "inner/deep/y.opus", "a.txt", "notes.md", "._b.wav"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("Hello")
    found = list(find_recordings([tmp_path]))
    assert [os.path.relpath(each.name, tmp_path) for each in found] == [
        "a.FLAC", "b.wav", "inner/z.ogg", "inner/deep/y.opus",
    ]  # fmt: skip
    assert [each.utterance.text for each in found] == ["Hello", "", "", ""]
    assert [each.voice == found[0].voice for each in found] == [True, True, False, False]


def test_a_folder_of_very_many_files_is_read_a_part_at_a_time(tmp_path, monkeypatch):
    for number in range(50):
        (tmp_path / f"{number}.wav").touch()
    monkeypatch.setattr(transcripts, "SORTED", 10)
    read = []
    entries = transcripts._entries
    monkeypatch.setattr(transcripts, "_entries", lambda *given: (read.append(each) or each for each in entries(*given)))
    found = find_recordings([tmp_path])
    assert next(found).name and len(read) == 11  # one tells that the folder has audio
    assert len(list(found)) == 49


def test_listings_say_who_speaks_and_what(tmp_path):
    voice = tmp_path / "voice"
    (voice / "clips").mkdir(parents=True)
    rows = ["client_id\tpath\tsentence\taccents"]
    for number in range(4):
        (voice / "clips" / f"{number}.mp3").touch()
        rows.append(f"s{number % 2}\t{number}.mp3\tOne, two.\t{('Scottish', '')[number % 2]}")
    (voice / "test.tsv").write_text("\n".join(rows))
    found = list(find_recordings([voice]))
    assert [each.utterance.speaker for each in found] == ["s0", "s0", "s1", "s1"]
    assert [each.utterance.accent for each in found] == ["Scottish", "Scottish", "", ""]
    chapter = tmp_path / "libri" / "dev-clean" / "1" / "2"
    chapter.mkdir(parents=True)
    (chapter / "1-2.trans.txt").write_text("1-2-0 ONE TWO\n")
    (chapter / "1-2-0.flac").touch()
    (each,) = find_recordings([tmp_path / "libri"])
    assert (each.utterance.text, each.utterance.speaker) == ("ONE TWO", "1")


def test_a_manifest_gives_one_split_and_tells_of_its_bad_lines(tmp_path):
    (tmp_path / "a.wav").touch()
    lines = [{"audio": "a.wav", "text": "one", "split": split, "offset": 1.5} for split in ("train", "test")]
    (tmp_path / "m.jsonl").write_text("\n".join(map(json.dumps, [*lines, {"audio": "none.wav", "text": "x"}])))
    good, bad = names(tmp_path, split="test")
    assert good.endswith("a.wav at 1.5 s") and "listing: 1;" in bad and "none.wav" in bad
    (nothing,) = names(tmp_path / "m.jsonl", split="validation")
    assert "too few for a train split" in nothing


@pytest.mark.parametrize(
    ("given", "asked"),
    [(None, "test"), ("train", "validation"), ("train", "train"), ("test", "test"), ("validation", "validation")],
)
def test_a_split_that_a_manifest_lacks_is_dealt_out_as_in_training(tmp_path, given, asked):
    lines, manifest = [], tmp_path / "m.jsonl"
    for number in range(6):
        soundfile.write(tmp_path / f"{number}.wav", np.random.default_rng(number).normal(0, 0.1, 16_000), 16_000)
        lines.append({"audio": f"{number}.wav", "text": "one", "speaker": f"s{number}", "split": given})
    manifest.write_text("\n".join(map(json.dumps, lines)))
    heard = sorted(each.utterance.speaker for each in find_recordings([manifest], asked))
    speech = load_speech(str(manifest))
    assert heard == sorted(speech.split(asked).speakers)
    data = {"name": speech.name, "source": str(tmp_path), "fingerprint": speech.fingerprint}
    run = SimpleNamespace(config={"data": data, "train": {"on_bad_row": "few"}})
    assert heard == sorted(each.utterance.speaker for each in find_recordings([manifest], asked, run))
    manifest.write_text("\n".join(map(json.dumps, [*lines, lines[0] | {"speaker": "s9"}])))
    (told,) = find_recordings([manifest], asked, run)
    assert "has changed since the recogniser's training" in str(told)


def test_a_manifest_may_be_json_and_stand_in_the_only_folder_of_a_folder(tmp_path):
    inner = tmp_path / "corpus" / "inner"
    inner.mkdir(parents=True)
    (inner / "a.wav").touch()
    (inner / "m.jsonl").write_text('{"audio": "a.wav", "text": "one"}')
    (tmp_path / "m.json").write_text('{"audio": "corpus/inner/a.wav", "text": "one"}')
    found = [*find_recordings([tmp_path / "corpus"]), *find_recordings([tmp_path / "m.json"])]
    assert [each.utterance.text for each in found] == ["one", "one"]


def test_spoken_digits_are_joined_where_a_split_is_asked_for_and_other_files_have_none(tmp_path):
    for speaker in "ab":
        for index in range(10):
            (tmp_path / f"3_{speaker}_{index}.wav").touch()
    joined = list(find_recordings([tmp_path], "test"))
    assert {each.utterance.speaker for each in joined} == {"a", "b"}
    assert {word for each in joined for word in each.utterance.text.split()} == {"three"}
    assert len(list(find_recordings([tmp_path]))) == 20
    (told,) = names(tmp_path / "3_a_0.wav", split="test")
    assert "only listings and datasets have splits" in told


def test_a_transcript_that_cannot_be_read_costs_that_file_alone(tmp_path, monkeypatch):
    for name in ("a.wav", "a.txt", "b.wav"):
        (tmp_path / name).touch()

    def refuse(self, **how):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refuse)
    told, found = names(tmp_path)
    assert "a.txt: this cannot be read (Permission denied)" in told
    assert found.endswith("b.wav")


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="needs a user who may not read everything")
def test_a_folder_that_may_not_be_read_is_named(tmp_path):
    (tmp_path / "closed").mkdir(mode=0)
    (told,) = names(tmp_path / "closed")
    assert "closed" in told and "Permission" in told


def test_what_is_not_there_or_cannot_be_read_is_named_and_the_rest_goes_on(tmp_path):
    (tmp_path / "a.wav").touch()
    (tmp_path / "m.jsonl").write_text('{"audio": "a.wav", "text": "one"}', encoding="utf-16")
    (tmp_path / "empty").mkdir()
    paths = [tmp_path / name for name in ("missing.wav", "no", "m.jsonl", "empty", "a.wav")]
    missing, no_folder, unread, empty, found = names(*paths)
    assert "missing.wav: There is no such file" in missing and "no: There is no such" in no_folder
    assert "UTF-16" in unread and "no audio in this folder" in empty and found.endswith("a.wav")


SPOKEN = np.ones(16_000, np.float32)


def test_error_rates_by_speaker_and_accent_add_up():
    rates = Tally()
    for speaker, accent, said, heard in (
        ("anna", "Scottish", "One, two!", "one two"),
        ("anna", "Scottish", "three", "tree"),
        ("ben", "Welsh", "four", ""),
    ):
        rates.compare(Utterance((), said, speaker, accent=accent), heard, SPOKEN)
    total, *groups = rates.rows()
    assert (total["recordings"], total["cer"], total["wer"]) == (3, 5 / 16, 2 / 4)
    assert [each["name"] for each in groups] == ["Welsh", "Scottish", "ben", "anna"]
    assert [each["cer"] for each in groups] == [1.0, 1 / 12, 1.0, 1 / 12]
    rates.compare(Utterance((), "two", ""), "two", SPOKEN)  # whose, nobody says
    assert [row["recordings"] for row in rates.rows()] == [4, 1, 2, 1, 1, 2, 1]
    for said, wave, words in (
        ("привет", SPOKEN, "Write it in these letters, or"),
        ("two 2", SPOKEN, "Write numbers as words"),
        ("one", np.zeros(16_000), "a.wav is silent"),
        ("one two three", SPOKEN[:160], "14 CTC outputs"),
    ):
        with pytest.raises(UserError, match=words):
            rates.compare(Utterance((Segment(Path("a.wav"), 0.0, 1.0),), said, ""), "", wave)
    assert rates.rows()[0]["recordings"] == 4


@pytest.fixture
def voices(tmp_path):
    """Waves of two folders, anna's and ben's, two each, of which the second is louder."""
    waves = {}
    for speaker in ("anna", "ben"):
        (tmp_path / speaker).mkdir()
        for number in (1, 2):
            rng = np.random.default_rng(len(waves))
            wave = (0.1 * number * rng.normal(size=16_000)).clip(-1, 1)
            soundfile.write(tmp_path / speaker / f"{number}.wav", wave, 16_000, subtype="FLOAT")
            waves[speaker, number] = wave.astype(np.float32)
    return waves


@pytest.mark.parametrize(("lot", "by_file"), [(None, False), (None, True), (1, False)])
def test_a_folder_is_one_voice_or_each_file_and_lots_are_heard_with_all_before_them(
    tmp_path, voices, monkeypatch, lot, by_file
):
    recogniser, expected = Recogniser(tiny_model()), []
    for speaker in ("anna", "ben"):
        waves = [voices[speaker, number] for number in (1, 2)]
        voice = Voice("log-mel")
        if lot:
            monkeypatch.setattr(transcripts, "LOT", lot)
            expected += [recogniser.hear([wave], voice)[0] for wave in waves]
        else:
            expected += [recogniser.hear([wave])[0] for wave in waves] if by_file else recogniser.hear(waves)
    recordings = find_recordings([tmp_path / "anna", tmp_path / "ben"])
    for one, other in zip(transcribe(recogniser, recordings, by_file=by_file), expected, strict=True):
        # orders of fp32 sums
        np.testing.assert_allclose(one.heard.log_probabilities, other.log_probabilities, atol=1e-4)


@pytest.mark.parametrize("kernels", ["plain", "fast"])
def test_a_recogniser_knows_whether_it_was_trained_by_file(tmp_path, kernels):
    assert read_recogniser(write_speech_run(tmp_path, kernels=kernels)).by_file == (kernels == "plain")


@pytest.mark.parametrize("lot_s", [300.0, 0.0])
def test_a_damaged_file_costs_one_line_in_its_place(tmp_path, voices, monkeypatch, lot_s):
    monkeypatch.setattr(transcripts, "LOT", 2)
    monkeypatch.setattr(transcripts, "LOT_S", lot_s)  # 0: one recording is ahead at most
    (tmp_path / "anna" / "3.wav").write_bytes(b"no audio")
    recordings = [*find_recordings([tmp_path / "anna", tmp_path / "none", tmp_path / "ben"])]
    found = list(transcribe(Recogniser(tiny_model()), recordings))
    names = [each.recording.name if not isinstance(each, UserError) else str(each) for each in found]
    assert len(names) == 6
    damaged, missing = (next(name for name in names if word in name) for word in ("3.wav", "none: There is no"))
    assert f"The audio file {tmp_path / 'anna' / '3.wav'} cannot be decoded" in damaged
    heard = [name for name in names if name not in (damaged, missing)]
    assert heard == [str(tmp_path / speaker / f"{number}.wav") for speaker in ("anna", "ben") for number in (1, 2)]


def test_few_recordings_are_decoded_ahead_and_none_after_the_reader_has_gone(tmp_path, voices, monkeypatch):
    monkeypatch.setattr(transcripts, "LOT_S", 1.5)  # recordings of a second: lots of two
    decode, begun = transcripts.speech.decode, []

    def decoded(utterance, file):
        begun.append(utterance)
        return decode(utterance, file)

    monkeypatch.setattr("labkit.data.speech.decode", decoded)
    recordings = [*find_recordings([tmp_path / "anna", tmp_path / "ben"])] * 20
    coming = transcribe(Recogniser(tiny_model()), recordings, by_file=True)
    threads = threading.active_count()
    for taken in range(1, 4):
        next(coming)
        assert len(begun) <= taken + 5  # one that made the voice complete, one of its lot, a lot ahead, rounded up
    coming.close()
    assert threading.active_count() == threads and len(begun) <= 8

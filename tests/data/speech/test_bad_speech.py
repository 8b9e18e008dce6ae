"""Bad speech data: each kind is refused with file, line, field and fix, and can be skipped."""

import numpy as np
import pytest
import soundfile

from labkit.data.speech import load_speech
from labkit.errors import DataError, UserError


def write_cut(path, seconds, size_bytes, **options):
    soundfile.write(path, np.random.default_rng(0).standard_normal(16_000 * seconds) * 0.1, 16_000, **options)
    path.write_bytes(path.read_bytes()[:size_bytes])


# What is on line 7 of the manifest, and the field that the error names.
LINES = {
    "not JSON": ('{"audio": ', None),
    "not an object": ("[1, 2]", None),
    "no audio key": ({"text": "one"}, "audio_filepath"),
    "no text key": ({"audio": "0.wav"}, "text"),
    "text is no text": ({"audio": "0.wav", "sentence": 12}, "sentence"),
    "blank text": ({"audio": "0.wav", "text": " "}, "text"),
    "outside the alphabet": ({"path": "0.wav", "transcript": "café 2"}, "transcript"),
    "longer than its frames": ({"audio": "0.wav", "text": "batch " * 60}, "text"),
    "missing file": ({"audio": "none.wav", "text": "one"}, "audio"),
    "wrong sample rate": ({"audio": "0.wav", "text": "one", "sample_rate": 8000}, "sample_rate"),
    "offset past the end": ({"audio": "0.wav", "text": "one", "offset": 9}, "offset"),
    "duration past the end": ({"audio": "0.wav", "text": "one", "duration": 2}, "duration"),
    "negative offset": ({"audio": "0.wav", "text": "one", "offset": -1}, "offset"),
    "duration is text": ({"audio": "0.wav", "text": "one", "duration": "2"}, "duration"),
    "a number of 5,000 digits": ('{"audio": "0.wav", "text": "one", "offset": ' + "9" * 5000 + "}", None),
    "a duration beyond all files": ({"audio": "0.wav", "text": "one", "duration": 1e308}, "duration"),
    "nested too deeply": ("[" * 100_000, None),
    "a surrogate in a name": ({"audio": "\ud800.wav", "text": "one"}, "audio"),
    "a name too long": ({"audio": "a" * 5000, "text": "one"}, "audio"),
    "a surrogate in a speaker": ({"audio": "0.wav", "text": "one", "speaker": "\ud800"}, "text"),
    "Latin-1": ('{"audio": "0.wav", "text": "caf\udce9"}', "text"),
    "UTF-16": ('{"audio": "0.wav", "text": "\udcff\udcfeo"}', "text"),
    "a split in a list": ({"audio": "0.wav", "text": "one", "split": ["train"]}, "split"),
    "unknown split": ({"audio": "0.wav", "text": "one", "split": "exam"}, "split"),
    "another's name for a split": ({"audio": "0.wav", "text": "one", "split": "dev"}, "split"),
}
AUDIO = {
    "0 bytes": (lambda path: path.write_bytes(b""), r"empty \(0 bytes\)"),
    "no samples": (lambda path: soundfile.write(path, np.zeros(0), 16_000), "no samples"),
    "not audio": (lambda path: path.write_bytes(bytes(range(256)) * 8), "cannot be decoded"),
    "NaN": (lambda path: soundfile.write(path, np.full(16_000, np.nan), 16_000, subtype="FLOAT"), "NaN, infinite"),
    "beyond all sound": (lambda path: soundfile.write(path, np.full(9, 1e30), 16_000, subtype="DOUBLE"), "beyond"),
    "silence": (lambda path: soundfile.write(path, np.zeros(16_000), 16_000), "bad.wav is silent"),
    "no sample rate for speech": (lambda path: soundfile.write(path, np.zeros(1_000), 1_000), "1,000 Hz, too low"),
    "a sample rate beyond all cards": (lambda path: soundfile.write(path, np.zeros(9), 2_000_000), "higher than any"),
    "cut off": (lambda path: write_cut(path, 5, 60_000, format="FLAC"), "cannot be decoded|ends after"),
    "cut off, of a kind that plays": (
        lambda path: write_cut(path, 30, 40_000, format="OGG", subtype="OPUS"),
        "is truncated",
    ),
    "eleven minutes": (lambda path: soundfile.write(path, np.zeros(660 * 8_000), 8_000), "lasts 660 s"),
}


def refused_or_skipped(manifest, field: str | None, message: str = "") -> None:
    """The error points at line 7 and says what to do; without that line the rest is loaded."""
    with pytest.raises(DataError, match=message) as caught:
        load_speech(str(manifest), on_bad_row="error")
    assert (caught.value.file, caught.value.line, caught.value.field) == (manifest, 7, field)
    assert "--on-bad-row skip" in caught.value.fix
    speech = load_speech(str(manifest), on_bad_row="skip")
    assert sum(len(speech.split(name)) for name in ("train", "validation", "test")) == 6
    assert [(row["line"], row["field"]) for row in speech.info["skipped"]["first"]] == [(7, field)]


@pytest.mark.parametrize(("line", "field"), LINES.values(), ids=LINES.keys())
def test_a_bad_line_is_refused_or_skipped(write_manifest, line, field):
    refused_or_skipped(write_manifest(line), field)


@pytest.mark.parametrize(("write", "message"), AUDIO.values(), ids=AUDIO.keys())
def test_bad_audio_is_refused_or_skipped(tmp_path, write_manifest, write, message):
    write(tmp_path / "bad.wav")
    refused_or_skipped(write_manifest({"audio_filepath": "bad.wav", "text": "one"}), "audio_filepath", message)


def test_one_bad_utterance_costs_itself_and_one_in_a_hundred_is_the_most(write_audio, write_manifest, tmp_path):
    write_audio(tmp_path / "a.wav")
    good, bad = {"audio": "a.wav", "text": "one"}, [{"audio": "none.wav", "text": "one"}, {"audio": "a.wav"}]
    late = {"audio": "a.wav", "text": "two " * 200}  # seen only when the audio is decoded
    for many, rows in ((100, bad), (197, [*bad, late])):
        with pytest.raises(
            DataError, match=f"{len(rows)} of {many + len(rows)} are bad so far, and at most 1% are skipped"
        ):
            load_speech(str(write_manifest(*[good] * many, *rows, good=False)))
    for many, rows in ((5, [late]), (198, bad)):
        speech = load_speech(str(write_manifest(*[good] * many, *rows, good=False)))
        assert speech.info["skipped"]["rows"] == len(rows)


@pytest.mark.parametrize("policy", ["error", "skip"])
def test_a_split_left_empty_is_refused(tmp_path, write_audio, write_manifest, policy):
    write_audio(tmp_path / "a.wav")
    splits = ("train", "train", "train", "validation", "test")
    rows = [{"audio": "a.wav", "text": "one", "split": split} for split in splits]
    rows[-1]["text"] = "two " * 200  # found too long only when the splits are settled
    message = "CTC outputs" if policy == "error" else "test split has no usable utterance"
    with pytest.raises(DataError, match=message):
        load_speech(str(write_manifest(*rows, good=False)), on_bad_row=policy)


SETS = {
    "an empty manifest": ({"m.jsonl": "\n"}, "no usable utterance"),
    "too few for three splits": ({"m.jsonl": '{"audio": "a.wav", "text": "one"}\n' * 2}, "too few"),
    "common voice without a row": ({"clips/x": "", "train.tsv": "client_id\tpath\tsentence\n"}, "no usable utterance"),
    "librispeech without audio": ({"dev-clean/1/2/1-2.trans.txt": "1-2-0000 HELLO\n"}, r"1-2-0000\.flac"),
    "librispeech without a chapter's transcripts": (
        {"dev/1/2/1-2.trans.txt": "1-2-0 HELLO\n"}
        | dict.fromkeys(("dev/1/2/1-2-0.flac", "test/3/4/3-4-0.flac", "test/3/5/3-5-0.flac"), ""),
        r"test/3/4: The recordings have no \*\.trans\.txt",
    ),
    "no known layout": ({"song.mp3": ""}, "audio_filepath"),
}


@pytest.mark.parametrize("kind", SETS)
def test_a_set_that_cannot_be_used_is_refused(tmp_path, write_audio, kind):
    files, words = SETS[kind]
    write_audio(tmp_path / "a.wav")
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=words):
        load_speech(str(tmp_path))
    with pytest.raises(UserError):
        load_speech(str(tmp_path), on_bad_row="skip")
    with pytest.raises(UserError, match="This is an audio file"):
        load_speech(str(tmp_path / "a.wav"))


def test_an_unknown_name_or_option_is_refused_with_the_known_ones():
    for data, words in {"shiped": "'shipped'", "fsdd": "data prepare fsdd-1.0.9", "synthetic": "train dlrm"}.items():
        with pytest.raises(UserError, match=words):
            load_speech(data)
    with pytest.raises(UserError, match="choose one of error, few, skip"):
        load_speech(on_bad_row="ignore")

"""`labkit transcribe`: good and bad audio from files, folders and a pipe; what is told, and the exit status."""

import io
import json
import signal
import sys
import tempfile
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile
from made_recogniser import tiny_model, write_speech_run

from labkit.data.speech import Alphabet
from labkit.models.speech import KINDS
from labkit.transcription.decoding import read_texts

RATE_HZ = 16_000


@pytest.fixture
def runs(tmp_path):
    write_speech_run(tmp_path / "runs")
    return ["--runs-dir", str(tmp_path / "runs")]


def wave(seconds: float = 1.0) -> np.ndarray:
    return np.random.default_rng(0).normal(0, 0.1, round(RATE_HZ * seconds)).astype(np.float32)


def rows(printed) -> list[dict]:
    return [json.loads(line) for line in printed.out.splitlines()]


def test_every_kind_of_bad_audio_is_named_and_the_rest_is_transcribed(tmp_path, runs, cli):
    folder = tmp_path / "audio"
    folder.mkdir()

    def write(name, samples=None, rate_hz=RATE_HZ, **options):
        soundfile.write(folder / name, wave() if samples is None else samples, rate_hz, **options)

    write("stereo.wav", np.stack([wave(), wave()], 1))
    for rate_hz in (8_000, 44_100, 48_000):
        write(f"{rate_hz}.wav", rate_hz=rate_hz)
    write("mu-law.wav", subtype="ULAW")
    write("good.flac")
    write("opposite.wav", np.stack([wave(), -wave()], 1))
    write("quiet.wav", wave() / 1e5, subtype="FLOAT")
    write("silence.wav", np.zeros(RATE_HZ))
    write("whole.opus", wave(30), format="OGG", subtype="OPUS")
    opus = (folder / "whole.opus").read_bytes()
    (folder / "cut.opus").write_bytes(opus[: len(opus) // 2])
    (folder / "head.opus").write_bytes(opus[: opus.rindex(b"OggS") + 5])
    (folder / "stub.opus").write_bytes(opus[:300])
    (folder / "half.wav").write_bytes((folder / "48000.wav").read_bytes()[:16_000])
    write("nan.wav", np.full(RATE_HZ, np.nan), subtype="FLOAT")
    (folder / "empty.wav").touch()
    (folder / "text.wav").write_text("This is no audio.")
    printed = cli("transcribe --json --by-file", folder, tmp_path / "missing.wav", *runs, status=2)
    lines = rows(printed)
    good = {line["file"].rpartition("/")[2]: line for line in lines if "file" in line}
    assert sorted(good) == [
        "44100.wav", "48000.wav", "8000.wav", "cut.opus", "good.flac", "half.wav", "head.opus", "mu-law.wav",
        "opposite.wav", "quiet.wav", "silence.wav", "stereo.wav", "whole.opus",
    ]  # fmt: skip
    assert good["opposite.wav"]["text"] == good["stereo.wav"]["text"] == good["good.flac"]["text"] != ""
    assert (good["silence.wav"]["text"], good["silence.wav"]["note"]) == ("", "silence")
    assert "too quiet" in good["quiet.wav"]["note"]
    cut = {name for name, line in good.items() if "cut off" in line.get("note", "")}
    assert cut == {"cut.opus", "half.wav", "head.opus"}
    refused = [line["error"] for line in lines if "error" in line]
    for name, words in (
        ("stub.opus", "cannot be decoded"), ("nan.wav", "NaN"), ("empty.wav", "0 bytes"),
        ("text.wav", "cannot be decoded"), ("missing.wav", "no such file"),
    ):  # fmt: skip
        assert any(name in line and words in line for line in refused) and name in printed.err
    assert (lines[-1]["recordings"], lines[-1]["failed"], lines[-1]["provenance"]) == (13, 5, "measured")
    assert lines[-1]["times_real_time"] == pytest.approx(lines[-1]["audio_s"] / lines[-1]["took_s"], rel=0.1)


def pipe(monkeypatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_a_pipe_is_heard_and_drawn_and_a_bad_one_named(tmp_path, runs, cli, monkeypatch):
    file, page = io.BytesIO(), tmp_path / "page.html"
    soundfile.write(file, wave(), RATE_HZ, format="FLAC")
    pipe(monkeypatch, file.getvalue())
    said = cli("transcribe - --align", page, *runs).out
    assert said.startswith("standard input: ") and "real time, measured" in said
    assert "What was heard in standard input" in page.read_text(encoding="utf-8")
    pipe(monkeypatch, b"")
    assert "standard input: The audio file standard input is empty" in cli("transcribe -", *runs, status=2).err
    monkeypatch.setattr("labkit.cli.transcribe.MOST_PIPED", 10)
    pipe(monkeypatch, bytes(2**21))
    assert "more than 1 GiB" in cli("transcribe -", *runs, status=2).err


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_kill_leaves_nothing_of_the_pipe(tmp_path, runs, monkeypatch, name, cli):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()

    killed = SimpleNamespace(read=lambda size: signal.raise_signal(signal.Signals[name]))
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=killed))
    before = signal.getsignal(signal.Signals[name])
    cli("transcribe -", *runs, status=130)
    assert not any((tmp_path / "temporary").iterdir()) and signal.getsignal(signal.Signals[name]) == before


def test_a_stream_writes_what_the_whole_does(tmp_path, runs, cli):
    soundfile.write(path := tmp_path / "a.wav", wave(3.005), RATE_HZ)
    text = rows(cli("transcribe --json", path, *runs))[0]["text"]
    assert cli("transcribe --stream", path, *runs).out.splitlines()[0] == f"{path}: {text}"
    assert rows(cli("transcribe --stream --json", path, *runs))[0]["audio_s"] == 3.005
    backwards = write_speech_run(tmp_path / "runs", tiny_model(KINDS[-1]))
    assert "hears recordings from their end" in cli("transcribe --stream", path, "--run", backwards, status=2).err


def test_known_transcripts_give_error_rates(tmp_path, runs, cli):
    for speaker in ("anna", "ben"):
        (tmp_path / speaker).mkdir()
        soundfile.write(tmp_path / speaker / "a.wav", wave(), RATE_HZ)
        (tmp_path / speaker / "a.txt").write_text("Stop all jobs!")
    soundfile.write(tmp_path / "ben" / "b.wav", wave(), RATE_HZ)
    (tmp_path / "ben" / "b.txt").write_text("Привет")
    paths = tmp_path / "anna", tmp_path / "ben"
    said = cli("transcribe", *paths, *runs)
    assert all(words in said.out for words in ("CER", "WER", "total", "speaker anna", "speaker ben"))
    assert "not compared" in said.err and "b.txt" in said.err
    *each, summary = rows(cli("transcribe --json", *paths, *runs))
    assert [one["transcript"] for one in each] == ["Stop all jobs!", "Stop all jobs!", "Привет"]
    assert (summary["recordings"], summary["not_compared"]) == (3, 1)


def test_a_beam_takes_its_model_and_weight_from_the_runs_data(tmp_path, cli):
    lines = []
    for number, split in enumerate(("train", "validation", "validation", "test")):
        soundfile.write(tmp_path / f"{number}.wav", wave(), RATE_HZ)
        lines.append(json.dumps({"audio": f"{number}.wav", "text": "one two", "speaker": split, "split": split}))
    manifest = tmp_path / "utterances.jsonl"
    manifest.write_text("\n".join(lines))
    run = write_speech_run(tmp_path / "runs", data=str(manifest))
    transcribe = ["transcribe", str(manifest), "--split", "test", "--json", "--run", str(run)]
    printed = cli(*transcribe, "--beam", "4")
    assert len(rows(printed)) == 2 and "training transcripts" in printed.err
    assert "2 utterances of the validation split" in printed.err
    (texts := tmp_path / "texts.txt").write_text("One, two!\nIt\N{RIGHT SINGLE QUOTATION MARK}s 3\n")
    assert list(read_texts(texts, Alphabet())) == ["one two", "it's"]
    assert "16 wide" in cli(*transcribe, "--lm", texts).err
    texts.write_text("One, two!", encoding="utf-16")
    assert "UTF-16" in cli(*transcribe, "--lm", texts, status=2).err
    manifest.unlink()
    one = ["transcribe", str(tmp_path / "0.wav"), "--run", str(run)]
    assert "--lm none" in cli(*one, "--beam", "4", status=2).err
    cli(*one, "--lm", "none")

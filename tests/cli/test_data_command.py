"""`labkit data`: list, make and prepare, as typed."""

import argparse
import json
import runpy
from types import SimpleNamespace

import pytest

from labkit.cli import data as command
from labkit.data import kind_of, list_datasets
from labkit.errors import UserError
from labkit.project import shipped_datasets


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    args = parser.parse_args(["data", *words])
    return args.run(args)


def test_the_list_says_what_there_is_and_whether_it_is_here(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path))

    def states() -> dict[str, str]:
        assert run("list", "--json") == 0
        return {row["name"]: row["state"] for row in json.loads(capsys.readouterr().out)}

    before = states()
    assert before["synthetic-small"] == "on first use" and before["adult"] == "give its path"
    assert before["librispeech-clean-100"] == "to download"
    assert run("prepare", "synthetic-small") == 0
    assert "The true probabilities reach AUC 0.8" in capsys.readouterr().out
    assert states()["synthetic-small"] == "prepared"
    assert run("list") == 0
    shown = capsys.readouterr().out
    assert all(item.name in shown for item in list_datasets()) and str(tmp_path) in shown


def test_made_rows_can_be_prepared(capsys, tmp_path):
    out = tmp_path / "made.tsv.gz"
    assert run("make", "clicks", "--rows", "400", "--seed", "3", "--out", str(out)) == 0
    assert "400 rows" in capsys.readouterr().out
    assert run("prepare", str(out)) == 0
    captured = capsys.readouterr()
    assert "train 343, validation 28, test 29" in captured.out and "Prepared in" in captured.out
    assert "of disk" in captured.err  # the preflight stays on the screen


def test_a_file_that_is_there_is_replaced_only_when_asked(tmp_path):
    out = tmp_path / "made.tsv"
    out.write_text("a reader's own")
    with pytest.raises(UserError, match="--overwrite"):
        run("make", "clicks", "--rows", "50", "--out", str(out))
    assert out.read_text() == "a reader's own"
    assert run("make", "clicks", "--rows", "50", "--out", str(out), "--overwrite") == 0
    assert len(out.read_text().splitlines()) == 50


def test_what_cannot_be_prepared_or_made_is_refused_with_what_to_do(tmp_path):
    (tmp_path / "adult.csv").write_text("a,b\n")
    for name, words in {
        "adult": r"does not ship with labkit.*UCI Adult",
        "criteo": r"does not ship with labkit.*train.txt",
        "fsdd": r"does not ship with labkit.*recordings",
        str(tmp_path): r"here: adult\.csv",
        "nothing-of-the-kind": "is not a file, a folder",
    }.items():
        with pytest.raises(UserError, match=words):
            run("prepare", name)
    with pytest.raises(UserError, match="--rows is 0"):
        run("make", "clicks", "--rows", "0", "--out", str(tmp_path / "made.tsv"))


def test_skipped_rows_are_shown(capsys, tmp_path):
    out = tmp_path / "made.tsv"
    run("make", "clicks", "--rows", "100", "--out", str(out))
    out.write_text(out.read_text() + "bad\n")
    assert run("prepare", str(out), "--on-bad-row", "skip") == 0
    shown = capsys.readouterr().out
    assert "ad rows skipped: 1" in shown and "made.tsv, line 101: The line has 1 fields" in shown


def test_a_generators_options_reach_it(tmp_path):
    out = tmp_path / "made.csv"
    options = ["--dense-dim", "2", "--num-rows", "5", "9", "--base-rate", "0.5", "--bayes-auc", "0.7"]
    assert run("make", "clicks", "--rows", "2000", "--out", str(out), "--format", "csv", *options) == 0
    lines = out.read_text().splitlines()
    assert lines[0] == "label,I1,I2,C1,C2"
    clicks = sum(line.startswith("1") for line in lines[1:])
    assert clicks == pytest.approx(1000, abs=120)  # five standard deviations


def test_a_download_is_fetched_then_prepared_as_speech(monkeypatch, tmp_path):
    (tmp_path / "speech").mkdir()
    asked, prepared = [], SimpleNamespace(info={}, folder=tmp_path)
    monkeypatch.setattr("labkit.data.fetch", lambda name, *_, **__: asked.append(name) or tmp_path / "speech")
    monkeypatch.setattr("labkit.data.speech.load_speech", lambda data, **_: asked.append(data) or prepared)
    assert run("prepare", "fsdd-1.0.9") == 0
    assert asked == ["fsdd-1.0.9", str(tmp_path / "speech")]


def test_what_a_path_holds_is_seen_from_the_outside(tmp_path):
    (tmp_path / "day_0.gz").touch()
    (tmp_path / "wav").mkdir()
    kinds = {str(tmp_path): "clicks", str(tmp_path / "wav"): "speech", "manifest.jsonl": "speech"}
    kinds |= {"train.csv": "clicks", "librispeech-clean-100": "speech"}
    assert {path: kind_of(path) for path in kinds} == kinds


def test_recordings_are_listed_shown_and_imported_anew(capsys, tmp_path):
    from labkit.cli import report, runs

    def do(command, *words):
        parser = argparse.ArgumentParser()
        command.add_parser(parser.add_subparsers())
        args = parser.parse_args(words)
        assert args.run(args) == 0
        return capsys.readouterr().out

    assert {row["name"] for row in json.loads(do(command, "data", "recorded", "list", "--json"))} >= {"zeus-nsdi23"}
    shown = do(command, "data", "recorded", "show", "zeus-nsdi23")
    assert "Jie You" in shown and "Apache-2.0" in shown and "cannot say" in shown and "power_limit_w" in shown
    files = sorted((shipped_datasets() / "recorded" / "zeus-nsdi23" / "original").iterdir())
    where = ("--runs-dir", str(tmp_path / "runs"))
    only = ("--only", "batch_size=32", "--only", "power_limit_w=max")
    make_recording = runpy.run_path(str(shipped_datasets() / "recorded" / "published.py"))["main"]
    make_recording([*map(str, files), "--name", "mine", "--cite", "You et al. 2023", *only, *where])
    assert "130 recorded runs of A40, P100, RTX 6000, V100" in capsys.readouterr().out
    assert "is a recording" in do(runs, "runs", "list", *where)
    page = tmp_path / "page.html"
    only = ("--only", "job=deepspeech2 on librispeech", "--only", "batch_size=32")
    said = do(report, "report", "--recorded", str(tmp_path / "runs" / "mine"), "--out", str(page), *only)
    assert "20 recorded runs" in said
    text = page.read_text()
    assert all(words in text for words in ("recorded, You et al. 2023", "Recorded, You", "the same for every seed"))
    out = ("--out", str(page))
    for ask, words in (
        (lambda: do(report, "report", "--recorded", "mlperf-rcp", *out), r"has no times.*figure_batch_size"),
        (lambda: do(report, "report", "--recorded", "zeus-nsdi23", *out), "too many for a page"),
        (lambda: make_recording([*map(str, files), "--name", "../x", "--cite", "Y", *where]), "--name ../x is a path"),
        (lambda: do(runs, "runs", "import", *map(str, files), "--cite", "Y"), "python .*published.py"),
        (lambda: do(report, "report", "--only", "batch_size=32", *out), "--only .* --recorded"),
        (lambda: do(report, "report", "--recorded", "zeus-nsdi23", "--only", "x", *out), "write NAME=VALUES"),
    ):
        with pytest.raises(UserError, match=words):
            ask()


def test_the_files_of_a_recordings_authors_are_downloaded_and_checked(monkeypatch, tmp_path, capsys):
    asked = []

    def download(archive, folder, progress):
        asked.append((archive.url.rsplit("/", 1)[-1], archive.sha256))
        return folder / asked[-1][0]

    monkeypatch.setattr("labkit.data.download", download)
    assert run("recorded", "fetch", "zeus-nsdi23", "--out", str(tmp_path)) == 0
    assert len(asked) == 5 and asked[0][0] == "summary_train.csv" and len(asked[0][1]) == 64
    assert "published.py" in capsys.readouterr().out
    with pytest.raises(UserError, match="has no files to download: see its source, https"):
        run("recorded", "fetch", "pmdlt-a100")

"""`labkit data`: list, make and prepare, as typed."""

import runpy
from types import SimpleNamespace

import pytest

from labkit.data import kind_of, list_datasets
from labkit.errors import UserError
from labkit.project import shipped_datasets


def test_the_list_says_what_there_is_and_whether_it_is_here(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path))

    def states() -> dict[str, str]:
        return {row["name"]: row["state"] for row in cli("data list --json").json}

    before = states()
    assert before["synthetic-small"] == "on first use" and before["adult"] == "give its path"
    assert before["librispeech-clean-100"] == "to download"
    assert "The true probabilities reach AUC 0.8" in cli("data prepare synthetic-small").out
    assert states()["synthetic-small"] == "prepared"
    shown = cli("data list").out
    assert all(item.name in shown for item in list_datasets()) and str(tmp_path) in shown


def test_made_rows_can_be_prepared_and_replace_a_file_only_when_asked(cli, tmp_path):
    out = tmp_path / "made.tsv.gz"
    assert "400 rows" in cli("data make clicks --rows 400 --seed 3 --out", out).out
    printed = cli("data prepare", out)
    assert "train 343, validation 28, test 29" in printed.out and "Prepared in" in printed.out
    assert "of disk" in printed.err  # the preflight stays on the screen
    before = out.read_bytes()
    assert "--overwrite" in cli("data make clicks --rows 50 --out", out, status=2).err
    assert out.read_bytes() == before
    assert "50 rows" in cli("data make clicks --rows 50 --overwrite --out", out).out
    assert out.read_bytes() != before


def test_skipped_rows_are_shown(cli, tmp_path):
    out = tmp_path / "made.tsv"
    cli("data make clicks --rows 100 --out", out)
    out.write_text(out.read_text() + "bad\n")
    shown = cli("data prepare --on-bad-row skip", out).out
    assert "ad rows skipped: 1" in shown and "made.tsv, line 101: The line has 1 fields" in shown


def test_a_generators_options_reach_it(cli, tmp_path):
    out = tmp_path / "made.csv"
    options = "--dense-dim 2 --num-rows 5 9 --base-rate 0.5 --bayes-auc 0.7"
    cli(f"data make clicks --rows 2000 --format csv {options} --out", out)
    lines = out.read_text().splitlines()
    assert lines[0] == "label,I1,I2,C1,C2"
    clicks = sum(line.startswith("1") for line in lines[1:])
    assert clicks == pytest.approx(1000, abs=120)  # five standard deviations


def test_a_download_is_fetched_then_prepared_as_speech(cli, monkeypatch, tmp_path):
    (tmp_path / "speech").mkdir()
    asked, prepared = [], SimpleNamespace(info={}, folder=tmp_path)
    monkeypatch.setattr("labkit.data.fetch", lambda name, *_, **__: asked.append(name) or tmp_path / "speech")
    monkeypatch.setattr("labkit.data.speech.load_speech", lambda data, **_: asked.append(data) or prepared)
    cli("data prepare fsdd-1.0.9")
    assert asked == ["fsdd-1.0.9", str(tmp_path / "speech")]


def test_what_a_path_holds_is_seen_from_the_outside(tmp_path):
    (tmp_path / "day_0.gz").touch()
    (tmp_path / "wav").mkdir()
    kinds = {str(tmp_path): "clicks", str(tmp_path / "wav"): "speech", "manifest.jsonl": "speech"}
    kinds |= {"train.csv": "clicks", "librispeech-clean-100": "speech"}
    assert {path: kind_of(path) for path in kinds} == kinds


def test_recordings_are_listed_shown_and_imported_anew(cli, capfd, tmp_path):
    assert {row["name"] for row in cli("data recorded list --json").json} >= {"zeus-nsdi23"}
    shown = cli("data recorded show zeus-nsdi23").out
    assert "Jie You" in shown and "Apache-2.0" in shown and "cannot say" in shown and "power_limit_w" in shown
    files = [*map(str, sorted((shipped_datasets() / "recorded" / "zeus-nsdi23" / "original").iterdir()))]
    where = ("--runs-dir", str(tmp_path / "runs"))
    only = ("--only", "batch_size=32", "--only", "power_limit_w=max")
    make_recording = runpy.run_path(str(shipped_datasets() / "recorded" / "published.py"))["main"]
    make_recording([*files, "--name", "mine", "--cite", "You et al. 2023", *only, *where])
    assert "130 recorded runs of A40, P100, RTX 6000, V100" in capfd.readouterr().out
    assert "is a recording" in cli("runs list", *where).text
    out = ("--out", tmp_path / "page.html")
    only = "--only 'job=deepspeech2 on librispeech' --only batch_size=32"
    assert "20 recorded runs" in cli(f"report {only} --recorded", tmp_path / "runs" / "mine", *out).text
    text = (tmp_path / "page.html").read_text()
    assert all(words in text for words in ("recorded, You et al. 2023", "Recorded, You", "the same for every seed"))
    with pytest.raises(UserError, match=r"--name \.\./x is a path"):
        make_recording([*files, "--name", "../x", "--cite", "Y", *where])


def test_the_files_of_a_recordings_authors_are_downloaded_and_checked(monkeypatch, tmp_path, cli):
    asked = []

    def download(archive, folder, progress):
        asked.append((archive.url.rsplit("/", 1)[-1], archive.sha256))
        return folder / asked[-1][0]

    monkeypatch.setattr("labkit.data.download", download)
    assert "published.py" in cli("data recorded fetch zeus-nsdi23 --out", tmp_path).out
    assert len(asked) == 5 and asked[0][0] == "summary_train.csv" and len(asked[0][1]) == 64

"""A student sees what is done and what is next, and hands in what can be checked."""

import re
import zipfile
from pathlib import Path

import pytest
from nbformat.v4 import new_code_cell, new_notebook

from labkit.cli import main
from labkit_course import guess, progress, reveal
from labkit_course.notebook_file import canonical
from labkit_course.progress import keep, progress_file


@pytest.fixture(autouse=True)
def fresh_student(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_COURSE", str(tmp_path / "course"))
    monkeypatch.setattr(progress, "_open", {})
    monkeypatch.chdir(tmp_path)


def test_status_says_what_is_done_and_what_is_next(tmp_path, capsys):
    (tmp_path / "notebooks").mkdir()
    for name, names in (
        ("10_train_dlrm", ("10.interaction", "10.why", "10.step")),
        ("20_train_speech", ("20.collapse",)),
    ):
        calls = [f'{"explain" if "why" in each else "check"}("{each}", answer)' for each in names]
        notebook = new_notebook(cells=[new_code_cell(call) for call in [*calls, 'claim("A9", "3", answer)']])
        (tmp_path / "notebooks" / f"{name}.ipynb").write_text(canonical(notebook), encoding="utf-8")
    keep("attempt", "10.interaction", right=False)
    keep("attempt", "10.interaction", right=True)
    keep("explanation", "10.why")
    keep("attempt", "20.collapse", right=False)
    keep("reference", "20.collapse")
    keep("claim", "A9")
    for name, value in (("10.a", 3.0), ("10.b", 9.0)):
        guess(name, value)
        reveal(name, 2.0)
    with progress_file().open("ab") as file:
        file.write(b'{"kind": "attempt", "na\xff')  # a crash
    capsys.readouterr()
    assert main(["course", "status"]) == 0
    dlrm, speech = (line.split() for line in capsys.readouterr().out.splitlines() if "_train_" in line)
    assert " ".join(dlrm) == "10_train_dlrm 3 of 4 10.step 0 1 of 2"
    assert " ".join(speech) == "20_train_speech 1 of 2 20.collapse 1"
    assert main(["course", "status", "--notebooks", "elsewhere"]) == 2


def test_an_archive_has_notebooks_modules_runs_and_progress(tmp_path, capsys):
    files = {
        "10_train_dlrm.ipynb": "{}", "mylab/dlrm.py": "x = 1\n", "runs/one/run.json": "{}",
        "runs/one/checkpoint/model.pt": "large", "runs/one/trace/trace.json": "large", "notes.txt": "mine",
    }  # fmt: skip
    for name, text in files.items():
        path = tmp_path / "notebooks" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    keep("attempt", "10.interaction", right=True)
    assert main(["course", "submit"]) == 0
    assert "4 files" in capsys.readouterr().out
    with zipfile.ZipFile("submission.zip") as archive:
        packed = {name for name in archive.namelist() if not name.endswith("/")}
        assert packed == {"10_train_dlrm.ipynb", "mylab/dlrm.py", "runs/one/run.json", "progress.jsonl"}
    for arguments, said in (
        ([], "submission.zip: this file exists"),
        (["--notebooks", "elsewhere", "--out", "other.zip"], "elsewhere: there is no notebook"),
    ):
        assert main(["course", "submit", *arguments]) == 2
        assert said in capsys.readouterr().err
    assert not (tmp_path / "other.zip").exists()


def test_instructors_put_notebooks_where_nbgrader_looks(tmp_path):
    for name, text in {"10_train_dlrm.ipynb": "{}", "20_train_speech.ipynb": "[]", "runs/one/20_x.ipynb": ""}.items():
        (tmp_path / "notebooks" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "notebooks" / name).write_text(text)
    assert main(["course", "submit", "--out", "ann.zip"]) == 0
    guide = (Path(__file__).parents[2] / "docs" / "instructors.md").read_text(encoding="utf-8")
    exec(re.search(r"^```python\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)[1], {})
    assert sorted(path.as_posix() for path in Path("submitted").rglob("*.ipynb")) == [
        "submitted/ann/10_train_dlrm/10_train_dlrm.ipynb",
        "submitted/ann/20_train_speech/20_train_speech.ipynb",
    ]

"""A student's progress: `labkit course status` and `submit`, and guesses."""

import json
import zipfile
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
from nbformat.v4 import new_code_cell, new_notebook
from nbgrader.preprocessors import CheckCellMetadata, DeduplicateIds

from labkit.errors import UserError
from labkit_course import guess, progress, reveal, score_course, score_notebook
from labkit_course.build import WithoutCopies, exercise_version
from labkit_course.notebook_file import canonical, fingerprint, read_notebook
from labkit_course.progress import keep, kept, progress_file

SOLUTIONS = Path(__file__).parents[2] / "notebooks" / "solutions"
ASKED = {
    "10_train_dlrm": ("10.interaction", "10.why", "10.step", "10.A9"),
    "20_train_speech": ("20.greedy", "20.A9"),
    "30_untouched": ("30.busy",),
}


@pytest.fixture
def notebooks(tmp_path):
    """Notebooks in which a student answered the first question of two, and nothing in the third."""
    (tmp_path / "notebooks").mkdir()
    for stem, names in ASKED.items():
        cells = [new_code_cell("student = 7")]
        for name in names:
            kind = "explain" if "why" in name else "claim" if "A9" in name else "check"
            cells += [new_code_cell("answer = ...")] if kind == "check" else []
            cells.append(new_code_cell(f'{"" if kind == "check" else "answer = ..."}\n{kind}("{name}", answer)'))
        notebook = new_notebook(cells=cells)
        notebook.metadata["labkit_made"] = fingerprint(notebook)
        if "untouched" not in stem:
            cells[1].source = "answer = 3"
        (tmp_path / "notebooks" / f"{stem}.ipynb").write_text(canonical(notebook), encoding="utf-8")


@pytest.mark.parametrize("inside", [False, True])
def test_status_says_what_is_done_and_what_is_next(tmp_path, notebooks, cli, monkeypatch, inside):
    for name, right in (("10.interaction", False), ("10.interaction", True), ("10.step", True), ("10.step", False)):
        keep("attempt", name, right=right)  # what was right may be so no longer
    keep("explanation", "10.why")
    keep("attempt", "20.greedy", right=False)
    keep("reference", "20.greedy")
    keep("claim", "10.A9")  # and not that of another lab
    for name, value in (("10.a", 3.0), ("10.b", 9.0)):
        guess(name, value)
        reveal(name, 2.0)
    if inside:
        monkeypatch.chdir(tmp_path / "notebooks")
    dlrm, speech = (line.split() for line in cli("course status").out.splitlines() if "_train_" in line)
    assert " ".join(dlrm) == "10_train_dlrm 3 of 4 10.step 0 1 of 2"
    assert " ".join(speech) == "20_train_speech 0 of 2 20.greedy 1"
    cli("course status --notebooks elsewhere", status=2)


def test_an_archive_has_what_was_worked_in_and_says_what_lacks_an_answer(tmp_path, notebooks, cli):
    files = {
        "mylab/dlrm.py": "x = 1\n", "runs/one/run.json": "{}",
        "runs/one/checkpoint/model.pt": "large", "runs/one/trace/trace.json": "large", "notes.txt": "mine",
    }  # fmt: skip
    for name, text in files.items():
        path = tmp_path / "notebooks" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    keep("attempt", "10.interaction", right=True)
    keep("attempt", "20.greedy", right=True)
    said = cli("course submit --lab 10 --student ann").out
    assert "5 files" in said and "10_train_dlrm: not answered: 10.why, 10.step, 10.A9." in said
    with zipfile.ZipFile("ann-10.zip") as archive:
        packed = {name for name in archive.namelist() if not name.endswith("/")}
        others = {"mylab/dlrm.py", "runs/one/run.json", "progress.jsonl", "submission.json"}
        assert packed == {"10_train_dlrm.ipynb", *others}
        assert b"10.interaction" in (lines := archive.read("progress.jsonl")) and b"20.greedy" not in lines
        handed_in = json.loads(archive.read("submission.json"))
        assert (handed_in["student"], handed_in["numbers"]) == ("ann", {"10_train_dlrm": 7})
    cli("course submit")
    with zipfile.ZipFile("submission.zip") as archive:
        assert {name[:2] for name in archive.namelist() if name.endswith(".ipynb")} == {"10", "20"}
    for arguments, said in (
        ([], "submission.zip: this file exists"),
        (["--notebooks", "elsewhere", "--out", "other.zip"], "elsewhere: there is no notebook"),
        (["--lab", "30"], "no notebook 30 has an answer in it"),
    ):
        assert said in cli("course submit", *arguments, status=2).err
    assert not (tmp_path / "other.zip").exists()


def test_submit_follows_no_link_and_leaves_nothing_of_an_archive_that_failed(tmp_path, notebooks, cli, monkeypatch):
    (tmp_path / "secret").write_text("mine")
    (tmp_path / "notebooks" / "runs" / "one").mkdir(parents=True)
    for name, target in {"key": "secret", "up": ".", "gone": "nowhere"}.items():
        (tmp_path / "notebooks" / "runs" / "one" / name).symlink_to(tmp_path / target)
    (tmp_path / "notebooks" / "mylab").symlink_to(tmp_path)
    said = cli("course submit --out one.zip").out
    with zipfile.ZipFile("one.zip") as archive:
        assert not [name for name in archive.namelist() if "secret" in name or "/one/" in name.rstrip("/")]
        assert len(json.loads(archive.read("submission.json"))["links"]) == 4
    assert "Left out, as links may lead anywhere" in said and "mylab" in said
    before = {*tmp_path.iterdir()}
    monkeypatch.setattr("shutil.make_archive", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    assert "No space left" in cli("course submit --out two.zip", status=2).err
    assert {*tmp_path.iterdir()} == before


def test_a_damaged_notebook_is_refused_by_name(tmp_path, cli):
    good = new_notebook(cells=[new_code_cell("1")], metadata={})
    path = tmp_path / "13_x.ipynb"
    for name, value in {
        "cells": [None],
        "metadata": [],
        "nbformat": [4],
        "cells.source": 5,
        "cells.metadata": [],
        "cells.outputs": [1],
        "cells.nbgrader": {"grade_id": [1]},
    }.items():
        content = json.loads(canonical(good))
        place, _, inner = name.partition(".")
        if inner == "nbgrader":
            content["cells"][0]["metadata"] = {"nbgrader": value}
        else:
            (content[place][0] if inner else content)[inner or place] = value
        path.write_text(json.dumps(content))
        for command in ("course status", "course submit"):
            assert "13_x.ipynb: this is no notebook" in cli(command, "--notebooks", str(tmp_path), status=2).err, name


def test_submit_names_a_check_that_is_gone_and_a_cell_that_was_copied(tmp_path, cli):
    notebook = exercise_version(read_notebook(SOLUTIONS / "60_performance_model.ipynb"))
    for place in reversed(range(len(notebook.cells))):
        name = notebook.cells[place].metadata.get("nbgrader", {}).get("grade_id")
        if name == "check-60-walk":
            del notebook.cells[place]
        elif name in ("answer-60-walk", "check-60-exchange"):
            notebook.cells.insert(place, deepcopy(notebook.cells[place]))
            notebook.cells[place].id = f"copy-{place}"
    Path("60_performance_model.ipynb").write_text(canonical(notebook), encoding="utf-8")
    said = cli("course submit --notebooks .").out
    assert "check-60-walk is gone" in said
    assert all(f"{name} stands there more than once" in said for name in ("answer-60-walk", "check-60-exchange"))
    for step in (DeduplicateIds(), WithoutCopies(), CheckCellMetadata()):
        notebook, _ = step.preprocess(notebook, {})
    assert [cell.id for cell in notebook.cells if cell.id.startswith("copy-") and "nbgrader" in cell.metadata] == []


@pytest.mark.parametrize(
    ("value", "truth", "words"),
    [
        (5.0, 10.0, "too low by a factor of 2.00"),
        (20.0, 10.0, "too high by a factor of 2.00"),
        (np.float32(4), 4, "exactly right"),
        (-1.0, 2.0, "off by 3 s"),  # another sign has no ratio
        (1, 0, "off by 1 s"),
    ],
)
def test_a_guess_is_scored_by_its_ratio_and_kept(capsys, value, truth, words):
    guess("00.time", value, "s")
    reveal("00.time", truth)
    assert words in capsys.readouterr().out
    score_notebook()
    assert words.removeprefix("exactly ") in capsys.readouterr().out
    assert [(entry["guess"], entry["truth"], entry["unit"]) for entry in kept("guess")] == [(value, truth, "s")]


def test_a_guess_of_what_is_nothing_is_near_where_it_is_one_off():
    assert [progress.ratio_error(guessed, 0) for guessed in (0, 1, -1, 5)] == [1, 2, 2, 6]


def test_a_guess_is_a_number():
    for value in ("10", None, float("nan"), True, 10**400):
        with pytest.raises(UserError, match=r"write a number of s, such as 2\.5"):
            guess("00.time", value, "s")


def test_a_guess_may_change_before_the_answer_and_not_after(capsys):
    guess("00.time", 1.0)
    guess("00.time", 4.0)
    guess("00.time", ...)  # dots do not undo it
    reveal("00.time", 8.0)
    guess("00.time", 8.0)
    assert "your first guess stays" in capsys.readouterr().out
    reveal("00.time", 4.0)  # the first answer counts
    assert "exactly right. The first answer counts, 8." in capsys.readouterr().out
    for score in (score_notebook, score_course):
        score()
        assert "too low by a factor of 2.00" in capsys.readouterr().out
    assert [entry["guess"] for entry in kept("guess")] == [4.0]


def test_a_guess_outlives_its_kernel(capsys, monkeypatch):
    guess("99.box", 3.0, "s")
    monkeypatch.setattr(progress, "_open", {})
    guess("99.box", ..., "s")
    reveal("99.box", 2.0)
    assert capsys.readouterr().out.count("Your guess: 3 s.") == 2
    score_notebook()
    assert "1 of 1" in capsys.readouterr().out


def test_what_has_no_answer_or_no_guess_is_neither_shown_nor_scored(capsys):
    for call, words in (
        (lambda: reveal("00.time", 8.125), "Guess first: 00.time is shown when"),
        (lambda: guess("00.time", ..., "s"), "write a number of s into the box, or in place of the dots"),
        (lambda: reveal("00.time", 8.125), "Guess first"),
        (lambda: guess("00.time", 1.0, "s"), "Your guess: 1 s."),
        (lambda: reveal("00.time", None), "no answer, so the guess is not scored"),
        (lambda: reveal("00.time", float("nan")), "not scored"),
        (score_notebook, "No guess of this notebook is scored yet"),
    ):
        call()
        said = capsys.readouterr().out
        assert words in said and "8.1" not in said
    assert kept("guess") == []


def test_the_notebooks_score_lists_its_guesses_and_the_courses_the_first_of_each_name(capsys, monkeypatch):
    for name, value, truth in (("00.a", 1.0, 1.0), ("00.b", 10.0, 1.0), ("00.c", 3.0, 2.0)):
        guess(name, value)
        reveal(name, truth)
    capsys.readouterr()
    score_notebook()
    said = capsys.readouterr().out
    assert "factor of 10.00" in said and "2 of 3 guesses of this notebook" in said and "factor of 1.50" in said
    monkeypatch.setattr(progress, "_open", {})  # another day
    guess("00.b", 1.0)
    reveal("00.b", 1.0)
    capsys.readouterr()
    score_course()
    said = capsys.readouterr().out
    assert "factor of 10.00" in said and "2 of 3 guesses of the course" in said


def test_a_line_that_a_crash_cut_takes_no_later_one_with_it():
    keep("attempt", "00.a", right=True)
    with progress_file().open("ab") as file:
        file.write(b'{"kind": "attempt", "na\xff')
    keep("attempt", "00.b", right=True)
    keep("attempt", "00.c", right=True)
    assert [each["name"] for each in kept("attempt")] == ["00.a", "00.b", "00.c"]
    assert len(progress_file().read_bytes().splitlines()) == 4

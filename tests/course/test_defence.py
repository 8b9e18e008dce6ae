"""Questions to students are drawn from what each handed in, and are the same again for the same seed."""

import json
import random
import re
import zipfile

import pytest
from made_up import new_run
from nbformat.v4 import new_code_cell, new_notebook, new_output

from labkit import UserError
from labkit_course import classroom, defence
from labkit_course.notebook_file import canonical
from labkit_course.progress import RESULTS

LAB = "10_train_dlrm"
KNOWN = {"grade": False, "grade_id": "answer-10-x", "locked": False, "schema_version": 3, "solution": True}


def notebook(answer, value=None):
    cell = new_code_cell(answer, metadata={"nbgrader": KNOWN})
    record = {"auc": {"value": value, "low": 0, "high": 1}}
    outputs = [] if value is None else [new_output("display_data", {RESULTS: record})]
    last = new_code_cell("results(auc=auc)", outputs=outputs, metadata={"tags": ["results"]})
    return canonical(new_notebook(cells=[cell, last]))


def handed_in(path, student, number, *, runs=(), lines=(), when="2026-12-09T12:00:00+00:00", text=None):
    with zipfile.ZipFile(path, "w") as archive:
        about = {"student": student, "numbers": {}, "handed_in": when}
        archive.writestr("submission.json", json.dumps(about))
        own = f"def score(rows):\n    weights_{student} = rows * {number}\n    return weights_{student}"
        archive.writestr(f"{LAB}.ipynb", text or notebook(own, number))
        archive.writestr("progress.jsonl", "".join(f"{json.dumps(line)}\n" for line in lines))
        for each in runs:
            archive.write(each / "run.json", f"runs/notebooks/{each.name}/run.json")
        archive.writestr("runs/broken/run.json", "{")
        archive.writestr("../outside.json", "{}")
    return path


@pytest.fixture
def course(tmp_path):
    """A made-up class of three, of whom two handed the lab in."""
    place = tmp_path / "c"
    (place / "source" / LAB).mkdir(parents=True)
    (place / "release" / LAB).mkdir(parents=True)
    (place / "release" / LAB / f"{LAB}.ipynb").write_text(notebook("def score(rows):\n    raise NotImplementedError"))
    (place / classroom.ROSTER).write_text("student,name\nann,Ann Lee\nbob,Bob\neve,Eve\n")
    runs = []
    for batch_size, seconds in ((512, 12.5), (2048, 7.25)):
        config = {"job": "dlrm", "train": {"batch_size": batch_size, "lr": 0.001, "seed": 0}}
        run = new_run(tmp_path / "runs", "dlrm", config=config)
        run.finish("done", {"wall_s": 20.0, "time_to_target_s": seconds})
        runs.append(run.folder)
    lines = [
        {"kind": "guess", "name": "10.time", "guess": 3.0, "truth": 12.5, "unit": "s"},
        {"kind": "guess", "name": "10.time", "guess": 12.5, "truth": 12.5, "unit": "s"},
        {"kind": "guess", "name": "11.other", "guess": 1.0, "truth": 1.0},
        {"kind": "claim", "name": "10.A9", "mine": "1.8 times <b>", "verdict": "holds here", "reason": "so"},
        {"kind": "explanation", "name": "10.why", "text": "It is 0.71 because there are few steps."},
        {"kind": "guess", "name": "10.odd", "guess": "many", "truth": None},
    ]
    return place, [
        handed_in(tmp_path / "ann.zip", "ann", 0.7123, runs=runs, lines=lines),
        handed_in(tmp_path / "bob.zip", "bob", 0.6543),
    ]


def test_five_questions_each_about_the_students_own_numbers(course):
    place, archives = course
    (ann, bob), said = defence.sheets(place, archives, seed=3)
    assert said == []
    assert ann.startswith("# Defence of Ann Lee (ann)\n") and f"{LAB} in ann.zip" in ann and "seed 3" in ann
    assert len(re.findall(r"^\d\. ", ann, re.MULTILINE)) == defence.QUESTIONS and "Only" not in ann
    for words in ("guessed 3 s for 10.time, and it was 12.5", "= 0.7123", "`weights_ann =", "Run 20"):
        assert words in ann
    assert "“1.8 times &lt;b&gt;”" in ann or "“It is 0.71" in ann
    assert "11.other" not in ann and "10.odd" not in ann and "bob" not in ann
    assert "Only 2, because no more was handed in." in bob and "0.6543" in bob and "ann" not in bob


def test_the_same_seed_draws_the_same_and_another_one_others(course):
    place, archives = course
    one, again, other = (defence.sheets(place, order, seed)[0][0] for order, seed in
                         ((archives, 1), (archives[::-1], 1), (archives, 2)))  # fmt: skip
    assert one == again != other.replace("seed 2", "seed 1")


def test_runs_that_one_setting_tells_apart_are_compared(course):
    questions = defence._questions(course[1][0], [LAB], course[0])["run"]
    pair, *single = questions
    assert "batch_size 512 and reached its target after 12.5 s" in pair and "2048" in pair and "7.25 s" in pair
    assert len(single) == 2 and all("took 20 s" in each for each in single)


def test_kinds_of_questions_take_turns():
    found = [{"a": [f"a{n}" for n in range(9)], "b": ["b"]}, {"c": ["c1", "c2"], "a": ["a0"]}]
    chosen = defence.drawn(found, random.Random(0))
    assert len(chosen) == len({*chosen}) == 5
    assert {each[0] for each in chosen[:3]} == {"a", "b", "c"} and {"b", "c1", "c2"} < {*chosen}


def test_one_damaged_hand_in_keeps_nobody_from_a_sheet(course, tmp_path, cli):
    place, archives = course
    later = handed_in(tmp_path / "bob-2.zip", "bob", 1, when="2026-12-10T12:00:00+00:00", text="{")
    shown = cli("course defence", place, *archives, later, tmp_path / "none.zip")
    assert shown.out.startswith("# Defence of Ann Lee") and shown.out.count("# Defence") == 1
    for words in ("bob handed in 10_train_dlrm twice", "no sheet for bob", "none.zip"):
        assert words in shown.err
    with pytest.raises(UserError, match="no course of labkit's"):
        defence.sheets(tmp_path, archives)

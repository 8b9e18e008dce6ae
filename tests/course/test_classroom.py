"""A class from its roster to a platform's grades, with archives that are late, double, foreign or copied."""

import csv
import json
import os
import re
import subprocess
import zipfile
from pathlib import Path

import pytest
import yaml
from made_up import new_run
from nbformat.v4 import new_output
from traitlets.config import Config

from labkit import DataError, UserError
from labkit.cli import build_parser
from labkit.hardware import get_tier
from labkit_course import classroom, configure
from labkit_course.build import exercise_version
from labkit_course.expenses import SEAT_GB, expense, labs_of, sittings
from labkit_course.grades import Grade, grade_class, grades_of, late_policy, write_grades
from labkit_course.notebook_file import SOLUTIONS, canonical, code_cells, read_notebook
from labkit_course.progress import RESULTS

NOTEBOOKS = Path(__file__).parents[2] / "notebooks" / SOLUTIONS
LAB = "00_start_here"
ROSTER = 'student,name,email\nann,Ann Lee,ann@example.org\nbob,"Kay, Bob",bob@example.org\neve,Eve,eve@example.org\n'
OWN = "def {}(*given):\n    " + "\n    ".join(
    f"part_{place} = [each * {place} for each in given if each is not None]" for place in range(1, 9)
)


@pytest.mark.parametrize(
    ("text", "line", "field", "words"),
    [
        ("name\nann\n", 1, None, "no column 'student'"),
        ("student\nann\nbob\nann\n", 4, "student", "ann is in the roster twice"),
        ("student\nann\nAnn\n", 3, "student", "ann and Ann differ only in case"),
        ("student\n../ann\n", 2, "student", "cannot name"),
        ("student,number\nann,x\n", 2, "number", "is no number"),
        ("student,student\nann,bob\n", 1, None, "more than one column 'student'"),
        ("student,name\nann,Lee, Ann\n", 2, None, "more than 2 fields"),
        ("student;name\nann;Ann Lee\n", 1, None, "no column 'student' in 'student;name'.*CSV file with commas"),
        ("student,number\nann,7\nbob,7\n", None, "number", "ann and bob both have the number 7"),
    ],
)
def test_a_roster_is_refused_at_its_line(tmp_path, text, line, field, words):
    (tmp_path / "r.csv").write_text(text)
    with pytest.raises(DataError, match=words) as caught:
        classroom.read_roster(tmp_path / "r.csv")
    assert (caught.value.line, caught.value.field) == (line, field)


def test_a_roster_of_a_spreadsheet_may_have_spaces_in_its_head_and_rows_of_commas(tmp_path):
    (tmp_path / "r.csv").write_text("student , name\nann,Ann Lee\n,\nbob,Bob\n,\n")
    found = classroom.read_roster(tmp_path / "r.csv")
    assert [(student.id, student.name) for student in found] == [("ann", "Ann Lee"), ("bob", "Bob")]


def test_a_student_has_the_same_number_in_every_roster(tmp_path):
    (tmp_path / "r.csv").write_text(ROSTER)
    numbers = {student.id: student.number for student in classroom.read_roster(tmp_path / "r.csv")}
    (tmp_path / "r.csv").write_text("student\neve\nzoe\nann\n")
    later = {student.id: student.number for student in classroom.read_roster(tmp_path / "r.csv")}
    assert len({*numbers.values()}) == 3 and later["ann"] == numbers["ann"] and later["eve"] == numbers["eve"]


def test_due_dates_are_kept_in_utc_and_need_a_zone():
    (due,) = classroom.due_dates(["00=2026-12-10T23:59+01:00"], [LAB, "10_train_dlrm"]).values()
    assert due.isoformat() == "2026-12-10T22:59:00+00:00"
    for text in ("00=2026-12-10T23:59", "90=2026-12-10T23:59Z", "=2026-12-10T23:59Z", "00"):
        with pytest.raises(UserError, match="--due"):
            classroom.due_dates([text], [LAB])


@pytest.mark.parametrize(
    ("text", "late_s", "left"),
    [("", 1e9, 1), ("10%/day", 0, 1), ("10%/day", 1, 0.9), ("10%/day", 86_401, 0.8), ("60%/week", 1e7, 0)],
)
def test_each_period_that_has_begun_takes_its_share_of_a_late_score(text, late_s, left):
    assert late_policy(text)(late_s) == pytest.approx(left)


@pytest.mark.parametrize("text", ["10%", "10/day", "-5%/day", "101%/day", "10%/year", "%/day"])
def test_a_late_policy_that_is_none_is_refused(text):
    with pytest.raises(UserError, match="such as 10%/day"):
        late_policy(text)


def test_grades_say_what_lateness_took(tmp_path, monkeypatch):
    (tmp_path / "roster.csv").write_text("student\nann\neve\n")
    found = [Grade("ann", LAB, 10, 12, True, 0.0), Grade("eve", LAB, 9, 12, False, 90_000.0)]
    monkeypatch.setattr("labkit_course.grades.grades_of", lambda place: found)
    said = write_grades(tmp_path, "csv", tmp_path / "g.csv", "10%/day")
    assert said[:-1] == [f"eve: {LAB} was handed in 1 day, 1:00:00 late and has 7.2 of 9 points."]
    assert [*csv.reader((tmp_path / "g.csv").read_text().splitlines())][1:] == [
        ["ann", LAB, "10", "12", "1", "0", "10"], ["eve", LAB, "7.2", "12", "0", "90000", "9"],
    ]  # fmt: skip
    assert write_grades(tmp_path, "csv", tmp_path / "g.csv")[0].endswith("has 9 of 9 points.")


def named_cells(notebook):
    """The cells that nbgrader knows, by their names."""
    named = {cell.metadata.get("nbgrader", {}).get("grade_id"): cell for cell in notebook.cells}
    return {name: cell for name, cell in named.items() if name}


def handed_in(path, student, answer, *, number=0, when="2026-12-09T12:00:00+00:00", name=LAB):
    """An archive as `labkit course submit` makes it, each answer made from its reference."""
    right = named_cells(read_notebook(NOTEBOOKS / f"{LAB}.ipynb"))
    notebook = read_notebook(NOTEBOOKS.parent / f"{LAB}.ipynb")
    for id, cell in named_cells(notebook).items():
        if id.endswith("-assistant") and id.startswith("answer-"):
            cell.source = f'answer = "{"does not hold here" if answer is str else "holds here"}"'
        if id.startswith("explain-") and answer is str:
            cell.source = right[id].source
        if not id.startswith("answer-") or id.endswith("-assistant"):
            continue
        cell.source = answer(re.sub(r"^ *### (BEGIN|END) SOLUTION\n?", "", right[id].source, flags=re.MULTILINE))
    (results,) = (cell for cell in code_cells(notebook) if "results" in cell.metadata.get("tags", []))
    record = {"not_training": {"value": 0.3, "low": 0.01, "high": 0.8}}  # so that 00.assistant does not hold
    results.outputs = [new_output("display_data", {RESULTS: record})]
    about = {"student": student, "numbers": {name: number}, "handed_in": when}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.ipynb", canonical(notebook))
        archive.writestr("submission.json", json.dumps(about))
    return path


def made_up(reference):
    """An answer that is wrong, and long enough to be recognised."""
    return OWN.format(re.search(r"def (\w+)", reference)[1])


@pytest.mark.timeout(900)
def test_from_the_roster_to_the_grades_of_a_platform(tmp_path):
    (tmp_path / "r.csv").write_text(ROSTER)
    students = classroom.read_roster(tmp_path / "r.csv")
    place, source = tmp_path / "c", NOTEBOOKS / f"{LAB}.ipynb"
    due = classroom.due_dates(["00=2026-12-10T00:00Z"], [LAB])
    assert classroom.make_course(place, students, [source], due) == [LAB]
    assert classroom.make_course(place, students, [source], {}) == []  # and the date stays
    released = read_notebook(place / "release" / LAB / source.name)
    made = exercise_version(read_notebook(source))
    assert [cell.source for cell in released.cells] == [cell.source for cell in made.cells]
    by_file, own = Config(), Config()
    exec((place / classroom.CONFIG).read_text(encoding="utf-8"), {"get_config": lambda: by_file})
    configure(own)
    assert by_file == own  # nbgrader's own commands read the file
    number = students[0].number
    archives = [
        handed_in(tmp_path / "ann-1.zip", "ann", made_up, number=number),
        handed_in(tmp_path / "ann-2.zip", "ann", str, number=number, when="2026-12-10T01:00:00+01:00"),
        handed_in(tmp_path / "bob.zip", "bob", made_up, number=number),
        handed_in(tmp_path / "eve.zip", "eve", made_up, when="2026-12-11T00:00:00+00:00", number=students[2].number),
        handed_in(tmp_path / "mal.zip", "mallory", str),
        handed_in(tmp_path / "old.zip", "eve", str, name="05_gone"),
        handed_in(tmp_path / "again.zip", "eve", str, name=f"{LAB} (1)"),
        tmp_path / "r.csv",
    ]
    said = "\n".join(classroom.collect_archives(place, archives))
    for words in (
        "ann-2.zip counts", f"bob: {LAB} has the numbers of student {number}", "'mallory' is not in the roster",
        "05_gone.ipynb is of another course", "r.csv: this is no archive", "3 notebooks of 3 students",
        "again.zip: it has no notebook with a lab's name",
        f"eve: {LAB} was due at 2026-12-10 00:00 UTC and handed in late, at 2026-12-11 00:00 UTC",
    ):  # fmt: skip
        assert words in said, said
    assert said.count("handed in late") == 1  # ann's last second is in time
    assert "was collected before" in "\n".join(classroom.collect_archives(place, [archives[0]]))
    assert grade_class(place, LAB) == []
    graded = place / "autograded" / "ann" / LAB / f"{LAB}.ipynb"
    once = graded.stat().st_mtime_ns
    assert grade_class(place, LAB) == [] and graded.stat().st_mtime_ns == once  # nothing is graded twice
    grades = {each.student: each for each in grades_of(place)}
    assert grades["ann"].score == 11 and grades["bob"].score == 0 and grades["ann"].by_hand
    assert classroom.nbgrader_of(place).generate_feedback(LAB, "bob")["success"]
    assert "not yet" in (place / "feedback" / "bob" / LAB / f"{LAB}.html").read_text(encoding="utf-8")
    assert [grades[id].late_s for id in ("ann", "bob", "eve")] == [0, 0, 86_400]
    assert [{*names} for _, *names in classroom.alike(place, LAB)] == [{"bob", "eve"}]

    assert write_grades(place, "canvas", tmp_path / "canvas.csv", "10%/day")[-1].endswith("canvas.csv: 3 students.")
    head, points, ann, bob, _ = csv.reader((tmp_path / "canvas.csv").read_text().splitlines())
    assert head == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", LAB]
    assert points[0].strip() == "Points Possible" and points[-1] == "13"
    assert ann[0] == "Lee, Ann" and ann[3] == "ann" and (ann[-1], bob[-1]) == ("11", "0")
    write_grades(place, "moodle", tmp_path / "moodle.csv")
    assert (tmp_path / "moodle.csv").read_text().splitlines()[1] == "ann,ann@example.org,11"

    shorter = read_notebook(source)
    shorter.cells.remove(named_cells(shorter)["check-00-account"])
    (tmp_path / source.name).write_text(canonical(shorter))
    with pytest.raises(UserError, match="check-00-account was released"):
        classroom.make_course(place, students, [tmp_path / source.name], {})


def test_a_syllabus_costs_what_its_executed_labs_took(tmp_path, cli):
    (tmp_path / "s.md").write_text(f"| 9:00 | [{LAB}](../{LAB}.ipynb) | [again](../{LAB}.ipynb)")
    notebook = read_notebook(NOTEBOOKS / f"{LAB}.ipynb")
    notebook.metadata["papermill"] = {"duration": 90.0}
    (tmp_path / "done").mkdir()
    (tmp_path / "done" / f"{LAB}.ipynb").write_text(canonical(notebook))
    for seed in (1, 2):
        run = new_run(tmp_path / "done" / LAB / "runs", "x", tier="t4", seed=seed)
        run.finish("done", {"wall_s": 1800.0})
    assert labs_of(tmp_path / "s.md") == [LAB]
    found = expense(LAB, tmp_path / "done")
    assert (found.minutes, found.runs, found.energy_j) == (1.5, 2, None)
    assert found.cost_usd == pytest.approx(get_tier("t4").rental_price_usd_per_h)  # twice half an hour
    said = cli("course cost", tmp_path / "s.md", "--executed", tmp_path / "done", "--students", 25, "--cores", 2).out
    assert "1.2 core-hours" in said and "4 turns" in said  # 25 x 90 s x 2 cores; eight of them at once
    assert "75 GB for all, 24 GB for one turn" in said
    with pytest.raises(UserError, match=r"course run 00 --profile standard"):
        expense(LAB, tmp_path)
    with pytest.raises(UserError, match="the hub has 1"):
        sittings(25, 2, 1)


HUB = yaml.safe_load((NOTEBOOKS.parents[1] / "binder" / "hub.yaml").read_text(encoding="utf-8"))["singleuser"]


def test_the_profiles_of_a_hub_have_the_sizes_that_cost_computes_with():
    cores = build_parser("course").parse_args(["course", "cost", "s.md"]).cores
    shared, measure = (each["kubespawner_override"] for each in HUB["profileList"])
    # what KubeSpawner calls them; equal limits, so that no student's kernel ends another's
    for each in (shared, measure):
        assert each["mem_guarantee"] == each["mem_limit"] == f"{SEAT_GB:g}G" and each["cpu_limit"] == cores
    assert measure["cpu_guarantee"] == cores and 0 < shared["cpu_guarantee"] < cores
    assert len({each["slug"] for each in HUB["profileList"]}) == 2
    assert [each.get("default") for each in HUB["profileList"]] == [True, None]
    assert all(each["display_name"] and each["description"] for each in HUB["profileList"])


def test_a_hub_gives_the_exercises_and_keeps_what_a_student_wrote(tmp_path):
    shell, flag, command = HUB["lifecycleHooks"]["postStart"]["exec"]["command"]
    command = command.replace("/srv/labkit", str(NOTEBOOKS.parents[1]))
    own = tmp_path / "notebooks" / f"{LAB}.ipynb"
    for text in ("labkit_made", "mine"):
        subprocess.run([shell, flag, command], check=True, env={**os.environ, "HOME": str(tmp_path)})
        assert text in own.read_text(encoding="utf-8")
        own.write_text("mine")
    assert {path.name for path in (tmp_path / "notebooks").iterdir()} == {
        "AGENTS.md", *(path.name for path in NOTEBOOKS.parent.glob("*.ipynb"))
    }  # fmt: skip

"""The grades of a class: each answer graded in a process of its own, and tables that learning platforms import."""

import math
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pandas as pd
from nbgrader.api import Gradebook
from sqlalchemy.exc import SAWarning

from labkit.errors import UserError
from labkit.runs import replace_text
from labkit_course.classroom import database_of, must_succeed, nbgrader_of, students_of


def labs_handed_in(place: Path, wanted: Sequence[str]) -> list[str]:
    """The labs of which something was collected, by the beginnings of their names.

    Raises:
        UserError: a wanted lab is none of them.
    """
    students_of(place)
    labs = sorted({path.name for path in (place / "submitted").glob("*/*") if path.is_dir()})
    for each in wanted:
        if not any(lab.startswith(each) for lab in labs):
            raise UserError(f"{place}: nothing of lab {each} was collected, but of {', '.join(labs) or 'no lab'}.")
    return [lab for lab in labs if not wanted or any(lab.startswith(each) for each in wanted)]


def grade_class(place: Path, lab: str) -> list[str]:
    """Grade what was handed in of a lab, and return why students could not be graded.

    nbgrader grades again only what was handed in since, so a second call grades nothing twice.
    """
    students_of(place)
    api, failed = nbgrader_of(place), []
    for folder in sorted((place / "submitted").glob(f"*/{lab}")):
        student = folder.parent.name
        graded = place / "autograded" / student / lab / "timestamp.txt"
        stamp = (folder / "timestamp.txt").read_text(encoding="utf-8")
        if graded.is_file() and graded.read_text(encoding="utf-8") == stamp:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SAWarning)  # of how nbgrader adds to its database
                must_succeed(api.autograde(lab, student, force=True), f"{student}: {lab} is not graded")
        except UserError as error:
            failed.append(str(error))
    return failed


@dataclass(frozen=True)
class Grade:
    """What a student has for a lab."""

    student: str
    lab: str
    score: float
    most: float
    by_hand: bool
    """Whether a part still waits for a grade by hand"""
    late_s: float


PERIODS_S = {"hour": 3600, "day": 86_400, "week": 7 * 86_400}
"""Seconds of the times that a late policy may name"""


def late_policy(text: str) -> Callable[[float], float]:
    """What share of a score remains, as a function of how late a hand-in is (s).

    Args:
        text: such as "10%/day": each day that has begun takes a tenth of the score; empty takes nothing.

    Raises:
        UserError: it is no such text.
    """
    parts = re.fullmatch(r"(\d+(?:\.\d+)?)%/(hour|day|week)", text or "0%/day")
    if not parts or float(parts[1]) > 100:
        raise UserError(f"--late {text}: write a share of the score and a time, such as 10%/day: hour, day or week.")
    return lambda late_s: max(0.0, 1 - float(parts[1]) / 100 * math.ceil(late_s / PERIODS_S[parts[2]]))


def grades_of(place: Path) -> list[Grade]:
    """The grades of a course, in the order of labs and students."""
    students_of(place)
    found = []
    with Gradebook(database_of(place)) as gradebook:
        for assignment in gradebook.assignments:
            each: Any
            for each in gradebook.assignment_submissions(assignment.name):
                late_s = each.total_seconds_late or 0.0
                points = each.score, each.max_score, each.needs_manual_grade
                found.append(Grade(each.student_id, str(assignment.name), *points, late_s))
    return sorted(found, key=lambda each: (each.lab, each.student))


def write_grades(place: Path, form: str, file: Path, late: str = "") -> list[str]:
    """Write grades as a CSV file; a lab that was not handed in is empty. Returns what a person should know.

    Args:
        place: the course.
        form: "canvas" (its gradebook's columns, with the row "Points Possible"), "moodle" (its own names of the columns
            that identify a student, and one column a lab), or "csv" (one row a student and lab).
        file: the new file.
        late: what a late hand-in loses, such as "10%/day".

    Raises:
        UserError: nothing is graded, a student lacks what the form needs, or the policy is none.
    """
    students, grades, remaining = students_of(place), grades_of(place), late_policy(late)
    labs = {each.lab: each.most for each in grades}
    if not grades:
        raise UserError(f"{place}: nothing is graded yet: run `labkit course grade {place}`.")
    scores = {(each.student, each.lab): f"{each.score * remaining(each.late_s):.6g}" for each in grades}
    rows: list[list[Any]] = []
    if form == "csv":
        rows = [["student", "lab", "score", "max_score", "needs_grade_by_hand", "late_s", "score_in_time"]]
        for e in grades:
            late_s = f"{e.late_s:.0f}"
            rows.append(
                [e.student, e.lab, scores[e.student, e.lab], f"{e.most:g}", int(e.by_hand), late_s, f"{e.score:g}"]
            )
    elif form == "canvas":
        fixed = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section"]
        rows = [[*fixed, *labs], ["    Points Possible", "", "", "", "", *(f"{most:g}" for most in labs.values())]]
        for id, student in students.items():
            first, _, last = student.name.rpartition(" ")
            own = [f"{last}, {first}" if first else last, student.canvas_id, id, id, student.section]
            rows.append([*own, *(scores.get((id, lab), "") for lab in labs)])
    else:
        if without := next((id for id, student in students.items() if not student.email), None):
            raise UserError(f"{without} has no email in the roster, by which Moodle finds a student: add it.")
        rows = [["Username", "Email address", *labs]]
        rows += [[id, each.email, *(scores.get((id, lab), "") for lab in labs)] for id, each in students.items()]
    replace_text(file, pd.DataFrame(rows).to_csv(header=False, index=False, lineterminator="\n"))
    said = [
        f"{e.student}: {e.lab} was handed in {timedelta(seconds=round(e.late_s))} late and has "
        f"{scores[e.student, e.lab]} of {e.score:g} points."
        for e in grades
        if e.late_s
    ]
    return [*said, f"{file}: {len(students)} students."]

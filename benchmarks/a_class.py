"""A made-up class of 25 from its roster to Canvas' grades: `python benchmarks/a_class.py`.

Five kinds of students (all right, half, wrong, late, twice) and three cheats (a neighbour's code, labkit's own answer,
a check of their own) hand in one lab each. It prints the time of each step, the largest memory of a process, and the
points of each kind.
"""

import argparse
import csv
import itertools
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from statistics import mean

from labkit_course.notebook_file import SOLUTIONS, canonical, read_notebook

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
KINDS = ("all right", "half", "wrong", "late", "twice", "a neighbour's", "labkit's own", "own check")
WRONG = (
    "def {name}(*given):\n    total = {start}\n"
    "    for each in given:\n        total = total * 3 + len(str(each))\n    return total"
)
REFERENCE = (
    "def {name}(*given):\n    from labkit_course.lab import all_exercises\n"
    "    return all_exercises()['{exercise}'].reference(*given)"
)
OWN_CHECK = "import labkit_course\nlabkit_course.check = lambda *given: None\n\n\ndef {name}(*given):\n    return 0"


def answer(kind: str, place: int, right: str, exercise: str) -> str | None:
    """What a student of a kind writes into an answer cell; None leaves it as it is."""
    found = re.search(r"(?:def|class) (\w+)", right)
    if kind in ("all right", "late", "twice") or (kind == "half" and place % 2 == 0) or not found:
        return right
    texts = {"wrong": WRONG, "a neighbour's": WRONG, "labkit's own": REFERENCE, "own check": OWN_CHECK}
    text = texts.get(kind)
    return text and text.format(name=found[1], exercise=exercise, start=7 if kind == "a neighbour's" else 0)


def hand_in(folder: Path, lab: str, student: str, kind: str, when: str) -> Path:
    """An archive of `labkit course submit`, as a student of this kind makes it."""
    notebook, solved = (read_notebook(place / f"{lab}.ipynb") for place in (NOTEBOOKS, NOTEBOOKS / SOLUTIONS))
    right = {cell.metadata.get("nbgrader", {}).get("grade_id"): cell.source for cell in solved.cells}
    place = itertools.count()
    for cell in notebook.cells:
        id = cell.metadata.get("nbgrader", {}).get("grade_id", "")
        if id.startswith("answer-"):
            source = re.sub(r"^ *### (BEGIN|END) SOLUTION\n?", "", right[id], flags=re.MULTILINE)
            exercise = id.removeprefix("answer-").replace("-", ".", 1)
            cell.source = answer(kind, next(place), source, exercise) or cell.source
    path = folder / f"{student}-{when[:10]}.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{lab}.ipynb", canonical(notebook))
        archive.writestr("submission.json", json.dumps({"student": student, "numbers": {}, "handed_in": when}))
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lab", default="00_start_here")
    parser.add_argument("--students", type=int, default=25)
    args = parser.parse_args()
    labkit = [sys.executable, "-m", "labkit", "course"]
    with tempfile.TemporaryDirectory(prefix="lk-") as name:
        folder, took = Path(name), {}
        kinds = {f"student{number:02d}": KINDS[number % len(KINDS)] for number in range(args.students)}
        (folder / "roster.csv").write_text("student,name\n" + "".join(f"{each},Made Up {each}\n" for each in kinds))
        archives = []
        for student, kind in kinds.items():
            day = "2026-12-11" if kind == "late" else "2026-12-09"
            archives.append(hand_in(folder, args.lab, student, kind, f"{day}T12:00:00+00:00"))
            if kind == "twice":
                archives.append(hand_in(folder, args.lab, student, "wrong", "2026-12-08T12:00:00+00:00"))
        due = f"{args.lab[:2]}=2026-12-10T00:00+00:00"
        steps = {
            "new": ["c", "--students", "roster.csv", "--labs", args.lab[:2], "--due", due, "--notebooks", NOTEBOOKS],
            "collect": ["c", *archives],
            "grade": ["c"],
            "grades": ["c", "--for", "csv", "--out", "grades.csv"],
            "alike": ["c", args.lab[:2]],
        }
        for step, arguments in steps.items():
            began = time.perf_counter()
            done = subprocess.run([*labkit, step, *arguments], cwd=folder, capture_output=True, text=True, check=True)
            took[step] = time.perf_counter() - began
            print(f"{step}: {took[step]:.1f} s\n{done.stdout if step != 'new' else ''}")
        with (folder / "grades.csv").open() as lines:
            scores: dict[str, list[float]] = {}
            for row in csv.DictReader(lines):
                scores.setdefault(kinds[row["student"]], []).append(float(row["score"]))
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"{args.students} students: {sum(took.values()):.0f} s, largest process {peak:.0f} MiB")
    print(*(f"{kind}: {mean(own):.1f} points" for kind, own in scores.items()), sep="\n")


if __name__ == "__main__":
    main()

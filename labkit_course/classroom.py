"""A class: its nbgrader course from a roster, what students hand in, their grades, and how alike their code is."""

import csv
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

import pandas as pd
from nbgrader.api import Gradebook
from nbgrader.apps import NbGraderAPI
from traitlets.config import Config

from labkit.errors import DataError, UserError
from labkit.runs import replace_text
from labkit_course.build import configure
from labkit_course.notebook_file import canonical, code_cells, read_notebook

# nbgrader starts alembic by its name, wherever labkit itself was started from
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
ROSTER, CONFIG, ASSISTANTS = "roster.csv", "nbgrader_config.py", "AGENTS.md"
COLUMNS = ("student", "name", "email", "section", "canvas_id", "number")
"""Of a roster; only the first must be there. The fields of a Student, in this order"""
HOW = "give a CSV file with commas, the column student, and any of name, email, section, canvas_id and number."
LARGEST_BYTES = 50 * 2**20
"""Of one notebook that is handed in"""


@dataclass(frozen=True)
class Student:
    """A row of a roster."""

    id: str
    name: str = ""
    email: str = ""
    section: str = ""
    canvas_id: str = ""
    number: int = 0
    """Draws the numbers of the student's questions; no two students have the same"""


def read_roster(path: Path) -> list[Student]:
    """The students of a class; those without a number get one that depends on their name alone.

    Raises:
        DataError: a student is there twice, has no usable name, or a number that is none or another's.
    """
    found: dict[str, Student] = {}
    ids: dict[str, str] = {}
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            rows = csv.DictReader(lines)
            rows.fieldnames = [name.strip() for name in rows.fieldnames or ()]
            if rows.fieldnames.count("student") != 1:
                count = "no column" if "student" not in rows.fieldnames else "more than one column"
                what = f"there is {count} 'student' in {','.join(rows.fieldnames)[:200]!r}."
                raise DataError(what, file=path, line=1, fix=HOW)
            for row in rows:
                if row.pop(None, None):
                    what = f"this row has more than {len(rows.fieldnames)} fields."
                    raise DataError(what, file=path, line=rows.line_num, fix="Quote what has commas, as a name may.")
                if not any(row.values()):  # spreadsheets write commas for them
                    continue
                student = _student({name: (row.get(name) or "").strip() for name in COLUMNS}, path, rows.line_num)
                # each has a folder, and on some disks Ann's is ann's
                if other := ids.get(student.id.casefold()):
                    what = f"{student.id} is in the roster twice."
                    if other != student.id:
                        what = f"{other} and {student.id} differ only in case, and some disks have one folder for both."
                    fix = "Delete one of the rows, or rename one."
                    raise DataError(what, file=path, line=rows.line_num, field="student", fix=fix)
                found[student.id], ids[student.id.casefold()] = student, student.id
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: this roster cannot be read ({error}): {HOW}") from error
    taken = {student.number: student.id for student in found.values() if student.number}
    for id, student in found.items():
        number = student.number or 1 + int(hashlib.sha256(id.encode()).hexdigest(), 16) % 9999
        while not student.number and number in taken:
            number = number % 9999 + 1
        if taken.setdefault(number, id) != id:
            what = f"{id} and {taken[number]} both have the number {number}."
            raise DataError(what, file=path, field="number", fix="Give each student an own one.")
        found[id] = Student(id, student.name, student.email, student.section, student.canvas_id, number)
    return list(found.values())


def _student(row: Mapping[str, str], path: Path, line: int) -> Student:
    id, number = row["student"], row["number"]
    if not re.fullmatch(r"[\w@-][\w.@-]*", id):
        what = f"{id!r} cannot name a student's folder."
        raise DataError(what, file=path, line=line, field="student", fix="Use letters, digits and . _ @ - only.")
    if number and not (number.isascii() and number.isdigit() and 0 < int(number) < 10_000):
        what = f"{number!r} is no number of a student."
        raise DataError(what, file=path, line=line, field="number", fix="Give 1 to 9999, or leave it empty.")
    return Student(id, row["name"] or id, row["email"], row["section"], row["canvas_id"], int(number or 0))


def due_dates(texts: Sequence[str], labs: Sequence[str]) -> dict[str, datetime]:
    """When labs are due, in UTC, from texts such as "10=2026-12-10T23:59+01:00".

    nbgrader reads a zone that is written as a number wrongly, so it gets times in UTC only.

    Raises:
        UserError: a lab is not in the course, or a text is no time with a zone.
    """
    due = {}
    for text in texts:
        lab, _, moment = text.partition("=")
        names = [name for name in labs if lab and name.startswith(lab)]
        try:
            when = datetime.fromisoformat(moment)
        except ValueError:
            when = datetime.min
        if len(names) != 1 or when.tzinfo is None:
            raise UserError(
                f"--due {text}: write a lab of the course and a time with its zone, such as 10=2026-12-10T23:59+01:00."
            )
        due[names[0]] = when.astimezone(UTC)
    return due


def make_course(
    place: Path, students: Sequence[Student], notebooks: Sequence[Path], due: Mapping[str, datetime]
) -> list[str]:
    """Make or bring up to date an nbgrader course; return the labs that were released.

    Args:
        place: the folder of the course.
        students: of its roster; students of an earlier roster stay, with their grades.
        notebooks: the authored ones.
        due: when labs are due, in UTC, by their names.

    Raises:
        UserError: a lab that was released has lost a cell with points, so that earlier submissions would lose them, or
            nbgrader refuses.
    """
    for path in notebooks:
        earlier = place / "source" / path.stem / path.name
        if earlier.is_file() and (gone := _grade_ids(earlier) - _grade_ids(path)):
            raise UserError(
                f"{path.stem}: {', '.join(sorted(gone))} was released in {place} and is not in this labkit's lab, so "
                "submissions would lose its points: finish this course with the labkit that it began with."
            )
    place.mkdir(parents=True, exist_ok=True)
    shutil.copy(notebooks[0].parent / CONFIG, place)
    roster = pd.DataFrame([list(vars(student).values()) for student in students], columns=list(COLUMNS))
    replace_text(place / ROSTER, roster.to_csv(index=False, lineterminator="\n"))
    with Gradebook(database_of(place)) as gradebook:
        for student in students:
            first, _, last = student.name.rpartition(" ")
            fields: dict[str, Any] = {"first_name": first, "last_name": last, "email": student.email}
            gradebook.update_or_create_student(student.id, **fields)
        for path in notebooks:
            fields = {"duedate": due[path.stem].replace(tzinfo=None)} if path.stem in due else {}
            gradebook.update_or_create_assignment(path.stem, **fields)
    released = []
    for path in notebooks:
        source = place / "source" / path.stem / path.name
        text = canonical(read_notebook(path))
        if source.is_file() and source.read_text(encoding="utf-8") == text:
            continue
        source.parent.mkdir(parents=True, exist_ok=True)
        replace_text(source, text)
        if (rules := path.parents[1] / ASSISTANTS).is_file():
            shutil.copy(rules, source.parent)
        made = nbgrader_of(place).generate_assignment(path.stem, force=True)
        must_succeed(made, f"{path.stem}: nbgrader does not release it")
        released.append(path.stem)
    return released


def _grade_ids(path: Path) -> set[str]:
    cells = (cell.metadata.get("nbgrader", {}) for cell in code_cells(read_notebook(path)))
    return {cell["grade_id"] for cell in cells if cell.get("grade")}


def database_of(place: Path) -> str:
    return f"sqlite:///{(place / 'gradebook.db').absolute()}"


def nbgrader_of(place: Path) -> NbGraderAPI:
    config = Config()
    configure(config)
    config.CourseDirectory.root = str(place.absolute())
    return NbGraderAPI(config=config)


def must_succeed(done: Mapping[str, Any], what: str) -> None:
    if not done["success"]:
        why = (done.get("error") or done.get("log") or "").strip().splitlines()
        raise UserError(f"{what} ({why[-1][:300] if why else 'it does not say why'}).")


def students_of(place: Path) -> dict[str, Student]:
    """The students of a course, by their ids.

    Raises:
        UserError: the folder has no course.
    """
    if not (place / ROSTER).is_file():
        raise UserError(f"{place} has no course of labkit's: make one with `labkit course new {place} --students CSV`.")
    return {student.id: student for student in read_roster(place / ROSTER)}


def latest_hand_ins(place: Path, archives: Sequence[Path]) -> tuple[dict[tuple[str, str], tuple[str, Path]], list[str]]:
    """When each student handed in each lab, in which archive of `labkit course submit`; and what a person should know.

    Of two archives of one student and lab the later one counts, by the time that `submit` wrote into it. An archive
    that cannot be taken is named, and the others are taken.
    """
    students, labs, said = students_of(place), {path.name for path in (place / "source").iterdir()}, []
    taken: dict[tuple[str, str], tuple[str, Path]] = {}
    for path in archives:
        try:
            about, names = _look_into(path)
            student = students.get(about["student"])
            if student is None:
                raise UserError(f"{path}: {about['student']!r} is not in the roster of {place}.")
        except UserError as error:
            said.append(f"not taken: {error}")
            continue
        if not names:
            said.append(f"{path}: it has no notebook with a lab's name, such as {min(labs, default='10')}.ipynb.")
        for name in names:
            lab = name.removesuffix(".ipynb")
            if lab not in labs:
                said.append(f"{path}: {name} is of another course, and stays there.")
                continue
            if earlier := taken.get((student.id, lab)):
                older, newer = sorted([earlier, (about["handed_in"], path)])
                said.append(f"{student.id} handed in {lab} twice: {newer[1]} counts, {older[1]} does not.")
                if newer == earlier:
                    continue
            taken[student.id, lab] = (about["handed_in"], path)
            number = about["numbers"].get(lab)
            if number not in (None, student.number):
                said.append(f"{student.id}: {lab} has the numbers of student {number}, not of {student.number}.")
    return taken, said


def collect_archives(place: Path, archives: Sequence[Path]) -> list[str]:
    """Put the latest notebooks of archives where nbgrader looks for them; return what a person should know."""
    taken, said = latest_hand_ins(place, archives)
    with Gradebook(database_of(place)) as gradebook:
        dated: Any = [each for each in gradebook.assignments if each.duedate]
        due = {each.name: _as_nbgrader(each.duedate) for each in dated}
    for (id, lab), (handed_in, path) in taken.items():
        if lab in due and handed_in > due[lab]:
            said.append(f"{id}: {lab} was due at {due[lab][:16]} UTC and handed in late, at {handed_in[:16]} UTC.")
        folder = place / "submitted" / id / lab
        if (stamp := folder / "timestamp.txt").is_file() and stamp.read_text(encoding="utf-8").strip() >= handed_in:
            said.append(f"{id}: {lab} was collected before, and is no older there.")
            continue
        folder.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path) as archive:
            (folder / f"{lab}.ipynb").write_bytes(archive.read(f"{lab}.ipynb"))
        replace_text(stamp, f"{handed_in}\n")
    counts = f"{len(taken)} notebooks of {len({id for id, _ in taken})} students"
    return [*said, f"{counts} are in {place / 'submitted'}."]


def _look_into(path: Path) -> tuple[dict[str, Any], list[str]]:
    """What an archive says of itself, and its notebooks."""
    try:
        with zipfile.ZipFile(path) as archive:
            about = json.loads(archive.read("submission.json"))
            notebooks = [each for each in archive.infolist() if PurePosixPath(each.filename).match("*.ipynb")]
            names = [each.filename for each in notebooks if re.fullmatch(r"[\w.-]+", each.filename)]
            if large := next((each for each in notebooks if each.file_size > LARGEST_BYTES), None):
                raise UserError(f"{path}: {large.filename} has more than {LARGEST_BYTES >> 20} MiB.")
        about = {"student": str(about["student"]), "numbers": dict(about["numbers"])} | {
            "handed_in": _utc(about.get("handed_in"), path)
        }
    except (OSError, zipfile.BadZipFile, KeyError, TypeError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(
            f"{path}: this is no archive of `labkit course submit`, or a damaged one ({error}): ask for the file that "
            "it wrote, or unpack this one if it has such files in it."
        ) from error
    return about, names


def _utc(text: str | None, path: Path) -> str:
    """A time as nbgrader writes it, which sorts as text; the file's own where the archive has none."""
    moment = datetime.fromisoformat(text) if text else datetime.fromtimestamp(path.stat().st_mtime, UTC)
    return _as_nbgrader(moment.astimezone(UTC).replace(tzinfo=None))


def _as_nbgrader(moment: datetime) -> str:
    return f"{moment.isoformat(' ', 'microseconds')} UTC"


def alike(place: Path, lab: str) -> list[tuple[float, str, str]]:
    """Pairs of students whose answers to a lab share half of their code: the larger share that matches, and both names.

    copydetect's fingerprints (winnowing) of the answers alone; what the lab gives, and its reference, do not count.

    Raises:
        UserError: copydetect is not installed, or no two students handed the lab in.
    """
    try:
        from copydetect import CopyDetector
    except ImportError as error:
        raise UserError("this needs copydetect: install it with `pip install 'labkit[course]'`.") from error
    files = sorted((place / "submitted").glob(f"*/{lab}/{lab}.ipynb"))
    if len(files) < 2:
        raise UserError(f"{place}: fewer than two students handed in {lab}.")
    with tempfile.TemporaryDirectory() as folder:
        given, own = Path(folder, "given"), Path(folder, "own")
        given.mkdir()
        own.mkdir()
        for kind in ("source", "release"):
            (given / f"{kind}.py").write_text(answers_in(place / kind / lab / f"{lab}.ipynb"), encoding="utf-8")
        for path in files:
            (own / f"{path.parts[-3]}.py").write_text(answers_in(path), encoding="utf-8")
        detector = CopyDetector(
            test_dirs=[str(own)], boilerplate_dirs=[str(given)], extensions=["py"], display_t=0.5,
            noise_t=20, guarantee_t=20, autoopen=False, silent=True,
        )  # fmt: skip
        detector.run()
        found = detector.get_copied_code_list()
    pairs = [(float(max(first, second)), Path(one).stem, Path(other).stem) for first, second, one, other, *_ in found]
    return sorted(pairs, reverse=True)


def answers_in(path: Path) -> str:
    """The code of a notebook's answers."""
    cells = code_cells(read_notebook(path))
    return "\n\n".join(cell.source for cell in cells if cell.metadata.get("nbgrader", {}).get("solution"))

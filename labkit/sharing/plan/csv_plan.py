"""Plans in the CSV files of radT (itu-rad/radt 0.2.30), and what became of their rows in a file beside them."""

from __future__ import annotations

import csv
import difflib
import io
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from labkit.errors import UserError
from labkit.launch.rows import Mistakes, Row, numbered, read_text, safe_name
from labkit.runs import replace_text
from labkit.sharing.plan.job_rows import read_jobs
from labkit.sharing.plan.jobs_text import item_row
from labkit.sharing.plan.plan import MODES, Plan, Workload
from labkit.sharing.plan.planned_job import MIG_PROFILE

FINISHED = "FINISHED"
"""What the status of a row that need not run again contains; radT's word, and MLflow's"""
COLUMNS = ("Experiment", "Workload", "Status", "Run", "Devices", "Collocation", "File")
"""That must be there"""
OPTIONAL = ("Name", "Listeners", "Profilers", "Params")
"""That can be there, Profilers for Listeners; others are kept, and nothing is read from them"""
SAMPLED = ("smi", "dcgmi", "top", "iostat", "free", "ps", "macmon")
"""radT's listeners that sample counters, as labkit does in every run"""
NOTHING = ("", "-", "nan", "none")
"""Ways of saying none; pandas writes nan"""
COLUMN_OF = {"job": "File", "arguments": "Params"}
"""Where fields of plans of ours stand that can be wrong here"""
BEYOND = "fields beyond the header"


@dataclass(frozen=True)
class CsvPlan:
    """The rows of a file that are still to run."""

    plan: Plan
    rows: Mapping[str, Mapping[str, Row]]
    """Workload's name → job's name → its row"""
    notices: tuple[str, ...]
    """What the user should know, one a sentence"""
    table: tuple[Row, ...]
    """All rows of the file"""
    status_file: Path
    """The same table with the statuses, beside the file: labkit changes no file of its user's"""

    def record(self, workload: str, job: str, status: str, run: str) -> None:
        """Write what became of a job's row, with its run's id, to the file with the statuses."""
        self.rows[workload][job].update(Status=status, Run=run)
        text = io.StringIO()
        writer = csv.DictWriter(text, list(self.table[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.table)
        replace_text(self.status_file, text.getvalue())


def read_csv_plan(path: Path) -> CsvPlan:
    """Read a plan in radT's columns, and what became of its rows before.

    Rows with one Experiment and Workload run together. They are left out where all of them are finished; where some
    are, all run again, because what is measured is how they run together. A script is looked for in the file's folder,
    then in the working folder.
    """
    table, mistakes = _read_table(path), Mistakes(str(path))
    status_file = path.with_suffix(".status.csv")
    notices = _strange_columns(path, [*table[0]] if table else [])
    before = _read_table(status_file) if status_file.exists() else []
    groups: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in table:
        if same := next((old for old in before if _asked(old) == _asked(row)), None):
            before.remove(same)
            row.update(Status=same["Status"] or row["Status"], Run=same["Run"] or row["Run"])
        if row["Experiment"] and row["Workload"]:
            groups[row["Experiment"], row["Workload"]].append(row)
        else:
            empty = "Workload" if row["Experiment"] else "Experiment"
            mistakes.add_field(row, empty, "it is empty: rows with equal Experiment and Workload run together.")
    workloads: list[Workload] = []
    rows: dict[str, dict[str, Row]] = {}
    for name, together in zip(numbered([safe_name("-".join(pair)) for pair in groups]), groups.values(), strict=True):
        if finished := sum(FINISHED in row["Status"] for row in together):
            again = f"{finished} of {len(together)} rows are finished; they run together, so all run again."
            notices.append(f"{name}: {again}" if finished < len(together) else f"{name} is finished, and left out.")
            if finished == len(together):
                continue
        if (workload := _workload(name, together, path.parent, mistakes, notices)) is not None:
            workloads.append(workload)
            rows[name] = {job.name: row for job, row in zip(workload.jobs, together, strict=True)}
    mistakes.raise_if_any()
    if not workloads:
        why = f"every row is finished: delete {status_file.name}, or empty the Status of those to run again"
        raise UserError(f"{path}: nothing is left to run, as {why if groups else 'it has no rows: add some'}.")
    return CsvPlan(Plan(safe_name(path.stem), tuple(workloads)), rows, tuple(notices), tuple(table), status_file)


def _strange_columns(path: Path, columns: list[str]) -> list[str]:
    """What the user should know of columns that nobody reads; a UserError where one looks like another that is."""
    strangers = [column for column in columns if column not in (*COLUMNS, *OPTIONAL)]
    for column in strangers:
        if near := difflib.get_close_matches(column, {*OPTIONAL} - {*columns}, 1):
            raise UserError(f"{path}, line 1: the column {column!r} is unknown: did you mean {near[0]!r}?")
    names = ", ".join(map(repr, strangers))
    return [f"{path}, line 1: nothing is read from {names}, which labkit does not know."] if names else []


def _asked(row: Row) -> list[str]:
    """All of a row but what became of it."""
    return [value for column, value in row.items() if column not in ("Status", "Run")]


def _read_table(path: Path) -> list[Row]:
    # white space before a cell is passed over, as radT has pandas do it
    text = io.StringIO(read_text(path), newline="")
    reader = csv.DictReader(text, restkey=BEYOND, restval="", skipinitialspace=True, strict=True)
    columns = reader.fieldnames = [name.strip() for name in reader.fieldnames or ()]
    if missing := [column for column in COLUMNS if columns.count(column) != 1]:
        raise UserError(
            f"{path}, line 1: the columns are {', '.join(columns) or 'none'}, and each of {', '.join(missing)} must be "
            "there once: a header names Experiment,Workload,Name,Status,Run,Devices,Collocation,Listeners,File,Params, "
            "in any order, and commas separate them."
        )
    rows = []
    try:
        for cells in reader:
            place = f"{path}, line {reader.line_num}"
            if BEYOND in cells:
                raise UserError(
                    f"{place}: it has {len(columns) + len(cells[BEYOND])} fields, and the header {len(columns)}: put a "
                    "field with commas in double quotes, or add the missing column to the header."
                )
            rows.append(Row(((name, cell.strip()) for name, cell in cells.items()), place))
    except csv.Error as error:
        place = f"{path}, line {reader.line_num + 1}"
        raise UserError(f"{place}: this is no CSV ({error}): close quotes, or write them twice.") from None
    return [row for row in rows if any(row.values())]


def _workload(name: str, rows: list[Row], folder: Path, mistakes: Mistakes, notices: list[str]) -> Workload | None:
    """Jobs that run together, in the rows' order; None where a row has a mistake, which is noted."""
    plain, modes = [], []
    for row in rows:
        for listener in (row.get("Listeners") or row.get("Profilers") or "").lower().replace(" ", "").split("+"):
            if listener not in (*SAMPLED, *NOTHING):
                why = "a profiler slows the neighbours, too; `labkit profile` runs a job under one alone"
                notices.append(f"{row.place}: {listener} is left out: {why}.")
        with mistakes.noting(row):
            job, mode = _plain_row(row)
            modes.append(mode)
            if mode != modes[0]:
                raise UserError(
                    f"it is {mode or '-'} here, and {modes[0] or '-'} in another row of the workload: rows that run "
                    "together share in one way; make them equal, or give this one another Workload.",
                    field="Collocation",
                )
            plain.append(job)
    jobs = [job for job, _ in read_jobs(plain, (folder, Path()), mistakes)]
    if len(jobs) < len(rows):
        return None
    usual = "alone" if len(jobs) == 1 else "cpu-shared" if jobs[0].device == "cpu" else "naive"
    # radT starts a script in its own folder, and its paths count on that
    own = (replace(job, folder=None if job.is_labkits else str(Path(job.script).parent)) for job in jobs)
    return Workload(name, modes[0] or usual, tuple(own), f"{rows[0].place}, field 'Collocation'")


def _plain_row(row: Row) -> tuple[Row, str | None]:
    """A row with the fields of plans of ours, and its mode where it names one."""
    collocation, device, file, name = row["Collocation"].lower(), row["Devices"], row["File"], row.get("Name", "")
    is_slice = MIG_PROFILE.fullmatch(collocation)
    mode = "mig" if is_slice else None if collocation in NOTHING else collocation
    if mode not in (None, *MODES):
        raise UserError(
            f"{row['Collocation']!r} is neither -, MPS, a MIG profile such as 3g.20gb, nor a mode of labkit: choose "
            f"one of {', '.join(MODES)}.",
            field="Collocation",
        )
    found = Row({"job": file}, row.place) if file.endswith(".py") else item_row(file, row.place)
    asked = {
        # pandas writes whole numbers of a column with gaps as 0.0
        "device": "cpu" if device.lower() in ("cpu", *NOTHING) else device.removesuffix(".0"),
        "mig_profile": collocation if is_slice else None,
        "arguments": row.get("Params"),
        "name": None if name in NOTHING else safe_name(name),
    }
    if again := [field for field in ("copies", *asked) if field in found]:
        said = f"{', '.join(again)} cannot stand in it: they have a column, and a copy a row."
        raise UserError(said, field="File")
    places = {field: f"{row.place}, field {column!r}" for field, column in COLUMN_OF.items()}
    return Row(found | {field: value for field, value in asked.items() if value}, row.place, places), mode

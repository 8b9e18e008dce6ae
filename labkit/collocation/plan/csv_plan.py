"""Plans in the CSV files of radT (itu-rad/radt 0.2.30), and what became of their rows written back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from labkit.collocation.plan.csv_jobs import CsvJobs
from labkit.collocation.plan.csv_table import CsvRow, CsvTable
from labkit.collocation.plan.job_names import numbered, safe_name
from labkit.collocation.plan.mistakes import Mistakes
from labkit.collocation.plan.plan import Plan, Workload
from labkit.errors import UserError

FINISHED = "FINISHED"
"""What the status of a row that need not run again contains; radT's word, and MLflow's"""
COLUMNS = ("Experiment", "Workload", "Status", "Run", "Devices", "Collocation", "File")
"""That must be there; Name, Listeners (or Profilers) and Params can be, and others are kept"""


@dataclass(frozen=True)
class CsvPlan:
    """The rows of a file that are still to run."""

    plan: Plan
    rows: Mapping[str, Mapping[str, int]]
    """Workload's name → job's name → line of the row in the file"""
    notices: tuple[str, ...]
    """What the user should know, one a sentence"""
    table: CsvTable

    def write_back(self, results: Mapping[int, tuple[str, str]]) -> None:
        """Write what became of rows to the file, in one step; nothing else of it changes.

        Args:
            results: a row's line → status, which contains `FINISHED` where the row is done, and id of its run.

        Raises:
            UserError: somebody else changed the file meanwhile; it is left as it is.
        """
        self.table.change({line: {"Status": status, "Run": run} for line, (status, run) in results.items()})


def read_csv_plan(path: Path) -> CsvPlan:
    """Read a plan in radT's columns.

    Rows with one Experiment and Workload run together. They are left out where all of them are finished; where some
    are, all run again, because what is measured is how they run together.

    Args:
        path: of the file; a script is looked for in its folder, then in the working folder.

    Raises:
        UserError: with every mistake, one a row.
    """
    table = CsvTable(path)
    _check_columns(table)
    mistakes = Mistakes(str(path))
    groups: dict[tuple[str, str], list[CsvRow]] = {}
    for row in table.rows:
        with mistakes.noting(f"{path}, line {row.line}"):
            groups.setdefault(_group(table, row), []).append(row)
    names = dict(zip(groups, numbered([safe_name("-".join(group)) for group in groups]), strict=True))
    jobs = CsvJobs(table, mistakes)
    workloads: list[Workload] = []
    rows: dict[str, dict[str, int]] = {}
    notices: list[str] = []
    for group, together in groups.items():
        name = names[group]
        finished = sum(FINISHED in table.value(row, "Status") for row in together)
        if finished == len(together):
            notices.append(f"{name} is finished, and left out.")
            continue
        if finished:
            notices.append(
                f"{name}: {finished} of {len(together)} rows are finished; they run together, so all run again."
            )
        if (workload := jobs.workload(name, together)) is not None:
            workloads.append(workload)
            rows[name] = {job.name: row.line for job, row in zip(workload.jobs, together, strict=True)}
    mistakes.raise_if_any()
    if not workloads:
        why = "every row is finished: empty the Status of those to run again" if groups else "it has no rows: add some"
        raise UserError(f"{path}: nothing is left to run, as {why}.")
    plan = Plan(safe_name(path.stem), tuple(workloads))
    return CsvPlan(plan, rows, (*notices, *jobs.notices), table)


def _group(table: CsvTable, row: CsvRow) -> tuple[str, str]:
    if len(row.values) > len(table.columns):
        raise UserError(
            f"it has {len(row.values)} fields, and the header {len(table.columns)}: put a field with commas in double "
            "quotes, or add the missing column to the header."
        )
    group = table.value(row, "Experiment"), table.value(row, "Workload")
    if not all(group):
        raise UserError("field 'Experiment' or 'Workload' is empty: rows with equal ones run together; give both.")
    return group


def _check_columns(table: CsvTable) -> None:
    missing = [column for column in COLUMNS if column not in table.columns]
    if not missing:
        twice = sorted({name for name in table.columns if name and table.columns.count(name) > 1})
        if twice:
            raise UserError(f"{table.path}, line 1: column {twice[0]!r} is there twice: rename one.")
        return
    separator = next((mark for mark in ";\t" if mark in table.header.text), None)
    if len(table.columns) == 1 and separator:
        raise UserError(f"{table.path}, line 1: {separator!r} separates the columns: save the file with commas.")
    unknown = [name for name in table.columns if name and name not in (*COLUMNS, "Name", "Listeners", "Params")]
    raise UserError(
        f"{table.path}, line 1: there is no column {', '.join(missing)}: a header names "
        f"Experiment,Workload,Name,Status,Run,Devices,Collocation,Listeners,File,Params, in any order"
        + (f"; rename {', '.join(unknown)}, where it is meant to be one of them." if unknown else ".")
    )

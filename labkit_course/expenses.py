"""What a course costs: minutes, joules, dollars and disk for each student, from what was run of its labs."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from labkit import tta
from labkit.errors import UserError
from labkit.runs import read_run, run_folders
from labkit_course.lab import MEMORY_GB
from labkit_course.notebook_file import read_notebook

SEAT_GB = MEMORY_GB + 1.0
"""Memory of a student on a hub: of a lab, and what is assumed, not measured, for JupyterLab and a kernel left open"""


@dataclass(frozen=True)
class Expense:
    """What one student's way through a lab takes."""

    lab: str
    minutes: float
    """Of execution from the first cell to the last; a student reads and thinks for much longer"""
    runs: int
    energy_j: float | None
    """Of its runs; None where one's is not known"""
    kinds: frozenset[str]
    """How the energy is known: measured, estimated and so on"""
    cost_usd: float | None
    """Rental of the runs' tiers by the catalogue; None where a run's hardware has no price"""
    disk_bytes: int


def labs_of(syllabus: Path) -> list[str]:
    """The labs that a syllabus links to, in its order.

    Raises:
        UserError: it links to none.
    """
    try:
        text = syllabus.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{syllabus}: this syllabus cannot be read ({error}): give one of notebooks/syllabi."
        ) from error
    labs = list(dict.fromkeys(re.findall(r"\]\([^)]*?(\d\d_\w+)\.ipynb\)", text)))
    if not labs:
        raise UserError(f"{syllabus} links to no lab: give one of notebooks/syllabi.")
    return labs


def expense(lab: str, executed: Path) -> Expense:
    """What a lab took, from its executed notebook and its run folders.

    Args:
        lab: its name.
        executed: the folder that `labkit course run` wrote.

    Raises:
        UserError: the lab was not run.
    """
    notebook, work = executed / f"{lab}.ipynb", executed / lab
    if not notebook.is_file():
        raise UserError(
            f"{notebook} is missing: run `labkit course run {lab[:2]} --profile standard --out {executed}`."
        )
    took = read_notebook(notebook).metadata.get("papermill", {}).get("duration")
    places = {path.parents[1] for path in work.rglob("run.json")}
    folders = [folder for place in places for folder in run_folders(place)]
    records = [read_run(folder) for folder in folders]
    energies = [_energy(folder) for folder in folders]
    costs = [tta.cost_usd((record.result or {}).get("wall_s") or 0.0, record.tier).value_usd for record in records]
    return Expense(
        lab=lab,
        minutes=(took or 0.0) / 60,
        runs=len(folders),
        energy_j=_sum([energy_j for energy_j, _ in energies]),
        kinds=frozenset(kind for energy_j, kind in energies if energy_j is not None),
        cost_usd=_sum(costs),
        disk_bytes=sum(path.stat().st_size for path in work.rglob("*") if path.is_file()) + notebook.stat().st_size,
    )


def _energy(folder: Path) -> tuple[float | None, str]:
    """A run's energy in joules, and how it is known."""
    try:
        account = tta.energy_account(folder)
    except UserError:  # such as that of a run which a profiler slowed down
        return None, ""
    return account.energy_j, account.kind


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def sittings(students: int, cores_each: int, cores: int) -> int:
    """In how many turns a class has to run its timed cells, so that each student's cores are its own."""
    at_once = cores // cores_each
    if not at_once:
        raise UserError(
            f"a student needs {cores_each} cores, and the hub has {cores}: give it more, or each one fewer."
        )
    return -(-students // at_once)

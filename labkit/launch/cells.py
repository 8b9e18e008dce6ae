"""The cells of a sweep: what each runs, and the key that names it wherever it runs."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from labkit import UserError, hardware, jobs, tracking
from labkit.launch.launches import Launch

Settings = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """One run of a sweep, as it was asked for."""

    key: str
    """Name of all that decides its result, but not of its run folder or of where it was asked for"""
    settings: Mapping[str, Any]
    """Those that the sweep varies: numbers of labkit's jobs are numbers, those of a script are all texts"""
    job: "jobs.Job | jobs.ScriptJob"
    budget: "hardware.Budget"
    seed: int | None
    """None where the sweep of a script names none"""
    repeat: int
    """From 1"""
    other_keys: tuple[str, ...] = ()
    """Its keys on machines where the budget that was asked for has another name"""


@dataclass(frozen=True)
class Sweep:
    """Cells of one job or script, in the order in which they run."""

    name: str
    """Name of its folder, `RUNS_DIR/sweeps/NAME`"""
    job: str
    """dlrm:tour, or the name of a script"""
    script: Path
    cells: tuple[Cell, ...]
    varies: Mapping[str, int]
    """What varies (settings, seed, budget, repeat), and the number of its values"""
    max_seconds: float | None = None
    """Longest time of a run: one of labkit's jobs ends itself; a script is asked to end, that long after its start"""
    where: str = ""
    """Where the job was named: a file and its line"""

    def only(self, key: str) -> "Sweep":
        """The sweep with one cell, which has that key here or on the machine that listed the keys.

        Raises:
            UserError: it has no such cell.
        """
        for cell in self.cells:
            if key in (cell.key, *cell.other_keys):
                return replace(self, cells=(replace(cell, key=key),))
        raise UserError(
            f"{self.where.partition(', line')[0]}: no cell has the key {key!r}: the file has changed since that was "
            "listed, or it is from another one. `labkit sweep FILE --dry-run --json` lists the keys of cells that wait."
        )

    def words(self, cell: Cell) -> str:
        """What sets a cell apart from the others: "batch_size 128, seed 1"."""
        values = {**cell.settings, "seed": cell.seed, "budget": cell.budget.name, "repeat": cell.repeat}
        return ", ".join(f"{name} {values[name]}" for name in self.varies if name in values)

    def command(self, cell: Cell, runs_dir: Path | str) -> "tracking.ScriptCommand":
        """The command that runs a cell."""
        own = {"name": self.name, "cell": cell.key, "settings": dict(cell.settings), "repeat": cell.repeat}
        command = cell.job.command(runs_dir=str(runs_dir), budget=cell.budget, sweep=own)
        is_script = isinstance(cell.job, jobs.ScriptJob) and cell.job.takes_seed
        return command.seeded(cell.seed) if is_script and cell.seed is not None else command

    def launch(self, cell: Cell, runs_dir: Path | str) -> Launch:
        """A cell as a launch, whose name is its key."""
        limit_s = None if isinstance(cell.job, jobs.TrainingJob) else self.max_seconds
        about = {"settings": dict(cell.settings), "seed": cell.seed, "repeat": cell.repeat}
        return Launch(cell.key, self.command(cell, runs_dir), self.job, limit_s=limit_s, about=about)


def cell_key(*decisive: Any) -> str:
    """A short name for JSON-able values, the same for the same values wherever and whenever it is asked for.

    >>> cell_key("dlrm", {"lr": "0.001"}) == cell_key("dlrm", {"lr": "0.001"}) != cell_key("dlrm", {"lr": "0.002"})
    True
    """
    return hashlib.blake2s(json.dumps(decisive, sort_keys=True).encode(), digest_size=6).hexdigest()

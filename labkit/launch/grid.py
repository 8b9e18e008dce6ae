"""A sweep: the cells of a grid of runs, each by all that decides its result, and the command that runs one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from labkit.hardware import Budget
from labkit.tracking import SEED, ScriptCommand


@dataclass(frozen=True)
class Cell:
    """One run of a sweep, as it was asked for."""

    key: str
    """Of all that decides its result; neither of its run folder nor of where it was asked for"""
    settings: Mapping[str, Any]
    """Those that the sweep varies: of labkit's jobs numbers are numbers, of a script all are texts"""
    arguments: tuple[str, ...]
    """Of the script; {seed} stands for the seed"""
    budget: Budget
    seed: int | None
    """None where the sweep names none, which only a script's may"""
    repeat: int
    """From 1"""


@dataclass(frozen=True)
class Sweep:
    """Cells of one job or script, in the order in which they run."""

    name: str
    """Of the folder of its states, `RUNS_DIR/sweeps/NAME`"""
    job: str
    """dlrm:tour, or the name of a script"""
    script: Path
    cells: tuple[Cell, ...]
    varies: Mapping[str, int]
    """What varies, and how many values it takes: settings, seed, budget, repeat"""
    max_seconds: float | None = None
    """That a run may take: one of labkit's jobs ends itself, a script is asked to end"""
    limits_process: bool = False
    """Whether max_seconds is counted from the start of its process, by whoever runs it"""
    where: str = ""
    """Where the job was named: a file and its line"""

    def words(self, cell: Cell) -> str:
        """What tells a cell from the others: "batch_size 128, seed 1"."""
        told = {**cell.settings, "seed": cell.seed, "budget": cell.budget.name, "repeat": cell.repeat}
        return ", ".join(f"{name} {told[name]}" for name in self.varies if name in told)

    def command(self, cell: Cell, runs_dir: Path) -> ScriptCommand:
        """The command that runs a cell."""
        told = {"name": self.name, "cell": cell.key, "settings": dict(cell.settings), "repeat": cell.repeat}
        harness = {"runs_dir": str(runs_dir), "budget": cell.budget, "sweep": told}
        command = ScriptCommand(str(self.script), cell.arguments, **harness)
        has_own = cell.seed is None or not any(SEED in each for each in cell.arguments)
        return command if has_own else command.seeded(cell.seed)


def cell_key(*decisive: Any) -> str:
    """A short name for JSON-able values, the same for the same values wherever and whenever it is asked for.

    >>> cell_key("dlrm", {"lr": "0.001"}) == cell_key("dlrm", {"lr": "0.001"}) != cell_key("dlrm", {"lr": "0.002"})
    True
    """
    return hashlib.blake2s(json.dumps(decisive, sort_keys=True).encode(), digest_size=6).hexdigest()


def described(cell: Cell) -> dict[str, Any]:
    """What a cell's state tells of it, JSON-able."""
    told = asdict(cell)
    return {name: told[name] for name in ("key", "settings", "seed", "repeat")} | {"budget": cell.budget.name}

"""The labs: their sources, the exercises in them, and what each needs of a machine.

A lab is one file, `labs/NN_topic.py`, in jupytext's percent format: each cell begins with `# %% title`. Cells titled
`checks` hold the exercises and never reach a notebook; an `answer` cell is the reference of its exercise. An
`assistant` cell is a sentence to judge: its title names the result that decides, and bounds within which it is true.
The first line of a lab names what it needs besides the packages of every lab, such as packages="duckdb" disk_gb=0.5.
"""

import functools
import re
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

from labkit.errors import UserError
from labkit.hardware import installed_version
from labkit_course.exercise import Exercise, Explanation, Statement, WrittenExercise

FOLDER = Path(__file__).parent / "labs"
EVERY_LAB = ("jupyterlab", "ipykernel", "torch", "pandas", "plotly")
"""Packages that every notebook needs."""
MEMORY_GB = 2.0
"""Every notebook has a path for two cores and 2 GB."""
DISK_GB = 0.1
"""Disk for prepared data, cached features and run folders of a lab whose first line gives no `disk_gb`."""
_CELL = re.compile(r"^(?=# %%(?: |$))", re.MULTILINE)
_DEFINITION = re.compile(r"^(async def|def|class) ", re.MULTILINE)
STATEMENT = re.compile(r"^# %% assistant (\w+)([^\n]*) \[markdown\]$", re.MULTILINE)
_TAKEN_UP = re.compile(r"^\w+ = mine\(.*\)$", re.MULTILINE)


def sources(folder: Path = FOLDER) -> list[Path]:
    """The sources of the labs, in the order of the course."""
    return sorted(folder.glob("[0-9]*.py"))


@functools.cache
def load_lab(number: str) -> ModuleType:
    """The exercises of a lab ("10") and their references, as a module; nothing else of the lab runs.

    Raises:
        UserError: there is no such lab.
    """
    found = [path for path in sources() if path.name.startswith(f"{number}_")]
    if len(found) != 1:
        numbers = ", ".join(path.name[:2] for path in sources())
        raise UserError(f"there is no lab {number!r}: the labs are {numbers}.")
    # All other lines are blank, so that tracebacks and inspect.getsource find the lines in the file.
    text = found[0].read_text("utf-8")
    kept = [cell if _is_loaded(cell) else "\n" * cell.count("\n") for cell in _CELL.split(text)]
    module = ModuleType(f"{__package__}.labs.{found[0].stem}")
    module.__file__ = str(found[0])
    sys.modules[module.__name__] = module  # where inspect.getsource looks for the file of a class
    exec(compile(_TAKEN_UP.sub("", "".join(kept)), str(found[0]), "exec"), vars(module))
    for result, bounds in STATEMENT.findall(text):
        known = {key: float(bound) for key, bound in re.findall(r"(\w+)=(\S+)", bounds)}
        module.EXERCISES[f"{number}.assistant"] = Statement(result, **known)
    return module


def _is_loaded(cell: str) -> bool:
    """Whether a cell holds exercises, or a reference; the answer to a number exercise needs the notebook around it."""
    title = cell.partition("\n")[0].removeprefix("# %% ")
    return title == "checks" or (title.startswith("answer ") and _DEFINITION.search(cell) is not None)


def from_lab(number: str, name: str) -> Any:
    """What another lab's checks or reference answers call `name`."""
    return getattr(load_lab(number), name)


def answer_cell(name: str) -> str:
    """The source of the answer to an exercise ("10.interaction"), without nbgrader's markers."""
    path = load_lab(name.partition(".")[0]).__file__ or ""
    for cell in _CELL.split(Path(path).read_text("utf-8")):
        title, _, source = cell.partition("\n")
        if title.split()[2:4] == ["answer", name]:
            return re.sub(r"^ *### (BEGIN|END) SOLUTION\n", "", source, flags=re.MULTILINE).strip()
    raise UserError(f"{path} has no cell titled answer {name}.")


@functools.cache
def all_exercises(number: str = "") -> dict[str, Exercise | WrittenExercise | Explanation | Statement]:
    """Every exercise by its name; or those of a lab ("10") alone, which loads no other's libraries."""
    labs = [path.name[:2] for path in sources()]
    chosen = [each for each in labs if each.startswith(number)]
    return {name: exercise for each in chosen for name, exercise in load_lab(each).EXERCISES.items()}


def with_variants(cells: Sequence[Any]) -> None:
    """Put the first variant of each exercise in place of its answer, in code cells of an authored notebook."""
    for answer, cell in pairwise(cells):
        if call := re.search(r'^check\("([\w.]+)", ', cell.source, re.MULTILINE):
            exercise = all_exercises(call[1].partition(".")[0])[call[1]]
            if isinstance(exercise, WrittenExercise):
                answer.source = exercise.swapped(answer.source)


def labs_on(machine: dict[str, Any]) -> list[dict[str, Any]]:
    """Which labs run on a machine, as the doctor's `examine` describes it, and why the others do not, as text."""
    memory_gb, free_gb = machine["memory"]["total_bytes"] / 1e9, machine["disk"]["free_bytes"] / 1e9
    report = []
    for path in sources():
        opening, _, title, *_ = path.read_text("utf-8").splitlines()
        needs = dict(re.findall(r'(\w+)="?([^"]+?)"?(?= \w+=|$)', opening))
        if (unknown := needs.keys() - {"packages", "disk_gb"}) or not title.startswith("# "):
            raise ValueError(f"{path}: its first lines say packages, disk_gb and the title, not {unknown or title!r}")
        disk_gb = float(needs.get("disk_gb", DISK_GB))
        packages = (*needs.get("packages", "").split(), *EVERY_LAB)
        missing = [package for package in packages if installed_version(package) is None]
        obstacles = [f"not installed: {', '.join(missing)}"] if missing else []
        if memory_gb < MEMORY_GB:
            obstacles.append(f"needs {MEMORY_GB:g} GB of memory, here are {memory_gb:.1f}")
        if free_gb < disk_gb:
            obstacles.append(f"needs {disk_gb:g} GB of free disk, here are {free_gb:.1f}")
        why = "; ".join(obstacles) or None
        report.append({"notebook": path.stem, "title": title[2:], "runs": not obstacles, "why": why})
    return report

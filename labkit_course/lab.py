"""The labs: their sources, the exercises in them, and what each needs of a machine.

A lab is one file, `labs/NN_topic.py`, in jupytext's percent format: each cell begins with `# %% title`. Cells titled
`checks` hold the exercises and never reach a notebook; an `answer` cell is the reference of its exercise. An
`assistant` cell is a sentence to judge: its title names the result that decides, and bounds within which it is true.
"""

import functools
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Lab:
    """A notebook and its needs."""

    notebook: str
    title: str
    packages: tuple[str, ...] = ()
    """Packages that it needs as well as those of every lab."""
    disk_gb: float = 0.1
    """Disk for prepared data, cached features and run folders."""


LABS = (
    Lab("00_start_here", "Start here"),
    Lab("01_know_your_machine", "Know your machine"),
    Lab("02_budgets_that_bind", "Budgets that bind", ("scipy",)),
    Lab("10_train_dlrm", "Train a DLRM to a target", ("pyarrow",), disk_gb=0.5),
    Lab("11_what_makes_dlrm_slow", "What makes a DLRM slow", ("pyarrow",)),
    Lab("12_where_embeddings_live", "Where embeddings live", ("pyarrow",), disk_gb=0.5),
    Lab("13_batch_size_and_accuracy", "Batch size and accuracy", ("pyarrow", "scipy"), disk_gb=0.5),
    Lab("20_train_speech", "Train a speech recogniser to a target", ("soundfile", "scipy"), disk_gb=0.5),
    Lab("21_speech_on_budgets", "Speech recognition on budgets", ("scipy", "soundfile"), disk_gb=0.5),
    Lab("30_what_utilisation_means", "What utilisation means"),
    Lab("31_the_observer_effect", "The observer effect", ("scipy",)),
    Lab("32_profile_top_down", "Profile top-down"),
    Lab("33_make_it_fast", "Make it fast", ("scipy",), disk_gb=0.5),
    Lab("34_clinics", "Clinics"),
    Lab("35_memory", "Memory", ("scipy",)),
    Lab("40_sharing_a_device", "Sharing a device", ("scipy",), disk_gb=0.5),
    Lab("41_a_queue_and_its_faults", "A queue and its faults", disk_gb=0.5),
    Lab("50_time_to_accuracy", "Time to accuracy", ("scipy",)),
    Lab("51_cost_and_energy", "Cost and energy", ("scipy", "soundfile")),
    Lab("52_experiment_data", "Experiment data", ("duckdb", "pyarrow", "scipy"), disk_gb=0.5),
    Lab("60_performance_model", "Predict a step", ("scipy",)),
    Lab("63_sharding", "Sharding", ("scipy",)),
    Lab("70_edge_pipeline", "A pipeline on the edge", ("cloudpickle", "numba", "scikit-learn", "tornado"), disk_gb=0.5),
    Lab("71_learned_index", "A learned index, counted", ("numba",)),
    Lab("90_capstone", "Capstone", ("scipy",)),
)


def labs_on(machine: dict[str, Any]) -> list[dict[str, Any]]:
    """Which labs run on a machine, as the doctor's `examine` describes it, and why the others do not, as text."""
    memory_gb, free_gb = machine["memory"]["total_bytes"] / 1e9, machine["disk"]["free_bytes"] / 1e9
    report = []
    for lab in LABS:
        missing = [package for package in (*lab.packages, *EVERY_LAB) if installed_version(package) is None]
        obstacles = [f"not installed: {', '.join(missing)}"] if missing else []
        if memory_gb < MEMORY_GB:
            obstacles.append(f"needs {MEMORY_GB:g} GB of memory, here are {memory_gb:.1f}")
        if free_gb < lab.disk_gb:
            obstacles.append(f"needs {lab.disk_gb:g} GB of free disk, here are {free_gb:.1f}")
        why = "; ".join(obstacles) or None
        report.append({"notebook": lab.notebook, "title": lab.title, "runs": not obstacles, "why": why})
    return report

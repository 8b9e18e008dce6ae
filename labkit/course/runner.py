"""Executes notebooks, several at once, each with its own cores, and watches time, memory and network from outside."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue

from nbformat import NotebookNode

from labkit.course.datasets import prepare_data
from labkit.course.family import Family
from labkit.course.notebook_file import SOLUTIONS, canonical, drop_widgets, read_notebook
from labkit.course.parameters import check_parameters, literal_default
from labkit.course.verdict import count_figures, execution_faults, faults_until_stopped
from labkit.errors import UserError
from labkit.hardware.budgets.budget import THREAD_VARIABLES
from labkit.hardware.cpu import core_order
from labkit.hardware.sizes import size_text
from labkit.process.containment import end_killed
from labkit.runs.process import OUT_OF_CTRL_C

PROFILES = ("smoke", "standard", "full")
GUARD = Path(__file__).parent / "offline"
POLL_S = 0.2


@dataclass(frozen=True)
class Limits:
    """What ends a notebook that does not end by itself."""

    cell_s: int = 120
    """Seconds a cell may take."""
    notebook_s: float = 600.0
    """Seconds a notebook may take."""
    total_s: float = 3600.0
    """Seconds all notebooks may take together; what has not begun by then does not begin."""
    memory_bytes: int | None = 2 * 10**9
    """Memory of a notebook's kernel and its children at any moment; None where it is not bounded."""

    def __post_init__(self):
        for name in ("cell_s", "notebook_s", "total_s"):
            if not getattr(self, name) > 0:  # NaN, too
                raise UserError(f"{name} is {getattr(self, name)}: give a number of seconds above 0.")

    @classmethod
    def of(cls, profile: str) -> Limits:
        """What suits a profile: a cell may train several times for minutes at "standard", and for longer at "full"."""
        return {
            "smoke": cls(),
            "standard": cls(cell_s=600, notebook_s=1800.0, total_s=3 * 3600.0),
            "full": cls(cell_s=3600, notebook_s=3 * 3600.0, total_s=12 * 3600.0, memory_bytes=None),
        }[profile]


@dataclass
class Executed:
    """How one notebook went."""

    source: Path
    out: Path
    """The executed notebook; it may be missing where nothing ran."""
    seconds: float = 0.0
    peak_memory_bytes: int = 0
    cells: int = 0
    """Code cells that ran."""
    figures: int = 0
    faults: list[str] = field(default_factory=list)
    note: str = ""
    """What else to know, such as the exercise at which an unanswered notebook stopped."""

    @property
    def passed(self) -> bool:
        return not self.faults


def run_notebooks(
    notebooks: list[Path],
    out: Path,
    *,
    profile: str = "smoke",
    parameters: dict[str, object] | None = None,
    jobs: int = 1,
    limits: Limits | None = None,
    on_done: Callable[[Executed], None] = lambda executed: None,
    say: Callable[[str], None] = lambda words: None,
) -> list[Executed]:
    """Execute notebooks and judge them.

    Args:
        notebooks: their paths; one in a folder `solutions` has to run to its end, another stops at its first unanswered
            exercise.
        out: the folder for the executed notebooks and all that they write.
        profile: "smoke", "standard" or "full", handed to each.
        parameters: further parameters for each.
        jobs: how many run at once; the cores are shared out among them.
        limits: time and memory; those of the profile if None.
        on_done: called after each, from one thread at a time.
        say: called with what is done before the first.

    Returns:
        One result a notebook, in the order given.

    Raises:
        UserError: a notebook cannot be read, has no parameter of that name, or would be written over.
        KeyboardInterrupt: after the notebooks under way were ended; nothing of them is left running.
    """
    limits = limits or Limits.of(profile)
    parameters = {"profile": profile, **(parameters or {})}
    check_places(notebooks, out)
    chosen = check_parameters(notebooks, parameters)
    prepare_data((names.get("data") or literal_default(path, "data") for path, names in chosen.items()), say)
    out.mkdir(parents=True, exist_ok=True)
    shares: SimpleQueue[list[int]] = SimpleQueue()
    for share in core_shares(jobs):
        shares.put(share)
    deadline = time.monotonic() + limits.total_s
    lock, stop = threading.Lock(), threading.Event()

    def run(path: Path) -> Executed:
        cores = shares.get()
        try:
            executed = _Run(path, out, chosen[path], cores, limits, deadline, stop).execute()
        finally:
            shares.put(cores)
        with lock:
            on_done(executed)
        return executed

    # later notebooks build on earlier ones and take longer: begun first, they do not end alone
    with ThreadPoolExecutor(jobs) as pool:
        try:
            ran = dict(zip(notebooks[::-1], pool.map(run, notebooks[::-1]), strict=True))
        except KeyboardInterrupt:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
    return [ran[path] for path in notebooks]


def check_places(notebooks: list[Path], out: Path) -> None:
    """Refuse to write over a notebook that is to be executed, or to give two the same place.

    Raises:
        UserError: it would happen.
    """
    names = Counter(path.name for path in notebooks)
    for path in notebooks:
        if (out / path.name).resolve() == path.resolve():
            raise UserError(f"{path}: the executed notebook would replace it: name another folder with --out.")
        if names[path.name] > 1:
            raise UserError(
                f"{names[path.name]} of these notebooks are named {path.name}: run them one after the other."
            )
    if (out / SOLUTIONS).is_dir():
        raise UserError(
            f"{out}: the exercise notebooks are there, and would be replaced: name another folder with --out."
        )


def core_shares(jobs: int) -> list[list[int]]:
    """The cores this process may use, dealt out to `jobs` jobs; jobs share cores where there are too few."""
    cores = core_order()
    if jobs >= len(cores):
        return [[cores[job % len(cores)]] for job in range(jobs)]
    return [cores[job::jobs] for job in range(jobs)]


class _Run:
    """The execution of one notebook."""

    def __init__(
        self,
        path: Path,
        out: Path,
        parameters: dict[str, object],
        cores: list[int],
        limits: Limits,
        deadline: float,
        stop: threading.Event,
    ):
        self._cores, self._limits, self._deadline, self._parameters = cores, limits, deadline, parameters
        self._stop = stop
        self._work = (out / path.stem).resolve()
        self._network_report = self._work / "network.txt"
        self._executed = Executed(path, out / path.name)
        self._exercises = path.resolve().parent.name != SOLUTIONS

    def execute(self) -> Executed:
        executed = self._executed
        began = time.monotonic()
        if began >= self._deadline:
            executed.faults.append(f"did not begin within {self._limits.total_s:g} s, which all may take together")
            return executed
        self._work.mkdir(parents=True, exist_ok=True)
        for old in (self._network_report, executed.out):
            old.unlink(missing_ok=True)
        answer = self._watch(began)
        executed.seconds = time.monotonic() - began
        self._judge(answer)
        return executed

    def _watch(self, began: float) -> dict | None:
        """Run the worker to its end, or to a limit; return the error it answered with."""
        threads = {name: str(len(self._cores)) for name in THREAD_VARIABLES}
        request = {
            "source": str(self._executed.source.resolve()),
            "out": str(self._executed.out.resolve()),
            "parameters": self._parameters,
            "cell_timeout_s": self._limits.cell_s,
            "cwd": str(self._work),
            "cores": self._cores,
            "guard": str(GUARD),
            "network_report": str(self._network_report),
        }
        with (self._work / "worker.log").open("w+", encoding="utf-8") as log:
            worker = subprocess.Popen(
                [sys.executable, "-m", "labkit.course.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **threads, "LABKIT_COURSE": str(self._work / "course")},
                **OUT_OF_CTRL_C,
            )
            family = Family(worker.pid, self._limits.memory_bytes)
            try:
                with contextlib.suppress(BrokenPipeError):
                    worker.stdin.write(json.dumps(request) + "\n")
                    worker.stdin.flush()  # and stays open: at its end the worker knows that this process is gone
                broken = self._wait(worker, family, began)
            finally:
                family.end()
                end_killed(worker)
                with contextlib.suppress(BrokenPipeError):
                    worker.stdin.close()
            self._executed.peak_memory_bytes = family.peak_bytes
            line = worker.stdout.read()
            worker.stdout.close()
            if broken:
                return {"kind": "limit", "cell": None, "text": broken}
            if not line.strip():
                log.seek(0)
                return {
                    "kind": "worker",
                    "cell": None,
                    "text": f"its worker ended without an answer: {log.read()[-2000:]}",
                }
            answer = json.loads(line.splitlines()[-1])
            self._executed.faults += [f"it left a process running: {left}" for left in answer["left"]]
            return answer["error"]

    def _wait(self, worker: subprocess.Popen, family: Family, began: float) -> str | None:
        """Wait for the worker; return the limit that ended it, if one did."""
        limits = self._limits
        while True:
            try:
                worker.wait(timeout=POLL_S)
                return None
            except subprocess.TimeoutExpired:
                pass
            if self._stop.is_set():
                return "it was interrupted"
            memory = family.look()
            if limits.memory_bytes is not None and memory > limits.memory_bytes:
                return (
                    f"its kernel took {size_text(memory)} of memory, and {size_text(limits.memory_bytes)} is the most"
                )
            now = time.monotonic()
            if now - began > limits.notebook_s:
                return f"it took more than {limits.notebook_s:g} s"
            if now > self._deadline:
                return f"all notebooks together took more than {limits.total_s:g} s"

    def _judge(self, error: dict | None) -> None:
        """Note what is wrong, then keep the notebook without its widgets."""
        notebook = read_notebook(self._executed.out) if self._executed.out.exists() else None
        self._find_faults(error, notebook)
        if notebook is not None:
            drop_widgets(notebook)
            self._executed.out.write_text(canonical(notebook), encoding="utf-8")

    def _find_faults(self, error: dict | None, notebook: NotebookNode | None) -> None:
        executed = self._executed
        if self._network_report.exists():
            hosts = sorted(set(self._network_report.read_text(encoding="utf-8").split()))
            executed.faults.append(f"it wanted to connect to {', '.join(hosts)}, and has to run offline")
        if notebook is not None:
            code = [cell for cell in notebook.cells if cell.cell_type == "code"]
            executed.cells = sum(cell.execution_count is not None for cell in code)
            executed.figures = count_figures(notebook)
        if error is not None:
            if self._exercises and error["kind"] == "NotAnswered":
                executed.note = error["text"].partition(":")[0]
                executed.faults += faults_until_stopped(notebook)
                return
            place = f"cell {error['cell']}: " if error["cell"] is not None else ""
            executed.faults.append(f"{place}{_one_line(error)}")
            return
        if notebook is None:
            executed.faults.append("it left no executed notebook")
            return
        if self._exercises and count_unanswered(notebook):
            executed.faults.append("it ran past an exercise that has no answer")
        executed.faults += execution_faults(notebook)


def count_unanswered(notebook) -> int:
    """Answer cells that still hold the placeholder."""
    answers = [cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("solution")]
    return sum("answer = ..." in cell.source for cell in answers)


def _one_line(error: dict) -> str:
    if error["kind"] in ("limit", "worker"):
        return error["text"]
    return f"{error['kind']}: {' '.join(str(error['text']).split())}"[:300]

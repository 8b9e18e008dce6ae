"""The harness of a training script: its budget, device, stop request, seed and listeners. `Run` adopts it.

A script that no command wraps has a harness of its own, with the whole machine and a line on the terminal. Processes
that a wrapped script starts (torchrun, `torch.multiprocessing`, scripts that start scripts) find the harness through an
environment variable, and report to it through a file: a `Run` there writes its folder where the harness wants it, and
the harness shows it, stops it, and returns its answer.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import multiprocessing
import os
import secrets
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil

from labkit import UserError, hardware, json_data, process, runs
from labkit.hardware import memory_watch
from labkit.tracking import children
from labkit.tracking.children import VARIABLE
from labkit.tracking.ending import StopRequest
from labkit.tracking.events import OnEvent, Preparing, Ready, Started, read_event

_current: Harness | None = None

SEED = "{seed}"
"""Stands for the seed among a script's arguments"""


@dataclass(frozen=True)
class ScriptCommand:
    """A script and its harness, as data that crosses to another process."""

    script: str | None = None
    """Path of a Python file, or as its record names it; None for code that no command started"""
    arguments: tuple[str, ...] = ()
    """Arguments of the script, one per item; where it has settings, the equivalent command line, for people to read"""
    settings: dict[str, Any] | None = field(default=None, hash=False)
    """Settings of a script that takes them as JSON, as `labkit.jobs.Job.to_json` gives them"""
    module: str | None = None
    """Name of the module, if it runs as `python -m` does"""
    runs_dir: str = "runs"
    """Folder for the run's folder"""
    budget: hardware.Budget | None = None
    """Budget that binds the process; None: the whole device"""
    shared: hardware.Budget | None = None
    """Budget of all ranks of the run together, where this process is one of them"""
    waits_for_cores: bool = True
    """Whether it waits, or is refused, while other runs hold the cores of its budget"""
    device: str | None = None
    """Device as torch names it, where there is no budget; None: the script's choice"""
    cores: tuple[int, ...] | None = None
    """CPU cores of the process and its children, where the budget does not choose them"""
    folder: str | None = None
    """Working folder; None: that of the process"""
    seed: int | None = None
    """Seed of Python, NumPy and torch before the script begins"""
    resume: str | None = None
    """Folder of a run to continue"""
    sample_hz: float | None = None
    """Telemetry samples per second"""
    waits: bool = False
    """Whether it waits for a signal before its first step"""
    collocation: dict[str, Any] | None = None
    """Record of the jobs that share the device: group, mode, job, mix"""
    power_limit_w: float | None = None
    """Power limit of the GPU during the run, recorded with the settings of the training"""
    trial: dict[str, Any] | None = None
    """Record of the energy trial: number, device, idle power, cool-down"""
    sweep: dict[str, Any] | None = None
    """Record of the sweep's cell: name, cell (its key), settings (those that vary), repeat"""

    def seeded(self, seed: int) -> ScriptCommand:
        """The same command, run with a seed."""
        return replace(self, arguments=tuple(each.replace(SEED, str(seed)) for each in self.arguments), seed=seed)


def current_harness() -> Harness | None:
    """The harness of this process, if it is wrapped in one."""
    return _current


def device(name: str = "auto") -> str:
    """The device to compute on. "auto" is the budget's device, else the first GPU that torch can use, else "cpu".

    Raises:
        UserError: this machine does not have it, or it contradicts this process' budget.
    """
    import torch

    here = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
    bound = _current.command.budget if _current is not None else None
    own = here[min(1 + int(os.environ.get("LOCAL_RANK") or "0"), len(here) - 1)]  # each rank has a GPU of its own
    wanted = {"cuda": "cuda:0", "auto": bound.torch_name if bound else own}.get(name, name)
    if wanted not in here:
        raise UserError(
            f"device {name!r} does not exist here: use one of {', '.join(here)}, or run `labkit doctor` to see what is "
            "missing."
        )
    if bound is not None and wanted != bound.torch_name:
        raise UserError(
            f"device {name!r} contradicts the budget {bound.name!r}, which uses {bound.torch_name}: remove one of them."
        )
    return wanted


def whole_device(torch_name: str) -> hardware.Budget:
    """The budget for a whole device."""
    import torch

    whole = {budget.torch_name: budget for budget in hardware.offered_budgets()}
    if torch_name not in whole and torch.version.hip is not None:  # an AMD GPU, which NVML does not list
        return hardware.Budget(torch_name, None, torch_name=torch_name)
    return whole.get(torch_name, whole["cpu"])


def tell_preparing(fraction: float, text: str) -> None:
    """Report how far the preparation of the data is."""
    if _current is not None:
        _current.tell(Preparing(fraction, text))


@dataclass
class Harness:
    """Everything about a run that the script does not decide; one per process."""

    stop: StopRequest
    command: ScriptCommand = field(default_factory=ScriptCommand)
    """The process' command, with absolute paths if it is a script. Without a budget nothing binds the process, and the
    budget is named after the device that computes."""
    on_event: OnEvent = lambda event: None
    observer: Any = None
    """Observer of a run's steps, such as a profiler. The run then has no target, evaluation, test or checkpoint.
    Its `describe()` goes into the record; `start(folder, device)` is called before the first step, `step()` after each
    step (True ends the run), and `finish()` at the end."""
    outlet: int | None = None
    """File descriptor for events, also for those about this process after it was killed."""
    is_script: bool = False
    """Whether the script is its own harness."""
    answer: dict[str, Any] = field(default_factory=dict)
    """Run, folder, status and result of the last run that has ended; empty if there is none."""
    had_run: bool = False
    """Whether a run was opened, even if it left no answer."""
    on_step: Callable[[], bool] | None = None
    """Called after each step of an open run; True ends it."""
    seen_enough: bool = False
    """Whether the observer ended the run, whatever the script makes of that"""
    _computing_on: str | None = None

    @contextlib.contextmanager
    def wrapped(self) -> Generator[Harness]:
        """Make this the harness of the process during the block."""
        global _current
        assert _current is None, "one harness per process"
        _current = self
        try:
            yield self
        finally:
            _current = None

    @property
    def budget(self) -> hardware.Budget:
        """The budget of the run, which several ranks may share."""
        return self.command.shared or self.command.budget or whole_device(self.torch_name)

    @property
    def torch_name(self) -> str:
        """torch's name for the device to compute on."""
        if self.command.budget is not None:
            return self.command.budget.torch_name
        if self._computing_on is not None:
            return self._computing_on
        import torch

        return "cuda:0" if torch.cuda.is_available() else "cpu"

    @property
    def family(self) -> int:
        """Process whose descendants do not count as other programs: for jobs that share a device, their supervisor."""
        shares = (self.command.collocation or {}).get("mode", "cpu-pinned") != "cpu-pinned"
        is_rank = int(os.environ.get("WORLD_SIZE") or "1") > 1 or multiprocessing.parent_process() is not None
        return process.starter_pid() if shares or is_rank else os.getpid()

    def described(self) -> dict[str, Any]:
        """Settings for the record: the script, its budget and observer, and the jobs it shares a device with."""
        policy = os.environ.get("OMP_WAIT_POLICY", "as OpenMP does").lower()
        described: dict[str, Any] = {"budget": json_data.to_json(self.budget), "threads_wait": policy}
        script, arguments, main = self.command.script, list(self.command.arguments), sys.modules["__main__"]
        if script is None and (path := getattr(main, "__file__", None)) is not None:  # neither a notebook nor python -c
            script, arguments = str(Path(path).absolute()), sys.argv[1:]
            script = main.__spec__.name if main.__spec__ else script
        if script is not None:
            described |= {"script": script, "arguments": arguments}
            code = Path(script if Path(script).is_file() else getattr(main, "__file__", None) or script)
            if code.is_file():
                described["script_sha256"] = hashlib.sha256(code.read_bytes()).hexdigest()
        for name in ("settings", "collocation", "trial", "sweep"):
            described[name] = getattr(self.command, name)
        described["profile"] = self.observer and self.observer.describe()
        return {name: value for name, value in described.items() if value is not None}

    def settle_seed(self, asked: int | None) -> int | None:
        """The seed that a run records; None if none was given."""
        seed = self.command.seed
        if None not in (seed, asked) and asked != seed:
            raise UserError(
                f"labkit run repeats this script with seed {seed}, but the script fixes seed {asked}, so all its runs "
                "would be the same: remove seed= and manual_seed from it, or let it take the seed as an argument and "
                "write --seed {seed} after the script's name."
            )
        return seed if asked is None else asked

    def ended(self, run: str, folder: str, status: str, result: Mapping[str, Any]) -> None:
        self.answer = {"run": run, "folder": folder, "status": status, "result": result}
        if self.is_script:
            self.tell(self.answer)

    def tell(self, event: Any) -> None:
        if isinstance(event, Started):
            memory_watch.note(folder=event.folder)
        self.on_event(event)

    def stepped(self) -> bool:
        """Note a step. Returns whether the run must end."""
        step = self.on_step or (self.observer and self.observer.step)
        self.seen_enough = step is not None and step()
        return self.seen_enough

    def computes_on(self, parameters: Iterable[Any]) -> str:
        """The device that computes: that of the parameters, else that of the budget."""
        device = next((parameter.device for parameter in parameters), None)
        if device is None:
            return self.torch_name
        name = f"{device.type}:{device.index or 0}" if device.type == "cuda" else device.type
        if self.command.budget is None and self._computing_on is None:
            self._computing_on = name
        return name


ANSWER = "Answer"


class SpawnedRuns:
    """Runs in processes that a script starts: a context manager, during which such processes find the harness."""

    def __init__(self, harness: Harness):
        self._harness = harness
        self._heard, self._lock = 0, threading.Lock()
        """Number of lines read so far, and the lock of the two threads that read them."""
        self._folder: Path | None = None
        """Folder of a run that another process has open."""
        self.is_ending = False
        """Whether that run was asked to stop: then the script need not be interrupted."""
        self.have_steps = False
        """Whether an optimiser stepped in a process without a run."""

    def __enter__(self) -> SpawnedRuns:
        harness = self._harness
        # the first process that reports makes the file: a script that starts none leaves no file when it is killed
        self._file = Path(tempfile.gettempdir()) / f"labkit-{os.getpid()}-{secrets.token_hex(4)}.jsonl"
        content = {"events": str(self._file), "pid": os.getpid(), "family": harness.family}
        os.environ[VARIABLE] = json.dumps(content | {"command": json_data.to_json(harness.command)})
        return self

    def __exit__(self, *error: object) -> None:
        os.environ.pop(VARIABLE, None)  # a script may clear it
        self.listen()
        for path in (self._file, self._file.with_suffix(".go")):
            path.unlink(missing_ok=True)

    def listen(self) -> None:
        """Pass on the reports of runs in other processes, and any stop request to them."""
        with self._lock:
            text = self._file.read_text(encoding="utf-8") if self._file.exists() else ""
            lines = text.split("\n")[self._heard : -1]  # the last line may still be incomplete
            self._heard += len(lines)
            for line in lines:
                self._hear(json.loads(line))
        if self._harness.stop and self._folder is not None and not self.is_ending:
            self.is_ending = True
            with contextlib.suppress(UserError):  # it has just ended
                runs.request_stop(self._folder)

    def _hear(self, event: dict[str, Any]) -> None:
        if event["kind"] == children.STEPPED:
            self.have_steps = True
            return
        if event["kind"] == ANSWER:
            self._folder, self.is_ending = None, False
            self._harness.answer = {name: value for name, value in event.items() if name != "kind"}
            return
        report = read_event(event)
        if isinstance(report, Started):
            self._folder = Path(report.folder)
        self._harness.tell(report)
        if isinstance(report, Ready):
            self._file.with_suffix(".go").touch()


class SpawnedHarness(Harness):
    """The harness of another process, seen from a process that its script has started."""

    _found: dict[str, Any]
    """What the variable says of the harness"""

    def tell(self, event: Any) -> None:
        children.write(self._found, {"kind": type(event).__name__, **asdict(event)})
        if isinstance(event, Ready):
            go = Path(self._found["events"]).with_suffix(".go")
            while not go.exists() and psutil.pid_exists(self._found["pid"]):
                time.sleep(0.05)

    def ended(self, run: str, folder: str, status: str, result: Mapping[str, Any]) -> None:
        super().ended(run, folder, status, result)
        children.write(self._found, {"kind": ANSWER, **self.answer})

    @classmethod
    def found(cls) -> SpawnedHarness | None:
        """The harness in this process' environment; None if there is none."""
        if VARIABLE not in os.environ:
            return None
        found = json.loads(os.environ[VARIABLE])
        harness = cls(StopRequest(), json_data.build(found["command"], ScriptCommand))
        harness._found = found
        return harness

    @property
    def family(self) -> int:
        return self._found["family"]

"""What wraps the process of a training script: budget, device, stop, seed, and who is told; `Run` adopts it.

A script that nobody wraps has a harness of its own, which is the whole machine and a line on the terminal.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labkit.errors import UserError
from labkit.hardware import Budget, offered_budgets
from labkit.hardware.budgets import memory_watch
from labkit.json_data import to_json
from labkit.tracking.command import ScriptCommand
from labkit.tracking.ending import StopRequest
from labkit.tracking.events import OnEvent, Preparing, Started

_current: Harness | None = None


def current_harness() -> Harness | None:
    """The harness that this process is wrapped in."""
    return _current


def device(name: str = "auto") -> str:
    """What to compute on: for "auto" the budget's device, else the first GPU that torch can use, else "cpu".

    Raises:
        UserError: it is not here, or contradicts the budget that binds this process.
    """
    import torch

    here = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
    bound = _current.command.budget if _current is not None else None
    wanted = {"cuda": "cuda:0", "auto": bound.torch_name if bound else here[min(1, len(here) - 1)]}.get(name, name)
    if wanted not in here:
        raise UserError(
            f"device {name!r} is not here: torch offers {', '.join(here)}. `labkit doctor` says what was found."
        )
    if bound is not None and wanted != bound.torch_name:
        raise UserError(
            f"device {name!r} contradicts the budget {bound.name!r}, which computes on {bound.torch_name}: leave one "
            "of the two away."
        )
    return wanted


def whole_device(torch_name: str) -> Budget:
    """The budget that is all of a device."""
    import torch

    whole = {budget.torch_name: budget for budget in offered_budgets()}
    if torch_name not in whole and torch.version.hip is not None:  # an AMD GPU, which NVML does not list
        return Budget(torch_name, None, torch_name=torch_name)
    return whole.get(torch_name, whole["cpu"])


def tell_preparing(fraction: float, text: str) -> None:
    """Tell whoever watches this process how far the data's preparation is."""
    if _current is not None:
        _current.tell(Preparing(fraction, text))


@dataclass
class Harness:
    """Holds what `Run` does not decide; one a process."""

    stop: StopRequest
    command: ScriptCommand = field(default_factory=ScriptCommand)
    """What the process runs, its paths absolute where it is a script of somebody's command. Without a budget nothing
    binds the process, and the device that computes decides what the budget is called"""
    on_event: OnEvent = lambda event: None
    observer: Any = None
    """Looks at the steps of a run, which then trains towards no target, is not evaluated, tested or saved for a resume.
    Its `describe()` goes into the record, `start(folder, device)` comes before the first step, `step()` after each and
    says whether the run is to end, `finish()` at the end"""
    outlet: int | None = None
    """File descriptor that events are written to, and what is told of this process should it be killed"""
    is_script: bool = False
    """Whether the script is its own harness"""
    answers: list[dict[str, Any]] = field(default_factory=list)
    """Of each run that has ended: run, folder, status, result"""
    on_step: Callable[[], bool] | None = None
    """Told of each step of an open run; True ends it"""
    _computing_on: str | None = None

    @contextlib.contextmanager
    def wrapped(self) -> Iterator[Harness]:
        """Wrap what this process does in the block."""
        global _current
        assert _current is None, "one harness a process"
        _current = self
        try:
            yield self
        finally:
            _current = None

    @property
    def budget(self) -> Budget:
        return self.command.budget or whole_device(self.torch_name)

    @property
    def torch_name(self) -> str:
        """What torch calls the device to compute on."""
        if self.command.budget is not None:
            return self.command.budget.torch_name
        if self._computing_on is not None:
            return self._computing_on
        import torch

        return "cuda:0" if torch.cuda.is_available() else "cpu"

    @property
    def family(self) -> int:
        """The process whose descendants are no other programs: of jobs that share a device, their supervisor."""
        shares = (self.command.collocation or {}).get("mode", "cpu-pinned") != "cpu-pinned"
        is_rank = int(os.environ.get("WORLD_SIZE", "1")) > 1 or multiprocessing.parent_process() is not None
        return os.getppid() if shares or is_rank else os.getpid()

    def described(self) -> dict[str, Any]:
        """What the record says of the script, of what binds and looks at it, and of the jobs beside it."""
        policy = os.environ.get("OMP_WAIT_POLICY", "as OpenMP does").lower()
        described: dict[str, Any] = {"budget": to_json(self.budget), "threads_wait": policy}
        script, arguments, main = self.command.script, list(self.command.arguments), sys.modules["__main__"]
        if script is None and getattr(main, "__file__", None) is not None:  # no notebook, nor python -c
            script, arguments = str(Path(main.__file__).absolute()), sys.argv[1:]
            script = main.__spec__.name if main.__spec__ else script
        if script is not None:
            described |= {"script": script, "arguments": arguments}
        if self.command.settings is not None:
            described["settings"] = self.command.settings
        if self.command.collocation is not None:
            described["collocation"] = self.command.collocation
        if self.command.trial is not None:
            described["trial"] = self.command.trial
        if self.command.sweep is not None:
            described["sweep"] = self.command.sweep
        return described if self.observer is None else described | {"profile": self.observer.describe()}

    def settle_seed(self, asked: int | None) -> int | None:
        """The seed that a run records; None where nobody gave one."""
        seed = self.command.seed
        if None not in (seed, asked) and asked != seed:
            raise UserError(
                f"labkit run repeats this script with seed {seed}, and the script fixes {asked}, so that all would be "
                "one and the same: leave seed= and manual_seed out of it, or let it take its seed as an argument, and "
                "write --seed {seed} behind the script's name."
            )
        return seed if asked is None else asked

    def entered(self) -> None:
        """A run's block was entered; whoever wraps the process listens to signals already."""
        if self is not _current:
            self.stop.__enter__()

    def ended(self, run: str, folder: str, status: str, result: dict[str, Any]) -> None:
        self.answers.append({"run": run, "folder": folder, "status": status, "result": result})
        if self.is_script:
            self.tell(self.answers[-1])

    def left(self) -> None:
        if self is not _current:
            self.stop.__exit__()

    def tell(self, event: Any) -> None:
        if isinstance(event, Started):
            memory_watch.note(folder=event.folder)
        self.on_event(event)

    def stepped(self) -> bool:
        """Take note of a step; whether the run is to end."""
        step = self.on_step or (self.observer and self.observer.step)
        return step is not None and step()

    def computes_on(self, parameters: Iterable[Any]) -> str:
        """What computes, as far as is known: the parameters' device, else that of the budget."""
        device = next((parameter.device for parameter in parameters), None)
        if device is None:
            return self.torch_name
        name = f"{device.type}:{device.index or 0}" if device.type == "cuda" else device.type
        if self.command.budget is None and self._computing_on is None:
            self._computing_on = name
        return name

"""Finds the steps and phases of an unchanged script while it runs, and has them profiled.

A step ends with `run.step` if there is a `labkit.Run`, else as `tracking.OptimiserSteps` finds it, but never within a
backward pass. A module with trainable parameters, called from outside of all modules, begins a forward pass, and
`backward` the backward pass. Time before the forward pass is "between steps", except for `run.batches` and a data
loader, which have annotations of their own, as the optimiser has. Phases that the script names itself (`run.phase`)
come first. What `torch.compile` compiled runs without any of this: it is one phase.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import torch
from torch.autograd import profiler

from labkit import UserError, errors, hardware, tracking
from labkit.profiling.capture import SampledSteps, StepRecorder, StepWatcher, save_limits
from labkit.profiling.tools import AFTER_BACKWARD, BETWEEN, OTHER, PHASES, ProfileSettings

OF_RUN = (tracking.INPUT, tracking.SYNC)
"""Phases that `labkit.Run` names in any script"""


class ScriptSteps(tracking.OptimiserSteps):
    """Turns what a script calls into the steps and phases of a watcher."""

    def __init__(self, observer: StepWatcher):
        super().__init__()
        self._observer, self._clock = observer, observer.clock
        self._thread = threading.get_ident()
        self._patches: list[tuple[Any, str, Any, Any]] = []
        """Attributes of torch that are replaced: owner, name, torch's own, labkit's"""
        self._names_phases = False
        self._inside = 0
        """Number of named phases that are open"""
        self._has_stepped = False
        """Whether the open annotation, or the script's open phase, ends a step"""

    def step(self) -> bool:
        """Note the end of a step; True once the watcher has seen enough."""
        self._to(None)
        if (optimiser := self._turns.optimiser) is not None:
            self._observer.computes_on(optimiser.param_groups[0]["params"][0].device)
        self._patch(self._patches[:1])  # of a module that contains the loop
        ended = self._observer.is_done or self._observer.step()  # a script may catch the exception that ends it
        self._to(BETWEEN)
        return ended

    @contextlib.contextmanager
    def watched(self, before_first: Callable[[Any], None], after_each: Callable[[], None]) -> Generator[None]:
        """Watch what the block calls in this thread."""
        from torch._dynamo import OptimizedModule  # notes how torch looks, so it comes before the patches

        self._compiled_type = OptimizedModule
        self._patches = [
            (owner, name, plain, by(plain))
            for owner, name, by in (
                (torch.nn.Module, "__call__", self._module),
                (torch.autograd, "backward", self._backward),  # `Tensor.backward` calls it
                (torch.autograd, "grad", self._backward),
                (profiler.record_function, "__exit__", self._annotation),
            )
            for plain in [getattr(owner, name)]
        ]
        with super().watched(before_first, after_each), tracking.watched_by(self._named):
            self._to(BETWEEN)
            self._patch(self._patches)
            try:
                yield
            finally:
                self._patch(self._patches, watches=False)
                self._to(None)
                self._patches = []

    def _patch(self, patches: list[tuple[Any, str, Any, Any]], *, watches: bool = True) -> None:
        for owner, name, plain, watching in patches:
            setattr(owner, name, watching if watches else plain)

    @contextlib.contextmanager
    def _unwatched(self, patches: list[tuple[Any, str, Any, Any]]) -> Generator[None]:
        """Let torch be as it is during the block."""
        self._patch(patches, watches=False)
        try:
            yield
        finally:
            self._patch(patches)

    def is_watched(self) -> bool:
        return not self._is_elsewhere or tracking.is_in_backward()  # with a GPU, autograd has a thread of its own

    def ended(self, steps: int, *, in_optimiser: bool) -> None:
        # torch's annotation of this call, a phase that the script has named, or a backward pass may still be open
        self._has_stepped = True
        if not in_optimiser:
            self._close()

    @contextlib.contextmanager
    def around(self, region: tracking.Region) -> Generator[None]:
        if region.steps:
            self._to(tracking.OPTIMISER if self._clock.phase == AFTER_BACKWARD else OTHER)
        elif region.trains:
            self._forward()
        with self._unwatched(self._patches):
            yield

    def _to(self, phase: str | None) -> None:
        """Switch to another phase, or to none."""
        if self._names_phases or self._inside:
            return
        if self._clock.phase:
            self._clock.end()
        if phase is not None:
            self._clock.begin(phase)

    @property
    def _is_elsewhere(self) -> bool:
        """Whether another thread calls, such as a data loader's, or torch.jit.trace: no phases of the step."""
        return threading.get_ident() != self._thread or torch.jit.is_tracing()

    def _module(self, plain: Callable) -> Callable:
        """Of modules that call modules, only the outermost is watched."""

        @functools.wraps(plain)
        def __call__(module: torch.nn.Module, *arguments: Any, **keywords: Any) -> Any:
            if torch.compiler.is_compiling() or self._is_elsewhere:
                return plain(module, *arguments, **keywords)
            self._close()  # of a backward pass that torch.autograd did not begin
            if any(parameter.requires_grad for parameter in module.parameters()):  # otherwise it transforms data
                self._forward()
            compiled = isinstance(module, self._compiled_type) or module._compiled_call_impl is not None
            with self._unwatched(self._patches if compiled else self._patches[:1]):
                return plain(module, *arguments, **keywords)

        return __call__

    def _forward(self) -> None:
        if self._clock.phase != tracking.FORWARD:
            self._to(tracking.FORWARD if torch.is_grad_enabled() else OTHER)  # without gradients it is an evaluation

    @contextlib.contextmanager
    def _named(self, name: str) -> Generator[None]:
        """A phase that the script or its Run names."""
        if name not in PHASES:  # the script's own word: in the trace only
            with torch.profiler.record_function(name):
                yield
            return
        if name not in OF_RUN:
            self._to(None)
            self._names_phases = True
        self._inside += 1
        try:
            with self._clock.watch(name):
                yield
        finally:
            self._inside -= 1
        self._close()

    def _close(self) -> None:
        """End the step if its optimiser has stepped, and neither a named phase nor a backward pass is open."""
        if self._has_stepped and not self._inside and not tracking.is_in_backward():
            self._has_stepped = False
            self._after_each()

    def _annotation(self, plain: Callable) -> Callable:
        """Ends the step when torch's annotation of the optimiser ends."""

        @functools.wraps(plain)
        def __exit__(annotation: torch.profiler.record_function, *error: Any) -> None:
            plain(annotation, *error)
            if annotation.name.startswith("Optimizer.step#") and not self._is_elsewhere:
                self._close()

        return __exit__

    def _backward(self, plain: Callable) -> Callable:
        @functools.wraps(plain)
        def backward(*arguments: Any, **keywords: Any) -> Any:
            if torch.compiler.is_compiling() or self._is_elsewhere or tracking.is_in_backward():
                return plain(*arguments, **keywords)
            self._to(tracking.BACKWARD)
            try:
                result = plain(*arguments, **keywords)
            finally:
                self._to(AFTER_BACKWARD)
            self._close()  # of an optimiser that stepped in it
            return result

        return backward


def profile_with(
    tool: str,
    command: tracking.ScriptCommand,
    settings: ProfileSettings,
    stop: tracking.StopRequest,
    on_event: tracking.OnEvent,
) -> tuple[Path, list[str]]:
    """Profile a script with torch.profiler or py-spy, then measure the machine's limits: as `profile_script`."""
    if tool != "torch":
        return profile_script(command, SampledSteps(settings, errors.certain(command.script)), stop, on_event)
    recorder = StepRecorder(settings)
    folder, notes = profile_script(command, recorder, stop, on_event)
    try:
        limits = hardware.calibrate(str(recorder.device), repeats=3)
    except (RuntimeError, MemoryError) as error:
        if not hardware.is_out_of_memory(error):
            raise
        limits = hardware.calibrate(str(recorder.device), repeats=3, copy_bytes=2**25)  # a budget of little memory
    save_limits(folder, limits)
    return folder, notes


def profile_script(
    command: tracking.ScriptCommand, observer: StepWatcher, stop: tracking.StopRequest, on_event: tracking.OnEvent
) -> tuple[Path, list[str]]:
    """Run a script until its profile is recorded, then end it; return the run's folder, and notes for the user.

    Raises:
        UserError: there is no such script; it failed, or ended before a step was recorded.
        KeyboardInterrupt: it was stopped earlier.
    """
    steps = ScriptSteps(observer)
    try:
        with _only_profiler(observer):
            answer = tracking.run_command(command, stop, on_event, steps=steps, observer=observer, on_step=steps.step)
    except (UserError, OSError):
        raise
    except SystemExit as ending:
        how = f"{command.script}: the script ended by sys.exit({ending.code!r})"
        raise UserError(f"{how} before its first step: nothing was profiled.") from None
    except Exception as error:
        tracking.print_error(error)
        raise UserError(
            f"{command.script}: {type(error).__name__}: {error}. The script failed: fix it, and profile again."
        ) from error
    if answer["status"] == "stopped":
        raise KeyboardInterrupt
    folder, result = Path(answer["folder"]), answer["result"]
    if answer["status"] == "failed":
        raise UserError(f"{command.script}: {result['reason']}, so its steps are not analysed; see {folder}.")
    notes = [result["reason"]] if tracking.NOT_COUNTED in result["reason"] else []
    if result["ended_by"] != "profiled":
        notes = [_ended_early(command, observer, result["reason"])]
    dynamo = sys.modules.get("torch._dynamo.utils")
    graphs = dynamo.counters["stats"]["unique_graphs"] if dynamo is not None else 0
    return folder, [*notes, *([observer.of_compiled(graphs)] if graphs else [])]


def _ended_early(command: tracking.ScriptCommand, observer: StepWatcher, reason: str) -> str:
    """A note on a run that ended before the schedule did; a UserError if nothing was recorded."""
    needed, taken = observer.settings.skip + observer.settings.warmup + 1, observer.taken
    if taken >= needed:
        return f"{reason} after {taken} steps: {min(taken - needed + 1, observer.settings.steps)} were recorded"
    if taken:
        fewer = ", or give a smaller --skip and --warmup" if observer.tool == "torch" else ""
        why = f"after {taken} steps, and recording begins at step {needed}: let it train for longer{fewer}"
    else:
        why = "before any optimiser of torch had stepped here: name a script that trains in its own main thread"
    raise UserError(f"{command.script}: it ended {why} ({reason}).")


def _only_profiler(observer: StepWatcher) -> contextlib.AbstractContextManager[None]:
    """Refuse a script's own torch.profiler, which would end labkit's."""

    def guarded(plain: Callable) -> Callable:
        def start(profiler: torch.profiler.profile) -> None:
            if profiler is not observer.profiler and not observer.is_done:
                raise UserError("the script starts its own profiler, and torch allows only one: remove it")
            plain(profiler)

        return start

    return tracking.replaced(torch.profiler.profile, "start", guarded)

"""Finds the steps and phases of an unchanged script while it runs, and has them profiled.

A step ends with `run.step` if there is a `labkit.Run`, else when the optimiser that stepped first steps
again. A module with trainable parameters, called from outside of all modules, begins a forward pass, and `backward` the
backward pass. Time before the forward pass is "between steps", except for `run.batches` and a data loader, which have
annotations of their own, as the optimiser has. Phases that the script names itself (`run.phase`) come first.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import torch
from torch.autograd import profiler
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers

from labkit import UserError, hardware, tracking
from labkit.profiling.capture import SampledSteps, StepRecorder, StepWatcher, save_limits
from labkit.profiling.tools import AFTER_BACKWARD, BETWEEN, OTHER, PHASES, ProfileSettings

OF_RUN = (tracking.INPUT, tracking.SYNC)
"""Phases that `labkit.Run` names in any script"""


@contextlib.contextmanager
def replaced(owner: Any, name: str, by: Callable[[Any], Any]) -> Generator[None]:
    """Replace an attribute during the block by `by(attribute)`."""
    plain = getattr(owner, name)
    setattr(owner, name, by(plain))
    try:
        yield
    finally:
        setattr(owner, name, plain)


class ScriptSteps:
    """Turns what a script calls into the steps and phases of a watcher."""

    def __init__(self, observer: StepWatcher):
        self._observer, self._clock = observer, observer.clock
        self._thread = threading.get_ident()
        self._depth = 0
        """Depth of modules that call modules"""
        self._closing: torch.optim.Optimizer | None = None
        """The optimiser whose step ends a step"""
        self._names_phases = False
        self._inside = 0
        """Number of named phases that are open"""
        self._has_stepped = False
        """Whether the open annotation, or the script's open phase, ends a step"""

    def step(self) -> bool:
        """Note the end of a step; True once the watcher has seen enough."""
        self._to(None)
        self._depth = 0
        if self._closing is not None:
            self._observer.computes_on(self._closing.param_groups[0]["params"][0].device)
        ended = self._observer.is_done or self._observer.step()  # a script may catch the exception that ends it
        self._to(BETWEEN)
        return ended

    @contextlib.contextmanager
    def watched(self, before_first: Callable[[Any], None], after_each: Callable[[], None]) -> Generator[None]:
        """Watch what the block calls in this thread; optimiser steps are reported as by `optimiser_steps`."""
        self._before_first, self._after_each = before_first, after_each
        with contextlib.ExitStack() as stack:
            stack.enter_context(tracking.watched_by(self._named))
            self._to(BETWEEN)
            stack.callback(self._to, None)
            for hook in (
                modules.register_module_forward_pre_hook(self._enter_module),
                modules.register_module_forward_hook(self._leave_module, always_call=True),
                optimizers.register_optimizer_step_pre_hook(self._steps),
                optimizers.register_optimizer_step_post_hook(self._stepped),
            ):
                stack.callback(hook.remove)
            for name in ("backward", "grad"):  # `Tensor.backward` calls that of torch.autograd
                stack.enter_context(replaced(torch.autograd, name, self._backward))
            stack.enter_context(replaced(profiler, "record_function", self._closing_annotation))
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
        """Whether another thread calls, such as a data loader's, whose phases are not the step's."""
        return threading.get_ident() != self._thread

    def _enter_module(self, module: torch.nn.Module, arguments: Any) -> None:
        if self._is_elsewhere:
            return
        self._depth += 1
        # modules that transform data have no trainable parameters
        trains = self._depth == 1 and any(parameter.requires_grad for parameter in module.parameters())
        if trains and self._clock.phase != tracking.FORWARD:
            self._to(tracking.FORWARD if torch.is_grad_enabled() else OTHER)  # without gradients it is an evaluation

    def _leave_module(self, module: torch.nn.Module, arguments: Any, result: Any) -> None:
        if not self._is_elsewhere:
            self._depth = max(0, self._depth - 1)

    def _steps(self, optimizer: torch.optim.Optimizer, arguments: Any, keywords: Any) -> None:
        if self._closing is None and not self._is_elsewhere:
            self._closing = optimizer
            self._before_first(optimizer)

    def _stepped(self, optimizer: torch.optim.Optimizer, arguments: Any, keywords: Any) -> None:
        if optimizer is self._closing and not self._is_elsewhere:
            # torch's annotation of this call, or a phase that the script has named, is still open
            self._has_stepped = True

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
        """End the step if its optimiser has stepped and no named phase is open."""
        if self._has_stepped and not self._inside:
            self._has_stepped = False
            self._after_each()

    def _closing_annotation(self, plain: type) -> type:
        """A class of annotations that close the step when torch's annotation of the optimiser ends."""
        close = self._close

        class ClosingAnnotation(plain):  # ty: ignore[unsupported-base]  # known only at run time
            def __exit__(self, *error: Any) -> None:
                super().__exit__(*error)
                if self.name.startswith("Optimizer.step#"):
                    close()

        return ClosingAnnotation

    def _backward(self, plain: Callable) -> Callable:
        @functools.wraps(plain)
        def backward(*arguments: Any, **keywords: Any) -> Any:
            if self._is_elsewhere:
                return plain(*arguments, **keywords)
            self._to(tracking.BACKWARD)
            try:
                return plain(*arguments, **keywords)
            finally:
                self._to(AFTER_BACKWARD)

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
        return profile_script(command, SampledSteps(settings, command.script), stop, on_event)
    recorder = StepRecorder(settings)
    folder, notes = profile_script(command, recorder, stop, on_event)
    device = "cpu" if recorder.device.type == "cpu" else str(recorder.device)
    try:
        limits = hardware.calibrate(device, repeats=3)
    except (RuntimeError, MemoryError) as error:
        if not hardware.is_out_of_memory(error):
            raise
        limits = hardware.calibrate(device, repeats=3, copy_bytes=2**25)  # a budget of little memory
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
            answer = tracking.run_command(
                command, stop, on_event, steps=steps.watched, observer=observer, on_step=steps.step
            )
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
        raise UserError(
            f"{command.script}: {result['reason']}, so its steps are not analysed; {folder} has the record."
        )
    return folder, [] if result["ended_by"] == "profiled" else [_ended_early(command, observer, result["reason"])]


def _ended_early(command: tracking.ScriptCommand, observer: StepWatcher, reason: str) -> str:
    """A note on a run that ended before the schedule did; a UserError if nothing was recorded."""
    needed, taken = observer.settings.skip + observer.settings.warmup + 1, observer.taken
    if taken >= needed:
        return f"{reason} after {taken} steps: {min(taken - needed + 1, observer.settings.steps)} were recorded"
    if taken:
        fewer = ", or give a smaller --skip and --warmup" if observer.tool == "torch" else ""
        why = f"after {taken} steps, and recording begins at step {needed}: let it train for longer{fewer}"
    else:
        why = "before any optimiser of torch had stepped: name a script that trains in the main thread of its process"
    raise UserError(f"{command.script}: {reason} {why}.")


def _only_profiler(observer: StepWatcher) -> contextlib.AbstractContextManager[None]:
    """Refuse a script's own torch.profiler, which would end labkit's."""

    def guarded(plain: Callable) -> Callable:
        def start(profiler: torch.profiler.profile) -> None:
            if profiler is not observer.profiler and not observer.is_done:
                raise UserError("the script starts its own profiler, and torch allows only one: remove it")
            plain(profiler)

        return start

    return replaced(torch.profiler.profile, "start", guarded)

"""Finds the steps and phases of an unchanged training script, by what it calls of torch.

A step ends with `run.step` where the script has a `labkit.Run`, else when the optimiser that stepped first has stepped
again. In it, a module with parameters to train, called from outside of all modules, begins a forward pass, and
`backward` the backward pass. What comes before the forward pass is "between steps", but for `run.batches` and a data
loader, whose annotations tell, as the optimiser's do. A script that names its phases itself (`run.phase`) is believed.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import profiler
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers

from labkit.profiling.step_time import AFTER_BACKWARD, BETWEEN, OTHER, PHASES
from labkit.tracking import BACKWARD, FORWARD, INPUT, SYNC, watched_by

if TYPE_CHECKING:
    from labkit.profiling.recording.recorder import StepWatcher

OF_RUN = (INPUT, SYNC)
"""Phases that `labkit.Run` names, whatever the script does"""


@contextlib.contextmanager
def replaced(owner: Any, name: str, by: Callable[[Any], Any]) -> Iterator[None]:
    """Replace an attribute during the block by what is made of it."""
    plain = getattr(owner, name)
    setattr(owner, name, by(plain))
    try:
        yield
    finally:
        setattr(owner, name, plain)


class ScriptSteps:
    """Turns what a script calls into steps and phases of whoever observes it."""

    def __init__(self, observer: StepWatcher):
        self._observer, self._clock = observer, observer.clock
        self._thread = threading.get_ident()
        self._depth = 0
        """Modules that call each other"""
        self._closing: torch.optim.Optimizer | None = None
        """The optimiser whose step ends a step"""
        self._names_phases = False
        self._inside = 0
        """Phases with a name that are open"""
        self._has_stepped = False
        """Whether a step ends with the annotation, or the phase named by the script, that is open"""

    def step(self) -> bool:
        """A step has ended; whether the observer has seen enough."""
        self._to(None)
        self._depth = 0
        if self._closing is not None:
            self._observer.computes_on(self._closing.param_groups[0]["params"][0].device)
        ended = self._observer.is_done or self._observer.step()  # a script may have caught what was to end it
        self._to(BETWEEN)
        return ended

    @contextlib.contextmanager
    def watched(self, before_first: Callable[[Any], None], after_each: Callable[[], None]) -> Iterator[None]:
        """Watch what the block calls in this thread; the optimiser's steps are told as by `optimiser_steps`."""
        self._before_first, self._after_each = before_first, after_each
        with contextlib.ExitStack() as stack:
            stack.enter_context(watched_by(self._named))
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
            stack.enter_context(replaced(profiler, "record_function", self._telling))
            yield

    def _to(self, phase: str | None) -> None:
        """Go from one phase to the next."""
        if self._names_phases or self._inside:
            return
        if self._clock.phase:
            self._clock.end()
        if phase is not None:
            self._clock.begin(phase)

    @property
    def _is_elsewhere(self) -> bool:
        """Whether another thread calls, a loader's say, whose phases are not those of the step."""
        return threading.get_ident() != self._thread

    def _enter_module(self, module: torch.nn.Module, arguments: Any) -> None:
        if self._is_elsewhere:
            return
        self._depth += 1
        # a transform of the data has no parameters to train
        trains = self._depth == 1 and any(parameter.requires_grad for parameter in module.parameters())
        if trains and self._clock.phase != FORWARD:
            self._to(FORWARD if torch.is_grad_enabled() else OTHER)  # the latter is an evaluation

    def _leave_module(self, module: torch.nn.Module, arguments: Any, result: Any) -> None:
        if not self._is_elsewhere:
            self._depth = max(0, self._depth - 1)

    def _steps(self, optimizer: torch.optim.Optimizer, arguments: Any, keywords: Any) -> None:
        if self._closing is None and not self._is_elsewhere:
            self._closing = optimizer
            self._before_first(optimizer)

    def _stepped(self, optimizer: torch.optim.Optimizer, arguments: Any, keywords: Any) -> None:
        if optimizer is self._closing and not self._is_elsewhere:
            # torch's own annotation of this call is still open, or a phase that the script has named
            self._has_stepped = True

    @contextlib.contextmanager
    def _named(self, name: str) -> Iterator[None]:
        """A phase with a name."""
        if name not in PHASES:  # a word of the script's own, which the trace has beside the phases
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
        """End the step if its optimiser has stepped and no phase with a name is open."""
        if self._has_stepped and not self._inside:
            self._has_stepped = False
            self._after_each()

    def _telling(self, plain: type) -> type:
        """A class of annotations that close the step when the optimiser's, which torch makes, has ended."""
        close = self._close

        class Telling(plain):
            def __exit__(self, *error: Any) -> None:
                super().__exit__(*error)
                if self.name.startswith("Optimizer.step#"):
                    close()

        return Telling

    def _backward(self, plain: Callable) -> Callable:
        @functools.wraps(plain)
        def backward(*arguments: Any, **keywords: Any) -> Any:
            if self._is_elsewhere:
                return plain(*arguments, **keywords)
            self._to(BACKWARD)
            try:
                return plain(*arguments, **keywords)
            finally:
                self._to(AFTER_BACKWARD)

        return backward

"""Finds the steps and phases of an unchanged training script, by what it calls of torch.

A step ends when the optimiser that stepped first has stepped again. In it, a module with parameters to train, called
from outside of all modules, begins a forward pass, and `backward` the backward pass. What comes before the forward
pass is "between steps", but for a data loader, which torch's own annotations tell, as they do the optimiser. A script
that names its phases itself (`labkit.training.phases.phase`) is believed.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.autograd import profiler
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers

from labkit.profiling.recording.phase_clock import PhaseClock
from labkit.profiling.step_time import AFTER_BACKWARD, BETWEEN, OTHER
from labkit.training.phases import BACKWARD, FORWARD, watched_by


class ScriptSteps:
    """Turns what a script calls into phases of a clock, and tells of each step."""

    def __init__(self, clock: PhaseClock, on_step: Callable[[torch.device], None]):
        """Watch by a clock; `on_step` is told the device of what the optimiser updates."""
        self._clock, self._on_step = clock, on_step
        self._thread = threading.get_ident()
        self._depth = 0
        """Modules that call each other"""
        self._trains: weakref.WeakKeyDictionary[torch.nn.Module, bool] = weakref.WeakKeyDictionary()
        self._closing: torch.optim.Optimizer | None = None
        """The optimiser whose step ends a step"""
        self._names_phases = False
        self._has_stepped = False
        """Whether a step ends with the annotation, or the phase named by the script, that is open"""

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Watch what the block calls in this thread."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(watched_by(self._named))
            self._to(BETWEEN)
            stack.callback(self._to, None)
            for hook in (
                modules.register_module_forward_pre_hook(self._enter_module),
                modules.register_module_forward_hook(self._leave_module, always_call=True),
                optimizers.register_optimizer_step_post_hook(self._stepped),
            ):
                stack.callback(hook.remove)
            for name in ("backward", "grad"):
                stack.enter_context(self._around(name))
            stack.enter_context(self._at_ends_of_annotations())
            yield

    def _to(self, phase: str | None) -> None:
        """Go from one phase to the next."""
        if self._names_phases:
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
        if self._depth == 1 and self._is_trained(module) and self._clock.phase != FORWARD:
            self._to(FORWARD if torch.is_grad_enabled() else OTHER)  # the latter is an evaluation

    def _is_trained(self, module: torch.nn.Module) -> bool:
        """Whether it has parameters to train, which a transform of the data has not."""
        if module not in self._trains:
            self._trains[module] = any(parameter.requires_grad for parameter in module.parameters())
        return self._trains[module]

    def _leave_module(self, module: torch.nn.Module, arguments: Any, result: Any) -> None:
        if not self._is_elsewhere:
            self._depth = max(0, self._depth - 1)

    def _stepped(self, optimizer: torch.optim.Optimizer, arguments: Any, keywords: Any) -> None:
        if self._is_elsewhere:
            return
        self._closing = self._closing or optimizer
        # torch's own annotation of this call is still open, or a phase that the script has named
        self._has_stepped = optimizer is self._closing

    def _end_step(self) -> None:
        self._to(None)
        self._depth, self._has_stepped = 0, False
        self._on_step(self._closing.param_groups[0]["params"][0].device)
        self._to(BETWEEN)

    @contextlib.contextmanager
    def _named(self, name: str) -> Iterator[None]:
        """A phase that the script names."""
        self._to(None)
        self._names_phases = True
        with self._clock.watch(name):
            yield
        if self._has_stepped and not self._clock.phase:
            self._end_step()

    def _annotated(self, name: str) -> None:
        """An annotation of torch's has ended."""
        if self._has_stepped and name.startswith("Optimizer.step#") and not (self._names_phases and self._clock.phase):
            self._end_step()

    @contextlib.contextmanager
    def _at_ends_of_annotations(self) -> Iterator[None]:
        plain, told = profiler.record_function, self._annotated

        class Telling(plain):
            def __exit__(self, *error: Any) -> None:
                super().__exit__(*error)
                told(self.name)

        profiler.record_function = Telling
        try:
            yield
        finally:
            profiler.record_function = plain

    @contextlib.contextmanager
    def _around(self, name: str) -> Iterator[None]:
        """Tell the backward pass; `Tensor.backward` calls `torch.autograd.backward`."""
        plain = getattr(torch.autograd, name)

        @functools.wraps(plain)
        def backward(*arguments: Any, **keywords: Any) -> Any:
            if self._is_elsewhere:
                return plain(*arguments, **keywords)
            self._to(BACKWARD)
            try:
                return plain(*arguments, **keywords)
            finally:
                self._to(AFTER_BACKWARD)

        setattr(torch.autograd, name, backward)
        try:
            yield
        finally:
            setattr(torch.autograd, name, plain)

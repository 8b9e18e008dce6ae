"""Finds the steps and phases of an unchanged training script, by what it calls of torch.

A step ends when the optimiser that stepped first has stepped again. In it, the first call of a module from outside of
all modules begins the forward pass, `backward` the backward pass, and its end the optimiser's phase; all before the
forward pass is input. A script that names its phases itself (`labkit.training.phases.phase`) is believed.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.autograd import profiler
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers

from labkit.profiling.phase_clock import PhaseClock
from labkit.training.phases import BACKWARD, FORWARD, INPUT, OPTIMISER, watched_by


class ScriptSteps:
    """Turns what a script calls into phases of a clock, and tells of each step."""

    def __init__(self, clock: PhaseClock, on_step: Callable[[], None]):
        self._clock, self._on_step = clock, on_step
        self._depth = 0
        """Modules that call each other"""
        self._closing: Any = None
        """The optimiser whose step ends a step"""
        self._names_phases = False
        self._has_stepped = False
        """Whether a step ends with the phase that the script has named"""

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Watch what the block calls."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(watched_by(self._named))
            self._to(INPUT)
            stack.callback(self._to, None)
            for hook in (
                modules.register_module_forward_pre_hook(self._enter_module),
                modules.register_module_forward_hook(self._leave_module, always_call=True),
                optimizers.register_optimizer_step_post_hook(self._stepped),
            ):
                stack.callback(hook.remove)
            stack.enter_context(self._around_backward())
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

    def _enter_module(self, module: torch.nn.Module, arguments: Any) -> None:
        self._depth += 1
        if self._depth == 1 and self._clock.phase == INPUT and torch.is_grad_enabled():
            self._to(FORWARD)

    def _leave_module(self, module: torch.nn.Module, arguments: Any, result: Any) -> None:
        self._depth = max(0, self._depth - 1)

    def _stepped(self, optimizer: torch.optim.Optimizer, arguments: Any, keywords: Any) -> None:
        self._closing = self._closing or optimizer
        # torch's own annotation of this call is still open, or a phase that the script has named
        self._has_stepped = optimizer is self._closing

    def _end_step(self) -> None:
        self._to(None)
        self._depth, self._has_stepped = 0, False
        self._on_step()
        self._to(INPUT)

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
        if self._has_stepped and not self._names_phases and name.startswith("Optimizer.step#"):
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
    def _around_backward(self) -> Iterator[None]:
        """Tell the backward pass; `Tensor.backward` calls `torch.autograd.backward`."""
        plain = torch.autograd.backward

        @functools.wraps(plain)
        def backward(*arguments: Any, **keywords: Any) -> Any:
            self._to(BACKWARD)
            try:
                return plain(*arguments, **keywords)
            finally:
                self._to(OPTIMISER)

        torch.autograd.backward = backward
        try:
            yield
        finally:
            torch.autograd.backward = plain

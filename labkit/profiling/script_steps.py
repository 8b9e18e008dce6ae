"""Finds the steps and phases of an unchanged training script, by what it calls of torch.

A step ends when the optimiser that stepped first has stepped again. In it, the first call of a module from outside of
all modules begins the forward pass, `backward` the backward pass, and its end the optimiser's phase; all before the
forward pass is input.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers

from labkit.profiling.phase_clock import PhaseClock
from labkit.training.phases import BACKWARD, FORWARD, INPUT, OPTIMISER


class ScriptSteps:
    """Turns what a script calls into phases of a clock, and tells of each step."""

    def __init__(self, clock: PhaseClock, on_step: Callable[[], None]):
        self._clock, self._on_step = clock, on_step
        self._depth = 0
        """Modules that call each other"""
        self._closing: Any = None
        """The optimiser whose step ends a step"""

    @contextlib.contextmanager
    def watch(self) -> Iterator[None]:
        """Watch what the block calls."""
        with contextlib.ExitStack() as stack:
            self._to(INPUT)
            stack.callback(self._to, None)
            for hook in (
                modules.register_module_forward_pre_hook(self._enter_module),
                modules.register_module_forward_hook(self._leave_module, always_call=True),
                optimizers.register_optimizer_step_post_hook(self._stepped),
            ):
                stack.callback(hook.remove)
            stack.enter_context(self._around_backward())
            yield

    def _to(self, phase: str | None) -> None:
        """Go from one phase to the next."""
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
        if optimizer is not self._closing:
            return
        self._to(None)
        self._depth = 0
        self._on_step()
        self._to(INPUT)

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

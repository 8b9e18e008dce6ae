"""Finds the steps of a script that has no `Run`: which optimiser's step ends a step of training, by a written rule.

Every step that an optimiser takes again ends a step of training. Optimisers that take turns, such as the two of a GAN
or one for each parameter, take one step together: that of the first one. An optimiser made after another has stepped
(for the next client, fold or epoch) does not take turns with it.

What is watched stays as it is: under `torch.compile` the hooks only note that there was a step, which compiles to an
assignment, and everything else happens outside of the outermost compiled function.
"""

from __future__ import annotations

import contextlib
import functools
import os
import weakref
from collections.abc import Callable, Generator
from typing import Any

import torch
from torch.optim import optimizer as optimizers
from torch.utils._pytree import tree_leaves

from labkit.tracking import children


@contextlib.contextmanager
def replaced(owner: Any, name: str, by: Callable[[Any], Any]) -> Generator[None]:
    """Replace an attribute during the block by `by(attribute)`."""
    plain = getattr(owner, name)
    setattr(owner, name, by(plain))
    try:
        yield
    finally:
        setattr(owner, name, plain)


class Turns:
    """Counts the steps of training, from the steps of all optimisers.

    >>> turns, critic, generator = Turns(), Region(), Region()
    >>> [turns.took(each) for each in (critic, generator, critic, critic, generator)]
    [1, 0, 1, 1, 0]
    """

    def __init__(self):
        self._steps = 0
        self._made: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        """Number of steps before each optimiser was made"""
        self._first: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        """Number of each optimiser's first step"""
        self._round: weakref.WeakSet[Any] = weakref.WeakSet()
        """Those that have stepped since the last step of training began"""
        self._leader: Any = None
        """Reference to the one whose step ended the last step of training, and to the last one that stepped"""
        self._last: Any = None

    def made(self, optimiser: Any) -> None:
        self._made[optimiser] = self._steps

    @property
    def optimiser(self) -> Any:
        """Any optimiser that is in use; None if none is."""
        return next(iter(self._made), None)

    def took(self, optimiser: Any, *, in_backward: bool = False) -> int:
        """Note the step of an optimiser, or of a compiled function. Returns the number of steps of training it ends."""
        self._steps += 1
        first = self._first.setdefault(optimiser, self._steps)
        leader = self._leader and self._leader()
        is_last = self._last is not None and self._last() is optimiser
        self._last = weakref.ref(optimiser)
        again = optimiser in self._round
        made_since = leader is not None and first == self._steps and self._made.get(optimiser, 0) >= self._first[leader]
        if leader is not None and not again and not made_since:
            self._round.add(optimiser)
            return 0
        # its first step looked like a turn, but the other one's training is over
        missed = again and is_last and optimiser is not leader and not in_backward
        self._round, self._leader = weakref.WeakSet([optimiser]), self._last
        return 1 + missed


class Region:
    """A function that `torch.compile` made: what its calls so far did."""

    steps = False
    """Whether an optimiser steps in it"""
    trains = False
    """Whether its result has a gradient"""


class OptimiserSteps:
    """Reports the steps of training in a block, through torch's hooks."""

    def __init__(self):
        self._turns = Turns()
        self._ending: tuple[Any, int] | None = None
        """The optimiser whose step ends a step of training, and the number of these"""
        self._has_begun = False
        self._region: Region | None = None
        """The outermost compiled function that runs"""
        self._stepped_in_region = False
        self._process = os.getpid()

    @contextlib.contextmanager
    def watched(self, before_first: Callable[[Any], None], after_each: Callable[[], None]) -> Generator[None]:
        """Report the steps of the block; `before_first` gets an optimiser."""
        self._before_first, self._after_each = before_first, after_each
        with contextlib.ExitStack() as stack:
            stack.callback(optimizers.register_optimizer_step_pre_hook(self._begins).remove)
            stack.callback(optimizers.register_optimizer_step_post_hook(self._ends).remove)
            stack.enter_context(replaced(torch.optim.Optimizer, "__init__", self._making))
            stack.enter_context(replaced(torch, "compile", self._compiling))
            yield

    def is_watched(self) -> bool:
        """Whether steps count that are taken now."""
        return True

    def ended(self, steps: int, *, in_optimiser: bool) -> None:
        """Steps of training have ended, of which all but the last were not noticed earlier; in an optimiser's call,
        or after that of a compiled function."""
        for _ in range(steps):
            self._after_each()

    @contextlib.contextmanager
    def around(self, region: Region) -> Generator[None]:
        """What to do around the call of an outermost compiled function."""
        yield

    def _begins(self, optimiser: Any, *_: Any) -> None:
        if torch.compiler.is_compiling():
            self._stepped_in_region = True
            return
        if os.getpid() != self._process:
            children.report_step()
        elif self.is_watched() and self._region is None:
            self._first_step(optimiser)
            steps = self._turns.took(optimiser, in_backward=is_in_backward())
            self._ending = (optimiser, steps) if steps else self._ending
        elif self._region is not None:
            self._stepped_in_region = True

    def _ends(self, optimiser: Any, *_: Any) -> None:
        if torch.compiler.is_compiling():
            return
        if self._ending is not None and self._ending[0] is optimiser and os.getpid() == self._process:
            (_, steps), self._ending = self._ending, None
            self.ended(steps, in_optimiser=True)

    def _first_step(self, optimiser: Any) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._before_first(optimiser)

    def _making(self, plain: Callable) -> Callable:
        @functools.wraps(plain)
        def __init__(optimiser: Any, *arguments: Any, **keywords: Any) -> None:
            plain(optimiser, *arguments, **keywords)
            self._turns.made(optimiser)

        return __init__

    def _compiling(self, plain: Callable) -> Callable:
        @functools.wraps(plain)
        def compile(model: Any = None, **keywords: Any) -> Any:
            if model is None:  # a decorator with arguments
                return functools.partial(compile, **keywords)
            compiled = plain(model, **keywords)
            return compiled if isinstance(compiled, torch.nn.Module) or compiled is model else self._outside(compiled)

        return compile

    def _outside(self, compiled: Callable) -> Callable:
        """A compiled function whose step, if there is one, is noted after its call: nothing in it may call labkit."""
        region = Region()

        @functools.wraps(compiled)
        def outside(*arguments: Any, **keywords: Any) -> Any:
            if torch.compiler.is_compiling() or self._region is not None or not self.is_watched():
                return compiled(*arguments, **keywords)
            self._region, self._stepped_in_region = region, False
            try:
                with self.around(region):
                    result = compiled(*arguments, **keywords)
            finally:
                self._region = None
            region.trains |= any(getattr(each, "requires_grad", False) for each in tree_leaves(result))
            if self._stepped_in_region:
                region.steps = True
                self._first_step(self._turns.optimiser)
                if steps := self._turns.took(region):
                    self.ended(steps, in_optimiser=False)
            return result

        return outside


def is_in_backward() -> bool:
    """Whether a backward pass runs in this thread."""
    return torch._C._current_graph_task_id() != -1

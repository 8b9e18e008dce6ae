"""Steps of a script that has no `Run`: those of the optimiser that steps first."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def optimiser_steps(before_first: Callable[[Any], None], after_each: Callable[[], None]) -> Iterator[None]:
    """Tell of the steps of the block, by torch's hooks.

    Args:
        before_first: given the optimiser that steps first, before it does.
        after_each: called after each of its steps; of other optimisers beside it none is told.
    """
    from torch.optim import optimizer as optimizers

    first: Any = None

    def steps(optimizer: Any, *_: Any) -> None:
        nonlocal first
        if first is None:
            first = optimizer
            before_first(optimizer)

    def stepped(optimizer: Any, *_: Any) -> None:
        if optimizer is first:
            after_each()

    hooks = (
        optimizers.register_optimizer_step_pre_hook(steps),
        optimizers.register_optimizer_step_post_hook(stepped),
    )
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()

"""Steps of a script that has no `Run`: those of the optimiser that steps first."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any


class OptimiserSteps:
    """Tells of the first step about to be taken, and of each that was, by torch's hooks."""

    def __init__(self, before_first: Callable[[Any], None], after_each: Callable[[], None]):
        """
        Args:
            before_first: given the optimiser that steps first, before it does.
            after_each: called after each of its steps; of other optimisers beside it none is told.
        """
        self._before_first, self._after_each = before_first, after_each
        self._first: Any = None

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Watch during the block."""
        from torch.optim import optimizer as optimizers

        hooks = (
            optimizers.register_optimizer_step_pre_hook(self._steps),
            optimizers.register_optimizer_step_post_hook(self._stepped),
        )
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def _steps(self, optimizer: Any, arguments: Any, keywords: Any) -> None:
        if self._first is None:
            self._first = optimizer
            self._before_first(optimizer)

    def _stepped(self, optimizer: Any, arguments: Any, keywords: Any) -> None:
        if optimizer is self._first:
            self._after_each()

"""Epochs and batches that an interrupted run goes on with exactly where it stopped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from labkit.errors import UserError
from labkit.tracking.phases import INPUT, phase
from labkit.tracking.random_state import random_state, restore_random_state

if TYPE_CHECKING:
    from labkit.tracking.run import Run


class Schedule:
    """What of `run.epochs` and `run.batches` has been used, and how a resumed run gets back there."""

    def __init__(self, run: Run):
        self._run = run
        self.num_epochs: int | None = None
        """What `epochs` was given"""
        self.is_used = False
        """Whether the script's loop is ours to end, and may be entered in its middle"""
        self.is_last_batch = False
        """Whether the batch under way ends its epoch, as far as the loader says how many there are"""
        self._yielded = 0
        self._epoch_over = False
        """Whether all batches of an epoch were used and the code after them may still be running"""
        self._loader: Any = None
        self._entered: dict[str, Any] = {}
        """Random state that this epoch began with"""
        self._at_first_batch: dict[str, Any] = {}
        """Random state from which its order follows"""
        self._resumed: dict[str, Any] | None = None

    def stepped(self) -> None:
        """A step was taken with the batches given out so far."""
        self._run.position.batch = self._yielded

    def epochs(self, count: int) -> Iterator[int]:
        position = self._run.position
        self.is_used, self.num_epochs = True, count
        while position.epoch < count and not self._run.over:
            if self._resumed is not None:  # for what the script draws before its batches
                restore_random_state(self._resumed["entered" if position.batch else "now"])
            self._entered = random_state()
            yield position.epoch
            if self._yielded and not self._epoch_over:
                if self._run.over:
                    return  # ended in the middle of an epoch
                self._epoch_over = True  # the script left its batches early
            self.close_epoch(without_batches=not self._yielded)
            self._run.at_safe_point()

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        run, position = self._run, self._run.position
        self.is_used, self._loader = True, loader
        self.close_epoch()  # of a loop over batches alone, for whose epochs nobody asked
        if run.over:
            return
        batches = self._begin_epoch(loader, position.batch)
        self._yielded = position.batch
        run.start_clock()
        count = _count(loader)
        while True:
            with phase(INPUT):
                batch = next(batches, self)
            if batch is self:
                break
            self._yielded += 1
            self.is_last_batch = self._yielded == count
            yield batch
            over = bool(run.over)
            run.at_safe_point(ends_here=over and not self.is_last_batch)
            if over:
                self._epoch_over = self.is_last_batch
                return
        if not self._yielded:
            raise UserError("run.batches got no batch: the loader is empty, or a generator that was used up before.")
        self._epoch_over = self.is_last_batch = True

    def _begin_epoch(self, loader: Any, start: int) -> Iterator[Any]:
        """The loader's batches from `start` on, random state as it was there."""
        resumed, self._resumed = self._resumed, None
        if resumed is not None:
            state = resumed["first batch" if start else "now"]
            if self._entered and not start:  # since then the script may have drawn
                state = random_state() | {"loader": state["loader"]}
            if getattr(loader, "persistent_workers", False) and self._run.position.epoch:
                iter(loader)  # starts the workers: the first epoch drew a seed for them, and later ones do not
            restore_random_state(state, loader)
        self._at_first_batch = random_state(loader)
        if hasattr(loader, "at"):
            batches = iter(loader.at(self._run.position.epoch, start))
        else:
            batches = iter(loader)
            for _ in range(start):
                next(batches, None)
        if resumed is not None and start:
            restore_random_state(resumed["now"], loader)
        return batches

    def close_epoch(self, *, without_batches: bool = False) -> None:
        """Count an epoch whose batches were all used, or that has none of `run.batches`."""
        position = self._run.position
        if self._epoch_over or without_batches:
            self._epoch_over, self._yielded = False, 0
            position.epoch, position.batch = position.epoch + 1, 0
            self._run.epoch_ended()

    def state(self) -> dict[str, Any]:
        """What goes into a checkpoint beside the position."""
        now = random_state(self._loader)
        return {"entered": self._entered or now, "first batch": self._at_first_batch or now, "now": now}

    def let_go(self) -> None:
        """Hold no loader beyond the run: collected as garbage, one with workers waits five seconds for each."""
        self._loader = None

    def resume(self, state: dict[str, Any]) -> None:
        self._resumed = state


def _count(loader: Any) -> int | None:
    """How many batches a loader has, where it knows."""
    try:
        return len(loader)
    except TypeError:
        return None

"""Epochs and batches that an interrupted run goes on with exactly where it stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

from labkit.tracking.position import Position
from labkit.tracking.random_state import random_state, restore_random_state


class Schedule:
    """What of `Run.epochs` and `Run.batches` has been used, and how a resumed run gets back there."""

    def __init__(self, position: Position, tell: Callable[..., None]):
        """`tell` writes an event."""
        self._position, self._tell = position, tell
        self.num_epochs: int | None = None
        """What `epochs` was given"""
        self.is_used = False
        """Whether the script's loop is ours to end, and may be entered in its middle"""
        self.is_last_batch = False
        """Whether the batch under way ends its epoch, as far as the loader says how many there are"""
        self.given_out = 0
        """Batches of this epoch"""
        self.epoch_is_over = False
        """Whether all batches of an epoch were used and the code after them may still be running"""
        self._loader: Any = None
        self._entered: dict[str, Any] = {}
        """Random state that this epoch began with"""
        self._at_first_batch: dict[str, Any] = {}
        """Random state from which its order follows"""
        self.resumed: dict[str, Any] | None = None
        """The `state` that a resumed run goes on from"""

    def enter_epoch(self) -> None:
        """An epoch's code begins, which may draw before its batches."""
        if self.resumed is not None:
            restore_random_state(self.resumed["entered" if self._position.batch else "now"])
        self._entered = random_state()

    def leave_epoch(self, *, without_batches: bool = False) -> None:
        """Count an epoch whose batches were all used, or that has none of `Run.batches`."""
        if self.epoch_is_over or without_batches:
            self.epoch_is_over, self.given_out, position = False, 0, self._position
            position.epoch, position.batch = position.epoch + 1, 0
            self._tell("epoch", epoch=position.epoch, **asdict(position.point))

    def begin_batches(self, loader: Any) -> Iterator[Any]:
        """The loader's batches from where the run is, random state as it was there."""
        self._loader, start = loader, self._position.batch
        self.given_out = start
        resumed, self.resumed = self.resumed, None
        if resumed is not None:
            state = resumed["first batch" if start else "now"]
            if self._entered and not start:  # since then the script may have drawn
                state = random_state() | {"loader": state["loader"]}
            if getattr(loader, "persistent_workers", False) and self._position.epoch:
                iter(loader)  # starts the workers: the first epoch drew a seed for them, and later ones do not
            restore_random_state(state, loader)
        self._at_first_batch = random_state(loader)
        if hasattr(loader, "at"):
            batches = iter(loader.at(self._position.epoch, start))
        else:
            batches = iter(loader)
            for _ in range(start):
                next(batches, None)
        if resumed is not None and start:
            restore_random_state(resumed["now"], loader)
        return batches

    def give_out(self) -> None:
        """One more batch is given to the script."""
        self.given_out += 1
        try:
            self.is_last_batch = self.given_out == len(self._loader)
        except TypeError:  # it does not know how many it has
            self.is_last_batch = False

    def state(self) -> dict[str, Any]:
        """What goes into a checkpoint beside the position."""
        now = random_state(self._loader)
        return {"entered": self._entered or now, "first batch": self._at_first_batch or now, "now": now}

    def let_go(self) -> None:
        """Hold no loader beyond the run: collected as garbage, one with workers waits five seconds for each."""
        self._loader = None

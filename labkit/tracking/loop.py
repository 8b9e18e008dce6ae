"""Epochs and batches that an interrupted run resumes exactly where it stopped, and the state of random generators."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import torch

from labkit.tracking.position import Position


class Loop:
    """The loader and the random state of `Run.epochs` and `Run.batches`, and how a resumed run gets back there."""

    def __init__(self, position: Position, record: Callable[..., None]):
        """`record` writes an event."""
        self._position, self._record = position, record
        self._loader: Any = None
        self._entered: dict[str, Any] = {}
        """Random state at the start of this epoch."""
        self._at_first_batch: dict[str, Any] = {}
        """Random state that determines the order of its batches."""
        self.resumed: dict[str, Any] | None = None
        """The `state` from which a resumed run continues."""

    def enter_epoch(self) -> None:
        """Begin an epoch, whose code may draw random numbers before its batches."""
        if self.resumed is not None:
            restore_random_state(self.resumed["entered" if self._position.batch else "now"])
        self._entered = random_state()

    def leave_epoch(self, *, without_batches: bool = False) -> None:
        """Count an epoch if all its batches were used, or if it has no `Run.batches`."""
        position = self._position
        if position.epoch_is_over or without_batches:
            position.epoch_is_over, position.given_out = False, 0
            position.epoch, position.batch = position.epoch + 1, 0
            self._record("epoch", epoch=position.epoch, **asdict(position.point))

    def begin_batches(self, loader: Any) -> Iterator[Any]:
        """The loader's batches from the current position on, with the random state that belongs there."""
        self._loader, start = loader, self._position.batch
        self._position.given_out = start
        resumed, self.resumed = self.resumed, None
        if resumed is not None:
            state = resumed["first batch" if start else "now"]
            if self._entered and not start:  # the script may have drawn since then
                state = random_state() | {"loader": state["loader"]}
            if getattr(loader, "persistent_workers", False) and self._position.epoch:
                iter(loader)  # starts the workers, whose seed only the first epoch draws
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
        """Count a batch that the script gets."""
        self._position.given_out += 1
        try:
            self._position.is_last_batch = self._position.given_out == len(self._loader)
        except TypeError:  # the loader does not know its length
            self._position.is_last_batch = False

    def state(self) -> dict[str, Any]:
        """The part of a checkpoint that belongs to the loop."""
        now = random_state(self._loader)
        return {"entered": self._entered or now, "first batch": self._at_first_batch or now, "now": now}

    def let_go(self) -> None:
        """Release the loader. If it were collected later, one with workers would wait five seconds for each."""
        self._loader = None


def seed_all(seed: int) -> None:
    """Seed the generators of Python, NumPy (where it is loaded) and torch, GPUs included."""
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)
    torch.manual_seed(seed)


def random_state(loader: Any = None) -> dict[str, Any]:
    """The state of Python's, NumPy's, torch's and a data loader's own generators."""
    version, numbers, gauss = random.getstate()
    state: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "python": [version, list(numbers), gauss],
        "loader": [generator.get_state() for generator in _generators(loader)],
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = torch.cuda.get_rng_state_all()
    if "numpy" in sys.modules:
        kind, keys, *rest = sys.modules["numpy"].random.get_state()
        state["numpy"] = [kind, torch.from_numpy(keys.astype("int64")), *rest]
    return state


def restore_random_state(state: dict[str, Any], loader: Any = None) -> None:
    """Set all generators to what `random_state` returned."""
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_available() and torch.cuda.device_count() == len(state["cuda"]):
        torch.cuda.set_rng_state_all(state["cuda"])
    if "numpy" in state:
        import numpy as np

        kind, keys, *rest = state["numpy"]
        np.random.set_state((kind, keys.numpy().astype("uint32"), *rest))
    for generator, its_state in zip(_generators(loader), state["loader"], strict=False):
        generator.set_state(its_state)


def _generators(loader: Any) -> list[torch.Generator]:
    """The generators of a DataLoader itself, which determine its order."""
    batch_sampler = getattr(loader, "batch_sampler", None)
    places = (loader, getattr(loader, "sampler", None), batch_sampler, getattr(batch_sampler, "sampler", None))
    found = [getattr(place, "generator", None) for place in places]
    return list({id(each): each for each in found if isinstance(each, torch.Generator)}.values())

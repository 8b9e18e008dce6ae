"""Epochs and batches that an interrupted run goes on with exactly where it stopped, and what they draw at random."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import torch

from labkit.tracking.meter import Position


class Loop:
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
    """Put all generators back to where `random_state` found them."""
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
    """The generators of a DataLoader's own: its order comes from them."""
    batch_sampler = getattr(loader, "batch_sampler", None)
    places = (loader, getattr(loader, "sampler", None), batch_sampler, getattr(batch_sampler, "sampler", None))
    found = [getattr(place, "generator", None) for place in places]
    return list({id(each): each for each in found if isinstance(each, torch.Generator)}.values())

"""The state of all generators that a training script draws from, as plain values a checkpoint can hold."""

from __future__ import annotations

import random
import sys
from typing import Any

import torch


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
    found: dict[int, torch.Generator] = {}
    for place in places:
        generator = getattr(place, "generator", None)
        if isinstance(generator, torch.Generator):
            found.setdefault(id(generator), generator)
    return list(found.values())

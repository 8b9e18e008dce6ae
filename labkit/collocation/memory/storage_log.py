"""Follows how much memory tensors hold while a program runs: which storages are made, in what phase, and when freed."""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from labkit.collocation.memory.hidden_room import complete


@dataclass(frozen=True)
class Storage:
    """Memory of one tensor and its views."""

    size_bytes: int
    """Rounded up to the allocator's granularity"""
    phase: str
    """In which it was made"""


class StorageLog(TorchDispatchMode):
    """Sees every operator's results; under FakeTensorMode, which computes shapes alone, no memory is taken."""

    def __init__(self, granularity: int = 1):
        """Sizes are rounded up to multiples of `granularity` bytes, 512 for torch's allocator on a GPU."""
        super().__init__()
        self.granularity = granularity
        self.phase = ""
        """Put down for the storages made from now on"""
        self.storages: list[Storage] = []
        self._events: list[int] = []  # i makes storage i, ~i frees it
        self._known = weakref.WeakKeyDictionary()
        self._marks: dict[str, int] = {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        result, hidden = complete(function, args, result)
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._see(leaf)
        self.numbers(room(*hidden))  # there while the operator runs, beside its result
        return result

    def _see(self, tensor: Tensor) -> int:
        storage = tensor.untyped_storage()
        number = self._known.get(storage)
        if number is None:
            number = self._known[storage] = len(self.storages)
            self.storages.append(Storage(-(-storage.nbytes() // self.granularity) * self.granularity, self.phase))
            self._events.append(number)
            weakref.finalize(storage, self._events.append, ~number).atexit = False
        return number

    def numbers(self, tensors) -> set[int]:
        """Places in `storages` of the memory of tensors."""
        return {self._see(tensor) for tensor in tensors}

    def mark(self, name: str) -> None:
        """Name this moment, for `held_at`."""
        self._marks[name] = len(self._events)

    def held_at(self, name: str) -> set[int]:
        """Places of the storages that are held at a marked moment."""
        return self._held(self._marks[name])

    def at_peak(self, since: str | None = None) -> tuple[set[int], str]:
        """Places of the storages held when most is, after a marked moment or ever, and the phase of that moment."""
        held = peak = moment = 0
        first = self._marks[since] if since else 0
        for index, event in enumerate(self._events):
            held += self.storages[event].size_bytes if event >= 0 else -self.storages[~event].size_bytes
            if held > peak and index >= first:
                peak, moment = held, index
        return self._held(moment + 1), self.storages[max(self._events[moment], ~self._events[moment])].phase

    def _held(self, events: int) -> set[int]:
        held: set[int] = set()
        for event in self._events[:events]:
            if event >= 0:
                held.add(event)
            else:
                held.discard(~event)
        return held

    def bytes_of(self, numbers: set[int]) -> int:
        """Bytes of storages together."""
        return sum(self.storages[number].size_bytes for number in numbers)


def room(*sizes: int) -> list[Tensor]:
    """Tensors of so many bytes each, which stand for memory that no operator is seen to make."""
    return [torch.empty(size, dtype=torch.uint8) for size in sizes]

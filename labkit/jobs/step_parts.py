"""Which part of a model takes the time of a step, from what torch's profiler saw of some steps.

The forward pass of each part stands between marks. A node of the backward pass belongs to the part in whose forward
pass its operator ran, as the sequence number that both share says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from torch import nn
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import record_function

STEP = "labkit: step"
"""Name of what stands around a step"""
_PART = "labkit: part "
_NODE = "autograd::engine::evaluate_function: "


def mark(part: str) -> record_function:
    """A context in which all that runs counts to a part."""
    return record_function(_PART + part)


def mark_parts(model: nn.Module, parts: Mapping[str, str]) -> None:
    """From here on let the profiler see where submodules run, given by their names the part that each counts to."""
    for name, part in parts.items():
        open_marks: list[record_function] = []

        def enter(*_: object, part: str = part, marks: list = open_marks) -> None:
            marks.append(mark(part))
            marks[-1].__enter__()

        def leave(*_: object, marks: list = open_marks) -> None:
            marks.pop().__exit__(None, None, None)

        module = model.get_submodule(name)
        module.register_forward_pre_hook(enter)
        module.register_forward_hook(leave)


def part_shares(events: Iterable[FunctionEvent], joins: str) -> dict[str, float]:
    """The share of the steps that each part takes; they add up to 1.

    Besides the parts marked there is "rest", which is Python and whatever lies between operators. Operators of the
    forward pass outside of all marks, and theirs of the backward pass, count to the part `joins`.
    """
    taken, whole_us = Counter(), 0.0
    for step in (event for event in events if event.name == STEP):
        whole_us += step.time_range.elapsed_us()
        part_of: dict[int, str] = {}
        last = joins
        for event in sorted(step.cpu_children, key=lambda each: each.time_range.start):
            if event.name.startswith(_NODE):
                part = last = next((part_of[each] for each in _sequence(event) if each in part_of), last)
            else:
                part = event.name.removeprefix(_PART) if event.name.startswith(_PART) else joins
                part_of |= dict.fromkeys(_sequence(event), part)
            taken[part] += event.time_range.elapsed_us()
    shares = {part: us / whole_us for part, us in taken.items()}
    return shares | {"rest": 1 - sum(shares.values())}


def _sequence(event: FunctionEvent) -> Iterator[int]:
    """The sequence numbers of an event and of all within it."""
    if event.sequence_nr >= 0:
        yield event.sequence_nr
    for child in event.cpu_children:
        yield from _sequence(child)

"""What a run says when its memory ends: in which stage, under which budget, and how to make it smaller."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from labkit import UserError, errors
from labkit.hardware import memory_watch
from labkit.hardware.cpu import size_text, size_value
from labkit.hardware.devices import Device

if TYPE_CHECKING:
    from labkit.hardware.budgets import Budget

SMALLER = "make it smaller: reduce its batch (--batch-size in labkit's jobs) or its model (--preset)"
"""What to do about a run that needs too much memory, if its script has no stages"""


@dataclass(frozen=True)
class Part:
    """What this process does at present, for the message if memory runs out."""

    words: str = ""
    """For example " in its stage 'load' at scale 4"; empty if the script does not say"""
    smaller: str = SMALLER
    """How its user makes it smaller"""


_part = Part()


def now_in(part: Part, budget: "Budget | None") -> None:
    """Note what this process does from now on, here and in the watch over its memory."""
    global _part
    _part = part
    if budget is not None and budget.memory_bytes is not None:
        memory_watch.say_instead(f"{too_much(budget)}, or {part.smaller}." if part.words else f"{too_much(budget)}.")


def memory_error(budget: "Budget", device: Device, error: BaseException) -> UserError:
    """Return the error of a run that needs more memory than its budget, its GPU or the machine has."""
    smaller = _part.smaller
    if type(error).__name__ == "OutOfMemoryError":  # torch's, for a GPU
        if budget.gpu_memory_bytes is not None:
            return UserError(
                f"The run needs more GPU memory than its budget {budget.name!r} allows "
                f"({size_text(budget.gpu_memory_bytes)}), so it was stopped: {smaller}, or give it a larger budget."
            )
        has = f" ({size_text(device.memory_bytes)})" if device.memory_bytes else ""
        return UserError(f"The run needs more memory than {device.name} has{has}, so it was stopped: {smaller}.")
    if budget.memory_bytes is not None:
        return UserError(f"{too_much(budget)}, or {smaller}.")
    said = f" ({error})" if str(error) else ""
    return UserError(f"This machine ran out of memory{_part.words}{said}: close other programs, or {smaller}.")


def too_much(budget: "Budget") -> str:
    """Reason why its memory budget stopped a run: a sentence without its full stop."""
    most = errors.certain(budget.memory_bytes)
    return (
        f"The run needs more memory{_part.words} than its budget {budget.name!r} allows ({size_text(most)}), so it "
        "was stopped and nothing else on this machine was touched. Give it more (for example --budget "
        f"{budget.cores_text}memory={size_value(2 * most)})"
    )

"""What other programs took while a run was under way, as its record has it."""

from __future__ import annotations

from typing import TypedDict

BUSY = 0.1
"""Share of the cores from which other programs disturb a run: below it they are lost in its own noise."""
MOST_OF_A_CORE = 0.5
"""Cores from which they do on many cores, whose threads wait for the slowest of them"""


class Others(TypedDict):
    cpu_share: float
    """0 to 1, of the CPU time of the run's cores: other programs and, where the machine is virtual, other machines"""
    largest: str | None
    """The program that took most, where it took a tenth of a core"""
    on_gpu: list[str]
    """Other processes that had the run's GPU open to compute, at its beginning or its end"""
    disturbed: bool
    """Whether others took a tenth of the cores or half a core, or had the GPU open"""


def in_words(others: Others | None) -> str:
    """What others took, as a part of a sentence; empty where they did not disturb the run.

    >>> in_words({"disturbed": True, "cpu_share": 0.34, "largest": "stress (process 42)", "on_gpu": []})
    'other programs took 34% of its cores, most of it stress (process 42)'
    """
    if others is None or not others["disturbed"]:
        return ""
    words = []
    if others["cpu_share"] >= BUSY or not others["on_gpu"]:
        most = f", most of it {others['largest']}" if others["largest"] else ""
        words.append(f"other programs took {others['cpu_share']:.0%} of its cores{most}")
    if others["on_gpu"]:
        words.append(f"{', '.join(others['on_gpu'])} had its GPU open, too")
    return " and ".join(words)


def worse(one: Others | None, other: Others | None) -> Others | None:
    """What disturbed a run more, of what two of its processes recorded."""
    return max((one, other), key=lambda told: (told is not None, told and (told["disturbed"], told["cpu_share"])))

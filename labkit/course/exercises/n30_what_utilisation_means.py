"""Exercises of 30_what_utilisation_means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.course.exercise import Exercise

if TYPE_CHECKING:
    import pandas as pd


def _gb_per_s(busy: pd.DataFrame, load: str) -> float:
    return float(busy.set_index("load").loc[load, "gb_per_s"])


def _copied_for_each_chased(busy: pd.DataFrame) -> float:
    return _gb_per_s(busy, "copy") / _gb_per_s(busy, "chase")


EXERCISES = {
    "30.chase": Exercise(
        _copied_for_each_chased,
        relative=0.05,
        unit="times",
        hint="Divide the gb_per_s of the copy by that of the chase, both from `busy`.",
        explanation="Both kept the core busy. The chase waits for each number before it asks for the next.",
        mistakes={
            lambda busy: 1 / _copied_for_each_chased(busy): "The other way round: the copy uses more bytes.",
            lambda busy: (
                _gb_per_s(busy, "copy") - _gb_per_s(busy, "chase")
            ): "That is a difference; how many *times* as many is a ratio.",
        },
    ),
    "30.overstated": Exercise(
        1.00 / 0.292,
        relative=0.02,
        unit="times",
        hint="Divide the utilisation by the SM activity of that row; both are shares of time.",
        explanation="Some multiprocessor always had a kernel, but on average only three of ten had one.",
        mistakes={
            0.292: "The other way round: utilisation is the larger of the two.",
            1.00 / 0.014: "That is occupancy; the question is for SM activity.",
        },
    ),
    "30.scheduler": Exercise(
        "sm_active",
        hint="Which of them stays low while most of the GPU has nothing to do, and is high when none of it is free?",
        explanation="It tells how much of the GPU has work. Utilisation is 100 % with one thread, and occupancy is low "
        "for many kernels that leave no room. A scheduler needs the memory that is free, too.",
        choices=("gpu_utilisation", "sm_active", "sm_occupancy"),
    ),
}

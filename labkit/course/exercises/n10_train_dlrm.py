"""Exercises of 10_train_dlrm."""

from typing import Any

from labkit.course.exercise import Exercise


def _sooner(small: dict[str, Any], large: dict[str, Any]) -> str:
    times = {"small": small["time_to_target_s"], "large": large["time_to_target_s"]}
    known = {name: time for name, time in times.items() if time is not None}
    return min(known, key=known.get) if known else "neither"


EXERCISES = {
    "10.pairs": Exercise(
        351,
        hint="How many vectors enter the interaction, and how many pairs can be drawn from them?",
        explanation="27 vectors, one from each table and one from the bottom MLP, form 27 · 26 / 2 pairs.",
        mistakes={
            325: "The bottom MLP gives a vector too, so 27 enter, not 26.",
            702: "A pair and its mirror image have the same dot product: count each once.",
            729: "A vector is not paired with itself, and each pair counts once.",
            378: "A vector is not paired with itself.",
        },
    ),
    "10.table_gb": Exercise(
        2.56,
        unit="GB, 1e9 bytes",
        hint="Rows × embedding_dim × bytes of a number.",
        explanation="10 million rows of 64 numbers of 4 bytes.",
        mistakes={
            0.64: "A single-precision number has 4 bytes.",
            2.56e9: "That is in bytes; a GB is 1e9 of them.",
            2560.0: "That is in MB.",
            2.56e9 / 2**30: "That is in GiB, which are 2^30 bytes; a GB is 1e9.",
            5.12: "Each number has 4 bytes in single precision, not 8.",
        },
    ),
    "10.sooner": Exercise(
        _sooner,
        hint="Compare the two times to the target, not the samples a second.",
        explanation="Time to target weighs throughput against the samples needed; throughput alone does not.",
        choices=("small", "large", "neither"),
        mistakes={
            lambda small, large: (
                "large" if large["samples_per_s"] > small["samples_per_s"] else "small"
            ): "It has more samples a second, and yet did not reach the target first.",
        },
    ),
}

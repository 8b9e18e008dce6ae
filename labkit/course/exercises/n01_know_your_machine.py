"""Exercises of 01_know_your_machine."""

from labkit.course.exercise import Exercise
from labkit.hardware.calibration import Calibration


def _operations_a_launch(card: Calibration) -> float:
    return card.launch_us * 1e-6 * card.fp32_gflops * 1e9


EXERCISES = {
    "01.intensity": Exercise(
        2 / 12,
        unit="operations a byte",
        hint="Count what one element costs: the operations, and the bytes that are read and written.",
        explanation="A multiplication and an addition for 12 bytes: two numbers of 4 bytes read, one written.",
        mistakes={
            2 / 8: "The result is written back, too: that is 4 bytes more for each element.",
            2 / 3: "A single-precision number has 4 bytes, not 1.",
            1 / 12: "There are two operations for each element, a multiplication and an addition.",
            6.0: "That is bytes an operation; the intensity is operations a byte.",
        },
    ),
    "01.limit": Exercise(
        lambda card: "memory" if card.ridge_flop_per_byte > 2 / 12 else "arithmetic",
        hint="Compare the intensity with the ridge of your machine's roof.",
        explanation="Its intensity lies on that side of the ridge, so that is what it waits for.",
        choices=("memory", "arithmetic"),
    ),
    "01.launch": Exercise(
        _operations_a_launch,
        relative=0.05,
        unit="operations",
        hint="Operations = seconds × operations a second; mind micro (1e-6) and giga (1e9).",
        explanation="That much arithmetic is lost each time a tiny operation is asked for: why small models are slow.",
        mistakes={
            lambda card: card.launch_us * card.fp32_gflops: "A microsecond is 1e-6 s, a GFLOP 1e9 operations.",
            lambda card: card.launch_us * 1e-6 * card.fp32_gflops: "A GFLOP is 1e9 operations.",
            lambda card: card.launch_us * card.fp32_gflops * 1e9: "A microsecond is 1e-6 seconds.",
        },
    ),
}

"""Exercises of 01_know_your_machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from labkit.hardware import Calibration
from labkit_course.apparatus import FakeClock
from labkit_course.exercise import Exercise
from labkit_course.explanation import Explanation
from labkit_course.written import Case, WrittenExercise

# --- the stopwatch


def best_seconds(work: Callable[[], Any], repeats: int, clock: Callable[[], float] = time.perf_counter) -> float:
    work()
    seconds = []
    for _ in range(repeats):
        began = clock()
        work()
        seconds.append(clock() - began)
    return min(seconds)


def _timed(*seconds: float, repeats: int) -> Any:
    def ask(code: Any) -> list[float]:
        clock, calls = FakeClock(), []
        work = clock.work(*seconds, does=lambda: calls.append(clock()))
        return [code(work, repeats, clock), len(calls)]

    return ask


def _once_around(work: Callable[[], Any], repeats: int, clock: Callable[[], float] = time.perf_counter) -> float:
    began = clock()
    for _ in range(repeats):
        work()
    return (clock() - began) / repeats


BEST = WrittenExercise(
    best_seconds,
    module="machine",
    cases=(
        Case("work whose first call takes longest; seconds and number of calls", _timed(0.9, 0.3, 0.2, repeats=2)),
        Case("a first call that is faster than all others", _timed(0.1, 0.4, 0.3, 0.5, repeats=3)),
        Case("another program in between", _timed(0.5, 0.2, 0.8, 0.21, repeats=3)),
    ),
    mistakes={
        ("work()\n    seconds", "seconds"): (
            "Call the work once before the stopwatch starts: the first call sets things up."
        ),
        ("min(seconds)", "sum(seconds) / repeats"): (
            "Other programs can only make it slower: take the least, not the mean."
        ),
        ("min(", "sum("): "The seconds of one call, not of all.",
        _once_around: (
            "One stopwatch around all calls gives their mean; time each, after one call that does not count."
        ),
    },
    hint="Call the work once; then `repeats` times: clock, work, clock. Return the smallest difference.",
    explanation="The first call pays for set-up, and other programs only slow down: the best call says what it can do.",
)

# --- bytes


def bytes_moved(source: Tensor) -> int:
    return 2 * source.numel() * source.element_size()


BYTES = WrittenExercise(
    bytes_moved,
    module="machine",
    cases=(
        Case("1,000 numbers of float32", lambda code: code(torch.zeros(1000))),
        Case("a matrix of bfloat16", lambda code: code(torch.zeros(30, 20, dtype=torch.bfloat16))),
        Case("an empty tensor", lambda code: code(torch.zeros(0))),
    ),
    mistakes={
        ("2 * ", ""): "A copy reads each number and writes it: twice the bytes.",
        ("source.element_size()", "4"): "Not every number has 4 bytes: `element_size` of the tensor says how many.",
        ("source.numel()", "len(source)"): "`len` counts rows; `numel` counts numbers.",
        (" * source.element_size()", ""): "That counts numbers, not bytes.",
    },
    hint="Numbers × bytes of one number, once for reading and once for writing.",
    explanation="(A cache may read the target's lines, too, before they are overwritten: nobody counts those here.)",
)

# --- the roof


def roofline(intensity: np.ndarray | float, card: Calibration) -> np.ndarray:
    return np.minimum(card.fp32_gflops, np.asarray(intensity) * card.bandwidth_gb_per_s)


CARD = Calibration("a machine", 2, 100.0, 80.0, 20.0, 2.0, "2026-11-23")
FAST = Calibration("another", 2, 900.0, 80.0, 30.0, 4.0, "2026-11-23")
ROOFLINE = WrittenExercise(
    roofline,
    module="machine",
    cases=(
        Case("2 operations a byte, left of the ridge", lambda code: code(2.0, CARD)),
        Case("50 operations a byte, right of the ridge", lambda code: code(50.0, CARD)),
        Case("an array on both sides", lambda code: code(np.array([0.25, 4.0, 5.0, 8.0, 100.0]), CARD)),
        Case("another machine", lambda code: code(np.array([1.0, 29.0, 31.0]), FAST)),
    ),
    mistakes={
        ("minimum", "maximum"): "Both limits hold at once, so the lower one counts: the minimum.",
        ("card.fp32_gflops", "np.inf"): "Right of the ridge the peak is the roof.",
        ("(intensity)", "(1 / intensity)"): (
            "Intensity is operations a byte: times bytes a second that is operations a second."
        ),
        ("np.minimum", "min"): "An array gives an array: np.minimum, not min.",
    },
    hint="np.minimum of the peak and intensity × bandwidth: GB/s × operations a byte are GFLOP/s.",
    explanation="The roof is the lower of the two limits (Williams, Waterman and Patterson, CACM 2009).",
)

# --- a layer on paper


def linear_cost(rows: int, inputs: int, outputs: int) -> tuple[int, int]:
    operations = 2 * rows * inputs * outputs
    numbers = rows * inputs + inputs * outputs + rows * outputs
    return operations, 4 * numbers


LINEAR = WrittenExercise(
    linear_cost,
    module="machine",
    cases=(
        Case("64 rows, 512 to 256", lambda code: code(64, 512, 256)),
        Case("a single row", lambda code: code(1, 1000, 10)),
        Case("2,048 rows, 13 to 512", lambda code: code(2048, 13, 512)),
    ),
    mistakes={
        ("2 * ", ""): "A multiplication and an addition: two operations for each product.",
        (" + inputs * outputs", ""): "The weights are read, too.",
        (" + rows * outputs", ""): "The result is written, too.",
        ("4 * ", ""): "That counts numbers: a single-precision number has 4 bytes.",
        ("4 * ", "8 * "): "A single-precision number has 4 bytes; each is counted once, read or written.",
    },
    hint="rows × inputs × outputs products; the input and the weights are read, the output is written.",
    explanation="The weights count once, however many rows share them: more rows, more operations a byte.",
)


def step_bound(operations: float, moved_bytes: float, calls: int, card: Calibration) -> float:
    arithmetic_s = operations / (card.fp32_gflops * 1e9)
    memory_s = moved_bytes / (card.bandwidth_gb_per_s * 1e9)
    return max(arithmetic_s, memory_s) + calls * card.launch_us * 1e-6


STEP_BOUND = WrittenExercise(
    step_bound,
    module="machine",
    cases=(
        Case("a large product: arithmetic", lambda code: code(2e9, 1e7, 1, CARD)),
        Case("a large copy: memory", lambda code: code(0, 2.6e8, 1, CARD)),
        Case("a hundred small operations: asking", lambda code: code(1e4, 4e4, 100, CARD)),
        Case("another machine", lambda code: code(2e9, 1e9, 12, FAST)),
    ),
    mistakes={
        ("max(arithmetic_s, memory_s)", "arithmetic_s + memory_s"): (
            "Arithmetic and copying go on at the same time: the longer of the two counts, not their sum."
        ),
        ("max(", "min("): "The longer of the two counts.",
        (" + calls * card.launch_us * 1e-6", ""): "The cost of asking is missing: `calls` times card.launch_us.",
        (" * 1e-6", ""): "card.launch_us is in microseconds, and seconds are wanted.",
        ("card.fp32_gflops * 1e9", "card.fp32_gflops"): "The card's speeds are in billions (1e9) a second.",
    },
    hint="Seconds of arithmetic, seconds of memory: the longer one; plus calls × launch_us, in seconds.",
    explanation="Three limits in one line: arithmetic or memory, and the asking, which on a CPU comes on top.",
)

# --- how good a prediction is


def geomean_error(predicted: Sequence[float], measured: Sequence[float]) -> float:
    errors = np.abs(np.asarray(predicted) / np.asarray(measured) - 1)
    return float(np.exp(np.log(errors).mean()))


PREDICTED, MEASURED = [1.1, 1.6, 3.0, 4.4], [1.0, 2.0, 4.0, 4.0]
GEOMEAN = WrittenExercise(
    geomean_error,
    module="machine",
    cases=(
        Case("four predictions", lambda code: code(PREDICTED, MEASURED)),
        Case("one that is twice too long", lambda code: code([2.0], [1.0])),
        Case("one far off among good ones", lambda code: code([1.01, 0.99, 5.0], [1.0, 1.0, 1.0])),
    ),
    mistakes={
        ("np.exp(np.log(errors).mean())", "errors.mean()"): (
            "That is the arithmetic mean; the geometric one is exp of the mean logarithm."
        ),
        ("np.asarray(predicted) / np.asarray(measured)", "np.asarray(measured) / np.asarray(predicted)"): (
            "Relative to what was measured, not to what was predicted."
        ),
        ("float(np.exp", "100 * float(np.exp"): "As a share, not in per cent.",
        ("np.abs(np.asarray(predicted) / np.asarray(measured) - 1)", "np.asarray(predicted) / np.asarray(measured)"): (
            "Errors to both sides must not cancel: take |predicted / measured − 1| first."
        ),
    },
    hint="errors = |predicted / measured − 1|; then exp of the mean of their logarithms.",
    explanation="It forgives single large errors, which the arithmetic mean does not: read both.",
)

WHY_OFF = Explanation(
    rubric=(
        "numbers: names the operation that the model misses most, with its predicted and its measured time",
        "why: says which limit it assumes there, and what is not in the model (caches, shapes that do not fill the "
        "arithmetic units, allocation)",
        "trade-off: says what a better model would need to measure, or why a bound is worth having though it is off",
    ),
    model="The model is off most where data fits into a cache: it takes every byte at the speed of memory, and the "
    "copy is several times as fast. Thin products miss to the other side, for they do not reach a square one's peak."
    " Measured curves by size and shape, as kernel models use, would mend it at the price of measuring each kernel; "
    "the bound costs three numbers, and still says what a computation waits for.",
)

EXERCISES = {
    "01.best": BEST,
    "01.bytes": BYTES,
    "01.intensity": Exercise(
        lambda reads, writes, operations: operations / (4 * (reads + writes)),
        draw=lambda random: {
            "reads": random.choice([2, 3, 4]),
            "writes": random.choice([1, 2]),
            "operations": random.choice([2, 3, 5, 7]),
        },
        unit="operations a byte",
        hint="Count what one element costs: the operations, and the bytes that are read and written.",
        explanation="Far left of any ridge: operations on single elements wait for memory.",
        mistakes={
            lambda reads, writes, operations: operations / (4 * reads): "What is written counts, too.",
            lambda reads, writes, operations: operations / (reads + writes): "A single-precision number has 4 bytes.",
            lambda reads, writes, operations: 4 * (reads + writes) / operations: (
                "That is bytes an operation; the intensity is operations a byte."
            ),
        },
    ),
    "01.roofline": ROOFLINE,
    "01.linear": LINEAR,
    "01.bound": STEP_BOUND,
    "01.geomean": GEOMEAN,
    "01.why_off": WHY_OFF,
}

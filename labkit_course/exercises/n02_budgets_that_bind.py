"""Exercises of 02_budgets_that_bind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import stdtrit

from labkit.hardware import Tier, get_tier
from labkit_course.exercise import Exercise
from labkit_course.explanation import Explanation
from labkit_course.written import Case, WrittenExercise

# --- does it bind?


def ratio_interval(whole: Sequence[float], part: Sequence[float]) -> tuple[float, float, float]:
    logs = np.log(np.asarray(part) / np.asarray(whole))
    half = stdtrit(len(logs) - 1, 0.975) * logs.std(ddof=1) / np.sqrt(len(logs))
    return tuple(float(np.exp(logs.mean() + side * half)) for side in (0, -1, 1))


def _of_means(whole: Sequence[float], part: Sequence[float]) -> tuple[float, float, float]:
    ratios = np.asarray(part) / np.asarray(whole)
    half = stdtrit(len(ratios) - 1, 0.975) * ratios.std(ddof=1) / np.sqrt(len(ratios))
    return ratios.mean(), ratios.mean() - half, ratios.mean() + half


WHOLE, PART = [80.0, 84.0, 60.0, 82.0], [41.0, 43.0, 33.0, 40.0]
RATIO = WrittenExercise(
    ratio_interval,
    module="machine",
    cases=(
        Case("four pairs", lambda code: code(WHOLE, PART)),
        Case("two pairs", lambda code: code([10.0, 12.0], [5.0, 9.0])),
        Case("pairs that all have the same ratio", lambda code: code([10.0, 20.0, 30.0], [4.0, 8.0, 12.0])),
    ),
    mistakes={
        ("np.asarray(part) / np.asarray(whole)", "np.asarray(whole) / np.asarray(part)"): (
            "The part over the whole: what the budget leaves."
        ),
        ("stdtrit(len(logs) - 1, 0.975)", "1.96"): (
            "Of so few pairs, 1.96 is too narrow: Student's t of n − 1 degrees of freedom."
        ),
        ("ddof=1", "ddof=0"): "The standard deviation of a sample divides by n − 1: ddof=1.",
        (" / np.sqrt(len(logs))", ""): "The mean is known better than a single pair: divide by the root of n.",
        _of_means: "Ratios are averaged by their logarithms: half and double then cancel. Take exp at the end.",
    },
    hint="logs = log(part / whole), pair by pair; mean ± t × standard deviation (ddof=1) / √n; exp of all three.",
    explanation="Pairs share what the machine does at the time, so their ratio varies less than either.",
)

# --- a share of a GPU


def mps_percent(tier: Tier, gpu: Tier) -> float:
    share = tier.fp32_tflops / gpu.fp32_tflops
    if share > 1:
        raise ValueError(f"{tier.label} does more than {gpu.label}: a budget only makes a GPU smaller")
    return 100 * max(share, 1 / gpu.sms)


def _percent(tier: str, gpu: str) -> Any:
    return lambda code: code(get_tier(tier), get_tier(gpu))


def _refuses(tier: str, gpu: str) -> Any:
    def ask(code: Any) -> list[Any]:
        fits = code(get_tier(gpu), get_tier(tier))
        try:
            return [fits, code(get_tier(tier), get_tier(gpu))]
        except ValueError:
            return [fits, "a ValueError"]

    return ask


PERCENT = WrittenExercise(
    mps_percent,
    module="machine",
    cases=(
        Case("a T4 on an H100", _percent("t4", "h100")),
        Case("a V100 on an H200", _percent("v100", "h200")),
        Case("a GPU on itself", _percent("l4", "l4")),
        Case("a Jetson Nano on an H200, less than one multiprocessor", _percent("jetson-nano", "h200")),
        Case("an L4 on an A100, which has less", _refuses("l4", "a100-40")),
    ),
    mistakes={
        ("100 * ", ""): "That is a share of 1; MPS wants per cent.",
        lambda tier, gpu: 100 * gpu.fp32_tflops / tier.fp32_tflops: (
            "The other way round: the budget makes the large GPU smaller."
        ),
        ("tier.fp32_tflops / gpu.fp32_tflops", "tier.bandwidth_gb_s / gpu.bandwidth_gb_s"): (
            "That is the ratio of the bandwidths, which MPS does not divide."
        ),
        ("tier.fp32_tflops / gpu.fp32_tflops", "tier.sms / gpu.sms"): (
            "Multiprocessors of two generations do not do the same: take the FP32 peaks."
        ),
        ("max(share, 1 / gpu.sms)", "share"): "Less than one multiprocessor cannot be had: 100 / sms is the least.",
        ("if share > 1:", "if share > 1:\n        return 100.0"): (
            "A budget that would make the GPU larger cannot be enforced: raise a ValueError, not 100 %."
        ),
    },
    hint="100 × the ratio of the fp32_tflops, at least one multiprocessor of gpu.sms; above 100 raise a ValueError.",
    explanation="The percentage follows the arithmetic alone.",
)


def emulated_over_real(intensity: float, tier: Tier, gpu: Tier) -> float:
    emulated = min(tier.fp32_tflops * 1e3, intensity * gpu.bandwidth_gb_s)
    real = min(tier.fp32_tflops * 1e3, intensity * tier.bandwidth_gb_s)
    return real / emulated


def _error(intensity: float, tier: str, gpu: str) -> Any:
    return lambda code: code(intensity, get_tier(tier), get_tier(gpu))


EMULATED = WrittenExercise(
    emulated_over_real,
    module="machine",
    cases=(
        Case("a lookup of rows, 0.25 operations a byte, T4 on H100", _error(0.25, "t4", "h100")),
        Case("a large product, 300 operations a byte, T4 on H100", _error(300.0, "t4", "h100")),
        Case("10 operations a byte, which only the real T4 waits for memory with", _error(10.0, "t4", "h100")),
        Case("a V100 on an H200", _error(1.0, "v100", "h200")),
    ),
    mistakes={
        ("real / emulated", "emulated / real"): (
            "Times are asked for: the emulated time is the shorter one where the budget leaves bandwidth that the tier "
            "has not."
        ),
        ("real / emulated", "tier.bandwidth_gb_s / gpu.bandwidth_gb_s"): (
            "That holds only where both wait for memory: take the roof of each."
        ),
        lambda intensity, tier, gpu: emulated_over_real(intensity, replace(tier, fp32_tflops=gpu.fp32_tflops), gpu): (
            "Under the budget the arithmetic is the tier's, and the bandwidth the whole GPU's."
        ),
        lambda intensity, tier, gpu: emulated_over_real(1e3 * intensity, tier, gpu): (
            "At 0.25 operations a byte memory is the limit on both: mind the units, a TFLOP/s is 1e3 GFLOP/s."
        ),
    },
    hint="Two roofs: min(tier's peak, intensity × bandwidth), once with the GPU's bandwidth and once with the tier's. "
    "Time is operations over speed.",
    explanation="Right of the tier's ridge the emulation can be believed; left of it, it is too fast.",
)

# --- memory


def largest_table(memory_bytes: float, base_bytes: float) -> int:
    return int((memory_bytes - base_bytes) // 16)


LARGEST = WrittenExercise(
    largest_table,
    module="machine",
    cases=(
        Case("1 GiB, of which 200 MB are taken", lambda code: code(2**30, 200e6), relative=1e-7),
        Case("room for less than one number", lambda code: code(1010.0, 1000.0)),
        Case("a GPU of 16 GB", lambda code: code(16e9, 0.5e9), relative=1e-7),
    ),
    mistakes={
        ("16", "4"): "Beside each weight stand its gradient and Adam's two moments.",
        ("16", "12"): "Weight, gradient, and two moments: four numbers, not three.",
        ("16", "8"): "Weight and gradient are half of it: Adam keeps two moments for each.",
        (" - base_bytes", ""): "Python and torch hold memory before the first weight: take it off.",
    },
    hint="Weight, gradient and Adam's two moments: four numbers of 4 bytes each, in what is left beside base_bytes.",
    explanation="16 bytes a parameter, before any activation.",
)

EXERCISES = {
    "02.ratio": RATIO,
    "02.why_more": Explanation(
        rubric=(
            "numbers: gives the share of the cores, and the shares of arithmetic and bandwidth that were left",
            "why: names what cores share (the path to memory, a clock, a cache) and what they do not",
            "trade-off: says for which job the share of cores would predict the time, and for which not",
        ),
        model="Of the arithmetic about the share of the cores is left, for each core has its own units, and of the "
        "bandwidth often more, because one core can already fill a good part of a path to memory that all share. A "
        "job of large products is predicted by its share of cores, one that copies or looks up rows is not, so "
        "measure what a budget leaves before you scale a time by it.",
    ),
    "02.mps": PERCENT,
    "02.emulated": EMULATED,
    "02.kept": Exercise(
        lambda millions, width: 16e-9 * 1e6 * millions * width,
        draw=lambda random: {"millions": random.choice([2, 3, 5, 8, 20]), "width": random.choice([16, 32, 64, 128])},
        unit="GB",
        hint="Numbers of the table × bytes that each needs while it is trained with Adam.",
        explanation="Four times what a model needs that is only asked: training is what memory ends.",
        mistakes={
            lambda millions, width: 4e-3 * millions * width: "Those are the weights alone; what else does Adam keep?",
            lambda millions, width: 12e-3 * millions * width: "Weight, gradient, two moments: four numbers.",
            lambda millions, width: 16.0 * millions * width: "That is in MB.",
        },
    ),
    "02.largest": LARGEST,
}

"""What students write in 62_what_if: the references, what both are asked, and the usual mistakes."""

from __future__ import annotations

from collections.abc import Sequence

from labkit_course.explanation import Explanation
from labkit_course.written import Case, WrittenExercise

# --- the data sheet's estimate


def datasheet_ms(flop: float, weight_bytes: float, gflop_per_s: float, gb_per_s: float) -> float:
    return 1e3 * max(flop / gflop_per_s, weight_bytes / gb_per_s) / 1e9


DATASHEET = WrittenExercise(
    datasheet_ms,
    module="prediction",
    cases=(
        Case("much arithmetic", lambda code: code(5e9, 1e6, 100.0, 20.0)),
        Case("many weights", lambda code: code(1e6, 3e9, 100.0, 20.0)),
        Case("both alike", lambda code: code(1e9, 2e8, 100.0, 20.0)),
    ),
    mistakes={
        ("max(flop / gflop_per_s, weight_bytes / gb_per_s)", "(flop / gflop_per_s + weight_bytes / gb_per_s)"): (
            "Arithmetic and memory work at the same time: the slower of the two decides."
        ),
        ("max(", "min("): "The slower of the two decides: max.",
        ("gflop_per_s, weight", "gb_per_s, weight"): "Operations go by GFLOP/s, bytes by GB/s.",
    },
    hint="x flop at y GFLOP/s take x / y / 1e9 seconds, and so do x bytes at y GB/s.",
    explanation="A data sheet's roofline of the whole model: without calls, caches, or rows that are read.",
)

# --- the hit rate of the paper's lookup


def hit_rate(lookups: int, rows: int, resident: int) -> float:
    unique = rows * (1 - (1 - 1 / rows) ** lookups)
    fits = min(resident, rows, lookups)
    if unique <= fits:
        return 1 - unique / lookups
    missed = fits + (lookups - fits) * (rows - fits) / rows
    return 1 - missed / lookups


HIT_RATE = WrittenExercise(
    hit_rate,
    module="prediction",
    cases=(
        Case("a table that fits", lambda code: code(10_000, 500, 4_000)),
        Case("a table ten times the cache", lambda code: code(20_000, 40_000, 4_000)),
        Case("hardly any lookups", lambda code: code(50, 1_000_000, 4_000)),
        Case("a cache of one row", lambda code: code(10_000, 100, 1)),
        Case("a table as large as the cache", lambda code: code(3_000, 4_000, 4_000)),
    ),
    mistakes={
        ("return 1 - unique / lookups", "return 1.0"): "The first lookup of each row misses, however large the cache.",
        ("missed = fits + (", "missed = ("): "Until the cache is full, the first `fits` lookups miss.",
        ("(1 - (1 - 1 / rows) ** lookups)", "1.0"): (
            "Not every row is named: of `rows` rows, `lookups` random ones name rows * (1 - (1 - 1 / rows) ** lookups)."
        ),
        ("(rows - fits) / rows", "fits / rows"): "A lookup misses where its row is *not* among those that are kept.",
    },
    hint="Count the misses: the first `fits` fill the cache; each of the others misses with the share of rows outside.",
    explanation="Lin et al.'s heuristic (arXiv 2201.07821): rows are uniform, and a full cache keeps what it has.",
)

# --- the slowest process decides


def placed_ms(tables_ms: Sequence[float], placement: Sequence[int], exchange_ms: float) -> float:
    loads = [0.0] * (max(placement) + 1)
    for owner, table_ms in zip(placement, tables_ms, strict=True):
        loads[owner] += table_ms
    return max(loads) + 2 * exchange_ms


PLACED = WrittenExercise(
    placed_ms,
    module="prediction",
    cases=(
        Case("two processes", lambda code: code([3.0, 1.0, 2.0], [0, 1, 1], 0.5)),
        Case("one has them all", lambda code: code([3.0, 1.0, 2.0], [1, 1, 1], 0.5)),
        Case("three processes", lambda code: code([1.0, 5.0, 2.0, 2.0], [2, 0, 1, 2], 0.25)),
    ),
    mistakes={
        ("max(loads)", "sum(loads)"): "The processes work side by side: the slowest decides.",
        ("max(loads)", "(sum(loads) / len(loads))"): "Nobody goes on before the slowest process is done: max, no mean.",
        ("2 * exchange_ms", "exchange_ms"): "Rows go out in the forward pass, gradients come back: two exchanges.",
    },
    hint="Sum each process' tables first.",
    explanation="As in Lin et al.'s model of several GPUs (arXiv 2404.12674): the slowest rank, and the collectives.",
)

EXERCISES = {
    "62.datasheet": DATASHEET,
    "62.hit_rate": HIT_RATE,
    "62.placed": PLACED,
    "62.why_datasheet": Explanation(
        rubric=(
            "numbers: a change whose gain the data sheet misses, beside what was measured",
            "why: it counts operations and weights, and no rows that are looked up, no calls, no caches",
            "when it is right: large products, whose operations decide",
        ),
        model="The fused lookup has the same operations and the same weights, so the data sheet gives it a gain of 1, "
        "and it was measured far above that: what it saves are calls and sparse tensors. With wide MLPs the data "
        "sheet comes close, for there the products are most of the step.",
    ),
    "62.why_zipf": Explanation(
        rubric=(
            "numbers: the formula's hit rate beside the simulated ones, uniform and Zipf",
            "why: the formula takes all rows as equally likely, and real ids are not",
            "consequence: whether a prediction of the lookup's time is too long or too short",
        ),
        model="For uniform ids the formula lies within some points of the simulated cache. Zipf's ids come again and "
        "again, so that the cache hits far more often than the formula says: it predicts too many bytes from memory, "
        "and too long a lookup.",
    ),
}

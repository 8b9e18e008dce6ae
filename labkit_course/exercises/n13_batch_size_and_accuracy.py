"""Exercises of 13_batch_size_and_accuracy: the two curves over the batch size, their quotient, and one's own grid."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from labkit_course.exercise import Exercise
from labkit_course.explanation import Explanation
from labkit_course.written import Case, WrittenExercise

# --- a line over the batch size


def fit_line(batch_size, value):
    batch_size, value = np.asarray(batch_size, float), np.asarray(value, float)
    known = np.isfinite(value)
    slope, at_zero = np.polyfit(batch_size[known], value[known], 1, w=1 / value[known])
    return at_zero, at_zero / slope if slope > 0 else math.inf


def _noisy(at_zero: float, doubled_at: float, sizes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Batch sizes from 2 on, and values up to a fifth off the line."""
    batch_size = 2.0 ** np.arange(1, sizes + 1)
    off = np.random.default_rng(seed).uniform(0.8, 1.2, sizes)
    return batch_size, at_zero * (1 + batch_size / doubled_at) * off


def _with_failures(code: Any) -> Any:
    batch_size, value = _noisy(3.0, 50, 8, 2)
    return code(batch_size, np.where(batch_size > 100, np.inf, value))


LINE = WrittenExercise(
    fit_line,
    module="batch",
    cases=(
        Case("three values on a line", lambda code: code([100, 200, 400], [6.0, 7.0, 9.0])),
        Case("twelve values near a line", lambda code: code(*_noisy(0.7, 300, 12, 1))),
        Case("the two largest batches never arriving", _with_failures),
        Case("values that fall with the batch", lambda code: code([32, 64, 128, 256], [15.0, 4.0, 3.0, 3.0])),
    ),
    mistakes={
        (", w=1 / value[known]", ""): (
            "So the largest values count most: weigh each by w = 1 / value, so that relative errors count."
        ),
        ("at_zero / slope if slope > 0 else math.inf", "slope"): (
            "That is the slope; asked is the batch size at which the value is twice that at zero, at_zero / slope."
        ),
        ("at_zero / slope if slope > 0 else math.inf", "at_zero / slope"): (
            "A value that does not grow with the batch is never doubled: math.inf."
        ),
        (
            "slope, at_zero = np",
            "at_zero, slope = np",
        ): "np.polyfit gives the highest power first: slope, then at_zero.",
    },
    hint="np.polyfit(batch_size, value, 1, w=1 / value) of the finite values gives the slope and the value at zero; "
    "it is doubled at at_zero / slope.",
    explanation="Two numbers say a curve: what no batch goes below, and the batch that takes twice as much.",
)

# --- the quotient


def time_at(batch_size, need, step):
    need_min, critical = need
    overhead, half = step
    return need_min * (1 + batch_size / critical) * overhead * (1 + batch_size / half) / batch_size


TIME = WrittenExercise(
    time_at,
    module="batch",
    cases=(
        Case("one batch", lambda code: code(256, (4000.0, 300.0), (2e-3, 400.0))),
        Case("eight of them", lambda code: code(2.0 ** np.arange(4, 12), (5000.0, 800.0), (1e-3, 90.0))),
        Case("a need that never grows", lambda code: code(np.array([64.0, 4096.0]), (3.0, math.inf), (0.5, 1000.0))),
    ),
    mistakes={
        (" / batch_size\n", "\n"): (
            "That is as if each sample took a step of its own: the need has need / batch_size steps."
        ),
        (
            "(1 + batch_size / half)",
            "1",
        ): "A step takes longer with a larger batch: overhead · (1 + batch_size / half).",
        ("(1 + batch_size / critical)", "1"): "The need grows: need_min · (1 + batch_size / critical).",
    },
    hint="Need at this batch, over the batch, is the number of steps; times the seconds of a step.",
    explanation="Steps times seconds a step: many short ones at one end, few long ones at the other.",
)

BEST = Exercise(
    truth=lambda critical, overhead_ms, sample_us: math.sqrt(critical * 1e3 * overhead_ms / sample_us),
    draw=lambda random: {
        "critical": random.randrange(2_000, 20_000, 100),
        "overhead_ms": random.randrange(11, 60) / 10,
        "sample_us": random.randrange(11, 60) / 10,
    },
    unit="samples",
    mistakes={
        (lambda critical, overhead_ms, sample_us: critical): (
            "That is where the need has doubled. Below it a larger batch may already lose more than it gains."
        ),
        (lambda critical, overhead_ms, sample_us: 1e3 * overhead_ms / sample_us): (
            "That is where the overhead is half of a step. There a larger batch may still gain more than it loses."
        ),
        (lambda critical, overhead_ms, sample_us: (critical + 1e3 * overhead_ms / sample_us) / 2): (
            "The geometric mean of the two, not the arithmetic one: take the derivative of 1/B + B/(critical · half)."
        ),
        (lambda critical, overhead_ms, sample_us: math.sqrt(critical * overhead_ms / sample_us)): (
            "Milliseconds over microseconds: half is 1,000 times that."
        ),
    },
    hint="But for constants the time is 1/B + B / (critical · half); half is the overhead over the time of a sample.",
    explanation="√(critical · half): where a larger batch loses in need what it gains in rate.",
)

# --- one's own grid


def needs(runs, curves, target):
    first = curves[curves["value"] >= target].groupby("run")["samples"].min()
    last = curves.groupby("run")[["samples", "train_s"]].max()
    need = runs["run"].map(first).fillna(math.inf)
    return runs.assign(need=need, rate=runs["run"].map(last["samples"] / last["train_s"]))


def _grid(*ends: float, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Runs whose metric rises to one of `ends` and falls again, told in an order of their own."""
    rng = np.random.default_rng(seed)
    runs = pd.DataFrame({"run": [f"run-{i}" for i in range(len(ends))], "batch_size": 64, "lr": 0.01})
    values = 0.5 + np.outer(np.array(ends) - 0.5, [0.3, 0.6, 1.0, 0.8, 0.9])
    train_s = rng.uniform(1, 2, (len(ends), 5)).cumsum(axis=1)
    curves = pd.DataFrame({"run": runs["run"].repeat(5), "samples": np.tile(np.arange(1, 6) * 1000.0, len(ends))})
    curves = curves.assign(train_s=train_s.ravel(), wall_s=3 * train_s.ravel(), value=values.ravel())
    return runs.sample(frac=1, random_state=seed), curves


def _needs(*ends: float, target: float, without: str = "") -> Any:
    def ask(code: Any) -> Any:
        runs, curves = _grid(*ends)
        found = code(runs, curves[curves["run"] != without], target)
        return {name: list(found.sort_values("run")[name]) for name in ("need", "rate")}

    return ask


NEEDS = WrittenExercise(
    needs,
    module="batch",
    cases=(
        Case("two runs that arrive", _needs(0.8, 0.7, target=0.66)),
        Case("one that never arrives", _needs(0.8, 0.6, 0.7, target=0.7)),
        Case("a run that was never evaluated", _needs(0.8, 0.75, target=0.7, without="run-1")),
    ),
    mistakes={
        (".min()", ".max()"): "The first evaluation at or past the target counts, not the last one.",
        (".fillna(math.inf)", ""): "NaN is no need, and a median would leave it out: a run that never arrives has inf.",
        (".fillna(math.inf)", '.fillna(curves["samples"].max())'): (
            "Where a run ended is not where it arrived: one that never arrives has inf."
        ),
        (">= target", "> target"): "A run that meets the target exactly has met it: >=.",
        ('[["samples", "train_s"]].max()', '[["samples", "train_s"]].min()'): (
            "The rate is of the whole run: samples over seconds at its last evaluation."
        ),
        (
            'last["samples"] / last["train_s"]',
            'curves.groupby("run")["samples"].max() / curves.groupby("run")["wall_s"].max()',
        ): ("wall_s includes the evaluations, which are no training: train_s."),
    },
    hint="Of the evaluations at or above the target the least samples of each run, inf where there is none; the rate "
    "is the run's last samples over its last train_s.",
    explanation="Each run has a need, the one that failed, too.",
)


def by_batch(runs):
    table = runs.groupby(["batch_size", "lr"], as_index=False).agg(
        runs=("need", "size"),
        reached=("need", lambda need: np.isfinite(need).sum()),
        need=("need", "median"),
        need_low=("need", "min"),
        need_high=("need", "max"),
        rate=("rate", "median"),
    )
    for end in ("", "_low", "_high"):
        table[f"time{end}_s"] = table[f"need{end}"] / table["rate"]
    return table.loc[table.groupby("batch_size")["time_s"].idxmin()]


def _reduced(rows: list[tuple[int, float, list[float], float]], seed: int) -> Any:
    """Of series (batch size, rate, needs of its seeds, samples a second), in an order of their own."""
    frame = pd.DataFrame(
        [(size, lr, need, speed * (1 + place / 50)) for size, lr, own, speed in rows for place, need in enumerate(own)],
        columns=["batch_size", "lr", "need", "rate"],
    ).sample(frac=1, random_state=seed)
    columns = [*frame, "runs", "reached", "need_low", "need_high", "time_s", "time_low_s", "time_high_s"]
    return lambda code: code(frame)[columns].to_numpy(float)


def _drawn(seed: int) -> list[tuple[int, float, list[float], float]]:
    rng = np.random.default_rng(seed)
    sizes = ((size, lr) for size in (32, 128, 512) for lr in (0.001, 0.004, 0.016))
    return [(*each, list(rng.integers(5, 50, 3) * 1000.0), float(rng.uniform(3e4, 9e4))) for each in sizes]


BY_BATCH = WrittenExercise(
    by_batch,
    module="batch",
    cases=(
        Case("two batch sizes of one rate", _reduced([(8, 0.1, [4e3, 9e3, 5e3], 1e3), (16, 0.1, [6e3] * 3, 3e3)], 1)),
        Case("three batch sizes of three rates", _reduced(_drawn(3), 2)),
        Case(
            "a rate at which two of three seeds never arrive",
            _reduced([(8, 0.1, [1e3, math.inf, math.inf], 1e3), (8, 0.2, [7e3, 8e3, math.inf], 1e3)], 3),
        ),
        Case(
            "a rate that needs less and is slower",
            _reduced([(64, 0.1, [4e3, 5e3, 6e3], 1e3), (64, 0.2, [6e3, 7e3, 8e3], 5e3)], 4),
        ),
    ),
    mistakes={
        ('need=("need", "median")', 'need=("need", lambda need: need[np.isfinite(need)].median())'): (
            "That is the median of the seeds that arrive: those that fail count, with inf."
        ),
        ('need=("need", "median")', 'need=("need", "mean")'): (
            "The mean of seeds of which one fails is inf, however many arrive: take the median."
        ),
        ('["time_s"].idxmin()', '["rate"].idxmax()'): (
            "That is the rate with the most samples a second, which may need more of them: the least time counts."
        ),
        ('["time_s"].idxmin()', '["time_low_s"].idxmin()'): (
            "That is the learning rate of the luckiest seed: choose by the median time."
        ),
        ('["time_s"].idxmin()', '["need"].idxmin()'): (
            "That is the learning rate with the least samples; the best one has the least time, samples over rate."
        ),
    },
    hint="Group by batch size and lr: number of runs, those with a finite need, median, least and greatest need, "
    "median rate; times are needs over the rate; of each batch size the row with the least time_s.",
    explanation="Failed seeds hold the median up, and each batch size is judged at its own best rate.",
)

# --- the learning rate kept, scaled and tuned, one epoch


def three_rates(runs, batch_size, base_batch, base_lr):
    means = runs[runs["batch_size"] == batch_size].groupby("lr")[["validation_auc", "test_auc"]].mean()
    rates = {
        "kept": base_lr,
        "scaled": base_lr * batch_size / base_batch,
        "tuned": means["validation_auc"].idxmax(),
    }
    return {name: means.loc[rate, "test_auc"] for name, rate in rates.items()}


def _runs(*, seeds: int = 2) -> pd.DataFrame:
    """Two batch sizes with the same rates; the best single run, and that by test AUC, are at others than the best."""
    import pandas as pd

    validation = {0.002: 0.71, 0.004: 0.73, 0.008: 0.76, 0.016: 0.75}
    test = {0.002: 0.70, 0.004: 0.74, 0.008: 0.75, 0.016: 0.77}
    spread = {0.002: 0.0, 0.004: 0.04, 0.008: 0.005, 0.016: 0.002}
    rows = [
        (
            batch,
            lr,
            seed,
            validation[lr] + sign * spread[lr] - batch / 1e5,
            test[lr] + sign * spread[lr] / 2 - batch / 1e4,
        )
        for batch in (100, 400)
        for lr in validation
        for seed, sign in zip(range(seeds), (1, -1), strict=False)
    ]
    return pd.DataFrame(rows, columns=["batch_size", "lr", "seed", "validation_auc", "test_auc"])


def _by(means: Any) -> Any:
    """A wrong choice of the tuned rate's value: `means` takes the runs of the batch size."""
    return lambda runs, batch_size, *base: (
        three_rates(runs, batch_size, *base) | {"tuned": means(runs[runs["batch_size"] == batch_size])}
    )


RATES = WrittenExercise(
    three_rates,
    module="batch",
    cases=(
        Case("a batch 4 times as large, two seeds", lambda code: code(_runs(), 400, 100, 0.002)),
        Case("the base itself", lambda code: code(_runs(), 100, 100, 0.002)),
        Case("another rate to begin with, one seed", lambda code: code(_runs(seeds=1), 400, 100, 0.004)),
    ),
    mistakes={
        ('runs[runs["batch_size"] == batch_size]', "runs"): (
            "The other batch sizes have the same rates: take the rows of yours first."
        ),
        ('means["validation_auc"].idxmax()', 'means["test_auc"].idxmax()'): (
            "The rate is chosen by the test split here, which then tells nothing new: choose by validation_auc."
        ),
        _by(lambda runs: runs.loc[runs["validation_auc"].idxmax(), "test_auc"]): (
            "That is the luckiest single run: take the mean over the seeds of each rate first."
        ),
        _by(lambda runs: runs.groupby("lr")["validation_auc"].mean().max()): (
            "That is the validation AUC by which the rate was chosen, so it is too good: report the test AUC."
        ),
        ("batch_size / base_batch", "(batch_size / base_batch) ** 0.5"): (
            "That rate grows with the root of the batch; asked is the linear rule, with the batch itself."
        ),
    },
    hint="Mean of both columns for each lr of that batch size; the kept rate is base_lr, the scaled one base_lr × "
    "batch_size / base_batch, the tuned one has the largest mean validation_auc; give the mean test_auc of each.",
    explanation="Chosen on one split, reported on another: the test split was used for no choice.",
)

WHY_BATCH = Explanation(
    rubric=(
        "numbers: AUC or time of two batch sizes, with the rate kept and tuned",
        "why: an epoch has fewer steps, and a step at the same rate moves the weights no further",
        "trade-off: samples a second against what they teach, or the price of the runs that tune the rate",
    ),
    model="With a batch four times as large an epoch has a quarter of the steps, and at the same rate each moves "
    "the weights hardly further, so after one epoch the model has learnt less, well beyond what seeds differ by. A "
    "larger rate wins most of it back until steps become unstable; the larger batch has more samples a second, and "
    "whether the time saved pays for the AUC lost and for the runs that tuned the rate depends on the target.",
)

WHY_QUOTIENT = Explanation(
    rubric=(
        "numbers: of one device, the batch with the least epochs, that with the most epochs an hour, that with the "
        "least time",
        "why: what the time is a quotient of, and which of the two wins on each side",
        "trade-off: what the choice depends on beside the batch: the target, the device, how the learning rate was set",
    ),
    model="On the V100 the fewest epochs, 6, are at batch 12 and the most epochs an hour, 0.67, at 56; the least time, "
    "10.5 h, is at 48, where neither is best. Below it the rate still grows faster than the epochs, for each step's "
    "overhead is shared by more samples; above it the rate is flat and the epochs are not. The largest batch that fits "
    "takes 17.2 h, and a harder target may be met by smaller batches alone, so the choice goes with target and device.",
)

EXERCISES = {
    "13.line": LINE,
    "13.time": TIME,
    "13.best": BEST,
    "13.why_quotient": WHY_QUOTIENT,
    "13.rates": RATES,
    "13.needs": NEEDS,
    "13.by_batch": BY_BATCH,
    "13.why_batch": WHY_BATCH,
}

"""What a target took, as tables: one row per job and budget, one per device and batch size, and how much sooner."""

from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from labkit import UserError
from labkit.tta.costs import price_usd_per_h, usd_per_s
from labkit.tta.estimators import survival, survival_of
from labkit.tta.outcomes import SERIES, Attempts, attempts, default_target

OF_TIMES = {
    "median": "time_median_s", "low": "time_low_s", "high": "time_high_s", "level": "time_level",
    "expected": "expected_s", "expected_low": "expected_low_s", "expected_high": "expected_high_s",
}  # fmt: skip
"""Columns of `survival`, as they are named here"""
SPEED_UP = ["speed_up", "speed_up_low", "speed_up_high", "speed_up_seeds"]
SUMMARY_COLUMNS = [
    *SERIES, "metric", "target", "target_given", "runs", "reached", "failed", "censored", "success_low", "success_high",
    "disturbed", *OF_TIMES.values(), *SPEED_UP, "differs_in", "samples_median", "samples_per_s",
    "peak_memory_bytes", "peak_gpu_memory_bytes", "energy_j", "energy_note", "cost_usd", "cost_low_usd",
    "cost_high_usd", "cost_note",
]  # fmt: skip
NEED = ["need", "need_low", "need_high"]
BATCH_COLUMNS = [
    *SERIES, "device", "batch_size", "unit", "target", "runs", "reached", "failed", "censored", *NEED, "rate",
    "time_s", "time_low_s", "time_high_s",
]  # fmt: skip
MIN_SEEDS = 3
"""With two differences the t-interval reaches 12.7 standard errors to each side, which says nothing."""


def summary(curves: pd.DataFrame, runs: pd.DataFrame, target: float | None = None) -> pd.DataFrame:
    """Time, samples, memory, energy and money that the target took, one row per series.

    Args:
        curves: one row per evaluation; each job's rows hold one metric.
        runs: one row per run (`run_table`). A run without an evaluation counts too, as failed or as censored at 0 s.
        target: for every job; each job's own (`default_target`) if None.

    Returns:
        SUMMARY_COLUMNS. target_given says whether any run was trained to this target; disturbed counts the runs that
        other programs disturbed. Shares, times and samples_median are those of `survival`. speed_up and its interval
        say how many times as fast the job's fastest row was (`speed_up`; NaN where nothing can be said, as of disturbed
        runs); differs_in names the settings in which this row differs from that one. samples_per_s and energy_j
        (whole run) are medians over the runs, the peaks of memory maxima; cost_usd is the expected time with restarts
        at the tier's price, or cost_note says why there is none.
    """
    tables = []
    for (job, metric), own_runs in runs.groupby(["job", "metric"], sort=False, dropna=False):
        own = curves[(curves["job"] == job) & curves["run"].isin(own_runs["run"])]
        goal = target
        if goal is None:
            goal = default_target(own, own_runs) if len(own) else float(own_runs["target"].max())
        tables.append(summary_of(attempts(own, own_runs, [goal])).assign(metric=metric))
    return pd.concat(tables, ignore_index=True)[SUMMARY_COLUMNS] if tables else pd.DataFrame(columns=SUMMARY_COLUMNS)


def summary_of(found: Attempts) -> pd.DataFrame:
    """`summary` of one job's attempts at one target."""
    runs, (target,), hits = found.runs, found.targets, found.crossings()
    series, of_series = _parts(runs), _parts(hits)
    times = {axis: survival_of(found, axis) for axis in ("wall_s", "samples")}
    if times["wall_s"].empty:
        raise UserError(
            f"the runs of {runs['job'].iloc[0]} have no times, only the training to a target: use "
            "labkit.tta.by_batch_size."
        )
    table = target_columns(times, runs, "wall_s")
    fastest = int(np.argmin(table["time_median_s"].to_numpy()))
    rows = []
    for number, (own, mine) in enumerate(zip(series, of_series, strict=True)):
        is_sound = number != fastest and not (pd.concat([own, series[fastest]])["disturbed"] != "").any()
        sooner = speed_up(of_series[fastest], mine, len(series)) if is_sound else None
        settings, others = own["settings"].iloc[0], series[fastest]["settings"].iloc[0]
        price, notes = price_usd_per_h(own["tier"].iloc[0]), own["energy_note"].dropna()
        unreached = "there is no target" if np.isnan(target) else "the target was not reached"
        has_cost = not np.isnan(target) and (price.value_usd is None or table["reached"].iloc[number])
        rows.append(
            {
                "disturbed": int((own["disturbed"] != "").sum()),
                **dict(zip(SPEED_UP, sooner or (np.nan, np.nan, np.nan, 0), strict=True)),
                "differs_in": tuple(
                    name for name in {**others, **settings} if str(settings.get(name)) != str(others.get(name))
                ),
                **own[["samples_per_s", "energy_j"]].astype(float).median(),
                **own[["peak_memory_bytes", "peak_gpu_memory_bytes"]].max(),
                "energy_note": None if notes.empty else notes.iloc[0],
                "cost_note": price.note if has_cost else unreached,
            }
        )
    given = bool((runs["target"] == target).any())
    return table.join(pd.DataFrame(rows)).assign(target_given=given, metric=runs["metric"].iloc[0])[SUMMARY_COLUMNS]


def target_columns(times: dict[str, pd.DataFrame], runs: pd.DataFrame, x: str) -> pd.DataFrame:
    """The columns of `summary` that follow the target, of one job: one row per series and target.

    `times` is `survival` by axis ("wall_s", "samples" and the clock x) of the same targets, `runs` the job's runs.
    """
    samples = times["samples"]["median"] if "samples" in times else np.nan
    table = times[x].rename(columns=OF_TIMES).assign(samples_median=samples)
    tiers = table[SERIES].merge(runs.drop_duplicates(SERIES), on=SERIES, how="left")["tier"]
    price = usd_per_s(tiers).where(table["reached"] > 0)
    return table.assign(
        **{f"cost{end}_usd": price * times["wall_s"][f"expected{end}"] for end in ("", "_low", "_high")}
    )


def _parts(frame: pd.DataFrame) -> list[pd.DataFrame]:
    """The rows of each series, in the order of `survival`."""
    return [own for _, own in frame.groupby(SERIES, sort=False, dropna=False)]


class SpeedUp(NamedTuple):
    """How many times as long the other series takes."""

    ratio: float
    low: float
    """Lower end of the 95 % interval"""
    high: float
    """Upper end of the 95 % interval"""
    seeds: int
    """Distinct seeds that it rests on, of the series with fewer"""


def speed_up(crossings: pd.DataFrame, than: pd.DataFrame, among: int = 2) -> SpeedUp | None:
    """How many times as fast the runs of a series reached a target as those of another.

    The ratio is that of geometric means, its interval Student's t on logarithms: of pairs where at least three seeds
    are in both series, else of the two means (Welch). A seed that was run more than once counts once, by its mean; runs
    without a seed are seeds of their own, and never a pair. Where the two were picked among several, as the fastest and
    another, the interval is wider by the number of pairs there were to pick from (Bonferroni).

    Args:
        crossings: one row per run of the series (`labkit.tta.crossings`); `than` has those of the other one.
        among: number of series that the two were picked from.

    Returns:
        None below three distinct seeds, or where a run did not reach the target: the times of the others are then no
        fair draw (the expected time with restarts compares such series).
    """
    if not (crossings["reached"].all() and than["reached"].all()):
        return None
    fast, slow = _by_seed(crossings), _by_seed(than)
    if min(len(fast), len(slow)) < MIN_SEEDS:
        return None
    common = fast.index.intersection(slow.index)
    if len(common) >= MIN_SEEDS:
        logs, seeds = (slow - fast)[common], len(common)
        mean, error, freedom = logs.mean(), logs.std() / np.sqrt(seeds), seeds - 1
    else:
        seeds, mean = min(len(fast), len(slow)), slow.mean() - fast.mean()
        parts = np.array([each.var() / len(each) for each in (fast, slow)])
        error = np.sqrt(parts.sum())
        weights = parts**2 / (np.array([len(fast), len(slow)]) - 1)
        freedom = parts.sum() ** 2 / weights.sum() if error else 1.0
    half = stdtrit(freedom, 1 - 0.025 / (among * (among - 1) / 2)) * error
    return SpeedUp(*np.exp([mean, mean - half, mean + half]).tolist(), seeds)


def _by_seed(crossings: pd.DataFrame) -> pd.Series:
    """Mean logarithm of the time of each seed."""
    seeds = [object() if pd.isna(seed) or isinstance(seed, str) else seed for seed in crossings["seed"]]  # "none"
    return np.log(crossings["time_to_target_s"].astype(float)).groupby(np.array(seeds, object), sort=False).mean()


def by_batch_size(curves: pd.DataFrame, runs: pd.DataFrame, target: float, *, unit: str = "samples") -> pd.DataFrame:
    """How much training the target takes at each batch size, how fast training goes, and the time: their quotient.

    Args:
        curves: one row per evaluation of one metric (`labkit.tta.curves`, or a recording's).
        runs: one row per run, whose `settings` name its batch size.
        target: value of the metric.
        unit: "samples" or "epochs": a column of `curves`, and the unit of the rate.

    Returns:
        BATCH_COLUMNS, one row per device and batch size. Where several series share both (they differ in learning rate
        or power limit), it is the one with the least median, since the others do not say what this batch size costs.
        need is the median of the unit until the target, with the ends of its interval or range (`survival`; inf where
        half of the runs or more do not reach it); rate is the median over runs of the unit per second of training, NaN
        where no time is known; time_s is need over rate, without evaluation.

    Raises:
        UserError: the runs do not record this unit.
    """
    if unit not in ("samples", "epochs") or unit not in curves or curves[unit].isna().all():
        known = [each for each in ("samples", "epochs") if each in curves and curves[each].notna().any()]
        raise UserError(f"these runs record no {unit}: give unit={' or '.join(map(repr, known))}.")
    runs = runs.assign(batch_size=[own.get("batch_size", np.nan) for own in runs["settings"]])
    places = pd.DataFrame(list(runs["settings"]), runs.index).reindex(columns=["budget", "host", "device"])
    varying = [name for name in places if name == "budget" or places[name].nunique() > 1]
    runs["device"] = places[varying].astype(str).agg(" · ".join, axis=1)
    ends = curves.sort_values("train_s", kind="stable").groupby("run")[["train_s", unit]].last()
    runs["rate"] = runs["run"].map(ends[unit] / ends["train_s"])
    found = survival(curves, runs, target, x=unit)
    found = found.rename(columns=dict(zip(("median", "low", "high"), NEED, strict=True)))
    of_series = runs.groupby(SERIES, sort=False, dropna=False)
    settings = of_series.agg(device=("device", "first"), batch_size=("batch_size", "first"), rate=("rate", "median"))
    table = found.merge(settings.reset_index(), on=SERIES).assign(unit=unit)
    for need, time in zip(NEED, BATCH_COLUMNS[-3:], strict=True):
        table[time] = table[need] / table["rate"]
    order = table["time_s"].fillna(table["need"])
    same = ["job", "device", "provenance", "batch_size"]
    table = table.loc[order.groupby([table[name] for name in same], dropna=False).idxmin()]
    return table.sort_values(["job", "device", "batch_size"], ignore_index=True)[BATCH_COLUMNS]

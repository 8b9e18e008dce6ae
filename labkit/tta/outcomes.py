"""From run folders to frames, one row per run or evaluation; and the outcome of each run for a target.

A run reached the target at an evaluation, failed, or was cut off.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd

from labkit import UserError, telemetry, tracking
from labkit.runs import (
    CURVE_COLUMNS,
    OF_A_RUN,
    RUN_COLUMNS,
    SERIES,
    RunRecord,
    add_setting,
    list_row,
    read_events,
    read_metrics,
    readable_runs,
    unreached,
)
from labkit.tta.costs import with_cost

ENDINGS = {
    "seed", "target", "target_metric", "higher_is_better", "max_seconds", "max_epochs", "patience_evaluations",
    "confirm_evaluations", "step_note", "keeps",
}  # fmt: skip
"""Training settings in which runs of one series may differ: they decide when to stop, not how to train"""
NO_SETTINGS = {"data", "budget", "profile", "collocation", "sweep", "settings", "imported"}
"""Sections of a configuration that are no settings of a series"""
CLOCKS = ("wall_s", "train_s")
"""Seconds since training started: all of them, as MLPerf counts, or without evaluation and checkpoints"""
ALWAYS_KNOWN = ("wall_s", "train_s", "samples")
"""Axes that every measured run has; others may be missing, for want of a price or of energy"""
CROSSING_COLUMNS = [
    *SERIES, "run", "seed", "outcome", "reached", "sustained", "evaluation", "time_to_target_s", "samples_to_target",
    "sustained_time_s", "value", "last_time_s", "spent_s",
]  # fmt: skip


def run_table(folders: Iterable[Path | str]) -> pd.DataFrame:
    """One row per run, in the order given, without profiled runs and energy trials.

    Only runs that differ by seed share job, budget and setting: where the runs given vary in their data, `job` names
    it; where runs under one budget vary in host, preset, model or training, `setting` does. The budget of a run that
    shared its device is mode and neighbours, and it has neither energy nor cost of its own.

    Returns:
        RUN_COLUMNS; a number that a run does not have is NaN. metric is the target's, else the first that was
        evaluated; disturbed says what other programs did to the run; unreached is the outcome for a target that it did
        not reach ("failed" or "censored"); settings separate series.

    Raises:
        UserError: no folder is a readable run (of several, the others are noted and left out), or two have the same
            name.
    """
    return table_of(readable_runs(folders))


def table_of(records: Iterable[tuple[Path, RunRecord]], *, undisturbed: bool = False) -> pd.DataFrame:
    """`run_table` of folders whose records were read; `undisturbed` omits runs that other programs disturbed."""
    found = {folder.resolve(): record for folder, record in records}
    names = Counter(folder.name for folder in found)
    if twice := [name for name, count in names.items() if count > 1]:
        raise UserError(
            f"two of the folders given are named {twice[0]}, but each run needs a name of its own: omit or rename one."
        )
    counted = {folder: record for folder, record in found.items() if not (record.profiled or record.is_trial)}
    rows = [_run_row(folder, record) for folder, record in counted.items()]
    rows = [row for row in rows if not (undisturbed and row["disturbed"])]
    table = pd.DataFrame(rows, columns=[*RUN_COLUMNS, "data"])
    for name in ("tier", "metric"):  # pandas 3 makes NaN of None among texts
        table[name] = table[name].astype(object).where(table[name].notna(), None)
    for _, own in table.groupby("job", sort=False):
        if own["data"].nunique() > 1:
            contents = Counter(name for name, _ in set(own["data"]))  # two of one name get their fingerprints
            names = own["data"].map(lambda data, of=contents: data[0] if of[data[0]] == 1 else " ".join(data))
            table.loc[own.index, "job"] += " on " + names
    add_setting(table)
    return table[RUN_COLUMNS]


def _run_row(folder: Path, record: RunRecord) -> dict:
    config, result = record.config, record.result or {}
    train, data = config.get("train", {}), config.get("data", {})
    is_whole = {"wall_s", "train_s", "samples"} <= result.keys() and train.get("target_metric")
    events = [] if is_whole else read_events(folder)  # the result of a run that ended has it all
    end = next((event for event in reversed(events) if "wall_s" in event), {})
    evaluated = next((list(event.get("metrics", ())) for event in events if event["event"] == "evaluated"), [])
    wall_s, train_s, samples = (_number(end.get(name, result.get(name))) for name in ("wall_s", "train_s", "samples"))
    # a run that was killed has no result, but its sampler's counters are there
    energy = None if "energy_note" in result else telemetry.run_energy(folder)
    memory = result["peak_memory_bytes"] if "peak_memory_bytes" in result else telemetry.peak_memory(folder)
    sections = [
        section for name, section in config.items() if isinstance(section, dict) and name not in {*NO_SETTINGS, "train"}
    ]
    swept = config.get("sweep", {}).get("settings", {})  # which a script need not record itself
    settings = {name: value for section in [swept, *sections, train] for name, value in section.items()}
    settings |= {"mix": (record.shared or {}).get("mix"), "preset": train.get("preset")}
    # runs on two kinds of device are never of one series
    used = (each for each in record.devices if each.get("torch_name") == record.budget.get("torch_name", "cpu"))
    settings |= {"host": record.host, "device": next(used, {}).get("name")}
    own = {name: value for name, value in settings.items() if name not in ENDINGS and not isinstance(value, dict)}
    return list_row(folder, record) | {
        "run": folder.name,
        "tier": None if record.shared else record.tier,
        "metric": train.get("target_metric") or next(iter(evaluated), None),
        "higher_is_better": train.get("higher_is_better"),
        "target": _number(train.get("target")),
        "unreached": unreached(record.status, result, train.get("max_seconds")),
        "confirm": train.get("confirm_evaluations") or tracking.CONFIRM,
        "settings": {"budget": record.ran_under, **own, "threads_wait": config.get("threads_wait")},
        "host": record.host,
        "wall_s": wall_s,
        "train_s": train_s,
        "samples": samples,
        # a script without labkit.Run counts no samples
        "samples_per_s": _number(result.get("samples_per_s", samples / train_s if train_s > 0 else None) or None),
        "peak_memory_bytes": _number(memory),
        "peak_gpu_memory_bytes": _number(result.get("peak_gpu_memory_bytes")),
        "energy_j": _number(energy.value_j if energy else result.get("energy_j")),
        "energy_note": energy.note if energy else result["energy_note"],
        "data": (str(data.get("name", "its data")), str(data.get("fingerprint", ""))[:6]),
    }


def _number(value: float | None) -> float:
    return np.nan if value is None else float(value)


def curves(
    folders: Iterable[Path | str], *, metric: str | None = None, runs: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Every evaluation of the runs, finished or not: CURVE_COLUMNS, in order of wall time within a run.

    Each run's own target metric, or `metric`. `runs` is `run_table(folders)`, where the caller has it already.
    """
    folders = list(dict.fromkeys(Path(folder).resolve() for folder in folders))
    runs = run_table(folders) if runs is None else runs
    runs = runs.assign(metric=metric) if metric else runs
    wanted = runs[OF_A_RUN].assign(order=range(len(runs)))
    merged = read_metrics(folders).rename(columns={"name": "metric"}).merge(wanted, on=["run", "metric"])
    merged = merged.sort_values(["order", "wall_s"], kind="stable", ignore_index=True)
    return merged[CURVE_COLUMNS].astype(dict.fromkeys(("samples", "wall_s", "train_s", "value"), float))


def default_target(curves: pd.DataFrame, runs: pd.DataFrame) -> float:
    """The target to start from: the one that most runs of the job were given, else the best value that all reached."""
    given = runs["target"].dropna()
    if not given.empty:
        return float(given.mode().iloc[0])
    values = curves.groupby("run")["value"]
    return float(values.max().min() if higher_is_better(str(curves["metric"].iloc[0]), runs) else values.min().max())


def higher_is_better(metric: str, runs: pd.DataFrame) -> bool:
    """Whether a larger value is better; `runs` decide for a metric that labkit does not know (default: smaller)."""
    given = runs.loc[runs["metric"] == metric, "higher_is_better"].dropna()
    return tracking.metric_named(metric, None if given.empty else bool(given.iloc[0])).higher_is_better


@dataclass(frozen=True)
class Outcomes:
    """Outcomes of R runs for L targets, on one axis."""

    runs: pd.DataFrame
    """R rows of `run_table`"""
    evaluation: np.ndarray
    """(L, R) which of the run's evaluations reached the target; -1 where none did"""
    time: np.ndarray
    """(L, R) its place on the axis; inf where the run failed, its last evaluation where it was cut off"""
    spent: np.ndarray
    """(L, R) the same, but the run's end where it failed"""

    @property
    def reached(self) -> np.ndarray:
        return self.evaluation >= 0

    @property
    def failed(self) -> np.ndarray:
        return np.isinf(self.time)

    def of(self, runs: np.ndarray) -> "Outcomes":
        """The outcomes of some of the runs, given their places or a mask."""
        return Outcomes(self.runs.iloc[runs], *(each[:, runs] for each in (self.evaluation, self.time, self.spent)))


@dataclass(frozen=True)
class Attempts:
    """At which evaluation each of R runs reached each of L targets of one metric: found once, read on any axis."""

    curves: pd.DataFrame
    """Their evaluations, run after run in the order of `runs`, by wall time"""
    runs: pd.DataFrame
    """R rows of `run_table`"""
    metric: str
    targets: np.ndarray
    """(L,)"""
    evaluation: np.ndarray
    """(L, R) which of the run's evaluations reached the target first; -1 where none did"""
    confirmed: np.ndarray
    """(L, R) the first of as many evaluations in a row as confirm the run's target; -1 where there are none"""
    easier: "dict[tuple[str, ...], tuple[Attempts, np.ndarray]]" = field(default_factory=dict, repr=False)
    """Attempts at easier targets that `labkit.tta.estimators` has looked at, by the names of the runs"""

    @property
    def is_rising(self) -> bool:
        """Whether a higher value of the metric is better."""
        return higher_is_better(self.metric, self.runs)

    def at(self, places: Sequence[int] | np.ndarray) -> "Attempts":
        """The same for some of the targets, given their places."""
        some = {name: getattr(self, name)[places] for name in ("targets", "evaluation", "confirmed")}
        return replace(self, **some)

    def on(self, x: str, *, confirmed: bool = False) -> Outcomes:
        """When each run reached each target on the axis `x`, a column of the curves that grows with time.

        Runs that are unknown on this axis are left out.
        """
        runs, curves = self.runs, self.curves
        evaluation = self.confirmed if confirmed else self.evaluation
        ends = (with_cost(runs.fillna({"wall_s": 0.0})) if x == "cost_usd" else runs)[x].to_numpy(float)
        counts = _evaluations_of(runs, curves)
        begins = np.cumsum(counts) - counts
        places = np.append(curves[x].to_numpy(float), 0.0)  # the last is for runs without an evaluation
        last = np.where(counts > 0, places[begins + counts - 1], 0.0)
        failed = (runs["unreached"] == "failed").to_numpy()
        crossed, reached = places[begins + np.maximum(evaluation, 0)], evaluation >= 0
        time = np.where(reached, crossed, np.where(failed, np.inf, last))
        spent = np.where(reached, crossed, np.where(failed, np.fmax(ends, last), last))
        has_axis = curves[x].notna().groupby(curves["run"]).any()
        known = ~runs["run"].isin(has_axis.index[~has_axis]).to_numpy()
        if x not in ALWAYS_KNOWN:
            known &= ~np.isnan(ends)
        return Outcomes(runs, evaluation, time, spent).of(known)

    def crossings(self, x: str = "wall_s") -> pd.DataFrame:
        """`crossings` of the first of these targets."""
        found, held, curves = self.on(x), self.on(x, confirmed=True), self.curves
        table = found.runs[[*SERIES, "run", "seed"]].reset_index(drop=True)
        reached, failed, sustained = found.reached[0], found.failed[0], held.reached[0]
        curves = curves.assign(evaluation=curves.groupby("run").cumcount(), samples_to_target=curves["samples"])
        return table.assign(
            outcome=np.select([reached, failed], ["reached", "failed"], "censored"),
            reached=reached,
            sustained=sustained,
            time_to_target_s=np.where(reached, found.time[0], np.nan),
            sustained_time_s=np.where(sustained, held.time[0], np.nan),
            last_time_s=table["run"].map(curves.groupby("run")[x].last()).fillna(0.0),
            spent_s=found.spent[0],
            evaluation=found.evaluation[0],
        ).merge(curves[["run", "evaluation", "samples_to_target", "value"]], "left")[CROSSING_COLUMNS]


def attempts(curves: pd.DataFrame, runs: pd.DataFrame, targets: Sequence[float] | np.ndarray) -> Attempts:
    """At which evaluation each run reached each target.

    Args:
        curves: one row per evaluation (`labkit.tta.curves`) of one metric.
        runs: one row per run (`labkit.tta.run_table`); runs that watched another metric and never evaluated this one
            are left out.
        targets: (L,) values of the metric.

    Raises:
        UserError: a target is beyond any value of the metric.
    """
    targets = np.atleast_1d(np.asarray(targets, float))
    metric = str((curves if len(curves) else runs)["metric"].iloc[0]) if len(runs) else ""
    runs = runs[runs["run"].isin(curves["run"]) | runs["metric"].isna() | (runs["metric"] == metric)]
    known = tracking.METRICS.get(metric)
    if known and len(curves) and (beyond := np.max(targets)) > max(known.high, curves["value"].max()):
        raise UserError(f"the target {beyond:g} is beyond any {known.label}, which is a share: write {beyond / 100:g}.")
    number = pd.Index(runs["run"]).get_indexer(curves["run"])
    order = np.lexsort((curves["wall_s"].to_numpy(float), number))[np.count_nonzero(number < 0) :]
    curves = curves.iloc[order]
    values, counts = curves["value"].to_numpy(float), _evaluations_of(runs, curves)
    up = higher_is_better(metric, runs)
    first, held = (
        tracking.crossing(values, counts, targets, in_a_row, higher_is_better=up)
        for in_a_row in (1, runs["confirm"].to_numpy())
    )
    return Attempts(curves, runs, metric, targets, first, held)


def _evaluations_of(runs: pd.DataFrame, curves: pd.DataFrame) -> np.ndarray:
    """How many evaluations each run has: (R,)."""
    return np.bincount(pd.Index(runs["run"]).get_indexer(curves["run"]), minlength=len(runs))


def crossings(curves: pd.DataFrame, runs: pd.DataFrame, target: float, *, x: str = "wall_s") -> pd.DataFrame:
    """When each run reached `target`, or what became of it.

    A crossing is the first *evaluation* at or past the target; nothing is interpolated. The sustained crossing begins
    the first streak of evaluations at or past it that confirms the run's target (`labkit.tracking.goal`).

    Args:
        curves, runs: as for `attempts`.
        target: value of that metric.
        x: "wall_s", "train_s", or another column that grows, in whose unit the times below then are.

    Returns:
        CROSSING_COLUMNS, one row per run that has the axis. outcome is "reached", "failed" (it never would have) or
        "censored" (it was cut off). evaluation is the crossing's place among the run's evaluations, -1 if there is
        none; time_to_target_s, samples_to_target and value are those of the crossing, NaN if there is none;
        last_time_s is the last evaluation, 0 without one; spent_s is `Outcomes.spent`.
    """
    return attempts(curves, runs, [target]).crossings(x)

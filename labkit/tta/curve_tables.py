"""From run folders to frames: one row per evaluation, and one row per run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from labkit import UserError, telemetry, tracking
from labkit.runs import (
    CURVE_COLUMNS,
    OF_A_RUN,
    RUN_COLUMNS,
    RunRecord,
    add_setting,
    disturbance_text,
    read_events,
    read_metrics,
    readable_runs,
)
from labkit.tta.thresholds import higher_is_better

ENDINGS = {
    "seed", "target", "target_metric", "higher_is_better", "max_seconds", "max_epochs", "patience_evaluations",
    "confirm_evaluations", "step_note", "keeps",
}  # fmt: skip
"""Training settings in which runs of one series may differ: they decide when to stop, not how to train"""
NO_SETTINGS = {"data", "budget", "profile", "collocation", "sweep", "settings"}
"""Sections of a configuration that are no settings of a series"""


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
    twice = [name for name, count in names.items() if count > 1]
    if twice:
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
    settings |= {"host": record.host, "device": _gpu_name(record)}
    own = {name: value for name, value in settings.items() if name not in ENDINGS and not isinstance(value, dict)}
    return {
        "run": folder.name,
        "folder": str(folder),
        "job": config.get("job", record.name),
        "budget": record.ran_under,
        "seed": record.told_seed,
        "provenance": record.provenance.kind,
        "tier": None if record.shared else record.tier,
        "metric": train.get("target_metric") or next(iter(evaluated), None),
        "higher_is_better": train.get("higher_is_better"),
        "target": _number(train.get("target")),
        "status": record.status,
        "disturbed": disturbance_text(result.get("others")),
        "unreached": tracking.unreached(record.status, result, train.get("max_seconds")),
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


def _gpu_name(record: RunRecord) -> str | None:
    """The kind of GPU that it computed on: runs on two kinds are never of one series."""
    torch_name = record.budget.get("torch_name", "cpu")
    names = (device.get("name") for device in record.devices if device.get("torch_name") == torch_name)
    return None if torch_name == "cpu" else next(names, None)


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

"""Energy trials: the steady state of each run in samples per second, watts and joules per sample; and their means."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from labkit import telemetry
from labkit.runs import read_events, read_metrics, read_run
from labkit.tta.costs import energy_until, epoch_ns, spans_of

PIECES, PIECE_S, IN_A_ROW, TOLERANCE = 20, 1.0, 5, 0.1
"""The rule that `labkit energy trial --help` describes"""
NUMBERS = ["samples_per_s", "power_w", "energy_per_sample_j", "above_idle_j"]
COLUMNS = ["run", "power_limit_w", "trial", "warm_up_s", "steady_s", *NUMBERS, "idle_power_w", "note"]


def steady_from(rates: np.ndarray) -> int | None:
    """The piece with which the steady state begins by that rule; None where there is none.

    >>> steady_from(np.array([2.0, 9, 10, 10, 11, 10, 9.5, 10, 10, 10])), steady_from(np.arange(10.0))
    (1, None)
    """
    if len(rates) < 2 * IN_A_ROW:
        return None
    usual = np.median(rates[len(rates) // 2 :])
    near = np.abs(rates - usual) <= TOLERANCE * usual
    runs = np.lib.stride_tricks.sliding_window_view(near, IN_A_ROW).all(axis=1)
    return int(runs.argmax()) if runs.any() else None


def trial_table(folders: Iterable[Path | str]) -> pd.DataFrame:
    """The steady state of each run: its training steps from there on, without evaluations and checkpoints.

    Args:
        folders: run folders of `labkit energy trial`; any other run has no idle power and no limit.

    Returns:
        COLUMNS, a row per run: warm_up_s were dropped, steady_s of training count; above_idle_j are joules per sample
        without the idle power. A number that is not known is NaN, and note says why.
    """
    return pd.DataFrame([_row(Path(folder)) for folder in folders], columns=COLUMNS)


def trial_means(trials: pd.DataFrame) -> pd.DataFrame:
    """The mean of NUMBERS over the trials of each power limit, with 95 % intervals (Student's t).

    Columns power_limit_w (NaN as found), trials (those with a steady state), and NAME, NAME_low and NAME_high; an
    interval takes two trials.
    """
    from scipy.special import stdtrit

    rows = []
    for limit_w, own in trials.groupby("power_limit_w", dropna=False):
        row = {"power_limit_w": limit_w, "trials": own["steady_s"].count()}
        for name in NUMBERS:
            values = own[name].dropna().to_numpy(float)
            mean = values.mean() if len(values) else np.nan
            half = np.nan
            if len(values) > 1:
                half = stdtrit(len(values) - 1, 0.975) * values.std(ddof=1) / np.sqrt(len(values))
            row |= {name: mean, f"{name}_low": mean - half, f"{name}_high": mean + half}
        rows.append(row)
    return pd.DataFrame(rows)


def _row(folder: Path) -> dict:
    record = read_run(folder)
    train, trial = record.config.get("train", {}), record.config.get("trial", {})
    row = {"run": record.id, "power_limit_w": train.get("power_limit_w", np.nan), "trial": trial.get("number")}
    row |= {"idle_power_w": trial.get("idle_power_w")}
    kind = record.provenance.kind
    notes = [trial.get("cool_down"), "" if kind == "measured" else kind]
    steps, why_not = _steady_steps(folder)
    if why_not:
        return row | {"note": why_not}
    row |= {"warm_up_s": steps["began_s"].iloc[0], "steady_s": (steady_s := steps["took_s"].sum())}
    if samples := steps["samples"].sum():
        row["samples_per_s"] = samples / steady_s
    else:
        notes.append("its script counts no samples (run.step)")
    energy = telemetry.run_energy(folder)
    notes.append(energy.note)
    if energy.steps:
        began = next(event for event in reversed(read_events(folder)) if event["event"] == "began")
        ends_ns = epoch_ns(began) + (steps["wall_s"].to_numpy() - began["clock_s"]) * 1e9
        spans_ns = np.stack([ends_ns - steps["took_s"].to_numpy() * 1e9, ends_ns])
        of_all = (energy.steps, spans_of(energy.steps))
        joules, covered_s = (np.diff(energy_until(spans_ns, each), axis=0).sum() for each in of_all)
        row["power_w"] = joules / covered_s if covered_s > 0 else np.nan
        notes.append("" if covered_s > 0.95 * steady_s else f"samples cover {covered_s / steady_s:.0%} of it")
        if samples:
            row["energy_per_sample_j"] = row["power_w"] / row["samples_per_s"]
            if row["idle_power_w"] is not None and trial["torch_name"] == record.budget["torch_name"]:
                row["above_idle_j"] = (row["power_w"] - row["idle_power_w"]) / row["samples_per_s"]
    return row | {"note": "; ".join(filter(None, notes))}


def _steady_steps(folder: Path) -> tuple[pd.DataFrame, str]:
    """The training steps of the steady state, as far as rows separate them; or why there is none.

    Columns wall_s (its end), began_s (seconds of training before it), took_s and samples.
    """
    rows = read_metrics([folder])
    rows = rows[rows["name"].isin(("loss", "steps"))].drop_duplicates("step").sort_values("step")
    since = rows[["step", "samples", "train_s"]].diff().fillna(rows.iloc[:1])
    steps = pd.DataFrame({"wall_s": rows["wall_s"], "began_s": rows["train_s"] - since["train_s"]})
    steps = steps.assign(took_s=since["train_s"], samples=since["samples"])
    piece_s = max(PIECE_S, rows["train_s"].max() / PIECES)
    pieces = rows["train_s"] // piece_s
    counted = since["samples"] if since["samples"].any() else since["step"]
    rates = counted.groupby(pieces).sum() / since["train_s"].groupby(pieces).sum()
    begin = steady_from(rates.to_numpy())
    if begin is None:
        few = f"of {2 * IN_A_ROW} pieces of {PIECE_S:g} s it has {len(rates)}: let it train for longer"
        return steps, f"no steady state: {few if len(rates) < 2 * IN_A_ROW else 'its samples/s never settle'}"
    return steps[pieces >= rates.index[begin]], ""

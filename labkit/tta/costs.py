"""What runs cost: joules, watts and carbon at each evaluation, and money at the price of a tier.

Energy trials show the steady state of each run, in samples per second, watts and joules per sample; and their means.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from labkit import UserError, hardware, telemetry
from labkit.runs import RunRecord, moment_ns, read_metrics, read_run
from labkit.tta.intervals import mean_interval

J_PER_KWH = 3.6e6
PIECES, PIECE_S, IN_A_ROW, TOLERANCE = 20, 1.0, 5, 0.1
"""The rule that `labkit energy trial --help` describes"""
NUMBERS = ["samples_per_s", "power_w", "energy_per_sample_j", "above_idle_j"]
TRIAL_COLUMNS = ["run", "power_limit_w", "trial", "warm_up_s", "steady_s", *NUMBERS, "idle_power_w", "note"]


@dataclass(frozen=True)
class Cost:
    """A price, or why there is none."""

    value_usd: float | None
    note: str
    """Price per hour and its source, or the reason for its absence"""


def price_usd_per_h(tier: str | None) -> Cost:
    """The rental price of a tier, by the catalogue."""
    if not isinstance(tier, str):  # None, or NaN after a frame has been joined
        return Cost(None, "this hardware is in no tier of the catalogue, so it has no price")
    try:
        price = hardware.get_tier(tier).rental_price_usd_per_h
    except UserError:
        return Cost(None, f"tier {tier} is not in this catalogue")
    if price is None:
        return Cost(None, f"no rental price with a source is known for tier {tier}")
    return Cost(price, f"${price:.3g} per hour for tier {tier}, by the catalogue")


def usd_per_s(tiers: pd.Series) -> pd.Series:
    """Rental price of each tier per second; NaN without one."""
    return tiers.map({tier: price_usd_per_h(tier).value_usd for tier in tiers.unique()}).astype(float) / 3600


def cost_usd(time_s: float, tier: str | None) -> Cost:
    """Cost of holding one machine of `tier` for `time_s` wall seconds; None where that is inf or NaN: not reached."""
    price = price_usd_per_h(tier)
    if price.value_usd is None:
        return price
    if not np.isfinite(time_s):
        return Cost(None, "the target was not reached")
    return Cost(price.value_usd * time_s / 3600, price.note)


def with_cost(curves: pd.DataFrame) -> pd.DataFrame:
    """The curves with a column cost_usd: what each run had cost at each evaluation (NaN without a price)."""
    return curves.assign(cost_usd=curves["wall_s"] * usd_per_s(curves["tier"]))


@dataclass(frozen=True)
class EnergyAccount:
    """The energy of one run. A number is None where it is not known; `note` says why, or what it covers."""

    run: str
    kind: str
    """"measured", "recorded" or "emulated" as the run is; "predicted" where a power was assumed"""
    energy_j: float | None
    source: str | None
    note: str
    average_power_w: float | None = None
    energy_per_sample_j: float | None = None
    energy_to_target_j: float | None = None
    """Energy until the target was first reached"""
    carbon_g: float | None = None
    """CO2 equivalent of `energy_j`, at the grid intensity that was given"""


def energy_account(
    run: "telemetry.Samples | Path | str",
    *,
    grid_g_per_kwh: float | None = None,
    estimate: bool = False,
    assumed_power_w: float | None = None,
) -> EnergyAccount:
    """Account for the energy of a run.

    Args:
        run: the run's folder, or its samples.
        grid_g_per_kwh: carbon intensity of the grid, in grams of CO2 equivalent per kilowatt-hour.
        estimate: where nothing was measured, predict it as the tier's power for the run's whole time.
        assumed_power_w: the power to predict with, instead of the tier's.

    Raises:
        UserError: there is no such run, or it was profiled.
    """
    samples = _samples_of(run)
    record = samples.record
    if record.profiled:
        raise UserError(f"{samples.folder} was profiled, so its energy is not that of training: give another run.")
    energy, kind = energy_of(samples, estimate, assumed_power_w)
    if energy.value_j is None:
        return EnergyAccount(record.id, kind, None, None, energy.note)
    seconds = sum(step.joules for step in spans_of(energy.steps))
    count = (record.result or {}).get("samples")
    return EnergyAccount(
        record.id,
        kind,
        energy.value_j,
        energy.source,
        energy.note,
        average_power_w=energy.value_j / seconds if seconds else None,
        energy_per_sample_j=energy.value_j / count if count else None,
        energy_to_target_j=_to_target(samples.events, energy.steps),
        carbon_g=None if grid_g_per_kwh is None else energy.value_j / J_PER_KWH * grid_g_per_kwh,
    )


def with_energy(curves: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """The curves with a column energy_j: joules of each run since its first sample; NaN where they were not measurable.

    Between two samples the power is taken as constant; an evaluation after the last sample has the energy of that.
    `runs` is `run_table` of the same runs; of recordings the curves have their energy already.
    """
    energy = curves.get("energy_j", pd.Series(np.nan, curves.index, dtype=float)).copy()
    measured = runs[runs["energy_j"].notna() & runs["folder"].notna()]
    rows = curves.groupby("run", sort=False, observed=True).groups
    for run, folder in zip(measured["run"], measured["folder"], strict=True):
        if (own := rows.get(run)) is None:
            continue
        samples = _samples_of(folder)
        evaluated = [event for event in samples.events if event["event"] == "evaluated" and "wall_s" in event]
        if evaluated:
            # sorted: after a resume the clock goes on from the checkpoint, before the last evaluations until then
            moments = sorted((event["wall_s"], moment_ns(event["time"])) for event in evaluated)
            wall_s, at_ns = zip(*moments, strict=True)
            when_ns = np.interp(curves.loc[own, "wall_s"], wall_s, at_ns)
            energy[own] = energy_until(when_ns, telemetry.run_energy(samples).steps)
    return curves.assign(energy_j=energy)


def energy_until(when_ns: np.ndarray, steps: "Sequence[telemetry.Step]") -> np.ndarray:
    """Joules of all steps until each moment, in the moments' shape.

    >>> energy_until(np.array([0, 5, 10, 15]), (telemetry.Step(0, 10, 4.0), telemetry.Step(12, 14, 1.0)))
    array([0., 2., 4., 5.])
    """
    began_ns = steps[0].begin_ns  # nanoseconds since 1970 are too many digits for a float
    begin, end, joules = (np.array(column) for column in zip(*steps, strict=True))
    moments = np.concatenate([begin, end]) - began_ns
    order, watts = np.argsort(moments), joules / (end - begin)
    moments, drawn = moments[order], np.cumsum(np.concatenate([watts, -watts])[order])
    until = np.concatenate([[0.0], np.cumsum(np.diff(moments) * drawn[:-1])])
    return np.interp(np.asarray(when_ns) - began_ns, moments, until)


def window_energy(
    run: "telemetry.Samples | Path | str", *, estimate: bool = False, assumed_power_w: float | None = None
) -> pd.DataFrame:
    """The windows of a run (`labkit.energy.window`), each with its joules; what is nested counts in both.

    Between two samples the power is taken as constant, so a window that is shorter than two samples' distance has a
    share of what was drawn around it: such windows add up to the energy of a loop, and do not separate its parts.

    Args:
        run: the run's folder, or its samples.
        estimate, assumed_power_w: as for `energy_account`.

    Returns:
        Columns name ("epoch/forward"), begin_ns, seconds, covered_s (seconds between samples), energy_j
        (during these; NaN where there are none) and note; in the order of their beginnings.
    """
    samples = _samples_of(run)
    logged = [event for event in samples.events if event["event"] == "windows"]
    frames = [pd.DataFrame({name: event[name] for name in ("name", "begin_ns", "end_ns")}) for event in logged]
    if not frames:
        return pd.DataFrame(columns=["name", "begin_ns", "seconds", "covered_s", "energy_j", "note"])
    windows = pd.concat(frames).sort_values(["begin_ns", "end_ns"], ascending=[True, False], ignore_index=True)
    windows["seconds"] = (windows["end_ns"] - windows["begin_ns"]) / 1e9
    energy, kind = energy_of(samples, estimate, assumed_power_w)
    windows = windows.assign(covered_s=0.0, energy_j=np.nan, note=energy.note)
    if energy.steps:
        spans, ends = spans_of(energy.steps), windows[["begin_ns", "end_ns"]].to_numpy()
        covered_s, joules = (np.diff(energy_until(ends, steps))[:, 0] for steps in (spans, energy.steps))
        every_s = float(np.median([span.joules for span in spans]))
        is_short = (kind != "predicted") & (windows["seconds"] < 2 * every_s)
        short = f"too short for samples every {every_s:.2g} s: has its share of what was drawn around it"
        note = np.where(is_short, short, energy.note if kind == "predicted" else "")
        windows = windows.assign(covered_s=covered_s, energy_j=np.where(covered_s > 0, joules, np.nan), note=note)
    return windows[["name", "begin_ns", "seconds", "covered_s", "energy_j", "note"]]


def windows_by_name(windows: pd.DataFrame) -> pd.DataFrame:
    """The sums of `window_energy`: columns name, count, seconds, energy_j, average_power_w and note; by first begin."""
    grouped = windows.groupby("name", sort=False)
    sums = grouped[["seconds", "covered_s"]].sum()
    sums["energy_j"] = grouped["energy_j"].sum(min_count=1)
    sums["average_power_w"] = sums["energy_j"] / sums["covered_s"]
    sums.insert(0, "count", grouped.size())
    covered, known = sums["covered_s"] / sums["seconds"], sums["energy_j"].notna()
    notes = grouped["note"].unique().map(lambda notes: "; ".join(filter(None, notes)))
    gaps = covered.map("samples cover {:.0%} of its time".format).where(known & (covered < 0.99), "")
    sums["note"] = [" and ".join(filter(None, both)) for both in zip(notes, gaps, strict=True)]
    return sums.drop(columns="covered_s").reset_index()


def spans_of(steps: "Sequence[telemetry.Step]") -> "list[telemetry.Step]":
    """The time that steps cover, with its seconds in place of joules; those of several packages are at once."""
    return [telemetry.Step(begin, end, (end - begin) / 1e9) for begin, end in sorted({step[:2] for step in steps})]


def _samples_of(run: "telemetry.Samples | Path | str") -> "telemetry.Samples":
    return run if isinstance(run, telemetry.Samples) else telemetry.Samples(run, telemetry.OF_ENERGY)


def energy_of(
    samples: "telemetry.Samples", estimate: bool, assumed_power_w: float | None
) -> "tuple[telemetry.Energy, str]":
    """The energy of a run, predicted on request where it was not measured; and its kind."""
    energy, record = telemetry.run_energy(samples), samples.record
    if energy.value_j is None and (estimate or assumed_power_w is not None):
        return _predicted(record, samples.events, assumed_power_w, energy.note), "predicted"
    return energy, record.provenance.kind


def _predicted(
    record: RunRecord, events: list[dict[str, Any]], power_w: float | None, why_not: str
) -> "telemetry.Energy":
    """A constant power for the whole time of each process that trained the run, by its events."""
    source, lacks = "as given", "this hardware is in no tier of the catalogue"
    if power_w is None and record.tier is not None:
        figure = hardware.get_tier(record.tier).figure("power_w")
        power_w, source = figure.value, f"the power limit of tier {record.tier} ({figure.source})"
        lacks = f"the power of tier {record.tier} is not known"
    if power_w is None:
        return telemetry.Energy(None, None, f"{why_not}; no estimate: {lacks} (--power W)")
    spans: list[tuple[int, int]] = []
    for event in events:
        now = moment_ns(event["time"])
        if event["event"] in ("started", "resumed") or not spans:
            spans.append((now, now))
        spans[-1] = (spans[-1][0], now)
    steps = tuple(telemetry.Step(begin, end, power_w * (end - begin) / 1e9) for begin, end in spans if end > begin)
    note = f"not measured: a constant power for the run's whole time ({why_not})"
    return telemetry.Energy(sum(step.joules for step in steps), f"{power_w:g} W, {source}", note, steps)


def _to_target(events: list[dict[str, Any]], steps: "tuple[telemetry.Step, ...]") -> float | None:
    samples = next((event.get("samples") for event in events if event["event"] == "target_reached"), None)
    # after a resume, the event may follow the evaluation that reached the target
    at = (event for event in events if event["event"] == "evaluated" and event.get("samples") == samples)
    when = None if samples is None else next(at, None)
    return None if when is None else float(energy_until(np.array([moment_ns(when["time"])]), steps)[0])


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
        TRIAL_COLUMNS, a row per run: warm_up_s were dropped, steady_s of training count; above_idle_j are joules per
        sample without the idle power. A number that is not known is NaN, and note says why.
    """
    return pd.DataFrame([_trial_row(Path(folder)) for folder in folders], columns=TRIAL_COLUMNS)


def trial_means(trials: pd.DataFrame) -> pd.DataFrame:
    """The mean of NUMBERS over the trials of each power limit, with 95 % intervals (Student's t).

    Columns power_limit_w (NaN as found), trials (those with a steady state), and NAME, NAME_low and NAME_high; an
    interval takes two trials.
    """
    rows = []
    for limit_w, own in trials.groupby("power_limit_w", dropna=False):
        row = {"power_limit_w": limit_w, "trials": own["steady_s"].count()}
        for name in NUMBERS:
            found = mean_interval(own[name].dropna().to_numpy(float))
            row |= dict(zip((name, f"{name}_low", f"{name}_high"), found, strict=True))
        rows.append(row)
    return pd.DataFrame(rows)


def _trial_row(folder: Path) -> dict:
    record = read_run(folder)
    train, trial = record.config.get("train", {}), record.config.get("trial", {})
    row: dict[str, Any] = {"run": record.id, "power_limit_w": train.get("power_limit_w", np.nan)}
    row |= {"trial": trial.get("number"), "idle_power_w": trial.get("idle_power_w")}
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
    run = _samples_of(folder)
    energy = telemetry.run_energy(run)
    notes.append(energy.note)
    if energy.steps:
        began = next(event for event in reversed(run.events) if event["event"] == "began")
        ends_ns = moment_ns(began["time"]) + (steps["wall_s"].to_numpy() - began["clock_s"]) * 1e9
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

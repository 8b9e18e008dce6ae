"""The run folder that a run of another tracker becomes."""

import contextlib
import hashlib
import json
import math
import re
import shutil
from collections import defaultdict
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from labkit import UserError, hardware, project, runs, telemetry, tracking
from labkit.bridges.counters import reading_of
from labkit.bridges.logged import ENDED_BY, EXPORTED, Logged, Wishes, clean, is_number

SEEDS = {"seed", "random_seed", "rng_seed", "manual_seed", "random_state", "seed_everything"}
"""Names of parameters that hold a seed; in `trainer.seed` and `trainer/seed` the last word counts"""
PLACES = {
    "run_name", "run_id", "exp_name", "name", "output_dir", "out_dir", "log_dir", "logdir", "save_dir", "logging_dir",
    "checkpoint_dir", "ckpt_dir", "timestamp", "date", "hostname",
}  # fmt: skip
"""Names of parameters that say where a run is kept, and so make no series of their own"""
SINCE_NS, UNTIL_NS = 946_684_800 * 10**9, 4_102_444_800 * 10**9
"""The years 2000 and 2100: other times were never set, or are in another unit"""
WORDS = {"true": True, "false": False, "none": None, "null": None}


def folder_name(logged: Logged) -> str:
    """Name of the run's folder: the same at every import, and sorted by time like those of own runs."""
    began = datetime.fromtimestamp(began_of(logged) / 1e9, UTC).strftime("%Y%m%d-%H%M%S")
    safe = re.sub(r"[^A-Za-z0-9_-]+", "-", clean(logged.name, 60)).strip("-") or "run"
    tool = logged.tool.partition(" ")[0]
    return f"{began}-{safe[:40]}-{hashlib.sha256(f'{tool}/{logged.id}'.encode(errors='replace')).hexdigest()[:8]}"


def write_run(logged: Logged, runs_dir: Path, wishes: Wishes) -> Path:
    """Write a logged run as a run folder, in place of an earlier import of it. Returns the folder.

    Raises:
        UserError: nothing with a time was logged, or the target's metric is in per cent.
    """
    refuse_without_times(logged)
    points, wanted = points_of(logged, wishes.percent), wishes.target
    if wanted is None and logged.ours.get("target"):
        wanted = tracking.Target.from_json(logged.ours["target"])
    if wanted is not None and wanted.metric.name == "validation_loss" and "validation_loss" not in set(points["name"]):
        wanted = replace(wanted, metric=replace(wanted.metric, name="loss"))
    is_extra = points["name"].isin(EXPORTED) & bool(logged.ours)
    extra = points[is_extra].drop_duplicates(["name", "step", "time_ns"], keep="last")
    extra = extra.pivot(index=["step", "time_ns"], columns="name", values="value").reindex(columns=[*EXPORTED])
    points = points[~is_extra].join(extra, on=["step", "time_ns"]).astype({"samples": "Int64"})
    points["wall_s"] = (points["time_ns"] - began_of(logged)) / 1e9
    if wanted is not None:
        _refuse_per_cent(points, wanted.metric, logged)
    record = _record(logged, wanted or _watched(points), wishes)
    folder, place = runs_dir / record.id, runs_dir / f".{record.id}.importing"
    if (folder / "run.json").is_file() and "imported" not in runs.read_run(folder).config:
        raise UserError(f"{folder} is a run of labkit's own: choose another folder with --into.", field="into")
    try:
        shutil.rmtree(place, ignore_errors=True)
        with runs.disk_full_as_user_error(runs_dir):
            (place / "metrics").mkdir(parents=True)
        _write_metrics(place, points)
        _write_telemetry(place, logged)
        record.result = _write_events(place, record, points, logged)
        record.save(place)
        record.result |= _energy(place, record, logged)
        record.save(place)
        shutil.rmtree(folder, ignore_errors=True)
        place.rename(folder)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return folder


def refuse_without_times(logged: Logged) -> None:
    everything = [*logged.points, *logged.system]
    if not everything:
        raise UserError(f"run {clean(logged.name, 80)!r} of {logged.source} logged no numbers.")
    if unset := sum(not SINCE_NS < point.time_ns < UNTIL_NS for point in everything):
        raise UserError(
            f"run {clean(logged.name, 80)!r} of {logged.source}: {unset} of {len(everything)} points are from before "
            "2000 or after 2100, so its times are wrong: log it with times in milliseconds since 1970."
        )


def began_of(logged: Logged) -> int:
    """The start of the run's clock, which is no later than its first point."""
    times = [point.time_ns for point in logged.points or logged.system]
    if logged.began_ns is not None and SINCE_NS < logged.began_ns < UNTIL_NS:
        times.append(logged.began_ns)
    return min(times, default=0)


def points_of(logged: Logged, percent: tuple[str, ...]) -> pd.DataFrame:
    """The points in order of time, each with a step: columns name, step, time_ns and value.

    Names are such as files can hold, and values are shares where the user says per cent. A clock that jumped back goes
    on from where it was.
    """
    names = {name: clean(name, 200) for name in {point.name for point in logged.points}}
    values = [point.value / 100 if point.name in percent else point.value for point in logged.points]
    points = pd.DataFrame(
        {
            "name": [names[point.name] for point in logged.points],
            "step": pd.array([point.step for point in logged.points], "Int64"),
            "time_ns": np.array([point.time_ns for point in logged.points], np.int64),
            "value": np.array(values, float),
        }
    )
    if not logged.in_order:
        points = points.sort_values(["time_ns", "step"], kind="stable", ignore_index=True)
    jumps, behind_ns, last_ns, times = 0, 0, 0, []
    for time_ns in points["time_ns"].tolist():
        if time_ns + behind_ns < last_ns - 10**9:  # several threads may log out of turn by less
            jumps, behind_ns = jumps + 1, last_ns - time_ns
        times.append(time_ns + behind_ns)
        last_ns = max(last_ns, times[-1])
    if jumps:
        logged.notes.append(f"its clock went back {jumps} times; its times go on from there")
        points = points.assign(time_ns=times).sort_values("time_ns", kind="stable", ignore_index=True)
    steps = points.groupby("name", sort=False)["step"]
    has_none = steps.transform(lambda own: own.isna().any() or (len(own) > 1 and (own == 0).all())).astype(bool)
    if has_none.any():
        count = points.loc[has_none, "name"].nunique()
        logged.notes.append(f"{count} of its metrics had no steps, or only step 0: their points are counted")
        points["step"] = points["step"].where(~has_none, steps.cumcount())
    return points


def _refuse_per_cent(points: pd.DataFrame, metric: tracking.Metric, logged: Logged) -> None:
    is_share = metric.higher_is_better and metric.high == 1
    largest = points.loc[(points["name"] == metric.name) & np.isfinite(points["value"]), "value"].max()
    if is_share and largest > 1:
        raise UserError(
            f"run {clean(logged.name, 80)!r} of {logged.source}: its {metric.name} reaches {largest:g}, but "
            f"{metric.label} is a share: if it was logged in per cent, add --percent {metric.name}.",
            field="percent",
        )


def _watched(points: pd.DataFrame) -> tracking.Target | None:
    """Where no target is given: the metric that figures begin with, which is one of labkit's, or a validation's."""
    names = points["name"].unique().tolist()
    known = [name for name in names if name in tracking.METRICS]
    validated = [name for name in names if re.search(r"val|eval|test|acc|auc", name.lower())]
    if not names:
        return None
    name = [*known, *validated, *names][0]
    up = re.search(r"acc|auc|f1|score|precision|recall|reward|iou|map$", name.lower()) is not None
    return tracking.Target(tracking.metric_named(name, up), None)


def _record(logged: Logged, target: tracking.Target | None, wishes: Wishes) -> runs.RunRecord:
    name, seed = clean(logged.name, 200) or "run", logged.seed
    sampled = sorted({reading_of(name).device for name in {point.name for point in logged.system}})
    gpu = logged.devices or [f"GPU {each[3:]}" for each in sampled if re.fullmatch(r"gpu\d+", each)]
    train, places, sections = {}, {}, defaultdict(dict)
    for long, value in logged.settings.items():
        key, plain = clean(long, 200), setting(value)
        section, _, own = key.partition(".")
        last = re.split(r"[./]", key)[-1].lower()
        is_seed = key == wishes.seed_name if wishes.seed_name else last in SEEDS
        if is_seed and is_number(plain) and plain == int(plain):
            seed = int(plain) if seed is None else seed
        elif last in PLACES and not logged.ours:
            places[key] = plain
        elif own and logged.ours:  # of a section that the export flattened
            sections[section][own] = plain
        else:
            train[key] = plain
    if target is not None:
        train |= {"target_metric": target.metric.name, "higher_is_better": target.metric.higher_is_better}
        train["target"] = target.value
    imported: Any = {"tool": logged.tool, "id": clean(logged.id, 200), "name": name, "places": places}
    imported |= {"source": clean(logged.source, 500), "left_out": dict(logged.left_out), "notes": logged.notes}
    config: Any = {**sections, "job": clean(logged.group, 120) or name, "train": train, "imported": imported}
    if logged.data:
        config.setdefault("data", logged.data)
    left = ", ".join(f"{count} {what}" for what, count in logged.left_out.items())
    note = "; ".join([f"from {clean(logged.source, 200)}", *([f"without {left}"] if left else []), *logged.notes])
    began_ns, tier = began_of(logged), wishes.tier or logged.ours.get("tier")
    ended_ns = logged.ended_ns or max(point.time_ns for point in (*logged.points, *logged.system))
    by = f"{logged.tool}, read by labkit {project.VERSION}"
    devices: list[Any] = [
        {"kind": "gpu", "index": n, "name": clean(each, 100), "torch_name": f"cuda:{n}", "uuid": f"gpu{n}"}
        for n, each in enumerate(gpu)
    ]
    budget: Any = {"name": clean(logged.ours.get("budget") or wishes.tier or (gpu[0] if gpu else "as logged"), 60)}
    if len(gpu) == 1:
        budget["torch_name"] = "cuda:0"
    return runs.RunRecord(
        id=folder_name(logged),
        name=name,
        config=config,
        budget=budget,
        tier=tier and hardware.get_tier(tier).name,
        devices=devices,
        host=clean(logged.host or "not recorded", 80),
        software={},
        git_commit=None,
        seed=seed,
        argv=[],
        provenance=runs.Provenance("recorded", by, _moment(began_ns), note),
        status=logged.status,
        pid=0,
        pid_started=0.0,
        started_at=_moment(began_ns),
        ended_at=_moment(max(ended_ns, began_ns)),
    )


def setting(value: Any) -> Any:
    """A parameter as JSON has it; text that is a number, true, false or none becomes that.

    >>> [setting(text) for text in ("0.1", "64", "True", "none", "adam", "nan", "1_000")]
    [0.1, 64, True, None, 'adam', 'nan', '1_000']
    """
    if isinstance(value, str):
        if value.lower() in WORDS:
            return WORDS[value.lower()]
        for kind in (int, float) if "_" not in value and len(value) < 25 else ():
            with contextlib.suppress(ValueError):
                number = kind(value)
                return number if abs(number) < 2**63 else value
        return clean(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return value if math.isfinite(value) and abs(value) < 2**63 else str(value)
    return clean(json.dumps(value, default=str).replace("\\u0000", " "))  # which a record may not hold, even in quotes


def _moment(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns / 1e9, UTC).isoformat(timespec="milliseconds")


def _write_metrics(folder: Path, points: pd.DataFrame) -> None:
    if len(points):
        known = pa.Table.from_pandas(points, pa.schema(list(runs.METRICS)[:-1]), preserve_index=False)
        values = pa.array(points["value"].to_numpy())  # in which NaN is no null
        whole = known.append_column(runs.METRICS.field("value"), values)
        runs.write_part(whole, runs.part_path(folder / "metrics", 0))


def _write_telemetry(folder: Path, logged: Logged) -> None:
    """The counters as telemetry, with a note where the tracker wrote a number for a missing value."""
    series, tables = defaultdict(set), []
    for point in logged.system:
        series[point.name].add((point.time_ns, point.value))
    for name, samples in series.items():
        counter, (times, logged_values) = reading_of(clean(name, 200)), zip(*sorted(samples), strict=True)
        values, notes = counter.values(logged_values)
        same = {"device": counter.device, "scope": counter.scope, "counter": counter.name, "unit": counter.unit}
        same |= {"source": logged.tool.partition(" ")[0]}
        columns: dict[str, Any] = {"time_ns": times, "value": values, "note": notes, "pid": [None] * len(times)}
        columns |= {column: [value] * len(times) for column, value in same.items()}
        tables.append(pa.table(columns, schema=runs.TELEMETRY))
    if tables:
        (folder / "telemetry").mkdir()
        order = [(name, "ascending") for name in ("device", "scope", "counter", "time_ns")]
        runs.write_part(pa.concat_tables(tables).sort_by(order), runs.part_path(folder / "telemetry", 0))


def _write_events(folder: Path, record: runs.RunRecord, points: pd.DataFrame, logged: Logged) -> Any:
    """Write the events of the run, and return its result."""
    train = record.config["train"]
    metric, target, up = (train.get(name) for name in ("target_metric", "target", "higher_is_better"))
    evaluated: list[dict[str, Any]] = points[points["name"] == metric].to_dict("records")

    def at(row: dict[str, Any]) -> dict[str, Any]:
        return {name: row[name] for name in ("step", "wall_s", "samples", "train_s") if pd.notna(row[name])}

    ended_by = logged.ours.get("ended_by") or ENDED_BY.get(record.status, "killed")
    end = {"reason": f"{logged.tool} has it as {record.status}", "ended_by": ended_by}
    events: list[dict[str, Any]] = [
        {"event": "started", "time": record.started_at},
        {"event": "began", "time": record.started_at, "clock_s": 0.0},
    ]
    for row in evaluated:
        value = row["value"] if math.isfinite(row["value"]) else None
        event = {"event": "evaluated", "time": _moment(row["time_ns"]), "metric": metric, "value": value}
        events.append(event | at(row) | {"metrics": {metric: value}})
    events.append({"event": "ended", "time": record.ended_at, "status": record.status} | end)
    with (folder / "events.jsonl").open("w", encoding="utf-8") as file, runs.disk_full_as_user_error(folder):
        file.writelines(json.dumps(runs.shielded(event), allow_nan=False) + "\n" for event in events)
    most = {name: max(points[name].dropna().tolist(), default=None) for name in ("wall_s", "step", *EXPORTED)}
    result: dict[str, Any] = end | {"wall_s": most.pop("wall_s") or 0.0, "target_reached": None}
    result |= {"steps": most.pop("step") or 0} | most
    values = np.array([row["value"] for row in evaluated])
    if target is not None:
        ends, targets = np.array([len(values)]), np.array([target])
        where = tracking.crossing(values, ends, targets, higher_is_better=bool(up)).item() if len(values) else -1
        result["target_reached"] = where >= 0
        if where >= 0:
            first = at(evaluated[where])
            result |= {"time_to_target_s": first["wall_s"], "samples_to_target": first.get("samples")}
    finite = values[np.isfinite(values)]
    if len(finite):
        result["best_validation"] = float(finite.max() if up else finite.min())
    return result


def _energy(folder: Path, record: runs.RunRecord, logged: Logged) -> dict[str, Any]:
    """Energy from the power that the tracker sampled, where one GPU is known to be the run's."""
    if len(record.devices) > 1:
        note = f"not measurable: {len(record.devices)} GPUs were sampled, and which of them the run used is not known"
        return {"energy_j": None, "energy_note": note}
    if not record.devices:
        return {"energy_j": None, "energy_note": f"not measurable: {logged.tool} sampled no power"}
    energy = telemetry.run_energy(folder)
    note = energy.note.replace("NVML power", f"power by {logged.tool}")
    return {"energy_j": energy.value_j, "energy_note": note}

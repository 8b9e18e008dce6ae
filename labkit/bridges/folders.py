"""The run folder that a run of another tracker becomes."""

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
import pyarrow as pa

from labkit import UserError, hardware, project, runs, telemetry, tracking
from labkit.bridges.counters import reading_of
from labkit.bridges.logged import (
    ENDED_BY,
    EXPORTED,
    PLACES,
    SEEDS,
    Logged,
    Point,
    Wishes,
    began_of,
    clean,
    in_order_of_time,
    is_number,
    refuse_without_times,
    scaled,
    setting,
)  # fmt: skip


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
    wanted, names = wishes.target, {point.name for point in logged.points}
    if wanted is None and logged.ours.get("target"):
        wanted = tracking.Target.from_json(logged.ours["target"])
    if wanted is not None and wanted.metric.name == "validation_loss" and "validation_loss" not in names:
        wanted = replace(wanted, metric=replace(wanted.metric, name="loss"))
    points = in_order_of_time(scaled(logged.points, wishes.percent), logged)
    extra = {name: {(p.step, p.time_ns): p.value for p in points if p.name == name} for name in EXPORTED if logged.ours}
    points = [point for point in points if point.name not in extra]
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
        columns = _write_metrics(place, points, began_of(logged), extra)
        _write_telemetry(place, logged)
        record.result = _write_events(place, record, points, columns, logged)
        record.save(place)
        record.result |= _energy(place, record, logged)
        record.save(place)
        shutil.rmtree(folder, ignore_errors=True)
        place.rename(folder)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return folder


def _refuse_per_cent(points: list[Point], metric: tracking.Metric, logged: Logged) -> None:
    is_share = metric.higher_is_better and metric.high == 1
    largest = max((each.value for each in points if each.name == metric.name and math.isfinite(each.value)), default=0)
    if is_share and largest > 1:
        raise UserError(
            f"run {clean(logged.name, 80)!r} of {logged.source}: its {metric.name} reaches {largest:g}, but "
            f"{metric.label} is a share: if it was logged in per cent, add --percent {metric.name}.",
            field="percent",
        )


def _watched(points: list[Point]) -> tracking.Target | None:
    """Where no target is given: the metric that figures begin with, which is one of labkit's, or a validation's."""
    names = list(dict.fromkeys(point.name for point in points))
    known = [name for name in names if name in tracking.METRICS]
    validated = [name for name in names if re.search(r"val|eval|test|acc|auc", name.lower())]
    if not names:
        return None
    name = [*known, *validated, *names][0]
    up = re.search(r"acc|auc|f1|score|precision|recall|reward|iou|map$", name.lower()) is not None
    return tracking.Target(tracking.metric_named(name, up), None)


def _record(logged: Logged, target: tracking.Target | None, wishes: Wishes) -> runs.RunRecord:
    name, gpu, seed = clean(logged.name, 200) or "run", logged.devices or _sampled_gpus(logged), logged.seed
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


def _sampled_gpus(logged: Logged) -> list[str]:
    """GPUs that the counters name, as "GPU 0"."""
    found = {reading_of(name).device for name in {point.name for point in logged.system}}
    return [f"GPU {name[3:]}" for name in sorted(found) if re.fullmatch(r"gpu\d+", name)]


def _moment(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns / 1e9, UTC).isoformat(timespec="milliseconds")


def _write_metrics(folder: Path, points: list[Point], began_ns: int, extra: dict[str, dict]) -> dict[str, list]:
    """Write the points as metrics, and return their columns."""
    keys = [(point.step, point.time_ns) for point in points]
    samples, train_s = (extra.get(name, {}) for name in EXPORTED)
    columns = {
        "step": [point.step for point in points],
        "wall_s": [(point.time_ns - began_ns) / 1e9 for point in points],
        "train_s": [train_s.get(key) for key in keys],
        "samples": [None if (count := samples.get(key)) is None else int(count) for key in keys],
        "name": [point.name for point in points],
        "value": [point.value for point in points],
    }
    if points:
        runs.write_part(pa.table(columns, schema=runs.METRICS), runs.part_path(folder / "metrics", 0))
    return columns


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


def _write_events(
    folder: Path, record: runs.RunRecord, points: list[Point], columns: dict[str, list], logged: Logged
) -> Any:
    """Write the events of the run, and return its result."""
    train = record.config["train"]
    metric, target, up = (train.get(name) for name in ("target_metric", "target", "higher_is_better"))
    evaluated = [place for place, point in enumerate(points) if point.name == metric]

    def at(place: int) -> dict[str, Any]:
        known = {name: columns[name][place] for name in ("step", "wall_s", "samples", "train_s")}
        return {name: value for name, value in known.items() if value is not None}

    ended_by = logged.ours.get("ended_by") or ENDED_BY.get(record.status, "killed")
    end = {"reason": f"{logged.tool} has it as {record.status}", "ended_by": ended_by}
    events: list[dict[str, Any]] = [
        {"event": "started", "time": record.started_at},
        {"event": "began", "time": record.started_at, "clock_s": 0.0},
    ]
    for place in evaluated:
        value = points[place].value if math.isfinite(points[place].value) else None
        event = {"event": "evaluated", "time": _moment(points[place].time_ns), "metric": metric, "value": value}
        events.append(event | at(place) | {"metrics": {metric: value}})
    events.append({"event": "ended", "time": record.ended_at, "status": record.status} | end)
    with (folder / "events.jsonl").open("w", encoding="utf-8") as file, runs.disk_full_as_user_error(folder):
        file.writelines(json.dumps(runs.shielded(event), allow_nan=False) + "\n" for event in events)
    result: dict[str, Any] = end | {"wall_s": max(columns["wall_s"], default=0.0), "target_reached": None}
    result["steps"] = max(columns["step"], default=0)
    for name in EXPORTED:
        result[name] = max((count for count in columns[name] if count is not None), default=None)
    values = np.array([points[place].value for place in evaluated])
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

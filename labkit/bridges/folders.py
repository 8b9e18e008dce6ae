"""The run folder that a run of another tracker becomes."""

import hashlib
import json
import math
import re
import shutil
from collections import defaultdict
from collections.abc import Iterator
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
    given = wishes.target
    if given is None and logged.ours.get("target"):
        given = tracking.Target.from_json(logged.ours["target"])
    wanted = _renamed(given, logged)
    points = in_order_of_time(scaled(logged.points, wishes.percent), logged)
    extra = {name: {(p.step, p.time_ns): p.value for p in points if p.name == name} for name in EXPORTED if logged.ours}
    points = [point for point in points if point.name not in extra]
    began_ns = began_of(logged)
    if wanted is not None:
        _refuse_per_cent(points, wanted.metric, logged)
    record = _record(logged, wanted or _watched(points), wishes)
    folder, place = runs_dir / record.id, runs_dir / f".{record.id}.importing"
    if (folder / "run.json").is_file() and "imported" not in runs.read_run(folder).config:
        raise UserError(f"{folder} is a run of labkit's own: choose another folder with --into.")
    try:
        shutil.rmtree(place, ignore_errors=True)
        with runs.disk_full_as_user_error(runs_dir):
            (place / "metrics").mkdir(parents=True)
        _write_metrics(place, points, began_ns, extra)
        _write_telemetry(place, logged)
        record.result = _write_events(place, record, points, began_ns, extra, logged)
        record.save(place)
        record.result |= _energy(place, record, logged)
        record.save(place)
        shutil.rmtree(folder, ignore_errors=True)
        place.rename(folder)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return folder


def _renamed(target: tracking.Target | None, logged: Logged) -> tracking.Target | None:
    """The target, with "loss" as the name of its metric where the tracker has no "validation_loss"."""
    names = {point.name for point in logged.points}
    if target is not None and target.metric.name == "validation_loss" and "validation_loss" not in names:
        return replace(target, metric=replace(target.metric, name="loss"))
    return target


def _refuse_per_cent(points: list[Point], metric: tracking.Metric, logged: Logged) -> None:
    is_share = metric.higher_is_better and metric.high == 1
    largest = max((each.value for each in points if each.name == metric.name and math.isfinite(each.value)), default=0)
    if is_share and largest > 1:
        raise UserError(
            f"run {clean(logged.name, 80)!r} of {logged.source}: its {metric.name} reaches {largest:g}, but "
            f"{metric.label} is a share: if it was logged in per cent, add --percent {metric.name}."
        )


def _watched(points: list[Point]) -> tracking.Target | None:
    """Where no target is given: the metric that figures begin with, which is one of labkit's, or a validation's."""
    names = list(dict.fromkeys(point.name for point in points))
    known = [name for name in names if name in tracking.METRICS]
    validated = [name for name in names if re.search(r"val|eval|test|acc|auc", name.lower())]
    if not names:
        return None
    name = next(iter([*known, *validated, *names]))
    up = re.search(r"acc|auc|f1|score|precision|recall|reward|iou|map$", name.lower()) is not None
    return tracking.Target(tracking.metric_named(name, up), None)


def _record(logged: Logged, target: tracking.Target | None, wishes: Wishes) -> runs.RunRecord:
    settings = {clean(name, 200): value for name, value in logged.settings.items()}
    seed = logged.seed
    places, kept = {}, {}
    for name, value in settings.items():
        last = re.split(r"[./]", name)[-1].lower()
        plain = setting(value)
        is_seed = name == wishes.seed_name if wishes.seed_name else last in SEEDS
        if is_seed and isinstance(plain, int | float) and not isinstance(plain, bool) and plain == int(plain):
            seed = int(plain) if seed is None else seed
        elif last in PLACES and not logged.ours:
            places[name] = plain
        else:
            kept[name] = plain
    name, gpu = clean(logged.name, 200) or "run", logged.devices or _sampled_gpus(logged)
    sections, train = _sections(kept) if logged.ours else ({}, kept)
    if target is not None:
        train |= {"target_metric": target.metric.name, "higher_is_better": target.metric.higher_is_better}
        train["target"] = target.value
    imported: dict[str, Any] = {
        "tool": logged.tool,
        "id": clean(logged.id, 200),
        "name": name,
        "source": clean(logged.source, 500),
    }
    imported |= {"left_out": dict(logged.left_out), "notes": logged.notes, "places": places}
    config: Any = {"job": clean(logged.group, 120) or name, **sections, "train": train, "imported": imported}
    if logged.data:
        config.setdefault("data", logged.data)
    devices: list[Any] = [
        {"kind": "gpu", "index": index, "name": clean(each, 100), "torch_name": f"cuda:{index}", "uuid": f"gpu{index}"}
        for index, each in enumerate(gpu)
    ]
    left = ", ".join(f"{count} {what}" for what, count in logged.left_out.items())
    note = "; ".join([f"from {clean(logged.source, 200)}", *([f"without {left}"] if left else []), *logged.notes])
    ended_ns = logged.ended_ns or max(point.time_ns for point in (*logged.points, *logged.system))
    tier = wishes.tier or logged.ours.get("tier")
    by = f"{logged.tool}, read by labkit {project.VERSION}"
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
        provenance=runs.Provenance("recorded", by, _moment(began_of(logged)), note),
        status=logged.status,
        pid=0,
        pid_started=0.0,
        started_at=_moment(began_of(logged)),
        ended_at=_moment(max(ended_ns, began_of(logged))),
    )


def _sections(settings: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings that an export of labkit's flattened, as sections and those of the training."""
    sections: dict[str, Any] = {}
    for name in [name for name in settings if "." in name]:
        section, _, own = name.partition(".")
        sections.setdefault(section, {})[own] = settings.pop(name)
    return sections, settings


def _sampled_gpus(logged: Logged) -> list[str]:
    """GPUs that the counters name, as "GPU 0"."""
    found = {reading_of(name).device for name in {point.name for point in logged.system}}
    return [f"GPU {name[3:]}" for name in sorted(found) if re.fullmatch(r"gpu\d+", name)]


def _moment(time_ns: int) -> str:
    return datetime.fromtimestamp(time_ns / 1e9, UTC).isoformat(timespec="milliseconds")


def _write_metrics(folder: Path, points: list[Point], began_ns: int, extra: dict[str, dict]) -> None:
    keys = [(point.step, point.time_ns) for point in points]
    samples, train_s = (extra.get(name, {}) for name in EXPORTED)
    columns = {
        "step": [point.step for point in points],
        "wall_s": [(point.time_ns - began_ns) / 1e9 for point in points],
        "train_s": [train_s.get(key) for key in keys],
        "samples": [None if (count := samples.get(key)) is None else int(count) for key in keys],
        "name": [clean(point.name, 200) for point in points],
        "value": [point.value for point in points],
    }
    if points:
        runs.write_part(pa.table(columns, schema=runs.METRICS), runs.part_path(folder / "metrics", 0))


def _write_telemetry(folder: Path, logged: Logged) -> None:
    """The counters as telemetry, with a note where the tracker wrote a number for a missing value."""
    series = defaultdict(list)
    for point in logged.system:
        series[point.name].append((point.time_ns, point.value))
    columns: dict[str, list] = {name: [] for name in runs.TELEMETRY.names}
    tool = logged.tool.partition(" ")[0]
    for name, samples in series.items():
        counter = reading_of(clean(name, 200))
        samples = sorted(set(samples))
        values, notes = counter.values([value for _, value in samples])
        count = len(samples)
        own = {
            "device": counter.device,
            "scope": counter.scope,
            "counter": counter.name,
            "unit": counter.unit,
            "source": tool,
        }
        columns["time_ns"] += [time_ns for time_ns, _ in samples]
        columns["value"] += values
        columns["note"] += notes
        columns["pid"] += [None] * count
        for column, value in own.items():
            columns[column] += [value] * count
    if series:
        (folder / "telemetry").mkdir()
        table = pa.table(columns, schema=runs.TELEMETRY)
        order = [(name, "ascending") for name in ("device", "scope", "counter", "time_ns")]
        runs.write_part(table.sort_by(order), runs.part_path(folder / "telemetry", 0))


def _write_events(
    folder: Path, record: runs.RunRecord, points: list[Point], began_ns: int, extra: dict[str, dict], logged: Logged
) -> Any:
    """Write the events of the run, and return its result."""
    train = record.config["train"]
    metric, target = train.get("target_metric"), train.get("target")
    evaluated = [point for point in points if point.name == metric]
    values = np.array([point.value for point in evaluated])
    samples, train_s = (extra.get(name, {}) for name in EXPORTED)

    def at(point: Point) -> dict[str, Any]:
        key = (point.step, point.time_ns)
        known = {"samples": samples.get(key), "train_s": train_s.get(key)}
        place = {"step": point.step, "wall_s": (point.time_ns - began_ns) / 1e9}
        return place | {name: value for name, value in known.items() if value is not None}

    def lines() -> Iterator[dict[str, Any]]:
        yield {"event": "started", "time": record.started_at}
        yield {"event": "began", "time": record.started_at, "clock_s": 0.0}
        for point in evaluated:
            value = point.value if math.isfinite(point.value) else None
            yield {
                "event": "evaluated",
                "time": _moment(point.time_ns),
                "metric": metric,
                "value": value,
                **at(point),
            } | {"metrics": {metric: value}}
        yield {
            "event": "ended",
            "time": record.ended_at,
            "status": record.status,
            "reason": reason,
            "ended_by": ended_by,
        }

    ended_by = logged.ours.get("ended_by") or ENDED_BY.get(record.status, "killed")
    reason = f"{logged.tool} has it as {record.status}"
    with (folder / "events.jsonl").open("w", encoding="utf-8") as file, runs.disk_full_as_user_error(folder):
        for line in lines():
            file.write(json.dumps(runs.shielded(line), allow_nan=False) + "\n")
    last = max((point.time_ns for point in points), default=began_ns)
    result: dict[str, Any] = {"reason": reason, "ended_by": ended_by, "wall_s": (last - began_ns) / 1e9}
    result |= {"steps": max((point.step or 0 for point in points), default=0), "target_reached": None}
    result |= {"samples": max(samples.values(), default=None), "train_s": max(train_s.values(), default=None)}
    if target is not None:
        up = bool(train["higher_is_better"])
        where = (
            int(tracking.crossing(values, np.array([len(values)]), np.array([target]), higher_is_better=up).item())
            if len(values)
            else -1
        )
        result["target_reached"] = where >= 0
        if where >= 0:
            reached = at(evaluated[where])
            result |= {"time_to_target_s": reached["wall_s"], "samples_to_target": reached.get("samples")}
    finite = values[np.isfinite(values)]
    if len(finite):
        result["best_validation"] = float(finite.max() if train["higher_is_better"] else finite.min())
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

"""What a run folder gives to other trackers: its points with their true times, its counters, and its settings."""

import contextlib
import json
from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from labkit import runs
from labkit.bridges.logged import EXPORTED, Point, flattened

LARGEST = 200_000
"""Points that are taken from a part at a time"""


def rows(folder: Path) -> Iterator[tuple[int, list[Point]]]:
    """The points of a run that count, by the number of their part; next to evaluations also samples and train_s."""
    (first, starts), events = clock_starts(folder), runs.read_events(folder)
    for path in runs.current_parts(folder / "metrics"):
        number = runs.part_numbers(path)[0]
        table = pa.concat_tables([runs.METRICS.empty_table(), *runs.metrics_tables([path], events)])
        began_ns, points, seen = starts[bisect_right(first, number) - 1], [], set()
        for step, wall_s, train_s, samples, name, value in zip(*table.to_pydict().values(), strict=True):
            time_ns = began_ns + round(wall_s * 1e9)
            points.append(Point(name, step, time_ns, float("nan") if value is None else value))
            if name != "loss" and (step, time_ns) not in seen:
                seen.add((step, time_ns))
                extra = zip(EXPORTED, (samples, train_s), strict=True)
                points += [Point(each, step, time_ns, float(own)) for each, own in extra if own is not None]
        yield number, points


def clock_starts(folder: Path) -> tuple[list[int], list[int]]:
    """For each process that trained a run: its first part, and when its clock was at zero, in ns since 1970."""
    first, starts = [0], [runs.moment_ns(runs.read_run(folder).started_at)]
    for event in runs.read_events(folder):
        if event["event"] == "resumed":
            first.append(event["parts"])
            starts.append(runs.moment_ns(event["time"]))
        elif event["event"] == "began":  # its clock was at clock_s then
            starts[-1] = runs.moment_ns(event["time"]) - round(event["clock_s"] * 1e9)
    return first, starts


def counters(folder: Path, since_ns: int = 0) -> Iterator[list[Point]]:
    """The samples of a run from a time on, part by part; one without a value is NaN."""
    columns = ["time_ns", "scope", "device", "counter", "value"]
    for path in runs.current_parts(folder / "telemetry"):
        try:
            table = runs.read_part(path, runs.TELEMETRY, columns)
        except FileNotFoundError:
            continue  # it was merged since it was listed, and is sent with the next look
        if table is None:
            continue
        table = table.filter(pc.field("time_ns") >= since_ns).sort_by("time_ns").select(columns)
        for batch in table.to_batches(LARGEST):
            points = [
                Point(f"system/{scope}/{device}/{counter}", None, time_ns, float("nan") if value is None else value)
                for time_ns, scope, device, counter, value in zip(*batch.to_pydict().values(), strict=True)
            ]
            if points:
                yield points


def settings(record: runs.RunRecord) -> dict[str, Any]:
    """The settings that decide a run: of the training by their names, of other sections as in "data.name"."""
    omit = ("target", "target_metric", "higher_is_better")
    train = {name: value for name, value in record.config.get("train", {}).items() if name not in omit}
    others = {
        name: value
        for name, value in record.config.items()
        if isinstance(value, dict) and name not in ("train", "settings", "budget", "imported")
    }
    flat = flattened(train) | flattened(others)
    return {name: value for name, value in flat.items() if value is not None}


def text_of(value: Any) -> str:
    """A setting as text: lists as JSON has them."""
    return json.dumps(value) if isinstance(value, list | dict) else str(value)


def about(folder: Path, record: runs.RunRecord) -> dict[str, Any]:
    """What other trackers have no place for, as an import of ours reads it."""
    train = record.config.get("train", {})
    known: dict[str, Any] = {"run": record.id, "name": record.name, "seed": record.seed, "tier": record.tier}
    known |= {"budget": record.ran_under, "clock_ns": clock_starts(folder)[1][0]}
    known |= {"status": record.status, "ended_by": dict(record.result or {}).get("ended_by")}
    if train.get("target_metric"):
        known["target"] = {"metric": train["target_metric"], "value": train.get("target")}
        known["target"]["higher_is_better"] = train.get("higher_is_better")
    return known | {"provenance": record.provenance.kind}


def export_trackio(folder: Path, place: Path) -> int:
    """Write a run into the Trackio folder `place`, once: rows that are there stay. Returns the number of rows."""
    from labkit.bridges.trackio_runs import storage_in

    record = runs.read_run(folder)
    project = str(record.config.get("job", record.name))[:100]
    config = settings(record) | {"labkit": about(folder, record)}
    count = 0
    with storage_in(place) as storage:
        for part, points in rows(folder):
            steps: dict[tuple[int | None, int], dict[str, float]] = {}
            for point in points:
                steps.setdefault((point.step, point.time_ns), {})[point.name] = point.value
            ids = [f"{record.id}/{part}/{number}" for number in range(len(steps))]
            numbers, when = [step for step, _ in steps], [_text(time_ns) for _, time_ns in steps]
            storage.bulk_log(
                project, record.id, [*steps.values()], numbers, when, config, log_ids=ids, run_id=record.id
            )
            count += len(steps)
        number = 0
        for samples in counters(folder):
            moments: dict[int, dict[str, float]] = {}
            for each in samples:
                if each.value == each.value:
                    moments.setdefault(each.time_ns, {})[each.name] = each.value
            ids = [f"{record.id}/system/{number + place}" for place in range(len(moments))]
            number += len(moments)
            when = [_text(time_ns) for time_ns in moments]
            storage.bulk_log_system(project, record.id, [*moments.values()], when, log_ids=ids, run_id=record.id)
    return count


def _text(time_ns: int) -> str:
    """A time as Trackio has it, which is to the microsecond."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_ns / 1000)).isoformat()


def export_csv(folders: list[Path], place: Path) -> list[Path]:
    """Write runs.csv, metrics.csv and telemetry.csv of several runs into the folder `place`."""
    place.mkdir(parents=True, exist_ok=True)
    listed = []
    for folder in folders:
        record = runs.read_run(folder)
        row = {"started_at": record.started_at} | about(folder, record)
        listed.append({name: value for name, value in row.items() if name != "target"} | settings(record))
    names = list(dict.fromkeys(name for row in listed for name in row))
    texts = {name: [None if row.get(name) is None else text_of(row[name]) for row in listed] for name in names}
    written = [place / f"{name}.csv" for name in ("runs", "metrics", "telemetry")]
    with runs.disk_full_as_user_error(place):
        pyarrow.csv.write_csv(pa.table(texts), written[0])
        for path in written[1:]:
            with contextlib.ExitStack() as stack:
                writer = None
                for folder in folders:
                    for table in _parts(folder, path.stem):
                        own = table.add_column(0, "run", pa.repeat(folder.name, len(table)))
                        writer = writer or stack.enter_context(pyarrow.csv.CSVWriter(path, own.schema))
                        writer.write_table(own)
                if writer is None:
                    path.unlink(missing_ok=True)
    return [path for path in written if path.exists()]


def _parts(folder: Path, kind: str) -> Iterator[pa.Table]:
    paths = runs.current_parts(folder / kind)
    if kind == "metrics":
        return runs.metrics_tables(paths, runs.read_events(folder))
    return (table for path in paths if (table := runs.read_part(path, runs.TELEMETRY)) is not None)

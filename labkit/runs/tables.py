"""The tables that a query sees: their columns, and how the rows of a run's folder become rows of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from labkit.runs.frames import list_row, metrics_tables, read_events
from labkit.runs.parts import METRICS, TELEMETRY, TELEMETRY_WORDS, WORD, current_parts, read_part
from labkit.runs.published import recorded
from labkit.runs.record import RunRecord, moment_ns, unreached

_TEXTS = "run folder name job budget tier group_name status provenance target_metric outcome ended_by reason disturbed"
_NUMBERS = "target time_to_target_s samples_to_target wall_s train_s samples samples_per_s peak_memory_bytes"
RUNS = pa.schema(
    [
        *((name, pa.string()) for name in _TEXTS.split()),
        *((name, pa.bool_()) for name in ["target_reached", "higher_is_better", "profiled", "trial"]),
        *((name, pa.float64()) for name in f"{_NUMBERS} peak_gpu_memory_bytes energy_j".split()),
        *((name, pa.string()) for name in ["energy_note", "host", "device", "git_commit"]),
        *((name, pa.int64()) for name in ["seed", "started_ns", "ended_ns"]),
        *((name, pa.string()) for name in ["config", "result", "software"]),  # JSON
    ]
)
_EVENTS = pa.schema(
    [
        *(("event", WORD), ("time_ns", pa.int64())),
        *((name, pa.float64()) for name in ["step", "wall_s", "train_s", "samples"]),
        ("content", pa.string()),
    ]
)


def _read_metrics(folder: Path) -> Iterator[pa.Table]:
    for table in metrics_tables(current_parts(folder / "metrics"), read_events(folder)):
        name = METRICS.get_field_index("name")
        yield table.set_column(name, "name", table["name"].dictionary_encode())


def _read_telemetry(folder: Path) -> Iterator[pa.Table]:
    for path in current_parts(folder / "telemetry"):
        if (table := read_part(path, TELEMETRY_WORDS)) is not None:
            yield table


def _read_events(folder: Path) -> Iterator[pa.Table]:
    rows = []
    for event in read_events(folder):
        row: dict[str, Any] = {name: event.get(name) for name in _EVENTS.names} | {"time_ns": moment_ns(event["time"])}
        row |= {name: float(row[name]) for name in ("step", "samples") if row[name] is not None}
        rows.append(row | {"content": json.dumps({key: event[key] for key in event if key not in _EVENTS.names})})
    yield pa.Table.from_pylist(rows, _EVENTS)


class Kind(NamedTuple):
    """A table of the rows of all runs."""

    schema: pa.Schema
    source: str
    """What of a run's folder has the rows"""
    read: Callable[[Path], Iterator[pa.Table]]
    sort_by: tuple[str, ...]
    """Columns of text whose equal rows lie together; among these the recorded order stays"""

    @property
    def words(self) -> list[str]:
        return [each.name for each in self.schema if pa.types.is_dictionary(each.type)]


def _of_runs(schema: pa.Schema) -> pa.Schema:
    words = (each.with_type(WORD) if each.type == pa.string() and each.name != "content" else each for each in schema)
    return pa.schema([("run", WORD), *(each.with_nullable(True) for each in words)])


KINDS = {
    "metrics": Kind(_of_runs(METRICS), "metrics", _read_metrics, ("name", "run")),
    "telemetry": Kind(_of_runs(TELEMETRY), "telemetry", _read_telemetry, ("counter", "run", "device", "scope")),
    "events": Kind(_of_runs(_EVENTS), "events.jsonl", _read_events, ("run",)),
}


def run_row(folder: Path, record: RunRecord) -> dict[str, Any]:
    """The row of a run in the table `runs`."""
    result: dict[str, Any] = dict(record.result or {})
    train: dict[str, Any] = dict(record.config.get("train", {}))
    missed = unreached(record.status, result, train.get("max_seconds"))
    listed = list_row(folder, record)
    values = {
        **result,
        **listed,
        **{name: getattr(record, name) for name in ("name", "tier", "host", "git_commit", "seed")},
        "run": folder.name,
        "group_name": listed["group"],
        "higher_is_better": train.get("higher_is_better"),
        "ended_by": None if result.get("ended_by") is None else str(result["ended_by"]),
        "outcome": None if train.get("target") is None else "reached" if result.get("target_reached") else missed,
        "device": next((device.get("name") for device in record.devices), None),
        "started_ns": moment_ns(record.started_at),
        "ended_ns": None if record.ended_at is None else moment_ns(record.ended_at),
        **{name: json.dumps(getattr(record, name)) for name in ("config", "result", "software")},
    }
    for each in RUNS:
        if (value := values.get(each.name)) is not None and pa.types.is_floating(each.type):
            values[each.name] = float(value)
    return {name: values.get(name) for name in RUNS.names}


NO_SETTINGS = ("profile", "collocation", "sweep", "settings", "data")
"""Sections of a configuration that say how a run was started"""


def settings_table(runs: pa.Table) -> pa.Table:
    """One row per run, one column per setting of any of them: those of its job, its sections and its sweep.

    A column is of booleans, integers, numbers or text, whichever has room for all its values, which are never guessed
    from text. Names that differ only in case, which SQL takes for one, get a number.
    """
    columns: dict[str, dict[int, Any]] = {}
    for row, text in enumerate(runs["config"].to_pylist()):
        config = json.loads(text)
        sections = [config.get("settings"), *(each for name, each in config.items() if name not in NO_SETTINGS)]
        sections += [config.get("sweep", {}).get("settings"), config.get("train")]
        data = {f"data_{name}": value for name, value in config.get("data", {}).items()}
        for section in (*sections, data):
            for name, value in section.items() if isinstance(section, dict) else ():
                if isinstance(value, str | int | float):
                    columns.setdefault(name, {})[row] = value
    arrays, taken = {"run": runs["run"].combine_chunks()}, {"run"}
    for name, values in columns.items():
        number, column = 1, name
        while column.lower() in taken:
            column = f"{name}_{(number := number + 1)}"
        taken.add(column.lower())
        arrays[column] = pa.array([_typed(values)(values[row]) if row in values else None for row in range(len(runs))])
    return pa.table(arrays)


def _typed(values: dict[int, Any]) -> Callable[[Any], Any]:
    kinds = {type(each) for each in values.values()}
    if kinds <= {int, float}:
        return int if kinds == {int} else float
    return bool if kinds == {bool} else lambda value: value if isinstance(value, str) else json.dumps(value)


def recorded_rows(recording: str | Path) -> tuple[pa.Table, pa.Table]:
    """The runs of a recording and their evaluations, as rows of `runs` and `metrics`."""
    found = recorded(recording)
    rows = []
    for each in found.runs.to_dict("records"):
        row = {name: each[name] for name in RUNS.names if name in each and each[name] == each[name]}  # not NaN
        settings = {name: value for name, value in each["settings"].items() if value is not None and name != "budget"}
        row |= {"name": each["job"], "target_metric": each["metric"], "profiled": False, "trial": False}
        rows.append(row | {"config": json.dumps({"train": settings}), "result": "{}", "software": "{}"})
    metrics = pa.Table.from_pandas(found.curves.rename(columns={"metric": "name"}), preserve_index=False)
    schema, columns = KINDS["metrics"].schema, {}
    for each in schema:
        column = metrics[each.name] if each.name in metrics.column_names else pa.nulls(len(metrics), each.type)
        columns[each.name] = column if pa.types.is_dictionary(column.type) else column.cast(each.type, safe=False)
    return pa.Table.from_pylist(rows, RUNS), pa.table(columns, schema)

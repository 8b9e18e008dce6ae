"""Follows a run while it grows: each call gives what came since the last one, and each row once."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from labkit import UserError
from labkit.runs.frames import events_since, metrics_tables

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Cursor:
    """How far a reader has read a run."""

    metrics: int = 0
    """Number of the next part of metrics"""
    telemetry: int = 0
    """Number of the next part of telemetry"""
    time_ns: int = -1
    """Latest time in the last part of telemetry that was read: parts may since have been merged into one"""
    events: int = 0
    """Bytes of events.jsonl"""


START = Cursor()


class News(NamedTuple):
    """What a run has written since a cursor."""

    cursor: Cursor
    """For the next call"""
    metrics: pa.Table
    telemetry: pa.Table
    """Text columns are dictionaries"""
    events: list[dict[str, Any]]
    kept_steps: int | None
    """Where a resume took back rows that earlier calls gave: those beyond this step no longer count"""


def read_since(
    folder: Path | str, cursor: Cursor = START, *, only: Collection[str] = ("metrics", "telemetry", "events")
) -> News:
    """What a run has written since `cursor`, without rows that a resume took back.

    `only` names what to read of it ("metrics" takes "events" along); the cursor stays where it is for the rest.

    A damaged part, and a line that is not an event, is noted and left out.

    Raises:
        UserError: the folder is gone.
    """
    folder = Path(folder)
    for _ in range(3):
        try:
            return _read_since(folder, cursor, only)
        except FileNotFoundError:  # a part was merged into another one since it was listed
            if not (folder / "run.json").is_file():
                break
    raise UserError(f"{folder}: this run is gone, or was moved, while it was read: list the runs again.")


def _read_since(folder: Path, cursor: Cursor, only: Collection[str]) -> News:
    import pyarrow as pa
    import pyarrow.compute as pc

    from labkit.runs.parts import METRICS, TELEMETRY_WORDS, current_parts, part_numbers, read_part

    def unread(table: str, first: int) -> list[Path]:
        if table not in only:
            return []
        return [path for path in current_parts(folder / table) if part_numbers(path)[-1] >= first]

    def after(paths: list[Path], first: int) -> int:
        return part_numbers(paths[-1])[-1] + 1 if paths else first

    if not (folder / "run.json").is_file():
        raise FileNotFoundError(folder)
    parts = unread("metrics", cursor.metrics)  # before the events: a resume says which parts were there before it
    reads_events = "metrics" in only or "events" in only
    events, end = events_since(folder, cursor.events) if reads_events else ([], cursor.events)
    kept = [event["step"] for event in events if event["event"] == "resumed"]
    if kept:
        parts = unread("metrics", cursor.metrics)
    metrics = pa.concat_tables([METRICS.empty_table(), *metrics_tables(parts, events)])

    samples, time_ns, tables = unread("telemetry", cursor.telemetry), cursor.time_ns, [TELEMETRY_WORDS.empty_table()]
    for path in samples:
        table = read_part(path, TELEMETRY_WORDS)
        if table is None or not len(table):
            continue
        latest = int(table["time_ns"].to_numpy().max())
        if part_numbers(path)[0] < cursor.telemetry:  # small parts that were read are in it, all of one sampler
            table = table.filter(pc.field("time_ns") > cursor.time_ns)
        time_ns = latest
        tables.append(table)
    telemetry = pa.concat_tables(tables).unify_dictionaries()
    read_to = Cursor(after(parts, cursor.metrics), after(samples, cursor.telemetry), time_ns, end)
    return News(read_to, metrics, telemetry, events, min(kept, default=None))

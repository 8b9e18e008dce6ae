"""The run folder: the only thing producers write and the only thing readers read."""

from labkit.runs.events import read_events
from labkit.runs.query import find_run, list_runs, read_metrics, read_telemetry
from labkit.runs.record import SCHEMA_VERSION, Provenance, RunRecord, read_run
from labkit.runs.recording import read_card, recorded, recorded_table, recordings
from labkit.runs.writer import RunWriter, lock_run, request_stop

__all__ = [
    "SCHEMA_VERSION",
    "Provenance",
    "RunRecord",
    "RunWriter",
    "find_run",
    "list_runs",
    "lock_run",
    "read_card",
    "read_events",
    "read_metrics",
    "read_run",
    "read_telemetry",
    "recorded",
    "recorded_table",
    "recordings",
    "request_stop",
]

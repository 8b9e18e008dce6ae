"""What a live view needs of a run, read from its folder alone, so that any process or kernel may watch it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from labkit.runs import read_events, read_run
from labkit.telemetry.energy import gpu_of
from labkit.telemetry.latest import Latest
from labkit.telemetry.tail import Tail

SHOWN = {
    ("process", "cpu_percent"): "CPU of the run (% of a core)",
    ("process", "memory_resident"): "Memory of the run (GiB)",
    ("device", "gpu_utilisation"): "GPU with a kernel running (% of time)",
    ("device", "memory_used"): "GPU memory (GiB)",
}
"""Telemetry series that are drawn, with their titles."""


@dataclass
class Series:
    """Points of one curve; x in seconds."""

    x: list[float] = field(default_factory=list)
    y: list[float] = field(default_factory=list)


@dataclass
class Snapshot:
    """A run at one moment."""

    name: str
    """Job and data."""
    budget: str
    status: str
    provenance: str
    metric_name: str
    """The target's, else the first that was evaluated; empty before that."""
    target: float | None
    metric: Series
    loss: Series
    throughput: Series
    telemetry: dict[str, Series]
    """By title; x is seconds since the first sample, a moment before training begins."""
    counters: Latest
    """Every counter, with its latest value."""
    result: dict[str, Any]


class RunFeed:
    """Reads a run folder again and again, its telemetry part by part."""

    def __init__(self, folder: Path | str):
        self.folder = Path(folder)
        self._telemetry: dict[str, Series] = {}
        self._tail, self._latest = Tail(folder), Latest()
        self._first_ns: int | None = None

    def read(self) -> Snapshot:
        """The run as it is now.

        Raises:
            UserError: this is no run folder.
        """
        record = read_run(self.folder)
        metric, loss, throughput = Series(), Series(), Series()
        config = record.config
        train, data = config.get("train", {}), config.get("data", {}).get("name")
        metric_name = train.get("target_metric") or ""
        for event in read_events(self.folder):
            if event["event"] != "evaluated" or "wall_s" not in event:
                continue
            metrics = event.get("metrics", {})
            metric_name = metric_name or next(iter(metrics), "")
            for series, value in (
                (metric, metrics.get(metric_name)),
                (loss, event.get("loss")),
                (throughput, event.get("samples_per_s")),
            ):
                if value is not None:
                    series.x.append(event["wall_s"])
                    series.y.append(value)
        self._read_new_telemetry(gpu_of(record.devices, str(record.budget.get("torch_name"))).uuid)
        job = str(config.get("job", record.name))
        return Snapshot(
            job if data is None else f"{job} on {data}",
            str(record.budget.get("name", "whole machine")),
            record.status,
            record.provenance.kind,
            metric_name,
            train.get("target"),
            metric,
            loss,
            throughput,
            self._telemetry,
            self._latest,
            record.result or {},
        )

    def wait_for_end(self, timeout_s: float, look_every_s: float = 0.2) -> str:
        """The status when the run is over, or when the time is up."""
        end = time.monotonic() + timeout_s
        while (status := read_run(self.folder).status) == "running" and time.monotonic() < end:
            time.sleep(look_every_s)
        return status

    def _read_new_telemetry(self, own_gpu: str | None) -> None:
        """Take the rows that are new; of several GPUs only those of the one that the run computes on."""
        rows = self._tail.rows()
        self._latest.take(row.reading for row in rows)
        for time_ns, reading in rows:
            title = SHOWN.get((reading.scope, reading.counter))
            if title is None or reading.value is None or (reading.scope == "device" and reading.device != own_gpu):
                continue
            if self._first_ns is None:
                self._first_ns = time_ns
            series = self._telemetry.setdefault(title, Series())
            series.x.append((time_ns - self._first_ns) / 1e9)
            series.y.append(reading.value / 2**30 if reading.unit == "bytes" else reading.value)

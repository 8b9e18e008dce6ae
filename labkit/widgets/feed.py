"""What a live view needs of a run, read from its folder alone, so that any process or kernel may watch it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from labkit.plots import metric_label
from labkit.runs import RunRecord, read_events, read_run
from labkit.telemetry import Tail, gpu_of

SHOWN = {
    ("process", "cpu_percent"): "CPU of the run (% of a core)",
    ("process", "memory_resident"): "Memory of the run (GiB)",
    ("device", "gpu_utilisation"): "GPU with a kernel running (% of time)",
    ("device", "memory_used"): "GPU memory (GiB)",
}
"""Telemetry series that are drawn, with their titles."""


@dataclass
class Snapshot:
    """A run at one moment."""

    record: RunRecord
    panels: dict[str, tuple[list[float], list[float]]]
    """Seconds and values by title: the metric, training loss, throughput, then telemetry, whose seconds count from the
    first sample, a moment before training begins"""

    def __str__(self) -> str:
        """Its state in one sentence."""
        config, metric = self.record.config, next(iter(self.panels))
        data, (seconds, values) = config.get("data", {}).get("name"), self.panels[metric]
        name = str(config.get("job", self.record.name)) + (f" on {data}" if data else "")
        words = f"{name}, {self.record.budget.get('name', 'whole machine')}: {self.record.status}"
        if values:
            words += f", {seconds[-1]:.1f} s, {metric} {values[-1]:.4f}"
        reason = (self.record.result or {}).get("reason")
        return f"{words} ({reason})." if reason and self.record.status != "running" else f"{words}."


class RunFeed:
    """Reads a run folder again and again, its telemetry part by part."""

    def __init__(self, folder: Path | str):
        self.folder = Path(folder)
        self._telemetry: dict[str, tuple[list[float], list[float]]] = {}
        self._tail = Tail(folder)
        self._first_ns: int | None = None

    def read(self) -> Snapshot:
        """The run as it is now.

        Raises:
            UserError: this is no run folder.
        """
        record = read_run(self.folder)
        evaluated = [each for each in read_events(self.folder) if each["event"] == "evaluated" and "wall_s" in each]
        metrics = [each.get("metrics", {}) for each in evaluated]
        metric = record.config.get("train", {}).get("target_metric")
        metric = metric or next((name for names in metrics for name in names), "")
        told = {
            metric_label(metric) or "Metric": [each.get(metric) for each in metrics],
            "Training loss": [each.get("loss") for each in evaluated],
            "Throughput (samples/s)": [each.get("samples_per_s") for each in evaluated],
        }
        panels = {}
        for title, values in told.items():
            points = [(at["wall_s"], value) for at, value in zip(evaluated, values, strict=True) if value is not None]
            panels[title] = [seconds for seconds, _ in points], [value for _, value in points]
        self._read_new_telemetry(gpu_of(record.devices, str(record.budget.get("torch_name"))))
        return Snapshot(record, panels | self._telemetry)

    def _read_new_telemetry(self, own_gpu: str | None) -> None:
        """Take the rows that are new; of several GPUs only those of the one that the run computes on."""
        for time_ns, reading in self._tail.rows():
            title = SHOWN.get((reading.scope, reading.counter))
            if title is None or reading.value is None or (reading.scope == "device" and reading.device != own_gpu):
                continue
            self._first_ns = time_ns if self._first_ns is None else self._first_ns
            seconds, values = self._telemetry.setdefault(title, ([], []))
            seconds.append((time_ns - self._first_ns) / 1e9)
            values.append(reading.value / 2**30 if reading.unit == "bytes" else reading.value)

"""The live monitor: watch a run in any process, freeze the view, stop the run."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import ipywidgets as widgets
import pandas as pd

from labkit import UserError, plots, runs, telemetry
from labkit.widgets.views import FigureView

MOST_POINTS = 400
"""Points of a curve that are drawn: a browser redraws them all"""
SHOWN = {
    ("process", "cpu_percent"): ("CPU of the run", "% of a core"),
    ("process", "memory_resident"): ("Memory of the run", "GiB"),
    ("device", "gpu_utilisation"): ("GPU with a kernel running", "% of time"),
    ("device", "memory_used"): ("GPU memory", "GiB"),
}
"""Title and unit of the telemetry series that are drawn"""


@dataclass
class Snapshot:
    """A run at one moment."""

    record: "runs.RunRecord"
    curves: "list[plots.Curve]"
    """The metric, training loss, throughput, then telemetry, whose seconds count from the first sample, a moment before
    training begins"""

    def __str__(self) -> str:
        """Its state in one sentence."""
        config, metric = self.record.config, self.curves[0]
        data = config.get("data", {}).get("name")
        name = str(config.get("job", self.record.name)) + (f" on {data}" if data else "")
        words = f"{name}, {self.record.budget.get('name', 'whole machine')}: {self.record.status}"
        if metric.values:
            words += f", {metric.seconds[-1]:.1f} s, {metric.title} {metric.values[-1]:.4f}"
        reason = (self.record.result or {}).get("reason")
        return f"{words} ({reason})." if reason and self.record.status != "running" else f"{words}."


class RunFeed:
    """Reads a run folder again and again, so that any process or kernel may watch it; telemetry part by part."""

    def __init__(self, folder: Path | str):
        self.folder = Path(folder)
        self._telemetry: dict[tuple[str, str], plots.Curve] = {}
        self._tail = telemetry.Tail(folder)
        self._first_ns: int | None = None

    def read(self) -> Snapshot:
        """The run as it is now.

        Raises:
            UserError: this is no run folder.
        """
        record = runs.read_run(self.folder)
        evaluated = [
            each for each in runs.read_events(self.folder) if each["event"] == "evaluated" and "wall_s" in each
        ]
        metrics = [each.get("metrics", {}) for each in evaluated]
        metric = record.config.get("train", {}).get("target_metric")
        metric = metric or next((name for names in metrics for name in names), "")
        logged = {
            (plots.metric_label(metric) or "Metric", ""): [each.get(metric) for each in metrics],
            ("Training loss", ""): [each.get("loss") for each in evaluated],
            ("Throughput", "samples/s"): [each.get("samples_per_s") for each in evaluated],
        }
        curves = []
        for (title, unit), values in logged.items():
            points = [(at["wall_s"], value) for at, value in zip(evaluated, values, strict=True) if value is not None]
            curves.append(plots.Curve(title, [seconds for seconds, _ in points], [value for _, value in points], unit))
        self._read_new_telemetry(telemetry.gpu_of(record.devices, str(record.budget.get("torch_name"))))
        return Snapshot(record, [*curves, *self._telemetry.values()])

    def _read_new_telemetry(self, own_gpu: str | None) -> None:
        """Take the rows that are new; of several GPUs only those of the one that the run computes on."""
        for time_ns, reading in self._tail.rows():
            key = reading.scope, reading.counter
            if key not in SHOWN or reading.value is None or (reading.scope == "device" and reading.device != own_gpu):
                continue
            self._first_ns = time_ns if self._first_ns is None else self._first_ns
            title, unit = SHOWN[key]
            curve = self._telemetry.setdefault(key, plots.Curve(title, [], [], unit))
            curve.seconds.append((time_ns - self._first_ns) / 1e9)
            curve.values.append(reading.value / 2**30 if reading.unit == "bytes" else reading.value)


def monitor(run: Path | str, *, refresh_s: float = 0.5) -> "Monitor":
    """Watch a run live, in this process or another, or look at one that is over.

    Args:
        run: a run folder; or a folder of runs, of which the latest running one is taken, else the latest.
        refresh_s: seconds between two looks at the folder.

    Returns:
        A widget; its `figure` is a plain figure of what is shown.

    Raises:
        UserError: there is no run.
    """
    if (Path(run) / "run.json").is_file():
        return Monitor(Path(run), refresh_s)
    rows = runs.list_rows(run)
    if not rows:
        raise UserError(f"{run} has no runs: start one, or give another folder.")
    running = [row for row in rows if row["status"] == "running"]
    return Monitor(Path((running or rows)[-1]["folder"]), refresh_s)


class Monitor(FigureView):
    """Status, buttons, curves and their description; it refreshes itself until the run is over."""

    def __init__(self, folder: Path, refresh_s: float):
        self._closed = threading.Event()  # first: a widget whose __init__ fails is closed, too
        super().__init__()
        self.folder, self._refresh_s = folder, refresh_s
        self._feed = RunFeed(folder)
        self._drawing = threading.Lock()
        self.status = widgets.HTML()
        tips = "Freeze what is shown; the run goes on", "End the run after its step under way; all is saved"
        self.pause = widgets.ToggleButton(description="Pause view", tooltip=tips[0], icon="pause")
        self.stop = widgets.Button(description="Stop run", tooltip=tips[1], icon="stop")
        self.stop.on_click(lambda _: self._stop_run())
        code = [f"RunFeed({str(folder)!r}).read()", f"request_stop({str(folder)!r})", f"labkit monitor {folder}"]
        self.children = [
            self.status,
            widgets.HBox([self.pause, self.stop]),
            self.plot,
            self.words,
            widgets.HTML(f"<p>The same in code, and all counters: <code>{escape('; '.join(code))}</code></p>"),
        ]
        self.refresh()
        self._thread = threading.Thread(target=self._keep_fresh, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop refreshing; the run goes on."""
        self._closed.set()
        super().close()

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until the run is over and its end is shown."""
        self._thread.join(timeout_s)

    def refresh(self) -> str:
        """Show the run as it is now; return its status."""
        with self._drawing:  # the view's own thread and the notebook may both call this
            return self._redraw()

    def _redraw(self) -> str:
        snapshot = self._feed.read()
        self._show(snapshot)
        return snapshot.record.status

    def _keep_fresh(self) -> None:
        while not self._closed.wait(self._refresh_s):
            try:
                with self._drawing:  # while this waited for it, the view may have been paused
                    if not self.pause.value and self._redraw() != "running":
                        return
            except Exception as error:  # an error in a thread would not be seen
                self._say(f"The view stopped: {error}. The run is not affected.")
                return

    def _stop_run(self) -> None:
        try:
            runs.request_stop(self.folder)
        except UserError as error:
            self._say(error)
        else:
            self.stop.description = "Stopping …"
            self.stop.disabled = True

    def _say(self, words: object) -> None:
        self.status.value = f"<p role='status'>{escape(str(words))}</p>"

    def _show(self, snapshot: Snapshot) -> None:
        curves = [
            curve._replace(seconds=_thinned(curve.seconds), values=_thinned(curve.values)) for curve in snapshot.curves
        ]
        if len(self.plot.data) == len(curves):
            with self.plot.batch_update():
                for trace, curve in zip(self.plot.data, curves, strict=True):
                    trace.x, trace.y = curve.seconds, curve.values
                self.plot.layout.meta = {"finding": plots.latest_values(curves)}
            self.describe()
        else:
            record = snapshot.record
            target = record.config.get("train", {}).get("target")
            self.draw(plots.figure_live_run(curves, provenance=record.provenance.kind, target=target))
        self._say(snapshot)
        if snapshot.record.status != "running":
            self.stop.disabled = self.pause.disabled = True
            self.stop.description = "Stop run"


def _thinned(values: Sequence[float]) -> list[float]:
    return plots.thinned(pd.Series(values, dtype=float), MOST_POINTS).tolist()

"""The live run monitor: watch a run that goes on anywhere, freeze the view, stop the run."""

from __future__ import annotations

import threading
from html import escape
from pathlib import Path

import ipywidgets as widgets
import pandas as pd

from labkit.errors import UserError
from labkit.plots import figure_live_run, latest_values, thinned
from labkit.runs import list_rows, request_stop
from labkit.widgets.feed import RunFeed, Snapshot
from labkit.widgets.figures import FigureView

REFRESH_S = 0.5
MOST_POINTS = 400
"""Of a curve: a browser redraws them all"""


def monitor(run: Path | str, *, refresh_s: float = REFRESH_S, template: str = "labkit_light") -> Monitor:
    """Watch a run live; also one that another process or kernel started, and one that is over.

    Args:
        run: a run folder, or a folder of runs, of which the latest that is running is taken, else the latest.
        refresh_s: seconds between two looks at the folder.
        template: "labkit_light" or "labkit_dark".

    Returns:
        A widget; its `figure` is a plain figure of what is shown.

    Raises:
        UserError: there is no run.
    """
    if (Path(run) / "run.json").is_file():
        return Monitor(Path(run), refresh_s, template)
    rows = list_rows(run)
    if not rows:
        raise UserError(f"{run}: there is no run here: start one, or name another folder.")
    running = [row for row in rows if row["status"] == "running"]
    return Monitor(Path((running or rows)[-1]["folder"]), refresh_s, template)


class Monitor(FigureView):
    """Status, buttons, curves and their description; it refreshes itself until the run is over."""

    def __init__(self, folder: Path, refresh_s: float = REFRESH_S, template: str = "labkit_light"):
        self._closed = threading.Event()  # before anything may fail: a widget is closed then, too
        super().__init__(template)
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
        with self._drawing:  # the view's own thread and the notebook may both ask
            snapshot = self._feed.read()
            self._show(snapshot)
        return snapshot.record.status

    def _keep_fresh(self) -> None:
        while not self._closed.wait(self._refresh_s):
            try:
                if not self.pause.value and self.refresh() != "running":
                    return
            except Exception as error:  # a thread's error would go unseen
                self._tell(f"The view stopped: {error}. The run is not affected.")
                return

    def _stop_run(self) -> None:
        try:
            request_stop(self.folder)
        except UserError as error:
            self._tell(error)
        else:
            self.stop.description = "Stopping …"
            self.stop.disabled = True

    def _tell(self, words: object) -> None:
        self.status.value = f"<p role='status'>{escape(str(words))}</p>"

    def _show(self, snapshot: Snapshot) -> None:
        panels = {
            title: tuple(thinned(pd.Series(values, dtype=float), MOST_POINTS).tolist() for values in curve)
            for title, curve in snapshot.panels.items()
        }
        if len(self.plot.data) == len(panels):
            with self.plot.batch_update():
                for trace, (x, y) in zip(self.plot.data, panels.values(), strict=True):
                    trace.x, trace.y = x, y
                self.plot.layout.meta = {"finding": latest_values(panels)}
            self.tell()
        else:
            record = snapshot.record
            told = {"provenance": record.provenance.kind, "target": record.config.get("train", {}).get("target")}
            self.draw(figure_live_run(panels, **told, template=self.template))
        self._tell(snapshot)
        if snapshot.record.status != "running":
            self.stop.disabled = self.pause.disabled = True
            self.stop.description = "Stop run"

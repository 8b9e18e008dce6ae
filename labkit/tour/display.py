"""The tour as it happens: one row a run, with metric, throughput and time left."""

from __future__ import annotations

import math
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from labkit.tour.run import TourRun
from labkit.tracking.time_left import time_left_s


class TourDisplay:
    """A live table on a terminal; elsewhere a line when a run begins, evaluates or ends."""

    def __init__(self, console: Console):
        self.console = console
        self._rows: dict[int, _Row] = {}
        self._live = Live(console=console, refresh_per_second=4)

    def __enter__(self) -> TourDisplay:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *exception) -> None:
        if self.console.is_terminal:
            self._live.stop()

    def show(self, run: TourRun, event: dict[str, Any]) -> None:
        """Take an event of `run_tour`."""
        row = self._rows.setdefault(id(run), _Row(run))
        line = row.take(event)
        if self.console.is_terminal:
            self._live.update(Group(*(each.text() for each in self._rows.values())))
        elif line:
            self.console.print(line, highlight=False, soft_wrap=True)


class _Row:
    """What is known of one run."""

    def __init__(self, run: TourRun):
        self.run = run
        self.status = "starting"
        self._config: dict[str, Any] = {}
        self._evaluations: list[tuple[float, float]] = []

    def take(self, event: dict[str, Any]) -> str | None:
        """Update from an event; return a line where it is worth one in a log."""
        kind = event["kind"]
        if kind == "Preparing":
            self.status = f"preparing data {event['fraction']:.0%}  {event['text']}"
            return None
        if kind == "Notice":
            self.status = event["text"]
            return f"{self._name()}: {self.status}"
        if kind == "Started":
            self._config = event["config"]
            self.status = "training"
            return f"{self._name()}: {event['run']}"
        if kind == "Progress":
            self.status = self._progress(event)
            return f"{self._name()}: {self.status}" if event["evaluated"] else None
        if kind == "State" and self.run.state != "running":
            self.status = self._end()
            return f"{self._name()}: {self.status}"
        return None

    def text(self) -> Text:
        style = {"running": "bold", "failed": "red"}.get(self.run.state, "")
        return Text(f"{self._name():<24} {self.status}", style=style, no_wrap=True, overflow="ellipsis")

    def _name(self) -> str:
        return f"{self.run.job} {self.run.budget} seed {self.run.seed}"

    def _progress(self, event: dict[str, Any]) -> str:
        metric, point = self._config["train"]["target_metric"], event["point"]
        words = [f"{point['wall_s']:6.1f} s", f"{event['samples_per_s']:>9,.0f} samples/s"]
        if event["metrics"]:
            value = event["metrics"][metric]
            if event["evaluated"]:
                self._evaluations.append((point["wall_s"], value))
            words.append(f"{metric} {value:.4f} (target {self._config['train']['target']:g})")
        elif not math.isnan(event["loss"]):
            words.append(f"loss {event['loss']:.4f}")
        left = time_left_s(self._config, point["wall_s"], point["samples"], self._evaluations)
        if left is not None:
            words.append(f"about {left:.0f} s left")
        return "  ".join(words)

    def _end(self) -> str:
        if self.run.state == "failed":
            return f"failed: {self.run.error}"
        if self.run.state == "stopped" or self.run.answer is None:
            return "stopped"
        result = self.run.answer["result"]
        metric = self._config["train"]["target_metric"]
        test = f"test {metric} {result['metrics'][metric]:.4f}" if result["metrics"] else ""
        if result["target_reached"]:
            return f"reached its target after {result['time_to_target_s']:.1f} s  {test}"
        return f"did not reach its target ({result['reason']})  {test}"

"""What a person watches while a model trains: metric, throughput, time left."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from labkit.cli.console import Console
from labkit.cli.live import LiveDisplay
from labkit.runs.others import in_words
from labkit.tracking.crossings import Point
from labkit.tracking.ending import unreached
from labkit.tracking.events import Notice, Preparing, Progress, Started
from labkit.tracking.progress_line import headline, progress_text, time_left_s

if TYPE_CHECKING:
    from labkit.tour.run import TourRun


class _Position:
    """Where a run is, in a line."""

    def __init__(self, config: dict[str, Any]):
        self._config, self._evaluations = config, []
        self.metric: str | None = config["train"]["target_metric"]

    def line(self, progress: Progress) -> str:
        if progress.evaluated and self.metric in progress.metrics:
            self._evaluations.append((progress.point.wall_s, progress.metrics[self.metric]))
        left = time_left_s(self._config, progress.point.wall_s, progress.point.samples, self._evaluations)
        return progress_text(progress, self.metric) + ("" if left is None else f"  about {left:.0f} s left")


class TrainingDisplay(LiveDisplay):
    """One line that lives on a terminal, or a line an evaluation where the output is a file."""

    def __init__(self, *, to_stderr: bool):
        super().__init__(Console(stderr=to_stderr))
        self.folder: str | None = None
        """Of the run that began last"""
        self._config: dict[str, Any] = {}

    def show(self, event: Any) -> None:
        """Take an event of `labkit.tracking.events`."""
        if isinstance(event, Notice):
            self.notice(event.text)
        elif isinstance(event, Preparing):
            self.update(f"preparing data {event.fraction:4.0%}  {event.text}")
        elif isinstance(event, Started):
            self._config, self._position, self.folder = event.config, _Position(event.config), event.folder
            text = Text(headline(event.run, event.config))
            text.highlight_words([event.run], "bold")
            self.console.print(text, highlight=False, soft_wrap=True)
        elif isinstance(event, Progress):
            line = self._position.line(event)
            self.update(line)
            if event.evaluated:
                self.line(line)

    def print_result(self, answer: dict[str, Any]) -> None:
        """Print how the run ended, and the test split's metrics."""
        result = answer["result"]
        table = Table(show_header=False, box=None, pad_edge=False)
        table.add_row("ended", Text(f"{answer['status']}: {result['reason']}"))
        if result["target_reached"]:
            table.add_row(
                "target reached",
                f"after {result['time_to_target_s']:.1f} s and {result['samples_to_target']:,} samples",
            )
        elif result["target_reached"] is False:
            limit = self._config.get("train", {}).get("max_seconds")
            kind = unreached(answer["status"], result, limit)
            means = {"failed": "failed: it never will", "censored": "cut off, or censored: later, or never"}[kind]
            table.add_row("target", f"not reached; analysis counts this run as {means}")
        for name, value in result["metrics"].items():
            table.add_row(f"test {name}", f"{value:.4f}")
        table.add_row("throughput", _throughput(result))
        if result["peak_memory_bytes"] is not None:
            table.add_row("peak memory", f"{result['peak_memory_bytes'] / 2**30:.2f} GiB")
        if result["peak_gpu_memory_bytes"] is not None:
            table.add_row("peak GPU memory", f"{result['peak_gpu_memory_bytes'] / 2**30:.2f} GiB")
        energy = f"{result['energy_j']:,.0f} J" if result["energy_j"] is not None else ""
        table.add_row("energy", " ".join(part for part in (energy, result["energy_note"]) if part))
        if disturbed := in_words(result.get("others")):
            table.add_row("disturbed", f"{disturbed}: run it again on a quiet machine")
        table.add_row("run folder", answer["folder"])
        self.console.print(table)
        if answer["status"] == "stopped" and (Path(answer["folder"]) / "checkpoint" / "latest.pt").exists():
            text = f"go on with: labkit run --resume {answer['folder']}"
            self.console.print(text, highlight=False, soft_wrap=True)


def _throughput(result: dict[str, Any]) -> str:
    if result["samples"]:
        return f"{result['samples_per_s']:,.0f} samples/s"
    return f"{result['steps'] / result['wall_s']:,.1f} steps/s" if result["wall_s"] else "no step was taken"


class TourDisplay(LiveDisplay):
    """The run under way as a line that lives, those that ended above it; elsewhere a line an evaluation, too."""

    def show(self, run: TourRun, event: dict[str, Any]) -> None:
        """Take an event of `run_tour`."""
        name, kind = f"{run.job} {run.budget} seed {run.seed}", event["kind"]
        if kind == "State" and run.state != "running":
            self.update()
            style = "red" if run.state == "failed" else ""
            self.console.print(f"{name}: {_end_of(run)}", style=style, highlight=False, soft_wrap=True)
        elif kind == "Preparing":
            self.update(f"{name}: preparing data {event['fraction']:.0%}  {event['text']}")
        elif kind == "Notice":
            self.notice(f"{name}: {event['text']}")
        elif kind == "Started":
            self._position, self._target = _Position(event["config"]), event["config"]["train"]["target"]
            self.line(f"{name}: {event['run']}")
        elif kind == "Progress":
            told = {key: value for key, value in event.items() if key != "kind"}
            progress = Progress(**told | {"point": Point(**event["point"])})
            line = f"{name}: {self._position.line(progress)}" + (f"  (target {self._target:g})" if self._target else "")
            self.update(line)
            if progress.evaluated:
                self.line(line)


def _end_of(run: TourRun) -> str:
    if run.state == "failed":
        return f"failed: {run.error}"
    if run.answer is None:
        return "stopped"
    result = run.answer["result"]
    test = "".join(f"  test {name} {value:.4f}" for name, value in list(result["metrics"].items())[:1])
    if result["target_reached"]:
        return f"reached its target after {result['time_to_target_s']:.1f} s{test}"
    return f"did not reach its target ({result['reason']}){test}"

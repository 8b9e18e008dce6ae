"""What a person watches while a model trains: metric, throughput, time left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from labkit.cli.console import Console
from labkit.cli.live import LiveDisplay
from labkit.runs.others import in_words
from labkit.tracking.ending import unreached
from labkit.tracking.events import Notice, Preparing, Progress, Started
from labkit.tracking.progress_line import headline, progress_text
from labkit.tracking.time_left import time_left_s


class TrainingDisplay(LiveDisplay):
    """One line that lives on a terminal, or a line an evaluation where the output is a file."""

    def __init__(self, *, to_stderr: bool):
        super().__init__(Console(stderr=to_stderr))
        self.folder: str | None = None
        """Of the run that began last"""
        self._config: dict[str, Any] = {}
        self._evaluations: list[tuple[float, float]] = []

    def show(self, event: Any) -> None:
        """Take an event of `labkit.tracking.events`."""
        if isinstance(event, Notice):
            self.notice(event.text)
        elif isinstance(event, Preparing):
            self.update(f"preparing data {event.fraction:4.0%}  {event.text}")
        elif isinstance(event, Started):
            self._config, self._evaluations, self.folder = event.config, [], event.folder
            text = Text(headline(event.run, event.config))
            text.highlight_words([event.run], "bold")
            self.console.print(text, highlight=False, soft_wrap=True)
        elif isinstance(event, Progress):
            self._progress(event)

    def _progress(self, progress: Progress) -> None:
        metric = self._config["train"]["target_metric"]
        line = progress_text(progress, metric)
        if progress.evaluated and metric in progress.metrics:
            self._evaluations.append((progress.point.wall_s, progress.metrics[metric]))
        left = time_left_s(self._config, progress.point.wall_s, progress.point.samples, self._evaluations)
        if left is not None:
            line += f"  about {left:.0f} s left"
        self.update(line)
        if progress.evaluated:
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

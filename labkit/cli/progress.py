"""What a person watches while a model trains: metric, throughput, time left."""

from __future__ import annotations

import math
from typing import Any

from rich.live import Live
from rich.table import Table
from rich.text import Text

from labkit.cli.console import Console
from labkit.training.announcements import Notice, Preparing, Ready, Started
from labkit.training.request import TrainRequest
from labkit.training.time_left import time_left_s


class TrainingDisplay:
    """One line that lives on a terminal, or a line an evaluation where the output is a file."""

    def __init__(self, request: TrainRequest, *, to_stderr: bool):
        self.request = request
        self.console = Console(stderr=to_stderr)
        self._live = Live(console=self.console, refresh_per_second=4, transient=True)
        self._run_config: dict[str, Any] = {}
        self._evaluations: list[tuple[float, float]] = []

    def __enter__(self) -> TrainingDisplay:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *exception) -> None:
        if self.console.is_terminal:
            self._live.stop()

    def show(self, event: Any) -> None:
        """Take an event of `training.session.train`."""
        if isinstance(event, Notice):
            self.console.print(f"[dim]{event.text}[/dim]", highlight=False, soft_wrap=True)
        elif isinstance(event, Preparing):
            self._update(f"preparing data {event.fraction:4.0%}  {event.text}")
        elif isinstance(event, Started):
            self._run_config = event.config
            data, budget = event.config["data"], event.config["budget"]["name"]
            self.console.print(
                f"run [bold]{event.run}[/bold]: {self.request.job} on {data['name']}, budget {budget}, "
                f"{self._run_config['train']['precision']}, {self._goal()}",
                highlight=False,
                soft_wrap=True,
            )
        elif not isinstance(event, Ready):
            self._progress(event)

    def _goal(self) -> str:
        target, metric = self._run_config["train"]["target"], self._run_config["train"]["target_metric"]
        return f"target {metric} {target:g}" if target is not None else f"watching {metric}, no target"

    def _progress(self, progress) -> None:
        metric = self._run_config["train"]["target_metric"]
        line = (
            f"{progress.point.wall_s:6.1f} s  {progress.point.samples:>9,} samples  {progress.samples_per_s:>8,.0f}/s"
        )
        if not math.isnan(progress.loss):
            line += f"  loss {progress.loss:.4f}"
        if progress.metrics:
            line += f"  {metric} {progress.metrics[metric]:.4f}"
            if progress.evaluated:
                self._evaluations.append((progress.point.wall_s, progress.metrics[metric]))
        left = time_left_s(self._run_config, progress.point.wall_s, progress.point.samples, self._evaluations)
        if left is not None:
            line += f"  about {left:.0f} s left"
        if self.console.is_terminal:
            self._live.update(Text(line))
        elif progress.evaluated:
            self.console.print(line, highlight=False, soft_wrap=True)

    def _update(self, line: str) -> None:
        if self.console.is_terminal:
            self._live.update(Text(line))

    def print_result(self, answer: dict[str, Any]) -> None:
        """Print how the run ended, and the test split's metrics."""
        result = answer["result"]
        table = Table(show_header=False, box=None, pad_edge=False)
        table.add_row("ended", f"{answer['status']}: {result['reason']}")
        if result["target_reached"]:
            table.add_row(
                "target reached",
                f"after {result['time_to_target_s']:.1f} s and {result['samples_to_target']:,} samples",
            )
        elif result["target_reached"] is False:
            table.add_row("target", "not reached; analysis counts this run as censored")
        for name, value in result["metrics"].items():
            table.add_row(f"test {name}", f"{value:.4f}")
        table.add_row("throughput", f"{result['samples_per_s']:,.0f} samples/s")
        if result["peak_memory_bytes"] is not None:
            table.add_row("peak memory", f"{result['peak_memory_bytes'] / 2**30:.2f} GiB")
        if result["peak_gpu_memory_bytes"] is not None:
            table.add_row("peak GPU memory", f"{result['peak_gpu_memory_bytes'] / 2**30:.2f} GiB")
        energy = f"{result['energy_j']:,.0f} J" if result["energy_j"] is not None else ""
        table.add_row("energy", " ".join(part for part in (energy, result["energy_note"]) if part))
        table.add_row("run folder", answer["folder"])
        self.console.print(table)
        if answer["status"] == "stopped":
            self.console.print(f"go on with: labkit train {self.request.job} --resume {answer['folder']}")

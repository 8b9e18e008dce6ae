"""The display of runs under way: changing lines on a terminal, and log lines elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from labkit import launch, runs, tracking
from labkit.cli.console import Console


class Display:
    """A context manager that shows one line per run on a terminal, and the evaluations of runs on other consoles."""

    def __init__(self, console: Console, *, evaluations: bool = True):
        self.console, self.folder = console, None
        self._evaluations, self._head = evaluations, ""
        self._live = Live(console=console, refresh_per_second=4, transient=True)
        self._noticed: set[str] = set()
        self._does: dict[str, str | None] = {}
        self._began: dict[str, dict[str, Any]] = {}
        """Configuration of each run, by its name."""

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *exception) -> None:
        if self.console.is_terminal:
            self._live.stop()

    def show(self, event: Any, name: str = "") -> None:
        """Show an event of `labkit.tracking.events`, of the run of this name."""
        named = f"{name}: " if name else ""
        if isinstance(event, tracking.Notice):
            if (text := f"{named}{event.text}") not in self._noticed:  # several runs may send the same note
                self._noticed.add(text)
                self.print(text, "dim")
        elif isinstance(event, tracking.Started):
            self.folder, self._began[name] = event.folder, event.config
            self.says(name, "building")
        elif isinstance(event, tracking.Preparing):
            self.says(name, f"preparing data {event.fraction:.0%}  {event.text}")
        elif isinstance(event, tracking.Ready):
            self.says(name, "ready")
        elif isinstance(event, tracking.Progress):
            self.says(name, text := _where(event, self._began[name]))
            if event.evaluated and self._evaluations and not self.console.is_terminal:
                self.print(f"{named}{text}")

    def says(self, name: str, text: str | None) -> None:
        """Show what the run of this name does; None removes its line."""
        self._does[name] = text
        rows = [f"{name:<20} {text}" if name else text for name, text in self._does.items() if text is not None]
        if self.console.is_terminal:
            lines = [Text(self._head, "bold"), *map(Text, rows)] if self._head else map(Text, rows)
            self._live.update(Group(*(Text.assemble(line, no_wrap=True, overflow="ellipsis") for line in lines)))

    def begin(self, head: str) -> None:
        """Show what goes on as a whole, and no run yet."""
        self._head, self._does = head, {}

    def print(self, text: str | Text, style: str = "") -> None:
        self.console.print(text, style=style, highlight=False, soft_wrap=True)


def _where(progress: tracking.Progress, config: dict[str, Any]) -> str:
    metric, target = config["train"]["target_metric"], config["train"]["target"]
    left = tracking.time_left_s(config, progress.point.wall_s, progress.point.samples)
    text = tracking.progress_text(progress, metric) + (f" (target {target:g})" if target is not None else "")
    return text if left is None else f"{text}  about {left:.0f} s left"


class TrainingDisplay(Display):
    """The display of a single run: its start, progress and result."""

    def __init__(self, *, to_stderr: bool):
        super().__init__(Console(stderr=to_stderr))
        self._config: dict[str, Any] = {}

    def show(self, event: Any, name: str = "") -> None:
        if isinstance(event, tracking.Started):
            self._config, text = event.config, Text(tracking.headline(event.run, event.config))
            text.highlight_words([event.run], "bold")
            self.print(text)
        super().show(event, name)

    def print_result(self, answer: dict[str, Any]) -> None:
        """Print how the run ended, and its metrics on the test split."""
        result, rows = answer["result"], {"ended": f"{answer['status']}: {answer['result']['reason']}"}
        if result["target_reached"]:
            rows["target reached"] = (
                f"after {result['time_to_target_s']:.1f} s and {result['samples_to_target']:,} samples"
            )
        elif result["target_reached"] is False:
            limit = self._config.get("train", {}).get("max_seconds")
            means = {"failed": "failed (it would never reach it)", "censored": "censored (it was cut off before)"}
            kind = means[tracking.unreached(answer["status"], result, limit)]
            rows["target"] = f"not reached; analysis counts this run as {kind}"
        rows |= {f"test {name}": f"{value:.4f}" for name, value in result["metrics"].items()}
        if result["samples"]:
            rows["throughput"] = f"{result['samples_per_s']:,.0f} samples/s"
        else:
            steps_per_s = result["steps"] / result["wall_s"] if result["wall_s"] else 0
            rows["throughput"] = f"{steps_per_s:,.1f} steps/s" if steps_per_s else "no step was taken"
        for name, key in (("peak memory", "peak_memory_bytes"), ("peak GPU memory", "peak_gpu_memory_bytes")):
            if result[key] is not None:
                rows[name] = f"{result[key] / 2**30:.2f} GiB"
        energy = f"{result['energy_j']:,.0f} J" if result["energy_j"] is not None else ""
        rows["energy"] = " ".join(part for part in (energy, result["energy_note"]) if part)
        if disturbed := runs.disturbance_text(result.get("others")):
            rows["disturbed"] = f"{disturbed}: run it again on a quiet machine"
        rows["run folder"] = answer["folder"]
        table = Table(show_header=False, box=None, pad_edge=False)
        for name, text in rows.items():
            table.add_row(name, Text(text))
        self.console.print(table)
        if answer["status"] == "stopped" and (Path(answer["folder"]) / "checkpoint" / "latest.pt").exists():
            self.print(f"to continue: labkit run --resume {answer['folder']}")


class TourDisplay(Display):
    """The run under way, and those that ended above it."""

    def __init__(self, console: Console, runs_dir: Path):
        super().__init__(console)
        self._runs_dir = runs_dir

    def show_part(self, part: launch.Part, event: dict[str, Any]) -> None:
        """Take an event of `run_tour`."""
        about = part.launch.about
        name = f"{about['job']} {about['budget']} seed {about['seed']}"
        self.show(tracking.read_event(event), name)
        if event["kind"] == "State" and part.status != "running":
            self.says(name, None)
            self.print(f"{name}: {self._end_of(part)}", "red" if part.status == "failed" else "")

    def _end_of(self, part: launch.Part) -> str:
        about = part.launch.about
        if part.status == "left_out":
            again = f"`labkit train {about['job']} --budget {about['budget']} --seed {about['seed']}`"
            return f"left out, because the tour has taken too long: {again} runs it"
        if part.status != "done" or part.run is None:
            return part.status if part.status == "stopped" else f"failed: {part.reason}"
        result = runs.read_run(self._runs_dir / part.run).result
        assert result is not None  # of a run that is done
        test = "".join(f"  test {name} {value:.4f}" for name, value in list(result["metrics"].items())[:1])
        if result["target_reached"]:
            return f"reached its target after {result['time_to_target_s']:.1f} s{test}"
        return f"did not reach its target ({result['reason']}){test}"

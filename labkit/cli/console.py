"""What all commands print on: a console that also works if its reader leaves early, and the display of runs."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import rich.console
from rich import box
from rich.live import Live
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from labkit import launch, runs, tracking
from labkit.cli.printing import NUMBER, WIDTH_FOR_PROGRAMS, harmless, write_nowhere

if TYPE_CHECKING:
    import pandas as pd

LONGEST_LABEL = 40
"""Longest cell of the first column, in characters, that is never wrapped."""


class Console(rich.console.Console):
    """A rich console for names, paths and messages from users and other programs, which are printed as they are.

    [Brackets] in them are not markup (use `marked` for that), and control characters are shown as pictures. If its
    reader leaves (`labkit train dlrm | head`), it prints nothing more, and the command goes on.
    """

    def __init__(self, *, highlight: bool = False, **options: Any):
        super().__init__(markup=False, emoji=False, highlight=highlight, **options)

    def print_line(self, text: str | Text, style: str = "") -> None:
        """Print text that is wrapped by the terminal only, so that a path or a command stays whole elsewhere."""
        self.print(text, style=style, soft_wrap=True)

    def doing(self, text: str) -> contextlib.AbstractContextManager:
        """Say what takes a while: on a terminal as long as it lasts, elsewhere as a line."""
        if self.is_terminal:
            return self.status(text)
        self.print_line(text)
        return contextlib.nullcontext()

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(harmless(text), **options)  # before its width is measured

    def render(self, *arguments: Any, **options: Any) -> Iterable[Segment]:
        for segment in super().render(*arguments, **options):
            yield segment if segment.control else segment._replace(text=harmless(segment.text))

    def on_broken_pipe(self) -> None:
        self.quiet = True
        write_nowhere(self.file)


def marked(template: str, *values: object) -> Text:
    """A template with rich's markup, whose values are inserted as plain text."""
    return Text.from_markup(template.format(*(escape(harmless(str(value))) for value in values)), emoji=False)


def print_frame(console: Console, table: pd.DataFrame | Sequence[dict[str, Any]], title: str | None = None) -> None:
    """Print a `frame_table` in the width of the terminal, or `WIDTH_FOR_PROGRAMS` without one."""
    width = console.width
    console.width = width if console.is_terminal else max(width, WIDTH_FOR_PROGRAMS)
    console.print(frame_table(table, title))
    console.width = width


def frame_table(table: pd.DataFrame | Sequence[dict[str, Any]], title: str | None = None) -> Table:
    """A frame, or a list of rows, as a table for a terminal: numbers are aligned right, missing cells are empty.

    A cell is a number (for other digits, pass text), a text, which is wrapped if it is long, or a `rich.text.Text` with
    its own colour. A column of texts that all begin with a number (`2.5 s`) is also aligned right. The first column
    names the rows.
    """
    shown = Table(box=box.SIMPLE, title=title, title_justify="left")
    rows = list(table) if isinstance(table, Sequence) else table.to_dict("records")
    names = list(rows[0] if rows else ()) if isinstance(table, Sequence) else list(table)
    cells = [[_cell(row[name]) for name in names] for row in rows]
    for place, name in enumerate(names):
        said = [str(row[place]) for row in cells if str(row[place])]
        right = place > 0 and bool(said) and all(NUMBER.match(cell) for cell in said)
        short = place == 0 and max(map(len, said), default=0) <= LONGEST_LABEL
        shown.add_column(str(name), justify="right" if right else "left", no_wrap=short, overflow="fold")
    for row in cells:
        shown.add_row(*row)
    return shown


def json_rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows of a frame as JSON."""
    return plain(frame.astype(object).where(frame.notna(), None).to_dict("records"))


def plain(value: Any) -> Any:
    """A value as JSON: what is not a finite number is null, a time is text."""
    if isinstance(value, dict):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int) else str(value)


def _cell(value: Any) -> str | Text:
    if value is None or value != value:  # pandas' missing values differ from themselves
        return ""
    if isinstance(value, bool) or not isinstance(value, Real):
        return value if isinstance(value, Text) else str(value)
    return f"{value:,.0f}" if isinstance(value, Integral) or abs(float(value)) >= 100 else f"{value:.3g}"


def range_text(value: float, low: float, high: float, text_of: Callable[[float], str] = "{:.3g}".format) -> str:
    """A number and its range where it has one: `2.5 (2.1 to 3.2)`; `-` where it is not known."""
    if not math.isfinite(value):
        return "-"
    return text_of(value) + (f" ({text_of(low)} to {text_of(high)})" if math.isfinite(low) else "")


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

    def show_part(self, part: launch.Part, event: dict[str, Any]) -> None:
        """Show an event of a launch (`labkit.launch.OnEvent`)."""
        self.show(tracking.read_event(event), self.name_of(part))
        if event["kind"] == "State":
            self.show_state(part)

    def name_of(self, part: launch.Part) -> str:
        """The name of a launch for people."""
        return part.launch.about["job"]

    def show_state(self, part: launch.Part) -> None:
        """Show that the status of a launch has changed."""
        self.says(self.name_of(part), part.status.replace("_", " "))

    def says(self, name: str, text: str | None) -> None:
        """Show what the run of this name does; None removes its line."""
        self._does[name] = text
        rows = [f"{name:<20} {text}" if name else text for name, text in self._does.items() if text is not None]
        if self.console.is_terminal:
            lines = [Text(self._head, "bold"), *map(Text, rows)] if self._head else map(Text, rows)
            shown = (Text.assemble(line, no_wrap=True, overflow="ellipsis") for line in lines)
            self._live.update(rich.console.Group(*shown))

    def begin(self, head: str) -> None:
        """Show what goes on as a whole, and no run yet."""
        self._head, self._does = head, {}

    def print(self, text: str | Text, style: str = "") -> None:
        self.console.print_line(text, style)


def _where(progress: tracking.Progress, config: dict[str, Any]) -> str:
    metric, target = config["train"]["target_metric"], config["train"]["target"]
    left = tracking.time_left_s(config, progress.point.wall_s, progress.point.samples)
    text = tracking.progress_text(progress, metric) + (f" (target {target:g})" if target is not None else "")
    return text if left is None else f"{text}  about {left:.0f} s left"


class TrainingDisplay(Display):
    """The display of a single run: its start, progress and result."""

    def show(self, event: Any, name: str = "") -> None:
        if isinstance(event, tracking.Started):
            text = Text(tracking.headline(event.run, event.config))
            text.highlight_words([event.run], "bold")
            self.print(text)
        super().show(event, name)

    def print_result(self, answer: dict[str, Any]) -> None:
        """Print how the run ended, and its metrics on the test split."""
        result, rows = answer["result"], {"ended": f"{answer['status']}: {answer['result']['reason']}"}
        if result["target_reached"]:
            samples = f"{result['samples_to_target']:,} samples"
            rows["target reached"] = f"after {result['time_to_target_s']:.1f} s and {samples}"
        elif result["target_reached"] is False:
            limit = self._began.get("", {}).get("train", {}).get("max_seconds")
            means = {"failed": "failed (it would never reach it)", "censored": "censored (it was cut off before)"}
            kind = means[runs.unreached(answer["status"], result, limit)]
            rows["target"] = f"not reached; analysis counts this run as {kind}"
        rows |= {f"test {name}": f"{value:.4f}" for name, value in result["metrics"].items()}
        if result["samples"]:
            rows["throughput"] = f"{result['samples_per_s']:,.0f} samples/s"
        elif "stages" in result:
            rows["stages"] = ", ".join(f"{name} {seconds:.3g} s" for name, seconds in result["stages"].items())
        else:
            steps_per_s = result["steps"] / result["wall_s"] if result["wall_s"] else 0
            rows["throughput"] = f"{steps_per_s:,.1f} steps/s" if steps_per_s else "no step was counted"
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

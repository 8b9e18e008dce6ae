"""`labkit monitor`: live counters in the terminal, of the machine, a process or a run."""

import argparse
import contextlib
import math
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from labkit import UserError, errors, hardware, runs, telemetry
from labkit.cli.console import Console, frame_table
from labkit.cli.flags import add_command
from labkit.cli.printing import WIDTH_FOR_PROGRAMS

OTHER_COLUMNS, LEAST_HISTORY = 85, 6
"""Width of all columns but the history, and the smallest width of a history, in characters."""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    about = (
        "Shows each counter with its latest value, its history and its source (docs/counters.md), for this machine, "
        "for a process and its children (by its pid), or for a run (by its folder or its id)."
    )
    add = add_command(subparsers, "monitor", description=about, run=run_monitor, flags="runs_dir").add_argument
    add("which", nargs="?", metavar="RUN|PID", help="a run or a process (default: the machine only)")
    add("--hz", type=float, default=2.0, metavar="N", help="samples per second, at most 100 (default: 2)")
    add("--seconds", type=float, metavar="S", help="end after this long (default: on Ctrl-C, or with the run)")
    add("--once", action="store_true", help="print the counters once and end; the default if there is no terminal")
    add("--record", type=Path, metavar="FILE", help="also write every reading to a file")
    add("--replay", type=Path, metavar="FILE", help="show such a recording instead of this machine")


def run_monitor(args: argparse.Namespace) -> None:
    if not 0 < args.hz <= telemetry.MOST_HZ:
        raise UserError(f"--hz is {args.hz:g}: give samples per second above 0, up to {telemetry.MOST_HZ:g}.")
    if args.seconds is not None and not 0 < args.seconds < math.inf:
        raise UserError(f"--seconds is {args.seconds:g}: give a number of seconds above 0.")
    console, latest = Console(), telemetry.Latest()
    once = args.once or not console.is_terminal
    if not console.is_terminal:
        console.width = max(console.width, WIDTH_FOR_PROGRAMS)
    # rates and shares need two samples with some time between them
    ends_s, least_turns = args.seconds or (1.0 if once else math.inf), 2 if args.seconds is None else 1
    began, title = time.monotonic(), ""
    with contextlib.ExitStack() as stack:
        readings = stack.enter_context(_watched(args))
        live = None if once else stack.enter_context(Live(console=console, auto_refresh=False, transient=False))
        with contextlib.suppress(KeyboardInterrupt):
            for turn, (title, new) in enumerate(readings, start=1):
                latest.take(new)
                if live:
                    live.update(_view(title, latest, console.width), refresh=True)
                if turn >= least_turns and time.monotonic() - began >= ends_s:
                    break
    if args.replay is not None and not latest.histories:
        raise UserError(f"{args.replay}: this recording is empty: record again with `labkit monitor --record`.")
    if not live:
        console.print(_view(title, latest, console.width))


@contextlib.contextmanager
def _watched(args: argparse.Namespace) -> Generator[Iterator[tuple[str, list]]]:
    """An endless iterator of a title and new readings."""
    if args.record and args.replay:
        raise UserError("--record and --replay cannot be combined: give one of them.")
    if args.replay:
        yield _paced(telemetry.replayed(args.replay), args.hz, f"played from {args.replay}", [])
        return
    if args.which is not None and not args.which.isdecimal():
        yield _of_run(runs.find_run(args.which, args.runs_dir))
        return

    pid, faults = None if args.which is None else int(args.which), deque(maxlen=1)  # a driver may go and come all day
    try:
        with telemetry.open_ladder(pid, hardware.get_devices(), args.hz, lambda _, what: faults.append(what)) as ladder:
            turns = iter(lambda: list(ladder.read()), None)
            turns = telemetry.recorded(args.record, turns) if args.record else turns
            title = "this machine" if pid is None else f"process {pid} and its children"
            yield _paced(turns, args.hz, title, faults)
    except ProcessLookupError as error:
        raise UserError(
            f"there is no process {pid}: `ps` lists the processes. To show a run, give its folder or its id."
        ) from error


def _paced(turns: Iterator[list], hz: float, title: str, faults: Iterable[str]) -> Iterator:
    clock = telemetry.SampleClock(hz)
    with contextlib.suppress(ProcessLookupError):  # the process has ended
        for readings in turns:
            clock.arrive()
            yield "; ".join([title, *faults]), readings
            time.sleep(clock.wait_s())


def _of_run(folder: Path) -> Iterator:
    cursor, status = runs.Cursor(), "running"
    while status == "running":
        status, point = runs.read_run(folder).status, ""
        for event in runs.read_events(folder):
            if event["event"] == "evaluated":
                value = "-" if event.get("value") is None else f"{event['value']:.4f}"  # a diverged run has none
                point = f", {event.get('metric')} {value} after {event.get('wall_s', 0):.0f} s"
        news = runs.read_since(folder, cursor, only=["telemetry"])
        cursor, rows = news.cursor, news.telemetry.select(telemetry.Reading._fields).to_pydict().values()
        yield f"{folder.name}: {status}{point}", [telemetry.Reading(*row) for row in zip(*rows, strict=True)]
        if status == "running":
            time.sleep(0.5)  # samples come in parts of five seconds


def _view(title: str, latest: "telemetry.Latest", width: int) -> RenderableType:
    rows = []
    for history in latest.shown():
        device, scope, counter, value, unit, source, _ = history[-1]
        latest_text = telemetry.value_text(errors.certain(value), unit)
        row = {"device": device, "scope": scope, "counter": counter, "latest": latest_text, "source": source}
        bars = telemetry.bars([errors.certain(each.value) for each in history])
        # on a narrow terminal, only the newer part of a history fits
        rows.append(row | {"history": bars[-max(LEAST_HISTORY, width - OTHER_COLUMNS) :]})
    missing = [Text(f"{', '.join(counters)}: {why}", style="dim") for why, counters in latest.missing().items()]
    return Group(frame_table(rows, title), *missing)

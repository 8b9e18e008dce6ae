"""`labkit monitor`: what the hardware does, live in the terminal; of the machine, a process or a run."""

from __future__ import annotations

import argparse
import contextlib
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.errors import UserError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from labkit.telemetry.latest import Latest

DATE_DIGITS = 8
"""A run's id begins with its date; Linux' largest process number has seven digits."""
PADDING = 3
"""Characters between two columns of a table."""
LEAST_COURSE = 6
"""Characters; narrower, a course says nothing."""
LOOK_S = 0.5
"""Seconds between two looks into a run's folder, whose samples come in parts of five seconds."""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    parser = subparsers.add_parser(
        "monitor",
        help="what the hardware does, live: of this machine, a process, or a run",
        description="Shows every counter with its latest value, its course and its source (docs/counters.md): of "
        "this machine; of a process and its children, by its number; or of a run, by its folder or its id.",
    )
    parser.add_argument("which", nargs="?", metavar="RUN|PID", help="a run or a process (default: the machine alone)")
    parser.add_argument("--device", metavar="D", help="this one only: host, a GPU's number, or a part of its UUID")
    parser.add_argument("--hz", type=float, default=2.0, metavar="N", help="samples a second, at most 100 (default: 2)")
    parser.add_argument("--seconds", type=float, metavar="S", help="end after this long (default: Ctrl-C, or the end)")
    parser.add_argument("--once", action="store_true", help="print the counters once and end, as where no terminal is")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write down what the GPUs' driver answers, too")
    parser.add_argument(
        "--replay", type=Path, metavar="FILE", help="show such a recording in place of this machine's GPUs"
    )
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"), metavar="DIR", help="default: runs")
    parser.set_defaults(run=run_monitor)


def run_monitor(args: argparse.Namespace) -> int:
    """Show the counters until the end of what is watched, Ctrl-C, or the time given."""
    from rich.live import Live

    from labkit.cli.console import WIDTH_FOR_PROGRAMS, Console
    from labkit.telemetry import MOST_HZ
    from labkit.telemetry.latest import Latest

    if not 0 < args.hz <= MOST_HZ:
        raise UserError(f"--hz is {args.hz:g}: give a number of samples a second up to {MOST_HZ:g}.")
    if args.seconds is not None and not 0 < args.seconds < math.inf:
        raise UserError(f"--seconds is {args.seconds:g}: give a number of seconds above zero.")
    wanted = _device(args.device)
    console, latest = Console(highlight=False), Latest()
    once = args.once or not console.is_terminal
    if not console.is_terminal:
        console.width = max(console.width, WIDTH_FOR_PROGRAMS)
    began, turns, status = time.monotonic(), 0, ""
    with contextlib.ExitStack() as stack:
        title, readings = stack.enter_context(_watched(args))
        live = None if once else stack.enter_context(Live(console=console, auto_refresh=False, transient=False))
        with contextlib.suppress(KeyboardInterrupt):
            for status, new in readings:
                turns += 1
                latest.take(reading for reading in new if wanted(reading.device))
                if live:
                    live.update(_view(f"{title}{status}", latest, console.width), refresh=True)
                elif args.seconds is None and turns > 1 and time.monotonic() - began > 1.0:
                    break  # rates and shares need two samples, some way apart
                if args.seconds is not None and time.monotonic() - began >= args.seconds:
                    break
    if args.replay is not None and not any(device != "host" for device, *_ in latest.courses):
        raise UserError(f"{args.replay}: no GPU answers in this recording; was it made on a machine that has one?")
    if args.device is not None and not latest.courses:
        raise UserError(f"--device {args.device}: no counter is of such a device. Without --device all are shown.")
    if not live:
        console.print(_view(f"{title}{status}", latest, console.width))
    return 0


@contextlib.contextmanager
def _watched(args: argparse.Namespace) -> Iterator[tuple[str, Iterator]]:
    """A title, and an endless iterator of (status, new readings)."""
    if args.record and args.replay:
        raise UserError("--record and --replay contradict each other: give one of them.")
    if args.which is not None and not (args.which.isdecimal() and len(args.which) < DATE_DIGITS):
        from labkit.runs import find_run

        folder = find_run(args.which, args.runs_dir)
        yield folder.name, _of_run(folder)
        return
    import pynvml

    from labkit.hardware.devices import get_devices
    from labkit.hardware.nvml import Nvml
    from labkit.hardware.nvml_stream import PlayedNvml, RecordedNvml
    from labkit.telemetry.sampling import Schedule
    from labkit.telemetry.sources.machine import open_ladder

    pid = None if args.which is None else int(args.which)
    faults: list[str] = []
    # what answers for NVML: the library itself, recorded or not, or a recording
    library = PlayedNvml(args.replay) if args.replay else RecordedNvml(args.record) if args.record else pynvml
    devices = get_devices(Nvml(library))
    try:
        with open_ladder(pid, devices, args.hz, lambda kind, what: faults.append(what), nvml=Nvml(library)) as ladder:
            played = f", GPUs played from {args.replay}" if args.replay else ""
            title = "this machine" if pid is None else f"process {pid} and its children"
            yield (
                f"{title}{played}",
                _of_ladder(ladder, Schedule(args.hz), faults, lambda: getattr(library, "left", 1) == 0),
            )
    except ProcessLookupError as error:
        raise UserError(
            f"there is no process {pid}: `ps` lists those there are. A run is named by its folder or its id."
        ) from error


def _of_ladder(ladder, schedule, faults: list[str], is_over: Callable[[], bool]) -> Iterator:
    while not is_over():
        schedule.arrive()
        try:
            yield "".join(f"; {fault}" for fault in faults), list(ladder.read())
        except ProcessLookupError:
            return  # it was there, and has ended
        time.sleep(schedule.wait_s())


def _of_run(folder: Path) -> Iterator:
    from labkit.runs import read_events, read_run
    from labkit.telemetry.samples import Tail

    tail = Tail(folder)
    while True:
        status = read_run(folder).status
        evaluated = [event for event in read_events(folder) if event["event"] == "evaluated"]
        point = ""
        if evaluated:
            latest = evaluated[-1]
            value = "-" if latest.get("value") is None else f"{latest['value']:.4f}"  # a diverged run has none
            point = f", {latest.get('metric')} {value} after {latest.get('wall_s', 0):.0f} s"
        yield f": {status}{point}", [row.reading for row in tail.rows()]
        if status != "running":
            return
        time.sleep(LOOK_S)


def _device(name: str | None) -> Callable[[str], bool]:
    """Whether a reading's device is the one asked for.

    Raises:
        UserError: there is no GPU of that number.
    """
    if name is None:
        return lambda device: True
    if not name.isdecimal():
        return lambda device: name.lower() in device.lower()
    from labkit.hardware.devices import get_devices

    found = [device for device in get_devices() if device.kind != "cpu" and device.index == int(name)]
    uuids = {uuid for device in found for uuid in (device.uuid, device.gpu_uuid)}
    if not uuids:
        raise UserError(f"--device {name}: this machine has no GPU of that number (`labkit doctor` lists what it has).")
    return lambda device: device in uuids


def _view(title: str, latest: Latest, width: int) -> RenderableType:
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from labkit.telemetry.latest import value_text

    rows = []
    for course in latest.shown():
        device, scope, counter, value, unit, source, _ = course.reading
        rows.append((device, scope, counter, value_text(value, unit), source, course.bars))
    table = Table(box=box.SIMPLE, title=title, title_justify="left")
    for heading in ("device", "scope", "counter", "latest", "source", "course"):
        table.add_column(heading, justify="right" if heading == "latest" else "left", no_wrap=True)
    # what a narrow terminal has no room for is the older part of the courses
    others = sum(max(map(len, cells)) + PADDING for cells in [*zip(*rows, strict=True)][:-1])
    for *before, bars in rows:
        table.add_row(*before, bars[-max(LEAST_COURSE, width - others - PADDING) :])
    missing = [Text(f"{', '.join(counters)}: {why}", style="dim") for why, counters in latest.missing().items()]
    return Group(table, *missing)

"""`labkit pack`: run a queue of jobs on the devices there are, or replay it from recorded profiles."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from labkit import UserError, errors, hardware, launch, sharing, tracking
from labkit.cli.collocate import ENDED_BADLY, TRYING
from labkit.cli.console import Console, json_rows, marked, print_frame
from labkit.cli.flags import add_command, refuse_unless_positive
from labkit.cli.printing import print_json

if TYPE_CHECKING:
    import pandas as pd

SIMULATED_DEVICES = 2
POLICIES = ("exclusive", "best-fit")
"""Of `labkit.sharing.POLICIES`, which would be slow to load here"""
LEGEND = (
    "Makespan: from the first arrival to the last end. Completion and wait: means over the jobs that are done. "
    "Slowdown: a job's time over that alone, under exclusive or as the queue has it. OOM: attempts that ran out of "
    "memory. In brackets: times that of the first row."
)
EPILOG = """examples:
  labkit pack datasets/recorded/queue_60.yaml --simulate --compare
  labkit pack datasets/recorded/queue_8.yaml --check
  labkit pack datasets/recorded/queue_8.yaml --policy best-fit --compare
  labkit pack --resume QUEUE
"""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    about = (
        "Run a queue of jobs on the devices there are: each job starts where and when the policy finds room for it. A "
        "job that ran out of memory runs again, alone, once. Everything is checked before anything starts."
    )
    add = add_command(
        subparsers, "pack", description=about, examples=EPILOG, run=run_pack, flags="no_wait runs_dir json"
    ).add_argument
    add("queue", nargs="?", type=Path, metavar="QUEUE", help="a queue in YAML")
    add("--policy", choices=POLICIES, default="best-fit", help="(default: best-fit)")
    add("--compare", action="store_true", help="run it under exclusive first")
    add("--device", metavar="D[,D]", help="cpu, or GPUs' numbers or UUIDs (default: all GPUs, or cpu)")
    add("--check", action="store_true", help="check the queue, and start nothing")
    add("--simulate", action="store_true", help="start nothing; predict from recorded profiles")
    add("--devices", type=int, metavar="N", help=f"number of simulated devices (default: {SIMULATED_DEVICES})")
    add("--memory", metavar="SIZE", help="of each device that counts (default: what is free)")
    add("--resume", metavar="QUEUE", help="go on with a queue that was cut short")
    add("--show", metavar="QUEUE", help="print what a queue came to")


def run_pack(args: argparse.Namespace) -> int | None:
    if sum(each is not None for each in (args.queue, args.show, args.resume)) != 1:
        raise UserError("name one of: a queue's file, --resume QUEUE, or --show QUEUE.")
    if args.devices is not None and not args.simulate:
        raise UserError("--devices is for --simulate: real devices are chosen with --device.")
    if args.show or args.resume:
        launches = launch.Launches.read(launch.Launches.find(args.show or args.resume, args.runs_dir, "queue"), "queue")
        return _print_queues([launches], as_json=args.json, stopped=False) if args.show else _resume(launches, args)
    queue = sharing.read_queue(args.queue)
    return _simulate(queue, args) if args.simulate else _check_and_run(queue, args)


def _simulate(queue: list[sharing.QueuedJob], args: argparse.Namespace) -> None:
    recorded = sharing.read_recorded()
    count = SIMULATED_DEVICES if args.devices is None else args.devices
    refuse_unless_positive(devices=count)
    memory_bytes = _size(args.memory) or recorded.memory_bytes
    devices = [sharing.PackingDevice(f"device-{number}", memory_bytes) for number in range(count)]
    checked = sharing.check_queue(recorded.fill(queue), devices, lambda job, kind: None, recorded)
    queue = sharing.refuse_if_any(checked, "nothing was simulated:")
    slowdown, of_cpu = sharing.shared_slowdown(recorded), all(errors.certain(job.profile).like for job in queue)
    # jobs that were not recorded may be a GPU's, which CARMA's limit is for
    admission = sharing.cpu_admission(slowdown) if of_cpu else sharing.Admission(slowdown=slowdown)
    names = POLICIES if args.compare else (args.policy,)
    totals = sharing.pack_report(queue, devices, names, slowdown=slowdown, admission=admission)
    if args.json:
        return print_json({"provenance": "predicted", "policies": json_rows(totals)})
    console, on = Console(), f"{count} devices of {hardware.size_text(memory_bytes)}"
    _print_totals(console, totals, f"{len(queue)} jobs on {on}: predicted from recorded profiles")
    by = f"recorded pairs of jobs on {recorded.device}" if of_cpu else "utilisations"
    console.print_line(f"Slowdowns by {by}; profiles recorded {recorded.provenance.when[:10]}.")


def _check_and_run(queue: list[sharing.QueuedJob], args: argparse.Namespace) -> int:
    console = Console(stderr=args.json)
    names = [name.strip() for name in args.device.split(",")] if args.device else []
    live = sharing.live_devices(names, shared=args.policy != "exclusive", memory_bytes=_size(args.memory))
    with console.doing(TRYING):
        checked = sharing.check_here(queue, live)
    _print_queue_check(console, checked, live)
    queue = sharing.refuse_if_any(checked)
    if args.check:
        return 0
    ran: list[launch.Launches] = []
    with sharing.leased_cpu(live[0].device, waits=not args.no_wait, say=console.print), tracking.StopRequest() as stop:
        for name in dict.fromkeys(["exclusive", args.policy] if args.compare else [args.policy]):
            console.print(f"{name}: {len(queue)} jobs", style="bold")
            ran.append(sharing.new_queue(queue, live, name, args.runs_dir, f"{args.queue.stem}-{name}"))
            sharing.run_queue(ran[-1], live, on_event=sharing.telling(_teller(console)), stop=stop)
            if stop:
                break
            if name == "exclusive":
                queue = _timed_alone(ran[-1])
    return _print_queues(ran, as_json=args.json, stopped=bool(stop))


def _resume(launches: launch.Launches, args: argparse.Namespace) -> int:
    console = Console(stderr=args.json)
    content = launches.head.content
    # devices as they are now, with the memory that counted then
    live = [
        replace(each, packing=replace(each.packing, memory_bytes=device["memory_bytes"]))
        for device in content["devices"]
        for each in sharing.live_devices([device["name"]], shared=content["policy"] != "exclusive")
    ]
    with sharing.leased_cpu(live[0].device, waits=not args.no_wait, say=console.print), tracking.StopRequest() as stop:
        sharing.resume_queue(launches, live, on_event=sharing.telling(_teller(console)), stop=stop)
    return _print_queues([launches], as_json=args.json, stopped=bool(stop))


def _teller(console: Console) -> Callable[[str], None]:
    """Prints lines with the time since now."""
    began_s = time.monotonic()
    return lambda text: console.print_line(f"{time.monotonic() - began_s:7.1f} s  {text}")


def _timed_alone(launches: launch.Launches) -> list[sharing.QueuedJob]:
    """The jobs with the durations that they had under exclusive, which the others' slowdowns are against."""
    queue = []
    for job in sharing.tracked_jobs(launches):
        profile = job.queued.profile
        if job.status == "done":
            last = job.attempts[-1]
            profile = replace(job.profile, duration_s=errors.certain(last.ends_s) - last.starts_s)
        queue.append(replace(job.queued, profile=profile))
    return queue


def _size(text: str | None) -> int | None:
    size = None if text is None else hardware.parse_size(text)
    if text is not None and not size:
        raise UserError(f"--memory {text!r} is not a size: give one such as 2GiB.")
    return size


def _print_queue_check(
    console: Console, checked: Sequence[sharing.CheckedQueueJob], live: Sequence[sharing.LiveDevice]
) -> None:
    """Print the table before the start: one row per job, with its needs and where it fits, or what is against it."""
    rows = []
    for row in checked:
        cells: dict[str, str | Text] = {"job": row.queued.name, "comes": f"{row.queued.arrives_s:g} s"}
        cells["needs"] = hardware.size_text(row.queued.profile.memory_estimate_bytes) if row.queued.profile else ""
        cells["busy"] = f"{row.queued.profile.utilisation:.0%}" if row.queued.profile else ""
        cells["fits on"] = Text("; ".join(row.why_not), "red") if row.why_not else ", ".join(row.fits)
        rows.append(cells)
    print_frame(console, rows, "before the start")
    for each in live:
        free = hardware.size_text(each.packing.memory_bytes)
        console.print_line(f"{each.packing.name}: {each.share.device}; {free} are free for the queue")
    console.print_line("; ".join(dict.fromkeys(row.source for row in checked)), "dim")


def _print_queues(ran: Sequence[launch.Launches], *, as_json: bool, stopped: bool) -> int:
    """Print what queues that ran came to, exclusive first where it was run; the command's exit status."""
    totals = sharing.side_by_side([sharing.schedule_in(launches) for launches in ran])
    status = 130 if stopped else ENDED_BADLY if (totals["failed"] > 0).any() else 0
    if as_json:
        queues = [{"queue": each.head.id, "folder": str(each.folder), "status": each.head.status} for each in ran]
        print_json({"queues": queues, "policies": json_rows(totals)})
        return status
    console = Console()
    _print_totals(console, totals, f"{len(ran[0].parts)} jobs: measured")
    for launches in ran:
        head, folder = launches.head, launches.folder
        for job in sharing.tracked_jobs(launches):
            for attempt in job.attempts:
                if attempt.ending not in ("done", None):
                    again = ", then it ran alone" if attempt is not job.attempts[-1] else ""
                    line = marked("[red]{}: {}[/red]{}: {}", job.name, attempt.ending, again, attempt.reason)
                    console.print_line(line)
        console.print_line(f"queue {head.id} ({head.status}): {folder}")
        console.print_line(f"what the jobs printed: {folder / 'logs'}")
        if head.status in ("stopped", "interrupted"):
            console.print_line(f"go on with: labkit pack --resume {folder}")
    return status


def _print_totals(console: Console, totals: pd.DataFrame, title: str) -> None:
    """Print policies side by side (`labkit.sharing.side_by_side`)."""
    import pandas as pd

    shown = {
        "policy": totals["policy"],
        "makespan (s)": _compared(totals, "makespan", "s"),
        "completion (s)": _compared(totals, "mean_completion", "s"),
        "wait (s)": totals["mean_wait_s"].round(1),
        "slowdown": totals["mean_slowdown"].round(2),
        "OOM": totals["ooms"],
        "done": totals["done"],
        "energy (J)": _compared(totals, "energy", "j"),
    }
    print_frame(console, pd.DataFrame(shown), title)
    console.print_line(LEGEND, "dim")
    unknown = " is unknown" if totals["energy_j"].isna().any() else ""
    console.print_line(f"Energy{unknown}: {totals['energy_note'].iloc[-1]}.")


def _compared(totals: pd.DataFrame, name: str, unit: str) -> list[str]:
    pairs = zip(totals[f"{name}_{unit}"], totals[f"{name}_ratio"], strict=True)
    return [f"{value:.1f} ({ratio:.2f})" if math.isfinite(value) else "unknown" for value, ratio in pairs]

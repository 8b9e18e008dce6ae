"""`labkit pack`: run a queue of jobs on the devices there are, or replay it from recorded profiles."""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.cli.collocate import TRYING
from labkit.cli.flags import add_flags
from labkit.errors import UserError
from labkit.hardware import parse_size, size_text
from labkit.sharing import POLICIES, Admission, PackingDevice, cpu_admission, get_policy

if TYPE_CHECKING:
    from labkit.sharing import QueuedJob, QueueRecord

SIMULATED_DEVICES = 2
EPILOG = """examples:
  labkit pack datasets/recorded/queue_60.yaml --simulate --compare
  labkit pack datasets/recorded/queue_8.yaml --check
  labkit pack datasets/recorded/queue_8.yaml --policy best-fit --compare
"""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    parser = subparsers.add_parser(
        "pack",
        help="run a queue of jobs, placed by a policy that knows their memory",
        description="Run a queue of jobs on the devices there are: each job starts where and when the policy finds "
        "room for it. A job that ran out of memory runs again, alone, once. Everything is checked before anything "
        "starts.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("queue", nargs="?", type=Path, metavar="QUEUE", help="a queue in YAML")
    add("--policy", choices=POLICIES, default="best-fit", help="(default: best-fit)")
    compare = "run it under exclusive first; with --simulate, under all policies"
    add("--compare", action="store_true", help=compare)
    add("--device", metavar="D[,D]", help="cpu, or GPUs' numbers or UUIDs (default: all GPUs, or cpu)")
    add("--check", action="store_true", help="check the queue, and start nothing")
    add("--simulate", action="store_true", help="start nothing; predict from recorded profiles")
    add("--devices", type=int, metavar="N", help=f"simulate so many devices (default: {SIMULATED_DEVICES})")
    add("--memory", metavar="SIZE", help="of each device that counts (default: what is free)")
    add("--show", metavar="QUEUE", help="print what a queue came to")
    add_flags(parser, "no_wait", "runs_dir", "json")
    parser.set_defaults(run=run_pack)


def run_pack(args: argparse.Namespace) -> int:
    from labkit.cli.pack_text import print_queues
    from labkit.sharing import QueueRecord, read_queue

    if (args.queue is None) == (args.show is None):
        raise UserError("name one of: a queue's file, or --show QUEUE.")
    if args.devices is not None and not args.simulate:
        raise UserError("--devices is for --simulate: real devices are chosen with --device.")
    if args.show:
        folder = QueueRecord.find(args.show, args.runs_dir)
        return print_queues([(folder, QueueRecord.read(folder))], as_json=args.json, stopped=False)
    queue = read_queue(args.queue)
    return _simulate(queue, args) if args.simulate else _check_and_run(queue, args)


def _simulate(queue: list[QueuedJob], args: argparse.Namespace) -> int:
    from labkit.cli.collocate_text import json_rows
    from labkit.cli.console import Console, print_last
    from labkit.cli.pack_text import print_totals
    from labkit.sharing import check_queue, pack_report, read_recorded, refuse_if_any, shared_slowdown

    recorded = read_recorded()
    count = SIMULATED_DEVICES if args.devices is None else args.devices
    if count < 1:
        raise UserError(f"--devices is {count}: give a whole number from 1.")
    memory_bytes = _size(args.memory) or recorded.memory_bytes
    devices = [PackingDevice(f"device-{number}", memory_bytes) for number in range(count)]
    checked = check_queue(recorded.fill(queue), devices, lambda job: None, recorded)
    queue = refuse_if_any(checked, "nothing was simulated:")
    slowdown, of_cpu = shared_slowdown(recorded), all(job.profile.like for job in queue)
    # jobs that were not recorded may be a GPU's, which CARMA's limit is for
    admission = cpu_admission(slowdown) if of_cpu else Admission(slowdown=slowdown)
    names = tuple(POLICIES) if args.compare else (args.policy,)
    report = pack_report(queue, devices, names, slowdown=slowdown, admission=admission)
    if args.json:
        print_last(json.dumps({"provenance": "predicted", "policies": json_rows(report.totals)}))
        return 0
    console, on = Console(highlight=False), f"{count} devices of {size_text(memory_bytes)}"
    print_totals(console, report.totals, f"{len(queue)} jobs on {on}: predicted from recorded profiles")
    by = f"recorded pairs of jobs on {recorded.device}" if of_cpu else "utilisations"
    console.print(f"Slowdowns by {by}; profiles recorded {recorded.provenance.when[:10]}.", soft_wrap=True)
    return 0


def _check_and_run(queue: list[QueuedJob], args: argparse.Namespace) -> int:
    from labkit.cli.console import Console
    from labkit.cli.pack_text import print_queue_check, print_queues
    from labkit.sharing import QueueRecord, check_here, leased_cpu, live_devices, refuse_if_any, run_queue, telling
    from labkit.tracking import StopRequest

    console = Console(stderr=args.json, highlight=False)
    names = [name.strip() for name in args.device.split(",")] if args.device else []
    live = live_devices(names, shared=args.policy != "exclusive", memory_bytes=_size(args.memory))
    with console.status(TRYING):
        checked = check_here(queue, live)
    print_queue_check(console, checked, live)
    queue = refuse_if_any(checked)
    if args.check:
        return 0
    records: list[tuple[Path, QueueRecord]] = []
    began_s = time.monotonic()

    def tell(text: str) -> None:
        console.print(f"{time.monotonic() - began_s:7.1f} s  {text}", soft_wrap=True)

    with leased_cpu(live[0].device, waits=not args.no_wait, say=console.print), StopRequest() as stop:
        for name in dict.fromkeys(["exclusive", args.policy] if args.compare else [args.policy]):
            console.print(f"{name}: {len(queue)} jobs", style="bold")
            folder = run_queue(
                queue,
                live,
                get_policy(name),
                runs_dir=args.runs_dir,
                on_event=telling(tell),
                stop=stop,
                name=f"{args.queue.stem}-{name}",
            )
            records.append((folder, QueueRecord.read(folder)))
            if stop:
                break
            if name == "exclusive":
                queue = _timed_alone(records[-1][1])
    return print_queues(records, as_json=args.json, stopped=bool(stop))


def _timed_alone(record: QueueRecord) -> list[QueuedJob]:
    """The jobs with the durations that they had under exclusive, which the others' slowdowns are against."""
    queue = []
    for job in record.jobs:
        profile = job.queued.profile
        if job.status == "done":
            profile = replace(job.profile, duration_s=job.attempts[-1].ends_s - job.attempts[-1].starts_s)
        queue.append(replace(job.queued, profile=profile))
    return queue


def _size(text: str | None) -> int | None:
    size = None if text is None else parse_size(text)
    if text is not None and not size:
        raise UserError(f"--memory {text!r} is no size: give one such as 2GiB.")
    return size

"""`labkit pack`: run a queue of jobs on the devices there are, or replay it from recorded profiles."""

from __future__ import annotations

import argparse
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.cli.collocate import TRYING
from labkit.cli.run import add_no_wait_flag
from labkit.errors import UserError

if TYPE_CHECKING:
    from labkit.cli.console import Console
    from labkit.collocation.packing.live_device import LiveDevice
    from labkit.collocation.packing.queue_record import QueueRecord
    from labkit.collocation.packing.queued_job import QueuedJob
    from labkit.collocation.packing.schedule import Schedule

POLICY_NAMES = ("exclusive", "round-robin", "most-free-memory", "least-utilised", "best-fit")
SIMULATED_DEVICES = 2
EPILOG = """examples:
  labkit pack datasets/recorded/queue_60.yaml --simulate --compare
  labkit pack datasets/recorded/queue_8.yaml --check
  labkit pack datasets/recorded/queue_8.yaml --policy best-fit --compare
  labkit pack --resume QUEUE
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
    parser.add_argument("queue", nargs="?", type=Path, metavar="QUEUE", help="a queue in YAML")
    parser.add_argument("--policy", choices=POLICY_NAMES, default="best-fit", help="(default: best-fit)")
    parser.add_argument(
        "--compare", action="store_true", help="run it under exclusive first; with --simulate, under all policies"
    )
    parser.add_argument("--device", metavar="D[,D]", help="cpu, or GPUs' numbers or UUIDs (default: all GPUs, or cpu)")
    parser.add_argument(
        "--mode",
        choices=("cpu-shared", "cpu-pinned"),
        default="cpu-shared",
        help="the CPU as one device, or cut into two halves with cores and memory of their own (default: cpu-shared)",
    )
    parser.add_argument("--margin", metavar="SIZE", default="0", help="memory kept free on each device (default: 0)")
    parser.add_argument("--check", action="store_true", help="check the queue, and start nothing")
    parser.add_argument("--simulate", action="store_true", help="start nothing; predict from recorded profiles")
    parser.add_argument(
        "--devices", type=int, metavar="N", help=f"simulate so many devices (default: {SIMULATED_DEVICES})"
    )
    parser.add_argument("--memory", metavar="SIZE", help="of each device that counts (default: what is free)")
    parser.add_argument("--show", metavar="QUEUE", help="print what a queue came to")
    add_no_wait_flag(parser)
    parser.add_argument("--resume", metavar="QUEUE", help="go on with a queue that was cut short")
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"), metavar="DIR", help="(default: runs)")
    parser.add_argument("--json", action="store_true", help="print the totals as one JSON object on the last line")
    parser.set_defaults(run=run_pack)


def run_pack(args: argparse.Namespace) -> int:
    if sum(each is not None for each in (args.queue, args.resume, args.show)) != 1:
        raise UserError("name one of: a queue's file, --resume QUEUE, or --show QUEUE.")
    if args.devices is not None and not args.simulate:
        raise UserError("--devices is for --simulate: real devices are chosen with --device.")
    if args.resume and (args.simulate or args.check or args.compare):
        raise UserError("--resume goes on with a queue as it was: leave --simulate, --check and --compare away.")
    if args.resume:
        return _resume(args)
    if args.show:
        return _show(args)
    from labkit.collocation.packing.queue import read_queue

    queue = read_queue(args.queue)
    return _simulate(queue, args) if args.simulate else _check_and_run(queue, args)


def _simulate(queue: list[QueuedJob], args: argparse.Namespace) -> int:
    from labkit.cli.pack_text import print_simulated
    from labkit.collocation.packing.admission import Admission
    from labkit.collocation.packing.device_state import PackingDevice
    from labkit.collocation.packing.policy import POLICIES
    from labkit.collocation.packing.queue import memory_faults
    from labkit.collocation.packing.recorded_profiles import cpu_admission, read_recorded, shared_slowdown
    from labkit.collocation.packing.report import pack_report

    recorded, margin_bytes = read_recorded(), _size("--margin", args.margin)
    queue = recorded.fill(queue)
    count = SIMULATED_DEVICES if args.devices is None else args.devices
    if count < 1:
        raise UserError(f"--devices is {count}: give a whole number from 1.")
    memory_bytes = recorded.memory_bytes if args.memory is None else _size("--memory", args.memory)
    devices = [PackingDevice(f"device-{number}", memory_bytes) for number in range(count)]
    modelled = all(job.profile is not None and job.profile.solo is not None for job in queue)
    if args.mode == "cpu-pinned":
        raise UserError("--simulate replays whole devices: leave --mode cpu-pinned away.")
    slowdown = shared_slowdown(recorded.machine if modelled else None, args.mode)
    # without a model the rows may be a GPU's, which CARMA's limit is for
    admission = cpu_admission(slowdown, margin_bytes) if modelled else Admission(margin_bytes, slowdown=slowdown)
    if faults := memory_faults(queue, devices):
        raise UserError("\n".join(["nothing was simulated:", *(f"  {fault}" for fault in faults)]))
    names = tuple(POLICIES) if args.compare else (args.policy,)
    report = pack_report(queue, devices, names, slowdown=slowdown, admission=admission)
    by = f"the interference model of {recorded.machine.device}" if modelled else "utilisations"
    return print_simulated(report, recorded, interference=by, devices=devices, as_json=args.json)


def _check_and_run(queue: list[QueuedJob], args: argparse.Namespace) -> int:
    from labkit.cli.console import Console
    from labkit.cli.pack_live import QueueDisplay
    from labkit.cli.pack_text import print_queue_check, print_queues
    from labkit.collocation.packing.live import run_queue
    from labkit.collocation.packing.policy import get_policy
    from labkit.collocation.packing.queue_check import admission_here, check_here, on_cpu
    from labkit.collocation.packing.queue_record import read_queue_record
    from labkit.tracking.stop import StopRequest

    console = Console(stderr=args.json, highlight=False)
    live = _devices(args.device, args.mode, shared=args.policy != "exclusive", memory=args.memory)
    with console.status(TRYING):
        found = check_here(queue, live)
    print_queue_check(console, found, live)
    if found.refusals:
        raise UserError("\n".join(["nothing was started:", *(f"  {line}" for line in found.refusals)]))
    if args.check:
        return 0
    queue = found.queue
    records: list[tuple[Path, QueueRecord]] = []
    with _leased(live, args, console), StopRequest() as stop:
        for name in dict.fromkeys(["exclusive", args.policy] if args.compare else [args.policy]):
            with QueueDisplay(console, queue, name) as display:
                folder = run_queue(
                    queue,
                    live,
                    get_policy(name),
                    mode=args.mode if on_cpu(live) else "naive",
                    runs_dir=args.runs_dir,
                    on_event=display.show,
                    stop=stop,
                    name=f"{args.queue.stem}-{name}",
                    admission=admission_here(live, args.mode, _size("--margin", args.margin)),
                )
            records.append((folder, read_queue_record(folder)))
            if stop:
                break
    exclusive = None
    if not any(record.policy == "exclusive" for _, record in records):
        exclusive = _predicted_exclusive(queue, live, args.mode)
    return print_queues(records, exclusive, as_json=args.json, stopped=bool(stop))


def _show(args: argparse.Namespace) -> int:
    from labkit.cli.pack_text import print_queues
    from labkit.collocation.packing.queue_record import QueueRecord, read_queue_record

    folder = QueueRecord.find(args.show, args.runs_dir)
    return print_queues([(folder, read_queue_record(folder))], None, as_json=args.json, stopped=False)


def _resume(args: argparse.Namespace) -> int:
    from labkit.cli.console import Console
    from labkit.cli.pack_live import QueueDisplay
    from labkit.cli.pack_text import print_queues
    from labkit.collocation.packing.live import resume_queue
    from labkit.collocation.packing.queue_check import admission_here
    from labkit.collocation.packing.queue_record import QueueRecord, read_queue_record
    from labkit.tracking.stop import StopRequest

    folder = QueueRecord.find(args.resume, args.runs_dir)
    record = read_queue_record(folder)
    console = Console(stderr=args.json, highlight=False)
    mode = record.mode if record.mode.startswith("cpu") else args.mode
    wanted = ",".join(dict.fromkeys(device.name.split(":")[0] for device in record.devices))
    live = _devices(wanted, mode, shared=record.policy != "exclusive", memory=args.memory)
    admission = admission_here(live, mode, _size("--margin", args.margin))
    jobs = [job.queued for job in record.jobs]
    with (
        _leased(live, args, console),
        StopRequest() as stop,
        QueueDisplay(console, jobs, record.policy) as display,
    ):
        resume_queue(folder, live, on_event=display.show, stop=stop, admission=admission)
    return print_queues([(folder, read_queue_record(folder))], None, as_json=args.json, stopped=bool(stop))


def _leased(live: list[LiveDevice], args: argparse.Namespace, console: Console) -> AbstractContextManager:
    from labkit.collocation.modes.cpu import leased_cpu

    return leased_cpu(live[0].device, waits=not args.no_wait, say=console.print)


def _devices(wanted: str | None, mode: str, *, shared: bool, memory: str | None) -> list[LiveDevice]:
    from labkit.collocation.packing.live_device import live_devices

    names = [name.strip() for name in wanted.split(",")] if wanted else []
    memory_bytes = None if memory is None else _size("--memory", memory)
    return live_devices(mode, names, shared=shared, memory_bytes=memory_bytes)


def _predicted_exclusive(queue: list[QueuedJob], live: list[LiveDevice], mode: str) -> Schedule | None:
    """The queue with a job a device, predicted; None where some duration alone is not known."""
    from labkit.collocation.packing.policy import get_policy
    from labkit.collocation.packing.queue_check import admission_here
    from labkit.collocation.packing.simulate import simulate

    if any(job.profile.duration_s is None for job in queue):
        return None
    # one job a device has all the memory that it was found to fit into
    known = [replace(job, profile=replace(job.profile, memory_bytes=1)) for job in queue]
    slowdown = admission_here(live, mode).slowdown  # in a partition a job is slower than alone
    return simulate(known, [each.packing for each in live], get_policy("exclusive"), slowdown=slowdown)


def _size(flag: str, text: str) -> int:
    from labkit.hardware.sizes import parse_size

    size = 0 if text == "0" else parse_size(text)
    if size is None or (size == 0 and text != "0"):
        raise UserError(f"{flag} {text!r} is no size: give one such as 2GiB.")
    return size

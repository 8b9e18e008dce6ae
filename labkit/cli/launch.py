"""`labkit launch`: run an unchanged training script in the harness that collocated jobs run in."""

from __future__ import annotations

import argparse
from pathlib import Path

from labkit.cli.collocate import add_round_flags, check_and_run
from labkit.errors import UserError
from labkit.hardware.sizes import parse_size

LEAST_BYTES = 2**20
EPILOG = """examples:
  labkit launch train.py --lr 0.1
  labkit launch --copies 2 --mode cpu-pinned train.py --note "two words"
All that stands after the script is the script's own.
"""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    parser = subparsers.add_parser(
        "launch",
        help="run an unchanged training script: its steps counted, its use of the machine sampled, ended in time",
        description="Run an unchanged training script: its optimiser's steps are counted, its use of the machine is "
        "sampled into a run folder, and it is ended in time, with all that it started. Several copies start together.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--copies", type=int, default=1, metavar="N", help="run so many at once (default: 1)")
    parser.add_argument("--mode", metavar="M", help="how copies share the device (default: naive or cpu-shared)")
    parser.add_argument("--memory", metavar="SIZE", help="what each may take, such as 2GiB (mode cpu-pinned, mps)")
    parser.add_argument(
        "--baseline", action="store_true", help="run one copy alone first, so that the slowdown of several is known"
    )
    add_round_flags(parser)
    parser.add_argument("script", type=Path, metavar="SCRIPT", help="a Python file that trains")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="its arguments")
    parser.set_defaults(run=run_launch, check=False)


def run_launch(args: argparse.Namespace) -> int:
    from labkit.cli.collocate import usual_mode
    from labkit.collocation.plan.job_names import numbered, safe_name
    from labkit.collocation.plan.plan import DEFAULT_TIMEOUT_S, Plan, Workload
    from labkit.collocation.plan.planned_job import PlannedJob
    from labkit.collocation.plan.variants import with_baseline

    if not args.script.is_file():
        raise UserError(f"{args.script}: there is no such script: name a Python file.")
    if args.copies < 1:
        raise UserError(f"--copies is {args.copies}: give a whole number from 1.")
    memory_bytes = None if args.memory is None else parse_size(args.memory)
    if args.memory is not None and (memory_bytes or 0) < LEAST_BYTES:
        raise UserError(f"--memory {args.memory!r} is no size that a script could do with: give one such as 2GiB.")
    jobs = tuple(
        PlannedJob(name, "script", script=str(args.script), arguments=tuple(args.arguments), memory_bytes=memory_bytes)
        for name in numbered([safe_name(args.script.stem)] * args.copies)
    )
    mode = args.mode or ("alone" if args.copies == 1 else usual_mode(args.device))
    plan = Plan(
        safe_name(args.script.stem),
        (Workload(mode, mode, jobs),),
        device=args.device,
        timeout_s=DEFAULT_TIMEOUT_S if args.timeout is None else args.timeout,
        spin=args.spin,
    )
    return check_and_run(with_baseline(plan, "one" if args.baseline else "none"), args)

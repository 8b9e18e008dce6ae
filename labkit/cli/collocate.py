"""`labkit collocate`: run jobs together on one device, and judge what sharing gained and cost."""

from __future__ import annotations

import argparse
import contextlib
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.cli.flags import add_flags
from labkit.errors import UserError

if TYPE_CHECKING:
    from labkit.sharing import CsvPlan, JobEvent, Plan, RoundRecord

TRYING = "what a job takes of the memory is found out over its first steps, once ..."
RADT_STATUS = {"done": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}
EPILOG = """examples:
  labkit collocate --jobs "dlrm:tour x2, speech:tour" --mode cpu-shared,cpu-pinned --repeats 3
  labkit collocate --jobs "train.py --seed {seed} x2" --mode cpu-pinned
  labkit collocate plan.yaml --check
  labkit collocate experiment.csv          (a CSV of radT's; statuses go to experiment.status.csv)
  labkit collocate --show GROUP
"""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    parser = subparsers.add_parser(
        "collocate",
        help="run several jobs on one device, and compare the ways to share it",
        description="Run several jobs on one device, and compare the ways to share it. Everything is checked before "
        "anything starts; the jobs run alone first, unless --baseline says otherwise.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("plan", nargs="?", type=Path, metavar="PLAN", help="a plan in YAML, or a CSV of radT's")
    add("--jobs", metavar="JOBS", help='instead of a plan: "dlrm:tour x3, train.py --lr 0.1"')
    modes = "naive, mps, mig, cpu-shared, cpu-pinned, alone (default: the plan's; else naive or cpu-shared)"
    add("--mode", metavar="M[,M]", help=modes)
    add("--device", metavar="D", help="cpu, or a GPU's number or UUID (default: the first GPU, or cpu)")
    add("--timeout", type=float, metavar="S", help="end a round after so long (default: 3600)")
    spin = "let idle CPU threads wait busily, OpenMP's default, which is ruinous on shared cores"
    add("--spin", action="store_true", help=spin)
    mig = "create the MIG slices that mode mig lacks, and destroy them, and only them, at the end"
    add("--allow-mig-changes", action="store_true", help=mig)
    add("--repeats", type=int, metavar="N", help="run every round so often; 3 or more give intervals")
    add("--seconds", type=float, metavar="S", help="train labkit's jobs for so long, unless they say themselves")
    alone = "which run alone first: each, one of those that differ in their seed only, or none (default: each)"
    add("--baseline", choices=("each", "one", "none"), default="each", help=alone)
    add("--check", action="store_true", help="check the plan, and start nothing")
    add("--resume", metavar="GROUP", help="go on with a group that was cut short")
    add("--show", metavar="GROUP", help="print the verdict on a group")
    add("--undisturbed", action="store_true", help="with --show: leave out rounds that other programs disturbed")
    add("--list", action="store_true", help="list the groups below --runs-dir")
    add_flags(parser, "no_wait", "runs_dir", "json")
    parser.set_defaults(run=run_collocate)


def run_collocate(args: argparse.Namespace) -> int:
    from labkit.cli.collocate_text import print_groups, print_verdict
    from labkit.sharing import GroupRecord

    asked = [name for name in ("plan", "jobs", "resume", "show", "list") if getattr(args, name)]
    if len(asked) != 1:
        raise UserError("name one of: a plan's file, --jobs, --resume GROUP, --show GROUP, or --list.")
    if args.undisturbed and not args.show:
        raise UserError("--undisturbed leaves rounds of a group out that has run: give it with --show GROUP.")
    if args.list:
        print_groups(args.runs_dir, as_json=args.json)
        return 0
    if args.show:
        folder = GroupRecord.find(args.show, args.runs_dir)
        return print_verdict(folder, as_json=args.json, undisturbed=args.undisturbed)
    if args.resume:
        folder = GroupRecord.find(args.resume, args.runs_dir)
        return _check_and_run(args, GroupRecord.read(folder).plan, None, resumed=folder)
    return _check_and_run(args, *_asked_plan(args), resumed=None)


def _check_and_run(args: argparse.Namespace, plan: Plan, csv: CsvPlan | None, *, resumed: Path | None) -> int:
    """Check a plan, print the table, and run it, or go on with its group, where nothing is against it."""
    from labkit.cli.collocate_text import GroupDisplay, print_check, print_verdict
    from labkit.cli.console import Console, print_last
    from labkit.hardware import find_device, get_devices
    from labkit.sharing import RoundEvent, check_plan, job_memory, leased_cpu, made_slices, resume_plan, run_plan
    from labkit.tracking import StopRequest

    console = Console(stderr=args.json, highlight=False)
    for notice in csv.notices if csv is not None else ():
        console.print(notice, soft_wrap=True)
    with contextlib.ExitStack() as stack:
        if not args.check:
            device = find_device(plan.device, get_devices())
            stack.enter_context(leased_cpu(device, waits=not args.no_wait, say=console.print))
        with console.status(TRYING):
            found = check_plan(plan, job_memory)
        if found.lacks_slices_only and args.allow_mig_changes and not args.check:
            stack.enter_context(made_slices(plan, found.needs, console.print))
            found = check_plan(plan, job_memory)
        print_check(console, plan, found)
        if found.refusals:
            raise UserError("\n".join(["nothing was started:", *(f"  {line}" for line in found.refusals)]))
        if args.check:
            if args.json:
                print_last(json.dumps({"rows": [asdict(row) for row in found.rows], "warnings": found.warnings}))
            return 0
        with StopRequest() as stop, GroupDisplay(console) as display:

            def hear(event: JobEvent | RoundEvent) -> None:
                display.show(event)
                if csv is not None and isinstance(event, RoundEvent) and event.record.ended_at is not None:
                    keep_statuses(csv, event.record, plan.repeats)

            if resumed:
                resume_plan(resumed, on_event=hear, stop=stop)
            else:
                known = {"needs": found.needs, "quiet": found.quiet}
                resumed = run_plan(plan, runs_dir=args.runs_dir, on_event=hear, stop=stop, **known)
    return print_verdict(resumed, as_json=args.json, stopped=bool(stop))


def keep_statuses(csv: CsvPlan, ended: RoundRecord, repeats: int) -> None:
    """Write what became of a CSV's rows beside it, in the words of MLflow, which radT writes."""
    rows = csv.rows.get(ended.workload, {})
    for job in ended.jobs:
        # a row is finished when its last repeat is
        if job.job in rows and (job.status != "done" or ended.repeat == repeats - 1):
            csv.record(ended.workload, job.job, RADT_STATUS.get(job.status, "FAILED"), job.run or "")


def _asked_plan(args: argparse.Namespace) -> tuple[Plan, CsvPlan | None]:
    """The plan of the command line, its baseline included, and the CSV whose statuses are kept."""
    from labkit.hardware import find_device, get_devices
    from labkit.sharing import on_device, plan_of, read_csv_plan, read_yaml_plan, with_baseline, with_seconds

    is_cpu = find_device(args.device, get_devices()).kind == "cpu"
    usual = "cpu-shared" if is_cpu else "naive"  # plain processes, as that is called on the device
    modes = [mode.strip() for mode in args.mode.split(",")] if args.mode else []
    suffix, csv = "" if args.jobs else args.plan.suffix.lower(), None
    if args.jobs:
        plan = plan_of(args.jobs, modes or [usual], baseline="none")
    elif suffix == ".csv":
        if modes:
            raise UserError(f"{args.plan}: the column Collocation says how its rows share: leave --mode away.")
        csv = read_csv_plan(args.plan)
        plan = csv.plan
    elif suffix in (".yaml", ".yml"):
        plan = read_yaml_plan(args.plan, modes=modes, default_mode=usual)
    else:
        raise UserError(f"{args.plan}: a plan is a .yaml, .yml or .csv file: rename it, or use --jobs.")
    if args.device is not None:
        plan = on_device(plan, args.device)
    given: dict[str, Any] = {"repeats": args.repeats, "timeout_s": args.timeout, "spin": args.spin or None}
    plan = replace(plan, **{name: value for name, value in given.items() if value is not None})
    return with_baseline(with_seconds(plan, args.seconds), args.baseline), csv

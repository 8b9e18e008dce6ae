"""`labkit energy`: joules of runs, watts and carbon. `labkit energy trial`: joules per sample at a steady state."""

from __future__ import annotations

import argparse
import contextlib
import sys
import warnings
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from labkit import UserError, errors, hardware, launch, plots, runs, telemetry, tracking, tta
from labkit.cli.console import Console, json_rows, print_frame, range_text
from labkit.cli.flags import RUN, add_command, add_harness_flags, add_script, refuse_unless_positive
from labkit.cli.printing import print_json, say
from labkit.cli.run import given_command

if TYPE_CHECKING:
    import pandas as pd

NAMED = 5
"""Number of runs that a note names, unless it is of all of them"""
COLUMNS = {
    "energy_j": "J",
    "average_power_w": "W",
    "energy_per_sample_j": "J per sample",
    "energy_to_target_j": "J to target",
    "carbon_g": "g CO2e",
}
"""Headings of what is known of a run's energy"""
STEADY = """Training is cut into pieces of a second (twentieths of it where these are longer), and is steady
from the first of five in a row whose samples/s lie within 10 % of the median piece of the second half."""
EPILOG = f"""Power and temperature of the idle device are measured first. Before each trial it cools down, until both
are back, as far as they can be read here, or --cool-down seconds have passed. The warm-up is dropped.
{STEADY}
Each trial is a run folder, which reports leave out.

--power-limits needs an NVIDIA GPU without MIG and an administrator's rights. It takes each limit once a round, up and
down in turns, and puts back the one that it found, even should this command be killed.
"""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    about = "Energy of runs: from hardware counters where there are any, else from power over time."
    add = add_command(subparsers, "energy", description=about, run=run_energy, flags="runs_dir json").add_argument
    add("which", nargs="*", **RUN)
    add("--grid", type=float, metavar="G", help="carbon intensity of your grid, in g of CO2 equivalent per kWh")
    add("--estimate", action="store_true", help="where nothing was measured, predict from the power of the run's tier")
    add("--power", type=float, metavar="W", help="predict with this power instead of the tier's")

    about = "Measure joules per sample, watts and samples/s of a training script at its steady state."
    parser = add_command(subparsers, "energy trial", description=about, examples=EPILOG, run=run_trial)
    add = parser.add_argument
    add("--trials", type=int, default=3, metavar="N", help="of each power limit (default: 3)")
    add("--seconds", type=float, metavar="S", help="of training, ten at least, of each (default: to its own end)")
    add("--cool-down", type=float, default=120.0, metavar="S", help="longest wait in seconds (default: 120; 0: none)")
    add("--power-limits", metavar="W,W", help="NVML power limits to set, one after another")
    add_harness_flags(parser)
    add_script(parser)


def run_energy(args: argparse.Namespace) -> None:
    from rich.progress import track  # which other commands need not load

    refuse_unless_positive(grid=args.grid, power=args.power)
    folders = [runs.find_run(which, args.runs_dir) for which in args.which]
    folders = folders or runs.run_folders(args.runs_dir)
    if not folders:
        raise UserError(f"{args.runs_dir} has no runs: start one with `labkit train dlrm`, or give another --runs-dir.")
    accounts, windows, options = [], [], {"estimate": args.estimate, "assumed_power_w": args.power}
    screen = Console(stderr=True)
    for folder in track(folders, "runs", console=screen, transient=True, disable=not screen.is_terminal):
        try:
            run = telemetry.Samples(folder, telemetry.OF_ENERGY)  # read once for both
            accounts.append(tta.energy_account(run, grid_g_per_kwh=args.grid, **options))
            has_windows = any(event["event"] == "windows" for event in run.events)
            windows.append(json_rows(tta.windows_by_name(tta.window_energy(run, **options))) if has_windows else [])
        except UserError as error:
            if args.which:
                raise
            warnings.warn(f"left out: {error}", stacklevel=1)  # of all runs, one may be profiled or damaged
    if not accounts:
        raise UserError(f"{args.runs_dir}: the energy of no run here is known; the lines above say why.")
    if args.json:
        both = zip(accounts, windows, strict=True)
        return print_json([asdict(account) | {"windows": own} for account, own in both])
    _print(accounts, windows)


def _print(accounts: list, windows: list[list[dict]]) -> None:
    rows = [
        {"run": account.run, "what it is": "-" if account.energy_j is None else account.kind}
        | {words: getattr(account, name) for name, words in COLUMNS.items()}
        for account in accounts
    ]
    console = Console()
    print_frame(console, rows)
    console.print("J to target: until the target was reached; CO2e: CO2 equivalent.")
    told: dict[str, list[str]] = {}
    for account in accounts:
        told.setdefault(f"{account.source}: {account.note}" if account.source else account.note, []).append(account.run)
    for note, of in told.items():
        whose = "all runs" if len(of) == len(accounts) > 1 else ", ".join(of[:NAMED])
        whose += f" and {len(of) - NAMED:,} others" if len(of) > NAMED and len(of) < len(accounts) else ""
        console.print_line(f"{whose}: {note}")
    names = {"count": "times", "seconds": "s"} | COLUMNS
    for account, own in zip(accounts, windows, strict=True):
        if own:
            own = [row | {"note": row["note"].replace(account.note, "")} for row in own]  # which is printed above
            rows = [{names.get(name, name): value for name, value in row.items()} for row in own]
            print_frame(console, rows, f"windows of {account.run}")


def run_trial(args: argparse.Namespace) -> None:
    limits = _limits(args.power_limits)
    for limit in limits:
        refuse_unless_positive(power_limits=limit)
    refuse_unless_positive(trials=args.trials, seconds=args.seconds, cool_down=args.cool_down or None)  # 0: no wait
    command = given_command(args)

    device = hardware.find_device(command.budget.torch_name if command.budget else None, hardware.get_devices())
    line = tracking.ProgressLine(sys.stderr if args.json else sys.stdout, evaluations=False)
    folders, before = [], None

    def prepare(command: tracking.ScriptCommand) -> tracking.ScriptCommand:
        """Set the power limit, and wait until the device has cooled down."""
        trial, limit = command.trial or {}, command.power_limit_w
        if limit is not None:
            card.set(limit)
        with contextlib.closing(telemetry.sampled(device)) as samples:
            cooled = telemetry.cool_down(samples, device, errors.certain(before), args.cool_down)
        under = f" under {limit:g} W" if limit else ""
        say(f"trial {trial['number']} of {args.trials}{under}; {cooled}", to_stderr=args.json)
        return replace(command, trial=trial | {"cool_down": cooled})

    def show(part: launch.Part, event: dict[str, Any]) -> None:
        line(tracking.read_event(event))
        if event["kind"] == "Ended":
            folders.append(event["folder"])
        elif event["kind"] == "State" and part.status in ("failed", "out_of_memory"):
            kind = UserError if part.more["refused"] else tracking.WorkerFailed
            raise kind(f"{command.script}: {part.reason}")

    try:
        with contextlib.ExitStack() as stack:
            if limits:
                telemetry.check_power_limits(device, limits)
                card = stack.enter_context(telemetry.PowerLimit(device))
            with contextlib.closing(telemetry.sampled(device)) as samples:
                before = telemetry.idle(samples, device)
            of_idle = {"torch_name": device.torch_name, "idle_power_w": before.power_w}
            trials = [
                replace(command, power_limit_w=limit, trial=of_idle | {"number": number})
                for number in range(1, args.trials + 1)
                for limit in (limits if number % 2 else limits[::-1]) or [None]
            ]
            # Ctrl-C ends a cool-down, too, because nothing listens to this request
            engine = launch.ScriptRuns("trial", trials, stop=tracking.StopRequest(), on_event=show)
            engine.prepare, engine.train_s = prepare, args.seconds or engine.train_s
            engine.run()
    finally:
        if folders:  # of those before one that failed, too
            _report(folders, before, args.json)


def _limits(text: str | None) -> list[float]:
    """The limits of --power-limits, ascending."""
    try:
        return sorted({float(each) for each in text.split(",")}) if text is not None else []
    except ValueError as error:
        raise UserError(f"--power-limits is {text!r}: give watts with commas between, such as 100,150,200.") from error


def _report(folders: list[str], before: telemetry.Idle, as_json: bool) -> None:
    trials = tta.trial_table(folders)
    tables = {"trials": trials, "means": tta.trial_means(trials)}
    if not as_json:
        return _print_trials(**tables, before=before)
    rows = {name: json_rows(each) for name, each in tables.items()}
    print_json({"idle_power_w": before.power_w, "idle_note": before.note} | rows | {"folders": folders})


def _print_trials(trials: pd.DataFrame, means: pd.DataFrame, before: telemetry.Idle) -> None:
    names = dict(zip(tta.NUMBERS, ("samples/s", "W", "J per sample", "J per sample above idle"), strict=True))

    def row_of(row: dict) -> dict:
        shown = {"power limit": "as found" if row["power_limit_w"] != row["power_limit_w"] else row["power_limit_w"]}
        for name, words in names.items():
            shown[words] = range_text(row[name], row[f"{name}_low"], row[f"{name}_high"], plots.number_text)
        return shown | {"trials": row["trials"]}

    console = Console()
    print_frame(console, [row_of(row) for row in means.to_dict("records")])
    columns = {"run": "run", "trial": "trial", "warm_up_s": "warm-up s", "steady_s": "steady s"}
    print_frame(console, trials[list(columns)].rename(columns=columns))
    power = f"{before.power_w:.4g} W ({before.note})" if before.power_w is not None else f"not known ({before.note})"
    console.print_line(f"idle: {power}. In brackets: 95 % intervals over trials. {' '.join(STEADY.split())}")
    for note, own in trials[trials["note"] != ""].groupby("note", sort=False):
        console.print_line(f"trial {', '.join(map(str, own['trial']))}: {note}")

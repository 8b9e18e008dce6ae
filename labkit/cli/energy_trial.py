"""`labkit energy trial`: joules a sample of a training script at its steady state, in trials, under power limits."""

from __future__ import annotations

import argparse
import contextlib
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from labkit import UserError, hardware, launch, telemetry, tracking, tta
from labkit.cli.console import Console, print_frame, print_json, say
from labkit.cli.flags import add_harness_flags, add_script, refuse_unless_positive
from labkit.cli.run import given_command

if TYPE_CHECKING:
    import pandas as pd

STEADY = """Training is cut into pieces of a second (twentieths of it where these are longer), and is steady
from the first of five in a row whose samples/s lie within 10 % of the median piece of the second half."""
EPILOG = f"""Power and temperature of the idle device are measured first. Before each trial it cools down, until both
are back, as far as they are told here, or --cool-down seconds have passed. The warm-up is dropped.
{STEADY}
Each trial is a run folder, which reports leave out.

--power-limits needs an NVIDIA GPU without MIG and an administrator's rights. It takes each limit once a round, up and
down in turns, and puts back the one that it found, even should this command be killed.
"""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    parser = subparsers.add_parser(
        "energy trial",
        help="joules a sample of a script at its steady state, in several trials",
        description="Measure joules a sample, watts and samples/s of a training script at its steady state, in trials.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--trials", type=int, default=3, metavar="N", help="of each power limit (default: 3)")
    add(
        "--seconds",
        type=float,
        metavar="S",
        help="of training, ten at least, of each (default: to its own end)",
    )
    add("--cool-down", type=float, default=120.0, metavar="S", help="wait at most so long (default: 120; 0: not)")
    add("--power-limits", metavar="W,W", help="NVML power limits to set, one after another")
    add_harness_flags(parser)
    add_script(parser)
    parser.set_defaults(run=run_trial)


def run_trial(args: argparse.Namespace) -> int:
    limits = _limits(args.power_limits)
    refuse_unless_positive("--power-limits", *limits)
    refuse_unless_positive("--trials", args.trials)
    refuse_unless_positive("--seconds", args.seconds)
    refuse_unless_positive("--cool-down", args.cool_down or None)  # 0: not
    command = given_command(args)

    device = hardware.find_device(command.budget and command.budget.torch_name, hardware.get_devices())
    line = tracking.ProgressLine(sys.stderr if args.json else sys.stdout, evaluations=False)
    folders, before = [], None

    def prepare(command: tracking.ScriptCommand) -> tracking.ScriptCommand:
        """Set the power limit, and wait until the device has cooled down."""
        trial, limit = command.trial or {}, command.power_limit_w
        if limit is not None:
            card.set(limit)
        with telemetry.sampled(device) as samples:
            cooled = telemetry.cool_down(samples, device, before, args.cool_down)
        under = f" under {limit:g} W" if limit else ""
        say(f"trial {trial['number']} of {args.trials}{under}; {cooled}", to_stderr=args.json)
        return replace(command, trial=trial | {"cool_down": cooled})

    def show(part: launch.Part, event: dict[str, Any]) -> None:
        line(tracking.read_event(event))
        if event["kind"] == "Ended":
            folders.append(event["folder"])
        elif event["kind"] == "State" and part.status in ("failed", "out_of_memory"):
            raise (UserError if part.more["refused"] else tracking.WorkerFailed)(part.reason)

    try:
        with contextlib.ExitStack() as stack:
            if limits:
                telemetry.check_power_limits(device, limits)
                card = stack.enter_context(telemetry.PowerLimit(device))
            with telemetry.sampled(device) as samples:
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
            _tell(folders, before, args.json)
    return 0


def _limits(text: str | None) -> list[float]:
    """The limits of --power-limits, ascending."""
    try:
        return sorted({float(each) for each in text.split(",")}) if text is not None else []
    except ValueError as error:
        raise UserError(f"--power-limits is {text!r}: give watts with commas between, such as 100,150,200.") from error


def _tell(folders: list[str], before: telemetry.Idle, as_json: bool) -> None:
    trials = tta.trial_table(folders)
    tables = {"trials": trials, "means": tta.trial_means(trials)}
    if not as_json:
        return _print(**tables, before=before)
    told = {name: each.astype(object).where(each.notna(), None).to_dict("records") for name, each in tables.items()}
    print_json({"idle_power_w": before.power_w, "idle_note": before.note} | told | {"folders": folders})


def _print(trials: pd.DataFrame, means: pd.DataFrame, before: telemetry.Idle) -> None:
    names = dict(zip(tta.NUMBERS, ("samples/s", "W", "J a sample", "J a sample above idle"), strict=True))

    def row_of(row: dict) -> dict:
        told = {"power limit": "as found" if row["power_limit_w"] != row["power_limit_w"] else row["power_limit_w"]}
        for name, words in names.items():
            low, high = row[f"{name}_low"], row[f"{name}_high"]
            told[words] = row[name] if low != low else f"{row[name]:.4g} ({low:.4g} to {high:.4g})"
        return told | {"trials": row["trials"]}

    console = Console()
    print_frame(console, [row_of(row) for row in means.to_dict("records")])
    told = {"run": "run", "trial": "trial", "warm_up_s": "warm-up s", "steady_s": "steady s"}
    print_frame(console, trials[list(told)].rename(columns=told))
    power = f"{before.power_w:.4g} W ({before.note})" if before.power_w is not None else f"not known ({before.note})"
    told = f"idle: {power}. In brackets: 95 % intervals over trials. {' '.join(STEADY.split())}"
    console.print_line(told)
    for note, own in trials[trials["note"] != ""].groupby("note", sort=False):
        console.print_line(f"trial {', '.join(map(str, own['trial']))}: {note}")

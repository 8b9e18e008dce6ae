"""`labkit profile`: where a step's time goes, and what to change."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.cli.display import TrainingDisplay
from labkit.cli.flags import RUN, add_flags, add_harness_flags, add_script
from labkit.cli.run import given_command, harness_command, script_output
from labkit.cli.train import add_job_parser, checked, print_help
from labkit.errors import UserError
from labkit.jobs import JOBS, script_of

if TYPE_CHECKING:
    from labkit.profiling import ProfileSettings
    from labkit.tracking import OnEvent, ScriptCommand

EPILOG = """\
The first steps of a run are slow (memory is touched, kernels are chosen), so --skip of them pass, of which the later
half is timed; --warmup steps pass under the profiler; then --steps are recorded. A profiled run is marked, and counts
neither as a benchmark nor towards a time to accuracy.

--tool takes another profiler: torch finds the bottleneck; nsys (kernels and CUDA calls over time) and py-spy (Python
functions) confirm it from outside, in steady steps.
Of ncu, for single kernels, and perf, for the processor's counters, the command to run is printed."""
TOOLS = ("torch", "nsys", "py-spy", "ncu", "perf")


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    parser = subparsers.add_parser(
        "profile",
        help="where the time of a training step goes, and what to change",
        description="Profile a few steady steps, and say where they go and what to change.",
        epilog=EPILOG,
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, job in JOBS.items():
        _add_schedule(add_job_parser(commands, name, f"profile the training of {job.words}", run_job))
    words = (
        "Profile a script that trains with torch, unchanged: a step ends with run.step of its labkit.Run, else with "
    )
    about = {"description": f"{words}its optimiser's.", "epilog": EPILOG}
    script = commands.add_parser("run", help="profile any training script, unchanged", **about)
    add_harness_flags(script)
    _add_schedule(script)
    add_script(script)
    script.set_defaults(run=run_script)
    show = commands.add_parser("show", help="open the interactive view of a profile, or say it again")
    show.add_argument("which", **RUN)
    show.add_argument("--text", action="store_true", help="print the answer instead of opening a page")
    show.add_argument("--out", type=Path, metavar="FILE", help="the page to write (default: in the run's trace/)")
    show.add_argument("--no-browser", action="store_true", help="write the page, and open nothing")
    show.set_defaults(run=run_show)
    diff = commands.add_parser("diff", help="explain a speed-up operator by operator")
    diff.add_argument("before", metavar="RUN_A", help="the profiled run to compare with")
    diff.add_argument("after", metavar="RUN_B", help="the other one")
    diff.add_argument("--top", type=int, default=12, metavar="N", help="rows to print (default: 12); --json has all")
    diff.set_defaults(run=run_diff)
    for command in (show, diff):
        add_flags(command, "runs_dir", "json")


def _add_schedule(command: argparse.ArgumentParser) -> None:
    from labkit.profiling import ProfileSettings

    add, plain = command.add_argument, ProfileSettings()
    add("--skip", type=int, default=plain.skip, metavar="N", help=f"steps to pass first (default: {plain.skip})")
    add("--warmup", type=int, default=plain.warmup, metavar="N", help=f"then, profiled (default: {plain.warmup})")
    add("--steps", type=int, default=plain.steps, metavar="N", help=f"steps to record (default: {plain.steps})")
    add("--tool", choices=TOOLS, default="torch", help="what looks, as told below (default: torch)")
    add("--memory", action="store_true", help="record each allocation, too")
    add("--no-shapes", action="store_true", help="leave out the sizes of inputs, and GFLOP/s and GB/s with them")


def run_job(args: argparse.Namespace) -> int:
    if args.help:
        return print_help(args)
    return _profile(args, checked(args, harness_command(args, script_of(args.job), args.passed_on)))


def run_script(args: argparse.Namespace) -> int:
    return _profile(args, given_command(args))


def _profile(args: argparse.Namespace, command: ScriptCommand) -> int:
    from labkit.profiling import BY_HAND, CHATTER, ProfileSettings, check_tool, command_by_hand

    os.environ.update({name: value for name, value in CHATTER.items() if name not in os.environ})  # before torch loads
    settings = ProfileSettings(args.skip, args.warmup, args.steps, shapes=not args.no_shapes, memory=args.memory)
    words = settings.in_words()
    if args.tool != "torch":
        if given := [flag for flag in ("memory", "no_shapes") if getattr(args, flag)]:
            what = f"--{given[0].replace('_', '-')} says what torch.profiler records, and {args.tool} does not"
            raise UserError(f"{what}: leave it away, or take --tool torch.")
        check_tool(args.tool, command)
        words = f"steps 1 to {args.skip + args.warmup} pass, then {args.tool} looks at {args.steps} or more"
    if args.tool in BY_HAND:
        print(f"{command_by_hand(args.tool, command)}\n\nRun this yourself: {BY_HAND[args.tool][1]}.")
        return 0
    with TrainingDisplay(to_stderr=args.json) as display, script_output(args.json):
        display.print(words, "dim")
        if args.tool == "nsys":
            from labkit.profiling import profile_under_nsys

            folder, notes = profile_under_nsys(command, settings, display.show)
        else:
            folder, notes = _profile_here(args.tool, command, settings, display.show)
        for note in notes:
            display.print(note, "dim")
    if args.tool == "torch":
        _measure_card(folder)
    return _tell(folder, args.json)


def _profile_here(
    tool: str, command: ScriptCommand, settings: ProfileSettings, tell: OnEvent
) -> tuple[Path, list[str]]:
    """Profile a script in this process: the run's folder, and what its user should know."""
    from labkit.tracking import StopRequest, bind_process

    with StopRequest() as stop:
        bind_process(command, tell, stop)
        from labkit.profiling import (
            SteadySteps,
            StepRecorder,
            profile_script,  # torch comes with it
        )

        watcher = StepRecorder(settings) if tool == "torch" else SteadySteps(settings, tool, command.script)
        return profile_script(command, watcher, stop, tell)


def _measure_card(folder: Path) -> None:
    """Measure what the machine can do, right after the steps."""
    import torch

    from labkit.hardware import calibrate, is_out_of_memory
    from labkit.profiling import FACTS, save_card

    device = json.loads((folder / "trace" / FACTS).read_text(encoding="utf-8"))["device"]
    on = "cpu" if torch.device(device).type == "cpu" else device
    try:
        card = calibrate(on, repeats=3)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        card = calibrate(on, repeats=3, copy_bytes=2**25)  # a budget of little memory
    save_card(folder, card)


def run_show(args: argparse.Namespace) -> int:
    from labkit.profiling import is_tool_profile, read_profile
    from labkit.runs import find_run

    folder = find_run(args.which, args.runs_dir)
    if args.text or args.json or is_tool_profile(folder):  # which has no page, but says what opens it
        return _tell(folder, args.json)
    from labkit.report import write_profile_page

    page = write_profile_page(read_profile(folder), args.out)
    print(f"The profile's page: {page}")
    if not args.no_browser:
        import webbrowser

        webbrowser.open(page.as_uri())
    return 0


def run_diff(args: argparse.Namespace) -> int:
    from labkit.cli.profile_text import print_diff
    from labkit.profiling import compare, read_profile
    from labkit.runs import find_run

    difference = compare(*(read_profile(find_run(which, args.runs_dir)) for which in (args.before, args.after)))
    if args.json:
        print(json.dumps(difference.to_dict()))
    else:
        print_diff(difference, args.top)
    return 0


def _tell(folder: Path, as_json: bool) -> int:
    """Print what was recorded into a run's folder."""
    from labkit.cli.console import print_last
    from labkit.cli.profile_text import print_profile, print_tool_profile
    from labkit.profiling import is_tool_profile, read_profile, read_tool_profile

    is_of_tool = is_tool_profile(folder)
    profile = (read_tool_profile if is_of_tool else read_profile)(folder)
    if as_json:
        print_last(json.dumps(profile.to_dict()))
    else:
        (print_tool_profile if is_of_tool else print_profile)(profile)
    return 0

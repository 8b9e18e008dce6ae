"""`labkit profile`: where a step's time goes, and what to change."""

import argparse
import os
import webbrowser
from dataclasses import asdict
from pathlib import Path

from labkit import UserError, profiling, report, runs
from labkit.cli.console import Console, TrainingDisplay, marked, print_frame
from labkit.cli.flags import RUN, add_command, commands_of
from labkit.cli.printing import print_json, print_last
from labkit.cli.run import add_trainings, asked_command, bound

EPILOG = """\
The first steps of a run are slow (memory is touched, kernels are chosen). So --skip steps run first, of which the later
half is timed; --warmup steps run under the profiler; then --steps are recorded. A profiled run is marked as such, and
counts neither as a benchmark nor towards a time to accuracy.

--tool selects the profiler: torch finds the bottleneck; py-spy samples Python functions from outside, in steady steps.
For nsys (kernels and CUDA calls over time), ncu (single kernels) and perf (the processor's counters) labkit prints the
command to run."""
SHOWN_OPERATORS, SHOWN_FUNCTIONS = 5, 8


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    words = "Profile a few steady steps, and say where their time goes and what to change."
    commands = commands_of(add_command(subparsers, "profile", description=words, epilog=EPILOG))
    words = "Profile a script that trains with torch, unchanged: a step ends with run.step of its labkit.Run, or else "
    about = {"description": f"{words}with its optimiser's step.", "epilog": EPILOG}
    add_trainings(commands, "profile", _add_schedule, run_profile, **about)
    words = "open the interactive view of a profile, or print it again"
    show = add_command(commands, "show", words, run=run_show, flags="runs_dir json")
    words = f"{RUN['help']}, a trace file of torch.profiler, or a folder of them, one per rank"
    show.add_argument("which", metavar="RUN", help=words)
    show.add_argument("--text", action="store_true", help="print the answer instead of opening a page")
    show.add_argument("--out", type=Path, metavar="FILE", help="the page to write (default: in the run's trace/)")
    show.add_argument("--no-browser", action="store_true", help="write the page without opening it")
    words = "explain a speed-up operator by operator"
    diff = add_command(commands, "diff", words, run=run_diff, flags="runs_dir json")
    diff.add_argument("before", metavar="RUN_A", help="the profiled run, or trace file, to compare with")
    diff.add_argument("after", metavar="RUN_B", help="the other one")
    diff.add_argument("--top", type=int, default=12, metavar="N", help="rows to print (default: 12); --json has all")


def _add_schedule(command: argparse.ArgumentParser) -> None:
    add, plain = command.add_argument, profiling.ProfileSettings()
    add("--skip", type=int, default=plain.skip, metavar="N", help=f"steps to skip first (default: {plain.skip})")
    add("--warmup", type=int, default=plain.warmup, metavar="N", help=f"warm-up steps (default: {plain.warmup})")
    add("--steps", type=int, default=plain.steps, metavar="N", help=f"steps to record (default: {plain.steps})")
    add("--tool", choices=profiling.TOOLS, default="torch", help="the profiler, see below (default: torch)")
    add("--memory", action="store_true", help="also record each allocation")
    add("--no-shapes", action="store_true", help="do not record the sizes of inputs, nor GFLOP/s and GB/s")


def run_profile(args: argparse.Namespace) -> None:
    command, *_ = asked_command(args)
    for name, value in profiling.CHATTER.items():  # before torch loads
        os.environ.setdefault(name, value)
    how = {"shapes": not args.no_shapes, "memory": args.memory}
    settings = profiling.ProfileSettings(args.skip, args.warmup, args.steps, **how)
    words = settings.in_words()
    if args.tool != "torch":
        if given := [flag for flag in ("memory", "no_shapes") if getattr(args, flag)]:
            flag = f"--{given[0].replace('_', '-')}"
            raise UserError(f"{flag} applies to torch.profiler, not to {args.tool}: remove it, or use --tool torch.")
        profiling.check_tool(args.tool, command)
        words = f"steps 1 to {args.skip + args.warmup} are skipped, then {args.tool} watches {args.steps} or more"
    if args.tool in profiling.BY_HAND:
        print(profiling.command_by_hand(args.tool, command), end="\n\n")
        print(f"Run this yourself: {profiling.BY_HAND[args.tool][1]}.")
        return

    display = TrainingDisplay(Console(stderr=args.json))
    display.print(words, "dim")
    with bound(command, display, as_json=args.json) as stop:
        folder, notes = profiling.profile_with(args.tool, command, settings, stop, display.show)
        for note in notes:
            display.print(note, "dim")
    _print(folder, args.json)


def run_show(args: argparse.Namespace) -> None:
    if len(traces := _traces(Path(args.which))) > 1:
        ranks = profiling.compare_ranks(traces)
        return print_json(asdict(ranks)) if args.json else _print_ranks(ranks)
    folder = _find(args.which, args.runs_dir)
    # the profile of a tool has no page, but says what opens it
    if args.text or args.json or profiling.is_tool_profile(folder):
        return _print(folder, args.json)
    page = report.write_profile_page(profiling.read_profile(folder), args.out)
    print(f"The profile's page: {page}")
    if not args.no_browser:
        webbrowser.open(page.as_uri())


def run_diff(args: argparse.Namespace) -> None:
    before, after = (profiling.read_profile(_find(which, args.runs_dir)) for which in (args.before, args.after))
    difference = profiling.compare(before, after)
    if args.json:
        return print_json(difference.to_dict())
    _print_diff(difference, args.top)


def _find(which: str, runs_dir: str) -> Path:
    """The trace file of that path, or the folder of that run."""
    path = Path(which)
    if path.is_file() and path.name != "run.json":
        return path
    if traces := _traces(path):
        raise UserError(f"{path} is a folder of {len(traces)} files, and not a run: name one, such as {traces[0]}.")
    return runs.find_run(which, runs_dir)


def _traces(path: Path) -> list[Path]:
    """The traces in a folder that is no run."""
    return [] if (path / "run.json").is_file() else sorted(path.glob("*.json*"))


def _print(folder: Path, as_json: bool) -> None:
    """Print the profile in a run's folder, or in a trace file."""
    if profiling.is_tool_profile(folder):
        of_tool = profiling.read_tool_profile(folder)
        return print_last(of_tool.to_dict()) if as_json else _print_tool_profile(of_tool)
    profile = profiling.read_profile(folder)
    return print_last(profile.to_dict()) if as_json else print_profile(profile)


def print_profile(profile: "profiling.Profile") -> None:
    console = Console()
    console.print(profile.headline, style="bold")
    rows = [
        {"phase": row.phase, "ms": _ms(row.time_us), "share": f"{row.share:.1%}", "": "█" * round(30 * row.share)}
        for row in profile.phases.itertuples()
    ]
    print_frame(console, rows, "Where the step goes")
    for row in profile.device.itertuples():
        console.print(
            f"GPU {row.device}: computing {row.compute_share:.0%}, copying and communicating "
            f"{row.non_compute_share:.0%}, idle {row.idle_share:.0%} of the time."
        )
    if profile.faults is not None:
        console.print(f"Fresh memory: {profile.faults.in_words}.")
    print_frame(console, report.operator_texts(profile.operators.head(SHOWN_OPERATORS)), "Most expensive operators")
    gflops, gb = profile.work
    step = f"The step as a whole: {gflops:,.3g} GFLOP/s, {gb:,.3g} GB/s."
    if not profile.settings.shapes:
        step = "The speed of the step is unknown without shapes."
    if profile.limits is not None:
        limits = f"This machine's limits, measured on {profile.limits.when}: {profile.limits_text}"
        step = f"{limits} of memory (a cache gives more). {step}"
    console.print(step)
    if profile.trace.unused:
        console.print(profile.trace.unused_text)
    if profile.limits is None:
        words = ": a trace file has no limits of its machine to compare with. `labkit profile run` measures them."
    elif profile.findings:
        words = ", largest share first, with an upper bound on the gain (predicted):"
    else:
        words = ": nothing that takes more than 5 % of the step was found."
    console.print(marked(f"\n[bold]What to try[/bold]{words}"))
    for number, finding in enumerate(profile.findings, start=1):
        bound = f"{finding.claimed_share:.0%} of the step, training at most {finding.bound_text} as fast"
        console.print(marked("{}. [bold]{}[/bold] ({}): {}.", number, finding.name, bound, finding.evidence))
        console.print(f"   {finding.advice[0].upper()}{finding.advice[1:]}.")
    console.print_line(f"\nThe interactive view: labkit profile show {profile.folder}")


def _print_ranks(ranks: "profiling.RankSteps") -> None:
    console = Console()
    console.print(ranks.headline, style="bold")
    rows = [
        {name.removesuffix("_us"): _ms(each) if name.endswith("_us") else each for name, each in row.items()}
        for row in ranks.rows
    ]
    print_frame(console, rows, "Of each rank, ms per step")


def _print_diff(difference: "profiling.Comparison", shown: int) -> None:
    import pandas as pd

    console, total, frame = Console(), difference.total_us, difference.operators
    console.print(difference.headline())
    times = ["before_us", "after_us", "difference_us"]
    rest = frame.iloc[shown:]
    added = [{"operator": f"({len(rest)} others)", **rest[times].sum()}] if len(rest) else []
    added.append({"operator": "the step", **frame[times].sum()})
    rows = []
    for row in pd.concat([frame.head(shown), pd.DataFrame(added)], ignore_index=True).itertuples():
        cells = {
            "operator": row.operator,
            "calls": f"{row.calls_before:,.0f} → {row.calls_after:,.0f}" if row.calls_before >= 0 else "",
            "ms before": _ms(row.before_us),
            "ms after": _ms(row.after_us),
            "difference": f"{row.difference_us / 1e3:+.3f}",
            "of all": f"{row.difference_us / total:.0%}" if total else "–",
        }
        rows.append(cells)
    print_frame(console, rows)


def _print_tool_profile(profile: "profiling.ToolProfile") -> None:
    console, facts = Console(), profile.facts
    steps, seconds = facts["steps"], facts["window_s"]
    each = f"{1e3 * seconds / steps:.4g} ms per step (measured on {facts['device']}, threads: {facts['threads']})"
    console.print(f"{facts['tool']} watched {steps:,} steady steps, {seconds:.3g} s in all: {each}.", style="bold")
    rows = []
    for row in profile.functions.astype({"line": object}).head(SHOWN_FUNCTIONS).itertuples():
        place = f"{'/'.join(Path(row.file).parts[-3:])}:{row.line if row.line == row.line else '?'}"
        cells = {"function": row.function, "own": f"{row.share:.1%}", "with callees": f"{row.with_callees:.1%}"}
        rows.append(cells | {"file:line": place})
    print_frame(console, rows, "Python functions with most samples of their own")
    console.print_line(
        f"The rest: {profile.output} holds the stacks, which https://www.speedscope.app and flamegraph.pl draw."
    )


def _ms(us: float) -> str:
    return f"{us / 1e3:,.3f}"

"""`labkit collocate`: run jobs together on one device, and judge what sharing gained and cost."""

from __future__ import annotations

import argparse
import contextlib
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from labkit import UserError, hardware, launch, runs, sharing, tracking
from labkit.cli.console import Console, Display, json_rows, print_frame, range_text
from labkit.cli.flags import add_command
from labkit.cli.printing import print_json

if TYPE_CHECKING:
    import pandas as pd

TRYING = "checking each job; what was never measured here is tried for its first steps ..."
ENDED_BADLY = 1
"""Exit status where a job failed"""
LEGEND = (
    "Gain: work done together, of that one after another (weighted speed-up). Slowdown: a job's time for its steps, of "
    "that alone in the same repeat; mean and worst (of mode alone: of the median, which shows how much the machine "
    "itself varies). Fairness: Jain's index of the jobs' speeds, 1 being even."
)
EPILOG = """examples:
  labkit collocate --jobs "dlrm:tour x2, speech:tour" --mode cpu-shared,cpu-pinned --repeats 3
  labkit collocate --jobs "train.py --seed {seed} x2" --mode cpu-pinned
  labkit collocate mix.yaml --check
  labkit collocate experiment.csv          (a CSV of radT's)
  labkit collocate --resume MIX
  labkit collocate --show MIX
"""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    about = (
        "Run several jobs on one device, and compare the ways to share it. Everything is checked before anything "
        "starts; the jobs run alone first, unless --baseline says otherwise."
    )
    add = add_command(
        subparsers, "collocate", description=about, examples=EPILOG, run=run_collocate, flags="no_wait runs_dir json"
    ).add_argument
    add("mix", nargs="?", type=Path, metavar="MIX", help="a mix in YAML, or a CSV of radT's")
    add("--jobs", metavar="JOBS", help='instead of a file: "dlrm:tour x3, train.py --lr 0.1"')
    modes = "naive, mps, mig, cpu-shared, cpu-pinned, alone (default: those of the file; else naive or cpu-shared)"
    add("--mode", metavar="M[,M]", help=modes)
    add("--device", metavar="D", help="cpu, or a GPU's number or UUID (default: the first GPU, or cpu)")
    add("--timeout", type=float, metavar="S", help="end a round after S seconds (default: 3600)")
    spin = "let idle CPU threads wait busily, OpenMP's default, which is ruinous on shared cores"
    add("--spin", action="store_true", help=spin)
    add("--repeats", type=int, metavar="N", help="run every round N times; 3 or more give intervals")
    add("--seconds", type=float, metavar="S", help="train labkit's jobs for S seconds, unless they name an end")
    alone = "jobs that run alone first: each, one where only seeds differ, or none (default: each)"
    add("--baseline", choices=("each", "one", "none"), default="each", help=alone)
    add("--check", action="store_true", help="check the mix, and start nothing")
    add("--resume", metavar="MIX", help="go on with a mix that was cut short")
    add("--show", metavar="MIX", help="print the verdict on a mix that was run")
    add("--undisturbed", action="store_true", help="with --show: leave out rounds that other programs disturbed")
    add("--list", action="store_true", help="list the mixes below --runs-dir")


def run_collocate(args: argparse.Namespace) -> int:
    asked = [name for name in ("mix", "jobs", "resume", "show", "list") if getattr(args, name)]
    if len(asked) != 1:
        raise UserError("name one of: a file, --jobs, --resume MIX, --show MIX, or --list.")
    if args.undisturbed and not args.show:
        raise UserError("--undisturbed leaves out rounds of a mix that was run: give it with --show MIX.")
    if args.list:
        _print_mixes(args.runs_dir, as_json=args.json)
        return 0
    if which := args.show or args.resume:
        launches = sharing.read_mix(launch.Launches.find(which, args.runs_dir, "mix"))
        if args.resume:
            return _check_and_run(args, sharing.mix_in(launches), launches)
        return _show_verdict(launches, as_json=args.json, undisturbed=args.undisturbed)
    return _check_and_run(args, _asked_mix(args), None)


def _check_and_run(args: argparse.Namespace, mix: launch.Mix, launches: launch.Launches | None) -> int:
    """Check a mix, print the table, and run it, or go on with its launches, where nothing is against it."""
    console = Console(stderr=args.json)
    device = hardware.find_device(mix.device, hardware.get_devices())
    cores = sharing.leased_cpu(device, waits=not args.no_wait, say=console.print)
    with contextlib.nullcontext() if args.check else cores:  # a check does not wait for cores, and takes none
        with console.doing(TRYING):
            found = sharing.check_mix(mix, sharing.job_memory)
        _print_check(console, mix, found)
        if found.refusals:
            raise UserError("\n".join(["nothing was started:", *(f"  {line}" for line in found.refusals)]))
        if args.check:
            if args.json:
                print_json({"rows": [asdict(row) for row in found.rows], "warnings": found.warnings})
            return 0
        with tracking.StopRequest() as stop, MixDisplay(console, evaluations=False) as display:
            if launches is None:
                launches = sharing.new_mix(mix, args.runs_dir, needs=found.needs, quiet=found.quiet)
                sharing.run_mix(launches, display.show_part, stop)
            else:
                sharing.resume_mix(launches, display.show_part, stop)
    return _show_verdict(launches, as_json=args.json, stopped=bool(stop))


def _asked_mix(args: argparse.Namespace) -> launch.Mix:
    """The mix of the command line, its baseline included; prints what its user should know of it."""
    is_cpu = hardware.find_device(args.device, hardware.get_devices()).kind == "cpu"
    usual = "cpu-shared" if is_cpu else "naive"  # plain processes, as that is called on the device
    modes = [mode.strip() for mode in args.mode.split(",")] if args.mode else []
    suffix = "" if args.jobs else args.mix.suffix.lower()
    if args.jobs:
        mix = sharing.mix_of(args.jobs, modes or [usual], baseline="none")
    elif suffix == ".csv":
        if modes:
            raise UserError(f"{args.mix}: the column Collocation says how its rows share: remove --mode.")
        mix, notices = launch.read_csv_mix(args.mix)
        for notice in notices:
            Console(stderr=args.json).print_line(notice)
    elif suffix in (".yaml", ".yml"):
        mix = launch.read_yaml_mix(args.mix, modes=modes, default_mode=usual)
    else:
        raise UserError(f"{args.mix}: a mix is a .yaml, .yml or .csv file: rename it, or use --jobs.")
    if args.device is not None:
        mix = launch.on_device(mix, args.device)
    given: dict[str, Any] = {"repeats": args.repeats, "timeout_s": args.timeout, "spin": args.spin or None}
    mix = replace(mix, **{name: value for name, value in given.items() if value is not None})
    return launch.with_baseline(launch.with_seconds(mix, args.seconds), args.baseline)


def _print_check(console: Console, mix: launch.Mix, found: sharing.MixCheck) -> None:
    """Print the table before the start: one row per job, with what it would have and need, or what is against it."""
    rows = []
    for row in found.rows:
        needs = "unknown" if row.needs_bytes is None else hardware.size_text(row.needs_bytes)
        free = "" if row.free_bytes is None else hardware.size_text(row.free_bytes)
        may_have = Text("; ".join(row.why_not), "red") if row.why_not else row.device
        rows.append({"mode": row.mode, "job": row.job, "needs": needs, "free": free, "may have": may_have})
    if rows:
        print_frame(console, rows, f"{mix.name}: before the start")
    needs = "Needs: measured over a job's first steps, or given by the mix."
    console.print_line(f"{needs} Each round runs {mix.repeats} time{'s' * (mix.repeats > 1)}.")
    for warning in found.warnings:
        console.print_line(warning, "yellow")


class MixDisplay(Display):
    """The rounds of a mix, and on a terminal each job of the round under way."""

    def show_part(self, part: launch.Part, event: dict[str, Any]) -> None:
        if event["kind"] == "Round":
            self.begin(event["text"])
            if event["over"] or not self.console.is_terminal:
                self.print(event["text"])
        else:
            super().show_part(part, event)


def _print_mixes(runs_dir: Path, *, as_json: bool) -> None:
    rows = []
    for folder in launch.Launches.folders(runs_dir, "mix"):
        try:
            launches = sharing.read_mix(folder)
        except UserError as error:  # one that cannot be read does not hide the others
            runs.note_left_out(folder, str(error))
            continue
        head, rounds = launches.head, launches.rounds()
        done = sum(all(part.status == "done" for part in parts) for parts in rounds)
        named = {"group": head.id, "status": head.status, "plan": head.content["mix"]["name"]}
        rows.append(named | {"rounds": len(rounds), "done": done})
    if as_json:
        print_json(rows)
    elif rows:
        heads = {"group": "mix", "plan": "name"}
        print_frame(Console(), [{heads.get(name, name): value for name, value in row.items()} for row in rows])
    else:
        Console().print(f"There are no mixes in {runs_dir}.")


def _show_verdict(launches: launch.Launches, *, as_json: bool, stopped: bool = False, undisturbed: bool = False) -> int:
    """Print what a mix came to; the command's exit status."""
    folder, head, parts = launches.folder, launches.head, list(launches.parts.values())
    found = sharing.verdict(folder, undisturbed=undisturbed)
    if undisturbed and found.jobs.empty:
        raise UserError(f"{folder}: other programs disturbed every round, so none is left to judge.")
    advice = sharing.advise(found)
    broken = [part for part in parts if part.status not in ("done", "waiting", "running")]
    status = 130 if stopped else ENDED_BADLY if broken else 0
    if as_json:
        frames = {name: json_rows(getattr(found, name)) for name in ("modes", "slowdowns", "time_to_accuracy")}
        content = {"group": head.id, "folder": str(folder), "status": head.status, "jobs": list(map(_as_json, parts))}
        print_json(content | frames | {"advice": [vars(each) for each in advice]})
        return status
    console = Console()
    # a job alone is in the tables of its mixes
    mixes = found.modes.loc[(found.modes["jobs"] > 1) | (found.modes["mode"] != "alone"), "mix"].unique()
    for mix in mixes:
        _print_mix(console, found, mix)
    lines = [(LEGEND, "dim")] if len(mixes) else [(_job_alone(row), "") for row in found.jobs.to_dict("records")]
    stepless = set(found.jobs.loc[found.jobs["steps"] == 0, "job"]) if len(mixes) else set()
    partly = {part.launch.about["job"] for part in parts if tracking.NOT_COUNTED in part.reason} - stepless
    for jobs, said in ((stepless, _unseen()), (partly, tracking.NOT_COUNTED)):
        lines += [(f"{', '.join(sorted(jobs))}: {said}", "yellow")] if jobs else []
    lines += [(f"Verdict on {each.mix}: {each.reason}", "") for each in advice]
    for part in broken:
        ended = f"{part.launch.about['job']}: {part.status.replace('_', ' ')}: {part.reason}"
        lines.append((f"{ended}; what it printed: {folder / part.log}", "red"))
    lines.append((sharing.not_attributed(found.jobs), "dim"))
    lines.append((f"mix {head.id} ({head.status}): {folder}\nwhat the jobs printed: {folder / 'logs'}", ""))
    if disturbed := sharing.disturbed_rounds(found.jobs):
        words = f"{len(disturbed)} of {found.jobs['round'].nunique()} rounds were disturbed "
        words += f"({next(iter(disturbed.values()))}): `labkit collocate --show {head.id} --undisturbed` "
        lines.append((f"{words}leaves them out.", "yellow"))
    if head.status in ("stopped", "interrupted"):
        rounds = launches.rounds()
        ended = sum(all(part.has_ended for part in own) for own in rounds)
        words = f"{ended} of {len(rounds)} rounds have ended; the above is about these."
        lines.append((f"{words}\ngo on with: labkit collocate --resume {folder}", ""))
    for words, style in lines:
        if words:
            console.print_line(words, style)
    return status


def _as_json(part: launch.Part) -> dict[str, Any]:
    about, of = part.launch.about, ("status", "run", "reason", "wall_s", "device", "log")
    named = {"mode": part.launch.mode, "repeat": about["repeat"], "job": about["job"], "label": part.launch.label}
    return named | {name: getattr(part, name) for name in of} | {"attempt": max(1, part.attempts)}


def _print_mix(console: Console, found: sharing.Verdict, mix: str) -> None:
    import pandas as pd

    modes, slow, times = (each[each["mix"] == mix] for each in (found.modes, found.slowdowns, found.time_to_accuracy))
    shown = {
        "mode": modes["mode"],
        "gain": _intervals(modes, "gain"),
        "slowdown": _intervals(modes, "slowdown"),
        "worst": modes["worst_slowdown"],
        "fairness": modes["fairness"],
        "makespan (s)": modes["makespan_s"].round(1),
        "energy (J)": modes["energy_j"].round(1),
    }
    print_frame(console, pd.DataFrame(shown), f"{mix}: {', '.join(sorted(set(modes['provenance'])))}")
    times = times.assign(median_s=[_time(row) for row in times.to_dict("records")])
    for title, frame, value in (
        ("slowdown of each job", slow[slow["mode"] != "alone"], "slowdown"),
        ("time to target", times, "median_s"),
    ):
        if len(frame):
            cells = frame.pivot(index="job", columns="mode", values=value)
            order = {"index": frame["job"].unique(), "columns": frame["mode"].unique()}
            print_frame(console, cells.reindex(**order).reset_index(), title)
    notes = modes["energy_note"].dropna().unique()
    if modes["energy_j"].isna().all() and len(notes):
        console.print_line(f"Energy: {notes[0]}.")


def _unseen() -> str:
    return f"no step of an optimiser of torch was seen in its own process ({tracking.NOT_COUNTED})"


def _job_alone(row: dict[str, Any]) -> str:
    words = [f"{row['job']} ({row['provenance']}): {row['status'].replace('_', ' ')}"]
    if row["steps"] == 0:
        words.append(_unseen())
    elif math.isfinite(row["steps_per_s"]):
        words.append(f"{row['steps']:,.0f} steps in {row['wall_s']:.1f} s, {row['steps_per_s']:,.1f} per second")
    if math.isfinite(row["peak_memory_bytes"]):
        words.append(f"{hardware.size_text(row['peak_memory_bytes'])} of memory at its peak")
    return "; ".join(words)


def _time(row: dict[str, Any]) -> str:
    if math.isfinite(row["median_s"]):
        return f"{row['median_s']:.3g} s"
    return f"not reached in {row['rounds'] - row['reached']:.0f} of {row['rounds']:.0f}"


def _intervals(modes: pd.DataFrame, name: str) -> list[str]:
    values = modes[[name, f"{name}_low", f"{name}_high"]].itertuples(index=False)
    return [range_text(*each, "{:.2f}".format) for each in values]

"""`labkit league`: the tracks and records, whether a challenger beats the standing one, and a new record."""

import argparse
from pathlib import Path
from typing import Any

from labkit.cli.console import Console, print_frame
from labkit.cli.flags import add_command, commands_of
from labkit_course import league


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    commands = commands_of(add_command(subparsers, "league"))
    show = add_command(commands, "show", "the tracks, and every record of their history", run=run_show)
    words = "whether runs beat the standing record's; exit status 0 if they do"
    judge = add_command(commands, "judge", words, run=run_judge)
    enter = add_command(commands, "enter", "write a record into the history, with its script", run=run_enter)
    for command in (judge, enter):
        command.add_argument("track", metavar="TRACK", help="by its name in `labkit league show`")
        words = "run folders of the standing record's script, two of each seed"
        how: dict[str, Any] = {"nargs": "+", "type": Path, "metavar": "RUN"}
        command.add_argument("--standing", help=words, required=command is judge, default=[], **how)
        command.add_argument("--challenger", help="run folders, one of each seed", required=True, **how)
    enter.add_argument("--holder", required=True, metavar="NAME", help="whose record it is")
    enter.add_argument("--script", required=True, type=Path, metavar="FILE", help="what the runs ran")
    for command in (show, judge, enter):
        words = "with tracks.toml and history.csv (default: league)"
        command.add_argument("--league", type=Path, default=Path("league"), metavar="DIR", help=words)


def run_show(args: argparse.Namespace) -> None:
    tracks, history, console = league.read_tracks(args.league), league.read_history(args.league), Console()
    print_frame(console, [{"track": name} | vars(track) for name, track in tracks.items()], "tracks")
    rows = [{name: each[name] for name in league.COLUMNS[:-1]} for each in history]
    if rows:
        print_frame(console, rows, "records, oldest first: measured, each on its machine")
    else:
        console.print("No record stands yet: the first one needs no standing record to beat.")


def run_judge(args: argparse.Namespace) -> int:
    found = league.judge(league.track_named(args.league, args.track), args.standing, args.challenger)
    failed = f"{found.failed[0]} runs of the standing record failed, and {found.failed[1]} of the challenger"
    print(f"{found.seeds} seeds; {failed}.")
    noise = f"two standing runs of a seed differ {found.floor:.3g} times"
    print(f"{found.times_as_fast:.3g} times as fast (median of the pairs); {noise}.")
    word = "a record" if found.is_record else "no record"
    print(f"p = {found.p:.2g} above that noise: {word} (below {league.LEVEL}).")
    return 0 if found.is_record else 1


def run_enter(args: argparse.Namespace) -> None:
    made = league.enter(args.league, args.track, args.holder, args.script, args.standing, args.challenger)
    print(f"{made['track']}: {made['median_s']} s by {made['holder']}, in {args.league / league.HISTORY}.")
    print(f"Its script is {args.league / made['code']}. Commit both, and keep the runs (`labkit runs archive`).")

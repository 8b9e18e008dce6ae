"""`labkit index`: what a request to an ordered index costs, each number with the instrument that gave it."""

import argparse
import dataclasses

from labkit import UserError, indexes
from labkit.cli.console import Console, print_frame
from labkit.cli.flags import add_command, add_flags, commands_of
from labkit.cli.printing import print_json

EPILOG = """\
NAMES are btree, art, learned, and learned-bounded (the learned index with a bound on its search for a free slot).
Workloads are reads, few (reads of 2,000 keys), mixed:P (P percent inserts), append, append:P and scan.
auto is perf where the CPU's counters answer, else callgrind where valgrind is installed, else replay."""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    commands = commands_of(add_command(subparsers, "index"))
    what = "load keys, answer a workload, and print what a request costs"
    run = add_command(commands, "run", what, examples=EPILOG)
    defaults = indexes.Workload()
    run.add_argument("names", nargs="+", metavar="NAME", help="indexes to compare")
    words = f"distribution: {', '.join(indexes.DISTRIBUTIONS)} (default: {defaults.keys})"
    run.add_argument("--keys", default=defaults.keys, metavar="D", help=words)
    run.add_argument("--n", default="1e6", metavar="N", help="keys to load, such as 1e6 (default)")
    run.add_argument("--workload", default=defaults.pattern, metavar="W", help="requests (default: reads)")
    run.add_argument("--requests", default="2e5", metavar="N", help="number of requests (default: 2e5)")
    run.add_argument("--seed", type=int, default=0, metavar="N", help="seed of keys and requests (default: 0)")
    words = f"{', '.join(indexes.INSTRUMENTS)} (default: auto)"
    run.add_argument("--instrument", default="auto", metavar="I", help=words)
    add_flags(run, "json", run=run_index)


def run_index(args: argparse.Namespace) -> None:
    n, requests = (_whole(name, getattr(args, name)) for name in ("n", "requests"))
    workload = indexes.Workload(args.keys, n, args.workload, requests, args.seed)
    instrument, reasons = indexes.choose_instrument(args.instrument)
    console = Console(stderr=args.json)
    with console.doing(f"{n:,} {args.keys} keys, {requests:,} requests: {args.workload}, counted by {instrument}"):
        numbers = indexes.measure(args.names, workload, instrument)
    if args.json:
        facts = {"workload": dataclasses.asdict(workload), "instrument": instrument, "not_used": reasons}
        return print_json(facts | {"numbers": [dataclasses.asdict(number) for number in numbers]})
    rows: dict[tuple[str, str, str], dict[str, str]] = {}
    for number in numbers:
        rows.setdefault((number.what, number.unit, number.instrument), {})[number.index] = f"{number.value:,.4g}"
    table = [
        {"per request": f"{what}{f' ({unit})' if unit else ''}"}
        | {name: values.get(name, "") for name in dict.fromkeys(args.names)}
        | {"instrument": words}
        for (what, unit, words), values in rows.items()
    ]
    print_frame(console, table)
    for reason in reasons:
        console.print(f"Not used: {reason}.")
    if instrument != "perf":
        console.print("Cycles, cycles per instruction and stalls are not shown: only the CPU's own counters know them.")


def _whole(name: str, text: str) -> int:
    """A whole number, such as 1e6."""
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not number.is_integer():
        raise UserError(f"--{name} is {text}: give a whole number, such as 1e6.", field=name)
    return int(number)

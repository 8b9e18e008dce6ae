"""`labkit claims`: the papers' claims, and what came of them here."""

from __future__ import annotations

import argparse
from pathlib import Path

from labkit import runs


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    parser = subparsers.add_parser("claims", help="the papers' claims and your verdicts")
    parser.add_argument(
        "--executed", type=Path, metavar="DIR", help="take verdicts of these notebooks, as course run left them"
    )
    parser.add_argument("--out", type=Path, default=Path("docs"), metavar="DIR", help="where they go: docs")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from labkit.cli.console import Console, print_frame
    from labkit_course import all_claims, collect, kept, page, read_evidence, write_evidence

    if args.executed:
        table = args.out / "reproductions.csv"
        rows = collect(args.executed, read_evidence(table))
        write_evidence(table, rows)
        runs.replace_text(args.out / "reproductions.md", page(rows))
        print(f"{len(rows)} verdicts: {table}, {args.out / 'reproductions.md'}")
        return 0
    latest = {entry["name"]: entry for entry in kept("claim")}
    console = Console(highlight=False, soft_wrap=True)
    rows = []
    for id, paper in all_claims().items():
        mine = latest.get(id, {})
        rows.append({"id": id} | {key: paper[key] for key in ("paper", "claim", "number")})
        rows[-1] |= {key: str(mine.get(key, "")) for key in ("mine", "verdict", "reason")}
    print_frame(console, rows)
    console.print(f"{len(latest)} of {len(all_claims())} claims are judged.")
    return 0

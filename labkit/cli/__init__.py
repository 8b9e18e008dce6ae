"""The `labkit` command: one module a sub-command, heavy imports only when it runs."""

from __future__ import annotations

import argparse
import importlib
import sys
import traceback

from labkit import __version__
from labkit.errors import UserError

COMMANDS = ("tour", "train", "runs", "doctor", "tiers", "data", "report")


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="labkit",
        description="What does it cost to reach this accuracy, on this hardware, run this way?",
    )
    parser.add_argument("--version", action="version", version=f"labkit {__version__}")
    subparsers = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        importlib.import_module(f"labkit.cli.{command}").add_parser(subparsers)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run one command; return 0, 2 for the user's mistakes, 1 for ours, 130 on Ctrl-C."""
    args = build_parser().parse_args(argv)
    try:
        return args.run(args)
    except UserError as error:
        print(f"labkit: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("labkit: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 0
    except Exception:
        traceback.print_exc()
        print(
            "labkit: this is a bug in labkit, not in what you did; please report it with the lines above.",
            file=sys.stderr,
        )
        return 1

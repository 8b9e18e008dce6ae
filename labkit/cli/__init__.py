"""The `labkit` command: one module a sub-command, heavy imports only when it runs."""

from __future__ import annotations

import argparse
import importlib
import sys
import traceback
import warnings

from labkit import __version__
from labkit.errors import UserError, refusal

COMMANDS = (
    "tour", "run", "train", "profile", "collocate", "pack", "sweep", "runs", "monitor", "energy", "energy_trial",
    "doctor", "budgets", "tiers", "data", "report", "course", "claims", "plan", "calibrate", "predict", "whatif",
    "serve_tables", "transcribe",
)  # fmt: skip


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
    argv = sys.argv[1:] if argv is None else argv
    if argv[:2] in (["energy", "trial"], ["sweep", "show"]):  # argparse has no command beside an argument of its own
        argv = [" ".join(argv[:2]), *argv[2:]]
    parser = build_parser()
    args, passed_on = parser.parse_known_args(argv)
    if getattr(args, "passes_on", False):
        args.passed_on = passed_on
    elif passed_on:
        place = "`--resume RUN --`" if getattr(args, "resume", None) else "its name"
        hint = f"; a script's own flags stand behind {place}" if hasattr(args, "script") else ""
        parser.error(f"unrecognized arguments: {' '.join(passed_on)}{hint}")
    warnings.showwarning = _show_warning  # ty: ignore[invalid-assignment]  # always called with positions only
    try:
        return args.run(args)
    except BrokenPipeError:
        from labkit.cli.console import write_nowhere

        write_nowhere(sys.stdout)  # Python flushes it once more at its end
        return 0
    except UserError as error:
        _say(f"labkit: {error}")
        return 2
    except KeyboardInterrupt:
        print("labkit: stopped", file=sys.stderr)
        return 130
    except Exception as error:
        if refused := refusal(error):
            _say(f"labkit: {refused}")
            return 2
        traceback.print_exc()
        print(
            "labkit: this is a bug in labkit, not in what you did; please report it with the lines above.",
            file=sys.stderr,
        )
        return 1


def _show_warning(message: Warning | str, *_: object) -> None:
    _say(f"labkit: {message}")


def _say(line: str) -> None:
    from labkit.cli.console import say

    say(line, to_stderr=True)

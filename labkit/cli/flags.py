"""Flags that several commands share."""

import argparse
import contextlib
from pathlib import Path
from typing import Any

from labkit import UserError
from labkit.cli import COMMANDS

FLAGS: dict[str, dict[str, Any]] = {
    "runs_dir": {
        "type": Path,
        "default": Path("runs"),
        "metavar": "DIR",
        "help": "folder of the run folders (default: runs)",
    },
    "out": {
        "type": Path,
        "default": Path("report/index.html"),
        "metavar": "FILE",
        "help": "the page to write (default: report/index.html)",
    },
    "json": {"action": "store_true", "help": "print the answer as JSON, for programs"},
    "no_wait": {"action": "store_true", "help": "stop with an error if other runs hold the cores, instead of waiting"},
    "budget": {
        "metavar": "B",
        "help": "one-core, half, all-cores, gpu, a tier such as t4-like, or cores=N,memory=2GiB (`labkit budgets`)",
    },
    "sample_hz": {"type": float, "metavar": "N", "help": "telemetry samples per second, 0.1 to 100 (default: 2)"},
    "only": {
        "action": "append",
        "default": [],
        "metavar": "NAME=VALUES",
        "help": "part of a recording to keep, such as batch_size=32,64 or power_limit_w=max; may be repeated",
    },
    "nproc": {"type": int, "metavar": "N", "help": "run it on N processes, which exchange their gradients"},
    "nodes": {"type": int, "metavar": "N", "help": "machines that share these processes, for --print"},
    "print": {"action": "store_true", "help": "print the command that starts it on several machines"},
    "hang_s": {"type": float, "metavar": "S", "help": "end processes that hang for S seconds; 0: never (default: 30)"},
    "resume": {"metavar": "RUN", "help": "run to continue: its folder, id, or the beginning of its id"},
}
RUN: dict[str, Any] = {"metavar": "RUN", "help": "a run's folder, id, or the beginning of its id"}
"""The argument that names a run"""


def add_command(
    subparsers: argparse._SubParsersAction,
    name: str,
    words: str = "",
    *,
    run: Any = None,
    flags: str = "",
    examples: str = "",
    **more: Any,
) -> argparse.ArgumentParser:
    """Add a command. `words` say what it is for; of labkit's own, `COMMANDS` says that.

    `run` is its function, which returns the exit status if that is not always 0. The help lists these of FLAGS below
    its own, and `examples`, whose lines stay as they are, at the end. Without a description in `more`, which
    `argparse.ArgumentParser` takes, the words are it.
    """
    words = words or next(own[name] for own in COMMANDS.values() if name in own)
    if examples:
        more |= {"epilog": examples, "formatter_class": argparse.RawDescriptionHelpFormatter}
    more.setdefault("description", f"{words[0].upper()}{words[1:]}.")
    parser = subparsers.add_parser(name, help=words, **more)
    parser.set_defaults(run=run)
    add_flags(parser.add_argument_group(), *flags.split())
    return parser


def commands_of(parser: argparse.ArgumentParser) -> argparse._SubParsersAction:
    """Where the commands of a command are added."""
    return parser.add_subparsers(title="commands", metavar="COMMAND", required=True)


def add_flags(parser: argparse._ActionsContainer, *names: str, **defaults: Any) -> None:
    """Add these of FLAGS, and defaults, such as `run`, the function of the command."""
    for name in names:
        parser.add_argument(f"--{name.replace('_', '-')}", **FLAGS[name])
    parser.set_defaults(**defaults)


def read_only(given: list[str]) -> dict[str, Any]:
    """The values of --only, as `labkit.runs.recorded` takes them.

    >>> read_only(["batch_size=32,64", "power_limit_w=max", "batch_size=128"])
    {'batch_size': [32, 64, 128], 'power_limit_w': 'max'}
    """
    only: dict[str, Any] = {}
    for text in given:
        name, sign, values = text.partition("=")
        if not (name and sign and values):
            raise UserError(f"--only {text}: write NAME=VALUES, such as --only batch_size=32,64.")
        if values in ("max", "min"):
            only[name] = values
        else:
            only.setdefault(name, []).extend(_number(value) for value in values.split(","))
    return only


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def refuse_unless_positive(**numbers: float | None) -> None:
    """Refuse numbers of flags that are not above zero; None stands for a flag that was not given."""
    for name, number in numbers.items():
        if number is not None and not 0 < number < float("inf"):
            raise UserError(f"--{name.replace('_', '-')} is {number:g}: give a number above zero.")


def add_harness_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the harness, which any script runs in."""
    add_flags(parser, "budget", "no_wait", "sample_hz", "runs_dir", "json")


def add_script(parser: argparse.ArgumentParser, **settings: Any) -> None:
    """Add the script to run, and its arguments."""
    parser.add_argument("-m", "--module", action="store_true", help="SCRIPT is a module's name, as for python -m")
    parser.add_argument("script", metavar="SCRIPT", help="a Python file that trains", **settings)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="its arguments")

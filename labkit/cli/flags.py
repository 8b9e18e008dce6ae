"""Flags that several commands take, each with one meaning."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

FLAGS: dict[str, dict[str, Any]] = {
    "runs_dir": {"type": Path, "default": Path("runs"), "metavar": "DIR", "help": "where run folders are: runs"},
    "json": {"action": "store_true", "help": "print one JSON object or list on the last line"},
    "no_wait": {"action": "store_true", "help": "refuse where other runs hold the cores, instead of waiting"},
    "budget": {
        "metavar": "B",
        "help": "one-core, half, all-cores, gpu, a tier such as t4-like, or cores=N,memory=2GiB (`labkit budgets`)",
    },
    "sample_hz": {"type": float, "metavar": "N", "help": "telemetry samples a second, 0.1 to 100 (default: 2)"},
    "resume": {"metavar": "RUN", "help": "go on with a run: its folder, id, or the beginning of its id"},
}
RUN = {"metavar": "RUN", "help": "a run's folder, id, or the beginning of its id"}
"""The argument that names one"""


def add_flags(parser: argparse.ArgumentParser, *names: str) -> None:
    """Add these of FLAGS."""
    for name in names:
        parser.add_argument(f"--{name.replace('_', '-')}", **FLAGS[name])


def add_harness_flags(parser: argparse.ArgumentParser) -> None:
    """Add what a script is run with, whatever it trains."""
    add_flags(parser, "budget", "no_wait", "sample_hz", "runs_dir", "json")


def add_script(parser: argparse.ArgumentParser, **settings: Any) -> None:
    """Add the script to run, and its arguments."""
    parser.add_argument("-m", "--module", action="store_true", help="SCRIPT is a module's name, as for python -m")
    parser.add_argument("script", metavar="SCRIPT", help="a Python file that trains", **settings)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="its arguments")

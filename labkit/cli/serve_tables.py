"""`labkit serve-tables`, which is gone: says what to do instead, until the next version."""

from __future__ import annotations

import argparse

from labkit import UserError


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    parser = subparsers.add_parser("serve-tables")  # without a help text it is not listed
    parser.set_defaults(run=run_serve_tables, passes_on=True)


def run_serve_tables(args: argparse.Namespace) -> int:
    raise UserError(
        "labkit serve-tables is gone, and so is --server: `labkit train dlrm --placement remote` starts a parameter "
        "server of its own, and ends it."
    )

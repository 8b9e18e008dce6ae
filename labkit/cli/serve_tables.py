"""`labkit serve-tables`: a parameter server for `--placement remote --server HOST:PORT`."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    what = "a parameter server: embedding tables for a script with --placement remote"
    parser = subparsers.add_parser("serve-tables", help=what, description=what)
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen at; nobody is asked who they are (default: 127.0.0.1)")
    add("--port", type=int, default=0, help="0: any that is free, which is printed (default)")
    add("--folder", type=Path, metavar="DIR", help="where checkpoints go, and where it goes on from when started again")
    words = "pushes between two checkpoints of its own (default: 1000)"
    add("--checkpoint-every", type=int, default=1000, metavar="N", help=words)
    parser.set_defaults(run=run_serve_tables)


def run_serve_tables(args: argparse.Namespace) -> int:
    from labkit.errors import UserError

    if args.checkpoint_every < 1:
        raise UserError(f"--checkpoint-every is {args.checkpoint_every}: give a number of pushes from 1.")
    if not 0 <= args.port < 2**16:
        raise UserError(f"--port is {args.port}: give a number up to 65535, or 0 for any that is free.", field="port")
    from labkit.placement import TableServer

    def say(words: str) -> None:
        print(words, flush=True)

    server = TableServer(args.host, args.port, args.folder, args.checkpoint_every, say)
    where = "no --folder: a restart loses the tables" if args.folder is None else f"checkpoints in {args.folder}"
    print(f"serving tables at {server.address} ({server.described}; {where}); Ctrl-C ends it", flush=True)
    try:
        server.serve()
    finally:
        server.stop()
    return 0

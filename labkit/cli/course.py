"""`labkit course`: build the exercises, run the notebooks, make the site."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    parser = subparsers.add_parser("course", help="build, run and publish the notebooks")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    build = commands.add_parser("build", help="make the exercise notebooks from the authored ones in solutions/")
    build.add_argument("--check", action="store_true", help="change nothing; fail where something is out of order")
    build.set_defaults(run=run_build)

    run = commands.add_parser("run", help="execute notebooks and judge what came out")
    run.add_argument("which", nargs="*", metavar="NOTEBOOK", help="paths or numbers (default: all in solutions/)")
    run.add_argument("--profile", default="smoke", choices=("smoke", "standard", "full"), help="default: smoke")
    run.add_argument("--jobs", type=int, default=1, metavar="N", help="how many at once (default: 1)")
    run.add_argument("--out", type=Path, default=Path("course-run"), metavar="DIR", help="default: course-run")
    run.add_argument(
        "-p", "--parameter", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"), help="one more parameter"
    )
    run.add_argument(
        "--cell-timeout", type=int, metavar="S", help="seconds a cell may take (by profile: 120, 600, 3600)"
    )
    run.add_argument("--timeout", type=float, metavar="S", help="seconds a notebook may take (600, 1800, 10800)")
    run.add_argument(
        "--memory", metavar="SIZE", help="most memory of a notebook (default: 2GB, and no bound at profile full)"
    )
    run.set_defaults(run=run_run)

    site = commands.add_parser("site", help="make a static site from executed notebooks")
    left = Path("course-run")
    site.add_argument("--executed", type=Path, default=left, metavar="DIR", help="what `course run` left")
    site.add_argument("--out", type=Path, default=Path("site"), metavar="DIR", help="default: site")
    site.set_defaults(run=run_site)

    for command in (build, run):
        command.add_argument(
            "--notebooks", type=Path, default=Path("notebooks"), metavar="DIR", help="where they are: notebooks"
        )


def run_build(args: argparse.Namespace) -> int:
    from labkit.errors import UserError

    try:
        from labkit.course.build import drift, write
    except ImportError as error:
        raise UserError(
            'building the exercises needs nbgrader: install it with `python -m pip install "labkit[course]"`.'
        ) from error
    if args.check:
        found = drift(args.notebooks)
        print(*(found or ["The notebooks are in order."]), sep="\n")
        return 1 if found else 0
    changed = write(args.notebooks)
    print(*([f"wrote {path}" for path in changed] or ["Nothing to change."]), sep="\n")
    return 0


def run_run(args: argparse.Namespace) -> int:
    import pandas as pd

    from labkit.cli.console import Console, print_frame
    from labkit.course.notebook_file import authored
    from labkit.course.runner import PROFILES, literal, run_notebooks, write_junit
    from labkit.course.site import build_site
    from labkit.errors import UserError
    from labkit.hardware.sizes import parse_size, size_text

    memory = args.memory and parse_size(args.memory)
    if args.memory and not memory:
        raise UserError(f"--memory is {args.memory!r}: give a size such as 2GB.")
    if args.jobs < 1:
        raise UserError(f"--jobs is {args.jobs}: give a whole number of at least 1.")
    limits = {"cell_s": args.cell_timeout, "notebook_s": args.timeout, "memory_bytes": memory}
    console = Console(highlight=False, soft_wrap=True)
    executed = run_notebooks(
        [_find(which, args.notebooks) for which in args.which] or authored(args.notebooks),
        args.out,
        parameters={"profile": args.profile} | {name: literal(value) for name, value in args.parameter},
        jobs=args.jobs,
        limits=replace(PROFILES[args.profile], **{name: each for name, each in limits.items() if each is not None}),
        say=console.print,
    )
    write_junit(executed, args.out / "junit.xml")
    rows = [
        {
            "notebook": each.source.stem,
            "time": f"{each.seconds:.1f} s",
            "peak memory": size_text(each.peak_memory_bytes),
            "cells": each.cells,
            "figures": each.figures,
            "verdict": each.verdict,
        }
        for each in executed
    ]
    print_frame(console, pd.DataFrame(rows))
    for each in executed:
        for fault in each.faults:
            console.print(f"{each.source}: {fault}")
    if any(each.out.exists() for each in executed):
        console.print(f"As web pages: {build_site(args.out, args.out / 'html')}")
    console.print(f"Executed notebooks and junit.xml: {args.out}")
    return 1 if any(each.faults for each in executed) else 0


def run_site(args: argparse.Namespace) -> int:
    from labkit.course.site import build_site

    print(f"Open {build_site(args.executed, args.out).resolve()}")
    return 0


def _find(which: str, folder: Path) -> Path:
    """The notebook of a path, or the authored one whose name begins so."""
    from labkit.course.notebook_file import authored
    from labkit.errors import UserError

    if Path(which).suffix == ".ipynb":
        return Path(which)
    found = [path for path in authored(folder) if path.name.startswith(which)]
    if len(found) != 1:
        names = ", ".join(path.stem for path in authored(folder))
        raise UserError(f"{which!r} names {len(found)} notebooks: give a path, or the beginning of one of {names}.")
    return found[0]

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
    run.add_argument("--total-timeout", type=float, metavar="S", help="seconds for all of them (3600, 10800, 43200)")
    run.add_argument(
        "--memory", metavar="SIZE", help="most memory of a notebook (default: 2GB, and no bound at profile full)"
    )
    run.set_defaults(run=run_run)

    site = commands.add_parser("site", help="make a static site from executed notebooks")
    site.add_argument(
        "--executed",
        type=Path,
        default=Path("course-run"),
        metavar="DIR",
        help="what `course run` left",
    )
    site.add_argument("--out", type=Path, default=Path("site"), metavar="DIR", help="default: site")
    site.set_defaults(run=run_site)

    for command in (build, run):
        command.add_argument(
            "--notebooks", type=Path, default=Path("notebooks"), metavar="DIR", help="where they are: notebooks"
        )


def run_build(args: argparse.Namespace) -> int:
    from labkit.course.build import drift, write

    if args.check:
        found = drift(args.notebooks)
        print(*(found or ["The notebooks are in order."]), sep="\n")
        return 1 if found else 0
    changed = write(args.notebooks)
    print(*(f"wrote {path}" for path in changed), sep="\n") if changed else print("Nothing to change.")
    return 0


def run_run(args: argparse.Namespace) -> int:
    from labkit.cli.console import Console
    from labkit.course.junit import write_junit
    from labkit.course.notebook_file import authored
    from labkit.course.runner import PROFILES, Executed, Limits, run_notebooks
    from labkit.course.site import build_site
    from labkit.errors import UserError

    if args.jobs < 1:
        raise UserError(f"--jobs is {args.jobs}: give a whole number of at least 1.")
    notebooks = [_find(which, args.notebooks) for which in args.which] or authored(args.notebooks)
    chosen = {
        "cell_s": args.cell_timeout,
        "notebook_s": args.timeout,
        "total_s": args.total_timeout,
        "memory_bytes": _memory(args.memory),
    }
    limits = replace(Limits.of(args.profile), **{name: value for name, value in chosen.items() if value is not None})
    parameters = {name: _literal(value) for name, value in args.parameter}
    if parameters.get("profile", args.profile) not in PROFILES:
        raise UserError(f"profile is {parameters['profile']!r}: give one of {', '.join(PROFILES)}.")
    console = Console()

    def tell(executed: Executed) -> None:
        state = (executed.note or "passed") if executed.passed else "FAILED"
        console.print(f"{executed.source.stem}: {state} after {executed.seconds:.1f} s", highlight=False)

    results = run_notebooks(
        notebooks,
        args.out,
        profile=args.profile,
        parameters=parameters,
        jobs=args.jobs,
        limits=limits,
        on_done=tell,
        say=lambda words: console.print(words, highlight=False),
    )
    write_junit(results, args.out / "junit.xml")
    console.print(_table(results))
    for executed in results:
        for fault in executed.faults:
            console.print(f"{executed.source}: {fault}", highlight=False, soft_wrap=True)
    if any(executed.out.exists() for executed in results):
        console.print(f"As web pages: {build_site(args.out, args.out / 'html')}", soft_wrap=True)
    console.print(f"Executed notebooks and junit.xml: {args.out}", soft_wrap=True)
    return 0 if all(executed.passed for executed in results) else 1


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


def _memory(text: str | None) -> int | None:
    from labkit.errors import UserError
    from labkit.hardware.sizes import parse_size

    if text is None:
        return None
    size = parse_size(text)
    if not size:
        raise UserError(f"--memory is {text!r}: give a size such as 2GB.")
    return size


def _literal(text: str) -> object:
    """A parameter's value: a Python literal where it is one, else the text."""
    import ast

    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _table(results: list) -> object:
    from rich import box
    from rich.table import Table

    from labkit.hardware.sizes import size_text

    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("notebook")
    for heading in ("time", "peak memory", "cells", "figures"):
        table.add_column(heading, justify="right")
    table.add_column("verdict")
    for executed in results:
        count = len(executed.faults)
        verdict = executed.note or "passed" if executed.passed else f"{count} fault{'s' * (count > 1)}"
        table.add_row(
            executed.source.stem,
            f"{executed.seconds:.1f} s",
            size_text(executed.peak_memory_bytes),
            str(executed.cells),
            str(executed.figures),
            verdict,
        )
    return table

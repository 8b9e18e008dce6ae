"""`labkit plan dlrm`: where tables of a size fit, and where they are fastest, before anything is trained."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit import UserError, hardware, perfmodel

if TYPE_CHECKING:
    import pandas as pd


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    what = "say where a model's embedding tables fit, and where they are fastest"
    jobs = subparsers.add_parser("plan", help=what, description=what).add_subparsers(
        title="jobs", dest="job", metavar="JOB", required=True
    )
    parser = jobs.add_parser("dlrm", help=what, description=what)
    add = parser.add_argument
    tables = parser.add_mutually_exclusive_group(required=True)
    tables.add_argument("--tables", metavar="ROWS", help="rows of each table, such as 26x1000000, or 5000,20000,3x1e6")
    tables.add_argument("--preset", metavar="P", help="the tables and dimension of a preset with published sizes")
    add("--memory", metavar="SIZE", help="memory that training may use, such as 2GiB (default: what is free)")
    add("--embedding-dim", type=int, metavar="N", help="numbers in a row (default: the preset's, or 64)")
    add(
        "--optimiser",
        choices=("sgd", "adagrad", "rowwise-adagrad", "adam"),
        default="sgd",
        help="optimiser of the tables (default: sgd)",
    )
    add("--batch-size", type=int, default=2048, metavar="N", help="samples per step (default: 2048)")
    add("--pooling-factor", type=int, default=1, metavar="N", help="rows that a sample names in a table (default: 1)")
    add("--zipf", type=float, default=1.1, metavar="X", help="exponent of how often rows are named (default: 1.1)")
    add("--table-dir", type=Path, default=Path(), metavar="DIR", help="folder of a table file (default: this folder)")
    add("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run_plan)


def run_plan(args: argparse.Namespace) -> int:
    from labkit.jobs import get_preset

    memory = hardware.read_cpu().memory_available_bytes if args.memory is None else hardware.parse_size(args.memory)
    if not memory:
        raise UserError(f"--memory is {args.memory!r}: give a size such as 2GiB.", field="memory")
    if not args.table_dir.is_dir():
        said = f"--table-dir: there is no folder {args.table_dir}: make it, or name another."
        raise UserError(said, field="table_dir")
    hardware.keep_memory()
    dim = args.embedding_dim
    if args.preset is None:
        num_rows = read_tables(args.tables)
    else:
        preset = get_preset("dlrm", args.preset)
        if args.preset not in perfmodel.PUBLISHED_ROWS:
            known = ", ".join(perfmodel.PUBLISHED_ROWS)
            raise UserError(f"preset {args.preset!r} has no published tables: choose one of {known}.", field="preset")
        num_rows, dim = perfmodel.PUBLISHED_ROWS[args.preset], preset.model["embedding_dim"] if dim is None else dim
    shape = perfmodel.TableShape(
        num_rows, 64 if dim is None else dim, args.pooling_factor, args.batch_size, args.optimiser, args.zipf
    )
    plan = perfmodel.plan_tables(shape, memory, args.table_dir)
    if args.json:
        print(plan.to_json(orient="records", indent=2))
    else:
        _print(plan, shape, memory, args.table_dir)
    return 0


def read_tables(text: str) -> tuple[int, ...]:
    """Rows of each table.

    >>> read_tables("5000,2x1e6")
    (5000, 1000000, 1000000)
    """

    rows: list[int] = []
    for part in text.split(","):
        found = re.fullmatch(r"(?:(\d{1,4})x)?(\d+(?:\.\d+)?(?:e\d)?)", part.strip(), re.IGNORECASE)
        if found is None or not float(found[2]):
            example = "write the rows of each table, as in 26x1000000 or 5000,20000,3x1e6"
            raise UserError(f"--tables has {part.strip()!r}, which is no number of rows: {example}.", field="tables")
        rows += int(found[1] or 1) * [round(float(found[2]))]
    return tuple(rows)


def _print(plan: pd.DataFrame, shape: perfmodel.TableShape, memory: int, table_dir: Path) -> None:
    from labkit.cli.console import Console, print_frame
    from labkit.jobs import as_flags

    console = Console(highlight=False)
    console.print(
        f"Tables of {hardware.size_text(shape.bytes)} with their optimiser's state; {hardware.size_text(memory)} of "
        "memory, which the rest of a training shares."
    )
    rows = [
        {
            "placement": row.placement,
            "memory": hardware.size_text(row.memory_bytes),
            "disk": hardware.size_text(row.disk_bytes) if row.disk_bytes else "-",
            "fits": "yes" if row.fits else "no",
            "tables, ms per step": _times(row),
            "of device": f"{row.of_device:.0%}" if row.of_device == row.of_device else "-",
            "why": row.why,
        }
        for row in plan.itertuples()
    ]
    print_frame(console, rows)
    best = plan.iloc[0]
    flags = best["flags"] | ({"table_dir": table_dir} if best["disk_bytes"] else {})
    is_cut = best["trial_rows"] < sum(shape.num_rows)
    samples, tried = (int(best[name]) for name in ("trial_batch", "trial_rows"))
    cut = ", cut, so that caches hold more of them than of whole tables" if is_cut else ""
    asked = f" of {shape.batch_size:,}" if samples < shape.batch_size else ""
    as_fast = plan[plan["fits"] & (plan["step_ms_low"] <= best["step_ms_high"])]["placement"].iloc[1:].tolist()
    ties = f" Within these turns, {', '.join(as_fast)} may be as fast." if as_fast else ""
    console.print(
        f"Measured: steps of the tables alone, {samples:,}{asked} samples each, with {tried:,} rows{cut}. The brackets "
        f"hold the middle three of {perfmodel.TURNS} turns. A place that does not fit was tried in small, too.\n"
        f"The fastest that fits: {best['placement']}: {best['why']}.{ties}\n"
        f"With a preset or data of such tables: labkit train dlrm {' '.join(as_flags(flags))}"
    )


def _times(row: Any) -> str:
    is_known = row.step_ms == row.step_ms
    return f"{row.step_ms:.3g} ({row.step_ms_low:.3g} to {row.step_ms_high:.3g})" if is_known else "-"

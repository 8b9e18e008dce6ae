"""`labkit whatif`: the gain of a change to a training or its machine. `labkit plan`: where tables fit and are fast."""

import argparse
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from labkit import UserError, hardware, jobs, perfmodel
from labkit.cli.console import Console, TrainingDisplay, print_frame, range_text
from labkit.cli.flags import add_command, commands_of
from labkit.cli.predict import add_card, batch_size_of
from labkit.cli.printing import print_json
from labkit.cli.run import add_trainings, asked_command, bound, harness_command, read_settings

if TYPE_CHECKING:
    import pandas as pd

USUAL = {
    "dlrm": ("batch-size=4096", "kernels=plain", "precision=fp32", "optimiser=adagrad,lr=0.01"),
    "speech": ("batch-size=8", "kernels=plain", "precision=fp32"),
}
"""Default changes of each job; those of the machine follow"""
USUAL_MACHINES = ("overheads=0", "arithmetic=2", "bandwidth=2")
EPILOG = """\
A change is NAME=VALUE, or several separated by commas. Changes of the machine are overheads=0 (the share that remains
of the time in which nothing is computed, as with CUDA graphs or torch.compile), arithmetic=2 and bandwidth=2 (times as
fast), tier=T, and card=FILE. Any other name is a flag of the script, such as batch-size=4096 for --batch-size 4096, and
can also be measured."""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    commands = commands_of(add_command(subparsers, "whatif", epilog=EPILOG))
    add_trainings(commands, "change", _add_flags, run_whatif, epilog=EPILOG)
    models = add_command(subparsers, "plan").add_subparsers(title="jobs", dest="job", metavar="JOB", required=True)
    words = "where the tables of a DLRM fit, and where they are fastest"
    parser = add_command(models, "dlrm", words, run=run_plan, flags="json")
    add = parser.add_argument
    tables = parser.add_mutually_exclusive_group(required=True)
    tables.add_argument("--tables", metavar="ROWS", help="rows of each table, such as 26x1000000, or 5000,20000,3x1e6")
    tables.add_argument("--preset", metavar="P", help="the tables and dimension of a preset with published sizes")
    add("--memory", metavar="SIZE", help="memory that training may use, such as 2GiB (default: what is free)")
    add("--embedding-dim", type=int, metavar="N", help="numbers in a row (default: the preset's, or 64)")
    optimisers = ("sgd", "adagrad", "rowwise-adagrad", "adam")
    add("--optimiser", choices=optimisers, default="sgd", help="optimiser of the tables (default: sgd)")
    add("--batch-size", type=int, default=2048, metavar="N", help="samples per step (default: 2048)")
    add("--pooling-factor", type=int, default=1, metavar="N", help="rows that a sample names in a table (default: 1)")
    add("--zipf", type=float, default=1.1, metavar="X", help="exponent of how often rows are named (default: 1.1)")
    add("--table-dir", type=Path, default=Path(), metavar="DIR", help="folder of a table file (default: this folder)")


def _add_flags(command: argparse.ArgumentParser) -> None:
    add_card(command)
    words = "a change, such as batch-size=4096 or bandwidth=2; may be given several times"
    command.add_argument("--change", action="append", metavar="NAME=VALUE,…", help=words)
    command.add_argument("--measure", action="store_true", help="then measure changes of flags, in turns")


def run_whatif(args: argparse.Namespace) -> None:
    changes = [perfmodel.read_change(text) for text in args.change or (*USUAL.get(args.job, ()), *USUAL_MACHINES)]
    base, job, _ = asked_command(args)
    if "--change" in base.arguments:
        raise UserError(f"--change comes after {base.script}, so it is the script's: put it before.", field="change")
    if job is None:
        commands = [base, *(replace(base, arguments=(*base.arguments, *change.arguments)) for change in changes)]
        sizes = [batch_size_of(command) for command in commands]
    else:
        changed = [job, *(read_settings(args, change.arguments)[0] for change in changes)]
        commands = [harness_command(args, each.command()) for each in changed]
        sizes = [each.batch_size for each in changed]
    for change, size in zip(changes, sizes[1:], strict=True):
        if sizes[0] is None and size is not None:
            raise UserError(
                f"--change {change.text}: the present batch size is unknown. If {base.script} has --batch-size, give "
                "it with the script's own flags, too.",
                field="change",
            )
    card = perfmodel.read_card(args.card)
    machines = [change.on(card) for change in changes]  # refuses unknown ones before anything waits for cores
    kind = args.job or perfmodel.ALL
    with bound(commands[0], TrainingDisplay(Console(stderr=True)), as_json=args.json) as stop:
        rows, notes = perfmodel.what_if(commands, sizes, changes, machines, card, stop, job=kind, measure=args.measure)
    if args.json:
        return print_json({"device": card.device, "threads": card.threads, "notes": notes, "changes": rows})
    shown = []
    for row in rows:
        cells = {"change": row["change"], "step, ms": f"{row['step_ms']:.3g}"}
        cells["nine out of ten"] = f"{row['low_ms']:.3g} to {row['high_ms']:.3g}"
        cells["predicted gain"] = f"{row['gain']:.2f}"
        if args.measure:
            real = row["measured_gain"]
            cells["measured, ms"] = f"{row['measured_ms']:.3g}" if real else "predicted only"
            cells["measured gain"] = f"{real:.2f}" if real else ""
        shown.append(cells)
    unit = "samples" if rows[0]["samples"] else "steps"
    how = f"; measured here, the median of {perfmodel.ROUNDS} rounds in turns." if args.measure else "."
    console = Console()
    for note in notes:
        console.print(note)
    print_frame(console, shown)
    console.print(
        f"Gain: {unit} per second relative to the first row. Predicted for {card.device} with {card.threads} "
        f"thread{'s' * (card.threads > 1)}, from its card of {card.when}{how}"
    )


def run_plan(args: argparse.Namespace) -> None:
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
        preset = jobs.get_preset("dlrm", args.preset)
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
        _print_plan(plan, shape, memory, args.table_dir)


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


def _print_plan(plan: "pd.DataFrame", shape: "perfmodel.TableShape", memory: int, table_dir: Path) -> None:
    console = Console()
    console.print(
        f"Tables of {hardware.size_text(shape.bytes)} with their optimiser's state; {hardware.size_text(memory)} of "
        "memory, which the rest of a training shares."
    )
    rows = []
    for row in plan.itertuples():
        disk = hardware.size_text(row.disk_bytes) if row.disk_bytes else "-"
        of_device = f"{row.of_device:.0%}" if row.of_device == row.of_device else "-"
        cells = {"placement": row.placement, "memory": hardware.size_text(row.memory_bytes), "disk": disk}
        cells["fits"] = "yes" if row.fits else "no"
        cells["tables, ms per step"] = range_text(row.step_ms, row.step_ms_low, row.step_ms_high)
        rows.append(cells | {"of device": of_device, "why": row.why})
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
        f"hold the middle three of {perfmodel.TURNS} turns. A place that does not fit was tried with fewer rows, too.\n"
        f"The fastest that fits: {best['placement']}: {best['why']}.{ties}\n"
        f"With a preset or data of such tables: labkit train dlrm {' '.join(jobs.as_flags(flags))}"
    )

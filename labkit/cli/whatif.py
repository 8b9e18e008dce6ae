"""`labkit whatif`: the gain of changes to a training or its machine, predicted, and where possible measured."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from labkit import UserError, perfmodel
from labkit.cli.flags import add_harness_flags, add_script
from labkit.cli.predict import add_card, batch_size_of, bound
from labkit.cli.run import given_command, harness_command
from labkit.cli.train import add_job_parser, print_help, read_settings
from labkit.jobs import JOBS

USUAL = {
    "dlrm": ("batch-size=4096", "kernels=plain", "precision=fp32", "optimiser=adagrad,lr=0.01"),
    "speech": ("batch-size=8", "kernels=plain", "precision=fp32"),
}
"""Default changes of each job; those of the machine follow"""
USUAL_MACHINES = ("overheads=0", "arithmetic=2", "bandwidth=2")
EXAMPLE = {"rows": (1_000_000, 500_000, 200_000, 100_000, 50_000, 20_000), "lookups": (1, 1, 4, 1, 20, 40)}
"""Tables of `whatif sharding`"""
EPILOG = """\
A change is NAME=VALUE, or several separated by commas. Changes of the machine are overheads=0 (the share that remains
of the time in which nothing is computed, as with CUDA graphs or torch.compile), arithmetic=2 and bandwidth=2 (times as
fast), tier=T, and card=FILE. Any other name is a flag of the script, such as batch-size=4096 for --batch-size 4096, and
can also be measured."""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    what = "the gain of a change to a training or its machine"
    parser = subparsers.add_parser("whatif", help=what, description=f"Predict {what}.", epilog=EPILOG)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, job in JOBS.items():
        _add_flags(add_job_parser(commands, name, f"change the training of {job.words}", run_job))
    script = commands.add_parser("run", help="change any training script's flags", epilog=EPILOG)
    add_harness_flags(script)
    _add_flags(script)
    add_script(script)
    script.set_defaults(run=run_script)
    words = "place embedding tables on processes of this machine"
    sharding = commands.add_parser("sharding", help=words, description=words)
    add_card(sharding)
    for name, own in EXAMPLE.items():
        words = f"of each table (default: {','.join(map(str, own))})"
        sharding.add_argument(f"--{name}", type=_numbers, default=own, metavar="N,N,…", help=words)
    for name, value, words in (
        ("dim", 64, "length of a row"), ("batch-size", 2048, "samples of all processes"), ("processes", 2, "number"),
    ):  # fmt: skip
        sharding.add_argument(f"--{name}", type=int, default=value, metavar="N", help=f"{words} (default: {value})")
    sharding.add_argument("--measure", action="store_true", help="then measure each placement")
    sharding.add_argument("--json", action="store_true", help="print one JSON object")
    sharding.set_defaults(run=run_sharding)


def _add_flags(command: argparse.ArgumentParser) -> None:
    add_card(command)
    words = "a change, such as batch-size=4096 or bandwidth=2; may be given several times"
    command.add_argument("--change", action="append", metavar="NAME=VALUE,…", help=words)
    command.add_argument("--measure", action="store_true", help="then measure changes of flags, in turns")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(","))


def run_job(args: argparse.Namespace) -> int:
    if args.help:
        return print_help(args)
    changes = [perfmodel.read_change(text) for text in args.change or (*USUAL[args.job], *USUAL_MACHINES)]
    jobs = [read_settings(args)[0], *(read_settings(args, change.arguments)[0] for change in changes)]
    commands = [harness_command(args, job.command()) for job in jobs]
    return _what_if(args, commands, [job.batch_size for job in jobs], changes, args.job)


def run_script(args: argparse.Namespace) -> int:
    changes = [perfmodel.read_change(text) for text in args.change or USUAL_MACHINES]
    base = given_command(args)
    if "--change" in base.arguments:
        raise UserError(f"--change comes after {base.script}, so it is the script's: put it before.", field="change")
    commands = [base, *(replace(base, arguments=(*base.arguments, *change.arguments)) for change in changes)]
    sizes = [batch_size_of(command) for command in commands]
    for change, size in zip(changes, sizes[1:], strict=True):
        if sizes[0] is None and size is not None:
            raise UserError(
                f"--change {change.text}: the present batch size is unknown. If {base.script} has --batch-size, give "
                "it with the script's own flags, too.",
                field="change",
            )
    return _what_if(args, commands, sizes, changes, "all")


def _what_if(args: argparse.Namespace, commands: list, sizes: list[int | None], changes: list, job: str) -> int:
    card = perfmodel.read_card(args.card)
    machines = [change.on(card) for change in changes]  # refuses unknown ones before anything waits for cores
    with bound(args, commands[0]) as stop:
        rows, notes = perfmodel.what_if(commands, sizes, changes, machines, card, stop, job=job, measure=args.measure)
    if args.json:
        print(json.dumps({"device": card.device, "threads": card.threads, "notes": notes, "changes": rows}))
        return 0
    shown = []
    for row in rows:
        real = row["measured_gain"]
        measured = {
            "measured, ms": f"{row['measured_ms']:.3g}" if real else "predicted only",
            "measured gain": f"{real:.2f}" if real else "",
        }
        shown.append(
            {
                "change": row["change"],
                "step, ms": f"{row['step_ms']:.3g}",
                "nine out of ten": f"{row['low_ms']:.3g} to {row['high_ms']:.3g}",
                "predicted gain": f"{row['gain']:.2f}",
                **(measured if args.measure else {}),
            }
        )

    unit = "samples" if rows[0]["samples"] else "steps"
    how = f"; measured here, the median of {perfmodel.ROUNDS} rounds in turns." if args.measure else "."
    _print(
        notes,
        shown,
        f"Gain: {unit} per second relative to the first row. Predicted for {card.device} with {card.threads} "
        f"thread{'s' * (card.threads > 1)}, from its card of {card.when}{how}",
    )
    return 0


def run_sharding(args: argparse.Namespace) -> int:
    tables, card = perfmodel.Tables(args.rows, args.lookups, args.dim, args.batch_size), perfmodel.read_card(args.card)
    rows, exchange = perfmodel.compare_placements(tables, args.processes, card, measure=args.measure)
    if args.json:
        print(json.dumps({"device": card.device, "threads": card.threads, "placements": rows}))
        return 0
    fits = (
        f"This card is of {card.threads} threads, and each process has one: make a card that fits with `labkit "
        "calibrate --budget one-core`."
    )
    shown = [
        {
            "placement": row["placement"],
            "process of each table": " ".join(map(str, row["processes"])),
            "predicted, ms": f"{row['predicted_ms']:.3g}",
            **({"measured, ms": f"{row['measured_ms']:.3g}"} if args.measure else {}),
        }
        for row in rows
    ]
    _print(
        [fits] if card.threads != 1 else [],
        shown,
        f"A step of the slowest of {args.processes} processes, with both exchanges (gloo, measured here: "
        f"{1e6 * exchange.start_s:.0f} µs, and {1e6 * exchange.byte_s * 2**20:.0f} µs per MiB).",
    )
    return 0


def _print(notes: Sequence[str], rows: list[dict[str, Any]], after: str) -> None:
    from labkit.cli.console import Console, print_frame

    console = Console(highlight=False)
    for note in notes:
        console.print(note)
    print_frame(console, rows)
    console.print(after)

"""`labkit whatif`: what changes of a training, or of its machine, would gain; then, where it can be, what they do."""

from __future__ import annotations

import argparse
import difflib
import json
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.cli import sharding
from labkit.cli.flags import add_harness_flags, add_script
from labkit.cli.predict import add_card, batch_size_of, bound, notes_of, unsure
from labkit.cli.run import given_command, harness_command
from labkit.cli.train import add_job_parser, print_help, read_settings
from labkit.errors import UserError
from labkit.jobs import JOBS

if TYPE_CHECKING:
    from labkit.perfmodel import Card, Change
    from labkit.tracking import ScriptCommand

MACHINE = ("overheads", "arithmetic", "bandwidth", "tier", "card")
USUAL = {
    "dlrm": ("batch-size=4096", "kernels=plain", "precision=fp32", "optimiser=adagrad,lr=0.01"),
    "speech": ("batch-size=8", "kernels=plain", "precision=fp32"),
}
"""Changes of each job where none is asked for; those of the machine follow"""
USUAL_MACHINES = ("overheads=0", "arithmetic=2", "bandwidth=2")
ROUNDS = 5
EPILOG = """\
A change is NAME=VALUE, or several with commas. Of the machine: overheads=0 (the share that remains of the time in
which nothing is computed, as with CUDA graphs or torch.compile), arithmetic=2 and bandwidth=2 (times as fast), tier=T,
and card=FILE. Any other is a flag of the script, such as batch-size=4096 for --batch-size 4096, and can be
measured, too."""


@dataclass(frozen=True)
class WhatIf:
    """One change."""

    text: str
    arguments: tuple[str, ...]
    """Of the script, beside its own"""
    machine: Mapping[str, str]


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    what = "what a change of a training or of its machine would gain"
    parser = subparsers.add_parser("whatif", help=what, description=f"Predict {what}.", epilog=EPILOG)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, job in JOBS.items():
        _add_flags(add_job_parser(commands, name, f"change the training of {job.words}", run_job))
    script = commands.add_parser("run", help="change any training script's flags", epilog=EPILOG)
    add_harness_flags(script)
    _add_flags(script)
    add_script(script)
    script.set_defaults(run=run_script)
    sharding.add_parser(commands)


def _add_flags(command: argparse.ArgumentParser) -> None:
    add_card(command)
    words = "a change, such as batch-size=4096 or bandwidth=2; may be given several times"
    command.add_argument("--change", action="append", metavar="NAME=VALUE,…", help=words)
    command.add_argument("--measure", action="store_true", help="then measure the changes of flags, in turns")


def run_job(args: argparse.Namespace) -> int:
    if args.help:
        return print_help(args)
    changes = [read_change(text) for text in args.change or (*USUAL[args.job], *USUAL_MACHINES)]
    jobs = [read_settings(args)[0], *(read_settings(args, change.arguments)[0] for change in changes)]
    commands = [harness_command(args, job.command()) for job in jobs]
    return _what_if(args, commands, [job.batch_size for job in jobs], changes, args.job)


def run_script(args: argparse.Namespace) -> int:
    changes = [read_change(text) for text in args.change or USUAL_MACHINES]
    base = given_command(args)
    if "--change" in base.arguments:
        raise UserError(f"--change stands behind {base.script}, whose flag it is not: put it before.", field="change")
    commands = [base, *(replace(base, arguments=(*base.arguments, *change.arguments)) for change in changes)]
    sizes = [batch_size_of(command) for command in commands]
    for change, size in zip(changes, sizes[1:], strict=True):
        if sizes[0] is None and size is not None:
            raise UserError(
                f"--change {change.text}: nobody knows the batch size as it is. If {base.script} has --batch-size, "
                "give it with the script's own flags, too.",
                field="change",
            )
    return _what_if(args, commands, sizes, changes, "all")


def read_change(text: str) -> WhatIf:
    """A change as it is asked for.

    Raises:
        UserError: it is not understood.
    """
    arguments, machine = [], {}
    for part in text.split(","):
        name, equals, value = (each.strip() for each in part.partition("="))
        if not (equals and name and value):
            raise UserError(f"--change {text!r}: {part!r} is no NAME=VALUE, such as batch-size=4096.", field="change")
        near = difflib.get_close_matches(name, MACHINE, n=1, cutoff=0.8)
        if near and name not in MACHINE:
            raise UserError(f"--change {text!r}: did you mean {near[0]}, which is of the machine?", field="change")
        if name in MACHINE:
            machine[name] = value
        else:
            arguments += [f"--{name.lstrip('-')}", value]
    for name in MACHINE[:3]:
        try:
            number = float(machine.get(name, 1))
        except ValueError:
            number = -1.0
        if not (0 if name == "overheads" else 1e-6) <= number < 1e6:
            raise UserError(f"--change {text!r}: {name} takes a number, such as {name}=2.", field="change")
    if {"tier", "card"} <= machine.keys():
        raise UserError(f"--change {text!r}: it names two machines; give a tier or a card.", field="change")
    return WhatIf(text, tuple(arguments), machine)


def _what_if(
    args: argparse.Namespace,
    commands: list[ScriptCommand],
    sizes: list[int | None],
    changes: list[WhatIf],
    job: str,
) -> int:
    """Predict the commands, the first as it is and one per change, whose steps have batches of these sizes."""
    from labkit.perfmodel import read_card

    card, base = read_card(args.card), commands[0]  # before anything waits for cores
    machines = [_machine(change, card) for change in changes]
    with bound(args, base) as stop:
        from labkit.perfmodel import NO_CHANGE, captured_steps, measured_step_s, predict_steps

        captured = {each.arguments: captured_steps(each, stop) for each in dict.fromkeys(commands)}
        measured_s: dict[tuple[str, ...], list[float]] = {each: [] for each in captured}
        for _ in range(ROUNDS * args.measure):
            for each in dict.fromkeys(commands):
                measured_s[each.arguments].append(measured_step_s(each, stop))
    rows, notes = (
        [],
        list(dict.fromkeys(notes_of(card, base) + [note for each in captured.values() for note in each.notes])),
    )
    for number, (own, (on, change)) in enumerate(zip(commands, [(card, NO_CHANGE), *machines], strict=True)):
        samples = sizes[number]
        prediction = predict_steps(captured[own.arguments].steps, on, job, change)
        what = changes[number - 1].text if number else "as it is"
        if not number or own.arguments != base.arguments:
            notes += [f"{what}: {note}" for note in unsure(prediction)]
        is_real = args.measure and on is card and change == NO_CHANGE
        rows.append(
            {
                "change": what,
                "samples": samples,
                "step_ms": prediction.step_ms,
                "low_ms": prediction.low_ms,
                "high_ms": prediction.high_ms,
                "measured_ms": 1e3 * statistics.median(measured_s[own.arguments]) if is_real else None,
                "gain": rows[0]["step_ms"] / prediction.step_ms * _more(samples, rows) if number else 1.0,
                "measured_gain": _gain(measured_s, base, own) * _more(samples, rows) if is_real else None,
            }
        )
    for each in rows:
        each["provenance"] = "predicted"
    if args.json:
        print(json.dumps({"device": card.device, "threads": card.threads, "notes": notes, "changes": rows}))
    else:
        _print(rows, notes, card, args.measure)
    return 0


def _machine(change: WhatIf, card: Card) -> tuple[Card, Change]:
    """The card and what is changed of it."""
    from labkit.hardware import get_tier
    from labkit.perfmodel import NO_CHANGE, read_card, tier_change

    asked = change.machine
    on = read_card(Path(asked["card"])) if "card" in asked else card
    start = tier_change(card, get_tier(asked["tier"])) if "tier" in asked else NO_CHANGE
    return on, replace(
        start,
        arithmetic=start.arithmetic * float(asked.get("arithmetic", 1)),
        bandwidth=start.bandwidth * float(asked.get("bandwidth", 1)),
        overheads=float(asked.get("overheads", 1)),
    )


def _more(samples: int | None, rows: list[dict[str, Any]]) -> float:
    """How many times the samples of the step as it is."""
    first = rows[0]["samples"] if rows else samples
    return samples / first if samples and first else 1.0


def _gain(measured_s: Mapping[tuple[str, ...], list[float]], base: ScriptCommand, own: ScriptCommand) -> float:
    """Measured, of the rounds' median: within a round both were timed shortly after each other."""
    pairs = zip(measured_s[base.arguments], measured_s[own.arguments], strict=True)
    return statistics.median(before / after for before, after in pairs)


def _print(rows: list[dict[str, Any]], notes: list[str], card: Card, is_measured: bool) -> None:
    from labkit.cli.console import Console, print_frame

    shown = []
    for row in rows:
        real = row["measured_gain"]
        shown.append(
            {
                "change": row["change"],
                "step, ms": f"{row['step_ms']:.3g}",
                "nine of ten": f"{row['low_ms']:.3g} to {row['high_ms']:.3g}",
                "predicted gain": f"{row['gain']:.2f}",
                **(
                    {
                        "measured, ms": f"{row['measured_ms']:.3g}" if real else "predicted only",
                        "measured gain": f"{real:.2f}" if real else "",
                    }
                    if is_measured
                    else {}
                ),
            }
        )
    console = Console(highlight=False)
    for note in notes:
        console.print(note)
    print_frame(console, shown)
    unit = "samples a second" if rows[0]["samples"] else "steps a second"
    console.print(
        f"Gain: so many times the {unit}. Predicted for {card.device} with {card.threads} "
        f"thread{'s' * (card.threads > 1)}, from its card of {card.when}"
        + (f"; measured here, the median of {ROUNDS} rounds in turns." if is_measured else ".")
    )

"""`labkit predict`: the time of a training step before it is trained, here or on the machine of another card."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
from collections.abc import Generator
from pathlib import Path

from labkit import hardware, jobs, perfmodel, tracking
from labkit.cli.flags import add_harness_flags, add_script
from labkit.cli.run import given_command, harness_command, script_output
from labkit.cli.train import add_job_parser, print_help, read_settings

EPILOG = """\
A few steps of the script are run, to see which operators of what sizes a step calls; their time here does not count.
The card, which `labkit calibrate` writes, gives the time of each on its machine."""
TOP = 8
"""Number of kinds of operators in the table"""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    what = "the time of a training step on the machine of a card"
    parser = subparsers.add_parser("predict", help=what, description=f"Predict {what}.", epilog=EPILOG)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, job in jobs.JOBS.items():
        _add_flags(add_job_parser(commands, name, f"predict the training of {job.words}", run_job))
    script = commands.add_parser("run", help="predict any training script, unchanged", epilog=EPILOG)
    add_harness_flags(script)
    _add_flags(script)
    add_script(script)
    script.set_defaults(run=run_script)


def _add_flags(command: argparse.ArgumentParser) -> None:
    add_card(command)
    words = "a tier of the catalogue: the card's machine with the speeds of its data sheet (`labkit tiers`)"
    command.add_argument("--tier", metavar="T", help=words)


def add_card(command: argparse.ArgumentParser) -> None:
    words = "the card of a machine (default: card.json, which `labkit calibrate` writes)"
    command.add_argument("--card", type=Path, default=Path("card.json"), metavar="FILE", help=words)


def run_job(args: argparse.Namespace) -> int:
    if args.help:
        return print_help(args)
    job, given = read_settings(args)
    return _predict(args, harness_command(args, job.command()), job, has_target="target" in given)


def run_script(args: argparse.Namespace) -> int:
    return _predict(args, given_command(args))


def _predict(
    args: argparse.Namespace,
    command: tracking.ScriptCommand,
    job: jobs.TrainingJob | None = None,
    *,
    has_target: bool = False,
) -> int:
    from labkit import perfmodel

    # all that can be refused is read before anything waits for cores
    card, tier = perfmodel.read_card(args.card), args.tier and hardware.get_tier(args.tier)
    change = perfmodel.tier_change(card, tier) if tier else perfmodel.NO_CHANGE
    samples = batch_size_of(command) if job is None else job.batch_size
    need = perfmodel.need_of(job, args.runs_dir) if job is not None and has_target else None
    with bound(args, command) as stop:
        captured = perfmodel.captured_steps(command, stop)
    prediction = perfmodel.predict_steps(captured.steps, card, job.name if job else perfmodel.ALL, change)
    target = perfmodel.to_target(prediction, samples, need, tier.name if tier else card.tier) if need else None
    notes = [*perfmodel.uncertainties(prediction), *captured.notes, *perfmodel.card_notes(card, command.budget)]
    notes += perfmodel.tier_notes(tier, captured.memory_bytes) if tier else []
    samples_per_s = samples and 1e3 * samples / prediction.step_ms
    if args.json:
        facts = {
            "device": card.device,
            "threads": card.threads,
            "tier": tier and tier.name,
            "calibrated": card.when,
            "samples_per_s": samples_per_s,
            "memory_bytes": captured.memory_bytes,
            "to_target": target and dataclasses.asdict(target),
            "notes": notes,
        }
        print(json.dumps(prediction.to_dict() | facts))
        return 0
    own = f"{card.device} with {card.threads} thread{'s' * (card.threads > 1)}, from its"
    machine = f"{f'tier {tier.name}, from the' if tier else own} card of {card.when}"
    speed = f", {samples_per_s:,.0f} samples/s" if samples else ""
    _print(prediction, target, notes, speed, machine, hardware.size_text(captured.memory_bytes))
    return 0


@contextlib.contextmanager
def bound(args: argparse.Namespace, command: tracking.ScriptCommand) -> Generator[tracking.StopRequest]:
    """Bind this process to a command's budget; with --json, the script's output goes to standard error."""
    from labkit.cli.display import TrainingDisplay

    with tracking.StopRequest() as stop, TrainingDisplay(to_stderr=True) as display, script_output(args.json):
        tracking.bind_process(command, display.show, stop)
        yield stop


def batch_size_of(command: tracking.ScriptCommand) -> int | None:
    """The batch size of a script's step, if it takes --batch-size."""
    flags = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    flags.add_argument("--batch-size", "--batch_size", type=int)
    return flags.parse_known_args(command.arguments)[0].batch_size


def _print(
    prediction: perfmodel.Prediction,
    target: perfmodel.ToTarget | None,
    notes: list[str],
    speed: str,
    machine: str,
    memory: str,
) -> None:
    from labkit.cli.console import Console, print_frame

    console = Console(highlight=False)
    for note in notes:
        console.print(note)
    console.print(
        f"A step takes {prediction.step_ms:.3g} ms{speed}: predicted, for {machine}. The usual step of nine out of ten "
        f"trainings takes {prediction.low_ms:.3g} to {prediction.high_ms:.3g} ms."
    )
    kinds = prediction.operators.groupby("kind", sort=False)[["calls", "time_ms"]].sum()
    kinds = kinds.sort_values("time_ms", ascending=False)
    parts = list(kinds.head(TOP).itertuples(name=None))
    if len(kinds) > TOP:
        parts.append(("other operators", *kinds.iloc[TOP:].sum()))
    parts.append(("between operators (T1)", 0, prediction.overheads_ms))
    rows = [
        {
            "part": name,
            "calls": f"{calls:,.0f}" if calls else "",
            "ms": f"{time_ms:.3g}",
            "of the step": f"{time_ms / prediction.step_ms:.0%}",
        }
        for name, calls, time_ms in parts
    ]
    print_frame(console, rows)
    console.print(
        f"An operator computes in {prediction.active:.0%} of the step; {prediction.views_ms:.2g} ms are in operators "
        "that compute nothing (T5). A CPU has one timeline and no launches, so there are no T2 to T4."
    )
    console.print(
        f"The longest chain of operators that need each other's results takes {prediction.critical_ms:.3g} ms: about "
        f"the step if all others ran in parallel. The process held {memory} (measured here)."
    )
    if target is not None:
        money = f", ${target.cost_usd:.2g}" if target.cost_usd is not None else ""
        joules = f", {target.energy_j:,.0f} J" if target.energy_j is not None else ""
        console.print(
            f"To the target: {target.seconds:.3g} s of training ({target.low_s:.3g} to {target.high_s:.3g}){joules}"
            f"{money}: predicted, for {target.need.samples:,.0f} samples ({target.need.how}), without loading and "
            f"evaluation. Based on {target.how}."
        )

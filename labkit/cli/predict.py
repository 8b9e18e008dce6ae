"""`labkit predict`: how long a training step takes, before it is trained: here, or on the machine of another card."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.cli.flags import add_harness_flags, add_script
from labkit.cli.run import given_command, harness_command, script_output
from labkit.cli.train import add_job_parser, print_help, read_settings
from labkit.jobs import JOBS

if TYPE_CHECKING:
    from labkit.hardware import Tier
    from labkit.jobs import TrainingJob
    from labkit.perfmodel import CapturedSteps, Card, Need, Prediction, ToTarget
    from labkit.tracking import ScriptCommand, StopRequest

EPILOG = """\
A few steps of the script are run, to see which operators of what sizes a step calls; how long they take here does not
count. The card, which `labkit calibrate` writes, says how long each takes on its machine."""
WORTH_SAYING = 0.05
"""Of the time, that operators without a model take"""
TOP = 8
SAME = ("preset", "optimiser", "compress", "compress_to")
"""Settings in which runs must agree to say how many samples a target takes; the learning rate goes with the batch"""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    what = "how long a training step takes on the machine of a card"
    parser = subparsers.add_parser("predict", help=what, description=f"Predict {what}.", epilog=EPILOG)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, job in JOBS.items():
        _add_flags(add_job_parser(commands, name, f"predict the training of {job.words}", run_job))
    script = commands.add_parser("run", help="predict any training script, unchanged", epilog=EPILOG)
    add_harness_flags(script)
    _add_flags(script)
    add_script(script)
    script.set_defaults(run=run_script)


def _add_flags(command: argparse.ArgumentParser) -> None:
    add_card(command)
    words = "a tier of the catalogue: the card's machine, with its data sheet's speeds (`labkit tiers`)"
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
    args: argparse.Namespace, command: ScriptCommand, job: TrainingJob | None = None, *, has_target: bool = False
) -> int:
    from labkit.hardware import get_tier
    from labkit.perfmodel import read_card

    card, tier = read_card(args.card), args.tier and get_tier(args.tier)  # before anything waits for cores
    samples = batch_size_of(command) if job is None else job.batch_size
    need = _need(args.runs_dir, job) if job is not None and has_target else None
    if need is not None:
        from labkit.perfmodel import to_target
    with bound(args, command) as stop:
        from labkit.perfmodel import (
            NO_CHANGE,
            captured_steps,  # torch comes with it
            predict_steps,
            tier_change,
        )

        captured = captured_steps(command, stop)
    prediction = predict_steps(
        captured.steps, card, job.name if job else "all", tier_change(card, tier) if tier else NO_CHANGE
    )
    told = to_target(prediction, samples, need, tier.name if tier else card.tier) if need else None
    notes = [*unsure(prediction), *captured.notes, *notes_of(card, command), *_of_tier(tier, captured.memory_bytes)]
    if args.json:
        print(json.dumps(_as_json(prediction, card, samples, captured, told, tier) | {"notes": notes}))
    else:
        _print(prediction, card, samples, captured, told, tier, notes)
    return 0


@contextlib.contextmanager
def bound(args: argparse.Namespace, command: ScriptCommand) -> Iterator[StopRequest]:
    """Bind this process to a command's budget; what its script prints stays out of the way."""
    from labkit.cli.display import TrainingDisplay
    from labkit.tracking import StopRequest, bind_process

    with StopRequest() as stop, TrainingDisplay(to_stderr=True) as display, script_output(args.json):
        bind_process(command, display.show, stop)
        yield stop


def _need(runs_dir: Path, job: TrainingJob) -> Need:
    """Samples of training until the job's target, as runs in the folder have needed them."""
    from labkit.perfmodel import alike, samples_to_target

    settings = {name: getattr(job, name) for name in SAME if hasattr(job, name)}
    return samples_to_target(alike(runs_dir, job.name, settings, Path(job.data).name), job.target, job.batch_size)


def notes_of(card: Card, command: ScriptCommand) -> list[str]:
    """What a prediction from a card has to say of it, in this process and under this command's budget."""
    import torch

    from labkit.hardware import read_cpu

    notes = []
    if card.is_poor:
        notes.append(
            "The card is poor, as `labkit calibrate` said: steps that it had not seen lay up to "
            f"{max(map(card.error, card.misses)):.0%} off. Calibrate anew while nothing else runs, and for longer."
        )
    versions = [each.partition("+")[0] for each in (card.software["torch"], torch.__version__)]
    if versions[0] != versions[1]:
        notes.append(
            f"The card is of torch {versions[0]}, and this step's operators are of {versions[1]}: calibrate anew on "
            "that machine to be sure."
        )
    cpu, cores = read_cpu(), command.budget and command.budget.cores
    if cores and card.device == cpu.model and cores != card.threads:
        notes.append(
            f"The card is of {card.threads} threads, and this budget has {cores} cores: `labkit calibrate --budget "
            f"{command.budget.name}` makes the card of it."
        )
    return notes


def unsure(prediction: Prediction) -> list[str]:
    """How much of a prediction is of operators that the card has no model of, or none that large or small."""
    without, outside = prediction.share("is_modelled"), prediction.share("is_known")
    frame, notes = prediction.operators, []
    if without > WORTH_SAYING:
        unknown = frame[~frame["is_modelled"]].groupby("kind")[["seen_ms", "time_ms"]].sum().max(axis=1)
        names = ", ".join(unknown.sort_values(ascending=False).index[:3])
        notes.append(
            f"{without:.0%} of the step's time is of operators that the card has no model of ({names}), reckoned from "
            "the machine's best speed, and so too short."
        )
    if outside - without > WORTH_SAYING:
        notes.append(
            f"{outside - without:.0%} of the step's time is of operators larger or smaller than any on the card: less "
            "certain."
        )
    return notes


def _of_tier(tier: Tier | None, memory_bytes: int) -> list[str]:
    if tier is None:
        return []
    notes = [
        f"Tier {tier.name} by its data sheet beside what this card's machine does: nobody has measured it, so each end "
        "of the interval is a further factor of two away."
    ]
    if tier.memory_gb and memory_bytes > 1e9 * tier.memory_gb:
        notes.append(f"It does not fit: tier {tier.name} has {tier.memory_gb:g} GB of memory.")
    return notes


def batch_size_of(command: ScriptCommand) -> int | None:
    """The batch size of a script's step, where it takes --batch-size."""
    flags = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    flags.add_argument("--batch-size", "--batch_size", type=int)
    return flags.parse_known_args(command.arguments)[0].batch_size


def _as_json(
    prediction: Prediction,
    card: Card,
    samples: int | None,
    captured: CapturedSteps,
    told: ToTarget | None,
    tier: Tier | None,
) -> dict[str, Any]:
    names = ("step_ms", "low_ms", "high_ms", "overheads_ms", "views_ms", "critical_ms")
    return {name: getattr(prediction, name) for name in names} | {
        "provenance": "predicted",
        "device": card.device,
        "threads": card.threads,
        "tier": tier and tier.name,
        "calibrated": card.when,
        "samples_per_s": samples and 1e3 * samples / prediction.step_ms,
        "active_share": prediction.active,
        "without_model": prediction.share("is_modelled"),
        "outside": prediction.share("is_known"),
        "memory_bytes": captured.memory_bytes,
        "to_target": told and dataclasses.asdict(told),
        "operators": prediction.operators.to_dict("records"),
    }


def _print(
    prediction: Prediction,
    card: Card,
    samples: int | None,
    captured: CapturedSteps,
    told: ToTarget | None,
    tier: Tier | None,
    notes: list[str],
) -> None:
    from labkit.cli.console import Console, print_frame
    from labkit.hardware import size_text

    console = Console(highlight=False)
    frame = prediction.operators
    for note in notes:
        console.print(note)
    speed = f", {1e3 * samples / prediction.step_ms:,.0f} samples/s" if samples else ""
    machine = (
        f"tier {tier.name}, from"
        if tier
        else f"{card.device} with {card.threads} thread{'s' * (card.threads > 1)}, from"
    )
    console.print(
        f"A step takes {prediction.step_ms:.3g} ms{speed}: predicted, for {machine} {'the' if tier else 'its'} card of "
        f"{card.when}; nine of ten trainings' usual step lies from {prediction.low_ms:.3g} to "
        f"{prediction.high_ms:.3g} ms."
    )
    shown = frame.groupby("kind", sort=False)[["calls", "time_ms"]].sum().sort_values("time_ms", ascending=False)
    rows = [
        {
            "part": kind,
            "calls": f"{row.calls:,.0f}",
            "ms": f"{row.time_ms:.3g}",
            "of the step": f"{row.time_ms / prediction.step_ms:.0%}",
        }
        for kind, row in shown.head(TOP).iterrows()
    ]
    rest = shown.iloc[TOP:]
    others = {"other operators": (rest["calls"].sum(), rest["time_ms"].sum())} if len(rest) else {}
    for name, (calls, time_ms) in {**others, "between operators (T1)": (0, prediction.overheads_ms)}.items():
        count = f"{calls:,.0f}" if calls else ""
        share = f"{time_ms / prediction.step_ms:.0%}"
        rows.append({"part": name, "calls": count, "ms": f"{time_ms:.3g}", "of the step": share})
    print_frame(console, rows)
    console.print(
        f"In {prediction.active:.0%} of the step an operator computes; {prediction.views_ms:.2g} ms go to operators "
        "that compute nothing (T5). One timeline: a CPU has no launches, so no T2 to T4."
    )
    console.print(
        f"Operators that need each other's results make a chain of {prediction.critical_ms:.3g} ms: about what the "
        f"step would take with all others beside it. The process held {size_text(captured.memory_bytes)} (measured "
        "here)."
    )
    if told is not None:
        money = f", ${told.cost_usd:.2g}" if told.cost_usd is not None else ""
        joules = f", {told.energy_j:,.0f} J" if told.energy_j is not None else ""
        console.print(
            f"To the target: {told.seconds:.3g} s of training ({told.low_s:.3g} to {told.high_s:.3g}){joules}{money}: "
            f"predicted, for {told.need.samples:,.0f} samples ({told.need.how}), without loading and evaluating. "
            f"By {told.how}."
        )

"""`labkit calibrate`: a machine's card. `labkit predict`: the time of a training step on the machine of a card."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

from labkit import UserError, errors, hardware, perfmodel, tracking
from labkit.cli.console import Console, TrainingDisplay, print_frame
from labkit.cli.flags import add_command, commands_of
from labkit.cli.printing import print_last
from labkit.cli.run import add_trainings, asked_command, bound

EPILOG = """\
A few steps of the script are run, to see which operators of what sizes a step calls; their time here does not count.
The card, which `labkit calibrate` writes, gives the time of each on its machine."""
LEAST_S, MOST_S = 5.0, 3600.0
"""Range of seconds that a calibration may take"""
TOP = 8
"""Number of kinds of operators in the table"""


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    add = add_command(subparsers, "calibrate", run=run_calibrate, flags="budget no_wait").add_argument
    add("--out", type=Path, default=Path("card.json"), metavar="FILE", help="the card to write (default: card.json)")
    add("--seconds", type=float, default=110.0, metavar="S", help="time it may take (default: 110); longer is better")
    add("--seed", type=int, default=0, metavar="N", help="seed of the timed steps (default: 0)")

    commands = commands_of(add_command(subparsers, "predict", epilog=EPILOG))
    add_trainings(commands, "predict", _add_flags, run_predict, epilog=EPILOG)


def _add_flags(command: argparse.ArgumentParser) -> None:
    add_card(command)
    words = "a tier of the catalogue: the card's machine with the speeds of its data sheet (`labkit tiers`)"
    command.add_argument("--tier", metavar="T", help=words)


def add_card(command: argparse.ArgumentParser) -> None:
    words = "the card of a machine (default: card.json, which `labkit calibrate` writes)"
    command.add_argument("--card", type=Path, default=Path("card.json"), metavar="FILE", help=words)


def run_calibrate(args: argparse.Namespace) -> None:
    if not LEAST_S <= args.seconds <= MOST_S:
        raise UserError(f"--seconds is {args.seconds:g}: give {LEAST_S:g} to {MOST_S:g}.", field="seconds")
    if not args.out.parent.is_dir():
        raise UserError(f"--out: there is no folder {args.out.parent}: create it, or name another.", field="out")
    budget = hardware.parse_budget(args.budget or "all-cores")
    command = tracking.ScriptCommand(budget=budget, waits_for_cores=not args.no_wait)
    display = TrainingDisplay(Console(stderr=True))
    with bound(command, display, as_json=False):
        import torch

        hardware.keep_memory()
        torch.set_num_threads(budget.cores or torch.get_num_threads())
        card = perfmodel.measure_card(args.seconds, seed=args.seed, say=lambda words: display.print(words, "dim"))
    card.save(args.out)
    _print_card(card, args.out)


def _print_card(card: perfmodel.Card, path: Path) -> None:
    console = Console()
    limits = card.limits
    console.print(
        f"{card.device}, {card.threads} thread{'s' * (card.threads > 1)}, torch {card.software['torch']}: "
        f"{limits.fp32_gflops:,.0f} GFLOP/s in fp32, {limits.bf16_gflops:,.0f} in bf16, copies of "
        f"{limits.bandwidth_gb_per_s:.1f} GB/s; {sum(map(len, card.kernels.values())):,} operators of "
        f"{len(card.kernels)} kinds timed in {card.took_s:.0f} s.\n"
        f"The machine's own noise: one step, repeated between the others, varied by {card.noise:.1%} (from its "
        "median). Errors of predictions for steps that the model had not seen (geometric mean):"
    )
    rows = []
    for job, misses in card.misses.items():
        beyond = card.overheads.get(job, card.overheads[perfmodel.ALL])
        calls = ", ".join(f"{us:.1f}" for us in beyond.calls_us)
        row = {"steps of": job, "steps": str(len(misses)), "error": f"{card.error(job):.1%}"}
        row["an interval"] = "from {:.0%} to {:.0%} of the prediction".format(*card.interval(job))
        rows.append(row | {"between operators": f"{beyond.step_us:.0f} µs per step, {calls} µs per call"})
    print_frame(console, rows)
    if card.is_poor:
        console.print("This card is too inaccurate: calibrate longer (--seconds 300) while nothing else runs.")
    console.print(f"{path}: the card. Next: labkit predict dlrm --card {path}")


def run_predict(args: argparse.Namespace) -> None:
    command, job, given = asked_command(args)
    # all that can be refused is read before anything waits for cores
    card, tier = perfmodel.read_card(args.card), args.tier and hardware.get_tier(args.tier)
    change = perfmodel.tier_change(card, tier) if tier else perfmodel.NO_CHANGE
    samples = batch_size_of(command) if job is None else job.batch_size
    need = perfmodel.need_of(job, args.runs_dir) if job is not None and "target" in given else None
    with bound(command, TrainingDisplay(Console(stderr=True)), as_json=args.json) as stop:
        captured = perfmodel.captured_steps(command, stop)
    prediction = perfmodel.predict_steps(captured.steps, card, args.job or perfmodel.ALL, change)
    on = tier.name if tier else card.tier
    target = perfmodel.to_target(prediction, errors.certain(samples), need, on) if need else None
    notes = [*perfmodel.uncertainties(prediction), *captured.notes, *perfmodel.card_notes(card, command.budget)]
    notes += perfmodel.tier_notes(tier, captured.memory_bytes) if tier else []
    samples_per_s = samples and 1e3 * samples / prediction.step_ms
    if args.json:
        facts = {"device": card.device, "threads": card.threads, "tier": tier and tier.name, "calibrated": card.when}
        facts |= {"samples_per_s": samples_per_s, "memory_bytes": captured.memory_bytes, "notes": notes}
        facts["to_target"] = target and dataclasses.asdict(target)
        return print_last(prediction.to_dict() | facts)
    own = f"{card.device} with {card.threads} thread{'s' * (card.threads > 1)}, from its"
    machine = f"{f'tier {tier.name}, from the' if tier else own} card of {card.when}"
    speed = f", {samples_per_s:,.0f} samples/s" if samples else ""
    head = (
        f"A step takes {prediction.step_ms:.3g} ms{speed}: predicted, for {machine}. The usual step of nine out of ten "
        f"trainings takes {prediction.low_ms:.3g} to {prediction.high_ms:.3g} ms."
    )
    _print(prediction, target, [*notes, head], hardware.size_text(captured.memory_bytes))


def batch_size_of(command: tracking.ScriptCommand) -> int | None:
    """The batch size of a script's step, if it takes --batch-size."""
    flags = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    flags.add_argument("--batch-size", "--batch_size", type=int)
    return flags.parse_known_args(command.arguments)[0].batch_size


def _print(prediction: perfmodel.Prediction, target: perfmodel.ToTarget | None, said: list[str], memory: str) -> None:
    console = Console()
    for line in said:
        console.print(line)
    kinds = prediction.operators.groupby("kind", sort=False)[["calls", "time_ms"]].sum()
    kinds = kinds.sort_values("time_ms", ascending=False)
    parts = list(kinds.head(TOP).itertuples(name=None))
    if len(kinds) > TOP:
        parts.append(("other operators", *kinds.iloc[TOP:].sum()))
    parts.append(("between operators (T1)", 0, prediction.overheads_ms))
    rows = []
    for name, calls, time_ms in parts:
        row = {"part": name, "calls": f"{calls:,.0f}" if calls else "", "ms": f"{time_ms:.3g}"}
        rows.append(row | {"of the step": f"{time_ms / prediction.step_ms:.0%}"})
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

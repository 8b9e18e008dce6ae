"""`labkit predict`: how long a training step takes, before it is trained: here, or on the machine of another card."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.cli.flags import add_harness_flags, add_script
from labkit.cli.run import given_command, harness_command, script_output
from labkit.cli.train import add_job_parser, checked, print_help
from labkit.jobs.command import script_of
from labkit.jobs.presets import JOBS

if TYPE_CHECKING:
    from labkit.perfmodel.card import Card
    from labkit.perfmodel.prediction import Prediction
    from labkit.tracking.command import ScriptCommand

EPILOG = """\
A few steps of the script are run, to see which operators of what sizes a step calls; how long they take here does not
count. The card, which `labkit calibrate` writes, says how long each takes on its machine."""
WORTH_SAYING = 0.05
"""Of the time, that operators without a model take"""
TOP = 8


def add_parser(subparsers: argparse._SubParsersAction) -> None:
    what = "how long a training step takes on the machine of a card"
    parser = subparsers.add_parser("predict", help=what, description=f"Predict {what}.", epilog=EPILOG)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, job in JOBS.items():
        _add_card(add_job_parser(commands, name, f"predict the training of {job.words}", run_job))
    script = commands.add_parser("run", help="predict any training script, unchanged", epilog=EPILOG)
    add_harness_flags(script)
    _add_card(script)
    add_script(script)
    script.set_defaults(run=run_script)


def _add_card(command: argparse.ArgumentParser) -> None:
    words = "the card of a machine (default: card.json, which `labkit calibrate` writes)"
    command.add_argument("--card", type=Path, default=Path("card.json"), metavar="FILE", help=words)


def run_job(args: argparse.Namespace) -> int:
    if args.help:
        return print_help(args)
    return _predict(args, checked(args, harness_command(args, script_of(args.job), args.passed_on)), args.job)


def run_script(args: argparse.Namespace) -> int:
    return _predict(args, given_command(args), "all")


def _predict(args: argparse.Namespace, command: ScriptCommand, job: str) -> int:
    from labkit.cli.display import TrainingDisplay
    from labkit.perfmodel.card import read_card
    from labkit.tracking.binding import bind_process
    from labkit.tracking.ending import StopRequest

    card = read_card(args.card)  # before anything waits for cores
    with StopRequest() as stop, TrainingDisplay(to_stderr=True) as display, script_output(args.json):
        bind_process(command, display.show, stop)
        from labkit.perfmodel.capture import script_operators  # torch comes with it
        from labkit.perfmodel.prediction import predict_step

        operators, notes = script_operators(command, stop, display.show)
        notes += _of_another_version(card)
        prediction = predict_step(operators, card, job)
    samples = _batch_size(args, command)
    if args.json:
        print(json.dumps(_as_json(prediction, card, samples) | {"notes": notes}))
    else:
        _print(prediction, card, samples, notes)
    return 0


def _of_another_version(card: Card) -> list[str]:
    import torch

    versions = [each.partition("+")[0] for each in (card.software["torch"], torch.__version__)]
    if versions[0] == versions[1]:
        return []
    return [
        f"The card is of torch {versions[0]}, and this step's operators are of {versions[1]}: calibrate anew on that "
        "machine to be sure."
    ]


def _batch_size(args: argparse.Namespace, command: ScriptCommand) -> int | None:
    """Of a job's step; that of a script is not known."""
    if "job" not in args:
        return None
    from labkit.jobs.flags import job_flags, read_arguments

    return read_arguments(job_flags(args.job), command.arguments)[0].batch_size


def _as_json(prediction: Prediction, card: Card, samples: int | None) -> dict[str, Any]:
    told = {name: getattr(prediction, name) for name in ("step_ms", "low_ms", "high_ms", "overheads_ms", "views_ms")}
    return told | {
        "provenance": "predicted",
        "device": card.device,
        "threads": card.threads,
        "calibrated": card.when,
        "samples_per_s": samples and 1e3 * samples / prediction.step_ms,
        "active_share": prediction.active,
        "without_model": prediction.share("is_modelled"),
        "outside": prediction.share("is_known"),
        "operators": prediction.operators.to_dict("records"),
    }


def _print(prediction: Prediction, card: Card, samples: int | None, notes: list[str]) -> None:
    from labkit.cli.console import Console, print_frame

    console = Console(highlight=False)
    without, outside = prediction.share("is_modelled"), prediction.share("is_known")
    frame = prediction.operators
    if without > WORTH_SAYING:
        names = ", ".join(frame.loc[~frame["is_modelled"], "kind"].head(3))
        console.print(
            f"First: {without:.0%} of this time is of operators that the card has no model of ({names}), reckoned from "
            "the machine's best speed, and so too short."
        )
    for note in notes:
        console.print(note)
    speed = f", {1e3 * samples / prediction.step_ms:,.0f} samples/s" if samples else ""
    console.print(
        f"A step takes {prediction.step_ms:.3g} ms{speed}: predicted, for {card.device} with {card.threads} "
        f"thread{'s' * (card.threads > 1)}, from its card of {card.when}; nine of ten steps lie from "
        f"{prediction.low_ms:.3g} to {prediction.high_ms:.3g} ms."
    )
    if outside > WORTH_SAYING:
        console.print(f"{outside:.0%} of it is of operators larger or smaller than any on the card: less certain.")
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

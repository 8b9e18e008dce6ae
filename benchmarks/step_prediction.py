"""Predicted beside measured steps that no model has seen, and beside three simpler ways: `make bench-perfmodel`.

The machine's card is measured, and before and after it steps of another seed: what lies between these two times is the
machine's own noise.
"""

import argparse
import gc

import numpy as np
import pandas as pd
import torch
from measuring import write_result

from labkit.hardware import keep_memory, leased_cores
from labkit.perfmodel import (
    WHOLE,
    TimedStep,
    draw_workload,
    features_of,
    fit_card,
    geometric_error,
    no_collection,
    predict_step,
    time_workload,
    timed_steps,
    timing_s,
)

COUNTS = {"dlrm": 24, "speech": 8, "cnn": 4}
SEED = 7_000_000
"""Of what is held out; those of a card begin at 1"""


def held_out(timing: float) -> list[TimedStep]:
    """Time the steps that are held out."""
    found = []
    with no_collection():
        for job, count in COUNTS.items():
            own, seed = [], SEED
            while len(own) < count:
                seed += 1
                timed = time_workload(draw_workload(job, seed), timing)
                gc.collect()
                own += [] if timed is None else [timed]
            found += own
    return found


def by_batch_size(steps: list[TimedStep], job: str) -> np.ndarray:
    """A line through the logarithms of batch size and time of a job's steps on the card."""
    own = [step for step in steps if step.job == job]
    return np.polyfit([np.log(s.settings["batch_size"]) for s in own], [np.log(s.step_s) for s in own], 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=100.0, help="for the card's steps (default: 100)")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads, and cores (default: 2)")
    args = parser.parse_args()
    keep_memory()
    with leased_cores(args.threads):
        torch.set_num_threads(args.threads)
        measure(args.seconds, args.threads)


def measure(seconds: float, threads: int) -> None:
    from labkit.hardware import calibrate

    limits, timing = calibrate(repeats=3), timing_s()
    before = held_out(timing)
    found = list(timed_steps(seconds))
    after = held_out(timing)
    steps = [step for step, _ in found]
    card = fit_card(found, limits)
    lines = {job: by_batch_size(steps, job) for job in WHOLE}
    rows, kernels = [], []
    for first, second in zip(before, after, strict=True):
        measured_s = np.sqrt(first.step_s * second.step_s)
        prediction = predict_step(first.operators, card, first.job)
        slope, level = lines[first.job]
        told_s = {
            "predicted": prediction.step_ms / 1e3,
            "kernels alone": prediction.operators["time_ms"].sum() / card.bias(first.job) / 1e3,
            "FLOP / peak": sum(each.flop for each in first.operators) / limits.fp32_gflops / 1e9,
            "by batch size": np.exp(level + slope * np.log(first.settings["batch_size"])),
        }
        rows.append(
            {"job": first.job, "batch_size": first.settings["batch_size"], "measured_ms": 1e3 * measured_s}
            | {name: float(np.log(measured_s / seconds)) for name, seconds in told_s.items()}
            | {"noise": float(np.log(first.step_s / second.step_s))}
            | {"inside": bool(prediction.low_ms <= 1e3 * measured_s <= prediction.high_ms)}
        )
        times_s = np.sqrt(first.times_s * second.times_s)
        for operator, took_s in zip(first.operators, times_s, strict=True):
            kernels.append((operator.kind, features_of(operator), took_s))
    frame = pd.DataFrame(rows)
    names = ["predicted", "noise", "kernels alone", "FLOP / peak", "by batch size"]
    table = frame.groupby("job", sort=False)[names].agg(geometric_error)
    table.insert(0, "steps", frame.groupby("job")["job"].count())
    table["inside the interval"] = frame.groupby("job")["inside"].mean()
    print(f"{card.device}, {threads} threads; {len(steps)} steps on the card; geometric mean errors of held-out steps")
    print(table.to_string(float_format="{:.1%}".format))
    classes = of_classes(kernels, card)
    print("\nkinds of operators by their share of the time; errors weighted by time:")
    print(classes.head(15).to_string(index=False, float_format="{:.1%}".format))
    write_result(
        f"step_prediction_{threads}",
        table=table.reset_index().to_dict("records"),
        steps=rows,
        kinds=classes.to_dict("records"),
        reference_noise=card.noise,
        card_steps=len(steps),
    )


def of_classes(kernels: list[tuple], card) -> pd.DataFrame:
    """Each kind's error and share of the time."""
    frame = pd.DataFrame(kernels, columns=["kind", "features", "took_s"])
    rows = []
    for kind, own in frame.groupby("kind"):
        if kind in card.models:
            predicted = card.models[kind].seconds(np.array(own["features"].tolist()))
            off, took = np.abs(np.log(own["took_s"] / predicted)), own["took_s"]
            rows.append((kind, took.sum() / frame["took_s"].sum(), np.expm1((off * took).sum() / took.sum())))
    return pd.DataFrame(rows, columns=["kind", "share", "error"]).sort_values("share", ascending=False)


if __name__ == "__main__":
    main()

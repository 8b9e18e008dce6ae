"""Whether the fast path learns what a textbook's learns: `python benchmarks/same_accuracy.py`.

Five seeds train the preset `tour` on 250,000 samples on each path. A seed gives both paths the same first weights and
the same order of rows, so what differs is arithmetic: the order of sums, and bf16 where that is chosen. The test is of
equivalence (two one-sided paired t-tests, α = 0.05): the 90 % confidence interval of the mean difference must lie
within ±0.001 of AUC, and within ±one evaluation of the samples to the target. No setting is tuned for either.
"""

from __future__ import annotations

import argparse
from math import sqrt
from statistics import mean, stdev

import numpy as np
import torch
from measuring import write_result
from scipy.stats import t as student
from textbook_dlrm import TextbookDlrm, textbook_optimiser, textbook_step

from labkit.data.auc import auc
from labkit.data.clicks import load_clicks
from labkit.models.dlrm import DlrmConfig
from labkit.training.clicks_job import ClicksJob
from labkit.training.config import TrainConfig
from labkit.training.presets import get_preset
from labkit.training.step import TrainStep
from labkit.training.step_choice import choose_step

CPU = torch.device("cpu")
SEEDS, SAMPLES, EVERY = range(5), 250_000, 20_000
TARGET = {"sgd": 0.73, "adagrad": 0.76}
RATES = {"sgd": 0.5, "adagrad": 0.02}
AUC_MARGIN, SAMPLES_MARGIN = 0.001, EVERY


def curve(job: ClicksJob, step, predict) -> list[tuple[int, float]]:
    """(samples, validation AUC) after every `EVERY` samples, and at the end."""
    label = np.asarray(job.log.split("validation").label)
    points, samples = [], 0
    for batch, count in job.batches(0, 0):
        step(batch)
        before, samples = samples, samples + count
        if before // EVERY != samples // EVERY or samples >= SAMPLES:
            points.append((samples, auc(label, predict())))
        if samples >= SAMPLES:
            break
    return points


def both(seed: int, optimiser: str) -> dict[str, list[tuple[int, float]]]:
    """The curves of one seed on both paths."""
    log = load_clicks("synthetic")
    config = DlrmConfig(dense_dim=len(log.dense_names), num_rows=log.table_rows, **get_preset("dlrm", "tour").model)
    torch.manual_seed(seed)
    job = ClicksJob(log, config, batch_size=512, seed=seed, device=CPU)
    train = TrainConfig(batch_size=512, optimiser=optimiser, lr=RATES[optimiser])
    kind, _ = choose_step("auto", None, job, train, CPU)
    textbook = TextbookDlrm(config)
    textbook.take_weights(job.model)
    optimisers = textbook_optimiser(textbook, optimiser, RATES[optimiser])
    rows = log.split("validation")
    dense, categorical = torch.from_numpy(np.array(rows.dense)), torch.from_numpy(np.array(rows.categorical))

    def plain_step(batch) -> None:
        dense, categorical, label = batch
        textbook_step(textbook, optimisers, (dense, [bags.long() for bags in categorical.unbind(1)], label))

    def plain_logits() -> np.ndarray:
        with torch.inference_mode():
            return textbook(dense, [bags.long() for bags in categorical.unbind(1)]).numpy()

    def fast_logits() -> np.ndarray:
        with torch.inference_mode(), kind.autocast(CPU):
            return job.model(dense, categorical).float().numpy()

    fast_step = TrainStep(job, train, kind, CPU)
    return {
        "textbook": curve(job, plain_step, plain_logits),
        str(kind): curve(job, lambda batch: fast_step(batch, 0), fast_logits),
    }


def samples_to(target: float, points: list[tuple[int, float]]) -> int | None:
    return next((samples for samples, value in points if value >= target), None)


def equivalence(differences: list[float], margin: float) -> dict:
    """Mean difference, its 90 % interval, and whether that lies within the margin."""
    half = student.ppf(0.95, len(differences) - 1) * stdev(differences) / sqrt(len(differences))
    low, high = mean(differences) - half, mean(differences) + half
    return {
        "mean": mean(differences),
        "low": low,
        "high": high,
        "margin": margin,
        "same": bool(-margin < low and high < margin),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--optimisers", nargs="+", default=["sgd", "adagrad"], choices=tuple(RATES))
    args = parser.parse_args()
    answers = {}
    for optimiser in args.optimisers:
        curves = [both(seed, optimiser) for seed in SEEDS]
        fast = next(name for name in curves[0] if name != "textbook")
        final = [[each[path][-1][1] for path in (fast, "textbook")] for each in curves]
        reached = [[samples_to(TARGET[optimiser], each[path]) for path in (fast, "textbook")] for each in curves]
        if any(None in pair for pair in reached):
            raise SystemExit(f"{optimiser}: AUC {TARGET[optimiser]} was not reached: {reached}")
        answers[optimiser] = {
            "path": fast,
            "final_auc": final,
            "samples_to_target": reached,
            "target": TARGET[optimiser],
            "auc": equivalence([a - b for a, b in final], AUC_MARGIN),
            "samples": equivalence([float(a - b) for a, b in reached], SAMPLES_MARGIN),
        }
        for what, unit in (("auc", "AUC"), ("samples", "samples to target")):
            found = answers[optimiser][what]
            print(
                f"{optimiser}, {fast} against textbook: {unit} differs by {found['mean']:.3g} "
                f"({found['low']:.3g} to {found['high']:.3g}): {'the same' if found['same'] else 'NOT the same'} "
                f"within ±{found['margin']:g}"
            )
    write_result("same_accuracy", optimisers=answers)


if __name__ == "__main__":
    main()

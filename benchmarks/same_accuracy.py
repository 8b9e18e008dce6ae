"""Whether the fast path learns what a textbook's learns: `python benchmarks/same_accuracy.py`.

Twelve seeds train the preset `tour` on 160,000 samples on each path with each optimiser (five are enough for fp32; bf16
makes runs differ more). A seed gives both paths the same first weights and the same order of rows, so what differs is
arithmetic: the order of sums, and bf16 where that is faster. Near the target both are scored every five steps. The test
is of equivalence (two one-sided paired t-tests, α = 0.05): the 90 % confidence interval of the mean difference must lie
within ±0.001 of AUC, and within ±5 % of the samples to the target. No setting is tuned for either. Seeds run side by
side, a core each; nothing is timed here.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from math import sqrt
from multiprocessing import get_context
from statistics import mean, stdev

import numpy as np
import torch
from dlrm_step import kinds
from measuring import cores, write_result
from scipy.stats import t as student
from textbook_dlrm import TextbookDlrm, textbook_optimiser, textbook_step

from labkit.data.auc import auc
from labkit.data.clicks import load_clicks
from labkit.models.dlrm import DlrmConfig
from labkit.training.clicks_job import ClicksJob
from labkit.training.config import TrainConfig
from labkit.training.presets import get_preset
from labkit.training.step import TrainStep

CPU = torch.device("cpu")
SEEDS, SAMPLES, BATCH = range(12), 160_000, 512
EVERY, NEAR_EVERY, NEAR = 20_480, 5 * BATCH, 0.01
"""Samples between two scorings, and between two that are this close to the target."""
TARGET = {"sgd": 0.71, "adagrad": 0.73, "rowwise-adagrad": 0.73, "adam": 0.74}
RATES = {"sgd": 1.0, "adagrad": 0.02, "rowwise-adagrad": 0.02, "adam": get_preset("dlrm", "tour").train["lr"]}
AUC_MARGIN, SAMPLES_MARGIN = 0.001, 0.05
"""The second is a share of the samples that the textbook takes."""


def curve(job: ClicksJob, target: float, step, predict) -> list[tuple[int, float]]:
    """(samples, validation AUC) at each scoring, the last at the end."""
    label = np.asarray(job.log.split("validation").label)
    points, samples, reached = [(0, 0.5)], 0, False
    for batch, count in job.batches(0, 0):
        step(batch)
        samples += count
        near = not reached and points[-1][1] > target - NEAR
        if samples - points[-1][0] >= (NEAR_EVERY if near else EVERY) or samples >= SAMPLES:
            points.append((samples, auc(label, predict())))
            reached = reached or points[-1][1] >= target
        if samples >= SAMPLES:
            break
    return points


def both(task: tuple[int, str]) -> dict[str, list[tuple[int, float]]]:
    """The curves of one (seed, optimiser) on both paths."""
    seed, optimiser = task
    torch.set_num_threads(1)
    log = load_clicks("synthetic")
    config = DlrmConfig(dense_dim=len(log.dense_names), num_rows=log.table_rows, **get_preset("dlrm", "tour").model)
    torch.manual_seed(seed)
    job = ClicksJob(log, config, batch_size=BATCH, seed=seed, device=CPU)
    train = TrainConfig(batch_size=BATCH, optimiser=optimiser, lr=RATES[optimiser])
    kind = kinds()[-1]
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
        "textbook": curve(job, TARGET[optimiser], plain_step, plain_logits),
        str(kind): curve(job, TARGET[optimiser], lambda batch: fast_step(batch, 0), fast_logits),
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--optimisers", nargs="+", default=["sgd", "adam"], choices=tuple(RATES))
    args = parser.parse_args()
    load_clicks("synthetic")  # prepared once, before all ask for it
    tasks = [(seed, optimiser) for optimiser in args.optimisers for seed in SEEDS]
    with ProcessPoolExecutor(len(cores()), mp_context=get_context("spawn")) as pool:
        found = dict(zip(tasks, pool.map(both, tasks), strict=True))
    answers = {}
    for optimiser in args.optimisers:
        curves = [found[seed, optimiser] for seed in SEEDS]
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
            "samples": equivalence([a / b - 1 for a, b in reached], SAMPLES_MARGIN),
        }
        for what, unit in (("auc", "AUC"), ("samples", "share of the samples to target")):
            answer = answers[optimiser][what]
            print(
                f"{optimiser}, {fast} against textbook: {unit} differs by {answer['mean']:.3g} "
                f"({answer['low']:.3g} to {answer['high']:.3g}): {'the same' if answer['same'] else 'NOT the same'} "
                f"within ±{answer['margin']:g}"
            )
    write_result("same_accuracy", optimisers=answers)
    return 0 if all(each[what]["same"] for each in answers.values() for what in ("auc", "samples")) else 1


if __name__ == "__main__":
    sys.exit(main())

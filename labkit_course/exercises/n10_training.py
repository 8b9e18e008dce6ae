"""What students write in the second half of 10_train_dlrm, training."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from scipy.special import stdtrit
from torch import Tensor, nn

from labkit_course.apparatus import WatchedRun
from labkit_course.exercises.n10_model import SMALL, MyDlrm
from labkit_course.written import Case, WrittenExercise

# --- AUC


def auc(label, score):
    positive, negative = score[label == 1], np.sort(score[label == 0])
    below = np.searchsorted(negative, positive, side="left")
    not_above = np.searchsorted(negative, positive, side="right")
    return float((below + not_above).mean() / 2 / len(negative))


def _scores(count: int, levels: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    label = (rng.random(count) < 0.3).astype(float)
    return label, np.floor((rng.random(count) + 0.3 * label) * levels)


AUC = WrittenExercise(
    auc,
    module="dlrm",
    cases=(
        Case("four rows", lambda code: code(np.array([0, 1, 1, 0]), np.array([0.1, 0.9, 0.4, 0.2]))),
        Case("1,000 rows without ties", lambda code: code(*_scores(1000, 10**9))),
        Case("scores that are all the same", lambda code: code(np.array([0, 1, 1, 0]), np.ones(4))),
        Case("1,000 rows of five scores, many of them tied", lambda code: code(*_scores(1000, 5))),
        Case("2 million rows", lambda code: code(*_scores(2_000_000, 1000))),  # no memory holds all of their pairs
    ),
    mistakes={
        ("(below + not_above).mean() / 2", "below.mean()"): (
            "A tie counts as half a pair in the right order, and you count it as none."
        ),
        ("(below + not_above).mean() / 2", "not_above.mean()"): (
            "A tie counts as half a pair in the right order, and you count it as a whole one."
        ),
        lambda label, score: 1 - auc(label, score): "That is the share in the wrong order: 1 − AUC.",
        lambda label, score: float(((score > 0.5) == (label == 1)).mean()): "That is accuracy, at one threshold.",
    },
    hint="The share of (positive, negative) pairs in which the positive has the higher score; a tie counts a half. "
    "Sort the negatives and use np.searchsorted: all pairs of 2 million rows would be nearly 10¹².",
    explanation="Pairs in the right order, ties by half: the same as labkit's, and as scikit-learn's.",
)

# --- the loop


def train(run, model, optimizers, batches, score, epochs=10):
    for _ in run.epochs(epochs):
        for dense, categorical, label in run.batches(batches):
            loss = F.binary_cross_entropy_with_logits(model(dense, categorical), label)
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
            run.step(loss, samples=len(label))
            if run.due:
                run.evaluate(auc=score())


def _data(rows: int = 96) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Batches of 16 whose label follows from the first dense feature."""
    generator = torch.Generator().manual_seed(1)
    dense = torch.randn(rows, SMALL.dense_dim, generator=generator)
    categorical = (
        torch.rand(rows, SMALL.num_tables, 1, generator=generator) * torch.tensor(SMALL.num_rows)[:, None]
    ).int()
    label = (dense[:, 0] > 0).float()
    return list(zip(dense.split(16), categorical.split(16), label.split(16), strict=True))


def _trained(code: Any, epochs: int, most_steps: float = math.inf) -> dict[str, Any]:
    """What a loop does on a small log."""

    def once() -> tuple[WatchedRun, nn.Module, int]:
        torch.manual_seed(0)
        run, model, batches = WatchedRun(most_steps=most_steps), MyDlrm(SMALL), _data()
        *train_batches, (dense, categorical, _) = batches
        seen = []
        model.register_forward_hook(lambda *_: seen.append(torch.is_grad_enabled() and model.training))

        def score() -> float:
            with torch.no_grad():
                return float(model(dense, categorical).mean())

        parts = model.top.parameters(), [*model.bottom.parameters(), *model.tables.parameters()]
        code(run, model, [torch.optim.Adam(part, lr=0.01) for part in parts], train_batches, score, epochs=epochs)
        return run, model, sum(seen)

    run, _, passes = once()
    again, _, _ = once()
    return {
        "epochs that the run is asked for": run.epochs_asked,
        "samples": sum(run.samples),
        "forward passes with a gradient": passes,
        "evaluations": len(run.evaluated),
        "losses": run.losses,
        "scores": run.evaluated,
        "the same seed repeats": run.losses == again.losses,
    }


LOOP = WrittenExercise(
    train,
    module="dlrm",
    cases=(
        Case("two epochs of five batches", lambda code: _trained(code, 2)),
        Case("one epoch", lambda code: _trained(code, 1)),
        Case("a run that is over after 4 steps", lambda code: _trained(code, 2, most_steps=4)),
    ),
    mistakes={
        ("optimizer.zero_grad()", "pass"): "Gradients add up from step to step: clear them after each (zero_grad).",
        ("optimizer.step()", "optimizer.zero_grad(), optimizer.step()"): (
            "No weight changes: backward comes first, then the step, which uses the gradients, then clear them."
        ),
        ("in optimizers:", "in optimizers[:1]:"): "Step all optimisers, not the first alone.",
        ("samples=len(label)", "samples=1"): "Tell run.step how many samples the batch had: samples=len(label).",
        ("run.step(loss, samples=len(label))", "pass"): (
            "Tell the run of each step: run.step(loss, samples=len(label))."
        ),
        ("if run.due", "if True"): "Evaluate where run.due says so, not after each step: evaluations take time, too.",
        ("run.epochs(epochs)", "run.epochs(10)"): "Ask for as many epochs as the caller wants: run.epochs(epochs).",
        ("run.epochs(epochs)", "range(epochs)"): "Only the run knows which epochs are left: run.epochs(epochs).",
        ("run.batches(batches)", "batches"): "The batches do not know when the run is over: run.batches(batches).",
    },
    hint="loss, backward, a step of each optimiser and clear its gradients, run.step, and run.evaluate where run.due.",
    explanation="The loss falls, the same seed repeats it, and what is scored is never trained on.",
)

# --- several seeds


def interval(values):
    half = stdtrit(len(values) - 1, 0.975) * np.std(values, ddof=1) / len(values) ** 0.5
    return float(np.mean(values) - half), float(np.mean(values) + half)


SEEDS = WrittenExercise(
    interval,
    module="dlrm",
    cases=(
        Case("five numbers", lambda code: code([9.1, 10.4, 9.7, 11.0, 10.1])),
        Case("two numbers", lambda code: code([1.0, 2.0])),
        Case("twenty numbers", lambda code: code([10 + (7 * i % 13) / 3 for i in range(20)])),
    ),
    mistakes={
        ("stdtrit(len(values) - 1, 0.975)", "1.96"): (
            "1.96 is for many values; of n values take the t distribution with n − 1 degrees of freedom."
        ),
        ("stdtrit(len(values) - 1, 0.975) * np.std(values, ddof=1) / len(values) ** 0.5", "np.std(values, ddof=1)"): (
            "That is how far single runs lie apart; the mean of n of them is known √n times better."
        ),
        lambda values: (min(values), max(values)): "The range grows with the number of runs: no interval.",
    },
    hint="mean ± t · s / √n, with s the sample's standard deviation (ddof=1), t = scipy.special.stdtrit(n − 1, 0.975).",
    explanation="Five seeds bound the mean to within about 1.24 standard deviations, two to within nine.",
)

EXERCISES = {
    "10.auc": AUC,
    "10.loop": LOOP,
    "10.interval": SEEDS,
}

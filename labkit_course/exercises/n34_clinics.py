"""What students mend in 34_clinics: the mended code, what both are asked, and the usual mistakes.

Shapes: n rows, B rows a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from labkit.models import DlrmConfig
from labkit_course.apparatus import FakeClock
from labkit_course.exercises.n10_training import auc
from labkit_course.explanation import Explanation
from labkit_course.written import Case, WrittenExercise

# --- an AUC of one half


def batches(
    features: Tensor, label: Tensor, batch_size: int, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    order = torch.randperm(len(label), generator=generator)
    for rows in order.split(batch_size):
        yield features[rows], label[rows]


def _apart(features: Tensor, label: Tensor, batch_size: int, generator: torch.Generator) -> Iterator:
    features = features[torch.randperm(len(label), generator=generator)]
    label = label[torch.randperm(len(label), generator=generator)]
    yield from zip(features.split(batch_size), label.split(batch_size), strict=True)


def _of_an_epoch(code: Any, rows: int, batch_size: int) -> dict[str, Any]:
    """What holds of two epochs of `rows` rows, in each of which feature and label are the row's number."""
    number = torch.arange(rows, dtype=torch.float32)
    generator = torch.Generator().manual_seed(5)
    first, second = ([*code(number[:, None], number, batch_size, generator)] for _ in range(2))
    labels = torch.cat([label for _, label in first])
    return {
        "rows whose label is their own": sum(int((own[:, 0] == label).sum()) for own, label in first),
        "different rows": len(labels.unique()),
        "rows in a batch": [len(label) for _, label in first],
        "the order changes": not torch.equal(labels, number)
        and not torch.equal(labels, torch.cat([y for _, y in second])),
    }


def _of_one_seed(code: Any) -> dict[str, bool]:
    number = torch.arange(64.0)
    made = ([*code(number[:, None], number, 16, torch.Generator().manual_seed(5))] for _ in range(2))
    first, second = (torch.cat([label for _, label in epoch]) for epoch in made)
    return {"the order is the same": torch.equal(first, second)}


BATCHES = WrittenExercise(
    batches,
    module="clinics",
    cases=(
        Case("64 rows in batches of 16", lambda code: _of_an_epoch(code, 64, 16)),
        Case("10 rows in batches of 4", lambda code: _of_an_epoch(code, 10, 4)),
        Case("two generators of one seed", _of_one_seed),
    ),
    mistakes={
        _apart: "Features and labels are still shuffled apart: draw one order, and take both by it.",
        ("torch.randperm(len(label), generator=generator)", "torch.arange(len(label))"): (
            "The order never changes, so each epoch sees the same batches: draw a new order."
        ),
        ("randperm(len(label)", "randint(len(label), label.shape"): (
            "These rows are drawn with replacement: some come twice, some never. Cut up a permutation."
        ),
        ("order.split(batch_size)", "order.split(batch_size)[: len(label) // batch_size]"): (
            "The last rows are lost where the batch size does not divide them: give the short batch, too."
        ),
        (", generator=generator", ""): "Draw from the generator that is given: one seed has to give one order.",
    },
    hint="One `torch.randperm` of all rows; `order.split(batch_size)` gives the rows of each batch, for both tensors.",
    explanation="Each row keeps its label, comes once an epoch, and in another order each time.",
)

# --- labels without signal


def p_value(label: np.ndarray, score: np.ndarray, auc: Callable, permutations: int = 200, seed: int = 0) -> float:
    random = np.random.default_rng(seed)
    found = abs(auc(label, score) - 0.5)
    chance = [abs(auc(random.permutation(label), score) - 0.5) for _ in range(permutations)]
    return (1 + sum(one >= found for one in chance)) / (1 + permutations)


def _signal(strength: float, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    label = (random.random(120) < 0.4).astype(int)
    return label, random.random(120) + strength * label


P_VALUE = WrittenExercise(
    p_value,
    module="clinics",
    cases=(
        Case("labels that follow the score", lambda code: code(*_signal(0.5), auc)),
        Case("labels that follow it backwards", lambda code: code(*_signal(-0.15), auc)),
        Case("labels drawn at random", lambda code: code(*_signal(0.0), auc, 300, 3)),
        Case("19 permutations", lambda code: code(*_signal(1.0), auc, 19)),
    ),
    mistakes={
        ("(1 + sum(one >= found for one in chance)) / (1 + ", "sum(one >= found for one in chance) / ("): (
            "A p-value is never 0: the labels as they are count as one of the permutations, above and below."
        ),
        (
            """abs(auc(label, score) - 0.5)
    chance = [abs(auc(random.permutation(label), score) - 0.5)""",
            """auc(label, score)
    chance = [auc(random.permutation(label), score)""",
        ): "An AUC of 0.3 is signal, too: compare distances from 0.5.",
        ("return (1 +", "return 1 - (1 +"): (
            "The other way round: count the permutations that are at least as far from 0.5."
        ),
    },
    hint="The share of the 1 + permutations orders of the labels, the given one among them, whose AUC is at least as "
    "far from 0.5. Draw with np.random.default_rng(seed).permutation(label), one after the other.",
    explanation="Where the labels have nothing to do with the features, no model and no budget gets anywhere.",
)

# --- the test split as a guide


def choose(runs: pd.DataFrame) -> tuple[str, float]:
    best = runs.loc[runs["validation"].idxmax()]
    return best["run"], best["test"]


RUNS = pd.DataFrame(
    {
        "run": ["a", "b", "c", "d"],
        "validation": [0.781, 0.790, 0.786, 0.779],
        "test": [0.784, 0.783, 0.789, 0.780],
    }
)
CHOOSE = WrittenExercise(
    choose,
    module="clinics",
    cases=(
        Case("four runs", lambda code: list(code(RUNS))),
        Case("the same four in another order", lambda code: list(code(RUNS[::-1]))),
        Case("a single run", lambda code: list(code(RUNS[3:]))),
    ),
    mistakes={
        ('runs["validation"]', 'runs["test"]'): (
            "That chooses by the test split, which is then no test any more: choose by validation."
        ),
        ('best["test"]', 'best["validation"]'): (
            "The right run; but report what it has on the test split, for it was chosen by the other number."
        ),
        ('best["test"]', 'runs["test"].max()'): "The test score is that of the chosen run, not the best.",
    },
    hint="Which row has the best validation score? Give its run and its test score.",
    explanation="The choice looks at one split, the report at another: so the report is not the best of many tries.",
)

# --- the best of many seeds


def best_of(values: list[float], seeds: int) -> float:
    ordered = sorted(values)
    at_most = [(place / len(ordered)) ** seeds for place in range(len(ordered) + 1)]
    return sum(value * (at_most[place + 1] - at_most[place]) for place, value in enumerate(ordered))


BEST_OF = WrittenExercise(
    best_of,
    module="clinics",
    cases=(
        Case("[1, 2, 3], two seeds", lambda code: code([1.0, 2.0, 3.0], 2)),
        Case("[0.78, 0.79, 0.77, 0.80], ten seeds", lambda code: code([0.78, 0.79, 0.77, 0.80], 10)),
        Case("one seed", lambda code: code([5.0, 9.0, 1.0], 1)),
        Case("equal values", lambda code: code([2.0, 2.0], 7)),
    ),
    mistakes={
        lambda values, seeds: max(values): (
            "The largest of all is what very many seeds would give: how often does each value come out as the best?"
        ),
        lambda values, seeds: sum(values) / len(values): "That is the mean, which one seed gives; the best is higher.",
        ("sorted(values)", "sorted(values, reverse=True)"): "That is the worst of them.",
        lambda values, seeds: sum(sorted(values)[-seeds:]) / len(values[-seeds:]): (
            "That is the mean of the best few; the question is for the best of so many draws from all values."
        ),
    },
    hint="Of n values, the best of k draws is at most the i-th smallest with probability (i / n)^k. The difference "
    "of two such probabilities is that of one value; weigh the values with it.",
    explanation="The mean of the best grows with every seed that is tried, though nothing was learned.",
)

# --- a benchmark of its own data


def throughput(
    step: Callable[[Any], None], make_batch: Callable[[], Any], steps: int, warmup: int, clock: Callable[[], float]
) -> float:
    batches = [make_batch() for _ in range(warmup + steps)]
    for batch in batches[:warmup]:
        step(batch)
    began = clock()
    for batch in batches[warmup:]:
        step(batch)
    return steps / (clock() - began)


def _bench(steps: int, warmup: int) -> Callable[[Any], Any]:
    """Of a step of 2 s after three of 5 s, and batches that take 10 s each."""

    def ask(code: Any) -> dict[str, Any]:
        clock, seen = FakeClock(), []
        step, make_batch = clock.work(5.0, 5.0, 5.0, 2.0, does=seen.append), clock.work(10.0, does=clock)
        found = code(step, make_batch, steps, warmup, clock)
        return {"batches a second": found, "steps done": len(seen), "different batches": len(set(seen))}

    return ask


THROUGHPUT = WrittenExercise(
    throughput,
    module="clinics",
    cases=(
        Case("10 steps after 3 to warm up", _bench(10, 3)),
        Case("4 steps after 5", _bench(4, 5)),
    ),
    mistakes={
        ("step(batch)\n    return", "step(make_batch())\n    return"): (
            "The clock still runs while batches are made: make all of them before you read it."
        ),
        lambda step, make_batch, steps, warmup, clock: throughput(step, make_batch, warmup + steps, 0, clock): (
            "The first steps touch memory and choose kernels: do them before the clock is read, and do not count them."
        ),
        ("[make_batch() for _ in range(warmup + steps)]", "[make_batch()] * (warmup + steps)"): (
            "Always the same batch stays in the cache, and its rows of the tables, too: make one for each step."
        ),
        ("steps / (clock() - began)", "(clock() - began) / steps"): (
            "That is seconds a batch; batches a second are wanted."
        ),
    },
    hint="Make warmup + steps batches first, do the warm-up steps, then read the clock before and after the rest.",
    explanation="What is timed is the step, on batches that differ, as steady as it gets. Time loading by itself.",
)

# --- a model that is not what it is called


def audit(config: DlrmConfig, batch_size: int) -> dict[str, float]:
    rows, dim, vectors = sum(config.num_rows), config.embedding_dim, config.num_tables + 1
    bottom = [config.dense_dim, *config.bottom_mlp]
    top = [dim + vectors * (vectors - 1) // 2, *config.top_mlp]
    layers = [*pairwise(bottom), *pairwise(top)]
    weights = sum(wide * out + out for wide, out in layers)
    activations = batch_size * (sum(out for _, out in layers) + config.num_tables * dim)
    return {
        "table_share": rows * dim / (rows * dim + weights),
        "state_gb": 3 * 4 * (rows * dim + weights) / 1e9,
        "activations_gb": 4 * activations / 1e9,
    }


CARMA = DlrmConfig(13, (4, 3, 2), 64, (512, 256, 128, 64), (1024, 512, 256, 1))
KAGGLE = DlrmConfig(13, (1_000_000,) * 26, 16, (512, 256, 64, 16), (512, 256, 1))
AUDIT = WrittenExercise(
    audit,
    module="clinics",
    cases=(
        Case("tables of 4, 3 and 2 rows, batch 32,768", lambda code: code(CARMA, 32_768)),
        Case("26 tables of a million rows, batch 128", lambda code: code(KAGGLE, 128)),
    ),
    mistakes={
        ("3 * 4", "4"): "Adam keeps two moments of each parameter: three numbers in all.",
        ("weights) / 1e9", "weights) / 2**30"): "A GB is 1e9 bytes; you divide by 2^30, which is a GiB.",
        ("4 * activations", "activations"): "A number in single precision has 4 bytes.",
        ("rows * dim / (", "weights / ("): "That is the share of the MLPs.",
    },
    hint="Parameters are rows × embedding_dim in the tables, and width × outputs + outputs in each layer; with "
    "Adam three numbers for each; activations are the outputs of all layers and lookups, for each row of the batch.",
    explanation="Whoever calls a model a DLRM should say how large its tables are: the name tells nothing.",
)

EXERCISES = {
    "34.batches": BATCHES,
    "34.p_value": P_VALUE,
    "34.choose": CHOOSE,
    "34.best_of": BEST_OF,
    "34.why_luck": Explanation(
        rubric=(
            "Numbers: how much higher the best of the seeds is than their mean, and that it grows with their count.",
            "Why: the best is chosen by the noise that it is reported with.",
            "What to report instead: mean and interval over all seeds, or the test score of what validation chose.",
        ),
        model="The best of ten seeds lies above their mean by more than a standard deviation, and the best of fifty "
        "higher still, though all were trained alike: what is selected is noise. I would report the mean with its "
        "interval and the number of seeds, or choose by validation and report the test score of that run.",
    ),
    "34.throughput": THROUGHPUT,
    "34.audit": AUDIT,
    "34.why_name": Explanation(
        rubric=(
            "Numbers: the share of the parameters in the tables, of this model and of a real one.",
            "Why the estimate is far off: what its formula counts, and what this model has.",
            "What follows for a comparison of estimators.",
        ),
        model="Of this model's parameters hardly any are in its tables of 4, 3 and 2 rows, of a DLRM on Criteo nearly "
        "all: it is an MLP, and its memory goes to the activations of a batch of 32,768. An estimator that is wrong by "
        "a factor here is wrong about MLPs; it says nothing of how it does on embedding tables, so it has to be tried "
        "on those.",
    ),
}

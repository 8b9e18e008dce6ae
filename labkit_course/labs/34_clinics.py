# %% opening [markdown]
"""
# Clinics

After this notebook you will be able to

- **diagnose** six experiments whose numbers are false, each after a case that happened;
- **fix** each, with a test that the broken code fails;
- **distinguish** signal from chance, and a good run from a lucky one;
- **audit** a model by what it is, not by what it is called.

**Time:** 80 minutes with six functions and two explanations; its cases stand alone, and you may take two or three. The machine computes for about a minute on 2 CPU cores. No GPU is needed.

**Prerequisites:** [Train a DLRM](10_train_dlrm.ipynb), and [Profile top-down](32_profile_top_down.ipynb) for the fifth case.
"""

# %% checks
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from labkit.models import DlrmConfig
from labkit_course.apparatus import FakeClock
from labkit_course.exercise import Case, Explanation, WrittenExercise
from labkit_course.lab import from_lab

# Shapes: n rows, B rows a batch.
auc = from_lab("10", "auc")
MODULE = "clinics"
EXERCISES = {}

# %% parameters-prose [markdown]
"""
The next cell holds what you may change.
"""

# %% parameters tags=["parameters"]
profile = "standard"  # smoke, standard or full: how many seeds and steps
seed = 0

# %% patient-prose [markdown]
"""
## Six patients

Each case below runs without an error and prints a number that looks like a result. Read the code, guess what the number would be if it were right, fix it, and see. The data are the click log of [Train a DLRM](10_train_dlrm.ipynb), its dense features alone, and a model of one layer: what is broken here breaks large models in the same way.
"""

# %% patient
import numpy as np
import torch
import torch.nn.functional as F

import labkit

torch.set_num_threads(1)
log = labkit.data.clicks.load_clicks("synthetic-small")
rows, validation, test = (log.split(name) for name in ("train", "validation", "test"))
dense, clicked = torch.tensor(np.array(rows.dense)), torch.tensor(np.array(rows.label)).float()

# %% auc-prose [markdown]
"""
The AUC of every case is that of your own function from [Train a DLRM](10_train_dlrm.ipynb), if it is in `mylab`.
"""

# %% auc
from labkit_course import mine

auc = mine("10.auc")


def auc_on(model, split):
    with torch.no_grad():
        return auc(split.label, model(torch.tensor(np.array(split.dense))).squeeze(1).numpy())


# %% train-prose [markdown]
"""
The training loop is sound. It takes the function that makes batches.
"""


# %% train
def train(make_batches, label, seed=0, epochs=3, lr=1e-2):
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    model = torch.nn.Linear(dense.shape[1], 1)
    adam = torch.optim.Adam(model.parameters(), lr=lr)
    for _ in range(epochs):
        for x, y in make_batches(dense, label, 256, generator):
            adam.zero_grad()
            F.binary_cross_entropy_with_logits(model(x).squeeze(1), y).backward()
            adam.step()
    return model


# %% case1 [markdown]
"""
## Case 1: an AUC of one half

Users of a well-known library reported a model that trained on a public click log for hours, its loss falling at first, and its AUC stuck at 0.5. Many mistakes look like this; here is one.
"""


# %% case1-broken
def broken_batches(features, label, batch_size, generator):
    features = features[torch.randperm(len(features), generator=generator)]
    label = label[torch.randperm(len(label), generator=generator)]
    yield from zip(features.split(batch_size), label.split(batch_size), strict=True)


print(f"AUC {auc_on(train(broken_batches, clicked), validation):.3f}, measured")

# %% case1-guess [markdown]
"""
The best possible AUC on this log is 0.80 with all features. **What AUC does the fixed code reach with the dense ones alone?**
"""

# %% case1-guess-cell
from labkit_course import check, claim, explain, guess, model_answer, paired_times, reveal

guess("34.auc", 0.7)

# %% ex-34-batches [markdown]
"""
### Exercise 34.batches

Fix it: `batches(features, label, batch_size, generator)` gives pairs of a batch's rows and their labels. A call is one epoch and gives each row once.

Each call draws a new order from the generator. The last batch may be shorter.

*Hint:* `split` of a tensor also gives the short batch at the end.
"""

# %% answer 34.batches
from collections.abc import Iterator

import torch
from torch import Tensor


def batches(
    features: Tensor, label: Tensor, batch_size: int, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of (B, features) and (B,), each row once, in a new order each time."""
    ### BEGIN SOLUTION
    order = torch.randperm(len(label), generator=generator)
    for rows in order.split(batch_size):
        yield features[rows], label[rows]
    ### END SOLUTION


# %% check 34.batches points=5
check("34.batches", batches)


# %% checks
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


def _batches_by_place(features: Tensor, label: Tensor, batch_size: int, generator: torch.Generator) -> list:
    order = torch.randperm(features.shape[0], generator=generator)
    features, label = features[order], label[order]
    places = range(0, len(order), batch_size)
    return [(features[at : at + batch_size], label[at : at + batch_size]) for at in places]


EXERCISES["34.batches"] = WrittenExercise(
    batches,
    Case("64 rows in batches of 16", _of_an_epoch, 64, 16),
    Case("10 rows in batches of 4", _of_an_epoch, 10, 4),
    Case("two generators of one seed", _of_one_seed),
    variants=(_batches_by_place,),
    mistakes={
        _apart: "Features and labels are still shuffled apart: draw one order, and take both by it.",
        ("torch.randperm(len(label), generator=generator)", "torch.arange(len(label))"): (
            "The order never changes, so each epoch sees the same batches: draw a new order."
        ),
        (", generator=generator", ""): "Draw from the generator that is given: one seed has to give one order.",
    },
    hint="Follow one row: does its label come in the same batch and at the same place, once per epoch?",
    explanation="Each row keeps its label, comes once an epoch, and in another order each time.",
)

# %% case1-reveal
mended_auc = auc_on(train(batches, clicked), validation)
reveal("34.auc", mended_auc)

# %% case2 [markdown]
"""
## Case 2: labels without signal

A benchmark's data generator draws its labels at random, as that of a well-known DLRM repository does. For throughput that is fine. Somebody trains on them, sees an AUC of 0.51, and tunes for a week. How far from 0.5 does chance get by itself?

A permutation test answers that. It shuffles the labels many times, and what the score reaches on shuffled labels is chance.
"""

# %% case2-data
coin = torch.rand(len(clicked), generator=torch.Generator().manual_seed(seed)) < 0.5
few = slice(0, 2000)
score = dense[few, 0].numpy()
print(f"AUC of the first feature: {auc(clicked[few].numpy(), score):.3f} for the clicks,", end=" ")
print(f"{auc(coin[few].numpy(), score):.3f} for coins")

# %% ex-34-p-value [markdown]
"""
### Exercise 34.p_value

Write `p_value(label, score, auc, permutations, seed)` for arrays of n rows, where `auc(label, score)` is a function.

1. Compute the distance of the AUC from 0.5 for the labels as they are, then for each permutation. Draw the permutations one after the other from *one* generator, by `permutation(label)` of `np.random.default_rng(seed)`.
2. Return the share of these 1 + `permutations` orders, the given one among them, whose distance is at least that of the given one.

*Hint:* with 199 permutations the least p-value is 1/200, not 0.
"""

# %% answer 34.p_value
from collections.abc import Callable

import numpy as np


def p_value(label: np.ndarray, score: np.ndarray, auc: Callable, permutations: int = 200, seed: int = 0) -> float:
    """Share of the orders of the labels, the given one among them, with an AUC as far from 0.5 as the given one's."""
    ### BEGIN SOLUTION
    random = np.random.default_rng(seed)
    found = abs(auc(label, score) - 0.5)
    chance = [abs(auc(random.permutation(label), score) - 0.5) for _ in range(permutations)]
    return (1 + sum(one >= found for one in chance)) / (1 + permutations)
    ### END SOLUTION


# %% check 34.p_value points=5
check("34.p_value", p_value)


# %% checks
def _signal(strength: float, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    label = (random.random(120) < 0.4).astype(int)
    return label, random.random(120) + strength * label


def _p_value_by_loop(label, score, auc, permutations=200, seed=0):
    rng, as_far, given = np.random.default_rng(seed), 1, abs(0.5 - auc(label, score))
    for _ in range(permutations):
        if abs(0.5 - auc(rng.permutation(label), score)) >= given:
            as_far += 1
    return as_far / (permutations + 1)


EXERCISES["34.p_value"] = WrittenExercise(
    p_value,
    Case("labels that follow the score", lambda code: code(*_signal(0.5), auc)),
    Case("labels that follow it backwards", lambda code: code(*_signal(-0.15), auc)),
    Case("labels drawn at random", lambda code: code(*_signal(0.0), auc, 300, 3)),
    Case("19 permutations", lambda code: code(*_signal(1.0), auc, 19)),
    variants=(_p_value_by_loop,),
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
    hint="Which orders of the labels do you count, and which of them are as extreme as the given one? Draw them one after "
    "the other from one generator of this seed.",
    explanation="Where the labels have nothing to do with the features, no model and no budget gets anywhere.",
)

# %% case2-guess [markdown]
"""
**What p-value do the coins get?** It is a number from 0 to 1.
"""

# %% case2-guess-cell
guess("34.p", 0.5)

# %% case2-reveal
permutations = 99 if profile == "smoke" else 999
p_clicks = p_value(clicked[few].numpy(), score, auc, permutations, seed)
p_coins = p_value(coin[few].numpy(), score, auc, permutations, seed)
print(f"clicks: p = {p_clicks:.3f}, measured with {permutations} permutations")
reveal("34.p", p_coins)

# %% case3 [markdown]
"""
## Case 3: the test split as a guide

Someone tries twenty learning rates, and the report says: "our best run has a test AUC of ...". On small splits the luckiest run wins, not the best.
"""

# %% case3-broken
import pandas as pd

rates = np.logspace(-4, -0.5, 6 if profile == "smoke" else 20)
models = [train(batches, clicked, epochs=1, lr=float(rate)) for rate in rates]
runs = pd.DataFrame({"run": [f"lr {rate:.2g}" for rate in rates]})
for name, split in {"validation": validation, "test": test}.items():
    runs[name] = [auc_on(model, split) for model in models]
print(f"test AUC of the run with the best test AUC: {runs['test'].max():.4f}, measured")

# %% ex-34-choose [markdown]
"""
### Exercise 34.choose

Write `choose(runs)`: which run is reported, and with which test score.

1. Choose without looking at the test split.
2. Report what the chosen run has there.

*Hint:* `idxmax` gives the label of the row with the largest value.
"""

# %% answer 34.choose
import pandas as pd


def choose(runs: pd.DataFrame) -> tuple[str, float]:
    """The run to report, and its test score, of a frame with the columns run, validation and test."""
    ### BEGIN SOLUTION
    best = runs.loc[runs["validation"].idxmax()]
    return best["run"], best["test"]
    ### END SOLUTION


# %% check 34.choose points=3
check("34.choose", choose)

# %% checks
RUNS = pd.DataFrame(
    {
        "run": ["a", "b", "c", "d"],
        "validation": [0.781, 0.790, 0.786, 0.779],
        "test": [0.784, 0.783, 0.789, 0.780],
    }
)


def _choose_by_sorting(runs: pd.DataFrame) -> tuple[str, float]:
    name, _, score = runs.sort_values("validation").iloc[-1][["run", "validation", "test"]]
    return str(name), float(score)


EXERCISES["34.choose"] = WrittenExercise(
    choose,
    Case("four runs", lambda code: list(code(RUNS))),
    Case("the same four in another order", lambda code: list(code(RUNS[::-1]))),
    Case("a single run", lambda code: list(code(RUNS[3:]))),
    variants=(_choose_by_sorting,),
    mistakes={
        ('runs["validation"]', 'runs["test"]'): (
            "That chooses by the test split, which is then no test any more: choose by validation."
        ),
        ('best["test"]', 'best["validation"]'): (
            "The right run; but report what it has on the test split, for it was chosen by the other number."
        ),
        ('best["test"]', 'runs["test"].max()'): "The test score is that of the chosen run, not the best.",
    },
    hint="Which split may the choice look at, and which split does the report come from?",
    explanation="The choice looks at one split, the report at another: so the report is not the best of many tries.",
)

# %% case3-reveal
chosen, honest = choose(runs)
print(f"{chosen}: test AUC {honest:.4f}; the best test AUC is {runs['test'].max() - honest:.4f} higher, measured")

# %% case4 [markdown]
"""
## Case 4: the best of many seeds

A record table has one number per team, the best of its runs. Train the same model with several seeds, and see what the number of seeds is worth.
"""

# %% case4-seeds
count = 6 if profile == "smoke" else 20
values = [auc_on(train(batches, clicked, seed=each, epochs=1, lr=0.1), validation) for each in range(count)]
print(f"mean {np.mean(values):.4f}, standard deviation {np.std(values, ddof=1):.4f}, of {count} seeds, measured")

# %% case4-guess [markdown]
"""
**How many standard deviations is the best of ten seeds above their mean, on average?**
"""

# %% case4-guess-cell
guess("34.best", 1.0, "standard deviations")

# %% ex-34-best-of [markdown]
"""
### Exercise 34.best_of

Write `best_of(values, seeds)`: on average, how good is the best of `seeds` runs, if each is one of these n values, all equally likely? No sampling is needed.

The best of $k$ draws is at most the $i$-th smallest value if all $k$ draws are. With which probability is that so, and with which is the best *exactly* the $i$-th smallest? Values may be equal.

*Hint:* with one seed it is the mean, and with very many the largest value.
"""


# %% answer 34.best_of
def best_of(values: list[float], seeds: int) -> float:
    """Mean of the best of `seeds` draws, with replacement, from the values."""
    ### BEGIN SOLUTION
    ordered = sorted(values)
    at_most = [(place / len(ordered)) ** seeds for place in range(len(ordered) + 1)]
    return sum(value * (at_most[place + 1] - at_most[place]) for place, value in enumerate(ordered))
    ### END SOLUTION


# %% check 34.best_of points=5
check("34.best_of", best_of)


# %% checks
def _best_of_by_weights(values: list[float], seeds: int) -> float:
    count = len(values)
    edges = (np.arange(count + 1) / count) ** seeds
    return float(np.sort(np.asarray(values)) @ np.diff(edges))


EXERCISES["34.best_of"] = WrittenExercise(
    best_of,
    Case("[1, 2, 3], two seeds", lambda code: code([1.0, 2.0, 3.0], 2)),
    Case("[0.78, 0.79, 0.77, 0.80], ten seeds", lambda code: code([0.78, 0.79, 0.77, 0.80], 10)),
    Case("one seed", lambda code: code([5.0, 9.0, 1.0], 1)),
    Case("equal values", lambda code: code([2.0, 2.0], 7)),
    variants=(_best_of_by_weights,),
    mistakes={
        lambda values, seeds: max(values): (
            "The largest of all is what very many seeds would give: how often does each value come out as the best?"
        ),
        lambda values, seeds: sum(values) / len(values): "That is the mean, which one seed gives; the best is higher.",
        ("sorted(values)", "sorted(values, reverse=True)"): "That is the worst of them.",
    },
    hint="Take two values and two seeds: which four pairs can be drawn, and what is the best of each?",
    explanation="The mean of the best grows with every seed that is tried, though nothing was learned.",
)

# %% case4-reveal
above = (best_of(values, 10) - np.mean(values)) / np.std(values, ddof=1)
reveal("34.best", above)

# %% ex-34-why-luck [markdown]
"""
**In two sentences:** what does the best of many seeds say, and what would you report instead?
"""

# %% explain 34.why_luck points=2
### BEGIN SOLUTION
answer = model_answer("34.why_luck")
### END SOLUTION
explain("34.why_luck", answer)

# %% checks
EXERCISES["34.why_luck"] = Explanation(
    "Numbers: how much higher the best of the seeds is than their mean, and that it grows with their count.",
    "Why: the best is chosen by the noise that it is reported with.",
    "What to report instead: mean and interval over all seeds, or the test score of what validation chose.",
    model="The best of 10 of my 20 seeds lies 1.15 standard deviations above their mean on average, the best of 1 lies 0 "
    "above it, and the best of 50 would lie higher still, though all were trained alike: what is selected is noise. I would "
    "report the mean with its interval and the number of seeds, 20, or choose by validation and report the test score of "
    "that run.",
    half="The best of ten seeds is 1.15 standard deviations above the mean just because it is the luckiest of ten.",
)

# %% case5 [markdown]
"""
## Case 5: a benchmark of its own data

A report says: "our model trains at ... samples per second". Its script makes random batches in the loop that it times.
"""

# %% case5-broken
from time import perf_counter


def make_batch(size=512):
    return torch.tensor([[np.random.normal() for _ in range(13)] for _ in range(size)]).float()


model = torch.nn.Sequential(torch.nn.Linear(13, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))

# %% case5-broken-prose [markdown]
"""
The cell measures the number that the script reports, in three rounds of twenty steps.
"""


# %% case5-measure
def step(batch):
    model.zero_grad()
    model(batch).square().mean().backward()


def as_it_was():
    for _ in range(20):
        step(make_batch())


reported = 20 / paired_times({"as it was": as_it_was}, 1 if profile == "smoke" else 3).median().iloc[0]
print(f"{reported * 512:,.0f} samples/s, measured")

# %% case5-guess [markdown]
"""
**How many times as many samples per second is it if making the data does not count?**
"""

# %% case5-guess-cell
guess("34.times", 3.0, "times")

# %% ex-34-throughput [markdown]
"""
### Exercise 34.throughput

Write `throughput(step, make_batch, steps, warmup, clock)`: batches per second, where `clock()` gives seconds.

Make warmup + steps different batches. Do the first `warmup` steps before you read the clock, and time the rest. Making the batches does not count.

*Hint:* on a GPU you would wait for the device (`torch.cuda.synchronize()`) before each look at the clock.
"""

# %% answer 34.throughput
from collections.abc import Callable
from typing import Any


def throughput(
    step: Callable[[Any], None], make_batch: Callable[[], Any], steps: int, warmup: int, clock: Callable[[], float]
) -> float:
    """Batches a second of a step, without making them and after some steps to warm up."""
    ### BEGIN SOLUTION
    batches = [make_batch() for _ in range(warmup + steps)]
    for batch in batches[:warmup]:
        step(batch)
    began = clock()
    for batch in batches[warmup:]:
        step(batch)
    return steps / (clock() - began)
    ### END SOLUTION


# %% check 34.throughput points=5
check("34.throughput", throughput)


# %% checks
def _bench(code: Any, steps: int, warmup: int) -> dict[str, Any]:
    """Of a step of 2 s after three of 5 s, and batches that take 10 s each."""
    clock, seen = FakeClock(), []
    step, make_batch = clock.work(5.0, 5.0, 5.0, 2.0, does=seen.append), clock.work(10.0, does=clock)
    found = code(step, make_batch, steps, warmup, clock)
    return {"batches a second": found, "steps done": len(seen), "different batches": len(set(seen))}


def _throughput_by_iterator(step: Callable, make_batch: Callable, steps: int, warmup: int, clock: Callable) -> float:
    made = iter([make_batch() for _ in range(steps + warmup)])
    for _ in range(warmup):
        step(next(made))
    start = clock()
    [step(batch) for batch in made]
    end = clock()
    return steps / (end - start)


EXERCISES["34.throughput"] = WrittenExercise(
    throughput,
    Case("10 steps after 3 to warm up", _bench, 10, 3),
    Case("4 steps after 5", _bench, 4, 5),
    variants=(_throughput_by_iterator,),
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
    },
    hint="What happens between your two looks at the clock, and what should not?",
    explanation="What is timed is the step, on batches that differ, as steady as it gets. Time loading by itself.",
)

# %% case5-reveal
times = throughput(step, make_batch, 20, 5, perf_counter) / reported
reveal("34.times", times)

# %% case6 [markdown]
"""
## Case 6: a model that is not what it is called

A paper on memory-aware scheduling (CARMA, arXiv 2508.19073) shows how far a rival's formula is off: for its "DLRM" Horus' formula predicts 111.8 GiB, and 1.47 GB are used. The repository has the model: a bottom MLP of 512-256-128-64, a top MLP of 1024-512-256-1, embedding_dim 64, a batch of 32,768, random data, and three tables of 4, 3 and 2 rows.
"""

# %% case6-model
carma = labkit.models.DlrmConfig(13, (4, 3, 2), 64, (512, 256, 128, 64), (1024, 512, 256, 1))
kaggle = labkit.models.DlrmConfig(13, (1_000_000,) * 26, 16, (512, 256, 64, 16), (512, 256, 1))

# %% case6-guess [markdown]
"""
**What share of this model's parameters is in its tables, in per cent?** (On paper: rows × embedding_dim, over all.)
"""

# %% case6-guess-cell
guess("34.share", 50.0, "%")

# %% ex-34-audit [markdown]
"""
### Exercise 34.audit

Write `audit(config, batch_size)`, a dict with `table_share`, `state_gb` and `activations_gb`, in single precision (4 bytes a number, GB of 1e9 bytes).

1. Parameters: rows × embedding_dim in the tables; width × outputs + outputs in each layer. The top MLP reads embedding_dim and the pairs of tables + 1 vectors. With Adam each parameter has three numbers.
2. Activations: the outputs of all layers and of all lookups, for each row of the batch.

*Hint:* `config` has `num_rows` (a tuple), `num_tables`, `embedding_dim`, `dense_dim`, `bottom_mlp` and `top_mlp`.
"""

# %% answer 34.audit
from itertools import pairwise

import labkit


def audit(config: labkit.models.DlrmConfig, batch_size: int) -> dict[str, float]:
    """What a DLRM consists of: the tables' share of its parameters, GB with Adam, GB of a batch's activations."""
    ### BEGIN SOLUTION
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
    ### END SOLUTION


# %% check 34.audit points=5
check("34.audit", audit)

# %% checks
CARMA = DlrmConfig(13, (4, 3, 2), 64, (512, 256, 128, 64), (1024, 512, 256, 1))
KAGGLE = DlrmConfig(13, (1_000_000,) * 26, 16, (512, 256, 64, 16), (512, 256, 1))


def _audit_by_loops(config: DlrmConfig, batch_size: int) -> dict[str, float]:
    in_tables, weights, width = config.embedding_dim * sum(config.num_rows), 0, config.dense_dim
    outputs = config.num_tables * config.embedding_dim
    for each in config.bottom_mlp:
        weights, outputs, width = weights + (width + 1) * each, outputs + each, each
    vectors = config.num_tables + 1
    width = config.embedding_dim + vectors * config.num_tables // 2
    for each in config.top_mlp:
        weights, outputs, width = weights + (width + 1) * each, outputs + each, each
    numbers = in_tables + weights
    gb = {"state_gb": 12 * numbers / 1e9, "activations_gb": 4e-9 * batch_size * outputs}
    return {"table_share": in_tables / numbers} | gb


EXERCISES["34.audit"] = WrittenExercise(
    audit,
    Case("tables of 4, 3 and 2 rows, batch 32,768", lambda code: code(CARMA, 32_768)),
    Case("26 tables of a million rows, batch 128", lambda code: code(KAGGLE, 128)),
    variants=(_audit_by_loops,),
    mistakes={
        ("3 * 4", "4"): "Adam keeps two moments of each parameter: three numbers in all.",
        ("weights) / 1e9", "weights) / 2**30"): "A GB is 1e9 bytes; you divide by 2^30, which is a GiB.",
        ("4 * activations", "activations"): "A number in single precision has 4 bytes.",
    },
    hint="Which of the three numbers is off? List the layers with their inputs and outputs, and count one of them by hand.",
    explanation="To call a model a DLRM, say how large its tables are: the name says nothing.",
)

# %% case6-reveal-prose [markdown]
"""
The table compares it with the shape of a DLRM on the Kaggle log, with a million rows per table.
"""

# %% case6-reveal
audits = {"CARMA's model, batch 32,768": audit(carma, 32_768), "a DLRM, batch 128": audit(kaggle, 128)}
labkit.plots.show(pd.DataFrame(audits).T)
reveal("34.share", 100 * audits["CARMA's model, batch 32,768"]["table_share"])

# %% ex-34-why-name [markdown]
"""
**In two sentences:** what does the factor of about 80 between formula and measurement (111.8 GiB and 1.47 GB) say about estimating a DLRM's memory?
"""

# %% explain 34.why_name points=2
### BEGIN SOLUTION
answer = model_answer("34.why_name")
### END SOLUTION
explain("34.why_name", answer)

# %% checks
EXERCISES["34.why_name"] = Explanation(
    "Numbers: the share of the parameters in the tables, of this model and of a real one.",
    "Why the estimate is far off: what its formula counts, and what this model has.",
    "What follows for a comparison of estimators.",
    model="Of this model's parameters 0.06 % are in its tables of 4, 3 and 2 rows, of the DLRM with a million rows per table "
    "99.9 %: it is an MLP, and its memory goes to the activations of a batch of 32,768 (most of the 0.40 GB by arithmetic). An estimator that is wrong by "
    "a factor here is wrong about MLPs; it says nothing of how it does on embedding tables, so it has to be tried "
    "on those.",
    half="Only 0.06 % of its parameters are in tables, where a DLRM has nearly all of them there, so it is an MLP and the "
    "name misleads.",
)

# %% ex-claim-C12 [markdown]
"""
## Judge

The repository's numbers are 111.8 GiB by the formula and 1.47 GB used. Does your arithmetic agree that the formula is far off?

Set the threshold first. The formula is far off (`"holds here"`) if it is more than **ten times** your sum of parameters, Adam's moments and activations: what the sum leaves out (buffers of the libraries, the allocator's rounding, the GPU's context of some hundred MB) is less than that. It is not (`"does not hold here"`) if it is less than twice the sum. Between the two, it cannot be tested by arithmetic.
"""

# %% claim-numbers
needed = audits["CARMA's model, batch 32,768"]
gigabytes = needed["state_gb"] + needed["activations_gb"]

# %% claim-prose [markdown]
"""
Write your verdict, and one reason.
"""

# %% claim C12 points=1
### BEGIN SOLUTION
times_off = 111.8 * 2**30 / 1e9 / gigabytes
verdict = "holds here" if times_off > 10 else "does not hold here" if times_off < 2 else "cannot be tested here"
answer = verdict, "the formula is far off here, but the model is an MLP: its tables have nine rows"
### END SOLUTION
claim("C12", f"{gigabytes:.2f} GB by arithmetic, against 111.8 GiB by the formula", answer, how="predicted")

# %% scores-prose [markdown]
"""
How good were your guesses? The cell after the scores keeps the numbers of this notebook for a program to read, each with bounds that hold on any machine.
"""

# %% scores
from labkit_course import score_notebook

score_notebook()

# %% results tags=["results"]
from labkit_course import results

results(
    mended_auc=(mended_auc, 0.57, 0.7),
    p_clicks=(p_clicks, 0, 0.2),
    best_minus_honest=(runs["test"].max() - honest, 0, 0.1),
    best_of_ten=(above, 0.3, 3),
    times_without_data=(times, 1, 300),
)

# %% assistant best_of_ten above=0.5 [markdown]
"""
Reporting the best of ten seeds flatters: on average it lies more than half a standard deviation above the mean of all seeds.
"""

# %% recap [markdown]
"""
## Recap

- A number that looks like a result needs one that looks like chance next to it.
- One order for rows and labels; one split to choose, another to report.
- The best of many grows with the many: report mean, interval and count.
- Time what you name: the step, or the loading, or both, and say which.
- A model is its shapes, not its name.

**Next:** [Memory](35_memory.ipynb)
"""

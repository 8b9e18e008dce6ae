# %% opening [markdown]
"""
# Where embeddings live

After this notebook you will be able to

- **say** which memory of which machine holds a model's embedding tables, and **compute** it;
- **write** a cache of rows, and **predict** its hit rate from how skewed the lookups are;
- **train** rows that live elsewhere, with the same result;
- **predict** and **measure** what a step costs with tables behind a cache, on a disk, and in another process;
- **choose** between stale rows, fewer rows and slower rows, by what each costs in AUC.

**Time:** 90 minutes with five exercises of code. The machine computes for about two minutes on 2 CPU cores. No GPU is needed.

**Prerequisites:** [Train a DLRM](10_train_dlrm.ipynb) and [What makes a DLRM slow](11_what_makes_dlrm_slow.ipynb).
"""

# %% checks
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from labkit_course.exercise import Case, Explanation, WrittenExercise

# Shapes: B batch, L pooling factor, R rows of a table, U distinct rows of a batch, D embedding dim.

EXERCISES = {}

# %% may-change [markdown]
"""
The next cell holds what you may change.
"""

# %% parameters tags=["parameters"]
profile = "standard"  # smoke, standard or full: the size of tables, and how many turns and seeds
runs_dir = "runs"  # the table file of the disk is made here, and goes with the notebook's kernel
seed = 0  # of the rows that are drawn, and the first of the trainings

# %% question [markdown]
"""
## The question

A recommendation model has a row for each user, each product, each page. Acun et al. (HPCA 2021, arXiv 2011.05497) write of "large embedding tables that do not fit into limited GPU memory"; only their abstract could be read for this notebook. So tables live elsewhere, and rows travel: each step needs some thousands of them, changes them, and brings them back.

On your machine the tiers are the cores' own memory of a batch, main memory, a disk, and another process behind a socket. The *mechanism* is that of a GPU server; the ratios are yours. One thread computes, so that one core is left for what moves rows.
"""

# %% imports
import torch

import labkit
from labkit_course import check, claim, explain, guess, model_answer, reveal

torch.set_num_threads(1)
labkit.hardware.keep_memory()

# %% capacity-text [markdown]
"""
## Which memory holds which tables

The catalogue has the memory of each tier, and the kit the rows of the data that four presets are made for. **How many of the catalogue's GPUs hold the tables of `mlperf-v1` on one device, trained with Adam?** They are 188 million rows of 128 numbers; Adam keeps two more for each.
"""

# %% guess-gpus
guess("12.gpus_with_adam", 2, "GPUs")

# %% capacity-run-text [markdown]
"""
Everything in this table is predicted: bytes are counted, and nothing else than tables needs memory.
"""

# %% capacity-run
fits = labkit.perfmodel.presets_and_tiers(("sgd", "rowwise-adagrad", "adam"))
gpus = fits[fits["kind"] == "gpu"].groupby(["preset", "optimiser"], sort=False)
by_preset = gpus.agg(needed_gb=("needed_gb", "first"), gpus=("holds", "size"), that_hold_them=("holds", "sum"))
reveal("12.gpus_with_adam", by_preset.loc[("mlperf-v1", "adam"), "that_hold_them"])

# %% by-preset-text [markdown]
"""
Row-wise Adagrad, which production models use for their tables, keeps one number a row.
"""

# %% by-preset
labkit.plots.show(by_preset.rename_axis(columns="predicted"))

# %% servers-text [markdown]
"""
A server has more than one device. Big Basin had eight GPUs; Zion, its successor, has CPUs whose memory its accelerators reach. Where no page that was read gives the size of a memory, the catalogue has none, and the table a dash.
"""

# %% servers
servers = fits[(fits["kind"] == "server") & (fits["preset"] == "mlperf-v1")]
columns = ["tier", "memory", "capacity_gb", "optimiser", "needed_gb", "holds"]
labkit.plots.show(
    servers.loc[servers["optimiser"] != "sgd", columns].set_index("tier").rename_axis(columns="predicted")
)

# %% lru-text [markdown]
"""
## A cache of rows

A few rows are looked up again and again. A cache keeps rows on the fast tier, and when it is full, one has to go: of *LRU*, the one that was not used for the longest.

### Write 12.lru

`LruCache(slots)` has a method `look_up(rows)`, which takes the distinct rows of a batch, as numbers, and returns how many of them were there (*hits*). All rows of a batch are needed at once, so a batch is looked up as a whole:

1. Find out which rows are missing. Those that are there are used, in their order: each becomes the most recent.
2. Then the missing rows come in, in their order; where all slots are full, the least recent row goes.
3. A row of this batch never goes for another of it. If there are more than slots, the last ones find no place.

*Hint:* `collections.OrderedDict` has `move_to_end(row)` and `popitem(last=False)`.
"""

# %% answer 12.lru
from collections import OrderedDict


class LruCache:
    """Which rows are there; the values are another matter."""

    def __init__(self, slots: int):
        ### BEGIN SOLUTION
        self.slots, self.held = slots, OrderedDict()  # the least recent first
        ### END SOLUTION

    def look_up(self, rows) -> int:
        """Use the distinct rows of a batch, and return how many were there."""
        ### BEGIN SOLUTION
        missing = [row for row in rows if row not in self.held]
        for row in rows:
            if row in self.held:
                self.held.move_to_end(row)
        hits = len(rows) - len(missing)
        for row in missing[: self.slots - hits]:
            if len(self.held) == self.slots:
                self.held.popitem(last=False)
            self.held[row] = None
        return hits
        ### END SOLUTION


# %% check 12.lru points=5
check("12.lru", LruCache)


# %% checks
def _hits(slots: int, *batches: list[int]) -> Callable[[Any], list[int]]:
    def ask(code: Any) -> list[int]:
        cache = code(slots)
        return [int(cache.look_up(rows)) for rows in batches]

    return ask


def _drawn(slots: int, rows: int, size: int, count: int = 60) -> Callable[[Any], list[int]]:
    rng = np.random.default_rng(slots)
    return _hits(slots, *(np.unique(rng.zipf(1.3, size) % rows).tolist() for _ in range(count)))


EXERCISES["12.lru"] = WrittenExercise(
    LruCache,
    module="placement",
    cases=(
        Case("room for all", _hits(4, [1, 2], [2, 3], [1, 2, 3])),
        Case("the oldest row goes", _hits(3, [1, 2, 3], [4], [1], [3])),
        Case("the least recent row goes", _hits(3, [1, 2, 3], [1], [4], [2], [1])),
        Case("a row that is used stays", _hits(2, [1], [2], [1], [3], [1], [2])),
        Case("hits first, then what comes in", _hits(3, [5, 6, 7], [1, 5], [6], [5])),
        Case("more rows than slots", _hits(2, [1, 2, 3], [1, 2, 3], [3], [3])),
        Case("sixty batches, Zipf", _drawn(40, 500, 30)),
        Case("sixty batches that hardly fit", _drawn(12, 200, 30)),
    ),
    mistakes={
        ("self.held.move_to_end(row)", "pass"): (
            "That is first in, first out: a row that is there becomes the most recent when it is looked up."
        ),
        (
            "popitem(last=False)",
            "popitem()",
        ): "popitem() takes the most recent: the least recent is popitem(last=False).",
        ("missing[: self.slots - hits]", "missing"): (
            "Where a batch has more rows than there are slots, it must not evict its own: the rest finds no place."
        ),
    },
    hint="Find out first which rows are missing; then the hits become the most recent, in order; then the missing come "
    "in, each for the least recent where all slots are full, and no more than slots that the hits leave.",
    explanation="A dictionary that remembers an order is all that LRU needs; the kit's keeps arrays, for speed.",
)

# %% stream-text [markdown]
"""
Lookups follow Zipf's law: the *r*-th most popular row is named in proportion to *r* to the minus *exponent*, and with exponent 0 all alike. One batch is 1,024 lookups in a table of 10,000 rows; the first half of the batches fills the cache, and does not count.
"""

# %% stream
import numpy as np

from labkit_course import apparatus

num_rows, lookups, batches = 10_000, 1024, {"smoke": 20, "standard": 100, "full": 400}[profile]


def drawn(exponent):
    cumulated, rng = apparatus.zipf_shares(num_rows, exponent).cumsum(), np.random.default_rng(seed)
    return np.searchsorted(cumulated, rng.random((2 * batches, lookups)) * cumulated[-1])


# %% hit-guess-text [markdown]
"""
Equal lookups of a batch need their row once, so the hit rate is one minus the distinct rows that were missing, over all lookups. **What is it at exponent 1.1, with a tenth of the rows cached?**
"""

# %% guess-hit
guess("12.hit_rate", 0.5)

# %% hit-run-text [markdown]
"""
Your cache, and the kit's, in the same stream:
"""


# %% hit-rate-of
def hit_rate_of(cache, stream):
    missed = []
    for batch in stream:
        rows = np.unique(batch)
        missed.append(len(rows) - cache.look_up(rows.tolist()))
    return 1 - sum(missed[batches:]) / (batches * lookups)


# %% hit-streams-text [markdown]
"""
At exponent 1.1, with a tenth of the rows:
"""

# %% hit-run
stream = drawn(1.1)
mine_rate = hit_rate_of(LruCache(1000), stream)
kit_rate = apparatus.simulate_hit_rate(stream, num_rows, 1000, "lru", warm_up=batches)

# %% hit-reveal-text [markdown]
"""
Both decide the same, row by row:
"""

# %% hit-reveal
print(f"yours {mine_rate:.6f}, the kit's {kit_rate:.6f}: {'the same' if mine_rate == kit_rate else 'not the same'}")
reveal("12.hit_rate", mine_rate)

# %% best-text [markdown]
"""
### Write 12.best_rate

If a cache knew which rows are the most popular, it would keep these. `zipf_best_hit_rate(num_rows, exponent, cache_rows)` returns the probability that a lookup names one of them. Of single, independent lookups no cache answers more.

*Hint:* `np.arange(1.0, num_rows + 1) ** -exponent` are the weights of the rows.
"""

# %% answer 12.best_rate
import numpy as np


def zipf_best_hit_rate(num_rows: int, exponent: float, cache_rows: int) -> float:
    """The share of lookups of the most popular rows."""
    ### BEGIN SOLUTION
    shares = np.arange(1.0, num_rows + 1) ** -exponent
    return float(shares[:cache_rows].sum() / shares.sum())
    ### END SOLUTION


# %% check 12.best_rate points=2
check("12.best_rate", zipf_best_hit_rate)

# %% checks
EXERCISES["12.best_rate"] = WrittenExercise(
    zipf_best_hit_rate,
    module="placement",
    cases=(
        Case("a tenth of the rows, exponent 1.1", lambda code: code(10_000, 1.1, 1000)),
        Case("uniform rows", lambda code: code(1000, 0, 250)),
        Case("all rows", lambda code: code(500, 0.8, 500)),
        Case("one row", lambda code: code(100, 1.0, 1)),
    ),
    mistakes={
        (".sum() / shares.sum()", ".sum()"): "Shares add up to 1: divide by the sum over all rows.",
        ("** -exponent", "** exponent"): "The r-th row's share falls with r: r to the minus exponent.",
        ("np.arange(1.0, num_rows + 1)", "np.arange(2.0, num_rows + 2)"): "Ranks begin with 1.",
    },
    hint="Weights r ** -exponent for r from 1 to num_rows; the sum of the first cache_rows over the sum of all.",
    explanation="The more skewed the lookups, the smaller a cache may be: that is why caches of rows pay at all.",
)

# %% heuristic-text [markdown]
"""
### Write 12.heuristic

Lin et al. (arXiv 2201.07821) predict the time of a lookup kernel on a GPU, and need its hit rate in the L2 cache. Their heuristic knows uniform rows and one launch. For B·L lookups in a table of E rows:

1. U = E·(1 − (1 − 1/E)^(B·L)) distinct rows are expected.
2. X rows are resident: the least of what the cache holds, of E, and of B·L.
3. If U ≤ X, each row misses once: the hit rate is 1 − U/(B·L). Otherwise the first X lookups miss, and of the others the share (E − X)/E: 1 − (X + (B·L − X)·(E − X)/E)/(B·L).

`expected_hit_rate(num_rows, lookups, cache_rows)` returns it. In the paper X comes from the size of the L2 cache; here you say what the cache holds.
"""


# %% answer 12.heuristic
def expected_hit_rate(num_rows: int, lookups: int, cache_rows: int) -> float:
    """The share of a batch's lookups that a cache answers, uniform rows."""
    ### BEGIN SOLUTION
    unique = num_rows * (1 - (1 - 1 / num_rows) ** lookups)
    resident = min(cache_rows, num_rows, lookups)
    if unique <= resident:
        return 1 - unique / lookups
    return 1 - (resident + (lookups - resident) * (num_rows - resident) / num_rows) / lookups
    ### END SOLUTION


# %% check 12.heuristic points=3
check("12.heuristic", expected_hit_rate)

# %% checks
EXERCISES["12.heuristic"] = WrittenExercise(
    expected_hit_rate,
    module="placement",
    cases=(
        Case("a cache of a tenth", lambda code: code(10_000, 1024, 1000)),
        Case("a batch that names most rows", lambda code: code(500, 4096, 100)),
        Case("all that a batch names is there", lambda code: code(300, 20_000, 300)),
        Case("a cache larger than the batch", lambda code: code(50_000, 64, 20_000)),
        Case("a cache larger than the table", lambda code: code(100, 4096, 1000)),
    ),
    mistakes={
        ("    if unique <= resident:\n        return 1 - unique / lookups\n", ""): (
            "Where all distinct rows fit (U <= X) only the first lookup of each misses: 1 - U / (B L)."
        ),
        ("(lookups - resident) * (num_rows - resident) / num_rows", "(lookups - resident)"): (
            "Of the lookups after the first X, only the share (E - X) / E is of rows that are not resident."
        ),
    },
    hint="U = E (1 - (1 - 1/E)^BL), X = min(cache rows, E, BL); U <= X: 1 - U / BL, "
    "else 1 - (X + (BL - X) (E - X) / E) / BL.",
    explanation="Three numbers for a whole kernel: enough for uniform rows that are looked up once.",
)

# %% moved-text [markdown]
"""
All of it in one figure: LRU and LFU (the row that was used the least often goes) simulated, your bound, your heuristic, and, as what is *measured*, the kit's cache of rows with values in it that really move.
"""

# %% moved-hits-text [markdown]
"""
Each batch pulls its rows and pushes them back:
"""


# %% moved
def measured_hit_rate(stream, slots):
    store = labkit.placement.CachedStore(labkit.placement.HostStore(num_rows, 16, 16), slots, "lru")
    missed = []
    for batch in stream:
        rows = np.unique(batch)
        store.push(rows, store.pull(rows))
        missed.append(store.counters.missed_rows)
    store.close()
    return 1 - (missed[-1] - missed[batches - 1]) / (batches * lookups)


# %% rates-text [markdown]
"""
The kit's `hit_rates` draws the same lookups, and has your two formulas, too; here are yours.
"""

# %% simulated
import pandas as pd

exponents, cached = (0.0, 0.8, 1.1, 1.4), (0.01, 0.03, 0.1, 0.3)
rates = apparatus.hit_rates(exponents, cached, num_rows=num_rows, lookups=lookups, batches=batches, seed=seed)
simulated = rates[rates["source"] == "simulated"]

# %% rates-rows-text [markdown]
"""
What is measured, your bound, and what a batch's own repeats answer without any cache:
"""

# %% rates-measured
rows = []
for exponent in exponents:
    stream = drawn(exponent)
    repeats = 1 - np.mean([len(np.unique(batch)) for batch in stream[batches:]]) / lookups
    for share in cached:
        rows.append((exponent, share, "lru", "measured", measured_hit_rate(stream, round(share * num_rows))))
        rows.append((exponent, share, None, "no cache", repeats))
        rows.append((exponent, share, None, "bound", zipf_best_hit_rate(num_rows, exponent, round(share * num_rows))))

# %% heuristic-rows-text [markdown]
"""
The heuristic is for uniform rows alone:
"""

# %% heuristic-rows
for share in cached:
    rate = expected_hit_rate(num_rows, lookups, round(share * num_rows))
    rows.append((0.0, share, None, "heuristic", rate))
rates = pd.concat([pd.DataFrame(rows, columns=simulated.columns), simulated], ignore_index=True)

# %% rates-figure-text [markdown]
"""
Where does a cache answer more than the most popular rows would, and why may it? Where does the heuristic leave it?
"""

# %% rates-figure
labkit.plots.show(apparatus.figure_hit_rates(rates))

# %% step-text [markdown]
"""
The bound speaks of single lookups; in a batch, a row that is named ten times is one miss, however small the cache. And the heuristic knows one launch, which finds nothing of the launch before: to it only a batch's own repeats are hits, a twentieth here, however large the cache. That is right for a kernel whose rows are gone when it comes again, and wrong for a cache that stays.

## A step of rows that live elsewhere

### Write 12.step

`placed_step(read, write, categorical, loss_of, lr)` takes one step of plain SGD on one table that it never sees, and returns the loss, detached.

- `read(rows)` gives the values (U, D) of distinct rows (U,), a copy; `write(rows, values)` replaces them.
- `categorical` int64 (B, L) has the rows that each sample names, and each sample's bag is the *sum* of its rows.
- `loss_of(sums)` makes the loss of the sums (B, D), with whatever layers come after.

The stores below keep numbers, not tensors with gradients: detach what you write.

1. Take the distinct rows and, for each lookup, the place of its row among them. Read each row once.
2. Look up in what came, with `F.embedding_bag`; then the loss, and backward.
3. Write what SGD makes of the rows. Only the rows that were read have a gradient.

*Hint:* `Tensor.unique` has `return_inverse`.
"""

# %% answer 12.step
import torch
import torch.nn.functional as F


def placed_step(read, write, categorical, loss_of, lr):
    """A step of SGD on the rows that a batch names."""
    ### BEGIN SOLUTION
    rows, places = categorical.unique(return_inverse=True)  # (U,), (B, L)
    weight = read(rows).requires_grad_()  # (U, D)
    loss = loss_of(F.embedding_bag(places, weight, mode="sum"))
    loss.backward()
    write(rows, weight.detach() - lr * weight.grad)
    return loss.detach()
    ### END SOLUTION


# %% check 12.step points=6
check("12.step", placed_step)


# %% checks
def _steps(*, rows: int = 12, dim: int = 3, batch: int = 5, pooling: int = 2, steps: int = 1) -> Callable[[Any], Any]:
    def ask(code: Any) -> Any:
        drawn = torch.Generator().manual_seed(rows + steps)
        table = torch.randn(rows, dim, generator=drawn)
        layer = torch.randn(dim, 1, generator=drawn, requires_grad=True)
        moved: dict[str, list[int]] = {"read": [], "written": []}

        def read(wanted: Tensor) -> Tensor:
            moved["read"] += wanted.flatten().tolist()
            return table[wanted].clone()

        def write(given: Tensor, values: Tensor) -> None:
            moved["written"] += given.flatten().tolist()
            table[given] = torch.from_numpy(values.numpy())  # as a store of numbers does, which keeps no gradients

        losses = []
        for _ in range(steps):
            categorical = torch.randint(rows, (batch, pooling), generator=drawn)
            losses.append(
                code(read, write, categorical, lambda sums: (sums.tanh() @ layer).sigmoid().square().mean(), 0.5)
            )
        return {
            "losses": [loss.detach() for loss in losses],
            "losses that still have a gradient": sum(loss.requires_grad for loss in losses),
            "the table": table,
            "the gradient of the layer after the tables": layer.grad,
            **{f"rows {name}": sorted(numbers) for name, numbers in moved.items()},
        }

    return ask


EXERCISES["12.step"] = WrittenExercise(
    placed_step,
    module="placement",
    cases=(
        Case("bags of two rows", _steps()),
        Case("rows that many bags name", _steps(rows=3, batch=16, pooling=4)),
        Case("a bag of one row", _steps(batch=1, pooling=1)),
        Case("four steps", _steps(rows=6, steps=4)),
    ),
    mistakes={
        ("weight.detach() - lr * weight.grad", "weight.detach() + lr * weight.grad"): "Descent: minus the gradient.",
        ("weight.detach() - lr * weight.grad", "weight.detach()"): (
            "That writes back what was read: without the step, nothing is learnt."
        ),
        ('mode="sum"', 'mode="mean"'): 'A bag is the sum of its rows: mode="sum".',
    },
    hint="`rows, places = categorical.unique(return_inverse=True)`; read the rows, `requires_grad_()`, "
    '`F.embedding_bag(places, weight, mode="sum")`, loss, backward, write what SGD makes of them.',
    explanation="Forward and backward never see a table: any place that reads and writes rows can hold one.",
)

# %% file-text [markdown]
"""
Beside it an `nn.EmbeddingBag` with sparse gradients and torch's SGD, on the same bags. Your rows live in a *file*:
"""

# %% file
from pathlib import Path

bag = torch.nn.EmbeddingBag(2000, 16, mode="sum", sparse=True)
sgd = torch.optim.SGD(bag.parameters(), lr=0.5)
Path(runs_dir).mkdir(parents=True, exist_ok=True)
table = np.memmap(Path(runs_dir) / "rows.f32", np.float32, "w+", shape=(2000, 16))
table[:] = bag.weight.detach().numpy()

# %% file-read-text [markdown]
"""
Reading is indexing, and so is writing; the system fetches the pages.
"""


# %% file-read
def read(rows):
    return torch.from_numpy(table[rows.numpy()])


def write(rows, values):
    table[rows.numpy()] = values.numpy()


def loss_of_sums(sums):
    return (sums.sum(1) - 1).square().mean() / 100


# %% file-steps-text [markdown]
"""
Twenty steps of each:
"""

# %% file-steps
for _ in range(20):
    bags = torch.randint(2000, (64, 4))
    loss = placed_step(read, write, bags, loss_of_sums, 0.5)
    sgd.zero_grad()
    loss_of_sums(bag(bags)).backward()
    sgd.step()
apart = float((torch.from_numpy(table) - bag.weight).detach().abs().max())
print(f"loss {loss:.4f} after 20 steps; the largest difference of the weights: {apart:.1e}")

# %% places-text [markdown]
"""
## What it costs

The kit's placements do the same with all tables of a DLRM, and prefetch the rows of the next batch. `labkit train dlrm --placement cached` is the command; here are the parts. The tables, the batches and the model are the same in every place.
"""

# %% places-config
sizes = {"smoke": (10_000, 2, 2), "standard": (80_000, 10, 10), "full": (300_000, 20, 15)}
num_rows, steps, turns = sizes[profile]
config = labkit.models.DlrmConfig(13, (num_rows,) * 4, 64, (256, 64), (256, 1))
memory_cap = max(2**20, config.parameter_bytes // 4)
print(f"{config.parameter_bytes / 1e6:.3g} MB of tables; the disk may keep {memory_cap / 1e6:.3g} MB of them in memory")

# %% batches-text [markdown]
"""
A hundred batches of 512 samples with four rows a table, Zipf 1.1, popular rows anywhere in their table:
"""

# %% batches
rng = np.random.default_rng(seed)
sampler, shape = labkit.data.clicks.ZipfSampler(num_rows, 1.1, 0.0, rng), (512, config.num_tables, 4)
many = [torch.from_numpy(sampler.draw(rng, 512 * 16).reshape(shape)) for _ in range({"smoke": 12}.get(profile, 100))]
dense, label = torch.randn(512, 13), (torch.rand(512) < 0.25).float()
batches_of_rows = [(dense, rows, label) for rows in many]

# %% ways-text [markdown]
"""
Six places. A cache has a tenth of the rows, and the disk's file is four times the memory that it may use.
"""

# %% ways
WAYS = {
    "device": labkit.placement.Placement("device"),
    "host": labkit.placement.Placement("host"),
    "cached": labkit.placement.Placement("cached", cache_rows="10%"),
    "disk": labkit.placement.Placement("disk", memory_cap=memory_cap),
    "remote, staleness 0": labkit.placement.Placement("remote", staleness=0),
    "remote, staleness 1": labkit.placement.Placement("remote", staleness=1),
}

# %% trainer-text [markdown]
"""
`ahead` gives out batches, and prefetches the next one's rows.
"""

# %% trainer
from itertools import cycle


def trainer(placement):
    torch.manual_seed(seed)
    model = labkit.jobs.dlrm.build_model(
        config, "fast", labkit.placement.placed_tables(placement, "sgd", folder=runs_dir)
    )
    optimizers = labkit.jobs.build_optimizers(model, "sgd", 0.1, "fast")
    return model, optimizers, iter(labkit.placement.ahead(model.tables, cycle(batches_of_rows)))


# %% take-text [markdown]
"""
Some steps, and their losses:
"""


# %% take
def take(model, optimizers, coming):
    losses = []
    for batch in coming:
        loss = labkit.jobs.dlrm.loss_of(model, batch)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    return losses


# %% make-text [markdown]
"""
The remote ones start a process each, which serves the rows.
"""

# %% make
from itertools import islice

trainers = {name: trainer(place) for name, place in WAYS.items()}


def take_some(name, count):
    model, optimizers, coming = trainers[name]
    return take(model, optimizers, islice(coming, count))


losses = {name: take_some(name, 2 * steps) for name in WAYS}

# %% same-text [markdown]
"""
Which of them have the *same* losses, to the last bit? `device` adds the gradients of equal rows in another order, so it may differ in the last digits.
"""

# %% same
same = {name: own == losses["host"] for name, own in losses.items()}
off = {name: max(abs(one - two) for one, two in zip(own, losses["host"], strict=True)) for name, own in losses.items()}
labkit.plots.show(
    pd.DataFrame({"as host, bit by bit": same, "largest difference of a loss": off}).rename_axis(columns="measured")
)

# %% share-text [markdown]
"""
### Write 12.share

Before measuring, predict. A step on the device takes `device_ms`; reading its rows from their tier takes `move_ms`, and writing them back as long again. Of these two moves, `hidden` (0, 1 or 2) happen while the device computes, and the others after it.

`share_of_device(device_ms, move_ms, hidden)` returns the throughput as a share of the device's.

*Hint:* what is hidden is free only as long as the device computes.
"""


# %% answer 12.share
def share_of_device(device_ms: float, move_ms: float, hidden: int) -> float:
    """Throughput with rows that move, over that without."""
    ### BEGIN SOLUTION
    step_ms = max(device_ms, hidden * move_ms) + (2 - hidden) * move_ms
    return device_ms / step_ms
    ### END SOLUTION


# %% check 12.share points=3
check("12.share", share_of_device)


# %% checks
def _share(*numbers: float) -> Callable[[Any], float]:
    return lambda code: code(*numbers)


EXERCISES["12.share"] = WrittenExercise(
    share_of_device,
    module="placement",
    cases=(
        Case("nothing is hidden", _share(4.0, 1.0, 0)),
        Case("reading is hidden", _share(4.0, 1.0, 1)),
        Case("both are hidden", _share(4.0, 1.0, 2)),
        Case("reading takes longer than the step", _share(4.0, 10.0, 1)),
        Case("both take longer", _share(4.0, 10.0, 2)),
    ),
    mistakes={
        ("max(device_ms, hidden * move_ms)", "device_ms + hidden * move_ms"): (
            "What is hidden happens while the device computes: the longer of the two counts."
        ),
        ("max(device_ms, hidden * move_ms)", "device_ms"): (
            "No more can be hidden than the device takes: where moving takes longer, it is waited for."
        ),
        (" + (2 - hidden) * move_ms", ""): "What is not hidden comes after: two moves less those that are.",
    },
    hint="step = max(device_ms, hidden · move_ms) + (2 − hidden) · move_ms; the share is device_ms over that.",
    explanation="Prefetching is worth as much as there is computing to hide behind.",
)

# %% tier-text [markdown]
"""
The speed of each tier: how long does it take to read many rows, drawn at random, and nothing else? Memory moves rows, and a disk *pages*: of 4 KiB, each with 16 rows. Three quarters of the disk's pages are not in memory, so the time is that of these.
"""

# %% tier
import time
from statistics import median


def us_to_read(tables, rows_a_place, missed_share=1.0):
    times_s = []
    for _ in range(3):
        rows = np.unique(rng.integers(0, 4 * num_rows, 4 * num_rows // 20))
        began = time.perf_counter()
        tables.store.peek(rows)
        times_s.append((time.perf_counter() - began) / len(np.unique(rows // rows_a_place)) / missed_share)
    return 1e6 * median(times_s)


# %% speeds-text [markdown]
"""
Reading through a cache would mix two tiers; behind it is main memory, as of `host`.
"""

# %% speeds
each_us = {name: us_to_read(trainers[name][0].tables, 1) for name in ("host", "remote, staleness 0")}
each_us |= {"cached": each_us["host"], "remote, staleness 1": each_us["remote, staleness 0"]}
each_us["disk"] = us_to_read(trainers["disk"][0].tables, 16, 3 / 4)
print({name: f"{each:.3g} µs" for name, each in each_us.items()}, "measured, a row, and a page of the disk")

# %% moves-text [markdown]
"""
How many rows have to move? All that a batch names, of `cached` those that it misses, and of `disk` the pages that are not in memory; for these two, your cache knows.
"""


# %% missed-by
def missed_by(cache, rows_a_place):
    missed = [0]
    for rows in many:
        places = np.unique((rows.numpy() + num_rows * np.arange(4)[:, None]).ravel() // rows_a_place)
        missed.append(len(places) - cache.look_up(places.tolist()))
    return np.mean(missed[len(many) // 2 :])


named = missed_by(LruCache(0), 1)
print(f"a batch names {named:,.0f} distinct rows")

# %% moves-rows-text [markdown]
"""
The cache has a slot for a tenth of the rows, and the disk one for each page in memory. An eighth of its cap is kept for pages on their way back to it:
"""

# %% moves
moves = dict.fromkeys(each_us, named)
moves["cached"] = missed_by(LruCache(4 * num_rows // 10), 1)
moves["disk"] = missed_by(LruCache(memory_cap // 4096 * 7 // 8), 16)

# %% hidden-text [markdown]
"""
Prefetching hides the reading. `cached` and `remote` with staleness 1 write back while the step runs, too; `remote` with staleness 0 has to wait for both.
"""

# %% timed
HIDDEN = {"host": 1, "cached": 2, "disk": 1, "remote, staleness 0": 0, "remote, staleness 1": 2}


def timed_ms(name):
    began = time.perf_counter()
    take_some(name, steps)
    return 1e3 * (time.perf_counter() - began) / steps


device_ms = median(timed_ms("device") for _ in range(3))

# %% predicted-text [markdown]
"""
Your function, for each place:
"""

# %% hidden
move_ms = {name: moves[name] * each_us[name] / 1e3 for name in each_us}
predicted = {name: share_of_device(device_ms, move_ms[name], HIDDEN[name]) for name in each_us}

# %% share-guess-text [markdown]
"""
**What share of the device's throughput is left with a cache of a tenth of the rows, and with the disk?** Your function's answers come after your guesses.
"""

# %% guess-share
guess("12.cached_share", 0.6)
guess("12.disk_share", 0.1)

# %% turns-text [markdown]
"""
All places take a few steps in turn, so that what disturbs the machine disturbs all; the median of the turns' ratios counts.
"""

# %% turns
taken = pd.DataFrame([{name: timed_ms(name) for name in WAYS} for _ in range(turns)])
share = taken.rdiv(taken["device"], axis=0).median()
reveal("12.cached_share", share["cached"])
reveal("12.disk_share", share["disk"])

# %% shares-text [markdown]
"""
And next to your predictions:
"""

# %% shares
both = [(name, share[name], "measured") for name in WAYS]
both += [(name, predicted[name], "predicted") for name in WAYS if name in predicted]
both = pd.DataFrame(both, columns=["placement", "share of device", "provenance"])
labkit.plots.show(labkit.plots.figure_sweep(both, x="placement", y="share of device"))

# %% shares-numbers-text [markdown]
"""
In numbers, with the milliseconds that one move takes by what was counted and read:
"""

# %% shares-numbers
table = pd.DataFrame({"measured": share, "predicted": predicted, "a move, predicted (ms)": move_ms})
labkit.plots.show(table.loc[list(WAYS)])
print(f"a step on the device: {taken['device'].median():.3g} ms, median of {turns} turns of {steps} steps (measured)")

# %% counters-text [markdown]
"""
The rows that a cache missed, how long a step waited for rows, and how many bytes the disk read for each of the rows' own:
"""

# %% counters
counted = {name: made[0].tables.metrics() for name, made in trainers.items() if name != "device"}
counted = pd.DataFrame(counted).T.rename(columns=lambda name: name.removeprefix("placement_"))
amplified = counted.loc["disk"].get("disk_read_bytes", np.nan) / counted.loc["disk", "read_bytes"]
print(f"disk: {amplified:.3g} bytes were read for each byte of a row (measured)")
labkit.plots.show(
    counted[["hit_rate", "missed_rows", "read_bytes", "written_bytes", "waited_s"]].rename_axis(columns="measured")
)

# %% close-text [markdown]
"""
The servers end, and the file goes:
"""


# %% close
def close(model):
    if hasattr(model.tables, "store"):
        model.tables.store.close()


# %% close-all-text [markdown]
"""
Of all places:
"""

# %% close-all
for model, *_ in trainers.values():
    close(model)
trainers.clear()
(Path(runs_dir) / "rows.f32").unlink()

# %% why-cached-text [markdown]
"""
### Explain 12.why_cached

In two or three sentences: what share of the device's throughput did the cache keep, where did its time go, by your prediction and by what was counted, and when would you take another place?
"""

# %% explain 12.why_cached points=2
### BEGIN SOLUTION
answer = model_answer("12.why_cached")
### END SOLUTION
explain("12.why_cached", answer)

# %% checks
EXERCISES["12.why_cached"] = Explanation(
    rubric=(
        "numbers: the share of the device's throughput that the cache kept, its hit rate, and the predicted share",
        "why: where the time went that the prediction leaves out",
        "trade-off: when another place is the better one",
    ),
    model="With a tenth of its rows cached 83 % of the lookups are hits, yet a step keeps 0.56 of the device's "
    "throughput where my bytes foretell all of it: a move takes 0.04 ms, and a step 5.3 instead of 2.9 ms. It"
    " waited 0.5 ms for rows; the rest is no move at all, such as sorting a batch's rows, which host needs as"
    " well (0.70), and the cache's own index. In front of main memory a cache gains nothing on a CPU, so I "
    "would take host while tables fit; before a disk, which keeps 0.018, or in a GPU's memory, the same hits "
    "are worth their index.",
)

# %% stale-text [markdown]
"""
## Stale rows

With staleness S, a batch's rows are pulled before the S pushes before it have arrived: no step waits, and the gradients are those of older rows. The log is generated, `synthetic-small`, with 8 tables; one epoch of Adam at a batch of 512 is 98 steps. **How much lower is the validation AUC with a staleness of 64?**
"""

# %% guess-stale
guess("12.stale_auc_loss", 0.01)

# %% epoch-text [markdown]
"""
An epoch, wherever the tables are:
"""

# %% log
log = labkit.data.clicks.load_clicks("synthetic-small")
small = labkit.models.DlrmConfig(len(log.dense_names), log.table_rows, **labkit.jobs.get_preset("dlrm", "tour").model)
seeds = range(seed, seed + {"smoke": 1, "standard": 3, "full": 10}[profile])

# %% auc-text [markdown]
"""
`evaluate` gives the AUC of the validation split.
"""


# %% auc
def auc_of(tables, own_seed, batch_size=512):
    torch.manual_seed(own_seed)
    model = labkit.jobs.dlrm.build_model(small, "fast", tables)
    optimizers = labkit.jobs.build_optimizers(model, "adam", 2e-3, "fast")
    take(
        model,
        optimizers,
        labkit.placement.ahead(model.tables, labkit.data.clicks.ClickBatches(log.split("train"), batch_size, own_seed)),
    )
    auc = labkit.jobs.evaluate(model, log.split("validation"), "fp32", "cpu")["auc"]
    close(model)
    return auc


# %% stale-run-text [markdown]
"""
Each staleness has the same seeds, hence the same weights at first and the same batches. Without staleness another process gives the same as `host`, bit by bit, as you saw:
"""

# %% stale-run
rows = []
for staleness in (0, 64) if profile == "smoke" else (0, 1, 4, 16, 64):
    for each in seeds:
        where = (
            labkit.placement.Placement("remote", staleness=staleness)
            if staleness
            else labkit.placement.Placement("host")
        )
        tables = labkit.placement.placed_tables(where, "adam")
        rows.append((staleness, each, auc_of(tables, each)))

# %% stale-lost-text [markdown]
"""
Of each seed, the loss compared with itself without staleness:
"""

# %% stale-lost
stale = pd.DataFrame(rows, columns=["staleness", "seed", "auc"]).assign(provenance="measured")
by_staleness = stale.pivot(index="seed", columns="staleness", values="auc")
lost = by_staleness.rsub(by_staleness[0], axis=0).drop(columns=0)
reveal("12.stale_auc_loss", lost[64].mean())
labkit.plots.show(lost.rename_axis(columns="AUC lost at staleness, measured"))

# %% stale-figure-text [markdown]
"""
Points are seeds, the line is their median:
"""

# %% stale-figure
labkit.plots.show(labkit.plots.figure_sweep(stale, x="staleness", y="auc"))

# %% why-stale-text [markdown]
"""
### Explain 12.why_stale

In two or three sentences: what did staleness cost in AUC, at 1 and at 64, and which losses do your seeds show? What did a staleness of 1 gain in throughput above? Why do older rows cost AUC, and which staleness would you take?
"""

# %% explain 12.why_stale points=2
### BEGIN SOLUTION
answer = model_answer("12.why_stale")
### END SOLUTION
explain("12.why_stale", answer)

# %% checks
EXERCISES["12.why_stale"] = Explanation(
    rubric=(
        "numbers: the AUC lost at staleness 1 and 64, by seeds, and the throughput with staleness 1 and 0",
        "why: gradients of rows that have moved since",
        "trade-off: which staleness is worth its loss",
    ),
    model="Staleness 1 costs 0.0007, 0.0002 and -0.0007 of AUC, nothing that three seeds show, and takes the remote"
    " tables from 0.47 to 0.77 of the device; 64 costs 0.045 to 0.070, in each seed, and 16 between 0.0005 "
    "and 0.017, which three seeds leave open. With 64, the gradients of two thirds of this epoch's 98 steps "
    "are those of rows as they were at first, and they push again where others have pushed. I would take 1: "
    "it hides the network, and more gains nothing once no step waits.",
)

# %% compress-text [markdown]
"""
## Fewer rows

The other way out: tables that fit. *Hashing* to M rows lets categories share a row; *quotient-remainder* (Shi et al., KDD 2020, arXiv 1909.02107) gives each category a product of two rows, a pair of its own. Two tables have to be paid for, so these tables, which are small, cannot become less than 9.8 % of their bytes in this way. Hashing knows no limit.
"""

# %% kinds
from functools import partial

KINDS = {"hash": (0.02, 0.1, 0.5), "quotient-remainder": (0.1, 0.5)}
batch_size = 512 if profile == "smoke" else 128

# %% compress-run-text [markdown]
"""
The same seeds each:
"""

# %% compress
rows = [(1.0, "none", each, auc_of(labkit.fast.EmbeddingTables, each, batch_size)) for each in seeds]
for method, shares in KINDS.items():
    for of_bytes in shares[:1] if profile == "smoke" else shares:
        tables = partial(
            labkit.models.CompressedTables, method=method, share=of_bytes, tables=labkit.fast.EmbeddingTables
        )
        rows += [(of_bytes, method, each, auc_of(tables, each, batch_size)) for each in seeds]

# %% compress-figure-text [markdown]
"""
At a batch of 128 an epoch is 391 steps, so more has been learnt than above. Which loss do all seeds show?
"""

# %% compress-figure
fewer = pd.DataFrame(rows, columns=["share of bytes", "method", "seed", "auc"]).assign(provenance="measured")
labkit.plots.show(labkit.plots.figure_sweep(fewer, x="share of bytes", y="auc", color="method"))

# %% fewer-lost-text [markdown]
"""
Of each seed, the loss compared with itself with all rows:
"""

# %% fewer-lost
by_method = fewer.pivot(index="seed", columns=["method", "share of bytes"], values="auc")
lost_by_method = by_method.rsub(by_method["none", 1.0], axis=0).drop(columns="none", level=0)
labkit.plots.show(lost_by_method.agg(["min", "mean", "max"]).T.rename_axis(columns="AUC lost, measured"))

# %% judge-text [markdown]
"""
## Judge

Acun et al. (abstract) report what they learnt from Zion, a scale-up server that decouples memory, compute and network. No page that was read has the size of its memory, so what Zion gains cannot be tested; the need for it is arithmetic. Where compute and memory come in one piece, as a GPU, how many pieces do the tables alone ask for, however little there is to compute? Call the need shown where that is more than one.
"""

# %% claim A5 points=1 id="claim-a5"
grown = fits[(fits["preset"] == "mlperf-v1") & (fits["tier"] == "big-basin") & (fits["memory"] == "one device")]
devices = {row.optimiser: -(-row.needed_gb // row.capacity_gb) for row in grown.itertuples()}
### BEGIN SOLUTION
verdict = "holds here" if devices["sgd"] > 1 else "does not hold here"
answer = verdict, "an analogue: the need alone, by bytes, of one public model; what Zion gained was not tested"
### END SOLUTION
found = ", ".join(f"{count:.0f} with {optimiser}" for optimiser, count in devices.items())
claim("A5", f"16 GB GPUs that MLPerf's tables need for their bytes: {found}", answer, how="predicted")

# %% score-text [markdown]
"""
How good were your guesses?
"""

# %% score
from labkit_course import score_notebook

score_notebook()

# %% results-text [markdown]
"""
The numbers of this notebook, each with the bounds that hold on any machine, for a program to read:
"""

# %% results tags=["results"]
from labkit_course import results

results(
    gpus_with_adam=(int(by_preset.loc[("mlperf-v1", "adam"), "that_hold_them"]), 0, 0),
    hit_rate=(mine_rate, 0.75, 0.82),
    same_bits=(sum(same[name] for name in ("host", "cached", "disk", "remote, staleness 0")), 4, 4),
    cached_share=(share["cached"], 0.02, 2),
    disk_share=(share["disk"], 0.0002, 2),
    remote_share=(share["remote, staleness 1"], 0.02, 2),
    stale_auc_loss=(float(lost[64].mean()), 0.005, 0.3),
)

# %% recap [markdown]
"""
## Recap

- Tables outgrow a device by their rows and by what an optimiser keeps for each; which memory holds them is arithmetic.
- Skew makes caches pay: at Zipf 1.1, with a tenth of the rows in a cache, one lookup of five goes to the slow tier. Without any cache it would be two of five, for the others name a row of their own batch again.
- A step needs the distinct rows of its batch alone, so a table can live wherever rows can be read and written, with the same result bit by bit.
- What bytes cost is the lower bound; sorting, copying and asking cost the rest, and prefetching hides only as much as there is to compute.
- Staleness buys throughput with gradients of older rows; fewer rows buy it with rows that are shared. Both may be paid for in AUC, and seeds say whether it shows.

**Next:** [Batch size and accuracy](13_batch_size_and_accuracy.ipynb)
"""

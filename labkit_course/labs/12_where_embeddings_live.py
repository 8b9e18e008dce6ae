# %% opening [markdown] packages="pyarrow" disk_gb=0.5
"""
# Where embeddings live

After this notebook you will be able to

- **compute** which memory holds a model's embedding tables;
- **write** a cache of rows, and **measure** its hit rate for lookups of different skew;
- **train** rows that live elsewhere, with the same losses;
- **predict** and **measure**, with intervals, what a step costs when tables are in memory, on a disk or in another process, and where a cache pays;
- **decide** by an experiment why smaller tables can have a higher AUC.

**Time:** 90 minutes with four exercises of code. The machine computes for about three minutes on 2 CPU cores. No GPU is needed.

**Prerequisites:** [Train a DLRM](10_train_dlrm.ipynb).
"""

# %% checks
from typing import Any

import numpy as np
import torch
from torch import Tensor

from labkit_course.exercise import Case, Explanation, WrittenExercise

# Shapes: B batch, L pooling factor, R rows of a table, U distinct rows of a batch, D embedding dim.

MODULE = "placement"
EXERCISES = {}

# %% parameters tags=["parameters"]
profile = "standard"  # smoke, standard or full: the size of tables, and how many rounds, epochs and seeds
runs_dir = "runs"  # table files are made here, and are removed at the end
seed = 0  # of the rows that are drawn, and the first of the trainings

# %% question [markdown]
"""
## The question

A recommendation model has a row for each user, each product and each page. The abstract of Acun et al. (HPCA 2021, arXiv 2011.05497) names "large embedding tables that do not fit into limited GPU memory". Such tables live elsewhere: in main memory, on a disk, or in another machine. Each step reads a few thousand of their rows, changes them, and writes them back.

Your machine has such places, too: memory, a disk, and another process behind a socket. The mechanism is that of a GPU server, and the speeds are your machine's. One thread trains, so that another core is free to move rows.
"""

# %% imports
import time
from functools import partial
from itertools import cycle, islice

import pandas as pd
import torch

import labkit
from labkit_course import apparatus, check, drawing, explain, guess, model_answer, paired_times, reveal

labkit.hardware.keep_memory()
torch.set_num_threads(1)

# %% capacity-text [markdown]
"""
## Which memory holds the tables

MLPerf's DLRM has 188 million rows of 128 numbers in float32. Adam keeps two more numbers for each of these. **How many GB do the tables and their optimiser take?**
"""

# %% guess-gb
guess("12.adam_gb", 100, "GB")

# %% capacity-run-text [markdown]
"""
The next table counts bytes, so it is *predicted*. Row-wise Adagrad, which is common for tables, keeps one number per row. The GPUs are those of labkit's catalogue.
"""

# %% capacity-run
fits = labkit.perfmodel.presets_and_tiers(("sgd", "rowwise-adagrad", "adam"))
gpus = fits[(fits["preset"] == "mlperf-v1") & (fits["kind"] == "gpu")].groupby("optimiser", sort=False)
held = gpus.agg(needed=("needed_gb", "first"), largest=("capacity_gb", "max"), holding=("holds", "sum"))
held["holding"] = held["holding"].astype(int)
reveal("12.adam_gb", held.loc["adam", "needed"])
held.columns = ["needed (GB), predicted", "largest GPU (GB)", "GPUs that hold it"]
labkit.plots.show(held)

# %% lru-text [markdown]
"""
## A cache of rows

A few rows are looked up again and again. A *cache* keeps some rows in fast memory. When it is full, a row has to leave: an *LRU* cache evicts the least recently used row.
"""

# %% lru-drawing
drawing("lru")

# %% lru-exercise [markdown]
"""
### Write 12.lru

`LruCache(slots)` has a method `look_up(rows)`. It takes the distinct rows of a batch, a list of numbers, and returns how many of them were in the cache (*hits*). A step needs all rows of its batch at once, so a batch is looked up as a whole:

1. Note which rows are missing.
2. Each row that is there becomes the most recently used, in the order of `rows`.
3. Each missing row then comes in as the most recently used, in the order of `rows`. If all slots are taken, the least recently used row is evicted.
4. Never evict a row of the current batch to make room for another row of the same batch. If the batch has more rows than the cache has slots, the rest are not cached.

`LruCache(0)` caches nothing.

*Hint:* `collections.OrderedDict` has `move_to_end(row)` and `popitem(last=False)`.
"""

# %% answer 12.lru
from collections import OrderedDict


class LruCache:
    """Which rows are in the cache; their values are stored elsewhere."""

    def __init__(self, slots: int):
        ### BEGIN SOLUTION
        self.slots, self.held = slots, OrderedDict()  # the least recently used first
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
def _hits(code: Any, slots: int, *batches: list[int]) -> list[int]:
    cache = code(slots)
    return [int(cache.look_up(list(rows))) for rows in batches]


def _drawn(code: Any, slots: int, rows: int, size: int) -> list[int]:
    rng = np.random.default_rng(slots)
    return _hits(code, slots, *(rng.permutation(np.unique(rng.zipf(1.3, size) % rows)).tolist() for _ in range(60)))


class _ListCache:
    """The same with a list, the least recently used first."""

    def __init__(self, slots: int):
        self.slots, self.order = slots, []

    def look_up(self, rows) -> int:
        held, asked = set(self.order), set(rows)
        there = [row for row in rows if row in held]
        coming = [row for row in rows if row not in held][: self.slots - len(there)]
        others = [row for row in self.order if row not in asked]
        too_many = len(self.order) + len(coming) - self.slots
        self.order = others[max(0, too_many) :] + there + coming
        return len(there)


class _ClockCache:
    def __init__(self, slots: int):
        self.slots, self.used, self.now = slots, {}, 0

    def look_up(self, rows) -> int:
        missing = []
        for row in rows:
            self.now += 1
            if row in self.used:
                self.used[row] = self.now
            else:
                missing.append(row)
        hits = len(rows) - len(missing)
        for row in missing:
            if len(self.used) >= self.slots:
                candidates = [each for each in self.used if each not in set(rows)]
                if not candidates:
                    continue
                del self.used[min(candidates, key=self.used.get)]
            self.now += 1
            self.used[row] = self.now
        return hits


EXERCISES["12.lru"] = WrittenExercise(
    LruCache,
    Case("batches of one row", _hits, 3, [1], [2], [3], [4], [2], [1]),
    Case("a row that is used stays", _hits, 2, [1], [2], [1], [3], [1], [2]),
    Case("room for all", _hits, 4, [1, 2], [2, 3], [1, 2, 3]),
    Case("the order of a batch", _hits, 3, [3, 1, 2], [4], [3], [1], [2]),
    Case("a batch with hits and misses", _hits, 3, [5, 6, 7], [8, 5], [9, 10], [5, 8]),
    Case("more rows than slots", _hits, 2, [1, 2, 3], [1, 2, 3], [3], [3]),
    Case("no slots", _hits, 0, [1, 2], [1, 2]),
    Case("sixty batches, Zipf", _drawn, 40, 500, 30),
    Case("sixty batches that hardly fit", _drawn, 12, 200, 30),
    mistakes={
        ("self.held.move_to_end(row)", "pass"): (
            "That is first in, first out: what changes about a row that is looked up while it is there?"
        ),
        ("popitem(last=False)", "popitem()"): (
            "That evicts the row that came in last. Which end of the order is oldest?"
        ),
        ("missing[: self.slots - hits]", "missing"): (
            "A batch with more rows than slots evicts its own rows here: read step 4 again."
        ),
    },
    variants=(_ListCache, _ClockCache),
    hint="Follow one small case by hand, such as two slots and batches of two rows: which rows are there, in which "
    "order, after each of the four steps?",
    explanation="A dictionary that remembers an order is all that LRU needs. The kit's cache keeps arrays, for speed.",
)

# %% stream-text [markdown]
r"""
Lookups often follow Zipf's law. The probability of the $r$-th most popular row is $P(r) \propto r^{-s}$; with $s = 0$ all rows are equally likely. A batch here is 1,024 lookups in a table of 10,000 rows.
"""

# %% stream
import numpy as np

num_rows, lookups, batches = 10_000, 1024, {"smoke": 20, "standard": 100, "full": 400}[profile]


def drawn(exponent):
    cumulated, rng = apparatus.zipf_shares(num_rows, exponent).cumsum(), np.random.default_rng(seed)
    return np.searchsorted(cumulated, rng.random((2 * batches, lookups)) * cumulated[-1])


# %% replay-text [markdown]
"""
### Write 12.replay

`replay(cache, batches)` shows a cache all batches, in their order, and returns a pair: the hit rate, and the mean number of rows that a batch has to fetch.

- `batches` is a sequence of integer arrays of any shape. Each array has the rows that one batch looks up. A batch may name a row many times.
- The cache is asked once per batch, for the distinct rows as a list.
- A missing row is fetched once per batch, so one of its lookups misses and the others hit. The *hit rate* is the share of all lookups that hit.
- The first half of the batches (rounded down) fills the cache and does not count.
"""

# %% answer 12.replay
import numpy as np


def replay(cache, batches) -> tuple[float, float]:
    """Hit rate of all lookups, and rows fetched per batch, in the second half of the batches."""
    ### BEGIN SOLUTION
    fetched = lookups = 0
    warm_up = len(batches) // 2
    for number, batch in enumerate(batches):
        rows = np.unique(batch).tolist()
        missing = len(rows) - cache.look_up(rows)
        if number >= warm_up:
            fetched += missing
            lookups += np.size(batch)
    return 1 - fetched / lookups, fetched / (len(batches) - warm_up)
    ### END SOLUTION


# %% check 12.replay points=4
check("12.replay", replay)


# %% checks
def _replayed(code: Any, slots: int, *shape: int, rows: int = 40) -> Any:
    return list(code(LruCache(slots), np.random.default_rng(slots).zipf(1.4, shape) % rows))


def _replay_lists(cache, batches):
    missing, size = [], []
    for batch in batches:
        rows = sorted(set(np.asarray(batch).ravel().tolist()))
        missing.append(len(rows) - cache.look_up(rows))
        size.append(np.asarray(batch).size)
    half = len(missing) // 2
    return 1 - sum(missing[half:]) / sum(size[half:]), float(np.mean(missing[half:]))


EXERCISES["12.replay"] = WrittenExercise(
    replay,
    Case("ten batches of eight lookups", _replayed, 5, 10, 8),
    Case("an odd number of batches", _replayed, 7, 9, 16),
    Case("batches of two dimensions", _replayed, 12, 12, 6, 4),
    Case("a cache without slots", _replayed, 0, 8, 20),
    mistakes={
        ("lookups += np.size(batch)", "lookups += len(rows)"): (
            "That is the share of distinct rows. A row that a batch names ten times is ten lookups."
        ),
        ("    warm_up = len(batches) // 2\n", "    warm_up = 0\n"): (
            "The empty cache counts here, too: read the last item."
        ),
        ("return 1 - fetched / lookups, ", "return fetched / lookups, "): "That is the share that misses.",
    },
    variants=(_replay_lists,),
    hint="Ask the cache for the distinct rows of each batch. What is missing is fetched once; compare it with all "
    "lookups of the batches that count.",
    explanation="Hit rate and rows to fetch are two views of one count. A step pays for the second.",
)

# %% hit-guess-text [markdown]
"""
**What is the hit rate at exponent 1.1 with a tenth of the rows cached?**
"""

# %% guess-hit
guess("12.hit_rate", 0.5)

# %% hit-run-text [markdown]
"""
The measured rates are those of your cache. With no slots only a batch's own repeats hit. The predicted rate is the share of lookups that name one of the most popular rows, as many as the cache has slots. No cache can do better for single, independent lookups.
"""

# %% hit-run
rates, cached = [], (0, 0.01, 0.03, 0.1, 0.3)
for exponent in (0.0, 0.8, 1.1, 1.4):
    stream, popular = drawn(exponent), apparatus.zipf_shares(num_rows, exponent).cumsum()
    for slots in (round(share * num_rows) for share in cached):
        rates.append((exponent, slots / num_rows, "measured", replay(LruCache(slots), stream)[0]))
        rates.append((exponent, slots / num_rows, "predicted", popular[slots - 1] if slots else 0.0))
rates = pd.DataFrame(rates, columns=["exponent", "cached share", "provenance", "hit rate"])
mine_rate = rates.query("exponent == 1.1 and `cached share` == 0.1 and provenance == 'measured'")["hit rate"].item()
reveal("12.hit_rate", mine_rate)

# %% rates-figure-text [markdown]
"""
Each exponent has a colour. Solid lines are your cache, and dashed lines are the most popular rows. Where does the cache answer *more* than the most popular rows would? (A row that a batch names ten times is fetched once.)
"""

# %% rates-figure
figure = labkit.plots.figure_sweep(rates, x="cached share", y="hit rate", color="exponent")
title = f"At exponent 1.1 a tenth of the rows answers {mine_rate:.0%} of the lookups"
labkit.plots.show(figure.update_layout(title={"text": title}, meta={"finding": title + "."}))

# %% step-text [markdown]
"""
## A step of rows that live elsewhere

### Write 12.step

`placed_step(read, write, categorical, loss_of, lr)` takes one step of plain SGD on a table that it never sees, and returns the loss, detached.

- `read(rows)` returns a copy of the values (U, D) of distinct rows (U,). `write(rows, values)` replaces them. A store keeps numbers, not gradients: detach what you write.
- `categorical` int64 (B, L) has the rows that each sample names. A sample's bag is the *sum* of its rows.
- `loss_of(sums)` makes the loss of the sums (B, D), with the layers that come after.

1. Find the distinct rows and, for each lookup, the position of its row among them. Read each row once.
2. Look up in the values that you read, with `F.embedding_bag`. Then compute the loss, and go backward through the layers that come after, too: they need their gradients.
3. Write back what SGD makes of the rows. Only the rows that were read have a gradient.

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
def _steps(code: Any, *, rows: int = 12, dim: int = 3, batch: int = 5, pooling: int = 2, steps: int = 1) -> Any:
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
        losses.append(code(read, write, categorical, lambda sums: (sums.tanh() @ layer).sigmoid().square().mean(), 0.5))
    return {
        "losses": [loss.detach() for loss in losses],
        "losses that still have a gradient": sum(loss.requires_grad for loss in losses),
        "the table": table,
        "the gradient of the layer after the tables": layer.grad,
        **{f"rows {name}": sorted(numbers) for name, numbers in moved.items()},
    }


def _step_without_bags(read, write, categorical, loss_of, lr):
    rows = torch.unique(categorical)
    values = torch.nn.Parameter(read(rows))
    optimizer = torch.optim.SGD([values], lr=lr)
    loss = loss_of(values[torch.searchsorted(rows, categorical)].sum(1))
    loss.backward()
    optimizer.step()
    write(rows, values.data)
    return loss.detach()


EXERCISES["12.step"] = WrittenExercise(
    placed_step,
    Case("bags of two rows", _steps),
    Case("rows that many bags name", _steps, rows=3, batch=16, pooling=4),
    Case("a bag of one row", _steps, batch=1, pooling=1),
    Case("four steps", _steps, rows=6, steps=4),
    mistakes={
        ("weight.detach() - lr * weight.grad", "weight.detach() + lr * weight.grad"): "That climbs: the loss grows.",
        ("weight.detach() - lr * weight.grad", "weight.detach()"): (
            "That writes back what was read: without the step, nothing is learnt."
        ),
        ('mode="sum"', 'mode="mean"'): "Those are means: a bag is the sum of its rows.",
    },
    variants=(_step_without_bags,),
    hint="What has to carry a gradient is the copy that `read` returned. Compare the rows that you read, the positions "
    "that you look up and the numbers that you write: a store keeps no gradients.",
    explanation="Forward and backward never see a table: any place that reads and writes rows can hold one.",
)

# %% file-text [markdown]
"""
Here your rows live in a *file*: you read and write by indexing, and the system fetches the pages. An `nn.EmbeddingBag` with torch's SGD trains on the same bags. Are both the same after twenty steps?
"""

# %% file
from pathlib import Path

bag = torch.nn.EmbeddingBag(2000, 16, mode="sum", sparse=True)
sgd = torch.optim.SGD(bag.parameters(), lr=0.5)
Path(runs_dir).mkdir(parents=True, exist_ok=True)
table = np.memmap(Path(runs_dir) / "rows.f32", np.float32, "w+", shape=(2000, 16))
table[:] = bag.weight.detach().numpy()


def write(rows, values):
    table[rows.numpy()] = values.numpy()


# %% file-steps
def loss_of_sums(sums):
    return (sums.sum(1) - 1).square().mean() / 100


for _ in range(20):
    bags = torch.randint(2000, (64, 4))
    placed_step(lambda rows: torch.from_numpy(table[rows.numpy()]), write, bags, loss_of_sums, 0.5)
    sgd.zero_grad()
    loss_of_sums(bag(bags)).backward()
    sgd.step()
apart = float((torch.from_numpy(table) - bag.weight).detach().abs().max())
print(f"the largest difference of two weights: {apart:.1e}")

# %% places-text [markdown]
"""
## Where a cache pays

The kit's *placements* do this with all tables of a DLRM. While a step computes, they prefetch the rows of the next batch. (`labkit train dlrm --placement disk` is the command.) Four tables of 80,000 rows are trained on a hundred batches of 512 samples, with four lookups per sample and table, Zipf 1.1.
"""

# %% places-config
table_rows, steps, rounds = {"smoke": (10_000, 1, 1), "standard": (80_000, 4, 7), "full": (300_000, 8, 11)}[profile]
config = labkit.models.DlrmConfig(13, (table_rows,) * 4, 64, (256, 64), (256, 1))
budget, cache_bytes = max(2**21, config.parameter_bytes // 4), config.parameter_bytes // 10
rng = np.random.default_rng(seed)
sampler, shape = labkit.data.clicks.ZipfSampler(table_rows, 1.1, 0.0, rng), (512, 4, 4)
many = [torch.from_numpy(sampler.draw(rng, 512 * 16).reshape(shape)) for _ in range({"smoke": 12}.get(profile, 100))]
dense, label = torch.randn(512, 13), (torch.rand(512) < 0.25).float()
print(f"{config.parameter_bytes / 1e6:.0f} MB of tables; the disk may keep {budget / 1e6:.0f} MB of them in memory")

# %% ways-text [markdown]
"""
The seven places differ in where all rows are. *Model* is the memory of the model itself, so no row moves. *Process* is another process of this machine, reached over a socket. A cache holds a tenth of the rows. The disk keeps as many of its pages in memory as its budget allows, with an LRU cache of *pages*. With a cache of *rows* in front, fewer pages are kept: both caches together have the same budget.
"""

# %% ways
Placement, tenth = labkit.placement.Placement, {"kind": "cached", "cache_rows": "10%"}
PLACES = {
    "model": Placement("device"),
    "memory": Placement("host"),
    "memory + cache": Placement(**tenth),
    "disk": Placement("disk", memory_cap=budget),
    "disk + cache": Placement(**tenth, cache_over="disk", memory_cap=budget - cache_bytes),
    "process": Placement("remote"),
    "process + cache": Placement(**tenth, cache_over="remote"),
}

# %% trainer-text [markdown]
"""
`trainer` makes a model with its tables in a place. Its batches go through `ahead`, which prefetches. `take` takes steps and returns their losses, and `take_some` does so in a named place. Which places have the *same* losses as main memory, to the last bit? (*Model* adds the gradients of equal rows in another order, so the last bits may differ.)
"""


# %% trainer
def trainer(place):
    torch.manual_seed(seed)
    tables = labkit.placement.placed_tables(place, "sgd", folder=runs_dir)
    model = labkit.jobs.dlrm.build_model(config, "fast", tables)
    coming = labkit.placement.ahead(model.tables, cycle([(dense, rows, label) for rows in many]))
    return model, labkit.jobs.build_optimizers(model, "sgd", 0.1, "fast"), iter(coming)


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


# %% same
def take_some(name, count):
    model, optimizers, coming = trainers[name]
    return take(model, optimizers, islice(coming, count))


trainers = {name: trainer(place) for name, place in PLACES.items()}
losses = {name: take_some(name, 5 * steps) for name in PLACES}
same = [name for name, own in losses.items() if own == losses["memory"]]
print("the same losses as in memory, bit by bit:", ", ".join(same))

# %% share-text [markdown]
r"""
### Write 12.share

Before you measure, predict. A step that moves no rows takes `device_ms`. If its rows live elsewhere, it also reads `rows` rows at `us_a_row` microseconds each, and it writes as many back in the same time. These are two moves. `hidden` of them (0, 1 or 2) run in the background while the step computes. The others come after it.

`share_of_device(device_ms, rows, us_a_row, hidden)` returns the throughput as a share of the throughput without moving.

*Hint:* moves in the background follow one another, and are free only as long as the step computes.
"""


# %% answer 12.share
def share_of_device(device_ms: float, rows: float, us_a_row: float, hidden: int) -> float:
    """Throughput with rows that move, over that without."""
    ### BEGIN SOLUTION
    move_ms = rows * us_a_row / 1e3
    step_ms = max(device_ms, hidden * move_ms) + (2 - hidden) * move_ms
    return device_ms / step_ms
    ### END SOLUTION


# %% check 12.share points=3
check("12.share", share_of_device)


# %% checks
def _share_by_cases(device_ms, rows, us_a_row, hidden):
    move = rows * us_a_row * 1e-3
    waited = (2 - hidden) * move
    if hidden and hidden * move > device_ms:
        waited += hidden * move - device_ms
    return 1 / (1 + waited / device_ms)


EXERCISES["12.share"] = WrittenExercise(
    share_of_device,
    Case("nothing is hidden", lambda code: code(4.0, 500, 2.0, 0)),
    Case("reading is hidden", lambda code: code(4.0, 500, 2.0, 1)),
    Case("both are hidden", lambda code: code(4.0, 500, 2.0, 2)),
    Case("both together take longer than the step", lambda code: code(4.0, 1500, 2.0, 2)),
    Case("reading takes longer than the step", lambda code: code(4.0, 1000, 10.0, 1)),
    Case("no rows", lambda code: code(7.0, 0, 10.0, 1)),
    mistakes={
        ("max(device_ms, hidden * move_ms)", "device_ms + hidden * move_ms"): (
            "Here moves in the background take extra time even while the step computes."
        ),
        ("max(device_ms, hidden * move_ms)", "device_ms"): (
            "Here moves in the background are free however long they take."
        ),
        (" + (2 - hidden) * move_ms", ""): "Something is missing: what happens to the moves that are not hidden?",
    },
    variants=(_share_by_cases,),
    hint="Draw two lines, one for what computes and one for what moves, for hidden = 0, 1 and 2: when does the step end?",
    explanation="Prefetching is worth as much as there is computing to hide behind.",
)

# %% tier-text [markdown]
"""
How fast is each place? `us_to_read` reads a twentieth of all rows, drawn at random, and nothing else. Memory moves rows, and a disk moves *pages* of 4 KiB, 16 rows each. A quarter of the disk's pages are in memory and take no time, so the measured time is divided among the other pages. The best of three readings counts. (The memory behind a cache is the same memory.)
"""


# %% tier
def us_to_read(place, rows_a_place=1, fetched=1.0):
    times_s = []
    for _ in range(3):
        rows = np.unique(rng.integers(0, 4 * table_rows, 4 * table_rows // 20))
        began = time.perf_counter()
        trainers[place][0].tables.store.peek(rows)
        times_s.append((time.perf_counter() - began) / len(np.unique(rows // rows_a_place)) / fetched)
    return 1e6 * min(times_s)


# %% speeds
us = {"memory": us_to_read("memory"), "disk": us_to_read("disk", 16, 3 / 4), "process": us_to_read("process")}
print({place: f"{each:.2g} µs" for place, each in us.items()}, "a row, or a page of the disk (measured)")

# %% moved-text [markdown]
"""
How many rows or pages move per step? Your `replay` counts them. Without a cache, the distinct rows of a batch move. With a cache, only the rows that it misses do. From the disk, the pages that an LRU of pages misses move. Behind a cache of rows a page is in memory as often as there is room for it, because the cache has answered the popular rows already.

Reading is hidden everywhere except in *process*, where a step waits until the previous step's rows are written. A cache also writes evicted rows back in the background.
"""

# %% moved
stream = [(rows.numpy() + table_rows * np.arange(4)[:, None]).ravel() for rows in many]
pages_held = budget // 4096 * 7 // 8  # the rest is for pages on their way to the disk
distinct, missing = (replay(LruCache(slots), stream)[1] for slots in (0, 4 * table_rows // 10))
pages = replay(LruCache(pages_held), [rows // 16 for rows in stream])[1]
on_disk = 1 - (budget - cache_bytes) / config.parameter_bytes
moves = {"memory": (distinct, 1), "memory + cache": (missing, 2), "disk": (pages, 1)}
moves |= {"disk + cache": (missing * on_disk, 2), "process": (distinct, 0), "process + cache": (missing, 2)}
print(f"per step: {distinct:,.0f} distinct rows, {missing:,.0f} missing in the cache, {pages:,.0f} pages missing")

# %% share-guess-text [markdown]
"""
**1. With the cache in front of main memory, which share of the throughput without moving is left? 2. How many times as fast does the cache of rows make a step from the disk?** Your function's predictions come after your guesses.
"""

# %% guess-share
guess("12.memory_cache", 0.5)
guess("12.disk_gain", 5, "times")

# %% turns-text [markdown]
"""
In `paired_times` all places take a turn in each round, so whatever slows the machine slows all of them. `ratio` is the throughput of one place divided by that of another. Its 95 % interval over the rounds is computed on logarithms.
"""


# %% turns
def ratio(place, other):
    return np.exp(labkit.tta.mean_interval(np.log(taken[other] / taken[place])))


taken = paired_times({name: partial(take_some, name, steps) for name in PLACES}, rounds)
shares = pd.DataFrame({name: ratio(name, "model") for name in moves}, ["share", "low", "high"]).T
gain = ratio("disk + cache", "disk")
reveal("12.memory_cache", shares.loc["memory + cache", "share"])
reveal("12.disk_gain", gain[0])

# %% shares-text [markdown]
"""
Dots with 95 % intervals are measured. Squares are the predictions of your function. A single round has no interval. In which places does the cache help, and where does the prediction leave something out?
"""

# %% shares
device_ms = 1e3 * taken["model"].median() / steps
us_of = {name: us[name.removesuffix(" + cache")] for name in moves}
shares["predicted"] = [share_of_device(device_ms, rows, us_of[name], hidden) for name, (rows, hidden) in moves.items()]
labkit.plots.show(apparatus.figure_shares(shares, f"A cache makes the disk {gain[0]:.1f} times as fast (measured)"))
labkit.plots.show(shares.rename(columns={"share": "share, measured", "predicted": "share, predicted"}))
print(f"a step without moving: {device_ms:.3g} ms; the disk gains {gain[0]:.2f} times ({gain[1]:.2f} to {gain[2]:.2f})")

# %% network-text [markdown]
"""
The other process is on this machine, so its rows cross no network. Over a network of 1 Gbit/s a row of 256 bytes would take another 2.05 µs. What does your function say then? The cell after it ends the servers and removes the files.
"""

# %% network
over_network = {
    name: share_of_device(device_ms, moves[name][0], us["process"] + 2.05, moves[name][1]) for name in moves
}
print({name: f"{over_network[name]:.2f}" for name in ("process", "process + cache")}, "at 1 Gbit/s (predicted)")

# %% close
for model, *_ in trainers.values():
    if hasattr(model.tables, "store"):
        model.tables.store.close()
trainers.clear()
(Path(runs_dir) / "rows.f32").unlink()

# %% why-cached-text [markdown]
"""
### Explain 12.why_cached

In two or three sentences: what did the cache change in front of memory, disk and process? Explain it by the number of rows or pages that move, and by the time of each. Where would you put a cache?
"""

# %% explain 12.why_cached points=2
### BEGIN SOLUTION
answer = model_answer("12.why_cached")
### END SOLUTION
explain("12.why_cached", answer)

# %% checks
EXERCISES["12.why_cached"] = Explanation(
    "numbers: the shares or the gain with and without the cache in two places at least, with the intervals",
    "why: a row from memory costs about as much as the index of the cache, a page of the disk far more, and the "
    "cache of rows holds popular rows alone where a page holds 15 others",
    "trade-off: the place where the cache is worth its memory, and one where it is not",
    model="In front of the disk the cache makes a step 2.5 times as fast (2.2 to 2.8): it keeps 0.12 of the throughput "
    "instead of 0.05. In front of memory it keeps 0.97 (0.66 to 1.43) instead of 0.96, and in front of the other "
    "process 0.71 instead of 0.91, so no gain shows there. The cache cuts the 3,416 rows of a step to 1,310, and the "
    "disk's 1,852 pages to some 1,100. A page takes 52 µs and brings 15 rows that the step does not need. A row takes "
    "0.3 µs from memory and 1.6 from the process, about as much as the cache's own index. So I would spend memory on a cache of rows where rows come from a "
    "disk or a slow network, and not in front of memory.",
    half="The cache makes the disk 2.5 times as fast and gains nothing in front of memory, 0.97 instead of 0.96, because "
    "a page of the disk takes 52 µs and a row of memory 0.3.",
)

# %% compress-text [markdown]
"""
## Fewer rows

The other way out is smaller tables that fit. *Hashing* to M rows lets categories share a row. *Quotient-remainder* (Shi et al., KDD 2020, arXiv 1909.02107) gives each category the product of two rows, and no other category has the same pair. Both take a tenth of the bytes here. The click log is generated, `synthetic-small`: 8 tables, 50,000 samples, batch 128.

**How much validation AUC does hashing to a tenth lose after one epoch?**
"""

# %% guess-fewer
guess("12.hash_loss", 0.03)

# %% epochs-text [markdown]
"""
Each kind of table trains for three epochs with the same seeds. `auc_by_epoch` trains one kind with one seed. After each epoch it measures the AUC twice: on the training split and on the validation split. All kinds and seeds take about a minute.
"""

# %% epochs
log = labkit.data.clicks.load_clicks("synthetic-small")
small = labkit.models.DlrmConfig(len(log.dense_names), log.table_rows, **labkit.jobs.get_preset("dlrm", "tour").model)
epochs, seeds, batch_size = {"smoke": (1, 2, 1024), "standard": (3, 3, 128), "full": (4, 10, 128)}[profile]
PLAIN, FEWER = labkit.fast.EmbeddingTables, labkit.models.CompressedTables
KINDS = {"all rows": PLAIN}
KINDS["hashed to 10 %"] = partial(FEWER, method="hash", share=0.1, tables=PLAIN)
KINDS["quotient-remainder, 10 %"] = partial(FEWER, method="quotient-remainder", share=0.1, tables=PLAIN)


# %% train
def auc_by_epoch(kind, own_seed):
    torch.manual_seed(own_seed)
    model = labkit.jobs.dlrm.build_model(small, "fast", KINDS[kind])
    optimizers = labkit.jobs.build_optimizers(model, "adam", 2e-3, "fast")
    batches = labkit.data.clicks.ClickBatches(log.split("train"), batch_size, own_seed)
    for epoch in range(1, epochs + 1):
        take(model, optimizers, batches)
        for split in ("train", "validation"):
            yield kind, own_seed, epoch, split, labkit.jobs.evaluate(model, log.split(split), "fp32", "cpu")["auc"]


# %% train-all
rows = [row for kind in KINDS for each in range(seed, seed + seeds) for row in auc_by_epoch(kind, each)]
aucs = pd.DataFrame(rows, columns=["tables", "seed", "epoch", "split", "auc"]).assign(provenance="measured")

# %% fewer-text [markdown]
"""
The first table has the AUC *lost* compared with all rows, seed by seed, with a 95 % interval. A negative loss is a gain. The second table has the means of both splits. In the figure, points are seeds, and lines are their medians.
"""

# %% fewer
by_seed = aucs.pivot(index="seed", columns=["tables", "split", "epoch"], values="auc")
lost = {
    (kind, epoch): labkit.tta.mean_interval(
        by_seed["all rows", "validation", epoch] - by_seed[kind, "validation", epoch]
    )
    for kind in list(KINDS)[1:]
    for epoch in (1, epochs)
}
reveal("12.hash_loss", lost["hashed to 10 %", 1][0])
labkit.plots.show(pd.DataFrame(lost, ["AUC lost, measured", "low", "high"]).T.rename_axis(["tables", "epoch"]))
means = by_seed.mean().unstack(["split", "epoch"])
labkit.plots.show(means.set_axis([f"{split}, epoch {epoch}, measured" for split, epoch in means.columns], axis=1))

# %% fewer-figure
figure = labkit.plots.figure_sweep(aucs[aucs["split"] == "validation"], x="epoch", y="auc", color="tables")
fell = by_seed["all rows", "validation", 1].mean() - by_seed["all rows", "validation", epochs].mean()
title = f"From epoch 1 to {epochs}, tables with all rows lose {fell:.3f} of validation AUC"
labkit.plots.show(figure.update_layout(title={"text": title}, meta={"finding": title + "."}))

# %% why-fewer-text [markdown]
"""
### Explain 12.why_fewer

Smaller tables can have a *higher* AUC. Two explanations compete. Tables with all rows may be under-trained after one epoch. Then more epochs help them most. Or rows that few samples name may fit these samples too well. Then more epochs hurt them most.

In two or three sentences: which of the two do your numbers support? Use the training and the validation AUC after the first and the last epoch. Which tables would you take, and for how many epochs?
"""

# %% explain 12.why_fewer points=2
### BEGIN SOLUTION
answer = model_answer("12.why_fewer")
### END SOLUTION
explain("12.why_fewer", answer)

# %% checks
EXERCISES["12.why_fewer"] = Explanation(
    "numbers: training and validation AUC of all rows after the first and the last epoch, and the loss or gain of "
    "smaller tables with its interval",
    "why: training AUC rises while validation AUC falls, so it is over-fitting; shared rows see more samples each",
    "trade-off: bytes and AUC of the tables chosen, and the number of epochs for which that holds",
    model="All rows over-fit: from epoch 1 to 3 their training AUC rises from 0.813 to 0.933 while their validation AUC "
    "falls from 0.769 to 0.728; under-training would have raised both. Hashed to a tenth, the loss of 0.010 (-0.017 to "
    "0.037) after one epoch is none that three seeds show, and after three epochs it is a gain of 0.029 (0.021 to "
    "0.036), because a row that ten categories share sees ten times the samples. I would take quotient-remainder with a "
    "tenth of the bytes and two epochs, 0.775; or all rows and stop after one, 0.769.",
    half="Hashing to a tenth gains 0.029 after three epochs because all rows over-fit: their training AUC is 0.933 and "
    "their validation AUC 0.728.",
)

# %% score-text [markdown]
"""
How good were your guesses? The cell after the scores keeps the numbers of this notebook, each with bounds that hold on any machine.
"""

# %% score
from labkit_course import results, score_notebook

score_notebook()

# %% results tags=["results"]
results(
    adam_gb=(held.iloc[-1, 0], 288, 290),
    hit_rate=(mine_rate, 0.75, 0.82),
    same_bits=(len(same), 6, 7),
    memory_share=(shares.loc["memory", "share"], 0.1, 1.5),
    disk_share=(shares.loc["disk", "share"], 0.0002, 1.2),
    disk_gain=(gain[0], 0.5, 40),
    hash_loss=(lost["hashed to 10 %", 1][0], -0.05, 0.06),
    all_rows_lose=(None if profile == "smoke" else fell, 0, 0.1),
)

# %% assistant disk_gain above=1.5 [markdown]
"""
The cache answers about 80 % of the lookups, but a step also computes and writes. So the cache makes training from the disk faster, more than 1.5 times.
"""

# %% recap [markdown]
"""
## Recap

- Tables outgrow a device by their rows and by what an optimiser keeps for each row. Which memory holds them is arithmetic.
- Skew makes caches work. At Zipf 1.1 an LRU of a tenth of the rows answers most lookups. When all rows are equally likely, it answers about a tenth of them and a batch's own repeats.
- A step needs the distinct rows of its batch, so tables can live wherever rows can be read and written, with the same losses bit by bit.
- A cache pays where what it saves costs more than the cache itself. That depends on the place behind it: measure before you add one.
- Fewer rows can gain or lose AUC. Training AUC next to validation AUC shows whether rows over-fit.

**Next:** [Batch size and accuracy](13_batch_size_and_accuracy.ipynb)
"""

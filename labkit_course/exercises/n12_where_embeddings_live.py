"""What students write in 12_where_embeddings_live: a cache of rows, its hit rates, a step of rows that live elsewhere.

Shapes: B batch, L pooling factor, R rows of a table, U distinct rows of a batch, D embedding dim.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from labkit.placement import expected_hit_rate
from labkit_course.explanation import Explanation
from labkit_course.written import Case, WrittenExercise

# --- the cache


class LruCache:
    def __init__(self, slots: int):
        self.slots, self.held = slots, OrderedDict()  # the least recent first

    def look_up(self, rows) -> int:
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


def _hits(slots: int, *batches: list[int]) -> Callable[[Any], list[int]]:
    def ask(code: Any) -> list[int]:
        cache = code(slots)
        return [int(cache.look_up(rows)) for rows in batches]

    return ask


def _drawn(slots: int, rows: int, size: int, count: int = 60) -> Callable[[Any], list[int]]:
    rng = np.random.default_rng(slots)
    return _hits(slots, *(np.unique(rng.zipf(1.3, size) % rows).tolist() for _ in range(count)))


LRU = WrittenExercise(
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

# --- its hit rates


def zipf_best_hit_rate(num_rows: int, exponent: float, cache_rows: int) -> float:
    shares = np.arange(1.0, num_rows + 1) ** -exponent
    return float(shares[:cache_rows].sum() / shares.sum())


BEST = WrittenExercise(
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

HEURISTIC = WrittenExercise(
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

# --- a step of rows that live elsewhere


def placed_step(read, write, categorical, loss_of, lr):
    rows, places = categorical.unique(return_inverse=True)  # (U,), (B, L)
    weight = read(rows).requires_grad_()  # (U, D)
    loss = loss_of(F.embedding_bag(places, weight, mode="sum"))
    loss.backward()
    write(rows, weight.detach() - lr * weight.grad)
    return loss.detach()


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
            table[given] = values.detach()

        losses = []
        for _ in range(steps):
            categorical = torch.randint(rows, (batch, pooling), generator=drawn)
            losses.append(
                code(read, write, categorical, lambda sums: (sums.tanh() @ layer).sigmoid().square().mean(), 0.5)
            )
        return {
            "losses": [loss.detach() for loss in losses],
            "the table": table,
            "the gradient of the layer after the tables": layer.grad,
            **{f"rows {name}": sorted(numbers) for name, numbers in moved.items()},
        }

    return ask


STEP = WrittenExercise(
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
        (
            "rows, places = categorical.unique(return_inverse=True)",
            "rows, places = categorical.flatten(), torch.arange(categorical.numel()).view(categorical.shape)",
        ): "A row that is named twice is read once, and has one gradient, the sum: take the distinct rows first.",
    },
    hint="`rows, places = categorical.unique(return_inverse=True)`; read the rows, `requires_grad_()`, "
    '`F.embedding_bag(places, weight, mode="sum")`, loss, backward, write what SGD makes of them.',
    explanation="Forward and backward never see a table: any place that reads and writes rows can hold one.",
)

# --- what moving takes


def share_of_device(device_ms: float, move_ms: float, hidden: int) -> float:
    step_ms = max(device_ms, hidden * move_ms) + (2 - hidden) * move_ms
    return device_ms / step_ms


def _share(*numbers: float) -> Callable[[Any], float]:
    return lambda code: code(*numbers)


SHARE = WrittenExercise(
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
        (
            "device_ms / step_ms",
            "step_ms / device_ms",
        ): "A share of the device's throughput: its time over the longer one.",
    },
    hint="step = max(device_ms, hidden · move_ms) + (2 − hidden) · move_ms; the share is device_ms over that.",
    explanation="Prefetching is worth as much as there is computing to hide behind.",
)

EXERCISES = {
    "12.lru": LRU,
    "12.best_rate": BEST,
    "12.heuristic": HEURISTIC,
    "12.step": STEP,
    "12.share": SHARE,
    "12.why_cached": Explanation(
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
    ),
    "12.why_stale": Explanation(
        rubric=(
            "numbers: the AUC lost at staleness 1 and 64, by seeds, and the throughput with staleness 1 beside 0",
            "why: gradients of rows that have moved since",
            "trade-off: which staleness is worth its loss",
        ),
        model="Staleness 1 costs 0.0007, 0.0002 and -0.0007 of AUC, nothing that three seeds show, and takes the remote"
        " tables from 0.47 to 0.77 of the device; 64 costs 0.045 to 0.070, in each seed, and 16 between 0.0005 "
        "and 0.017, which three seeds leave open. With 64, the gradients of two thirds of this epoch's 98 steps "
        "are those of rows as they were at first, and they push again where others have pushed. I would take 1: "
        "it hides the network, and more gains nothing once nobody waits.",
    ),
}

# %% opening [markdown]
"""
# Make it fast

After this notebook you will be able to

- **compare** two steps in pairs, and say with an interval how many times as fast one is;
- **write** what makes a DLRM's step fast: a gather and a row-wise Adam instead of sparse tensors, and a backward pass of your own;
- **decide** by measuring whether bf16 and kept memory pay on a machine;
- **choose** how often to evaluate, and on how many rows;
- **show** what all of it comes to in time to target, over several seeds.

**Time:** 120 minutes with eight exercises of code, in two halves: a step, 95 minutes, and a run, 25. The machine computes for about four minutes on 2 CPU cores. No GPU is needed.

**Prerequisites:** [Budgets that bind](02_budgets_that_bind.ipynb), [Train a DLRM](10_train_dlrm.ipynb) and [Profile top-down](32_profile_top_down.ipynb).
"""

# %% checks
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from labkit_course.apparatus import FakeClock
from labkit_course.exercise import Case, Explanation, WrittenExercise
from labkit_course.lab import from_lab

# Shapes: B batch, F tables, L lookups a bag, D embedding dim, R rows of all tables, V vectors that meet, P pairs.
# Shapes: B batch, F tables, L lookups a bag, D embedding dim, R rows of all tables, U distinct rows, V vectors that meet.
drawn_vectors = from_lab("10", "drawn_vectors")
gradient = from_lab("10", "gradient")
EXERCISES = {}

# %% parameters-prose [markdown]
"""
The next cell holds what you may change.
"""

# %% parameters tags=["parameters"]
profile = "standard"  # smoke, standard or full: how many pairs and seeds
runs_dir = "runs"  # run folders are made in its subfolder notebooks

# %% plain-prose [markdown]
"""
## What both halves need

Everything begins with what you wrote: the model, its optimisers and its loop from [Train a DLRM](10_train_dlrm.ipynb), the interval from [Budgets that bind](02_budgets_that_bind.ipynb), the step with phases and Amdahl's bound from [Profile top-down](32_profile_top_down.ipynb). Where you have none, labkit's stand in. One thread computes.
"""

# %% mine
from pathlib import Path

import torch

import labkit
from labkit_course import check, claim, explain, guess, mine, model_answer, reveal

torch.set_num_threads(1)
MyDlrm, make_optimizers, loop = mine("10.model"), mine("10.rows"), mine("10.loop")
make_step, amdahl, ratio_interval = mine("32.step"), mine("32.amdahl"), mine("02.ratio")
log = labkit.data.clicks.load_clicks("synthetic-small" if profile == "smoke" else "synthetic")

# %% model-prose [markdown]
"""
The model has the shape of the click log and of the preset `tour`. All models below begin with the same weights for the same seed.
"""

# %% model
config = labkit.models.DlrmConfig(len(log.dense_names), log.table_rows, **labkit.jobs.get_preset("dlrm", "tour").model)


def plain_model(seed=0, config=config):
    torch.manual_seed(seed)
    return MyDlrm(config)


# %% fast-parts-prose [markdown]
"""
The fast model and its optimisers are for later: `FastDlrm` and `RowAdam` you write in the first half.
"""


# %% fast-parts
def fast_parts(interaction, bf16=False, seed=0, config=config):
    model = FastDlrm(plain_model(seed, config), interaction, bf16)
    return model, [torch.optim.Adam(model.parameters(), lr=2e-3), RowAdam(model, lr=2e-3)]


# %% ready-prose [markdown]
"""
A step takes one of twenty batches of 512 rows, which lie ready: the input is not what this notebook is about.
"""

# %% ready
from itertools import cycle, islice

rows = log.split("train")
ready = list(islice(labkit.data.clicks.ClickBatches(rows, batch_size=512, seed=0), 20))

# %% step-prose [markdown]
"""
## First half: a step

Each half runs in a fresh kernel, after the cells above this heading. This one begins with the plain step:
"""

# %% plain-step
model = plain_model()
plain = make_step(model, make_optimizers(model, lr=2e-3), cycle(ready))

# %% profile-prose [markdown]
"""
Where does it go? The profile of [Profile top-down](32_profile_top_down.ipynb), once more: the operators that Python and autograd call for the tables, for the interaction and for the layers, in ms of one step. The optimiser's time is nearly all for the tables. The profiler takes time itself, most for small operators, so the bounds below are rough.
"""

# %% profile
profiled = labkit.profiling.profile_steps(plain, Path(runs_dir) / "profiles", name="plain", skip=8, steps=5)
events = profiled.time.events[profiled.time.events["parent"] < 0]
optimiser = events["phase"] == "optimiser"
PARTS = {"tables": "mbedding", "interaction": "Index|index|Bmm|bmm|Transpose", "layers": "linear|Addmm|Linear"}
named = {part: events["name"].str.contains(words) & ~optimiser for part, words in PARTS.items()}
named["tables"] |= optimiser
parts_ms = {part: events.loc[own, "duration_us"].sum() / 5e3 for part, own in named.items()}
print({part: f"{ms:.3g} ms" for part, ms in parts_ms.items()}, "of one step, measured")

# %% pairs-prose [markdown]
"""
## How many times as fast

Other programs disturb a machine, and it drifts. So two steps take turns, and each pair of turns gives one ratio.

### Exercise 33.in_pairs

Write `in_pairs(old, new, rounds, steps, clock)`: two lists, the seconds of a step of `old` and of `new`, one number a round. `old` and `new` are functions without arguments, `clock` tells the time in seconds.

1. Call each once before the clock counts.
2. In a round each takes a turn of `steps` calls, and the time of a turn is divided by `steps`; the old one goes first in the first round, the new one in the second, and so on.

*Hint:* the check brings a clock of its own, so read no other.
"""

# %% answer 33.in_pairs
import time
from collections.abc import Callable


def in_pairs(
    old: Callable, new: Callable, rounds: int, steps: int, clock: Callable = time.perf_counter
) -> tuple[list[float], list[float]]:
    """Seconds of a step of each, by round, from turns in changing order."""
    ### BEGIN SOLUTION
    old_s, new_s = [], []
    old(), new()  # what the first call makes is made
    for number in range(rounds):
        turns = [(old, old_s), (new, new_s)]
        for step, seconds in turns if number % 2 == 0 else turns[::-1]:
            began = clock()
            for _ in range(steps):
                step()
            seconds.append((clock() - began) / steps)
    return old_s, new_s
    ### END SOLUTION


# %% check 33.in_pairs points=4
check("33.in_pairs", in_pairs)


# %% checks
def _in_turns(rounds: int, steps: int, *, same: bool = False) -> Callable[[Any], Any]:
    """Ask for the calls and the seconds of two steps that take ever longer."""

    def ask(code: Any) -> Any:
        clock, calls = FakeClock(), []
        old = clock.work(*(2 + call / 5 for call in range(20)), does=lambda: calls.append("o"))
        new = clock.work(*(1 + call / 9 for call in range(20)), does=lambda: calls.append("n"))
        seconds = code(old, old if same else new, rounds, steps, clock)
        order = "".join(sorted(calls[:2], reverse=True) + calls[2:])  # of the first two any is right
        return {"calls, o old and n new": order, "seconds of a step": [list(each) for each in seconds]}

    return ask


EXERCISES["33.in_pairs"] = WrittenExercise(
    in_pairs,
    module="fast",
    cases=(
        Case("a clock of its own, 4 rounds of 3 steps", _in_turns(4, 3)),
        Case("3 rounds of a single step", _in_turns(3, 1)),
        Case("a step against itself", _in_turns(2, 2, same=True)),
    ),
    mistakes={
        ("[(old, old_s), (new, new_s)]", "2 * [[(old, old_s), (new, new_s)][2 * number // rounds]]"): (
            "They have to take turns: what slows the machine later would slow the new one."
        ),
        ("turns if number % 2 == 0 else turns[::-1]", "turns"): (
            "Change who goes first from round to round, beginning with the old one."
        ),
        ("old(), new()", ""): "Call each once before the first round: what the first call makes is not to count.",
    },
    hint="Call both once. Then for each round, old and new or new and old: read `clock()`, call `steps` times, read it "
    "again, and append the difference / steps to the list of that one.",
    explanation="A drift of the machine falls on both of a pair.",
)

# %% faster-prose [markdown]
"""
Drift slows both of a pair, so it is not in their ratio. `faster` makes pairs, and your `ratio_interval` of [Budgets that bind](02_budgets_that_bind.ipynb) makes of them how many times as fast the new step is, `(ratio, low, high)`: seconds of the old one over those of the new one.
"""

# %% faster
rounds, steps = {"smoke": (3, 4), "standard": (15, 15), "full": (40, 30)}[profile]


def faster(old, new):
    old_s, new_s = in_pairs(old, new, rounds, steps)
    return ratio_interval(new_s, old_s)


# %% same-prose [markdown]
"""
Does this tell apart what is the same? The plain step against a copy of it: 1 should lie in the interval, and does 19 times of 20. Where it does not, run the cell again; where it never does, something disturbs the machine, and gains as small as this one mean nothing.
"""

# %% same
model = plain_model()
copy = make_step(model, make_optimizers(model, lr=2e-3), cycle(ready))
same = faster(plain, copy)
print(f"{same[0]:.3g} times as fast ({same[1]:.3g} to {same[2]:.3g}), measured")

# %% gains-prose [markdown]
"""
`gain` measures an idea against the step before it, keeps it for the figure, and prints it next to the bound that was predicted, if there was one.
"""

# %% gain
gains = {}


def gain(change, old, new, at_most=None):
    ratio, low, high = faster(old, new)
    gains[change] = {"change": change, "measured": ratio, "low": low, "high": high, "at_most": at_most}
    bound = f"; at most {at_most:.3g}, predicted" if at_most else ""
    print(f"{change}: {ratio:.3g} times as fast ({low:.3g} to {high:.3g}, {rounds} pairs){bound}")
    return ratio


# %% gather-prose [markdown]
"""
## Idea 1: gather instead of sparse tensors

For each table the plain step makes a sparse gradient, which SparseAdam sorts, sums (*coalesces*) and applies by a dozen small operations. But a sparse gradient is only rows and numbers, and we can keep those ourselves:

- all tables are **one** tensor `weight` (R, D), and a lookup is one gather from it;
- what was found becomes a **leaf** of autograd, so that the backward pass ends there with a plain gradient for each lookup;
- the optimiser sums by row, once for all tables, and updates those rows.

**How many times as fast will a step be?** The bound is that of a step in which tables cost nothing.
"""

# %% guess-gather
guess("33.gather", 1.5, "times as fast")

# %% ex-33-gather [markdown]
"""
### Exercise 33.gather

Write `gather(weight, starts, categorical)` for `weight` (R, D), the row at which each table begins, `starts` (F,), and `categorical` (B, F, L) with numbers within each table. Return `rows` (B, F, L), counted over all tables, and `found` (B, F, L, D).

1. Add each table's start to its column of numbers.
2. `found` is a leaf that needs a gradient; the weight gets none.

*Hint:* `starts.unsqueeze(1)` is (F, 1), which broadcasts.
"""

# %% answer 33.gather
import torch
import torch.nn.functional as F
from torch import Tensor


def gather(weight: Tensor, starts: Tensor, categorical: Tensor) -> tuple[Tensor, Tensor]:
    """The rows (B, F, L) that are looked up and what is found, a leaf (B, F, L, D)."""
    ### BEGIN SOLUTION
    rows = categorical + starts.unsqueeze(1)  # (B, F, L), counted over all tables
    return rows, F.embedding(rows, weight.detach()).requires_grad_()
    ### END SOLUTION


# %% check 33.gather points=4
check("33.gather", gather)


# %% checks
def _log(lookups: int = 2, batch: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(4)
    lengths = torch.tensor([3, 5, 2])
    drawn = (torch.rand(batch, 3, lookups, generator=generator) * lengths.unsqueeze(1)).int()
    return torch.randn(10, 4, generator=generator), lengths.cumsum(0) - lengths, drawn


def _gathered(code: Any) -> dict[str, Any]:
    weight, starts, categorical = _log()
    weight.requires_grad_()
    _, found = code(weight, starts, categorical)
    kept = {"needs a gradient": bool(found.requires_grad), "is a leaf": bool(found.is_leaf)}
    if all(kept.values()):
        (found * torch.arange(1.0, found.numel() + 1).view_as(found)).sum().backward()
    return kept | {"gradient": found.grad if found.is_leaf else None, "the weight has one": weight.grad is not None}


EXERCISES["33.gather"] = WrittenExercise(
    gather,
    module="fast",
    cases=(
        Case("three tables and two lookups a bag", lambda code: list(code(*_log()))),
        Case("one lookup of one row", lambda code: list(code(*_log(lookups=1, batch=1)))),
        Case("where the gradient goes", _gathered),
    ),
    mistakes={
        (" + starts.unsqueeze(1)", ""): "All tables look into the first one: add to each the row at which it begins.",
        (".detach()).requires_grad_()", ")"): (
            "The gradient has to stop at what was found: a leaf of its own, so that no dense gradient of all rows is "
            "made (weight.detach(), then .requires_grad_())."
        ),
        (".requires_grad_()", ""): "Nothing can learn now: what was found needs a gradient, .requires_grad_().",
    },
    hint="rows = categorical + starts of shape (F, 1); F.embedding(rows, weight.detach()).requires_grad_().",
    explanation="One call finds the rows of all tables, and their gradient comes back as a plain tensor.",
)

# %% ex-33-sum-rows [markdown]
"""
### Exercise 33.sum_rows

A row that a batch names twice gets the **sum** of both gradients. Write `sum_rows(rows, gradient)` for `rows` of any shape and `gradient` of that shape and a last dimension D. Return the distinct rows (U,) in ascending order, and their sums (U, D).

1. Which rows are there, and which place among them has each lookup? `unique` gives both.
2. Add each lookup's gradient at its place.

*Hint:* `sums[place] = ...` and `+=` keep only the last of a row; `index_add_` adds them all.
"""

# %% answer 33.sum_rows
import torch
from torch import Tensor


def sum_rows(rows: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """The distinct rows (U,), ascending, and the sum (U, D) of what each of them gets."""
    ### BEGIN SOLUTION
    distinct, place = rows.flatten().unique(return_inverse=True)  # (U,), (B F L,)
    sums = gradient.new_zeros(len(distinct), gradient.shape[-1])
    return distinct, sums.index_add_(0, place, gradient.flatten(0, -2))
    ### END SOLUTION


# %% check 33.sum_rows points=4
check("33.sum_rows", sum_rows)


# %% checks
def _named(rows: list, width: int = 3) -> tuple[Tensor, Tensor]:
    rows = torch.tensor(rows)
    return rows, torch.randn(*rows.shape, width, generator=torch.Generator().manual_seed(rows.numel()))


EXERCISES["33.sum_rows"] = WrittenExercise(
    sum_rows,
    module="fast",
    cases=(
        Case("four rows, none twice", lambda code: list(code(*_named([9, 2, 5, 7])))),
        Case(
            "bags in which rows come up again", lambda code: list(code(*_named([[[4, 1], [9, 9]], [[1, 4], [9, 8]]])))
        ),
        Case("the same row each time", lambda code: list(code(*_named([[3], [3], [3]])))),
    ),
    mistakes={
        lambda rows, gradient: (rows.flatten(), gradient.flatten(0, -2)): (
            "The rows have to be distinct and in ascending order: rows.flatten().unique(...)."
        ),
        (
            "sums.index_add_(0, place, gradient.flatten(0, -2))",
            "torch.stack([gradient.flatten(0, -2)[place == each][-1] for each in range(len(distinct))])",
        ): "Gradients of a row that comes up again are *summed*: sums[place] = ... and += both keep the last.",
        ("gradient.flatten(0, -2))", "gradient.flatten(0, -2) / place.bincount()[place, None])"): (
            "The sum over the bags that name a row, not the mean."
        ),
    },
    hint="rows.flatten().unique(return_inverse=True) gives the distinct rows and the place of each lookup among them; "
    "index_add_ on zeros (U, D) sums the gradients by place.",
    explanation="That is what a sparse tensor's coalesce does, 26 times a step and one table at a time.",
)

# %% ex-33-adam-rows [markdown]
"""
### Exercise 33.adam_rows

Write `adam_rows(weight, moments, rows, gradient, steps, lr)`, which changes `weight` (R, D) and the two `moments` (R, D) in place, in `rows` (U,) only, by `gradient` (U, D), as Adam does:

1. first ← 0.9 first + 0.1 gradient, second ← 0.999 second + 0.001 gradient²; both are kept in `moments`.
2. Divide them by 1 − 0.9^steps and 1 − 0.999^steps (`steps` counts from 1), and subtract lr · first / (√second + 1e-8).

*Hint:* `moments[0][rows]` is a copy of these rows, to compute with; `moments[0][rows] = ...` writes them back.
"""

# %% answer 33.adam_rows
import torch
from torch import Tensor


def adam_rows(weight: Tensor, moments: tuple, rows: Tensor, gradient: Tensor, steps: int, lr: float) -> None:
    """A step of Adam on some rows of a table, in place."""
    ### BEGIN SOLUTION
    first = 0.9 * moments[0][rows] + 0.1 * gradient  # (U, D)
    second = 0.999 * moments[1][rows] + 0.001 * gradient.square()
    moments[0][rows], moments[1][rows] = first, second
    first, second = first / (1 - 0.9**steps), second / (1 - 0.999**steps)
    weight[rows] -= lr * first / (second.sqrt() + 1e-8)
    ### END SOLUTION


# %% check 33.adam_rows points=5
check("33.adam_rows", adam_rows)


# %% checks
def _updated(code: Any, *, twice: bool = False, far: bool = False, size: float = 1.0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(6)
    weight, moments = torch.randn(8, 3, generator=generator), (torch.zeros(8, 3), torch.zeros(8, 3))
    batches = [[1, 4, 6], [0, 4]] if twice else [[1, 4, 6]]
    for steps, rows in enumerate(batches, 1001 if far else 1):
        gradient = size * torch.randn(len(rows), 3, generator=generator)
        code(weight, moments, torch.tensor(rows), gradient, steps, 0.1)
    return {"weight": weight, "first moment": moments[0], "second moment": moments[1]}


EXERCISES["33.adam_rows"] = WrittenExercise(
    adam_rows,
    module="fast",
    cases=(
        Case("the first step", _updated),
        Case("a second step with other rows", lambda code: _updated(code, twice=True)),
        Case("the thousandth step", lambda code: _updated(code, far=True)),
        Case("gradients as small as 1e-5", lambda code: _updated(code, size=1e-5)),
    ),
    mistakes={
        ("first / (1 - 0.9**steps), second / (1 - 0.999**steps)", "first, second"): (
            "Both moments begin at 0: divide by 1 − 0.9**steps and 1 − 0.999**steps."
        ),
        ("second.sqrt()", "second"): "Adam divides by the *root* of the second moment.",
        ("(second.sqrt() + 1e-8)", "(second + 1e-8).sqrt()"): "Is the 1e-8 added to the second moment or to its root?",
    },
    hint="first = 0.9 · old + 0.1 · gradient, second = 0.999 · old + 0.001 · gradient²; store both; divide each by "
    "1 less its power; weight[rows] -= lr · first / (√second + 1e-8).",
    explanation="The same as torch.optim.SparseAdam, for all tables at once.",
)

# %% ex-33-model [markdown]
"""
### Exercise 33.model

Write `FastDlrm(model, interaction, bf16)`, which takes over a `MyDlrm`'s weights: its layers `bottom` and `top` as they are, and its `tables`, a list of EmbeddingBags, as one tensor `weight`, which is no parameter. `interaction` is the function that pairs vectors; `bf16` is for later.

1. `starts` (F,) holds the row at which each table begins.
2. `forward(dense, categorical)` keeps `rows` and `found` as attributes for the optimiser, and sums each bag over its lookups. It goes on as `MyDlrm` does: `interaction` pairs the bottom vector and the sums (B, V, D), and `top` gets the bottom vector and the pairs, each time in this order. All that within `torch.autocast("cpu", torch.bfloat16, enabled=self.bf16)`, and with a logit in float32.

*Hint:* `found.sum(2)` is (B, F, D); in bf16 it has to become of the bottom vector's type before both are concatenated.
"""

# %% answer 33.model
import torch
from torch import nn


class FastDlrm(nn.Module):
    """A DLRM whose tables are one tensor, with the weights of a MyDlrm."""

    def __init__(self, model, interaction, bf16=False):
        ### BEGIN SOLUTION
        super().__init__()
        self.bottom, self.top, self.interaction, self.bf16 = model.bottom, model.top, interaction, bf16
        self.weight = torch.cat([table.weight.detach() for table in model.tables])  # (R, D), no parameter
        lengths = torch.tensor([len(table.weight) for table in model.tables])
        self.starts = lengths.cumsum(0) - lengths  # (F,)
        ### END SOLUTION

    def forward(self, dense, categorical):
        ### BEGIN SOLUTION
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
            bottom = self.bottom(dense)  # (B, D)
            self.rows, self.found = gather(self.weight, self.starts, categorical)  # (B, F, L), (B, F, L, D)
            sums = self.found.sum(2).to(bottom.dtype)  # (B, F, D)
            pairs = self.interaction(torch.cat([bottom.unsqueeze(1), sums], dim=1))  # (B, P)
            logit = self.top(torch.cat([bottom, pairs], dim=1)).squeeze(1)
        return logit.float()
        ### END SOLUTION


# %% check 33.model points=6
check("33.model", FastDlrm)


# %% checks
class _Plain(nn.Module):
    """What a `MyDlrm` has, with three small tables."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.bottom = nn.Sequential(nn.Linear(5, 4), nn.ReLU())
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, 4, mode="sum") for rows in (3, 5, 2))
        self.top = nn.Sequential(nn.Linear(10, 1))


def _batch(lookups: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(lookups)
    most = torch.tensor([3, 5, 2]).unsqueeze(1)
    return torch.randn(6, 5, generator=generator), (torch.rand(6, 3, lookups, generator=generator) * most).int()


def _of_model(code: Any, lookups: int = 1) -> dict[str, Any]:
    """Logits, and what a step leaves for the optimiser."""
    given: list[tuple[int, ...]] = []

    def interaction(vectors: Tensor) -> Tensor:
        given.append(tuple(vectors.shape))
        return Pairs.apply(vectors)

    model = code(_Plain(), interaction)
    logit = model(*_batch(lookups))
    logit.sum().backward()
    return {
        "vectors that interaction was given": given,
        "logits": logit,
        "parameters, without the tables": sum(each.numel() for each in model.parameters()),
        "rows": getattr(model, "rows", None),
        "gradient of found": model.found.grad if hasattr(model, "found") else None,
    }


def _in_bf16(code: Any) -> dict[str, Any]:
    seen: list[str] = []

    def interaction(vectors: Tensor) -> Tensor:
        seen.append(str(vectors.dtype))
        return Pairs.apply(vectors)

    logit = code(_Plain(), interaction, True)(*_batch(1))
    return {"the interaction computes in": seen, "logits are": str(logit.dtype)}


EXERCISES["33.model"] = WrittenExercise(
    FastDlrm,
    module="fast",
    cases=(
        Case("three tables, one lookup a bag", _of_model),
        Case("two lookups a bag", lambda code: _of_model(code, 2)),
        Case("bf16=True", _in_bf16),
    ),
    mistakes={
        ("lengths.cumsum(0) - lengths", "lengths.cumsum(0)"): (
            "The first table begins at row 0, the second where the first ends: cumsum − lengths."
        ),
        ("lengths = ", "self.weight = nn.Parameter(self.weight)\n        lengths = "): (
            "The parameters are those of bottom and top: keep neither the model nor its tables, and weight as a tensor."
        ),
        ("logit = self.top(", "del self.rows, self.found\n            logit = self.top("): (
            "Keep rows and found as attributes: the optimiser needs them after backward."
        ),
    },
    hint="Take bottom and top over, concatenate the tables' detached weights; forward calls gather, sums the bags over "
    "dim 2, and goes on as MyDlrm does.",
    explanation="The same logits, from one table of all rows.",
)

# %% ex-33-optimiser [markdown]
"""
### Exercise 33.optimiser

Write `RowAdam(model, lr)`, the optimiser of a `FastDlrm`'s table, which your loop can call as it calls torch's: `step()` and `zero_grad()`.

1. It begins with two moments of zeros, and counts its steps.
2. A step sums `model.found.grad` by `model.rows`, and calls `adam_rows`.

*Hint:* `zero_grad` has nothing to do, for the next forward pass makes a new leaf.
"""

# %% answer 33.optimiser
import torch


class RowAdam:
    """Adam on the rows that the latest batch looked up."""

    def __init__(self, model, lr):
        ### BEGIN SOLUTION
        self.model, self.lr, self.steps = model, lr, 0
        self.moments = torch.zeros_like(model.weight), torch.zeros_like(model.weight)
        ### END SOLUTION

    @torch.no_grad()
    def step(self):
        ### BEGIN SOLUTION
        self.steps += 1
        rows, sums = sum_rows(self.model.rows, self.model.found.grad)
        adam_rows(self.model.weight, self.moments, rows, sums, self.steps, self.lr)
        ### END SOLUTION

    def zero_grad(self):
        ### BEGIN SOLUTION
        pass  # the next forward pass makes a new leaf
        ### END SOLUTION


# %% check 33.optimiser points=5
check("33.optimiser", RowAdam)


# %% checks
def _three_steps(code: Any) -> list[Tensor]:
    model = FastDlrm(_Plain(), Pairs.apply)
    optimizer = code(model, 0.05)
    for lookups in (1, 2, 3):
        model(*_batch(lookups)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [model.weight, model(*_batch(4))]


EXERCISES["33.optimiser"] = WrittenExercise(
    RowAdam,
    module="fast",
    cases=(Case("three steps", _three_steps),),
    mistakes={
        ("self.steps += 1", "self.steps = 1"): "Count the steps: the correction of the moments grows weaker with each.",
        ("torch.zeros_like(model.weight), torch.zeros_like(model.weight)", "2 * (torch.zeros_like(model.weight),)"): (
            "Two moments, two tensors of zeros: with one, each overwrites the other."
        ),
        ("pass  #", "self.model.weight.zero_()  #"): (
            "zero_grad has nothing to do here: the next forward pass makes a new leaf without a gradient."
        ),
    },
    hint="step counts, sums model.found.grad by model.rows, and calls adam_rows; zero_grad does nothing.",
    explanation="It steps as torch's optimisers do, so your loop takes it as it is.",
)

# %% gather-use-prose [markdown]
"""
Put together with the plain interaction:
"""

# %% gather-use
interaction = mine("10.interaction")


def fast_step(*settings):
    model, optimizers = fast_parts(*settings)
    return make_step(model, optimizers, cycle(ready))


# %% gather-same-prose [markdown]
"""
Are the logits still the same after three steps of each? The order of additions differs, and Adam, which divides by the root of small gradients, makes more of it. Up to 0.001 is that; more is a fault of the code.
"""

# %% gather-same
slow_model = plain_model()
new_model, optimizers = fast_parts(interaction)
for step_of in ((slow_model, make_optimizers(slow_model, lr=2e-3)), (new_model, optimizers)):
    step = make_step(*step_of, cycle(ready))
    [step() for _ in range(3)]
dense, categorical, _ = ready[0]
difference = float((slow_model(dense, categorical) - new_model(dense, categorical)).abs().max().detach())
print(f"the logits differ by {difference:.1g} at most")

# %% gather-measure-prose [markdown]
"""
And how fast is it?
"""

# %% gather-measure
gathered = fast_step(interaction)
plain_ms = sum(parts_ms.values())
bound = amdahl({"tables": parts_ms["tables"] / plain_ms})["tables"]
reveal("33.gather", gain("gather", plain, gathered, bound))

# %% ex-why-gather [markdown]
"""
### Exercise 33.why_gather

As many rows are read and written as before. Explain in two sentences where the time went, with your number and its interval, and what was given up for it.
"""

# %% explain 33.why_gather points=2
### BEGIN SOLUTION
answer = model_answer("33.why_gather")
### END SOLUTION
explain("33.why_gather", answer)

# %% checks
EXERCISES["33.why_gather"] = Explanation(
    rubric=(
        "numbers: how many times as fast, with its interval",
        "why: calls, sorts and Python that fell away, although as many rows are read and written",
        "trade-off: what the plain way has that this one has not",
    ),
    model="Both ways read and write the same rows, so bytes do not explain the gain. The plain way asks for a "
    "lookup, a sparse gradient, a sort and a dozen small updates for each of 26 tables, and each call costs "
    "microseconds before it does anything; one gather, one sort and one update serve all tables. In return the "
    "weights are no parameters of the module any more, and every other optimiser needs an update of its own.",
)

# %% pairs-idea [markdown]
"""
## Idea 2: one gather and one product for the interaction

Autograd takes the interaction apart as you wrote it: the backward pass of `products[:, first, second]` scatters each pair's gradient into a matrix of V × V zeros, number by number, and that of `torch.bmm(v, vᵀ)` multiplies this matrix twice. Written by hand it is less: with **G** symmetric, each pair's gradient at both of its places and 0 on the diagonal, the gradient of the vectors is **G** times the vectors.

**How many times as fast will the step of idea 1 be with that?**
"""

# %% guess-pairs
guess("33.pairs", 1.1, "times as fast")

# %% ex-33-pairs [markdown]
"""
### Exercise 33.pairs

Write `Pairs`, a `torch.autograd.Function`: `forward` gives (B, P) products of pairs below the diagonal, row by row, for vectors (B, V, D), as `interaction` does; `backward` gives the gradient (B, V, D) for one of (B, P).

1. Forward: all products by `torch.bmm`, flattened to (B, V V), and one `gather` of those that count. Keep the vectors by `ctx.save_for_backward`.
2. Backward: `place` (V, V) says which pair's gradient stands where; on the diagonal it points at a zero that `F.pad(gradient, (0, 1))` adds at the end. One `gather` makes **G**, one `torch.bmm` the answer.

*Hint:* `x.gather(1, index.expand(len(x), -1))` takes the same columns of each row, and is faster than `x[:, index]`.
"""

# %% answer 33.pairs
import torch
import torch.nn.functional as F


class Pairs(torch.autograd.Function):
    """The dot products of all pairs, with a backward pass of one gather and one product."""

    @staticmethod
    def forward(ctx, vectors):
        ### BEGIN SOLUTION
        ctx.save_for_backward(vectors)
        batch, count, _ = vectors.shape
        first, second = torch.tril_indices(count, count, offset=-1)  # (P,) each
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)  # (B, V V)
        return products.gather(1, (first * count + second).expand(batch, -1))
        ### END SOLUTION

    @staticmethod
    def backward(ctx, gradient):
        ### BEGIN SOLUTION
        (vectors,) = ctx.saved_tensors
        batch, count, _ = vectors.shape
        first, second = torch.tril_indices(count, count, offset=-1)
        place = torch.full((count, count), len(first))  # of the diagonal: the zero after the last pair
        place[first, second] = place[second, first] = torch.arange(len(first))
        both = F.pad(gradient, (0, 1)).gather(1, place.flatten().expand(batch, -1))
        return torch.bmm(both.view(batch, count, count), vectors)
        ### END SOLUTION


# %% check 33.pairs points=6
check("33.pairs", Pairs)

# %% checks
EXERCISES["33.pairs"] = WrittenExercise(
    Pairs,
    module="fast",
    cases=(
        Case("2 rows of 4 vectors", lambda code: code.apply(drawn_vectors(2, 4, 3))),
        Case("27 vectors a row", lambda code: code.apply(drawn_vectors(5, 27, 16))),
        Case("the gradient of 4 vectors", lambda code: gradient(code.apply, drawn_vectors(2, 4, 3))),
        Case("the gradient of a single pair", lambda code: gradient(code.apply, drawn_vectors(3, 2, 8))),
        Case(
            "its gradient compared with finite differences, in double precision (gradcheck)",
            lambda code: torch.autograd.gradcheck(code.apply, drawn_vectors(2, 5, 3).double().requires_grad_()),
        ),
    ),
    mistakes={
        ("offset=-1)  # (P,) each", "offset=0)"): "A vector does not meet itself: leave the diagonal out.",
        ("tril_indices(count, count, offset=-1)  # (P,) each", "triu_indices(count, count, offset=1)"): (
            "The same products in another order: take pairs row by row *below* the diagonal."
        ),
        ("place[first, second] = place[second, first] =", "place[first, second] ="): (
            "A pair's gradient goes to *both* of its vectors: the matrix has it below and above the diagonal."
        ),
    },
    hint="If G is symmetric, has each pair's gradient at both of its places and 0 on the diagonal, the gradient of the "
    "vectors is G times the vectors: one gather that makes G, one torch.bmm.",
    explanation="Autograd would scatter the gradient number by number, and multiply twice.",
)

# %% pairs-measure-prose [markdown]
"""
Measured against the step of idea 1:
"""

# %% pairs-measure
paired = fast_step(Pairs.apply)
gathered_ms = plain_ms / gains["gather"]["measured"]
bound = amdahl({"interaction": min(0.9, parts_ms["interaction"] / gathered_ms)})["interaction"]
reveal("33.pairs", gain("pairs", gathered, paired, bound))

# %% bf16-prose [markdown]
"""
## Idea 3: bf16, where it pays

labkit's rule (`labkit/fast/optimisers.py`) takes bf16 where a processor multiplies it with units of its own, and says why. **How many times as fast will your step be in bf16 on this machine?** Below 1 means slower.
"""

# %% guess-bf16
guess("33.bf16", 1.3, "times as fast")

# %% bf16-rule-prose [markdown]
"""
What the rule takes here:
"""

# %% bf16-rule
rule, why = labkit.fast.chosen_precision("auto", "cpu")
print(f"the rule takes {rule} ({why})")

# %% bf16-measure-prose [markdown]
"""
And what pairs say. Where 1 lies in their interval, they do not decide, and the rule does:
"""

# %% bf16-measure
in_bf16 = fast_step(Pairs.apply, True)
reveal("33.bf16", gain("bf16", paired, in_bf16))
low, high = gains["bf16"]["low"], gains["bf16"]["high"]
pays = low > 1 or (high >= 1 and rule == "bf16")

# %% faults-prose [markdown]
"""
## Idea 4: memory that is kept

A page of memory that the system hands out is cleared when it is first touched: a *page fault*. glibc's malloc begins by giving tensors of 128 KiB and more back when they are freed, so that the next step gets fresh pages; in a process that has freed large ones it learns to keep more. `give_memory_back` sets it to its beginning and `keep_memory` to keeping everything: labkit's runs do that. Neither exists on macOS and Windows.

Read `keep_memory` in `labkit/hardware/cpu.py`. **How many times as fast is your step where memory is kept?**
"""

# %% guess-memory
guess("33.memory", 1.1, "times as fast")

# %% faults-count-prose [markdown]
"""
What malloc has learned and holds decides much, and belongs to a thread: so each state has a thread of its own, which begins with nothing.
"""

# %% faults-threads
from concurrent.futures import ThreadPoolExecutor

states = labkit.hardware.give_memory_back, labkit.hardware.keep_memory
threads = {state: ThreadPoolExecutor(1) for state in states}

# %% faults-step-prose [markdown]
"""
Each has a model of its own, too. A step, and what the system counts meanwhile:
"""

# %% faults-count
fast = {state: fast_step(Pairs.apply, pays) for state in states}
faults = {state: [] for state in states}


def step_with(state):
    state()
    before = labkit.profiling.minor_faults()
    fast[state]()
    faults[state].append(labkit.profiling.minor_faults() - before)


# %% faults-measure-prose [markdown]
"""
In turns; where neither state can be set, both do the same. From here on memory is kept:
"""

# %% faults-measure
back, kept = (lambda state=each: threads[state].submit(step_with, state).result() for each in states)
kept_gain = gain("memory kept", back, kept)
reveal("33.memory", kept_gain if labkit.hardware.keep_memory() else None)

# %% faults-told-prose [markdown]
"""
The page faults of a step in each:
"""

# %% faults-told
from statistics import median

counts = [median(faults[state]) for state in states]
print("page faults a step: {:,.0f} where memory is given back, {:,.0f} where it is kept (medians)".format(*counts))

# %% ex-why-faults [markdown]
"""
### Exercise 33.why_faults

Explain in two sentences what a page fault is, why kept memory has hardly any, and what keeping it costs, with your numbers.
"""

# %% explain 33.why_faults points=2
### BEGIN SOLUTION
answer = model_answer("33.why_faults")
### END SOLUTION
explain("33.why_faults", answer)

# %% checks
EXERCISES["33.why_faults"] = Explanation(
    rubric=(
        "numbers: page faults a step in both states, and the ratio of times",
        "why: what the system does with a page at its first touch, and why kept memory has none",
        "trade-off: what a process that keeps its memory takes from others",
    ),
    model="Where glibc gives freed tensors back, the next step gets fresh pages, and the system clears each at its "
    "first touch; where it keeps them there are hardly any faults. How much that gains depends on what a fault "
    "costs, which can be much more in a virtual machine. In return the process holds its peak until it ends, which "
    "jobs that share the machine may miss.",
)

# %% figure-prose [markdown]
"""
## What the ideas came to

Each idea against the one before it, and its bound where one was predicted:
"""

# %% figure
import pandas as pd

from labkit_course import apparatus

gained = pd.DataFrame(list(gains.values()))
labkit.plots.show(apparatus.figure_gains(gained))
labkit.plots.show(
    gained.rename(columns={"measured": "times as fast, measured", "at_most": "at most (times), predicted"})
)

# %% rule-prose [markdown]
"""
## A rule against measuring

labkit never tries steps out before a run: a rule picks the fast kernels, and bf16 or fp32 by the processor. Another way is to measure every candidate, which costs time at each start. labkit's own step, your plain one and your fast ones, in turns. **How many times as long as the best of them does the rule's choice take?**
"""

# %% guess-rule
guess("33.rule", 1.1, "times as long")

# %% rule-kit-prose [markdown]
"""
labkit's step in both precisions; its update of tables is one compiled kernel, if numba is installed:
"""


# %% rule-kit
def kit_step(precision):
    torch.manual_seed(0)
    model = labkit.jobs.dlrm.build_model(config, "fast")

    def forward(dense, categorical):
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            return model(dense, categorical).float()

    return make_step(forward, labkit.jobs.build_optimizers(model, "adam", 2e-3, "fast"), cycle(ready))


# %% rule-measure-prose [markdown]
"""
Six candidates; each compared with the rule's choice, in pairs:
"""

# %% rule-candidates
candidates = {"plain, fp32": plain, "gather, fp32": gathered, "pairs, fp32": paired, "pairs, bf16": in_bf16,
              "labkit, fp32": kit_step("fp32"), "labkit, bf16": kit_step("bf16")}  # fmt: skip
chosen = candidates[f"labkit, {rule}"]

# %% rule-pairs-prose [markdown]
"""
Measured:
"""

# %% rule-measure
others = {name: step for name, step in candidates.items() if step is not chosen}
against = {name: faster(chosen, step) for name, step in others.items()}
best = max(against, key=lambda name: against[name][0])
texts = {
    name: f"{ratio:.3g} times as fast ({low:.3g} to {high:.3g}, {rounds} pairs)"
    for name, (ratio, low, high) in against.items()
}
for name, text in texts.items():
    print(f"{name:13} {text} compared with the rule's choice, measured")
reveal("33.rule", max(1.0, against[best][0]))

# %% claim-I4-prose [markdown]
"""
### Your verdict: a predictor against every fixed choice

*Operator selection on Mali* (a mobile GPU; the paper is known here from a list only) reports that a predictor beats every operator that the library would take by hand. The rule here predicts, too, from the processor's name and flags.
"""

# %% claim I4 points=1
### BEGIN SOLUTION
verdict = "holds here" if against[best][0] <= 1.05 else "does not hold here"
answer = verdict, "an analogue: it holds where no candidate is more than 5 % faster than what the rule picked"
### END SOLUTION
claim("I4", f"the best other step, {best}, compared with the rule's choice, labkit, {rule}: {texts[best]}", answer)

# %% step-results-prose [markdown]
"""
The numbers of this half, each with the bounds that hold on any machine, for a program to read:
"""

# %% step-results tags=["results"]
from labkit_course import results

results(
    gather_gain=(gains["gather"]["measured"], 0.2, 50),
    pairs_gain=(gains["pairs"]["measured"], 0.2, 20),
    bf16_gain=(gains["bf16"]["measured"], 0.01, 20),
    memory_gain=(kept_gain, 0.1, 50),
    logits_differ=(difference, 0, 0.05),
    rule_behind=(against[best][0], 0.01, 10),
)

# %% run-prose [markdown]
"""
## Second half: a run

A step is not a run, and time to target is asked of runs. Your model and optimiser of the first half are taken from `mylab`. Where that half did not run in this kernel, the rule decides on bf16:
"""

# %% run-mine
FastDlrm, RowAdam, Pairs = mine("33.model"), mine("33.optimiser"), mine("33.pairs")
if "pays" not in globals():
    pays = labkit.fast.chosen_precision("auto", "cpu")[0] == "bf16"

# %% evaluate-prose [markdown]
"""
## Idea 5: evaluate as often as pays, on fewer rows

A run evaluates, too: so far ten times an epoch, on all validation rows. `score` below is that evaluation, on a split that you give it.
"""

# %% score
auc = mine("10.auc")
validation = log.split("validation")
watched = validation.spread(min(len(validation), 20_000) // 2)  # fewer rows, spread over the split


@torch.no_grad()
def score(model, split):
    logits = [model(dense, categorical) for dense, categorical, _ in labkit.data.clicks.in_order(split, 2048)]
    return auc(split.label, torch.cat(logits).numpy())


# %% ex-33-gap [markdown]
"""
### Exercise 33.evaluation_gap

Evaluations that are far apart see the target late, by half a gap *g* on average; those close together take time themselves: *T* / *g* of them, *E* seconds each, until the target at *T*. Write `evaluation_gap(evaluation_s, time_to_target_s)`: the gap in seconds with which both together lose least.

1. Write the loss, E T / g + g / 2.
2. Where is its derivative by g zero?

*Hint:* it grows with the root of both.
"""


# %% answer 33.evaluation_gap
def evaluation_gap(evaluation_s: float, time_to_target_s: float) -> float:
    """Seconds of training between two evaluations."""
    ### BEGIN SOLUTION
    return (2 * evaluation_s * time_to_target_s) ** 0.5
    ### END SOLUTION


# %% check 33.evaluation_gap points=3
check("33.evaluation_gap", evaluation_gap)

# %% checks
EXERCISES["33.evaluation_gap"] = WrittenExercise(
    evaluation_gap,
    module="fast",
    cases=(
        Case("0.5 s each and a target that is 25 s away", lambda code: code(0.5, 25.0)),
        Case("0.1 s each and 3 s", lambda code: code(0.1, 3.0)),
        Case("evaluations that take no time", lambda code: code(0.0, 10.0)),
    ),
    mistakes={
        ("2 * evaluation_s", "evaluation_s"): (
            "On average half a gap passes unseen: where is the derivative of E T / g + g / 2 zero?"
        ),
        (" ** 0.5", ""): "That is the square of the gap.",
        ("evaluation_s * time_to_target_s", "time_to_target_s / evaluation_s"): (
            "Dearer evaluations want a *longer* gap."
        ),
    },
    hint="What is lost is E T / g + g / 2: the evaluations until the target, and half a gap until it is seen. Where is "
    "its derivative by g zero?",
    explanation="The same formula says how often to write a checkpoint (Young, 1974).",
)

# %% gap-use-prose [markdown]
"""
What an evaluation takes, on all rows and on fewer, and what a step of the fast model takes:
"""

# %% gap-use
from timeit import repeat

labkit.hardware.keep_memory()
model, optimizers = fast_parts(Pairs.apply, pays)
step_s = min(repeat(make_step(model, optimizers, cycle(ready)), number=10, repeat=5)) / 10
all_s = min(repeat(lambda: score(model, validation), number=1, repeat=3))
watched_s = min(repeat(lambda: score(model, watched), number=1, repeat=3))
print(f"{all_s:.2g} s on all {len(validation):,} rows, {watched_s:.2g} s on {len(watched):,}, measured (best of 3)")

# %% gap-samples-prose [markdown]
"""
The gap in samples follows from our guess at the time to the target, 5 s (1 s in the profile `smoke`). It may well be shorter than before, for fewer rows take less time:
"""

# %% gap-samples
gap_s = evaluation_gap(watched_s, 1 if profile == "smoke" else 5)
fast_every = max(512, int(gap_s * 512 / step_s))
plain_every = len(rows) // 10
print(f"an evaluation each {gap_s:.2g} s, {fast_every:,} samples; before each {plain_every:,}")

# %% target-prose [markdown]
"""
## Time to target

All together, against where you began. Both loops are yours, from [Train a DLRM](10_train_dlrm.ipynb); the seeds are the same, and so are the first weights and the batches. **How many times sooner does the fast loop reach the target?**
"""

# %% guess-target
guess("33.target", 2.0, "times sooner")

# %% train-prose [markdown]
"""
A run of either kind:
"""

# %% train
import labkit

goal, seeds, limit_s = {"smoke": (0.66, 2, 15), "standard": (0.78, 3, 120), "full": (0.78, 8, 240)}[profile]


def train(kind, seed, model, optimizers, split, every):
    settings = {"target": f"auc >= {goal}", "max_seconds": limit_s, "evaluate_every": every, "seed": seed}
    settings |= {"runs_dir": Path(runs_dir) / "notebooks", "config": {"train": {"step": kind}}}
    batches = labkit.data.clicks.ClickBatches(rows, batch_size=512, seed=seed)
    with labkit.Run("dlrm", **settings) as run:
        loop(run, model, optimizers, batches, lambda: score(model, split))
    return run


# %% kinds-prose [markdown]
"""
What each kind trains with. The fast one keeps its memory; the plain one trains as malloc begins:
"""


# %% kinds
def train_plain(seed):
    labkit.hardware.give_memory_back()
    model = plain_model(seed)
    return train("plain", seed, model, make_optimizers(model, lr=2e-3), validation, plain_every)


def train_fast(seed):
    labkit.hardware.keep_memory()
    return train("fast", seed, *fast_parts(Pairs.apply, pays, seed), watched, fast_every)


# %% workers-prose [markdown]
"""
As in idea 4 each kind has a thread of its own, for in a thread that kept memory the plain runs would find it:
"""

# %% workers
from concurrent.futures import ThreadPoolExecutor

workers = {kind: ThreadPoolExecutor(1) for kind in ("plain", "fast")}

# %% race-prose [markdown]
"""
In pairs, a seed after the other:
"""

# %% race
from contextlib import redirect_stdout
from io import StringIO

ways, runs = {"plain": train_plain, "fast": train_fast}, {"plain": [], "fast": []}
for seed in range(seeds):
    for kind in sorted(ways, reverse=seed % 2):
        with redirect_stdout(StringIO()):  # a line an evaluation
            runs[kind].append(workers[kind].submit(ways[kind], seed).result())
times_s = {kind: [run.result["time_to_target_s"] for run in own] for kind, own in runs.items()}
for kind, own in times_s.items():
    print(kind, "to the target in", *(f"{each or float('nan'):.3g} s" for each in own))

# %% race-curves-prose [markdown]
"""
The curves, each point an evaluation:
"""

# %% race-curves
folders = [run.folder for own in runs.values() for run in own]
table = labkit.tta.run_table(folders)
evaluations = labkit.tta.curves(folders, runs=table)
labkit.plots.show(
    labkit.plots.figure_time_to_accuracy(evaluations, goal, crossings=labkit.tta.crossings(evaluations, table, goal))
)

# %% race-reveal-prose [markdown]
"""
By your `ratio_interval`, too; where a run did not get there, there is no fair ratio. An interval that holds 1 does not show that the fast loop is sooner: take more seeds (`full`).
"""

# %% race-reveal
plain_s, fast_s = times_s["plain"], times_s["fast"]
sooner = ratio_interval(fast_s, plain_s) if all(plain_s + fast_s) else (None, None, None)
reveal("33.target", sooner[0])
print("interval:", *(f"{each:.3g}" for each in sooner[1:] if each), f"of {seeds} seeds, measured")

# %% samples-prose [markdown]
"""
Both need samples, too, and bf16 or another order of additions may change how many. And what share of a run was no training but evaluation and beginning:
"""

# %% samples
for kind, own in runs.items():
    samples = [run.result["samples_to_target"] for run in own]
    print(kind, "to the target:", *(f"{each:,} samples" if each else "not reached" for each in samples))
    aside = [1 - run.result["train_s"] / run.result["wall_s"] for run in own]
    print(kind, "no training:", *(f"{share:.1%}" for share in aside), "of a run, measured")

# %% ex-why-target [markdown]
"""
### Exercise 33.why_target

The product of the ideas' gains is one number, the gain in time to target another. Explain in two sentences why they differ, and which idea you would take first in another project.
"""

# %% explain 33.why_target points=2
### BEGIN SOLUTION
answer = model_answer("33.why_target")
### END SOLUTION
explain("33.why_target", answer)

# %% checks
EXERCISES["33.why_target"] = Explanation(
    rubric=(
        "numbers: the gain in time to target compared with the gain in a step's time",
        "why: what a run does between its steps, or a difference in the samples that it needs",
        "trade-off: which of the ideas you would take first, for how much code",
    ),
    model="The product of the gains was 3.9, and the target came 2.8 times sooner: a run fetches its batches, "
    "evaluates (23 % of a plain run, 6 % of a fast one), and needs a number of samples that bf16 and the times of "
    "evaluation change. Kept memory and evaluations on fewer rows cost a line each and change no weight, so they "
    "come first; the gather is next, 1.4 times as fast for three functions, and bf16 only where it pays.",
)

# %% scores-prose [markdown]
"""
How good were your guesses? The first answer to each counts.
"""

# %% scores
from labkit_course import score_notebook

score_notebook()

# %% results-prose [markdown]
"""
The number of this half, for a program to read:
"""

# %% results tags=["results"]
from labkit_course import results

results(target_gain=(sooner[0], 0.1, 50))

# %% recap [markdown]
"""
## Recap

- Steps take turns, and logarithms of pairs give a ratio with an interval: drift cancels out.
- Calls cost: one gather, one sort and one update did the work of 26 tables' sparse tensors, with the same numbers.
- A backward pass by hand pays where autograd takes a detour; `gradcheck` says whether it is right.
- Whether bf16 or kept memory pays is a property of the machine: a rule predicts it, pairs measure it.
- A run is more than its steps: evaluate as often as pays, on as few rows as show the target.
- Time to target has the last word, over several seeds.

**Next:** [Clinics](34_clinics.ipynb)
"""

# %% opening [markdown] packages="scipy" disk_gb=0.5
r"""
# Make it fast

After this notebook you will be able to

- **write** what makes a DLRM's step fast: a gather and a row-wise Adam instead of sparse tensors, and a backward pass of your own;
- **decide** by measuring in pairs whether bf16 and kept memory pay on a machine;
- **choose** how often to evaluate, and on how many rows;
- **show** what all of it gains in time to target, over several seeds.

**Time:** 100 minutes with four exercises of code, in two halves: a step (75 minutes) and a run (25). The machine computes for about four minutes on 2 CPU cores. No GPU is needed.

**Prerequisites:** [Budgets that bind](02_budgets_that_bind.ipynb), [Train a DLRM](10_train_dlrm.ipynb) and [Profile top-down](32_profile_top_down.ipynb).
"""

# %% checks
from operator import call
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from labkit_course.exercise import Case, Explanation, WrittenExercise
from labkit_course.lab import from_lab

# Shapes: B batch, F tables, L lookups a bag, D embedding dim, R rows of all tables, U distinct rows, V vectors that meet, P pairs.
drawn_vectors = from_lab("10", "drawn_vectors")
gradient = from_lab("10", "gradient")
MODULE = "fast"
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

You begin with what you wrote: the model, its optimisers and its loop from [Train a DLRM](10_train_dlrm.ipynb), the interval of a ratio from [Budgets that bind](02_budgets_that_bind.ipynb), and the step with phases from [Profile top-down](32_profile_top_down.ipynb). Where you have none, labkit's stand in. One thread computes.

The model has the shape of the click log. With the same seed, all models below begin with the same weights.
"""

# %% imports
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from io import StringIO
from itertools import cycle, islice
from pathlib import Path

import numpy as np
import pandas as pd
import torch

import labkit
from labkit_course import explain, guess, mine, model_answer, paired_times, reveal

# %% mine
torch.set_num_threads(1)
MyDlrm, make_optimizers, loop = mine("10.model"), mine("10.rows"), mine("10.loop")
make_step, ratio_interval = mine("32.step"), mine("02.ratio")

# %% model-prose [markdown]
"""
`fast_parts` is for later: you write `FastDlrm` and `RowAdam` in the first half. A step takes one of twenty batches of 512 rows, made in advance.
"""

# %% model
log = labkit.data.clicks.load_clicks("synthetic-small" if profile == "smoke" else "synthetic")
config = labkit.models.DlrmConfig(len(log.dense_names), log.table_rows, **labkit.jobs.get_preset("dlrm", "tour").model)
rows = log.split("train")
ready = list(islice(labkit.data.clicks.ClickBatches(rows, batch_size=512, seed=0), 20))


def plain_model(seed=0):
    torch.manual_seed(seed)
    return MyDlrm(config)


# %% fast-parts
def fast_parts(interaction, bf16=False, seed=0):
    model = FastDlrm(plain_model(seed), interaction, bf16)
    return model, [torch.optim.Adam(model.parameters(), lr=2e-3), RowAdam(model, lr=2e-3)]


def fast_step(*settings):
    model, optimizers = fast_parts(*settings)
    return make_step(model, optimizers, cycle(ready))


# %% step-prose [markdown]
"""
## First half: a step

Each half runs in a fresh kernel once the cells above this heading have run.

Where does the plain step's time go? The profile shows the operators that Python and autograd call for the tables, the interaction and the layers, in ms per step. The optimiser's time is nearly all for the tables. The profiler takes time itself, most of it for small operators, so the bounds below are rough.
"""

# %% profile
model = plain_model()
plain = make_step(model, make_optimizers(model, lr=2e-3), cycle(ready))
profiled = labkit.profiling.profile_steps(plain, Path(runs_dir) / "profiles", name="plain", skip=8, steps=5)
events = profiled.time.events[profiled.time.events["parent"] < 0]
optimiser = events["phase"] == "optimiser"
PARTS = {"tables": "mbedding", "interaction": "Index|index|Bmm|bmm|Transpose", "layers": "linear|Addmm|Linear"}
named = {part: events["name"].str.contains(words) & ~optimiser for part, words in PARTS.items()}
named["tables"] |= optimiser
parts_ms = pd.Series({part: events.loc[own, "duration_us"].sum() / 5e3 for part, own in named.items()})
print(", ".join(f"{part} {ms:.3g} ms" for part, ms in parts_ms.items()), "of one step (measured)")

# %% gain-prose [markdown]
"""
### How many times as fast

Two steps take turns, so what slows the machine slows both. Each round gives one ratio, and your interval says how sure their mean is. `gain` measures an idea against the step before it, and prints it next to the bound that was predicted, if there was one.
"""

# %% gain
rounds, gains = {"smoke": 1, "standard": 15, "full": 40}[profile], {}


def gain(change, old, new, at_most=None):
    times = paired_times({"old": old, "new": new}, rounds)
    ratio, low, high = (times["old"] / times["new"]).mean(), np.nan, np.nan
    if rounds > 1:  # one round has no interval
        ratio, low, high = ratio_interval(times["new"], times["old"])
    gains[change] = {"change": change, "measured": ratio, "low": low, "high": high, "at_most": at_most}
    bound = f"; at most {at_most:.3g}, predicted" if at_most else ""
    print(f"{change}: {ratio:.3g} times as fast ({low:.3g} to {high:.3g}, {rounds} rounds){bound}")
    return ratio


# %% same-prose [markdown]
"""
Can it tell that two steps are the same? For the plain step and a copy of it, 1 lies in the interval 19 times of 20. If it does not, run the cell again. If it never does, something disturbs the machine, and gains as small as this one mean nothing.
"""

# %% same
model = plain_model()
same = gain("a copy", plain, make_step(model, make_optimizers(model, lr=2e-3), cycle(ready)))
del gains["a copy"]

# %% gather-prose [markdown]
"""
## Idea 1: gather instead of sparse tensors

For each table the plain step makes a sparse gradient. SparseAdam sorts it, sums it and applies it by a dozen small operations. But a sparse gradient is only rows and numbers, and you can keep those yourself:

- all tables are **one** tensor `weight` (R, D), and a lookup is one gather from it;
- what was found becomes a **leaf** of autograd: the backward pass ends there, with a plain gradient for each lookup;
- the optimiser sums by row, once for all tables, and updates those rows.

**How many times as fast will a step be?** The bound is that of a step in which tables cost nothing.
"""

# %% guess-gather
guess("33.gather", 1.5, "times as fast")

# %% ex-33-model [markdown]
"""
### Exercise 33.model

Write `FastDlrm(model, interaction, bf16)`, which takes over a `MyDlrm`'s weights: its layers `bottom` and `top` as they are, and its `tables`, a list of EmbeddingBags, as one tensor. `interaction` is the function that pairs vectors; `bf16` is for idea 3.

1. `weight` (R, D) holds the tables one after the other. It is no parameter and gets no gradient. `starts` (F,) holds the row at which each table begins.
2. `forward(dense, categorical)`: `categorical` (B, F, L) has row numbers within each table. Keep as attributes `rows` (B, F, L), the row numbers in `weight`, and `found` (B, F, L, D), their values: a leaf that needs a gradient.
3. Sum each bag over its lookups, and go on as `MyDlrm` does: `interaction` pairs the bottom vector and the sums, (B, 1 + F, D); `top` gets the bottom vector and the pairs, in this order. Do all of it within `torch.autocast("cpu", torch.bfloat16, enabled=self.bf16)`. Return the logits (B,) in float32.

*Hint:* in bf16 the sums have to become of the bottom vector's type before you concatenate them.
"""

# %% answer 33.model
import torch
import torch.nn.functional as F
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
            self.rows = categorical + self.starts.unsqueeze(1)  # (B, F, L), counted over all tables
            self.found = F.embedding(self.rows, self.weight).requires_grad_()  # (B, F, L, D)
            sums = self.found.sum(2).to(bottom.dtype)  # (B, F, D)
            pairs = self.interaction(torch.cat([bottom.unsqueeze(1), sums], dim=1))  # (B, P)
            logit = self.top(torch.cat([bottom, pairs], dim=1)).squeeze(1)
        return logit.float()
        ### END SOLUTION


# %% check 33.model points=7
from labkit_course import check

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


def _of_model(code: Any, lookups: int = 1, **settings: bool) -> dict[str, Any]:
    """Logits, and what a step leaves for the optimiser."""
    given: list[str] = []

    def interaction(vectors: Tensor) -> Tensor:
        given.append(f"{list(vectors.shape)} in {vectors.dtype}")
        return Pairs.apply(vectors)

    model = code(_Plain(), interaction, **settings)
    logit = model(*_batch(lookups))
    logit.sum().backward()
    found = getattr(model, "found", None)
    return {
        "vectors that interaction was given": given,
        "logits are": str(logit.dtype),
        "logits": logit,
        "parameters, without the tables": sum(each.numel() for each in model.parameters()),
        "starts": getattr(model, "starts", None),
        "rows": getattr(model, "rows", None),
        "found is": str(getattr(found, "dtype", None)),
        "found is a leaf": found is not None and found.is_leaf,
        "gradient of found": found.grad if found is not None and found.is_leaf else None,
        "weight": model.weight,
        "weight needs a gradient": model.weight.requires_grad,
    }


class _TablesInTurn(nn.Module):
    def __init__(self, model, interaction, bf16=False):
        super().__init__()
        self.bottom, self.top = model.bottom, model.top
        self.interaction, self.bf16 = interaction, bf16
        starts, parts, begin = [], [], 0
        for table in model.tables:
            starts.append(begin)
            parts.append(table.weight.data)
            begin += table.num_embeddings
        self.register_buffer("weight", torch.vstack(parts))
        self.register_buffer("starts", torch.tensor(starts))

    def forward(self, dense, categorical):
        self.rows = categorical.long() + self.starts[None, :, None]
        self.found = self.weight[self.rows].detach().requires_grad_(True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.bf16):
            x = self.bottom(dense)
            vectors = torch.cat([x[:, None], self.found.sum(dim=-2).type_as(x)], 1)
            out = self.top(torch.cat((x, self.interaction(vectors)), -1))
        return out[:, 0].to(torch.float32)


EXERCISES["33.model"] = WrittenExercise(
    FastDlrm,
    Case("three tables, one lookup a bag", _of_model),
    Case("two lookups a bag", _of_model, 2),
    Case("bf16=True", _of_model, bf16=True, relative=0.03),
    mistakes={
        ("lengths.cumsum(0) - lengths", "lengths.cumsum(0)"): (
            "Where does the first table begin, and where the second?"
        ),
        (".requires_grad_()  # (B, F, L, D)", "  # (B, F, L, D)"): (
            "Nothing can learn now: what was found has to need a gradient."
        ),
        ("lengths = ", "self.weight = nn.Parameter(self.weight)\n        lengths = "): (
            "The parameters are those of bottom and top alone: weight is a plain tensor, and the tables are not kept."
        ),
    },
    hint="Compare shapes line by line, then the logits of the old and the new model for one batch. Which tensor should "
    "autograd stop at, and who keeps it?",
    explanation="The same logits, from one table of all rows; the gradient of what was found is a plain tensor.",
    variants=(_TablesInTurn,),
)

# %% ex-33-optimiser [markdown]
"""
### Exercise 33.optimiser

Write `RowAdam(model, lr)`, the optimiser of a `FastDlrm`'s table. Your loop calls it as it calls torch's: `step()` and `zero_grad()`.

1. A row that a batch names twice gets the **sum** of both gradients. So a step first finds the distinct rows in `model.rows`, and sums `model.found.grad` by row.
2. These rows, and no others, take a step of Adam with its usual numbers (0.9 and 0.999; 1e-8 is added to the root of the *corrected* second moment). Their moments move, and `model.weight` changes in place. The correction of the moments counts all steps so far. `torch.optim.Adam?` prints the algorithm.
3. `zero_grad` has nothing to do: the next forward pass makes a new leaf.

*Hint:* `unique` can also say which place among the distinct rows each lookup has. `sums[place] = …` and `+=` keep only the last of a row; `index_add_` adds them all.
"""

# %% answer 33.optimiser
import torch


class RowAdam:
    """Adam on the rows that the latest batch looked up."""

    def __init__(self, model, lr):
        ### BEGIN SOLUTION
        self.model, self.lr, self.steps = model, lr, 0
        self.first, self.second = torch.zeros_like(model.weight), torch.zeros_like(model.weight)
        ### END SOLUTION

    @torch.no_grad()
    def step(self):
        ### BEGIN SOLUTION
        self.steps += 1
        rows, place = self.model.rows.flatten().unique(return_inverse=True)  # (U,), (B F L,)
        gradient = self.model.found.grad.flatten(0, -2)  # (B F L, D)
        sums = gradient.new_zeros(len(rows), gradient.shape[1]).index_add_(0, place, gradient)
        first = 0.9 * self.first[rows] + 0.1 * sums  # (U, D)
        second = 0.999 * self.second[rows] + 0.001 * sums.square()
        self.first[rows], self.second[rows] = first, second
        first, second = first / (1 - 0.9**self.steps), second / (1 - 0.999**self.steps)
        self.model.weight[rows] -= self.lr * first / (second.sqrt() + 1e-8)
        ### END SOLUTION

    def zero_grad(self):
        ### BEGIN SOLUTION
        pass  # the next forward pass makes a new leaf
        ### END SOLUTION


# %% check 33.optimiser points=7
from labkit_course import check

check("33.optimiser", RowAdam)


# %% checks
def _stepped(code: Any, steps: int = 3, size: float = 1.0) -> list[Tensor]:
    """The weight and the logits after steps whose batches name some rows several times, and some rows not at all."""
    model = FastDlrm(_Plain(), Pairs.apply)
    optimizer = code(model, 0.05)
    for lookups in range(1, steps + 1):
        dense, categorical = _batch(lookups)
        few = slice(2) if lookups % 2 else slice(6)
        (size * model(dense[few], categorical[few]).square().sum()).backward()
        optimizer.step()
        optimizer.zero_grad()
    return [model.weight, model(*_batch(4))]


class _ByMask:
    def __init__(self, model, lr):
        self.model, self.lr, self.count = model, lr, 0
        self.moments = [torch.zeros(model.weight.shape) for _ in range(2)]

    def step(self) -> None:
        with torch.no_grad():
            self.count += 1
            sums = torch.zeros_like(self.model.weight)
            sums.index_put_((self.model.rows,), self.model.found.grad, accumulate=True)
            touched = torch.bincount(self.model.rows.flatten(), minlength=len(sums)) > 0
            m, v = self.moments
            m[touched] = torch.lerp(m[touched], sums[touched], 0.1)
            v[touched] = 0.999 * v[touched] + 0.001 * sums[touched] ** 2
            scale = (1 - 0.999**self.count) ** 0.5
            denominator = v[touched].sqrt() / scale + 1e-8
            self.model.weight[touched] -= self.lr / (1 - 0.9**self.count) * m[touched] / denominator

    def zero_grad(self) -> None:
        self.model.found.grad = None


EXERCISES["33.optimiser"] = WrittenExercise(
    RowAdam,
    Case("one step on two bags", _stepped, 1),
    Case("three steps, of which the second names rows several times", _stepped),
    Case("twelve steps", _stepped, 12),
    Case("gradients as small as 1e-6", _stepped, size=1e-6),
    mistakes={
        (
            "gradient.new_zeros(len(rows), gradient.shape[1]).index_add_(0, place, gradient)",
            "torch.stack([gradient[place == each][-1] for each in range(len(rows))])",
        ): "Gradients of a row that comes up again are *summed*: does your code keep only the last?",
        ("self.steps += 1", "self.steps = 1"): "The correction of the moments grows weaker with each step.",
        ("pass  #", "self.model.weight.zero_()  #"): "zero_grad clears no weights: the next pass makes a new leaf.",
    },
    hint="Compare one step on one table with torch.optim.SparseAdam on paper or in a cell: first with rows that differ, "
    "then with a row that comes up twice, then a second step.",
    explanation="The same steps as torch.optim.Adam on the rows of the batch, for all tables at once; your loop takes it as it is.",
    variants=(_ByMask,),
    instead_of=("torch.optim._functional.sparse_adam",),
)

# %% gather-use-prose [markdown]
"""
Are the logits the same after three steps of each? The additions come in another order, and Adam divides by the root of small gradients, which makes more of it. A difference of up to 0.001 comes from that; more is a fault in the code. The interaction is the plain one.
"""


# %% gather-same
def plain_pairs(vectors):  # (B, V, D)
    first, second = torch.tril_indices(vectors.shape[1], vectors.shape[1], offset=-1)
    return torch.bmm(vectors, vectors.transpose(1, 2))[:, first, second]  # (B, P)


slow_model = plain_model()
new_model, optimizers = fast_parts(plain_pairs)
for model, own in ((slow_model, make_optimizers(slow_model, lr=2e-3)), (new_model, optimizers)):
    step = make_step(model, own, cycle(ready))
    [step() for _ in range(3)]
dense, categorical, _ = ready[0]
difference = float((slow_model(dense, categorical) - new_model(dense, categorical)).abs().max().detach())

# %% gather-measure
print(f"the logits differ by {difference:.1g} at most")
gathered = fast_step(plain_pairs)
bound = parts_ms.sum() / parts_ms.drop("tables").sum()
reveal("33.gather", gain("gather", plain, gathered, bound))

# %% ex-why-gather [markdown]
"""
### Exercise 33.why_gather

As many rows are read and written as before. Explain in two sentences where the time went, with your number and its interval, and what you gave up for it.
"""

# %% explain 33.why_gather points=2
### BEGIN SOLUTION
answer = model_answer("33.why_gather")
### END SOLUTION
explain("33.why_gather", answer)

# %% checks
EXERCISES["33.why_gather"] = Explanation(
    "numbers: how many times as fast, with its interval",
    "why: calls, sorts and Python that fell away, although as many rows are read and written",
    "trade-off: what the plain way has that this one has not",
    model="Both ways read and write the same rows, so bytes do not explain the gain of 1.47 times (1.36 to 1.59). The "
    "plain way asks for a lookup, a sparse gradient, a sort and a dozen small updates for each of 26 tables, some 300 "
    "calls that cost microseconds each before they do anything; one gather, one sort and one update serve all tables. "
    "In return the weights are no parameters of the module any more, and every other optimiser needs an update of its "
    "own.",
    half="It is 1.47 times as fast (1.36 to 1.59) because one gather and one update replace the calls for 26 tables, "
    "although the same rows are read.",
)

# %% pairs-idea [markdown]
r"""
## Idea 2: one gather and one product for the interaction

Autograd takes the interaction apart as you wrote it. The backward pass of `products[:, first, second]` scatters each pair's gradient into a matrix of $V \times V$ zeros, number by number. That of `torch.bmm(v, vᵀ)` multiplies this matrix twice. By hand it is less: let $G$ be the symmetric matrix with each pair's gradient at both of its places, and 0 on the diagonal. Then the gradient of the vectors is $G$ times the vectors.

**How many times as fast will the step of idea 1 be with that?**
"""

# %% guess-pairs
guess("33.pairs", 1.1, "times as fast")

# %% ex-33-pairs [markdown]
"""
### Exercise 33.pairs

Write `Pairs`, a `torch.autograd.Function`. `forward` gives the products (B, P) of pairs below the diagonal, row by row, for vectors (B, V, D), as `plain_pairs` does. `backward` gives the gradient (B, V, D) for one of (B, P). Both keep the type of what they get (bf16, too).

1. Forward: all products by `torch.bmm`, flattened to (B, V V), and one `gather` of those that count. Keep the vectors with `ctx.save_for_backward`.
2. Backward: make **G** by one `gather`, too. `place` (V, V) says which pair's gradient goes where; on the diagonal it points at a zero that `F.pad(gradient, (0, 1))` adds at the end.

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
from labkit_course import check

check("33.pairs", Pairs)


# %% checks
def _bf16_gradient(code: Any) -> Tensor:
    vectors = drawn_vectors(3, 5, 4).bfloat16().requires_grad_()
    code.apply(vectors).sum().backward()
    return vectors.grad.float()


class _Scattered(torch.autograd.Function):
    @staticmethod
    def forward(ctx, vectors):
        ctx.save_for_backward(vectors)
        lower = torch.ones(vectors.shape[1], vectors.shape[1]).tril(-1).bool()
        return (vectors @ vectors.mT)[:, lower]

    @staticmethod
    def backward(ctx, gradient):
        (vectors,) = ctx.saved_tensors
        size = vectors.shape[1]
        half = gradient.new_zeros(len(gradient), size, size)
        half[:, torch.ones(size, size).tril(-1).bool()] = gradient
        return (half + half.transpose(1, 2)) @ vectors


EXERCISES["33.pairs"] = WrittenExercise(
    Pairs,
    Case("2 rows of 4 vectors", lambda code: code.apply(drawn_vectors(2, 4, 3))),
    Case("27 vectors a row", lambda code: code.apply(drawn_vectors(5, 27, 16))),
    Case("the gradient of 4 vectors", lambda code: gradient(code.apply, drawn_vectors(2, 4, 3))),
    Case("the gradient of a single pair", lambda code: gradient(code.apply, drawn_vectors(3, 2, 8))),
    Case("the gradient in bf16", _bf16_gradient, relative=0.02),
    Case(
        "its gradient compared with finite differences, in double precision (gradcheck)",
        lambda code: torch.autograd.gradcheck(code.apply, drawn_vectors(2, 5, 3).double().requires_grad_()),
    ),
    mistakes={
        ("offset=-1)  # (P,) each", "offset=0)"): "A vector does not meet itself: leave the diagonal out.",
        ("tril_indices(count, count, offset=-1)  # (P,) each", "triu_indices(count, count, offset=1)"): (
            "The same products in another order: take pairs row by row *below* the diagonal."
        ),
        ("place[first, second] = place[second, first] =", "place[first, second] ="): (
            "A pair's gradient goes to *both* of its vectors."
        ),
    },
    hint="Write G for three vectors by hand: which of its nine places hold the gradient of which pair? Then compare "
    "yours with the gradient that autograd gives for plain_pairs.",
    explanation="Autograd would scatter the gradient number by number, and multiply twice.",
    variants=(_Scattered,),
)

# %% pairs-measure-prose [markdown]
"""
The cell below measures it against the step of idea 1. The bound is that of a step in which the interaction costs nothing.
"""

# %% pairs-measure
paired = fast_step(Pairs.apply)
gathered_ms = parts_ms.sum() / gains["gather"]["measured"]
bound = 1 / (1 - min(0.9, parts_ms["interaction"] / gathered_ms))
reveal("33.pairs", gain("pairs", gathered, paired, bound))

# %% bf16-prose [markdown]
"""
## Idea 3: bf16, where it pays

labkit's rule (`labkit/fast/optimisers.py`) takes bf16 where a processor has units of its own that multiply it. **How many times as fast will your step be in bf16 on this machine?** Below 1 means slower.
"""

# %% guess-bf16
guess("33.bf16", 1.3, "times as fast")

# %% bf16-measure-prose [markdown]
"""
The rule predicts from the processor's name and flags, and pairs measure. Where 1 lies in their interval, they do not decide, and the rule does.
"""

# %% bf16-measure
rule, why = labkit.fast.chosen_precision("auto", "cpu")
print(f"the rule takes {rule} ({why})")
reveal("33.bf16", gain("bf16", paired, fast_step(Pairs.apply, True)))
low, high = gains["bf16"]["low"], gains["bf16"]["high"]
pays = low > 1 or (not high < 1 and rule == "bf16")

# %% faults-prose [markdown]
"""
## Idea 4: memory that is kept

The system clears each page of memory that it hands out, when the page is first touched: a *page fault*. At first, glibc's malloc gives tensors of 128 KiB and more back when they are freed, so the next step gets fresh pages. `give_memory_back` sets this state, and `keep_memory` keeps everything; labkit's runs do that. Neither exists on macOS and Windows.

**How many times as fast is your step where memory is kept?**
"""

# %% guess-memory
guess("33.memory", 1.1, "times as fast")

# %% faults-prose-threads [markdown]
"""
What malloc holds belongs to a thread. So each state has a thread and a model of its own, and the two take turns. `minor_faults` is the system's count of page faults.
"""

# %% faults-step
states = {"back": labkit.hardware.give_memory_back, "kept": labkit.hardware.keep_memory}
threads = {name: ThreadPoolExecutor(1) for name in states}
fast, faults = {name: fast_step(Pairs.apply, pays) for name in states}, {name: [] for name in states}


def step_with(name):
    states[name]()
    before = labkit.profiling.minor_faults()
    fast[name]()
    faults[name].append(labkit.profiling.minor_faults() - before)


# %% faults-measure-prose [markdown]
"""
Where neither state can be set, both do the same. From here on memory is kept.
"""

# %% faults-measure
turns = [lambda name=name: threads[name].submit(step_with, name).result() for name in states]
kept_gain = gain("memory kept", *turns)
reveal("33.memory", kept_gain if labkit.hardware.keep_memory() else None)
given_back, kept = map(np.median, faults.values())
print(f"page faults per step: {given_back:,.0f} where memory is given back, {kept:,.0f} where it is kept (medians)")

# %% figure-prose [markdown]
"""
Kept memory has a price: the process holds its peak until it ends, and other jobs may need that memory. What a fault costs depends on the machine; in a virtual machine it can be much more.

## What the ideas came to

The figure compares each idea with the step before it, and shows its bound where one was predicted.
"""

# %% figure
from labkit_course import apparatus

gained = pd.DataFrame(list(gains.values()))
labkit.plots.show(apparatus.figure_gains(gained[["change", "measured", "at_most"]]))
names = {"measured": "times as fast, measured", "at_most": "at most (times), predicted"}
labkit.plots.show(gained.rename(columns=names).set_index("change"))

# %% step-results-prose [markdown]
"""
The next cell keeps the numbers of this half for a program to read, each with bounds that hold on any machine.
"""

# %% step-results tags=["results"]
from labkit_course import results

results(
    gather_gain=(gains["gather"]["measured"], 0.3, 20),
    pairs_gain=(gains["pairs"]["measured"], 0.3, 5),
    bf16_gain=(gains["bf16"]["measured"], 0.02, 8),
    memory_gain=(kept_gain, 0.3, 15),
    logits_differ=(difference, 0, 0.01),
)

# %% run-prose [markdown]
"""
## Second half: a run

A step is not a run, and time to target is a property of runs. Your model and optimiser of the first half are taken from `mylab`. If that half did not run in this kernel, the rule decides on bf16.

## Idea 5: evaluate as often as pays, on fewer rows

A run evaluates, too: so far ten times an epoch, on all validation rows. `score` below is that evaluation, on a split that you give it.
"""

# %% score
FastDlrm, RowAdam, Pairs, auc = mine("33.model"), mine("33.optimiser"), mine("33.pairs"), mine("10.auc")
pays = globals().get("pays", labkit.fast.chosen_precision("auto", "cpu")[0] == "bf16")
validation = log.split("validation")
watched = validation.spread(min(len(validation), 20_000) // 2)  # fewer rows, spread over the split


@torch.no_grad()
def score(model, split):
    logits = [model(dense, categorical) for dense, categorical, _ in labkit.data.clicks.in_order(split, 2048)]
    return auc(split.label, torch.cat(logits).numpy())


# %% ex-33-lost [markdown]
"""
### Exercise 33.evaluation_gap

Evaluations that are far apart see the target late. Those that are close together take time themselves. How far apart is best, when you do not know exactly when the target comes?

Write `time_lost(gaps_s, evaluation_s, arrivals_s)`. It returns a list: for each gap, the mean number of seconds that are lost, over all arrivals.

1. A run evaluates after each `gap` seconds of training, and each evaluation takes `evaluation_s`. The model is good enough after `arrival` seconds of training. The first evaluation at that time or later sees it, and the run ends.
2. Lost are all evaluations until then, the last one included, and the training after the arrival.
"""

# %% answer 33.evaluation_gap
from collections.abc import Sequence

import numpy as np


def time_lost(gaps_s: Sequence[float], evaluation_s: float, arrivals_s: Sequence[float]) -> list[float]:
    """Mean seconds lost with each gap between two evaluations."""
    ### BEGIN SOLUTION
    arrivals, lost = np.asarray(arrivals_s), []
    for gap in gaps_s:
        evaluations = np.ceil(arrivals / gap)
        late = evaluations * gap - arrivals
        lost.append(float(np.mean(evaluations * evaluation_s + late)))
    return lost
    ### END SOLUTION


# %% check 33.evaluation_gap points=4
from labkit_course import check

check("33.evaluation_gap", time_lost)


# %% checks
def _one_by_one(gaps_s: Sequence[float], evaluation_s: float, arrivals_s: Sequence[float]) -> list[float]:
    means = []
    for gap in gaps_s:
        total = 0.0
        for arrival in arrivals_s:
            trained = spent = 0.0
            while trained < arrival or trained == 0:
                trained += gap
                spent += gap + evaluation_s
            total += spent - arrival
        means.append(total / len(arrivals_s))
    return means


EXERCISES["33.evaluation_gap"] = WrittenExercise(
    time_lost,
    draw=lambda random: (
        Case("one gap of 2 s, evaluations of 0.5 s, an arrival after 3 s", lambda code: code([2.0], 0.5, [3.0])),
        Case("three gaps and four arrivals", lambda code: code([1.0, 2.5, 7.0], 0.25, [3.2, 5.1, 8.75, 0.4])),
        Case("an arrival at an evaluation", lambda code: code([0.5, 1.5], 0.125, [3.0])),
        Case("evaluations that take no time", lambda code: code([0.25, 4.0], 0.0, [10.1, 11.9])),
        Case("arrivals drawn for this try", call, [0.5, 3.0], 0.3, [random.uniform(1, 20) for _ in range(5)]),
    ),
    mistakes={
        ("evaluations * evaluation_s + late", "(evaluations - 1) * evaluation_s + late"): (
            "The evaluation that sees the target takes time, too."
        ),
        ("np.ceil(arrivals / gap)", "arrivals / gap"): "Evaluations are whole: after which of them does the run end?",
        ("evaluations * evaluation_s + late", "evaluations * evaluation_s"): (
            "What the run trains after it is good enough is lost, too."
        ),
    },
    hint="Draw a line of time for a gap of 2 s and an arrival after 3 s, with each evaluation on it, and add up.",
    explanation="A short gap loses evaluations, a long one sees the target late; the best lies between.",
    variants=(_one_by_one,),
)

# %% gap-use-prose [markdown]
r"""
What do an evaluation and a step of the fast model take? Suppose the target comes after 5 s of training (1 s in the profile `smoke`), give or take a half. On paper the loss is about $ET/g + g/2$ for a gap $g$, evaluations of $E$ seconds and a target at $T$. It is least at $g = \sqrt{2ET}$. Young's rule for the time between two checkpoints (1974) has the same form. Does your function agree?
"""

# %% gap-use
labkit.hardware.keep_memory()
model, optimizers = fast_parts(Pairs.apply, pays)
ways = {"all": lambda: score(model, validation), "fewer": lambda: score(model, watched)}
ways["step"] = make_step(model, optimizers, cycle(ready))
took_s = paired_times(ways, 1 if profile == "smoke" else 3).median()
expected_s = 1 if profile == "smoke" else 5
gaps_s = np.geomspace(took_s["step"], expected_s, 200)
lost_s = time_lost(gaps_s, took_s["fewer"], expected_s * np.linspace(0.5, 1.5, 101))
gap_s, by_formula_s = gaps_s[np.argmin(lost_s)], (2 * took_s["fewer"] * expected_s) ** 0.5
plain_every, fast_every = len(rows) // 10, max(512, int(gap_s * 512 / took_s["step"]))
print(f"an evaluation takes {took_s['all']:.2g} s on all rows, {took_s['fewer']:.2g} s on {len(watched):,} of them")
print(f"best gap {gap_s:.2g} s, {by_formula_s:.2g} s by the formula: {fast_every:,} samples (before: {plain_every:,})")

# %% target-prose [markdown]
"""
## Time to target

Now all together, compared with where you began. Both kinds use your loop from [Train a DLRM](10_train_dlrm.ipynb), with the same seeds, first weights and batches. The fast one keeps its memory. **How many times sooner does the fast loop reach the target?**
"""

# %% guess-target
guess("33.target", 2.0, "times sooner")

# %% train-prose [markdown]
"""
A run of either kind. Each kind has a thread of its own, as in idea 4: in a thread that kept memory, the plain runs would find it.
"""

# %% train
goal, seeds, limit_s = {"smoke": (0.66, 2, 15), "standard": (0.78, 3, 120), "full": (0.78, 8, 240)}[profile]
limits = {"target": f"auc >= {goal}", "max_seconds": limit_s, "runs_dir": Path(runs_dir) / "notebooks"}


def train(kind, seed, model, optimizers, split, every):
    batches = labkit.data.clicks.ClickBatches(rows, batch_size=512, seed=seed)
    with labkit.Run("dlrm", seed=seed, evaluate_every=every, config={"train": {"step": kind}}, **limits) as run:
        loop(run, model, optimizers, batches, lambda: score(model, split))
    return run


# %% kinds
def train_plain(seed):
    labkit.hardware.give_memory_back()
    model = plain_model(seed)
    return train("plain", seed, model, make_optimizers(model, lr=2e-3), validation, plain_every)


def train_fast(seed):
    labkit.hardware.keep_memory()
    return train("fast", seed, *fast_parts(Pairs.apply, pays, seed), watched, fast_every)


# %% race
ways, runs = {"plain": train_plain, "fast": train_fast}, {"plain": [], "fast": []}
workers = {kind: ThreadPoolExecutor(1) for kind in ways}
for seed in range(seeds):
    for kind in sorted(ways, reverse=seed % 2):
        with redirect_stdout(StringIO()):  # a line an evaluation
            runs[kind].append(workers[kind].submit(ways[kind], seed).result())
folders = [run.folder for own in runs.values() for run in own]
table, evaluations = labkit.tta.run_table(folders), labkit.tta.curves(folders)
crossed = labkit.tta.crossings(evaluations, table, goal)
labkit.plots.show(labkit.plots.figure_time_to_accuracy(evaluations, goal, crossings=crossed))

# %% race-reveal-prose [markdown]
"""
Your `ratio_interval` compares the pairs. Where a run did not get there, there is no fair ratio. An interval that contains 1 does not show that the fast loop is sooner: take more seeds (`full`). Both need samples, too, and bf16 or another order of additions may change how many.
"""

# %% race-reveal
times_s = {kind: [run.result["time_to_target_s"] for run in own] for kind, own in runs.items()}
all_there = all(times_s["plain"] + times_s["fast"])
sooner = ratio_interval(times_s["fast"], times_s["plain"]) if all_there else (None, None, None)
reveal("33.target", sooner[0])
print("interval:", *(f"{each:.3g}" for each in sooner[1:] if each), f"of {seeds} seeds, measured")
for kind, own in runs.items():
    samples = [run.result["samples_to_target"] for run in own]
    aside = np.mean([1 - run.result["train_s"] / run.result["wall_s"] for run in own])
    seconds = ", ".join(f"{each or float('nan'):.3g}" for each in times_s[kind])
    print(f"{kind}: {seconds} s and {samples} samples to the target; {aside:.0%} of a run is no training")

# %% ex-why-target [markdown]
"""
### Exercise 33.why_target

The product of the ideas' gains is one number, the gain in time to target another. Explain in two or three sentences why they differ, and which idea you would take first in another project.
"""

# %% explain 33.why_target points=2
### BEGIN SOLUTION
answer = model_answer("33.why_target")
### END SOLUTION
explain("33.why_target", answer)

# %% checks
EXERCISES["33.why_target"] = Explanation(
    "numbers: the gain in time to target compared with the gain in a step's time",
    "why: what a run does between its steps, or a difference in the samples that it needs",
    "trade-off: which of the ideas you would take first, for how much code",
    model="The product of the gains was 3.6, and the target came 2.6 times sooner: a run fetches its batches, "
    "evaluates (24 % of a plain run, 7 % of a fast one), and needs a number of samples that bf16 and the times of "
    "evaluation change. Kept memory and evaluations on fewer rows cost a line each and change no weight, so they "
    "come first; the gather is next, 1.4 times as fast for two classes, and bf16 only where it pays.",
    half="The gains multiply to 3.6 and the target comes 2.6 times sooner, because a run also evaluates (24 % of a plain run).",
)

# %% scores-prose [markdown]
"""
How good were your guesses? The first answer to each counts. The cell after the scores keeps the number of this half for a program to read.
"""

# %% scores
from labkit_course import score_notebook

score_notebook()

# %% results tags=["results"]
from labkit_course import results

results(target_gain=(sooner[0], 0.4, 20))

# %% assistant bf16_gain above=1.5 [markdown]
"""
bf16 halves the bytes and doubles the arithmetic rate, so it makes the step more than 1.5 times as fast.
"""

# %% recap [markdown]
"""
## Recap

- Steps take turns, and the logarithms of their ratios give an interval: drift cancels out.
- Calls cost: one gather, one sort and one update did the work of 26 tables' sparse tensors, with the same numbers.
- A backward pass by hand pays where autograd takes a detour; `gradcheck` says whether it is right.
- Whether bf16 or kept memory pays is a property of the machine: a rule predicts it, pairs measure it.
- A run is more than its steps: evaluate as often as pays, on as few rows as show the target.
- Time to target has the last word, over several seeds.

**Next:** [Clinics](34_clinics.ipynb)
"""

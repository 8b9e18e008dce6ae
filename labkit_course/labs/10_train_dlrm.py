# %% opening [markdown]
"""
# Train a DLRM to a target

After this notebook you will be able to

- **write** a deep learning recommendation model (DLRM) in PyTorch, its score and its training loop;
- **count** its parameters, operations and bytes on paper, and **predict** a step from your machine's card;
- **find** and **fix** an optimiser that passes over every row of every table;
- **train** it to a target, and **say** how much seeds differ;
- **judge** three claims of papers by your own numbers.

**Time:** 90 minutes in two halves, which stand alone: *the model and its step* (60) and *training it* (30). The machine computes for about half a minute on 2 CPU cores. No GPU is needed.

**Prerequisites:** [Start here](00_start_here.ipynb), PyTorch's `nn.Module` and a training loop. What you write is kept in `mylab/dlrm.py`, and later labs profile, speed up and collocate it.
"""

# %% checks
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from labkit.models import Dlrm, DlrmConfig
from labkit_course.apparatus import WatchedRun
from labkit_course.exercise import Case, Exercise, Explanation, WrittenExercise

# Shapes: B batch, D embedding dim, F tables, L lookups a bag, V = F + 1 vectors that meet, P = V (V − 1) / 2 pairs.

EXERCISES = {}

# %% parameters-prose [markdown]
"""
The next cell holds what you may change. `student` is your number, if your course gave you one: some questions draw their figures by it.
"""

# %% parameters tags=["parameters"]
profile = "standard"  # smoke, standard or full
runs_dir = "runs"  # run folders are made in its subfolder notebooks
student = 0  # whose numbers the questions have
seed = 0

# %% log-prose [markdown]
"""
## The click log

Each row is one advertisement shown to one user: numbers (dense features), categories (the site, the campaign, the device ...), and whether it was clicked. Real logs have billions of rows and are rarely public; this one is generated, with 13 dense features like the public Criteo logs, and categories as skewed as theirs: a few are everywhere, most are rare.
"""

# %% log
import labkit

data = "synthetic-small" if profile == "smoke" else "synthetic"
log = labkit.data.clicks.load_clicks(data)
log

# %% rows-prose [markdown]
"""
Three rows, with the first few features of each. Dense values are standardised; a category is the number of a row in that feature's embedding table.
"""

# %% rows
import pandas as pd

rows = log.split("train")
few = pd.DataFrame(rows.dense[:3, :4].round(2), columns=log.dense_names[:4])
few[log.categorical_names[:4]] = rows.categorical[:3, :4, 0]
few.assign(clicked=rows.label[:3])

# %% bayes-prose [markdown]
"""
### How good can a model get?

A hidden *teacher* decided the clicks: it computed a probability for each row and then drew a click from it. Even the teacher cannot foresee the draw. The AUC that the true probabilities themselves reach is the **Bayes AUC**: no model can be expected to beat it. Scoring at random gives 0.5, never being wrong gives 1. **Where does the teacher itself land?**
"""

# %% guess-bayes
from labkit_course import check, claim, draw, explain, guess, model_answer, reveal

guess("10.bayes_auc", 0.95)

# %% bayes-reveal-prose [markdown]
"""
Because the log is generated, labkit knows the answer, which is not known for a real log.
"""

# %% bayes-reveal
bayes_auc = log.info["bayes_auc_validation"]
print(f"share of rows clicked: {log.info['base_rate']:.3f}")
reveal("10.bayes_auc", bayes_auc)

# %% model-prose [markdown]
"""
An AUC of 0.75 here is therefore not "25 % wrong", for the ceiling is 0.80. Nor is it "nearly all there is to know": in this field a difference of 0.001 counts. MLPerf's DLRM has to reach 0.8025 on the Criteo logs (MLPerf v1), and the published tables in [Batch size and accuracy](13_batch_size_and_accuracy.ipynb) argue about the third and fourth decimal.

## First half: the model and its step

A DLRM (Naumov et al., arXiv 1906.00091) has four parts:

1. the **bottom MLP** turns the dense features into one vector;
2. **embedding tables** turn each category into a vector of the same width;
3. the **interaction** takes the dot product of every pair of these vectors;
4. the **top MLP** turns that vector and the dot products into one number, the click's logit.

`config` has the sizes of all four. All of this notebook computes on one thread, so that other programs on your machine disturb it less.
"""

# %% config
import torch

torch.set_num_threads(1)
shape = labkit.jobs.get_preset("dlrm", "tour").model
config = labkit.models.DlrmConfig(dense_dim=len(log.dense_names), num_rows=log.table_rows, **shape)
print(f"dense_dim {config.dense_dim}, {config.num_tables} tables, embedding_dim {config.embedding_dim}")
print(f"num_rows {config.num_rows}")
print(f"bottom_mlp {config.bottom_mlp}, top_mlp {config.top_mlp}")

# %% interaction-prose [markdown]
"""
### Write 10.interaction

`interaction(vectors)` takes a tensor of shape (B, V, D), for each of B samples V vectors of width D, and returns the dot product of every pair once, none with itself: shape (B, V (V − 1) / 2), in the order of the pairs below the diagonal, row by row.

1. All V × V products at once: `torch.bmm` of the vectors and their transpose.
2. Those below the diagonal: `torch.tril_indices(V, V, offset=-1)` gives their two lists of indices.

*Hint:* one indexing with both lists picks from all samples at once, `products[:, first, second]`. No loop is needed.
"""

# %% answer 10.interaction
import torch


def interaction(vectors):
    """The dot products (B, V (V - 1) / 2) of all pairs of vectors (B, V, D)."""
    ### BEGIN SOLUTION
    products = torch.bmm(vectors, vectors.transpose(1, 2))  # (B, V, V)
    first, second = torch.tril_indices(vectors.shape[1], vectors.shape[1], offset=-1)
    return products[:, first, second]
    ### END SOLUTION


# %% check 10.interaction points=4
check("10.interaction", interaction)


# %% checks
def drawn_vectors(batch: int, count: int, width: int) -> Tensor:
    return torch.randn(batch, count, width, generator=torch.Generator().manual_seed(count))


def gradient(code: Any, given: Tensor) -> Tensor:
    """Of a weighted sum of what code gives, by what it is given."""
    out = code(given.requires_grad_())
    (out * torch.arange(1.0, out.numel() + 1).view_as(out)).sum().backward()
    return given.grad


EXERCISES["10.interaction"] = WrittenExercise(
    interaction,
    module="dlrm",
    cases=(
        Case("2 rows of 4 vectors", lambda code: code(drawn_vectors(2, 4, 3))),
        Case("27 vectors a row, as the click log gives", lambda code: code(drawn_vectors(5, 27, 16))),
        Case("a single table", lambda code: code(drawn_vectors(3, 2, 8))),
        Case("the gradient of the vectors", lambda code: gradient(code, drawn_vectors(2, 4, 3))),
    ),
    mistakes={
        ("offset=-1", "offset=0"): "A vector does not meet itself: leave the diagonal out.",
        ("[:, first, second]", ".flatten(1)"): (
            "All V² products are there; each pair counts once, and none with itself."
        ),
        lambda vectors: interaction(vectors.flip(1)).flip(1): (  # the pairs above the diagonal, row by row
            "These are the right products in another order: take the pairs below the diagonal, row by row "
            "(torch.tril_indices with offset=-1), so that weights can be copied from model to model."
        ),
    },
    hint="`torch.bmm` of the vectors and their transpose gives all V × V products; keep the pairs below the diagonal.",
    explanation="27 vectors make 351 pairs, and the product computes 729: which of the two you count matters later.",
)

# %% mydlrm-prose [markdown]
"""
### Write 10.model

`MyDlrm(config)` has three parts as attributes, `bottom`, `tables` and `top`; `forward` takes `dense` float (B, dense_dim) and `categorical` int (B, F, L), L numbers of rows for each of F tables, and returns logits of shape (B,).

1. `mlp(width, widths)`: an `nn.Sequential` of `nn.Linear` and `nn.ReLU` for each of `widths`. The bottom MLP is one, the top MLP is one without its last ReLU. How wide is its input?
2. `tables`: an `nn.ModuleList` of `nn.EmbeddingBag(rows, embedding_dim, mode="sum")`. They start from N(0, 1), which is far too large: draw them again, uniformly from ±1/√rows (`nn.init.uniform_`), as the reference DLRM does.
3. `forward`: the bottom's vector first, then the tables' sums; stack them to (B, V, D), let them interact, and give the top MLP the bottom's vector and the pairs, concatenated.

*Hint:* `table(categorical[:, f])` sums a bag of L rows a sample, to (B, D).
"""

# %% answer 10.model
import torch
from torch import nn


def mlp(width, widths):
    """Linear and ReLU for each of the widths."""
    ### BEGIN SOLUTION
    layers = []
    for out in widths:
        layers += [nn.Linear(width, out), nn.ReLU()]
        width = out
    return nn.Sequential(*layers)
    ### END SOLUTION


class MyDlrm(nn.Module):
    def __init__(self, config):
        super().__init__()
        ### BEGIN SOLUTION
        vectors = config.num_tables + 1
        self.bottom = mlp(config.dense_dim, config.bottom_mlp)
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, config.embedding_dim, mode="sum") for rows in config.num_rows)
        for table in self.tables:
            bound = len(table.weight) ** -0.5
            nn.init.uniform_(table.weight, -bound, bound)
        self.top = mlp(config.embedding_dim + vectors * (vectors - 1) // 2, config.top_mlp)[:-1]
        ### END SOLUTION

    def forward(self, dense, categorical):
        ### BEGIN SOLUTION
        bottom = self.bottom(dense)  # (B, D)
        sums = [table(categorical[:, f]) for f, table in enumerate(self.tables)]  # F of (B, D)
        vectors = torch.stack([bottom, *sums], dim=1)  # (B, V, D)
        return self.top(torch.cat([bottom, interaction(vectors)], dim=1)).squeeze(1)
        ### END SOLUTION


# %% check 10.model points=6
check("10.model", MyDlrm)

# %% checks
SMALL = DlrmConfig(5, (7, 11, 4), 6, (8, 6), (9, 1))


ONE_TABLE = DlrmConfig(3, (10,), 4, (4,), (1,))


LARGE = DlrmConfig(3, (9_000, 16_000), 8, (8,), (1,))


def _shapes(code: Any) -> dict[str, list[str]]:
    model = code(SMALL)
    return {
        part: [str(tuple(each.shape)) for each in getattr(model, part).parameters()]
        for part in ("bottom", "tables", "top")
    }


def _logits(code: Any, config: DlrmConfig, lookups: int, *, batch: int = 6, of_gradients: bool = False) -> Any:
    """Logits of the student's model with the weights of the kit's, or which of its weights got a gradient."""
    generator = torch.Generator().manual_seed(3)
    torch.manual_seed(3)
    kit, model = Dlrm(config), code(config)
    with torch.no_grad():
        for ours, theirs in zip(_weights(kit), _weights(model), strict=True):
            theirs.copy_(ours)
    dense = torch.randn(batch, config.dense_dim, generator=generator)
    most = torch.tensor(config.num_rows)[:, None]
    categorical = (torch.rand(batch, len(most), lookups, generator=generator) * most).int()
    logits = model(dense, categorical)
    if not of_gradients:
        return logits
    logits.sum().backward()
    return [bool(weight.grad is not None) for weight in _weights(model)]


def _first_weights(code: Any) -> Tensor:
    """Of two tables least, quartiles and largest of the first values times √rows: -1, -0.5, 0, 0.5, 1 but for luck."""
    torch.manual_seed(0)
    scaled = [table.weight.detach() * len(table.weight) ** 0.5 for table in code(LARGE).tables]
    return torch.stack([each.quantile(torch.linspace(0, 1, 5)) for each in scaled])  # (2, 5)


def _weights(model: nn.Module) -> list[Tensor]:
    return [*model.bottom.parameters(), *model.tables.parameters(), *model.top.parameters()]


EXERCISES["10.model"] = WrittenExercise(
    MyDlrm,
    module="dlrm",
    cases=(
        Case("the shapes of the weights", _shapes),
        Case("three tables and the weights of labkit's model", lambda code: _logits(code, SMALL, 1)),
        Case("bags of three lookups", lambda code: _logits(code, SMALL, 3)),
        Case("one row, a single table and MLPs of one layer", lambda code: _logits(code, ONE_TABLE, 1, batch=1)),
        Case("which weights get a gradient", lambda code: _logits(code, SMALL, 1, of_gradients=True)),
        # luck is a fifth of it, of the medians of two draws of 72,000 values
        Case("the first values of two tables, their quartiles times √rows", _first_weights, relative=0.03),
    ),
    mistakes={
        ("config.top_mlp)[:-1]", "config.top_mlp)"): (
            "The last layer of the top MLP gives the logit, which may be negative: no ReLU after it."
        ),
        (".squeeze(1)", ".squeeze(1).sigmoid()"): (
            "Return logits: the loss, binary_cross_entropy_with_logits, applies the sigmoid itself."
        ),
        ("nn.init.uniform_(table.weight, -bound, bound)", "pass"): (
            "nn.EmbeddingBag starts from N(0, 1): far too large, and learning first has to undo it. Draw each table "
            "from ±1/√rows (nn.init.uniform_)."
        ),
    },
    hint="bottom, tables (an nn.ModuleList) and top are attributes; stack the bottom's vector and the F sums to "
    "(B, V, D); the top MLP reads the bottom's vector and the pairs, concatenated.",
    explanation="With the same weights your model gives the same logits as labkit's.",
)

# %% tables-percent-prose [markdown]
"""
It gives the same logits as labkit's model under the same weights; from here on the notebook trains yours. **What share of its parameters sits in the embedding tables?** Guess in percent.
"""

# %% guess-tables
guess("10.tables_percent", 50.0, "%")

# %% tables-reveal-prose [markdown]
"""
Count them, part by part. The interaction has none: it only multiplies.
"""

# %% tables-reveal
model = MyDlrm(config)
parts = {"bottom MLP": model.bottom, "embedding tables": model.tables, "top MLP": model.top}
counts = pd.Series({name: sum(p.numel() for p in part.parameters()) for name, part in parts.items()})
tables_percent = 100 * counts["embedding tables"] / counts.sum()
print(counts.to_string())
reveal("10.tables_percent", tables_percent)

# %% overfit-prose [markdown]
"""
### Write 10.overfit

Before any long training: **can it learn 64 rows by heart?** A model that cannot has a bug, and finding that out takes a second. `overfit(model, optimizers, batch, steps)` takes `steps` steps on one batch `(dense, categorical, label)`, with every optimiser of the list, and returns the list of losses, plain numbers, each as it was *before* its step.

1. The loss is `F.binary_cross_entropy_with_logits` of the model's logits and the labels.
2. Clear the gradients, `backward`, and a step of each optimiser.

*Hint:* `loss.item()` is a plain number.
"""

# %% answer 10.overfit
import torch.nn.functional as F


def overfit(model, optimizers, batch, steps):
    """The losses of some steps on one batch, each before its step."""
    ### BEGIN SOLUTION
    dense, categorical, label = batch
    losses = []
    for _ in range(steps):
        loss = F.binary_cross_entropy_with_logits(model(dense, categorical), label)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.item())
    return losses
    ### END SOLUTION


# %% check 10.overfit points=4
check("10.overfit", overfit)


# %% checks
def _by_heart(code: Any, steps: int, lr: float) -> dict[str, Any]:
    torch.manual_seed(0)
    model, generator = MyDlrm(ONE_TABLE), torch.Generator().manual_seed(5)
    batch = torch.randn(8, 3, generator=generator), torch.arange(8).view(8, 1, 1), torch.arange(8) % 2.0
    halves = model.tables.parameters(), [*model.bottom.parameters(), *model.top.parameters()]
    losses = code(model, [torch.optim.SGD(part, lr=lr) for part in halves], batch, steps)
    return {"losses": losses, "plain numbers": all(isinstance(each, float) for each in losses)}


EXERCISES["10.overfit"] = WrittenExercise(
    overfit,
    module="dlrm",
    cases=(
        Case("12 steps on one batch of 8 rows", lambda code: _by_heart(code, 12, 0.5)),
        Case("4 smaller ones", lambda code: _by_heart(code, 4, 0.1)),
    ),
    mistakes={
        ("optimizer.zero_grad()", "pass"): (
            "Gradients add up from step to step: clear them (zero_grad) before each backward."
        ),
        ("optimizer.step()", "pass"): "The loss stays: no optimiser steps.",
        ("loss.item()", "loss"): "Keep loss.item(), a number: a tensor keeps its whole graph in memory.",
    },
    hint="`steps` times: the loss of the batch, clear the gradients, backward, step all optimisers, keep the loss.",
    explanation="If this does not go to zero on 64 rows, nothing will be learnt from the whole log either.",
)

# %% guess-overfit-prose [markdown]
"""
A model that says 0.5 for every row has a loss of ln 2 = 0.693 nats, one that always says the base rate of 25 % has 0.563. **What is the loss after 50 steps of Adam at a rate of 0.002 on the same 64 rows?**
"""

# %% guess-overfit
guess("10.overfit_loss", 0.3, "nats")

# %% overfit-reveal-prose [markdown]
"""
The same 64 rows again and again:
"""

# %% overfit-reveal
torch.manual_seed(seed)
model = MyDlrm(config)
few = next(iter(labkit.data.clicks.ClickBatches(rows, batch_size=64, seed=seed)))
losses = overfit(model, [torch.optim.Adam(model.parameters(), lr=2e-3)], few, 101)
print(", ".join(f"step {step}: {losses[step]:.4f}" for step in (0, 10, 20, 50, 100)))
reveal("10.overfit_loss", losses[50])

# %% cost-prose [markdown]
"""
Sixty-four rows by heart say nothing about other rows, and a loss below the teacher's own is no skill; it says that gradients arrive where they should.

## What a step costs, on paper

Now the resources, before anything is measured.

### Write 10.cost

`step_cost(config, batch_size)` returns a dictionary of four numbers, for one lookup a table:

1. `"parameters"`: tables, weights and biases;
2. `"flops"`: of all products of a step. A layer of m inputs and n outputs takes m · n multiplications *and* additions a sample forward, and twice that backward (for the weights' gradient and for the inputs'). The interaction computes all V × V products of width D. Biases, activations and the loss are left out;
3. `"adam_bytes"`: what Adam moves for the **tables**. For each of their numbers it reads four (the number, its gradient, its two moments) and writes three, of 4 bytes each;
4. `"touched_bytes"`: the same for those rows alone that a batch *can* name: of each table at most `batch_size`, and no more than it has.

*Hint:* `itertools.pairwise((13, 64, 16))` gives (13, 64) and (64, 16); widths of the MLPs exclude their inputs.
"""

# %% answer 10.cost
from itertools import pairwise


def step_cost(config, batch_size):
    """Parameters, operations of a step, bytes that Adam moves for all rows and for those that a batch can name."""
    ### BEGIN SOLUTION
    vectors = config.num_tables + 1
    bottom = (config.dense_dim, *config.bottom_mlp)
    top = (config.embedding_dim + vectors * (vectors - 1) // 2, *config.top_mlp)
    products = sum(m * n for widths in (bottom, top) for m, n in pairwise(widths))
    biases = sum(config.bottom_mlp) + sum(config.top_mlp)
    in_tables = sum(config.num_rows) * config.embedding_dim
    touched = sum(min(rows, batch_size) for rows in config.num_rows) * config.embedding_dim
    return {
        "parameters": in_tables + products + biases,
        "flops": 3 * 2 * batch_size * (products + vectors**2 * config.embedding_dim),
        "touched_bytes": 7 * 4 * touched,
        "adam_bytes": 7 * 4 * in_tables,
    }
    ### END SOLUTION


# %% check 10.cost points=5
check("10.cost", step_cost)

# %% checks
MLPERF = DlrmConfig(13, (40_000_000,) * 26, 128, (512, 256, 128), (1024, 1024, 512, 256, 1))


EXERCISES["10.cost"] = WrittenExercise(
    step_cost,
    module="dlrm",
    cases=(
        Case("three small tables, batch 10", lambda code: code(SMALL, 10)),
        Case("a single table, batch 1", lambda code: code(ONE_TABLE, 1)),
        Case("MLPerf's DLRM, batch 2,048", lambda code: code(MLPERF, 2048)),
    ),
    mistakes={
        ("3 * 2 * batch_size", "2 * batch_size"): (
            "That is the forward pass: backward has two products for each of forward's, for weights and for inputs."
        ),
        ("3 * 2 * batch_size", "3 * batch_size"): "A multiplication and an addition: two operations each.",
        (" + vectors**2 * config.embedding_dim", ""): "The interaction multiplies, too: V × V × D a row.",
    },
    hint="parameters: width × next width of both MLPs, inputs first, biases and tables. flops: 3 · 2 · batch_size for "
    "each weight of the MLPs and of the interaction's V × V × D. Bytes: 7 · 4 for each number of the tables alone, of "
    "all rows (adam_bytes) or of those that a batch can name (touched_bytes).",
    explanation="Nearly all parameters are in the tables, and most arithmetic is in the MLPs.",
)

# %% cost-use-prose [markdown]
"""
Your formula for this notebook's model at a batch of 512, and for the DLRM of MLPerf v1 at 2,048, with 26 tables at the cap of 40 million rows: an upper bound, since not every feature has so many categories. All predicted.
"""

# %% cost-use
mlperf = labkit.models.DlrmConfig(13, (40_000_000,) * 26, **labkit.jobs.get_preset("dlrm", "mlperf-v1").model)
paper = pd.DataFrame({"this model": step_cost(config, 512), "MLPerf v1, at most": step_cost(mlperf, 2048)}).T
paper = paper.rename(columns={"parameters": "parameters (10⁶)", "flops": "a step (GFLOP)"})
paper = paper.rename(columns={name: f"{name} (MB)" for name in ("touched_bytes", "adam_bytes")})
(paper / [1e6, 1e9, 1e6, 1e6]).map("{:,.3g}".format)

# %% cost-check-prose [markdown]
"""
The same parameters, counted in the model above; if these two differ, one of them is wrong. And where the arithmetic is.
"""

# %% cost-check
on_paper = step_cost(config, 512)
print(f"{on_paper['parameters']:,} on paper, {counts.sum():,} in the model")
for name, of, size in (("this model", config, 512), ("MLPerf v1", mlperf, 2048)):
    met = 6 * size * (of.num_tables + 1) ** 2 * of.embedding_dim / step_cost(of, size)["flops"]
    print(f"{name}: {1 - met:.0%} of the arithmetic in the MLPs, {met:.0%} in the interaction")

# %% table-gb-prose [markdown]
"""
### Exercise 10.table_gb

How large is one table of this many rows and this `embedding_dim` in single precision, in GB (1e9 bytes)? `draw` prints your numbers.
"""

# %% draw-table-gb
numbers = draw("10.table_gb", student)

# %% answer-table-gb-prose [markdown]
"""
Write an expression with `numbers["rows"]` and `numbers["embedding_dim"]`, or the number.
"""

# %% answer 10.table_gb
### BEGIN SOLUTION
answer = numbers["rows"] * numbers["embedding_dim"] * 4 / 1e9
### END SOLUTION

# %% check 10.table_gb points=1
check("10.table_gb", answer, student)

# %% checks
EXERCISES["10.table_gb"] = Exercise(
    lambda rows, embedding_dim: rows * embedding_dim * 4 / 1e9,
    draw=lambda random: {
        "rows": random.randrange(5, 60) * 1_000_000,
        "embedding_dim": random.choice([32, 64, 96, 128]),
    },
    unit="GB, 1e9 bytes",
    hint="Rows × embedding_dim × bytes of a number.",
    explanation="Each row has embedding_dim numbers of 4 bytes; the optimiser's moments come on top.",
    mistakes={
        lambda rows, embedding_dim: rows * embedding_dim / 1e9: "A single-precision number has 4 bytes.",
        lambda rows, embedding_dim: rows * embedding_dim * 8 / 1e9: "Single precision has 4 bytes, not 8.",
        lambda rows, embedding_dim: rows * embedding_dim * 4: "That is in bytes; a GB is 1e9 of them.",
    },
)

# %% gpus-prose [markdown]
"""
Which of the catalogue's GPUs hold MLPerf's tables? `PUBLISHED_ROWS` has their rows, as MLPerf's reference lists them. Adam's two moments would make that three times as much.
"""

# %% gpus
published_gb = labkit.perfmodel.table_bytes(labkit.perfmodel.PUBLISHED_ROWS["mlperf-v1"], embedding_dim=128) / 1e9
needs = {"tables alone": published_gb, "with Adam's moments": 3 * published_gb}
gpus = {tier.label: tier.memory_gb for tier in labkit.hardware.load_tiers().values() if tier.kind == "gpu"}
needs["at the cap"] = mlperf.parameter_bytes / 1e9
fits = {name: [gpu for gpu, memory in gpus.items() if memory >= need] for name, need in needs.items()}
for name, need in needs.items():
    print(f"{name}, {need:,.0f} GB: {len(fits[name])} of {len(gpus)} GPUs {' '.join(fits[name])}")

# %% why-tables-prose [markdown]
"""
### Explain 10.why_tables

In two or three sentences: where are this model's parameters and where is its arithmetic, why are these not the same places, and what follows for the hardware that it needs? Give numbers. A model answer unfolds after yours.
"""

# %% explain 10.why_tables points=2
### BEGIN SOLUTION
answer = model_answer("10.why_tables")
### END SOLUTION
explain("10.why_tables", answer)

# %% checks
EXERCISES["10.why_tables"] = Explanation(
    rubric=(
        "numbers: the shares of the parameters and of the arithmetic, or one size in GB compared with a memory in GB",
        "why: a row of the log names one row of each table, and passes through every weight of the MLPs",
        "trade-off: what helps one part (more memory, a lower rank, hashing) does nothing for the other",
    ),
    model="More than nine tenths of the parameters are in the tables, yet a sample reads one row of each, while it is "
    "multiplied with every weight of the MLPs, which do most of the arithmetic (83 % here, 96 % in MLPerf's). So "
    "memory decides whether the model fits and arithmetic how quickly its MLPs run: a GPU with more TFLOP/s does not "
    "make the tables fit, and smaller tables, by hashing, save memory for some accuracy.",
)

# %% card-prose [markdown]
"""
## How long a step takes

Your machine's **card**: billions of operations and of bytes a second at best, and what asking for one operation costs ([Know your machine](01_know_your_machine.ipynb)).
"""

# %% card
card = labkit.hardware.calibrate(repeats=3)
print(f"{card.fp32_gflops:.0f} GFLOP/s, {card.bandwidth_gb_per_s:.1f} GB/s, {card.launch_us:.1f} µs a call")

# %% predicted-prose [markdown]
"""
### Write 10.predicted

`predict_ms(flops, table_bytes, calls, card)` returns how many milliseconds a step takes: its arithmetic at `card.fp32_gflops`, its bytes at `card.bandwidth_gb_per_s`, and `card.launch_us` microseconds for each call. The three are done by different operators one after another.

*Hint:* seconds first; GFLOP/s and GB/s are 1e9 a second.
"""


# %% answer 10.predicted
def predict_ms(flops, table_bytes, calls, card):
    """Milliseconds of a step, from what it does and what the machine can do."""
    ### BEGIN SOLUTION
    arithmetic_s = flops / (card.fp32_gflops * 1e9)
    memory_s = table_bytes / (card.bandwidth_gb_per_s * 1e9)
    asking_s = calls * card.launch_us * 1e-6
    return 1e3 * (arithmetic_s + memory_s + asking_s)
    ### END SOLUTION


# %% check 10.predicted points=3
check("10.predicted", predict_ms)


# %% checks
def _on(fp32_gflops: float, bandwidth_gb_per_s: float, launch_us: float, *step: float) -> Any:
    card = SimpleNamespace(fp32_gflops=fp32_gflops, bandwidth_gb_per_s=bandwidth_gb_per_s, launch_us=launch_us)
    return lambda code: code(*step, card)


EXERCISES["10.predicted"] = WrittenExercise(
    predict_ms,
    module="dlrm",
    cases=(
        Case("a step of 0.2 GFLOP, 8 MB and 500 calls on a slow machine", _on(20, 5, 4, 2e8, 8e6, 500)),
        Case("the same on a fast one", _on(900, 200, 1.5, 2e8, 8e6, 500)),
        Case("a step of calls alone", _on(20, 5, 4, 0, 0, 1000)),
    ),
    mistakes={
        ("(arithmetic_s + memory_s + asking_s)", "max(arithmetic_s, memory_s, asking_s)"): (
            "The larger one is the time of a single kernel that computes and loads at once; these are different "
            "kernels, one after the other: add them up."
        ),
        (" + asking_s", ""): "Asking takes time, too: launch_us for each call.",
        ("1e3 * (", "("): "That is in seconds.",
    },
    hint="Three times add up: flops / (GFLOP/s · 1e9), table_bytes / (GB/s · 1e9), calls · launch_us · 1e-6.",
    explanation="It takes each part at the machine's best, and leaves out what was not counted.",
)

# %% predict-use-prose [markdown]
"""
How many calls? For each table about 5 forward and backward and 9 of Adam; for each of the MLPs' layers about 6 and, with its weight and its bias, 18 of Adam. Your prediction for a batch of 512:
"""

# %% predict-use
layers = len(config.bottom_mlp) + len(config.top_mlp)
calls = 14 * config.num_tables + 24 * layers
predicted_ms = predict_ms(on_paper["flops"], on_paper["adam_bytes"], calls, card)
print(f"{calls} calls; {predicted_ms:.1f} ms a step, predicted")

# %% guess-step-prose [markdown]
"""
The formula takes every part at the machine's best. **What will the step really take?**
"""

# %% guess-step
guess("10.step_ms", 10.0, "ms")

# %% profile-prose [markdown]
"""
`profile_steps` calls a step of yours a few times unobserved and a few times under PyTorch's profiler, and adds up what each operator took.
"""

# %% profile
from pathlib import Path

runs = Path(runs_dir) / "notebooks"
model = MyDlrm(config)
adam = torch.optim.Adam(model.parameters(), lr=2e-3)
batch = next(iter(labkit.data.clicks.ClickBatches(rows, batch_size=512, seed=seed)))
observed = labkit.profiling.profile_steps(lambda: overfit(model, [adam], batch, 1), runs, limits=card, skip=10, steps=5)
print(observed.headline, "" if labkit.telemetry.is_quiet() else "Others compute here at the moment: this is too long.")
reveal("10.step_ms", observed.unprofiled_step_us / 1e3)

# %% parts-prose [markdown]
"""
Which part of the model is each operator? Products of the MLPs are `mm` and `addmm`, those of the interaction `bmm`; what picks the pairs is `index`; Adam's are the ones that change numbers in place.
"""

# %% parts
import re

PARTS = {
    "MLPs": r"::(mm|addmm|relu|clamp_min|threshold_backward)$",
    "interaction": r"::(bmm|index|_index_put_impl_|cat)$",
    "tables": r"[eE]mbedding|::(zeros|zero_|fill_|sort)$",
    "Adam": r"::(sqrt|div|mul_|add_|lerp_|addcmul_|addcdiv_)$",
}
operators = observed.operators
named = {name: next((p for p, x in PARTS.items() if re.search(x, name)), "other") for name in operators["operator"]}
operators["part"] = operators["operator"].map(named)

# %% shares-prose [markdown]
"""
The parts' shares of a step, and what the most expensive operators reached, next to what the card allows. An operator's *intensity* is its operations for each byte it moves; below the ridge of the card it waits for memory, above it for arithmetic. One that is far below both limits waits for something else: a call that does little, or memory that is touched for the first time, as results of `sqrt` and `div` may be. That is most of what your prediction left out. What has no intensity (sorting, bookkeeping, time outside of operators) is not in the table.
"""

# %% shares
operators["flop_per_byte"] = operators["gflop_per_s"] / operators["gb_per_s"]
shares = operators.groupby("part")["share"].sum()
print(", ".join(f"{part} {share:.0%}" for part, share in shares.items()))
other = operators[operators["part"] == "other"].nlargest(3, "share")["operator"]
print(f"the largest of other: {', '.join(other)}")
print(f"the card's ridge: {card.ridge_flop_per_byte:.1f} FLOP/byte")
columns = ["part", "operator", "share", "gflop_per_s", "gb_per_s", "flop_per_byte"]
operators.dropna(subset=["flop_per_byte"])[columns].head(8).round(3)

# %% touched-prose [markdown]
"""
## Which rows, and which rows does Adam pass over?

A batch of 512 samples names one row of each table a sample, and popular rows again and again. Your bound first: `touched_bytes` and `adam_bytes`.
"""

# %% touched-bound
bound = on_paper["adam_bytes"] / on_paper["touched_bytes"]
print(f"Adam passes over at least {bound:.1f} times the rows that a batch of 512 names, predicted")

# %% guess-rows-prose [markdown]
"""
**How many times as many rows as the batch names does Adam pass over, really?**
"""

# %% guess-rows
guess("10.rows_ratio", 10.0, "times")

# %% rows-reveal-prose [markdown]
"""
Count the distinct rows of the batch above. Adam keeps two moments for *every* row, and `step` reads and writes all of them, though the gradient of most is zero.
"""

# %% rows-reveal
categorical = batch[1]  # (B, F, L)
named_rows = sum(len(categorical[:, table].unique()) for table in range(config.num_tables))
adam_rows = sum(len(adam.state[table.weight]["exp_avg"]) for table in model.tables)
print(f"named by the batch: {named_rows:,}; passed over by Adam: {adam_rows:,}")
reveal("10.rows_ratio", adam_rows / named_rows)

# %% make-optimizers-prose [markdown]
"""
### Write 10.rows

Fix it. `make_optimizers(model, lr)` returns a list of two optimisers at the rate `lr`: `torch.optim.Adam` for both MLPs, and one for the tables that changes only the rows that a batch named.

1. With `table.sparse = True` an `nn.EmbeddingBag` gives a sparse gradient: the named rows alone.
2. `torch.optim.SparseAdam` takes such gradients. It sorts and sums what several samples say of the same row, and leaves all other rows as they are: their momentum no longer moves them.

*Hint:* `SparseAdam` wants a list of parameters; each parameter belongs to exactly one of the two.
"""

# %% answer 10.rows
import torch


def make_optimizers(model, lr):
    """Adam for the MLPs, and for the tables one that changes the named rows alone."""
    ### BEGIN SOLUTION
    for table in model.tables:
        table.sparse = True
    mlps = [*model.bottom.parameters(), *model.top.parameters()]
    return [torch.optim.Adam(mlps, lr=lr), torch.optim.SparseAdam(list(model.tables.parameters()), lr=lr)]
    ### END SOLUTION


# %% check 10.rows points=4
check("10.rows", make_optimizers)


# %% checks
def _owners(code: Any) -> dict[str, str]:
    """Of each parameter of a model with three tables, its optimisers and their rates."""
    model = MyDlrm(SMALL)
    groups = [(type(each).__name__, group) for each in code(model, 0.1) for group in each.param_groups]
    return {
        name: ", ".join(f"{kind} at {group['lr']}" for kind, group in groups for one in group["params"] if one is each)
        or "none"
        for name, each in model.named_parameters()
    }


def _touched(code: Any) -> dict[str, Any]:
    """Weights after a step with row 0 and one without it, and which rows the second changed."""
    torch.manual_seed(0)
    model = MyDlrm(ONE_TABLE)
    optimizers = code(model, 0.1)
    table, changed = model.tables[0].weight, []
    for row in (0, 1):
        before = table.detach().clone()
        loss = model(torch.ones(2, 3), torch.full((2, 1, 1), row, dtype=torch.int32)).square().sum()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        changed.append((table.detach() != before).any(dim=1).nonzero().flatten())
    return {
        "rows that the first step changes": changed[0],
        "rows that the second changes": changed[1],
        "the table": table,
        "the bottom MLP": model.bottom[0].weight,
    }


EXERCISES["10.rows"] = WrittenExercise(
    make_optimizers,
    module="dlrm",
    cases=(
        Case("which parameter is in which optimiser", _owners),
        Case("a step with row 0 and one with row 1", _touched),
    ),
    mistakes={
        lambda model, lr: [torch.optim.Adam(model.parameters(), lr=lr)]: (
            "Adam changes every row that ever had a gradient, for its momentum goes on; and reads all."
        ),
        lambda model, lr: [torch.optim.SGD(model.parameters(), lr=lr)]: (
            "That touches few rows, and is not Adam: SparseAdam takes sparse gradients."
        ),
        lambda *given: make_optimizers(*given)[:1]: "The tables have no optimiser now, so they never learn.",
    },
    hint="nn.EmbeddingBag gives a sparse gradient where its `sparse` is True, and torch.optim.SparseAdam takes it; the "
    "MLPs, both of them, stay with Adam. Each optimiser takes the rate `lr`, and each parameter is in one of them.",
    explanation="A step now changes the rows that its batch names, and no others.",
)

# %% guess-gain-prose [markdown]
"""
What can it gain? If Adam's share *f* of the step vanished, the step would be 1 / (1 − *f*) times as fast: the bound, from the profile above. **How many times as fast is the step with your optimisers?** Below 1 means slower.
"""

# %% guess-gain
print(f"bound, predicted: {1 / (1 - shares['Adam']):.2f} times as fast")
guess("10.adam_gain", 1.5, "times")

# %% gain-prose [markdown]
"""
Both are measured in turns, so that other programs disturb them alike; the middle one of the ratios counts.
"""

# %% gain
import statistics
import time


def seconds(step):
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


fixed = MyDlrm(config)
optimizers = make_optimizers(fixed, 2e-3)

# %% gain-reveal-prose [markdown]
"""
`overfit` takes ten steps of each in every turn. Where Adam's time is far from that of the profile, others disturbed one of the two.
"""

# %% gain-reveal
steps, turns = {"smoke": (2, 3), "standard": (10, 7), "full": (20, 15)}[profile]
overfit(fixed, optimizers, batch, 3)  # the first steps make the moments
pairs = [
    (seconds(lambda: overfit(model, [adam], batch, steps)), seconds(lambda: overfit(fixed, optimizers, batch, steps)))
    for _ in range(turns)
]
plain_ms, sparse_ms = (1e3 * statistics.median(times) / steps for times in zip(*pairs, strict=True))
print(f"a step: {plain_ms:.1f} ms with Adam, {sparse_ms:.1f} ms with your optimisers, medians of {turns} turns")
adam_gain = statistics.median(plain / sparse for plain, sparse in pairs)
reveal("10.adam_gain", adam_gain)

# %% why-adam-prose [markdown]
"""
### Explain 10.why_adam

In two or three sentences: how many rows does the batch name and how many does Adam pass over, why, and why is the gain so far from that ratio (or not)? What does the mend cost?
"""

# %% explain 10.why_adam points=2
### BEGIN SOLUTION
answer = model_answer("10.why_adam")
### END SOLUTION
explain("10.why_adam", answer)

# %% checks
EXERCISES["10.why_adam"] = Explanation(
    rubric=(
        "numbers: rows that a batch names, rows that Adam passes over, and the ratio or the gain measured",
        "why: a dense gradient is zero for most rows, and Adam reads and writes moments and weights of all of them",
        "trade-off: sparse gradients have to be sorted and summed, and momentum no longer moves rows not named",
    ),
    model="A batch of 512 names a small part of the rows, but a dense gradient makes Adam read and write every row "
    "and both its moments, almost thirty times as many on the large log. SparseAdam passes over the named rows alone; "
    "it pays by sorting and summing their numbers, so the gain is far below that ratio and can vanish for small tables "
    "or large batches, and it is not quite the same algorithm, for rows that are not named do not coast on.",
)

# %% judge-a-prose [markdown]
"""
### Judge

A claim card has the paper's sentence, your number, a verdict and one reason. Write an expression for the verdict, and numbers of yours into the reason, so that both follow from your run. Of the gain above that could be

    answer = ("holds here" if adam_gain > 1 else "does not hold here"), f"{adam_gain:.2f} times as fast, one batch size"

First Acun et al. (HPCA 2021, arXiv 2011.05497, abstract): these models have "both compute-intensive and memory-intensive components". The authors mean the lookups; below the ridge here is mostly Adam, and what has no intensity is on neither side.
"""

# %% claim A2 points=1 grade_id="claim-a2"
above = operators.loc[operators["flop_per_byte"] > card.ridge_flop_per_byte, "share"].sum()
below = operators.loc[operators["flop_per_byte"] <= card.ridge_flop_per_byte, "share"].sum()
### BEGIN SOLUTION
verdict = "holds here" if min(above, below) > 0.05 else "does not hold here"
answer = verdict, "one step has operators on both sides of the ridge, each with a twentieth of its time or more"
### END SOLUTION
mine_a2 = (
    f"{above:.0%} of a step above the ridge, {below:.0%} below (Adam {shares['Adam']:.0%}), one profile of 5 steps"
)
claim("A2", mine_a2, answer)

# %% judge-a4-prose [markdown]
"""
The same abstract: "large embedding tables that do not fit into limited GPU memory". Yours is arithmetic with the makers' figures.
"""

# %% claim A4 points=1 grade_id="claim-a4"
### BEGIN SOLUTION
verdict = "holds here" if len(fits["tables alone"]) < len(gpus) / 2 else "does not hold here"
answer = verdict, "most GPUs of the catalogue are smaller than the published tables, without any optimiser"
### END SOLUTION
mine_a4 = f"{published_gb:.0f} GB of tables fit {len(fits['tables alone'])} of {len(gpus)} GPUs, one each"
claim("A4", mine_a4, answer, how="predicted")

# %% judge-b6-prose [markdown]
"""
Lin et al. (arXiv 2201.07821, abstract) predict how long a batch takes from end to end, of DLRMs on GPUs, with an error of 7.96 % in the geometric mean. Yours is one batch on a CPU, which you predicted from the machine's card before it was profiled: it holds here where your error is below 8 %.
"""

# %% claim B6 points=1 grade_id="claim-b6"
measured_ms = observed.unprofiled_step_us / 1e3
error = abs(predicted_ms / measured_ms - 1)
### BEGIN SOLUTION
verdict = "holds here" if error < 0.08 else "does not hold here"
answer = verdict, "an analogue on a CPU: three numbers of the machine at its best, no model of each kernel and overhead"
### END SOLUTION
mine_b6 = f"a step of 512: {predicted_ms:.1f} ms predicted, {measured_ms:.1f} ms measured, {error:.0%} off"
claim("B6", mine_b6, answer)

# %% second-half [markdown]
"""
## Second half: training it

If you begin here, run the cells up to the Bayes AUC and then this one. `mine` takes your own code from `mylab/dlrm.py`, and labkit's reference where you have none yet.
"""

# %% second-half-start
from pathlib import Path

import torch

from labkit_course import mine

torch.set_num_threads(1)
MyDlrm, make_optimizers = mine("10.model"), mine("10.rows")

# %% second-half-data [markdown]
"""
The training rows, the validation split and the model's sizes:
"""

# %% second-half-config
runs, rows = Path(runs_dir) / "notebooks", log.split("train")
shape = labkit.jobs.get_preset("dlrm", "tour").model
config = labkit.models.DlrmConfig(dense_dim=len(log.dense_names), num_rows=log.table_rows, **shape)

# %% auc-prose [markdown]
"""
### Write 10.auc

The score first. `auc(label, score)` takes two arrays of length N, labels 0 or 1 and scores, and returns the share of pairs of one positive and one negative row in which the positive has the higher score; a tie counts a half.

1. Sort the negatives' scores.
2. `np.searchsorted(negatives, positives, side="left")` says for each positive how many negatives lie below it; `side="right"` how many do not lie above.

*Hint:* 2 million rows have nearly 10¹² pairs, so do not make them all. Take the mean of both sides.
"""

# %% answer 10.auc
import numpy as np


def auc(label, score):
    """The share of (positive, negative) pairs in the right order, ties by half."""
    ### BEGIN SOLUTION
    positive, negative = score[label == 1], np.sort(score[label == 0])
    below = np.searchsorted(negative, positive, side="left")
    not_above = np.searchsorted(negative, positive, side="right")
    return float((below + not_above).mean() / 2 / len(negative))
    ### END SOLUTION


# %% check 10.auc points=4
check("10.auc", auc)


# %% checks
def _scores(count: int, levels: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    label = (rng.random(count) < 0.3).astype(float)
    return label, np.floor((rng.random(count) + 0.3 * label) * levels)


EXERCISES["10.auc"] = WrittenExercise(
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
    },
    hint="The share of (positive, negative) pairs in which the positive has the higher score; a tie counts a half. "
    "Sort the negatives and use np.searchsorted: all pairs of 2 million rows would be nearly 10¹².",
    explanation="Pairs in the right order, ties by half: the same as labkit's, and as scikit-learn's.",
)

# %% score-prose [markdown]
"""
With it, the score of a model on a split, which no step of training ever sees. An untrained model orders the rows at random:
"""


# %% score
@torch.inference_mode()
def score(model, split):
    logits = [model(dense, categorical) for dense, categorical, _ in labkit.data.clicks.in_order(split, 2048)]
    return auc(split.label, torch.cat(logits).numpy())


torch.manual_seed(seed)
print(f"untrained: {score(MyDlrm(config), log.split('validation')):.3f}")

# %% loop-prose [markdown]
"""
### Write 10.loop

`labkit.Run` keeps the clocks, watches a target and writes a run folder; the loop around it is yours. `train(run, model, optimizers, batches, score, epochs=10)` returns nothing. It

1. passes over `run.epochs(epochs)`, and in each over the batches `(dense, categorical, label)` of `run.batches(batches)`, which end when the run is over;
2. takes a step of each optimiser, as in `overfit`, clears the gradients, and reports it to the run: `run.step(loss, samples=len(label))`;
3. evaluates where the run asks for it: `if run.due:` then `run.evaluate(auc=score())`. `score` is a function without arguments.

*Hint:* give `run.step` the loss itself, not `loss.item()`.
"""

# %% answer 10.loop
import torch.nn.functional as F


def train(run, model, optimizers, batches, score, epochs=10):
    """Train until the run is over."""
    ### BEGIN SOLUTION
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
    ### END SOLUTION


# %% check 10.loop points=6
check("10.loop", train)


# %% checks
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


EXERCISES["10.loop"] = WrittenExercise(
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
    },
    hint="loss, backward, a step of each optimiser and clear its gradients, run.step, and run.evaluate where run.due.",
    explanation="The loss falls, the same seed repeats it, and what is scored is never trained on.",
)

# %% train-prose [markdown]
"""
Your model, your optimisers, your score, your loop, to a target that lies a little short of the best this model reaches. Ten evaluations an epoch; a target is reached when a second evaluation confirms it.
"""

# %% train-settings
torch.manual_seed(seed)
model = MyDlrm(config)
validation = log.split("validation")
goal, limit_s = {"smoke": ("auc >= 0.65", 10), "standard": ("auc >= 0.78", 120), "full": ("auc >= 0.78", 240)}[profile]
settings = {"target": goal, "max_seconds": limit_s, "seed": seed, "evaluate_every": len(rows) // 10}

# %% train-run-prose [markdown]
"""
`live` draws each evaluation as it comes.
"""

# %% train-run
import labkit

optimizers, batches = make_optimizers(model, 2e-3), labkit.data.clicks.ClickBatches(rows, batch_size=512, seed=seed)
with labkit.Run("my-dlrm", runs_dir=runs, **settings) as run:
    view = labkit.widgets.live(run)
    train(run, model, optimizers, batches, lambda: score(model, validation))

# %% train-figure-prose [markdown]
"""
A plain figure of it stays when the notebook is saved.
"""

# %% train-figure
labkit.plots.show(view.figure)

# %% seeds-prose [markdown]
"""
## How much do seeds differ?

One run is one draw: another seed gives other starting weights and another order of the rows. So train for **one epoch** of the small log of 50,000 rows, several times; an epoch takes about a second.

### Write 10.interval

`interval(values)` returns the 95 % confidence interval of the mean, a pair (low, high): mean ± t · s / √n, where s is the sample's standard deviation and t the 0.975 quantile of Student's t distribution with n − 1 degrees of freedom: `scipy.special.stdtrit(n - 1, 0.975)`, or `scipy.stats.t.ppf`, which takes a second to import.
"""

# %% answer 10.interval
import numpy as np
from scipy.special import stdtrit


def interval(values):
    """The 95 % confidence interval (low, high) of the mean of a few values."""
    ### BEGIN SOLUTION
    half = stdtrit(len(values) - 1, 0.975) * np.std(values, ddof=1) / len(values) ** 0.5
    return float(np.mean(values) - half), float(np.mean(values) + half)
    ### END SOLUTION


# %% check 10.interval points=3
check("10.interval", interval)

# %% checks
EXERCISES["10.interval"] = WrittenExercise(
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

# %% small-log-prose [markdown]
"""
The small log; at `smoke` only 20,000 of its rows are trained on. The test AUC is of rows that nothing is chosen by.
"""

# %% small-log
small = labkit.data.clicks.load_clicks("synthetic-small")
small_config = labkit.models.DlrmConfig(len(small.dense_names), small.table_rows, **shape)
small_rows = small.split("train").spread(20_000 if profile == "smoke" else 50_000)

small_validation, small_test = small.split("validation"), small.split("test")

# %% one-epoch-fn-prose [markdown]
"""
With your loop:
"""


# %% one-epoch
def one_epoch(seed):
    torch.manual_seed(seed)
    model, batches = MyDlrm(small_config), labkit.data.clicks.ClickBatches(small_rows, batch_size=512, seed=seed)
    with labkit.Run("one-epoch", target="max auc", runs_dir=runs, seed=seed) as one:
        train(one, model, make_optimizers(model, 2e-3), batches, lambda: score(model, small_validation), epochs=1)
    return score(model, small_test)


# %% guess-seeds-prose [markdown]
"""
Five runs that differ in nothing but the seed. **How far apart are the best and the worst test AUC?**
"""

# %% guess-seeds
guess("10.seed_range", 0.02)

# %% seeds-run-prose [markdown]
"""
`LABKIT_QUIET` keeps the runs from printing their progress.
"""

# %% seeds-run
import os

os.environ["LABKIT_QUIET"] = "1"
aucs = [one_epoch(each) for each in range(2 if profile == "smoke" else 5)]
low, high = interval(aucs)
reveal("10.seed_range", max(aucs) - min(aucs))
print(f"mean test AUC {np.mean(aucs):.4f}, 95 % from {low:.4f} to {high:.4f}, {len(aucs)} seeds")

# %% batch-size-prose [markdown]
"""
A difference smaller than that is no finding, whichever sign it has. And the interval speaks of seeds alone: another test split of 6,000 rows would move all of them together.

## And a larger batch?

MLPerf's DLRM on Criteo 1TB, *recorded* by NVIDIA over ten seeds and more: epochs to an AUC of 0.8025, by batch size. Its steps are fewer, but the target takes more samples. What it gains in time is the subject of the next notebook.
"""

# %% batch-size
of_dlrm, evaluations = labkit.runs.recorded("mlperf-rcp", job="DLRM (MLPerf)")
labkit.plots.show(
    labkit.plots.figure_batch_size(
        labkit.tta.by_batch_size(evaluations, of_dlrm, 0.8025, unit="epochs").assign(device="DLRM (MLPerf)")
    )
)

# %% scores-prose [markdown]
"""
How good were your guesses?
"""

# %% scores
from labkit_course import score_notebook

score_notebook()

# %% results-prose [markdown]
"""
The numbers of this notebook, each with the bounds that hold on any machine, for a program to read:
"""

# %% results tags=["results"]
from labkit_course import results

results(
    bayes_auc=(bayes_auc, 0.75, 0.85),
    loop_auc=(run.result["best_validation"], 0.6, 0.85),
    seed_range=(max(aucs) - min(aucs), 0, 0.2),
)

# %% recap [markdown]
"""
## Recap

- The Bayes AUC is the ceiling; a target says how close to it you need to get, and the last thousandths count.
- Nearly all parameters of a DLRM are in its tables, most of its arithmetic in its MLPs: memory and arithmetic are bought separately.
- Count a step on paper before you measure it, learn 64 rows by heart before you train, and bound a fix before you make it.
- Adam passes over every row; sparse gradients pass over the named ones, and cost something of their own.
- One run is one draw: a difference smaller than what seeds differ by is no finding.
- What you wrote is in `mylab/dlrm.py`: [Profile top-down](32_profile_top_down.ipynb) and [Sharing a device](40_sharing_a_device.ipynb) take it up. How runs and failures add up to a time is the subject of [Time to accuracy](50_time_to_accuracy.ipynb).

**Next:** [What makes a DLRM slow](11_what_makes_dlrm_slow.ipynb)
"""

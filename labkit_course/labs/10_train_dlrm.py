# %% opening [markdown] packages="pyarrow" disk_gb=0.5
"""
# Train a DLRM to a target

After this notebook you will be able to

- **write** a deep learning recommendation model (DLRM) in PyTorch, its score and its training loop;
- **say** which part of it has the parameters and which does the arithmetic, and **predict** a step from your machine's card;
- **find** and **fix** an optimiser that passes over every row of every table;
- **train** it to a target, **plan** the number of seeds, and **say** whether a change costs accuracy.

**Time:** 90 minutes in two halves, which stand alone: *the model and its step* (60) and *training it* (30). The machine computes for about a minute on 2 CPU cores. No GPU is needed.

**Prerequisites:** [Start here](00_start_here.ipynb), PyTorch's `nn.Module` and a training loop. What you write is kept in `mylab/dlrm.py`, and later labs profile, speed up and collocate it.
"""

# %% checks
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from labkit.models import Dlrm, DlrmConfig
from labkit.process import silenced
from labkit_course.apparatus import WatchedRun
from labkit_course.exercise import Case, Explanation, WrittenExercise

# Shapes: B batch, D embedding dim, F tables, L lookups a bag, V = F + 1 vectors that meet, P = V (V − 1) / 2 pairs.

MODULE = "dlrm"
EXERCISES = {}

# %% parameters tags=["parameters"]
profile = "standard"  # smoke, standard or full
runs_dir = "runs"  # run folders are made in its subfolder notebooks
seed = 0

# %% log-prose [markdown]
"""
## The click log

Each row is one advertisement shown to one user: numbers (dense features), categories (the site, the campaign, the device ...), and whether it was clicked. This log is generated, with 13 dense features as the public Criteo logs have, and with categories as skewed as theirs: a few are everywhere, most are rare. The table shows three rows. Dense values are standardised; a category is the number of a row in that feature's embedding table.
"""

# %% log
import pandas as pd
import torch

import labkit
from labkit_course import check, claim, drawing, explain, guess, mine, model_answer, paired_times, reveal, undisturbed

log = labkit.data.clicks.load_clicks("synthetic-small" if profile == "smoke" else "synthetic")
rows = log.split("train")
few = pd.DataFrame(rows.dense[:3, :4].round(2), columns=log.dense_names[:4])
few[log.categorical_names[:4]] = rows.categorical[:3, :4, 0]
few.assign(clicked=rows.label[:3])

# %% bayes-prose [markdown]
"""
### How good can a model get?

A hidden *teacher* decided the clicks: it computed a probability for each row and then drew a click from it. Even the teacher cannot foresee the draw. The AUC of the true probabilities is the **Bayes AUC**: no model can be expected to beat it. Scoring at random gives 0.5, and never being wrong gives 1. **Which AUC does the teacher itself reach?**
"""

# %% guess-bayes
guess("10.bayes_auc", 0.95)

# %% bayes-reveal-prose [markdown]
"""
For a real log this ceiling is unknown. Read an AUC against it, not against 1. In this field a difference of 0.001 counts: MLPerf's DLRM has to reach 0.8025 on the Criteo logs (MLPerf v1).
"""

# %% bayes-reveal
bayes_auc = log.info["bayes_auc_validation"]
print(f"share of rows clicked: {log.info['base_rate']:.3f}")
reveal("10.bayes_auc", bayes_auc)

# %% model-prose [markdown]
"""
## First half: the model and its step

The drawing shows a DLRM (Naumov et al., arXiv 1906.00091). The **bottom MLP** turns the dense features into one vector. **Embedding tables** turn each category into a vector of the same width. The **interaction** takes the dot product of every pair of these vectors. The **top MLP** turns the bottom's vector and the dot products into one number, the click's logit.
"""

# %% drawing
drawing("dlrm")

# %% config-prose [markdown]
"""
`config` has the sizes of all four parts. This notebook computes on one thread, so that other programs disturb it less.
"""

# %% config
torch.set_num_threads(1)
shape = labkit.jobs.get_preset("dlrm", "tour").model
config = labkit.models.DlrmConfig(dense_dim=len(log.dense_names), num_rows=log.table_rows, **shape)
print(f"dense_dim {config.dense_dim}, {config.num_tables} tables, embedding_dim {config.embedding_dim}")
print(f"num_rows {config.num_rows}")
print(f"bottom_mlp {config.bottom_mlp}, top_mlp {config.top_mlp}")

# %% interaction-prose [markdown]
"""
### Write 10.interaction

`interaction(vectors)` takes a tensor of shape (B, V, D), which holds V vectors of width D for each of B samples. It returns the dot products of all pairs of different vectors, each pair once: shape (B, V (V − 1) / 2). Their order is that of the entries below the diagonal of the V × V products, row by row. Write no loop over pairs: the check refuses more than 40 operators of torch.

*Hint:* one `torch.bmm` makes all V × V products. `torch.tril_indices` gives indices below a diagonal, and one indexing picks from all samples at once.
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


def in_few_operators(code: Any, given: Tensor) -> Any:
    """What code gives, and whether torch was called at most 40 times: a loop over pairs is slow in all later labs."""
    with silenced(), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        out = code(given)
    calls = sum(event.cpu_parent is None for event in profile.events())
    return {"dot products": out, "at most 40 operators of torch": calls <= 40}


def _pair_by_pair(vectors):
    count = vectors.shape[1]
    pairs = [(vectors[:, i] * vectors[:, j]).sum(-1) for i in range(count) for j in range(i)]
    return torch.stack(pairs, dim=1)


def _by_mask(vectors):
    products = torch.einsum("bvd,bwd->bvw", vectors, vectors)
    below = torch.ones(vectors.shape[1], vectors.shape[1]).tril(-1).bool()
    return products[:, below]


EXERCISES["10.interaction"] = WrittenExercise(
    interaction,
    Case("2 rows of 4 vectors", lambda code: code(drawn_vectors(2, 4, 3))),
    Case("27 vectors a row, as the click log gives", lambda code: in_few_operators(code, drawn_vectors(5, 27, 16))),
    Case("a single table", lambda code: code(drawn_vectors(3, 2, 8))),
    Case("the gradient of the vectors", lambda code: gradient(code, drawn_vectors(2, 4, 3))),
    mistakes={
        ("[:, first, second]", ".flatten(1)"): (
            "All V² products are there; each pair counts once, and none with itself."
        ),
        _pair_by_pair: "All products of a sample come from one product of matrices: a loop asks torch for each pair.",
        lambda vectors: interaction(vectors.flip(1)).flip(1): (  # the pairs above the diagonal, row by row
            "These are the right products in another order: go below the diagonal, row by row, so that weights can be "
            "copied from model to model."
        ),
    },
    variants=[_by_mask],
    hint="How many products has a sample, which of them count, and in which order do they stand?",
    explanation="27 vectors make 351 pairs, and the product computes 729: which of the two you count matters later.",
)

# %% mydlrm-prose [markdown]
"""
### Write 10.model

`mlp` and `make_table` are given. `MyDlrm(config)` has three parts as attributes, `bottom`, `tables` and `top`. `forward` takes `dense` float (B, dense_dim) and `categorical` int (B, F, L), which names L rows in each of F tables. It returns logits of shape (B,).

1. The top MLP is an `mlp` without its last ReLU, since a logit may be negative. How wide is its input?
2. `tables` is an `nn.ModuleList` with one table of `make_table` for each of `num_rows`.
3. `forward`: stack the bottom's vector and the tables' sums to (B, V, D), the bottom's vector first, and call `interaction` on them. Concatenate the bottom's vector and the pairs, in this order. The top MLP reads that.

*Hint:* `table(categorical[:, f])` sums a bag of L rows per sample, to (B, D).
"""

# %% answer 10.model
import torch
from torch import nn


def mlp(width, widths):
    """Linear and ReLU for each of the widths."""
    layers = []
    for out in widths:
        layers += [nn.Linear(width, out), nn.ReLU()]
        width = out
    return nn.Sequential(*layers)


def make_table(rows, width):
    """Sums bags of rows. It starts as in the reference DLRM; the default, N(0, 1), is far too large."""
    table = nn.EmbeddingBag(rows, width, mode="sum")
    nn.init.uniform_(table.weight, -(rows**-0.5), rows**-0.5)
    return table


class MyDlrm(nn.Module):
    def __init__(self, config):
        super().__init__()
        ### BEGIN SOLUTION
        vectors = config.num_tables + 1
        self.bottom = mlp(config.dense_dim, config.bottom_mlp)
        self.tables = nn.ModuleList(make_table(rows, config.embedding_dim) for rows in config.num_rows)
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
    Case("the shapes of the weights", _shapes),
    Case("three tables and the weights of labkit's model", _logits, SMALL, 1),
    Case("bags of three lookups", _logits, SMALL, 3),
    Case("one row, a single table and MLPs of one layer", _logits, ONE_TABLE, 1, batch=1),
    Case("which weights get a gradient", _logits, SMALL, 1, of_gradients=True),
    # luck is a fifth of it, of the medians of two draws of 72,000 values
    Case("the first values of two tables, their quartiles times √rows", _first_weights, relative=0.03),
    mistakes={
        ("config.top_mlp)[:-1]", "config.top_mlp)"): (
            "The last layer of the top MLP gives the logit, which may be negative: no ReLU after it."
        ),
        (".squeeze(1)", ".squeeze(1).sigmoid()"): (
            "Return logits: the loss, binary_cross_entropy_with_logits, applies the sigmoid itself."
        ),
        ("make_table(rows, config.embedding_dim)", 'nn.EmbeddingBag(rows, config.embedding_dim, mode="sum")'): (
            "nn.EmbeddingBag starts from N(0, 1): far too large, and learning first has to undo it. Use make_table."
        ),
    },
    variants=[
        (
            "torch.stack([bottom, *sums], dim=1)",
            "torch.cat([each.unsqueeze(1) for each in (bottom, *sums)], dim=1)",
        ),
    ],
    hint="Follow the shapes: what goes into the top MLP, in which order, and what comes out of it?",
    explanation="With the same weights your model gives the same logits as labkit's.",
)

# %% tables-percent-prose [markdown]
"""
From here on the notebook trains your model. **What share of its parameters sits in the embedding tables?**
"""

# %% guess-tables
guess("10.tables_percent", 50.0, "%")

# %% tables-reveal
model = MyDlrm(config)
parts = {"bottom MLP": model.bottom, "embedding tables": model.tables, "top MLP": model.top}
counts = pd.Series({name: sum(p.numel() for p in part.parameters()) for name, part in parts.items()})
tables_percent = 100 * counts["embedding tables"] / counts.sum()
print(counts.to_string())
reveal("10.tables_percent", tables_percent)

# %% cost-prose [markdown]
"""
## What a step costs, on paper

A step multiplies each sample with every weight of the MLPs three times: once forward, and twice backward, for the gradients of the weight and of its input. The interaction makes all V × V dot products of width D, and autograd makes two more products of that size. A multiplication and an addition are two operations. For each number of a table Adam reads the number, its gradient and two moments, and writes all but the gradient: seven times 4 bytes.

On the device `meta` a tensor has a shape and no memory, so your code can build a model of any size there. **Which share of the operations is in the MLPs of this notebook's model?**
"""

# %% guess-mlps
guess("10.mlps_percent", 50.0, "%")


# %% step-cost
def step_cost(config, batch_size):
    """Operations of a step in the MLPs and in the interaction, and the bytes that Adam moves for the tables."""
    with torch.device("meta"):
        model = MyDlrm(config)
    weights = [p for part in (model.bottom, model.top) for p in part.parameters() if p.ndim == 2]  # no biases
    mlps = 3 * 2 * batch_size * sum(weight.numel() for weight in weights)
    dots, _ = labkit.perfmodel.interaction_cost(batch_size, config.num_tables + 1, config.embedding_dim)
    adam_bytes = 7 * 4 * sum(table.weight.numel() for table in model.tables)
    return {"mlps": mlps, "flops": mlps + dots, "adam_bytes": adam_bytes}


# %% cost-use-prose [markdown]
"""
The second line has the DLRM of MLPerf v1 at a batch of 2,048, with its published numbers of rows. Acun et al. (HPCA 2021) speak of "large embedding tables that do not fit into limited GPU memory": the last line says how many GPUs of the catalogue hold MLPerf's. Adam's two moments would make them three times as large.
"""

# %% cost-use
published_rows = labkit.perfmodel.PUBLISHED_ROWS["mlperf-v1"]
mlperf = labkit.models.DlrmConfig(13, published_rows, **labkit.jobs.get_preset("dlrm", "mlperf-v1").model)
on_paper = step_cost(config, 512)
for name, cost in (("this model", on_paper), ("MLPerf v1", step_cost(mlperf, 2048))):
    print(f"{name}: {cost['flops'] / 1e9:.3g} GFLOP per step, {cost['mlps'] / cost['flops']:.0%} in the MLPs,", end=" ")
    print(f"Adam moves {cost['adam_bytes'] / 1e6:,.0f} MB, predicted")
reveal("10.mlps_percent", 100 * on_paper["mlps"] / on_paper["flops"])
tables_gb = mlperf.parameter_bytes / 1e9
gpus = [tier for tier in labkit.hardware.load_tiers().values() if tier.kind == "gpu"]
print(f"{tables_gb:.0f} GB fit into {sum(tier.memory_gb >= tables_gb for tier in gpus)} of {len(gpus)} GPUs")

# %% why-tables-prose [markdown]
"""
### Explain 10.why_tables

A GPU with twice the TFLOP/s and the same memory costs twice as much. Would you buy it for a model such as MLPerf's? Answer in two or three sentences, with your numbers.
"""

# %% explain 10.why_tables points=2
### BEGIN SOLUTION
answer = model_answer("10.why_tables")
### END SOLUTION
explain("10.why_tables", answer)

# %% checks
EXERCISES["10.why_tables"] = Explanation(
    "numbers: the shares of the parameters and of the arithmetic, or one size in GB compared with a memory in GB",
    "why: a row of the log names one row of each table, and passes through every weight of the MLPs",
    "trade-off: what helps one part (more memory, a lower rank, hashing) does nothing for the other",
    model="97.9 % of the parameters here are in the tables, yet a sample reads one row of each, while it is multiplied "
    "with every weight of the MLPs, which do 83 % of the arithmetic (96 % in MLPerf's). MLPerf's tables take 96 GB, "
    "more than an H100's 80 GB, so memory decides whether the model fits, and TFLOP/s only how quickly its MLPs run: I "
    "would not buy it. Smaller tables, by hashing, would save memory for some accuracy.",
)

# %% card-prose [markdown]
"""
## How long a step takes

Your machine's **card** has its arithmetic and bandwidth at best, and what asking for one operation costs ([Know your machine](01_know_your_machine.ipynb)). `step_bound` of that notebook turns operations, bytes and calls into seconds. **What will a step at a batch of 512 really take, with Adam?**
"""

# %% guess-step
card = labkit.hardware.calibrate(repeats=3)
print(f"{card.fp32_gflops:.0f} GFLOP/s, {card.bandwidth_gb_per_s:.1f} GB/s, {card.launch_us:.1f} µs per call")
guess("10.step_ms", 10.0, "ms")

# %% predict-prose [markdown]
"""
The MLPs multiply and Adam moves bytes, one after the other, so their bounds add up. A table takes about 14 calls (5 forward and backward, 9 by Adam), and a layer of the MLPs 24 (6 and 18).

**The rule for a claim, before its numbers.** Acun et al. (HPCA 2021, arXiv 2011.05497, abstract) say that these models have "both compute-intensive and memory-intensive components". They mean MLPs and lookups. Take the step without Adam. The claim holds here if the MLPs' products above the card's ridge take a twentieth of it or more, and so do the lookups below the ridge. A component that takes less could go, and the step would be at most 5 % faster: you would not call the model intensive in it.
"""

# %% profile
step_bound = mine("01.bound")
layers = len(config.bottom_mlp) + len(config.top_mlp)
calls = 14 * config.num_tables + 24 * layers
predicted_ms = 1e3 * (step_bound(on_paper["flops"], 0, calls, card) + step_bound(0, on_paper["adam_bytes"], 0, card))
adam = torch.optim.Adam(model.parameters(), lr=2e-3)
batch = next(iter(labkit.data.clicks.ClickBatches(rows, batch_size=512, seed=seed)))


# %% take-step
def take_step(model, optimizers, batch):
    dense, categorical, label = batch
    torch.nn.functional.binary_cross_entropy_with_logits(model(dense, categorical), label).backward()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()


# %% profile-adam
def profile_adam():
    step, folder = lambda: take_step(model, [adam], batch), f"{runs_dir}/notebooks"
    return labkit.profiling.profile_steps(step, folder, limits=card, skip=10, steps=5)


observed = undisturbed(profile_adam, 1 if profile == "smoke" else 3, cores=1)
print(observed.headline)
print(f"{predicted_ms:.1f} ms predicted, with {calls} calls")
reveal("10.step_ms", observed.unprofiled_step_us / 1e3)

# %% parts-prose [markdown]
"""
Which part of the model is each operator? Products of the MLPs are `mm` and `addmm`, those of the interaction `bmm`. Lookups read rows and, backward, add into them. The gradient of a table is as large as the table, so filling it with zeros is a part of its own. The table shows the most expensive operators. One far below both limits of the card waits for something else: a call that does little, or memory that is touched for the first time. That is most of what the prediction left out.
"""

# %% parts
import re

PARTS = {
    "MLPs": r"::(mm|addmm|relu|clamp_min|threshold_backward)$",
    "interaction": r"::(bmm|index|_index_put_impl_|cat)$",
    "lookups": r"[eE]mbedding|::sort$",
    "zeros": r"::(zeros|zero_|fill_)$",
    "Adam": r"::(sqrt|div|mul_|add_|lerp_|addcmul_|addcdiv_)$",
}

# %% parts-named
operators = observed.operators
named = {name: next((p for p, x in PARTS.items() if re.search(x, name)), "other") for name in operators["operator"]}
operators["part"] = operators["operator"].map(named)
operators["flop_per_byte"] = operators["gflop_per_s"] / operators["gb_per_s"]

# %% shares
shares = operators.groupby("part")["share"].sum()
print(", ".join(f"{part} {share:.0%} of a step" for part, share in shares.items()))
top = operators.dropna(subset=["flop_per_byte"]).head(8).assign(percent=100 * operators["share"])
top = top[["operator", "part", "gflop_per_s", "gb_per_s", "flop_per_byte", "percent"]].round(2)
labkit.plots.show(top.set_axis(["operator", "part", "GFLOP/s", "GB/s", "FLOP/B", "share (%)"], axis=1))

# %% judge-a-prose [markdown]
"""
### Judge

This is a claim card: a sentence of a paper, your number, your verdict (`"holds here"`, `"does not hold here"` or `"cannot be tested here"`) and one reason. Write the verdict as an expression, so that it follows from your run. An example:

    answer = ("holds here" if products > 0.1 else "does not hold here"), f"{products:.0%} in products, one profile"

The rule was fixed above.
"""

# %% claim A2 points=1 grade_id="claim-a2"
is_above, without_adam = operators["flop_per_byte"] > card.ridge_flop_per_byte, 1 - shares.get("Adam", 0.0)
products = operators.loc[is_above & (operators["part"] == "MLPs"), "share"].sum() / without_adam
lookups = operators.loc[~is_above & (operators["part"] == "lookups"), "share"].sum() / without_adam
### BEGIN SOLUTION
verdict = "holds here" if min(products, lookups) >= 0.05 else "does not hold here"
answer = verdict, f"the smaller of the two has {min(products, lookups):.0%}; a CPU, one small model, one profile"
### END SOLUTION
claim("A2", f"without Adam: MLPs above the ridge {products:.0%}, lookups below it {lookups:.0%}, 5 steps", answer)

# %% rows-text [markdown]
"""
## Which rows does Adam pass over?

A sample names one row of each table, and a batch names popular rows again and again. Adam keeps two moments for *every* row, and reads and writes all of them, though most gradients are zero. **How many times as many rows as the batch names does Adam pass over?**
"""

# %% guess-rows
guess("10.rows_ratio", 10.0, "times")

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

1. With `table.sparse = True` an `nn.EmbeddingBag` gives a sparse gradient, which has the named rows alone.
2. `torch.optim.SparseAdam` takes such gradients. It sorts them, and sums those of the same row. All other rows stay as they are: their momentum no longer moves them.

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
    Case("which parameter is in which optimiser", _owners),
    Case("a step with row 0 and one with row 1", _touched),
    mistakes={
        lambda model, lr: [torch.optim.Adam(model.parameters(), lr=lr)]: (
            "Adam changes every row that ever had a gradient, for its momentum goes on; and reads all."
        ),
        lambda model, lr: [torch.optim.SGD(model.parameters(), lr=lr)]: (
            "That touches few rows, and is not Adam: SparseAdam takes sparse gradients."
        ),
        lambda *given: make_optimizers(*given)[:1]: "The tables have no optimiser now, so they never learn.",
    },
    variants=[
        (
            "    for table in model.tables:\n        table.sparse = True\n    mlps = [*model.bottom.parameters(), *model.top.parameters()]\n",
            "    model.tables.apply(lambda each: setattr(each, 'sparse', True))\n    in_tables = set(model.tables.parameters())\n"
            "    mlps = [each for each in model.parameters() if each not in in_tables]\n",
        ),
    ],
    hint="Which parameters are in which optimiser, at which rate, and what kind of gradient does each of the two take?",
    explanation="A step now changes the rows that its batch names, and no others.",
)

# %% guess-gain-prose [markdown]
"""
What can it gain? If Adam's share $f$ of the step vanished, the step would be $1 / (1 - f)$ times as fast. **How many times as fast is the step with your optimisers?** Below 1 means slower.
"""

# %% guess-gain
print(f"bound, predicted: {1 / without_adam:.2f} times as fast")
guess("10.adam_gain", 1.5, "times")

# %% gain-prose [markdown]
"""
`paired_times` calls both in turn, and drops a round that other programs disturbed. The median of the rounds' ratios counts.
"""

# %% gain
fixed = MyDlrm(config)
optimizers = make_optimizers(fixed, 2e-3)
ways = {
    "Adam": lambda: take_step(model, [adam], batch),
    "yours": lambda: take_step(fixed, optimizers, batch),
}
times_s = paired_times(ways, rounds={"smoke": 1, "standard": 5, "full": 15}[profile])
print((1e3 * times_s.median()).round(2).to_string(), "(ms per step, medians)")
adam_gain = (times_s["Adam"] / times_s["yours"]).median()
reveal("10.adam_gain", adam_gain)

# %% why-adam-prose [markdown]
"""
### Explain 10.why_adam

In two or three sentences: why is the step not faster by the ratio of the rows (or is it)? Would you use your optimisers for every model?
"""

# %% explain 10.why_adam points=2
### BEGIN SOLUTION
answer = model_answer("10.why_adam")
### END SOLUTION
explain("10.why_adam", answer)

# %% checks
EXERCISES["10.why_adam"] = Explanation(
    "numbers: rows that a batch names, rows that Adam passes over, and the ratio or the gain measured",
    "why: a dense gradient is zero for most rows, and Adam reads and writes moments and weights of all of them",
    "trade-off: sparse gradients have to be sorted and summed, and momentum no longer moves rows not named",
    model="A batch of 512 names 5,731 rows, but a dense gradient makes Adam read and write all 164,266 and both their "
    "moments, 28.7 times as many. The step is only 1.3 times as fast, because Adam was about half of it and SparseAdam "
    "sorts and sums the named rows' numbers. For small tables or large batches the gain vanishes, so not for every "
    "model; nor is it the same algorithm, for rows that are not named no longer move on by their momentum.",
)

# %% second-half [markdown]
"""
## Second half: training it

If you begin here, run the cells up to the Bayes AUC and then this one. `mine` takes your code from `mylab/dlrm.py`, or labkit's if you have none yet.
"""

# %% second-half-start
import os
from pathlib import Path

torch.set_num_threads(1)
MyDlrm, make_optimizers = mine("10.model"), mine("10.rows")
runs, rows = Path(runs_dir) / "notebooks", log.split("train")
shape = labkit.jobs.get_preset("dlrm", "tour").model
config = labkit.models.DlrmConfig(dense_dim=len(log.dense_names), num_rows=log.table_rows, **shape)

# %% auc-prose [markdown]
r"""
### Write 10.auc

`auc(label, score)` takes two arrays of length N, labels 0 or 1 and scores. It returns the share of pairs of one positive and one negative row in which the positive has the higher score; a tie counts a half.

*Hint:* 2 million rows have nearly $10^{12}$ pairs, so do not make them all. In a sorted array, `np.searchsorted` finds how many values lie below each of many others at once; look up its argument `side`.
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


def _by_levels(label, score):
    levels, place = np.unique(score, return_inverse=True)
    positives = np.bincount(place[label == 1], minlength=len(levels))
    negatives = np.bincount(place[label == 0], minlength=len(levels))
    below = np.cumsum(negatives) - negatives
    return float((positives * (below + negatives / 2)).sum() / (positives.sum() * negatives.sum()))


EXERCISES["10.auc"] = WrittenExercise(
    auc,
    Case("four rows", lambda code: code(np.array([0, 1, 1, 0]), np.array([0.1, 0.9, 0.4, 0.2]))),
    Case("1,000 rows without ties", lambda code: code(*_scores(1000, 10**9))),
    Case("scores that are all the same", lambda code: code(np.array([0, 1, 1, 0]), np.ones(4))),
    Case("1,000 rows of five scores, many of them tied", lambda code: code(*_scores(1000, 5))),
    Case("2 million rows", lambda code: code(*_scores(2_000_000, 1000))),  # no memory holds all of their pairs
    mistakes={
        ("(below + not_above).mean() / 2", "below.mean()"): (
            "A tie counts as half a pair in the right order, and you count it as none."
        ),
        ("(below + not_above).mean() / 2", "not_above.mean()"): (
            "A tie counts as half a pair in the right order, and you count it as a whole one."
        ),
        lambda label, score: 1 - auc(label, score): "That is the share in the wrong order: 1 − AUC.",
    },
    variants=[_by_levels],
    instead_of=("sklearn.metrics.roc_auc_score", "sklearn.metrics.roc_curve", "scipy.stats.mannwhitneyu"),
    hint="For one positive: how many negatives lie below it, and how many are tied with it?",
    explanation="Pairs in the right order, ties by half: the same as labkit's, and as scikit-learn's.",
)

# %% score-prose [markdown]
"""
`score` applies it to a split that no step of training ever sees. An untrained model orders the rows at random.
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

`labkit.Run` keeps the clocks, watches a target and writes a run folder; the loop is yours. `train(run, model, optimizers, batches, score, epochs=10)` returns nothing.

1. It passes over `run.epochs(epochs)`, and in each over the batches `(dense, categorical, label)` of `run.batches(batches)`, which end when the run is over.
2. For each batch it takes a step of each optimiser on the loss `F.binary_cross_entropy_with_logits`, clears the gradients, and reports the step: `run.step(loss, samples=len(label))`.
3. It evaluates where the run asks for it: `if run.due:` then `run.evaluate(auc=score())`. `score` is a function without arguments.

*Hint:* give `run.step` the loss itself; it reads the number when it needs it.
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
    Case("two epochs of five batches", _trained, 2),
    Case("one epoch", _trained, 1),
    Case("a run that is over after 4 steps", _trained, 2, most_steps=4),
    mistakes={
        ("optimizer.zero_grad()", "pass"): "Gradients add up from step to step: clear them after each (zero_grad).",
        ("optimizer.step()", "optimizer.zero_grad(), optimizer.step()"): (
            "No weight changes: backward comes first, then the step, which uses the gradients, then clear them."
        ),
        ("in optimizers:", "in optimizers[:1]:"): "Step all optimisers, not the first alone.",
    },
    variants=[
        (
            "            for optimizer in optimizers:\n                optimizer.step()\n                optimizer.zero_grad()\n",
            "            [each.step() for each in optimizers]\n            model.zero_grad()\n",
        ),
    ],
    hint="Say aloud what a step does to the weights, what it leaves behind for the next one, and what you report to the run.",
    explanation="The loss falls, the same seed repeats it, and what is scored is never trained on.",
)

# %% train-prose [markdown]
"""
Now train your model with your optimisers, score and loop. There are ten evaluations per epoch, and a second one has to confirm the target. `live` draws each as it comes.
"""

# %% train-run
torch.manual_seed(seed)
model, validation = MyDlrm(config), log.split("validation")
goal, limit_s = {"smoke": ("auc >= 0.65", 10), "standard": ("auc >= 0.78", 120), "full": ("auc >= 0.78", 240)}[profile]
settings = {"target": goal, "max_seconds": limit_s, "seed": seed, "evaluate_every": len(rows) // 10}
optimizers, batches = make_optimizers(model, 2e-3), labkit.data.clicks.ClickBatches(rows, batch_size=512, seed=seed)
with labkit.Run("my-dlrm", runs_dir=runs, **settings) as run:
    view = labkit.widgets.live(run)
    train(run, model, optimizers, batches, lambda: score(model, validation))
labkit.plots.show(view.figure)  # a plain figure, which stays when the notebook is saved

# %% seeds-prose [markdown]
"""
## Do your optimisers cost accuracy?

SparseAdam is not quite the same algorithm as Adam. Does it cost AUC? One run is one draw: another seed gives other starting weights and another order of the rows. So each of several seeds trains for **one epoch** of the small log (50,000 rows), once with Adam and once with your optimisers.
"""

# %% one-epoch
small = labkit.data.clicks.load_clicks("synthetic-small")
small_config = labkit.models.DlrmConfig(len(small.dense_names), small.table_rows, **shape)
small_rows = small.split("train").spread(20_000 if profile == "smoke" else 50_000)
os.environ["LABKIT_QUIET"] = "1"  # the runs print no progress


def one_epoch(seed, make):
    torch.manual_seed(seed)
    model, batches = MyDlrm(small_config), labkit.data.clicks.ClickBatches(small_rows, batch_size=512, seed=seed)
    with labkit.Run("one-epoch", target="max auc", runs_dir=runs, seed=seed) as one:
        train(one, model, make(model, 2e-3), batches, lambda: score(model, small.split("validation")), epochs=1)
    return score(model, small.split("test"))


# %% guess-seeds-prose [markdown]
"""
**How far apart are the best and the worst test AUC** of runs that differ in the seed alone? And **how many seeds would find a true difference of 0.001 between the two optimisers** in four of five studies (a power of 80 %)?
"""

# %% guess-seeds
guess("10.seed_range", 0.02)
guess("10.seeds", 10.0, "seeds")

# %% seeds-run-prose [markdown]
"""
What a seed does to both optimisers cancels in their difference. `mean_interval` gives the mean and its 95 % interval by Student's t, as you wrote it in [Budgets that bind](02_budgets_that_bind.ipynb), without logarithms.

**The rule, before the numbers:** a difference below 0.001 does not matter here. If the interval of the differences lies between −0.001 and 0.001, your optimisers are as good as Adam. If it lies outside, they differ. Otherwise these seeds cannot tell.
"""


# %% seeds-run
def plain_adam(model, lr):
    return [torch.optim.Adam(model.parameters(), lr=lr)]


seeds = range(2 if profile == "smoke" else 5)
aucs = pd.DataFrame([{"Adam": one_epoch(s, plain_adam), "yours": one_epoch(s, make_optimizers)} for s in seeds])
differences = aucs["yours"] - aucs["Adam"]
labkit.plots.show(aucs.assign(difference=differences).round(4).rename_axis("seed").reset_index())
mean, low, high = labkit.tta.mean_interval(differences)
print(f"yours minus Adam: {mean:+.4f}, 95 % from {low:+.4f} to {high:+.4f}, {len(aucs)} seeds, measured")
reveal("10.seed_range", aucs["yours"].max() - aucs["yours"].min())
reveal("10.seeds", labkit.tta.runs_needed(differences.std(), 0.001))

# %% scores-prose [markdown]
"""
An interval that includes 0 does not prove that nothing was lost: compare your number of seeds with the number that the difference takes. The interval covers the luck of the seeds only: another test split would move all runs together.

How good were your guesses? The cell after the scores keeps the numbers of this notebook, each with bounds that hold on any machine.
"""

# %% scores
from labkit_course import results, score_notebook

score_notebook()

# %% results tags=["results"]
results(
    bayes_auc=(bayes_auc, 0.75, 0.85),
    adam_gain=(adam_gain, 0.2, 10),
    loop_auc=(run.result["best_validation"], 0.6, 0.82),
    seed_range=(aucs["yours"].max() - aucs["yours"].min(), 0, 0.1),
    optimisers_apart=(abs(mean), 0, 0.05),
)

# %% assistant adam_gain above=2 [markdown]
"""
Dense Adam passes over every row of every table, and SparseAdam only over the rows of the batch. So this change alone makes a step more than twice as fast.
"""

# %% recap [markdown]
"""
## Recap

- The Bayes AUC is the ceiling, and the last thousandths below it count.
- Nearly all parameters of a DLRM are in its tables, most of its arithmetic in its MLPs.
- Count a step before you measure it, and bound a fix before you make it.
- Adam passes over every row. Sparse gradients pass over the named ones, and cost something of their own.
- One run is one draw. Decide which difference matters, plan the seeds for it, and compare in pairs.

**Next:** [What makes a DLRM slow](11_what_makes_dlrm_slow.ipynb)
"""

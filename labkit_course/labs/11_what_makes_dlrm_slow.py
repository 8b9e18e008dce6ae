# %% opening [markdown] packages="pyarrow"
"""
# What makes a DLRM slow

After this notebook you will be able to

- **count** the operations and bytes of each part of a DLRM's step, and **predict** the longest part from three curves of a machine;
- **cut** a step into parts, so that a profiler can time each part forward and backward;
- **find** where one limiter hands over to the next;
- **judge** whether a model predicts better than a constant, on shapes that were drawn at random;
- **describe** a study as a sweep, which can be interrupted and resumed.

**Time:** 90 minutes with three exercises of code. The machine computes for about three minutes on 2 CPU cores. No GPU is needed.

**Prerequisites:** [Know your machine](01_know_your_machine.ipynb), whose bound this notebook takes up, and [Train a DLRM](10_train_dlrm.ipynb).
"""

# %% checks
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile, record_function

from labkit.models import Dlrm, DlrmConfig
from labkit.process import silenced
from labkit_course.exercise import Case, Explanation, WrittenExercise

# Shapes: B batch, D embedding dim, F tables, L pooling factor, N = F + 1 vectors that interact, P pairs of them.

MODULE = "shape"
EXERCISES = {}

# %% parameters tags=["parameters"]
profile = "standard"  # smoke, standard or full: how many shapes, and how many rounds each is timed
runs_dir = "runs"  # run folders are made in its subfolder notebooks
seed = 0  # of the shapes that are drawn at random

# %% question [markdown]
"""
## The question

The abstract of Acun et al. (HPCA 2021, arXiv 2011.05497) says that the performance and efficiency of GPUs for recommendation models "are largely affected by model architecture configurations such as dense and sparse features, MLP dimensions". Their machines were GPU servers. Yours has the same limits on a small scale: arithmetic, caches, memory.

A step has four parts. The **MLPs** multiply matrices. The **embeddings** read rows at random places, and update them. The **interaction** multiplies many small matrices. The **optimiser** passes over the weights of the MLPs. The part that takes longest is the *limiter*.
"""

# %% imports
from itertools import cycle
from types import SimpleNamespace

import pandas as pd
import torch

import labkit
from labkit_course import apparatus, check, claim, explain, guess, mine, model_answer, paired_times, reveal

labkit.hardware.keep_memory()  # one thread computes, and freed memory is kept for the next step
torch.set_num_threads(1)

# %% limits-text [markdown]
"""
## What this machine reaches

In [Know your machine](01_know_your_machine.ipynb) three numbers stood for a machine. They do not depend on any size. Here each number is a curve. The first is the speed of products over their smallest dimension. The second is the speed of copies over their bytes. The third is the speed of reading rows at random places over the bytes of their table, for rows of three lengths.
"""

# %% limits
largest, rounds = {"smoke": (2**24, 1), "standard": (2**27, 3), "full": (2**30, 9)}[profile]
limits = apparatus.measure_limits(largest_bytes=largest, rounds=max(rounds, 5) if rounds > 1 else 1)
print(f"{limits.device}, {limits.threads} thread, measured {limits.when}")
print({size: f"{limits.product_gflops(size):.3g} GFLOP/s" for size in (8, 32, 128, 1024)}, "by the size of products")
figure = labkit.plots.figure_sweep(limits.speeds(), x="size_mib", y="speed_gb_per_s", color="of")
labkit.plots.show(figure.update_layout(title_text="Random rows get slower as their table leaves the caches"))

# %% work-text [markdown]
r"""
## A model of the step

### Write 11.work

`step_work(config, pooling_factor, batch_size)` counts a step of the kit's fast DLRM. It returns a dictionary with a pair `(operations, bytes)` for each of `"mlps"`, `"embeddings"` and `"interaction"`. All numbers are float32. `config` is a `DlrmConfig` with `dense_dim`, `num_tables`, `embedding_dim` (D), `bottom_mlp` and `top_mlp`; the last two are the widths of the layers' *outputs*.

1. **mlps**: both MLPs, all layers. Each layer makes three matrix products of the same size. Forward, one gives the output. Backward, one gives the gradient of the weight and one that of the input. Count all three for the first layer, too. A multiplication and an addition are two operations. A product reads two matrices and writes one.
2. The input of the bottom MLP is the dense features. The input of the top MLP is the bottom MLP's output (D numbers) and one number for each pair of the N = tables + 1 vectors.
3. **embeddings**: count no arithmetic. Each lookup reads its row once for the sum of its bag. The update reads it again and writes it. A row that is looked up twice counts twice.
4. **interaction**: `labkit.perfmodel.interaction_cost(batch_size, vectors, width, by_hand=True)` gives the pair.

Why *by hand*? Forward, all products of a sample's $N$ vectors are one product $Z = X X^\top$ of $2 N^2 D$ operations. Backward, autograd knows two operands and makes two products of this size: $6 B N^2 D$ in all, as [Train a DLRM](10_train_dlrm.ipynb) counts. But both operands are the same $X$. The kit's fast model has a backward pass written by hand, $(G + G^\top) X$: one product, so $4 B N^2 D$. The bytes are those of the tensors that each of these passes reads and writes; `help(labkit.perfmodel.interaction_cost)` lists them.

*Hint:* `itertools.pairwise` gives neighbouring widths.
"""

# %% answer 11.work
from itertools import pairwise

import labkit


def step_work(config, pooling_factor: int, batch_size: int) -> dict[str, tuple[float, float]]:
    """Operations and bytes of three parts of a step."""
    ### BEGIN SOLUTION
    vectors, dim = config.num_tables + 1, config.embedding_dim
    flop = moved = 0
    for widths in ((config.dense_dim, *config.bottom_mlp), (dim + vectors * (vectors - 1) // 2, *config.top_mlp)):
        for inputs, outputs in pairwise(widths):
            flop += 3 * 2 * batch_size * inputs * outputs
            moved += 3 * 4 * (batch_size * inputs + inputs * outputs + batch_size * outputs)
    return {
        "mlps": (flop, moved),
        "embeddings": (0, 3 * 4 * batch_size * config.num_tables * pooling_factor * dim),
        "interaction": labkit.perfmodel.interaction_cost(batch_size, vectors, dim, by_hand=True),
    }
    ### END SOLUTION


# %% check 11.work points=6
check("11.work", step_work)


# %% checks
def _work(
    code: Any, *, dense: int = 20, tables: int = 5, pooling: int = 3, batch: int = 256, dim: int = 16, width: int = 64
) -> Any:
    config = DlrmConfig(dense, (1000,) * tables, dim, (width, 32, dim), (2 * width, 1))
    return {part: [float(each) for each in pair] for part, pair in code(config, pooling, batch).items()}


def _work_by_matrices(config, pooling_factor, batch_size):
    vectors = config.num_tables + 1
    pairs = sum(range(vectors))
    layers = list(zip([config.dense_dim, *config.bottom_mlp], config.bottom_mlp, strict=False))
    layers += list(zip([config.embedding_dim + pairs, *config.top_mlp], config.top_mlp, strict=False))
    numbers = sum(batch_size * (m + n) + m * n for m, n in layers)
    rows = batch_size * config.num_tables * pooling_factor
    return {
        "interaction": labkit.perfmodel.interaction_cost(batch_size, vectors, config.embedding_dim, by_hand=True),
        "embeddings": (0.0, 12.0 * rows * config.embedding_dim),
        "mlps": (6.0 * batch_size * sum(m * n for m, n in layers), 12.0 * numbers),
    }


EXERCISES["11.work"] = WrittenExercise(
    step_work,
    Case("five tables", _work),
    Case("one table, long bags", _work, tables=1, pooling=40),
    Case("many tables, a small batch", _work, tables=60, batch=32),
    Case("wide layers and rows", _work, width=512, dim=48, dense=300),
    mistakes={
        ("flop += 3 * 2 * batch_size", "flop += 2 * batch_size"): (
            "You count the MLPs' operations of the forward pass only: which products does the backward pass make?"
        ),
        ("(0, 3 * 4 * batch_size", "(0, 4 * batch_size"): (
            "You count the embeddings' bytes of one pass over the rows: how often does a step touch a row?"
        ),
        ("(dim + vectors * (vectors - 1) // 2, *config.top_mlp)", "(dim, *config.top_mlp)"): (
            "The top MLP reads more than the bottom MLP's output: read item 2 again."
        ),
    },
    variants=(_work_by_matrices,),
    hint="Compare part by part. Write down one layer of m inputs and n outputs at a batch of B: the sizes of its three "
    "products, and the three matrices of each. How many pairs do N vectors have?",
    explanation="Arithmetic grows with the product of sizes, bytes with their sums: large batches compute more for each "
    "byte.",
)

# %% predict-text [markdown]
"""
Your bound of [Know your machine](01_know_your_machine.ipynb) turns work into time. It takes a card with two speeds, and here the curves give the speeds at the sizes of a part. Products run at the speed of their smallest dimension, embeddings at that of random rows, and all else at that of copies. Calls are left out.

`BASE` is the shape that everything below begins with. All its tables are alike, and so are its hidden layers.
"""

# %% base
BASE = {"dense_dim": 64, "num_tables": 16, "num_rows": 20_000, "pooling_factor": 4, "embedding_dim": 32}
BASE |= {"mlp_width": 128, "mlp_depth": 2, "batch_size": 512}
step_bound = mine("01.bound")


def config_of(shape):
    hidden, dim = (shape["mlp_width"],) * shape["mlp_depth"], shape["embedding_dim"]
    rows = (shape["num_rows"],) * shape["num_tables"]
    return labkit.models.DlrmConfig(shape["dense_dim"], rows, dim, (*hidden, dim), (*hidden, 1))


# %% predicted
def predicted(shape):
    config, batch, dim = config_of(shape), shape["batch_size"], shape["embedding_dim"]
    smallest = {"mlps": min(batch, shape["mlp_width"]), "interaction": min(config.num_tables + 1, dim)}
    times_ms = {}
    for part, (flop, moved) in step_work(config, shape["pooling_factor"], batch).items():
        rows = limits.gather(config.parameter_bytes, 4 * dim)
        card = SimpleNamespace(fp32_gflops=limits.product_gflops(smallest.get(part, dim)), launch_us=0)
        card.bandwidth_gb_per_s = rows if part == "embeddings" else limits.copy_gb_per_s(moved)
        times_ms[part] = 1e3 * step_bound(flop, moved, 0, card)
    return times_ms


# %% guess-text [markdown]
"""
Which part will your model name as the limiter of this shape? **How many milliseconds does your model predict for that part?**
"""

# %% guess-base
guess("11.base_ms", 5.0, "ms")

# %% of-base
of_base = predicted(BASE)
limiter = max(of_base, key=of_base.get)
print({part: f"{ms:.3g} ms" for part, ms in of_base.items()}, f"predicted; the limiter: {limiter}")
reveal("11.base_ms", of_base[limiter])

# %% in-parts-text [markdown]
"""
## What a step takes

torch's profiler times what runs within `record_function`. That is easy for the forward pass. The backward pass is one call that runs all parts one after the other, so the graph has to be cut between them.

### Write 11.in_parts

`step_in_parts(model, optimizers, batch)` takes a training step of the kit's `Dlrm` and returns the loss, detached. The batch is `(dense, categorical, label)`. `optimizers` has the optimiser of the MLPs and then that of the tables.

1. `model.bottom(dense)` is (B, D), and `model.tables(categorical)` is (B, F, D). Concatenate both to (B, F + 1, D), the bottom vector first. `model.interaction` of that gives the pairs. Concatenate the bottom vector and the pairs: `model.top` of that gives the logits (B, 1) for `F.binary_cross_entropy_with_logits`.
2. Where one part hands over to another, go on from a leaf: `leaf = out.detach().requires_grad_()`. In the backward pass `out.backward(leaf.grad)` hands over the gradient.
3. Each part's forward and backward pass runs within `record_function("mlps")`, `"embeddings"` or `"interaction"`. The loss belongs to the MLPs, and both concatenations belong to the interaction.
4. At the end, `step()` and `zero_grad()` of the first optimiser run within `"optimiser"`, and those of the second within `"embeddings"`.

*Hint:* `loss.backward()` reaches no further than the leaf before the top MLP.
"""

# %% answer 11.in_parts
import torch
import torch.nn.functional as F
from torch.profiler import record_function


def step_in_parts(model, optimizers, batch):
    """A training step, each part in its mark."""
    ### BEGIN SOLUTION
    dense, categorical, label = batch
    with record_function("mlps"):
        bottom = model.bottom(dense)  # (B, D)
    with record_function("embeddings"):
        embedded = model.tables(categorical)  # (B, F, D)
    bottom_leaf, embedded_leaf = (each.detach().requires_grad_() for each in (bottom, embedded))
    with record_function("interaction"):
        together = torch.cat([bottom_leaf.unsqueeze(1), embedded_leaf], dim=1)  # (B, N, D)
        crossed = torch.cat([bottom_leaf, model.interaction(together)], dim=1)  # (B, D + P)
    crossed_leaf = crossed.detach().requires_grad_()
    with record_function("mlps"):
        loss = F.binary_cross_entropy_with_logits(model.top(crossed_leaf).squeeze(1), label)
        loss.backward()
    with record_function("interaction"):
        crossed.backward(crossed_leaf.grad)
    with record_function("embeddings"):
        embedded.backward(embedded_leaf.grad)
    with record_function("mlps"):
        bottom.backward(bottom_leaf.grad)
    for part, optimizer in zip(("optimiser", "embeddings"), optimizers, strict=True):
        with record_function(part):
            optimizer.step()
            optimizer.zero_grad()
    return loss.detach()
    ### END SOLUTION


# %% check 11.in_parts points=5
check("11.in_parts", step_in_parts)


# %% checks
def _model() -> tuple[Dlrm, list, tuple[Tensor, Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(3)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        model = Dlrm(DlrmConfig(6, (9, 7), 4, (8, 4), (8, 1)))
    optimizers = [
        torch.optim.SGD([*model.bottom.parameters(), *model.top.parameters()], lr=0.5),
        torch.optim.SGD(model.tables.parameters(), lr=0.5),
    ]
    dense, label = torch.randn(5, 6, generator=generator), (torch.rand(5, generator=generator) < 0.5).float()
    return model, optimizers, (dense, torch.randint(7, (5, 2, 3), generator=generator, dtype=torch.int32), label)


def _weights_after(code: Any, steps: int) -> Any:
    model, optimizers, batch = _model()
    losses = [code(model, optimizers, batch).detach() for _ in range(steps)]
    return {"losses": losses, "weights": [weight.detach() for weight in model.parameters()]}


def _marks(code: Any) -> dict[str, int]:
    model, optimizers, batch = _model()
    code(model, optimizers, batch)  # the first makes what later steps find
    with silenced(), profile(activities=[ProfilerActivity.CPU]) as seen:
        code(model, optimizers, batch)
    marks, products = {}, {}
    for event in seen.events():
        if event.name in ("mlps", "embeddings", "interaction", "optimiser"):
            marks[event.name] = True
            inside = [event]
            while inside:
                each = inside.pop()
                inside += each.cpu_children
                if each.name in ("aten::addmm", "aten::mm", "aten::bmm", "aten::_embedding_bag"):
                    place = f"{each.name.removeprefix('aten::')} in {event.name}"
                    products[place] = products.get(place, 0) + 1
    return {f"marks {name}": True for name in marks} | products


def _uncut(model: nn.Module, optimizers: list, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    with record_function("mlps"):
        loss = F.binary_cross_entropy_with_logits(model(*batch[:2]), batch[2])
        loss.backward()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
    return loss.detach()


EXERCISES["11.in_parts"] = WrittenExercise(
    step_in_parts,
    Case("the loss and the weights after a step", _weights_after, 1),
    Case("after three steps", _weights_after, 3),
    Case("what runs within the marks", _marks),
    mistakes={
        ("        bottom.backward(bottom_leaf.grad)\n", "        pass\n"): (
            "The bottom MLP gets no gradient: what arrived at its leaf has to be handed on."
        ),
        ("embedded.backward(embedded_leaf.grad)", "embedded_leaf.grad"): (
            "The tables get no gradient: who hands on what arrived at their leaf?"
        ),
        _uncut: "Cut the graph where parts meet, so that each part's backward pass is a call that can be marked.",
    },
    variants=(
        ("loss.backward()", "torch.autograd.backward([loss])"),
        (
            "torch.cat([bottom_leaf.unsqueeze(1), embedded_leaf], dim=1)",
            "torch.hstack([bottom_leaf[:, None, :], embedded_leaf])",
        ),
    ),
    hint="Draw the graph of the forward pass, and a leaf at each place where one part hands over to another. From the "
    "loss backward, which call crosses which leaf, and in which mark does it belong?",
    explanation="The same gradients as one call of `backward`, and now each part's own time shows.",
)

# %% step-of-text [markdown]
"""
`step_of` makes a step of any shape. The batches are made up, since only the time counts. The model is the kit's fast one, with plain SGD.

`paired_times` times steps that are not observed, and repeats rounds that other programs disturbed. The profiler says which share of three further steps each part has. Both together give the milliseconds of each part. (`silenced` keeps the profiler from announcing itself.)
"""


# %% step-of
def step_of(shape):
    batch, tables, rows = shape["batch_size"], shape["num_tables"], shape["num_rows"]
    model = labkit.jobs.dlrm.build_model(config_of(shape), "fast")
    optimizers = labkit.jobs.build_optimizers(model, "sgd", 0.01, "fast")
    bags = [torch.randint(rows, (batch, tables, shape["pooling_factor"]), dtype=torch.int32) for _ in range(4)]
    batches = cycle([(torch.randn(batch, shape["dense_dim"]), bag, torch.randint(2, (batch,)).float()) for bag in bags])
    return lambda: step_in_parts(model, optimizers, next(batches))


# %% marks
from torch.profiler import ProfilerActivity, profile as profiler


def marks_of(step):
    with labkit.process.silenced(), profiler(activities=[ProfilerActivity.CPU]) as seen:
        for _ in range(3):
            step()
    return {each.key: each.cpu_time_total for each in seen.key_averages()}


# %% measured-text [markdown]
"""
Does the measurement name the part that you predicted?
"""

# %% measured
PARTS = ("mlps", "embeddings", "interaction", "optimiser")


def measured(shape):
    step = step_of(shape)
    ms, marks = 1e3 * paired_times({"step": step}, rounds)["step"].median(), marks_of(step)
    return {part: ms * marks[part] / sum(marks[part] for part in PARTS) for part in PARTS}


taken = measured(BASE)
print({part: f"{ms:.3g} ms" for part, ms in taken.items()}, f"measured; the limiter: {max(taken, key=taken.get)}")

# %% along-text [markdown]
"""
## One dimension at a time

`along` varies one dimension and keeps the others. Its frame has a row for each value and part, measured and predicted. A prediction is nearly a lower bound, because it counts neither calls nor the work on indices. It is not quite one: it counts the gradient of the first layer's input, which no step needs.

`rates` makes two numbers for each value from the measured time of the whole step: samples per second, and operations per second, the *efficiency* of the step.

**The rule for the claim, before its numbers.** The abstract says that performance and efficiency are "largely affected" by sparse features, dense features and the width of the MLPs. A model that does more work has fewer samples per second, which is no finding. So judge the efficiency. Call it *largely affected* by a dimension if the best value of that dimension reaches at least **twice** as many operations per second as the worst: a machine chosen for one shape is then half wasted on another. The claim holds here if that is so for all three: sparse features (4 to 64), dense features (64 to 4,096) and the width of the MLPs (64 to 2,048).
"""


# %% along
def along(name, values, **others):
    rows = []
    for value in values:
        shape = BASE | others | {name: value}
        flop = sum(
            flop for flop, _ in step_work(config_of(shape), shape["pooling_factor"], shape["batch_size"]).values()
        )
        for provenance, times in (("measured", measured(shape)), ("predicted", predicted(shape))):
            rows += [(value, part, provenance, ms, shape["batch_size"], flop) for part, ms in times.items()]
    return pd.DataFrame(rows, columns=[name, "part", "provenance", "time_ms", "samples", "flop"])


# %% rates
def rates(table, name):
    steps = table.query("provenance == 'measured'").groupby(name)
    ms = steps["time_ms"].sum()
    return pd.DataFrame(
        {"samples_per_s": 1e3 * steps["samples"].first() / ms, "gflop_per_s": steps["flop"].first() / ms / 1e6}
    )


# %% features-text [markdown]
"""
### Sparse features

Each sparse feature adds rows to read and pairs to multiply. **By what factor do samples per second fall from 4 sparse features to 64?**
"""

# %% guess-features
guess("11.features", 4.0, "times")

# %% features-run-text [markdown]
"""
Which part grows with the square of the number of features?
"""

# %% features-run
features = along("num_tables", (4, 64) if profile == "smoke" else (4, 8, 16, 32, 64))
by_features = rates(features, "num_tables")
falls = by_features["samples_per_s"][4] / by_features["samples_per_s"][64]
reveal("11.features", falls)
figure = labkit.plots.figure_sweep(features, x="num_tables", y="time_ms", color="part")
labkit.plots.show(
    figure.update_layout(title_text=f"64 sparse features instead of 4: {falls:.1f} times fewer samples/s")
)

# %% dense-text [markdown]
"""
### Dense features and the width of MLPs

The figure shows the widths. The dense features change the first layer alone, so a table of rates is enough.
"""

# %% dense-run
dense = along("dense_dim", (64, 1024) if profile == "smoke" else (64, 256, 1024, 4096))
width = along("mlp_width", (128, 512) if profile == "smoke" else (64, 128, 256, 512, 1024, 2048))
by_dense, by_width = rates(dense, "dense_dim"), rates(width, "mlp_width")
figure = labkit.plots.figure_sweep(width, x="mlp_width", y="time_ms", color="part")
labkit.plots.show(figure.update_layout(title_text="The wider the MLPs, the nearer they are to their bound"))
labkit.plots.show(by_dense)

# %% crossing-text [markdown]
"""
### Where the limiter changes

With longer bags the embeddings overtake the MLPs. The measured pooling factors are 1, 2, 4 and so on up to 128. **From which of them on do the embeddings lead?**
"""

# %% guess-crossing
guess("11.crossing", 10.0, "rows per bag")

# %% pooling-text [markdown]
"""
First your model says from which pooling factor on the embeddings lead. Then the measurement does. The lines cross where the limiter changes. If the embeddings never lead, 129 stands for *not up to 128*.
"""


# %% foretold
def embeddings_lead(pooling_factor):
    times = predicted(BASE | {"pooling_factor": pooling_factor})
    return times["embeddings"] >= max(times.values())


foretold = next((factor for factor in range(1, 1001) if embeddings_lead(factor)), 1001)

# %% pooling
poolings = (1, 64) if profile == "smoke" else (1, 2, 4, 8, 16, 32, 64, 128)
pooling = along("pooling_factor", poolings)
times = pooling.query("provenance == 'measured'").pivot(index="pooling_factor", columns="part", values="time_ms")
crossed = int(next((factor for factor, row in times.iterrows() if row["embeddings"] >= row.max()), 129))
reveal("11.crossing", crossed)
title = f"The embeddings lead from {crossed} rows per bag on, and your model said {foretold}"
figure = labkit.plots.figure_sweep(pooling, x="pooling_factor", y="time_ms", color="part")
labkit.plots.show(figure.update_layout(title_text=title))

# %% rows-text [markdown]
"""
### The rows of a table

More rows are not more work, because a step still names the same number of them. But the tables outgrow one cache after the other. The prediction has its steps where the curve of random rows above has them.
"""

# %% rows
sizes = (1000, 30_000) if profile == "smoke" else (1000, 4000, 16_000, 64_000, 256_000, 1_000_000)
hashes = along("num_rows", sizes, num_tables=2, pooling_factor=64)
slower = rates(hashes, "num_rows")["samples_per_s"].iloc[0] / rates(hashes, "num_rows")["samples_per_s"]
figure = labkit.plots.figure_sweep(hashes, x="num_rows", y="time_ms", color="part")
title = f"With {sizes[-1]:,} rows per table a step takes {slower.iloc[-1]:.2f} times as long as with 1,000"
labkit.plots.show(figure.update_layout(title_text=title))

# %% held-out-text [markdown]
"""
## Shapes that were not chosen

A model is as good as its predictions for shapes that it was not made with. Here each dimension is drawn at random on a logarithmic scale, independently of the others. Each shape is measured and predicted once. **For what share of these shapes does your model name the limiter?**
"""

# %% guess-right
guess("11.right", 0.7)

# %% better-text [markdown]
"""
### Write 11.better

A model has to beat its simplest rival, which always names the same part. `better(measured, predicted)` takes two lists of names, the limiter of each shape by the profiler and by the model, and returns three numbers:

1. the share of shapes for which the model is right;
2. the share for which the *constant* is right: the constant is the most frequent name in `measured`;
3. a p-value, which says how surprising the difference would be if both were equally good. Look only at the n shapes where exactly one of the two is right. For k of these the model is right. If both were equally good, k would be the number of heads in n throws of a fair coin. The p-value is the probability of a number of heads at least as far from n / 2 as k is. Without such shapes it is 1.

*Hint:* `math.comb(n, heads) / 2**n` is the probability of a number of heads.
"""

# %% answer 11.better
from collections import Counter
from math import comb


def better(measured, predicted) -> tuple[float, float, float]:
    """Share right by the model, share right by the best constant, and the p-value of their difference."""
    ### BEGIN SOLUTION
    ((constant, by_constant),) = Counter(measured).most_common(1)
    by_model = only_model = only_constant = 0
    for truth, name in zip(measured, predicted, strict=True):
        by_model += name == truth
        only_model += name == truth != constant
        only_constant += name != truth == constant
    n = only_model + only_constant
    as_far = [heads for heads in range(n + 1) if abs(heads - n / 2) >= abs(only_model - n / 2)]
    p_value = sum(comb(n, heads) for heads in as_far) / 2**n
    return by_model / len(measured), by_constant / len(measured), p_value
    ### END SOLUTION


# %% check 11.better points=5
check("11.better", better)


# %% checks
def _limiters(code: Any, of_all: str, right: str) -> list[float]:
    """Shapes by the first letter of their limiter, and of what the model says."""
    return [float(each) for each in code(list(of_all), list(right))]


def _better_by_scipy(measured, predicted):
    from scipy.stats import binomtest

    constant = max(set(measured), key=list(measured).count)
    model = [one == other for one, other in zip(measured, predicted, strict=True)]
    rival = [one == constant for one in measured]
    wins = sum(one > other for one, other in zip(model, rival, strict=True))
    losses = sum(one < other for one, other in zip(model, rival, strict=True))
    p_value = binomtest(wins, wins + losses).pvalue if wins + losses else 1.0
    return sum(model) / len(model), sum(rival) / len(rival), p_value


EXERCISES["11.better"] = WrittenExercise(
    better,
    Case("the model wins four and loses one", _limiters, "mmmmmmeeeiii", "mmmmmeeeemii"),
    Case("the model wins all of six", _limiters, "mmmmmmmeeeeii", "mmmmmmmeeeeii"),
    Case("the model loses more than it wins", _limiters, "eeeeeeeemm", "eemmmmmmmi"),
    Case("both are right for the same shapes", _limiters, "mmmme", "mmmmm"),
    Case("as many won as lost", _limiters, "mmmmmee", "mmmeeee"),
    mistakes={
        ("only_model += name == truth != constant", "only_model += name == truth"): (
            "Shapes where both are right say nothing about which is better, and they are counted here."
        ),
        ("abs(heads - n / 2) >= abs(only_model - n / 2)", "heads >= only_model"): (
            "That is one side: it does not count results that are as far below n / 2 as k is above."
        ),
        ("abs(heads - n / 2) >= abs(only_model", "abs(heads - n / 2) > abs(only_model"): (
            "The observed result itself is at least as far from n / 2: it counts, too."
        ),
    },
    variants=(_better_by_scipy,),
    hint="Take the first case by hand: for which shapes is exactly one of the two right, and how many of these does the "
    "model win? Then list the numbers of heads that are at least as far from half.",
    explanation="This is the sign test. With few shapes it can only show large differences.",
)

# %% drawn
import random

RANGES = {"dense_dim": (64, 1024), "num_tables": (4, 32), "num_rows": (1000, 30_000), "pooling_factor": (1, 128)}
RANGES |= {"embedding_dim": (8, 64), "mlp_width": (32, 512), "mlp_depth": (1, 4), "batch_size": (128, 1024)}
draw, table = random.Random(seed), []
for _ in range({"smoke": 3, "standard": 24, "full": 96}[profile]):
    shape = {name: round(low * (high / low) ** draw.random()) for name, (low, high) in RANGES.items()}
    foreseen, seen = predicted(shape), measured(shape)
    by_model, by_profile = max(foreseen, key=foreseen.get), max(seen, key=seen.get)
    table.append(shape | {"predicted": by_model, "measured": by_profile, "predicted (ms)": foreseen.get(by_profile, 0)})
    table[-1]["measured (ms)"] = seen[by_profile]
table = pd.DataFrame(table)

# %% held-out-text-2 [markdown]
"""
The shares have intervals (Wilson's, 95 %). The table shows the shapes for which your model was wrong, with the time of the part that took longest.
"""

# %% held-out
right, constant_right, p_value = better(list(table["measured"]), list(table["predicted"]))
reveal("11.right", right)
low, high = labkit.tta.success_interval(round(right * len(table)), len(table))
print(f"right: {right:.0%} (95 % {low:.0%} to {high:.0%}); one name each time: {constant_right:.0%}; p = {p_value:.2g}")
shown = ["num_tables", "num_rows", "pooling_factor", "embedding_dim", "mlp_width", "batch_size", *table.columns[-4:]]
labkit.plots.show(table.loc[table["measured"] != table["predicted"], shown].set_index("num_tables"))

# %% why-wrong-text [markdown]
"""
### Explain 11.why_wrong

In two or three sentences: how often was the limiter right, and does that beat one name for all? Take one shape for which it was wrong (or whose time was furthest from its prediction): what does the model leave out there? What would it cost to count that, too?
"""

# %% explain 11.why_wrong points=2
### BEGIN SOLUTION
answer = model_answer("11.why_wrong")
### END SOLUTION
explain("11.why_wrong", answer)

# %% checks
EXERCISES["11.why_wrong"] = Explanation(
    "numbers: the share of shapes whose limiter was predicted, that of one name for all, the p-value or interval, and "
    "both times of one shape",
    "why: what the model leaves out there (copies, index work, Python, a cache)",
    "trade-off: what it would take to count that, too, and whether the limiter needs it",
    model="The limiter was right for 21 of 24 shapes (0.70 to 0.96 at 95 %), and the MLPs each time are right for 15; with "
    "p = 0.03 the model is better than one name. It was wrong for one shape with 15 tables of 3,292 rows: it named the MLPs, "
    "with 0.25 ms, and the embeddings took 2.1 ms. Such tables stay in a cache, so bytes cost little, but each table "
    "asks for a lookup, a sort and an update, and the model counts no calls. A cost per table would fix that, for one more "
    "thing to measure; to name the limiter of most shapes three curves are enough, to predict a time they are not.",
    half="The limiter was right for 21 of 24 shapes and the MLPs each time for 15. One shape was named for its MLPs with "
    "0.25 ms, and its embeddings took 2.1 ms, because the calls of 15 tables are not counted.",
)

# %% sweep-text [markdown]
"""
## A study as a sweep

A loop in a notebook is lost when the notebook ends. A *sweep* is a file that says which settings to try. `labkit sweep` runs each of them as a separate process, writes a run folder for each, and continues where it was interrupted. `dlrm_shape.py` is the kit's script for steps like yours. In a terminal the command is `labkit sweep rows.yaml`. `read_sweep` then returns a frame with a row for each setting.
"""

# %% sweep-file
import sys
from pathlib import Path

SWEEP = """
script: dlrm_shape.py
settings: {seconds: 0.3, mlp_width: 128, mlp_depth: 2}
grid: {num_rows: [1000, 100000]}
"""
python, study = sys.executable, Path(runs_dir) / "rows.yaml"
study.parent.mkdir(parents=True, exist_ok=True)
study.write_text(SWEEP.replace(", 100000", "") if profile == "smoke" else SWEEP)
# !{python} -m labkit sweep {study} --runs-dir {runs_dir}

# %% sweep-frame
cells = labkit.launch.read_sweep(study, runs_dir)
labkit.plots.show(cells[["num_rows", "state", "samples_per_s", "share_embeddings", "peak_memory_bytes"]])

# %% judge-text [markdown]
"""
## Judge

The sentence of the abstract is about GPUs. Your machine is a CPU, so you judge an analogue. Apply the rule above `along`: is the efficiency of the best value at least twice that of the worst, in all three dimensions?
"""

# %% claim A3 points=1 id="claim-a3"
by_dimension = {"sparse features": by_features, "dense features": by_dense, "MLP width": by_width}
spans = {name: table["gflop_per_s"].max() / table["gflop_per_s"].min() for name, table in by_dimension.items()}
### BEGIN SOLUTION
verdict = "holds here" if min(spans.values()) >= 2 else "does not hold here"
answer = verdict, "an analogue on one CPU thread: small products and random rows reach fewer operations per second"
### END SOLUTION
found = ", ".join(f"{span:.1f} times over {name}" for name, span in spans.items())
claim("A3", f"operations per second, best over worst: {found}", answer)

# %% score-text [markdown]
"""
How good were your guesses? The cell after the scores keeps the numbers of this notebook, each with bounds that hold on any machine.
"""

# %% score
from labkit_course import results, score_notebook

score_notebook()

# %% results tags=["results"]
results(
    limiters_right=(right, 0.3, 1),
    features_factor=(falls, 2, 200),
    crossing=(crossed, 1, 129),
    base_ms=(sum(taken.values()), 0.5, 200),
    base_over_predicted=(sum(taken.values()) / sum(of_base.values()), 0.7, 20),
)

# %% assistant base_over_predicted below=1.5 [markdown]
"""
Operations, bytes and calls cover what a step does. So the measured step takes less than 1.5 times what the formulas predict.
"""

# %% recap [markdown]
"""
## Recap

- The parts of a step have different limits: arithmetic for products, the place of the table for rows, calls for small products and small batches.
- Three curves of a machine and a page of arithmetic name the limiter of most shapes. Whether that beats one name for all is a question for a test.
- A formula counts one program: autograd's backward pass of the interaction makes two products, and one written by hand makes one.
- Cutting the graph at leaves gives each part's backward pass a name, with the same gradients.
- A study is a file: its cells are runs, and it continues where it stopped.

**Next:** [Where embeddings live](12_where_embeddings_live.ipynb)
"""

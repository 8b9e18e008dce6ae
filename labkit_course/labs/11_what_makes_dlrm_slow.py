# %% opening [markdown]
"""
# What makes a DLRM slow

After this notebook you will be able to

- **count** the operations and bytes of each part of a DLRM's step, and **predict** from three curves of a machine which part limits it;
- **cut** a step into parts, so that a profiler says what each takes, forward and backward;
- **find** where one limiter hands over to the next;
- **score** your model on shapes that it has never seen;
- **describe** a study as a sweep, which can be interrupted and resumed.

**Time:** 90 minutes with five exercises of code. The machine computes for about three minutes on 2 CPU cores. No GPU is needed.

**Prerequisites:** [Know your machine](01_know_your_machine.ipynb) and [Train a DLRM](10_train_dlrm.ipynb).
"""

# %% checks
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile, record_function

from labkit.models import Dlrm, DlrmConfig
from labkit.process import silenced
from labkit_course.apparatus import Curve, Limits
from labkit_course.exercise import Case, Explanation, WrittenExercise

# Shapes: B batch, D embedding dim, F tables, L pooling factor, N = F + 1 features that meet, P pairs of them.

EXERCISES = {}

# %% may-change [markdown]
"""
The next cell holds what you may change.
"""

# %% parameters tags=["parameters"]
profile = "standard"  # smoke, standard or full: how many shapes, and how long each is timed
runs_dir = "runs"  # run folders are made in its subfolder notebooks
seed = 0  # of the shapes that are drawn at random

# %% question [markdown]
"""
## The question

Acun et al. (HPCA 2021, arXiv 2011.05497) vary the shape of a recommendation model: its dense and sparse features, the rows of its tables (*hash size*), its MLPs, its batch. Only the abstract could be read for this notebook; what else is said of the paper is from memory, and marked so. Their machines were GPU servers. Yours has the same tiers in small: arithmetic, caches, memory.

A step has four parts. The **MLPs** multiply matrices. The **embeddings** read random rows, and update them. The **interaction** multiplies many small matrices. The **optimiser** passes over the weights of the MLPs. One of them takes the longest: the *limiter*. One thread computes here, and freed memory is kept.
"""

# %% imports
import torch

import labkit
from labkit_course import check, claim, explain, guess, model_answer, reveal

torch.set_num_threads(1)
labkit.hardware.keep_memory()

# %% limits-text [markdown]
"""
## What this machine reaches

In [Know your machine](01_know_your_machine.ipynb) three numbers stood for a machine, and were off by a fifth: they know no sizes. Here each is a curve: products by their smallest size, copies by their bytes, and rows from random places by the bytes of their table, for short and long rows.
"""

# %% limits
from labkit_course import apparatus

largest, rounds = {"smoke": (2**24, 1), "standard": (2**27, 5), "full": (2**30, 15)}[profile]
limits = apparatus.measure_limits(largest_bytes=largest, rounds=rounds)
print(f"{limits.device}, {limits.threads} thread, measured {limits.when}")
print({size: f"{limits.product_gflops(size):.3g} GFLOP/s" for size in (8, 32, 128, 1024)}, "by the size of products")

# %% curves-text [markdown]
"""
Where caches end, rows get slower; `labkit doctor` says how large yours are.
"""

# %% curves
labkit.plots.show(labkit.plots.figure_sweep(limits.speeds(), x="size_mib", y="speed_gb_per_s", color="of"))

# %% mlp-text [markdown]
"""
## A model of the step

### Write 11.mlp_work

`mlp_work(widths, batch_size)` returns `(flop, bytes)` of an MLP's step, forward and backward; `widths` begins with that of its input.

1. For each layer there are three products of (B, in) by (in, out) or like sizes: the output, and backward the gradients of the weight and of the input. Count them for the first layer, too.
2. Each product takes 2·B·in·out operations, and moves its three matrices once, in float32.

*Hint:* `itertools.pairwise` gives the layers.
"""

# %% answer 11.mlp_work
from collections.abc import Sequence
from itertools import pairwise


def mlp_work(widths: Sequence[int], batch_size: int) -> tuple[int, int]:
    """Operations and bytes of an MLP's step."""
    ### BEGIN SOLUTION
    flop = moved = 0
    for into, out in pairwise(widths):
        flop += 3 * 2 * batch_size * into * out
        moved += 3 * 4 * (batch_size * into + into * out + batch_size * out)
    return flop, moved
    ### END SOLUTION


# %% check 11.mlp_work points=5
check("11.mlp_work", mlp_work)

# %% checks
EXERCISES["11.mlp_work"] = WrittenExercise(
    mlp_work,
    module="shape",
    cases=(
        Case("one layer", lambda code: list(code((13, 64), 10))),
        Case("two layers", lambda code: list(code((13, 64, 16), 512))),
        Case("a layer of one number", lambda code: list(code((479, 256, 1), 128))),
    ),
    mistakes={
        ("3 * 2 * batch_size", "2 * batch_size"): (
            "That is the forward pass: backward there are two products more, for the weights' and the input's gradient."
        ),
        ("3 * 2 * batch_size", "3 * batch_size"): "A multiplication and an addition are two operations.",
        ("3 * 4 * (", "3 * ("): "Those are numbers: a number of float32 has 4 bytes.",
    },
    hint="For each pair of neighbouring widths: three products of 2·B·in·out operations, and each moves the input "
    "(B, in), the weight (in, out) and the output (B, out), 4 bytes a number.",
    explanation="Arithmetic grows with B·in·out, bytes with their sums: large batches have more of the first for each "
    "of the second.",
)

# %% at-least-text [markdown]
"""
### Write 11.at_least

`at_least(flop, moved, gflops, gb_per_s)` returns the milliseconds that so much work takes at least, and what they are for: `"arithmetic"` or `"bandwidth"`. A machine computes and moves at the same time.

*Hint:* 1 GFLOP/s is 1e9 operations a second, 1 GB/s 1e9 bytes.
"""


# %% answer 11.at_least
def at_least(flop: float, moved: float, gflops: float, gb_per_s: float) -> tuple[float, str]:
    """The least time in ms, and what it is for."""
    ### BEGIN SOLUTION
    arithmetic, bandwidth = flop / gflops / 1e6, moved / gb_per_s / 1e6
    return max(arithmetic, bandwidth), "arithmetic" if arithmetic > bandwidth else "bandwidth"
    ### END SOLUTION


# %% check 11.at_least points=5
check("11.at_least", at_least)


# %% checks
def _told(*numbers: float) -> Callable[[Any], Any]:
    return lambda code: list(code(*numbers))


EXERCISES["11.at_least"] = WrittenExercise(
    at_least,
    module="shape",
    cases=(
        Case("arithmetic takes longer", _told(4e9, 1e6, 100.0, 20.0)),
        Case("moving takes longer", _told(1e6, 4e9, 100.0, 20.0)),
        Case("nothing to compute", _told(0.0, 3e6, 100.0, 20.0)),
    ),
    mistakes={
        ("flop / gflops / 1e6, moved / gb_per_s / 1e6", "flop / gflops / 1e9, moved / gb_per_s / 1e9"): (
            "Those are seconds: 1 GFLOP/s is 1e9 a second, and so 1e6 a millisecond."
        ),
        ("max(arithmetic, bandwidth)", "arithmetic + bandwidth"): (
            "A machine computes while it moves: the longer of the two is the least time."
        ),
    },
    hint="Milliseconds of each alone: flop / gflops / 1e6 and moved / gb_per_s / 1e6; the longer one, and its name.",
    explanation="The roofline as two lines of code: whichever takes longer hides the other.",
)

# %% predict-text [markdown]
"""
### Write 11.predict

`predict(config, pooling_factor, batch_size, limits)` returns a dictionary: the milliseconds that `"mlps"`, `"embeddings"` and `"interaction"` take at least. `config` is a `DlrmConfig` with `dense_dim`, `num_tables`, `embedding_dim` (D), `bottom_mlp`, `top_mlp` and `parameter_bytes`, the bytes of all tables.

1. **mlps**: the bottom MLP begins with `dense_dim`. The top MLP begins with D + N (N − 1) / 2 numbers, where N = tables + 1: the bottom vector and the pairs. Products reach `limits.product_gflops(size)`, with the batch size or the first hidden width as the size, whichever is less; bytes move at `limits.copy_gb_per_s(bytes)`. Both MLPs are added.
2. **embeddings**: B · tables · `pooling_factor` rows of D numbers, read once for the sum, then read and written for the update, and no arithmetic worth counting. `limits.gather(bytes of all tables, bytes of a row)` is how fast random rows come.
3. **interaction**: 4·B·N²·D operations at `limits.product_gflops(min(N, D))`, and 4·B·(8·N·D + 6·N²) bytes: features are put together, pairs taken out, and their gradients back.
"""


# %% answer 11.predict
def predict(config, pooling_factor: int, batch_size: int, limits) -> dict[str, float]:
    """The least milliseconds of three parts of a step."""
    ### BEGIN SOLUTION
    features, dim = config.num_tables + 1, config.embedding_dim
    pairs = features * (features - 1) // 2
    mlps = 0.0
    for widths in ((config.dense_dim, *config.bottom_mlp), (dim + pairs, *config.top_mlp)):
        flop, moved = mlp_work(widths, batch_size)
        gflops = limits.product_gflops(min(batch_size, widths[1]))
        mlps += at_least(flop, moved, gflops, limits.copy_gb_per_s(moved))[0]
    moved = 3 * 4 * batch_size * config.num_tables * pooling_factor * dim
    embeddings, _ = at_least(0, moved, 1, limits.gather(config.parameter_bytes, 4 * dim))
    flop, moved = 4 * batch_size * features**2 * dim, 4 * batch_size * (8 * features * dim + 6 * features**2)
    gflops = limits.product_gflops(min(features, dim))
    interaction, _ = at_least(flop, moved, gflops, limits.copy_gb_per_s(moved))
    return {"mlps": mlps, "embeddings": embeddings, "interaction": interaction}
    ### END SOLUTION


# %% check 11.predict points=5
check("11.predict", predict)

# %% checks
MADE_UP = Limits(
    device="made up",
    threads=1,
    when="",
    product_gflops=Curve((8, 256), (10.0, 100.0)),
    copy_gb_per_s=Curve((1e4, 1e8), (100.0, 10.0)),
    gather_gb_per_s=((32, Curve((1e5, 1e9), (40.0, 4.0))), (1024, Curve((1e5, 1e9), (200.0, 60.0)))),
    launch_us=2.0,
)


def _predicted(*, rows: int = 10_000, tables: int = 5, pooling: int = 3, batch: int = 256, width: int = 64) -> Any:
    config = DlrmConfig(20, (rows,) * tables, 16, (width, 16), (width, 1))
    return lambda code: dict(code(config, pooling, batch, MADE_UP))


EXERCISES["11.predict"] = WrittenExercise(
    predict,
    module="shape",
    cases=(
        Case("five tables", _predicted()),
        Case("larger tables", _predicted(rows=1_000_000)),
        Case("many features, a small batch", _predicted(tables=60, batch=32)),
        Case("wide layers and long bags", _predicted(width=512, pooling=40)),
    ),
    mistakes={
        ("3 * 4 * batch_size * config", "4 * batch_size * config"): (
            "That reads each row once. To update it, it is read once more and written: three times its bytes."
        ),
        ("limits.gather(config.parameter_bytes, 4 * dim)", "limits.copy_gb_per_s(moved)"): (
            "Rows do not lie side by side: `limits.gather(bytes of all tables, bytes of a row)` is their speed."
        ),
        ("(dim + pairs, *config.top_mlp)", "(dim, *config.top_mlp)"): (
            "The top MLP reads the bottom vector (D) and the pairs, N (N - 1) / 2 of them."
        ),
    },
    hint="mlps: the sum of `at_least` for both MLPs, product speed at min(B, first hidden width); embeddings: 0 "
    "operations and 3·4·B·F·L·D bytes at `limits.gather(config.parameter_bytes, 4 * D)`; interaction: as given.",
    explanation="A model of three parts and three curves; the measurement will show what it leaves out.",
)

# %% shape-text [markdown]
"""
The shape that everything below begins with. All tables are alike, and all hidden layers.
"""

# %% base
BASE = {"dense_dim": 64, "num_tables": 16, "num_rows": 20_000, "pooling_factor": 4, "embedding_dim": 32}
BASE |= {"mlp_width": 128, "mlp_depth": 2, "batch_size": 512}

# %% config-text [markdown]
"""
As a `DlrmConfig`, which the kit's model takes:
"""


# %% shape
def config_of(shape):
    hidden = (shape["mlp_width"],) * shape["mlp_depth"]
    rows, dim = (shape["num_rows"],) * shape["num_tables"], shape["embedding_dim"]
    return labkit.models.DlrmConfig(shape["dense_dim"], rows, dim, (*hidden, dim), (*hidden, 1))


# %% guess-text [markdown]
"""
**Which part will your model name as the limiter of this shape, and how many ms does it give it?** Guess first.
"""

# %% guess-base
guess("11.base_ms", 5.0, "ms")

# %% predicted-text [markdown]
"""
Your model of it:
"""


# %% predicted
def predicted(shape):
    return predict(config_of(shape), shape["pooling_factor"], shape["batch_size"], limits)


of_base = predicted(BASE)
limiter = max(of_base, key=of_base.get)
print({part: f"{ms:.3g} ms" for part, ms in of_base.items()}, f"predicted; the limiter: {limiter}")
reveal("11.base_ms", of_base[limiter])

# %% in-parts-text [markdown]
"""
## What a step takes

torch's profiler measures the time of what stands in `record_function`. For the forward pass that is easy. The backward pass is one call, in which all parts come after each other; so it has to be cut.

### Write 11.in_parts

`step_in_parts(model, optimizers, batch)` takes a training step of the kit's `Dlrm` and returns the loss, detached. The batch is `(dense, categorical, label)`; the optimisers are that of the MLPs and that of the tables.

1. `model.bottom(dense)` is (B, D), `model.tables(categorical)` (B, F, D). Put both together, the bottom vector first, (B, F + 1, D); `model.interaction` of that gives the pairs. `model.top` of the bottom vector and the pairs, concatenated, gives the logit (B, 1) for `F.binary_cross_entropy_with_logits`.
2. Where one part hands over to another, go on from a leaf: `leaf = out.detach().requires_grad_()`. Backward, `out.backward(leaf.grad)` hands over the gradient.
3. Each part's forward and backward pass stands in `record_function("mlps")`, `"embeddings"` or `"interaction"`; then `optimizer.step()` and `zero_grad()` in `"optimiser"` for the first, and in `"embeddings"` for the tables.

*Hint:* `loss.backward()` only reaches the leaf before the top MLP.
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


def _weights_after(steps: int) -> Callable[[Any], Any]:
    def ask(code: Any) -> Any:
        model, optimizers, batch = _model()
        losses = [code(model, optimizers, batch).detach() for _ in range(steps)]
        return {"losses": losses, "weights": [weight.detach() for weight in model.parameters()]}

    return ask


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
    module="shape",
    cases=(
        Case("the loss and the weights after a step", _weights_after(1)),
        Case("after three steps", _weights_after(3)),
        Case("what runs within the marks", _marks),
    ),
    mistakes={
        ("        bottom.backward(bottom_leaf.grad)\n", "        pass\n"): (
            "The bottom MLP gets no gradient: hand it on what arrived at its leaf, `bottom.backward(bottom_leaf.grad)`."
        ),
        ("embedded.backward(embedded_leaf.grad)", "embedded_leaf.grad"): (
            "The tables get no gradient: `embedded.backward(embedded_leaf.grad)`."
        ),
        _uncut: "Cut the graph where parts meet, so that each part's backward pass is a call that can be marked.",
    },
    hint="Forward: each part in its mark, and between them `leaf = out.detach().requires_grad_()`. Backward, from the "
    "loss: `out.backward(leaf.grad)`, part by part, each in its mark.",
    explanation="The same gradients as one call of `backward`, and now each part's own time shows.",
)

# %% step-of-text [markdown]
"""
A step of any shape, on made-up batches: only time is asked. The model is the kit's fast one, with plain SGD.
"""

# %% step-of
from itertools import cycle


def step_of(shape):
    batch, tables, rows = shape["batch_size"], shape["num_tables"], shape["num_rows"]
    model = labkit.jobs.dlrm.build_model(config_of(shape), "fast")
    optimizers = labkit.jobs.build_optimizers(model, "sgd", 0.01, "fast")
    bags = [torch.randint(rows, (batch, tables, shape["pooling_factor"]), dtype=torch.int32) for _ in range(4)]
    batches = cycle([(torch.randn(batch, shape["dense_dim"]), bag, torch.randint(2, (batch,)).float()) for bag in bags])
    return lambda: step_in_parts(model, optimizers, next(batches))


# %% measure-text [markdown]
"""
Its time is the median of steps that are not observed, and the profiler says how that is shared out.
"""

# %% enough
import time
from statistics import median

enough_s = {"smoke": 0.02, "standard": 0.4, "full": 2}[profile]

# %% step-ms-text [markdown]
"""
The first step sets up what later ones find, and does not count:
"""


# %% step-ms
def step_ms(step):
    times_s = []
    while len(times_s) < 4 or sum(times_s) < enough_s:
        began = time.perf_counter()
        step()
        times_s.append(time.perf_counter() - began)
    return 1e3 * median(times_s[1:])


# %% marks-text [markdown]
"""
The profiler starts and stops around three steps; `silenced` keeps it from announcing that.
"""

# %% marks
from torch.profiler import ProfilerActivity, profile as profiler


def marks_of(step):
    with labkit.process.silenced(), profiler(activities=[ProfilerActivity.CPU]) as seen:
        for _ in range(3):
            step()
    return {each.key: each.cpu_time_total for each in seen.key_averages()}


# %% measured-text [markdown]
"""
Both together are the milliseconds of each part:
"""

# %% measured
PARTS = ("mlps", "embeddings", "interaction", "optimiser")


def measured(shape):
    step = step_of(shape)
    ms, marks = step_ms(step), marks_of(step)
    return {part: ms * marks[part] / sum(marks[part] for part in PARTS) for part in PARTS}


# %% measure-base-text [markdown]
"""
Does the profiler name the part that you predicted?
"""

# %% measure-base
taken = measured(BASE)
print({part: f"{ms:.3g} ms" for part, ms in taken.items()}, f"measured; the limiter: {max(taken, key=taken.get)}")

# %% along-text [markdown]
"""
## One dimension at a time

`along` varies one dimension and leaves the others as they are. Its frame has a row for each value and part, measured and predicted; a prediction is nearly a bound: it knows neither calls nor index work, so most points lie above it, but it counts a gradient too many for the first layer of the bottom MLP.
"""

# %% along
import pandas as pd


def along(name, values, **others):
    rows = []
    for value in values:
        shape = BASE | others | {name: value}
        for provenance, times in (("measured", measured(shape)), ("predicted", predicted(shape))):
            rows += [(value, part, provenance, ms, shape["batch_size"]) for part, ms in times.items()]
    return pd.DataFrame(rows, columns=[name, "part", "provenance", "time_ms", "samples"])


# %% rate-text [markdown]
"""
Samples a second come from what was measured of all parts:
"""


# %% rate
def samples_per_s(table, name):
    by_value = table.query("provenance == 'measured'").groupby(name)
    return 1e3 * by_value["samples"].first() / by_value["time_ms"].sum()


# %% features-text [markdown]
"""
### Sparse features

Each feature adds rows to read and pairs to multiply. **By what factor do samples a second fall from 4 sparse features to 64?**
"""

# %% guess-features
guess("11.features", 4.0, "times")

# %% features-run-text [markdown]
"""
One step after the other, without turns: a factor of several is not what drift makes.
"""

# %% features-run
features = along("num_tables", (4, 64) if profile == "smoke" else (4, 8, 16, 32, 64))
speed = samples_per_s(features, "num_tables")
falls = speed[4] / speed[64]
reveal("11.features", falls)

# %% features-figure-text [markdown]
"""
Which part grows with the square of the features?
"""

# %% features-figure
labkit.plots.show(labkit.plots.figure_sweep(features, x="num_tables", y="time_ms", color="part"))

# %% dense-text [markdown]
"""
### Dense features and the width of MLPs
"""

# %% dense-run
dense = along("dense_dim", (64, 1024) if profile == "smoke" else (64, 256, 1024, 4096))
width = along("mlp_width", (128, 512) if profile == "smoke" else (64, 128, 256, 512, 1024, 2048))
by_dense, by_width = samples_per_s(dense, "dense_dim"), samples_per_s(width, "mlp_width")

# %% dense-figure-text [markdown]
"""
The widths as a figure, the dense features as numbers:
"""

# %% dense
labkit.plots.show(labkit.plots.figure_sweep(width, x="mlp_width", y="time_ms", color="part"))
print("samples/s by dense features, measured:", {int(dim): round(each) for dim, each in by_dense.items()})

# %% batch-text [markdown]
"""
### The batch

A step of few samples is mostly asking for operations; which part of your model knows of that? None does, so at small batches all points lie above their bounds.
"""

# %% batch-run
batch = along("batch_size", (128, 1024) if profile == "smoke" else (128, 512, 2048, 8192))
by_batch = samples_per_s(batch, "batch_size")

# %% batch-figure-text [markdown]
"""
Points far above their lines show calls, and what the model leaves out:
"""

# %% batch
labkit.plots.show(labkit.plots.figure_sweep(batch, x="batch_size", y="time_ms", color="part"))
print("samples/s by batch, measured:", {int(size): round(each) for size, each in by_batch.items()})

# %% crossing-text [markdown]
"""
### Where the limiter changes

With longer bags, the embeddings overtake the MLPs. At which pooling factor, says your model?

### Write 11.crossing

`crossing(is_over, low, high)` returns the first whole number from `low` to `high` for which `is_over(number)` is true. What is over stays over, and at `high` it is. Ask at most a dozen times for a thousand numbers.
"""

# %% answer 11.crossing
from collections.abc import Callable


def crossing(is_over: Callable[[int], bool], low: int, high: int) -> int:
    """The first number that is over."""
    ### BEGIN SOLUTION
    while low < high:
        middle = (low + high) // 2
        if is_over(middle):
            high = middle
        else:
            low = middle + 1
    return low
    ### END SOLUTION


# %% check 11.crossing points=5
check("11.crossing", crossing)


# %% checks
def _crosses(at: int, low: int, high: int) -> Callable[[Any], Any]:
    def ask(code: Any) -> Any:
        asked: list[int] = []
        found = code(lambda number: asked.append(number) or number >= at, low, high)
        return {"found": found, "asked at most 12 times": len(asked) <= 12, "asked within": all(
            low <= number <= high for number in asked
        )}  # fmt: skip

    return ask


EXERCISES["11.crossing"] = WrittenExercise(
    crossing,
    module="shape",
    cases=(
        Case("from 37 on, of 1 to 1,000", _crosses(37, 1, 1000)),
        Case("from the first on", _crosses(1, 1, 1000)),
        Case("only at the last", _crosses(1000, 1, 1000)),
        Case("two to choose from", _crosses(8, 7, 8)),
    ),
    mistakes={
        ("(low + high) // 2", "low"): "One by one asks up to a thousand times: halve what is left.",
    },
    hint="While low < high: look at the middle; if it is over, the first one is there or before (high = middle), else "
    "after it (low = middle + 1).",
    explanation="Ten questions find one of a thousand, because what is over stays over.",
)

# %% foretold-text [markdown]
"""
What your model says:
"""


# %% foretold
def embeddings_lead(pooling_factor):
    times = predicted(BASE | {"pooling_factor": pooling_factor})
    return times["embeddings"] >= max(times.values())


foretold = crossing(embeddings_lead, 1, 1000)
print(f"from {foretold} rows a bag on the embeddings are the limiter, predicted")

# %% crossing-guess-text [markdown]
"""
**And in the measurement?** Above or below that?
"""

# %% guess-crossing
guess("11.crossing", 10.0, "rows a bag")

# %% pooling-text [markdown]
"""
Bags of twice as many rows each time; what counts is the first of them at which the embeddings lead, or one row more than the last where they never do:
"""

# %% pooling-run
poolings = (1, 8, 64) if profile == "smoke" else (1, 2, 4, 8, 16, 32, 64, 128)
pooling = along("pooling_factor", poolings)
times = pooling.query("provenance == 'measured'").pivot(index="pooling_factor", columns="part", values="time_ms")
over = times.index[times["embeddings"] >= times.max(axis=1)]
crossed = int(over[0]) if len(over) else max(poolings) + 1  # not among these
reveal("11.crossing", crossed)

# %% pooling-figure-text [markdown]
"""
The lines cross where the limiter changes:
"""

# %% pooling
labkit.plots.show(labkit.plots.figure_sweep(pooling, x="pooling_factor", y="time_ms", color="part"))

# %% rows-text [markdown]
"""
### The rows of a table

More rows are no more work: a step names as many as before. But tables leave one cache after the other. Beyond memory comes the disk.
"""

# %% rows-run
sizes = {"smoke": (1000, 30_000), "standard": (1000, 4000, 16_000, 64_000, 256_000, 1_000_000)}
hashes = along("num_rows", sizes.get(profile, (*sizes["standard"], 4_000_000)), num_tables=2, pooling_factor=64)
by_rows = samples_per_s(hashes, "num_rows")
slower = {int(rows): f"{by_rows.iloc[0] / each:.2f}" for rows, each in by_rows.items()}

# %% rows-figure-text [markdown]
"""
The embeddings' prediction has its steps where the curve of rows above has them:
"""

# %% rows
labkit.plots.show(labkit.plots.figure_sweep(hashes, x="num_rows", y="time_ms", color="part"))
print("times as slow as with 1,000 rows a table, by rows, measured:", slower)

# %% held-out-text [markdown]
"""
## Shapes that were not chosen

A model is only as good as its predictions of what it was not made with. Here shapes are drawn at random, each dimension for itself. **Of what share does your model name the limiter?**
"""

# %% guess-right
guess("11.right", 0.7)

# %% drawn-text [markdown]
"""
The ranges are wide, and drawn on a logarithmic scale:
"""

# %% drawn
import random

RANGES = {"dense_dim": (64, 1024), "num_tables": (4, 32), "num_rows": (1000, 30_000), "pooling_factor": (1, 128)}
RANGES |= {"embedding_dim": (8, 64), "mlp_width": (32, 512), "mlp_depth": (1, 4), "batch_size": (128, 1024)}
draw = random.Random(seed)


def drawn():
    return {name: round(low * (high / low) ** draw.random()) for name, (low, high) in RANGES.items()}


shapes = [drawn() for _ in range({"smoke": 3, "standard": 24, "full": 96}[profile])]

# %% held-out-run-text [markdown]
"""
Each is measured once:
"""

# %% held-out-run
table = []
for shape in shapes:
    foreseen, seen = predicted(shape), measured(shape)
    by_model, by_profile = (max(times, key=times.get) for times in (foreseen, seen))
    least, took = foreseen.get(by_profile, 0), seen[by_profile]
    table.append(shape | {"predicted": by_model, "measured": by_profile, "at least (ms)": least, "took (ms)": took})
table = pd.DataFrame(table)
is_right = table["predicted"] == table["measured"]
reveal("11.right", is_right.mean())

# %% held-out-figure-text [markdown]
"""
A model has to beat naming the same part each time. Those where it was wrong:
"""

# %% held-out
shares = table["measured"].value_counts(normalize=True)
print(f"right: {is_right.mean():.0%}; naming {shares.index[0]} each time: {shares.iloc[0]:.0%}")
labkit.plots.show(table[~is_right].drop(columns=["dense_dim", "mlp_depth"]))

# %% why-wrong-text [markdown]
"""
### Explain 11.why_wrong

In two or three sentences: of what share was the limiter right, and for one shape where it was not, or whose time was furthest from its bound: what does the model leave out? What would it cost to count that, too?
"""

# %% explain 11.why_wrong points=2
### BEGIN SOLUTION
answer = model_answer("11.why_wrong")
### END SOLUTION
explain("11.why_wrong", answer)

# %% checks
EXERCISES["11.why_wrong"] = Explanation(
    rubric=(
        "numbers: the share of shapes whose limiter was predicted, compared with that of one name for all, and one shape "
        "where it was not, with both times",
        "why: what the model leaves out there (copies, index work, Python, a cache)",
        "trade-off: what it would take to count that, too, and whether the limiter needs it",
    ),
    model="The limiter was right for 21 of 24 shapes, where naming the MLPs each time is right for 17. Wrong was "
    "one of 16 tables and rows of 32 numbers: 14 ms predicted for the embeddings and 33 measured, because the "
    "update follows indices and sorts nothing in advance, so each row waits for memory; the MLPs were "
    "predicted at 29 ms and took 33. A curve of its own for updates would fix that, at the cost of one more "
    "thing to measure; to name the limiter of most shapes three curves are enough, to predict a time they are "
    "not.",
)

# %% sweep-text [markdown]
"""
## A study as a sweep

Loops in a notebook are lost when it ends. A *sweep* is a file that says which settings are to be tried; `labkit sweep` runs each as a process of its own, writes a run folder for each, and goes on where it was interrupted. `dlrm_shape.py` is the kit's script for steps like yours.
"""

# %% sweep-file
import sys
from pathlib import Path

SWEEP = """
script: dlrm_shape.py
settings: {seconds: 0.3, mlp_width: 128, mlp_depth: 2}
grid:
  num_rows: [1000, 100000]  # add some
"""
python, study = sys.executable, Path(runs_dir) / "rows.yaml"
study.parent.mkdir(parents=True, exist_ok=True)
study.write_text(SWEEP.replace(", 100000", "") if profile == "smoke" else SWEEP)

# %% sweep-run-text [markdown]
"""
Interrupt it, run it again, and it goes on where it stopped. In a terminal this is `labkit sweep rows.yaml`.
"""

# %% sweep-run
# !{python} -m labkit sweep {study} --runs-dir {runs_dir}

# %% sweep-frame-text [markdown]
"""
What came of it is a frame, a row a cell: also the memory that a run took at most, and its energy, which is missing where nothing here measures it.
"""

# %% sweep-frame
cells = labkit.launch.read_sweep(study, runs_dir)
shares = ["share_mlps", "share_embeddings", "share_interaction"]
labkit.plots.show(cells[["num_rows", "state", "samples_per_s", *shares, "peak_memory_bytes", "energy_j"]])

# %% judge-text [markdown]
"""
## Judge

Acun et al. (abstract): GPU performance and efficiency are "largely affected by" dense and sparse features and MLP dimensions. Yours is a CPU.
"""

# %% claim A3 points=1 id="claim-a3"
slower_by = [falls, by_dense.iloc[0] / by_dense.iloc[-1], by_width.iloc[0] / by_width.iloc[-1]]
### BEGIN SOLUTION
verdict = "holds here" if min(slower_by) > 1.1 else "does not hold here"
answer = verdict, "the CPU's half alone: it holds where each of the three changes throughput by more than a tenth"
### END SOLUTION
found = f"samples/s fall {slower_by[0]:.3g} times from 4 to 64 sparse features, {slower_by[1]:.3g} times from "
found += f"{dense['dense_dim'].min()} to {dense['dense_dim'].max():,} dense ones, {slower_by[2]:.3g} times from MLPs "
claim("A3", found + f"{width['mlp_width'].min()} wide to {width['mlp_width'].max():,}", answer)

# %% a8-text [markdown]
"""
From memory, unchecked: GPUs win on models with many dense features, and throughput falls as sparse features grow from 4 to 128. Judge the second half, which a CPU can test.
"""

# %% claim A8 points=1 id="claim-a8"
### BEGIN SOLUTION
verdict = "holds here" if falls > 1.2 else "does not hold here"
answer = verdict, "an analogue: the CPU's half alone, each feature adds rows to read and pairs to multiply"
### END SOLUTION
claim("A8", f"{falls:.3g} times fewer samples/s with 64 sparse features than with 4", answer)

# %% a10-text [markdown]
"""
From memory, unchecked: the hash size hardly matters until the tables stop fitting, then comes a step. They mean the memory of a GPU; here caches stand in for it. Call it a step where four times the rows cost more than a tenth, and let the claim hold where the first does not and a later one does. Each is measured once, so a factor near 1.1 says little.
"""

# %% claim A10 points=1 id="claim-a10"
steps = by_rows.iloc[:-1].to_numpy() / by_rows.iloc[1:].to_numpy()
### BEGIN SOLUTION
verdict = "holds here" if steps[0] < 1.1 < max(steps[1:], default=1) else "does not hold here"
answer = verdict, "an analogue: a CPU's caches stand in for the memory of a GPU; one table size is one step of training"
### END SOLUTION
found = ", ".join(f"{rows:,} rows {float(times_as):.3g}" for rows, times_as in slower.items())
claim("A10", f"times as slow as with 1,000 rows: {found}", answer)

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
    limiters_right=(float(is_right.mean()), 0.3, 1),
    features_factor=(falls, 1, 1e4),
    crossing=(crossed, 1, 1000),
    base_ms=(sum(taken.values()), 0.05, 1e4),
)

# %% recap [markdown]
"""
## Recap

- A step's parts are bounded by different things: products by arithmetic, rows by where their tables lie, small products and small batches by neither.
- Three curves of a machine and a page of arithmetic name the limiter of most shapes, more often than one name for all would, and estimate its time mostly from below.
- Cutting the graph at leaves gives each part's backward pass a name, with the same gradients.
- Hash sizes cost nothing until a cache, or memory, ends.
- A study is a file: its cells are runs, and it goes on where it stopped.

**Next:** [Where embeddings live](12_where_embeddings_live.ipynb)
"""

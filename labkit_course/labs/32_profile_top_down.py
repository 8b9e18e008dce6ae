# %% opening [markdown]
"""
# Profile top-down

After this notebook you will be able to

- **profile** a few steady steps of your own training, and read where they go;
- **bound** what a change can gain before you make it;
- **fix** five common bottlenecks, and compare each gain with your guess and its bound;
- **choose** the profiler that fits the question, and the one that comes next.

**Time:** 80 minutes with four functions and three explanations, in two halves that stand alone (your own step; a slow trainer). The machine computes for about two of them on 2 CPU cores. No GPU is needed.

**Prerequisites:** [Train a DLRM](10_train_dlrm.ipynb), [What utilisation means](30_what_utilisation_means.ipynb) and [The observer effect](31_the_observer_effect.ipynb).
"""

# %% checks
import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import labkit
from labkit.tracking import watched_by
from labkit_course.apparatus import look_up_one_by_one
from labkit_course.exercise import Case, Explanation, WrittenExercise

# Shapes: B batch, F tables, R rows of a table, D embedding dim.

MODULE = "step"
EXERCISES = {}

# %% parameters-prose [markdown]
"""
The next cell holds what you may change.
"""

# %% parameters tags=["parameters"]
profile = "standard"  # smoke, standard or full: how long each change is measured
runs_dir = "runs"  # profiles are kept in its subfolder profiles

# %% own-step [markdown]
"""
## Your own step

The model and the optimisers are yours, if you wrote them in [Train a DLRM](10_train_dlrm.ipynb); else labkit's stand in. The model has the shape of the click log and of the preset `tour`: one table per categorical feature, with 16 numbers per row. All of this notebook computes on one thread, so that other programs on your machine disturb it less.
"""

# %% own-model
import inspect
import time
from itertools import cycle, islice
from pathlib import Path
from timeit import repeat

import pandas as pd
import torch

import labkit
from labkit_course import apparatus, check, claim, explain, guess, mine, model_answer

# %% own-config
from labkit_course import paired_times, require_parts, reveal

torch.set_num_threads(1)
MyDlrm, make_optimizers = mine("10.model"), mine("10.rows")
log = labkit.data.clicks.load_clicks("synthetic-small" if profile == "smoke" else "synthetic")
shape = labkit.jobs.get_preset("dlrm", "tour").model
config = labkit.models.DlrmConfig(dense_dim=len(log.dense_names), num_rows=log.table_rows, **shape)
print(f"{config.num_tables} tables, {config.parameter_bytes / 1e6:.3g} MB")

# %% ex-32-step [markdown]
"""
### Exercise 32.step

A profiler knows operators. Your code has to say which *part* of a step they belong to. `with labkit.tracking.phase("forward"):` names a part, and costs nothing while no profiler runs.

Write `make_step(model, optimizers, batches)`, which returns a function `step()`. Each call of it takes one training step, in four phases with these names and in this order:

1. `"input"`: the next batch, `dense, categorical, label = next(batches)`;
2. `"forward"`: the loss, binary cross-entropy with logits;
3. `"backward"`;
4. `"optimiser"`: each optimiser steps and clears its gradients.

*Hint:* `make_step` itself takes no step, and no batch.
"""

# %% answer 32.step
from collections.abc import Callable, Iterator

import torch.nn.functional as F
from torch import nn

import labkit


def make_step(model: nn.Module, optimizers: list, batches: Iterator) -> Callable[[], None]:
    """A function without arguments that takes one training step in four named phases."""

    ### BEGIN SOLUTION
    def step():
        with labkit.tracking.phase("input"):
            dense, categorical, label = next(batches)
        with labkit.tracking.phase("forward"):
            loss = F.binary_cross_entropy_with_logits(model(dense, categorical), label)
        with labkit.tracking.phase("backward"):
            loss.backward()
        with labkit.tracking.phase("optimiser"):
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()

    return step
    ### END SOLUTION


# %% check 32.step points=4
check("32.step", make_step)


# %% checks
class _Small(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.dense, self.table = nn.Linear(3, 1), nn.Embedding(5, 1)

    def forward(self, dense: Tensor, categorical: Tensor) -> Tensor:
        return (self.dense(dense) + self.table(categorical[:, 0, 0])).squeeze(1)


def _stepped(code: Any) -> dict[str, Any]:
    """What is true after each phase of two steps, and the weights at the end."""
    generator = torch.Generator().manual_seed(2)
    data = [
        (torch.randn(4, 3, generator=generator), torch.randint(5, (4, 1, 1), generator=generator), torch.ones(4))
        for _ in range(3)
    ]
    taken, model, phases = [], _Small(), []

    def batches() -> Iterator[Any]:
        for batch in data:
            taken.append(batch)
            yield batch

    @contextlib.contextmanager
    def watch(name: str) -> Iterator[None]:
        before = model.dense.weight.detach().clone()
        yield
        gradient = model.dense.weight.grad
        phases.append(
            f"after {name}: {len(taken)} batches, {'a' if gradient is not None and gradient.any() else 'no'} gradient, "
            f"weights {'stay' if torch.equal(before, model.dense.weight) else 'change'}"
        )

    weights = [model.dense, model.table]
    step = code(model, [torch.optim.SGD(each.parameters(), lr=0.1) for each in weights], batches())
    with watched_by(watch):
        step()
        step()
    return {"phases": phases, "weights": model.dense.weight, "table": model.table.weight}


def _step_by_class(model: nn.Module, optimizers: list, batches: Iterator) -> Callable[[], None]:
    criterion, phase = nn.BCEWithLogitsLoss(), labkit.tracking.phase

    class Step:
        def __call__(self):
            with phase("input"):
                dense, categorical, label = next(batches)
            with phase("forward"):
                logit = model(dense, categorical)
                loss = criterion(logit, label)
            with phase("backward"):
                loss.backward()
            with phase("optimiser"):
                [each.step() for each in optimizers]
                [each.zero_grad() for each in optimizers]

    return Step()


EXERCISES["32.step"] = WrittenExercise(
    make_step,
    Case("two steps of a small model", _stepped),
    variants=(_step_by_class,),
    mistakes={
        ('labkit.tracking.phase("input")', 'labkit.tracking.phase("data")'): (
            "The four phases have fixed names and a fixed order: compare yours with the text."
        ),
        ('with labkit.tracking.phase("backward"):\n        ', ""): (
            "loss.backward() belongs to a phase of its own, not to forward."
        ),
        ("\n                optimizer.zero_grad()", ""): (
            "Clear the gradients after the optimiser's step, or they add up."
        ),
    },
    hint="What does each of your four phases do, and what is done outside of them? And who calls `step`?",
    explanation="The profiler now distinguishes the four parts of your step.",
)

# %% own-time-prose [markdown]
"""
With a single row there is next to nothing to compute. **How many per cent of the time of a step of 512 rows does a step of one row take?**
"""

# %% guess-one-row
guess("32.one_row", 20.0, "%")

# %% own-one-measure [markdown]
"""
`paired_times` takes both steps in turns, each of a fresh model. It drops rounds that other programs disturbed.
"""


# %% own-one
def own_step(batch_size: int):
    torch.manual_seed(0)
    model = MyDlrm(config)
    batches = list(islice(labkit.data.clicks.ClickBatches(log.split("train"), batch_size, seed=0), 20))
    return make_step(model, make_optimizers(model, lr=2e-3), cycle(batches))


rounds, steps = {"smoke": (1, 3), "standard": (5, 10), "full": (11, 30)}[profile]
both = 1000 * paired_times({"one row": own_step(1), "512 rows": own_step(512)}, rounds).median()
print(f"{both['one row']:.3g} ms with one row, {both['512 rows']:.3g} ms with 512, measured ({rounds} rounds)")
reveal("32.one_row", 100 * both["one row"] / both["512 rows"])

# %% profile-prose [markdown]
"""
What a step of one row takes is **overhead**: Python, the dispatch of operators, and calls. [Predict a step](60_performance_model.ipynb) sorts it into five kinds.

## Where does a step go?

A profiler looks at **a few steady steps**. The first ones, in which memory is touched and kernels are chosen, pass unprofiled. As well as the trace it takes the *machine's card*, which says what this machine can do at all. Time in which the process had no core, because other programs took it, is shown separately as *idle*, and is not counted here.

**What share of your step does the largest phase take: input, forward, backward or optimiser?**
"""

# %% guess-phase
guess("32.largest_phase", 50.0, "%")

# %% profile-own-prose [markdown]
"""
The cell below profiles your step. In the figure every microsecond of the step belongs to one phase.
"""

# %% profile-own
card, folder = labkit.hardware.calibrate(repeats=3), Path(runs_dir) / "profiles"
own = labkit.profiling.profile_steps(own_step(512), folder, name="own", limits=card, skip=8, steps=steps)
phases = own.phases[own.phases["phase"] != "idle"].set_index("phase")["time_us"]
print(own.headline)
print(f"largest: {phases.idxmax()}")
reveal("32.largest_phase", 100 * phases.max() / phases.sum())
labkit.plots.show(labkit.report.phase_bars(own))

# %% operators-prose [markdown]
"""
Phases say *where*, operators say *what*. Each row below is an operator's own time, without what it calls, and what it achieved compared with the machine's limits. Many calls with a small share of the limit are the mark of overhead.
"""

# %% operators
labkit.plots.show(labkit.report.operator_texts(own.operators.head(8)))

# %% ex-why-phase [markdown]
"""
### Exercise 32.why_phase

Explain in two sentences why the largest phase of *your* step is the largest, and what one could change.
"""

# %% explain 32.why_phase points=2
### BEGIN SOLUTION
answer = model_answer("32.why_phase")
### END SOLUTION
explain("32.why_phase", answer)

# %% checks
EXERCISES["32.why_phase"] = Explanation(
    "numbers: the largest phase, and its share of the step",
    "why: how often, or over how many bytes, that phase works, so that it is the largest",
    "trade-off: what one could change, and what that would cost elsewhere",
    model="The optimiser takes 49 % of my step. It makes many short calls: each of the 26 tables has a sparse gradient "
    "that is sorted, summed and applied by itself, so Python and dispatch cost as much as the arithmetic, and a step of a single "
    "row, which computes next to nothing, still takes a third of the time of 512 rows. One table of all rows would need "
    "one call instead of 26, at the price of code that is less plain than a module per feature.",
    half="The optimiser is the largest with 49 %, because it updates each of the 26 tables by itself, and each update is "
    "several calls.",
)

# %% kernels-prose [markdown]
"""
## How far do kernels alone come?

Lin et al. (arXiv 2201.07821) predict the time of a DLRM's step on a GPU. They find that the time of kernels alone underpredicts a step by up to 78.5 %. The kernels of a CPU are the operators that compute: products, lookups, operations on each element, and those that gather or scatter rows by an index. The cell below adds up their own times, each at its quickest, and compares the sum with the processor time of a step without a profiler, at its quickest.

Set the threshold first. The kernels **underpredict** your step (`"holds here"`) if their sum is more than 20 % short of it, and they do **not** if it is less than 10 % short. A profiler changes the times of short operators by some per cent, so what lies between the two cannot be tested here.
"""

# %% kernels-alone
BY_INDEX = {"aten::index", "aten::index_select", "aten::index_add_", "aten::_index_put_impl_", "aten::_coalesce"}
computing = BY_INDEX.union(own.operators.dropna(subset="gb_per_s")["operator"])
kernels = own.time.events[own.time.events["name"].isin(computing)]
own_us = kernels.groupby(["name", "step"], observed=True)["self_us"].sum()  # of a name in a step
kernels_ms = own_us.groupby("name", observed=True).min().sum() / 1000
step_ms = 1000 * min(repeat(own_step(512), number=1, repeat=10 * steps, timer=time.process_time)[5:])
if profile != "smoke":
    require_parts(step_ms, [kernels_ms], "The operators of a step")
short = 1 - kernels_ms / step_ms
alone = f"operators that compute take {kernels_ms:.3g} ms, a step {step_ms:.3g} ms: {short:.0%} short"
print(f"{alone}, measured ({steps} steps profiled, {10 * steps - 5} not)")

# %% claim-B11-prose [markdown]
"""
Write your verdict (`"holds here"`, `"does not hold here"` or `"cannot be tested here"`), and one reason in a sentence.
"""

# %% claim B11 points=1
### BEGIN SOLUTION
verdict = "holds here" if short > 0.2 else "does not hold here" if short < 0.1 else "cannot be tested here"
answer = verdict, "an analogue: Python, dispatch, views and allocation take time that no computing operator has"
### END SOLUTION
claim("B11", f"{alone} (quickest at batch 512)", answer)

# %% slow-prose [markdown]
"""
## A slow trainer

`SlowTrainer` trains a small recommendation model, and does five things as many scripts do them. This is its step, with phases like yours. What the five places do is in `labkit_course/apparatus/slow_trainer.py`.
"""

# %% slow-source
print(inspect.getsource(apparatus.SlowTrainer.step))

# %% slow-profile-prose [markdown]
"""
Where does its step go? The view has four figures. The icicle shows what calls what, and the timeline shows what ran when. The roofline shows what each operator achieved, and the memory figure shows what the allocator held at each moment. Choose with Tab and the arrow keys or the mouse. Drag to zoom in, double-click to zoom out.
"""

# %% slow-profile
large = 512 if profile == "smoke" else 2048  # samples in a large batch
slow = apparatus.SlowTrainer()
before = labkit.profiling.profile_steps(slow.step, folder, name="slow", limits=card, skip=8, steps=steps, memory=True)
print(before.headline)
labkit.widgets.profile_view(before)

# %% ex-32-amdahl [markdown]
"""
### Exercise 32.amdahl

How much can a change gain? Think of a step that takes 1. A part of it has the share $f$, and becomes $k$ times as fast, while all else stays as it is (Amdahl, 1967).

Write `amdahl(shares, times)`. `shares` has the share of each part by name, and `times` is $k$, by default infinite. Return a dict: for each name, how many times as fast training becomes if *that* part alone becomes `times` times as fast; and under the name `"all"`, if all of the parts do. The parts do not overlap. Where nothing is left of the step, the gain is `float("inf")`.

*Hint:* how long is the new step? In Python, `0.6 / float("inf")` is 0.
"""


# %% answer 32.amdahl
def amdahl(shares: dict[str, float], times: float = float("inf")) -> dict[str, float]:
    """How many times as fast training can become at most: by each part alone, and by "all" of them."""
    ### BEGIN SOLUTION
    gains = {}
    for name, share in {**shares, "all": sum(shares.values())}.items():
        left = 1 - share + share / times
        gains[name] = 1 / left if left > 0 else float("inf")
    return gains
    ### END SOLUTION


# %% check 32.amdahl points=3
check("32.amdahl", amdahl)


# %% checks
def _amdahl_by_comprehension(shares: dict[str, float], times: float = float("inf")) -> dict[str, float]:
    saved = {name: share * (1 - 1 / times) for name, share in shares.items()}
    saved["all"] = sum(saved.values())
    return {name: float("inf") if each >= 1 else 1 / (1 - each) for name, each in saved.items()}


EXERCISES["32.amdahl"] = WrittenExercise(
    amdahl,
    Case("an input of 60 % and a sync of 5 %", lambda code: code({"input": 0.6, "sync": 0.05})),
    Case("two parts that become four times as fast", lambda code: code({"forward": 0.6, "input": 0.25}, 4.0)),
    Case("a share of 1", lambda code: code({"input": 1.0})),
    Case("a part that becomes slower", lambda code: code({"products": 0.5}, 0.5)),
    variants=(_amdahl_by_comprehension,),
    mistakes={
        ("left = 1 - share + share / times", "left = share + share / times"): (
            "The share is what becomes faster. What else is left of the step?"
        ),
        ('1 / left if left > 0 else float("inf")', "left"): (
            "That is how long the new step is. How many times as fast is that?"
        ),
        lambda shares, times=float("inf"): (
            {name: gain for name, gain in amdahl(shares, times).items() if name != "all"}
            | {"all": math.prod(gain for name, gain in amdahl(shares, times).items() if name != "all")}
        ): ("Gains do not multiply: each is of the same whole step. How long is the step after all of the changes?"),
    },
    hint="Write down the length of the old step, 1, as a sum of parts. Which of them change, and to what?",
    explanation="However quick one part becomes, the others remain: no work on it can beat this bound.",
)

# %% findings-prose [markdown]
"""
Rules look for known bottlenecks in the trace. What one rule claims is not counted for another, and the largest share comes first. The cell below prints your bounds for them, **predicted**.
"""


# %% findings
def tell(found):
    bounds = amdahl({finding.name: finding.claimed_share for finding in found})
    for finding in found:
        share = f"{finding.claimed_share:.0%} of the step, at most {bounds[finding.name]:.3g} times as fast, predicted"
        print(f"{finding.name} ({share}): {finding.evidence}.")


tell(before.findings)

# %% mend-prose [markdown]
"""
A bound is not a promise. The five are fixed below, one after the other. You guess each gain first, and see what is left. On some machines the tool would choose another order; the end is the same.

`improve` keeps each change. It times the trainer with the change and the one without, in turns, and profiles it again. The bound that it shows is the tool's, which may take in what other findings claim: larger batches also spread the cost of lookups.
"""

# %% mend
fixes, profiles, gains = {}, {"slow": before}, []


def improve(name: str, bottleneck: str, **fix) -> float:
    old, new = apparatus.SlowTrainer(**fixes), apparatus.SlowTrainer(**fixes, **fix)
    bound = next((each.bound for each in list(profiles.values())[-1].findings if each.name == bottleneck), None)
    step_s = paired_times({"old": old.step, "new": new.step}, rounds)
    gain = (step_s["old"] / old.batch_size / step_s["new"] * new.batch_size).median()
    gains.append({"change": name, "measured": gain, "at_most": bound})
    fixes.update(fix)
    profiles[name] = labkit.profiling.profile_steps(new.step, folder, name=name, limits=card, skip=4, steps=steps)
    return gain


# %% lookups-prose [markdown]
"""
## One lookup a table

The model has 64 embedding tables, and `look_up_one_by_one` calls `embedding` for each. Every call costs some microseconds before it does anything, and as much again in the backward pass.

**How many times as fast will training be with one call for all tables?**
"""

# %% guess-lookups
guess("32.lookups", 1.5, "times as fast")

# %% ex-32-lookup [markdown]
"""
### Exercise 32.lookup

Write `look_up(tables, categorical)`, which finds in **one call** of `F.embedding` what takes 64 calls now. `tables` is (F, R, D), and `categorical` (B, F) has an index into each of the F tables. Return the embeddings (B, F, D). The number of torch calls must not grow with F.

*Hint:* `tables.flatten(0, 1)` sees the tables as one table of F × R rows. Where in it does table 2 begin?
"""

# %% answer 32.lookup
import torch
import torch.nn.functional as F
from torch import Tensor


def look_up(tables: Tensor, categorical: Tensor) -> Tensor:
    """The embeddings (B, F, D) of indices (B, F) in tables (F, R, D)."""
    ### BEGIN SOLUTION
    starts = tables.shape[1] * torch.arange(len(tables))
    return F.embedding(categorical + starts, tables.flatten(0, 1))
    ### END SOLUTION


# %% check 32.lookup points=4
check("32.lookup", look_up)


# %% checks
class _Calls(TorchFunctionMode):
    """Counts what torch is asked for."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_function__(self, function: Any, types: Any, args: Any = (), named: Any = None) -> Any:
        self.count += 1
        return function(*args, **(named or {}))


def calls(code: Callable[..., Any], *arguments: Any) -> int:
    """How many calls of torch it takes."""
    with _Calls() as counted:
        code(*arguments)
    return counted.count


def _tables(count: int, rows: int = 7) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(count)
    return torch.randn(count, rows, 4, generator=generator), torch.randint(rows, (5, count), generator=generator)


def _gradient_of_lookup(code: Any) -> Tensor:
    tables, categorical = _tables(3)
    found = code(tables.requires_grad_(), categorical)
    (found * torch.arange(1.0, found.numel() + 1).view_as(found)).sum().backward()
    return tables.grad


def _look_up_by_view(tables: Tensor, categorical: Tensor) -> Tensor:
    count, rows, width = tables.shape
    offsets = torch.arange(0, count * rows, rows).unsqueeze(0)
    found = nn.functional.embedding((categorical + offsets).reshape(-1), tables.reshape(count * rows, width))
    return found.view(len(categorical), count, width)


EXERCISES["32.lookup"] = WrittenExercise(
    look_up,
    Case("three tables of 7 rows", lambda code: code(*_tables(3))),
    Case("64 tables of 500 rows", lambda code: code(*_tables(64, 500))),
    Case("the gradient of the tables", _gradient_of_lookup),
    Case(
        "as many calls of torch for 64 tables as for 4",
        lambda code: calls(code, *_tables(64)) == calls(code, *_tables(4)),
    ),
    variants=(_look_up_by_view,),
    mistakes={
        look_up_one_by_one: "Right, but with a call a table: number the rows over all tables, and call once.",
        (" + starts", ""): "All columns look into the first table. Where does the table of each column begin?",
        ("tables.shape[1] * ", ""): "How many rows lie before table f? Not f.",
    },
    hint="Take index 3 of table 2 with tables of 7 rows. In which row of the flattened table is it?",
    explanation="One call does the work of 64.",
)

# %% lookup-measure [markdown]
"""
The cell below measures the trainer with your function. Its table compares both steps operator by operator, and the differences add up to that of the step.
"""

# %% lookup-reveal
reveal("32.lookups", improve("one lookup", "lookups", look_up=look_up))
difference = labkit.profiling.compare(profiles["slow"], profiles["one lookup"])
print(difference.headline())
labkit.plots.show(
    difference.operators.head(6).rename(columns=lambda name: name.replace("_us", " (µs)").replace("_", " "))
)

# %% batch-prose [markdown]
"""
## Tiny batches

With 32 samples per step, calls, Python between them and the optimiser cost as much as with thousands. Larger batches spread them. The learning rate has to follow, though, and accuracy may suffer, as in [Batch size and accuracy](13_batch_size_and_accuracy.ipynb).

**How many times as many samples per second will large batches give (2,048 samples; 512 in the profile `smoke`)?**
"""

# %% guess-batch
guess("32.batch", 2.0, "times as fast")

# %% batch-measure [markdown]
"""
The change is a number, and the tool looks again.
"""

# %% batch-reveal
reveal("32.batch", improve("larger batches", "batch size", batch_size=large))
tell(profiles["larger batches"].findings)

# %% input-prose [markdown]
"""
## Random samples made in Python

`batch_in_python` draws each number of each sample by itself, as the random data of a well-known benchmark does. Its labels have nothing to do with the features, either. From such data nothing can be learned, and the time measured is that of Python's loop.

**How many times as fast will training be with batches made by a few calls?**
"""

# %% guess-input
guess("32.input", 2.0, "times as fast")

# %% ex-32-make-batch [markdown]
"""
### Exercise 32.make_batch

Write `make_batch(size, tables, generator)`, which draws a whole batch at once, every draw from the generator:

- `dense` (B, 13), float32, uniform from 0 to 1;
- `categorical` (B, F), int64, uniform from 0 to 499;
- `label` (B,), float32, which **follows from the features**: the log-odds of a click are 4 × (the first dense feature − the second) − 1, and the label is 1.0 with the probability that they give, else 0.0.

The number of torch calls must not grow with B.

*Hint:* `torch.rand` and `torch.randint` take a size and `generator=`.
"""

# %% answer 32.make_batch
import torch
from torch import Tensor


def make_batch(size: int, tables: int, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Random dense (B, 13), categorical (B, F) and label (B,), from which one can learn."""
    ### BEGIN SOLUTION
    dense = torch.rand(size, 13, generator=generator)
    categorical = torch.randint(500, (size, tables), generator=generator)
    odds = 4 * (dense[:, 0] - dense[:, 1]) - 1
    label = (torch.rand(size, generator=generator) < odds.sigmoid()).float()
    return dense, categorical, label
    ### END SOLUTION


# %% check 32.make_batch points=5
check("32.make_batch", make_batch)


# %% checks
def _sample_by_sample(size: int, tables: int, generator: torch.Generator | None = None) -> tuple:
    samples = zip(*(make_batch(1, tables, generator) for _ in range(size)), strict=True)
    return tuple(map(torch.cat, samples))


def _batch_by_bernoulli(size: int, tables: int, generator: torch.Generator | None = None) -> tuple:
    ids = torch.randint(0, 500, (size, tables), generator=generator, dtype=torch.int64)
    features = torch.empty(size, 13).uniform_(generator=generator)
    first, second = features[:, 0], features[:, 1]
    probability = 1 / (1 + torch.exp(1 - 4 * (first - second)))
    return features, ids, torch.bernoulli(probability, generator=generator)


def _seeded() -> torch.Generator:
    return torch.Generator().manual_seed(5)


def _outside(code: Any) -> dict[str, Any]:
    dense, categorical, label = code(512, 8, _seeded())
    return {
        "shapes": [list(each.shape) for each in (dense, categorical, label)],
        "types": [str(each.dtype) for each in (dense, categorical, label)],
        "lowest and highest index": [int(categorical.min()) >= 0, int(categorical.max()) < 500],
        "labels": sorted(set(label.tolist())),
    }


def _likely(code: Any) -> dict[str, Any]:
    dense, categorical, label = code(50_000, 2, _seeded())
    taste = dense[:, 0] - dense[:, 1]
    return {
        "mean of the dense features": dense.mean(0),
        "share of clicks": label.mean(),
        "share of clicks where odds are high": label[taste > 0.5].mean(),
        "mean index": categorical.float().mean(0),
    }


EXERCISES["32.make_batch"] = WrittenExercise(
    make_batch,
    Case("512 samples of 8 tables", _outside),
    Case(
        "a generator of the same seed, twice",
        lambda code: [bool((a == b).all()) for a, b in zip(code(9, 3, _seeded()), code(9, 3, _seeded()), strict=True)],
    ),
    Case(
        "as many calls of torch for 64 samples as for 8",
        lambda code: calls(code, 64, 3, _seeded()) == calls(code, 8, 3, _seeded()),
    ),
    Case("50,000 samples of 2 tables", _likely, relative=0.03),
    variants=(_batch_by_bernoulli,),
    mistakes={
        ("return dense, categorical, label", "return dense, categorical, label[torch.randperm(size)]"): (
            "The labels have nothing to do with the features: draw each with the probability that its odds give."
        ),
        _sample_by_sample: "Right, but a sample at a time: draw the whole batch at once.",
        (".float()", ""): "The loss wants labels as float32, 0.0 or 1.0: .float().",
    },
    hint="Which of the three is off? Check its shape, its type and its mean, and whether the label follows the features.",
    explanation="Four draws a batch, whatever its size; and there is something to learn.",
)

# %% input-auc-prose [markdown]
"""
Is there something to learn? The cell prints the AUC of the difference of the two features, by your own function if you wrote it, and then measures.
"""

# %% input-auc
auc = mine("10.auc")
for name, (dense, _, label) in {"in Python": apparatus.batch_in_python(5000, 1), "yours": make_batch(5000, 1)}.items():
    print(f"{name:10} AUC {auc(label.numpy(), (dense[:, 0] - dense[:, 1]).numpy()):.3f}, measured")
reveal("32.input", improve("batches at once", "input", make_batch=make_batch))

# %% sync-prose [markdown]
"""
## Reading numbers one by one

To count how many samples it called right, the trainer reads each logit and each label with `.item()`. On a GPU every such read waits until all kernels before it have ended. On a CPU it costs a microsecond or so. The fix compares whole tensors and leaves the sum a tensor, so that only the code that prints it waits: `((logit > 0) == (label > 0.5)).sum()`.

**How many times as fast will training be without the reads?**
"""

# %% guess-sync
guess("32.sync", 1.2, "times as fast")


# %% sync-reveal
def hits(logit, label):  # how many logits are on their label's side, a tensor
    return ((logit > 0) == (label > 0.5)).sum()


reveal("32.sync", improve("hits at once", "sync", count_hits=hits))

# %% precision-prose [markdown]
"""
## fp32 where bf16 pays

What is left is arithmetic, which is what a step should be made of. bf16 has half the bits of fp32. Where the processor has instructions for it, products run faster; where it has none, they run slower. The card says which of the two holds on this machine, and your `amdahl` says what follows from it. The cell after the guess prints this bound, and then measures. `autocast` computes products in bf16, and keeps weights and sums in fp32.

**How many times as fast will training be in bf16 on this machine?** Below 1 means slower.
"""

# %% guess-precision
guess("32.precision", 1.5, "times as fast")

# %% precision-card
times = card.bf16_gflops / card.fp32_gflops
operators = profiles["hits at once"].operators
products = operators.loc[operators["operator"].isin(["aten::addmm", "aten::mm"]), "share"].sum()
bound = amdahl({"products": products}, times)["products"]
print(f"products run {times:.2f} times as fast in bf16 here and take {products:.0%} of the step, measured")
print(f"so training can become {bound:.2f} times as fast, predicted")
reveal("32.precision", improve("bf16", "precision", precision="bf16"))

# %% gains-prose [markdown]
"""
## What it came to

Each bar is the gain of a change as it was measured, and the mark is the bound that was predicted before it, where the tool had named it. A gain above its bound means noise, or that the change also cured what other findings claim.
"""

# %% gains
gains = pd.DataFrame(gains)
labkit.plots.show(apparatus.figure_gains(gains))

# %% ex-why-bound [markdown]
"""
### Exercise 32.why_bound

Take one change whose gain is far from its bound, and explain in two sentences why.
"""

# %% explain 32.why_bound points=2
### BEGIN SOLUTION
answer = model_answer("32.why_bound")
### END SOLUTION
explain("32.why_bound", answer)

# %% checks
EXERCISES["32.why_bound"] = Explanation(
    "numbers: a change's measured gain compared with its bound",
    "why: what keeps the gain below the bound, or what else than noise lifts it above that of its share",
    "trade-off: what the bound is good for although no change reaches it",
    model="In bf16 training became 1.73 times as fast, and its bound was 1.91: products take 83 % of the step and run 2.4 times "
    "as fast in bf16 here. The bound takes all else as it was, but autocast converts the inputs of each product to bf16, "
    "and its result back, which takes time of its own. The bound cost nothing to state, and it says which work cannot pay: "
    "a part of 5 % can gain 1.05 times at most.",
    half="bf16 gained 1.73 times and the bound was 1.91, because converting to bf16 and back takes time, too.",
)

# %% left-prose [markdown]
"""
What would the tool try next? Where nothing is worth more than 5 % of the step, it names nothing. Then look at the arithmetic itself, or buy a quicker machine.

The paper on profiling (Yousefzadeh-Asl-Miandoab, Robroek, Tözün, EuroMLSys 2023) proposes an order: "a framework-based or system-wide GPU profiler can first detect" what is worth a look, then a lower-level one examines it closely. Five bottlenecks were planted here (four where bf16 does not pay). Set the threshold first: a first profiler is worth its place if it names **more than half** of what is there. As there are only five, the interval of that share decides: above one half it holds, below it does not, and with one half inside it cannot be tested here.
"""

# %% left
planted = {"lookups", "batch size", "input", "sync", *(["precision"] if times > 1.2 else [])}
named = planted & {finding.name for each in profiles.values() for finding in each.findings}
left = {finding.name for finding in profiles["bf16"].findings}
low, high = labkit.tta.success_interval(len(named), len(planted))
print(f"named on the way: {', '.join(sorted(named))}; missed: {', '.join(sorted(planted - named)) or 'none'}")
print(f"left: {', '.join(sorted(left)) or 'none'}")

# %% claim-E16-prose [markdown]
"""
Write your verdict, and one reason.
"""

# %% claim E16 points=1
### BEGIN SOLUTION
verdict = "holds here" if low > 0.5 else "does not hold here" if high < 0.5 else "cannot be tested here"
answer = verdict, "an analogue on a CPU: the bottlenecks are those that the tool's authors thought of, in one trainer"
### END SOLUTION
share = f"{len(named)} of {len(planted)} planted bottlenecks named by a framework's profiler"
claim("E16", f"{share} (95 % {low:.0%} to {high:.0%} of such)", answer)

# %% order-prose [markdown]
"""
## Framework, system, kernel

A framework's profiler knows phases and operators. A **system profiler** (Nsight Systems; py-spy for Python) sees the whole program: other threads, libraries, the driver. A **kernel profiler** (Nsight Compute; on a CPU, perf) counts what one kernel does to the hardware, and repeats the kernel many times to do so. Which of them are here, and what did the framework's profiler itself cost?
"""

# %% tools
for tool in labkit.hardware.find_profilers():
    print(f"{tool.name:8} {tool.version if tool.works else 'not here: ' + tool.note}")
looking = own.time.step_us / own.unprofiled_step_us
print(f"your step took {looking:.2f} times as long under torch.profiler, measured ({steps} steps)")

# %% ex-why-order [markdown]
"""
### Exercise 32.why_order

Write two sentences: what is left for the second profiler once the first has looked, and why does the kernel profiler not come first? Say what the first one cost and found here.
"""

# %% explain 32.why_order points=2
### BEGIN SOLUTION
answer = model_answer("32.why_order")
### END SOLUTION
explain("32.why_order", answer)

# %% checks
EXERCISES["32.why_order"] = Explanation(
    "numbers: what the framework's profiler cost here, and how many of the bottlenecks it named",
    "why: what the kernel profiler then shows, and what it costs, or cannot see, at the first look",
    "trade-off: when the system-wide profiler is the better first one",
    model="The framework's profiler made my step 1.3 times as long and named all 5 planted bottlenecks, so it says which "
    "call is worth a look. Only then does a kernel profiler look at that one: it repeats each kernel many times and knows "
    "nothing of the rest of the program, and none of the five was inside a kernel. Where time goes into other processes, "
    "the driver or the disk, a system-wide profiler is the better first look, for the framework's sees its own process only.",
    half="The framework's profiler found 5 of 5 here at 1.3 times the time. The kernel profiler comes later because it "
    "repeats each kernel many times, which is slow.",
)

# %% commands-prose [markdown]
"""
In a terminal, `labkit profile run your_script.py` does the same to any training script, unchanged, and `labkit profile dlrm` to labkit's own. `--tool py-spy` takes another profiler. For `nsys`, `ncu` and `perf` it prints the command to run.

How good were your guesses? The cell after the scores keeps the numbers of this notebook for a program to read, each with bounds that hold on any machine.
"""

# %% scores
from labkit_course import results, score_notebook

score_notebook()

# %% results tags=["results"]
measured = gains.set_index("change")["measured"]
results(
    one_row_share=(both["one row"] / both["512 rows"], 0.02, 1.2),
    largest_phase_share=(phases.max() / phases.sum(), 0.25, 0.95),
    lookups_gain=(measured["one lookup"], 0.5, 10),
    batch_gain=(measured["larger batches"], 0.5, 30),
    input_gain=(measured["batches at once"], 0.5, 50),
    precision_gain=(measured["bf16"], 0.05, 20),
    phases_of_step=(before.phases["share"].sum(), 0.98, 1.02),
)

# %% assistant one_row_share below=0.1 [markdown]
"""
A step of one row has 512 times less to compute than a step of 512 rows, so it takes less than a tenth of the time.
"""

# %% recap [markdown]
"""
## Recap

- Profile a few steady steps. Look at phases first, then at operators, then at what they achieve of the machine's limits.
- Bound a change before you make it: ask how long the step is without that part. What is not worth 5 % of a step can wait.
- Few large calls beat many small ones: lookups, batches, and all that Python does one sample at a time.
- Whether bf16 pays is a property of your machine: measure it.
- Take a framework's or a system-wide profiler first, and a kernel profiler on what it found.

**Next:** [Make it fast](33_make_it_fast.ipynb)
"""

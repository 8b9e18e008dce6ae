# %% opening [markdown]
"""
# Profile top-down

After this notebook you will be able to

- **profile** a few steady steps of your own training, and read where they go;
- **measure** what operators cost on top of their work: the gaps between them, and those that compute nothing;
- **bound** what a change can gain before you make it;
- **fix** five common bottlenecks with code of yours, and compare each with your guess and its bound;
- **choose** the profiler that fits the question, and the one that comes next.

**Time:** 80 minutes with six functions of a few lines, in two halves that stand alone (your own step; a slow trainer); the machine computes for about two minutes on 2 CPU cores. No GPU is needed.

**Prerequisites:** [Train a DLRM](10_train_dlrm.ipynb), [What utilisation means](30_what_utilisation_means.ipynb) and [The observer effect](31_the_observer_effect.ipynb).
"""

# %% checks
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from labkit.tracking import watched_by
from labkit_course.apparatus import hits_one_by_one, look_up_one_by_one
from labkit_course.exercise import Case, Explanation, WrittenExercise

# Shapes: B batch, F tables, R rows of a table, D embedding dim.

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

The model and the optimisers are yours, if you wrote them in [Train a DLRM](10_train_dlrm.ipynb); else labkit's stand in. All of this notebook computes on one thread, so that other programs on your machine disturb it less.
"""

# %% own-model
import torch

import labkit
from labkit_course import check, mine

torch.set_num_threads(1)
MyDlrm, make_optimizers = mine("10.model"), mine("10.rows")
log = labkit.data.clicks.load_clicks("synthetic-small" if profile == "smoke" else "synthetic")

# %% own-config-prose [markdown]
"""
The model has the shape of the click log and of the preset `tour`: one table for each categorical feature, of 16 numbers a row.
"""

# %% own-config
shape = labkit.jobs.get_preset("dlrm", "tour").model
config = labkit.models.DlrmConfig(dense_dim=len(log.dense_names), num_rows=log.table_rows, **shape)
print(f"{config.num_tables} tables, {config.parameter_bytes / 1e6:.3g} MB")

# %% ex-32-step [markdown]
"""
### Exercise 32.step

A profiler knows operators; which *part* of a step they belong to, your code has to say. `with labkit.tracking.phase("forward"):` names a part, and costs nothing while nobody looks.

Write `make_step(model, optimizers, batches)`, which returns a function `step()`. Each call of it takes one training step, in four phases of this order:

1. `"input"`: the next batch, `dense, categorical, label = next(batches)`, then `"forward"`: the loss, binary cross-entropy with logits;
2. `"backward"`, then `"optimiser"`: each optimiser steps and clears its gradients.

*Hint:* return `step`, not `step()`.
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


EXERCISES["32.step"] = WrittenExercise(
    make_step,
    module="step",
    cases=(Case("two steps of a small model", _stepped),),
    mistakes={
        ('labkit.tracking.phase("input")', 'labkit.tracking.phase("data")'): (
            'Name the four parts: labkit.tracking.phase("input"), and so on, in that order.'
        ),
        (
            'with labkit.tracking.phase("backward"):\n        ',
            "",
        ): "loss.backward() belongs to a phase of its own, not to forward.",
        ("\n                optimizer.zero_grad()", ""): (
            "Clear the gradients after the optimiser's step, or they add up."
        ),
    },
    hint='step takes next(batches) in phase "input", computes the loss in "forward", and so on; return it uncalled.',
    explanation="The profiler now distinguishes the four parts of your step.",
)

# %% own-time-prose [markdown]
"""
How fast is your step, at 512 rows and at a single one? `step_ms` is the median of steps of a fresh model, after a few that do not count.
"""

# %% own-time
import time
from itertools import cycle, islice
from statistics import median


def own_step(batch_size: int):
    torch.manual_seed(0)
    model = MyDlrm(config)
    batches = list(islice(labkit.data.clicks.ClickBatches(log.split("train"), batch_size, seed=0), 20))
    return make_step(model, make_optimizers(model, lr=2e-3), cycle(batches))


# %% own-one-prose [markdown]
"""
With a single row there is next to nothing to compute. **Which share of the time of a step of 512 rows does a step of one row take?** Guess in per cent.
"""

# %% guess-one-row
from labkit_course import guess, reveal

guess("32.one_row", 20.0, "%")

# %% own-one-measure [markdown]
"""
Steps of both in turns, so that what disturbs one disturbs the other:
"""


# %% own-one
def timed(step):
    began = time.perf_counter()
    step()
    return 1000 * (time.perf_counter() - began)


rounds, seconds, steps = {"smoke": (3, 0.05, 3), "standard": (5, 0.4, 10), "full": (11, 1.0, 30)}[profile]
one, many = own_step(1), own_step(512)
times_ms = [(timed(one), timed(many)) for _ in range(10 * rounds)][5:]
one_ms, many_ms = (median(each) for each in zip(*times_ms, strict=True))
print(f"{one_ms:.3g} ms with one row, {many_ms:.3g} ms with 512, measured (medians of {len(times_ms)})")
reveal("32.one_row", 100 * one_ms / many_ms)

# %% profile-prose [markdown]
"""
## Where does a step go?

Guessing where a program is slow is a bad habit, unless the guess is checked. A profiler looks at **a few steady steps**: the first ones, in which memory is touched and kernels are chosen, pass unprofiled. Beside the trace it takes the *machine's card*, which says what this machine can do at all.

Which phase of yours is the largest: input, forward, backward or optimiser? Say it to yourself or to your neighbour. **And what share of the step does the largest take?**
"""

# %% guess-phase
guess("32.largest_phase", 50.0, "%")

# %% profile-own-prose [markdown]
"""
The profile of your step. Time in which the process had no core, because other programs took it, stands apart as *idle*, and is not counted here.
"""

# %% profile-own
from pathlib import Path

card, folder = labkit.hardware.calibrate(repeats=3), Path(runs_dir) / "profiles"
own = labkit.profiling.profile_steps(own_step(512), folder, name="own", limits=card, skip=8, steps=steps)
phases = own.phases[own.phases["phase"] != "idle"].set_index("phase")["time_us"]
print(own.headline)
print(f"largest: {phases.idxmax()}")
reveal("32.largest_phase", 100 * phases.max() / phases.sum())

# %% phases-prose [markdown]
"""
Every microsecond of the step belongs to one phase:
"""

# %% phases
labkit.plots.show(labkit.report.phase_bars(own))

# %% operators-prose [markdown]
"""
Phases say *where*, operators say *what*: each row is an operator's own time, without what it calls, and what it achieved compared with the machine's limits. A small share of the limit over many calls is the mark of **overhead**.
"""

# %% operators
labkit.plots.show(labkit.report.operator_texts(own.operators.head(8)))

# %% ex-why-phase [markdown]
"""
### Exercise 32.why_phase

Explain in two sentences why the largest phase of *your* step is the largest: with its number, with what it does how often, and with what one could change at which cost.
"""

# %% imports-explain
from labkit_course import claim, explain, model_answer

# %% ex-why-phase-2 [markdown]
"""
Your two sentences:
"""

# %% explain 32.why_phase points=2
### BEGIN SOLUTION
answer = model_answer("32.why_phase")
### END SOLUTION
explain("32.why_phase", answer)

# %% checks
EXERCISES["32.why_phase"] = Explanation(
    rubric=(
        "numbers: the largest phase, and its share of the step",
        "why: how often, or over how many bytes, that phase works, so that it is the largest",
        "trade-off: what one could change, and what that would cost elsewhere",
    ),
    model="The optimiser or the backward pass is usually the largest part, a third of the step or more. It makes "
    "many short calls: 26 tables have a sparse gradient each, which is sorted, summed and applied by itself, so "
    "Python and dispatch cost as much as the arithmetic. One table of all rows would need one call, at the price "
    "of code that is less plain than a module a feature.",
)

# %% ex-32-overheads [markdown]
"""
### Exercise 32.overheads

Lin et al. (arXiv 2201.07821) predict the time of a DLRM's step from its kernels *and* from five overheads of each operator. Three of them (T2 to T4) concern launches on a device. Two are there on a CPU, too: **T1**, the gap between an operator that Python calls and the next, and **T5**, the time of operators that launch nothing: on a CPU, those that only look at memory in another way (`aten::view`, `aten::select`).

Write `overheads(events, cost_us, views)`. `events` is a frame of the operators of one step, in columns `name`, `start_us`, `duration_us`, `self_us` (its own time) and `parent` (below 0 for those that Python calls). Return `{"T1": ..., "T5": ...}` in µs:

1. T1 is the sum of the gaps between operators with a parent below 0, in order of time, each less `cost_us` (what the profiler itself took), and none below 0;
2. T5 is the sum of the own time of operators whose name is in `views`.

*Hint:* `.to_numpy()[1:] - ends[:-1]`, or pandas would align the two by their rows.
"""

# %% answer 32.overheads
import pandas as pd


def overheads(events: pd.DataFrame, cost_us: float, views: set[str]) -> dict[str, float]:
    """T1 and T5 of one step, in µs."""
    ### BEGIN SOLUTION
    top = events[events["parent"] < 0].sort_values("start_us")
    ends = (top["start_us"] + top["duration_us"]).to_numpy()
    gaps = top["start_us"].to_numpy()[1:] - ends[:-1] - cost_us
    return {"T1": gaps.clip(0).sum(), "T5": events.loc[events["name"].isin(views), "self_us"].sum()}
    ### END SOLUTION


# %% check 32.overheads points=4
check("32.overheads", overheads)

# %% checks
_ROWS = [
    ("aten::linear", 100.0, 50.0, 5.0, -1),
    ("aten::t", 105.0, 6.0, 4.0, 0),
    ("aten::addmm", 112.0, 30.0, 30.0, 0),
    ("aten::relu", 158.0, 12.0, 12.0, -1),
    ("aten::view", 171.0, 3.0, 3.0, -1),
    ("aten::sum", 182.0, 9.0, 9.0, -1),
]


_EVENTS = pd.DataFrame(_ROWS, columns=["name", "start_us", "duration_us", "self_us", "parent"])


_VIEWS = {"aten::t", "aten::view"}


EXERCISES["32.overheads"] = WrittenExercise(
    overheads,
    module="step",
    cases=(
        Case("six operators, four of them called from Python", lambda code: code(_EVENTS, 2.0, _VIEWS)),
        Case("the same, not in order", lambda code: code(_EVENTS.iloc[::-1], 0.5, _VIEWS)),
        Case("a single operator", lambda code: code(_EVENTS.iloc[:1], 2.0, _VIEWS)),
    ),
    mistakes={
        ('events[events["parent"] < 0]', "events"): (
            "T1 lies between operators that Python calls: those whose parent is −1."
        ),
        (" - cost_us", ""): "Take what looking costs, cost_us, off each gap.",
        (".clip(0)", ""): "No gap is shorter than nothing: clip each at 0 before you add them.",
    },
    hint="Operators with parent below 0, sorted by start_us: each start less the end of the one before it, less "
    "cost_us, not below 0. T5 is the sum of self_us of the operators whose name is among the views.",
    explanation="Two of the paper's five overheads; the other three need a device that is launched to.",
)

# %% overheads-use-prose [markdown]
"""
Of your own step: its operators outside of the input, each of which the profiler made a little longer. Where other programs take the core between two operators, that lies in the gap, too.
"""

# %% overheads-use
VIEWS = {"as_strided", "view", "reshape", "select", "slice", "transpose", "t", "expand", "unsqueeze", "squeeze",
         "permute", "detach", "alias", "split", "_unsafe_view", "_indices", "_values"}  # fmt: skip
events = own.time.events[own.time.events["phase"] != "input"]
cost_us = max(0.0, own.time.step_us - own.unprofiled_step_us) / (len(events) / own.time.steps)
each = [overheads(one, cost_us, {f"aten::{name}" for name in VIEWS}) for _, one in events.groupby("step")]
shares = {name: median(one[name] for one in each) / own.time.step_us for name in ("T1", "T5")}
print(f"{len(events) / own.time.steps:,.0f} operators a step, looking costs {cost_us:.2g} µs each")
overheads = f"T1 {shares['T1']:.1%}, T5 {shares['T5']:.1%} of a step at batch 512 ({own.time.steps} steps); no T2 to T4"
print(overheads)

# %% claim-B8-prose [markdown]
"""
### Your verdict: Lin et al.

`"holds here"`, `"does not hold here"` or `"cannot be tested here"`, and one reason, a sentence. First the five overheads, of which a CPU has two:
"""

# %% claim B8 points=1
### BEGIN SOLUTION
verdict = "holds here" if sum(shares.values()) > 0.05 else "does not hold here"
answer = verdict, "an analogue: T1 and T5 alone are worth a model where they take more than 5 % of a step"
### END SOLUTION
claim("B8", overheads, answer)

# %% claim-B2-prose [markdown]
"""
And that both matter, the time in which a device computes and that in which it waits for the next operator. On a CPU the second is what a step of a single row takes, too.
"""

# %% claim B2 points=1
### BEGIN SOLUTION
verdict = "holds here" if 0.1 < one_ms / many_ms < 0.9 else "does not hold here"
answer = verdict, "an analogue: calls take a share of a step that is neither next to nothing nor nearly all"
### END SOLUTION
claim("B2", f"{one_ms:.3g} of {many_ms:.3g} ms pass with one row, too (medians of {len(times_ms)} turns)", answer)

# %% kernels-prose [markdown]
"""
How far does one come without any overhead? Lin et al. find that the time of kernels alone underpredicts a step by up to 78.5 %. The kernels of a CPU are the operators that compute: products, lookups and operations on each element, whose bytes labkit can count, and those that gather or scatter rows by an index. Their own times, added up, and a step without a profiler, both at their quickest, for other programs only make them longer; of the step the time of the processor:
"""

# %% kernels-alone
from timeit import repeat

BY_INDEX = {"aten::index", "aten::index_select", "aten::index_add_", "aten::_index_put_impl_", "aten::_coalesce"}
computing = BY_INDEX.union(own.operators.dropna(subset="gb_per_s")["operator"])
kernels = own.time.events[own.time.events["name"].isin(computing)]
own_us = kernels.groupby(["name", "step"], observed=True)["self_us"].sum()  # of a name in a step
kernels_ms = own_us.groupby("name", observed=True).min().sum() / 1000
step_ms = 1000 * min(repeat(many, number=1, repeat=10 * rounds, timer=time.process_time))
alone = f"operators that compute take {kernels_ms:.3g} ms, a step {step_ms:.3g} ms: {kernels_ms / step_ms - 1:+.0%}"
print(f"{alone}, measured ({own.time.steps} steps profiled, {10 * rounds} not)")

# %% claim-B11-prose [markdown]
"""
Do they underpredict your step, by 5 % or more?
"""

# %% claim B11 points=1
### BEGIN SOLUTION
verdict = "holds here" if kernels_ms < 0.95 * step_ms else "does not hold here"
answer = verdict, "an analogue: Python, dispatch, views and allocation take time that no computing operator has"
### END SOLUTION
claim("B11", f"{alone} (quickest at batch 512, {own.time.steps} steps profiled, {10 * rounds} not)", answer)

# %% slow-prose [markdown]
"""
## A slow trainer

`SlowTrainer` trains a small recommendation model, and does five things as many scripts do them. This is its step, with phases like yours:
"""

# %% slow-source
import inspect

from labkit_course import apparatus

print(inspect.getsource(apparatus.SlowTrainer.step))

# %% slow-profile-prose [markdown]
"""
What the five places do is in `labkit_course/apparatus/slow_trainer.py`; you will replace each of them by code of yours. How fast is it, and where does its step go?
"""

# %% slow-profile
large = 512 if profile == "smoke" else 2048  # samples in a large batch
slow = apparatus.SlowTrainer()
print(f"{slow.samples_per_s(seconds):,.0f} samples/s, measured, batches of {slow.batch_size}")
before = labkit.profiling.profile_steps(slow.step, folder, name="slow", limits=card, skip=8, steps=steps, memory=True)
print(before.headline)

# %% slow-view-prose [markdown]
"""
The view below has it all: the icicle shows what calls what, the timeline what ran when, the roofline what each operator achieved, the memory what the allocator held when. Choose with Tab and the arrow keys or the mouse; drag to zoom in, double-click to zoom out.
"""

# %% slow-view
labkit.widgets.profile_view(before)

# %% ex-32-amdahl [markdown]
"""
### Exercise 32.amdahl

If a share *f* of a step vanished, training would become 1 / (1 − *f*) times as fast, and no more (Amdahl, 1967). If that part became *k* times as fast, *f* / *k* of it would be left.

Write `amdahl(shares, times)`: from shares by name to the most that training can gain by each of them, `times` being *k*, by default infinite.

1. What is left of a step of 1?
2. The gain is 1 over that; where nothing is left it is `float("inf")`.

*Hint:* in Python `0.6 / float("inf")` is 0.
"""


# %% answer 32.amdahl
def amdahl(shares: dict[str, float], times: float = float("inf")) -> dict[str, float]:
    """How many times as fast training can become at most, by name."""
    ### BEGIN SOLUTION
    left = {name: 1 - share + share / times for name, share in shares.items()}
    return {name: 1 / rest if rest else float("inf") for name, rest in left.items()}
    ### END SOLUTION


# %% check 32.amdahl points=3
check("32.amdahl", amdahl)

# %% checks
EXERCISES["32.amdahl"] = WrittenExercise(
    amdahl,
    module="step",
    cases=(
        Case("an input of 60 % and a sync of 5 %", lambda code: code({"input": 0.6, "sync": 0.05})),
        Case("60 % that become four times as fast", lambda code: code({"forward": 0.6}, 4.0)),
        Case("a share of 1", lambda code: code({"input": 1.0})),
    ),
    mistakes={
        ("1 - share + share / times", "1 / (1 + share)"): (
            "The rest does not grow shorter: 1 − f of the step is left."
        ),
        ('1 / rest if rest else float("inf")', "rest"): "That is what is left of a step; the gain is 1 / that.",
        ("1 - share + share / times", "share"): "f is what vanishes; divide 1 by what is *left*.",
    },
    hint="Of a step of 1, 1 − f stays as it was and f / times is left of the rest; the gain is 1 over their sum.",
    explanation="However quick one part becomes, the others remain: no work on it can beat this bound.",
)

# %% findings-prose [markdown]
"""
Rules look for known bottlenecks in the trace. What each rule claims is not counted for another, and the largest share comes first. Your bounds of them, **predicted**:
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
A bound is not a promise. You will fix the five one after the other, guess each gain first, and see what is left. The order below is not the tool's on every machine, which does not matter in the end.

`improve` remembers each change: it measures the trainer with the change and the one without, in turns, and profiles it again. The bound it keeps is the tool's, which may take in what other findings claim: larger batches, say, also spread the cost of lookups.
"""

# %% mend
fixes, profiles, gains = {}, {"slow": before}, []


def improve(name: str, bottleneck: str, **fix) -> float:
    old, new = apparatus.SlowTrainer(**fixes), apparatus.SlowTrainer(**fixes, **fix)
    bound = next((each.bound for each in list(profiles.values())[-1].findings if each.name == bottleneck), None)
    measured = apparatus.speed_up(old, new, rounds=rounds, seconds=seconds)
    gains.append({"change": name, "measured": measured, "at_most": bound})
    fixes.update(fix)
    settings = {"name": name, "limits": card, "skip": 4, "warmup": 1, "steps": min(steps, 5)}
    profiles[name] = labkit.profiling.profile_steps(new.step, folder, **settings)
    return gains[-1]["measured"]


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

Write `look_up(tables, categorical)`, which finds in **one call** of `F.embedding` what takes 64 now: for tables (F, R, D) and indices (B, F) the embeddings (B, F, D). `tables.flatten(0, 1)` sees the tables as one of F × R rows.

1. Add to each column of indices the row at which its table begins.
2. Look all of them up at once.

*Hint:* index 3 of table 2 is row 2 × R + 3.
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


EXERCISES["32.lookup"] = WrittenExercise(
    look_up,
    module="step",
    cases=(
        Case("three tables of 7 rows", lambda code: code(*_tables(3))),
        Case("64 tables of 500 rows", lambda code: code(*_tables(64, 500))),
        Case("the gradient of the tables", _gradient_of_lookup),
        Case(
            "as many calls of torch for 64 tables as for 4",
            lambda code: calls(code, *_tables(64)) == calls(code, *_tables(4)),
        ),
    ),
    mistakes={
        look_up_one_by_one: "Right, but with a call a table: number the rows over all tables, and call once.",
        (" + starts", ""): "All columns look into the first table: add to each the row at which its own begins.",
        ("tables.shape[1] * ", ""): "Table f begins at row f × R, with R rows a table, not at row f.",
    },
    hint="Index 3 of table 2 is row 2 × R + 3 of tables.flatten(0, 1). Add to each column the row at which its table "
    "begins, and call F.embedding once.",
    explanation="One call does the work of 64.",
)

# %% lookup-measure [markdown]
"""
Measured on your machine, with your function in the trainer:
"""

# %% lookup-reveal
reveal("32.lookups", improve("one lookup", "lookups", look_up=look_up))

# %% diff-prose [markdown]
"""
Which operators made the difference? Both steps taken apart; the differences add up to that of the step.
"""

# %% diff
difference = labkit.profiling.compare(profiles["slow"], profiles["one lookup"])
print(difference.headline())
labkit.plots.show(
    difference.operators.head(6).rename(columns=lambda name: name.replace("_us", " (µs)").replace("_", " "))
)

# %% batch-prose [markdown]
"""
## Tiny batches

With 32 samples a step, calls, Python between them and the optimiser cost as much as with thousands. Larger batches spread them, though the learning rate has to follow and accuracy may suffer, as in [Train a DLRM](10_train_dlrm.ipynb).

**How many times as many samples a second with large batches (2,048 samples; 512 in the profile `smoke`)?**
"""

# %% guess-batch
guess("32.batch", 2.0, "times as fast")

# %% batch-measure [markdown]
"""
The change is a number:
"""

# %% batch-reveal
reveal("32.batch", improve("larger batches", "batch size", batch_size=large))
tell(profiles["larger batches"].findings)

# %% input-prose [markdown]
"""
## Random samples made in Python

`batch_in_python` draws each number of each sample by itself, as the random data of a well-known benchmark does. Its labels have nothing to do with the features, either: with such data nothing can be learned, and the time measured is that of Python's loop.

**How many times as fast with batches made by a few calls?**
"""

# %% guess-input
guess("32.input", 2.0, "times as fast")

# %% ex-32-make-batch [markdown]
"""
### Exercise 32.make_batch

Write `make_batch(size, tables, generator)`, which draws a whole batch at once, every draw from the generator: `dense` (B, 13), float32, uniform from 0 to 1; `categorical` (B, F), int64, from 0 to 499; and `label` (B,), float32, which **follows from the features**:

1. The log-odds of a click are 4 × (the first dense feature − the second) − 1.
2. The label is 1 where a uniform draw lies below their sigmoid, else 0.

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
    module="step",
    cases=(
        Case("512 samples of 8 tables", _outside),
        Case(
            "a generator of the same seed, twice",
            lambda code: [
                bool((a == b).all()) for a, b in zip(code(9, 3, _seeded()), code(9, 3, _seeded()), strict=True)
            ],
        ),
        Case(
            "as many calls of torch for 64 samples as for 8",
            lambda code: calls(code, 64, 3, _seeded()) == calls(code, 8, 3, _seeded()),
        ),
        Case("50,000 samples of 2 tables", _likely, relative=0.03),
    ),
    mistakes={
        ("return dense, categorical, label", "return dense, categorical, label[torch.randperm(size)]"): (
            "The labels have nothing to do with the features: draw each with the probability that its odds give."
        ),
        _sample_by_sample: "Right, but a sample at a time: draw the whole batch in four calls.",
        (".float()", ""): "The loss wants labels as float32, 0.0 or 1.0: .float().",
    },
    hint="torch.rand for the dense features and for the draw of the label, torch.randint(500, ...) for the indices, "
    "each of the whole batch and with the generator.",
    explanation="Four draws a batch, whatever its size; and there is something to learn.",
)

# %% input-auc-prose [markdown]
"""
Is there something to learn? The AUC of the difference of the two features, by your own function if you wrote it:
"""

# %% input-auc
auc = mine("10.auc")
for name, (dense, _, label) in {"in Python": apparatus.batch_in_python(5000, 1), "yours": make_batch(5000, 1)}.items():
    print(f"{name:10} AUC {auc(label.numpy(), (dense[:, 0] - dense[:, 1]).numpy()):.3f}, measured")

# %% input-measure [markdown]
"""
And how fast is it?
"""

# %% input-reveal
reveal("32.input", improve("batches at once", "input", make_batch=make_batch))

# %% sync-prose [markdown]
"""
## Reading numbers one by one

To count how many samples it called right, the trainer reads each logit and each label with `.item()`. On a GPU every such read waits until all kernels before it have ended; on a CPU it costs a microsecond or so, for each of a batch's logits and labels.

**How many times as fast without?**
"""

# %% guess-sync
guess("32.sync", 1.2, "times as fast")

# %% ex-32-hits [markdown]
"""
### Exercise 32.hits

Write `hits(logit, label)`: how many logits are on their label's side (logit above 0, label above 0.5), as a **tensor**, without a loop and without reading any number.

1. Compare whole tensors.
2. Sum where the two comparisons agree.

*Hint:* neither `int()` nor `.item()`: only the code that prints the sum will wait for it.
"""

# %% answer 32.hits
from torch import Tensor


def hits(logit: Tensor, label: Tensor) -> Tensor:
    """How many of (B,) logits are on their label's side, a tensor."""
    ### BEGIN SOLUTION
    return ((logit > 0) == (label > 0.5)).sum()
    ### END SOLUTION


# %% check 32.hits points=3
check("32.hits", hits)


# %% checks
def _logits(size: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(size)
    return torch.randn(size, generator=generator), torch.rand(size, generator=generator).round()


EXERCISES["32.hits"] = WrittenExercise(
    hits,
    module="step",
    cases=(
        Case("512 logits", lambda code: code(*_logits(512))),
        Case(
            "four logits, two of them 0",
            lambda code: code(torch.tensor([0.0, 0.0, 0.2, -3.0]), torch.tensor([0.0, 0.0, 1.0, 0.0])),
        ),
        Case(
            "as many calls of torch for 64 logits as for 8",
            lambda code: calls(code, *_logits(64)) == calls(code, *_logits(8)),
        ),
        Case("of what type the sum is", lambda code: type(code(*_logits(8))).__name__),
    ),
    mistakes={
        (".sum()", ".sum().item()"): "int() and .item() read a number, and wait for it: return the sum as a tensor.",
        hits_one_by_one: "That reads each number by itself: compare whole tensors, and sum what is equal.",
        ("logit > 0)", "logit > 0.5)"): "A logit above 0, not above 0.5, means a probability above one half.",
    },
    hint="(logit > 0) and (label > 0.5) are tensors of truth values. Where are they equal? Sum, and leave it a tensor.",
    explanation="Nothing is read from the tensors until somebody wants the sum.",
)

# %% sync-measure [markdown]
"""
In the trainer:
"""

# %% sync-reveal
reveal("32.sync", improve("hits at once", "sync", count_hits=hits))

# %% precision-prose [markdown]
"""
## fp32 where bf16 pays

What is left is arithmetic, which is what a step should be made of. bf16 has half the bits of fp32. Where the processor has instructions for it, products run faster; where it has not, slower. The card knows what holds on this machine, and your `amdahl` what follows from it.
"""

# %% precision-card
times = card.bf16_gflops / card.fp32_gflops
operators = profiles["hits at once"].operators
products = operators.loc[operators["operator"].isin(["aten::addmm", "aten::mm"]), "share"].sum()
bound = amdahl({"products": products}, times)["products"]
print(f"products run {times:.2f} times as fast in bf16 here and take {products:.0%} of the step, measured")
print(f"so training can become {bound:.2f} times as fast, predicted")

# %% precision-guess-prose [markdown]
"""
**How many times as fast will training be in bf16 on this machine?** Below 1 means slower.
"""

# %% guess-precision
guess("32.precision", 1.5, "times as fast")

# %% precision-measure [markdown]
"""
`autocast` computes products in bf16, and keeps weights and sums in fp32:
"""

# %% precision-reveal
reveal("32.precision", improve("bf16", "precision", precision="bf16"))

# %% gains-prose [markdown]
"""
## What it came to

Each change as it was measured, and the bound that was predicted before it, where the tool had named it. A gain above its bound is noise, of the measurement or of the profile: other programs disturb both.
"""

# %% gains
import pandas as pd

gains = pd.DataFrame(gains)
labkit.plots.show(apparatus.figure_gains(gains))

# %% ex-why-bound [markdown]
"""
### Exercise 32.why_bound

Take one change whose gain is far from its bound, and explain in two sentences why, with both numbers.
"""

# %% explain 32.why_bound points=2
### BEGIN SOLUTION
answer = model_answer("32.why_bound")
### END SOLUTION
explain("32.why_bound", answer)

# %% checks
EXERCISES["32.why_bound"] = Explanation(
    rubric=(
        "numbers: a change's measured gain compared with its bound",
        "why: what keeps the gain below the bound, or what else than noise lifts it above that of its share",
        "trade-off: what the bound is good for although no change reaches it",
    ),
    model="A bound is the gain if the part took no time at all, and every fix leaves some of it: one lookup for "
    "all tables still reads the same rows. Larger batches gain more than the share that is theirs alone, because "
    "they spread the cost of other calls, too. The bound costs nothing to state, and says which work cannot pay.",
)

# %% left-prose [markdown]
"""
What would the tool try next? Where nothing is worth more than 5 % of the step, it names nothing: then look at the arithmetic itself, or buy a quicker machine.
"""

# %% left
planted = {"lookups", "batch size", "input", "sync", *(["precision"] if times > 1.2 else [])}
named = planted & {finding.name for each in profiles.values() for finding in each.findings}
left = {finding.name for finding in profiles["bf16"].findings}
print(f"named on the way: {', '.join(sorted(named))}; missed: {', '.join(sorted(planted - named)) or 'none'}")
print(f"left: {', '.join(sorted(left)) or 'none'}")

# %% order-prose [markdown]
"""
## Framework, system, kernel

A framework's profiler knows phases and operators. A **system profiler** (Nsight Systems; py-spy for Python) sees the whole program: other threads, libraries, the driver. A **kernel profiler** (Nsight Compute; on a CPU, perf) counts what one kernel does to the hardware, and repeats it many times to do so. The paper on profiling (Yousefzadeh-Asl-Miandoab, Robroek, Tözün, EuroMLSys 2023) takes a framework's *or* a system-wide profiler first, to find frequent kernels and bottlenecks, and then a kernel profiler.

Which of them are here?
"""

# %% tools
for tool in labkit.hardware.find_profilers():
    print(f"{tool.name:8} {tool.version if tool.works else 'not here: ' + tool.note}")

# %% ex-why-order [markdown]
"""
### Exercise 32.why_order

What is left for the second profiler once the first has looked, and why does the kernel profiler not come first? Two sentences.
"""

# %% explain 32.why_order points=2
### BEGIN SOLUTION
answer = model_answer("32.why_order")
### END SOLUTION
explain("32.why_order", answer)

# %% checks
EXERCISES["32.why_order"] = Explanation(
    rubric=(
        "order: what a framework's or a system-wide profiler finds first, and what the kernel profiler then shows",
        "why: what a kernel profiler costs, or cannot see, at the first look",
        "trade-off: when the system-wide profiler is the better first one",
    ),
    model="A framework's profiler costs little and names phases and operators, so it says which kernel or call is "
    "worth a look; only then does a kernel profiler, which repeats each kernel many times and knows nothing of the "
    "rest of the program, look at that one. Where time goes into other processes, the driver or the disk, a "
    "system-wide profiler is the better first look, for the framework's sees its own process only.",
)

# %% claim-E16-prose [markdown]
"""
### Your verdict: top-down

Five bottlenecks were planted (four where bf16 does not pay). Did the first profiler, from phases down to operators, name them?
"""

# %% claim E16 points=1
### BEGIN SOLUTION
verdict = "holds here" if len(named) >= len(planted) - 1 else "does not hold here"
answer = verdict, "an analogue on a CPU: a framework's profiler first, and it names all but one at most"
### END SOLUTION
claim("E16", f"{len(named)} of {len(planted)} planted bottlenecks named by a framework's profiler", answer)

# %% commands-prose [markdown]
"""
In a terminal, `labkit profile run your_script.py` does the same to any training script, unchanged, `labkit profile dlrm` to labkit's own; `--tool py-spy` takes another profiler, and for `nsys`, `ncu` and `perf` it prints the command to run.

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

measured = gains.set_index("change")["measured"]
results(
    one_row_share=(one_ms / many_ms, 0.001, 5),
    largest_phase_share=(phases.max() / phases.sum(), 0.2, 1),
    lookups_gain=(measured["one lookup"], 0.1, 20),
    batch_gain=(measured["larger batches"], 0.1, 50),
    input_gain=(measured["batches at once"], 0.1, 100),
    precision_gain=(measured["bf16"], 0.01, 20),
    phases_of_step=(before.phases["share"].sum(), 0.98, 1.02),
)

# %% recap [markdown]
"""
## Recap

- Profile a few steady steps; look at phases first, then at operators, then at what they achieve of the machine's limits.
- Operators cost before they do anything: gaps between them, and those that compute nothing.
- Bound a change before you make it: 1 / (1 − f + f / k). What is not worth 5 % of a step can wait.
- Few large calls beat many small ones: lookups, batches, and everything that Python does a sample at a time.
- Whether bf16 pays is a property of your machine: measure it.
- A framework's or a system-wide profiler first, a kernel profiler on what it found.

**Next:** [Make it fast](33_make_it_fast.ipynb)
"""

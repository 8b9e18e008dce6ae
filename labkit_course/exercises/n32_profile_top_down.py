"""What students write in 32_profile_top_down to look at steps: reference, what both are asked, usual mistakes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.tracking import phase, watched_by
from labkit_course.explanation import Explanation
from labkit_course.written import Case, WrittenExercise

# --- a step with named phases


def make_step(model: nn.Module, optimizers: list, batches: Iterator) -> Callable[[], None]:
    def step():
        with phase("input"):
            dense, categorical, label = next(batches)
        with phase("forward"):
            loss = F.binary_cross_entropy_with_logits(model(dense, categorical), label)
        with phase("backward"):
            loss.backward()
        with phase("optimiser"):
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()

    return step


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
    taken, model, told = [], _Small(), []

    def batches() -> Iterator[Any]:
        for batch in data:
            taken.append(batch)
            yield batch

    @contextlib.contextmanager
    def watch(name: str) -> Iterator[None]:
        before = model.dense.weight.detach().clone()
        yield
        gradient = model.dense.weight.grad
        told.append(
            f"after {name}: {len(taken)} batches, {'a' if gradient is not None and gradient.any() else 'no'} gradient, "
            f"weights {'stay' if torch.equal(before, model.dense.weight) else 'change'}"
        )

    weights = [model.dense, model.table]
    step = code(model, [torch.optim.SGD(each.parameters(), lr=0.1) for each in weights], batches())
    with watched_by(watch):
        step()
        step()
    return {"phases": told, "weights": model.dense.weight, "table": model.table.weight}


STEP = WrittenExercise(
    make_step,
    module="step",
    cases=(Case("two steps of a small model", _stepped),),
    mistakes={
        ("def step():", "phase = contextlib.nullcontext\n\n    def step():"): (
            'Name the four parts: with phase("input"):, and so on, in that order.'
        ),
        ('with phase("backward"):\n        ', ""): "loss.backward() belongs to a phase of its own, not to forward.",
        ("\n                optimizer.zero_grad()", ""): (
            "Clear the gradients after the optimiser's step, or they add up."
        ),
        ("def step():", "batches = iter([next(batches)] * 2)\n\n    def step():"): (
            "Take the next batch within step: now each step has the same one."
        ),
        ("return step", "return step()"): "Return the function step itself, without calling it.",
    },
    hint='step takes next(batches) in phase "input", computes the loss in "forward", and so on; return it uncalled.',
    explanation="The profiler can now tell the four parts of your step apart.",
)

# --- what operators cost beside their work


def overheads(events: pd.DataFrame, cost_us: float, views: set[str]) -> dict[str, float]:
    top = events[events["parent"] < 0].sort_values("start_us")
    ends = (top["start_us"] + top["duration_us"]).to_numpy()
    gaps = top["start_us"].to_numpy()[1:] - ends[:-1] - cost_us
    return {"T1": gaps.clip(0).sum(), "T5": events.loc[events["name"].isin(views), "self_us"].sum()}


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
OVERHEADS = WrittenExercise(
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
        (' + top["duration_us"]', ""): "A gap begins where the operator before it ends: start_us + duration_us.",
        ('"self_us"', '"duration_us"'): "Of a view count its own time, self_us: what it calls has a row of its own.",
    },
    hint="Operators with parent below 0, sorted by start_us: each start less the end of the one before it, less "
    "cost_us, not below 0. T5 is the sum of self_us of the operators whose name is among the views.",
    explanation="Two of the paper's five overheads; the other three need a device that is launched to.",
)

# --- Amdahl


def amdahl(shares: dict[str, float], times: float = float("inf")) -> dict[str, float]:
    left = {name: 1 - share + share / times for name, share in shares.items()}
    return {name: 1 / rest if rest else float("inf") for name, rest in left.items()}


AMDAHL = WrittenExercise(
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
        (" + share / times", ""): "With a finite `times` the part does not vanish: f / times of it is left.",
    },
    hint="Of a step of 1, 1 − f stays as it was and f / times is left of the rest; the gain is 1 over their sum.",
    explanation="However quick one part becomes, the others remain: no work on it can beat this bound.",
)

# --- in words

EXERCISES = {
    "32.step": STEP,
    "32.why_phase": Explanation(
        rubric=(
            "numbers: the largest phase, and its share of the step",
            "why: what that phase does so often, or over how many bytes, that it is the largest",
            "trade-off: what one could change, and what that would cost elsewhere",
        ),
        model="The optimiser or the backward pass is usually the largest part, a third of the step or more. It makes "
        "many short calls: 26 tables have a sparse gradient each, which is sorted, summed and applied by itself, so "
        "Python and dispatch cost as much as the arithmetic. One table of all rows would need one call, at the price "
        "of code that is less plain than a module a feature.",
    ),
    "32.overheads": OVERHEADS,
    "32.amdahl": AMDAHL,
    "32.why_bound": Explanation(
        rubric=(
            "numbers: a change's measured gain beside its bound",
            "why: what keeps the gain below the bound, or what else than noise lifts it above that of its share",
            "trade-off: what the bound is good for although no change reaches it",
        ),
        model="A bound is the gain if the part took no time at all, and every mend leaves some of it: one lookup for "
        "all tables still reads the same rows. Larger batches gain more than the share that is theirs alone, because "
        "they spread the cost of other calls, too. The bound costs nothing to state, and says which work cannot pay.",
    ),
    "32.why_order": Explanation(
        rubric=(
            "order: what a framework's or a system-wide profiler finds first, and what the kernel profiler then tells",
            "why: what a kernel profiler costs, or cannot see, at the first look",
            "trade-off: when the system-wide profiler is the better first one",
        ),
        model="A framework's profiler costs little and names phases and operators, so it says which kernel or call is "
        "worth a look; only then does a kernel profiler, which repeats each kernel many times and knows nothing of the "
        "rest of the program, look at that one. Where time goes into other processes, the driver or the disk, a "
        "system-wide profiler is the better first look, for the framework's sees its own process only.",
    ),
}

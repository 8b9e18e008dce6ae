"""What students write in 33_make_it_fast: the reference, what both are asked, and the usual mistakes.

Shapes: B batch, F tables, L lookups a bag, D embedding dim, R rows of all tables, U distinct rows, V vectors that meet.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from labkit_course.apparatus import FakeClock
from labkit_course.explanation import Explanation
from labkit_course.written import Case, WrittenExercise

# --- two steps in turns


def in_pairs(
    old: Callable, new: Callable, rounds: int, steps: int, clock: Callable = time.perf_counter
) -> tuple[list[float], list[float]]:
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


IN_PAIRS = WrittenExercise(
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
        ("(clock() - began) / steps", "clock() - began"): "Seconds of *a* step: divide those of a turn by `steps`.",
    },
    hint="Call both once. Then for each round, old and new or new and old: read `clock()`, call `steps` times, read it "
    "again, and append the difference / steps to the list of that one.",
    explanation="A drift of the machine falls on both of a pair.",
)

# --- gather instead of sparse tensors


def gather(weight: Tensor, starts: Tensor, categorical: Tensor) -> tuple[Tensor, Tensor]:
    rows = categorical + starts.unsqueeze(1)  # (B, F, L), counted over all tables
    return rows, F.embedding(rows, weight.detach()).requires_grad_()


def _log(lookups: int = 2, batch: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(4)
    lengths = torch.tensor([3, 5, 2])
    drawn = (torch.rand(batch, 3, lookups, generator=generator) * lengths.unsqueeze(1)).int()
    return torch.randn(10, 4, generator=generator), lengths.cumsum(0) - lengths, drawn


def _gathered(code: Any) -> dict[str, Any]:
    weight, starts, categorical = _log()
    weight.requires_grad_()
    _, found = code(weight, starts, categorical)
    told = {"needs a gradient": bool(found.requires_grad), "is a leaf": bool(found.is_leaf)}
    if all(told.values()):
        (found * torch.arange(1.0, found.numel() + 1).view_as(found)).sum().backward()
    return told | {"gradient": found.grad if found.is_leaf else None, "the weight has one": weight.grad is not None}


GATHER = WrittenExercise(
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
        (".requires_grad_()", ".requires_grad_().sum(2)"): (
            "Do not sum the bags yet: found is (B, F, L, D), and its gradient tells what each row gets."
        ),
    },
    hint="rows = categorical + starts of shape (F, 1); F.embedding(rows, weight.detach()).requires_grad_().",
    explanation="One call finds the rows of all tables, and their gradient comes back as a plain tensor.",
)

# --- what a row gets


def sum_rows(rows: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    distinct, place = rows.flatten().unique(return_inverse=True)  # (U,), (B F L,)
    sums = gradient.new_zeros(len(distinct), gradient.shape[-1])
    return distinct, sums.index_add_(0, place, gradient.flatten(0, -2))


def _named(rows: list, width: int = 3) -> tuple[Tensor, Tensor]:
    rows = torch.tensor(rows)
    return rows, torch.randn(*rows.shape, width, generator=torch.Generator().manual_seed(rows.numel()))


SUM_ROWS = WrittenExercise(
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

# --- Adam on the rows of a batch


def adam_rows(weight: Tensor, moments: tuple, rows: Tensor, gradient: Tensor, steps: int, lr: float) -> None:
    first = 0.9 * moments[0][rows] + 0.1 * gradient  # (U, D)
    second = 0.999 * moments[1][rows] + 0.001 * gradient.square()
    moments[0][rows], moments[1][rows] = first, second
    first, second = first / (1 - 0.9**steps), second / (1 - 0.999**steps)
    weight[rows] -= lr * first / (second.sqrt() + 1e-8)


def _updated(code: Any, *, twice: bool = False, far: bool = False, size: float = 1.0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(6)
    weight, moments = torch.randn(8, 3, generator=generator), (torch.zeros(8, 3), torch.zeros(8, 3))
    batches = [[1, 4, 6], [0, 4]] if twice else [[1, 4, 6]]
    for steps, rows in enumerate(batches, 1001 if far else 1):
        gradient = size * torch.randn(len(rows), 3, generator=generator)
        code(weight, moments, torch.tensor(rows), gradient, steps, 0.1)
    return {"weight": weight, "first moment": moments[0], "second moment": moments[1]}


ADAM = WrittenExercise(
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
        (
            """0.9 * moments[0][rows] + 0.1 * gradient  # (U, D)
    second = 0.999 * moments[1][rows]""",
            """moments[0].mul_(0.9)[rows] + 0.1 * gradient
    second = moments[1].mul_(0.999)[rows]""",
        ): "Moments of rows that the batch does not name stay as they are.",
        ("moments[0][rows], moments[1][rows] = first, second", ""): (
            "Write the new moments back, moments[0][rows] = ..., or each step forgets."
        ),
        lambda weight, moments, rows, *rest: adam_rows(weight[rows], moments, torch.arange(len(rows)), *rest): (
            "weight[rows] is a copy: assign to it (weight[rows] -= ...), and take the moments of these rows, too."
        ),
    },
    hint="first = 0.9 · old + 0.1 · gradient, second = 0.999 · old + 0.001 · gradient²; store both; divide each by "
    "1 less its power; weight[rows] -= lr · first / (√second + 1e-8).",
    explanation="The same as torch.optim.SparseAdam, for all tables at once.",
)

# --- how often to evaluate


def evaluation_gap(evaluation_s: float, time_to_target_s: float) -> float:
    return (2 * evaluation_s * time_to_target_s) ** 0.5


GAP = WrittenExercise(
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


EXERCISES = {
    "33.in_pairs": IN_PAIRS,
    "33.gather": GATHER,
    "33.sum_rows": SUM_ROWS,
    "33.adam_rows": ADAM,
    "33.why_gather": Explanation(
        rubric=(
            "numbers: how many times as fast, with its interval",
            "why: calls, sorts and Python that fell away, although as many rows are read and written",
            "trade-off: what the plain way has that this one has not",
        ),
        model="Both ways read and write the same rows, so bytes do not explain the gain. The plain way asks for a "
        "lookup, a sparse gradient, a sort and a dozen small updates for each of 26 tables, and each call costs "
        "microseconds before it does anything; one gather, one sort and one update serve all tables. In return the "
        "weights are no parameters of the module any more, and every other optimiser needs an update of its own.",
    ),
    "33.evaluation_gap": GAP,
    "33.why_faults": Explanation(
        rubric=(
            "numbers: page faults a step in both states, and the ratio of times",
            "why: what the system does with a page at its first touch, and why kept memory has none",
            "trade-off: what a process that keeps its memory takes from others",
        ),
        model="Where glibc gives freed tensors back, the next step gets fresh pages, and the system clears each at its "
        "first touch; where it keeps them there are hardly any faults. How much that gains depends on what a fault "
        "costs, which can be much more in a virtual machine. In return the process holds its peak until it ends, which "
        "jobs that share the machine may miss.",
    ),
    "33.why_target": Explanation(
        rubric=(
            "numbers: the gain in time to target beside the gain in a step's time",
            "why: what a run does beside its steps, or a difference in the samples that it needs",
            "trade-off: which of the ideas you would take first, for how much code",
        ),
        model="The product of the gains was 3.9, and the target came 2.8 times sooner: a run fetches its batches, "
        "evaluates (23 % of a plain run, 6 % of a fast one), and needs a number of samples that bf16 and the times of "
        "evaluation change. Kept memory and evaluations on fewer rows cost a line each and change no weight, so they "
        "come first; the gather is next, 1.4 times as fast for three functions, and bf16 only where it pays.",
    ),
}

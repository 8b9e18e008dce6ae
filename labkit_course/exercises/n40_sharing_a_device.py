"""What students write in 40_sharing_a_device: the reference, what both are asked, and the usual mistakes."""

from __future__ import annotations

import contextlib
import functools
import io
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import labkit
from labkit.data.clicks import ClickBatches, load_clicks
from labkit.jobs import get_preset
from labkit.models import DlrmConfig
from labkit_course.apparatus import WatchedRun
from labkit_course.checks import mine
from labkit_course.explanation import Explanation
from labkit_course.written import Case, WrittenExercise

GIB = 2**30

# --- memory


def fits(needs: list[int], memory: int, parts: list[int] | None = None) -> bool:
    if parts is None:
        return sum(needs) <= memory
    if sum(parts) > memory or len(needs) > len(parts):
        return False
    largest_first = zip(sorted(needs, reverse=True), sorted(parts, reverse=True), strict=False)
    return all(need <= part for need, part in largest_first)


def _fits(*needs: float, memory: float = 8, parts: list[float] | None = None) -> Any:
    in_bytes = parts and [int(part * GIB) for part in parts]
    return lambda code: bool(code([int(need * GIB) for need in needs], int(memory * GIB), in_bytes))


FITS = WrittenExercise(
    fits,
    module="sharing",
    cases=(
        Case("5 and 3 GiB on 8", _fits(5, 3)),
        Case("5 and 4 GiB on 8", _fits(5, 4)),
        Case("5 and 1 GiB in two halves of 8", _fits(5, 1, parts=[4, 4])),
        Case("1 and 5 GiB in parts of 6 and 2", _fits(1, 5, parts=[6, 2])),
        Case("three jobs and two parts", _fits(1, 1, 1, parts=[4, 4])),
        Case("parts that are more than there is", _fits(1, 1, parts=[6, 4])),
        Case("no job", _fits()),
    ),
    mistakes={
        ("sum(needs) <= memory", "all(need <= memory for need in needs)"): (
            "Each fits by itself. They run at once: the sum counts."
        ),
        ("all(need <= part for need, part in largest_first)", "sum(needs) <= sum(parts)"): (
            "In parts nobody may use what a neighbour leaves free: each job has to fit into one part."
        ),
        ("sorted(needs, reverse=True), sorted(parts, reverse=True)", "needs, parts"): (
            "Which job gets which part is yours to choose: the largest job into the largest part."
        ),
        ("sum(needs) <= memory", "sum(needs) < memory"): "What fills the memory to the last byte fits.",
    },
    hint="Shared: the sum. In parts: as many parts as jobs or more, no more than the memory together, and with both "
    "sorted each job at most as large as its part.",
    explanation="6 GiB of jobs fit into 8 GiB that are shared, and not into two halves: that is what rigid means.",
)


def activations(model: nn.Module, *inputs: Tensor) -> float:
    put_out = []
    leaves = [module for module in model.modules() if not list(module.children())]
    hooks = [leaf.register_forward_hook(lambda module, given, out: put_out.append(out.numel())) for leaf in leaves]
    with torch.no_grad():
        model(*inputs)
    for hook in hooks:
        hook.remove()
    return sum(put_out) / len(inputs[0])


def _net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 2), nn.ReLU()))


def _twice(code: Any) -> list[float]:
    """A second count, and how many hooks are left."""
    model = _net()
    code(model, torch.ones(5, 3))
    return [code(model, torch.ones(5, 3)), sum(len(each._forward_hooks) for each in model.modules())]


ACTIVATIONS = WrittenExercise(
    activations,
    module="sharing",
    cases=(
        Case("a layer of 4, ReLU, a layer of 2, ReLU, batch 5", lambda code: code(_net(), torch.ones(5, 3))),
        Case("batch 1", lambda code: code(_net(), torch.ones(1, 3))),
        Case("two inputs", lambda code: code(nn.Bilinear(3, 3, 7), torch.ones(2, 3), torch.ones(2, 3))),
        Case("the same model twice", _twice),
    ),
    mistakes={
        (" if not list(module.children())", ""): (
            "A module with children puts out what its last child does: count leaves alone, or numbers count twice."
        ),
        (" / len(inputs[0])", ""): "For one sample: divide by the batch.",
        ("hook.remove()", "pass"): "Remove each hook again: hook.remove().",
        lambda model, *inputs: float(sum(each.numel() for each in model.parameters())): (
            "Those are the parameters; activations are what the layers put out (output.numel())."
        ),
    },
    hint="A forward hook on each module without children appends output.numel(); run the model under torch.no_grad(), "
    "remove the hooks, divide the sum by the batch.",
    explanation="Memory that grows with the batch, where parameters do not.",
)


def horus_bytes(activations: float, parameters: int, batch_size: int) -> float:
    return 4 * (activations * batch_size + parameters + batch_size * parameters)


HORUS = WrittenExercise(
    horus_bytes,
    module="sharing",
    cases=(
        Case("10 activations, 3 parameters, batch 4", lambda code: code(10, 3, 4)),
        Case("CARMA's DLRM, batch 32,768", lambda code: code(5_768, 909_313, 32_768)),
        Case("batch 1", lambda code: code(100, 1_000, 1)),
    ),
    mistakes={
        ("4 * ", ""): "Those are numbers; a number of single precision has four bytes.",
        ("batch_size * parameters", "parameters"): (
            "That is what a gradient really takes, one for each parameter. Horus counts one for each sample, too."
        ),
        (" + parameters", ""): "The parameters themselves are missing: A·B + P + B·P.",
    },
    hint="4 (A·B + P + B·P): activations of the batch, parameters, and gradients as the formula counts them.",
    explanation="For CARMA's DLRM 111.7 GiB, nearly all of it the last term, a gradient of each parameter for each "
    "sample.",
)

# --- the own job


def my_job(data: str, batch_size: int, epochs: int, seed: int) -> None:
    torch.manual_seed(seed)
    log = load_clicks(data)
    shape = get_preset("dlrm", "tour").model
    model = mine("10.model")(DlrmConfig(len(log.dense_names), log.table_rows, **shape))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    batches = ClickBatches(log.split("train"), batch_size=batch_size, seed=seed)
    with labkit.Run("my-job", seed=seed) as run:
        for _ in run.epochs(epochs):
            for dense, categorical, label in run.batches(batches):
                loss = F.binary_cross_entropy_with_logits(model(dense, categorical), label)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                run.step(loss, samples=len(label))


def _of_runs(code: Any, *jobs: tuple) -> list[WatchedRun]:
    """The runs of some jobs, a list that is empty where they opened none."""
    runs: list[WatchedRun] = []
    watched = functools.partial(WatchedRun, most_batches=3, entered=runs)
    with mock.patch.object(labkit, "Run", watched), contextlib.redirect_stdout(io.StringIO()):
        for job in jobs:
            code(*job)
    return runs


def _seeds(code: Any) -> dict[str, Any]:
    """What three jobs did, two of them of one seed."""
    runs = _of_runs(code, *(("synthetic-small", 64, 1, seed) for seed in (1, 1, 2)))
    first, second, third = [run.losses for run in runs] if len(runs) == 3 else [[], [], []]
    return {
        "runs": len(runs),
        "their seeds": [run.seed for run in runs],
        "the same seed repeats": first == second,
        "another seed gives others": first != third,
    }


def _two_epochs(code: Any) -> dict[str, Any]:
    """Losses are by the reference's of this moment: both train `mine("10.model")`, which may change between checks."""
    own, right = (_of_runs(each, ("synthetic-small", 512, 2, 3))[0] for each in (code, my_job))
    pairs = enumerate(zip(own.losses, right.losses, strict=False), 1)
    losses = {f"loss of step {step}, by the right one": one / other for step, (one, other) in pairs}
    return {"samples of each step": own.samples} | losses


JOB = WrittenExercise(
    my_job,
    module="sharing",
    cases=(
        Case("three jobs of an epoch, two of one seed", _seeds),
        Case("two epochs of three batches of 512", _two_epochs),
    ),
    mistakes={
        ("torch.manual_seed(seed)", ""): (
            "Call torch.manual_seed(seed) before the model is made: its first weights are random."
        ),
        ('"my-job", seed=seed', '"my-job"'): (
            "Tell the run its seed (labkit.Run(..., seed=seed)): it is recorded with it."
        ),
        ("batch_size=batch_size, seed=seed", "batch_size=batch_size, seed=0"): (
            "Give the seed to ClickBatches, too: copies are to see the rows in orders of their own."
        ),
        ('"train"', '"validation"'): "Train on the split `train`.",
        ("len(label)", "1"): "Tell run.step how many samples the batch had: samples=len(label).",
        ("optimizer.zero_grad()", ""): "Gradients add up from step to step: clear them (optimizer.zero_grad()).",
        ("run.epochs(epochs)", "run.epochs(1)"): "It is asked for several epochs: for _ in run.epochs(epochs).",
    },
    hint="Seed torch, load the log, build your model and Adam (lr 2e-3), and in `with labkit.Run(...)` train for so "
    "many epochs of ClickBatches, with run.step after each step.",
    explanation="A job that anybody can start: from here on labkit starts copies of it.",
)

# --- what sharing came to


def gain(alone: list[float], together: list[float]) -> float:
    return sum(shared / own for own, shared in zip(alone, together, strict=True))


def fairness(alone: list[float], together: list[float]) -> float:
    speeds = [shared / own for own, shared in zip(alone, together, strict=True)]
    return sum(speeds) ** 2 / (len(speeds) * sum(speed**2 for speed in speeds))


ALONE, TOGETHER = [100.0, 50.0, 10.0], [60.0, 20.0, 5.0]
SPEEDS = (
    Case("100, 50 and 10 steps/s alone, 60, 20 and 5 together", lambda code: code(ALONE, TOGETHER)),
    Case("two jobs at half their speed", lambda code: code([8.0, 4.0], [4.0, 2.0])),
    Case("one of four that gets everything", lambda code: code([3.0] * 4, [3.0, 0.0, 0.0, 0.0])),
)
GAIN = WrittenExercise(
    gain,
    module="sharing",
    cases=SPEEDS,
    mistakes={
        lambda alone, together: sum(together) / sum(alone): (
            "That adds up steps of different jobs, which are no common unit: divide each job's first."
        ),
        lambda alone, together: gain(alone, together) / len(alone): (
            "That is the mean speed of a job; the gain is what all do together."
        ),
        ("shared / own", "own / shared"): "The other way round: speed together over speed alone.",
    },
    hint="Divide each job's speed together by its own alone, and add up.",
    explanation="1 is as much as one after another; the most is the number of jobs.",
)
FAIRNESS = WrittenExercise(
    fairness,
    module="sharing",
    cases=SPEEDS,
    mistakes={
        ("shared / own", "shared"): "Take each job's speed relative to its own alone, not steps a second.",
        ("len(speeds) * ", ""): "Divide by n, too: 1 is the fairest.",
        (" ** 2 / (len(speeds) * ", " / ("): "The sum above is squared, and n stands below.",
    },
    hint="With x = together / alone of each job: (Σx)² / (n Σx²).",
    explanation="1 where all are slowed alike, 1/n where one job has everything.",
)

EXERCISES = {
    "40.fits": FITS,
    "40.activations": ACTIVATIONS,
    "40.horus": HORUS,
    "40.job": JOB,
    "40.gain": GAIN,
    "40.fairness": FAIRNESS,
    "40.why_gain": Explanation(
        rubric=(
            "numbers: the gain and the slowdown of one mode, of this run",
            "why: what a job alone leaves idle (a second core gives it less than twice the speed)",
            "trade-off: all together do more, each one waits longer; for whom that is worth it",
        ),
        model="Pinned, two jobs together did more work than one after another (the gain is above 1), though each took "
        "longer than alone (the slowdown is above 1, too), because alone a second core makes this small model far less "
        "than twice as fast. It pays for who waits for all jobs, and not for who waits for the first one.",
    ),
    "40.why_rigid": Explanation(
        rubric=(
            "numbers: the makespan of the unequal jobs, pinned and shared",
            "why: pinned, the short jobs wait for their half, which idles after them; shared, the long job may use it",
            "trade-off: against interference and threads that wait for each other on shared cores",
        ),
        model="Pinned, the half of the short jobs idles before, between and after them, and the long job stays on its "
        "own; shared, it gets all cores. Whether the makespan is shorter shared depends on what the second core is "
        "worth to the long job, and on what the threads cost each other before: for a small model that can be more "
        "than the idle half.",
    ),
}

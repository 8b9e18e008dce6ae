# %% cell-00 [markdown]
"""
# Sharing a device

After this notebook you will be able to

- **write** a training job that anybody can start, and **run** copies of it together, on shared and on divided cores;
- **count** what a model needs before it runs, and **tell** whether a set of jobs fits;
- **compute** what sharing gained, what it cost each job, and how evenly;
- **choose** a way to share for jobs that are alike and for jobs that are not, and **judge** five claims of a paper.

**Time:** 90 minutes, in two halves that stand alone (*Does it fit?* and *Run them together*); the machine computes for about five minutes on 2 CPU cores. A GPU is used where there is one.

**Prerequisites:** [What utilisation means](30_what_utilisation_means.ipynb) and [Train a DLRM to a target](10_train_dlrm.ipynb).
"""

# %% checks
import contextlib
import functools
import io
from typing import Any
from unittest import mock

import torch
from torch import nn

import labkit
from labkit_course.apparatus import WatchedRun
from labkit_course.exercise import Case, Explanation, WrittenExercise

EXERCISES = {}

# %% cell-01 [markdown]
"""
The next cell holds what you may change.
"""

# %% cell-02 tags=["parameters"]
profile = "standard"  # smoke, standard or full: how long the jobs are, and how often they run
runs_dir = "runs"  # each plan makes a folder of its own in here
batch_size = 2048  # of your job

# %% why-share [markdown]
"""
## Why share?

A training job seldom uses all of its device. Small models leave most of a GPU's multiprocessors idle, and on a CPU a second core often speeds one job up by far less than two. Robroek et al. (*An Analysis of Collocation on GPUs for Deep Learning Training*, EuroMLSys 2024) ran 1, 2, 3 and 7 trainings on one GPU: as plain processes (*naive*), under MPS, and on MIG in five layouts of slices (7×1g.5gb, 3×2g.10gb, 2×3g.20gb, 1×4g.20gb, 1×7g.40gb). Their abstract there says **up to 3 times the training throughput** for small models; the abstract of [arXiv 2209.06018](https://arxiv.org/abs/2209.06018), version 3, says up to 4. Large models gained next to nothing.

This is what your machine has of each way, and why not of the others:
"""

# %% modes
import labkit

modes = labkit.sharing.modes_here(labkit.hardware.get_devices())
print("\n".join(f"{mode:11} {why_not or 'is possible here'}" for mode, why_not in modes.items()))

# %% modes-table [markdown]
"""
| mode | on | what separates the jobs |
|---|---|---|
| `alone` | both | time: one job after another |
| `naive` | GPU | time slices: kernels of two processes never run at once |
| `mps` | GPU | their processes; kernels run at once, on a share of the multiprocessors if you like |
| `mig` | GPU | hardware: slices with multiprocessors, cache and memory bandwidth of their own |
| `cpu-shared` | CPU | the operating system's scheduler |
| `cpu-pinned` | CPU | cores and memory of their own: the CPU's MIG, though caches and bandwidth are shared |

## A job of your own

What is shared in this lab is *your* model. If you did not write it in lab 10, labkit's stands in. A job that a scheduler starts is a program, so it builds everything from its arguments.

### Write: `my_job` (15 minutes)

`my_job(data, batch_size, epochs, seed)` trains your model of exercise 10.model on the click log `data`, and returns nothing.

1. Seed torch; load the log; build the model (`DlrmConfig` takes the number of dense features, the rows of each table, and the rest from preset `tour`), `torch.optim.Adam` with a learning rate of 2e-3, and `ClickBatches` of the split `train`.
2. In `with labkit.Run("my-job", seed=seed) as run:` train for `run.epochs(epochs)` over `run.batches(batches)`, and tell each step: `run.step(loss, samples=...)`.

Hint: a batch is `dense, categorical, label`, and the model gives logits.
"""

# %% answer 40.job
import torch
import torch.nn.functional as F

import labkit
from labkit_course import mine


def my_job(data: str, batch_size: int, epochs: int, seed: int) -> None:
    """Train my model on a click log for some epochs."""
    ### BEGIN SOLUTION
    torch.manual_seed(seed)
    log = labkit.data.clicks.load_clicks(data)
    shape = labkit.jobs.get_preset("dlrm", "tour").model
    model = mine("10.model")(labkit.models.DlrmConfig(len(log.dense_names), log.table_rows, **shape))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    batches = labkit.data.clicks.ClickBatches(log.split("train"), batch_size=batch_size, seed=seed)
    with labkit.Run("my-job", seed=seed) as run:
        for _ in run.epochs(epochs):
            for dense, categorical, label in run.batches(batches):
                loss = F.binary_cross_entropy_with_logits(model(dense, categorical), label)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                run.step(loss, samples=len(label))
    ### END SOLUTION


# %% check 40.job points=5
from labkit_course import check

check("40.job", my_job)


# %% checks
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


EXERCISES["40.job"] = WrittenExercise(
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
    },
    hint="Seed torch, load the log, build your model and Adam (lr 2e-3), and in `with labkit.Run(...)` train for so "
    "many epochs of ClickBatches, with run.step after each step.",
    explanation="A job that anybody can start: from here on labkit starts copies of it.",
)

# %% script-prose [markdown]
"""
The check runs it with a stand-in for `labkit.Run`, and keeps it in `mylab/sharing.py`. This program calls it; `labkit run my_job.py synthetic-small 2048 2 0` would run it in a terminal.
"""

# %% script


# %%writefile my_job.py
import sys

from labkit_course import mine

data, batch_size, epochs, seed = sys.argv[1:]
mine("40.job")(data, int(batch_size), int(epochs), int(seed))

# %% memory-prose [markdown]
"""
## Does it fit?

Two jobs can share a device only if both fit into its memory **together**, and a job that runs out of memory has wasted all it did. So one wants to know a job's memory before it starts: weights, their gradients, the optimiser's state, and the activations that the backward pass needs.

### Write: `activations` (10 minutes)

`activations(model, *inputs)` gives the numbers that the layers of a model put out for *one* sample, a float. The first dimension of each input is the batch.

1. Put a forward hook on every module without children; it appends `output.numel()` to a list.
2. Run the model on the inputs without gradients, remove the hooks, add up, and divide by the batch.

Hint: `module.register_forward_hook(f)` calls `f(module, inputs, output)` and returns what has `.remove()`.
"""

# %% answer 40.activations
import torch
from torch import Tensor, nn


def activations(model: nn.Module, *inputs: Tensor) -> float:
    """Numbers that the layers put out for one sample."""
    ### BEGIN SOLUTION
    put_out = []
    leaves = [module for module in model.modules() if not list(module.children())]
    hooks = [leaf.register_forward_hook(lambda module, given, out: put_out.append(out.numel())) for leaf in leaves]
    with torch.no_grad():
        model(*inputs)
    for hook in hooks:
        hook.remove()
    return sum(put_out) / len(inputs[0])
    ### END SOLUTION


# %% check 40.activations points=4
check("40.activations", activations)


# %% checks
def _net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 2), nn.ReLU()))


def _twice(code: Any) -> list[float]:
    """A second count, and how many hooks are left."""
    model = _net()
    code(model, torch.ones(5, 3))
    return [code(model, torch.ones(5, 3)), sum(len(each._forward_hooks) for each in model.modules())]


EXERCISES["40.activations"] = WrittenExercise(
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
    },
    hint="A forward hook on each module without children appends output.numel(); run the model under torch.no_grad(), "
    "remove the hooks, divide the sum by the batch.",
    explanation="Memory that grows with the batch, where parameters do not.",
)

# %% horus-prose [markdown]
"""
### Write: `horus_bytes` (3 minutes)

*Horus* (Yeung et al., 2022) is a scheduler that predicts a job's memory by a formula. As the repository of CARMA ([arXiv 2508.19073](https://arxiv.org/abs/2508.19073)) computes it, with $A$ activations a sample, $P$ parameters and a batch of $B$, a job takes $A·B + P + B·P$ numbers of 4 bytes. `horus_bytes(activations, parameters, batch_size)` gives the bytes.
"""


# %% answer 40.horus
def horus_bytes(activations: float, parameters: int, batch_size: int) -> float:
    """Bytes of a job's memory by Horus' formula."""
    ### BEGIN SOLUTION
    return 4 * (activations * batch_size + parameters + batch_size * parameters)
    ### END SOLUTION


# %% check 40.horus points=1
check("40.horus", horus_bytes)

# %% checks
EXERCISES["40.horus"] = WrittenExercise(
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

# %% horus-guess-prose [markdown]
"""
The last term counts a gradient of every parameter *for every sample*; a framework keeps one. For your job, **how many times what its tensors really take does the formula predict?**
"""

# %% horus-guess
from labkit_course import explain, guess, model_answer, reveal

guess("40.horus_times", 5.0, "times")

# %% own-model-prose [markdown]
"""
Your model on paper:
"""

# %% own-model
data = "synthetic-small"
log = labkit.data.clicks.load_clicks(data)
config = labkit.models.DlrmConfig(len(log.dense_names), log.table_rows, **labkit.jobs.get_preset("dlrm", "tour").model)
model = mine("10.model")(config)

# %% own-count-prose [markdown]
"""
`terms` counts weights, gradients and Adam's two moments, and the activations of the batch:
"""

# %% own-count
dense, categorical, _ = next(iter(labkit.data.clicks.ClickBatches(log.split("train"), 64, 0)))
P, A = sum(weight.numel() for weight in model.parameters()), activations(model, dense, categorical)
terms = 4 * (4 * P + A * batch_size)
print(f"{P:,} parameters, {A:,.0f} activations a sample")

# %% measured-prose [markdown]
"""
And in truth: your program takes three steps in a process of its own, while every allocation of a tensor is counted.
"""

# %% measured
import pandas as pd

from labkit_course import apparatus

tensors = apparatus.counted_bytes(labkit.tracking.ScriptCommand("my_job.py", (data, str(batch_size), "1", "0")))
horus_times = horus_bytes(A, P, batch_size) / tensors
reveal("40.horus_times", horus_times)
rows = {"predicted, terms": terms, "predicted, Horus": horus_bytes(A, P, batch_size), "measured": tensors}
pd.DataFrame({"MiB": {name: f"{size / 2**20:.3g}" for name, size in rows.items()}})

# %% ex-40-fits [markdown]
"""
A scheduler that believes such a formula lets jobs wait indefinitely: [Clinics](34_clinics.ipynb) takes apart the model for which CARMA's authors saw 111.8 GiB predicted and 1.47 GB used.

### Write: `fits` (8 minutes)

`fits(needs, memory, parts=None)` says whether jobs that need these bytes (`needs`, a list) can run at once on a device of `memory` bytes.

1. `parts` is None: they share all of it.
2. `parts` is a list of bytes: the device is divided so, each job gets a part of its own, and you choose which.

Hint: sort both; and the parts together are no more than the memory.
"""


# %% answer 40.fits
def fits(needs: list[int], memory: int, parts: list[int] | None = None) -> bool:
    """Whether jobs can run at once on a device, shared or in parts."""
    ### BEGIN SOLUTION
    if parts is None:
        return sum(needs) <= memory
    if sum(parts) > memory or len(needs) > len(parts):
        return False
    largest_first = zip(sorted(needs, reverse=True), sorted(parts, reverse=True), strict=False)
    return all(need <= part for need, part in largest_first)
    ### END SOLUTION


# %% check 40.fits points=4
check("40.fits", fits)

# %% checks
GIB = 2**30


def _fits(*needs: float, memory: float = 8, parts: list[float] | None = None) -> Any:
    in_bytes = parts and [int(part * GIB) for part in parts]
    return lambda code: bool(code([int(need * GIB) for need in needs], int(memory * GIB), in_bytes))


EXERCISES["40.fits"] = WrittenExercise(
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
            "In parts no job may use what a neighbour leaves free: each job has to fit into one part."
        ),
        ("sorted(needs, reverse=True), sorted(parts, reverse=True)", "needs, parts"): (
            "Which job gets which part is yours to choose: the largest job into the largest part."
        ),
    },
    hint="Shared: the sum. In parts: as many parts as jobs or more, no more than the memory together, and with both "
    "sorted each job at most as large as its part.",
    explanation="6 GiB of jobs fit into 8 GiB that are shared, and not into two halves: that is what rigid means.",
)

# %% fits-live-prose [markdown]
"""
A process needs more than its tensors: Python, PyTorch and the data count, too. So labkit starts each job by itself for its first steps, and measures. `endings` starts jobs and says how each ended, an empty list where none was started:
"""

# %% fits-refused
from pathlib import Path


def endings(name, jobs):
    plan = labkit.sharing.mix_of(jobs, ["cpu-pinned"], baseline="none", device="cpu")
    try:
        labkit.sharing.collocate(plan, Path(runs_dir, name))
    except labkit.errors.UserError as error:
        print(error)
    groups = sorted(Path(runs_dir, name).glob("*"))
    return list(labkit.sharing.verdict(groups[-1]).jobs["status"]) if groups else []


# %% fits-refused-prose [markdown]
"""
What does labkit do with a sum that does not fit? Two copies that each ask for 60 % of the memory that is free: your function, and labkit's check, which comes before anything starts.
"""

# %% fits-refused-run
free = labkit.hardware.read_cpu().memory_available_bytes
each = int(0.6 * free)
print("fits:", fits([each, each], free))
refused = not endings("refused", f"my_job.py[memory={each // 2**20}MiB] {data} {batch_size} 1 {{seed}} x2")

# %% fits-fails-prose [markdown]
"""
And what if no one checks? Measure what the process of your job needs at its peak, with a batch of 25,000, and take a device of just that, as labkit's budgets count it. Your job fits alone; divided in two, each copy has half. (`smoke` leaves this out.)
"""

# %% fits-fails
ended = {}
if profile != "smoke":
    whole_mib = (
        labkit.sharing.first_steps_bytes(labkit.tracking.ScriptCommand("my_job.py", (data, "25000", "1", "0")), "cpu")
        // 2**20
    )
    ended[1] = endings("one", f"my_job.py[memory={whole_mib}MiB] {data} 25000 1 {{seed}}")
    ended[2] = endings("two", f"my_job.py[memory={whole_mib // 2}MiB] {data} 25000 1 {{seed}} x2")
print("\n".join(f"{copies} at once: {', '.join(own)}" for copies, own in ended.items()))

# %% together-prose [markdown]
"""
## Run them together

Now two copies, which differ in their seed only: first one **alone** with all cores, then both at once on **shared** cores, then each on half of the cores, **pinned**. All jobs of a round wait at a barrier until everyone has loaded data and model, and start together.

Work done together, by that done one after another in the same time, is the *throughput gain*. **What is it on shared cores? And pinned?** 1 is no gain, 2 the most.
"""

# %% together-guess
guess("40.shared", 1.0, "times the work")
guess("40.pinned", 1.0, "times the work")

# %% together-run-prose [markdown]
"""
In profile `smoke` only pinned runs. `labkit collocate --jobs "my_job.py synthetic-small 2048 12 {seed} x2" --mode cpu-shared,cpu-pinned` does the same in a terminal.
"""

# %% together-run
repeats, epochs = {"smoke": (1, 2), "standard": (3, 12), "full": (5, 40)}[profile]
job = f"{data} {batch_size} {epochs} {{seed}}"
ways = ["cpu-pinned"] if profile == "smoke" else ["cpu-shared", "cpu-pinned"]
pair_plan = labkit.sharing.mix_of(f"my_job.py {job} x2", ways, repeats=repeats, baseline="one", device="cpu")
pair = labkit.sharing.verdict(labkit.sharing.collocate(pair_plan, runs_dir))

# %% gain-prose [markdown]
r"""
### Write: `gain` and `fairness` (8 minutes)

With $x_i$ the speed of job $i$ together, by its speed alone, `gain(alone, together)` is $\sum x_i$: the work that all do, in units of one job alone. `fairness(alone, together)` is Jain's index $(\sum x_i)^2 / (n \sum x_i^2)$: 1 where all are slowed alike, $1/n$ where one has everything. Both take two lists of steps a second, one number a job.
"""


# %% answer 40.gain
def gain(alone: list[float], together: list[float]) -> float:
    """Work done together, of that done one after another."""
    ### BEGIN SOLUTION
    return sum(shared / own for own, shared in zip(alone, together, strict=True))
    ### END SOLUTION


# %% check 40.gain points=3
check("40.gain", gain)

# %% checks
ALONE, TOGETHER = [100.0, 50.0, 10.0], [60.0, 20.0, 5.0]


SPEEDS = (
    Case("100, 50 and 10 steps/s alone, 60, 20 and 5 together", lambda code: code(ALONE, TOGETHER)),
    Case("two jobs at half their speed", lambda code: code([8.0, 4.0], [4.0, 2.0])),
    Case("one of four that gets everything", lambda code: code([3.0] * 4, [3.0, 0.0, 0.0, 0.0])),
)


EXERCISES["40.gain"] = WrittenExercise(
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

# %% fairness-prose [markdown]
"""
And how evenly it is shared:
"""


# %% answer 40.fairness
def fairness(alone: list[float], together: list[float]) -> float:
    """Jain's index of the jobs' speeds relative to alone."""
    ### BEGIN SOLUTION
    speeds = [shared / own for own, shared in zip(alone, together, strict=True)]
    return sum(speeds) ** 2 / (len(speeds) * sum(speed**2 for speed in speeds))
    ### END SOLUTION


# %% check 40.fairness points=3
check("40.fairness", fairness)

# %% checks
EXERCISES["40.fairness"] = WrittenExercise(
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

# %% speeds-prose [markdown]
"""
Your functions on what was measured, by mode, with the means over the repeats. An epoch takes as many times longer as each job is slowed; SM activity is there where a GPU told it.
"""

# %% speeds
jobs = pair.jobs.set_index("mode")
alone = jobs.loc[["alone"], "steps_per_s"].mean()
table = jobs.groupby(level=0, sort=False).agg(steps_per_s=("steps_per_s", "mean"), sm_active=("sm_active", "mean"))
table["samples_per_s"] = table["steps_per_s"] * batch_size
table["epoch_s"] = len(log.split("train")) / table["samples_per_s"]
for way in ways:
    speeds = jobs.loc[way, "steps_per_s"].to_numpy().reshape(-1, 2).mean(axis=0)  # of both copies
    table.loc[way, "gain"] = gain([alone] * 2, speeds)
    table.loc[way, "fairness"] = fairness([alone] * 2, speeds)
labkit.plots.show(table.drop(columns="steps_per_s").rename(columns={"sm_active": "SM activity (%)"}))

# %% together-reveal-prose [markdown]
"""
How far off were you? (If other programs disturbed the run alone, there is no answer: run the notebook again when the machine is quiet.)
"""

# %% together-reveal
disturbed = table["epoch_s"].idxmin() != "alone"  # no job is faster together than alone
reveal("40.shared", None if disturbed else table["gain"].get("cpu-shared"))
reveal("40.pinned", None if disturbed else table["gain"].get("cpu-pinned"))

# %% figure-prose [markdown]
"""
labkit's own verdict compares each repeat with its own runs alone, in the seconds in which all jobs ran, and draws the gain against its price. On the dotted curve of 2 jobs, gain × slowdown = 2: both are slowed alike, and every point is on it or above. To the left of where it meets the line "no gain", sharing pays; further to the right each job waits more than twice as long, and the device does less than one job alone.
"""

# %% figure
two = pair.modes[pair.modes["jobs"] == 2]
labkit.plots.show(apparatus.figure_gain_against_slowdown(two))

# %% prose-40-why-gain [markdown]
"""
### Explain

In two or three sentences: what did sharing gain here, what did it cost each job, and *why* was there something to gain at all? Name numbers of the table.
"""

# %% explain 40.why_gain points=2
### BEGIN SOLUTION
answer = model_answer("40.why_gain")
### END SOLUTION
explain("40.why_gain", answer)

# %% checks
EXERCISES["40.why_gain"] = Explanation(
    rubric=(
        "numbers: the gain and the slowdown of one mode, of this run",
        "why: what a job alone leaves idle (a second core gives it less than twice the speed)",
        "trade-off: all together do more, each one waits longer; for whom that is worth it",
    ),
    model="Pinned, two jobs together did more work than one after another (the gain is above 1), though each took "
    "longer than alone (the slowdown is above 1, too), because alone a second core makes this small model far less "
    "than twice as fast. It pays for who waits for all jobs, and not for who waits for the first one.",
)

# %% second-core-prose [markdown]
"""
## What is a partition worth?

Two things are still mixed up: how much slower a job is on half of the cores, and how much it is disturbed by a neighbour there. So run one copy on a single core with **nothing** on the other. **How many times as fast is your job alone with all cores as with one?**
"""

# %% second-core-guess
guess("40.cores", 1.8, "times as fast")

# %% second-core-run-prose [markdown]
"""
The same job, pinned to one core, by itself; in `smoke` it is left out.
"""

# %% second-core
nan = float("nan")
one_core, cores_worth, interference = nan, nan, nan
if profile != "smoke":
    single = labkit.sharing.mix_of(
        f"my_job.py[cores=1] {job}", ["cpu-pinned"], repeats=repeats, baseline="none", device="cpu"
    )
    one_core = labkit.sharing.verdict(labkit.sharing.collocate(single, runs_dir)).jobs["steps_per_s"].mean()
    cores_worth = alone / one_core
    interference = one_core / jobs.loc["cpu-pinned", "steps_per_s"].mean()  # of two cores: one core each
reveal("40.cores", cores_worth)
print(f"next to a neighbour, on a core of its own: {interference:.2f} times as long")

# %% dynamic-prose [markdown]
"""
## Jobs that are not alike

On CPUs pinned cores usually win for jobs that are alike. The paper's abstract says why MIG still does not win on GPUs: partitions lead to "sub-optimal GPU utilization with dynamic or mixed workloads". So build that mix: one long job, and three short ones that arrive one after another. Pinned, each job gets half of the cores for itself, and `labkit run --budget half` waits until they are free, as a job waits for a slice of MIG; shared, all of them run on all cores.

**How many times as long does the whole mix take pinned as shared?** (The makespan: until the last job ends.)
"""

# %% dynamic-guess
guess("40.rigid", 1.3, "times as long")

# %% dynamic-run-prose [markdown]
"""
The long job first, then a short one every four seconds; the makespan ends with the last of the four.
"""

# %% dynamic-mix
import subprocess
import sys
import time


def mix_s(*budget):
    command, jobs, began = [sys.executable, "-m", "labkit", "run", *budget, "my_job.py"], [], time.perf_counter()
    for count in (4 * epochs, *[epochs // 2] * 3):
        jobs.append(subprocess.Popen([*command, data, str(batch_size), str(count), "0"], stdout=subprocess.DEVNULL))
        time.sleep(4)
    return time.perf_counter() - began if not any([job.wait() for job in jobs]) else nan


# %% dynamic-pairs-prose [markdown]
"""
Pairs, pinned and shared in turns. In `smoke` they are left out.
"""

# %% dynamic
rigid, mixes = nan, pd.DataFrame(columns=["pinned (s)", "shared (s)"])
if profile != "smoke":
    turns = [(mix_s("--budget", "half"), mix_s()) for _ in range(repeats)]
    mixes = pd.DataFrame(turns, columns=mixes.columns)
    rigid = (mixes["pinned (s)"] / mixes["shared (s)"]).median()
reveal("40.rigid", rigid)
labkit.plots.show(mixes)

# %% prose-40-why-rigid [markdown]
"""
### Explain

Which of the two was done first, and why? Say what idles in one mode and what the jobs do to each other in the other, and what that would be with a job that uses a second core well (try `batch_size = 16384` in the parameters).
"""

# %% explain 40.why_rigid points=2
### BEGIN SOLUTION
answer = model_answer("40.why_rigid")
### END SOLUTION
explain("40.why_rigid", answer)

# %% checks
EXERCISES["40.why_rigid"] = Explanation(
    rubric=(
        "numbers: the makespan of the unequal jobs, pinned and shared",
        "why: pinned, the short jobs wait for their half, which idles after them; shared, the long job may use it",
        "trade-off: against interference and threads that wait for each other on shared cores",
    ),
    model="Pinned, the half of the short jobs idles before, between and after them, and the long job stays on its "
    "own; shared, it gets all cores. Whether the makespan is shorter shared depends on what the second core is "
    "worth to the long job, and on what the threads cost each other before: for a small model that can be more "
    "than the idle half.",
)

# %% gpu-prose [markdown]
"""
## On a GPU

Where there is one, labkit's own recommendation model, twice, under each mode that is possible, with the SM activity of the whole device. MIG needs slices: `labkit collocate --mode mig` proposes a layout.
"""

# %% gpu
able = [mode for mode in ("naive", "mps") if modes[mode] is None]
print("\n".join(f"Not run: {modes[mode]}." for mode in ("naive", "mps") if mode not in able))
on_gpu = pd.DataFrame(columns=["mode", "steps_per_s", "sm_active"])
if able:
    plan = labkit.sharing.mix_of("dlrm:tour x2", able, repeats=repeats, seconds=10, baseline="one")
    on_gpu = labkit.sharing.verdict(labkit.sharing.collocate(plan, runs_dir)).jobs
means = on_gpu.groupby("mode", sort=False)[["steps_per_s", "sm_active"]].mean()
labkit.plots.show(means.rename(columns={"sm_active": "SM activity (%)"}))

# %% judge-prose [markdown]
"""
## Judge

Each card sets a paper's sentence next to your numbers. A verdict is one of "holds here", "does not hold here" and "cannot be tested here"; say where a CPU only stands for a GPU. Where other programs disturbed the runs, say that it cannot be tested.
"""

# %% judge-words
from labkit_course import claim


def times(ratio):
    return f"{ratio:.2f} times" if ratio == ratio else "not run, so not"


of = f"{repeats} repeats, {batch_size} rows a batch, {data}"
best, untested = table["gain"].idxmax(), "cannot be tested here"
longer = table.loc[best, "epoch_s"] / table.loc["alone", "epoch_s"]
by_memory = ended.get(2, []).count("out_of_memory")
words_c3 = f"on {whole_mib} MiB one {ended[1][0]}, {by_memory} of two out of memory" if ended else "the rest not run"

# %% prose-claim-C1 [markdown]
"""
Does one training saturate the device? The second core stands for the rest of a GPU.
"""

# %% claim C1 points=1
said = f"all cores {times(cores_worth)} as fast as one, {of}"
### BEGIN SOLUTION
saturates = "does not hold here" if cores_worth > 1.8 else "holds here"
verdict_c1 = untested if disturbed or cores_worth != cores_worth else saturates
answer = verdict_c1, "a CPU analogue: a job that saturates its device would be twice as fast on two cores as on one"
### END SOLUTION
claim("C1", said, answer)

# %% prose-claim-C2 [markdown]
"""
Is there more throughput, though an epoch takes longer?
"""

# %% claim C2 points=1
said = f"{best}: {table['gain'][best]:.2f} times the work, an epoch {longer:.2f} times as long, {of}"
### BEGIN SOLUTION
verdict_c2 = "holds here" if table["gain"][best] > 1.1 and longer > 1 else "does not hold here"
answer = untested if disturbed else verdict_c2, "a CPU analogue with two jobs, so that 2 is the most"
### END SOLUTION
claim("C2", said, answer)

# %% prose-claim-C3 [markdown]
"""
Must the sum of the memory fit?
"""

# %% claim C3 points=1
said = f"{2 * each / 2**30:.3g} GiB of {free / 2**30:.3g} GiB free {'refused' if refused else 'begun'}; {words_c3}"
### BEGIN SOLUTION
fails = ended.get(1) == ["done"] and by_memory == 2
needs_the_sum = "holds here" if refused and fails else "does not hold here"
verdict_c3 = needs_the_sum if ended else untested
answer = verdict_c3, "two jobs that do not fit together are refused, or end for want of memory; one of them runs"
### END SOLUTION
claim("C3", said, answer)

# %% prose-claim-C4 [markdown]
"""
Is a partition free of interference? Pinned cores share caches and memory bandwidth, which MIG's slices do not.
"""

# %% claim C4 points=1
said = f"{times(interference)} as long next to a neighbour on the other core, {of}"
### BEGIN SOLUTION
free_of_it = "holds here" if interference < 1.05 else "does not hold here"
verdict_c4 = untested if disturbed or interference != interference else free_of_it
answer = verdict_c4, "a CPU analogue: a core of one's own is not a cache and a memory channel of one's own"
### END SOLUTION
claim("C4", said, answer)

# %% prose-claim-C5 [markdown]
"""
Is a rigid partition worse for jobs that come and go?
"""

# %% claim C5 points=1
said = f"pinned {times(rigid)} the makespan of shared, {of}"
### BEGIN SOLUTION
worse = "holds here" if rigid > 1.05 else "does not hold here"
verdict_c5 = untested if disturbed or rigid != rigid else worse
answer = verdict_c5, "a CPU analogue: one long job, three short ones that arrive, and a core that idles after them"
### END SOLUTION
claim("C5", said, answer)

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
    horus_times=(horus_times, 1.5, 1e4),
    gain_pinned=(table["gain"]["cpu-pinned"], 0.02, 20),
    fairness_pinned=(table["fairness"]["cpu-pinned"], 0.4, 1.0001),
    cores_worth=(None if profile == "smoke" else cores_worth, 0.02, 50),
    rigid=(None if profile == "smoke" else rigid, 0.02, 50),
)

# %% recap [markdown]
"""
## Recap

- Sharing trades the wait of each job for the work of all: gain × slowdown is at least the number of jobs.
- Memory decides first whether jobs may share. Measure a job's first steps instead of trusting a formula.
- What there is to gain is what a job alone leaves idle; measure it before you share.
- Partitions keep jobs apart and waste what a job does not use; sharing does the opposite. Which wins depends on the mix.
- Compare with the same jobs alone, in the same session, more than once.

**Next:** [When a neighbour fails](41_when_a_neighbour_fails.ipynb)
"""

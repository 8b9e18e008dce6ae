# %% cell-00 [markdown] packages="scipy" disk_gb=0.5
"""
# Sharing a device

After this notebook you will be able to

- **count** the memory of a training job before it runs, and **say** whether a set of jobs fits on a device;
- **measure** what sharing gains, what it costs each job, and how sure that is;
- **predict** when a set of unequal jobs is done, on shared and on divided cores, and **test** the prediction;
- **judge** two sentences of a paper, and **say** which of its sentences a CPU cannot test.

**Time:** 105 minutes, in two halves that stand alone (*Does it fit?* and *Run them together*). The machine computes for about seven of them on 2 CPU cores. A GPU is used if there is one.

**Prerequisites:** [Budgets that bind](02_budgets_that_bind.ipynb) and [Train a DLRM to a target](10_train_dlrm.ipynb).
"""

# %% checks
from random import Random
from typing import Any

import torch
from torch import nn

from labkit_course.exercise import Case, Explanation, WrittenExercise

MODULE = "sharing"
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

A training job seldom uses all of its device. Robroek et al. (*An Analysis of Collocation on GPUs for Deep Learning Training*, EuroMLSys 2024) ran 1, 2, 3 and 7 trainings at once on an A100. Small models together did up to 3 times the work. Large models gained next to nothing.

Two jobs can share a GPU in three ways:
"""

# %% sharing-drawing
import labkit
import labkit_course

labkit_course.drawing("sharing")

# %% modes-prose [markdown]
"""
On a CPU there are two. In mode `cpu-shared` both jobs run on all cores. In mode `cpu-pinned` each has half of the cores and half of the memory. Pinning is only an analogue of MIG: pinned jobs still share caches and memory channels. This is what your machine can do:
"""

# %% modes
modes = labkit.sharing.modes_here(labkit.hardware.get_devices())
print("\n".join(f"{mode:11} {why_not or 'is possible here'}" for mode, why_not in modes.items()))

# %% script-prose [markdown]
"""
## A job of your own

What is shared here is *your* model from exercise 10.model. (If you have none, labkit's takes its place.) A scheduler starts programs, so the job becomes a program that takes its settings from the command line. The next two cells write it into a folder of its own.
"""

# %% script-folder
from pathlib import Path

program = Path(runs_dir, "programs", "my_job.py")
program.parent.mkdir(parents=True, exist_ok=True)

# %% script-text [markdown]
"""
`train_clicks` seeds PyTorch, builds the model for a click log, and trains it with Adam in a `labkit.Run`, as your loop of lab 10 does. It evaluates nothing.
"""

# %% script


# %%writefile {program}
import sys

from labkit_course import apparatus, mine

data, batch_size, epochs, seed = sys.argv[1:]
apparatus.train_clicks(mine("10.model"), data, int(batch_size), int(epochs), int(seed))

# %% memory-prose [markdown]
"""
## Does it fit?

Two jobs can share a device only if both fit into its memory *together*. A job that runs out of memory loses all its work. So a scheduler wants to know a job's memory before it starts.

### Write: `training_bytes` (20 minutes)

`training_bytes(model, batch_size, *inputs)` gives the bytes that training takes in single precision, as a dictionary with four keys:

- `"weights"`, `"gradients"` and `"moments"`: of all parameters; Adam keeps two moments for each.
- `"activations"`: what the layers put out for a whole batch, kept for the backward pass.

`inputs` are what the model is called with. They have fewer samples than a batch: the first dimension of each is their number.

1. Put a forward hook on every module without children. It notes how many numbers the module puts out.
2. Run the model without gradients, and remove the hooks.
3. Scale the activations from the samples of `inputs` to `batch_size`.

Hint: `module.register_forward_hook(f)` calls `f(module, inputs, output)`. It returns a handle, which has `.remove()`.
"""

# %% answer 40.memory
import torch
from torch import Tensor, nn


def training_bytes(model: nn.Module, batch_size: int, *inputs: Tensor) -> dict[str, float]:
    """Bytes that training takes, by what they hold."""
    ### BEGIN SOLUTION
    put_out = []
    leaves = [module for module in model.modules() if not list(module.children())]
    hooks = [leaf.register_forward_hook(lambda module, given, out: put_out.append(out.numel())) for leaf in leaves]
    with torch.no_grad():
        model(*inputs)
    for hook in hooks:
        hook.remove()
    weights = 4 * sum(parameter.numel() for parameter in model.parameters())
    activations = 4 * sum(put_out) / len(inputs[0]) * batch_size
    return {"weights": weights, "gradients": weights, "moments": 2 * weights, "activations": activations}
    ### END SOLUTION


# %% check 40.memory points=5
from labkit_course import check

check("40.memory", training_bytes)


# %% checks
def _net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 2), nn.ReLU()))


def _twice(code: Any) -> dict[str, Any]:
    """A second count, and how many hooks are left."""
    model = _net()
    code(model, 5, torch.ones(5, 3))
    return code(model, 5, torch.ones(5, 3)) | {"hooks left": sum(len(each._forward_hooks) for each in model.modules())}


def _counted(model: nn.Module, batch_size: int, *inputs: torch.Tensor) -> dict[str, float]:
    numbers = {"activations": 0.0}

    def note(module, given, out):
        numbers["activations"] += out.nelement() * out.element_size()

    handles = []
    for module in model.modules():
        if len(list(module.children())) == 0:
            handles.append(module.register_forward_hook(note))
    with torch.no_grad():
        model(*inputs)
    for handle in handles:
        handle.remove()
    numbers["activations"] *= batch_size / inputs[0].shape[0]
    for name, times in (("weights", 1), ("gradients", 1), ("moments", 2)):
        numbers[name] = times * sum(each.numel() * each.element_size() for each in model.parameters())
    return numbers


EXERCISES["40.memory"] = WrittenExercise(
    training_bytes,
    Case("layers of 4 and 2, each with ReLU; 5 samples, batch 5", lambda code: code(_net(), 5, torch.ones(5, 3))),
    Case("the same, 2 samples, batch 64", lambda code: code(_net(), 64, torch.ones(2, 3))),
    Case("two inputs", lambda code: code(nn.Bilinear(3, 3, 7), 10, torch.ones(2, 3), torch.ones(2, 3))),
    Case("the same model twice", _twice),
    mistakes={
        (" if not list(module.children())", ""): (
            "A module with children puts out what its last child does: hook the others alone, or numbers count twice."
        ),
        (" / len(inputs[0]) * batch_size", ""): "The activations are those of the inputs; scale them to the batch.",
        ("hook.remove()", "pass"): "Hooks are left on the model after your function: remove each.",
    },
    variants=(_counted,),
    hint="How many numbers does each module put out, and how many are there of each parameter? What grows with the "
    "batch, and what does not? A number of single precision has four bytes.",
    explanation="Activations grow with the batch; weights, gradients and moments do not.",
)

# %% horus-guess-prose [markdown]
r"""
*Horus* (Yeung et al., 2022) is a scheduler that predicts a job's memory by a formula. As the repository of CARMA ([arXiv 2508.19073](https://arxiv.org/abs/2508.19073)) computes it, with $A$ activations per sample, $P$ parameters and a batch of $B$, a job takes

$$4 \cdot (A B + P + B P) \text{ bytes.}$$

The last term counts a gradient of every parameter for every sample. A framework keeps one gradient for the whole batch. **How many times as many bytes does the formula predict as your job's tensors really take?**
"""

# %% horus-guess
from labkit_course import explain, guess, mine, model_answer, paired_times, reveal

guess("40.horus_times", 5.0, "times")

# %% counted-prose [markdown]
"""
The cell counts your model on paper, by your function and by Horus' formula.
"""

# %% counted
from labkit_course import apparatus

data = "synthetic-small"
model, batches = apparatus.small_dlrm(mine("10.model"), data, 64, 0)
dense, categorical, _ = next(iter(batches))
parts = training_bytes(model, batch_size, dense, categorical)
horus = parts["activations"] + parts["weights"] + batch_size * parts["gradients"]

# %% measured-prose [markdown]
"""
The next cell measures. Your program takes three steps in a process of its own, while every allocation of a tensor is counted.
"""

# %% measured
import pandas as pd

tensors = apparatus.counted_bytes(labkit.tracking.ScriptCommand(str(program), (data, str(batch_size), "1", "0")))
counts = {"predicted, yours": sum(parts.values()), "predicted, Horus": horus, "measured": tensors}
reveal("40.horus_times", horus / tensors)
pd.DataFrame({"MiB": {name: f"{size / 2**20:.3g}" for name, size in counts.items()}})

# %% ex-40-fits [markdown]
"""
A scheduler that believes such a formula lets jobs wait for memory that they will never use.

### Write: `fits` (10 minutes)

`fits(needs, memory, parts=None)` says whether jobs can run at once on a device of `memory` bytes. `needs` is a list of the bytes that they need.

1. If `parts` is None, they share all of it.
2. If `parts` is a list of bytes, the device is divided. Each job gets a part of its own, and you choose which. The parts together may not exceed the memory.
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


def _fits(code: Any, *needs: float, memory: float = 8, parts: list[float] | None = None) -> Any:
    in_bytes = parts and [int(part * GIB) for part in parts]
    return bool(code([int(need * GIB) for need in needs], int(memory * GIB), in_bytes))


def _fits_greedily(needs: list[int], memory: int, parts: list[int] | None = None) -> bool:
    """The largest job first takes the smallest part that is large enough."""
    if parts is None:
        return memory >= sum(needs)
    left = sorted(parts)
    for need in sorted(needs)[::-1]:
        large = [part for part in left if part >= need]
        if not large:
            return False
        left.remove(large[0])
    return sum(parts) <= memory


EXERCISES["40.fits"] = WrittenExercise(
    fits,
    Case("5 and 3 GiB on 8", _fits, 5, 3),
    Case("5 and 4 GiB on 8", _fits, 5, 4),
    Case("5 and 1 GiB in two halves of 8", _fits, 5, 1, parts=[4, 4]),
    Case("1 and 5 GiB in parts of 6 and 2", _fits, 1, 5, parts=[6, 2]),
    Case("5 and 1 GiB in parts of 2 and 6", _fits, 5, 1, parts=[2, 6]),
    Case("three jobs and two parts", _fits, 1, 1, 1, parts=[4, 4]),
    Case("two jobs and three parts, the first of which is small", _fits, 3, 2, parts=[1, 3, 4]),
    Case("parts that are more than there is", _fits, 1, 1, parts=[6, 4]),
    Case("no job", _fits),
    mistakes={
        ("sum(needs) <= memory", "all(need <= memory for need in needs)"): (
            "Each fits by itself. They run at once: the sum counts."
        ),
        ("all(need <= part for need, part in largest_first)", "sum(needs) <= sum(parts)"): (
            "In parts no job may use what a neighbour leaves free: each job has to fit into one part."
        ),
        ("sorted(needs, reverse=True), sorted(parts, reverse=True)", "needs, parts"): (
            "Which job gets which part is yours to choose: an order of jobs or parts must not decide."
        ),
    },
    variants=(_fits_greedily,),
    hint="Shared: all of them together. In parts: are there enough parts, does the device have them, and which part "
    "would you give to the largest job?",
    explanation="6 GiB of jobs fit into 8 GiB that are shared, and not into two halves: that is what rigid means.",
)

# %% fits-live-prose [markdown]
"""
A process needs more than its tensors: Python, PyTorch and the data count, too. So labkit runs the first steps of each job by itself, and measures. `endings` starts jobs, and says how each ended.
"""


# %% fits-refused
def endings(name, jobs):
    plan = labkit.sharing.mix_of(jobs, ["cpu-pinned"], baseline="none", device="cpu")
    try:
        labkit.sharing.collocate(plan, Path(runs_dir, name))
    except labkit.errors.UserError as error:
        print(error)
    groups = sorted(Path(runs_dir, name).glob("*"))
    return list(labkit.sharing.verdict(groups[-1]).jobs["status"]) if groups else ["not started"]


# %% fits-live-run [markdown]
"""
Two copies that each ask for 60 % of the free memory do not fit, and labkit starts neither. Without that check? Take the memory that one job of batch 25,000 needs: the job fits alone, and if two copies divide it, each has half. (`smoke` skips this. Square brackets hold what a job asks for, `x2` means two copies, and labkit replaces `{seed}`.)
"""

# %% fits-fails
each_mib = int(0.6 * labkit.hardware.read_cpu().memory_available_bytes) // 2**20
refused = endings("refused", f"{program}[memory={each_mib}MiB] {data} {batch_size} 1 {{seed}} x2")
ended = {"60 % each, twice": refused}
if profile != "smoke":
    command = labkit.tracking.ScriptCommand(str(program), (data, "25000", "1", "0"))
    whole = labkit.sharing.first_steps_bytes(command, "cpu") // 2**20
    ended["all of it, once"] = endings("one", f"{program}[memory={whole}MiB] {data} 25000 1 {{seed}}")
    ended["half of it each, twice"] = endings("two", f"{program}[memory={whole // 2}MiB] {data} 25000 1 {{seed}} x2")
print("\n".join(f"{memory}: {', '.join(statuses)}" for memory, statuses in ended.items()))

# %% together-prose [markdown]
"""
## Run them together

Now two copies, which differ only in their seed. Each repeat has three rounds: one copy **alone** on all cores, two at once on **shared** cores, and two **pinned** to half of the cores each. In a round the jobs wait for each other until all have loaded their data and model.

The *gain* is the work that all jobs do together, divided by the work that one job alone does in the same time. 1 is no gain, 2 the most that two jobs can have. **What is it on shared cores, and what if the jobs are pinned?**

The paper's sentence, "up to three times training throughput despite increased epoch time", is claim C2. Take the mode with the larger gain. C2 holds here if the whole 95 % interval of the gain lies above 1.05 and that of the slowdown above 1. It does not hold if the interval of the gain lies below 1.05. Otherwise these repeats cannot test it. Why 1.05? labkit's packer lets a job join for a gain of 5 %; less is not worth a neighbour's faults.
"""

# %% together-guess
guess("40.shared", 1.0, "times the work")
guess("40.pinned", 1.0, "times the work")

# %% together-run-prose [markdown]
"""
The profile `smoke` runs only the pinned round, once. Close other programs: a round that they disturb is named below the table.
"""

# %% together-run
repeats, epochs = {"smoke": (1, 1), "standard": (3, 12), "full": (5, 40)}[profile]
ways = ["cpu-pinned"] if profile == "smoke" else ["cpu-shared", "cpu-pinned"]
copies = f"{program} {data} {batch_size} {epochs} {{seed}} x2"
pair_plan = labkit.sharing.mix_of(copies, ways, repeats=repeats, baseline="one", device="cpu")
pair = labkit.sharing.verdict(labkit.sharing.collocate(pair_plan, runs_dir))

# %% gains-prose [markdown]
r"""
### Write: `gains` (18 minutes)

`gains(rows)` turns steps per second into what sharing gained. `rows` are tuples of mode, repeat and the speed of one job (steps/s). Repeats come one after another, modes in any order. Each repeat has one row of mode `"alone"`, and one row for each job in the other modes. The result has for each mode but alone a list with a tuple for each repeat.

With $x_i$ the speed of job $i$ together, divided by the speed alone *in the same repeat*, the tuple holds

1. the gain, $\sum x_i$;
2. the slowdown: the mean over the jobs of how many times as long each takes as alone;
3. the fairness, which is Jain's index $(\sum x_i)^2 / (n \sum x_i^2)$: 1 if all are slowed alike, $1/n$ if one job has everything.
"""


# %% answer 40.gains
def gains(rows: list[tuple[str, int, float]]) -> dict[str, list[tuple[float, float, float]]]:
    """Gain, slowdown and fairness of each repeat, by mode."""
    ### BEGIN SOLUTION
    alone = {repeat: speed for mode, repeat, speed in rows if mode == "alone"}
    rounds = {}
    for mode, repeat, speed in rows:
        if mode != "alone":
            rounds.setdefault(mode, {}).setdefault(repeat, []).append(speed / alone[repeat])
    found = {}
    for mode, repeats in rounds.items():
        found[mode] = []
        for x in repeats.values():
            slowdown = sum(1 / each for each in x) / len(x)
            found[mode].append((sum(x), slowdown, sum(x) ** 2 / (len(x) * sum(each**2 for each in x))))
    return found
    ### END SOLUTION


# %% check 40.gains points=5
check("40.gains", gains)


# %% checks
def _with_pandas(rows: list[tuple[str, int, float]]) -> dict[str, list[tuple[float, float, float]]]:
    import pandas as pd

    frame = pd.DataFrame(rows, columns=["mode", "repeat", "speed"])
    alone = frame[frame["mode"] == "alone"].set_index("repeat")["speed"]
    together = frame[frame["mode"] != "alone"]
    together = together.assign(x=together["speed"] / together["repeat"].map(alone))
    found = {}
    for (mode, _), own in together.groupby(["mode", "repeat"], sort=False):
        x = own["x"].to_numpy()
        found.setdefault(mode, []).append((x.sum(), (1 / x).mean(), x.sum() ** 2 / (len(x) * (x**2).sum())))
    return found


def _speeds(random: Random) -> list[Case]:
    def speed(low: float) -> float:
        return round(random.uniform(low, 2 * low), 1)

    one = [("alone", 1, speed(80)), ("shared", 1, speed(40)), ("shared", 1, speed(20))]
    three = [("pinned", 1, speed(30)) for _ in range(3)]
    again = [("shared", 2, speed(30)), ("alone", 2, speed(120)), ("shared", 2, speed(30))]
    return [
        Case("one repeat, two jobs on shared cores", lambda code: code(one)),
        Case("three jobs, pinned", lambda code: code([*three, ("alone", 1, 100.0)])),
        Case("two modes and two repeats", lambda code: code([*three, *one, *again])),
    ]


EXERCISES["40.gains"] = WrittenExercise(
    gains,
    draw=_speeds,
    mistakes={
        ("speed / alone[repeat]", "speed / (sum(alone.values()) / len(alone))"): (
            "The machine may be slower in one repeat than in another: compare with the run alone of the same repeat."
        ),
        ("sum(1 / each for each in x) / len(x)", "len(x) / sum(x)"): (
            "The mean of how many times as long each takes is not the inverse of the mean speed."
        ),
        ("(len(x) * ", "("): "Your fairness is not 1 where all jobs are slowed alike.",
    },
    variants=(_with_pandas,),
    hint="First find the speed alone of each repeat, then the x of each mode and repeat, and last three numbers for "
    "each list of x.",
    explanation="Each repeat is compared with its own run alone, so a slow minute of the machine slows both.",
)

# %% speeds-prose [markdown]
"""
The next cells apply your function to what was measured. They give geometric means over the repeats with 95 % intervals, as in lab 02. Are three repeats enough? `runs_needed` says how many find a gain of 5 % in four of five studies, with the spread that you measured.
"""


# %% speeds
import numpy as np


def interval(values):
    """Geometric mean of ratios, and the ends of its 95 % interval."""
    return np.exp(labkit.tta.mean_interval(np.log(list(values))))


def words(values):
    return "{:.2f} ({:.2f} to {:.2f})".format(*interval(values)) if len(values) > 1 else f"{values[0]:.2f} (one repeat)"


# %% speeds-text [markdown]
"""
The slowdown is also how many times as long an epoch takes, and fairness 1 means that both jobs are slowed alike.
"""

# %% speeds-table
rows = list(pair.jobs[["mode", "repeat", "steps_per_s"]].itertuples(index=False, name=None))
columns = ["gain", "slowdown", "fairness"]
measured = {mode: pd.DataFrame(rounds, columns=columns) for mode, rounds in gains(rows).items()}
pinned = measured["cpu-pinned"]["gain"]
disturbed = labkit.sharing.disturbed_rounds(pair.jobs)
print("\n".join(f"round {number} was disturbed: {what}" for number, what in disturbed.items()))
if repeats > 1:
    print("repeats for a gain of 5 %:", labkit.tta.runs_needed(np.log(pinned).std(), np.log(1.05)))
pd.DataFrame({mode: own.apply(words) for mode, own in measured.items()}).T

# %% together-reveal-prose [markdown]
"""
How far off were you? The figure draws the gain against its price. On the dotted curve of two jobs, gain × slowdown = 2: both are slowed alike. To the left of the point where it meets the line "no gain", sharing pays.
"""

# %% figure
from statistics import mean

reveal("40.shared", measured["cpu-shared"]["gain"].mean() if "cpu-shared" in measured else None)
reveal("40.pinned", pinned.mean())
labkit.plots.show(apparatus.figure_gain_against_slowdown(pair.modes[pair.modes["jobs"] == 2]))

# %% second-core-prose [markdown]
"""
## What does a second core say?

Two things are still mixed up: how much slower a job is on half of the cores, and how much a neighbour disturbs it there. So run one copy on a single core, with nothing on the others. **How many times as fast is your job alone with all cores as with one?**
"""

# %% second-core-guess
guess("40.cores", 1.8, "times as fast")

# %% second-core-run-prose [markdown]
"""
The cell pins one copy to one core, in as many repeats as above. (`smoke` skips it.)
"""

# %% second-core
cores_worth = []
if profile != "smoke":
    one_copy = f"{program}[cores=1] {data} {batch_size} {epochs} {{seed}}"
    single = labkit.sharing.mix_of(one_copy, ["cpu-pinned"], repeats=repeats, baseline="none", device="cpu")
    own = labkit.sharing.verdict(labkit.sharing.collocate(single, runs_dir)).jobs["steps_per_s"]
    alone = pair.jobs.loc[pair.jobs["mode"] == "alone", "steps_per_s"]
    cores_worth = [whole / one for whole, one in zip(alone, own, strict=True)]
    print("all cores:", words(cores_worth), "times as fast as one")
reveal("40.cores", mean(cores_worth) if cores_worth else None)

# %% second-core-reading [markdown]
"""
A job that is only 1.2 times as fast on two cores need not have left the second one free: if the memory channels were full, a second core would add as little. So this number alone does not show that the device has something to spare. The *pinned gain* does: a second job really did its work there.
"""

# %% prose-40-why-gain [markdown]
"""
### Explain

In two or three sentences: did sharing gain anything here, what did it cost each job, and *why* was there something to gain? Which of your measurements shows that it was there?
"""

# %% explain 40.why_gain points=2
### BEGIN SOLUTION
answer = model_answer("40.why_gain")
### END SOLUTION
explain("40.why_gain", answer)

# %% checks
EXERCISES["40.why_gain"] = Explanation(
    "numbers: gain and slowdown of one mode, and how many times as fast all cores are as one",
    "why: a job alone cannot use the second core well, and that a second job can shows in the pinned gain: "
    "memory channels or caches were not full",
    "trade-off: all together do more and each one waits longer; for whom that is worth it",
    model="Pinned, two jobs did 1.85 times the work of one (1.37 to 2.49), and each took 1.08 times as long as alone. Alone, "
    "both cores were 0.97 times as fast as one (0.72 to 1.31); that could also mean full memory channels, but then a second "
    "job would not have added 85 %. So the small operators of this model leave a core waiting. It pays if you wait for both "
    "jobs, not if you wait for the first.",
    half="Pinned, the two jobs did 1.85 times the work, because a job alone is only 0.97 times as fast on two cores as "
    "on one, so the second core was free. (Numbers and a reason, though not the measurement that shows it; nothing of "
    "what it costs a job.)",
)

# %% dynamic-prose [markdown]
"""
## Jobs that are not alike

The paper's abstract says that MIG's partitions lead to "sub-optimal GPU utilization with dynamic or mixed workloads". So build such a mix: one long job, and three short ones that come one after another. Pinned, each job gets half of the cores; a job for which no half is free waits, as it would wait for a slice of MIG. Shared, all of them run at once on all cores.

**How many times as long does the whole mix take pinned as it takes shared?** (The mix ends with its last job.)

The paper's sentence is claim C5. It holds here if the whole 95 % interval of this ratio lies above 1.05, and does not hold if it lies below. Otherwise these repeats cannot test it.
"""

# %% dynamic-guess
guess("40.rigid", 1.3, "times as long")

# %% ex-40-makespan [markdown]
"""
### Write: `makespan` (22 minutes)

Predict it first. `makespan(jobs, slots, speed)` gives the time (s) at which the last job ends. `jobs` are tuples of when a job arrives and how long it takes alone (s), in the order of arrival. At most `slots` jobs run at once; the others wait, and start in the order of arrival. While n jobs run, each of them works at `speed(n)` times its speed alone.

1. Start the jobs that have arrived, as long as there is a free slot.
2. Find the next moment at which something changes: a job ends, or one arrives.
3. Move to that moment, and take from each running job the work that it did. A job ends with less than a nanosecond of work left.
4. Repeat until no job runs or waits.
"""

# %% answer 40.makespan
from collections.abc import Callable


def makespan(jobs: list[tuple[float, float]], slots: int, speed: Callable[[int], float]) -> float:
    """When the last job ends."""
    ### BEGIN SOLUTION
    waiting, running, now = list(jobs), [], 0.0
    while waiting or running:
        while waiting and waiting[0][0] <= now and len(running) < slots:
            running.append(waiting.pop(0)[1])
        rate = speed(len(running)) if running else 0.0
        changes = [now + left / rate for left in running]
        if waiting and waiting[0][0] > now:
            changes.append(waiting[0][0])
        then = min(changes)
        running = [left - rate * (then - now) for left in running]
        running = [left for left in running if left > 1e-9]
        now = then
    return now
    ### END SOLUTION


# %% check 40.makespan points=5
check("40.makespan", makespan)


# %% checks
def _by_events(jobs: list[tuple[float, float]], slots: int, speed: Any) -> float:
    """All jobs in one list, with the work that is left of each."""
    left = [float(work) for _, work in jobs]
    now = 0.0
    while True:
        there = [n for n, (arrives, _) in enumerate(jobs) if arrives <= now and left[n] > 1e-9][:slots]
        later = [arrives for arrives, _ in jobs if arrives > now]
        if not there and not later:
            return now
        step = min([left[n] / speed(len(there)) for n in there] + [arrives - now for arrives in later])
        for n in there:
            left[n] -= step * speed(len(there))
        now += step if step > 1e-12 else 1e-12


def _mixes(random: Random) -> list[Case]:
    long, short = random.uniform(20, 30), [random.uniform(2, 6) for _ in range(4)]
    mix = [(0.0, long), (1.0, short[0]), (2.5, short[1]), (4.0, short[2])]
    apart = [(0.0, short[0]), (40.0, short[1]), (41.0, short[2])]
    six = [(0.0, short[n % 4]) for n in range(6)]
    return [
        Case("one job that arrives after 3 s", lambda code: code([(3.0, short[0])], 2, lambda n: 1.0)),
        Case("two jobs, one slot", lambda code: code([(0.0, short[0]), (0.0, short[1])], 1, lambda n: 1.0)),
        Case("a mix on two devices", lambda code: code(mix, 2, lambda n: 1.0)),
        Case("a mix, pinned to halves", lambda code: code(mix, 2, lambda n: 0.8)),
        Case("the mix on shared cores", lambda code: code(mix, 4, lambda n: min(1.0, 1.4 / n))),
        Case("jobs with a gap between them", lambda code: code(apart, 2, lambda n: min(1.0, 1.6 / n))),
        Case("six jobs at once, three slots", lambda code: code(six, 3, lambda n: 1 / (0.7 + 0.3 * n))),
    ]


EXERCISES["40.makespan"] = WrittenExercise(
    makespan,
    draw=_mixes,
    mistakes={
        (" and len(running) < slots", ""): "More jobs run at once than there are slots.",
        ("changes.append(waiting[0][0])", "changes = changes or [waiting[0][0]]"): (
            "The speed changes also when a job arrives, not only when one ends."
        ),
        ("rate * (then - now)", "(then - now)"): (
            "A running job does less work than in the same time alone: speed(n) of it."
        ),
    },
    variants=(_by_events,),
    hint="Between two changes all running jobs have the same constant speed. Try it on paper with two jobs of 4 s, of "
    "which the second comes after 2 s, and a speed of 0.5 for two.",
    explanation="The same simulation serves a queue in which each job has a device for itself: slots are the devices.",
)

# %% dynamic-run-prose [markdown]
"""
`mix_s` really runs a mix: it starts `labkit run` for each job when it is due, and gives the seconds until all have ended. With `--budget half` a job has half of the cores and memory, and waits until they are free.
"""

# %% dynamic-mix
import subprocess
import sys
from time import perf_counter, sleep


def mix_s(mix, *budget):
    command, jobs, began = [sys.executable, "-m", "labkit", "run", *budget, str(program)], [], perf_counter()
    for arrives, count in mix:
        sleep(max(0.0, arrives - (perf_counter() - began)))
        jobs.append(subprocess.Popen([*command, data, str(batch_size), str(count), "0"], stdout=subprocess.DEVNULL))
    assert not any([job.wait() for job in jobs]), "a job of the mix failed"
    return perf_counter() - began


# %% dynamic-predict-prose [markdown]
"""
First each job runs alone, its start included. For the prediction, each pinned job has half of the pinned gain, and each of n shared jobs has 1/n of the shared gain. Then `paired_times` runs both ways in turns, and repeats rounds that other programs disturbed. (`smoke` skips all of this.)
"""

# %% dynamic
mix, rigid = [(0, 2 * epochs), (3, epochs // 3), (6, epochs // 3), (9, epochs // 3)], []
if profile != "smoke":
    alone_s = {count: mix_s([(0, count)]) for count in (2 * epochs, epochs // 3)}
    jobs = [(arrives, alone_s[count]) for arrives, count in mix]
    shared_gain, half = measured["cpu-shared"]["gain"].mean(), pinned.mean() / 2
    predicted = makespan(jobs, 2, lambda n: half) / makespan(jobs, 4, lambda n: min(1.0, shared_gain / n))
    turns = {"pinned": lambda: mix_s(mix, "--budget", "half"), "shared": lambda: mix_s(mix)}
    mixes = paired_times(turns, repeats, one_thread=False)
    rigid = list(mixes["pinned"] / mixes["shared"])
    print(f"pinned {words(rigid)} times as long as shared, predicted {predicted:.2f}\n{mixes.round(1)}")
reveal("40.rigid", mean(rigid) if rigid else None)

# %% prose-40-why-rigid [markdown]
"""
### Explain

Which of the two was done first, and why? Compare it with your prediction. What would change for a job that uses a second core well (try `batch_size = 16384` in the parameters)?
"""

# %% explain 40.why_rigid points=2
### BEGIN SOLUTION
answer = model_answer("40.why_rigid")
### END SOLUTION
explain("40.why_rigid", answer)

# %% checks
EXERCISES["40.why_rigid"] = Explanation(
    "numbers: makespans of the mix, pinned and shared, or their ratio, and the predicted one",
    "why: pinned, a half idles whenever no short job is there; shared, the jobs' threads disturb each other",
    "trade-off: which of the two costs is larger depends on what a second core is worth to the long job",
    model="Pinned, the mix took 0.68 times as long as shared (0.61 to 0.75). The half of the short jobs idled between them, "
    "but that cost nothing, because a second core makes the long job no faster (0.97 times). Shared, up to four jobs with two "
    "threads each waited for each other on two cores. A job that is 1.8 times as fast on two cores would lose more by "
    "the idle half, and then sharing would be done first.",
    half="Pinned was done first, 0.68 times as long, because jobs with a core of their own do not disturb each other. "
    "(A number and a reason; not a word of the half that idles, or of when it would turn round.)",
)

# %% gpu-prose [markdown]
"""
## On a GPU

If there is a GPU, labkit's own recommendation model runs twice on it, under each mode that is possible. The table has the speed of each copy and the activity of the whole device's multiprocessors. MIG needs slices: `labkit collocate --mode mig` proposes a layout.
"""

# %% gpu
able = [mode for mode in ("naive", "mps") if modes[mode] is None]
print("\n".join(f"Not run: {modes[mode]}." for mode in ("naive", "mps") if mode not in able))
on_gpu = pd.DataFrame(columns=["mode", "steps_per_s", "sm_active"])
if able:
    plan = labkit.sharing.mix_of("dlrm:tour x2", able, repeats=repeats, seconds=10, baseline="one")
    on_gpu = labkit.sharing.verdict(labkit.sharing.collocate(plan, runs_dir)).jobs
means = on_gpu.groupby("mode", sort=False)[["steps_per_s", "sm_active"]].mean()
labkit.plots.show(means.rename(columns={"steps_per_s": "steps per second", "sm_active": "SM activity (%)"}))

# %% judge-prose [markdown]
"""
## Judge

Three sentences of the abstract get no verdict. *"Not all model training saturates modern powerful GPUs"*: one job that saturates its device cannot refute it. *Aggregate memory "must fit"*: labkit's budgets enforce that, so nothing else could come out. *MIG is "interference-free"*: pinned cores share caches, so they do not test MIG. C2 and C5 can be judged. If rounds were disturbed, neither can be tested.
"""

# %% judge-words
from labkit_course import claim


def side(values, threshold):
    """Whether the 95 % interval lies "above" or "below" a threshold; "across" if it holds both, or is unknown."""
    if len(values) < 2 or disturbed:
        return "across"
    _, low, high = interval(values)
    return "above" if low > threshold else "below" if high < threshold else "across"


# %% prose-claim-C2 [markdown]
"""
**C2**: is there more throughput, although each job takes longer? The thresholds are above the guess. "Three times" would need more than two jobs.
"""

# %% claim C2 points=1
best = max(measured, key=lambda mode: measured[mode]["gain"].mean())
gain, slowdown = measured[best]["gain"], measured[best]["slowdown"]
said = f"{best}: {words(gain)} times the work, each job {words(slowdown)} times as long; {repeats} repeats"
### BEGIN SOLUTION
holds = side(gain, 1.05) == "above" and side(slowdown, 1.0) == "above"
verdict_c2 = "holds here" if holds else "does not hold here" if side(gain, 1.05) == "below" else "cannot be tested here"
answer = verdict_c2, "by the whole interval, with two jobs on a CPU, so that 2 is the most"
### END SOLUTION
claim("C2", said, answer)

# %% prose-claim-C5 [markdown]
"""
**C5**: are partitions worse for jobs that come and go? The threshold is above the guess.
"""

# %% claim C5 points=1
said = f"pinned {words(rigid)} times as long as shared" if rigid else "the mix was not run"
### BEGIN SOLUTION
verdicts = {"above": "holds here", "below": "does not hold here", "across": "cannot be tested here"}
answer = verdicts[side(rigid, 1.05)], "by the whole interval; a core of its own stands for a slice of MIG"
### END SOLUTION
claim("C5", said, answer)

# %% scores-prose [markdown]
"""
How good were your guesses? The cell after the scores keeps the numbers of this notebook for a program to read, each with bounds that hold on any machine.
"""

# %% scores
from labkit_course import score_notebook

score_notebook()

# %% results tags=["results"]
from labkit_course import results

cores = labkit.hardware.read_cpu().available_cores
results(
    horus_times=(horus / tensors, 60, 160),
    predicted_over_measured=(sum(parts.values()) / tensors, 0.7, 1.3),
    gain_pinned=(pinned.mean(), 0.3, 2.5),
    fairness_pinned=(measured["cpu-pinned"]["fairness"].mean(), 0.5, 1.0001),
    cores_worth=(mean(cores_worth) if cores_worth else None, 0.4, 1.5 * cores),
    rigid=(mean(rigid) if rigid else None, 0.3, 3),
)

# %% assistant gain_pinned above=1.4 [markdown]
"""
Two jobs, each pinned to a core of its own, hardly wait for each other: side by side they do more than 1.4 times the work of one after the other.
"""

# %% recap [markdown]
"""
## Recap

- Sharing makes each job wait longer, and all of them together do more: gain × slowdown is at least the number of jobs.
- Memory decides first whether jobs may share. Measure a job's first steps instead of trusting a formula.
- What sharing can gain is what a job alone leaves idle. Only a second job that really runs shows it.
- Partitions keep jobs apart, and waste what a job does not use. Sharing does the opposite. Which one wins depends on the mix.
- Compare each repeat with its own run alone, and plan the repeats for the gain that you want to see.

**Next:** [A queue and its faults](41_a_queue_and_its_faults.ipynb)
"""

# %% opening [markdown] packages="scipy"
"""
# Budgets that bind

After this notebook you will be able to

- **run** a job on less than your machine has, and **show** with an interval that the budget binds;
- **plan** how many pairs of measurements a difference takes;
- **compute** which share of a GPU stands for another one, and **bound** how wrong its emulated times can be;
- **count** what a training keeps in memory, and **predict** at which size a budget of memory ends it.

**Time:** 50 minutes with three functions of three to eight lines; the machine computes for about a minute on 2 CPU cores. No GPU is needed.

**Prerequisites:** [Know your machine](01_know_your_machine.ipynb).
"""

# %% checks
from typing import Any

import numpy as np
import torch
from torch import nn

from labkit.hardware import get_tier
from labkit_course.exercise import Case, Exercise, Explanation, WrittenExercise

MODULE = "machine"
EXERCISES = {}

# %% parameters tags=["parameters"]
profile = "standard"  # smoke, standard or full: how many budgets, and how often each is measured
student = 0  # your number: one question has numbers of your own

# %% smaller [markdown]
"""
## Smaller than it is

You rarely have every machine on which you want to compare a cost. A **budget** makes the machine that you have smaller: fewer cores, less memory, a share of a GPU. A run under it is marked *emulated*. The table lists the budgets that this machine can enforce. Its last column names what each budget does *not* emulate.
"""

# %% budgets
import pandas as pd

import labkit

possible, refused = labkit.hardware.possible_budgets()
rows = [(budget.name, budget.allows(), ", ".join(budget.not_emulated)) for budget in possible]
labkit.plots.show(pd.DataFrame(rows, columns=["budget", "allows", "lacks"]))

# %% guess-budget-prose [markdown]
"""
The last column is the catch. A budget can take away cores and memory, but it does not turn this machine into another one.

Under `one-core`, a separate process multiplies large matrices with as many threads as it likes. **1. How many cores will it keep busy**, in seconds of CPU time per second? Compare it with all the cores that you may use: **2. Which share of their arithmetic is left?** **3. Which share of their bandwidth is left**, when large arrays are copied?
"""

# %% guess-budget
from labkit_course import apparatus, check, draw, explain, guess, model_answer, results, reveal, score_notebook

guess("02.cores", 1.0, "cores")
guess("02.arithmetic", 60.0, "%")
guess("02.bandwidth", 60.0, "%")

# %% pairs-prose [markdown]
"""
Each turn measures the whole machine and then the budget, each in a separate process. That is a pair: whatever else the machine does at that time slows both. One pair proves nothing, so there are several.
"""

# %% pairs
turns, repeats = {"smoke": (2, 1), "standard": (5, 3), "full": (12, 3)}[profile]
pairs = [labkit.hardware.check_budgets(["one-core"], repeats=repeats)[0] for _ in range(turns)]
shares = pd.DataFrame([{"arithmetic": each.arithmetic, "bandwidth": each.bandwidth} for each in pairs])
labkit.plots.show(100 * shares.add_suffix(" (% of the whole)"))

# %% ex-02-ratio [markdown]
r"""
### Exercise 02.ratio

Does the budget bind? Write `ratio_interval(whole, part)` for the throughputs of n pairs. It returns the ratio part / whole, and the low and high end of its 95 % interval.

1. Take the logarithm of each pair's ratio. On that scale a half and a double are equally far from 1.
2. Calculate the mean of the logarithms and Student's 95 % interval of that mean. Its quantile $t_{0.975}$ has n − 1 degrees of freedom: `stdtrit(n - 1, 0.975)`.
3. Go back from logarithms to ratios with all three numbers.

*Hint:* numpy's `std` divides by n unless `ddof=1` is given; the mean of n values varies $\sqrt{n}$ times less than one value.
"""

# %% answer 02.ratio
from collections.abc import Sequence

import numpy as np
from scipy.special import stdtrit


def ratio_interval(whole: Sequence[float], part: Sequence[float]) -> tuple[float, float, float]:
    """Ratio of part to whole, and the low and high end of its 95 % interval."""
    ### BEGIN SOLUTION
    logs = np.log(np.asarray(part) / np.asarray(whole))
    half = stdtrit(len(logs) - 1, 0.975) * logs.std(ddof=1) / np.sqrt(len(logs))
    return tuple(float(np.exp(logs.mean() + side * half)) for side in (0, -1, 1))
    ### END SOLUTION


# %% check 02.ratio points=5
check("02.ratio", ratio_interval)

# %% checks
WHOLE, PART = [80.0, 84.0, 60.0, 82.0], [41.0, 43.0, 33.0, 40.0]


def _with_stats(whole, part):
    from scipy import stats

    ratios = np.log(np.divide(part, whole))
    middle, count = ratios.mean(), len(ratios)
    away = stats.t.ppf(0.975, count - 1) * stats.sem(ratios)
    return np.exp(middle), np.exp(middle - away), np.exp(middle + away)


EXERCISES["02.ratio"] = WrittenExercise(
    ratio_interval,
    Case("four pairs", lambda code: code(WHOLE, PART)),
    Case("two pairs", lambda code: code([10.0, 12.0], [5.0, 9.0])),
    Case("pairs that all have the same ratio", lambda code: code([10.0, 20.0, 30.0], [4.0, 8.0, 12.0])),
    Case("seven pairs, as arrays", lambda code: code(np.arange(3.0, 10.0), np.arange(9.0, 2.0, -1.0))),
    mistakes={
        ("np.asarray(part) / np.asarray(whole)", "np.asarray(whole) / np.asarray(part)"): (
            "Divide the part by the whole: the ratio says what the budget leaves."
        ),
        ("stdtrit(len(logs) - 1, 0.975)", "1.96"): (
            "1.96 is for many pairs. For few pairs Student's t with n − 1 degrees of freedom is larger."
        ),
        ("ddof=1", "ddof=0"): "The standard deviation of a sample divides by n − 1: ddof=1.",
    },
    variants=[_with_stats],
    hint="On which scale is the interval symmetric, and how much does the mean of n pairs vary?",
    explanation="Pairs share what the machine does at the time, so their ratio varies less than either throughput.",
)

# %% binds-prose [markdown]
"""
The shares are ratios already, so the whole is 1. Where the interval ends below 1, the budget binds. (With two pairs, as at `smoke`, it is useless: t is 12.7.)
"""

# %% binds
found = {name: ratio_interval(np.ones(turns), values) for name, values in shares.items()}
for name, (ratio, low, high) in found.items():
    print(f"{name}: {ratio:.2f} of the whole (95 % {low:.2f} to {high:.2f}), emulated; binds: {high < 1}")
cores_used = max(each.cores_used for each in pairs)
reveal("02.cores", cores_used)
reveal("02.arithmetic", 100 * found["arithmetic"][0])
reveal("02.bandwidth", 100 * found["bandwidth"][0])

# %% power-prose [markdown]
"""
### How many pairs would be enough?

Where the interval contains 1, you cannot tell with this number of pairs; that does not prove that nothing was lost. Decide first which loss would matter to you, say a tenth. The *power* of a study is the chance that its interval excludes 1 if that loss is real. 80 % is usual. `runs_needed` calculates how many pairs that takes, from how much your pairs vary.

**How many pairs would find a loss of a tenth of the bandwidth with a power of 80 %?**
"""

# %% guess-pairs
guess("02.pairs", 10.0, "pairs")

# %% power-result [markdown]
"""
A smaller number of pairs already makes the half width of the interval equal to the loss. But the middle of the interval varies from study to study, so half of the studies with that number would miss the loss.
"""

# %% power
spread = np.log(shares["bandwidth"]).std()
needed = labkit.tta.runs_needed(spread, np.log(0.9))
print(f"standard deviation of the pairs' logarithms: {spread:.3f}")
print(f"pairs for a loss of 2 %: {labkit.tta.runs_needed(spread, np.log(0.98))}")
reveal("02.pairs", needed)

# %% figure-prose [markdown]
"""
Where the system has CPU affinity, as Linux does, a process cannot leave its core, however many threads it has. (Elsewhere the budget only sets the number of threads.) The figure shows what each budget left, next to the predicted share of the arithmetic. The prediction is the share of the cores. For a budget of a GPU it is the ratio of two peaks in the catalogue.
"""

# %% figure
others = [] if profile == "smoke" else ["half-gpu", "t4-like"]
names = [budget.name for budget in possible if budget.name in others]
checks = [pairs[-1], *labkit.hardware.check_budgets(names, repeats=5)]
labkit.plots.show(apparatus.figure_budget_shares(apparatus.budget_shares(checks)))

# %% ex-02-why-more [markdown]
"""
### Explain 02.why_more

To get a job's time on a machine with half the cores, would you double its time here? Answer in two or three sentences, with your numbers.
"""

# %% explain 02.why_more points=2 id="answer-02-why-more"
### BEGIN SOLUTION
answer = model_answer("02.why_more")
### END SOLUTION
explain("02.why_more", answer)

# %% checks
EXERCISES["02.why_more"] = Explanation(
    "numbers: gives the share of the cores, and the shares of arithmetic and bandwidth that were left",
    "why: names what cores share (the path to memory, a clock, a cache) and what they do not",
    "trade-off: says for which job the share of cores would predict the time, and for which not",
    model="One of two cores is a share of 50 %; it left 52 % of the arithmetic, for each core has its own units, but "
    "88 % of the bandwidth (76 to 101 %), because one core already fills most of a path to memory that both share. So "
    "I would double the time of a job of large products, and not that of one that copies or looks up rows: there I "
    "would measure what the budget leaves before I scale a time by it.",
)

# %% gpu [markdown]
r"""
## A share of a GPU

CUDA MPS can limit a process to a percentage of a GPU's multiprocessors (SMs). labkit's budget `t4-like` sets that percentage to the ratio of the two `fp32_tflops`, so the arithmetic is right. But no budget divides the memory, so the bandwidth may be too high.

How high? Fewer SMs can take less: an SM's path to the L2 cache carries at most some 48 to 64 bytes per clock. **That is an assumption**, which was not measured for this course. At an H100's 1.755 GHz it means 84 to 112 GB/s per SM. All SMs together get at most the bandwidth of the memory.

**At most how many times too fast is a job that looks up embedding rows (0.25 operations per byte) under `t4-like` on an H100**, compared with a real T4, at 112 GB/s per SM?
"""

# %% guess-t4
guess("02.too_fast", 2.0, "times")

# %% ex-02-emulated [markdown]
"""
### Exercise 02.emulated

Write `emulated(intensity, tier, gpu, sm_gb_per_s)`. A share of the GPU `gpu` stands in for `tier`; both are tiers of the catalogue. The job does `intensity` operations per byte. The function returns two numbers: the MPS percentage, and the emulated time divided by the time on the real tier.

1. The percentage is the ratio of the `fp32_tflops`, but it is at least one of the GPU's `gpu.sms` multiprocessors. A percentage need not be a whole number of them. Raise a `ValueError` if the tier has more `fp32_tflops` than the GPU: a budget only makes a GPU smaller.
2. The SMs that are left do their share of the GPU's arithmetic. Each moves at most `sm_gb_per_s`, and all together at most `gpu.bandwidth_gb_s`.
3. Both the emulated and the real GPU have a roof: arithmetic or memory, whichever is slower.

*Hint:* `fp32_tflops` are TFLOP/s, `bandwidth_gb_s` GB/s. The job's amount of work does not matter, because it is the same on both.
"""

# %% answer 02.emulated
import labkit


def emulated(
    intensity: float, tier: labkit.hardware.Tier, gpu: labkit.hardware.Tier, sm_gb_per_s: float
) -> tuple[float, float]:
    """The MPS percentage that stands for a tier, and the emulated time over the real one."""
    ### BEGIN SOLUTION
    if tier.fp32_tflops > gpu.fp32_tflops:
        raise ValueError(f"{tier.label} does more than {gpu.label}: a budget only makes a GPU smaller")
    share = max(tier.fp32_tflops / gpu.fp32_tflops, 1 / gpu.sms)
    bandwidth = min(share * gpu.sms * sm_gb_per_s, gpu.bandwidth_gb_s)
    speed = min(1e3 * share * gpu.fp32_tflops, intensity * bandwidth)
    real = min(1e3 * tier.fp32_tflops, intensity * tier.bandwidth_gb_s)
    return 100 * share, real / speed
    ### END SOLUTION


# %% check 02.emulated points=6
check("02.emulated", emulated)


# %% checks
def _stood_in(code: Any, intensity: float, tier: str, gpu: str, sm_gb_per_s: float = 112.0) -> Any:
    return code(intensity, get_tier(tier), get_tier(gpu), sm_gb_per_s)


def _refuses(code: Any, tier: str, gpu: str) -> list[Any]:
    fits = code(1.0, get_tier(gpu), get_tier(tier), 100.0)
    try:
        return [fits, code(1.0, get_tier(tier), get_tier(gpu), 100.0)]
    except ValueError:
        return [fits, "a ValueError"]


def _by_times(intensity, tier, gpu, sm_gb_per_s):
    sms = gpu.sms * tier.fp32_tflops / gpu.fp32_tflops
    if sms > gpu.sms:
        raise ValueError("larger")
    if sms < 1:
        sms = 1

    def seconds(tflops: float, gb_per_s: float) -> float:
        return max(intensity / tflops / 1e12, 1 / gb_per_s / 1e9)  # of one byte

    under = seconds(gpu.fp32_tflops * sms / gpu.sms, min(gpu.bandwidth_gb_s, sms * sm_gb_per_s))
    return 100 * sms / gpu.sms, under / seconds(tier.fp32_tflops, tier.bandwidth_gb_s)


EXERCISES["02.emulated"] = WrittenExercise(
    emulated,
    Case("a lookup of rows, 0.25 operations per byte, T4 on H100", _stood_in, 0.25, "t4", "h100"),
    Case("the same with SMs that move 84 GB/s each", _stood_in, 0.25, "t4", "h100", 84.0),
    Case("the same with SMs that move as much as they like", _stood_in, 0.25, "t4", "h100", 1e9),
    Case("a large product, 300 operations per byte, T4 on H100", _stood_in, 300.0, "t4", "h100"),
    Case("10 operations per byte, T4 on H100", _stood_in, 10.0, "t4", "h100"),
    Case("a GPU on itself, whose memory is slower than its SMs", _stood_in, 1.0, "l4", "l4"),
    Case("a Jetson Nano on an H200, less than one SM", _stood_in, 300.0, "jetson-nano", "h200"),
    Case("an L4 on an A100, which does less", _refuses, "l4", "a100-40"),
    mistakes={
        ("real / speed", "speed / real"): "The text asks for times: the faster of the two takes less time.",
        ("min(share * gpu.sms * sm_gb_per_s, gpu.bandwidth_gb_s)", "gpu.bandwidth_gb_s"): (
            "That is all the GPU's bandwidth: how much of it can the SMs that are left take?"
        ),
        ("gpu.bandwidth_gb_s)", "tier.bandwidth_gb_s)"): "Under MPS the memory is the large GPU's, not the tier's.",
    },
    variants=[_by_times],
    hint="What are the peak and the bandwidth under the budget, what are they on the real tier, and which one limits the job?",
    explanation="To the right of the tier's ridge you can trust the emulation. To the left it is too fast, by at most this factor.",
)

# %% gpus-prose [markdown]
"""
The table has GPUs that an H100 might stand in for, and three kinds of jobs: lookups of table rows, element-wise operations after a fused product, and large products. A value of 1 can be trusted; 0.5 is twice too fast. Lookups have three columns: SMs that move 112 GB/s, SMs that move 84 GB/s, and SMs that can take all the bandwidth, which assumes least. To decide between them, measure a copy under `t4-like` on such a GPU: `labkit budgets --check t4-like`.
"""

# %% gpus
h100, rows = labkit.hardware.get_tier("h100"), {}
jobs = {"lookups, 112 GB/s": (0.25, 112), "lookups, 84 GB/s": (0.25, 84), "lookups, no limit": (0.25, 1e6)}
jobs |= {"10 FLOP/B": (10, 112), "300 FLOP/B": (300, 112)}
for tier in map(labkit.hardware.get_tier, ("t4", "l4", "v100", "a100-40")):
    times = {job: emulated(intensity, tier, h100, speed)[1] for job, (intensity, speed) in jobs.items()}
    rows[tier.label] = {"MPS (%)": emulated(1, tier, h100, 112)[0]} | times
table = pd.DataFrame(rows).T
labkit.plots.show(table.rename_axis("tier (predicted)").reset_index())
reveal("02.too_fast", 1 / table.iloc[0]["lookups, 112 GB/s"])

# %% memory [markdown]
"""
## Too much memory

A budget of memory must end the job that needs more, and nothing else. When does a training need more?

### Exercise 02.bytes

Write `bytes_kept(model, optimizer)`: the bytes that a training keeps from step to step. These are the parameters of the model, the gradients that exist at the moment, and every tensor in the optimiser's state. Not every number has 4 bytes, and not every parameter has a gradient.

*Hint:* `optimizer.state` is a dict with an entry for each parameter; the entry is a dict, too, and some of its values may not be tensors.
"""

# %% answer 02.bytes
import torch


def bytes_kept(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Bytes of parameters, of their gradients, and of the optimiser's state."""
    ### BEGIN SOLUTION
    tensors = list(model.parameters())
    tensors += [each.grad for each in model.parameters() if each.grad is not None]
    for state in optimizer.state.values():
        tensors += [value for value in state.values() if torch.is_tensor(value)]
    return sum(each.numel() * each.element_size() for each in tensors)
    ### END SOLUTION


# %% check 02.bytes points=5
check("02.bytes", bytes_kept)


# %% checks
def _after(
    code: Any, steps: int, optimizer: Any, dtype: torch.dtype = torch.float32, frozen: bool = False, **settings: Any
) -> int:
    model = nn.Sequential(nn.Linear(7, 5, dtype=dtype), nn.Linear(5, 3, dtype=dtype))
    model[0].requires_grad_(not frozen)
    stepper = optimizer([each for each in model.parameters() if each.requires_grad], lr=0.1, **settings)
    for _ in range(steps):
        stepper.zero_grad()
        model(torch.ones(2, 7, dtype=dtype)).sum().backward()
        stepper.step()
    return code(model, stepper)


def _nested(model, optimizer):
    kept = 0
    for parameter in model.parameters():
        kept += parameter.nbytes
        if parameter.grad is None:
            continue
        kept += parameter.grad.nbytes
    for entry in optimizer.state.values():
        for value in entry.values():
            kept += value.nbytes if isinstance(value, torch.Tensor) else 0
    return kept


EXERCISES["02.bytes"] = WrittenExercise(
    bytes_kept,
    Case("Adam after two steps", _after, 2, torch.optim.Adam),
    Case("plain SGD after a step", _after, 1, torch.optim.SGD),
    Case("SGD with momentum", _after, 2, torch.optim.SGD, momentum=0.9),
    Case("Adam before its first step", _after, 0, torch.optim.Adam),
    Case("bf16 numbers", _after, 2, torch.optim.Adam, torch.bfloat16),
    Case("a first layer that is frozen", _after, 2, torch.optim.Adam, frozen=True),
    mistakes={
        ("    tensors += [each.grad for each in model.parameters() if each.grad is not None]\n", ""): (
            "A gradient stays until it is cleared, and it takes as many bytes as its parameter."
        ),
        ("each.numel() * each.element_size()", "4 * each.numel()"): "Not every number has 4 bytes.",
        ("[value for value in state.values() if torch.is_tensor(value)]", "[]"): (
            "What does the optimiser keep for each parameter? Look into `optimizer.state`."
        ),
    },
    variants=[_nested],
    hint="Three groups of tensors: which one is missing, or counted with the wrong bytes per number?",
    explanation="A training needs this much memory before any activation.",
)

# %% kept-prose [markdown]
"""
Take a table of a million weights, after one step with dense gradients. The next cell shows how many bytes per weight it keeps under three optimisers.
"""

# %% kept
for name in ("SGD", "Adagrad", "Adam"):
    table = torch.nn.Linear(1000, 1000, bias=False)
    optimizer = getattr(torch.optim, name)(table.parameters())
    table(torch.ones(1, 1000)).sum().backward()
    optimizer.step()
    print(f"{name}: {bytes_kept(table, optimizer) / 1e6:.2f} bytes per weight")

# %% ex-02-kept [markdown]
"""
### Exercise 02.kept

A table of `millions` million rows, `width` numbers each, single precision, is trained with Adam and dense gradients. How many GB ($10^9$ bytes) does training keep?
"""

# %% numbers-02-kept
numbers = draw("02.kept", student)

# %% answer-02-kept-prose [markdown]
"""
These are your numbers. Write the answer as an expression of `numbers`, or as a number.
"""

# %% answer 02.kept
### BEGIN SOLUTION
answer = 16e-9 * 1e6 * numbers["millions"] * numbers["width"]
### END SOLUTION

# %% check 02.kept points=1
check("02.kept", answer, student)

# %% checks
EXERCISES["02.kept"] = Exercise(
    lambda millions, width: 16e-9 * 1e6 * millions * width,
    draw=lambda random: {"millions": random.choice([2, 3, 5, 8, 20]), "width": random.choice([16, 32, 64, 128])},
    unit="GB",
    hint="How many numbers has the table, and how many bytes does training keep for each of them?",
    explanation="That is four times what the model needs once it is trained.",
    mistakes={
        lambda millions, width: 4e-3 * millions * width: "Those are the weights alone; what else is kept?",
        lambda millions, width: 12e-3 * millions * width: "Your last cell has the bytes per weight of Adam.",
        lambda millions, width: 16.0 * millions * width: "That is in MB.",
    },
)

# %% grow-prose [markdown]
"""
This script trains larger and larger tables for two steps each, under the budget that it is given. It prints how much memory it holds at first, and how long a step takes.
"""

# %% grow
GROW = """
import os, sys, time, torch
from labkit import hardware
hardware.parse_budget(sys.argv[1]).enforce()
print(hardware.held(os.getpid()), flush=True)
for millions in range(4, int(sys.argv[2]), 4):
    table = torch.nn.Parameter(torch.zeros(millions, 10**6))
    adam = torch.optim.Adam([table], fused=True)
    for _ in range(2):
        began = time.perf_counter(); table.sum().backward(); adam.step()
    print(millions, time.perf_counter() - began, flush=True); del table, adam
"""

# %% grow-run-prose [markdown]
"""
Run it under 1 GiB, in steps of 4 million weights. The prediction is simple: divide what Python and torch leave of 1 GiB by 16 bytes per weight. On Linux a second process watches how much memory the first one holds and ends it, and this notebook goes on. macOS and Windows cannot limit one process, so there the loop runs to its end.
"""

# %% grow-run
import subprocess
import sys

most = 2 * 2**30 // 16 // 10**6  # twice what an empty machine would hold
child = subprocess.run([sys.executable, "-c", GROW, "memory=1GiB", str(most)], capture_output=True, text=True)
base, *lines = child.stdout.splitlines()
sizes = [tuple(map(float, line.split())) for line in lines if line[:1].isdigit() and len(line.split()) == 2]
stopped, (fitted_millions, step_s) = child.returncode != 0, sizes[-1]
print(child.stderr.strip().splitlines()[-1] if stopped else "nothing stopped it")
predicted_millions = (2**30 - float(base)) / 16e6
print(f"predicted {predicted_millions:.1f} million weights; {fitted_millions:.0f} million fitted,", end=" ")
print(f"a step of them took {1e3 * step_s:.0f} ms, emulated")

# %% read-f1 [markdown]
"""
### Read: what would test this sentence?

"Available memory is the main limitation to performance and scaling up", says the abstract of a study of small boards that run an industry benchmark (TPCx-AI on Jetsons, TPCTC 2022). It would be wrong to call your run a test of it. A table that grows until memory ends it is always ended by memory: no outcome could contradict the sentence. A real test would fix the work, give it more memory or more cores, and ask which of the two saves more time.

The limit does *not* count mapped files, such as prepared data, because the kernel can read their pages again from the disk. So a job under 2 GiB can read a mapped file of 10 GB without being stopped. It counts what a process computes itself, because that is stored nowhere else.

How good were your guesses? The cell after the scores keeps the numbers of this notebook, each with bounds that hold on any machine.
"""

# %% scores
score_notebook()

# %% results tags=["results"]
most_share = 3 if profile == "smoke" else 1.3
results(
    one_core_cores_used=(cores_used, 0.1, 1.05),
    one_core_arithmetic_share=(found["arithmetic"][0], 0.005, most_share),
    one_core_bandwidth_share=(found["bandwidth"][0], 0.01, most_share),
    stopped_by_its_budget=(stopped, 0, 1),
    fitted_over_predicted=(fitted_millions / predicted_millions, 0.5, 2.5),
)

# %% assistant one_core_bandwidth_share above=0.5 [markdown]
"""
Memory belongs to all cores. So a program that may use a single core of a small machine still gets more than half of its memory bandwidth.
"""

# %% recap [markdown]
"""
## Recap

- A budget binds cores by affinity, memory by a limit, a GPU by MPS: a run under it is *emulated*.
- Pairs and an interval say whether it binds. How many pairs a difference takes is planned by its power.
- A budget makes *this* machine smaller. It does not make it another machine: clocks, caches and bandwidth stay. Trust a ratio between two budgets of one machine. For other hardware, trust a time only to the right of that tier's ridge.
- Training keeps 16 bytes per weight with Adam, before any activation. A job that needs more than its budget ends with an error that names it.

**Next:** [Train a DLRM to a target](10_train_dlrm.ipynb)
"""

# %% opening [markdown]
"""
# Budgets that bind

After this notebook you will be able to

- **run** a job on less than your machine has, and **show** with an interval that it binds;
- **measure** what a budget leaves of arithmetic and of bandwidth;
- **compute** which share of a GPU stands for another one, and for which jobs its emulated times can be believed;
- **predict** at which size a budget of memory ends a training.

**Time:** 50 minutes with four functions of one to four lines; the machine computes for about a minute on 2 CPU cores. No GPU is needed.

**Prerequisites:** [Know your machine](01_know_your_machine.ipynb).
"""

# %% checks
from dataclasses import replace
from typing import Any

from labkit.hardware import get_tier
from labkit_course.exercise import Case, Exercise, Explanation, WrittenExercise

EXERCISES = {}

# %% parameters-prose [markdown]
"""
What you may change:
"""

# %% parameters tags=["parameters"]
profile = "standard"  # smoke, standard or full: how many budgets, and how often each is measured
student = 0  # your number: some questions have numbers of your own

# %% smaller [markdown]
"""
## Smaller than it is

Nobody has every machine that a cost should be compared on. A **budget** makes the machine you have smaller: fewer cores, less memory, a share of a GPU. What runs under it is marked *emulated*. These are the budgets that this machine can enforce, and what each lacks of the hardware whose name it has:
"""

# %% budgets
import pandas as pd

import labkit

possible, refused = labkit.hardware.possible_budgets()
rows = [(budget.name, budget.allows(), ", ".join(budget.not_emulated)) for budget in possible]
labkit.plots.show(pd.DataFrame(rows, columns=["budget", "allows", "lacks"]))

# %% guess-cores-prose [markdown]
"""
The last column is the catch. Cores can be taken away, and so can memory; caches, clocks and bandwidth stay as they are.

Now `one-core`: a process of its own multiplies large matrices under it, with as many threads as it likes. **How many cores will it keep busy**, in seconds of CPU time a second?
"""

# %% guess-cores
from labkit_course import check, claim, draw, explain, guess, model_answer, reveal

guess("02.cores", 1.0, "cores")

# %% guess-arithmetic-prose [markdown]
"""
**How much of the arithmetic will be left**, of what all cores you may use do together?
"""

# %% guess-arithmetic
guess("02.arithmetic", 60.0, "%")

# %% guess-bandwidth-prose [markdown]
"""
**And how much of the bandwidth**, when large arrays are copied?
"""

# %% guess-bandwidth
guess("02.bandwidth", 60.0, "%")

# %% pairs-prose [markdown]
"""
Each turn measures the whole machine and then the budget, each in a process of its own: a pair. One pair proves nothing on a machine that does other things, so there are several.
"""

# %% pairs
turns, repeats = {"smoke": (2, 1), "standard": (5, 3), "full": (12, 3)}[profile]
pairs = [labkit.hardware.check_budgets(["one-core"], repeats=repeats)[0] for _ in range(turns)]
shares = pd.DataFrame([{"arithmetic": each.arithmetic, "bandwidth": each.bandwidth} for each in pairs])
labkit.plots.show(100 * shares.add_suffix(" (% of the whole)"))

# %% ex-02-ratio [markdown]
"""
### Exercise 02.ratio

Does the budget bind? Write `ratio_interval(whole, part)` for throughputs of n pairs: the ratio part / whole, and its 95 % interval.

1. The logarithm of each pair's ratio: half and double are then as far from 1.
2. Mean ± t × standard deviation / √n, with Student's t of n − 1 degrees of freedom (`stdtrit(n - 1, 0.975)`); `exp` of mean, low and high.

*Hint:* numpy's `std` divides by n unless `ddof=1` is given.
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


EXERCISES["02.ratio"] = WrittenExercise(
    ratio_interval,
    module="machine",
    cases=(
        Case("four pairs", lambda code: code(WHOLE, PART)),
        Case("two pairs", lambda code: code([10.0, 12.0], [5.0, 9.0])),
        Case("pairs that all have the same ratio", lambda code: code([10.0, 20.0, 30.0], [4.0, 8.0, 12.0])),
    ),
    mistakes={
        ("np.asarray(part) / np.asarray(whole)", "np.asarray(whole) / np.asarray(part)"): (
            "The part over the whole: what the budget leaves."
        ),
        ("stdtrit(len(logs) - 1, 0.975)", "1.96"): (
            "Of so few pairs, 1.96 is too narrow: Student's t of n − 1 degrees of freedom."
        ),
        ("ddof=1", "ddof=0"): "The standard deviation of a sample divides by n − 1: ddof=1.",
    },
    hint="logs = log(part / whole), pair by pair; mean ± t × standard deviation (ddof=1) / √n; exp of all three.",
    explanation="Pairs share what the machine does at the time, so their ratio varies less than either.",
)

# %% binds-prose [markdown]
"""
Shares are ratios already, so the whole is 1. Where the interval ends below 1, the budget binds. (Of two pairs, as at `smoke`, it is useless: t is 12.7.)
"""

# %% binds
found = {name: ratio_interval(np.ones(turns), values) for name, values in shares.items()}
for name, (ratio, low, high) in found.items():
    print(f"{name}: {ratio:.2f} of the whole (95 % {low:.2f} to {high:.2f}), emulated; binds: {high < 1}")
cores_used = max(each.cores_used for each in pairs)
reveal("02.cores", cores_used)
reveal("02.arithmetic", 100 * found["arithmetic"][0])
reveal("02.bandwidth", 100 * found["bandwidth"][0])

# %% figure-prose [markdown]
"""
Where the system has CPU affinity, as Linux has, one core cannot be left, however many threads there are. (Elsewhere the budget sets the number of threads only.) Beside what was left under each budget stand predicted shares: of the arithmetic by the number of cores, or of a GPU, where there is one, by the catalogue.
"""

# %% figure
from labkit_course import apparatus

others = [] if profile == "smoke" else ["half-gpu", "t4-like"]
names = [budget.name for budget in possible if budget.name in others]
checks = [pairs[-1], *labkit.hardware.check_budgets(names, repeats=5)]
labkit.plots.show(apparatus.figure_budget_shares(apparatus.budget_shares(checks)))

# %% ex-02-why-more [markdown]
"""
### Explain 02.why_more

In two or three sentences: why is what is left not simply the share of the cores, and for which jobs would you scale a time by it all the same?
"""

# %% explain 02.why_more points=2 id="answer-02-why-more"
### BEGIN SOLUTION
answer = model_answer("02.why_more")
### END SOLUTION
explain("02.why_more", answer)

# %% checks
EXERCISES["02.why_more"] = Explanation(
    rubric=(
        "numbers: gives the share of the cores, and the shares of arithmetic and bandwidth that were left",
        "why: names what cores share (the path to memory, a clock, a cache) and what they do not",
        "trade-off: says for which job the share of cores would predict the time, and for which not",
    ),
    model="Of the arithmetic about the share of the cores is left, for each core has its own units, and of the "
    "bandwidth often more, because one core can already fill a good part of a path to memory that all share. A "
    "job of large products is predicted by its share of cores, one that copies or looks up rows is not, so "
    "measure what a budget leaves before you scale a time by it.",
)

# %% gpu [markdown]
"""
## A share of a GPU

CUDA MPS can limit a process to a percentage of a GPU's multiprocessors. Which one stands for another GPU?
"""

# %% ex-02-mps [markdown]
"""
### Exercise 02.mps

Write `mps_percent(tier, gpu)` for two tiers of the catalogue, of which the first is to be stood in for on the second: the ratio of their `fp32_tflops`, in per cent.

1. Less than one multiprocessor cannot be had: `gpu.sms` says how many there are.
2. A budget only makes a GPU smaller: raise a `ValueError` where the tier does more.
"""

# %% answer 02.mps
import labkit


def mps_percent(tier: labkit.hardware.Tier, gpu: labkit.hardware.Tier) -> float:
    """Percentage of the GPU's multiprocessors that stands for the tier; raises ValueError where the GPU does less."""
    ### BEGIN SOLUTION
    share = tier.fp32_tflops / gpu.fp32_tflops
    if share > 1:
        raise ValueError(f"{tier.label} does more than {gpu.label}: a budget only makes a GPU smaller")
    return 100 * max(share, 1 / gpu.sms)
    ### END SOLUTION


# %% check 02.mps points=4
check("02.mps", mps_percent)


# %% checks
def _percent(tier: str, gpu: str) -> Any:
    return lambda code: code(get_tier(tier), get_tier(gpu))


def _refuses(tier: str, gpu: str) -> Any:
    def ask(code: Any) -> list[Any]:
        fits = code(get_tier(gpu), get_tier(tier))
        try:
            return [fits, code(get_tier(tier), get_tier(gpu))]
        except ValueError:
            return [fits, "a ValueError"]

    return ask


EXERCISES["02.mps"] = WrittenExercise(
    mps_percent,
    module="machine",
    cases=(
        Case("a T4 on an H100", _percent("t4", "h100")),
        Case("a V100 on an H200", _percent("v100", "h200")),
        Case("a GPU on itself", _percent("l4", "l4")),
        Case("a Jetson Nano on an H200, less than one multiprocessor", _percent("jetson-nano", "h200")),
        Case("an L4 on an A100, which has less", _refuses("l4", "a100-40")),
    ),
    mistakes={
        ("100 * ", ""): "That is a share of 1; MPS wants per cent.",
        lambda tier, gpu: 100 * gpu.fp32_tflops / tier.fp32_tflops: (
            "The other way round: the budget makes the large GPU smaller."
        ),
        ("tier.fp32_tflops / gpu.fp32_tflops", "tier.bandwidth_gb_s / gpu.bandwidth_gb_s"): (
            "That is the ratio of the bandwidths, which MPS does not divide."
        ),
    },
    hint="100 × the ratio of the fp32_tflops, at least one multiprocessor of gpu.sms; above 100 raise a ValueError.",
    explanation="The percentage follows the arithmetic alone.",
)

# %% guess-t4-prose [markdown]
"""
**How many times too fast is a job that looks up embedding rows (0.25 operations a byte) under `t4-like` on an H100**, compared with a real T4?
"""

# %% guess-t4
guess("02.too_fast", 2.0, "times")

# %% ex-02-emulated [markdown]
"""
### Exercise 02.emulated

The percentage takes arithmetic away and leaves the bandwidth. Write `emulated_over_real(intensity, tier, gpu)`: the time under such a budget over the time on the real tier, for a job of this many operations per byte.

1. Speed on either is a roof: min(peak, intensity × bandwidth). The peak is the tier's on both; the bandwidth is not.
2. Time is operations over speed.

*Hint:* `fp32_tflops` are TFLOP/s, `bandwidth_gb_s` GB/s. Your `roofline` from the lab before has the idea.
"""

# %% answer 02.emulated
import labkit


def emulated_over_real(intensity: float, tier: labkit.hardware.Tier, gpu: labkit.hardware.Tier) -> float:
    """Emulated time over the real tier's, for a job of this many operations per byte."""
    ### BEGIN SOLUTION
    emulated = min(tier.fp32_tflops * 1e3, intensity * gpu.bandwidth_gb_s)
    real = min(tier.fp32_tflops * 1e3, intensity * tier.bandwidth_gb_s)
    return real / emulated
    ### END SOLUTION


# %% check 02.emulated points=5
check("02.emulated", emulated_over_real)


# %% checks
def _error(intensity: float, tier: str, gpu: str) -> Any:
    return lambda code: code(intensity, get_tier(tier), get_tier(gpu))


EXERCISES["02.emulated"] = WrittenExercise(
    emulated_over_real,
    module="machine",
    cases=(
        Case("a lookup of rows, 0.25 operations a byte, T4 on H100", _error(0.25, "t4", "h100")),
        Case("a large product, 300 operations a byte, T4 on H100", _error(300.0, "t4", "h100")),
        Case("10 operations a byte, which only the real T4 waits for memory with", _error(10.0, "t4", "h100")),
        Case("a V100 on an H200", _error(1.0, "v100", "h200")),
    ),
    mistakes={
        ("real / emulated", "emulated / real"): (
            "Times are asked for: the emulated time is the shorter one where the budget leaves bandwidth that the tier "
            "has not."
        ),
        ("real / emulated", "tier.bandwidth_gb_s / gpu.bandwidth_gb_s"): (
            "That holds only where both wait for memory: take the roof of each."
        ),
        lambda intensity, tier, gpu: emulated_over_real(intensity, replace(tier, fp32_tflops=gpu.fp32_tflops), gpu): (
            "Under the budget the arithmetic is the tier's, and the bandwidth the whole GPU's."
        ),
    },
    hint="Two roofs: min(tier's peak, intensity × bandwidth), once with the GPU's bandwidth and once with the tier's. "
    "Time is operations over speed.",
    explanation="Right of the tier's ridge the emulation can be believed; left of it, it is too fast.",
)

# %% gpus-prose [markdown]
"""
Both functions on GPUs that an H100 might stand in for: rows of tables, element-wise operations after a fused product, and large products. 1 can be believed; 0.1 is ten times too fast.
"""

# %% gpus
h100, rows = labkit.hardware.get_tier("h100"), []
for tier in map(labkit.hardware.get_tier, ("t4", "l4", "v100", "a100-40")):
    times = [emulated_over_real(intensity, tier, h100) for intensity in (0.25, 10, 300)]
    rows.append((tier.label, mps_percent(tier, h100), *times))
columns = ["tier (predicted)", "MPS percentage (%)", "emulated / real, 0.25 FLOP/B", "10 FLOP/B", "300 FLOP/B"]
labkit.plots.show(pd.DataFrame(rows, columns=columns))
reveal("02.too_fast", 1 / rows[0][2])

# %% memory [markdown]
"""
## Too much memory

A budget of memory must end the job that needs more, and nothing else. When does a training need more? Count what it keeps for each weight.
"""

# %% ex-02-kept [markdown]
"""
### Exercise 02.kept

A table of `millions` million rows, `width` numbers each, single precision, is trained with Adam and dense gradients. How many GB does training keep: weights, gradients, and Adam's two moments of each weight?
"""

# %% numbers-02-kept
numbers = draw("02.kept", student)

# %% answer-02-kept-prose [markdown]
"""
Write the answer as an expression of `numbers`, or as a number.
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
    hint="Numbers of the table × bytes that each needs while it is trained with Adam.",
    explanation="Four times what a model needs that is only asked: training is what memory ends.",
    mistakes={
        lambda millions, width: 4e-3 * millions * width: "Those are the weights alone; what else does Adam keep?",
        lambda millions, width: 12e-3 * millions * width: "Weight, gradient, two moments: four numbers.",
        lambda millions, width: 16.0 * millions * width: "That is in MB.",
    },
)

# %% ex-02-largest [markdown]
"""
### Exercise 02.largest

The other way round: write `largest_table(memory_bytes, base_bytes)`, the most weights that Adam can train in so much memory, of which Python and torch hold `base_bytes` before the first weight.
"""


# %% answer 02.largest
def largest_table(memory_bytes: float, base_bytes: float) -> int:
    """Most single-precision weights that Adam can train next to what is held already."""
    ### BEGIN SOLUTION
    return int((memory_bytes - base_bytes) // 16)
    ### END SOLUTION


# %% check 02.largest points=3
check("02.largest", largest_table)

# %% checks
EXERCISES["02.largest"] = WrittenExercise(
    largest_table,
    module="machine",
    cases=(
        Case("1 GiB, of which 200 MB are taken", lambda code: code(2**30, 200e6), relative=1e-7),
        Case("room for less than one number", lambda code: code(1010.0, 1000.0)),
        Case("a GPU of 16 GB", lambda code: code(16e9, 0.5e9), relative=1e-7),
    ),
    mistakes={
        ("16", "4"): "Beside each weight stand its gradient and Adam's two moments.",
        ("16", "12"): "Weight, gradient, and two moments: four numbers, not three.",
        ("16", "8"): "Weight and gradient are half of it: Adam keeps two moments for each.",
    },
    hint="Weight, gradient and Adam's two moments: four numbers of 4 bytes each, in what base_bytes leaves.",
    explanation="16 bytes a parameter, before any activation.",
)

# %% grow-prose [markdown]
"""
A script that trains larger and larger tables for two steps each, under the budget it is given, and says what it holds at first and how long a step takes:
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
Run it under 1 GiB, in steps of 4 million weights, up to twice what your function says for an empty machine. On Linux a watch next to the process reads what it holds and ends it; this notebook and everything else go on. macOS and Windows cannot limit one process, and the loop then runs to its end.
"""

# %% grow-run
import subprocess
import sys

most = 2 * largest_table(2**30, 0) // 10**6
child = subprocess.run([sys.executable, "-c", GROW, "memory=1GiB", str(most)], capture_output=True, text=True)
base, *lines = child.stdout.splitlines()
sizes = [tuple(map(float, line.split())) for line in lines if line[:1].isdigit() and len(line.split()) == 2]
stopped = child.returncode != 0
print(child.stderr.strip().splitlines()[-1] if stopped else "nothing stopped it")

# %% fits-prose [markdown]
"""
Predicted by your function from what the process held at first, and the largest table that was trained:
"""

# %% fits
predicted_millions, (measured_millions, step_s) = largest_table(2**30, float(base)) / 1e6, sizes[-1]
print(f"predicted {predicted_millions:.1f} million weights; {measured_millions:.0f} million fitted,", end=" ")
print(f"a step of them took {1e3 * step_s:.0f} ms, emulated")

# %% claim-F1-prose [markdown]
"""
## Judge

"Available memory is the main limitation to performance and scaling up", says a study of small boards that run an industry benchmark (TPCx-AI on Jetsons, 2022). This is an analogue: one kind of training, grown under an enforced budget. Did memory end it, or had it become too slow before (more than a second a step)?
"""

# %% claim F1 points=1
### BEGIN SOLUTION
verdict = "holds here" if stopped and step_s < 1 else "does not hold here"
answer = verdict, "an analogue: Adam's state filled the budget while a step was still short"
### END SOLUTION
result = (
    f"under 1 GiB, ended by memory: {stopped}; {measured_millions:.0f} million weights, {1e3 * step_s:.0f} ms a step"
)
claim("F1", result, answer, how="emulated")

# %% mapped-prose [markdown]
"""
What is *not* counted: prepared data are mapped files, whose pages the kernel can read again from the disk. A job under 2 GiB reads through a mapped file of 10 GB without being stopped; what a process makes itself has nowhere else to go.

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
    one_core_cores_used=(cores_used, 0.01, 1.05),
    one_core_arithmetic_share=(found["arithmetic"][0], 1e-3, 20),
    one_core_bandwidth_share=(found["bandwidth"][0], 1e-3, 20),
    stopped_by_its_budget=(stopped, 0, 1),
    fitted_millions=(measured_millions, 4, most),
)

# %% recap [markdown]
"""
## Recap

- A budget binds cores by affinity, memory by a limit, a GPU by MPS: a run under it is *emulated*.
- Pairs and an interval say whether it binds; shares of cores are not shares of speed.
- It makes *this* machine smaller, and no other: clocks, caches, bandwidth and other precisions stay. Believe an emulated ratio of budgets of one machine; for other hardware, only right of that tier's ridge.
- Training keeps 16 bytes a weight with Adam, before any activation. A job that needs more than its budget ends with an error that names it.

**Next:** [Train a DLRM to a target](10_train_dlrm.ipynb)
"""

# %% opening [markdown]
"""
# Batch size and accuracy

After this notebook you will be able to

- **fit** how much more training a larger batch needs, to other people's runs and to your own;
- **predict** the batch size that is soonest at a target from two curves, and **say** where that prediction fails;
- **compare** batch sizes with the learning rate kept, scaled and tuned, after one epoch;
- **reduce** a grid of runs (batch × rate × seeds) to need, rate and time, with failures counted;
- **judge** six claims of papers and their repositories by your own numbers.

**Time:** 90 minutes in two halves of 45, which stand alone: *other people's runs* and *your runs*. The machine computes for about two minutes on 2 CPU cores. No GPU is needed.

**Prerequisites:** [Train a DLRM](10_train_dlrm.ipynb), whose model and loop the second half takes from your `mylab/dlrm.py`, or labkit's in their place.
"""

# %% checks
import math
from typing import Any

import numpy as np
import pandas as pd

from labkit_course.exercise import Case, Exercise, Explanation, WrittenExercise

EXERCISES = {}

# %% parameters-prose [markdown]
"""
The next cell holds what you may change. `student` is your number, if your course gave you one: one question draws its figures by it.
"""

# %% parameters tags=["parameters"]
profile = "standard"  # smoke, standard or full
runs_dir = "runs"  # run folders are made in its subfolder notebooks
student = 0  # whose numbers the questions have
seed = 0

# %% question [markdown]
"""
## Two curves and their quotient

With a larger batch the same samples are cut into fewer, larger steps. Each sample then costs less overhead, so there are more samples a second: the curve that benchmarks report. But a step of twice the samples does not teach twice as much, so the target takes more samples: the curve that they leave out. What you pay for is the quotient:

time to the target = samples to the target ÷ samples a second.

## First half: other people's runs

MLPerf checks submissions against **reference convergence points**: how many epochs a batch size takes to the target, measured over ten seeds and more. The card of the recording says what they are, and what they cannot say.
"""

# %% card
import labkit
from labkit_course import check, claim, draw, explain, guess, model_answer, reveal

card = labkit.runs.read_card("mlperf-rcp")
print(f"{card.title}\nby {card.authors}\n{card.date}\n\nIt cannot say: {card.cannot_say}")

# %% guess-rnnt-prose [markdown]
"""
The speech recogniser RNN-T, trained to a word error rate of 5.8 %, takes 41 epochs at a batch of 512, in the median of 20 seeds, and 44 at 1,024. **How many at 6,144, twelve times the first?**
"""

# %% guess-rnnt
guess("13.rnnt_epochs", 60, "epochs")

# %% mlperf-prose [markdown]
"""
`by_batch_size` makes a row a batch size. *need* is the median of the epochs that it took, with its interval over seeds; rate and time stay empty, for none was published. Under each job stand the learning rates of its batch sizes.
"""

# %% mlperf
import pandas as pd

jobs = {"RNN-T (MLPerf)": 0.058, "DLRM (MLPerf)": 0.8025, "DLRM-DCNv2 (MLPerf)": 0.80275}
points = {}
for job, goal in jobs.items():
    of_job, evaluations = labkit.runs.recorded("mlperf-rcp", job=job)
    points[job] = labkit.tta.by_batch_size(evaluations, of_job, goal, unit="epochs").assign(device=job)
    print(job, of_job.groupby("batch_size")["learning_rate"].first().to_dict())
reveal("13.rnnt_epochs", points["RNN-T (MLPerf)"]["need"].iloc[-1])

# %% mlperf-figure-prose [markdown]
"""
All three, each to its own target. RNN-T and DLRM have a learning rate and a schedule of their own at each batch size. DLRM-DCNv2 does not: five of its six sizes have one rate, so its line says what a larger batch does with everything else kept. How far any rate was searched for is not stated, and runs that did not arrive are not in the files.
"""

# %% mlperf-figure
mlperf = pd.concat(points.values())
labkit.plots.show(labkit.plots.figure_batch_size(mlperf))

# %% line-prose [markdown]
"""
### Write 13.line

McCandlish et al. (2018, arXiv 1812.06162) describe such a curve by two numbers: need = need_min · (1 + B / critical). Far below the **critical batch size** a batch twice as large takes half the steps; at it, twice as many samples are needed as at best; far above it, more samples buy hardly fewer steps. So the need is a straight line over the batch size B.

`fit_line(batch_size, value)` takes two sequences and returns a pair: the line's value at zero, and the batch size at which it is twice that.

1. Leave out values that are not finite: batch sizes that never arrived.
2. Fit by least squares of the *relative* errors: `np.polyfit(batch_size, value, 1, w=1 / value)` gives the slope and the value at zero.
3. Where the slope is not positive, nothing is ever doubled: `math.inf`.

*Hint:* `np.asarray(value, float)` and `np.isfinite` make an index.
"""

# %% answer 13.line
import math

import numpy as np


def fit_line(batch_size, value):
    """The value at batch size zero, and the batch size at which it is twice that; inf where it does not grow."""
    ### BEGIN SOLUTION
    batch_size, value = np.asarray(batch_size, float), np.asarray(value, float)
    known = np.isfinite(value)
    slope, at_zero = np.polyfit(batch_size[known], value[known], 1, w=1 / value[known])
    return at_zero, at_zero / slope if slope > 0 else math.inf
    ### END SOLUTION


# %% check 13.line points=5
check("13.line", fit_line)


# %% checks
def _noisy(at_zero: float, doubled_at: float, sizes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Batch sizes from 2 on, and values up to a fifth off the line."""
    batch_size = 2.0 ** np.arange(1, sizes + 1)
    off = np.random.default_rng(seed).uniform(0.8, 1.2, sizes)
    return batch_size, at_zero * (1 + batch_size / doubled_at) * off


def _with_failures(code: Any) -> Any:
    batch_size, value = _noisy(3.0, 50, 8, 2)
    return code(batch_size, np.where(batch_size > 100, np.inf, value))


EXERCISES["13.line"] = WrittenExercise(
    fit_line,
    module="batch",
    cases=(
        Case("three values on a line", lambda code: code([100, 200, 400], [6.0, 7.0, 9.0])),
        Case("twelve values near a line", lambda code: code(*_noisy(0.7, 300, 12, 1))),
        Case("the two largest batches never arriving", _with_failures),
        Case("values that fall with the batch", lambda code: code([32, 64, 128, 256], [15.0, 4.0, 3.0, 3.0])),
    ),
    mistakes={
        (", w=1 / value[known]", ""): (
            "So the largest values count most: weigh each by w = 1 / value, so that relative errors count."
        ),
        ("at_zero / slope if slope > 0 else math.inf", "slope"): (
            "That is the slope; asked is the batch size at which the value is twice that at zero, at_zero / slope."
        ),
        ("at_zero / slope if slope > 0 else math.inf", "at_zero / slope"): (
            "A value that does not grow with the batch is never doubled: math.inf."
        ),
    },
    hint="np.polyfit(batch_size, value, 1, w=1 / value) of the finite values gives the slope and the value at zero; "
    "it is doubled at at_zero / slope.",
    explanation="Two numbers say a curve: what no batch goes below, and the batch that takes twice as much.",
)

# %% line-use-prose [markdown]
"""
Your fit of the medians. Does it foretell? The last column is the need at each job's largest batch, *predicted* by a fit to the smaller ones.
"""

# %% line-use
rows = {}
for job, own in points.items():
    need_min, critical = fit_line(own["batch_size"], own["need"])
    least, doubled = fit_line(own["batch_size"][:-1], own["need"][:-1])
    size, epochs = own[["batch_size", "need"]].iloc[-1]
    rows[job] = need_min, critical, size, epochs, least * (1 + size / doubled)
names = ["need_min (epochs)", "critical batch", "largest batch", "its epochs, recorded", "its epochs, predicted"]
fits = pd.DataFrame(rows, index=names).T
labkit.plots.show(fits)

# %% steps-prose [markdown]
"""
RNN-T's critical batch lies among its recorded sizes. Those of the two recommendation models lie beyond theirs: they are *extrapolated*, so say of them that they are larger, and not how many times. Shallue et al. (JMLR 2019, abstract) found "extremely large variation between workloads", too, and "no evidence that larger batch sizes degrade out-of-sample performance", with rates that they tuned for each batch size.

### Write 13.time

Now the other curve. A step has an **overhead** that it pays whatever its size, and then a time for each sample: step = overhead · (1 + B / half), a line again. At the batch size *half* the overhead is half of the step.

`time_at(batch_size, need, step)` takes a batch size, or an array of them, and the pairs (need_min, critical) and (overhead, half). It returns the predicted time to the target: need over batch size is the number of steps.

*Hint:* one expression.
"""


# %% answer 13.time
def time_at(batch_size, need, step):
    """Time to the target: the need's number of steps, times that of a step."""
    ### BEGIN SOLUTION
    need_min, critical = need
    overhead, half = step
    return need_min * (1 + batch_size / critical) * overhead * (1 + batch_size / half) / batch_size
    ### END SOLUTION


# %% check 13.time points=3
check("13.time", time_at)

# %% checks
EXERCISES["13.time"] = WrittenExercise(
    time_at,
    module="batch",
    cases=(
        Case("one batch", lambda code: code(256, (4000.0, 300.0), (2e-3, 400.0))),
        Case("eight of them", lambda code: code(2.0 ** np.arange(4, 12), (5000.0, 800.0), (1e-3, 90.0))),
        Case("a need that never grows", lambda code: code(np.array([64.0, 4096.0]), (3.0, math.inf), (0.5, 1000.0))),
    ),
    mistakes={
        (" / batch_size\n", "\n"): (
            "That is as if each sample took a step of its own: the need has need / batch_size steps."
        ),
        (
            "(1 + batch_size / half)",
            "1",
        ): "A step takes longer with a larger batch: overhead · (1 + batch_size / half).",
        ("(1 + batch_size / critical)", "1"): "The need grows: need_min · (1 + batch_size / critical).",
    },
    hint="Need at this batch, over the batch, is the number of steps; times the seconds of a step.",
    explanation="Steps times seconds a step: many short ones at one end, few long ones at the other.",
)

# %% best-prose [markdown]
"""
### Exercise 13.best

Where is that time least? Multiply the brackets out: but for constants it is 1/B + B / (critical · half), which falls at first and rises in the end. `draw` prints your numbers: the critical batch size, a step's overhead in ms, and its time a sample in µs. **Which batch size is soonest?**
"""

# %% draw-best
numbers = draw("13.best", student)

# %% best-answer-prose [markdown]
"""
Write an expression with `numbers["critical"]`, `numbers["overhead_ms"]` and `numbers["sample_us"]`, or the number.
"""

# %% answer 13.best
### BEGIN SOLUTION
answer = (numbers["critical"] * 1e3 * numbers["overhead_ms"] / numbers["sample_us"]) ** 0.5
### END SOLUTION

# %% check 13.best points=1
check("13.best", answer, student)

# %% checks
EXERCISES["13.best"] = Exercise(
    truth=lambda critical, overhead_ms, sample_us: math.sqrt(critical * 1e3 * overhead_ms / sample_us),
    draw=lambda random: {
        "critical": random.randrange(2_000, 20_000, 100),
        "overhead_ms": random.randrange(11, 60) / 10,
        "sample_us": random.randrange(11, 60) / 10,
    },
    unit="samples",
    mistakes={
        (lambda critical, overhead_ms, sample_us: critical): (
            "That is where the need has doubled. Below it a larger batch may already lose more than it gains."
        ),
        (lambda critical, overhead_ms, sample_us: 1e3 * overhead_ms / sample_us): (
            "That is where the overhead is half of a step. There a larger batch may still gain more than it loses."
        ),
        (lambda critical, overhead_ms, sample_us: (critical + 1e3 * overhead_ms / sample_us) / 2): (
            "The geometric mean of the two, not the arithmetic one: take the derivative of 1/B + B/(critical · half)."
        ),
    },
    hint="But for constants the time is 1/B + B / (critical · half); half is the overhead over the time of a sample.",
    explanation="√(critical · half): where a larger batch loses in need what it gains in rate.",
)

# %% zeus-prose [markdown]
"""
### Runs that have times

The authors of *Zeus* (You, Chung and Chowdhury, NSDI 2023) trained DeepSpeech2 on LibriSpeech at 15 batch sizes with up to five seeds, and timed an epoch of each on a P100, V100, RTX 6000 and A40. Each time was taken once, so what differs by seed is the number of epochs, which are whole. **On the V100, from 2 samples a step to 192: which batch size was the soonest at a word error rate of 40 %?**
"""

# %% guess-v100
guess("13.v100_batch", 192, "samples a step")

# %% zeus-load-prose [markdown]
"""
Need, rate and time of each GPU and batch size, at each GPU's highest power limit.
"""

# %% zeus
speech, evaluations = labkit.runs.recorded("zeus-nsdi23", job="deepspeech2 on librispeech", power_limit_w="max")
gpus = labkit.tta.by_batch_size(evaluations, speech, 0.40, unit="epochs")
v100 = gpus[gpus["device"] == "V100"].set_index("batch_size")
reveal("13.v100_batch", v100["time_s"].idxmin())

# %% zeus-figure-prose [markdown]
"""
The two curves, and their quotient below. Epochs are the same runs on every GPU; they differ by what was timed on each.
"""

# %% zeus-figure
labkit.plots.show(labkit.plots.figure_batch_size(gpus))

# %% zeus-fit-prose [markdown]
"""
What would your two lines have said? An epoch's time × B grows with B as a step does, so one fit gives *half*. *Off* is how far the time at the predicted batch lies above the least, by the recorded batch nearest to it.
"""

# %% zeus-fit
rows = {}
for gpu, own in gpus.groupby("device"):
    need, step = fit_line(own["batch_size"], own["need"]), fit_line(own["batch_size"], own["batch_size"] / own["rate"])
    best = (need[1] * step[1]) ** 0.5
    near = own.loc[(own["batch_size"] / best).map(np.log).abs().idxmin()]
    soonest = own.loc[own["time_s"].idxmin()]
    off = 100 * (near["time_s"] / soonest["time_s"] - 1)
    rows[gpu] = (need[1], step[1], best, soonest["batch_size"], soonest["time_s"] / 3600, off)
names = ["critical", "half", "soonest batch, predicted", "soonest batch, recorded", "its hours, recorded", "off (%)"]
labkit.plots.show(pd.DataFrame(rows, index=names).T)

# %% zeus-words [markdown]
"""
Right in kind, up to 1.7 times too large a batch, for two reasons: past some 60 samples the A40, RTX 6000 and V100 get *slower* a sample, which no line of a step can say; and whole epochs make the need a staircase of 6, 7 and 8. It costs less than a fifth of the time, because the quotient is flat around its least.

### Where the need falls

The same authors' NCF on MovieLens-1M, on the V100. The learning rate was not tuned for each batch size there: it follows from it, by a rule (its root). Two targets of the ranking metric NDCG:
"""

# %% ncf
ranking, evaluations = labkit.runs.recorded(
    "zeus-nsdi23", job="ncf on movielens-1m", power_limit_w="max", device="V100"
)
ncf = {goal: labkit.tta.by_batch_size(evaluations, ranking, goal, unit="epochs") for goal in (0.40, 0.42)}
table = pd.DataFrame({"epochs to 0.40": ncf[0.40].set_index("batch_size")["need"]})
for goal, own in ncf.items():
    arrive = own["reached"].map(str) + " of " + own["runs"].map(str)
    table[f"arrive at {goal:.2f}"] = arrive.to_numpy()
table["seconds to 0.40"] = ncf[0.40]["time_s"].to_numpy()
labkit.plots.show(table.rename_axis(columns="recorded, V100"))
print("critical batch size by the line:", fit_line(ncf[0.40]["batch_size"], ncf[0.40]["need"])[1])

# %% why-quotient-prose [markdown]
"""
At 0.40 the need *falls* up to a batch of 128 and is flat from there: the largest batch is the soonest, the smallest never arrive. At 0.42 most runs arrive at 128 and at 256 alone. A line that fits MLPerf's points says nothing of these.

### Explain 13.why_quotient

In two or three sentences, of one GPU's DeepSpeech2: which batch size needs least, which is fastest, which is soonest, and why are these three? What would change your choice? Give numbers (`v100` has a row a batch size; hours are `time_s` / 3600).
"""

# %% explain 13.why_quotient points=2
### BEGIN SOLUTION
answer = model_answer("13.why_quotient")
### END SOLUTION
explain("13.why_quotient", answer)

# %% checks
EXERCISES["13.why_quotient"] = Explanation(
    rubric=(
        "numbers: of one device, the batch with the least epochs, that with the most epochs an hour, that with the "
        "least time",
        "why: what the time is a quotient of, and which of the two wins on each side",
        "trade-off: what the choice depends on as well as the batch: the target, the device, how the learning rate was set",
    ),
    model="On the V100 the fewest epochs, 6, are at batch 12 and the most epochs an hour, 0.67, at 56; the least time, "
    "10.5 h, is at 48, where neither is best. Below it the rate still grows faster than the epochs, for each step's "
    "overhead is shared by more samples; above it the rate is flat and the epochs are not. The largest batch that fits "
    "takes 17.2 h, and a harder target may be met by smaller batches alone, so the choice goes with target and device.",
)

# %% second-half [markdown]
"""
## Second half: your runs

If you begin here, run the parameters' cell at the top and then this one. `mine` takes your own code from `mylab/`, and labkit's reference where you have none yet. All of it computes on one thread, so that other programs on your machine disturb it less.
"""

# %% second-half-start
import statistics
import time

import torch

from labkit_course import check, claim, explain, guess, mine, model_answer, reveal

torch.set_num_threads(1)

# %% mine-prose [markdown]
"""
Model, optimisers, loop, score and interval of [Train a DLRM](10_train_dlrm.ipynb), and both lines of the first half:
"""

# %% mine
MyDlrm, make_optimizers = mine("10.model"), mine("10.rows")
overfit, train = mine("10.overfit"), mine("10.loop")
auc, interval = mine("10.auc"), mine("10.interval")
fit_line, time_at = mine("13.line"), mine("13.time")

# %% data-prose [markdown]
"""
The small click log of [Train a DLRM](10_train_dlrm.ipynb), 50,000 rows to train on (20,000 at `smoke`). The validation AUC is for choosing, the test AUC is of rows that nothing is chosen by.
"""

# %% data
log = labkit.data.clicks.load_clicks("synthetic-small")
rows = log.split("train").spread(20_000 if profile == "smoke" else 50_000)
validation, test = log.split("validation"), log.split("test")

# %% config-prose [markdown]
"""
The model's sizes:
"""

# %% config
config = labkit.models.DlrmConfig(len(log.dense_names), log.table_rows, **labkit.jobs.get_preset("dlrm", "tour").model)

# %% score-prose [markdown]
"""
The score of a model on a split, and batches to train it on:
"""


# %% score
@torch.inference_mode()
def score(model, split):
    logits = [model(dense, categorical) for dense, categorical, _ in labkit.data.clicks.in_order(split, 2048)]
    return auc(split.label, torch.cat(logits).numpy())


# %% throughput-guess-prose [markdown]
"""
### Samples a second

The curve that benchmarks report. **From 1,024 to 8,192 samples a step, how many times as many samples a second?**
"""

# %% guess-throughput
guess("13.throughput", 4.0, "times")

# %% throughput-prose [markdown]
"""
`overfit` takes the steps; each batch is eight times as large as the one before.
"""

# %% throughput
samples_per_s, repeats = {}, {"smoke": 2, "standard": 7, "full": 15}[profile]
for size in (2, 16, 128, 1024, 8192):
    model, times_s = MyDlrm(config), []
    optimizers, batch = make_optimizers(model, 2e-3), next(iter(labkit.data.clicks.ClickBatches(rows, size, seed)))
    overfit(model, optimizers, batch, 1)
    for _ in range(repeats):
        start = time.perf_counter()
        overfit(model, optimizers, batch, 2)
        times_s.append((time.perf_counter() - start) / 2)
    samples_per_s[size] = size / statistics.median(times_s)

# %% throughput-reveal-prose [markdown]
"""
Eight times the batch bring at most about eight times as much: a larger figure was disturbed. A step's line has an overhead and a *half*, as above.
"""

# %% throughput-reveal
import pandas as pd

noise = "" if labkit.telemetry.is_quiet() else ", while others computed"
throughput = pd.DataFrame({"samples a second, measured": pd.Series(samples_per_s).rename_axis("batch size")})
throughput["times the one before"] = throughput.iloc[:, 0].pct_change() + 1
first_gain, last_gain = throughput["times the one before"].iloc[[1, -1]]
reveal("13.throughput", last_gain)
overhead_s, half = fit_line(throughput.index, throughput.index / throughput.iloc[:, 0])
print(f"overhead {1e3 * overhead_s:.2f} ms, half at a batch of {half:.0f}")
throughput.map("{:,.3g}".format)

# %% grid-prose [markdown]
"""
### The grid: batch × learning rate × seeds

One function trains one epoch of a batch size, a learning rate and a seed, evaluated each 1,000 samples (or each step, where that has more). Whatever its AUC, every run goes on to the end of its epoch: so a target can be moved afterwards.
"""

# %% one-run
import labkit


def one_run(batch_size, lr, seed):
    torch.manual_seed(seed)
    model, facts = MyDlrm(config), {"batch_size": batch_size, "lr": lr}
    batches = labkit.data.clicks.ClickBatches(rows, batch_size, seed)
    settings = {"target": "max auc", "evaluate_every": 1000}
    with labkit.Run("one-epoch", runs_dir=f"{runs_dir}/notebooks", seed=seed, config=facts, **settings) as run:
        train(run, model, make_optimizers(model, lr), batches, lambda: score(model, validation), epochs=1)
    return facts | {"seed": seed, "folder": run.folder, "run": run.folder.name, "test_auc": score(model, test)}


# %% guess-kept-prose [markdown]
"""
Batch 512 at a rate of 0.002 is the base: it has a test AUC of 0.75 after one epoch (0.64 at `smoke`). **Batch 2,048 instead, everything else kept: which test AUC?**
"""

# %% guess-kept
guess("13.kept_auc", 0.74)

# %% guess-own-prose [markdown]
"""
The target will be a validation AUC of 0.72 (0.60 at `smoke`), each batch size at its own best rate. **Which of 64, 256, 512, 1,024, 2,048 and 4,096 is the soonest?**
"""

# %% guess-own
guess("13.own_batch", 1024, "samples a step")

# %% cells-prose [markdown]
"""
Every batch size at every rate, seed after seed, so that other programs disturb all batch sizes alike; the base with more seeds than the others. At `smoke` the rates are few: kept, and scaled with the batch.
"""

# %% cells
sizes = (64, 512, 2048, 4096) if profile == "smoke" else (64, 256, 512, 1024, 2048, 4096)
rates = (2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2)
seeds = {"smoke": 1, "standard": 3, "full": 5}[profile]
cells = [(size, rate, each) for each in range(seeds) for size in sizes for rate in rates]
if profile == "smoke":
    cells = [cell for cell in cells if cell[1] in (2e-3, 2e-3 * cell[0] / 512)]
cells += [(512, 2e-3, each) for each in range(seeds, 2 if profile == "smoke" else 5)]

# %% sweep-prose [markdown]
"""
This takes the longest of the notebook, about a minute and a half at `standard`. `LABKIT_QUIET` keeps the runs from printing their progress.
"""

# %% sweep
import os

os.environ["LABKIT_QUIET"] = "1"
sweep = pd.DataFrame([one_run(*cell) for cell in cells])

# %% frames-prose [markdown]
"""
From run folders to frames: a row a run, and a row an evaluation. The last validation AUC of each run is that of the weights that are tested.
"""

# %% frames
table = labkit.tta.run_table(sweep["folder"])
evaluations = labkit.tta.curves(sweep["folder"], runs=table)
sweep["validation_auc"] = sweep["run"].map(evaluations.groupby("run")["value"].last())
print(f"{len(table)} runs, {(table['disturbed'] != '').sum()} of them disturbed by other programs")
base = sweep[(sweep["batch_size"] == 512) & (sweep["lr"] == 2e-3)]

# %% rates-prose [markdown]
"""
### Write 13.rates

First, what the published tables give: the accuracy after **one epoch**. A larger batch has fewer steps in it. So people change its learning rate: **kept** as it was, **scaled** with the batch (four times the batch, four times the rate), or **tuned**, the best of several.

`three_rates(runs, batch_size, base_batch, base_lr)` takes a frame with a row a run and the columns `batch_size`, `lr`, `seed`, `validation_auc` and `test_auc`. It returns a dictionary of the mean test AUC of that batch size, over seeds, at the rate `"kept"` (`base_lr`), `"scaled"` and `"tuned"`. *Tuned* is the rate with the best mean **validation** AUC; its **test** AUC is reported.

*Hint:* `groupby("lr")` of that batch size's rows, the mean of both columns; `idxmax` gives the best one's rate.
"""


# %% answer 13.rates
def three_rates(runs, batch_size, base_batch, base_lr):
    """Mean test AUC of a batch size with the learning rate kept, scaled and tuned."""
    ### BEGIN SOLUTION
    means = runs[runs["batch_size"] == batch_size].groupby("lr")[["validation_auc", "test_auc"]].mean()
    rates = {
        "kept": base_lr,
        "scaled": base_lr * batch_size / base_batch,
        "tuned": means["validation_auc"].idxmax(),
    }
    return {name: means.loc[rate, "test_auc"] for name, rate in rates.items()}
    ### END SOLUTION


# %% check 13.rates points=5
check("13.rates", three_rates)


# %% checks
def _runs(*, seeds: int = 2) -> pd.DataFrame:
    """Two batch sizes with the same rates; the best single run, and that by test AUC, are at others than the best."""
    import pandas as pd

    validation = {0.002: 0.71, 0.004: 0.73, 0.008: 0.76, 0.016: 0.75}
    test = {0.002: 0.70, 0.004: 0.74, 0.008: 0.75, 0.016: 0.77}
    spread = {0.002: 0.0, 0.004: 0.04, 0.008: 0.005, 0.016: 0.002}
    rows = [
        (
            batch,
            lr,
            seed,
            validation[lr] + sign * spread[lr] - batch / 1e5,
            test[lr] + sign * spread[lr] / 2 - batch / 1e4,
        )
        for batch in (100, 400)
        for lr in validation
        for seed, sign in zip(range(seeds), (1, -1), strict=False)
    ]
    return pd.DataFrame(rows, columns=["batch_size", "lr", "seed", "validation_auc", "test_auc"])


def _by(means: Any) -> Any:
    """A wrong choice of the tuned rate's value: `means` takes the runs of the batch size."""
    return lambda runs, batch_size, *base: (
        three_rates(runs, batch_size, *base) | {"tuned": means(runs[runs["batch_size"] == batch_size])}
    )


EXERCISES["13.rates"] = WrittenExercise(
    three_rates,
    module="batch",
    cases=(
        Case("a batch 4 times as large, two seeds", lambda code: code(_runs(), 400, 100, 0.002)),
        Case("the base itself", lambda code: code(_runs(), 100, 100, 0.002)),
        Case("another rate to begin with, one seed", lambda code: code(_runs(seeds=1), 400, 100, 0.004)),
    ),
    mistakes={
        ('runs[runs["batch_size"] == batch_size]', "runs"): (
            "The other batch sizes have the same rates: take the rows of yours first."
        ),
        ('means["validation_auc"].idxmax()', 'means["test_auc"].idxmax()'): (
            "The rate is chosen by the test split here, which then says nothing new: choose by validation_auc."
        ),
        _by(lambda runs: runs.loc[runs["validation_auc"].idxmax(), "test_auc"]): (
            "That is the luckiest single run: take the mean over the seeds of each rate first."
        ),
    },
    hint="Mean of both columns for each lr of that batch size; the kept rate is base_lr, the scaled one base_lr × "
    "batch_size / base_batch, the tuned one has the largest mean validation_auc; give the mean test_auc of each.",
    explanation="Chosen on one split, reported on another: the test split was used for no choice.",
)

# %% rates-table-prose [markdown]
"""
Your function over the grid, from the base on, with the time that an epoch's steps took. And how far seeds bound the base: a difference smaller than that is no finding.
"""

# %% rates-table
three = pd.DataFrame({size: three_rates(sweep, size, 512, 2e-3) for size in sizes if size >= 512}).T
reveal("13.kept_auc", three.loc[2048, "kept"])
low, high = interval(base["test_auc"].to_numpy())
print(f"base: mean test AUC {base['test_auc'].mean():.4f}, 95 % from {low:.4f} to {high:.4f}, {len(base)} seeds")
sweep["train_s"] = sweep["run"].map(table.set_index("run")["train_s"])
epoch_s = sweep.groupby("batch_size")["train_s"].median()
three.rename_axis("batch size, measured").assign(**{"an epoch (s)": epoch_s}).round(4)

# %% rates-figure-prose [markdown]
"""
All rates, by the AUC that chooses: each batch size has its own best, and a rate can be too large for any of them.
"""

# %% rates-figure
means = sweep.groupby(["batch_size", "lr"], as_index=False)["validation_auc"].mean()
means = means.assign(batch="batch " + means["batch_size"].astype(str), provenance="measured")
finding = f"Kept at 0.002, batch 2048 has a test AUC of {three.loc[2048, 'kept']:.3f}."
figure = labkit.plots.new_figure("Learning rate of Adam (logarithmic)", "Mean validation AUC after one epoch", finding)
for look, name, own in labkit.plots.series(means, "batch", "provenance"):
    figure.add_scatter(x=own["lr"], y=own["validation_auc"], name=name, **look.curve(8))
labkit.plots.show(figure.update_xaxes(type="log", tickvals=rates))

# %% published-prose [markdown]
"""
### The published tables

Recorded by the authors of `torchrec_dlrm` on Criteo 1TB, one epoch on A100-40GB GPUs. Two versions of their README, with other tables, optimisers and software: rows of one may be compared with each other, not with rows of the other.
"""

# %% published
readmes = labkit.runs.recorded_table("torchrec-dlrm", "one_epoch")
four = {name: readmes[name].map("{:.4f}".format) for name in ("auroc_validation", "auroc_test")}
shown = readmes.assign(**four, hours=readmes["epoch_s"] / 3600).set_index("batch_size")
columns = ["gpus", "model", "optimizer", "learning_rate", *four, "samples_per_s", "hours"]
for year, own in shown.groupby("readme"):
    print(f"README of {year}, {own['tables_gib'].iloc[0]} GiB of tables ({own['provenance'].iloc[0]})")
    labkit.plots.show(own[columns])

# %% published-words [markdown]
"""
Neither is a clean experiment: no seed is repeated, optimisers and rates change between the rows, and at 65,536 the rate was expressly not tuned. Is yours? It has several rates and seeds on one optimiser and one log, yet three seeds a cell are few, the grid of rates is coarse, and the log is small and generated. What differs most is the number of steps in an epoch: here 98, 25 and 13 at `standard`; there 204,800 samples a second in steps of 2,048, for 6 h 30 min, are more than two million. So the *size* of a loss here says nothing about theirs.

### Write 13.needs

Now to a target, from the same runs. `needs(runs, curves, target)` takes `runs`, a row a run, and `curves`, a row an evaluation (`run`, `samples`, `train_s`, `value`), and returns `runs` with two more columns:

1. `need`: the samples at the run's first evaluation at or above the target; `math.inf` of a run that never arrives;
2. `rate`: its samples a second of training, `samples` over `train_s` of its last evaluation.

*Hint:* `runs["run"].map(...)` puts a series by run into a column; both `samples` and `train_s` grow within a run.
"""

# %% answer 13.needs
import math


def needs(runs, curves, target):
    """The runs, each with its samples until the target (inf: it never arrives) and its samples a second."""
    ### BEGIN SOLUTION
    first = curves[curves["value"] >= target].groupby("run")["samples"].min()
    last = curves.groupby("run")[["samples", "train_s"]].max()
    need = runs["run"].map(first).fillna(math.inf)
    return runs.assign(need=need, rate=runs["run"].map(last["samples"] / last["train_s"]))
    ### END SOLUTION


# %% check 13.needs points=4
check("13.needs", needs)


# %% checks
def _grid(*ends: float, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Runs whose metric rises to one of `ends` and falls again, given in an order of their own."""
    rng = np.random.default_rng(seed)
    runs = pd.DataFrame({"run": [f"run-{i}" for i in range(len(ends))], "batch_size": 64, "lr": 0.01})
    values = 0.5 + np.outer(np.array(ends) - 0.5, [0.3, 0.6, 1.0, 0.8, 0.9])
    train_s = rng.uniform(1, 2, (len(ends), 5)).cumsum(axis=1)
    curves = pd.DataFrame({"run": runs["run"].repeat(5), "samples": np.tile(np.arange(1, 6) * 1000.0, len(ends))})
    curves = curves.assign(train_s=train_s.ravel(), wall_s=3 * train_s.ravel(), value=values.ravel())
    return runs.sample(frac=1, random_state=seed), curves


def _needs(*ends: float, target: float, without: str = "") -> Any:
    def ask(code: Any) -> Any:
        runs, curves = _grid(*ends)
        found = code(runs, curves[curves["run"] != without], target)
        return {name: list(found.sort_values("run")[name]) for name in ("need", "rate")}

    return ask


EXERCISES["13.needs"] = WrittenExercise(
    needs,
    module="batch",
    cases=(
        Case("two runs that arrive", _needs(0.8, 0.7, target=0.66)),
        Case("one that never arrives", _needs(0.8, 0.6, 0.7, target=0.7)),
        Case("a run that was never evaluated", _needs(0.8, 0.75, target=0.7, without="run-1")),
    ),
    mistakes={
        (".min()", ".max()"): "The first evaluation at or past the target counts, not the last one.",
        (".fillna(math.inf)", ""): "NaN is no need, and a median would leave it out: a run that never arrives has inf.",
        (".fillna(math.inf)", '.fillna(curves["samples"].max())'): (
            "Where a run ended is not where it arrived: one that never arrives has inf."
        ),
    },
    hint="Of the evaluations at or above the target the least samples of each run, inf where there is none; the rate "
    "is the run's last samples over its last train_s.",
    explanation="Each run has a need, the one that failed, too.",
)

# %% by-batch-prose [markdown]
"""
### Write 13.by_batch

`by_batch(runs)` takes such a frame (`batch_size`, `lr`, `need`, `rate`) and returns a row a batch size, in their order, at the learning rate that is best for it, with the columns `batch_size`, `lr` and

1. `runs`, how many seeds, and `reached`, how many of them arrive;
2. `need`, `need_low`, `need_high`: median, least and greatest need; failed seeds count, as inf;
3. `rate`: the median; and `time_s`, `time_low_s`, `time_high_s`: each need over it.

The best learning rate of a batch size has the least `time_s`.

*Hint:* `groupby(["batch_size", "lr"], as_index=False).agg(need=("need", "median"), ...)`, then `idxmin` by batch size.
"""

# %% answer 13.by_batch
import numpy as np


def by_batch(runs):
    """A row a batch size, at its best rate: runs, reached, need, rate and time_s, with the range of the seeds."""
    ### BEGIN SOLUTION
    table = runs.groupby(["batch_size", "lr"], as_index=False).agg(
        runs=("need", "size"),
        reached=("need", lambda need: np.isfinite(need).sum()),
        need=("need", "median"),
        need_low=("need", "min"),
        need_high=("need", "max"),
        rate=("rate", "median"),
    )
    for end in ("", "_low", "_high"):
        table[f"time{end}_s"] = table[f"need{end}"] / table["rate"]
    return table.loc[table.groupby("batch_size")["time_s"].idxmin()]
    ### END SOLUTION


# %% check 13.by_batch points=6
check("13.by_batch", by_batch)


# %% checks
def _reduced(rows: list[tuple[int, float, list[float], float]], seed: int) -> Any:
    """Of series (batch size, rate, needs of its seeds, samples a second), in an order of their own."""
    frame = pd.DataFrame(
        [(size, lr, need, speed * (1 + place / 50)) for size, lr, own, speed in rows for place, need in enumerate(own)],
        columns=["batch_size", "lr", "need", "rate"],
    ).sample(frac=1, random_state=seed)
    columns = [*frame, "runs", "reached", "need_low", "need_high", "time_s", "time_low_s", "time_high_s"]
    return lambda code: code(frame)[columns].to_numpy(float)


def _drawn(seed: int) -> list[tuple[int, float, list[float], float]]:
    rng = np.random.default_rng(seed)
    sizes = ((size, lr) for size in (32, 128, 512) for lr in (0.001, 0.004, 0.016))
    return [(*each, list(rng.integers(5, 50, 3) * 1000.0), float(rng.uniform(3e4, 9e4))) for each in sizes]


EXERCISES["13.by_batch"] = WrittenExercise(
    by_batch,
    module="batch",
    cases=(
        Case("two batch sizes of one rate", _reduced([(8, 0.1, [4e3, 9e3, 5e3], 1e3), (16, 0.1, [6e3] * 3, 3e3)], 1)),
        Case("three batch sizes of three rates", _reduced(_drawn(3), 2)),
        Case(
            "a rate at which two of three seeds never arrive",
            _reduced([(8, 0.1, [1e3, math.inf, math.inf], 1e3), (8, 0.2, [7e3, 8e3, math.inf], 1e3)], 3),
        ),
        Case(
            "a rate that needs less and is slower",
            _reduced([(64, 0.1, [4e3, 5e3, 6e3], 1e3), (64, 0.2, [6e3, 7e3, 8e3], 5e3)], 4),
        ),
    ),
    mistakes={
        ('need=("need", "median")', 'need=("need", lambda need: need[np.isfinite(need)].median())'): (
            "That is the median of the seeds that arrive: those that fail count, with inf."
        ),
        ('need=("need", "median")', 'need=("need", "mean")'): (
            "The mean of seeds of which one fails is inf, however many arrive: take the median."
        ),
        ('["time_s"].idxmin()', '["need"].idxmin()'): (
            "That is the learning rate with the least samples; the best one has the least time, samples over rate."
        ),
    },
    hint="Group by batch size and lr: number of runs, those with a finite need, median, least and greatest need, "
    "median rate; times are needs over the rate; of each batch size the row with the least time_s.",
    explanation="Failed seeds hold the median up, and each batch size is judged at its own best rate.",
)

# %% grid-reduced-prose [markdown]
"""
Your grid, to the target. Which batch size is the soonest, and at which rate?
"""

# %% grid-reduced
target = 0.60 if profile == "smoke" else 0.72
grid = by_batch(needs(sweep, evaluations, target)).assign(target=target)
grid = grid.assign(device="one thread here", provenance="measured", unit="samples")
reveal("13.own_batch", grid.set_index("batch_size")["time_s"].idxmin())
labkit.plots.show(
    grid[["batch_size", "lr", "runs", "reached", "need", "rate", "time_s"]].rename_axis(columns="measured")
)

# %% same-prose [markdown]
"""
labkit's own reduction of the same folders: its intervals are others, but need, rate and time have to be yours.
"""

# %% same
theirs, same = labkit.tta.by_batch_size(evaluations, table, target), ["batch_size", "need", "rate", "time_s"]
print("the same as labkit's:", np.allclose(grid[same], theirs[same]))

# %% own-lines-prose [markdown]
"""
Your two lines through it: what they say is *predicted*.
"""

# %% own-lines
need = fit_line(grid["batch_size"], grid["need"])
step = fit_line(grid["batch_size"], grid["batch_size"] / grid["rate"])
best = (need[1] * step[1]) ** 0.5
print(f"need {need[0]:,.0f} samples at least, critical at a batch of {need[1]:,.0f}; half at {step[1]:,.0f}")
print(f"soonest at a batch of {best:.0f}, predicted")

# %% own-figure-prose [markdown]
"""
The same figure as of the recorded runs, with both lines and their quotient. A cross is a batch size with which half of the seeds or more did not arrive within the epoch.
"""

# %% own-figure
figure, drawn = labkit.plots.figure_batch_size(grid), 2.0 ** np.arange(6, 12.1, 0.25)
lines = need[0] * (1 + drawn / need[1]), drawn / (step[0] * (1 + drawn / step[1])), time_at(drawn, need, step)
for row, line in enumerate(lines, start=1):
    look = {"mode": "lines", "line": {"color": "#D55E00", "dash": "dot"}, "showlegend": row == 1}
    figure.add_scatter(x=drawn, y=line, name="two lines · predicted", row=row, col=1, **look)
labkit.plots.show(figure)

# %% targets-prose [markdown]
"""
And if the target moves? Which batch sizes arrive, and which is the soonest?
"""

# %% targets
rows = {}
for goal in np.round(target + np.arange(-0.04, 0.05, 0.02), 2):
    own = by_batch(needs(sweep, evaluations, goal))
    soonest, arrive = own.loc[own["time_s"].idxmin()], own.loc[np.isfinite(own["need"]), "batch_size"]
    rows[goal] = (", ".join(map(str, arrive)), soonest["batch_size"], soonest["time_s"])
names = ["batch sizes that arrive", "the soonest", "its seconds"]
labkit.plots.show(pd.DataFrame(rows, index=names).T.rename_axis("target AUC, measured"))

# %% one-line-prose [markdown]
"""
### One line for all

Each job's need over its own need_min, and its batch over its own critical one: if two numbers are enough, all lie on 1 + x, from batches of 64 on one thread to 160,000 on GPUs.
"""

# %% one-line
goals = {"RNN-T (MLPerf)": 0.058, "DLRM (MLPerf)": 0.8025, "DLRM-DCNv2 (MLPerf)": 0.80275}
jobs = {"DLRM here": grid[np.isfinite(grid["need"])]}
for job, goal in goals.items():
    of_job, points = labkit.runs.recorded("mlperf-rcp", job=job)
    jobs[job] = labkit.tta.by_batch_size(points, of_job, goal, unit="epochs")
of_job, points = labkit.runs.recorded(
    "zeus-nsdi23", job="deepspeech2 on librispeech", device="V100", power_limit_w="max"
)
jobs["DeepSpeech2 on the V100"] = labkit.tta.by_batch_size(points, of_job, 0.40, unit="epochs")

# %% one-line-figure-prose [markdown]
"""
Hollow marks are recorded; the line is the formula itself.
"""

# %% one-line-figure
off, figure = [], labkit.plots.new_figure("Batch size over the critical one", "Need over need_min")
for number, (name, own) in enumerate(jobs.items()):
    need_min, critical = fit_line(own["batch_size"], own["need"])
    x, y, of = own["batch_size"] / critical, own["need"] / need_min, own["provenance"].iloc[0]
    off.append((y / (1 + x) - 1).abs().max())
    mark = labkit.plots.encoding(number, provenance=of).mark(9)
    figure.add_scatter(x=x, y=y, name=f"{name} · {of}", mode="markers", marker=mark)
x = 2.0 ** np.arange(-8, 4.1)
figure.add_scatter(x=x, y=1 + x, name="1 + x · predicted", mode="lines", line={"dash": "dot", "color": "#000000"})
figure.update_layout(meta={"finding": f"Medians are at most {max(off):.0%} off the line 1 + x."})
logarithmic = {"type": "log"} | labkit.plots.log_ticks()
labkit.plots.show(figure.update_xaxes(**logarithmic).update_yaxes(**logarithmic))

# %% why-batch-prose [markdown]
"""
### Explain 13.why_batch

In two or three sentences: what happened to the AUC after one epoch and to the time with the larger batch, why, and what would you do to choose one? Give numbers of your tables.
"""

# %% explain 13.why_batch points=2
### BEGIN SOLUTION
answer = model_answer("13.why_batch")
### END SOLUTION
explain("13.why_batch", answer)

# %% checks
EXERCISES["13.why_batch"] = Explanation(
    rubric=(
        "numbers: AUC or time of two batch sizes, with the rate kept and tuned",
        "why: an epoch has fewer steps, and a step at the same rate moves the weights no further",
        "trade-off: samples a second against what they teach, or the price of the runs that tune the rate",
    ),
    model="With a batch four times as large an epoch has a quarter of the steps, and at the same rate each moves "
    "the weights hardly further, so after one epoch the model has learnt less, well beyond what seeds differ by. A "
    "larger rate wins most of it back until steps become unstable; the larger batch has more samples a second, and "
    "whether the time saved pays for the AUC lost and for the runs that tuned the rate depends on the target.",
)

# %% judge [markdown]
"""
## Judge

Your runs are *analogues* of the published ones: the same mechanism on a small log, a CPU and Adam; say so in your reasons. Their ratios next to yours, one row of a README over another of the same.
"""

# %% beside
later, early = (readmes[(readmes["readme"] == year) & (readmes["gpus"] == 8)] for year in (2025, 2022))
small, eight, dcn, dcn_8 = (row for _, row in later.iterrows())
four_1, four_4 = (row for _, row in early.iloc[1:].iterrows())
sooner, sooner_4 = epoch_s[512] / epoch_s[4096], epoch_s[512] / epoch_s[2048]
loss_8, loss_4 = three.loc[512, "tuned"] - three.loc[4096, "tuned"], three.loc[512, "kept"] - three.loc[2048, "kept"]
theirs = {"8 times the batch: an epoch this many times sooner": small["epoch_s"] / eight["epoch_s"]}
theirs["and its test AUC changes by"] = eight["auroc_test"] - small["auroc_test"]
theirs["8 times a large batch: samples a second, times"] = dcn_8["samples_per_s"] / dcn["samples_per_s"]
theirs["4 times: an epoch this many times sooner"] = four_1["epoch_s"] / four_4["epoch_s"]
theirs["and the test AUC changes by"] = four_4["auroc_test"] - four_1["auroc_test"]
own = [sooner, -loss_8, last_gain, sooner_4, -loss_4]
labkit.plots.show(pd.DataFrame({"recorded, torchrec_dlrm": pd.Series(theirs), "measured here": own}))

# %% judge-a9-prose [markdown]
"""
The first two cards repeat from memory what Acun et al. (HPCA 2021) found; these sentences have not been checked against the paper. First throughput over batch size.
"""

# %% claim A9 points=1 grade_id="claim-a9"
### BEGIN SOLUTION
verdict = "holds here" if first_gain > 2 and last_gain < first_gain / 2 else "does not hold here"
answer = verdict, "small steps are mostly asking for operations, large ones mostly arithmetic and memory"
### END SOLUTION
claim("A9", f"{first_gain:.1f} times the samples/s from 2 to 16, {last_gain:.2f} from 1,024 to 8,192{noise}", answer)

# %% judge-a11-prose [markdown]
"""
Large batches cost accuracy, and a rate tuned again narrows it. `low` and `high` are of 512 at the *kept* rate: whether 2,048 kept lies below them is a test. The tuned 2,048 has too few seeds for one, and its fair neighbour is 512 tuned, in the table.
"""

# %% claim A11 points=1 grade_id="claim-a11"
repeated = f"seeds: {len(base)} of the base, {seeds} elsewhere"
kept, tuned = three.loc[2048, "kept"], three.loc[2048, "tuned"]
### BEGIN SOLUTION
verdict = "holds here" if kept < low and tuned > kept else "does not hold here"
answer = verdict, "a quarter of the steps moves the weights less, for which a larger rate makes up in part"
### END SOLUTION
mine_a11 = f"batch 2,048: test AUC {kept:.4f} kept, {tuned:.4f} tuned; batch 512 {low:.4f} to {high:.4f} at 95 %"
claim("A11", mine_a11, answer)

# %% judge-a12-prose [markdown]
"""
Of the DLRMs in today's table the smallest batch has the best AUROC, and nearly the same on validation and test. DCN v2 at 16,384 is above it on validation (0.8035) and 0.0057 below on test. Yours: each batch size at its own tuned rate.
"""

# %% claim A12 points=1 grade_id="claim-a12"
tuned_auc = pd.Series({size: three_rates(sweep, size, size, 2e-3)["tuned"] for size in sizes})
best, gap = tuned_auc.idxmax(), (base["validation_auc"] - base["test_auc"]).mean()
### BEGIN SOLUTION
verdict = "holds here" if best == min(sizes) else "does not hold here"
answer = verdict, "an analogue: the smallest batch takes the most steps in the one epoch that all have"
### END SOLUTION
mine_a12 = f"batch {best} has the best tuned test AUC, {tuned_auc.max():.4f}; at 512 validation − test is {gap:+.4f}"
claim("A12", mine_a12, answer)

# %% judge-a13-prose [markdown]
"""
Eight times the batch, an epoch 5.1 times sooner, AUROC a little lower. Yours: 4,096 and 512, both tuned.
"""

# %% claim A13 points=1 grade_id="claim-a13"
### BEGIN SOLUTION
verdict = "holds here" if sooner > 1 and loss_8 > 0 else "does not hold here"
answer = verdict, "an analogue with Adam on one CPU thread: an eighth of the steps, both rates from one grid"
### END SOLUTION
claim("A13", f"8 times the batch: {sooner:.2f} times sooner, test AUC {-loss_8:+.4f}, tuned, {repeated}", answer)

# %% judge-a14-prose [markdown]
"""
From a batch that is large already, eight times more gives only 1.32 times the samples a second.
"""

# %% claim A14 points=1 grade_id="claim-a14"
### BEGIN SOLUTION
verdict = "holds here" if last_gain < 2 else "does not hold here"
answer = verdict, "an analogue: at 1,024 samples a step little overhead is left that could be spread further"
### END SOLUTION
claim("A14", f"1,024 to 8,192: {last_gain:.2f} times the samples/s, median of {repeats}{noise}", answer)

# %% judge-a15-prose [markdown]
"""
Four times the batch on eight GPUs, both begun at a rate of 15: 0.7996 instead of 0.8025, in a third of the time. There the larger one's rate was not tuned, while the smaller one's fell to 0.20 from 80 % on. Yours: 2,048 beside 512, at the *same* kept rate.
"""

# %% claim A15 points=1 grade_id="claim-a15"
### BEGIN SOLUTION
verdict = "holds here" if loss_4 > high - low and sooner_4 > 1 else "does not hold here"
answer = verdict, "an analogue: a quarter of the steps at the same rate learns less, in less time"
### END SOLUTION
claim("A15", f"4 × the batch: {sooner_4:.2f} times sooner, test AUC {-loss_4:+.4f}, rate kept, {repeated}", answer)

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
    rnnt_epochs=(fits.loc["RNN-T (MLPerf)", "its epochs, recorded"], 97, 97),
    rnnt_critical=(fits.loc["RNN-T (MLPerf)", "critical batch"], 3400, 3600),
    v100_batch=(v100["time_s"].idxmin(), 48, 48),
    last_throughput_gain=(last_gain, 0.1, 20),
    kept_auc=(three.loc[2048, "kept"], 0.5, 0.8),
    tuned_auc=(three.loc[2048, "tuned"], 0.5, 0.85),
    own_batch=(grid.set_index("batch_size")["time_s"].idxmin(), 64, 4096),
)

# %% recap [markdown]
"""
## Recap

- Time to a target is the samples it takes over the samples a second: a larger batch raises both, and the soonest is in between.
- MLPerf's needs are close to a line: need_min and a critical batch size. RNN-T's is some 3,500; those of DLRM and DLRM-DCNv2 lie beyond the sizes that were run, and DLRM-DCNv2 has one learning rate at all but one of its sizes.
- A step is a line, too: an overhead, and the batch at which that is half of it. √(critical · half) is a first guess; a device that slows down breaks it, and so does a need that falls, as NCF's.
- After one epoch a larger batch has learnt less: tune its rate before you judge it, by another split than you report, and compare with what seeds differ by.
- Seeds that fail count; a harder target may be met by some batch sizes alone.

**Next:** [Train a speech recogniser to a target](20_train_speech.ipynb)
"""

# %% opening [markdown]
"""
# Speech recognition on three budgets

After this notebook you will be able to

- **write** the CTC loss, which sums all alignments of a text to a recogniser's outputs;
- **find** the largest batch that a budget of memory holds, by runs that run out of it;
- **take apart** a ratio of times to a target into a ratio of rates and a ratio of samples, and **say** which of them moves with the target;
- **show** how often one run each would have named another winner;
- **judge** four claims of a paper that compared three platforms.

**Time:** 75 minutes with three functions of two to eleven lines; the machine computes for about ten minutes on 2 CPU cores. No GPU is needed.

**Prerequisites:** [Train a speech recogniser to a target](20_train_speech.ipynb).
"""

# %% checks
import math
from typing import Any

import pandas as pd
import torch

from labkit_course.exercise import Case, Explanation, WrittenExercise

# Shapes: T outputs, V alphabet with the blank (0), S states of an alignment.

EXERCISES = {}

# %% parameters-prose [markdown]
"""
What you may change. `shares` says how much memory each platform has, of what a run at the common batch holds.
"""

# %% parameters tags=["parameters"]
profile = "standard"  # smoke, standard or full: how many seeds, platforms and thresholds
runs_dir = "runs"  # run folders are made in its subfolder notebooks
common = 96  # utterances a step, on every platform
shares = [1.3, 1.45, 1.6]  # memory of small, middle and large
own_budgets = []  # three budgets of your own, small first, such as ["t4-like", "half-gpu", "gpu"]

# %% paper [markdown]
"""
## Three platforms

"Training for Speech Recognition on Coprocessors" (Baunsgaard et al., ADMS 2020) trained one recogniser on three platforms. The cheapest and the middle one have the prices that the authors give; of the most expensive they say that it costs ten times the cheapest. Beside them stands what the same GPUs cost by labkit's catalogue, without a server around them.
"""

# %% paper-table
import pandas as pd

import labkit

names = ["GPUs", "tier", "price, authors ($)", "largest batch, authors"]
rows = [(4, "rtx-2070", 3412, 160), (4, "gtx-1080-ti", 9598, 240), (2, "v100", 10 * 3412, 300)]
paper = pd.DataFrame(rows, ["small", "middle", "large"], names)
tiers = [labkit.hardware.get_tier(name) for name in paper["tier"]]
paper["memory of a GPU (GB)"] = [tier.memory_gb for tier in tiers]
cards = pd.Series([tier.list_price_usd for tier in tiers], paper.index, dtype=float)
labkit.plots.show(paper.assign(**{"list price of its GPUs, catalogue ($)": paper["GPUs"] * cards}))

# %% paper-words [markdown]
"""
Each platform trained at the largest batch that fitted, and all of them at a common one of 96. The most expensive "reaches the initial target" 10–30 % and 60–70 % sooner than the other two, and "the differences among the platforms almost disappear at slightly higher accuracy targets". You will try that on three *budgets* of this machine.

### Write 21.ctc

First what is trained for. A recogniser gives T outputs, each with log-probabilities of the blank (0) and the letters. An **alignment** is a path through the states *blank, a, blank, b, …, blank*, an output a step: it stays, goes on to the next state, or leaps over a blank from one letter to an *unlike* one. The CTC loss is −log of the summed probability of all paths that begin in one of the first two states and end in one of the last two.

`ctc_loss(log_probabilities, tokens)` takes a tensor (T, V) and a list of letters' ids, and returns the loss as a number.

1. `ahead` (S,): log of the summed probability of all ways to be in each state after the first output; −inf where there is none.
2. For each further output: `logsumexp` of staying, a step and a leap, plus the output's log-probability of the state.

*Hint:* `F.pad(ahead, (1, 0), value=-math.inf)[:-1]` shifts by one state; `log_probabilities[0, states]` picks each state's own.
"""

# %% answer 21.ctc
import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor


def ctc_loss(log_probabilities: Tensor, tokens: Sequence[int]) -> float:
    """-log of the summed probability of all alignments of `tokens` to outputs (T, V); inf where there is none."""
    ### BEGIN SOLUTION
    states = [0]
    for token in tokens:
        states += [token, 0]  # blank, a, blank, b, blank
    leaps = [place > 1 and state not in (0, states[place - 2]) for place, state in enumerate(states)]
    ahead = torch.full((len(states),), -math.inf)  # (S,)
    ahead[:2] = log_probabilities[0, states[:2]]
    for output in log_probabilities[1:]:
        step = F.pad(ahead, (1, 0), value=-math.inf)[:-1]
        leap = F.pad(ahead, (2, 0), value=-math.inf)[:-2].where(torch.tensor(leaps), -math.inf)
        ahead = torch.stack([ahead, step, leap]).logsumexp(0) + output[states]
    return -ahead[-2:].logsumexp(0).item()
    ### END SOLUTION


# %% check 21.ctc points=6
from labkit_course import check, claim, explain, guess, model_answer, reveal

check("21.ctc", ctc_loss)


# %% checks
def _said(tokens: list[int], outputs: int, seed: int) -> Any:
    """Outputs (T, 5) of a model that knows nothing."""
    drawn = torch.randn(outputs, 5, generator=torch.Generator().manual_seed(seed)).log_softmax(1)
    return lambda code: code(drawn, tokens)


_LEAPS = "place > 1 and state not in (0, states[place - 2])"


EXERCISES["21.ctc"] = WrittenExercise(
    ctc_loss,
    module="speech",
    cases=(
        Case("three letters and nine outputs", _said([1, 3, 2], 9, 1)),
        Case("two equal letters, between which a blank has to stand", _said([2, 2], 5, 2)),
        Case("as many outputs as letters: one alignment", _said([4, 1, 3], 3, 3)),
        Case("fewer outputs than letters: no alignment, inf", _said([4, 1, 3], 2, 4)),
        Case("nothing said: blanks alone", _said([], 4, 5)),
        Case("ten letters", _said([1, 2, 2, 3, 4, 4, 1, 3, 3, 2], 40, 6)),
    ),
    mistakes={
        (_LEAPS, "place > 1 and state != 0"): (
            "Between two equal letters a blank has to stand, or they are merged: no leap from a letter to its equal."
        ),
        (_LEAPS, "False"): "From one letter to the next, if they differ, an alignment may leap over the blank.",
        ("return -ahead[-2:]", "return -ahead[-1:]"): "An alignment may end with the last letter or with the blank.",
    },
    hint="States blank, a, blank, b, …, blank. At each output a state is reached from itself, from the one before, "
    "and, if it is a letter unlike the letter before, from two before: logsumexp of these, plus the output's own.",
    explanation="All alignments, whose number is exponential, in T × S additions; torch's loss is this, in batches.",
)

# %% ctc-torch-prose [markdown]
"""
Beside torch's, on outputs of a model that knows nothing: 60 of them, and five letters of which two are the same.
"""

# %% ctc-torch
outputs, said = torch.randn(60, 28).log_softmax(1), [8, 5, 12, 12, 15]
theirs = F.ctc_loss(outputs[:, None], torch.tensor([said]), [60], [5], reduction="sum").item()
print(f"yours {ctc_loss(outputs, said):.4f}, torch's {theirs:.4f}")

# %% budgets [markdown]
"""
## Three budgets

The platforms of this machine are cores and memory, both enforced: one core, half of them, and all. Memory is cut so that it binds: a run at the common batch is asked what it holds, and the platforms get 1.3, 1.45 and 1.6 times that. (Profile `smoke` has two platforms, which hold whatever is asked.)
"""

# %% budgets-made
from labkit_course import apparatus

cores, is_smoke = labkit.hardware.get_devices()[0].cores, profile == "smoke"
short = {"max_epochs": 1 if is_smoke else 2, "target": "none"}
held_mib = 1000 if is_smoke else apparatus.memory_held("speech", "one-core", batch_size=common, **short) / 2**20

# %% budgets-names-prose [markdown]
"""
Their names, as `--budget` takes them:
"""

# %% budgets-names
made = [
    f"cores={count},memory={share * held_mib:.0f}MiB"
    for count, share in zip([1, max(1, cores // 2), cores], shares, strict=True)
]
budgets = dict(zip(["small", "middle", "large"], own_budgets or made, strict=True))
if is_smoke:
    del budgets["middle"]
print(f"a run at a batch of {common} holds {held_mib:.0f} MiB;", budgets)

# %% guess-largest-prose [markdown]
"""
The large platform has 1.6 times the memory that a batch of 96 takes. **What is the largest batch that it holds?**
"""

# %% guess-largest
guess("21.largest", 130, "utterances")

# %% search-prose [markdown]
"""
`largest_batch` tries: each size trains for two epochs under the budget, with an eighth of its memory kept free for what later epochs add. It doubles until a run is out of memory, then halves the gap.
"""

# %% search
most, tried = (common if is_smoke else 512), {}
for name, budget in budgets.items():
    tried[name] = apparatus.largest_batch("speech", budget, first=common, most=most, step=32, **short)
    print(name, {size: "fits" if fits else "out of memory" for size, fits in tried[name].items()})

# %% own-prose [markdown]
"""
The largest that fits is the platform's *own* batch.
"""

# %% own
own = {name: max(size for size, fits in sizes.items() if fits) for name, sizes in tried.items()}
reveal("21.largest", own["large"])
print(own, "next to", paper["largest batch, authors"].to_dict(), "of the paper")

# %% guess-lead-prose [markdown]
"""
Most of what a run holds is there at any batch: Python, torch, compiled kernels. So a little more memory is a much larger batch, of a small model.

## Time to six thresholds

Each platform trains the recogniser `tour` at the common batch and at its own, all else equal: learning rate, epochs, seeds. A run ends at a character error rate of 0.2. **How many times as long does the small platform take as the large one to a CER of 0.7, each at its own batch?** Below 1, the small one is sooner.
"""

# %% guess-lead
guess("21.lead", 1.5, "times")

# %% guess-samples-prose [markdown]
"""
**And how many times as many samples does the large platform need to a CER of 0.2 at its own batch, as at the common one?**
"""

# %% guess-samples
guess("21.samples", 1.3, "times")

# %% plan-prose [markdown]
"""
At `smoke` one seed, one epoch and two easy thresholds:
"""

# %% plan
epochs, seeds = {"smoke": (4, [0]), "standard": (24, [0, 1, 2]), "full": (32, range(5))}[profile]
thresholds = [0.95, 0.9] if is_smoke else [0.7, 0.6, 0.5, 0.4, 0.3, 0.2]
sizes = [(name, batch) for name in budgets for batch in sorted({common, own[name]})]
print(f"{len(sizes) * len(seeds)} runs of up to {epochs} epochs")

# %% runs-prose [markdown]
"""
All platforms of a seed before the next seed, so that a machine that slows down slows down all alike.
"""

# %% runs
from pathlib import Path

folders, training = {}, {"target": f"cer={thresholds[-1]}", "max_epochs": epochs, "evaluations": False}
for seed in seeds:
    for name, batch in sizes:
        setting = {"budget": budgets[name], "batch_size": batch, "seed": seed}
        run = labkit.jobs.watch("speech", Path(runs_dir) / "notebooks", **setting, **training)
        folders[name, batch, seed] = run["folder"]

# %% met-prose [markdown]
"""
Seconds of training, without evaluations, and samples until the first evaluation at or below each threshold, a row a run and threshold; NaN where a run never came so far.
"""

# %% met
places = pd.DataFrame(list(folders), columns=["platform", "batch_size", "seed"])
places["run"] = [Path(folder).name for folder in folders.values()]
table, evaluations = labkit.tta.run_table(folders.values()), labkit.tta.curves(folders.values())
found = [labkit.tta.crossings(evaluations, table, goal, x="train_s").assign(target=goal) for goal in thresholds]
met = pd.concat(found).drop(columns="seed").merge(places, on="run")
met = met.rename(columns={"time_to_target_s": "time_s", "samples_to_target": "samples"})

# %% kept-prose [markdown]
"""
On a shared machine other programs may take a run's cores, which it then reports. A seed with such a run is left out, unless all have one; of its samples nothing would be wrong, of its seconds much.
"""

# %% kept
places["disturbed"] = places["run"].map(table.set_index("run")["disturbed"]).astype(bool)
spoilt = set(places.loc[places["disturbed"], "seed"])
kept = [seed for seed in seeds if seed not in spoilt] or list(seeds)
met = met[met["seed"].isin(kept)]
print(f"{places['disturbed'].sum()} of {len(places)} runs were disturbed; seeds {kept} count")

# %% table-prose [markdown]
"""
Median seconds of the seeds; harder thresholds to the right.
"""

# %% table
by = ["platform", "batch_size"]
all_seconds = met.assign(time_s=met["time_s"].fillna(math.inf))  # a run that failed is no run to leave out
seconds = all_seconds.pivot_table("time_s", by, "target", "median", sort=False)
labkit.plots.show(seconds.rename_axis(columns="seconds to a CER of, emulated"))

# %% decompose-prose [markdown]
"""
### Write 21.decompose

A time to a target is samples ÷ samples a second, so of two platforms

ratio of times = ratio of rates × ratio of samples.

`decompose(slow, fast)` takes a frame of each platform, a row a seed (its index), with `time_s` and `samples` to one threshold. It returns a dict:

1. `times` (slow over fast), `rates` (the fast one's samples a second over the slow one's) and `samples` (slow over fast): of each the geometric mean of the seeds' ratios. Where a seed did not arrive (NaN) it is NaN.
2. `low` and `high`: the least and the greatest seed's ratio of times.

*Hint:* pandas divides two columns by their index; `Series.mean(skipna=False)`.
"""

# %% answer 21.decompose
import math

import numpy as np
import pandas as pd


def decompose(slow: pd.DataFrame, fast: pd.DataFrame) -> dict[str, float]:
    """Geometric means over the seeds: ratio of times, and the ratios of rates and samples that make it; its range."""
    ### BEGIN SOLUTION
    times = slow["time_s"] / fast["time_s"]
    samples = slow["samples"] / fast["samples"]
    ratios = {"times": times, "rates": times / samples, "samples": samples}
    means = {name: math.exp(np.log(ratio).mean(skipna=False)) for name, ratio in ratios.items()}
    return means | {"low": times.min(skipna=False), "high": times.max(skipna=False)}
    ### END SOLUTION


# %% check 21.decompose points=5
check("21.decompose", decompose)


# %% checks
def _pair(slow: list[tuple[float, float]], fast: list[tuple[float, float]], order: list[int] | None = None) -> Any:
    """Of (seconds, samples) by seed; the second platform's seeds in another order."""

    def ask(code: Any) -> Any:
        one, other = (pd.DataFrame(runs, columns=["time_s", "samples"]) for runs in (slow, fast))
        found = code(one, other.loc[order or list(other.index)])
        return {name: float(found[name]) for name in ("times", "rates", "samples", "low", "high")}

    return ask


_TIMES = 'times = slow["time_s"] / fast["time_s"]'


EXERCISES["21.decompose"] = WrittenExercise(
    decompose,
    module="budgets",
    cases=(
        Case("one seed", _pair([(60.0, 9e3)], [(20.0, 12e3)])),
        Case(
            "three seeds at one batch",
            _pair([(30.0, 6e3), (45.0, 9e3), (40.0, 8e3)], [(10.0, 6e3), (15.0, 9e3), (13.0, 8e3)]),
        ),
        Case(
            "three seeds whose rows come in another order",
            _pair([(30.0, 6e3), (45.0, 9e3), (40.0, 8e3)], [(25.0, 9e3), (15.0, 4e3), (33.0, 8e3)], [2, 0, 1]),
        ),
        Case("a seed that did not arrive: NaN", _pair([(30.0, 6e3), (math.nan, math.nan)], [(10.0, 6e3), (9.0, 5e3)])),
    ),
    mistakes={
        (
            _TIMES,
            'times = slow["time_s"] / fast["time_s"].to_numpy()',
        ): "Divide by seed, which pandas does by the index, not by the order of the rows.",
        ("np.log(ratio).mean(skipna=False)", "np.log(ratio).mean()"): (
            "pandas leaves NaN out of a mean: without the seed that failed the platform looks better than it is."
        ),
        ('"rates": times / samples', '"rates": samples / times'): (
            "The fast platform's samples a second over the slow one's, so that the two factors multiply to the times."
        ),
    },
    hint="Ratios by seed: slow over fast of time_s and samples, fast over slow of samples / time_s; of each "
    "math.exp(np.log(ratio).mean(skipna=False)); low and high are the least and the greatest ratio of times.",
    explanation="Logarithms add up, so the two factors multiply to the ratio of times exactly.",
)

# %% rates-prose [markdown]
"""
Utterances a second of each platform's *whole* runs, evaluations left out: the geometric mean of the seeds, as that of the times.
"""

# %% rates
from scipy.stats import gmean

places["rate"] = places["run"].map(table.set_index("run")["samples_per_s"])
rate = places[places["seed"].isin(kept)].groupby(["platform", "batch_size"])["rate"].agg(gmean)

# %% gaps-prose [markdown]
"""
Your function on every threshold, of each smaller platform against the large one, at both kinds of batches.
"""


# %% gaps
def arrivals(platform, batch, goal):
    rows = (met["platform"] == platform) & (met["batch_size"] == batch) & (met["target"] == goal)
    return met[rows].set_index("seed")[["time_s", "samples"]]


def gaps_to_large(way, batches):
    for name in list(budgets)[:-1]:
        for goal in thresholds:
            parts = decompose(arrivals(name, batches[name], goal), arrivals("large", batches["large"], goal))
            parts["rates of whole runs"] = rate["large", batches["large"]] / rate[name, batches[name]]
            yield {"budget": f"{name} over large, {way} batch", "target": goal, **parts}


# %% gaps-table-prose [markdown]
"""
By your definition the two factors make the ratio of times. Does the rate of the *whole* runs, evaluations left out, do so, too?
"""

# %% gaps-table
ways = {"common": dict.fromkeys(budgets, common), "own": own}
gaps = pd.DataFrame([row for way, batches in ways.items() for row in gaps_to_large(way, batches)])
off_percent = 100 * (gaps["rates of whole runs"] * gaps["samples"] / gaps["times"] - 1).abs().median()
labkit.plots.show(gaps.rename(columns={"budget": "emulated"}).set_index(["emulated", "target"]))
print(f"whole rates times samples are {off_percent:.2g} % off the measured ratio (median)")

# %% gap-reveal-prose [markdown]
"""
Your guesses, of the small platform:
"""

# %% gap-reveal
at = gaps.set_index(["budget", "target"])
easy, hard, small = thresholds[0], thresholds[-1], "small over large, own batch"
gap = at.loc[(small, easy), "times"]
reveal("21.lead", gap if np.isfinite(gap) else None)
own_large, common_large = (arrivals("large", batch, hard)["samples"] for batch in (own["large"], common))
samples_ratio = (own_large / common_large).median(skipna=False)
reveal("21.samples", samples_ratio if np.isfinite(samples_ratio) else None)

# %% gap-figure-prose [markdown]
"""
The gap of the small platform over the threshold, with the range of the seeds; at the dotted 1 both take the same time, and below it the small platform is sooner. At the common batch all take the same steps, so the gap is flat *by construction*. (But for rounding: two threads add in another order than one, which after thousands of sums may move a crossing by an evaluation; and for the clock.) At the own batches it may move, and it need not.
"""

# %% gap-figure
drawn = gaps[gaps["budget"].str.startswith("small")].assign(provenance="emulated", median=gaps["times"])
figure = labkit.plots.figure_time_against_target(drawn, hard, metric="cer", higher_is_better=False)
figure.update_yaxes(title_text="Time over the large platform's (times)").add_hline(y=1, line_dash="dot")
ends = drawn.groupby("budget")["times"].agg(["first", "last"])
words = [f"{row.Index} {row.first:.2f} to {row.last:.2f}" for row in ends.itertuples()]
finding = f"From a CER of {easy} to {hard}: {'; '.join(words)}."
labkit.plots.show(figure.update_layout(meta={"finding": finding}))

# %% why-gap-prose [markdown]
"""
### Explain 21.why_gap

In two or three sentences: the gap at an easy and at a hard threshold, at the common batch and at the own ones; why does it move or not, and what would you train at on the large platform? Give both factors.
"""

# %% explain 21.why_gap points=2
### BEGIN SOLUTION
answer = model_answer("21.why_gap")
### END SOLUTION
explain("21.why_gap", answer)

# %% checks
EXERCISES["21.why_gap"] = Explanation(
    rubric=(
        "numbers: the gap at an easy and at a hard target, at the common and at the own batches, with both factors",
        "why: at one batch the same steps are taken, so only the rate differs; a larger batch has fewer steps "
        "in the same samples and needs more of them, by a factor that may move with the target or not",
        "trade-off: when an expensive platform should leave a part of its memory empty, or what a paper should report",
    ),
    model="At the common batch small takes 1.2 to 1.4 times as long as large at every threshold, for both "
    "take the same steps, but for rounding, and only the rates differ. At the own batches of 168 and "
    "288 the rates differ by 1.4, too, but large needs 1.41 times the samples to a CER of 0.7 and 1.87 "
    "times to 0.2, so the gap falls from 1.02 to 0.72: its lead is spent on samples. On large I would "
    "train at 96, which is 2.8 times sooner than 288, and leave memory empty; a paper should give both "
    "factors.",
)

# %% recorded [markdown]
"""
## Four real GPUs

The authors of *Zeus* (You, Chung and Chowdhury, NSDI 2023) recorded DeepSpeech2 on LibriSpeech, at 15 batch sizes and up to five seeds, to seven word error rates (WER). Seconds are an epoch's time, taken once on each GPU, × the epochs, which are whole. All of it is *recorded*.
"""

# %% recorded-load
zeus = labkit.runs.recorded("zeus-nsdi23", job="deepspeech2 on librispeech", power_limit_w="max")
goals = sorted(zeus.curves["value"].unique(), reverse=True)
there = [labkit.tta.crossings(zeus.curves, zeus.runs, goal, x="epochs").assign(target=goal) for goal in goals]
there = pd.concat(there).merge(zeus.runs[["run", "device", "batch_size", "epoch_s"]], on="run")
there = there.rename(columns={"time_to_target_s": "samples"})  # in epochs
there["time_s"] = there["samples"] * there["epoch_s"]

# %% recorded-gaps-prose [markdown]
"""
The P100 over the A40, the oldest over the newest, by your function: at a batch of 32 for both, and at the largest of each. Does their gap close, too?
"""


# %% recorded-gaps
def of_gpu(device, batch, goal):
    rows = (there["device"] == device) & (there["batch_size"] == batch) & (there["target"] == goal)
    return there[rows].set_index("seed")[["time_s", "samples"]]


largest, rows = there.groupby("device")["batch_size"].max(), []
for way, sizes in {"batch 32": dict.fromkeys(largest.index, 32), "largest batch": largest}.items():
    for goal in goals:
        parts = decompose(of_gpu("P100", sizes["P100"], goal), of_gpu("A40", sizes["A40"], goal))
        rows.append({"budget": f"P100 over A40, {way}", "target": goal, **parts})

# %% recorded-table-prose [markdown]
"""
A dash where a seed of either does not arrive:
"""

# %% recorded-table
zeus_gaps = pd.DataFrame(rows).assign(provenance="recorded")
p100_over_a40 = zeus_gaps.set_index(["budget", "target"])["times"]["P100 over A40, largest batch", 0.40]
labkit.plots.show(
    zeus_gaps.rename(columns={"budget": "recorded"}).set_index(["recorded", "target"]).drop(columns="provenance")
)
print("largest batches:", largest.to_dict())

# %% recorded-figure-prose [markdown]
"""
The same figure of them. At the largest batches the gap *opens*: the A40 with its 192 needs twice the epochs of the P100 with its 72 at first, and 1.2 times as many at 0.40. The line ends where not all seeds arrive.
"""

# %% recorded-figure
drawn = zeus_gaps.rename(columns={"times": "median"})
figure = labkit.plots.figure_time_against_target(drawn, 0.40, metric="wer", higher_is_better=False)
figure.update_yaxes(title_text="Time of the P100 over the A40's (times)").add_hline(y=1, line_dash="dot")
finding = f"At a WER of 0.40 the P100 takes {p100_over_a40:.2f} times as long at the largest batches."
labkit.plots.show(figure.update_layout(meta={"finding": finding}))

# %% cost-prose [markdown]
"""
### What a target costs

Seconds × price. By the authors' prices a second of the expensive platform costs ten of the cheap one's, wherever the price comes from (life time, load): so costs are given as *times the small platform's*. And next to it the recorded GPUs at the catalogue's rents, each at its soonest batch.
"""

# %% cost
seconds = {name: arrivals(name, own[name], hard)["time_s"].fillna(math.inf).median() for name in budgets}
price = paper["price, authors ($)"] / paper["price, authors ($)"]["small"]
costs = pd.DataFrame({"time": seconds}) / seconds["small"]
costs["price, authors"], costs["cost"] = price, costs["time"] * price
labkit.plots.show(costs.rename_axis(columns=f"times small's, to a CER of {hard}, emulated"))

# %% cost-recorded-prose [markdown]
"""
Dollars of rent to each WER, the median of the seeds, of which a failed one never ends:
"""

# %% cost-recorded
rents = {"P100": "p100-pcie", "V100": "v100-pcie", "RTX 6000": "quadro-rtx-6000", "A40": "a40"}
usd_per_s = {device: labkit.hardware.get_tier(tier).rental_price_usd_per_h / 3600 for device, tier in rents.items()}
usd = there.assign(usd=(there["time_s"] * there["device"].map(usd_per_s)).fillna(math.inf))
usd = usd.groupby(["device", "batch_size", "target"])["usd"].median().groupby(["device", "target"]).min()
labkit.plots.show(usd.unstack("target")[goals].rename_axis(columns="$ to a WER of, recorded × rent"))

# %% evaluate [markdown]
"""
## How hard it is to evaluate

The paper's second finding is that such systems are hard to *evaluate*: which one is better depends on the threshold, and on luck. **Suppose you had one run each of the small and the large platform, at their own batches. In what share of the pairs of seeds would the small one be sooner to a CER of 0.2?**
"""

# %% guess-share
guess("21.small_sooner", 50, "%")

# %% one-seed-prose [markdown]
"""
### Write 21.one_seed

`sooner_share(times_s, others_s)`: in which share of all pairs, one run of each, the first is sooner. A tie counts half, also of two runs that never arrive (`math.inf`).

*Hint:* one of the two as a column, `[:, None]`.
"""

# %% answer 21.one_seed
from collections.abc import Sequence

import numpy as np


def sooner_share(times_s: Sequence[float], others_s: Sequence[float]) -> float:
    """Share of the pairs of a run of each in which the first is sooner; a tie is half."""
    ### BEGIN SOLUTION
    own, others = np.asarray(times_s, float)[:, None], np.asarray(others_s, float)
    return float(np.mean((own < others) + (own == others) / 2))
    ### END SOLUTION


# %% check 21.one_seed points=3
check("21.one_seed", sooner_share)

# %% checks
EXERCISES["21.one_seed"] = WrittenExercise(
    sooner_share,
    module="budgets",
    cases=(
        Case("three runs against two", lambda code: code([5.0, 3.0, 7.0], [4.0, 8.0])),
        Case("one that is always sooner", lambda code: code([1.0, 2.0], [3.0, 4.0, 5.0])),
        Case("the same times", lambda code: code([1.0, 2.0, 3.0], [3.0, 1.0, 2.0])),
        Case("runs that never arrive", lambda code: code([4.0, math.inf, 6.0], [math.inf, 5.0, math.inf])),
    ),
    mistakes={
        (
            "own, others = np.asarray(times_s, float)[:, None], np.asarray(others_s, float)",
            "own, others = np.array([*zip(times_s, others_s)], float).T",
        ): "Any run of one may meet any run of the other: all pairs, not the first with the first.",
        (" + (own == others) / 2", ""): "A tie, as of two runs that never arrive, counts half.",
        ("own < others", "own > others"): "That is the share in which the first is later.",
    },
    hint="np.asarray(times_s)[:, None] < np.asarray(others_s) is True for each pair in which the first is sooner.",
    explanation="0 or 1: one run each would have shown which is sooner; 0.5: it would have shown nothing.",
)

# %% spread-prose [markdown]
"""
For each threshold: how many times as long the slowest seed takes as the fastest, of both platforms, and the share of pairs in which the small one is sooner. Near 0 or 100 % one seed would do; near 50 % it is a coin.
"""

# %% spread
rows = {}
for goal in thresholds:
    times = {name: arrivals(name, own[name], goal)["time_s"].fillna(math.inf) for name in budgets}
    spread = {f"{name}: slowest over fastest seed": own_s.max() / own_s.min() for name, own_s in times.items()}
    rows[goal] = spread | {"small is sooner (% of pairs)": 100 * sooner_share(times["small"], times["large"])}
spreads = pd.DataFrame(rows).T.rename_axis("CER, emulated")
labkit.plots.show(spreads)
reveal("21.small_sooner", spreads.iloc[-1, -1])

# %% spread-figure-prose [markdown]
"""
The same as curves: medians of the seeds, and their range.
"""

# %% spread-figure
own_runs = met[met["batch_size"] == met["platform"].map(own)]
own_runs = own_runs.assign(budget=own_runs["platform"] + ", batch " + own_runs["batch_size"].astype(str))
times = own_runs.assign(time_s=own_runs["time_s"].fillna(math.inf)).groupby(["budget", "target"], sort=False)["time_s"]
times = times.agg(median="median", low="min", high="max").reset_index().assign(provenance="emulated")
labkit.plots.show(
    labkit.plots.figure_time_against_target(times, hard, metric="cer", higher_is_better=False, x="train_s")
)

# %% recorded-spread-prose [markdown]
"""
And two recorded GPUs that are nearly alike, the V100 and the RTX 6000, at the batch of each that is soonest to a WER of 0.35: over five seeds.
"""

# %% recorded-spread
hardest = there[there["target"] == 0.35].assign(hours=there["time_s"].fillna(math.inf) / 3600)
medians = hardest.groupby(["device", "batch_size"])["hours"].median()
best = {device: medians[device].idxmin() for device in ("V100", "RTX 6000")}
hours = {name: of_gpu(name, batch, 0.35)["time_s"].fillna(math.inf) / 3600 for name, batch in best.items()}
print({name: [f"{each:.1f}" for each in sorted(own_h)] for name, own_h in hours.items()}, "hours, recorded")
print(f"the V100 is sooner in {100 * sooner_share(hours['V100'], hours['RTX 6000']):.0f} % of the pairs")

# %% why-hard-prose [markdown]
"""
### Explain 21.why_hard

In two or three sentences: how far do seeds lie apart at a hard threshold, how often would one run each have named the other platform, and why is a time to a threshold so much less certain than an error rate? What would you report?
"""

# %% explain 21.why_hard points=2
### BEGIN SOLUTION
answer = model_answer("21.why_hard")
### END SOLUTION
explain("21.why_hard", answer)

# %% checks
EXERCISES["21.why_hard"] = Explanation(
    rubric=(
        "numbers: the spread of a time over seeds, and how often one run each would have named another winner",
        "why: a crossing is the first evaluation past a threshold, and near the end of training curves are flat, "
        "so a small difference in error is a large one in time",
        "trade-off: what more seeds, several thresholds or a fixed time would cost and show",
    ),
    model="To a CER of 0.7 middle's slower seed takes 1.27 times as long as its faster one, while small and "
    "large differ by 2 %, and the winner changes with the threshold: small is sooner in 0 % of the "
    "pairs at 0.7 and in all at 0.6. A crossing is the first evaluation past a threshold, and where a "
    "curve is flat a small difference in error, which a seed decides, is a large one in time. Six "
    "thresholds cost nothing more and three seeds three times as much; I would report ranges and both "
    "factors, and the error after a fixed time.",
)

# %% judge [markdown]
"""
## Judge

Your platforms are *analogues*: budgets of one machine, a small recogniser, made-up voices. First: is the large one sooner than *each* other at the easiest threshold by 10 % or more, each at its own batch? Say so if all seeds show it, and that it is not if all seeds show less for one of the two.
"""

# %% claim H1 points=1
first = gaps[gaps["budget"].str.endswith("own batch") & (gaps["target"] == easy)]
sooner = {row.budget.split()[0]: 100 * (1 - 1 / row.times) for row in first.itertuples()}
### BEGIN SOLUTION
lead = 1 / 0.9  # times as long, where the large one is 10 % sooner
untold = "does not hold here" if (first["high"] < lead).any() else "cannot be tested here"
few = len(kept) < 3  # seeds
verdict = "cannot be tested here" if few else "holds here" if (first["low"] >= lead).all() else untold
more, fewer = at.loc[(small, easy), ["rates", "samples"]]
answer = verdict, f"an analogue: {more:.2f} times the rate of small, for {1 / fewer:.2f} times its samples"
### END SOLUTION
words = ", ".join(f"{value:.0f} % sooner than {name}" for name, value in sooner.items())
range_words = ", ".join(f"{row.low:.2f} to {row.high:.2f}" for row in first.itertuples())
own_words = ", ".join(f"{name} {batch}" for name, batch in own.items())
result = f"CER {easy}, batches {own_words}: large {words}; times by seeds {kept} {range_words}"
claim("H1", result, answer, how="emulated")

# %% judge-h2-prose [markdown]
"""
Does a lead at the easiest threshold almost disappear at harder ones? Say so if the large platform leads there by 1.1 times or more, and at the hardest by less; where it never led by that much there is nothing to disappear.
"""

# %% claim H2 points=1
last = gaps[gaps["budget"].str.endswith("own batch") & (gaps["target"] == hard)]
at_common = gaps[gaps["budget"] == "small over large, common batch"]["times"]
### BEGIN SOLUTION
led, later = first["times"].to_numpy() >= lead, last["times"].to_numpy()
untold = not led.any() or np.isnan(later[led]).any()
gone = (later[led] < lead) & (later[led] > 1 / lead)
verdict = "cannot be tested here" if untold else "holds here" if gone.all() else "does not hold here"
needs = [1 / at.loc[(small, goal), "samples"] for goal in (easy, hard)]
answer = verdict, f"an analogue: large needs {needs[0]:.2f}, then {needs[1]:.2f} times the samples of small"
### END SOLUTION
moved = ", ".join(f"{a:.2f} to {b:.2f}" for a, b in zip(first["times"], last["times"], strict=True))
result = f"times over large, CER {easy} to {hard}: {moved} at own batches"
result += f"; {at_common.min():.2f} to {at_common.max():.2f} (small) at batch {common}; seeds {kept}"
claim("H2", result, answer, how="emulated")

# %% judge-h3-prose [markdown]
"""
Are there "good results even without high-end equipment"? Say so if the small platform reaches the hardest threshold with every seed, at no more than the large one's cost by the authors' prices.
"""

# %% claim H3 points=1
arrived = arrivals("small", own["small"], hard)["time_s"].notna().sum()
time, cost = costs.loc["large", ["time", "cost"]]
### BEGIN SOLUTION
holds = arrived == len(kept) and cost >= 1
verdict = "cannot be tested here" if few else "holds here" if holds else "does not hold here"
answer = verdict, f"an analogue: a tenth of the price, and {1 / time:.2f} times the time"
### END SOLUTION
result = f"{arrived} of {len(kept)} runs on small reach CER {hard}; large takes {time:.2f} of its time"
claim("H3", f"{result}, at {cost:.1f} times the cost by the authors' prices", answer, how="emulated")

# %% judge-h5-prose [markdown]
"""
Last, the practice itself. Is the largest batch that fits a platform's better choice than the common one, to the hardest threshold?
"""

# %% claim H5 points=1
ratios = {}
for name, batch in own.items():
    ratios[name] = decompose(arrivals(name, batch, hard), arrivals(name, common, hard))["times"]
### BEGIN SOLUTION
larger = [ratio for name, ratio in ratios.items() if own[name] != common]
untold = not larger or np.isnan(larger).any()
verdict = "cannot be tested here" if untold else "holds here" if max(larger) < 1 else "does not hold here"
answer = verdict, "an analogue: hardly more samples a second, and many more of them, at one learning rate for all"
### END SOLUTION
words = ", ".join(f"{name} {ratio:.2f} (batch {own[name]})" for name, ratio in ratios.items())
claim("H5", f"time to CER {hard} at the largest batch over that at {common}: {words}", answer, how="emulated")

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

common_ratio = at["samples"]["small over large, common batch", easy]
results(
    largest_batch=(own["large"], common, 512),
    product_off_percent=(off_percent if np.isfinite(off_percent) else None, 0, 50),
    common_samples_ratio=(common_ratio if np.isfinite(common_ratio) else None, 0.5, 2),
    samples_own_over_common=(samples_ratio if np.isfinite(samples_ratio) else None, 0.3, 20),
    p100_over_a40_largest=(p100_over_a40, 1.5, 1.7),
)

# %% recap [markdown]
"""
## Recap

- The CTC loss sums all alignments in T × S additions; a leap goes from a letter to an unlike one.
- What a budget of memory holds is found by trying; most of it is no batch, so a little more memory is a much larger batch.
- Ratio of times = ratio of rates × ratio of samples. At one batch the second factor is 1 at every target, by construction.
- At own batches a large platform pays for its rate with samples; the largest batch that fits is seldom the soonest.
- It need not close at harder targets: of two recorded GPUs at their largest batches the gap opens.
- A threshold near the end of a curve makes small differences in error large ones in time: several thresholds, several seeds, both factors.

**Next:** [What utilisation means](30_what_utilisation_means.ipynb)
"""

# %% opening [markdown] packages="scipy soundfile" disk_gb=0.5
r"""
# Speech recognition on budgets

After this notebook you will be able to

- **find** the largest batch that a budget of memory holds, by runs that run out of it;
- **take apart** a ratio of times to a target into a ratio of rates and a ratio of samples, and **say** which of them moves with the target;
- **show** how often a single run of each platform would have named another winner;
- **judge** a claim of a paper that compared three platforms.

**Time:** 60 minutes with two functions; the machine computes for about six of these minutes on 2 CPU cores. No GPU is needed.

**Prerequisites:** [Train a speech recogniser to a target](20_train_speech.ipynb). A run that other programs disturb is repeated, so close videos and heavy pages in your browser before you start.
"""

# %% checks
import math
from collections.abc import Sequence
from operator import call
from random import Random
from typing import Any

import numpy as np
import pandas as pd

from labkit_course.exercise import Case, Explanation, WrittenExercise

MODULE = "budgets"
EXERCISES = {}

# %% parameters-prose [markdown]
"""
You may change the next cell. `shares` says how much memory each platform has, as a multiple of what a run at the common batch holds.
"""

# %% parameters tags=["parameters"]
profile = "standard"  # smoke, standard or full: how many seeds, platforms and thresholds
runs_dir = "runs"  # run folders are made in its subfolder notebooks
common = 96  # utterances a step, on every platform
shares = {"small": 1.3, "middle": 1.45, "large": 1.6}
own_budgets = {}  # budgets of your own, such as {"small": "t4-like", "large": "gpu"}

# %% paper [markdown]
"""
## Three platforms

*Training for Speech Recognition on Coprocessors* (Baunsgaard et al., ADMS 2020) trained one recogniser on three platforms. The authors give prices for the cheapest and the middle one, and say that the most expensive costs ten times the cheapest. The table has their platforms.
"""

# %% imports
from functools import reduce
from pathlib import Path
from time import perf_counter

import numpy as np
import pandas as pd

import labkit
from labkit_course import apparatus, check, claim, explain, guess, model_answer, results, reveal, score_notebook

_ = np.seterr(invalid="ignore")  # where neither platform arrived, inf / inf is NaN: no ratio

# %% paper-table
names = ["GPUs of each", "GPU", "price ($)", "largest batch"]
rows = [(4, "RTX 2070, 8 GB", 3412, 160), (4, "GTX 1080 Ti, 11 GB", 9598, 240), (2, "V100, 16 GB", 34120, 300)]
labkit.plots.show(pd.DataFrame(rows, ["small", "middle", "large"], names))

# %% budgets [markdown]
"""
Each platform trained at the largest batch that fitted, and all of them at a common one of 96. The abstract says that the most expensive reaches "the initial target" 10–30 % and 60–70 % sooner than the other two. You will try that on *budgets* of this machine.

**The rule, before any number.** The paper's smaller lead begins at 10 %. A *pair* is a run of the large budget and a run of another one with the same seed. The claim holds here if the large budget is at least 10 % sooner at the easiest threshold in every pair. It does not hold if there is a budget with which every pair shows less. Otherwise, or with fewer than three undisturbed pairs, it cannot be tested.

## Budgets of cores and memory

Small has one core, large has all cores. A middle budget with half of the cores exists only from four cores on, where half of them are more than one. **On two cores there are two platforms**, not the paper's three. Memory is cut so that it binds: a first run at the common batch shows how much it holds, and the budgets get 1.3, 1.45 and 1.6 times that.
"""

# %% budgets-made
cores, is_smoke = labkit.hardware.get_devices()[0].cores, profile == "smoke"
short = {"target": "none"} | ({"max_seconds": 0.5} if is_smoke else {"max_epochs": 2})
held_mib = 1000 if is_smoke else apparatus.memory_held("speech", "one-core", batch_size=common, **short) / 2**20
counts = {"small": 1, "middle": cores // 2, "large": cores}
if is_smoke or counts["middle"] == 1:
    del counts["middle"]
made = {name: f"cores={count},memory={shares[name] * held_mib:.0f}MiB" for name, count in counts.items()}
budgets = own_budgets or made
print(f"a run at a batch of {common} holds {held_mib:.0f} MiB;", budgets)

# %% guess-largest-prose [markdown]
"""
The large platform has 1.6 times the memory that a batch of 96 takes. **What is the largest batch that it holds?**
"""

# %% guess-largest
guess("21.largest", 130, "utterances")

# %% search-prose [markdown]
"""
`largest_batch` tries about four sizes for each platform. A trial takes some ten seconds and prints a line. It trains for two epochs under the budget, and keeps an eighth of the memory free for what later epochs add. The size doubles until a run is out of memory. Then the gap is halved.
"""

# %% search
most, own = (common if is_smoke else 512), {}
for name, budget in budgets.items():
    print(name)
    tried = apparatus.largest_batch("speech", budget, first=common, most=most, step=48, **short)
    own[name] = max(size for size, fits in tried.items() if fits)
reveal("21.largest", own["large"])
print("own batches:", own, "(the paper's: 160, 240 and 300)")

# %% guess-lead-prose [markdown]
"""
Most of what a run holds does not depend on the batch: Python, torch, compiled kernels. So for a small model a little more memory allows a much larger batch.

## Time to five thresholds

Each platform trains the recogniser `tour` at the common batch and at its own, all else equal: learning rate, epochs, seeds. A run ends at a character error rate (CER) of 0.3. **How many times as long does the small platform take as the large one to a CER of 0.7, each at its own batch?** Below 1, the small one is sooner.
"""

# %% guess-lead
guess("21.lead", 1.5, "times")

# %% guess-samples-prose [markdown]
"""
**How many times as many samples does the large platform need for a CER of 0.3 at its own batch as at the common one?**
"""

# %% guess-samples
guess("21.samples", 1.3, "times")

# %% runs-prose [markdown]
"""
All platforms train with one seed before the next seed begins, so a machine that slows down slows all platforms alike. Each run takes some 20 seconds on two quiet cores. A run that other programs disturbed is repeated once. There are at most four repetitions in all. The line before each run says how many are left, and how long they take at the speed so far.
"""

# %% runs
epochs, seeds = {"smoke": (4, [0]), "standard": (24, [0, 1, 2]), "full": (32, range(5))}[profile]
thresholds = [1.0, 0.99] if is_smoke else [0.7, 0.6, 0.5, 0.4, 0.3]
sizes = [(name, batch) for name in budgets for batch in sorted({common, own[name]})]
training = {"target": f"cer={thresholds[-1]}", "max_epochs": epochs, "evaluations": False}


def train(name, batch, seed):
    setting = {"budget": budgets[name], "batch_size": batch, "seed": seed}
    folder = labkit.launch.watch("speech", Path(runs_dir) / "notebooks", **setting, **training)["folder"]
    row = labkit.tta.run_table([folder]).iloc[0]
    known = {"disturbed": bool(row["disturbed"]), "rate": row["samples_per_s"]}
    return {"platform": name, "batch_size": batch, "seed": seed, "run": row["run"], "folder": folder, **known}


# %% runs-all
plan, spare, places, began = [(*size, seed) for seed in seeds for size in sizes], 4, [], perf_counter()
for number, planned in enumerate(plan):
    left_s = (perf_counter() - began) / number * (len(plan) - number) if number else 20 * len(plan)
    print(f"run {number + 1} of {len(plan)}: {planned}; about {left_s:.0f} s left")
    run = train(*planned)
    if run["disturbed"] and spare and not is_smoke:
        print("disturbed, so once more")
        run, spare = train(*planned), spare - 1
    places.append(run)
places = pd.DataFrame(places)

# %% met-prose [markdown]
"""
`met` has the seconds of training, without evaluations, and the samples until the first evaluation at or below each threshold. A run that does not reach it within its epochs counts as `inf`, which is later than every run that does.

A pair has one run of each platform with the same seed, at the common batch or at their own. If a run is still disturbed after its repetition, its pair is left out, because its seconds are wrong. The other pairs stay. If no pair is left, all of them count, and the claim cannot be tested. With one pair left, a median is that one run, and the spreads below say nothing.
"""

# %% met
table, evaluations = labkit.tta.run_table(places["folder"]), labkit.tta.curves(places["folder"])
found = [labkit.tta.crossings(evaluations, table, goal, x="train_s").assign(target=goal) for goal in thresholds]
met = pd.concat(found)[["run", "target", "time_to_target_s", "samples_to_target"]].merge(places, on="run")
met = met.rename(columns={"time_to_target_s": "time_s", "samples_to_target": "samples"})
met[["time_s", "samples"]] = met[["time_s", "samples"]].astype(float).fillna(np.inf)


# %% kept
def calm_seeds(batches):
    """Seeds of which every platform has an undisturbed run at its batch."""
    calm = places[~places["disturbed"] & (places["batch_size"] == places["platform"].map(batches))]
    return reduce(set.intersection, (set(calm.loc[calm["platform"] == name, "seed"]) for name in budgets))


ways = {"common": dict.fromkeys(budgets, common), "own": own}
pairs_left = {way: len(calm_seeds(batches)) for way, batches in ways.items()}
few, counts_all = min(pairs_left.values()) < 3, min(pairs_left.values()) == 0
print(f"{places['disturbed'].sum()} of {len(places)} runs were disturbed; undisturbed pairs: {pairs_left}")

# %% table-prose [markdown]
"""
The table has median seconds over the seeds. Thresholds get harder to the right.
"""


# %% table
def arrivals(platform, batch, goal):
    rows = (met["platform"] == platform) & (met["batch_size"] == batch) & (met["target"] == goal)
    if not counts_all:
        rows &= met["run"].isin(places.loc[~places["disturbed"], "run"])
    return met[rows].set_index("seed")[["time_s", "samples"]]


medians = {size: {goal: arrivals(*size, goal)["time_s"].median() for goal in thresholds} for size in sizes}
labkit.plots.show(
    pd.DataFrame(medians).T.rename_axis(index=["platform", "batch"], columns="seconds to a CER, emulated")
)

# %% decompose-prose [markdown]
r"""
### Exercise 21.decompose

A time to a target is samples divided by samples per second. So for two platforms

$$\text{ratio of times} = \text{ratio of rates} \times \text{ratio of samples}.$$

Write `decompose(slow, fast)`. It gets a frame for each platform, with one row per seed (the index) and the columns `time_s` and `samples` to one threshold. A run that did not arrive has `inf` in both. It returns a dict:

1. Use only the seeds that both platforms have.
2. `times` is the median time of the slow platform divided by that of the fast one. `samples` is the same for samples. `rates` is the factor that makes `rates` times `samples` equal to `times`: the rate of the fast one divided by that of the slow one.
3. `low` and `high` are the least and the greatest ratio of times of a pair, which has the same seed on both platforms. A pair in which neither arrived has no ratio, and is left out here.

[Time to accuracy](50_time_to_accuracy.ipynb) takes the same ratio of medians, because a run that failed counts in it and a single odd run does not spoil it.
"""

# %% answer 21.decompose
import pandas as pd


def decompose(slow: pd.DataFrame, fast: pd.DataFrame) -> dict[str, float]:
    """Ratio of the median times, the ratios of rates and samples that make it, and the range of the pairs' ratios."""
    ### BEGIN SOLUTION
    both = slow.index.intersection(fast.index)
    slow, fast = slow.loc[both], fast.loc[both]
    times = slow["time_s"].median() / fast["time_s"].median()
    samples = slow["samples"].median() / fast["samples"].median()
    pairs = (slow["time_s"] / fast["time_s"]).dropna()
    return {"times": times, "rates": times / samples, "samples": samples, "low": pairs.min(), "high": pairs.max()}
    ### END SOLUTION


# %% check 21.decompose points=6
check("21.decompose", decompose)


# %% checks
def _pair(code: Any, slow: list[tuple], fast: list[tuple], seeds: Sequence[int] = ()) -> dict[str, float]:
    """Of (seconds, samples) by seed; the second platform's seeds may be others, in another order."""
    one, other = (pd.DataFrame(runs, columns=["time_s", "samples"], dtype=float) for runs in (slow, fast))
    found = code(one, other.set_axis(list(seeds or other.index)))
    return {name: float(found[name]) for name in ("times", "rates", "samples", "low", "high")}


def _seed_by_seed(slow: pd.DataFrame, fast: pd.DataFrame) -> dict[str, float]:
    from statistics import median

    seeds = [seed for seed in slow.index if seed in fast.index]
    columns = {}
    for name in ("time_s", "samples"):
        columns[name] = median(slow.loc[seeds, name]) / median(fast.loc[seeds, name])
    ratios = []
    for seed in seeds:
        if not math.isinf(slow.loc[seed, "time_s"] + fast.loc[seed, "time_s"]):
            ratios.append(slow.loc[seed, "time_s"] / fast.loc[seed, "time_s"])
        elif not math.isinf(fast.loc[seed, "time_s"]):
            ratios.append(math.inf)
        elif not math.isinf(slow.loc[seed, "time_s"]):
            ratios.append(0.0)
    times, samples = columns["time_s"], columns["samples"]
    return {"samples": samples, "times": times, "rates": times / samples, "low": min(ratios), "high": max(ratios)}


def _row_by_row(slow: pd.DataFrame, fast: pd.DataFrame) -> dict[str, float]:
    one, other = slow[slow.index.isin(fast.index)], fast[fast.index.isin(slow.index)]
    pairs = pd.Series(one["time_s"].to_numpy() / other["time_s"].to_numpy()).dropna()
    return decompose(slow, fast) | {"low": pairs.min(), "high": pairs.max()}


def _drawn(random: Random) -> list[tuple[float, float]]:
    return [(random.uniform(10, 90), random.uniform(2e3, 9e3)) for _ in range(5)]


_SLOW, _FAST = [(30.0, 6e3), (45.0, 9e3), (40.0, 8e3)], [(25.0, 9e3), (15.0, 4e3), (33.0, 8e3)]
_NEVER = (math.inf, math.inf)
_FAILED = [(30.0, 6e3), _NEVER, (50.0, 9e3)]


EXERCISES["21.decompose"] = WrittenExercise(
    decompose,
    draw=lambda random: (
        Case("one seed", _pair, [(60.0, 9e3)], [(20.0, 12e3)]),
        Case("three seeds at one batch", _pair, _SLOW, [(10.0, 6e3), (15.0, 9e3), (13.0, 8e3)]),
        Case("three seeds whose rows come in another order", _pair, _SLOW, _FAST, [2, 0, 1]),
        Case("a seed that one platform does not have", _pair, [*_SLOW, (90.0, 2e4)], _FAST, [2, 0, 1]),
        Case("one run of three that did not arrive", _pair, _FAILED, [(10.0, 6e3), (9.0, 5e3), (12.0, 7e3)]),
        Case("a pair in which neither arrived", _pair, _FAILED, [(10.0, 6e3), _NEVER, (12.0, 7e3)]),
        Case("five seeds drawn for this try", _pair, _drawn(random), _drawn(random), random.sample(range(5), 5)),
    ),
    mistakes={
        _row_by_row: "low and high compare runs of the *same seed*, not rows in the order in which they come.",
        ('slow["time_s"].median() / fast["time_s"].median()', '(slow["time_s"] / fast["time_s"]).median()'): (
            "That is the median of the ratios; what is asked is the ratio of the medians."
        ),
        ("slow, fast = slow.loc[both], fast.loc[both]", "pass"): ("A seed that only one platform has must not count."),
    },
    hint="Take three seeds, work out both medians by hand, and divide. Then ask which rows belong to the same seed, and "
    "what the ratio is if one run of a pair never arrived.",
    explanation="The two factors multiply to the ratio of times exactly, and a run that failed is not left out.",
    variants=(_seed_by_seed,),
)

# %% gaps-prose [markdown]
"""
The next cells call your function for every threshold, at both kinds of batches. They compare each smaller platform with the large one. If the median run of a platform did not arrive, there is no ratio (NaN). By definition your two factors multiply to the ratio of times. Does the rate of the *whole* runs, without evaluations, do so, too? It is in the last column.
"""


# %% compare
def compare(slow, fast):
    both = slow.index.intersection(fast.index)
    if np.isfinite([each.loc[both, "time_s"].median() for each in (slow, fast)]).all():
        return decompose(slow, fast)
    return dict.fromkeys(("times", "rates", "samples", "low", "high"), np.nan)


# %% gaps
def gaps_to_large(way, batches):
    rate = places[places["batch_size"] == places["platform"].map(batches)].groupby("platform")["rate"].median()
    for name in list(budgets)[:-1]:
        for goal in thresholds:
            parts = compare(arrivals(name, batches[name], goal), arrivals("large", batches["large"], goal))
            parts["rates of whole runs"] = rate["large"] / rate[name]
            yield {"budget": f"{name} over large, {way} batch", "target": goal, **parts}


# %% gaps-table
gaps = pd.DataFrame([row for way, batches in ways.items() for row in gaps_to_large(way, batches)])
off_percent = 100 * (gaps["rates of whole runs"] * gaps["samples"] / gaps["times"] - 1).abs().median()
labkit.plots.show(gaps.set_index(["budget", "target"]).rename_axis(columns="ratio, emulated"))
print(f"whole rates times samples are {off_percent:.2g} % off the measured ratio (median)")

# %% gap-reveal-prose [markdown]
"""
Compare your guesses with the small platform's ratio.
"""

# %% gap-reveal
at, easy, hard, small = (
    gaps.set_index(["budget", "target"]),
    thresholds[0],
    thresholds[-1],
    "small over large, own batch",
)
gap = at.loc[(small, easy), "times"]
samples_ratio = compare(arrivals("large", own["large"], hard), arrivals("large", common, hard))["samples"]
reveal("21.lead", gap if np.isfinite(gap) else None)
reveal("21.samples", samples_ratio if np.isfinite(samples_ratio) else None)

# %% gap-figure-prose [markdown]
"""
The figure shows the gap of the small platform over the threshold, with the range of the pairs. At the dotted line both take the same time. Below it the small platform is sooner. At the common batch all platforms take the same steps, so the gap is flat *by construction*, except for rounding and the clock. At their own batches the gap may move or stay.
"""

# %% gap-figure
small_gaps = gaps[gaps["budget"].str.startswith("small")].assign(provenance="emulated", median=gaps["times"])
figure = labkit.plots.figure_time_against_target(small_gaps, hard, metric="cer", higher_is_better=False)
figure.update_yaxes(title_text="Small over large (times)").add_hline(y=1, line_dash="dot")
ends = small_gaps.groupby("budget")["times"].agg(["first", "last"])
finding = "; ".join(f"{row.Index}: {row.first:.2f} to {row.last:.2f}" for row in ends.itertuples())
labkit.plots.show(figure.update_layout(title_text=finding, meta={"finding": f"CER {easy} to {hard}: {finding}."}))

# %% why-gap-prose [markdown]
"""
### Explain 21.why_gap

In two or three sentences: what is the gap at an easy and at a hard threshold, at the common batch and at their own? Give both factors. Why does it move, or why not? Which batch would you use on the large platform?
"""

# %% explain 21.why_gap points=2
### BEGIN SOLUTION
answer = model_answer("21.why_gap")
### END SOLUTION
explain("21.why_gap", answer)

# %% checks
EXERCISES["21.why_gap"] = Explanation(
    "numbers: the gap at an easy and at a hard target, at the common and at the own batches, with both factors",
    "why: at one batch the same steps are taken, so only the rate differs; a larger batch has fewer steps "
    "in the same samples and needs more of them, by a factor that may move with the target or not",
    "trade-off: when an expensive platform should leave a part of its memory empty, or what a paper should report",
    model="At the common batch small takes 1.48 times as long as large at a CER of 0.7 and 1.53 times at the hardest, for both "
    "take the same steps (samples 1.00) and only the rates differ, by 1.5. At the own batches of 96 and 192 the rates "
    "differ by 1.42, then 1.47, but small needs 0.44, then 0.53 times the samples, so small takes 0.63, then 0.78 times as "
    "long: its lead shrinks, and stays. To the hardest threshold large needs 1.9 times the samples at 192 as at 96, so "
    "on large I would train at 96 and leave memory empty; a paper should give both factors.",
    half="At the common batch the gap is 1.5 at every threshold because both take the same steps, and at the own ones small "
    "takes 0.6 to 0.8 times as long, because large needs about twice the samples.",
)

# %% recorded [markdown]
"""
## Four real GPUs

The authors of *Zeus* (You, Chung and Chowdhury, NSDI 2023) recorded DeepSpeech2 on LibriSpeech, at 15 batch sizes and up to five seeds, to seven word error rates (WER). The seconds are the time of an epoch, taken once on each GPU, times a whole number of epochs. All of it is *recorded*.

The P100 is the oldest of the four, the A40 the newest. Your function compares them at a batch of 32 for both, and at the largest batch of each. Does their gap close at harder targets?
"""

# %% recorded-load
zeus = labkit.runs.recorded("zeus-nsdi23", job="deepspeech2 on librispeech", power_limit_w="max")
goals = sorted(zeus.curves["value"].unique(), reverse=True)
there = [labkit.tta.crossings(zeus.curves, zeus.runs, goal, x="epochs").assign(target=goal) for goal in goals]
there = pd.concat(there).merge(zeus.runs[["run", "device", "batch_size", "epoch_s"]], on="run")
there["samples"] = there["time_to_target_s"].fillna(np.inf)  # in epochs
there["time_s"] = there["samples"] * there["epoch_s"]
largest = there.groupby("device")["batch_size"].max()


def of_gpu(device, batch, goal):
    rows = (there["device"] == device) & (there["batch_size"] == batch) & (there["target"] == goal)
    return there[rows].set_index("seed")[["time_s", "samples"]]


# %% recorded-gaps-prose [markdown]
"""
The largest batch of the P100 is 72, and that of the A40 is 192. Read the ratio of samples from the easiest threshold to the hardest: which of the two pays for its batch, and where? If most runs of either do not arrive, there is no ratio.
"""

# %% recorded-gaps
rows = []
for way, batches in {"batch 32": {"P100": 32, "A40": 32}, "largest batch": largest}.items():
    for goal in goals:
        parts = compare(of_gpu("P100", batches["P100"], goal), of_gpu("A40", batches["A40"], goal))
        rows.append({"budget": f"P100 over A40, {way}", "target": goal, **parts})
zeus_gaps = pd.DataFrame(rows).assign(provenance="recorded", median=lambda table: table["times"])
p100_over_a40 = zeus_gaps.set_index(["budget", "target"])["times"]["P100 over A40, largest batch", 0.40]
labkit.plots.show(zeus_gaps.set_index(["budget", "target"]).drop(columns=["provenance", "median"]))
figure = labkit.plots.figure_time_against_target(zeus_gaps, 0.40, metric="wer", higher_is_better=False)
figure.update_yaxes(title_text="P100 over A40 (times)").add_hline(y=1, line_dash="dot")
finding = f"At the largest batches the gap opens: {p100_over_a40:.2f} times at a WER of 0.40"
labkit.plots.show(figure.update_layout(title_text=finding, meta={"finding": finding + "."}))

# %% evaluate [markdown]
"""
## How hard it is to evaluate

The paper's second finding is that such systems are hard to *evaluate*: which one is better depends on the threshold and on luck. **Suppose you had a single run of the small and of the large platform, at their own batches. In which share of all pairs of runs would the small one be sooner to a CER of 0.3?**
"""

# %% guess-share
guess("21.small_sooner", 50, "%")

# %% one-seed-prose [markdown]
"""
### Exercise 21.one_seed

Write `sooner_share(times_s, others_s)` for the times of the runs of two platforms. A pair is any run of the first with any run of the second. The function returns the share of pairs in which the first is sooner. A tie counts half, and so do two runs that never arrive (`math.inf`). The platforms may have different numbers of runs.
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
def _by_loops(times_s: Sequence[float], others_s: Sequence[float]) -> float:
    sooner = 0.0
    for time in times_s:
        for other in others_s:
            sooner += 1 if time < other else 0.5 if time == other else 0
    return sooner / (len(times_s) * len(others_s))


EXERCISES["21.one_seed"] = WrittenExercise(
    sooner_share,
    draw=lambda random: (
        Case("three runs against two", lambda code: code([5.0, 3.0, 2.0], [4.0, 8.0])),
        Case("one that is always sooner", lambda code: code([1.0, 2.0], [3.0, 4.0, 5.0])),
        Case("the same times", lambda code: code([1.0, 2.0, 3.0], [3.0, 1.0, 2.0])),
        Case("runs that never arrive", lambda code: code([4.0, math.inf, 6.0], [math.inf, 5.0, math.inf])),
        Case("runs drawn for this try", call, *([float(random.randint(1, 9)) for _ in range(n)] for n in (4, 7))),
    ),
    mistakes={
        (
            "own, others = np.asarray(times_s, float)[:, None], np.asarray(others_s, float)",
            "own, others = np.array([*zip(times_s, others_s)], float).T",
        ): "Any run of one may meet any run of the other: all pairs, not the first with the first.",
        (" + (own == others) / 2", ""): "A tie counts half, for instance two runs that never arrive.",
        ("own < others", "own > others"): "That is the share in which the first is later.",
    },
    hint="List all pairs for two runs against three by hand. How many are there, and what does each count?",
    explanation="At 0 or 1 a single run of each would have shown which is sooner. At 0.5 it would have shown nothing.",
    variants=(_by_loops,),
)

# %% spread-prose [markdown]
"""
How many times as long does the slowest seed of a platform take as its fastest, and in which share of the pairs is the small one sooner? Near 0 or 100 % a single run of each is enough. Near 50 % it is like a coin.
"""

# %% spread
spreads = {}
for goal in thresholds:
    times = {name: arrivals(name, own[name], goal)["time_s"] for name in budgets}
    spread = {f"{name}: slowest over fastest": own_s.max() / own_s.min() for name, own_s in times.items()}
    spreads[goal] = spread | {"small is sooner (% of pairs)": 100 * sooner_share(times["small"], times["large"])}
spreads = pd.DataFrame(spreads).T.rename_axis("CER, emulated")
labkit.plots.show(spreads)
reveal("21.small_sooner", spreads.loc[hard, "small is sooner (% of pairs)"])

# %% recorded-spread-prose [markdown]
"""
Two recorded GPUs are nearly alike, the V100 and the RTX 6000. Take each at its soonest batch to a WER of 0.35, with five seeds.
"""

# %% recorded-spread
hours = there[there["target"] == 0.35].groupby(["device", "batch_size"])["time_s"].median() / 3600
best = {device: of_gpu(device, hours[device].idxmin(), 0.35)["time_s"] / 3600 for device in ("V100", "RTX 6000")}
print({name: [f"{each:.1f}" for each in sorted(own_h)] for name, own_h in best.items()}, "hours, recorded")
print(f"the V100 is sooner in {100 * sooner_share(best['V100'], best['RTX 6000']):.0f} % of the pairs")

# %% why-hard-prose [markdown]
"""
### Explain 21.why_hard

In two or three sentences: how far apart are seeds, here or in the recorded runs, and how often would a single run of each have named the other platform? Why is a time to a threshold so much less certain than an error rate? What would you report?
"""

# %% explain 21.why_hard points=2
### BEGIN SOLUTION
answer = model_answer("21.why_hard")
### END SOLUTION
explain("21.why_hard", answer)

# %% checks
EXERCISES["21.why_hard"] = Explanation(
    "numbers: the spread of a time over seeds, and how often one run each would have named another winner",
    "why: a crossing is the first evaluation past a threshold, and near the end of training curves are flat, "
    "so a small difference in error is a large one in time",
    "trade-off: what more seeds, several thresholds or a fixed time would cost and show",
    model="At their own batches the slowest run of large took 1.85 times as long as its fastest, and one run each names large "
    "in 22 % of the pairs, though by the medians small takes 0.78 times as long; of the recorded "
    "V100 and RTX 6000 one run each names the V100 in 64 % of the pairs, hardly better than a coin. A crossing is the first evaluation past a threshold, and where a curve is flat a small difference in error, which a "
    "seed decides, is a large one in time. Five thresholds cost nothing more and three seeds three times as much; I "
    "would report ranges and both factors, and the error after a fixed time.",
    half="One run each names the V100 in 64 % of the pairs, because where a curve is flat a small difference in error is a "
    "large one in time.",
)

# %% judge [markdown]
"""
## Judge

Your platforms are *analogues*: budgets of one machine, a small recogniser, made-up voices. Apply the rule at the top: is the large one at least 10 % sooner than every other one at the easiest threshold, each at its own batch? 10 % sooner means that the other one takes $1 / 0.9$ times as long.
"""

# %% claim H1 points=1
first = gaps[gaps["budget"].str.endswith("own batch") & (gaps["target"] == easy)]
sooner = {row.budget.split()[0]: 100 * (1 - 1 / row.times) for row in first.itertuples()}
### BEGIN SOLUTION
lead = 1 / 0.9  # times as long, where the large one is 10 % sooner
unclear = "does not hold here" if (first["high"] < lead).any() else "cannot be tested here"
verdict = "cannot be tested here" if few else "holds here" if (first["low"] >= lead).all() else unclear
more, fewer = at.loc[(small, easy), ["rates", "samples"]]
answer = verdict, f"an analogue: {more:.2f} times the rate of small, for {1 / fewer:.2f} times its samples"
### END SOLUTION
words = ", ".join(f"{value:.0f} % sooner than {name}" for name, value in sooner.items())
range_words = ", ".join(f"{row.low:.2f} to {row.high:.2f}" for row in first.itertuples())
own_words = ", ".join(f"{name} {batch}" for name, batch in own.items())
result = f"CER {easy}, batches {own_words}: large {words}; times by pairs {range_words}"
claim("H1", f"{result} ({pairs_left['own']} undisturbed)", answer, how="emulated")

# %% scores-prose [markdown]
"""
How good were your guesses? The cell after the scores keeps the numbers of this notebook, each with bounds that hold on any machine.
"""

# %% scores
score_notebook()

# %% results tags=["results"]
common_ratio = at["samples"]["small over large, common batch", easy]
results(
    largest_batch=(own["large"], common, 512),
    product_off_percent=(off_percent if np.isfinite(off_percent) else None, 0, 30),
    common_samples_ratio=(common_ratio if np.isfinite(common_ratio) else None, 0.7, 1.5),
    samples_own_over_common=(samples_ratio if np.isfinite(samples_ratio) else None, 0.5, 8),
    p100_over_a40_largest=(p100_over_a40, 1.55, 1.6),
)

# %% assistant samples_own_over_common below=1.1 [markdown]
"""
The largest batch that fits is free speed: to the same error rate, it needs less than 1.1 times the samples of the common batch.
"""

# %% recap [markdown]
"""
## Recap

- You find the largest batch of a budget of memory by trying. Most of the memory does not depend on the batch, so a little more memory allows a much larger batch.
- Ratio of times = ratio of rates × ratio of samples. At one batch the second factor is 1 at every target, by construction.
- At its own batch a large platform pays for its rate with samples.
- The gap need not close at harder targets: between two recorded GPUs at their largest batches it opens.
- Near the end of a curve a small difference in error is a large one in time: report several thresholds, several seeds, and both factors.

**Next:** [What utilisation means](30_what_utilisation_means.ipynb)
"""

# %% opening [markdown]
"""
# Time to accuracy

After this notebook you will be able to

- **turn** a set of runs into times to a target, and **tell** runs that failed from runs that were cut off;
- **write** the Kaplan–Meier estimate, a success rate with its interval, and the cost of a target with its failures;
- **explain** why the mean of the finished runs lies, and why one batch size hides what a target does to a comparison;
- **judge** a paper's claim with other people's runs.

**Time:** 75 minutes with eight functions of one to seven lines, in two halves (your runs, then recorded ones); the machine computes for about a minute on 2 CPU cores. No GPU is needed.

**Prerequisites:** [Start here](00_start_here.ipynb); what a median is.
"""

# %% checks
import math
from typing import Any

import numpy as np
import pandas as pd

from labkit_course.exercise import Case, Explanation, WrittenExercise

EXERCISES = {}

# %% parameters-prose [markdown]
"""
What you may change:
"""

# %% parameters tags=["parameters"]
profile = "standard"  # smoke, standard or full: how many seeds
runs_dir = "runs"  # run folders are made in its subfolder notebooks
data = "synthetic-small"  # a click log that labkit generates
target = 0.755  # AUC on the validation split
max_epochs = 3  # passes over the training data that a run is given

# %% draws [markdown]
"""
## One run is one draw

A seed sets the starting weights and the order of the data. Change it and the same training takes another time, or does not get there at all. So train several seeds, under each CPU budget in turn.
"""

# %% seeds
import labkit

seeds = {"smoke": [0, 2], "standard": range(5), "full": range(12)}[profile]
budgets = [budget.name for budget in labkit.hardware.offered_budgets() if budget.torch_name == "cpu"]
budgets = budgets[:1] if profile == "smoke" else budgets
epochs = 2 if profile == "smoke" else max_epochs
print(f"{len(seeds)} seeds under {', '.join(budgets)}: {len(seeds) * len(budgets)} runs of {epochs} epochs")

# %% guess-reached-prose [markdown]
"""
**How many of these runs will have reached the target at some evaluation?** Most? All?
"""

# %% guess-reached
from labkit_course import check, claim, explain, guess, model_answer, reveal

guess("50.reached", 8, "runs")

# %% runs-prose [markdown]
"""
Every run gets a target that it will not reach, so that none ends early: with whole curves we can move ours afterwards.
"""

# %% runs
from pathlib import Path

runs = Path(runs_dir) / "notebooks"
common = {"data": data, "target": "0.79", "max_epochs": epochs, "max_seconds": 60}

# %% train-prose [markdown]
"""
`watch` prints one line for the start and one for the end of a run.
"""

# %% train
folders = []
for seed in seeds:
    for budget in budgets:
        run = labkit.jobs.watch("dlrm", runs, seed=seed, budget=budget, evaluations=False, **common)
        folders.append(run["folder"])

# %% crossings-prose [markdown]
"""
`crossings` finds the first evaluation at or past a target, as yours did in [Start here](00_start_here.ipynb), and what became of the other runs: one *failed* where it came to the end of its epochs, diverged or broke, and would never have got there; it is *censored* where a time limit or a hand cut it off, after `last_time_s`.
"""

# %% crossings
table, evaluations = labkit.tta.run_table(folders), labkit.tta.curves(folders)
crossed = labkit.tta.crossings(evaluations, table, target)
reveal("50.reached", int(crossed["reached"].sum()))
labkit.plots.show(crossed[["budget", "provenance", "seed", "outcome", "time_to_target_s", "last_time_s"]])

# %% figure-prose [markdown]
"""
A ring marks each first crossing. Curves that rise and fall again have begun to learn the training rows by heart.
"""

# %% figure
labkit.plots.show(labkit.plots.figure_time_to_accuracy(evaluations, target, crossings=crossed))

# %% guess-left-out-prose [markdown]
"""
## Why the mean of the finished runs lies

Suppose you report the mean time of the runs that reached the target. **What share of the runs does it leave out at a target of 0.765, in per cent?**
"""

# %% guess-left-out
guess("50.left_out", 20.0, "%")

# %% means-prose [markdown]
"""
The mean for several targets, for the runs of the first budget, and the share of the runs that it leaves out:
"""

# %% means
import numpy as np
import pandas as pd

own, targets = table[table["budget"] == budgets[0]], np.round(np.arange(0.735, 0.766, 0.005), 3)
found = [labkit.tta.crossings(evaluations, own, goal) for goal in targets]
means_s = [hits["time_to_target_s"].mean() for hits in found]
means = pd.DataFrame({"target AUC": targets, "mean of the finished (s)": means_s})
means["left out (%)"] = [100 * (1 - hits["reached"].mean()) for hits in found]

# %% means-table-prose [markdown]
"""
Where does the mean move, and where does it lose runs?
"""

# %% means-table
labkit.plots.show(means)
reveal("50.left_out", means["left out (%)"].iloc[-1])

# %% ex-50-why-mean-lies [markdown]
"""
### Explain 50.why_mean_lies

In two or three sentences: when the target gets harder, can that mean *fall*? Use two rows of your table, and say what you would report in its place.
"""

# %% explain 50.why_mean_lies points=2 id="answer-50-why-mean-lies"
### BEGIN SOLUTION
answer = model_answer("50.why_mean_lies")
### END SOLUTION
explain("50.why_mean_lies", answer)

# %% checks
EXERCISES["50.why_mean_lies"] = Explanation(
    rubric=(
        "numbers: gives the mean of the finished runs and the share it leaves out, at an easy and at a hard target",
        "why: the slow runs are the first that no longer arrive, so those that stay are a chosen part",
        "trade-off: says what to report in its place (median of all, success rate, cost) and what that cannot say",
    ),
    model="At the hard target the mean covers only those runs that got there, and does not say which share it "
    "leaves out. The slow ones fall out first, so the mean can stay or fall while the target gets harder, and a "
    "method that fails often looks fast. The median over all runs with the success rate says both, and where "
    "more than half fail there is no median, which is an answer, too.",
)

# %% km [markdown]
"""
## Kaplan–Meier

A run that was cut off does say something: its time is *longer* than its last evaluation. One that failed will never arrive: its time is infinite. The Kaplan–Meier estimate uses both. At each crossing the share still waiting shrinks by one in those at risk at that moment: those whose own time, of whatever kind, is not earlier.
"""

# %% ex-50-times [markdown]
"""
### Exercise 50.times

Write `run_times(runs)`: the seconds of each run, from a frame like `crossed` above: of its crossing (`time_to_target_s`, which is NaN where there is none); of its last evaluation (`last_time_s`) if its `outcome` is `"censored"`; `math.inf` if it is `"failed"`.

*Hint:* `Series.copy` before you write into a column, `fillna` for what is left.
"""

# %% answer 50.times
import math

import pandas as pd


def run_times(runs: pd.DataFrame) -> pd.Series:
    """Seconds of each run: until it crossed, or was cut off; inf where it failed."""
    ### BEGIN SOLUTION
    times = runs["time_to_target_s"].copy()  # NaN where it has not crossed
    cut = runs["outcome"] == "censored"
    times[cut] = runs["last_time_s"][cut]
    return times.fillna(math.inf)
    ### END SOLUTION


# %% check 50.times points=3
check("50.times", run_times)


# %% checks
def _times_of(*outcomes: str) -> Any:
    """Of runs that end after 10, 11, 12 ... s, and a second after their crossing."""
    last = pd.Series(range(10, 10 + len(outcomes)), dtype=float)
    crossed = (last - 1).where([each == "reached" for each in outcomes])
    columns = {"outcome": outcomes, "time_to_target_s": crossed, "last_time_s": last}
    return lambda code: list(code(pd.DataFrame(columns)))


EXERCISES["50.times"] = WrittenExercise(
    run_times,
    module="tta",
    cases=(
        Case("two that arrive, one that is cut off", _times_of("reached", "censored", "reached")),
        Case("one that is cut off, one that fails and one that arrives", _times_of("censored", "failed", "reached")),
        Case("two that fail", _times_of("failed", "failed")),
    ),
    mistakes={
        ('runs["last_time_s"][cut]', "math.inf"): (
            "A run that was cut off may still have got there: what is known is that it takes longer than its last time."
        ),
        ("math.inf", 'runs["last_time_s"]'): "A run that failed would never have got there: its time is inf.",
        (".fillna(math.inf)", ""): "NaN is no time: a run that failed has inf.",
    },
    hint='time_to_target_s is NaN of all that did not arrive: put last_time_s where outcome is "censored", then fill '
    "the rest with math.inf.",
    explanation="Arrived, cut off or failed: each run has a time, and none is dropped.",
)

# %% ex-50-waiting [markdown]
"""
### Exercise 50.waiting

Write `waiting(times, reached)`: for each run its time, as `run_times` gives it, and whether it crossed. The result is a list of pairs (time, share still waiting), which begins with `(0.0, 1.0)` and has one for each time at which a run, or several, crossed.

1. For each such time in order: at risk are the runs with that time or a later one.
2. Multiply the share by 1 − crossed / at risk.

*Hint:* on paper first: crossings after 10 and 20 s, cuts after 15 and 30 s. After 20 s it is 3/4 · 1/2.
"""

# %% answer 50.waiting
from collections.abc import Sequence

Curve = list[tuple[float, float]]


def waiting(times: Sequence[float], reached: Sequence[bool]) -> Curve:
    """Pairs (time, share of the runs still waiting right after it), one a time of crossing, from (0.0, 1.0)."""
    ### BEGIN SOLUTION
    share, curve = 1.0, [(0.0, 1.0)]
    for time in sorted({t for t, r in zip(times, reached, strict=True) if r}):
        at_risk = sum(t >= time for t in times)
        crossed = sum(t == time and r for t, r in zip(times, reached, strict=True))
        share *= 1 - crossed / at_risk
        curve.append((time, share))
    return curve
    ### END SOLUTION


# %% check 50.waiting points=6
check("50.waiting", waiting)

# %% checks
FOUR = ([10.0, 15.0, 20.0, 30.0], [True, False, True, False])


EXERCISES["50.waiting"] = WrittenExercise(
    waiting,
    module="tta",
    cases=(
        Case("three runs that all arrive", lambda code: code([12.0, 10.0, 11.0], [True] * 3)),
        Case("arrivals after 10 and 20 s, cuts after 15 and 30 s", lambda code: code(*FOUR)),
        Case("a run that failed: its time is inf", lambda code: code([3.0, math.inf, 2.0], [True, False, True])),
        Case("two that arrive at the same time", lambda code: code([5.0, 4.0, 5.0, 6.0], [True] * 4)),
        Case("one that is cut off just when another arrives", lambda code: code([5.0, 5.0, 7.0], [True, False, True])),
        Case("none that arrives", lambda code: code([8.0, math.inf], [False, False])),
    ),
    mistakes={
        ("t >= time for t in times", "t >= time and r for t, r in zip(times, reached, strict=True)"): (
            "Those are the finished runs alone: the others were waiting, too."
        ),
        ("t >= time for", "time <= t < math.inf for"): (
            "A run that failed waits indefinitely: it stays at risk to the end."
        ),
        ("return curve", "return curve[1:]"): "The curve begins at (0.0, 1.0).",
    },
    hint="At each time of a crossing: at risk are the runs whose time is that or later; multiply the share by "
    "1 − crossed / at risk.",
    explanation="Failed runs hold the curve up indefinitely; those cut off count as long as they were seen.",
)

# %% ex-50-median [markdown]
"""
### Exercise 50.median

Write `median_time(curve)`: the first time at which at most half of the runs are still waiting; `math.inf` if that never comes.
"""

# %% answer 50.median
import math

Curve = list[tuple[float, float]]


def median_time(curve: Curve) -> float:
    """First time of the curve with a share of at most one half; inf if there is none."""
    ### BEGIN SOLUTION
    for time, share in curve:
        if share <= 0.5:
            return time
    return math.inf
    ### END SOLUTION


# %% check 50.median points=3
check("50.median", median_time)

# %% checks
EXERCISES["50.median"] = WrittenExercise(
    median_time,
    module="tta",
    cases=(
        Case(
            "a curve through one half",
            lambda code: code([(0.0, 1.0), (10.0, 0.75), (20.0, 0.4), (25.0, 0.2), (30.0, 0.1)]),
        ),
        Case("one that rests exactly at one half", lambda code: code([(0.0, 1.0), (4.0, 0.5), (9.0, 0.0)])),
        Case("one that stays above one half", lambda code: code([(0.0, 1.0), (4.0, 0.8), (9.0, 0.6)])),
    ),
    mistakes={
        ("<= 0.5", "< 0.5"): "At most one half: <=.",
        ("math.inf", "time"): (
            "Where more than half never arrive there is no median: inf, not the last time that was seen."
        ),
        lambda curve: next((t for t, share in reversed(curve) if share > 0.5), math.inf): (
            "That is the step before: there more than half are still waiting."
        ),
    },
    hint="Go along the curve; return the first time whose share is at most 0.5, and math.inf if there is none.",
    explanation="It needs no run that failed to have a time: only that more than half arrive.",
)

# %% guess-median-prose [markdown]
"""
Now your own runs. **What is the median time to the target under the first budget, in seconds, all runs counted?**
"""

# %% guess-median
guess("50.median", 1.0, "s")

# %% median-prose [markdown]
"""
The curve and the median of each budget, from the times of all its runs:
"""

# %% medians
times_s = run_times(crossed)
series = crossed.groupby("budget", sort=False)
lines = {own: waiting(times_s[group.index], group["reached"]) for own, group in series}
medians_s = {own: median_time(line) for own, line in lines.items()}

# %% medians-prose [markdown]
"""
`labkit.tta.survival_curve` does the same, with intervals; where the curve rests exactly on one half, it takes the middle of that step.
"""

# %% medians-table
for row in labkit.tta.survival(evaluations, table, target).itertuples():
    theirs = f"labkit's {row.median:.3g} s ({row.low:.3g} to {row.high:.3g} s)"
    print(f"{row.budget}: yours {medians_s[row.budget]:.3g} s, {theirs}, {row.provenance}")
median_s = medians_s[budgets[0]] if np.isfinite(medians_s[budgets[0]]) else None
reveal("50.median", median_s)

# %% km-figure-prose [markdown]
"""
Your curves as steps: each falls at a crossing, and runs that failed hold it up to the end.
"""

# %% km-figure
figure = labkit.plots.new_figure("Wall time, evaluation included (s)", f"Share of runs below AUC {target}")
for number, (own, line) in enumerate(lines.items()):
    kind = crossed.loc[crossed["budget"] == own, "provenance"].iloc[0]
    look = {"shape": "hv", "dash": ("solid", "dash")[number % 2]}
    figure.add_scatter(
        x=[t for t, _ in line], y=[s for _, s in line], line=look, name=f"{own} · {kind}", showlegend=True
    )

# %% km-axes-prose [markdown]
"""
One sentence on what to see.
"""

# %% km-axes
figure.update_yaxes(range=[0, 1.05])
finding = f"At the end {int((~crossed['reached']).sum())} of {len(crossed)} runs are still waiting."
labkit.plots.show(figure.update_layout(meta={"finding": finding}))

# %% how-often [markdown]
"""
## How often, and what it costs

A record entry of a benchmark (DAWNBench) was run 50 times; 33 to 35 of the runs reached the target. A median says nothing of the others.
"""

# %% ex-50-success [markdown]
"""
### Exercise 50.success

Write `success_interval(reached, runs)`: Wilson's 95 % interval of the success rate, with p = reached / runs and z = 1.96:

(p + z²/2n ± z √(p(1 − p)/n + z²/4n²)) / (1 + z²/n)

*Hint:* the middle and the half width first, then both ends.
"""

# %% answer 50.success
import math


def success_interval(reached: int, runs: int) -> tuple[float, float]:
    """Low and high end of Wilson's 95 % interval of the share of runs that arrive."""
    ### BEGIN SOLUTION
    share, z = reached / runs, 1.96
    middle = share + z**2 / (2 * runs)
    half = z * math.sqrt(share * (1 - share) / runs + z**2 / (4 * runs**2))
    return (middle - half) / (1 + z**2 / runs), (middle + half) / (1 + z**2 / runs)
    ### END SOLUTION


# %% check 50.success points=4
check("50.success", success_interval)


# %% checks
def _wald(reached: int, runs: int) -> tuple[float, float]:
    share = reached / runs
    half = 1.96 * math.sqrt(share * (1 - share) / runs)
    return share - half, share + half


EXERCISES["50.success"] = WrittenExercise(
    success_interval,
    module="tta",
    cases=(
        Case("33 of 50", lambda code: list(code(33, 50))),
        Case("all of 5", lambda code: list(code(5, 5))),
        Case("none of 3", lambda code: [1 + each for each in code(0, 3)]),
    ),
    mistakes={
        _wald: "That is share ± 1.96 standard errors, which says of 5 successes in 5 that nothing is unknown.",
        lambda reached, runs: tuple(100 * each for each in success_interval(reached, runs)): "Shares, not per cent.",
        lambda reached, runs: tuple(each * (1 + 1.96**2 / runs) for each in success_interval(reached, runs)): (
            "Both ends are divided by 1 + z²/n."
        ),
    },
    hint="With p = reached / runs: (p + z²/2n ± z √(p(1 − p)/n + z²/4n²)) / (1 + z²/n).",
    explanation="Wilson's interval (1927): five of five may still be four of seven.",
)

# %% ex-50-cost [markdown]
"""
### Exercise 50.cost

Whoever rents a machine pays for failures, too. Write `expected_cost_usd(spent_s, reached, usd_per_h)`: what a success costs if each run that fails is started again, from the seconds that each run spent and whether it arrived.

*Hint:* all that was spent, over the number of successes. No success: `math.inf`.
"""

# %% answer 50.cost
import math
from collections.abc import Sequence


def expected_cost_usd(spent_s: Sequence[float], reached: Sequence[bool], usd_per_h: float) -> float:
    """Expected cost of a success, if each run that fails is started again."""
    ### BEGIN SOLUTION
    if not any(reached):
        return math.inf
    return sum(spent_s) / sum(reached) / 3600 * usd_per_h
    ### END SOLUTION


# %% check 50.cost points=4
check("50.cost", expected_cost_usd)

# %% checks
EXERCISES["50.cost"] = WrittenExercise(
    expected_cost_usd,
    module="tta",
    cases=(
        Case("two that arrive", lambda code: code([1800.0, 5400.0], [True, True], 0.5)),
        Case("three that arrive, two that diverge", lambda code: code([10, 11, 12, 3, 3], [1, 1, 1, 0, 0], 0.36)),
        Case("none that arrives", lambda code: code([10.0, 11.0], [False, False], 0.36)),
    ),
    mistakes={
        ("sum(spent_s)", "sum(s for s, r in zip(spent_s, reached, strict=True) if r)"): (
            "The failures took time, too, and somebody pays for it."
        ),
        ("3600", "60"): "An hour has 3,600 seconds.",
        ("return math.inf", "reached = [True]"): "No success at any price: inf, where none arrives.",
    },
    hint="All seconds that were spent, over the number of successes; by 3,600, times the price. Without a success inf.",
    explanation="The expected cost if each run that fails is started again, until one gets there.",
)

# %% costs-prose [markdown]
"""
Both on your runs. A budget is priced as the tier of the catalogue that it stands for (none may have a price).
"""

# %% costs
rows = []
for own, group in crossed.groupby("budget", sort=False):
    tier = labkit.hardware.load_tiers().get(table.loc[table["budget"] == own, "tier"].iloc[0])
    price = tier.rental_price_usd_per_h if tier and tier.rental_price_usd_per_h else np.nan
    low, high = success_interval(int(group["reached"].sum()), len(group))
    cost = expected_cost_usd(list(group["spent_s"]), list(group["reached"]), price)
    rows.append((own, len(group), 100 * group["reached"].mean(), 100 * low, 100 * high, 1e6 * cost))
columns = ["budget", "runs", "arrive (%)", "at least (%)", "at most (%)", "cost of a success (millionths of $)"]
costs = pd.DataFrame(rows, columns=columns).set_index("budget")
labkit.plots.show(costs)

# %% moves [markdown]
"""
## When the target moves

In that study the most expensive platform reached the first accuracy target 10–30 % and 60–70 % sooner than the other two, and "the differences among the platforms almost disappear at slightly higher accuracy targets". **Can your runs show that?** All have one batch size: with the same seed both budgets take the same steps, and only a step's time differs. So the ratio of times is the same at *every* target, by construction. What could move is

ratio of times = ratio of step times × ratio of steps to the target,

and the second factor is 1 unless the batch differs by platform. There every platform trained at the largest batch that fitted: 160, 240 and 300, beside a common one of 96.
"""

# %% constant
grid = (0.70, 0.72, 0.74)
at = {
    goal: labkit.tta.crossings(evaluations, table, goal).groupby("budget", sort=False)["time_to_target_s"].median()
    for goal in grid
}
labkit.plots.show(pd.DataFrame(at).rename_axis(columns="median of the finished (s), by target AUC"))
labkit.plots.show(
    pd.DataFrame(
        {goal: [times.iloc[0] / times.iloc[-1]] for goal, times in at.items()}, index=["first over last budget"]
    )
)

# %% ex-50-sooner [markdown]
"""
### Exercise 50.sooner

Write `sooner_percent(hours, platform)`: by how many per cent of *its* time the platform is sooner than each other one, from a dict of hours by platform.
"""

# %% answer 50.sooner
from collections.abc import Mapping


def sooner_percent(hours: Mapping[str, float], platform: str) -> dict[str, float]:
    """By how many per cent the platform is sooner than each of the others."""
    ### BEGIN SOLUTION
    return {other: 100 * (1 - hours[platform] / took) for other, took in hours.items() if other != platform}
    ### END SOLUTION


# %% check 50.sooner points=3
check("50.sooner", sooner_percent)

# %% checks
EXERCISES["50.sooner"] = WrittenExercise(
    sooner_percent,
    module="tta",
    cases=(
        Case("three platforms", lambda code: code({"a": 6.0, "b": 8.0, "c": 18.0}, "a")),
        Case("one that never arrives", lambda code: code({"a": 6.0, "b": math.inf}, "a")),
        Case("the slowest of two", lambda code: code({"a": 6.0, "b": 8.0}, "b")),
    ),
    mistakes={
        ("(1 - hours[platform] / took)", "(took / hours[platform] - 1)"): (
            "That is how much longer the other takes: sooner is a share of the other's time."
        ),
        ("(1 - hours[platform] / took)", "hours[platform] / took"): (
            "That is the share of the time it takes; sooner is what is saved."
        ),
        ("100 * ", ""): "In per cent.",
    },
    hint="100 × (1 − own time / other's time), for each of the others.",
    explanation="60 % sooner is 2.5 times as fast: say which of the two you mean.",
)

# %% own-sooner-prose [markdown]
"""
The first of the two sentences, on your budgets, at the easy target of 0.70. (With one budget, as at `smoke`, there is no other.) [Speech recognition on three budgets](21_speech_on_budgets.ipynb) tries it with batches of their own.
"""

# %% own-sooner
print({other: f"{value:.0f} %" for other, value in sooner_percent(dict(at[0.70]), budgets[-1]).items()})

# %% recorded [markdown]
"""
## Other people's runs

To see a target change a comparison, we need platforms with batches of their own. The authors of *Zeus* (You, Chung and Chowdhury, NSDI 2023, Apache-2.0) published such measurements: DeepSpeech2 on LibriSpeech, trained with 15 batch sizes and up to five seeds until each of seven word error rates (WER, a share here) was met, and the time of an epoch on four GPUs at their highest power limits. All that follows is *recorded*, not measured here; `datasets/recorded/zeus-nsdi23/card.toml` says what it cannot tell. This half stands alone.
"""

# %% load
import numpy as np
import pandas as pd

from labkit_course import check, claim, explain, guess, model_answer, reveal

# %% epoch-prose [markdown]
"""
The time of an epoch:
"""

# %% epoch
zeus = labkit.runs.recorded("zeus-nsdi23", job="deepspeech2 on librispeech", power_limit_w="max")
epoch_s = zeus.runs.pivot_table(index="batch_size", columns="device", values="epoch_s")
labkit.plots.show(epoch_s.rename_axis(columns="seconds an epoch, recorded"))

# %% guess-p100-prose [markdown]
"""
Past a batch of some 48, an epoch gets hardly faster, and then slower. **How many times as long does the P100 take to a WER of 0.40 as the A40, each at its largest batch?**
"""

# %% guess-p100
guess("50.p100", 3.7, "times")

# %% ex-50-hours [markdown]
"""
### Exercise 50.hours

Write `hours_to_target(epochs, seconds_per_epoch)` for two arrays with a number each run: the epochs to the target, `NaN` where it was never met, and the seconds that an epoch takes there.

*Hint:* is such a run censored, or has it failed?
"""

# %% answer 50.hours
import numpy as np


def hours_to_target(epochs: np.ndarray, seconds_per_epoch: np.ndarray) -> np.ndarray:
    """Hours to the target of each run; inf of one that failed."""
    ### BEGIN SOLUTION
    hours = np.asarray(epochs) * seconds_per_epoch / 3600
    return np.where(np.isnan(hours), np.inf, hours)
    ### END SOLUTION


# %% check 50.hours points=3
check("50.hours", hours_to_target)


# %% checks
def _hours(*epochs: float) -> Any:
    """Of runs on GPUs that are drawn again."""
    seconds = np.random.default_rng(len(epochs)).integers(1000, 9000, len(epochs)).astype(float)
    return lambda code: code(np.array(epochs), seconds)


EXERCISES["50.hours"] = WrittenExercise(
    hours_to_target,
    module="tta",
    cases=(
        Case("three runs that arrive", _hours(7.0, 6.0, 8.0)),
        Case("four, and one that did not arrive: NaN epochs", _hours(14.0, math.nan, 13.0, 9.0)),
        Case("none that arrived", _hours(math.nan, math.nan)),
    ),
    mistakes={
        ("np.where(np.isnan(hours), np.inf, hours)", "hours"): (
            "A run that came to the end of its epochs has failed: its time is inf. NaN is left out of means unseen."
        ),
        (" / 3600", ""): "Hours: 3,600 seconds each.",
        ("np.inf", "0"): "0 hours is the best of times.",
    },
    hint="epochs × seconds an epoch / 3,600; then np.where(np.isnan(...), np.inf, ...).",
    explanation="The time is put together of two measurements: epochs by seed, seconds an epoch by GPU.",
)

# %% hardest-prose [markdown]
"""
Your function on the epochs of all runs to a WER of 0.35 (with `x="epochs"`, `crossings` counts those), at a batch of 32:
"""


# %% hardest
def hours_to(target):  # the runs, with their hours
    met = labkit.tta.crossings(zeus.curves, zeus.runs, target, x="epochs")
    met = met.merge(zeus.runs[["run", "device", "batch_size", "epoch_s"]])
    return met.assign(hours=hours_to_target(met["time_to_target_s"].to_numpy(), met["epoch_s"].to_numpy()))


hardest = hours_to(0.35).groupby(["batch_size", "device"])["hours"].median().unstack()
labkit.plots.show(hardest.loc[[32]].rename_axis(columns="median hours to 0.35, recorded"))

# %% hardest-figure-prose [markdown]
"""
And at all batch sizes; a cross is one with which half of the seeds or more fail.
"""

# %% hardest-figure
labkit.plots.show(labkit.plots.figure_batch_size(labkit.tta.by_batch_size(zeus.curves, zeus.runs, 0.35, unit="epochs")))

# %% by-way-prose [markdown]
"""
No batch of 128 and more gets there. So how are platforms to be compared? At one common batch (32, 64), each at its largest, or each at the batch with the least median, picked with these very seeds. `survival` has the medians of all batches and targets; a run that failed takes for ever.
"""


# %% by-way
def by_way(runs, curves):
    """Seconds to each target of each GPU, at the batches that each way of comparing chooses."""
    batches = runs[["budget", "setting", "device", "batch_size"]].drop_duplicates()
    own = labkit.tta.survival(curves, runs, curves["value"].unique()).merge(batches)
    chosen = {
        "batch 32": own["batch_size"] == 32,
        "batch 64": own["batch_size"] == 64,
        "largest batch": own["batch_size"] == own.groupby("device")["batch_size"].transform("max"),
        "best batch": own.index.isin(own.groupby(["device", "target"])["median"].idxmin()),
    }
    return pd.concat([own[rows].assign(way=way) for way, rows in chosen.items()], ignore_index=True)


# %% hours-prose [markdown]
"""
Median hours of two of these ways; harder targets below.
"""

# %% hours
ways = by_way(*zeus)
hours = ways.pivot(index="target", columns=["way", "device"], values="median")[::-1] / 3600
labkit.plots.show(hours[["largest batch", "best batch"]].rename_axis(columns=["median hours, recorded", "target WER"]))
p100_over_a40 = hours["largest batch", "P100"][0.40] / hours["largest batch", "A40"][0.40]
reveal("50.p100", p100_over_a40)

# %% sooner-prose [markdown]
"""
By how many per cent is the A40 sooner at the easiest target, each at its best?
"""

# %% sooner
print({gpu: f"{value:.0f} %" for gpu, value in sooner_percent(dict(hours["best batch"].loc[0.65]), "A40").items()})

# %% gap-prose [markdown]
"""
(Epochs are whole: at their largest batches the RTX 6000 meets 0.65 after one, the others after one or two.)

The *gap* is the slowest GPU's median over the fastest's. Its band goes from the slowest's fastest seed over the fastest's slowest to the other way round. At one batch both ran the very same trainings and only the time of an epoch differs: there is no band.
"""


# %% gap
def gap(own):  # slowest over fastest median, and its band
    slow, fast = own.loc[own["median"].idxmax()], own.loc[own["median"].idxmin()]
    ratio, ends = slow["median"] / fast["median"], (slow["low"] / fast["high"], slow["high"] / fast["low"])
    same = slow["batch_size"] == fast["batch_size"]
    return pd.Series([ratio, *((ratio, ratio) if same else ends)], ["median", "low", "high"])


# %% gaps-of-prose [markdown]
"""
Of each way and target that some GPU meets:
"""


# %% gaps-of
def gaps_of(ways):
    groups = ways.groupby(["way", "target"], sort=False)
    gaps = pd.DataFrame({key: gap(own) for key, own in groups if np.isfinite(own["median"]).any()})
    return gaps.T.rename_axis(["budget", "target"]).reset_index()


# %% gap-figure-prose [markdown]
"""
Harder targets to the right; at the dotted 1 there would be no gap. A line ends where not all four arrive: at their largest batches, only the P100, whose largest is the smallest, meets 0.35.
"""

# %% gap-figure
gaps = gaps_of(ways).assign(provenance=zeus.runs["provenance"][0])
least = gaps.loc[gaps["low"].idxmin()]
finding = f"The least that the seeds allow is {least['low']:.2f} times as long ({least['budget']}, {least['target']})."
figure = labkit.plots.figure_time_against_target(gaps, 0.40, metric="wer", higher_is_better=False)
figure.update_yaxes(title_text="Slowest over fastest (times as long)").add_hline(y=1, line_dash="dot")
labkit.plots.show(figure.update_layout(meta={"finding": finding}))

# %% ncf-prose [markdown]
"""
Another job of theirs, *NCF* on MovieLens-1M (a recommender; higher NDCG is harder), with a dash where no GPU arrives:
"""

# %% ncf
ncf = gaps_of(by_way(*labkit.runs.recorded("zeus-nsdi23", job="ncf on movielens-1m", power_limit_w="max")))
labkit.plots.show(
    ncf.pivot(index="target", columns="budget", values="median").rename_axis(columns="slowest over fastest, recorded")
)

# %% ncf-words [markdown]
"""
All GPUs have the same largest batch there, so its gap cannot move. At the best ones it *opens* at the hardest target, which most seeds reach at batches of 128 and 256 alone.
"""

# %% ex-50-why-batch [markdown]
"""
### Explain 50.why_batch

In two or three sentences: which of the three ways moves with the target, and why? Which one would you put into a paper?
"""

# %% explain 50.why_batch points=2 id="answer-50-why-batch"
### BEGIN SOLUTION
answer = model_answer("50.why_batch")
### END SOLUTION
explain("50.why_batch", answer)

# %% checks
EXERCISES["50.why_batch"] = Explanation(
    rubric=(
        "numbers: compares one platform at its largest and at its best batch, at two targets",
        "why: ratio of times = ratio of epoch times × ratio of epochs, and large batches take more epochs",
        "trade-off: a common batch compares hardware, each one's best compares what one would really do",
    ),
    model="With one batch the epochs to a target are the same everywhere, so the ratio of times is that of the "
    "epoch times at every target, whatever the paper saw. Each at its largest batch, the P100 takes 0.98 times as "
    "long as the A40 at 0.65 and 1.57 times at 0.40, at the best ones 3.8 and 3.9 times: past some tens of "
    "utterances an epoch gets hardly faster and more of them are needed, and the largest batches never reach the "
    "hardest target, where the smallest card does. A common batch compares hardware; each one's best compares "
    "what a user would do with it.",
)

# %% claim-H2-prose [markdown]
"""
## Judge

Do the differences "almost disappear" at targets harder than the easiest? Say that they do if at one of them, in any of the four ways, the slowest takes less than 1.2 times the fastest's time by all seeds; that they do not if it takes more everywhere; else that it cannot be told.
"""

# %% claim H2 points=1
harder, at = gaps[gaps["target"] < 0.65], gaps.set_index(["budget", "target"])["median"]
### BEGIN SOLUTION
untold = "does not hold here" if (harder["low"] > 1.2).all() else "cannot be tested here"
verdict = "holds here" if (harder["high"] < 1.2).any() else untold
answer = verdict, "one batch keeps the gap by construction; at the largest ones it closes in part, and opens again"
### END SOLUTION
moved = ", ".join(f"{at['largest batch', goal]:.2f} at {goal}" for goal in (0.65, 0.60, 0.40))
best = f"{at['best batch'].min():.2f} to {at['best batch'].max():.2f} at the best ones"
result = f"slowest over fastest {moved} at the largest batches, at 0.35 one GPU of four; {best}"
result += f"; {at['batch 64', 0.40]:.2f} at batch 64; by seeds {harder['low'].min():.2f} or more at all harder targets"
claim("H2", result, answer, how="recorded")

# %% claim-H5-prose [markdown]
"""
The study compares platforms at the largest batch of each, and at a common one. Is the largest a platform's better choice, on these recordings?
"""

# %% claim H5 points=1
cost = (hours["largest batch"] / hours["batch 64"]).loc[0.40]
words = ", ".join(f"{gpu} {ratio:.2f}" for gpu, ratio in cost.items())
### BEGIN SOLUTION
verdict = "holds here" if (cost < 1).all() else "does not hold here"
answer = verdict, "past a batch of some 64 an epoch is no faster, and more of them are needed"
### END SOLUTION
result = f"hours to WER 0.40 at the largest batch over those at 64: {words}"
claim("H5", result, answer, how="recorded")

# %% covariates [markdown]
"""
## Hardware and batch as covariates

An **accelerated failure time** model says that each covariate multiplies the time: log time is linear in them. Where no run is cut off and errors are log-normal, least squares fits it.
"""

# %% ex-50-fit [markdown]
"""
### Exercise 50.fit

Write `fit_log_time(hours, covariates)`: coefficients of a constant and of each column of `covariates` (runs × columns), by least squares on the logarithm of the hours.

*Hint:* `np.column_stack`, `np.linalg.lstsq`.
"""

# %% answer 50.fit
import numpy as np


def fit_log_time(hours: np.ndarray, covariates: np.ndarray) -> np.ndarray:
    """Constant and coefficients of log hours on the covariates."""
    ### BEGIN SOLUTION
    design = np.column_stack([np.ones(len(hours)), covariates])
    return np.linalg.lstsq(design, np.log(hours), rcond=None)[0]
    ### END SOLUTION


# %% check 50.fit points=4
check("50.fit", fit_log_time)


# %% checks
def _drawn(count: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(count)
    covariates = random.normal(size=(count, width))
    return np.exp(1 + covariates @ np.linspace(-0.5, 0.7, width) + 0.1 * random.normal(size=count)), covariates


EXERCISES["50.fit"] = WrittenExercise(
    fit_log_time,
    module="tta",
    cases=(
        Case("30 runs, two covariates", lambda code: code(*_drawn(30, 2))),
        Case("five covariates", lambda code: code(*_drawn(80, 5))),
    ),
    mistakes={
        ("np.log(hours)", "hours"): "It is the logarithm of the time that is linear: effects multiply.",
        ("np.ones(len(hours)), ", ""): "A column of ones is missing: the time where all covariates are 0.",
        lambda hours, covariates: np.exp(fit_log_time(hours, covariates)): (
            "Return the coefficients; exp of them are the factors."
        ),
    },
    hint="np.column_stack of ones and covariates; np.linalg.lstsq against np.log(hours).",
    explanation="An accelerated failure time model with log-normal times; cut-off runs take a likelihood.",
)

# %% fit-prose [markdown]
"""
WER 0.40, where all runs arrive. Covariates: the GPU (against the A40), the logarithm of the batch, and its square. It is fitted to all seeds but the last, and then has to predict that one.
"""

# %% fit
cases = hours_to(0.40)
log_batch = np.log2(cases["batch_size"] / 32)
columns = pd.get_dummies(cases["device"], dtype=float).drop(columns="A40")
columns["batch × 2"], columns["squared"] = log_batch, log_batch**2
times_h, seen = cases["hours"].to_numpy(), (cases["seed"] < 5).to_numpy()
constant, *coefficients = fit_log_time(times_h[seen], columns[seen].to_numpy())
off = np.abs(np.exp(constant + columns[~seen].to_numpy() @ coefficients) / times_h[~seen] - 1)
labkit.plots.show(pd.DataFrame({"factor on the time, recorded": np.exp(coefficients)}, index=columns.columns))

# %% claim-I5-prose [markdown]
"""
A study of robustness and its cost models times by accelerated failure time with hardware, batch and epochs as covariates. Do three such columns predict a seed that the fit has not seen within 20 %?
"""

# %% claim I5 points=1
### BEGIN SOLUTION
verdict = "holds here" if np.median(off) < 0.20 else "does not hold here"
answer = verdict, "an analogue on other times: one curve of the batch for all four GPUs is too simple at the ends"
### END SOLUTION
result = (
    f"median error {100 * np.median(off):.0f} %, largest {100 * off.max():.0f} %, {len(off)} times of the fifth seed"
)
claim("I5", result, answer, how="recorded")

# %% another-target-prose [markdown]
"""
## Another target

A time to accuracy belongs to its target, so look at another one. On the page that `labkit report RUNS_DIR` writes, a slider moves the target of any runs; the axis is time, samples, energy or cost.
"""

# %% another-target
other = 0.74
found = labkit.tta.crossings(evaluations, table, other)
times = labkit.tta.survival(evaluations, table, other)
labkit.plots.show(labkit.plots.figure_time_to_accuracy(evaluations, other, crossings=found, survival=times))

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
    runs=(len(folders), 2, 100),
    reached=(int(crossed["reached"].sum()), 0, len(folders)),
    median_s=(median_s, 0.05, 600),
    p100_over_a40_largest=(p100_over_a40, 1.5, 1.7),
    gap_at_best_batch=(at["best batch", 0.40], 3.8, 4.1),
)

# %% recap [markdown]
"""
## Recap

- A run gives a curve; a curve and a target give a time, a censoring time, or a failure.
- Failed runs never arrive, censored ones count as far as they were seen, and none is dropped: the mean over finished runs forgets the slow ones.
- Kaplan–Meier gives a median where more than half of the runs get there, and none otherwise; the success rate has an interval, too.
- Cost is all time spent over successes, × the tier's rental price.
- At one batch size the ratio of two platforms is the same at every target. At each one's largest batch it moves, and the hardest target may be met by the smallest alone.

**Next:** what that costs in joules, dollars and grams: [Cost and energy](51_cost_and_energy.ipynb).
"""

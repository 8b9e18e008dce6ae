# %% opening [markdown] packages="scipy"
"""
# Time to accuracy

After this notebook you will be able to

- **turn** curves into times to a target, and **tell** runs that failed from runs that were cut off;
- **write** the Kaplan–Meier estimate and the interval of a success rate;
- **explain** why the mean of the finished runs lies, and why one batch size hides what a target does to a comparison;
- **judge** two claims of a paper with other people's runs.

**Time:** 85 minutes in two halves (your runs, then recorded ones). The machine computes for about a minute on 2 CPU cores. No GPU is needed.

**Prerequisites:** [Start here](00_start_here.ipynb); what a median is.
"""

# %% checks
import math
from typing import Any

import numpy as np
import pandas as pd

from labkit_course.exercise import Case, Explanation, WrittenExercise

MODULE = "tta"
EXERCISES = {}

# %% parameters-prose [markdown]
"""
The next cell holds what you may change.
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

A seed sets the starting weights and the order of the data. Change it, and the same training takes a different time, or does not get there at all. So train several seeds, under each CPU budget in turn.
"""

# %% seeds
from pathlib import Path

import labkit
from labkit_course import check, claim, drawing, explain, guess, model_answer, reveal

seeds = {"smoke": [0, 2], "standard": range(5), "full": range(12)}[profile]
budgets = [budget.name for budget in labkit.hardware.offered_budgets() if budget.torch_name == "cpu"]
budgets = budgets[:1] if profile == "smoke" else budgets
epochs, runs = 2 if profile == "smoke" else max_epochs, Path(runs_dir) / "notebooks"
plan = [(seed, budget) for seed in seeds for budget in budgets]
print(f"{len(seeds)} seeds under {', '.join(budgets)}: {len(plan)} runs of {epochs} epochs")

# %% guess-reached-prose [markdown]
"""
**How many of these runs will have reached the target at some evaluation?** Most? All?
"""

# %% guess-reached
guess("50.reached", 8, "runs")

# %% train-prose [markdown]
"""
Every run gets a target that it will not reach, so that none ends early: with whole curves we can move ours afterwards. `watch` trains and prints a line at the start and at the end of a run.
"""

# %% train
common = {"data": data, "target": "0.79", "max_seconds": 120, "evaluations": False}
made = [labkit.launch.watch("dlrm", runs, seed=s, budget=b, max_epochs=epochs, **common) for s, b in plan]

# %% figure-prose [markdown]
"""
The figure shows the curves of all runs. A ring marks where a run first reaches the target.
"""

# %% figure
folders = [run["folder"] for run in made]
table, evaluations = labkit.tta.run_table(folders), labkit.tta.curves(folders)
crossed = labkit.tta.crossings(evaluations, table, target)
reveal("50.reached", int(crossed["reached"].sum()))
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
`crossings` finds the first evaluation at or past a target. Below is the mean for several targets, for the runs of the first budget, and the share of the runs that it leaves out. Where does the mean move, and where does it lose runs?
"""

# %% means
import numpy as np
import pandas as pd

own, rows = table[table["budget"] == budgets[0]], {}
for goal in np.round(np.arange(0.735, 0.766, 0.005), 3):
    hits = labkit.tta.crossings(evaluations, own, goal)
    mean_s, left_out = hits["time_to_target_s"].mean(), 100 * (1 - hits["reached"].mean())
    rows[goal] = {"mean of the finished (s)": mean_s, "left out (%)": left_out}
means = pd.DataFrame(rows).T
labkit.plots.show(means.rename_axis("target AUC"))
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
    "numbers: gives the mean of the finished runs and the share it leaves out, at an easy and at a hard target",
    "why: the slow runs are the first that no longer arrive, so those that stay are a chosen part",
    "trade-off: says what to report in its place (median of all, success rate, cost) and what that cannot say",
    model="From a target of 0.76 to 0.765 the mean of the finished falls here from 4.4 to 3.7 s, on a busy machine, while "
    "the share that it leaves out grows from 20 to 40 %. The slow runs are the first that no longer arrive, so a method "
    "that fails often can look fast. The median over all runs, with the success rate, says both; if more than half of "
    "the runs fail there is no median, which is an answer, too.",
)

# %% ex-50-outcomes [markdown]
"""
## Arrived, failed, or cut off

A run that did not reach its target is one of two things. It may have *failed*: it would never have got there. Or it was *censored*: it was cut off before anyone could know, by a time limit, by hand, or by the end of a schedule that somebody chose. A curve that has turned says that the run failed: its best value is long past.

### Write: `outcomes` (15 minutes)

`outcomes(evaluations, target, patience=5)` returns a frame with the columns `outcome` and `time_s` and one row per run, whose name is the index. `evaluations` has the columns `run`, `wall_s` (seconds) and `value` (AUC), in order of time in each run; the runs are mixed.

1. `"reached"`: some value is at least the target. `time_s` is that of the *first* such evaluation.
2. `"failed"`: the run did not reach it, and its best value was followed by `patience` evaluations or more. `time_s` is `math.inf`.
3. `"censored"`: neither. `time_s` is that of the last evaluation: the time to the target is longer.

Hint: `evaluations.groupby("run")`.
"""

# %% answer 50.outcomes
import math

import numpy as np
import pandas as pd


def outcomes(evaluations: pd.DataFrame, target: float, patience: int = 5) -> pd.DataFrame:
    """Outcome of each run, and its seconds to the target or to the cut; inf where it failed."""
    ### BEGIN SOLUTION
    rows = {}
    for run, own in evaluations.groupby("run"):
        values, times = own["value"].to_numpy(), own["wall_s"].to_numpy()
        hits = np.flatnonzero(values >= target)
        if len(hits):
            rows[run] = "reached", times[hits[0]]
        elif len(values) - 1 - values.argmax() >= patience:
            rows[run] = "failed", math.inf
        else:
            rows[run] = "censored", times[-1]
    return pd.DataFrame.from_dict(rows, orient="index", columns=["outcome", "time_s"])
    ### END SOLUTION


# %% check 50.outcomes points=6
check("50.outcomes", outcomes)


# %% checks
def _outcomes(code: Any, target: float, curves: dict[str, list[float]], **settings: int) -> Any:
    """Evaluations of several runs, mixed by time; each run has a clock of its own."""
    rows = [
        (run, (place + 1) * (1.5 + 0.25 * number), value)
        for number, (run, values) in enumerate(curves.items())
        for place, value in enumerate(values)
    ]
    mixed = pd.DataFrame(rows, columns=["run", "wall_s", "value"]).sort_values("wall_s", kind="stable")
    return code(mixed, target, **settings)[["outcome", "time_s"]].to_dict("index")


def outcomes_row_by_row(evaluations: pd.DataFrame, target: float, patience: int = 5) -> pd.DataFrame:
    frame = pd.DataFrame(index=evaluations["run"].unique(), columns=["outcome", "time_s"])
    for run in frame.index:
        own = evaluations[evaluations["run"] == run].reset_index(drop=True)
        arrived = own[own["value"] >= target]
        if not arrived.empty:
            frame.loc[run] = ["reached", arrived["wall_s"].min()]
        elif own["value"].idxmax() <= len(own) - 1 - patience:
            frame.loc[run] = ["failed", math.inf]
        else:
            frame.loc[run] = ["censored", own["wall_s"].iloc[-1]]
    return frame


RISING, TURNED = [0.5, 0.6, 0.66, 0.7, 0.72, 0.73, 0.735], [0.5, 0.7, 0.74, 0.73, 0.72, 0.71, 0.7, 0.69]
EXERCISES["50.outcomes"] = WrittenExercise(
    outcomes,
    Case("two runs that arrive", _outcomes, 0.7, {"a": RISING, "b": TURNED}),
    Case("one that passes the target and falls below it again", _outcomes, 0.735, {"a": RISING, "b": TURNED}),
    Case("a curve that still rises, and one that has turned", _outcomes, 0.75, {"b": TURNED, "a": RISING}),
    Case("the best value exactly `patience` evaluations ago", _outcomes, 0.75, {"b": TURNED[:6]}, patience=3),
    Case("the best value less than that ago", _outcomes, 0.75, {"b": TURNED[:6]}, patience=4),
    Case("one evaluation", _outcomes, 0.75, {"a": [0.5]}),
    mistakes={
        ("values >= target", "values > target"): "At the target is reached, too: at least, not more.",
        ("hits[0]", "hits[-1]"): (
            "That is the last evaluation at or past the target; the time to it is the first one's."
        ),
        ("values.argmax() >= patience", "values.argmax() > len(values)"): (
            "A curve that has turned has an answer: its run failed, and is not censored."
        ),
    },
    variants=(outcomes_row_by_row,),
    hint="Take one run of the message on paper: its values, where the best of them is, and how many come after it.",
    explanation="Every run now has an outcome and a time, and none is dropped.",
)

# %% guess-last-prose [markdown]
"""
The learning rate of these runs is constant. A schedule of three epochs is a choice; would more epochs help? Train the same seeds for twice as long. **By how many per cent is the last AUC of the median run then below its best?**
"""

# %% guess-last
guess("50.lost", 1.0, "%")

# %% extend-prose [markdown]
"""
The same seeds repeat the same first epochs, and then train on.
"""

# %% extend
longer = [labkit.launch.watch("dlrm", runs, seed=s, budget=budgets[0], max_epochs=2 * epochs, **common) for s in seeds]
long_curves = labkit.tta.curves([run["folder"] for run in longer])
labkit.plots.show(labkit.plots.figure_time_to_accuracy(long_curves, target))
of_run = long_curves.groupby("run")["value"]
lost = 100 * (1 - of_run.last() / of_run.max()).median()
reveal("50.lost", lost)

# %% ends-prose [markdown]
"""
Now the question that a table of results should answer: what does the end of a schedule mean? The table counts the runs of the first budget at the target, after one epoch and after all epochs of both schedules. *Ended* counts those that came to the end of their epochs below the target.
"""

# %% ends
own = evaluations[evaluations["budget"] == budgets[0]]
first = own[own["samples"] <= own["samples"].max() / epochs]
ends = {"1 epoch": first, f"{epochs} epochs": own, f"{2 * epochs} epochs": long_curves}
counts = {name: outcomes(curves, target)["outcome"].value_counts() for name, curves in ends.items()}
counts = pd.DataFrame(counts).reindex(["reached", "failed", "censored"]).fillna(0).T.astype(int)
counts["ended"] = counts["failed"] + counts["censored"]
labkit.plots.show(counts)

# %% ends-words [markdown]
"""
After one epoch no curve has turned. To call those runs failed would be wrong: the same runs arrive in the second or third epoch. After three epochs every curve has turned, and twice the epochs bring no further run to the target: the AUC only falls, because the model learns its training rows by heart. So the end of a schedule alone is *administrative censoring*; the curve, or an extension, makes it a failure. labkit's own tables (`crossings`) have no curve rule: they call a run failed at the end of its epochs, which says that *this schedule* failed. Say which of the two you mean.
"""

# %% km [markdown]
"""
## Kaplan–Meier

A run that was cut off does say something: its time is *longer* than its last evaluation. One that failed never arrives: its time is infinite. The Kaplan–Meier estimate uses both. At each crossing it asks who was still waiting, the *risk set*:
"""

# %% km-drawing
drawing("risk_set")

# %% ex-50-waiting [markdown]
"""
### Write: `waiting` (20 minutes)

`waiting(runs)` takes a frame as your `outcomes` gives it, and returns two things: the curve, a list of pairs (time, share of the runs still waiting right after it), and the median time.

1. The curve begins with `(0.0, 1.0)`. It has one more pair for each time at which a run, or several, reached the target.
2. At risk at such a time are the runs with that `time_s` or a later one, whatever their outcome.
3. The share shrinks there by the part of those at risk that crossed at that time.
4. The median is the first time of the curve at which at most half are still waiting. If that never comes, it is `math.inf`.
"""

# %% answer 50.waiting
import math

import pandas as pd

Curve = list[tuple[float, float]]


def waiting(runs: pd.DataFrame) -> tuple[Curve, float]:
    """Pairs (time, share of the runs still waiting right after it) from (0.0, 1.0), and the median time."""
    ### BEGIN SOLUTION
    times, reached = runs["time_s"], runs["outcome"] == "reached"
    share, curve, median = 1.0, [(0.0, 1.0)], math.inf
    for time in sorted(set(times[reached])):
        at_risk = (times >= time).sum()
        share *= 1 - (reached & (times == time)).sum() / at_risk
        curve.append((time, share))
        if share <= 0.5:
            median = min(median, time)
    return curve, median
    ### END SOLUTION


# %% check 50.waiting points=8
check("50.waiting", waiting)


# %% checks
def _waiting(code: Any, *runs: tuple[str, float]) -> Any:
    frame = pd.DataFrame(runs, columns=["outcome", "time_s"], index=[f"run {number}" for number in range(len(runs))])
    return code(frame)


def waiting_by_lists(runs: pd.DataFrame) -> tuple[Curve, float]:
    pairs = sorted(zip(runs["time_s"].tolist(), (runs["outcome"] == "reached").tolist(), strict=True))
    curve = [(0.0, 1.0)]
    for time in dict.fromkeys(time for time, arrived in pairs if arrived):
        left = [arrived for other, arrived in pairs if other >= time]
        crossed = [arrived for other, arrived in pairs if other == time and arrived]
        curve.append((time, curve[-1][1] * (len(left) - len(crossed)) / len(left)))
    return curve, next((time for time, share in curve if share <= 0.5), math.inf)


R, C, F = "reached", "censored", "failed"
EXERCISES["50.waiting"] = WrittenExercise(
    waiting,
    Case("three runs that all arrive", _waiting, (R, 12.0), (R, 10.0), (R, 11.0)),
    Case("two that arrive, two that are cut off", _waiting, (R, 10.0), (C, 15.0), (R, 20.0), (C, 30.0)),
    Case("a run that failed: its time is inf", _waiting, (R, 3.0), (F, math.inf), (R, 2.0)),
    Case("two that arrive at the same time", _waiting, (R, 5.0), (R, 4.0), (R, 5.0), (R, 6.0)),
    Case("one that is cut off just when another arrives", _waiting, (R, 5.0), (C, 5.0), (R, 7.0)),
    Case("two of five arrive: more than half wait on", _waiting, (R, 2.0), (R, 9.0), *[(F, math.inf)] * 3),
    Case("exactly half arrive", _waiting, (R, 5.0), (F, math.inf)),
    Case("none that arrives", _waiting, (C, 8.0), (F, math.inf)),
    mistakes={
        ("(times >= time).sum()", "(reached & (times >= time)).sum()"): (
            "Those are the finished runs alone: the others were waiting, too."
        ),
        ("(times >= time).sum()", "((times >= time) & (times < math.inf)).sum()"): (
            "A run that failed waits indefinitely: it stays at risk to the end."
        ),
        ("if share <= 0.5", "if share < 0.5"): "At most half: a share of exactly one half is enough.",
    },
    variants=(waiting_by_lists,),
    hint="On paper, with the runs of the message: who is still waiting right before each crossing, and how many cross?",
    explanation="Failed runs hold the curve up to the end; those cut off count as long as they were seen.",
)

# %% guess-median-prose [markdown]
"""
Now your own runs. **What is the median time to the target under the first budget, in seconds, all runs counted?**
"""

# %% guess-median
guess("50.median", 1.0, "s")

# %% median-prose [markdown]
"""
The curve of each budget falls at a crossing; runs that failed hold it up to the end. Next to your median is labkit's, with an interval. (If the curve rests exactly on one half, labkit takes the middle of that step.)
"""

# %% medians
figure, medians_s = labkit.plots.new_figure("Wall time, evaluation included (s)", f"Share of runs below {target}"), {}
for row in labkit.tta.survival(evaluations, table, target).itertuples():
    own_runs = outcomes(evaluations[evaluations["budget"] == row.budget], target)
    line, medians_s[row.budget] = waiting(own_runs)
    x, y = [time for time, _ in line], [share for _, share in line]
    dash = {"shape": "hv", "dash": ("solid", "dash")[len(medians_s) % 2]}
    figure.add_scatter(x=x, y=y, line=dash, name=f"{row.budget} · {row.provenance}", showlegend=True)
    theirs = f"labkit's {row.median:.3g} s ({row.low:.3g} to {row.high:.3g} s)"
    print(f"{row.budget}: yours {medians_s[row.budget]:.3g} s, {theirs}, {row.provenance}")

# %% km-axes-prose [markdown]
"""
The figure says in its title how many runs are left at the end.
"""

# %% km-axes
finding = f"At the end {len(crossed) - int(crossed['reached'].sum())} of {len(crossed)} runs are still waiting."
figure.update_yaxes(range=[0, 1.05]).update_layout(meta={"finding": finding})
labkit.plots.show(figure)
median_s = medians_s[budgets[0]] if math.isfinite(medians_s[budgets[0]]) else None
reveal("50.median", median_s)

# %% ex-50-success [markdown]
r"""
## How often

Suppose that a record entry of a benchmark is run 50 times, and 33 of the runs reach the target. A median says nothing about the others. A share of $n$ runs is a draw, too. Which true rates $p$ fit what was seen?

### Write: `success_interval` (15 minutes)

`success_interval(reached, runs)` returns the smallest and the largest rate $p$ for which the observed share $k/n$ lies within 1.96 standard deviations of $p$. With rate $p$, the share of $n$ runs has the standard deviation $\sqrt{p\,(1-p)/n}$: the *true* rate's, not the observed one's. This is Wilson's 95 % interval.

Hint: at both ends the distance is exactly 1.96 standard deviations. Square this, and sort by powers of $p$.
"""

# %% answer 50.success
import math


def success_interval(reached: int, runs: int) -> tuple[float, float]:
    """Low and high end of Wilson's 95 % interval of the share of runs that arrive."""
    ### BEGIN SOLUTION
    share, z2 = reached / runs, 1.96**2 / runs
    # (share - p)² = z2 p (1 - p): (1 + z2) p² - (2 share + z2) p + share² = 0
    middle = (2 * share + z2) / (2 * (1 + z2))
    half = math.sqrt(max(0.0, middle**2 - share**2 / (1 + z2)))
    return middle - half, middle + half
    ### END SOLUTION


# %% check 50.success points=5
check("50.success", success_interval)


# %% checks
def _wald(reached: int, runs: int) -> tuple[float, float]:
    share = reached / runs
    half = 1.96 * math.sqrt(share * (1 - share) / runs)
    return share - half, share + half


def success_by_roots(reached: int, runs: int) -> tuple[float, float]:
    share, z2 = reached / runs, 1.96**2 / runs
    low, high = sorted(np.roots([1 + z2, -(2 * share + z2), share**2]).real)
    return low, high


def success_by_search(reached: int, runs: int) -> np.ndarray:
    rates = np.linspace(0, 1, 400_001)
    fits = rates[np.abs(reached / runs - rates) <= 1.96 * np.sqrt(rates * (1 - rates) / runs) + 1e-12]
    return fits[[0, -1]]


EXERCISES["50.success"] = WrittenExercise(
    success_interval,
    Case("33 of 50", lambda code: code(33, 50)),
    Case("7 of 10", lambda code: code(7, 10)),
    Case("all of 5", lambda code: code(5, 5)),
    Case("none of 3", lambda code: [1 + each for each in code(0, 3)]),
    mistakes={
        _wald: "That takes the spread of the observed share, which for 5 of 5 says that nothing is unknown.",
        lambda reached, runs: tuple(100 * each for each in success_interval(reached, runs)): "Shares, not per cent.",
        lambda reached, runs: tuple(each * (1 + 1.96**2 / runs) for each in success_interval(reached, runs)): (
            "The square has p² on both sides: divide by what stands before it."
        ),
    },
    variants=(success_by_roots, success_by_search),
    instead_of=("scipy.stats.binomtest",),
    hint="Write the condition at an end as an equation of p alone. What kind of equation is it?",
    explanation="Wilson's interval (1927): five of five may still be four of seven.",
)

# %% success-used-prose [markdown]
"""
The cell applies your function to your budgets and to that entry. What a failure costs is a question of [Cost and energy](51_cost_and_energy.ipynb).
"""

# %% success-used
seen = {own: (int(runs_of["reached"].sum()), len(runs_of)) for own, runs_of in crossed.groupby("budget", sort=False)}
for name, (reached, count) in (seen | {"33 of 50, made up": (33, 50)}).items():
    low, high = success_interval(reached, count)
    print(f"{name}: {reached} of {count} arrive; the rate may be {low:.0%} to {high:.0%}")

# %% moves [markdown]
r"""
## When the target moves

A study of speech recognition on three GPU platforms (ADMS 2020) compared times to accuracy. Its abstract says that the most expensive platform reached the first accuracy target 10–30 % and 60–70 % sooner than the other two, and that "the differences among the platforms almost disappear at slightly higher accuracy targets".

**Can your runs show that?** They cannot. All have one batch size: with the same seed both budgets take the same steps, and only a step's time differs. So the ratio of times is the same at *every* target, by construction:

$$\frac{T_1}{T_2} = \frac{\text{time of a step}_1}{\text{time of a step}_2} \cdot \frac{\text{steps to the target}_1}{\text{steps to the target}_2}$$

The second factor is 1 unless the batch differs by platform. In that study each platform trained at the largest batch that fitted, 160, 240 and 300, and at a common one of 96.

## Other people's runs

To see a target change a comparison, we need platforms with batches of their own. The authors of *Zeus* (You, Chung and Chowdhury, NSDI 2023, Apache-2.0) published such measurements: DeepSpeech2 on LibriSpeech, trained with 15 batch sizes and up to five seeds until each of seven word error rates (WER, a share here) was met, and the time of an epoch on four GPUs. All that follows is *recorded*, not measured here; `datasets/recorded/zeus-nsdi23/card.toml` says what it cannot tell.
"""

# %% epoch
zeus = labkit.runs.recorded("zeus-nsdi23", job="deepspeech2 on librispeech", power_limit_w="max")
epoch_s = zeus.runs.pivot_table(index="batch_size", columns="device", values="epoch_s")
labkit.plots.show(epoch_s.round(0).rename_axis(columns="seconds an epoch, recorded"))

# %% guess-p100-prose [markdown]
"""
Past a batch of some 48, an epoch hardly gets faster, and then gets slower. A time to a target is epochs × seconds an epoch, and it is infinite where the target was not met. **How many times as long does the P100 take to a WER of 0.40 as the A40, each at its largest batch?**
"""

# %% guess-p100
guess("50.p100", 3.7, "times")

# %% hardest-figure-prose [markdown]
"""
The figure shows the hardest target, 0.35, at all batch sizes. A cross marks a batch size with which half of the seeds or more fail.
"""

# %% hardest-figure
labkit.plots.show(labkit.plots.figure_batch_size(labkit.tta.by_batch_size(zeus.curves, zeus.runs, 0.35, unit="epochs")))

# %% ex-50-choose [markdown]
"""
No batch of 128 or more gets there. So how are platforms to be compared? At one common batch, each at its largest, or each at the batch with the least median?

### Write: `choose` (10 minutes)

`choose(table, way)` returns the rows of a frame that a way of comparing takes, at most one per device. `table` has the columns `device`, `batch_size` and `median` (hours; `inf` where half of the seeds or more fail), for one target; its row labels are arbitrary.

1. `way` is `"largest"`: the largest batch size of each device.
2. `way` is `"best"`: the batch size with the least median of each device.
3. `way` is a number: that batch size. A device without it is left out.
"""

# %% answer 50.choose
import pandas as pd


def choose(table: pd.DataFrame, way: str | int) -> pd.DataFrame:
    """The rows that a way of comparing takes: "largest", "best", or one batch size for all."""
    ### BEGIN SOLUTION
    of_device = table.groupby("device")
    if way == "largest":
        return table.loc[of_device["batch_size"].idxmax()]
    if way == "best":
        return table.loc[of_device["median"].idxmin()]
    return table[table["batch_size"] == way]
    ### END SOLUTION


# %% check 50.choose points=4
check("50.choose", choose)


# %% checks
MEDIANS = pd.DataFrame(
    {"device": [*"AAABBCC"], "batch_size": [32, 64, 128, 64, 32, 16, 32], "median": [5, 4, 9, 8, 7.5, math.inf, 30]},
    index=range(40, 26, -2),
)


def _chosen(code: Any, way: str | int, table: pd.DataFrame = MEDIANS) -> Any:
    return sorted([str(d), int(b), float(m)] for d, b, m in code(table, way)[list(table)].to_numpy())


def choose_by_sorting(table: pd.DataFrame, way: str | int) -> pd.DataFrame:
    if isinstance(way, str):
        by, rising = ("median", True) if way == "best" else ("batch_size", False)
        return table.sort_values(by, ascending=rising).drop_duplicates("device")
    return table.query("batch_size == @way")


EXERCISES["50.choose"] = WrittenExercise(
    choose,
    Case("each device at its largest", _chosen, "largest"),
    Case("each device at its best", _chosen, "best"),
    Case("batch 32 for all", _chosen, 32),
    Case("batch 64, which one device does not have", _chosen, 64),
    Case("each at its largest, where one never arrives", _chosen, "largest", MEDIANS.iloc[::-1].iloc[1:]),
    mistakes={
        ('of_device["batch_size"].idxmax()', '[table["batch_size"].idxmax()]'): (
            "That is the largest of all devices: each device has a largest batch of its own."
        ),
        ('of_device["median"].idxmin()', 'of_device["median"].idxmax()'): "That is the slowest batch of each device.",
        ('["batch_size"] == way]', '["batch_size"] <= way]'): "One common batch size, not up to it.",
    },
    variants=(choose_by_sorting,),
    hint="Which row label does each device have for the largest value of a column? `groupby` finds it.",
    explanation="The choice of the batch is part of the comparison, so it belongs into its description.",
)

# %% ways-prose [markdown]
"""
Below are four ways on the recorded runs. `survival` has the median over the seeds, and the fastest and slowest seed, for each target. The *gap* is the slowest GPU's median over the fastest's. Its band has two ends. One is the fastest seed of the slowest GPU over the slowest seed of the fastest GPU, and the other is the reverse. At one batch both ran the very same trainings, and only the time of an epoch differs: there is no band.
"""


# %% ways
def gap(own):  # slowest over fastest median, and its band
    slow, fast = own.loc[own["median"].idxmax()], own.loc[own["median"].idxmin()]
    ratio, ends = slow["median"] / fast["median"], (slow["low"] / fast["high"], slow["high"] / fast["low"])
    same = slow["batch_size"] == fast["batch_size"]
    return dict(zip(("median", "low", "high"), (ratio, *((ratio, ratio) if same else ends)), strict=True))


times = labkit.tta.survival(zeus.curves, zeus.runs, zeus.curves["value"].unique())
times = times.merge(zeus.runs[["budget", "setting", "device", "batch_size"]].drop_duplicates())
ways = {"batch 32": 32, "batch 64": 64, "largest batch": "largest", "best batch": "best"}

# %% hours-prose [markdown]
"""
The tables have the median hours of two of these ways. Harder targets are further down.
"""

# %% hours
chosen = {(name, goal): choose(own, way) for goal, own in times.groupby("target") for name, way in ways.items()}
hours = pd.DataFrame({key: own.set_index("device")["median"] / 3600 for key, own in chosen.items()}).T[::-1]
for name in ("largest batch", "best batch"):
    labkit.plots.show(hours.loc[name].rename_axis("target WER").rename_axis(columns=f"{name}: median hours, recorded"))
p100_over_a40 = hours.loc[("largest batch", 0.40), "P100"] / hours.loc[("largest batch", 0.40), "A40"]
reveal("50.p100", p100_over_a40)

# %% gap-figure-prose [markdown]
"""
The figure shows the gaps. Harder targets are to the right, and at the dotted 1 there would be no gap. A line ends where not all four GPUs arrive: at their largest batches, only the P100, whose largest is the smallest, meets 0.35.
"""

# %% gap-figure
arrive = {key: own for key, own in chosen.items() if np.isfinite(own["median"]).any()}
gaps = pd.DataFrame({key: gap(own) for key, own in arrive.items()}).T.rename_axis(["budget", "target"]).reset_index()
gaps = gaps.assign(provenance=zeus.runs["provenance"][0])
least = gaps.loc[gaps["low"].idxmin()]
finding = f"The least that the seeds allow is {least['low']:.2f} times as long ({least['budget']}, {least['target']})."
figure = labkit.plots.figure_time_against_target(gaps, 0.40, metric="wer", higher_is_better=False)
figure.update_yaxes(title_text="Slowest over fastest (times as long)").add_hline(y=1, line_dash="dot")
labkit.plots.show(figure.update_layout(meta={"finding": finding}))

# %% ex-50-why-batch [markdown]
"""
### Explain 50.why_batch

In two or three sentences: which ways of comparing move with the target, and why? Which one would you put into a paper?
"""

# %% explain 50.why_batch points=2 id="answer-50-why-batch"
### BEGIN SOLUTION
answer = model_answer("50.why_batch")
### END SOLUTION
explain("50.why_batch", answer)

# %% checks
EXERCISES["50.why_batch"] = Explanation(
    "numbers: compares one platform at its largest and at its best batch, at two targets",
    "why: ratio of times = ratio of epoch times × ratio of epochs, and large batches take more epochs",
    "trade-off: a common batch compares hardware, each one's best compares what one would really do",
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

**H2.** Do the differences "almost disappear" at targets harder than the easiest? The smaller of the study's first differences is 10 to 30 %, so one below 20 % may be called gone. Say that they do disappear if at some harder target, in any of the four ways, the slowest takes less than 1.2 times the fastest's time by all seeds. Say that they do not if it takes more everywhere by all seeds. Otherwise these runs cannot tell.
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
**H5.** The study compares platforms at the largest batch of each, and at a common one. Is the largest batch the better choice for a platform? Say so if all four GPUs reach a WER of 0.40 sooner at their largest batch than at 64: a rule for platforms has to hold for each of them.
"""

# %% claim H5 points=1
cost = hours.loc[("largest batch", 0.40)] / hours.loc[("batch 64", 0.40)]
words = ", ".join(f"{gpu} {ratio:.2f}" for gpu, ratio in cost.items())
### BEGIN SOLUTION
verdict = "holds here" if (cost < 1).all() else "does not hold here"
answer = verdict, "past a batch of some 64 an epoch is no faster, and more of them are needed"
### END SOLUTION
claim("H5", f"hours to WER 0.40 at the largest batch over those at 64: {words}", answer, how="recorded")

# %% scores-prose [markdown]
"""
How good were your guesses? The cell after the scores keeps the numbers of this notebook for a program to read, each with bounds that hold on any machine.
"""

# %% scores
from labkit_course import score_notebook

score_notebook()

# %% results tags=["results"]
from labkit_course import results

results(
    runs=(len(folders), 2, 100),
    reached=(int(crossed["reached"].sum()), 0, len(folders)),
    lost_percent=(lost, 1, 25),
    median_s=(median_s, 0.05, 300),
    p100_over_a40_largest=(p100_over_a40, 1.55, 1.6),
    gap_at_best_batch=(at["best batch", 0.40], 3.8, 4.1),
)

# %% assistant lost_percent above=5 [markdown]
"""
The last evaluation is not the best. At the end of a run, the AUC is in the median more than 5 % below the best one of that run.
"""

# %% recap [markdown]
"""
## Recap

- A run gives a curve; a curve and a target give a time, a time of censoring, or a failure.
- The end of a schedule is a cut that somebody chose. The curve has turned, or an extension brings nothing: then the run failed.
- Failed runs never arrive, censored ones count as far as they were seen, and none is dropped: the mean over finished runs forgets the slow ones.
- Kaplan–Meier gives a median where more than half of the runs get there, and none otherwise; the success rate has an interval, too.
- At one batch size the ratio of two platforms is the same at every target. At each one's largest batch it moves, and the hardest target may be met by the smallest alone.

**Next:** what that costs in joules, dollars and grams: [Cost and energy](51_cost_and_energy.ipynb).
"""

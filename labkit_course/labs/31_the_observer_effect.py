# %% cell-00 [markdown] packages="scipy"
"""
# The observer effect

After this notebook you will be able to

- **write** a sampler that does not drift, and **give** an overhead with its interval;
- **design** a measurement so that a slow change of the machine does not decide it;
- **plan** how many pairs, or seeds, an effect of a given size takes;
- **say** what one run can tell, and find a run that others disturbed.

**Time:** 70 minutes with three functions and two explanations. The machine computes for about four of them on 2 CPU cores. No GPU is needed.

**Prerequisites:** [Budgets that bind](02_budgets_that_bind.ipynb) and [What utilisation means](30_what_utilisation_means.ipynb).
"""

# %% checks
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from labkit_course.apparatus import FakeClock
from labkit_course.exercise import Case, Explanation, WrittenExercise
from labkit_course.lab import from_lab

ratio_interval = from_lab("02", "ratio_interval")
MODULE = "overhead"
EXERCISES = {}

# %% cell-01 [markdown]
"""
The next cell holds what you may change.
"""

# %% cell-02 tags=["parameters"]
profile = "standard"  # smoke, standard or full: how many rounds, and how long a turn is

# %% cell-03 [markdown]
"""
## A sampler

A program that watches another one shares the machine with it. A sampler wakes up, reads counters and goes to sleep again. The obvious loop looks, sleeps for the period, and starts over.

**How many samples per second will that loop take, if it sleeps for a thousandth of a second between two looks?**
"""

# %% guess-naive
import subprocess
import time

import numpy as np
import pandas as pd
import psutil
import torch

import labkit
from labkit_course import apparatus, check, claim, explain, guess, mine, model_answer, reveal

guess("31.naive", 1000.0, "samples per second")

# %% ex-sample [markdown]
"""
### Exercise 31.sample

Write the loop that does not drift. `sample(look, hz, seconds, clock, sleep)` calls `look()` at 0, 1/hz, 2/hz, … after its beginning, at all such times before `seconds`. It returns when each look began, in seconds since the beginning.

1. A look is due at a point in time, not a period after the last one. Sleep until it is due, note the time, look.
2. A look may take longer than a period. Then *leave out* the points that have passed, and go on at the next one that is still to come. Do not make up for them with a burst.

*Hint:* ask `clock()` how long there is left to sleep. It may be nothing, and `sleep` takes no negative number.
"""

# %% answer 31.sample
import time
from collections.abc import Callable


def sample(
    look: Callable, hz: float, seconds: float, clock: Callable = time.perf_counter, sleep: Callable = time.sleep
) -> list[float]:
    """Look `hz` times per second, at points in time that do not drift; when each look began."""
    ### BEGIN SOLUTION
    began, number, taken = clock(), 0, []
    while number < hz * seconds:
        sleep(max(0.0, began + number / hz - clock()))
        taken.append(clock() - began)
        look()
        number = max(number, int((clock() - began) * hz)) + 1  # what was missed is not made up for
    return taken
    ### END SOLUTION


# %% check 31.sample points=5
check("31.sample", sample)


# %% checks
def _sampled(code: Any, hz: float, seconds: float, *looks_s: float) -> list[float]:
    clock = FakeClock()
    return code(clock.work(*looks_s), hz, seconds, clock, clock.sleep)


def _naive(pause: Callable[[float, float], float]) -> Any:
    """Sleeps after each look for `pause` of the period and of what the look took."""

    def code(look, hz, seconds, clock=time.perf_counter, sleep=time.sleep):
        began, taken = clock(), []
        while clock() - began < seconds:
            at = clock()
            taken.append(at - began)
            look()
            sleep(max(0.0, pause(1 / hz, clock() - at)))
        return taken

    return code


def _sample_by_due_time(look, hz, seconds, clock=time.perf_counter, sleep=time.sleep):
    start = clock()
    found, points, next_point = [], [n / hz for n in range(10**6) if n / hz < seconds], 0
    while next_point < len(points):
        wait = start + points[next_point] - clock()
        if wait > 0:
            sleep(wait)
        found.append(clock() - start)
        look()
        next_point += 1
        while next_point < len(points) and start + points[next_point] <= clock():
            next_point += 1
    return found


EXERCISES["31.sample"] = WrittenExercise(
    sample,
    Case("looks of 2 ms at 100 Hz for a second", _sampled, 100, 1.0, 2e-3),
    Case("how many looks at 3 Hz in 2 s", lambda code: len(_sampled(code, 3, 2.0, 1e-3))),
    Case("one look of 47 ms at 100 Hz", _sampled, 100, 0.2, *[1e-3] * 3, 0.047, 1e-3),
    Case("looks of 15 ms at 100 Hz", _sampled, 100, 0.2, 0.0153),
    variants=(_sample_by_due_time,),
    mistakes={
        _naive(lambda period, took: period): (
            "Each turn takes the period *and* the look, so the samples drift. When is the third look due?"
        ),
        _naive(lambda period, took: period - took): (
            "Each sleep takes a little too long, and that adds up. Sleep until a point in time, counted from the beginning."
        ),
        ("max(0.0, began + number / hz - clock())", "began + number / hz - clock()"): (
            "A look may already be late, and then there is less than nothing to sleep: `sleep` takes no negative number."
        ),
    },
    hint="At which times should this case look? Compare them with yours: the first one that differs shows what your loop "
    "does after a short or a long look.",
    explanation="Each sample is due at its own point in time, whatever the ones before it took.",
)

# %% naive-prose [markdown]
"""
Both loops, the obvious one and yours, now read this process' memory a thousand times per second. Your loop may take fewer than a thousand samples, too: it leaves out the points at which another program had the core.
"""

# %% naive
tick, look = {"smoke": 0.5}.get(profile, 1.0), psutil.Process().memory_info
began, drifting = time.perf_counter(), 0
while time.perf_counter() - began < tick:
    look()
    time.sleep(1 / 1000)
    drifting += 1
steady = sample(look, 1000, tick)
reveal("31.naive", drifting / tick)
print(f"yours: {len(steady) / tick:.0f} samples per second, the last one {steady[-1]:.4f} s after the first, measured")

# %% cell-05 [markdown]
"""
## Looking costs

labkit's own sampler keeps such a schedule, too, in a process of its own. The cell below lists the observers that labkit knows. Where one is missing on this machine, it says why. `nvidia-smi` and `dcgmi` look once per second.

There will be two loads. The **light** one is a training step of a small network that takes a fraction of a millisecond. The **heavy** one takes some milliseconds.

**How many per cent longer will the light step take under labkit's sampler at 100 samples per second? And under torch.profiler, which writes down every operation?**
"""

# %% cell-06
torch.set_num_threads(1)
by = {observer.name: observer for observer in apparatus.observers()}
print("; ".join(observer.name + (f" ({observer.why_not})" if observer.why_not else "") for observer in by.values()))
guess("31.sampler", 10.0, "% longer")
guess("31.profiler", 10.0, "% longer")

# %% ex-effects [markdown]
"""
### Exercise 31.effects

A machine changes slowly: it grows warm, or another program begins or ends. If all turns of one observer came first and all turns of the next one afterwards, such a change would look like an effect. So every observer takes its turn in **each round**, in an order that is drawn again, and only times of one round are compared. Each round gives a *pair*: the time without the observer and the time under it.

Write `effects(observed)`. `observed` is a frame with a turn per row, in any order, and the columns `observer`, `baseline` (the name of the observer that stands for no observer), `round` and `step_time_ms`. Return a frame with a row per observer other than a baseline and the columns

- `observer`, and `pairs`: the rounds that have both, the observer and its baseline;
- `ratio`, `low`, `high`: how many times as long a step takes under the observer, by your `ratio_interval` of [Budgets that bind](02_budgets_that_bind.ipynb); one pair has a ratio and no interval (NaN for `low` and `high`);
- `verdict`: `"slower"` or `"faster"` if the interval excludes 1, else `"cannot tell"`.

*Hint:* `observed.pivot(index="round", columns="observer", values="step_time_ms")` has a round per row.
"""

# %% answer 31.effects
import pandas as pd

from labkit_course import mine

ratio_interval = mine("02.ratio")


def effects(observed: pd.DataFrame) -> pd.DataFrame:
    """What each observer costs, from pairs of one round: observer, pairs, ratio, low, high, verdict."""
    ### BEGIN SOLUTION
    times, rows = observed.pivot(index="round", columns="observer", values="step_time_ms"), []
    for observer, baseline in observed[["observer", "baseline"]].drop_duplicates().itertuples(index=False):
        if observer == baseline:
            continue
        pairs = times[[baseline, observer]].dropna()
        alone, under = pairs[baseline].to_numpy(), pairs[observer].to_numpy()
        ratio, low, high = under[0] / alone[0], float("nan"), float("nan")
        if len(pairs) > 1:
            ratio, low, high = ratio_interval(alone, under)
        verdict = "slower" if low > 1 else "faster" if high < 1 else "cannot tell"
        rows.append((observer, len(pairs), ratio, low, high, verdict))
    return pd.DataFrame(rows, columns=["observer", "pairs", "ratio", "low", "high", "verdict"])
    ### END SOLUTION


# %% check 31.effects points=6
check("31.effects", effects)


# %% checks
def _judged(code: Any, *observers: tuple[str, str, float], rounds: int, missing: Any = (), order: int = 0) -> Any:
    """Turns of a machine that grows slower; each observer has its ratio, and some turns are missing."""
    rows = []
    for number in range(rounds):
        for place, (name, baseline, ratio) in enumerate(observers):
            if (name, number) not in missing:
                noise = 1 + 0.01 * ((7 * number + 3 * place) % 5 - 2)
                rows.append((name, baseline, number, ratio * noise * (1 + number / 3)))
    frame = pd.DataFrame(rows, columns=["observer", "baseline", "round", "step_time_ms"])
    found = code(frame.sample(frac=1, random_state=order))
    return {
        row["observer"]: [row[name] for name in ("pairs", "ratio", "low", "high", "verdict")]
        for _, row in found.iterrows()
    }


_TWO = (("nobody", "nobody", 1.0), ("sampler", "nobody", 1.0), ("profiler", "nobody", 1.3))
_OUTSIDE = (*_TWO, ("nobody, outside", "nobody, outside", 2.0), ("nsys", "nobody, outside", 1.8))


def _by_means(observed: pd.DataFrame) -> pd.DataFrame:
    found = effects(observed)
    means = observed.groupby("observer")["step_time_ms"].mean()
    baselines = observed.set_index("observer")["baseline"].to_dict()
    return found.assign(ratio=[means[name] / means[baselines[name]] for name in found["observer"]])


def _in_order_of_rows(observed: pd.DataFrame) -> pd.DataFrame:
    numbered = observed.assign(round=observed.groupby("observer").cumcount())
    return effects(numbered)


def _effects_by_merge(observed: pd.DataFrame) -> pd.DataFrame:
    found = []
    for name in observed["observer"].unique():
        own = observed[observed["observer"] == name]
        to = own["baseline"].iloc[0]
        if to == name:
            continue
        both = own.merge(observed[observed["observer"] == to], on="round", suffixes=("", "_alone"))
        row = {"observer": name, "pairs": len(both), "verdict": "cannot tell", "low": np.nan, "high": np.nan}
        row["ratio"] = float(np.exp(np.log(both["step_time_ms"] / both["step_time_ms_alone"]).mean()))
        if len(both) >= 2:
            _, row["low"], row["high"] = ratio_interval(both["step_time_ms_alone"], both["step_time_ms"])
        if row["low"] > 1:
            row["verdict"] = "slower"
        if row["high"] < 1:
            row["verdict"] = "faster"
        found.append(row)
    return pd.DataFrame(found)


EXERCISES["31.effects"] = WrittenExercise(
    effects,
    Case("two observers in eight rounds", _judged, *_TWO, rounds=8),
    Case("turns that are missing in two rounds", _judged, *_TWO, rounds=6, missing={("sampler", 1), ("nobody", 4)}),
    Case("two baselines", _judged, *_OUTSIDE, rounds=5, order=3),
    Case("a single round", _judged, *_TWO, rounds=1),
    variants=(_effects_by_merge,),
    mistakes={
        ("ratio_interval(alone, under)", "ratio_interval(under, alone)"): (
            "The time under the observer divided by the time without it, not the other way round."
        ),
        _by_means: "Ratios within a round are what counts: a mean over all rounds lets a slow round weigh more.",
        _in_order_of_rows: "Rows come in any order: pair the turns by their round, not by their place.",
    },
    hint="Take one observer and its baseline. Which rounds have both, and what does your ratio_interval say of those pairs?",
    explanation="What slows a whole round down is in both of its times, and their ratio loses it.",
)

# %% cell-10 [markdown]
"""
The cell below measures, and your function judges. Starting and ending an observer does not count, only the steps in between. An observer that must start the program itself, as nsys must, is compared with an unobserved process of its own. One thread computes, so that a program on another core disturbs less.

An interval that includes 1 says that *you cannot tell*. And of twenty observers that cost nothing, one will have an interval without 1 by chance. So a single small effect in a long table is no finding yet.
"""

# %% cell-11
rounds, seconds = {"smoke": (2, 0.02), "standard": (8, 0.2), "full": (20, 0.5)}[profile]
few = ["nobody", "labkit's sampler, 10 Hz", "labkit's sampler, 100 Hz", "torch.profiler"]
chosen = [by[name] for name in few] if profile == "smoke" else list(by.values())
observed = {load: apparatus.observe(load, chosen, rounds=rounds, seconds=seconds) for load in ("light", "heavy")}
parts = [effects(turns).assign(load=load, provenance="measured") for load, turns in observed.items()]
found = pd.concat(parts, ignore_index=True)
labkit.plots.show(found.set_index("observer")[["load", "pairs", "ratio", "low", "high", "verdict"]])
light = found[found["load"] == "light"].set_index("observer")
sampler, profiler = light.loc["labkit's sampler, 100 Hz"], light.loc["torch.profiler"]
reveal("31.sampler", 100 * (sampler.ratio - 1) if sampler.low > 1 else None)
reveal("31.profiler", 100 * (profiler.ratio - 1) if profiler.low > 1 else None)

# %% cell-16 [markdown]
"""
A cost that cannot be distinguished from noise has no number, and your guess is not scored. In the figure a mark is the ratio, and its bar is the interval. A profiler pays for each operation. So the light load, whose operations are short, suffers more than the heavy one.
"""

# %% cell-17
labkit.plots.show(apparatus.figure_observer_effect(found))

# %% ex-31-why-pairs [markdown]
"""
**Read:** the abstract of *Profiling and Monitoring Deep Learning Training Tasks* (EuroMLSys 2023) says that nvidia-smi and dcgm "can be integrated with resource managers for online decision making thanks to their low overheads". Unless your table has rows for these two tools, it cannot test that sentence. labkit's sampler is another program.

### Explain 31.why_pairs

Write two or three sentences: what does the interval of one observer here say, why are times compared within a round and in random order, and what would more rounds bring?
"""

# %% explain 31.why_pairs points=2 grade_id="answer-31-why-pairs"
### BEGIN SOLUTION
answer = model_answer("31.why_pairs")
### END SOLUTION
explain("31.why_pairs", answer)

# %% checks
EXERCISES["31.why_pairs"] = Explanation(
    "numbers: the interval of one observer here, and whether it includes 1.",
    "why: what slow changes of the machine do to a difference, and what pairs and the random order do to that.",
    "trade-off: what more rounds or longer turns would cost, and what they would show.",
    model="With labkit's sampler at 10 Hz a light step took 0.84 to 1.06 times as long (8 pairs, the author's machine): the interval "
    "includes 1, so no effect stands out from noise. A machine that warms up or is shared slows all observers of one "
    "round alike: the ratio within a round loses that, and the random order spreads what changes within it. Four "
    "times as many rounds, 32, would halve the interval and take four times as long.",
    half="The interval of the 10 Hz sampler is 0.84 to 1.06 and includes 1, so we cannot tell. Pairs are used because the "
    "machine gets slower over time and both times of a round get slower together.",
)

# %% ex-power [markdown]
r"""
## How many pairs?

An interval that includes 1 says that you cannot tell with *this* number of pairs. How many would do? It depends on the **effect size**: the effect that you care about, $\log(\text{ratio})$, compared with the standard deviation $s$ of the pairs' logarithms. An effect of half a standard deviation takes more pairs than one of two.

It is not enough that the interval becomes as narrow as the effect. Its middle varies, too, and in half of all such studies it lies so low that the interval includes 1. The share of studies that find a true effect is the **power** of the design. 80 % is usual: one study in five then misses.

**How many pairs would it take here to find 2 % in four of five studies, under labkit's sampler at 10 Hz?**
"""

# %% guess-enough
guess("31.enough_here", 10.0, "pairs")

# %% ex-power-2 [markdown]
"""
### Exercise 31.power

Write `power(spread, ratio, pairs, studies, seed)`. Simulate that many studies. Each has `pairs` pairs, whose logarithms of time under / time alone are normal, with mean log(`ratio`) and standard deviation `spread`. Return the share of the studies (0 to 1) whose 95 % interval excludes a ratio of 1.

*Hint:* your `ratio_interval` judges one study, and numpy all of them at once. `scipy.special.stdtrit(n - 1, 0.975)` is Student's t.
"""

# %% answer 31.power
import numpy as np
from scipy.special import stdtrit


def power(spread: float, ratio: float, pairs: int, studies: int = 2000, seed: int = 0) -> float:
    """Share of simulated studies of that many pairs whose 95 % interval excludes a ratio of 1."""
    ### BEGIN SOLUTION
    random = np.random.default_rng(seed)
    logs = random.normal(np.log(ratio), spread, (studies, pairs))
    middle, deviation = logs.mean(axis=1), logs.std(axis=1, ddof=1)
    half = stdtrit(pairs - 1, 0.975) * deviation / np.sqrt(pairs)
    return float(np.mean(abs(middle) > half))
    ### END SOLUTION


# %% check 31.power points=5
check("31.power", power)


# %% checks
def _power_one_by_one(spread: float, ratio: float, pairs: int, studies: int = 2000, seed: int = 0) -> float:
    generator, found = np.random.default_rng(seed + 1), 0
    for _ in range(studies):
        times = ratio * np.exp(spread * generator.standard_normal(pairs))
        _, low, high = ratio_interval([1.0] * pairs, times)
        found += low > 1 or high < 1
    return found / studies


def _simulated(spread: float, ratio: float, pairs: int) -> Case:
    # of 4,000 studies a share of one half has a standard deviation of 0.008
    name = f"{pairs} pairs, a spread of {spread:g} and a true ratio of {ratio:g}"
    return Case(name, lambda code: code(spread, ratio, pairs, 4000, 1), relative=0.08)


EXERCISES["31.power"] = WrittenExercise(
    power,
    _simulated(0.05, 1.02, 27),
    _simulated(0.05, 1.05, 10),
    _simulated(0.05, 0.95, 10),
    _simulated(0.1, 1.1, 6),
    _simulated(0.02, 1.05, 4),
    variants=(_power_one_by_one,),
    mistakes={
        ("stdtrit(pairs - 1, 0.975)", "1.96"): (
            "Of so few pairs, 1.96 makes the interval too narrow: Student's t of n − 1 degrees of freedom."
        ),
        (" / np.sqrt(pairs)", ""): "That is how far one pair strays. The interval is of the *mean* of the pairs.",
        ("abs(middle) > half", "middle > half"): "An interval below 1 excludes 1, too.",
    },
    hint="Look at one simulated study: what are its pairs, its interval, and does that exclude a ratio of 1?",
    explanation="Power is the share of such studies that find what is there.",
)

# %% enough-here-prose [markdown]
r"""
Your simulation costs nothing, so you can plan before you measure. `labkit.tta.runs_needed` gives the least number of pairs for a power, by the formula $(t_{0.975} + t_\text{power}) \cdot s / \sqrt{n} \le |\log(\text{ratio})|$. Below, your simulation tests that formula.

Seeds are planned in the same way: two configurations that train with the same seed are a pair, and $s$ is the standard deviation of their differences. Take $s$ from a few pairs first, and choose the effect that matters to you *before* you look at any result.
"""

# %% enough-here
times = observed["light"].pivot(index="round", columns="observer", values="step_time_ms")
spread = np.log(times["labkit's sampler, 10 Hz"] / times["nobody"]).std()
enough_here = labkit.tta.runs_needed(spread, np.log(1.02))
reveal("31.enough_here", enough_here)
print(f"the pairs' logarithms have a standard deviation of {spread:.3f}, from {len(times)} rounds, measured")

# %% sizes-prose [markdown]
"""
The table goes by the effect size, so its numbers of pairs hold on every machine. The ratio that such an effect is here follows from your spread.
"""

# %% sizes
rows = []
for size in (0.25, 0.5, 1, 2):  # standard deviations
    half, most = (labkit.tta.runs_needed(spread, size * spread, wanted) for wanted in (0.5, 0.8))
    simulated = [power(spread, np.exp(size * spread), pairs) for pairs in (half, most)]
    rows.append((size, np.exp(size * spread), half, simulated[0], most, simulated[1]))
names = ["effect size", "ratio here", "pairs for 50 %", "share found", "pairs for 80 %", "share found "]
labkit.plots.show(pd.DataFrame(rows, columns=names).set_index("effect size"))

# %% paper-prose [markdown]
"""
## One run

The authors of the paper above also trained an MNIST network for five epochs on an A100 while several tools ran. Their data (`datasets/recorded/pmdlt-a100/`) has seven runs. **Read off the list:** which run differs from the slowest one in a *single* tool?
"""

# %% paper
runs = labkit.runs.recorded_table("pmdlt-a100", "mnist_runs")
for run in runs.itertuples():
    print(f"{run.train_s:.2f} s  {run.tools or 'no tool'}")
without = np.log(runs["train_s"][~runs["tools"].str.contains("nsys")])
print(f"spread of the logarithms of the six runs without nsys: {without.std():.4f} (recorded)")
print(
    f"pairs for 2.1 % at a power of 80 %: {labkit.tta.runs_needed(2**0.5 * without.std(), np.log(1.021))} (predicted)"
)

# %% ex-31-why-nsys [markdown]
r"""
The last line takes the six runs as repeats of one another, as if none of their tools cost anything. A pair differs by $\sqrt{2}$ times what one run strays.

### Explain 31.why_nsys

Write two or three sentences: what does the run under nsys say about the cost of nsys, and what would it take to know?
"""

# %% explain 31.why_nsys points=2 grade_id="answer-31-why-nsys"
### BEGIN SOLUTION
answer = model_answer("31.why_nsys")
### END SOLUTION
explain("31.why_nsys", answer)

# %% checks
EXERCISES["31.why_nsys"] = Explanation(
    "numbers: the run under nsys, the run that differs in nsys alone, and how many pairs would be needed.",
    "why: what one pair can show, and which other tools ran at the same time.",
    "trade-off: what it would cost to know, and what can be said meanwhile.",
    model="The run under nsys took 49.40 s and the run with the same other tools (dcgmi, nvidia-smi, top) 48.37 s: 2.1 % "
    "longer, from one pair, which has no interval; the bare run of 48.66 s differs in four tools. If the six other runs "
    "are repeats, they stray by 0.4 %, so 2.1 % is a sign and no measurement. Three pairs, some five minutes of an A100, "
    "would find such an effect in four of five studies; until then I would report the one pair as one pair.",
    half="nsys took 49.40 s compared with 48.37 s for the same tools without it, 2.1 % longer, but this is one pair and "
    "there is no interval, so it is not known how much of it is chance.",
)

# %% cell-18 [markdown]
"""
## Memory at the end

An observer costs memory as well as time. A profiler keeps what it has seen until it is asked, and then writes it down. Each run below is a process of its own that runs the light step. Under torch.profiler it records the *whole* run, and writes the trace at its end.

**How many MiB more will the process hold under torch.profiler than without it?**
"""

# %% guess-memory
guess("31.memory", 10.0, "MiB more")

# %% claim-e7-prose [markdown]
"""
In the paper's data the *training process* held 3.9 GB alone, 5.9 GB under nsys, and 13.4 GB when PyTorch's profiler recorded the whole run. From the first to the last line of the log these runs took 48, 70 and 296 s. (dcgmi, nvidia-smi and top ran next to nsys.)

Judge the memory, as an analogue on a CPU. Call it the same effect if the profiled run holds **twice** the memory or more, because a job that fills half of its memory then no longer fits. It `"holds here"` if the smallest profiled run holds more than twice the largest run alone, and it `"does not hold here"` if the largest profiled run holds less than twice the smallest run alone. Between the two, it cannot be tested with so few runs.
"""

# %% cell-19
steps, repeats = {"smoke": (100, 1), "standard": (2000, 3), "full": (2000, 10)}[profile]
processes = pd.DataFrame(
    {"observer": name, **apparatus.whole_run("light", by[name], steps)}
    for _ in range(repeats)
    for name in ("nobody", "torch.profiler")
)
held = processes.assign(mib=processes["peak_memory_bytes"] / 2**20).groupby("observer")
whole = held.agg(least_mib=("mib", "min"), most_mib=("mib", "max"), median_s=("span_s", "median"))
alone, profiled = whole.loc["nobody"], whole.loc["torch.profiler"]
labkit.plots.show(whole.set_axis(["least (MiB)", "most (MiB)", "start to end (s)"], axis=1))
extra_mib = held["mib"].median()["torch.profiler"] - held["mib"].median()["nobody"]
reveal("31.memory", max(0.1, extra_mib))

# %% claim-e7-2-prose [markdown]
"""
So one profiles **a few steps**, and monitors **the whole run**. Write your verdict on the memory, and one reason.
"""

# %% claim E7 points=1 grade_id="claim-e7"
### BEGIN SOLUTION
verdict = "holds here" if profiled.least_mib > 2 * alone.most_mib else "cannot be tested here"
verdict = "does not hold here" if profiled.most_mib < 2 * alone.least_mib else verdict
answer = verdict, f"a CPU analogue: the profiler keeps every operation of {steps} steps until the end"
### END SOLUTION
texts = [
    f"{each.least_mib:.0f} to {each.most_mib:.0f} MiB {name}"
    for name, each in (("alone", alone), ("profiled", profiled))
]
claim("E7", f"{', '.join(texts)} ({steps} steps, {repeats} runs each)", answer)

# %% hog-guess-prose [markdown]
"""
## A run that others disturbed

There are observers that you did not choose: whatever else runs on the machine. labkit counts what other programs took of a run's cores, and marks the run as *disturbed*. Below you train for a second or two, alone and then next to one busy loop per core, each in a process of its own.

**How many per cent longer will a step take next to the busy loops?**
"""

# %% guess-hog
guess("31.hog", 50.0, "% longer")

# %% hog-prose [markdown]
"""
A process that ends at once starts the loops, so that they are not children of this kernel: to labkit they are other programs. The first cell defines the training and the disturbance, and the second one runs pairs.
"""


# %% train
def train(name):  # milliseconds a step, and what labkit says of other programs
    model, (x, y) = torch.nn.Linear(512, 1), (torch.randn(256, 512), torch.randn(256, 1))
    with labkit.Run(name) as run:
        until = float("inf")
        while time.perf_counter() < until:
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            run.step(loss, samples=256)
            until = min(until, time.perf_counter() + tick)  # the first step starts labkit's sampler
    return 1000 * run.result["train_s"] / run.result["steps"], run.result["others"]


# %% claim-d1-prose [markdown]
"""
radT's abstract says that models are "sensitive to interference". Set the threshold before you run the pairs. Call the training **sensitive** if the whole interval of the slowdown lies above 1.05, and **not sensitive** if it lies below. Papers report gains of 5 %, and a neighbour that costs as much would hide or fake them. If 1.05 is inside the interval, or there is none, it cannot be tested here.
"""

# %% hog
START = "import subprocess as s, sys; print(s.Popen([sys.executable, '-c', 'for _ in range(10**9): 0'], stdout=-3).pid)"


def train_next_to_loops(name):
    start = [psutil.Process().exe(), "-c", START]
    loops = [psutil.Process(int(subprocess.check_output(start))) for _ in psutil.Process().cpu_affinity()]
    try:
        return train(name)
    finally:
        [loop.kill() for loop in loops]


# %% hog-run-prose [markdown]
"""
The table has the share of the run's cores that other programs took, alone and next to the loops.
"""

# %% hog-run
trained = {"alone": [], "next to loops": []}
for _ in range({"smoke": 1, "standard": 5, "full": 10}[profile]):
    trained["alone"].append(train("quiet"))
    trained["next to loops"].append(train_next_to_loops("polluted"))
rows = [(name, "alone", number, ms) for name, each in trained.items() for number, (ms, _) in enumerate(each)]
slower = effects(pd.DataFrame(rows, columns=["observer", "baseline", "round", "step_time_ms"])).iloc[0]
reveal("31.hog", 100 * (slower.ratio - 1))
seen = {name: [others for _, others in each] for name, each in trained.items()}
shares = {name: [f"{others['cpu_share']:.0%}" for others in each] for name, each in seen.items()}
labkit.plots.show(pd.DataFrame(shares).rename_axis("round"))
marked = {name: sum(others["disturbed"] for others in each) for name, each in seen.items()}

# %% claim-d1-2-prose [markdown]
"""
Write your verdict, and one reason.
"""

# %% claim D1 points=1 grade_id="claim-d1"
### BEGIN SOLUTION
verdict = "holds here" if slower.low > 1.05 else "does not hold here" if slower.high < 1.05 else "cannot be tested here"
answer = verdict, f"one busy loop per core; labkit marked {marked['alone']} of the runs alone as disturbed, too"
### END SOLUTION
between = f"95 % {slower.low:.2f} to {slower.high:.2f}" if slower.pairs > 1 else "one pair, no interval"
count = f"{marked['next to loops']} of {slower.pairs} runs marked"
claim("D1", f"{slower.ratio:.2f} times as long next to busy loops ({between}); {count}", answer)

# %% scores-prose [markdown]
"""
How good were your guesses? The cell after the scores keeps the numbers of this notebook for a program to read, each with bounds that hold on any machine.
"""

# %% scores
from labkit_course import results, score_notebook

score_notebook()

# %% results tags=["results"]
results(
    sampler_10_hz_ratio=(light.ratio["labkit's sampler, 10 Hz"], 0.2, 5),
    sampler_100_hz_ratio=(light.ratio["labkit's sampler, 100 Hz"], 0.2, 5),
    profiler_ratio=(light.ratio["torch.profiler"], 0.3, 20),
    power_of_27_pairs=(power(0.05, 1.02, 27), 0.45, 0.6),
    profiler_extra_mib=(extra_mib, 1, 5000),
    hog_ratio=(slower.ratio, 0.5, 20),
    marked=(marked["next to loops"], slower.pairs, slower.pairs),
)

# %% assistant profiler_ratio below=1.05 [markdown]
"""
torch.profiler is cheap enough to leave on: a profiled step takes less than 1.05 times as long.
"""

# %% recap [markdown]
"""
## Recap

- A sampler waits for points in time, not for a period. What it missed it leaves out.
- Compare within rounds, in random order, runs that differ in one thing, and give an interval.
- An interval that includes 1 says that you cannot tell, not that there is no effect.
- Plan pairs and seeds before you measure: the effect that matters, the spread, and a power of 80 %.
- A sampler in a process of its own costs little. A profiler pays for each operation, in time and in memory. Monitor the whole run, profile a few steps.
- Whatever else runs on the machine is an observer, too: keep what ran at the same time.

**Next:** [Profile top-down](32_profile_top_down.ipynb)
"""

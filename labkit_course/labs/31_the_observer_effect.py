# %% cell-00 [markdown]
"""
# The observer effect

After this notebook you will be able to

- **write** a sampler that does not drift, and **give** an overhead with its interval;
- **design** a measurement so that drift of the machine does not decide it, with enough pairs to see what you look for;
- **say** what one run can tell, and find a run that others disturbed;
- **choose** an observer that fits the question.

**Time:** 75 minutes with five functions (about 20 lines) and two explanations; the machine computes for about four minutes on 2 CPU cores. No GPU is needed.

**Prerequisites:** [Budgets that bind](02_budgets_that_bind.ipynb) and [What utilisation means](30_what_utilisation_means.ipynb).
"""

# %% checks
import time
from collections.abc import Callable
from typing import Any

from labkit_course.apparatus import FakeClock
from labkit_course.exercise import Case, Explanation, WrittenExercise
from labkit_course.lab import from_lab

ratio_interval = from_lab("02", "ratio_interval")
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

Whatever watches a program shares the machine with it. A sampler wakes up, reads counters and goes to sleep again. The obvious loop looks, then sleeps for the period, again and again.

**How many samples will that loop take in a second, if it sleeps for a thousandth of a second between two looks?**
"""

# %% guess-naive
from labkit_course import check, claim, explain, guess, model_answer, reveal

guess("31.naive", 1000.0, "samples a second")

# %% ex-sample [markdown]
"""
### Exercise 31.sample

Write the loop that does not drift. `sample(look, hz, seconds, clock, sleep)` calls `look()` at 0, 1/hz, 2/hz, … after its beginning, at all such times before `seconds`, and returns when each look began (seconds since the beginning).

1. Sample `number` is due at `began + number / hz`: sleep until then, note the time, look.
2. A look may take longer than a period. What was missed is *left out*, not made up for by a burst: go on at the first point that is still to come.

Hint: ask `clock()` how long there is left to sleep; it may be nothing, and `sleep` takes no negative numbers.
"""

# %% answer 31.sample
import time
from collections.abc import Callable


def sample(
    look: Callable, hz: float, seconds: float, clock: Callable = time.perf_counter, sleep: Callable = time.sleep
) -> list[float]:
    """Look `hz` times a second, at points in time that do not drift; when each look began."""
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


EXERCISES["31.sample"] = WrittenExercise(
    sample,
    module="overhead",
    cases=(
        Case("looks of 2 ms at 100 Hz for a second", lambda code: _sampled(code, 100, 1.0, 2e-3)),
        Case("how many looks at 3 Hz in 2 s", lambda code: len(_sampled(code, 3, 2.0, 1e-3))),
        Case("one look of 47 ms at 100 Hz", lambda code: _sampled(code, 100, 0.2, *[1e-3] * 3, 0.047, 1e-3)),
        Case("looks of 15 ms at 100 Hz", lambda code: _sampled(code, 100, 0.2, 0.0153)),
    ),
    mistakes={
        _naive(lambda period, took: period): (
            "Each turn takes the period *and* the look, so the samples drift: wait until `began + number / hz`."
        ),
        _naive(lambda period, took: period - took): (
            "Each sleep takes a little too long, and that adds up: wait until a point in time, `began + number / hz`."
        ),
        ("max(0.0, began + number / hz - clock())", "began + number / hz - clock()"): (
            "A sleep of less than nothing is an error: max(0, ...)."
        ),
    },
    hint="Sample `number` is due at `began + number / hz`: sleep until then, note the time since `began`, look; "
    "the next number is the first that is still to come.",
    explanation="Sample n is due at n / hz, whatever the ones before it took.",
)

# %% naive-prose [markdown]
"""
The obvious loop and yours, both reading this process' memory a thousand times a second:
"""

# %% naive
import psutil

tick, look = {"smoke": 0.5}.get(profile, 1.0), psutil.Process().memory_info


def naive(hz: float, seconds: float) -> list[float]:
    began, taken = time.perf_counter(), []
    while time.perf_counter() - began < seconds:
        taken.append(time.perf_counter() - began)
        look()
        time.sleep(1 / hz)
    return taken


# %% naive-run-prose [markdown]
"""
What yours lacks of a thousand, it left out because something else had the core.
"""

# %% naive-run
drifting, steady = naive(1000, tick), sample(look, 1000, tick)
reveal("31.naive", len(drifting) / tick)
print(f"yours: {len(steady) / tick:.0f} samples a second, the last {steady[-1]:.4f} s after the first")

# %% cell-observers [markdown]
"""
labkit's own sampler keeps such a schedule, too, in a process of its own, and counts what it missed. These observers are known to labkit; `nvidia-smi` and `dcgmi` ask once a second. Where one is missing on this machine, it says why. PyTorch gets one thread: several wait for each other, and every disturbance of one holds up all.
"""

# %% cell-04
import torch

import labkit
from labkit_course import apparatus

torch.set_num_threads(1)
by = {observer.name: observer for observer in apparatus.observers()}
for observer in by.values():
    print(f"{observer.name:26} {observer.why_not or 'is here'}")

# %% cell-05 [markdown]
"""
## Looking costs

There will be two loads: a **light** one, a training step of a small network that takes a fraction of a millisecond, and a **heavy** one of some milliseconds. A profiler pays for each operation, so the light load, whose operations are short, suffers more.

**How many per cent longer does the light step take under labkit's sampler at 100 samples a second?** The sampler is a process of its own.
"""

# %% cell-06
guess("31.sampler", 10.0, "% longer")

# %% cell-07 [markdown]
"""
**And under torch.profiler, which writes down every operation?**
"""

# %% cell-08
guess("31.profiler", 10.0, "% longer")

# %% ex-overhead [markdown]
"""
### Exercise 31.overhead

A machine drifts: it grows warm, another program begins or ends. If all turns of one observer came first and all of the next afterwards, the drift would look like an effect. So every observer takes its turn in **each round**, in an order drawn again, and only times of one round are compared: each round gives a *pair* (time alone, time under the observer).

Write `overhead(pairs)`: how many times as long under the observer, and both ends of the 95 % confidence interval.

1. All times alone and all times under, each a sequence, for your `ratio_interval` of [Budgets that bind](02_budgets_that_bind.ipynb): the mean of the ratios' logarithms and Student's interval, brought back to ratios.
2. One pair has a ratio and no interval: NaN twice.

Hint: `zip(*pairs)`.
"""

# %% answer 31.overhead
from labkit_course import mine

ratio_interval = mine("02.ratio")


def overhead(pairs: list[tuple]) -> tuple:
    """The ratio under / alone over pairs (alone, under): geometric mean, and its 95 % interval."""
    ### BEGIN SOLUTION
    alone, under = zip(*pairs, strict=True)
    if len(pairs) < 2:
        return under[0] / alone[0], float("nan"), float("nan")
    return ratio_interval(alone, under)
    ### END SOLUTION


# %% check 31.overhead points=3
check("31.overhead", overhead)

# %% checks
EXERCISES["31.overhead"] = WrittenExercise(
    overhead,
    module="overhead",
    cases=(
        Case("two pairs", lambda code: code([(48.29, 48.40), (48.43, 48.37)])),
        Case("twelve pairs", lambda code: code([(10 + n, (10 + n) * (1.02 + 0.01 * (n % 3))) for n in range(12)])),
        Case("one pair", lambda code: code([(10.0, 12.0)])),
    ),
    mistakes={
        ("interval(alone, under)", "interval(under, alone)"): (
            "The time under the observer divided by the time alone, not the other way round."
        ),
        (
            "ratio_interval(alone, under)",
            "ratio_interval(*pairs)",
        ): "First all times alone, then all times under: zip(*pairs) turns pairs into both.",
        ('float("nan"), float("nan")', "None, None"): "NaN, not None: tables and figures leave it out.",
    },
    hint="`zip(*pairs)` gives the times alone and the times under, which your ratio_interval wants. One pair has no "
    "interval: NaN twice.",
    explanation="Ratios multiply, so their logarithms are what is averaged.",
)

# %% cell-10 [markdown]
"""
The measurement, judged by your function. Starting and ending an observer does not count, only the steps in between. An observer that must start the program itself, as nsys must, is compared with a process of its own that nobody looks at.
"""

# %% cell-11
import pandas as pd

rounds, seconds = {"smoke": (2, 0.02), "standard": (8, 0.2), "full": (20, 0.5)}[profile]
few = ["nobody", "labkit's sampler, 10 Hz", "labkit's sampler, 100 Hz", "torch.profiler"]
chosen = [by[name] for name in few] if profile == "smoke" else list(by.values())
observed = {
    load: apparatus.observe(load, chosen, rounds=rounds, seconds=seconds)
    for load in (["light"] if profile == "smoke" else ["light", "heavy"])
}

# %% cell-12 [markdown]
"""
For each observer: by how many per cent a step took longer than without one, your interval, and a verdict. An interval that includes 0 (a ratio of 1) is *not distinguishable from noise*. Of twenty intervals of observers that cost nothing, one will miss 1 by chance: a single small effect in a long table is no finding yet.
"""

# %% cell-13
import labkit


def percent(found):  # longer, and from where to where, of ratios and their intervals
    return (100 * (found[["ratio", "low", "high"]] - 1)).set_axis(["longer (%)", "from (%)", "to (%)"], axis=1)


found = pd.concat(
    [apparatus.effects(turns, overhead).assign(load=load) for load, turns in observed.items()], ignore_index=True
)
labkit.plots.show(found[["load", "observer", "provenance", "verdict"]].join(percent(found)))

# %% cell-14 [markdown]
"""
How far off were you? A cost that cannot be distinguished from noise has no number, and your guess is not scored.
"""

# %% cell-15
light = found[found["load"] == "light"].set_index("observer")
sampler, profiler = light.loc["labkit's sampler, 100 Hz"], light.loc["torch.profiler"]
reveal("31.sampler", 100 * (sampler.ratio - 1) if sampler.low > 1 else None)
reveal("31.profiler", 100 * (profiler.ratio - 1) if profiler.low > 1 else None)

# %% ex-31-why-pairs [markdown]
"""
### Explain 31.why_pairs

Two or three sentences: what does the interval of one observer here say, why are times compared within a round and in random order, and what would more rounds cost and show?
"""

# %% explain 31.why_pairs points=2 grade_id="answer-31-why-pairs"
### BEGIN SOLUTION
answer = model_answer("31.why_pairs")
### END SOLUTION
explain("31.why_pairs", answer)

# %% checks
EXERCISES["31.why_pairs"] = Explanation(
    (
        "numbers: the interval of one observer here, and whether it includes 1.",
        "why: what slow changes of the machine do to a difference, and what pairs and the random order do to that.",
        "trade-off: what more rounds or longer turns would cost, and what they would show.",
    ),
    "labkit's sampler at 10 Hz has an interval that includes 1 on the author's machine: no effect can be distinguished from "
    "noise there. A machine that warms up or is shared slows all observers of one round alike: the ratio within a "
    "round loses that, and the random order spreads what changes within it. Four times as many rounds would halve "
    "the interval and take four times as long.",
)

# %% ex-enough [markdown]
r"""
### Exercise 31.enough

An interval that includes 1 says that *you cannot tell* with this number of pairs. How many would do? The half width of the interval on the logarithms is $t_{0.975} \cdot s / \sqrt{n}$, where $s$ is the standard deviation of the pairs' logarithms (`spread`). It is not enough that the half width equals the effect: the middle of the interval varies, too, and in half of all such studies it lies below the effect, so that the interval includes 1. The share of studies that find a true effect is the *power*; 80 % is usual. For that power the effect has to exceed the half width by $t_{0.8} \cdot s / \sqrt{n}$.

Write `enough_pairs(spread, ratio, power=0.8)`: the least number of pairs, two or more, with $(t_{0.975} + t_{\text{power}}) \cdot s / \sqrt{n} \le |\log(\text{ratio})|$.

1. Begin with two pairs.
2. Add one while the left side is too large. Both t (`scipy.stats.t.ppf(0.975, n - 1)`) depend on n.

Hint: import inside the function what you use there, for in `mylab` it stands without the rest of this notebook.

**How many pairs would it take here to see 2 % in four of five studies, under labkit's sampler at 10 Hz?** Guess first.
"""

# %% guess-enough
guess("31.enough_here", 10.0, "pairs")


# %% enough-prose [markdown]
"""
Now write it.
"""


# %% answer 31.enough
def enough_pairs(spread: float, ratio: float, power: float = 0.8) -> int:
    """The least number of pairs with which a share `power` of studies finds this ratio by its 95 % interval."""
    ### BEGIN SOLUTION
    from math import log

    from scipy import stats

    wanted, pairs = abs(log(ratio)), 2
    while stats.t.ppf([0.975, power], pairs - 1).sum() * spread / pairs**0.5 > wanted:
        pairs += 1
    return pairs
    ### END SOLUTION


# %% check 31.enough points=3
check("31.enough", enough_pairs)

# %% checks
EXERCISES["31.enough"] = WrittenExercise(
    enough_pairs,
    module="overhead",
    cases=(
        Case("a spread of 0.05, and 5 % longer", lambda code: code(0.05, 1.05)),
        Case("a spread of 0.02, and twice as long", lambda code: code(0.02, 2.0)),
        Case("a spread of 0.1, and 5 % longer", lambda code: code(0.1, 1.05)),
        Case("a spread of 0.05, and 10 % sooner", lambda code: code(0.05, 0.9)),
        Case("a power of one half", lambda code: code(0.05, 1.02, 0.5)),
        Case("a power of 95 %", lambda code: code(0.05, 1.02, 0.95)),
    ),
    mistakes={
        ("stats.t.ppf([0.975, power], pairs - 1).sum()", "stats.t.ppf(0.975, pairs - 1)"): (
            "An interval as wide as the effect has a power of about one half: add t of the power."
        ),
        ("pairs**0.5", "pairs"): "The interval shrinks with the root of the number of pairs.",
        ("return pairs", "return pairs - 1"): "One more: count pairs, not degrees of freedom.",
    },
    hint="Begin with 2 and add one while (t(0.975, n − 1) + t(power, n − 1)) · spread / √n is more than |log(ratio)|.",
    explanation="Half the effect needs about four times as many pairs; a power of 80 % instead of 50 % needs twice as many.",
)

# %% enough-here-prose [markdown]
"""
With the spread that you measured. A thousand simulated studies of each size, in which the step really is 2 % longer, test your formula:
"""

# %% enough-here
import numpy as np
from scipy import stats

times = observed["light"].pivot(index="round", columns="observer", values="step_time_ms")
spread = np.log(times["labkit's sampler, 10 Hz"] / times["nobody"]).std()
reveal("31.enough_here", enough_pairs(spread, 1.02))
print(f"the pairs' logarithms have a standard deviation of {spread:.3f}, from {len(times)} rounds")
for power in (0.5, 0.8):
    number = enough_pairs(spread, 1.02, power)
    studies = np.random.default_rng(0).normal(np.log(1.02), spread, (1000, number))
    found_it = stats.ttest_1samp(studies, 0, axis=1).pvalue < 0.05
    print(f"{number} pairs: {found_it.mean():.0%} of the studies find the 2 % (simulated)")

# %% paper-prose [markdown]
"""
## Seven runs of a paper

*Profiling and Monitoring Deep Learning Training Tasks* (EuroMLSys 2023) trained an MNIST network for five epochs on an A100 while several tools ran. Its data (`datasets/recorded/pmdlt-a100/`) has seven runs, and which tools looked in each.
"""

# %% paper
runs = labkit.runs.recorded_table("pmdlt-a100", "mnist_runs")
tool_sets = [frozenset(filter(None, tools.split(", "))) for tools in runs["tools"]]
seconds_of = dict(zip(tool_sets, runs["train_s"], strict=True))
seconds_told = runs["train_s"].map("{:.2f}".format)
table = pd.DataFrame({"tools that looked": runs["tools"], "training (s)": seconds_told})
labkit.plots.show(table.rename_axis(columns=runs["provenance"][0]))

# %% ex-pairs [markdown]
"""
### Exercise 31.pairs

Compared things differ in *one* thing. The slowest run is the one under nsys, but three other tools ran with it. Write `pairs_of(times, tool)`: `times` has seconds by a `frozenset` of tools; return all pairs (without the tool, with it) of runs that differ in this tool alone.

1. Go through the runs that have the tool.
2. Its partner is the run with the same set less that tool, where there is one.

Hint: `tools - {tool}`.
"""


# %% answer 31.pairs
def pairs_of(times: dict, tool: str) -> list[tuple]:
    """Seconds (without, with) of all runs that differ in one tool alone."""
    ### BEGIN SOLUTION
    return [
        (times[tools - {tool}], under) for tools, under in times.items() if tool in tools and tools - {tool} in times
    ]
    ### END SOLUTION


# %% check 31.pairs points=3
check("31.pairs", pairs_of)

# %% checks
TIMES = {frozenset(tools.split()): seconds for tools, seconds in (("", 10.0), ("a", 11.0), ("b", 10.5), ("a b", 12.0))}


MORE = TIMES | {frozenset({"a", "b", "c"}): 15.0, frozenset({"d", "c"}): 20.0}


EXERCISES["31.pairs"] = WrittenExercise(
    pairs_of,
    module="overhead",
    cases=(
        Case("four runs, and the tool a", lambda code: sorted(code(TIMES, "a"))),
        Case("a tool that ran once, with others", lambda code: sorted(code(MORE, "c"))),
        Case("a tool whose only run has no partner", lambda code: code(MORE, "d")),
        Case("four runs, and the tool b", lambda code: sorted(code(TIMES, "b"))),
    ),
    mistakes={
        ("times[tools - {tool}], under", "times[frozenset()], under"): (
            "A run with two tools differs from the bare one in two things: its partner is the run with all the others."
        ),
        ("tools - {tool} in times", "tools == {tool}"): (
            "Other pairs differ in this one tool, too: with and without it, the others the same."
        ),
        ("times[tools - {tool}], under", "under, times[tools - {tool}]"): "The run without the tool comes first.",
    },
    hint="For each set of tools that has this one: is there a run with the same set less this tool?",
    explanation="Compared things differ in one thing.",
)

# %% paper-effects-prose [markdown]
"""
Your two functions on the recording: two or three pairs a tool, and one for nsys.
"""

# %% paper-effects
tools = ["top", "nvidia-smi", "dcgmi", "nsys"]
pairs = [pairs_of(seconds_of, tool) for tool in tools]
paper = pd.DataFrame([overhead(each) for each in pairs], columns=["ratio", "low", "high"])
paper = paper.assign(observer=tools, pairs=list(map(len, pairs)), load="MNIST", provenance=runs["provenance"][0])
labkit.plots.show(paper[["observer", "pairs"]].join(percent(paper)).rename_axis(columns=runs["provenance"][0]))

# %% cell-16 [markdown]
"""
Yours and theirs, an observer a line: a mark is the ratio, its bar the interval; theirs is hollow, since it was recorded. Theirs is a whole training on an A100, yours a step on this machine: compare which intervals include 1, not the ratios. A tool of both stands on one line.
"""

# %% cell-17
labkit.plots.show(apparatus.figure_observer_effect(pd.concat([found, paper], ignore_index=True)))

# %% ex-next-run [markdown]
"""
### Exercise 31.next_run

nsys has one pair. What can *one* run tell? Write `next_run(runs)`: between which seconds would one more run of the same kind fall, in 95 of 100 cases?

1. Mean and standard deviation of the runs, and t as before.
2. One more run strays by itself, and the mean is not known exactly: s · √(1 + 1/n).
"""


# %% answer 31.next_run
def next_run(runs: list[float]) -> tuple:
    """Where one more run would fall: both ends of a 95 % prediction interval."""
    ### BEGIN SOLUTION
    import numpy as np
    from scipy import stats

    half = stats.t.ppf(0.975, len(runs) - 1) * np.std(runs, ddof=1) * (1 + 1 / len(runs)) ** 0.5
    return np.mean(runs) - half, np.mean(runs) + half
    ### END SOLUTION


# %% check 31.next_run points=3
check("31.next_run", next_run)

# %% checks
EXERCISES["31.next_run"] = WrittenExercise(
    next_run,
    module="overhead",
    cases=(
        Case("six runs", lambda code: code([48.66, 48.29, 48.06, 48.43, 48.40, 48.37])),
        Case("two runs", lambda code: code([48.66, 48.29])),
        Case("twenty runs", lambda code: code([10 + (7 * n % 13) / 10 for n in range(20)])),
    ),
    mistakes={
        ("(1 + 1 / len(runs))", "(1 / len(runs))"): (
            "That is where the *mean* lies; one more run strays by itself, too: √(1 + 1/n)."
        ),
        (" * (1 + 1 / len(runs)) ** 0.5", ""): "The mean itself is not known exactly: √(1 + 1/n) in place of 1.",
        ("stats.t.ppf(0.975, len(runs) - 1)", "1.96"): "1.96 is for many runs: take the t distribution.",
    },
    hint="mean ± t · s · √(1 + 1/n), with t of scipy.stats.t at 0.975 and n − 1 degrees of freedom.",
    explanation="A single run outside it is a sign; one inside it shows nothing.",
)

# %% next-run-prose [markdown]
"""
From both baselines alone (nothing, or top), and from all six runs without nsys, as if none of their tools cost anything:
"""

# %% next-run
without = [train_s for tools, train_s in seconds_of.items() if "nsys" not in tools]
baselines = [train_s for tools, train_s in seconds_of.items() if tools <= {"top"}]
print("two baselines: one more from {:.2f} to {:.2f} s".format(*next_run(baselines)))
print("six runs: one more from {:.2f} to {:.2f} s; with nsys it was 49.40 s".format(*next_run(without)))

# %% ex-31-why-nsys [markdown]
"""
### Explain 31.why_nsys

Two or three sentences: what does the run under nsys say about the cost of nsys? Give the numbers, what one run can tell, and what it would take to know.
"""

# %% explain 31.why_nsys points=2 grade_id="answer-31-why-nsys"
### BEGIN SOLUTION
answer = model_answer("31.why_nsys")
### END SOLUTION
explain("31.why_nsys", answer)

# %% checks
EXERCISES["31.why_nsys"] = Explanation(
    (
        "numbers: the run under nsys and the run that differs in nsys alone, and where one more run may fall.",
        "why: what one run can show, and which other tools ran at the same time.",
        "trade-off: what it would take to know, and what to use meanwhile.",
    ),
    "The run under nsys took 49.40 s and the run with the same other tools (dcgmi, nvidia-smi, top) 48.37 s: 2.1 % "
    "longer, from one pair, which has no interval. Six runs without nsys say that one more would fall between "
    "about 47.8 and 48.9 s if no other tool costs anything, so 49.40 s is a sign; both baselines alone would allow "
    "44 to 53 s. A handful of pairs would settle it; memory and the report at the end are the surer cost.",
)

# %% cell-18 [markdown]
"""
## Memory and time at the end

Time of a step is not all. A profiler keeps what it has seen until it is asked, and then writes it down. Each row below will be a process of its own that runs the light step; under torch.profiler it records the *whole* run and writes the trace at its end.

**How many MiB more will the process hold under torch.profiler than without it?**
"""

# %% guess-memory
guess("31.memory", 10.0, "MiB more")

# %% memory-prose [markdown]
"""
One process after another, in turn:
"""

# %% cell-19
steps, repeats = {"smoke": (100, 1), "standard": (2000, 3), "full": (2000, 10)}[profile]
processes = pd.DataFrame(
    {"observer": name, **apparatus.whole_run("light", by[name], steps)}
    for _ in range(repeats)
    for name in ("nobody", "torch.profiler")
)
processes["peak (MiB)"], processes["span (s)"] = processes["peak_memory_bytes"] / 2**20, processes["span_s"]
whole = processes.groupby("observer")[["peak (MiB)", "span (s)"]].agg(["min", "median", "max"])

# %% memory-shown [markdown]
"""
`span` is the whole process, from its start to its end, imports and the trace included.
"""

# %% memory-table
peak, span = (whole[column]["median"] for column in ("peak (MiB)", "span (s)"))
reveal("31.memory", max(0.1, peak["torch.profiler"] - peak["nobody"]))
labkit.plots.show(whole)

# %% cell-20 [markdown]
"""
In the paper's data the resident memory of the *training process* was 3.9 GB alone, 5.9 GB under nsys and 13.4 GB when PyTorch's profiler recorded the whole run (memory in use on the host: 6.6, 9.0 and 18.2 GiB); from the first to the last line of the log it took 48, 70 and 296 s, report or export included. Beside nsys ran dcgmi, nvidia-smi and top. So one profiles **a few steps**, and monitors **the whole run**.

## A run that others disturbed

An observer that you did not choose looks, too: whatever else runs on the machine. labkit counts what other programs took of a run's cores and marks the run as *disturbed*. Here is a training of a second or two.
"""


# %% train
def train(name):  # milliseconds a step, and what labkit says of others
    model, (x, y) = torch.nn.Linear(512, 1), (torch.randn(256, 512), torch.randn(256, 1))
    with labkit.Run(name) as run:
        until = float("inf")
        while time.perf_counter() < until:
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            run.step(loss, samples=256)
            until = min(until, time.perf_counter() + tick)  # the first step starts labkit's sampler
    return 1000 * run.result["train_s"] / run.result["steps"], run.result["others"]


# %% hog-guess-prose [markdown]
"""
**How many per cent longer will its step take next to one busy loop per core**, each in a process of its own?
"""

# %% guess-hog
guess("31.hog", 50.0, "% longer")

# %% hog-prose [markdown]
"""
The busy loops count to a billion. A process that ends at once starts them, so that they are no children of this kernel: to labkit they are other programs.
"""

# %% hog
import subprocess

START = "import subprocess as s, sys; print(s.Popen([sys.executable, '-c', 'for _ in range(10**9): 0'], stdout=-3).pid)"


def beside_hogs(name):
    start = [psutil.Process().exe(), "-c", START]
    hogs = [psutil.Process(int(subprocess.check_output(start))) for _ in psutil.Process().cpu_affinity()]
    try:
        return train(name)
    finally:
        [hog.kill() for hog in hogs]


# %% hog-run-prose [markdown]
"""
Pairs again: alone, then next to the loops. The table has what others took of the run's cores (a share), in turn alone and next to the loops.
"""

# %% hog-run
trained = [(train("quiet"), beside_hogs("polluted")) for _ in range({"smoke": 1, "standard": 5, "full": 10}[profile])]
slower, slower_low, slower_high = overhead([(quiet[0], polluted[0]) for quiet, polluted in trained])
reveal("31.hog", 100 * (slower - 1))
others = pd.DataFrame([run[1] for turn in trained for run in turn])[["cpu_share", "largest", "disturbed"]]
labkit.plots.show(others.set_axis(["share of the cores", "most of it took", "disturbed"], axis=1))

# %% claims-prose [markdown]
"""
## The papers' claims

nvidia-smi and dcgm "can be integrated with resource managers for online decision making thanks to their low overheads": labkit's sampler at 10 Hz stands in for them here. Call an overhead low if the interval ends below 5 %, and high if it begins above; an interval with 5 % inside tests nothing, and more pairs would.
"""

# %% claim E1 points=1 grade_id="claim-e1"
ten = found[found["observer"] == "labkit's sampler, 10 Hz"].set_index("load")
mine = "; ".join(f"{load}: {row.low:.3f} to {row.high:.3f} times as long" for load, row in ten.iterrows())
### BEGIN SOLUTION
low = "holds here" if (ten["high"] < 1.05).all() else "cannot be tested here"  # with so few pairs
verdict = "does not hold here" if (ten["low"] > 1.05).any() else low
answer = verdict, "labkit's sampler stands in for both; its cost is known as far as the interval says, and no further"
### END SOLUTION
claim("E1", f"labkit's sampler, 10 Hz, {mine} (95 % of {rounds} pairs)", answer)

# %% claim-e7-prose [markdown]
"""
Memory and span: an analogue on a CPU. The paper's profiler over the whole run holds 3.4 times the memory and takes 6 times as long in all; call it the same effect if yours takes 1.2 times or more.
"""

# %% claim E7 points=1 grade_id="claim-e7"
low, high = peak["nobody"], peak["torch.profiler"]
### BEGIN SOLUTION
answer = (
    "holds here" if high > 1.2 * low else "does not hold here",
    "a CPU analogue: a profiler over the whole run keeps every operation until its end",
)
### END SOLUTION
claim("E7", f"{low:.0f} MiB alone, {high:.0f} MiB profiled ({steps} steps, median of {repeats})", answer)

# %% claim-e8-prose [markdown]
"""
And the span of the whole process:
"""

# %% claim E8 points=1 grade_id="claim-e8"
low, high = span["nobody"], span["torch.profiler"]
### BEGIN SOLUTION
answer = (
    "holds here" if high > 1.2 * low else "does not hold here",
    "a CPU analogue: what was recorded is sorted and written after the last step",
)
### END SOLUTION
claim("E8", f"{low:.1f} s alone, {high:.1f} s profiled ({steps} steps, median of {repeats})", answer)

# %% claim-d1-prose [markdown]
"""
radT's abstract says that models are "sensitive to interference". Yours was trained alone and next to busy loops; judge by the interval of the slowdown, and by whether labkit marked the runs beside the loops.
"""

# %% claim D1 points=1 grade_id="claim-d1"
marked = sum(polluted[1]["disturbed"] for _, polluted in trained)
### BEGIN SOLUTION
shown = slower > 1.1 if len(trained) < 2 else slower_low > 1
verdict = "holds here" if shown else "does not hold here"
alone = sum(quiet[1]["disturbed"] for quiet, _ in trained)
answer = (
    verdict,
    f"a busy loop on each core; of the runs without, labkit found {alone} of {len(trained)} disturbed, too",
)
### END SOLUTION
said = "no interval" if len(trained) < 2 else f"95 % {slower_low:.2f} to {slower_high:.2f}"
claim("D1", f"{slower:.2f} times as long next to busy loops ({said}); {marked} of {len(trained)} marked", answer)

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
    sampler_10_hz_ratio=(light.ratio["labkit's sampler, 10 Hz"], 0.02, 50),
    sampler_100_hz_ratio=(light.ratio["labkit's sampler, 100 Hz"], 0.02, 50),
    profiler_ratio=(light.ratio["torch.profiler"], 0.05, 100),
    profiler_extra_mib=(peak["torch.profiler"] - peak["nobody"], 1, 5000),
    nsys_ratio_recorded=(paper["ratio"].iloc[-1], 1.02, 1.03),
    hog_ratio=(slower, 0.2, 50),
    marked=(marked, len(trained), len(trained)),
)

# %% recap [markdown]
"""
## Recap

- A sampler waits for points in time, not for a period; what it missed it leaves out.
- Compare within rounds, in random order, runs that differ in one thing, and give an interval: a difference without one is a rumour.
- An interval that includes 1 says that you cannot tell, not that there is no effect; the number of pairs follows from the spread.
- Looking costs; a sampler in a process of its own costs little, a profiler pays for each operation, in time, memory and at its end. Monitor the whole run, profile a few steps.
- Others look, too: a run is worth little without what else ran at the same time.

**Next:** [Profile top-down](32_profile_top_down.ipynb)
"""

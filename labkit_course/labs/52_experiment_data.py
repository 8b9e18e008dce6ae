# %% opening [markdown] packages="duckdb pyarrow scipy" disk_gb=0.5
"""
# Experiment data

After this notebook you will be able to

- **write** a query over millions of samples that says what other programs took from each run;
- **write** the down-sampling that draws a long curve and keeps its extremes and its gaps;
- **find** the runs that another program disturbed, and **say** with which precision and recall;
- **decide** which runs a comparison may leave out;
- **judge** three claims about radT, Robroek and others' tool for the data of experiments (*Data Management and Visualization for Benchmarking Deep Learning Training Systems*, DEEM 2023).

**Time:** 90 minutes. The machine computes for about two of them on 2 CPU cores. No GPU is needed.

**Prerequisites:** [The observer effect](31_the_observer_effect.ipynb), [Time to accuracy](50_time_to_accuracy.ipynb); `SELECT … GROUP BY` in SQL.
"""

# %% checks
from random import Random
from typing import Any

import duckdb
import numpy as np
import pandas as pd

from labkit_course.exercise import Case, Explanation, WrittenExercise

MODULE = "experiment_data"
EXERCISES = {}

# %% parameters-prose [markdown]
"""
The next cell holds what you may change.
"""

# %% parameters tags=["parameters"]
profile = "standard"  # smoke, standard or full: how many runs
runs_dir = "runs"  # run folders are made in its subfolders

# %% sweep-prose [markdown]
"""
## A sweep on shared machines

A sweep compares two optimizers over many seeds. It ran on 16 machines with 2, 4 or 8 cores. Each run can keep two cores busy. Other people use the machines, too.

The runs are *made up*: no program ran, and their provenance says so. Their folders are those of real runs, with five counters twice per second. What disturbed some of them was planted. It is written nowhere in the folders; only the counters show it.
"""

# %% sweep
from pathlib import Path

import labkit
from labkit_course import apparatus, check, claim, explain, guess, model_answer, reveal

count = {"smoke": 120, "standard": 2000, "full": 4000}[profile]
made = Path(runs_dir) / f"made-up-{count}"
apparatus.make_runs(made, count)

# %% counted
with_counters = "count(*) FILTER (run IN (SELECT run FROM telemetry)) AS with_counters"
counted = f"SELECT provenance, job, count(*) AS runs, {with_counters} FROM runs GROUP BY ALL ORDER BY ALL"
labkit.plots.show(labkit.runs.query(counted, made, recorded=True))

# %% store-prose [markdown]
"""
The table also has the recordings that ship with labkit. Most of these runs have no counters, so nothing says whether they were disturbed.

`labkit query` in a terminal answers the same questions. It reads the run folders once, and keeps their rows in a few sorted files next to them. **How many times as long does it take to read all folders one after the other, as a script with pandas does, for one question about all samples?**
"""

# %% guess-folders
guess("52.folders", 10.0, "times")

# %% store
import time

database = labkit.runs.Database(made)
question = "SELECT scope, counter, count(*) AS samples, quantile_cont(value, 0.99) AS p99 FROM telemetry GROUP BY ALL"


def seconds(ask):
    began = time.perf_counter()
    answer = ask()
    return time.perf_counter() - began, answer


# %% store-asked
query_s, answer = seconds(lambda: database.query(question))
few = labkit.runs.run_folders(made)[: min(50, count)]
folders_s = seconds(lambda: [labkit.runs.read_telemetry([each]) for each in few])[0] * count / len(few)
labkit.plots.show(answer.assign(provenance="emulated"))
samples = int(answer["samples"].sum())
print(f"{samples / 1e6:.1f} million samples, by a query: {query_s:.2f} s (measured)")
print(f"folder by folder: {folders_s:.1f} s (predicted from {len(few)} folders)")
reveal("52.folders", folders_s / query_s)

# %% store-words [markdown]
"""
The very first query, which counted the runs, was slower, because it read all folders. What it kept is `.labkit-store` in the folder of runs. Delete it whenever you like: the next query makes it again.
"""

# %% naive-prose [markdown]
"""
Which optimizer reaches the target sooner? The mean over the seeds:
"""

# %% naive
times = database.query(
    "SELECT run, optimizer, time_to_target_s, disturbed FROM runs JOIN settings USING (run) WHERE job = 'made-up'"
).set_index("run")
means = times.groupby("optimizer")["time_to_target_s"].agg(["count", "mean", "median"])
labkit.plots.show(means.assign(provenance="emulated"))

# %% guess-planted-prose [markdown]
"""
The mean and the median disagree, so some runs took much longer than others. **In how many per cent of the runs did another program disturb the training?**
"""

# %% guess-planted
guess("52.planted", 10.0, "% of the runs")

# %% ex-52-taken [markdown]
"""
## What other programs took

### Write: `taken_sql` (20 minutes)

`taken_sql(threads)` returns the text of a `SELECT` with three columns: `run`, `time_ns`, and `taken`, the number of cores that other programs took from the run. It has one row for each time of a run at which one of the two counters below was sampled.

1. The table `telemetry` (`run`, `time_ns`, `scope`, `counter`, `value`, …) has two counters called `cpu_percent`. With scope `host` it is in per cent of *all* cores of the machine, and everything that runs is in it. With scope `process` it is in per cent of *one* core, and only the run is in it.
2. The table `settings` has one row per run, with `machine_cores`, the cores of its machine. A run can use `threads` of them. Other programs use the remaining cores first, and take nothing from the run then. So `taken` is what others use, minus the remaining cores. It is negative where there is room.
3. If one of the two counters is missing at some time, or has no value, `taken` is NULL. What is not known is not zero.

Hint: `max(value) FILTER (WHERE scope = 'host')` puts a value of the rows of a group into a column.
"""


# %% answer 52.taken
def taken_sql(threads: int) -> str:
    """A SELECT of run, time_ns and the cores that other programs took from a run that can use `threads` cores."""
    ### BEGIN SOLUTION
    return f"""
        SELECT telemetry.run, time_ns,
            any_value(machine_cores) * max(value) FILTER (WHERE scope = 'host') / 100
            - max(value) FILTER (WHERE scope = 'process') / 100
            - (any_value(machine_cores) - {threads}) AS taken
        FROM telemetry JOIN settings ON settings.run = telemetry.run
        WHERE counter = 'cpu_percent'
        GROUP BY telemetry.run, time_ns
    """
    ### END SOLUTION


# %% check 52.taken points=6
check("52.taken", taken_sql)


# %% checks
def taken_by_joining(threads: int) -> str:
    return f"""
        WITH own AS (FROM telemetry WHERE scope = 'process' AND counter = 'cpu_percent'),
            whole AS (FROM telemetry WHERE scope = 'host' AND counter = 'cpu_percent'),
            pairs AS (
                SELECT coalesce(whole.run, own.run) AS run, coalesce(whole.time_ns, own.time_ns) AS time_ns,
                    whole.value AS host, own.value AS process
                FROM whole FULL JOIN own ON whole.run = own.run AND whole.time_ns = own.time_ns
            )
        SELECT run, time_ns, {threads} + (machine_cores * host - process) / 100 - machine_cores AS taken
        FROM pairs JOIN settings USING (run)
    """


HOST, OWN = ("host", "cpu_percent"), ("process", "cpu_percent")
MEMORY, THREADS = ("host", "memory_used"), ("process", "threads")


def _taken(code: Any, *rows: tuple[str, int, tuple[str, str], float | None], threads: int = 2) -> list:
    """Asks for `taken` of these samples: run, time, counter and value. Run "b" is on eight cores, the others on two."""
    samples = [(run, time_ns, *kind, value) for run, time_ns, kind, value in rows]
    telemetry = pd.DataFrame(samples, columns=["run", "time_ns", "scope", "counter", "value"])
    runs = sorted(set(telemetry["run"]))
    settings = pd.DataFrame({"run": runs, "machine_cores": [8 if run == "b" else 2 for run in runs]})
    with duckdb.connect() as connection:
        connection.register("telemetry", telemetry.astype({"value": float}).replace({np.nan: None}))
        connection.register("settings", settings)
        text = f"WITH samples AS ({code(threads)}) SELECT run, time_ns, taken::DOUBLE FROM samples ORDER BY ALL"
        return connection.execute(text).fetchall()


def _samples(random: Random) -> list[Case]:
    busy, own = round(random.uniform(60, 99), 1), round(random.uniform(90, 110), 1)
    two = (("a", 1, HOST, busy), ("a", 1, OWN, own), ("a", 2, OWN, 190.0), ("a", 2, HOST, 97.5))
    eight = (("b", 1, HOST, 80.0), ("b", 1, OWN, own), ("b", 2, HOST, busy), ("b", 2, OWN, 190.0))
    return [
        Case("two samples of a run on two cores", _taken, *two),
        Case("a run on a machine with eight cores", _taken, *eight),
        Case("a run that can use four cores of eight", _taken, *eight, threads=4),
        Case("a machine on which there is room", _taken, ("b", 5, HOST, 30.0), ("b", 5, OWN, 190.0)),
        Case("two runs that have the same times", _taken, *two, *eight),
        Case("other counters of the same times", _taken, *two, ("a", 1, MEMORY, 2e9), ("a", 2, THREADS, 700.0)),
        Case("a value that is missing", _taken, *two, ("a", 3, HOST, 50.0), ("a", 3, OWN, None)),
        Case("a counter that was not sampled at one time", _taken, *two, ("a", 4, OWN, 150.0), ("a", 6, HOST, 90.0)),
    ]


EXERCISES["52.taken"] = WrittenExercise(
    taken_sql,
    draw=_samples,
    mistakes={
        ("any_value(machine_cores) * max(value)", "max(value)"): (
            "The host's counter is in per cent of all cores: 50 % of eight cores are four."
        ),
        ("max(value) FILTER (WHERE scope = 'process')", "coalesce(max(value) FILTER (WHERE scope = 'process'), 0)"): (
            "Where the run's own counter is missing, 0 in its place makes the run's own work look like other people's."
        ),
        ("\n            - (any_value(machine_cores) - {threads}) AS", " AS"): (
            "Others use the remaining cores of the machine first: rule 2."
        ),
    },
    variants=(taken_by_joining,),
    hint="Compute `taken` of the message by hand, from one time of one run: which rows of `telemetry` belong to it?",
    explanation="Host minus own is what everybody else does, and it hurts only beyond the cores that were free.",
)

# %% series-prose [markdown]
"""
A query over runs only reads, so your view has a name for one query (`WITH samples AS …`). The cell makes one array for each run, in order of time, with NaN for NULL.
"""


# %% series
def series(sql, database=database):
    values = "list(coalesce(taken, 'nan'::DOUBLE) ORDER BY time_ns) AS taken"
    table = database.query(f"WITH samples AS ({sql}) SELECT run, {values} FROM samples GROUP BY run ORDER BY run")
    return dict(zip(table["run"], table["taken"], strict=True))


taken = series(taken_sql(2))
lengths = [*map(len, taken.values())]
print(f"{len(taken)} runs, {sum(lengths):,} samples; the longest run has {max(lengths):,}, emulated")

# %% ex-52-thin [markdown]
"""
## Drawing a hundred thousand samples

One hundred of these runs one after another have some 90,000 samples. A figure is a few hundred pixels wide. Which samples does it need?

### Write: `thin` (20 minutes)

`thin(time, values, pixels)` returns the places (indices) of the samples to draw, in ascending order, each once. `time` ascends; its steps may differ.

1. Cut the time from the first to the last sample into `pixels` stretches of the same *length*. A sample at a boundary belongs to the later stretch, and the last sample to the last stretch.
2. Keep the sample with the lowest and the one with the highest value of each stretch; of equal ones the first. Infinite values count.
3. NaN is neither low nor high. Keep the first NaN of each stretch as well: the line then has its gap.
4. A stretch without samples has nothing to keep. If all samples have the same time, they are one stretch.
"""

# %% answer 52.thin
from collections.abc import Sequence

import numpy as np


def thin(time: Sequence[float], values: Sequence[float], pixels: int) -> list[int]:
    """The places of the lowest, the highest and the first missing value of each pixel's stretch of time."""
    ### BEGIN SOLUTION
    time, values = np.asarray(time, float), np.asarray(values, float)
    share = (time - time[0]) / ((time[-1] - time[0]) or 1.0)
    stretch = np.minimum((share * pixels).astype(int), pixels - 1)
    keep = set()
    for own in np.split(np.arange(len(time)), np.flatnonzero(np.diff(stretch)) + 1):
        missing = np.isnan(values[own])
        keep |= set(own[missing][:1].tolist())
        known = own[~missing]
        if len(known):
            keep |= {int(known[values[known].argmin()]), int(known[values[known].argmax()])}
    return sorted(keep)
    ### END SOLUTION


# %% check 52.thin points=6
check("52.thin", thin)


# %% checks
def thin_in_one_pass(time: Sequence[float], values: Sequence[float], pixels: int) -> list[int]:
    low, high, gap = {}, {}, {}
    span = time[-1] - time[0]
    for place, (at, value) in enumerate(zip(time, values, strict=True)):
        pixel = min(int((at - time[0]) / span * pixels), pixels - 1) if span else 0
        if value != value:
            gap.setdefault(pixel, place)
            continue
        if pixel not in low or value < values[low[pixel]]:
            low[pixel] = place
        if pixel not in high or value > values[high[pixel]]:
            high[pixel] = place
    return sorted({*low.values(), *high.values(), *gap.values()})


def _curves(random: Random) -> list[Case]:
    rng = np.random.default_rng(random.randrange(10**6))
    even, uneven = np.arange(64.0), np.cumsum(rng.integers(1, 9, 64)).astype(float)
    noise = rng.permutation(64).astype(float)
    nan = float("nan")
    gaps = np.where(rng.random(64) < 0.3, nan, noise)
    spike = np.where(even == rng.integers(5, 60), 99.0, 1.0)
    late = np.append(np.arange(32.0), 100 + np.arange(32.0))
    return [
        Case("64 even samples on 8 pixels", lambda code: code(even, noise, 8)),
        Case("uneven times", lambda code: code(uneven, noise, 8)),
        Case("one spike in 64 equal values", lambda code: code(even, spike, 4)),
        Case("a long pause without samples", lambda code: code(late, noise, 16)),
        Case("missing values", lambda code: code(even, gaps, 8)),
        Case("a stretch of missing values alone", lambda code: code(even, np.where(even < 16, nan, noise), 8)),
        Case("infinite values", lambda code: code(even[:6], [1.0, np.inf, 2.0, -np.inf, nan, 0.5], 2)),
        Case("more pixels than samples", lambda code: code(even[:5], noise[:5], 100)),
        Case("samples of one time", lambda code: code([7.0, 7.0, 7.0], [2.0, 1.0, 3.0], 4)),
    ]


EXERCISES["52.thin"] = WrittenExercise(
    thin,
    draw=_curves,
    mistakes={
        ("np.minimum((share * pixels).astype(int), pixels - 1)", "np.arange(len(time)) * pixels // len(time)"): (
            "These stretches have the same number of samples. A pixel is a length of time: a pause is as long as it was."
        ),
        ("keep |= set(own[missing][:1].tolist())", "pass"): (
            "A line over missing values looks measured: keep one NaN for the gap."
        ),
        ("own[~missing]", "own"): "NaN passes for the lowest and the highest in numpy's argmin and argmax.",
    },
    variants=(thin_in_one_pass,),
    hint="Write the stretch of each sample of the message in a row, below it the values: which places stay?",
    explanation="Two samples per pixel draw the same picture as all of them: what lies between two extremes of a pixel "
    "is covered by the line between them.",
)

# %% guess-spikes-prose [markdown]
"""
Two other ways are common. Many trackers take *every n-th* sample. Others draw the *mean* of each stretch. All three draw the first hundred runs below, with 200 pixels. In some pixels other programs took more than one core at some moment. **In how many per cent of these does every n-th sample still show it?**
"""

# %% guess-spikes
guess("52.spikes", 50.0, "% of the pixels")

# %% lines
import pandas as pd

pixels, joined = 200, np.concatenate(list(taken.values())[:100])
joined, hours = np.maximum(joined, 0), np.arange(len(joined)) / 2 / 3600  # 0 where there was room; NaN stays
pixel = np.arange(len(joined)) * pixels // len(joined)
places = {"lowest and highest": thin(hours, joined, pixels), "every n-th": range(0, len(joined), len(joined) // pixels)}
lines = {name: (hours[list(own)], joined[list(own)]) for name, own in places.items()}
means = pd.DataFrame({"hours": hours, "taken": joined}).groupby(pixel).mean()
lines["mean"] = means["hours"], means["taken"]


# %% shown
def pixels_above(x, y):
    return {int(at * 3600 * 2) * pixels // len(joined) for at in np.asarray(x)[np.asarray(y) > 1]}


shown = {name: len(pixels_above(*line)) for name, line in lines.items()}
whole, every = shown["lowest and highest"], shown["every n-th"]
finding = f"{whole} of {pixels} pixels have a sample above one core; every n-th shows {every}."
reveal("52.spikes", 100 * every / whole)

# %% figure-lines
figure = labkit.plots.new_figure("time of 100 runs after each other (h)", "cores taken from the run", finding)
for number, (name, (x, y)) in enumerate(lines.items()):
    look = labkit.plots.encoding(number)
    line = {"color": look.color, "dash": look.dash, "width": 1 if number == 0 else 2}
    figure.add_scatter(x=x, y=y, mode="lines", line=line, **labkit.plots.named(name, "emulated"))
labkit.plots.show(figure)

# %% lines-words [markdown]
"""
The mean is a fair picture of what a run lost as a whole, and hides that it happened in bursts. Every n-th sample shows a burst or not by chance, and always the same ones. `labkit live` draws the lowest, the highest and the mean.

## Finding the runs

Some high values are of one sample only. Two counters are not read at the same instant, so what the run did between the two looks like somebody else's work, and is missing in the next sample. A program that disturbs a run stays longer.
"""

# %% ex-52-find [markdown]
"""
### Write: `find` (10 minutes)

`find(series, above, at_least_s, every_s)` returns the set of the runs in which other programs took more than `above` cores for at least `at_least_s` seconds *without a break*. `series` has an array for each run's name, with a sample each `every_s` seconds.

1. *k* samples in a row above the limit are *k* × `every_s` seconds.
2. A sample that is NaN is not known. It neither breaks a stretch nor makes it longer.
"""

# %% answer 52.find
from collections.abc import Mapping, Sequence


def find(series: Mapping[str, Sequence[float]], above: float, at_least_s: float, every_s: float) -> set[str]:
    """The runs from which other programs took more than `above` cores for long enough."""
    ### BEGIN SOLUTION
    found = set()
    for run, values in series.items():
        in_a_row = 0
        for value in values:
            if value == value:  # which NaN is not
                in_a_row = in_a_row + 1 if value > above else 0
            if in_a_row and in_a_row * every_s >= at_least_s:
                found.add(run)
                break
    return found
    ### END SOLUTION


# %% check 52.find points=4
check("52.find", find)


# %% checks
def find_by_arrays(series, above, at_least_s, every_s):
    found = set()
    for run, values in series.items():
        known = np.asarray(values, float)
        known = np.concatenate([[above], known[~np.isnan(known)], [above]])
        ends = np.flatnonzero(known <= above)
        if (np.diff(ends).max() - 1) * every_s >= max(at_least_s, every_s):
            found.add(run)
    return found


def _found(code: Any, above: float, at_least_s: float, every_s: float, **series: list[float]) -> Any:
    return sorted(code({name: np.array(own) for name, own in series.items()}, above, at_least_s, every_s))


def _runs(random: Random) -> list[Case]:
    nan, high = float("nan"), random.uniform(1.2, 1.9)
    return [
        Case("a stretch and a spike", _found, 1, 2, 1, a=[0, high, high, 0], b=[0, high, 0, high, 0]),
        Case("half seconds", _found, 1, 2, 0.5, a=[0, high, high, high, 0], b=[high] * 4),
        Case("a missing sample within a stretch", _found, 1, 3, 1, a=[0, high, nan, high, high, 0]),
        Case("missing samples that make up for nothing", _found, 1, 3, 1, a=[0, high, nan, nan, high, 0], b=[nan] * 9),
        Case("one that is exactly at the limit", _found, 1, 2, 1, a=[1, 1, 1], b=[1, high, high]),
        Case("a stretch at the end", _found, 0.5, 2, 1, a=[0, 0, high, high], b=[]),
        Case("no run", _found, 1, 2, 1),
    ]


EXERCISES["52.find"] = WrittenExercise(
    find,
    draw=_runs,
    mistakes={
        ("            if value == value:  # which NaN is not\n    ", "            if True:\n    "): (
            "A comparison with NaN is false, so a missing sample breaks the stretch here: leave it out instead."
        ),
        ("in_a_row + 1 if value > above else 0", "in_a_row + (value > above)"): (
            "That counts all samples above the limit. A sample below it breaks the stretch."
        ),
        ("in_a_row and in_a_row * every_s >= at_least_s", "in_a_row >= at_least_s"): "Samples are not seconds: rule 1.",
    },
    variants=(find_by_arrays,),
    hint="Go through the samples of one run of the message, and write down after each one how many were in a row.",
    explanation="One number of cores and one of seconds: the second makes single samples harmless.",
)

# %% choice-prose [markdown]
"""
Which runs were planted can be looked at now. **Precision** is the share of the found runs that another program did disturb. **Recall** is the share of the disturbed runs that were found. Choose your limits. The figure shows what the seconds do at your number of cores; try others.
"""

# %% truth
truth = apparatus.planted(count).set_index("run")["kind"]
disturbed = set(truth.index[truth != ""])


def score(found):
    right = len(found & disturbed)
    return {"found": len(found), "precision": right / max(len(found), 1), "recall": right / len(disturbed)}


# %% choice
above, at_least_s = 0.5, 2.0  # cores, and seconds without a break
found = find(taken, above, at_least_s, 0.5)
print(f"{len(disturbed)} of {count} runs were disturbed; yours: {score(found)}, emulated")
reveal("52.planted", 100 * len(disturbed) / count)

# %% figure-choice
tried = pd.DataFrame({s: score(find(taken, above, s, 0.5)) for s in (0.5, 1, 2, 5, 20, 60)}).T
mine = score(found)
finding = f"With {at_least_s:g} s the precision is {mine['precision']:.2f}, and the recall {mine['recall']:.2f}."
figure = labkit.plots.new_figure("seconds without a break", "share", finding, xaxis_type="log", yaxis_range=[0, 1.05])
for number, name in enumerate(("precision", "recall")):
    look = labkit.plots.encoding(number).curve()
    figure.add_scatter(x=tried.index, y=tried[name], **look, **labkit.plots.named(name, "emulated"))
labkit.plots.show(figure.update_xaxes(**labkit.plots.log_ticks()))

# %% marked-prose [markdown]
"""
labkit itself marks a run as disturbed if other programs took a tenth of its cores, or half a core, on average over the *whole* run. The table compares that mark with your detector, by what was planted.
"""

# %% marked
marked = set(times.index[times["disturbed"] != ""])
detectors = {"labkit's mark": marked, "yours": found}
kinds = {kind: set(own.index) for kind, own in truth[truth != ""].groupby(truth)}
table = pd.DataFrame({name: score(own) for name, own in detectors.items()}).T
for kind, own in kinds.items():
    table[f"of {len(own)} {kind}"] = [len(each & own) for each in detectors.values()]
labkit.plots.show(table.assign(provenance="emulated").rename_axis("detector"))

# %% ex-52-why-marked [markdown]
"""
### Explain 52.why_marked

In two or three sentences: why does labkit's mark miss what it misses, and would you lower its limit of a tenth? Use numbers of the table.
"""

# %% explain 52.why_marked points=2 id="answer-52-why-marked"
### BEGIN SOLUTION
answer = model_answer("52.why_marked")
### END SOLUTION
explain("52.why_marked", answer)

# %% checks
EXERCISES["52.why_marked"] = Explanation(
    "numbers: recall of the mark and of one's own detector, and which kinds each of them finds",
    "why: the mark is a mean over the whole run, in which short bursts vanish, and it is of CPU time alone",
    "trade-off: a lower limit would also mark runs with a little steady background, or: what a burst costs is little",
    model="The mark finds 123 of 450 planted runs, above all those with a neighbour that stayed, and is never wrong. Three "
    "bursts of 8 s take a twentieth of a run's cores on average, so the mean of the run hides most of them. My detector looks "
    "at stretches and finds 271. Programs that take memory use no CPU time, so neither sees them. A limit of 3 % would "
    "find more bursts, but it would also mark quiet runs on two cores, where the system itself takes 3 %. A burst costs some per "
    "cent of the time, so I would leave the limit and look at stretches.",
    half="The mark finds 123 of 450, since it is the mean over the whole run, in which bursts of some seconds vanish.",
)

# %% missed-prose [markdown]
"""
## What a counter cannot see

Some planted runs took no CPU time from the run, and still took long. In the slowest run that you did not find, which counter moves?
"""

# %% missed
slowest = times.drop(list(found))["time_to_target_s"].idxmax()
rows = database.query(f"SELECT scope, counter, time_ns, value FROM telemetry WHERE run = '{slowest}' ORDER BY time_ns")
rows["minute"] = (rows["time_ns"] - rows["time_ns"].min()) // 60_000_000_000
rows["counter"] = rows["scope"] + " " + rows["counter"]
labkit.plots.show(rows.pivot_table(index="minute", columns="counter", values="value").assign(provenance="emulated"))

# %% memory-prose [markdown]
"""
The memory of the machine, without that of the run, rises by gigabytes, and the run's own CPU time falls: its pages were swapped out, and it waits for the disk. The same pivot finds these runs. How much memory other programs have in any case differs from machine to machine, so the lowest value of each run is subtracted.
"""

# %% memory
MEMORY_SQL = """
    SELECT run, time_ns,
        (max(value) FILTER (WHERE scope = 'host') - max(value) FILTER (WHERE scope = 'process')) / 1073741824 AS taken
    FROM telemetry WHERE counter IN ('memory_used', 'memory_resident') GROUP BY run, time_ns
"""
memory = {run: own - np.nanmin(own) for run, own in series(MEMORY_SQL).items()}
found_memory = find(memory, 1.0, 10.0, 0.5)  # more than 1 GiB, for ten seconds
both = found | found_memory
print(f"memory: {score(found_memory)}")
print(f"both:   {score(both)}, emulated")

# %% guess-winner-prose [markdown]
"""
Now the comparison again, with all runs, without those that labkit marked, without those that you found by CPU time, and without those found by both. **By how many per cent is sgd slower than adagrad, in the mean of the runs that are left at the end?** Before, it looked faster.
"""

# %% guess-winner
guess("52.winner", 2.0, "% slower")

# %% winner
left_out = {"none": set(), "marked by labkit": marked, "found by CPU time": found, "found by both": both}
rows = {}
for name, gone in (left_out | {"planted": disturbed}).items():
    means = times.drop(list(gone)).groupby("optimizer")["time_to_target_s"].agg(["count", "mean"])
    slower = means.loc["sgd", "mean"] / means.loc["adagrad", "mean"] - 1
    rows[name] = [*means["count"], *means["mean"], 100 * slower]
columns = ["adagrad runs", "sgd runs", "adagrad, mean s", "sgd, mean s", "sgd slower by %"]
winner = pd.DataFrame(rows, columns).T.assign(provenance="emulated").rename_axis("left out")
labkit.plots.show(winner)
reveal("52.winner", winner.loc["found by both", "sgd slower by %"])

# %% ex-52-why-winner [markdown]
"""
### Explain 52.why_winner

In two or three sentences: which optimizer would you have chosen from the first row, which from the fourth, and why do they differ? Under which condition may runs be left out of a comparison after they have been seen?
"""

# %% explain 52.why_winner points=2 id="answer-52-why-winner"
### BEGIN SOLUTION
answer = model_answer("52.why_winner")
### END SOLUTION
explain("52.why_winner", answer)

# %% checks
EXERCISES["52.why_winner"] = Explanation(
    "numbers: by how much sgd is slower or faster in the first row and in the fourth",
    "why: more runs of adagrad were disturbed, and these took longer, so the optimizer and the neighbours are confused",
    "trade-off: the rule must not look at the result, or is the same for both sides; better to run those again",
    model="With all runs sgd looks 6 % faster, and without the disturbed ones it is 5 % slower. A third of adagrad's runs "
    "were disturbed and less than a tenth of sgd's, so the mean compares neighbours, not optimizers. A run may be left out "
    "if the rule reads counters alone and is the same for both, never because the run was slow. Fewer runs make the "
    "interval wider, so the disturbed seeds should run again.",
    half="With all runs sgd looks 6 % faster, and 5 % slower without the disturbed ones, as adagrad had more of those.",
)

# %% own-prose [markdown]
"""
## Your machine

The made-up runs say nothing about real sensitivity: how much a neighbour costs was drawn. So now a small model is trained here, alone and next to busy loops, in turns. As far as labkit knows, the loops are somebody else's processes. Your query and your detector look for them.

**How many per cent longer does a step take next to the loops?**
"""

# %% guess-own
guess("52.own", 50.0, "% longer")

# %% own-machine
import contextlib

import psutil
import torch

cores = labkit.hardware.read_cpu().available_cores
facts = {"machine_cores": psutil.cpu_count()}


# %% own-train
def train(runs_dir, seconds):  # seconds per step
    model, (x, y) = torch.nn.Linear(512, 1), (torch.randn(256, 512), torch.randn(256, 1))
    with labkit.Run("own", runs_dir=runs_dir, config=facts, max_seconds=seconds) as run:
        while not run.over:
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            run.step(loss, samples=256)
    return run.folder.name, run.result["train_s"] / run.result["steps"]


# %% own-run-prose [markdown]
"""
Each pair is a run alone and a run next to one loop per core.
"""

# %% own-run
pairs = {"smoke": 1, "standard": 6, "full": 12}[profile]
own_dir, steps = Path(runs_dir) / "notebooks" / f"neighbours-{time.time():.0f}", {"alone": {}, "next to loops": {}}
for name in ("alone", "next to loops") * pairs:
    with apparatus.neighbour(cores) if name != "alone" else contextlib.nullcontext():
        run, step_s = train(own_dir, 1.5 if profile == "smoke" else 4.0)
    steps[name][run] = step_s
ratios = np.log([*steps["next to loops"].values()]) - np.log([*steps["alone"].values()])
slower, low, high = np.exp(labkit.tta.mean_interval(ratios))
reveal("52.own", 100 * (slower - 1))

# %% own-found
with labkit.runs.Database(own_dir) as own:
    found_here = find(series(taken_sql(cores), own), above, at_least_s, 0.5)
    marked_here = set(own.query("SELECT run FROM runs WHERE disturbed <> ''")["run"])
rows = {name: [len(runs), len(found_here & set(runs)), len(marked_here & set(runs))] for name, runs in steps.items()}
table = pd.DataFrame(rows, ["runs", "found by you", "marked by labkit"]).T
labkit.plots.show(table.assign(provenance="measured"))

# %% own-words [markdown]
"""
Runs that were found although they ran alone had another neighbour. In a container the counters of the host also have the programs of other containers.

## Judge

**D1.** radT's abstract says that models are "sensitive to interference". Lab 31 judged it by the time of a step; here the counters have to show it as well. Say that the claim holds if the whole interval of the slowdown lies above 1.05, and your detector found at least half of the runs next to the loops; that it does not if the interval lies below 1.05; and that it cannot be tested otherwise. Made-up runs do not count.
"""

# %% claim D1 points=1
caught = len(found_here & set(steps["next to loops"]))
between = f"95 % {low:.2f} to {high:.2f}" if pairs > 1 else "one pair, no interval"
said = f"{slower:.2f} times as long next to busy loops ({between}); {caught} of {pairs} found by their counters"
### BEGIN SOLUTION
verdict = "holds here" if low > 1.05 and caught >= pairs / 2 else "cannot be tested here"
verdict = "does not hold here" if high < 1.05 else verdict
answer = verdict, "one busy loop per core, next to one small model on a CPU; a neighbour that does less costs less"
### END SOLUTION
claim("D1", said, answer)

# %% radt-prose [markdown]
"""
**D3.** radT starts trainings and writes what `nvidia-smi`, `dcgmi`, `top` and `free` say into MLflow. Its code is said to write every sample with step 0, and −1 or 0 for a value that the tool does not give. That can be looked at: a run of radT 0.2.30 was recorded, with stand-ins for the tools of the GPU, which print `[N/A]` as real ones do. **How many different steps do its counters have?**
"""

# %% guess-steps
guess("52.steps", 41, "steps")

# %% radt
radt = labkit.runs.recorded_table("radt-cpu", "samples")
is_counter = radt["metric"].str.startswith("system/")
by_metric = radt.groupby("metric").agg(samples=("step", "size"), steps=("step", "nunique"), lowest=("value", "min"))
by_metric["highest"] = radt.groupby("metric")["value"].max()
names = ["accuracy", "loss", "system/SMI - Power Draw", "system/SMI - Mem Util", "system/DCGMI - SM Active"]
labkit.plots.show(by_metric.loc[[*names, "system/DCGMI - GPU Utilization"]].assign(provenance="recorded"))
counter_steps = radt[is_counter]["step"].nunique()
reveal("52.steps", counter_steps)

# %% import-prose [markdown]
"""
radT's page saves such samples as CSV, without the steps. `labkit runs import radt` makes a run folder of them, so that your queries work for it, too.
"""

# %% import
import sys

python, page, into = sys.executable, Path(runs_dir) / "radt.csv", Path(runs_dir) / "radt"
table = radt.rename(columns={"timestamp_ms": "timestamp"}).assign(workload="1-1", runId="0120", runName="resnet")
table[["workload", "runId", "runName", "metric", "timestamp", "value"]].to_csv(page, index=False)
# !{python} -m labkit runs import radt {page} --into {into} --target "accuracy >= 0.85"

# %% imported
question = """
    SELECT counter, count(*) AS samples, count(value) AS known, min(value) AS lowest, any_value(note) AS note
    FROM telemetry WHERE device = 'gpu0' GROUP BY counter ORDER BY counter
"""
labkit.plots.show(labkit.runs.query(question, into).assign(provenance="recorded"))

# %% claim-D3-prose [markdown]
"""
What the tools did not give is NULL now, with a note, and a mean leaves it out. For 0 that works only if *all* samples are 0: a single 0 could be a real one.

Say that D3 holds if no counter has a step other than 0, and if both −1 and 0 appear where a tool printed that it has no value: memory utilisation of `nvidia-smi`, and SM activity of `dcgmi`. Mind which samples have a step.
"""

# %% claim D3 points=1
no_value = by_metric.loc[["system/SMI - Mem Util", "system/DCGMI - SM Active"], "highest"].tolist()
said = f"{counter_steps} step in {int(is_counter.sum()):,} samples of counters, "
said += f"{by_metric.loc['accuracy', 'steps']} in the accuracy that the script logged; "
said += f"{no_value[0]:g} by nvidia-smi and {no_value[1]:g} by dcgmi for no value"
### BEGIN SOLUTION
verdict = "holds here" if [counter_steps, *no_value] == [1, -1, 0] else "does not hold here"
answer = (
    verdict,
    "radT 0.2.30 ran for real, with stand-ins for the GPU's tools; what a script logs has its epoch as step",
)
### END SOLUTION
claim("D3", said, answer, how="recorded")

# %% claim-D2-prose [markdown]
"""
**D2.** The abstract: keeping track of software and hardware metrics at scale "poses real difficulties". A user turns away from an answer that takes more than ten seconds. Say that the claim holds if one question about five million samples or more takes longer than that with the run folders read one after the other; that it does not hold if it takes less; and that fewer samples cannot test it. Which of your times says that the difficulty can be overcome?
"""

# %% claim D2 points=1
said = f"{samples / 1e6:.1f} million samples of {count} runs: "
said += f"{folders_s:.0f} s folder by folder, {query_s:.2f} s by a query"
### BEGIN SOLUTION
verdict = "holds here" if folders_s > 10 else "does not hold here"
verdict = verdict if samples >= 5e6 else "cannot be tested here"
answer = (
    verdict,
    f"on a local disk, with samples in Parquet; a cache of sorted files is {folders_s / query_s:.0f} times as fast",
)
### END SOLUTION
claim("D2", said, answer)

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
    precision=(score(both)["precision"], 0.95, 1),
    recall=(score(both)["recall"], 0.9, 1),
    recall_of_mark=(score(marked)["recall"], 0.15, 0.45),
    sgd_slower_at_first=(winner.loc["none", "sgd slower by %"], -25, -3),
    sgd_slower_at_last=(winner.loc["found by both", "sgd slower by %"], 2.5, 8),
    spikes_by_every_nth=(every / whole, 0, 0.7),
    radt_steps=(counter_steps, 1, 1),
    slowdown=(slower, 0.5, 20),
)

# %% assistant slowdown above=1.5 [markdown]
"""
Next to one busy loop per core, a training step has half of the processor at most, so it takes more than 1.5 times as long as alone.
"""

# %% recap [markdown]
"""
## Recap

- Keep counters of the machine *and* of the run: only their difference says what others took.
- What is not known is NULL, not 0 and not −1. A mean, a threshold and a figure treat the two differently.
- Draw the lowest and the highest of each pixel. Every n-th sample shows a burst by chance; a mean hides it.
- A mean over the run finds neighbours that stay. Stretches find bursts. CPU time does not see memory.
- Runs that were disturbed more often on one side decide a comparison. Leave them out by a rule that does not look at the result, or run them again.
- `labkit query` keeps the rows of all runs in a few sorted files; `labkit live` draws their curves while they go on.

**Next:** [Predict a step](60_performance_model.ipynb)
"""

# %% opening [markdown] packages="cloudpickle numba scikit-learn tornado" disk_gb=0.5
"""
# A pipeline on the edge

After this notebook you will be able to

- **write** a meter that says which stage of a pipeline takes the time and the memory;
- **compute** how many bytes leave a device, depending on which stages run on it;
- **write** one compiled pass in place of a function per group, and **take apart** a tenfold gain: processes or compilation?
- **predict** from two runs at which scale, and in which stage, memory ends a pipeline, and see it end there;
- **measure** a server by an open loop of requests, and **write** the micro-batches that make it answer more;
- **judge** five claims of Bayer, Tözün and Tøttrup, *TPCx-AI on NVIDIA Jetsons* (TPCTC 2022).

**Time:** 100 minutes with seven exercises of code. The machine computes for about one minute on 2 CPU cores. No board is needed.

**Prerequisites:** [Budgets that bind](02_budgets_that_bind.ipynb).
"""

# %% checks
import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np

from labkit_course.exercise import Case, Explanation, WrittenExercise

# Shapes: n lines, T trips, D = 12 departments.

MODULE = "pipelines"
EXERCISES = {}

# %% parameters tags=["parameters"]
profile = "standard"  # smoke, standard or full: the scale of the data, and how long the server is loaded
runs_dir = "runs"  # the runs of this notebook are written to a folder below this one
seed = 0  # of the data and the models

# %% question [markdown]
"""
## The question

A benchmark of training measures one stage. A device in a shop or a car runs a whole *pipeline*: it loads raw data, cleans them, makes features, trains, and serves predictions. TPCx-AI is a benchmark of such pipelines, made for servers. The paper ran it on four small boards, NVIDIA Jetsons.

Here the pipelines and their data are labkit's own. Only the paper's abstract is judged. Which stage limits a small machine, and by what: time, memory, or bytes?

The first pipeline distinguishes five kinds of shopping *trips*. A trip has some lines: a department, a quantity (negative if something was returned), and a price.
"""

# %% imports
import os
import time

import numpy as np
import pandas as pd
import psutil

import labkit
from labkit_course import check, claim, explain, guess, model_answer, reveal

pipelines = labkit.pipelines

# %% stage-exercise [markdown]
"""
## A meter for stages

### Write 70.stage (10 minutes)

`Stage(rows, name, held)` is a context manager: it measures what its block does. `held()` returns the bytes that this process holds now.

1. When the block ends, `(name, seconds, peak_bytes)` is appended to the list `rows`.
2. The peak is the most that `held()` returned *while* the block ran. Most stages free memory before they end. So a thread calls `held` every few milliseconds. Call it once at the beginning, too: a block may be shorter than that.
3. A block that raises is recorded, too, and its error goes on.

*Hint:* `threading.Event` has `wait(seconds)`, which returns True once `set()` was called: the thread's clock and its end in one.
"""

# %% answer 70.stage
import threading
import time


class Stage:
    """Appends name, seconds and peak bytes of its block to `rows`."""

    def __init__(self, rows, name, held):
        self.rows, self.name, self.held = rows, name, held

    def __enter__(self):
        ### BEGIN SOLUTION
        self.over, self.peak = threading.Event(), self.held()
        self.watcher = threading.Thread(target=self.look)
        self.began = time.perf_counter()
        self.watcher.start()
        return self

    def look(self):
        while not self.over.wait(0.003):
            self.peak = max(self.peak, self.held())
        ### END SOLUTION

    def __exit__(self, *error):
        ### BEGIN SOLUTION
        seconds = time.perf_counter() - self.began
        self.over.set()
        self.watcher.join()
        self.rows.append((self.name, seconds, max(self.peak, self.held())))
        ### END SOLUTION


# %% check 70.stage points=4
check("70.stage", Stage)


# %% checks
def _metered(code: Any, *levels: int, each_s: float = 0.04, fails: bool = False) -> Any:
    """A process that holds these bytes, for some time each."""
    level, rows = [levels[0]], []
    began = time.perf_counter()
    try:
        with code(rows, "load", lambda: level[0]):
            for level[0] in levels:
                time.sleep(each_s)
            if fails:
                raise KeyError("load")
    except KeyError:
        rows.append("the error went on")
    took = time.perf_counter() - began
    return [(row[0], row[2], each_s * len(levels) - 0.01 < row[1] <= took) if len(row) == 3 else row for row in rows]


class _StageByTimes:
    def __init__(self, rows, name, held):
        self.rows, self.name, self.held, self.seen, self.goes_on = rows, name, held, [], True

    def __enter__(self):
        self.seen.append(self.held())
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()
        self.began = time.monotonic()

    def watch(self):
        while self.goes_on:
            self.seen.append(self.held())
            time.sleep(0.002)

    def __exit__(self, kind, error, trace):
        took = time.monotonic() - self.began
        self.goes_on = False
        self.rows.append((self.name, took, max(self.seen)))
        return False


EXERCISES["70.stage"] = WrittenExercise(
    Stage,
    Case("memory that grows", _metered, 100, 300),
    Case("a peak at the start", _metered, 700, 100),
    Case("a peak in the middle", _metered, 100, 900, 200),
    Case("a block that raises", _metered, 100, 500, 100, fails=True),
    Case("a block that is over at once", _metered, 400, each_s=0.0),
    mistakes={
        ("self.peak = max(self.peak, self.held())", "pass"): (
            "That sees the memory at both ends. What a stage held in between and freed is what a limit ends it by."
        ),
        ("self.peak = max(self.peak, self.held())", "self.peak = self.held()"): (
            "That keeps the last look: the peak is the largest of all."
        ),
        ("        self.rows.append((", "        error[0] or self.rows.append(("): (
            "A block that raises is recorded, too: memory that ran out is an error of the stage."
        ),
    },
    variants=(_StageByTimes,),
    hint="Who calls `held` while the block runs, how often, and how does it learn that the block is over?",
    explanation="A thread that looks every few milliseconds. Linux' own high-water mark counts mapped files, too.",
)

# %% pipeline-text [markdown]
"""
The cells below are the pipeline: pandas' own aggregations make 41 features of each trip, and boosted trees of scikit-learn learn its kind. **Which share of the time does training take?**
"""

# %% guess-train
guess("70.train_share", 50.0, "% of the time")

# %% load
scale, stages = {"smoke": 0.1, "standard": 1, "full": 4}[profile], []
files = [pipelines.ensure("trips", scale, seed) / name for name in ("lines.csv", "trips.csv")]


def held():
    return labkit.hardware.held(os.getpid()) or psutil.Process().memory_info().rss  # without /proc, all that it maps


with Stage(stages, "load", held):
    lines, about = map(pd.read_csv, files)
with Stage(stages, "clean", held):
    lines = lines[lines["quantity"] != 0]

# %% train
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits

with Stage(stages, "features", held):
    trips, matrix = pipelines.make_features(lines, "pandas")  # (T,), (T, 41)
    matrix, kinds = matrix.astype("float32"), about.set_index("trip").loc[trips, "type"].to_numpy()
first = pipelines.held_out(len(trips))  # from here on trips are not trained on, but served
with Stage(stages, "train", held), threadpool_limits(1):  # threads of small steps wait busily for each other
    model = HistGradientBoostingClassifier(max_iter=10, early_stopping=False, random_state=seed)
    model.fit(matrix[:first], kinds[:first])
with Stage(stages, "serve", held):
    predicted = model.predict(matrix[first:]).astype("int8")

# %% stages
print(f"accuracy {np.mean(predicted == kinds[first:]):.3f} on {len(predicted):,} trips that it had not seen")
table = pd.DataFrame(stages, columns=["stage", "seconds, measured", "peak MB, measured"])
table["peak MB, measured"] = (table["peak MB, measured"] / 1e6).round(1)
share = table["seconds, measured"] / table["seconds, measured"].sum()
reveal("70.train_share", 100 * share[3])
labkit.plots.show(table.assign(share=share.map("{:.0%}".format)))

# %% bytes-text [markdown]
"""
## What leaves the device

A device that only loads ships raw data. One that makes features ships features, and one that serves ships predictions. Bytes are *computed* from rows and types. A system's own counters would mislead: pandas maps the file that it reads, and each import counts as reading.

**How many times fewer bytes than the raw CSV do the float32 features of a trip take?** (Less than 1 means more bytes.)
"""

# %% guess-bytes
guess("70.features_fewer", 10, "times")

# %% bytes
raw = sum(path.stat().st_size for path in files) / len(about)
each = {"raw": raw, "features": pipelines.bytes_of(matrix) / len(matrix), "predictions": 1.0}
fewer = {name: raw / size for name, size in each.items()}
reveal("70.features_fewer", fewer["features"])
labkit.plots.show(pd.DataFrame({"bytes per trip, computed": each, "times fewer than raw": fewer}).round(2))

# %% pass-exercise [markdown]
"""
## A tenfold gain, taken apart

The abstract says that parallel pre-processing gained "close to an order of magnitude" on one use case. In the code of that study several processes each compute aggregations that numba *compiled*: two causes at once. You take them apart.

### Write 70.one_pass (20 minutes)

`one_pass(trip, department, quantity, price)` makes the features in one loop over lines that are sorted by trip. All four are arrays (n,). Return the trips in their order (T,), and a float64 matrix (T, 41):

1. Columns 3d, 3d + 1 and 3d + 2 are for department d = 0 to 11: its quantity, what was spent (quantity times price), and its number of lines.
2. Columns 36, 37 and 38 are the same for all departments together.
3. Column 39 is the highest price, at least 0. Column 40 is the number of lines with a negative quantity.

numba will compile your function: use loops, numbers and `np.zeros`, but no dictionary and no pandas.

*Hint:* go over the lines twice. The first loop counts the trips, so that `np.zeros` knows how many rows there are.
"""

# %% answer 70.one_pass
import numpy as np


def one_pass(trip, department, quantity, price):
    """Trips (T,) and their features (T, 41), from lines that are sorted by trip."""
    ### BEGIN SOLUTION
    count = 0
    for row in range(len(trip)):
        count += row == 0 or trip[row] != trip[row - 1]
    trips, found, at = np.zeros(count, trip.dtype), np.zeros((count, 41)), -1
    for row in range(len(trip)):
        if row == 0 or trip[row] != trip[row - 1]:
            at += 1
            trips[at] = trip[row]
        for column in (3 * department[row], 36):
            found[at, column] += quantity[row]
            found[at, column + 1] += quantity[row] * price[row]
            found[at, column + 2] += 1
        found[at, 39] = max(found[at, 39], price[row])
        found[at, 40] += quantity[row] < 0
    return trips, found
    ### END SOLUTION


# %% check 70.one_pass points=6
check("70.one_pass", one_pass)


# %% checks
def _lines(random: Random, count: int, trips: int) -> list[np.ndarray]:
    rng = np.random.default_rng(random.randrange(2**32))
    trip = np.sort(rng.integers(100, 100 + trips, count))
    return [trip, rng.integers(0, 12, count), rng.integers(-2, 5, count), rng.lognormal(1, 1, count).round(2)]


def _passes(random: Random) -> list[Case]:
    def over(columns: list[np.ndarray]) -> Callable[[Any], Any]:
        return lambda code: code(*columns)

    one = [np.array([7]), np.array([3]), np.array([2]), np.array([1.5])]
    same = [np.full(3, 9), np.array([0, 11, 0]), np.array([1, -1, 2]), np.array([2.0, 5.0, 4.0])]
    apart = [np.array([1, 1, 2, 5]), np.array([2, 2, 2, 2]), np.array([1, 1, 1, -3]), np.array([1.0, 3.0, 2.0, 8.0])]
    return [
        Case("one line", over(one)),
        Case("one trip of three lines, one of them returned", over(same)),
        Case("three trips", over(apart)),
        Case("200 lines of 30 trips", over(_lines(random, 200, 30))),
        Case("90 lines of 80 numbers, some of which are no trip", over(_lines(random, 90, 80))),
    ]


def _pass_by_trip(trip, department, quantity, price):
    trips = np.unique(trip)
    found = np.zeros((len(trips), 41))
    for at in range(len(trips)):
        for row in np.flatnonzero(trip == trips[at]):
            for column in (3 * department[row], 36):
                found[at, column : column + 3] += quantity[row] * np.array([1.0, price[row], 0.0])
                found[at, column + 2] += 1
            found[at, 39] = max(found[at, 39], price[row])
            if quantity[row] < 0:
                found[at, 40] += 1
    return trips, found


EXERCISES["70.one_pass"] = WrittenExercise(
    one_pass,
    draw=_passes,
    mistakes={
        ("(3 * department[row], 36)", "(3 * department[row],)"): "Columns 36 to 38 are for all departments together.",
        ("found[at, 40] += quantity[row] < 0", "found[at, 40] += quantity[row]"): (
            "Column 40 counts lines that were returned; it does not add up what was in them."
        ),
        ("max(found[at, 39], price[row])", "price[row]"): "Column 39 is the highest price of the trip, not the last.",
    },
    variants=(_pass_by_trip,),
    hint="Do two trips of two lines by hand. When does a new row of the matrix begin, and which seven cells does a "
    "line change?",
    explanation="Each line is touched once, in the order of memory. It is so short because the lines are sorted.",
)

# %% parts-exercise [markdown]
"""
### Write 70.parts (10 minutes)

Several workers share the lines. If a trip is cut in two, both workers make a row for it, and both rows are wrong.

`parts(trip, count)` returns at most `count` pairs `(begin, end)`, in order, that together cover all n lines. `trip` (n,) is sorted, and n is at least 1. Aim for cuts at line k · n // count for k = 1 to count - 1. Move a cut that falls inside a trip *back* to that trip's first line. Leave out cuts that would make an empty part.

*Hint:* `np.searchsorted(trip, value)` is the first line of that trip.
"""

# %% answer 70.parts
import numpy as np


def parts(trip, count):
    """Pairs (begin, end) of about equal length that cut no trip in two."""
    ### BEGIN SOLUTION
    ends = [0]
    for k in range(1, count):
        cut = int(np.searchsorted(trip, trip[k * len(trip) // count]))
        if cut > ends[-1]:
            ends.append(cut)
    ends.append(len(trip))
    return [(ends[i], ends[i + 1]) for i in range(len(ends) - 1)]
    ### END SOLUTION


# %% check 70.parts points=3
check("70.parts", parts)


# %% checks
def _cut(code: Any, lengths: list[int], count: int) -> Any:
    trip = np.repeat(10 + np.arange(len(lengths)), lengths)
    return list(code(trip, count))


def _cuttings(random: Random) -> list[Case]:
    return [
        Case("trips of one line, two parts", _cut, [1] * 8, 2),
        Case("a cut inside a trip", _cut, [3, 4, 3], 2),
        Case("one part", _cut, [2, 3], 1),
        Case("one trip, three parts", _cut, [9], 3),
        Case("a long trip in the middle of four parts", _cut, [2, 20, 2], 4),
        Case("30 trips, four parts", _cut, [random.randint(1, 9) for _ in range(30)], 4),
        Case("more parts than trips", _cut, [2, 1], 7),
    ]


def _parts_by_walking(trip, count):
    cuts = {0, len(trip)}
    for k in range(1, count):
        at = k * len(trip) // count
        while at > 0 and trip[at - 1] == trip[at]:
            at -= 1
        cuts.add(at)
    return [*pairwise(sorted(cuts))]


EXERCISES["70.parts"] = WrittenExercise(
    parts,
    draw=_cuttings,
    mistakes={
        ("int(np.searchsorted(trip, trip[k * len(trip) // count]))", "k * len(trip) // count"): (
            "That cut may lie inside a trip: move it back to the trip's first line."
        ),
        ("        if cut > ends[-1]:\n            ends.append(cut)", "        ends.append(cut)"): (
            "Two cuts can fall into one trip, or into the first: that makes an empty part."
        ),
    },
    variants=(_parts_by_walking,),
    hint="Which trip is at the line where you want to cut, and where does that trip begin?",
    explanation="Split by the unit that must stay whole, here the trip, and not by lines.",
)

# %% compile-text [markdown]
"""
numba turns `one_pass` into machine code at its first call, which takes time. The *function per group* is how tutorials do it: pandas calls a Python function for each trip. With the 2 x 2 of compilation and processes, one cause changes at a time. **On these trips, how many times as fast as the function is your compiled pass, its compilation included?**
"""

# %% guess-gain
guess("70.gain", 10, "times as fast")

# %% compile
import numba

compiled = numba.njit(nogil=True)(one_pass)
columns = [lines[name].to_numpy() for name in ("trip", "department", "quantity", "price")]
taken, found = {}, {}


def timed(name, work):
    began = time.perf_counter()
    found[name] = work()
    taken[name] = time.perf_counter() - began


# %% ways
few = lines[lines["trip"] < {"smoke": 1000}.get(profile, 20_000)]  # the function is slow, and counts per trip
timed("function", lambda: pipelines.make_features(few, "function"))
timed("function, 2 processes", lambda: pipelines.make_features(few, "function", 2))
timed("compiled, first call", lambda: compiled(*columns))
timed("compiled", lambda: compiled(*columns))
timed("compiled, 2 processes", lambda: pipelines.make_features(lines, "compiled", 2))
timed("pandas", lambda: pipelines.make_features(lines, "pandas"))

# %% threads
from concurrent.futures import ThreadPoolExecutor


def in_two_threads():
    cuts = parts(columns[0], 2)
    with ThreadPoolExecutor(2) as pool:  # machine code needs no lock of Python, so threads will do
        done = list(pool.map(lambda cut: compiled(*(each[slice(*cut)] for each in columns)), cuts))
    return np.concatenate([one[0] for one in done]), np.concatenate([one[1] for one in done])


timed("compiled, 2 threads", in_two_threads)

# %% equal-text [markdown]
"""
All ways must give the same. "The same" needs a tolerance: they add in another order, and a sum of floats is then off in its last bits. The largest difference, as a share of the largest value of a column, has to stay below 1e-12.
"""

# %% equal
counts = {name: len(each[0]) for name, each in found.items()}
for name, each in found.items():
    against = found["function" if counts[name] == counts["function"] else "pandas"]
    assert pipelines.largest_difference(against, each) <= pipelines.TOLERANCE, name
per_trip_us = pd.Series({name: 1e6 * taken[name] / counts[name] for name in taken})
gains = (per_trip_us["function"] / per_trip_us).rename("times as fast as the function")
reveal("70.gain", gains["compiled, first call"])
labkit.plots.show(pd.DataFrame({"µs per trip, measured": per_trip_us, gains.name: gains}).round(2))

# %% tenfold-text [markdown]
"""
The compilation takes about as long for any number of trips. So the gain depends on the scale: `gain(n) = a n / (c + b n)`, with a for the function and b for the compiled pass (seconds per trip), and c for the compilation. **From how many trips on is the gain ten?**
"""

# %% guess-tenfold
guess("70.tenfold", 100_000, "trips")

# %% tenfold
from labkit_course import apparatus

a, b = (1e-6 * per_trip_us[name] for name in ("function", "compiled"))
c = taken["compiled, first call"] - taken["compiled"]
tenfold = 10 * c / (a - 10 * b)
reveal("70.tenfold", tenfold)
alone = taken["function"] / taken["function, 2 processes"]
figure = apparatus.figure_gain_over_scale(a, b, c, alone, (counts["compiled"], gains["compiled, first call"]))
labkit.plots.show(figure)

# %% why-ten-text [markdown]
"""
### Explain 70.why_ten

In two or three sentences: of a tenfold gain of "parallel pre-processing", how much is parallel? Use the four numbers of the 2 x 2 and the scale at which the gain is ten. Which way would you take on a board with two cores?
"""

# %% explain 70.why_ten points=2
### BEGIN SOLUTION
answer = model_answer("70.why_ten")
### END SOLUTION
explain("70.why_ten", answer)

# %% checks
EXERCISES["70.why_ten"] = Explanation(
    "numbers: the gains of processes alone, of compilation alone, of both, and the trips at which it is 10",
    "why: compilation takes the work per trip away; processes can at most divide it by their number, and pay for "
    "their start and for pipes",
    "trade-off: the compilation is paid once, so for few trips pandas' own aggregations are the better choice",
    model="Two processes alone made the function 1.6 times as fast at 20,000 trips, and the compiled pass was 550 times "
    "as fast once it was compiled, so nearly all of the gain is compilation. Two processes made the compiled pass 200 "
    "times slower, because lines and features go through pipes. Compiling takes 0.8 s, so the gain is 3 here and tenfold "
    "from about 65,000 trips on. On a board I would take the compiled pass in two threads for many trips, and pandas' own "
    "aggregations for few.",
    half="Compilation alone is 550 times as fast and two processes only 1.6 times, so nearly all of the gain is "
    "compilation.",
)

# %% memory-exercise [markdown]
"""
## Memory is the limit

A pipeline whose data double takes about twice the time: one waits longer. If they no longer fit into memory, it ends. The peak of a stage is nearly a straight line in the scale: Python and its libraries, and so many bytes per scale.

### Write 70.breaks (10 minutes)

`breaks(scales, peaks, limit)` predicts from two runs where memory ends a pipeline. `scales` has the two scales. `peaks` has for each stage, in their order, its two peaks (bytes). Return a pair: the smallest scale at which a stage reaches `limit`, and that stage's name. A stage whose peak does not grow never reaches it. If none grows, return `(float("inf"), None)`. If two stages reach it at the same scale, it is the earlier one.
"""


# %% answer 70.breaks
def breaks(scales, peaks, limit):
    """The scale at which memory ends the pipeline, and in which stage."""
    ### BEGIN SOLUTION
    found, dies = float("inf"), None
    for stage, (low, high) in peaks.items():
        per_scale = (high - low) / (scales[1] - scales[0])
        if per_scale > 0:
            at = scales[0] + (limit - low) / per_scale
            if at < found:
                found, dies = at, stage
    return found, dies
    ### END SOLUTION


# %% check 70.breaks points=4
check("70.breaks", breaks)


# %% checks
def _breakings(random: Random) -> list[Case]:
    base, slope = random.randint(150, 300), random.uniform(10, 60)
    grown = {"load": (base + slope, base + 3 * slope), "train": (base + 20, base + 20 + slope)}

    def over(*given: Any) -> Callable[[Any], Any]:
        return lambda code: code(*given)

    return [
        Case("one stage", over((1, 2), {"load": (300.0, 400.0)}, 1000.0)),
        Case("the stage with the larger peak grows more slowly", over((1, 2), {"a": (300, 400), "b": (380, 400)}, 900)),
        Case("which it is depends on the limit", over((1, 2), {"a": (300, 400), "b": (380, 400)}, 390)),
        Case("scales that are not 1 and 2", over((2, 4), grown, 700.0)),
        Case("the larger scale first", over((4, 1), {"load": (500, 260), "train": (300, 300)}, 740)),
        Case("one that shrinks, one that grows", over((1, 3), {"load": (300, 290), "train": (200, 220)}, 500)),
        Case("two at the same scale", over((1, 2), {"load": (100, 200), "train": (100, 200)}, 500)),
        Case("none grows", over((1, 2), {"load": (300, 300)}, 400)),
    ]


def _breaks_by_fit(scales, peaks, limit):
    at = {None: float("inf")}
    for stage, pair in peaks.items():
        slope = (pair[0] - pair[1]) / (scales[0] - scales[1])
        if slope > 0:
            at[stage] = round((limit - (pair[0] - slope * scales[0])) / slope, 9)
    stage = min(at, key=at.__getitem__)  # the first one of equal scales
    return at[stage], stage


EXERCISES["70.breaks"] = WrittenExercise(
    breaks,
    draw=_breakings,
    mistakes={
        ("at = scales[0] + (limit - low) / per_scale", "at = limit / per_scale"): (
            "At scale 0 Python and its libraries are there already: the line does not begin at 0."
        ),
        ("if at < found:", "if high > (peaks[dies][1] if dies else 0):"): (
            "The stage with the largest peak is not always first at the limit: one that grows faster overtakes it."
        ),
        ("per_scale = (high - low) / (scales[1] - scales[0])", "per_scale = high - low"): (
            "That is the growth from one run to the other. How many bytes is that per unit of scale?"
        ),
    },
    variants=(_breaks_by_fit,),
    hint="Draw both stages as lines through two points each. Where does each cross the limit, and which comes first?",
    explanation="Two points and a line, as for any resource that grows with the data.",
)

# %% runs-text [markdown]
"""
Now the pipeline *segments* runs as a job: it groups customers by their purchases, at two scales, without a limit. `labkit pipeline run` records each stage as your meter did. The limit comes afterwards: 400 MiB, a tenth of a Jetson Nano's memory (300 MiB at the size `smoke`).
"""

# %% runs
import subprocess
import sys
from pathlib import Path

runs = Path(runs_dir) / "notebooks" / f"70-{time.time_ns()}"


def start(scale, *flags):
    command = [sys.executable, "-m", "labkit", "pipeline", "run", "segments", "--scale", f"{scale:g}", *flags]
    return subprocess.Popen([*command, "--runs-dir", str(runs)], stdout=-3, stderr=-1, text=True)


# %% fitted
scales, limit = ((0.25, 1), "300MiB") if profile == "smoke" else ((2, 4), "400MiB")
for job in [start(each, "--seed", str(seed)) for each in scales]:  # both at once: their times do not matter here
    assert job.communicate() and job.returncode == 0, "the run failed: labkit runs list"
done = sorted(pipelines.pipeline_runs(runs), key=lambda run: run.scale)
peaks = {name: tuple(run.stages["peak_bytes"][row] for run in done) for row, name in enumerate(done[0].seconds)}
shown = pd.DataFrame(peaks, [f"MiB at scale {each:g}, measured" for each in scales]).T / 2**20
labkit.plots.show(shown.round(0))

# %% guess-breaks-text [markdown]
"""
These are the peaks of both runs. **At which scale does the limit end this pipeline?**
"""

# %% guess-breaks
guess("70.breaks", 5, "scale")

# %% breaks
breaks_at, dies_in = breaks(scales, peaks, pipelines.memory_of(f"memory={limit}"))
reveal("70.breaks", breaks_at)
print(f"predicted: {limit} end it at scale {breaks_at:.2f}, in the stage {dies_in!r}")

# %% enforced-text [markdown]
"""
Only a run shows what a prediction is worth. The budget is enforced 30 % above the predicted scale. Read the message: which stage, which scale, and what does it advise? (macOS and Windows cannot enforce a limit of memory: there the run just goes on.)
"""

# %% enforced
job = start(round(1.3 * breaks_at, 1), "--budget", f"memory={limit}", "--seed", str(seed))
message = job.communicate()[1].strip().splitlines()[-1:]
ended = pipelines.pipeline_runs(runs)[-1]
print(f"{ended.record.status} in its stage {ended.unfinished!r}, at scale {ended.scale:g}:\n", *message)

# %% boards-text [markdown]
"""
The same line says how large the data of a whole board may be, and how long the pipeline would take there if it were as fast as this machine. Such a board is *predicted*. Its system and other programs need memory, too.
"""

# %% boards
minutes = sum(done[-1].seconds.values()) / done[-1].scale / 60  # per scale
rows = []
for board in pipelines.EDGE:
    most, stage = breaks(scales, peaks, pipelines.memory_of(board))
    rows.append({"board": board, "breaks at scale": most, "in stage": stage, "minutes there": most * minutes})
boards = pd.DataFrame(rows).round(1)
labkit.plots.show(boards)

# %% merit-exercise [markdown]
"""
## One number

### Write 70.merit (5 minutes)

TPCx-AI sums a system up in one number; ours is `merit(scale, seconds)`, the *pipelines per minute*:

`60 · S · N / (load · prepare · train · serve)^¼`

`seconds` has for each of N pipelines a dict with these four times. Each time in the formula is the *geometric* mean over the pipelines. It follows the formula of the kit's driver, with other use cases: it is **not comparable with TPC results**.
"""

# %% answer 70.merit
from statistics import geometric_mean


def merit(scale, seconds):
    """Pipelines per minute."""
    ### BEGIN SOLUTION
    product = 1.0
    for part in ("load", "prepare", "train", "serve"):
        product *= geometric_mean(each[part] for each in seconds)
    return 60 * scale * len(seconds) / product**0.25
    ### END SOLUTION


# %% check 70.merit points=2
check("70.merit", merit)


# %% checks
def _figures(random: Random) -> list[Case]:
    one = {"load": 1.0, "prepare": 2.0, "train": 4.0, "serve": 8.0}
    drawn = [{part: random.uniform(0.01, 9) for part in one} for _ in range(4)]
    return [
        Case("one pipeline", lambda code: code(1, [dict(one)])),
        Case("a larger scale", lambda code: code(10, [dict(one)])),
        Case("four pipelines", lambda code: code(2, [dict(each) for each in drawn])),
    ]


def _merit_by_logarithms(scale, seconds):
    logs = [np.mean([np.log(each[part]) for each in seconds]) for part in ("load", "prepare", "train", "serve")]
    return 60 * scale * len(seconds) * np.exp(-sum(logs) / 4)


EXERCISES["70.merit"] = WrittenExercise(
    merit,
    draw=_figures,
    mistakes={
        ("geometric_mean(each[part] for each in seconds)", "sum(each[part] for each in seconds) / len(seconds)"): (
            "That is the arithmetic mean: one slow pipeline would decide."
        ),
        ("60 * scale * len(seconds)", "60 * scale"): "N pipelines were run: they all count.",
        ("product**0.25", "product"): "The fourth root of the product is the geometric mean of the four times.",
    },
    variants=(_merit_by_logarithms,),
    hint="First the mean of one of the times over all pipelines, then the product of the four, then its fourth root.",
    explanation="A geometric mean rewards each stage alike, however little time it takes.",
)

# %% merit-text [markdown]
"""
Here the pipeline of trips, once with its features by the function, and once with the compiled pass. Compare the number with the time from end to end: is the figure fair?
"""

# %% merit
seconds = dict(zip(table["stage"], table["seconds, measured"], strict=True))
merits, whole = {}, {}
for way in ("function", "pandas", "compiled"):
    prepare = seconds["clean"] + per_trip_us[way] * len(trips) / 1e6
    parts_s = {"load": seconds["load"], "prepare": prepare, "train": seconds["train"], "serve": seconds["serve"]}
    merits[way], whole[way] = merit(scale, [parts_s]), sum(parts_s.values())
shown = pd.DataFrame({"pipelines per minute": merits, "seconds end to end": whole})
labkit.plots.show(shown.round(3))
gained = merits["compiled"] / merits["function"], whole["function"] / whole["compiled"]
print(f"the figure: {gained[0]:.1f} times; time from end to end: {gained[1]:.1f} times")

# %% watts-text [markdown]
"""
The paper's interest is power. The figure per watt needs watts: from a meter of this machine if it has one, else from the catalogue, as if the board were as fast as this machine. The first would be *measured*, the second is *predicted*, and too good for a board.
"""

# %% watts
account = labkit.tta.energy_account(done[-1].folder)  # of the larger run of segments
has_meter = account.average_power_w is not None
watts = {f"this machine ({account.kind if has_meter else 'no meter'})": account.average_power_w}
for board in ("jetson-nano", "jetson-orin-nano", "jetson-agx-orin"):
    watts[f"{board} (predicted)"] = labkit.hardware.get_tier(board).power_w
per_watt = pd.DataFrame({"W": watts}, dtype=float)
per_watt["pipelines per minute and W"] = merits["compiled"] / per_watt["W"]
labkit.plots.show(per_watt.round(2))
print(account.note or account.source)

# %% loop-exercise [markdown]
"""
## Serving

A server is asked by clients who do not know of each other. They send when they want, and not when the last answer is there. A *closed* loop, which waits for each answer before it sends again, slows down with a slow server: it asks less when the server stalls, and so hides the stall.

### Write 70.open_loop (15 minutes)

`async def open_loop(send, planned)` sends request number k at its planned time `planned[k]` (s, from the call on). `await send(k)` sends it and returns when it is answered. Return for each request a pair: its latency **from its planned time to its answer**, and how late it was sent. The clock is `asyncio.get_running_loop().time()`. No request waits for the answer of another.

*Hint:* one coroutine per request, which sleeps until its time, and `asyncio.gather`.
"""

# %% answer 70.open_loop
import asyncio


async def open_loop(send, planned):
    """Latency and lateness of each request, in seconds."""
    ### BEGIN SOLUTION
    clock = asyncio.get_running_loop().time
    began = clock()

    async def one(number, at):
        await asyncio.sleep(began + at - clock())
        late = clock() - began - at
        await send(number)
        return clock() - began - at, late

    return await asyncio.gather(*(one(number, at) for number, at in enumerate(planned)))
    ### END SOLUTION


# %% check 70.open_loop points=4
check("70.open_loop", open_loop)


# %% checks
class SimulatedTime(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next moment at which something is to happen."""

    now = 0.0

    def time(self) -> float:
        return self.now

    def call_exception_handler(self, context: Any) -> None:
        """What a wrong answer leaves undone is not printed."""

    def _run_once(self) -> None:
        if not self._ready and not self._scheduled:
            raise RuntimeError("it waits, and nothing is left that could wake it")
        if not self._ready:
            self.now = max(self.now, self._scheduled[0].when())
        super()._run_once()


def simulated(coroutine: Any) -> Any:
    def run() -> Any:
        with asyncio.Runner(loop_factory=SimulatedTime) as runner:
            return runner.run(coroutine)

    with ThreadPoolExecutor(1) as thread:  # a notebook's own loop runs in this one
        return thread.submit(run).result()


def _loaded(code: Any, planned: list[float], takes: Callable[[int], float], busy: float = 0.0, one: bool = True) -> Any:
    """A server that answers one request at a time, or all at once; `busy` blocks the generator at its third request."""

    async def main() -> Any:
        lock, loop = asyncio.Lock(), asyncio.get_running_loop()

        async def send(number: int) -> None:
            if number == 2:
                loop.now += busy
            async with lock if one else asyncio.Semaphore():
                await asyncio.sleep(takes(number))

        return await code(send, list(planned))

    return np.round(simulated(main()), 6).tolist()


async def _loop_of_tasks(send, planned):
    loop, tasks = asyncio.get_running_loop(), []
    zero = loop.time()

    async def run(number, at):
        late = loop.time() - zero - at
        await send(number)
        return loop.time() - zero - at, late

    for number, at in enumerate(planned):
        await asyncio.sleep(max(0, zero + at - loop.time()))
        tasks.append(asyncio.ensure_future(run(number, at)))
        await asyncio.sleep(0)
    return [await task for task in tasks]


EVEN = [0.05 * number for number in range(12)]
EXERCISES["70.open_loop"] = WrittenExercise(
    open_loop,
    Case("a quick server", _loaded, EVEN, lambda number: 0.01),
    Case("a server that stands still for a second", _loaded, EVEN, lambda number: 1.0 if number == 3 else 0.01),
    Case("one that is slower than its requests", _loaded, EVEN, lambda number: 0.08),
    Case("answers that overtake", _loaded, [0.0, 0.1, 0.2], lambda number: 0.3 - 0.1 * number, one=False),
    Case("a generator that is busy for 0.2 s itself", _loaded, EVEN, lambda number: 0.001, busy=0.2),
    mistakes={
        ("return clock() - began - at, late", "return clock() - began - at - late, late"): (
            "That counts from the moment of sending. A user's wait begins when the request was planned."
        ),
        (
            "await asyncio.gather(*(one(number, at) for number, at in enumerate(planned)))",
            "[await one(number, max(at, clock() - began)) for number, at in enumerate(planned)]",
        ): "That is a closed loop: a request waits for the answer before it, and then counts from there.",
    },
    variants=(_loop_of_tasks,),
    hint="Until when does each coroutine sleep? From which moment do its latency and its lateness count?",
    explanation="Counted from the plan, a standstill is in the latency of each request that fell into it.",
)

# %% batches-exercise [markdown]
"""
### Write 70.batches (15 minutes)

A prediction for one row takes nearly as long as one for 64: most of it is the call. *Micro-batches* let requests wait for each other for a moment.

The argument `predict` of `MicroBatches(predict, wait_s)` is the model's function: it takes a matrix (B, F) and returns B predictions. The class keeps it as `self.answer`, because its own method `async def predict(row)` returns the prediction for one row (F,). The first row that comes waits `wait_s`. All rows that came by then are predicted in **one** call, in the order in which they came. The next row after that begins a new batch.

*Hint:* `loop.create_future()` for each row, `loop.call_later(wait_s, self.flush)` for the first of a batch, and `future.set_result(value)`.
"""

# %% answer 70.batches
import asyncio

import numpy as np


class MicroBatches:
    """Collects rows for `wait_s` seconds, and predicts them at once."""

    def __init__(self, predict, wait_s=0.004):
        self.answer, self.wait_s, self.waiting = predict, wait_s, []

    async def predict(self, row):
        ### BEGIN SOLUTION
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self.waiting.append((row, future))
        if len(self.waiting) == 1:
            loop.call_later(self.wait_s, self.flush)
        return await future

    def flush(self):
        waiting, self.waiting = self.waiting, []
        answers = self.answer(np.stack([row for row, _ in waiting]))
        for (_, future), answer in zip(waiting, answers, strict=True):
            future.set_result(answer)
        ### END SOLUTION


# %% check 70.batches points=4
check("70.batches", MicroBatches)


# %% checks
def _batched(code: Any, times: list[float], wait_s: float = 0.004) -> Any:
    """What each request gets and when, and how large the batches were."""
    sizes = []

    def predict(rows: np.ndarray) -> np.ndarray:
        sizes.append(len(rows))
        return np.asarray(rows)[:, 0] * 10 + np.asarray(rows)[:, 1]

    async def main() -> Any:
        batches, loop = code(predict, wait_s), asyncio.get_running_loop()

        async def request(number: int, at: float) -> tuple[float, float]:
            await asyncio.sleep(at)
            answer = await asyncio.wait_for(batches.predict(np.array([number, 0.5])), 60)
            return float(answer), round(loop.time(), 6)

        return await asyncio.gather(*(request(number, at) for number, at in enumerate(times)))

    return simulated(main()), sizes


class _BatchesByTask:
    def __init__(self, predict, wait_s=0.004):
        self.predict_all, self.wait_s, self.rows, self.futures = predict, wait_s, [], []

    async def predict(self, row):
        future = asyncio.get_running_loop().create_future()
        self.rows.append(row)
        self.futures.append(future)
        if len(self.rows) == 1:
            self.task = asyncio.ensure_future(self.run())
        return await future

    async def run(self):
        await asyncio.sleep(self.wait_s)
        rows, futures, self.rows, self.futures = self.rows, self.futures, [], []
        for future, value in zip(futures, self.predict_all(np.array(rows)), strict=True):
            future.set_result(value)


EXERCISES["70.batches"] = WrittenExercise(
    MicroBatches,
    Case("one request", _batched, [0.0]),
    Case("three requests at once", _batched, [0.0, 0.0, 0.0]),
    Case("requests 1 ms apart", _batched, [0.001 * number for number in range(12)]),
    Case("two batches with a gap", _batched, [0.0, 0.002, 0.1, 0.103]),
    Case("a longer wait", _batched, [0.0, 0.01, 0.049, 0.051], 0.05),
    mistakes={
        ("        if len(self.waiting) == 1:\n    ", "        if True:\n    "): (
            "Each row starts a timer here. The first to ring takes the rows of the others, and theirs find none."
        ),
        ("waiting, self.waiting = self.waiting, []", "waiting = self.waiting"): (
            "The rows of a batch that was answered must go: the next batch is a new list."
        ),
        ("loop.call_later(self.wait_s, self.flush)", "self.flush()"): (
            "That answers the first row at once, alone: it has to wait for others."
        ),
    },
    variants=(_BatchesByTask,),
    hint="Who starts the timer, what does the timer do when it rings, and what is in the list after that?",
    explanation="Some milliseconds of waiting for each request buy a call that many requests share.",
)

# %% serve-text [markdown]
"""
tornado serves your model from another process of this machine, alone under `/alone` and with your `MicroBatches` under `/batched`. Requests come at random times, planned in advance (Poisson). **How many times as many requests per second does the server answer with micro-batches, at most?**
"""

# %% guess-batches
guess("70.batch_gain", 2, "times")

# %% rates-text [markdown]
"""
`pipelines.open_loop` sends real requests as your `open_loop` does. The generator shares this machine with the server, so its own lateness is a column: it is in the latencies. On a busy machine it is large, and then the latencies are not the server's.
"""

# %% serve
rates = {"smoke": (100, 1500), "standard": (100, 400, 1600, 6400), "full": (100, 200, 400, 800, 1600, 3200, 6400)}[
    profile
]
lasts = {"smoke": 0.2, "standard": 3, "full": 25}[profile]  # a 99th percentile needs hundreds of requests
ways, loads = {"alone": pipelines.OneByOne, "batched": MicroBatches}, []
with pipelines.serving(model.predict, ways) as port:
    for way in ways:
        for rate in rates:
            load = pipelines.open_loop(port, matrix[first:], rate, lasts, way=way, late_s=np.inf)
            loads.append({"way": way} | load.row())
loads = pd.DataFrame(loads)
labkit.plots.show(loads.round(1))

# %% knee
most = loads.groupby("way")["answered_per_s"].max()
batch_gain = most["batched"] / most["alone"]
reveal("70.batch_gain", batch_gain)
labkit.plots.show(apparatus.figure_knee(loads))

# %% why-batches-text [markdown]
"""
### Explain 70.why_batches

In two or three sentences: what do micro-batches gain and what do they cost? Use the most that each way answers, and the median latency at the lowest rate and beyond the knee. Which way would you take for a till that asks ten times per second, and which for a thousand cameras?
"""

# %% explain 70.why_batches points=2
### BEGIN SOLUTION
answer = model_answer("70.why_batches")
### END SOLUTION
explain("70.why_batches", answer)

# %% checks
EXERCISES["70.why_batches"] = Explanation(
    "numbers: answers per second at most, and p50 at the lowest rate and beyond the knee, of both ways",
    "why: a prediction's cost is mostly per call, so a batch shares it; beyond the knee the queue only grows",
    "trade-off: the milliseconds of waiting at a low rate against the rate that is answered at all",
    model="Micro-batches answer about 3,500 requests per second instead of 1,600, 2.2 times as many, because a call for "
    "64 rows takes hardly longer than one for a single row. At 100 per second they cost 4.6 ms: the median is 7.0 ms "
    "instead of 2.4. At 1,600 per second the server alone has a queue that grows, and its median is 143 ms, where batches "
    "answer in 6.6. A till with ten requests per second needs no batches; for a thousand cameras I would take them.",
    half="Micro-batches answer 3,500 requests per second instead of 1,600, because a call for many rows takes hardly "
    "longer than one for one row.",
)

# %% prose-claim-F1 [markdown]
"""
## Judge

**F1.** "The available memory is the main limitation to performance and scaling up", says the abstract. Say that the claim holds if memory ends the pipeline at a scale whose run would take less than an hour on this machine: then time was no limit yet. Take the smallest board, and mind that it is slower than this machine.
"""

# %% claim F1 points=1
nano = boards.set_index("board").loc["jetson-nano-like"]
said = f"4 GiB end segments at scale {nano['breaks at scale']:.0f} in {nano['in stage']!r}, "
said += f"where a run takes {nano['minutes there']:.1f} min"
### BEGIN SOLUTION
verdict = "holds here" if nano["minutes there"] < 60 else "does not hold here"
answer = verdict, "extrapolated by a line that an enforced 400 MiB confirmed; one pipeline, and the board is slower"
### END SOLUTION
claim("F1", said, answer, how="predicted")

# %% prose-claim-F2 [markdown]
"""
**F2.** "Parallel pre-processing" gained "close to an order of magnitude" on one use case. Say that the claim holds here if two processes alone make the function at least 1.5 times as fast. Most of two is what parallelism can give; the rest of a tenfold gain has another cause.
"""

# %% claim F2 points=1
said = f"2 processes alone: {alone:.2f} times, compilation alone: {gains['compiled']:.0f} times, "
said += f"with compiling ten times from {tenfold:,.0f} trips on"
### BEGIN SOLUTION
verdict = "holds here" if alone >= 1.5 else "does not hold here"
answer = verdict, "the tenfold gain is compilation; two processes on two cores, few trips, their start included"
### END SOLUTION
claim("F2", said, answer)

# %% prose-claim-F3 [markdown]
"""
**F3.** Some boards "show promise" in power efficiency against a desktop. That needs watts and seconds of both machines. If one of them is only predicted, the claim cannot be tested here.
"""

# %% claim F3 points=1
best = per_watt["pipelines per minute and W"].iloc[1:].max()
said = f"a board of the catalogue as fast as this machine: up to {best:.3g} pipelines per minute and W"
### BEGIN SOLUTION
answer = "cannot be tested here", "a board's watts are from a catalogue and its seconds would be this machine's"
### END SOLUTION
claim("F3", said, answer, how="predicted")

# %% prose-claim-F4 [markdown]
"""
**F4.** Some boards show promise in "reduction in data movement". Say that the claim holds if a device that serves ships at least ten times fewer bytes than one that ships raw data. Mention what shipping features gives.
"""

# %% claim F4 points=1
of_segments = pipelines.shipped(done[-1]).set_index("after")["reduction"]
said = f"predictions {fewer['predictions']:.0f} and {of_segments['serve']:.0f} times smaller than raw data "
said += f"(trips, segments), features {fewer['features']:.1f} and {of_segments['features']:.0f} times"
### BEGIN SOLUTION
verdict = "holds here" if min(fewer["predictions"], of_segments["serve"]) >= 10 else "does not hold here"
answer = (
    verdict,
    "computed from rows and types; it depends on what is shipped, since features can be as large as raw data",
)
### END SOLUTION
claim("F4", said, answer, how="predicted")

# %% prose-claim-F5 [markdown]
"""
**F5.** TPCx-AI "is designed for server settings". The kit itself needs a registration, and nothing of it is here. Can these pipelines test a statement about another benchmark?
"""

# %% claim F5 points=1
said = "none of the kit's 10 use cases was run: these 5 pipelines are others"
### BEGIN SOLUTION
answer = "cannot be tested here", "it is a statement about a kit that was not run, not about these pipelines"
### END SOLUTION
claim("F5", said, answer, how="predicted")

# %% scores-text [markdown]
"""
How good were your guesses? The cell after the scores keeps the numbers of this notebook for a program to read, each with bounds that hold on any machine.
"""

# %% scores
from labkit_course import results, score_notebook

score_notebook()
quick = profile == "smoke"

# %% results tags=["results"]
results(
    accuracy=(np.mean(predicted == kinds[first:]), 0.6, 1.0),
    features_fewer=(fewer["features"], 0.4, 1.2),
    predictions_fewer=(fewer["predictions"], 80, 200),
    compiled_gain=(gains["compiled"], 3, 20_000),
    pandas_gain=(gains["pandas"], 3, 2000),
    breaks_at=(breaks_at, 0, 12),
    died=(float(ended.unfinished is not None) if sys.platform == "linux" else None, 1, 1),
    batch_gain=(None if quick else batch_gain, 1.0, 30),
)

# %% assistant features_fewer above=1 [markdown]
"""
Features are a summary. Sending them takes fewer bytes than sending the raw data that they are made of.
"""

# %% recap [markdown]
"""
## Recap

- Measure a pipeline by its stages: time, peak memory, bytes made. Different pipelines are limited by different stages.
- A device saves traffic if it ships predictions. Features can be as large as the raw data.
- With two causes at once, you know the effect of neither: change one at a time. Here the tenfold gain is compilation, from some scale on.
- Peaks are lines in the scale. Two runs say where memory ends a pipeline, and in which stage.
- One number for a system hides what it is made of. Look at the formula before you improve it.
- Count latency from the planned time, in an open loop, with the generator's own lateness next to it.

**Next:** [A learned index, counted](71_learned_index.ipynb). Measure the stages of a training of yours, too: `with run.stage("load"):`.
"""

# %% cell-00 [markdown]
"""
# What utilisation means

After this notebook you will be able to

- **write** what a GPU's counters count: utilisation, SM activity, occupancy;
- **measure** how much work a core does while its utilisation is 100 %;
- **explain** by Little's law how many blocks of a kernel are on a GPU at a time;
- **choose** the counter that answers a scheduler's question.

**Time:** 75 minutes with four functions and three explanations; its halves, a core and a GPU, stand alone. The machine computes for about 30 seconds on 2 CPU cores. No GPU is needed, because the GPU's half works on recorded counters.

**Prerequisites:** [Know your machine](01_know_your_machine.ipynb).
"""

# %% checks
from typing import Any

import numpy as np
import pandas as pd

from labkit_course.exercise import Case, Explanation, WrittenExercise

MODULE = "counters"
EXERCISES = {}

# %% cell-02 tags=["parameters"]
profile = "standard"  # smoke, standard or full: how long each load is watched

# %% cell-03 [markdown]
"""
## A core at 100 %

Every monitor shows the utilisation of the processor. It counts time. A core is *busy* while the operating system has given it to a program, and *idle* otherwise.

Four loads will each have one core to themselves:

- **spin** asks for the time, again and again;
- **chase** reads a number that says where to read the next one, all over 64 MiB, so each read must wait for the one before it;
- **copy** copies an array of 128 MiB;
- **product** multiplies matrices, which is the work that a processor does best.

**What will the utilisation of the core be during the chase? And how much of the bandwidth of one core will the chase use?** Each number is 8 bytes long.
"""

# %% cell-04
import numpy as np
import pandas as pd
import torch

import labkit
from labkit_course import apparatus, check, claim, explain, guess, model_answer, paired_times, reveal

guess("30.chase_cpu", 20.0, "%")
guess("30.chase_share", 50.0, "% of the bandwidth")

# %% ex-circle [markdown]
"""
### Exercise 30.circle

The chase needs an array to follow. Write `circle(count, seed)`, which returns `count` integers (int64): `places[at]` says where to read after `at`.

1. A walk that starts at any place and follows the array visits *all* places before it returns to the first one.
2. The next place is usually far from the last one: more than 8 places away for four in five.
3. The order follows from the seed (`numpy.random.default_rng(seed)`): another seed gives another order.

*Hint:* a random permutation used as it is breaks up into several circles. Draw an order of all places first. Then let each place of that order name the place after it.
"""


# %% answer 30.circle
import numpy as np


def circle(count: int, seed: int = 0) -> np.ndarray:
    """Where to read next, from each of `count` places: one circle through all, in a random order."""
    ### BEGIN SOLUTION
    order = np.random.default_rng(seed).permutation(count)
    places = np.empty(count, np.int64)
    places[order] = np.roll(order, -1)  # after each place of the order comes the next
    return places
    ### END SOLUTION


# %% check 30.circle points=3
check("30.circle", circle)


# %% checks
def _walk(places: Any, limit: int = 5000) -> dict[str, bool]:
    """Whether one reads every place before it is back, and seldom a neighbour of the last."""
    places = [int(place) for place in places]
    at, seen, jumps = 0, set(), []
    while at not in seen and len(seen) < limit:
        seen.add(at)
        jumps.append(abs(places[at] - at))
        at = places[at]
    apart = sum(jump > 8 for jump in jumps) / len(jumps)
    return {"reads every place": len(seen) == len(places), "jumps far": bool(apart > 0.8)}


def _circle_by_steps(count: int, seed: int = 0) -> np.ndarray:
    order = np.random.default_rng(seed).permutation(count)
    places = np.zeros(count, dtype=np.int64)
    places[order[:-1]], places[order[-1]] = order[1:], order[0]
    return places


EXERCISES["30.circle"] = WrittenExercise(
    circle,
    Case("1,000 places, walked from the first", lambda code: _walk(code(1000))),
    Case("how many places there are of 500", lambda code: len(code(500))),
    Case("another seed", lambda code: _walk(code(1000, 5))),
    Case("another seed, compared", lambda code: bool(np.any(np.asarray(code(300, 1)) != np.asarray(code(300, 2))))),
    Case("the same seed twice", lambda code: bool(np.all(np.asarray(code(300, 1)) == np.asarray(code(300, 1))))),
    Case("the type of a number", lambda code: str(np.asarray(code(50)).dtype)),
    variants=(_circle_by_steps,),
    mistakes={
        ("return places", "return order"): (
            "A random permutation breaks up into several circles, and some of them fit into a cache. Draw an *order* of "
            "all places, and let each place name the one that comes after it in this order."
        ),
        ("np.random.default_rng(seed).permutation(count)", "np.arange(count)"): (
            "This reads one neighbour after another, and the processor fetches neighbours before it is asked. Draw the "
            "order."
        ),
        ("(seed)", "()"): "The same seed has to give the same circle.",
    },
    hint="Follow your array by hand for five places: do you come through all five before you are back?",
    explanation="Every read depends on the one before it, and hardly any is close to it.",
)

# %% cell-07 [markdown]
"""
The first cell below measures the best that one core of this machine does, in arithmetic and in bytes. The second one runs the four loads, and the chase follows your circle. `paired_times` runs them in turns and drops what other programs disturbed. `apparatus.watch` then reads the counter that every run of labkit records, `cpu_percent`.
"""

# %% cell-08
torch.set_num_threads(1)
cpu = torch.device("cpu")
peak_gflops = labkit.hardware.matmul_gflops(cpu, torch.float32)
best_gb_per_s = labkit.hardware.copy_gb_per_s(cpu, 2**28)
print(f"one core: {peak_gflops:,.0f} GFLOP/s, {best_gb_per_s:.1f} GB/s, measured")

# %% cell-10
rounds, seconds = {"smoke": (1, 0.1), "standard": (5, 2.0), "full": (15, 10.0)}[profile]
loads = apparatus.loads(circle(2**23))
times = paired_times({load.name: load.work for load in loads}, rounds)
busy = apparatus.watch(loads, times, peak_gflops, best_gb_per_s, seconds)
by_load = busy.set_index("load")
units = {"what": "what it does", "cpu_percent": "CPU (%)", "gflops": "GFLOP/s", "gb_per_s": "GB/s"}
labkit.plots.show(by_load[list(units)].rename(columns=units))
reveal("30.chase_cpu", by_load.loc["chase", "cpu_percent"])
reveal("30.chase_share", by_load.loc["chase", "share_of_bandwidth"])

# %% cell-13 [markdown]
"""
The first bar of each load below is its utilisation. The other two show what the core got done.
"""

# %% cell-14
labkit.plots.show(apparatus.figure_busy(busy))

# %% ex-30-why-busy [markdown]
"""
### Explain 30.why_busy

Write two sentences: why is the utilisation of a core that waits for memory near 100 %, and which counter would have shown that the core does little?
"""

# %% explain 30.why_busy points=2 grade_id="answer-30-why-busy"
### BEGIN SOLUTION
answer = model_answer("30.why_busy")
### END SOLUTION
explain("30.why_busy", answer)

# %% checks
EXERCISES["30.why_busy"] = Explanation(
    "numbers: the utilisation of the chase, and its share of the bytes (or of the arithmetic) here.",
    "why: the counter counts time in which the program had the core, and waiting for memory is such time.",
    "trade-off: what one would have to watch instead, or as well, and what that costs.",
    model="The chase kept its core 100 % busy and used 0.3 % of the bytes that one core can move, the copy used more than "
    "90 % of them at the same utilisation: each read of the chase waits for the one before it, and the operating system "
    "counts a core that waits for memory as busy. "
    "Bytes moved (or instructions, from hardware counters) would show it, but the program has to count them itself, "
    "or someone needs the right to read those counters.",
    half="The chase was 100 % busy and moved 0.3 % of the bytes, because time that a program waits for memory counts as busy.",
)

# %% cell-15 [markdown]
"""
A lookup of embedding rows lies between a chase and a copy. Its addresses are known beforehand, so many reads can be under way at once, but each goes somewhere else.

## A GPU at 100 %

A kernel runs as many *blocks* of threads. Each block runs on one of the GPU's multiprocessors (*SMs*), in *warps* of 32 threads. Four counters say how busy a GPU is:

- **GPU utilisation** (`nvidia-smi`): the share of time in which at least one kernel ran, on any part of the GPU;
- **GRACT** (field 1001 of NVIDIA's monitor DCGM): the share of time in which the engine of graphics and compute had work;
- **SM activity**: the share of time in which an SM had at least one warp, averaged over all SMs;
- **SM occupancy**: the warps that were there, as a share of the warps that all SMs can hold.

You will write three of them.

### Exercise 30.utilisation

Write `utilisation(runs, window)`. `runs` are (start, end) of kernels, in any order, and `window` is (first, last). Return the time within the window in which at least one kernel ran, in % of the window. Kernels may overlap, lie inside each other, or reach beyond the window.

*Hint:* go through the runs by their start, and remember up to when you have counted.
"""


# %% answer 30.utilisation
def utilisation(runs: list[tuple], window: tuple) -> float:
    """Share of the window (%) in which at least one of the runs (start, end) was under way."""
    ### BEGIN SOLUTION
    first, last = window
    busy, until = 0.0, first
    for start, end in sorted(runs):
        start, end = max(start, until), min(end, last)
        busy += max(0.0, end - start)
        until = max(until, end)
    return 100 * busy / (last - first)
    ### END SOLUTION


# %% check 30.utilisation points=4
check("30.utilisation", utilisation)


# %% checks
def _merged_first(runs: list[tuple], window: tuple) -> float:
    joined = []
    for start, end in sorted(runs):
        if not joined or start > joined[-1][1]:
            joined.append([start, end])
        else:
            joined[-1][1] = max(joined[-1][1], end)
    inside = [(max(start, window[0]), min(end, window[1])) for start, end in joined]
    return sum(end - start for start, end in inside if end > start) / (window[1] - window[0]) * 100


EXERCISES["30.utilisation"] = WrittenExercise(
    utilisation,
    Case("two kernels, one after the other", lambda code: code([(1, 3), (5, 6)], (0, 10))),
    Case("two that overlap", lambda code: code([(1, 5), (3, 7)], (0, 10))),
    Case("a short one inside a long one, and one after", lambda code: code([(0, 8), (1, 2), (7, 9)], (0, 10))),
    Case("one that begins before the window, one that ends after", lambda code: code([(-4, 2), (9, 15)], (0, 10))),
    Case("none", lambda code: code([], (0, 10))),
    Case("out of order, in a window from 100 to 104", lambda code: code([(103, 104), (100, 101)], (100, 104))),
    Case("one outside the window", lambda code: code([(20, 30), (2, 3)], (0, 10))),
    Case("parts of a microsecond", lambda code: code([(0.25, 0.5), (0.4, 0.45), (0.7, 1.5)], (0.3, 0.8))),
    variants=(_merged_first,),
    mistakes={
        ("max(start, until)", "max(start, first)"): (
            "Time in which two kernels ran counts once: join what overlaps before you add."
        ),
        lambda runs, window: utilisation(runs, (-1e6, 1e6)) * 2e6 / (window[1] - window[0]): (
            "What ran before or after the window does not count."
        ),
        ("100 * ", ""): "In per cent.",
    },
    hint="Draw the runs of this case on a line. Which stretches have you counted twice, or not at all?",
    explanation="That is what `nvidia-smi` counts: whether anything ran.",
)

# %% ex-counters [markdown]
"""
### Exercise 30.counters

Write `counters(blocks, sms, window, warps_per_sm)`. Each block is (sm, start, end, warps), with `sm` from 0 to `sms` − 1. Return a dict of three numbers in %:

1. `"utilisation"` by your function, of all blocks;
2. `"sm_active"`: the share of the window in which an SM had a block, averaged over *all* SMs;
3. `"occupancy"`: the warps that were there, averaged over the window, as a share of the warps that all SMs can hold (64 each on an A100).

*Hint:* your `utilisation` does most of the first two. For the third, only the time inside the window counts.
"""


# %% answer 30.counters
def counters(blocks: list[tuple], sms: int, window: tuple, warps_per_sm: int = 64) -> dict[str, float]:
    """Utilisation, SM activity and occupancy (%) of a window, from blocks (sm, start, end, warps)."""
    ### BEGIN SOLUTION
    first, last = window
    own, held = [[] for _ in range(sms)], 0.0
    for sm, start, end, warps in blocks:
        own[sm].append((start, end))
        held += warps * max(0.0, min(end, last) - max(start, first))
    return {
        "utilisation": utilisation([run for runs in own for run in runs], window),
        "sm_active": sum(utilisation(runs, window) for runs in own) / sms,
        "occupancy": 100 * held / (sms * warps_per_sm * (last - first)),
    }
    ### END SOLUTION


# %% check 30.counters points=5
check("30.counters", counters)

# %% checks
TWO_ON_ONE = [(0, 0, 10, 4), (0, 2, 8, 8), (1, 5, 10, 2)]
SHORT = [(number % 4, 0.5 * number, 0.5 * number + 0.75, 1) for number in range(24)]  # beyond the window's end


def _counters_by_list(blocks: list[tuple], sms: int, window: tuple, warps_per_sm: int = 64) -> dict[str, float]:
    length = window[1] - window[0]
    active = [utilisation([(b[1], b[2]) for b in blocks if b[0] == sm], window) for sm in range(sms)]
    inside = [(max(b[1], window[0]), min(b[2], window[1]), b[3]) for b in blocks]
    warps = sum(count * (end - start) for start, end, count in inside if end > start)
    everything = utilisation([(b[1], b[2]) for b in blocks], window)
    occupancy = 100 * warps / length / sms / warps_per_sm
    return {"utilisation": everything, "sm_active": float(np.mean(active)), "occupancy": occupancy}


EXERCISES["30.counters"] = WrittenExercise(
    counters,
    Case("two blocks at a time on one of 2 SMs", lambda code: code(TWO_ON_ONE, 2, (0, 10))),
    Case("one block on one of 4 SMs", lambda code: code([(0, 0, 10, 1)], 4, (0, 10))),
    Case("many short blocks, some outside the window", lambda code: code(SHORT, 4, (1, 10))),
    Case("a window that begins at 5", lambda code: code(TWO_ON_ONE, 3, (5, 10))),
    Case("no block", lambda code: code([], 4, (0, 10))),
    Case("SMs that hold 48 warps", lambda code: code(TWO_ON_ONE, 2, (0, 4), 48)),
    variants=(_counters_by_list,),
    mistakes={
        (
            "sum(utilisation(runs, window) for runs in own) / sms",
            "sum(utilisation(runs, window) for runs in own) / (sum(map(bool, own)) or 1)",
        ): "SMs that had no block count, too: average over all of them.",
        ("max(0.0, min(end, last) - max(start, first))", "(end - start)"): (
            "Of a block's warps, only the time inside the window counts."
        ),
        ("utilisation(runs, window) for runs", "sum(utilisation([each], window) for each in runs) for runs"): (
            "Two blocks at a time on one SM do not make it twice as active."
        ),
    },
    hint="Which of the three numbers is off? Work out that one by hand for two SMs and this window.",
    explanation="An SM is active while it has one block, however small. Occupancy says how full it is, not how fast.",
)

# %% traces-prose [markdown]
"""
The cell below applies your counters to made-up traces of a small GPU with four SMs, in a window of 10 µs. In the last trace 80 blocks come one after another, each for 0.13 µs, so some block is always there.
"""

# %% traces
traces = {
    "one block of one warp": [(0, 0, 10, 1)],
    "four blocks of one warp": [(sm, 0, 10, 1) for sm in range(4)],
    "eight blocks of 32 warps": [(sm % 4, 0, 10, 32) for sm in range(8)],
    "80 short blocks of one warp": [(n % 4, n / 8, n / 8 + 0.13, 1) for n in range(80)],
}
counted = pd.DataFrame({name: counters(blocks, 4, (0, 10)) for name, blocks in traces.items()}).T
labkit.plots.show(counted.set_axis(["utilisation (%)", "SM activity (%)", "occupancy (%)"], axis=1))

# %% recorded-prose [markdown]
"""
## 87 shapes on an A100, recorded

The authors of *Profiling and Monitoring Deep Learning Training Tasks* (EuroMLSys 2023) wrote a kernel that squares one number per thread. They started it two million times back to back in each of 87 shapes, while DCGM watched. A shape is a number of blocks and a number of threads per block. Their recording ships with labkit. Its card, `datasets/recorded/pmdlt-a100/card.toml`, says what it cannot tell: how much a repeat would differ, and what another kernel would do.

**With one block of one thread, what was the GPU's utilisation? And how many of the SMs were active with 131,072 blocks of one thread**, a thousand blocks for each of the 108 SMs?
"""

# %% cell-16
guess("30.one_thread", 1.0, "%")
guess("30.wide", 100.0, "% of the SMs")

# %% cell-19 [markdown]
"""
The heat maps below show all 87 shapes, one map per counter. The threads per block grow to the right, and the blocks grow upwards. All four maps share one colour scale. Empty cells were not tried.
"""

# %% cell-20
recorded = labkit.runs.recorded_table("pmdlt-a100", "square_kernel")
by_shape = recorded.set_index(["blocks", "threads"])
reveal("30.one_thread", by_shape.loc[(1, 1), "gpu_utilisation"])
reveal("30.wide", by_shape.loc[(131072, 1), "sm_active"])
labkit.plots.show(apparatus.figure_kernel_shapes(recorded))

# %% own-prose [markdown]
"""
**Read off the maps:** which two shapes have a utilisation of 100 % and differ most in SM activity? What do blocks change, and what do threads per block change? (The paper prints six of these shapes in its table of metrics, from 1 × 1 to 131,072 × 1,024.)

Your machine comes next to the recording. If it has a GPU that torch can use, the cell below runs six of the shapes on it; else it shows the four loads of one core. A GPU here runs *another kernel*, which repeats its work inside, so it shows the same effect and not the same numbers. The bars of the recording are hollow.
"""

# %% own
shapes = [(1, 1), (128, 1), (128, 1024), (1024, 1024), (131072, 1), (131072, 1024)]


def named(frame, device):  # the six shapes, with the device in their names
    rows = frame.set_index(["blocks", "threads"]).loc[shapes]
    return rows.assign(load=[f"{blocks:,} × {threads:,}, {device}" for blocks, threads in shapes])


core = busy.assign(load=busy["load"] + ", one core")
has_gpu = torch.cuda.is_available()
own = named(apparatus.sweep(shapes, seconds), torch.cuda.get_device_name()) if has_gpu else core
labkit.plots.show(apparatus.figure_busy(pd.concat([own, named(recorded, "A100")])))

# %% why-prose [markdown]
"""
## Why 29 %?

131,072 blocks wait, each of the 108 SMs could take 32 of them, and 29 % of the SMs have work. **How many of the 131,072 blocks are there at a time?** (An A100 holds 64 warps per SM. A block of one thread takes one warp. The occupancy was 1.4 %.)
"""

# %% guess-there
guess("30.there", 3000.0, "blocks at a time")

# %% ex-residents [markdown]
r"""
### Exercise 30.residents

*Little's law*, $L = \lambda W$, says: the number that is there equals the number that comes per unit of time, times how long each stays. It holds for a queue, a hospital ward, a memory system, and a GPU.

Write `residents(rows, sms, warps_per_sm)`. `rows` is a frame with a kernel per row: `blocks`, `threads` (per block), `launch_us` (µs from one launch to the next) and `sm_occupancy` (%). Return a frame with the index of `rows` and three columns:

1. `there`: how many blocks are on the GPU at a time;
2. `per_ns`: how many blocks start per **ns**;
3. `stay_ns`: how long each block stays, in ns.

*Hint:* occupancy counts warps, and a block whose threads do not fill its last warp still holds all of it.
"""


# %% answer 30.residents
import numpy as np
import pandas as pd


def residents(rows: pd.DataFrame, sms: int = 108, warps_per_sm: int = 64) -> pd.DataFrame:
    """Blocks that are there at a time, that start per ns, and how long each stays (ns)."""
    ### BEGIN SOLUTION
    warps = np.ceil(rows["threads"] / 32)
    there = rows["sm_occupancy"] / 100 * sms * warps_per_sm / warps
    per_ns = rows["blocks"] / rows["launch_us"] / 1000
    return pd.DataFrame({"there": there, "per_ns": per_ns, "stay_ns": there / per_ns})
    ### END SOLUTION


# %% check 30.residents points=4
check("30.residents", residents)


# %% checks
def _there(code: Any, kernels: list[tuple], *more: int) -> dict[str, list]:
    columns = ["blocks", "threads", "launch_us", "sm_occupancy"]
    found = code(pd.DataFrame(kernels, columns=columns, index=range(7, 7 + len(kernels))), *more)
    return {name: list(found[name]) for name in ("there", "per_ns", "stay_ns")} | {"index": list(found.index)}


def _residents_row_by_row(rows: pd.DataFrame, sms: int = 108, warps_per_sm: int = 64) -> pd.DataFrame:
    found = []
    for row in rows.itertuples():
        warps_there = sms * warps_per_sm * row.sm_occupancy / 100
        there = warps_there / -(-row.threads // 32)
        stay_ns = 1000 * there * row.launch_us / row.blocks
        found.append({"stay_ns": stay_ns, "there": there, "per_ns": row.blocks / (1000 * row.launch_us)})
    return pd.DataFrame(found, index=rows.index)


EXERCISES["30.residents"] = WrittenExercise(
    residents,
    Case("1,000 blocks of 64 threads in 10 µs at 20 %", _there, [(1000, 64, 10.0, 20.0)]),
    Case("blocks of one and of 1,024 threads", _there, [(131072, 1, 126.0, 1.4), (131072, 1024, 399.0, 78.2)]),
    Case("a GPU of 10 SMs that hold 48 warps", _there, [(100, 96, 5.0, 50.0)], 10, 48),
    Case("48 threads", _there, [(1000, 48, 10.0, 20.0)]),
    variants=(_residents_row_by_row,),
    mistakes={
        ('np.ceil(rows["threads"] / 32)', 'rows["threads"] / 32'): (
            "A block of one thread holds a whole warp: round up."
        ),
        ('np.ceil(rows["threads"] / 32)', 'rows["threads"]'): "Occupancy counts warps of 32 threads, not threads.",
        ('/ rows["launch_us"] / 1000', '/ rows["launch_us"]'): "A µs is 1,000 ns: this counts blocks per µs.",
    },
    hint="Occupancy gives the warps that are there. How many warps does one block hold, and what does Little's law need?",
    explanation="One counter and one law give what no counter shows: how long a block stays.",
)

# %% residents-prose [markdown]
"""
The cell below applies your function to all recorded shapes with 131,072 blocks.
"""

# %% residents
rows = recorded.query("blocks == 131072")
found = residents(rows)
reveal("30.there", found["there"].iloc[0])
table = {"threads per block": rows["threads"], "blocks there": found["there"], "started per ns": found["per_ns"]}
table |= {"each stays (ns)": found["stay_ns"], "SMs active": rows["sm_active"] / 100 * 108}
labkit.plots.show(pd.DataFrame(table).set_index("threads per block"))

# %% residents-read [markdown]
"""
Up to 512 threads per block, about one block per nanosecond starts on the whole GPU, whatever is in it. What differs is how long each block stays. A block of 32 threads also holds one warp, but it stays 14 times as long as a block of one thread, and more SMs are active.

### Explain 30.why_29

Write two or three sentences: why had only 29 % of the SMs work with 131,072 blocks of one thread, while utilisation was 100 %? What would make more SMs active, and what would not?
"""

# %% explain 30.why_29 points=2 grade_id="answer-30-why-29"
### BEGIN SOLUTION
answer = model_answer("30.why_29")
### END SOLUTION
explain("30.why_29", answer)

# %% checks
EXERCISES["30.why_29"] = Explanation(
    "numbers: how many of the 131,072 blocks are there at a time, for how many SMs.",
    "why: what limits how many are there (how fast blocks start × how long each stays), not how many wait.",
    "trade-off: what would make more of the SMs active, and why more blocks would not.",
    model="At 1.4 % occupancy 97 blocks of one warp are there at a time, for 108 SMs, and 29 % of 108 are 31 SMs. Blocks "
    "start one after another, about one per nanosecond, and each stays only some 90 ns because it squares a single "
    "number, so most have ended before the next ones come; utilisation is 100 % since some block is always there. "
    "More blocks only make the queue longer; more threads per block, or more work per thread, keep the SMs active.",
    half="Only 97 of the 131,072 blocks are there at once for 108 SMs, because they end as fast as they are started. The "
    "kernel should be bigger.",
)

# %% ex-scheduler [markdown]
"""
## Which counter would you give a scheduler?

A scheduler has two GPUs, each with a kernel, and wants to place a second job on the emptier one: the one with less SM activity. It can only read one counter. Take any two of the 87 shapes. **In what share of these pairs does the GPU utilisation name the emptier GPU?** (Where both utilisations are equal, the scheduler tosses a coin, so a counter that knows nothing gets 50 %.)
"""

# %% guess-pairs
guess("30.pairs", 90.0, "% of the pairs")

# %% claims-prose [markdown]
"""
The abstract of the paper says that one has to be "careful about the set of metrics to correctly reason about the GPU utilization". Test that sentence on the paper's own recording, with a threshold that is set before you see the number:

- *One has to be careful* **does not hold** if utilisation *and* GRACT each name the emptier GPU in 95 % of the pairs or more. Then either of them serves a scheduler: it sends at most one job in twenty to the fuller GPU.
- It **holds** if one of them stays below 80 %: then more than one job in five goes to the fuller GPU.
- Between the two it **cannot be tested here**: the 87 shapes were not drawn at random, and no interval says how far other kernels would move the share.
"""


# %% pairs
def names_emptier(counter):  # % of the pairs of shapes that differ in SM activity
    values, active = recorded[counter].to_numpy(), recorded["sm_active"].to_numpy()
    said, true = (np.sign(np.subtract.outer(each, each)) for each in (values, active))
    return 100 * ((1 + said * true) / 2)[true != 0].mean()  # 1 where both agree, ½ where the counter is equal


named_by = {name: names_emptier(name) for name in ("gpu_utilisation", "graphics_active", "sm_occupancy")}
reveal("30.pairs", named_by["gpu_utilisation"])

# %% claim-prose [markdown]
"""
Write the verdict and one reason.
"""

# %% claim E9 points=1 grade_id="claim-e9"
least, most = sorted([named_by["gpu_utilisation"], named_by["graphics_active"]])
mine = "; ".join(f"{name} {share:.0f} %" for name, share in named_by.items())
### BEGIN SOLUTION
verdict = "holds here" if least < 80 else "does not hold here" if least >= 95 else "cannot be tested here"
answer = (
    verdict,
    f"the worse of both counters sends {100 - least:.0f} % of the jobs to the fuller GPU; 87 shapes, one kernel",
)
### END SOLUTION
claim("E9", f"pairs in which a counter names the emptier GPU: {mine}", answer, how="recorded")

# %% words-prose [markdown]
"""
Each counter of labkit says in its vocabulary what it does not say. The cell below prints this for the counters of a GPU.
"""

# %% cell-22
for counter in labkit.telemetry.vocabulary():
    if counter.name in {"gpu_utilisation", "sm_active", "sm_occupancy", "dram_active", "tensor_active", "memory_used"}:
        print(f"{counter.name} ({counter.unit}) does not say: {counter.not_said}")

# %% ex-30-why-scheduler [markdown]
"""
### Explain 30.why_scheduler

Write two sentences: which counter would you give the scheduler? Use a shape of the recording in which utilisation misleads, and say what your counter does not tell.
"""

# %% explain 30.why_scheduler points=2 grade_id="answer-30-why-scheduler"
### BEGIN SOLUTION
answer = model_answer("30.why_scheduler")
### END SOLUTION
explain("30.why_scheduler", answer)

# %% checks
EXERCISES["30.why_scheduler"] = Explanation(
    "numbers: a shape of the recording in which utilisation and the chosen counter disagree.",
    "why: what the chosen counter says about room for a second job, and utilisation does not.",
    "trade-off: what the chosen counter does not say (memory, bandwidth, who may read it).",
    model="I would give it SM activity: with 131,072 blocks of one thread utilisation says 100 % and SM activity 29 %, so "
    "most multiprocessors have nothing to do, which is what a second job needs; over all pairs utilisation names the "
    "emptier GPU in 66 % only. SM activity says neither how much memory is free nor whether the bandwidth is used up "
    "(dram_active does), and a kernel that waits for memory counts as active.",
    half="SM activity: at 131,072 × 1 it says 29 % where utilisation says 100 %, so it shows that most SMs are free.",
)

# %% scores-prose [markdown]
"""
How good were your guesses? The cell after the scores keeps the numbers of this notebook for a program to read, each with bounds that hold on any machine.
"""

# %% scores
from labkit_course import results, score_notebook

score_notebook()

# %% results tags=["results"]
results(
    chase_cpu_percent=(by_load.loc["chase", "cpu_percent"], 5, 105),
    chase_gb_per_s=(by_load.loc["chase", "gb_per_s"], 1e-4, 2),
    copy_over_chase=(by_load.loc["copy", "gb_per_s"] / by_load.loc["chase", "gb_per_s"], 20, 1e5),
    product_share_of_peak=(by_load.loc["product", "share_of_peak"], 20, 150),
    blocks_there=(found["there"].iloc[0], 90, 100),
    utilisation_names_emptier=(named_by["gpu_utilisation"], 65, 67),
)

# %% assistant chase_cpu_percent above=80 [markdown]
"""
The system counts waiting for memory as computing, so a program that only chases pointers shows at more than 80 % of a core.
"""

# %% recap [markdown]
"""
## Recap

- A utilisation counts time in which something ran. It does not count work.
- A core that waits for memory is as busy as a core that multiplies.
- GPU utilisation hardly distinguishes one thread from a full GPU. SM activity says how many SMs had work, and occupancy says how full they were.
- The number that is there equals the number that comes per second, times how long each stays. A kernel of many tiny blocks leaves most of a GPU without work.
- Ask which question a counter answers before you let a program decide by it.

**Next:** [The observer effect](31_the_observer_effect.ipynb)
"""

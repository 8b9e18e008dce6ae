# %% cell-00 [markdown]
"""
# What utilisation means

After this notebook you will be able to

- **write** what a GPU's counters count: utilisation, SM activity, occupancy;
- **measure** how much work a core does while its utilisation is 100 %;
- **explain** by Little's law why a kernel of 131,072 blocks leaves 71 % of a GPU's multiprocessors without work;
- **choose** the counter that answers a scheduler's question.

**Time:** 75 minutes with six functions (about 30 lines) and three explanations; its halves, a core and a GPU, stand alone. The machine computes for about 30 seconds on 2 CPU cores. No GPU is needed: the GPU's half works on recorded counters.

**Prerequisites:** [Know your machine](01_know_your_machine.ipynb).
"""

# %% checks
from typing import Any

import numpy as np

from labkit_course.apparatus import FakeClock
from labkit_course.exercise import Case, Explanation, WrittenExercise

EXERCISES = {}

# %% cell-01 [markdown]
"""
The next cell holds what you may change.
"""

# %% cell-02 tags=["parameters"]
profile = "standard"  # smoke, standard or full: how long each load is watched

# %% cell-03 [markdown]
"""
## A core at 100 %

Every monitor shows it: the utilisation of the processor. It counts time. A core was *busy* in every moment in which the operating system had given it to a program, and the rest of the time it was idle.

Four loads will each have one core for themselves:

- **spin** asks for the time, again and again;
- **chase** reads a number that says where to read the next one, all over 64 MiB: each read must wait for the one before;
- **copy** copies an array of 128 MiB;
- **product** multiplies matrices, the work at which a processor is best.

**What will the utilisation of the core be while it chases?** It waits for memory nearly all of the time.
"""

# %% cell-04
import torch

from labkit_course import check, claim, explain, guess, model_answer, reveal

guess("30.chase_cpu", 20.0, "%")

# %% cell-05 [markdown]
"""
**How many of the bytes a second that one core can move does the chase use?** Its reads are as many as memory allows, one after another.
"""

# %% cell-06
guess("30.chase_share", 50.0, "% of the bandwidth")

# %% ex-circle [markdown]
"""
### Exercise 30.circle

The chase needs places to read: write `circle(count, seed)`, an array of `count` integers (int64) in which `places[at]` says where to read after `at`. Whoever follows it must come through *all* places before being back, and each next place must be far from the last.

1. Draw a random order of all places (`numpy.random.default_rng(seed).permutation`).
2. Let each place of that order name the next one, and the last the first.

Hint: `np.roll(order, -1)` is what comes after each place of the order. A permutation alone falls apart into many short circles.
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


EXERCISES["30.circle"] = WrittenExercise(
    circle,
    module="counters",
    cases=(
        Case("1,000 places, walked from the first", lambda code: _walk(code(1000))),
        Case("how many places there are of 500", lambda code: len(code(500))),
        Case("another seed", lambda code: _walk(code(1000, 5))),
        Case("another seed, compared", lambda code: bool(np.any(np.asarray(code(300, 1)) != np.asarray(code(300, 2))))),
        Case("the same seed twice", lambda code: bool(np.all(np.asarray(code(300, 1)) == np.asarray(code(300, 1))))),
    ),
    mistakes={
        ("return places", "return order"): (
            "A random permutation falls apart into several circles, some of them short enough for a cache: draw an "
            "*order* of all places, and let each say which comes next in it."
        ),
        ("np.random.default_rng(seed).permutation(count)", "np.arange(count)"): (
            "That reads neighbour after neighbour, which the processor fetches before it is asked: draw the order."
        ),
        ("(seed)", "()"): "One seed has to give one circle.",
    },
    hint="Draw an order of all places, then `places[order] = np.roll(order, -1)`: each says which comes next.",
    explanation="Every read depends on the one before, and none is where the last one was.",
)

# %% cell-07 [markdown]
"""
The yardstick first: the best that one core of this machine does, in arithmetic and in bytes.
"""

# %% cell-08
import labkit

torch.set_num_threads(1)
cpu = torch.device("cpu")
peak_gflops, best_gb_per_s = (
    labkit.hardware.matmul_gflops(cpu, torch.float32),
    labkit.hardware.copy_gb_per_s(cpu, 2**28),
)
print(f"one core: {peak_gflops:,.0f} GFLOP/s, {best_gb_per_s:.1f} GB/s")

# %% cell-09 [markdown]
"""
Now the four loads, the chase through your circle. `cpu_percent` is labkit's own counter of this process, the one that every run records.
"""

# %% cell-10
import pandas as pd

from labkit_course import apparatus

seconds = {"smoke": 0.3, "standard": 2.0, "full": 10.0}[profile]
made = {load.name: load for load in apparatus.loads(circle(2**23))}
busy = apparatus.with_shares(
    pd.DataFrame([apparatus.watch(load, seconds) for load in made.values()]), peak_gflops, best_gb_per_s
)
by_load = busy.set_index("load")
units = {"what": "what it does", "cpu_percent": "CPU (%)", "gflops": "GFLOP/s", "gb_per_s": "GB/s"}
labkit.plots.show(by_load[list(units)].rename(columns=units).rename_axis(columns="measured"))

# %% cell-11 [markdown]
"""
How far off were you?
"""

# %% cell-12
reveal("30.chase_cpu", by_load.loc["chase", "cpu_percent"])
reveal("30.chase_share", by_load.loc["chase", "share_of_bandwidth"])

# %% cell-13 [markdown]
"""
The first bar of each load is all that a utilisation says. The other two are what the core got done.
"""

# %% cell-14
labkit.plots.show(apparatus.figure_busy(busy))

# %% ex-achieved [markdown]
"""
### Exercise 30.achieved

One measurement of a bandwidth is no measurement. Write the meter, so that it can be used again: `achieved(work, seconds, clock)` calls `work()`, which returns the bytes that it moved, again and again for `seconds`, and returns GB/s.

1. One call before the clock starts: what is allocated or compiled then is not the load.
2. Calls until `clock()` says that `seconds` have passed since you began; then bytes divided by the time that *did* pass.

Hint: GB is 1e9 bytes, and the last call ends after its time.
"""

# %% answer 30.achieved
import time
from collections.abc import Callable


def achieved(work: Callable, seconds: float, clock: Callable = time.perf_counter) -> float:
    """GB/s of `work`, which moves the bytes that it returns, called again and again for `seconds`."""
    ### BEGIN SOLUTION
    work()  # what is made at the first turn is not the load
    began, moved = clock(), 0.0
    while clock() - began < seconds:
        moved += work()
    return moved / (clock() - began) / 1e9
    ### END SOLUTION


# %% check 30.achieved points=4
check("30.achieved", achieved)


# %% checks
def _timed(first_s: float, turn_s: float, moved: float) -> Any:
    def ask(code: Any) -> float:
        clock = FakeClock()
        return code(clock.work(first_s, turn_s, does=lambda: moved), 1.0, clock)

    return ask


EXERCISES["30.achieved"] = WrittenExercise(
    achieved,
    module="counters",
    cases=(
        Case("turns of 0.3 s that move 3 GB each, for 1 s", _timed(0.3, 0.3, 3e9)),
        Case("a first turn that takes 2 s", _timed(2.0, 0.25, 1e9)),
        Case("a turn longer than asked for", _timed(4.0, 4.0, 2e9)),
    ),
    mistakes={
        ("(clock() - began)", "seconds"): "The last turn ends after its time: divide by the time that passed.",
        ("1e9", "2**30"): "GB is 1e9 bytes; 2**30 is GiB.",
        ("work()  #", "pass  #"): "The first turn allocates and compiles: run one before the clock starts.",
    },
    hint="One turn first; then turns until `clock() - began` reaches `seconds`; bytes moved, divided by the time that "
    "passed by `clock()`, in 1e9.",
    explanation="What was asked for and what passed differ by up to one turn.",
)

# %% achieved-prose [markdown]
"""
Five turns of the chase and five of the copy, by your meter. (Each load's `work()` also returns operations; the bytes are the second.)
"""


# %% achieved-run
def turns(name):
    """GB/s of five turns of a load, the least first."""
    return sorted(achieved(lambda: made[name].work()[1], seconds / 5) for _ in range(5))


chased, copied = turns("chase"), turns("copy")
print(f"chase {chased[0]:.3f} to {chased[-1]:.3f} GB/s, copy {copied[0]:.1f} to {copied[-1]:.1f} GB/s, five turns each")

# %% ex-30-why-busy [markdown]
"""
### Explain 30.why_busy

Two sentences: why is the utilisation of a core that waits for memory near 100 %, and what would have shown you that it does little? Give your numbers, the reason, and what the better counter costs.
"""

# %% explain 30.why_busy points=2 grade_id="answer-30-why-busy"
### BEGIN SOLUTION
answer = model_answer("30.why_busy")
### END SOLUTION
explain("30.why_busy", answer)

# %% checks
EXERCISES["30.why_busy"] = Explanation(
    (
        "numbers: the utilisation of the chase, and its share of the bytes (or of the arithmetic) here.",
        "why: the counter counts time in which the program had the core, and waiting for memory is such time.",
        "trade-off: what one would have to watch instead, or as well, and what that costs.",
    ),
    "The core was given to the chase nearly all of the time, so its utilisation is near 100 %, though it used only "
    "a small share of the bytes a second that the copy uses: each read waits for the one before, and the operating "
    "system counts a core that waits for memory as busy. Work done (bytes, operations, or instructions from "
    "hardware counters) distinguishes them, which someone has to count, in the program or with rights to counters.",
)

# %% cell-15 [markdown]
"""
Looking up rows of an embedding table is somewhere between a chase and a copy: the addresses are known beforehand, many reads can be under way at once, but each goes somewhere else.

## A GPU at 100 %

A kernel is started as many *blocks* of threads; each block runs on one of the GPU's multiprocessors (*SMs*), in *warps* of 32 threads. Four counters say how busy a GPU is:

- **GPU utilisation** (`nvidia-smi`): the share of time in which at least one kernel ran, on any part of the GPU;
- **GRACT** (DCGM's field 1001; `graphics_active` in labkit): the share of time in which the engine of graphics and compute had work;
- **SM activity**: the share of time in which an SM had at least one warp, averaged over all SMs;
- **SM occupancy**: of the warps that all SMs could hold, the share that was there.

You will write three of them.

### Exercise 30.utilisation

`utilisation(runs, window)`: `runs` are (start, end) of kernels, in any order; `window` is (first, last). Return the time in the window in which at least one kernel ran, in % of the window.

1. Go through the runs by their start, and keep the latest end so far.
2. Add of each run only what lies in the window and after that end.

Hint: a short kernel may lie inside a long one; then the latest end stays.
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
EXERCISES["30.utilisation"] = WrittenExercise(
    utilisation,
    module="counters",
    cases=(
        Case("two kernels, one after the other", lambda code: code([(1, 3), (5, 6)], (0, 10))),
        Case("two that overlap", lambda code: code([(1, 5), (3, 7)], (0, 10))),
        Case("a short one inside a long one, and one after", lambda code: code([(0, 8), (1, 2), (7, 9)], (0, 10))),
        Case(
            "one that began before the window, one that ends after it", lambda code: code([(-4, 2), (9, 15)], (0, 10))
        ),
        Case("none", lambda code: code([], (0, 10))),
        Case("out of order, in a window from 100 to 104", lambda code: code([(103, 104), (100, 101)], (100, 104))),
        Case("one outside the window", lambda code: code([(20, 30), (2, 3)], (0, 10))),
    ),
    mistakes={
        ("max(start, until)", "max(start, first)"): (
            "Time in which two kernels ran counts once: join what overlaps before you add."
        ),
        lambda runs, window: utilisation(runs, (-1e6, 1e6)) * 2e6 / (window[1] - window[0]): (
            "What ran before or after the window does not count."
        ),
        ("100 * ", ""): "In per cent.",
    },
    hint="Go through the runs by their start; of each add what lies in the window and after the latest end so far.",
    explanation="That is what `nvidia-smi` counts: whether anything ran.",
)

# %% ex-sm-active [markdown]
"""
### Exercise 30.sm_active

`sm_active(blocks, sms, window)`: each block is (sm, start, end, warps), with `sm` from 0 to `sms` − 1. Return SM activity in %.

1. For each SM, the (start, end) of its own blocks.
2. The utilisation of each, averaged over *all* SMs.

Hint: your `utilisation` does most of it.
"""


# %% answer 30.sm_active
def sm_active(blocks: list[tuple], sms: int, window: tuple) -> float:
    """Share of time (%) in which an SM had a block, averaged over the SMs."""
    ### BEGIN SOLUTION
    runs = [[(start, end) for sm, start, end, _ in blocks if sm == each] for each in range(sms)]
    return sum(utilisation(own, window) for own in runs) / sms
    ### END SOLUTION


# %% check 30.sm_active points=3
check("30.sm_active", sm_active)

# %% checks
ONE = [(0, 0, 10, 1)]


TWO_ON_ONE = [(0, 0, 10, 4), (0, 2, 8, 8), (1, 5, 10, 2)]


SHORT = [(number % 4, 0.5 * number, 0.5 * number + 0.75, 1) for number in range(24)]  # beyond the window's end


EXERCISES["30.sm_active"] = WrittenExercise(
    sm_active,
    module="counters",
    cases=(
        Case("two blocks at a time on one of 2 SMs", lambda code: code(TWO_ON_ONE, 2, (0, 10))),
        Case("one block on one of 4 SMs", lambda code: code(ONE, 4, (0, 10))),
        Case("many short blocks", lambda code: code(SHORT, 4, (0, 10))),
        Case("a window that begins at 5", lambda code: code(TWO_ON_ONE, 3, (5, 10))),
        Case("no block", lambda code: code([], 4, (0, 10))),
    ),
    mistakes={
        lambda blocks, sms, window: utilisation([each[1:3] for each in blocks], window): (
            "That is the utilisation: whether any SM had a block. Take each SM's own blocks, then the mean over SMs."
        ),
        ("/ sms", "/ (sum(map(bool, runs)) or 1)"): "SMs that had no block count, too: divide by all of them.",
        ("utilisation(own, window)", "sum(utilisation([each], window) for each in own)"): (
            "Two blocks at a time on one SM do not make it twice as active."
        ),
    },
    hint="The utilisation of each SM by its own blocks, averaged over all SMs.",
    explanation="An SM is active while it has at least one block, however small.",
)

# %% ex-occupancy [markdown]
"""
### Exercise 30.occupancy

`occupancy(blocks, sms, window, warps_per_sm)`: of the warps that all SMs can hold (64 each on an A100), the share that was there, in %, averaged over the window.

1. Warps × time inside the window, summed over the blocks.
2. Divided by what would be there if every SM were full all the time.

Hint: clip each block to the window first.
"""


# %% answer 30.occupancy
def occupancy(blocks: list[tuple], sms: int, window: tuple, warps_per_sm: int = 64) -> float:
    """Share (%) of the warps that the SMs can hold which was there, averaged over the window."""
    ### BEGIN SOLUTION
    first, last = window
    held = sum(warps * max(0.0, min(end, last) - max(start, first)) for _, start, end, warps in blocks)
    return 100 * held / (sms * warps_per_sm * (last - first))
    ### END SOLUTION


# %% check 30.occupancy points=3
check("30.occupancy", occupancy)

# %% checks
EXERCISES["30.occupancy"] = WrittenExercise(
    occupancy,
    module="counters",
    cases=(
        Case("one block of one warp on one of 4 SMs", lambda code: code(ONE, 4, (0, 10))),
        Case("two blocks at a time", lambda code: code(TWO_ON_ONE, 2, (0, 10))),
        Case("many short blocks", lambda code: code(SHORT, 4, (0, 10))),
        Case("a window that begins at 5", lambda code: code(TWO_ON_ONE, 3, (5, 10))),
        Case("SMs that hold 48 warps", lambda code: code(TWO_ON_ONE, 2, (0, 10), 48)),
    ),
    mistakes={
        ("warps * max", "max"): "A block counts with its warps.",
        ("(sms * ", "(len({each[0] for each in blocks}) * "): "The room of SMs that had no block counts, too.",
        ("max(0.0, min(end, last) - max(start, first))", "(end - start)"): (
            "What lies outside the window does not count."
        ),
    },
    hint="Add up warps × time in the window over all blocks; divide by SMs × warps an SM holds × the window's length.",
    explanation="How full, not how fast: half full may be all that a kernel needs.",
)

# %% traces-prose [markdown]
"""
Your three counters on made-up traces of a small GPU with four SMs, in a window of 10 µs. In the last one 80 blocks come one after another, each for 0.13 µs: some block is always there.
"""

# %% traces
traces = {
    "one block of one warp": [(0, 0, 10, 1)],
    "four blocks of one warp": [(sm, 0, 10, 1) for sm in range(4)],
    "eight blocks of 32 warps": [(sm % 4, 0, 10, 32) for sm in range(8)],
    "80 short blocks of one warp": [(n % 4, n / 8, n / 8 + 0.13, 1) for n in range(80)],
}
w = (0, 10)
said = {
    name: (utilisation([b[1:3] for b in blocks], w), sm_active(blocks, 4, w), occupancy(blocks, 4, w))
    for name, blocks in traces.items()
}
labkit.plots.show(pd.DataFrame(said, index=["utilisation (%)", "SM activity (%)", "occupancy (%)"]).T)

# %% recorded-prose [markdown]
"""
## 87 shapes on an A100, recorded

The authors of *Profiling and Monitoring Deep Learning Training Tasks* (EuroMLSys 2023) started a kernel that squares one number a thread two million times back to back, in 87 shapes, and let DCGM look. Their recording ships with labkit; its card, `datasets/recorded/pmdlt-a100/card.toml`, says what it cannot tell: how much a repeat would differ, and what another kernel would do.

**With one block of one thread, what was the GPU's utilisation?**
"""

# %% cell-16
guess("30.one_thread", 1.0, "%")

# %% wide-prose [markdown]
"""
**And how many of the SMs were active with 131,072 blocks of one thread**, a thousand blocks for each of the 108 SMs?
"""

# %% guess-wide
guess("30.wide", 100.0, "% of the SMs")

# %% cell-17 [markdown]
"""
The recording, a row a shape, a column a counter:
"""

# %% cell-18
recorded = labkit.runs.recorded_table("pmdlt-a100", "square_kernel")
by_shape = recorded.set_index(["blocks", "threads"])
reveal("30.one_thread", by_shape.loc[(1, 1), "gpu_utilisation"])
reveal("30.wide", by_shape.loc[(131072, 1), "sm_active"])

# %% cell-19 [markdown]
"""
All 87 shapes: a heat map a counter, threads a block to the right, blocks upwards, the same scale in all four. Empty cells were not tried.
"""

# %% cell-20
labkit.plots.show(apparatus.figure_kernel_shapes(recorded))

# %% own-prose [markdown]
"""
Utilisation and GRACT are near 100 % everywhere: they tell one thread from a full GPU hardly at all. SM activity needs many blocks *and* many threads. Occupancy is lower still.

## The recording and your machine

Your machine next to it: its GPU, where it has one that torch can use, in six of these shapes; else the four loads of one core. A GPU here runs **another kernel**, which repeats its work inside: it shows the same effect and not the same numbers.
"""

# %% own
shapes = [(1, 1), (128, 1), (128, 1024), (1024, 1024), (131072, 1), (131072, 1024)]
here = apparatus.sweep(shapes, seconds) if torch.cuda.is_available() else None


def named(frame, device):  # the six shapes, with the device in their names
    rows = frame.set_index(["blocks", "threads"]).loc[shapes]
    return rows.assign(load=[f"{blocks:,} × {threads:,}, {device}" for blocks, threads in shapes])


# %% beside-prose [markdown]
"""
What was recorded is hollow, what was measured here is full. The first bar of each is its utilisation; compare how far the others lie below it.
"""

# %% beside
core = busy.assign(load=busy["load"] + ", one core")
own = core if here is None else named(here, torch.cuda.get_device_name())
labkit.plots.show(apparatus.figure_busy(pd.concat([own, named(recorded, "A100")])))

# %% why-prose [markdown]
"""
## Why 29 %?

131,072 blocks wait, 108 SMs could take 32 of them each, and 29 % of the SMs have work. **How many of the 131,072 blocks are there at a time?** (An A100 holds 64 warps an SM; a block of one thread takes a warp; occupancy was 1.4 %.)
"""

# %% guess-there
guess("30.there", 3000.0, "blocks at a time")

# %% ex-residents [markdown]
"""
### Exercise 30.residents

*Little's law*: who is there = how many come a second × how long each stays. It holds for a queue, a ward, a memory system, and for a GPU. Write `residents(blocks, threads, launch_us, occupancy, sms, warps_per_sm)` and return two numbers:

1. how many blocks are there at a time: the warps there (`occupancy` is in %), divided by the warps of a block;
2. how long each stays, in **ns**, if `blocks` of them come in every `launch_us`.

Hint: a block of one thread holds a whole warp.
"""


# %% answer 30.residents
def residents(
    blocks: int, threads: int, launch_us: float, occupancy: float, sms: int = 108, warps_per_sm: int = 64
) -> tuple:
    """Blocks that are there at a time, and how long each stays (ns), from a kernel's occupancy (%)."""
    ### BEGIN SOLUTION
    warps = -(-threads // 32)  # rounded up
    there = occupancy / 100 * sms * warps_per_sm / warps
    return there, 1000 * there * launch_us / blocks
    ### END SOLUTION


# %% check 30.residents points=4
check("30.residents", residents)

# %% checks
EXERCISES["30.residents"] = WrittenExercise(
    residents,
    module="counters",
    cases=(
        Case("1,000 blocks of 64 threads in 10 µs at 20 %", lambda code: code(1000, 64, 10.0, 20.0)),
        Case("blocks of one thread", lambda code: code(131072, 1, 126.0, 1.4)),
        Case("blocks of 1,024 threads", lambda code: code(131072, 1024, 399.0, 78.2)),
        Case("a GPU of 10 SMs that hold 48 warps", lambda code: code(100, 96, 5.0, 50.0, 10, 48)),
        Case("48 threads", lambda code: code(1000, 48, 10.0, 20.0)),
    ),
    mistakes={
        ("-(-threads // 32)", "threads / 32"): "A block of one thread holds a whole warp: round up.",
        ("-(-threads // 32)", "threads"): "Occupancy counts warps of 32 threads, not threads.",
        ("there * launch_us / blocks", "blocks / launch_us / there"): (
            "That is how many start while one stays: who is there = rate × stay."
        ),
    },
    hint="Warps there = occupancy × SMs × warps an SM holds; blocks there = that / warps of a block, which are rounded "
    "up; a block's stay = blocks there / (blocks / launch).",
    explanation="Little's law: who is there = how many come a second × how long each stays.",
)

# %% residents-prose [markdown]
"""
Applied to the recording. `launch_us` is the time from one launch to the next: the run's whole seconds, divided by two million launches.
"""

# %% residents
rows = recorded.query("blocks == 131072").copy()
pairs = [residents(row.blocks, row.threads, row.launch_us, row.sm_occupancy) for row in rows.itertuples()]
rows["blocks there"], rows["each stays (ns)"] = zip(*pairs, strict=True)
rows["blocks started a ns"] = rows["blocks"] / rows["launch_us"] / 1000
rows["SMs active"] = rows["sm_active"] / 100 * 108
reveal("30.there", pairs[0][0])
table = rows.set_index("threads")[["blocks started a ns", "each stays (ns)", "blocks there", "SMs active"]]
labkit.plots.show(table.rename_axis(columns=recorded["provenance"][0]))

# %% residents-read [markdown]
"""
Up to 512 threads a block about one block a nanosecond starts, whatever is in it (all 108 SMs together). What differs is how long each stays: a block of 32 threads, which is one warp as well, stays 14 times as long as one of a single thread, and more SMs are active.
"""

# %% ex-30-why-29 [markdown]
"""
### Explain 30.why_29

Two or three sentences: why had only 29 % of the SMs work with 131,072 blocks of one thread, while utilisation said 100 %? Give the numbers, what limits how many blocks are there, and what would help (and why more blocks would not).
"""

# %% explain 30.why_29 points=2 grade_id="answer-30-why-29"
### BEGIN SOLUTION
answer = model_answer("30.why_29")
### END SOLUTION
explain("30.why_29", answer)

# %% checks
EXERCISES["30.why_29"] = Explanation(
    (
        "numbers: how many of the 131,072 blocks are there at a time, for how many SMs.",
        "why: what limits how many are there (how fast blocks start × how long each stays), not how many wait.",
        "trade-off: what would make more of the SMs active, and why more blocks would not.",
    ),
    "At 1.4 % occupancy 97 blocks of one warp are there at a time, for 108 SMs, and 29 % of 108 are 31 SMs. Blocks "
    "start one after another, about one a nanosecond, and each stays only some 90 ns because it squares a single "
    "number, so most have ended before the next ones come; utilisation is 100 % since some block is always there. "
    "More blocks only make the queue longer; more threads a block, or more work a thread, keep the SMs active.",
)

# %% ex-scheduler [markdown]
"""
## Which counter would you give a scheduler?

A scheduler wants to place a second job on a GPU that already has one, and asks: *how much of the GPU has work?* What each counter of labkit says, and what it does not say, is in its vocabulary.
"""

# %% cell-22
pd.set_option("display.max_colwidth", None)
words = [(c.name, c.unit, c.not_said) for c in labkit.telemetry.vocabulary() if "device" in c.scopes]
labkit.plots.show(pd.DataFrame(words, columns=["counter", "unit", "what it does not say"]))

# %% ex-30-why-scheduler [markdown]
"""
### Explain 30.why_scheduler

Two sentences: which one would you give it? Name a shape of the recording in which utilisation misleads, say what your counter tells in its place, and what it does not.
"""

# %% explain 30.why_scheduler points=2 grade_id="answer-30-why-scheduler"
### BEGIN SOLUTION
answer = model_answer("30.why_scheduler")
### END SOLUTION
explain("30.why_scheduler", answer)

# %% checks
EXERCISES["30.why_scheduler"] = Explanation(
    (
        "numbers: a shape of the recording in which utilisation and the chosen counter disagree.",
        "why: what the chosen counter says about room for a second job, and utilisation does not.",
        "trade-off: what the chosen counter does not say (memory, bandwidth, who may read it).",
    ),
    "I would give it SM activity: with 131,072 blocks of one thread utilisation says 100 % and SM activity 29 %: "
    "most multiprocessors have nothing to do, which is what a second job needs. It says neither how much memory is "
    "free nor whether the bandwidth is used up (dram_active does), and a kernel that waits for memory counts as "
    "active; occupancy is no better, for fast kernels with many registers have a low one and leave no room.",
)

# %% claims-prose [markdown]
"""
## The paper's claims

The abstract says that one has to be "careful about the set of metrics to correctly reason about the GPU utilization". Your analogue on a core: the chase and the copy are equally busy, and differ in what they get done. Judge it by your five turns each.
"""

# %% claim E9 points=1 grade_id="claim-e9"
times = copied[0] / chased[-1]  # the least that the turns allow
cpu = by_load["cpu_percent"]
mine = f"chase {cpu['chase']:.0f} % busy, copy {cpu['copy']:.0f} %; the copy moves {times:.3g} times the bytes or more"
### BEGIN SOLUTION
verdict = "holds here" if times > 2 and cpu["chase"] > 0.8 * cpu["copy"] else "does not hold here"
answer = verdict, "a CPU analogue: cores that count as equally busy move very different numbers of bytes"
### END SOLUTION
claim("E9", f"{mine} (five turns each)", answer)

# %% claims-rows [markdown]
"""
Six rows of the paper's data are claims, too: utilisation, GRACT, SM activity and occupancy, in per cent. Nothing here can repeat an A100 with their kernel, so what you judge is the *recording*: does it say what is printed? Write `verdict(shape)`: compare the recorded counters with the printed ones (within 0.6 for utilisation, which is a whole number, and 0.06 for the others), and return the verdict and one reason.
"""

# %% claim E10 points=3 grade_id="claims-recorded"
printed = {
    (1, 1): (91, 90.9, 0.2, 0.0),
    (128, 1): (98, 98.5, 22.6, 0.4),
    (128, 1024): (100, 99.8, 25.5, 13.7),
    (1024, 1024): (99, 99.5, 55.5, 38.7),
    (131072, 1): (100, 99.9, 29.2, 1.4),
    (131072, 1024): (100, 100.0, 99.5, 78.2),
}
COUNTERS = ["gpu_utilisation", "graphics_active", "sm_active", "sm_occupancy"]


def verdict(shape):
    """Whether the recording has the printed numbers of a shape, and what that is worth."""
    ### BEGIN SOLUTION
    off = [abs(by_shape.loc[shape, name] - said) for name, said in zip(COUNTERS, printed[shape], strict=True)]
    agrees = off[0] <= 0.6 and max(off[1:]) <= 0.06
    said = "holds here" if agrees else "does not hold here"
    busy_s = by_shape.loc[shape, "launch_us"] * 2  # of two million launches
    return said, f"a check of the recording: medians over {busy_s:.0f} s of one run on one A100"
    ### END SOLUTION


def mine(shape):
    """The recorded row as text, and this machine's own where it has a GPU."""
    texts = ["recorded " + ", ".join(f"{by_shape.loc[shape, counter]:.4g}" for counter in COUNTERS) + " %"]
    if here is not None:
        own = here.set_index(["blocks", "threads"]).loc[shape]
        texts.append("here, with another kernel, " + ", ".join(f"{own[counter]:.4g}" for counter in COUNTERS) + " %")
    return "; ".join(texts)


claim("E10", mine((1, 1)), verdict((1, 1)), how="recorded")
claim("E11", mine((128, 1)), verdict((128, 1)), how="recorded")
claim("E12", mine((128, 1024)), verdict((128, 1024)), how="recorded")
claim("E13", mine((1024, 1024)), verdict((1024, 1024)), how="recorded")
claim("E14", mine((131072, 1)), verdict((131072, 1)), how="recorded")
claim("E15", mine((131072, 1024)), verdict((131072, 1024)), how="recorded")

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
    chase_cpu_percent=(by_load.loc["chase", "cpu_percent"], 5, 105),
    chase_gb_per_s=(chased[2], 1e-3, 20),
    copy_gb_per_s=(copied[2], 0.2, 1e3),
    product_gflops=(by_load.loc["product", "gflops"], 0.5, 1e4),
    blocks_there=(pairs[0][0], 90, 100),
)

# %% recap [markdown]
"""
## Recap

- A utilisation counts time in which something ran. It does not count work.
- A core that waits for memory is as busy as one that multiplies.
- GPU utilisation and GRACT hardly tell one thread from a full GPU; SM activity says how many SMs had work, occupancy how full they were.
- Who is there = how many come × how long each stays: a kernel of many tiny blocks leaves most of a GPU without work.
- Ask what question a counter answers before you let a program decide by it.

**Next:** [The observer effect](31_the_observer_effect.ipynb)
"""

# %% opening [markdown] packages="numba"
"""
# A learned index, counted

After this notebook you will be able to

- **write** what a learned index is made of: a line and a layout with gaps, an exponential search, an insert with a shift;
- **count** what a request costs with the instrument that fits: a clock, a replay of all accesses, counters of work, callgrind, the CPU's counters;
- **measure** which share of the time waits for memory, without the CPU's counters;
- **find** by counters why appends are expensive, and **repair** it with one line;
- **judge** four claims of *Micro-architectural Analysis of a Learned Index* (aiDM 2022).

**Time:** 90 minutes with six functions. The machine computes for about four minutes on 2 CPU cores, three of them under valgrind. No GPU is needed.

**Prerequisites:** [Know your machine](01_know_your_machine.ipynb); what a binary search is.
"""

# %% checks
import itertools
from collections import OrderedDict
from random import Random
from typing import Any

import numpy as np

from labkit_course.exercise import Case, Explanation, WrittenExercise

MODULE = "indexes"
EXERCISES = {}

# %% parameters tags=["parameters"]
profile = "standard"  # smoke, standard or full: numbers of keys, requests and rounds
seed = 0  # of keys and requests

# %% question [markdown]
"""
## The question

A database finds a key by an *index*. A B+-tree asks at each level which of 64 children leads to the key. A *learned index* has a line in each node and computes where the key should be. ALEX (SIGMOD 2020) is one that takes inserts, because its leaves have gaps.

The paper of this lab asked the hardware why ALEX is faster than a B+-tree and a radix tree (ART). It used the CPU's counters. Your machine may have none: most virtual machines do not. So this lab names, for each number, the instrument that gave it.

All three indexes are in `labkit.indexes`, and numba compiles them. The second line makes numba compile for a generic CPU: valgrind, which counts instructions later, simulates a CPU other than yours, and timed code and counted code have to be the same.
"""

# %% imports
import itertools
import os

os.environ["NUMBA_CPU_NAME"] = "generic"  # before numba is imported
import numpy as np
import pandas as pd

import labkit
from labkit_course import apparatus, check, claim, explain, guess, model_answer, reveal

# %% layout-exercise [markdown]
"""
## A line, and gaps

### Write 71.layout (15 minutes)

`lay_out(keys, room)` lays distinct, ascending keys out in a leaf with `room` slots. It returns the slope and the intercept of the leaf's line, and a list with the slot of each key.

1. Fit a line by least squares: from `key - keys[0]` to the number of the key (0, 1, 2, …).
2. Scale slope and intercept by `room / len(keys)`, so that the line spreads the keys over the whole leaf.
3. Each key goes to the slot that the line predicts, rounded down. But it comes after the slot of the key before it, and it leaves enough slots for the keys after it.

With a single key the slope is 0.

*Hint:* step 3 is `min(max(predicted, next_free), room - len(keys) + number)`.
"""

# %% answer 71.layout
from collections.abc import Sequence

import numpy as np


def lay_out(keys: Sequence[int], room: int) -> tuple[float, float, list[int]]:
    """Slope and intercept of a leaf's line, and the slot of each key."""
    ### BEGIN SOLUTION
    x, y = np.array(keys, float) - keys[0], np.arange(len(keys))
    squares = ((x - x.mean()) ** 2).sum()
    slope = ((x - x.mean()) * (y - y.mean())).sum() / squares if squares else 0.0
    scale = room / len(keys)
    slope, intercept = scale * slope, scale * (y.mean() - slope * x.mean())
    slots, next_free = [], 0
    for number, key in enumerate(keys):
        predicted = int(slope * (key - keys[0]) + intercept)
        slots.append(min(max(predicted, next_free), room - len(keys) + number))
        next_free = slots[-1] + 1
    return slope, intercept, slots
    ### END SOLUTION


# %% check 71.layout points=5
check("71.layout", lay_out)


# %% checks
def lay_out_by_polyfit(keys: Any, room: int) -> tuple[float, float, list[int]]:
    x = np.array([key - keys[0] for key in keys], float)
    slope, intercept = np.polyfit(x, np.arange(len(keys)), 1) if len(keys) > 1 else (0.0, 0.0)
    slope, intercept = slope * room / len(keys), intercept * room / len(keys)
    slots: list[int] = []
    for number, place in enumerate(slope * x + intercept):
        least = slots[-1] + 1 if slots else 0
        slots.append(int(min(max(int(place), least), room - (len(keys) - number))))
    return float(slope), float(intercept), slots


def _layouts(random: Random) -> list[Case]:
    """Keys are chosen so that no prediction is at the edge of a slot."""
    even = [7 + 10 * number for number in range(20)]
    bent = sorted({random.randrange(1000) ** 2 for _ in range(40)})
    late = [*range(30), *(10_000 + 3 * number for number in range(random.randint(4, 9)))]

    def ask(keys: list[int], room: int) -> Any:
        def answer(code: Any) -> tuple[float, float, list[int]]:
            slope, intercept, slots = code(keys, room)
            return slope, round(float(intercept), 6), slots

        return answer

    return [
        Case("keys on a line, half of the slots taken", ask(even, 41)),
        Case("keys on a curve", ask(bent, 2 * len(bent) + 3)),
        Case("two clusters far from each other: the last keys need their slots", ask(late, len(late) + 5)),
        Case("as many slots as keys", ask(bent, len(bent))),
        Case("one key", ask([random.randrange(99)], 8)),
    ]


EXERCISES["71.layout"] = WrittenExercise(
    lay_out,
    draw=_layouts,
    mistakes={
        ("min(max(predicted, next_free), room - len(keys) + number)", "max(predicted, next_free)"): (
            "The last keys fall out of the leaf: a key has to leave as many slots as there are keys after it."
        ),
        ("min(max(predicted, next_free), room - len(keys) + number)", "min(max(predicted, 0), room - 1)"): (
            "Two keys share a slot: a key comes after the slot of the key before it."
        ),
        ("scale = room / len(keys)", "scale = 1.0"): (
            "The keys are packed at the beginning, without gaps: scale the line by room / len(keys)."
        ),
    },
    variants=(lay_out_by_polyfit,),
    hint="Draw ten slots and four keys by hand. Which slots are still possible for the second key?",
    explanation="A leaf of ALEX: the line that predicts a slot has also decided where the key was put.",
)

# %% search-exercise [markdown]
"""
## Search from a guess

A line is never quite right, so the leaf is searched from the predicted slot outwards. ALEX keeps a copy of the next key in each gap, so keys are in order in *all* slots.

### Write 71.search (15 minutes)

`exponential_search(keys, first, end, guess, key)` returns the first of the slots `first` to `end - 1` whose key is larger than `key`, or `end` if there is none. `guess` is one of these slots.

1. If the key at the guess is larger, go left in steps of 1, 2, 4, … *from the guess* while the key there is larger and the slot is in the leaf. Otherwise go right while the key there is not larger.
2. The answer lies between the last two slots that you tried. Halve this range until it is empty.

Do not read slots outside `first` to `end - 1`, and do not take `len(keys)` or a slice: in the next cell, `keys` is the array of the whole index, and each access to it is logged.
"""


# %% answer 71.search
def exponential_search(keys, first: int, end: int, guess: int, key: int) -> int:
    """The first slot of [first, end) whose key is larger, or `end`."""
    ### BEGIN SOLUTION
    step = 1
    if keys[guess] > key:
        while guess - step >= first and keys[guess - step] > key:
            step *= 2
        low, high = max(guess - step, first), guess - step // 2
    else:
        while guess + step < end and keys[guess + step] <= key:
            step *= 2
        low, high = guess + step // 2, min(guess + step, end)
    while low < high:
        middle = (low + high) // 2
        if keys[middle] > key:
            high = middle
        else:
            low = middle + 1
    return low
    ### END SOLUTION


# %% check 71.search points=5
check("71.search", exponential_search)


# %% checks
class Reads:
    """Keys that count how often they are read, and refuse to be read outside of a leaf."""

    def __init__(self, keys: list[int], first: int, end: int):
        self.keys, self.first, self.end, self.count = keys, first, end, 0

    def __getitem__(self, slot: int) -> int:
        if not self.first <= slot < self.end:
            raise IndexError(f"slot {slot} is outside of the leaf, {self.first} to {self.end - 1}")
        self.count += 1
        return self.keys[slot]


def search_by_doubling_bounds(keys, first, end, guess, key):
    step = 1
    if keys[guess] > key:
        high = guess
        while guess - step >= first and keys[guess - step] > key:
            high, step = guess - step, step * 2
        low = max(guess - step + 1, first)
    else:
        low = guess + 1
        while guess + step < end and keys[guess + step] <= key:
            low, step = guess + step + 1, step * 2
        high = min(guess + step, end)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if keys[middle] > key else (middle + 1, high)
    return low


def _searches(random: Random) -> list[Case]:
    """The answer, and whether few slots were read for the distance of the guess."""
    keys = sorted(random.randrange(4000) for _ in range(1200))
    first, end = random.randint(50, 90), random.randint(1000, 1100)

    def ask(key: int, guess: int) -> Any:
        def answer(code: Any) -> tuple[int, str]:
            read = Reads(keys, first, end)
            found = int(code(read, first, end, guess, key))
            right = sum(each <= key for each in keys[first:end]) + first
            off = abs(right - guess)
            is_few = read.count <= 2 * (off + 2).bit_length() + 4
            return found, "few reads" if is_few else f"{read.count} reads for a guess {off} off"

        return answer

    middle = (first + end) // 2
    near, far = keys[middle] + 1, keys[first + 3] + 1
    return [
        Case("a guess that is right", ask(keys[middle], middle)),
        *(Case(f"a key a few slots away, guess {off:+}", ask(near, middle + off)) for off in (-9, -1, 1, 12)),
        Case("far to the left", ask(far, end - 2)),
        Case("far to the right", ask(keys[end - 4], first)),
        Case("smaller than all keys", ask(-1, middle)),
        Case("larger than all keys", ask(9999, middle)),
        Case("smaller than all keys, guess at the first slot", ask(-1, first)),
        Case("larger than all keys, guess at the last slot", ask(9999, end - 1)),
    ]


EXERCISES["71.search"] = WrittenExercise(
    exponential_search,
    draw=_searches,
    mistakes={
        ("step *= 2\n        low, high = max", "step += 1\n        low, high = max"): (
            "These are too many reads for a guess that is far off: double the step."
        ),
        ("keys[guess + step] <= key", "keys[guess + step] < key"): (
            "Equal keys are not larger: go right while the key is smaller or equal."
        ),
    },
    variants=(search_by_doubling_bounds,),
    hint="Follow a guess that is 5 slots too far right: which slots do the steps 1, 2, 4 and 8 try?",
    explanation="The reads grow with the logarithm of the error, not of the leaf: 2 for a perfect line.",
)

# %% replay-text [markdown]
"""
## Replay: your search inside the index

A *replay* runs the same index as plain Python, on arrays that log each access. It is exact, and it needs nothing from the machine. Your function takes the place of the index' own search.

How many *cache lines* (64 bytes) does a read touch? A B+-tree reads six keys per node on four levels. **How many times as many lines does the B+-tree touch as the learned index?**
"""

# %% guess-lines
guess("71.lines", 1.5, "times")

# %% replay-run
n, reads = {"smoke": (100_000, 1500), "standard": (10**6, 10_000), "full": (10**6, 20_000)}[profile]
workload = labkit.indexes.Workload("uniform", n, "reads", reads, seed)
requests = labkit.indexes.make_requests(workload)
learned, tree = labkit.indexes.Index("learned", requests.loaded), labkit.indexes.Index("btree", requests.loaded)
log = labkit.indexes.replay(learned, requests, swaps={"exponential_search": exponential_search})
logs = {"btree": labkit.indexes.replay(tree, requests), "learned, your search": log}
assert (logs["btree"].found == log.found).all()  # both find all values
touched = {name: each.lines_touched for name, each in logs.items()}
reveal("71.lines", touched["btree"] / touched["learned, your search"])
print(f"lines per read, by replay of {reads:,} reads of {n:,} keys (exact): {touched}")

# %% lru-exercise [markdown]
"""
## Which accesses miss

A line that was touched a moment ago is still in the cache. A cache with room for `capacity` lines, in which the *least recently used* line makes room for a new one, decides which accesses *miss*.

### Write 71.lru (10 minutes)

`lru_misses(lines, capacity)` takes the numbers of the lines in the order of the accesses, and returns a list: for each access, whether it misses. The cache is empty at first.

*Hint:* `OrderedDict` has `move_to_end(line)` and `popitem(last=False)`.
"""

# %% answer 71.lru
from collections import OrderedDict
from collections.abc import Sequence


def lru_misses(lines: Sequence[int], capacity: int) -> list[bool]:
    """Whether each access misses."""
    ### BEGIN SOLUTION
    cache, missed = OrderedDict(), []  # the least recently used line first
    for line in lines:
        missed.append(line not in cache)
        if line in cache:
            cache.move_to_end(line)
        else:
            if len(cache) == capacity:
                cache.popitem(last=False)
            cache[line] = True
    return missed
    ### END SOLUTION


# %% check 71.lru points=3
check("71.lru", lru_misses)


# %% checks
def lru_misses_by_dict(lines: Any, capacity: int) -> list[bool]:
    last, missed = {}, []  # a plain dictionary is in the order of insertion, too
    for line in lines:
        missed.append(line not in last)
        last.pop(line, None)
        last[line] = True
        if len(last) > capacity:
            del last[next(iter(last))]
    return missed


def _traces(random: Random) -> list[Case]:
    drawn = [int(random.paretovariate(0.7)) % 50 for _ in range(300)]
    capacity = random.randint(5, 12)
    return [
        Case("a line that is used again stays", lambda code: code([1, 2, 1, 3, 1, 2], 2)),
        Case("more lines than the cache has, in turn", lambda code: code([1, 2, 3] * 3, 2)),
        Case("a cache of one line", lambda code: code([4, 4, 5, 4], 1)),
        Case("300 accesses, a few lines popular", lambda code: code(drawn, capacity)),
    ]


EXERCISES["71.lru"] = WrittenExercise(
    lru_misses,
    draw=_traces,
    mistakes={
        ("            cache.move_to_end(line)\n", "            pass\n"): (
            "A line that is used again becomes the most recently used: that is LRU, not first in, first out."
        ),
        ("if len(cache) == capacity:", "if len(cache) > capacity:"): "The cache holds one line too many.",
        ("popitem(last=False)", "popitem()"): "The line that leaves is the least recently used, not the latest.",
    },
    variants=(lru_misses_by_dict,),
    hint="Go through lines 1, 2, 1, 3 with a cache of two: which line leaves when 3 comes?",
    explanation="Real caches are close to this; they choose among 8 or 16 lines of a set.",
)

# %% misses-text [markdown]
"""
The figure counts the misses of the second half of the reads, after the first half has warmed the cache. It is *exact* for this cache, which has no sets and fetches nothing ahead.
"""

# %% misses-run
sizes_kib = (32, 512, 2048) if profile == "smoke" else (32, 128, 512, 2048, 8192, 32_768)
rows = []
for (name, each), size in [(pair, size) for pair in logs.items() for size in sizes_kib]:
    warm = each.starts[len(each.found) // 2]
    missed = lru_misses(each.lines.tolist(), size * 1024 // 64)[warm:]
    rows.append({"index": name, "cache_kib": size, "misses_per_read": 2 * sum(missed) / len(each.found)})
misses = pd.DataFrame(rows).assign(provenance="predicted")
figure = labkit.plots.figure_sweep(misses, x="cache_kib", y="misses_per_read", color="index")
labkit.plots.show(figure.update_layout(title_text="Misses per read, replayed through caches of several sizes"))
at_l2 = misses[misses["cache_kib"] == (512 if profile == "smoke" else 2048)].set_index("index")["misses_per_read"]

# %% time-text [markdown]
"""
## The clock

Each miss beyond the last cache takes some 100 ns, but not each miss is waited for, and instructions take time, too. The next cell times batches of random reads, the indexes in turn, for several numbers of keys. `searchsorted` is numpy's binary search over the sorted keys.

**For the largest number of keys, how many times as long does a read of the B+-tree take as one of the learned index?**
"""

# %% guess-speed
guess("71.speed", 1.5, "times as long")

# %% time-run
counts = {"smoke": (10**4, 10**5), "standard": (10**4, 10**5, 10**6, 4 * 10**6), "full": (10**4, 10**6, 10**7)}[profile]
kinds = ("btree", "learned") if profile == "smoke" else ("btree", "art", "learned")
rounds, number = {"smoke": (1, 2 * 10**4), "standard": (5, 2 * 10**5), "full": (9, 10**6)}[profile]
times = apparatus.time_reads(kinds, counts, number, rounds, seed=seed)
largest = times[times["keys"] == counts[-1]].pivot(index="round", columns="index", values="read_ns")
gain = (largest["btree"] / largest["learned"]).median()
reveal("71.speed", gain)

# %% time-figure
figure = labkit.plots.figure_sweep(times.assign(provenance="measured"), x="keys", y="read_ns", color="index")
title = f"With {counts[-1]:,} keys a read of the B+-tree takes {gain:.1f} times as long as a learned one"
labkit.plots.show(figure.update_layout(title_text=title))

# %% stall-exercise [markdown]
"""
## Waiting for memory, without counters

The paper reads from the CPU's counters which share of the time is *memory stalls*. Here is a way with a clock alone: the same number of reads of a *few* keys, spread evenly over the index. They take the same path through the code, but everything they touch stays in the cache. The time that this saves was spent waiting.

### Write 71.stall (10 minutes)

`stall_share(read, keys, queries, few, rounds, clock)`: `read(queries)` reads a batch from the index, `keys` are all its keys in order, and `clock()` gives seconds.

1. Choose `few` of the keys, evenly from the first to the last.
2. Make a batch of as many reads as `queries` has, of these keys, in random order.
3. In each round time both batches, first the queries. Return the median over the rounds of the share of the time that this saves.

*Hint:* `numpy.linspace` gives the places of the keys, `random.choice` of a generator the batch.
"""

# %% answer 71.stall
import time

import numpy as np


def stall_share(read, keys, queries, few: int = 2000, rounds: int = 5, clock=time.perf_counter) -> float:
    """The share of the time of `queries` that reads of a few keys do not take."""
    ### BEGIN SOLUTION
    chosen = keys[np.linspace(0, len(keys) - 1, few).astype(int)]
    of_few, shares = np.random.default_rng(0).choice(chosen, len(queries)), []
    for _ in range(rounds):
        start = clock()
        read(queries)
        middle = clock()
        read(of_few)
        shares.append(1 - (clock() - middle) / (middle - start))
    return float(np.median(shares))
    ### END SOLUTION


# %% check 71.stall points=4
check("71.stall", stall_share)


# %% checks
class SlowIndex:
    """An index whose clock goes on with each read: by 1, and by more for the first read of a key in a batch."""

    def __init__(self, keys: np.ndarray, waits: list[float]):
        self.keys, self.waits, self.now, self.batches = keys, itertools.cycle(waits), 0.0, []

    def read(self, queries: Any) -> None:
        queries = np.asarray(queries)
        assert np.isin(queries, self.keys).all(), "a read of a key that is not there"
        distinct = np.unique(queries)
        apart = np.diff(np.searchsorted(self.keys, distinct), prepend=0, append=len(self.keys)).max() * len(distinct)
        even = "even" if apart < 2 * len(self.keys) else "uneven"
        self.batches.append((len(queries), len(distinct), float((np.diff(queries) < 0).mean() > 0.2), even))
        wait = next(self.waits) if len(self.batches) % 2 else 0.0
        self.now += len(queries) * (1.0 + wait)


def stall_share_of_medians(read, keys, queries, few=2000, rounds=5, clock=time.perf_counter):
    spread = keys[np.round(np.linspace(0, len(keys) - 1, few)).astype(int)]
    of_few, ratios = spread[np.random.default_rng(1).integers(0, few, len(queries))], []
    for _ in range(rounds):
        spent = []
        for batch in (queries, of_few):
            begun = clock()
            read(batch)
            spent.append(clock() - begun)
        ratios.append(spent[1] / spent[0])
    return 1 - sorted(ratios)[rounds // 2]


def _stalls(random: Random) -> list[Case]:
    keys = np.cumsum(np.array([random.randint(1, 9) for _ in range(5000)]))
    queries = np.random.default_rng(random.randrange(99)).choice(keys, 3000)
    wait = random.uniform(1, 5)

    def ask(waits: list[float], few: int, rounds: int) -> Any:
        def answer(code: Any) -> tuple[Any, ...]:
            index = SlowIndex(keys, waits)
            share = code(index.read, keys, queries, few, rounds, lambda: index.now)
            sizes = [batch[0] for batch in index.batches]
            distinct = max((batch[1] for batch in index.batches[1::2]), default=0)
            mixed = [batch[2:] for batch in index.batches[1::2]]
            return float(share), sizes, "few keys" if 0.8 * few <= distinct <= few else "not so few", mixed

        return answer

    return [
        Case("an index that waits in each read", ask([wait], 50, 3)),
        Case("one that does not wait at all", ask([0.0], 50, 1)),
        Case("five rounds, of which one was disturbed", ask([wait, wait + 0.1, 90.0, wait - 0.1, wait + 0.2], 100, 5)),
    ]


EXERCISES["71.stall"] = WrittenExercise(
    stall_share,
    draw=_stalls,
    mistakes={
        ("float(np.median(shares))", "float(np.mean(shares))"): (
            "One disturbed round moves a mean: take the median over the rounds."
        ),
        ("np.random.default_rng(0).choice(chosen, len(queries))", "chosen"): (
            "The two batches have to be of the same number of reads."
        ),
        ("keys[np.linspace(0, len(keys) - 1, few).astype(int)]", "keys[:few]"): (
            "The first keys are all in a few leaves, so their reads take a shorter way: spread the keys evenly."
        ),
    },
    variants=(stall_share_of_medians,),
    hint="Two clock readings around each batch, one share per round, and the median at the end.",
    explanation="It counts all that a cache would save, also what prefetching had hidden: a share, not cycles.",
)

# %% guess-stall-text [markdown]
"""
**Which share of the time of a learned read, of the largest index, is spent waiting for memory?**
"""

# %% guess-stall
guess("71.stall_share", 30, "% of the time")

# %% stall-run
asked = labkit.indexes.make_requests(labkit.indexes.Workload("uniform", counts[-1], "reads", number, seed))
held = {kind: labkit.indexes.Index(kind, asked.loaded) for kind in kinds}
stalls = {kind: stall_share(index.get_many, asked.loaded, asked.keys, rounds=rounds) for kind, index in held.items()}
reveal("71.stall_share", 100 * stalls["learned"])
labkit.plots.show(pd.DataFrame({"waits for memory (share of the time), measured": stalls}))

# %% why-reads-text [markdown]
"""
### Explain 71.why_reads

The learned index wins although its search reads keys one by one. **Explain with your numbers** (lines, misses, times, shares) why a read of it takes less time, why the gain depends on the number of keys, and for which data you would still take the B+-tree. Two or three sentences.
"""

# %% explain 71.why_reads points=2
### BEGIN SOLUTION
answer = model_answer("71.why_reads")
### END SOLUTION
explain("71.why_reads", answer)

# %% checks
EXERCISES["71.why_reads"] = Explanation(
    "numbers: lines or misses per read of both, and the times or shares at two numbers of keys",
    "why: a line replaces levels of the tree, so fewer lines are touched and fewer misses are waited for; small "
    "indexes fit in the cache, where misses cost little",
    "trade-off: keys that no line fits, few keys, or many inserts at the end, where the tree is as good or better",
    model="By replay a read of the B+-tree touches 17.0 lines and misses 3.5 times in a cache of 2 MiB, a learned read 8.3 "
    "and 2.2 times. With 10,000 keys all of it stays in the cache, and they take 49 and 32 ns; with 4 million 362 and 146 ns, "
    "of which 66 and 56 % are waits, so the index with fewer misses wins by a factor of 2.5. For adversarial keys, which "
    "no line fits, for a small index, or where most requests append, I would take the B+-tree.",
    half="A learned read touches 8.3 lines where the B+-tree touches 17.0, so it waits less, and that is why it is 2.5 times "
    "as fast with 4 million keys.",
)

# %% insert-exercise [markdown]
"""
## Inserts: into a gap, or with a shift

If the slot for a new key is taken, keys move by one slot up to the nearest gap.

### Write 71.insert (10 minutes)

`insert(slots, place, key)`: `slots` is a list of keys in order, with `None` in gaps, and at least one gap. The new key belongs *before* the key at `place`, which is taken, and after all keys left of it; `place` may be `len(slots)`, if it is larger than all.

1. Find the nearest gap. The gap at `place + d` on the right and the one at `place - 1 - d` on the left are equally near, and then the right one is taken.
2. Right: move the keys from `place` up to the gap one to the right, and write the new key at `place`. Left: move the keys after the gap one to the left, and write it at `place - 1`.
3. Return the number of keys that were moved.
"""


# %% answer 71.insert
def insert(slots: list, place: int, key: int) -> int:
    """Write a key before a taken slot; returns the number of keys moved."""
    ### BEGIN SOLUTION
    for distance in range(len(slots)):
        right, left = place + distance, place - 1 - distance
        if right < len(slots) and slots[right] is None:
            slots[place + 1 : right + 1] = slots[place:right]
            slots[place] = key
            return distance
        if left >= 0 and slots[left] is None:
            slots[left : place - 1] = slots[left + 1 : place]
            slots[place - 1] = key
            return distance
    raise ValueError("there is no gap")
    ### END SOLUTION


# %% check 71.insert points=4
check("71.insert", insert)


# %% checks
def insert_by_pop(slots: list, place: int, key: int) -> int:
    gaps = [slot for slot, held in enumerate(slots) if held is None]
    gap = min(gaps, key=lambda slot: (slot - place, 0) if slot >= place else (place - 1 - slot, 1))
    del slots[gap]
    slots.insert(place if gap > place else place - 1 if gap < place else place, key)
    return gap - place if gap >= place else place - 1 - gap


def _inserts(random: Random) -> list[Case]:
    base = random.randint(10, 99)

    def ask(pattern: str, place: int) -> Any:
        def answer(code: Any) -> tuple[int, list[Any]]:
            slots = [None if mark == "." else base + 10 * slot for slot, mark in enumerate(pattern)]
            left = [held for held in slots[:place] if held is not None]
            moved = code(slots, place, (left[-1] if left else base - 10) + 5)
            return int(moved), slots

        return answer

    return [
        Case("a gap on the right", ask("##.####..#", 0)),
        Case("a gap on the left", ask("#.######.", 3)),
        Case("equally near on both sides: the right one", ask("#.##.###", 3)),
        Case("the gap is just left of the place: nothing moves", ask("##.###.", 3)),
        Case("larger than all keys, and the last slot is taken", ask("##.####", 7)),
        Case("only one gap, far away", ask(".#########", 9)),
    ]


EXERCISES["71.insert"] = WrittenExercise(
    insert,
    draw=_inserts,
    mistakes={
        ("slots[place - 1] = key", "slots[place] = key"): (
            "After a shift to the left, the free slot is at place - 1; the key at place stays."
        ),
        ("left >= 0 and slots[left] is None", "left >= 0 and False"): "Gaps on the left count, too: take the nearest.",
    },
    variants=(insert_by_pop,),
    hint="Write down the slots before and after for `[10, None, 30, 40]`, a new 35 and place 3.",
    explanation="With gaps spread by the line, the nearest is a few slots away: that is why gaps are worth their room.",
)

# %% appends-text [markdown]
"""
## Appends: what the counters of work say

Keys that come in ascending order, such as times, are all *beyond* the keys of the index. The paper reports that such inserts raise the instructions per request, by up to ten times. The indexes count their own work. The next cell compares inserts of random keys (`mixed:100`) with `append`, per insert.
"""

# %% appends-run
held_n, inserts = (20_000, 4000) if profile == "smoke" else (10**6, 4 * 10**5)
patterns = {"random": "mixed:100", "append": "append"}
loads = {name: labkit.indexes.Workload("uniform", held_n, pattern, inserts, seed) for name, pattern in patterns.items()}
work = {}
for name, load in loads.items():
    requests = labkit.indexes.make_requests(load)
    index = labkit.indexes.Index("learned", requests.loaded, more=inserts)
    # at the size smoke as plain Python, so that nothing has to be compiled
    labkit.indexes.replay(index, requests) if profile == "smoke" else index.run(requests)
    work[name] = {what: amount / inserts for what, amount in index.work.items()}
labkit.plots.show(pd.DataFrame(work).rename(columns="{} (per insert, counted)".format))

# %% repair-exercise [markdown]
"""
One line of the table stands out. A leaf has a *bitmap*: a bit for each slot that is taken, 64 to a word. If the predicted slot lies in a gap, the key goes there, as long as the gap reaches so far. So the insert looks for the next *taken* slot:

```
def free_slot(slot, guess, end):              # slot: the first whose key is larger; guess: predicted, further right
    next_one = next_taken(slot, scan_end(guess, end))   # scans [slot, scan_end) word by word; gives scan_end if all are free
    return min(guess, next_one - 1)
```

ALEX scans up to the end of the leaf. After the last key of an append, all that follows is free.

### Write 71.repair (5 minutes)

`scan_end(guess, end)` returns the slot before which the scan may end: the smallest one with which `free_slot` still gives the same answer for any leaf.
"""


# %% answer 71.repair
def scan_end(guess: int, end: int) -> int:
    """Where the scan for the next taken slot may end."""
    ### BEGIN SOLUTION
    return guess + 1
    ### END SOLUTION


# %% check 71.repair points=2
check("71.repair", scan_end)

# %% checks
EXERCISES["71.repair"] = WrittenExercise(
    scan_end,
    draw=lambda random: [
        Case(f"a guess at slot {guess} of a leaf that ends at {end}", lambda code, g=guess, e=end: int(code(g, e)))
        for guess, end in ((random.randint(3, 90), 128), (0, 64), (63, 64), (random.randint(900, 1800), 2048))
    ],
    mistakes={
        ("guess + 1", "guess"): (
            "If all slots before the guess are free, this gives guess - 1: the guess itself may be free, too."
        ),
        ("guess + 1", "end"): "That is what ALEX does. Which slots right of the guess can change the minimum?",
    },
    variants=(("guess + 1", "min(guess + 1, end)"),),
    hint="free_slot takes a minimum with the guess. What does a taken slot far right of the guess change?",
    explanation="One line: no slot behind the guess matters, since the key never goes there.",
)

# %% repaired-run
requests = labkit.indexes.make_requests(labkit.indexes.Workload("uniform", 20_000, "append", 4000, seed))
scanned = {}
for name, ends in {"ALEX's": lambda guess, end: end, "yours": scan_end}.items():
    index = labkit.indexes.Index("learned-bounded", requests.loaded, more=4000)
    found = labkit.indexes.replay(index, requests, swaps={"scan_end": ends})
    scanned[name] = index.work["bitmap words scanned"] / 4000
    print(f"{name}: {scanned[name]:.2f} words scanned and {found.accesses:.1f} accesses per append (replay, exact)")

# %% count-text [markdown]
"""
## Instructions

The next cell takes the best instrument that your machine has. `perf` reads the CPU's counters; `callgrind` counts the instructions of the region exactly, but on a simulated CPU, which knows no time. With neither of them, or at the size `smoke`, there are no instructions here, only what you have counted so far.

**How many times the instructions of a random insert does an append take?**
"""

# %% guess-instructions
guess("71.appends", 1.0, "times the instructions")

# %% count-run
instrument, reasons = labkit.indexes.choose_instrument("auto")
print(f"instrument: {instrument}", *reasons, sep="\n")
costs = apparatus.count_inserts({} if profile == "smoke" else loads, instrument)
per = costs.set_index(["what", "index", "inserts"])["value"].to_dict()
append, repaired = (per.get(("instructions", kind, "append"), np.nan) for kind in ("learned", "learned-bounded"))
more = append / per.get(("instructions", "learned", "random"), np.nan)
if more == more:
    reveal("71.appends", more)
shown = ["time", "instructions", "misses in a cache of 2 MiB", "cycles per instruction"]
labkit.plots.show(costs[costs["what"].isin(shown)])

# %% why-appends-text [markdown]
"""
### Explain 71.why_appends

**Explain with your numbers** what makes an append expensive, what your line changes, and whether you would have found it with a clock alone. Two or three sentences.
"""

# %% explain 71.why_appends points=2
### BEGIN SOLUTION
answer = model_answer("71.why_appends")
### END SOLUTION
explain("71.why_appends", answer)

# %% checks
EXERCISES["71.why_appends"] = Explanation(
    "numbers: words scanned (or instructions) per append before and after the repair, and for random inserts",
    "why: behind the last key the leaf is empty, so the scan for the next taken slot runs to its end; nothing behind "
    "the guess matters",
    "limit of the clock: words of the bitmap are read in order and in parallel, so many instructions take little time; "
    "a counter of work or of instructions shows them",
    model="A random insert scans next to no words of the bitmap; an append of mine scans 89, because behind the last key the "
    "leaf is empty and the scan for the next taken slot runs to its end. No slot behind the guess can change where the key "
    "goes, so with my line it scans less than 0.01 words, and callgrind counts only 0.6 of the instructions. By the clock "
    "an append even takes less than a random insert (462 and 554 ns), and the repair gains a fifth: the words are read in order "
    "and hardly wait for each other. So I would have missed it without the counters.",
    half="An append scans 89 words of the bitmap, since the leaf is empty behind the last key; with my line it scans none.",
)

# %% packages-text [markdown]
"""
## Ready-made packages

These are called once for each key, from Python, so most of the time is Python's: the table has a line of its own for an empty call. Only what is installed is shown; `pip install sortedcontainers pygm BTrees blart-py` adds the others.
"""

# %% packages-run
package_ns = apparatus.time_packages(10**4 if profile == "smoke" else 10**6, 10**4 if profile == "smoke" else 10**5)
labkit.plots.show(package_ns)

# %% claims-text [markdown]
"""
## Four claims

*Micro-architectural Analysis of a Learned Index* compares ALEX with ART and a B+-tree by the CPU's counters. Its data are not public, so the claims are those of its abstract. The thresholds were written before the measurements.

**G1.** A learned index is "bound by memory stalls, mainly … data misses from the last-level cache". Say that it holds if at least half of the time of a learned read, of your largest index, is spent waiting for memory, and that it does not if less is. Fewer than a million keys fit in most caches and cannot test it.
"""

# %% claim G1 points=1
waits = stalls["learned"]
### BEGIN SOLUTION
verdict = "holds here" if waits >= 0.5 else "does not hold here"
verdict = "cannot be tested here" if counts[-1] < 10**6 else verdict
answer = verdict, "a clock sees waits for memory as a whole, not which cache missed"
### END SOLUTION
claim("G1", f"{waits:.0%} of the time of a learned read of {counts[-1]:,} keys is gone with 2,000 keys", answer)

# %% prose-claim-G2 [markdown]
"""
**G2.** It has "fewer stalls and a lower cycles-per-instruction" than ART and the B+-tree. Only the CPU's counters know cycles. With them, it holds if cycles per instruction of learned reads are the lowest of the three. Without them it cannot be tested: a quotient of nanoseconds and of another instrument's instructions is no CPI.
"""

# %% claim G2 points=1
cpi = {}
if instrument == "perf":
    load = labkit.indexes.Workload("uniform", counts[-1], "reads", number, seed)
    found = labkit.indexes.measure(kinds, load, "perf")
    cpi = {each.index: each.value for each in found if each.what == "cycles per instruction"}
said = f"cycles per instruction: {cpi}" if cpi else f"no cycles; misses per read, replayed: {at_l2.round(2).to_dict()}"
### BEGIN SOLUTION
verdict = "cannot be tested here" if len(cpi) < 3 else "does not hold here"
verdict = "holds here" if len(cpi) == 3 and min(cpi, key=cpi.get) == "learned" else verdict
answer = verdict, "only the CPU's own counters know cycles; the misses are fewer in a replay"
### END SOLUTION
claim("G2", said, answer, how="measured" if cpi else "predicted")

# %% prose-claim-G3 [markdown]
"""
**G3.** Inserts out of bounds raise the instructions per request, up to 10 times, in write-heavy loads. It holds if an append takes at least 1.5 times the instructions of a random insert into the same number of keys. The ratio depends on how far the last leaf has grown, so yours need not be 10.
"""

# %% claim G3 points=1
### BEGIN SOLUTION
verdict = "holds here" if more >= 1.5 else "does not hold here"
verdict = "cannot be tested here" if np.isnan(more) else verdict
answer = verdict, "only the direction: the factor grows with the size of the last leaf"
### END SOLUTION
said = f"an append takes {more:.2f} times the instructions of a random insert" if more == more else "no instrument"
claim("G3", f"{said} ({instrument})", answer)

# %% prose-claim-G4 [markdown]
"""
**G4.** Instruction-level parallelism hides them, so time does not suffer. Test the second half: if G3 holds and an append takes at most 1.25 times the time of a random insert, the claim holds. Whether parallelism is the reason, only counters could say; but your repair shows whether the instructions were free.
"""

# %% claim G4 points=1
spent = {pair: per.get(("time", *pair), np.nan) for pair in itertools.product(("learned", "learned-bounded"), loads)}
slower = spent["learned", "append"] / spent["learned", "random"]
gained = spent["learned", "append"] / spent["learned-bounded", "append"]
### BEGIN SOLUTION
verdict = "holds here" if slower <= 1.25 else "does not hold here"
verdict = "cannot be tested here" if not more >= 1.5 else verdict
answer = verdict, "the time alone, one run of each; the repair says what the instructions cost"
### END SOLUTION
said = f"an append takes {slower:.2f} times the time of a random insert, and the repair gains {gained:.2f} times"
claim("G4", said if more == more else "no instrument that counts instructions", answer)

# %% scores-prose [markdown]
"""
How good were your guesses? The cell after the scores keeps the numbers of this notebook for a program to read, with bounds that hold on any machine.
"""

# %% scores
from labkit_course import score_notebook

score_notebook()

# %% results tags=["results"]
from labkit_course import results

results(
    lines=(touched["btree"] / touched["learned, your search"], 1.2, 4),
    misses=(at_l2["learned, your search"] / at_l2["btree"], 0.2, 1.2),
    speed=(None if profile == "smoke" else gain, 0.8, 8),
    stall_share=(None if profile == "smoke" else waits, 0.2, 0.99),
    scanned_before=(scanned["ALEX's"], 0.3, 500),
    scanned_after=(scanned["yours"], 0, 1),
    appends=(more if more == more else None, 1.5, 20),
    repaired=(repaired / append if more == more else None, 0.1, 0.75),
)

# %% assistant speed above=4 [markdown]
"""
A learned index replaces a search by one multiplication. So with the largest number of keys, its reads are more than four times as fast as those of a B+-tree.
"""

# %% recap [markdown]
"""
## Recap

- A line in a node replaces a search, and a search from a guess costs the logarithm of the guess' error.
- Fewer lines touched are fewer misses; what that gains grows with the number of keys, as caches are outgrown.
- The same number of reads of a few keys shows which share of the time waits for memory. It needs no counter.
- Each number has its instrument: a clock knows no instructions, callgrind no time, a replay neither. Cycles come from the CPU's counters only.
- Counters of work name the cause. One line, found by them, saves half of an append's instructions.

**Next:** [Capstone](90_capstone.ipynb). Before it, try `labkit index run btree learned --keys adversarial`, for keys that no line fits.
"""

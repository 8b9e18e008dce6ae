"""Exercises of 30_what_utilisation_means.

Runs of kernels are (start, end); blocks are (sm, start, end, warps): on which multiprocessor, from when till when.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from labkit_course.apparatus import FakeClock
from labkit_course.explanation import Explanation
from labkit_course.written import Case, WrittenExercise

# --- loads of a core


def circle(count: int, seed: int = 0) -> np.ndarray:
    order = np.random.default_rng(seed).permutation(count)
    places = np.empty(count, np.int64)
    places[order] = np.roll(order, -1)  # after each place of the order comes the next
    return places


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


CIRCLE = WrittenExercise(
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
        ("(seed)", "(0)"): "The seed makes no difference.",
        ("(seed)", "()"): "One seed has to give one circle.",
    },
    hint="Draw an order of all places, then `places[order] = np.roll(order, -1)`: each says which comes next.",
    explanation="Every read depends on the one before, and none is where the last one was.",
)


def achieved(work: Callable, seconds: float, clock: Callable = time.perf_counter) -> float:
    work()  # what is made at the first turn is not the load
    began, moved = clock(), 0.0
    while clock() - began < seconds:
        moved += work()
    return moved / (clock() - began) / 1e9


def _timed(first_s: float, turn_s: float, moved: float) -> Any:
    def ask(code: Any) -> float:
        clock = FakeClock()
        return code(clock.work(first_s, turn_s, does=lambda: moved), 1.0, clock)

    return ask


ACHIEVED = WrittenExercise(
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
        ("return moved", "return 8 * moved"): "Bytes, not bits.",
    },
    hint="One turn first; then turns until `clock() - began` reaches `seconds`; bytes moved, divided by the time that "
    "passed by `clock()`, in 1e9.",
    explanation="What was asked for and what passed differ by up to one turn.",
)

# --- counters of a GPU


def utilisation(runs: list[tuple], window: tuple) -> float:
    first, last = window
    busy, until = 0.0, first
    for start, end in sorted(runs):
        start, end = max(start, until), min(end, last)
        busy += max(0.0, end - start)
        until = max(until, end)
    return 100 * busy / (last - first)


UTILISATION = WrittenExercise(
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
        ("max(until, end)", "end"): "A short kernel inside a long one does not end it: keep the latest end so far.",
        ("100 * ", ""): "In per cent.",
        ("(last - first)", "last"): "Of the time of the window, from its beginning to its end.",
    },
    hint="Go through the runs by their start; of each add what lies in the window and after the latest end so far.",
    explanation="That is what `nvidia-smi` counts: whether anything ran.",
)


def sm_active(blocks: list[tuple], sms: int, window: tuple) -> float:
    runs = [[(start, end) for sm, start, end, _ in blocks if sm == each] for each in range(sms)]
    return sum(utilisation(own, window) for own in runs) / sms


ONE = [(0, 0, 10, 1)]
TWO_ON_ONE = [(0, 0, 10, 4), (0, 2, 8, 8), (1, 5, 10, 2)]
SHORT = [(number % 4, 0.5 * number, 0.5 * number + 0.75, 1) for number in range(24)]  # beyond the window's end
SM_ACTIVE = WrittenExercise(
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
        (" / sms", ""): "The mean over the SMs, not the sum.",
    },
    hint="The utilisation of each SM by its own blocks, averaged over all SMs.",
    explanation="An SM is active while it has at least one block, however small.",
)


def occupancy(blocks: list[tuple], sms: int, window: tuple, warps_per_sm: int = 64) -> float:
    first, last = window
    held = sum(warps * max(0.0, min(end, last) - max(start, first)) for _, start, end, warps in blocks)
    return 100 * held / (sms * warps_per_sm * (last - first))


OCCUPANCY = WrittenExercise(
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
        ("* warps_per_sm *", "* 64 *"): "How many warps an SM holds is the last argument, and differs by GPU.",
        ("100 * ", ""): "In per cent.",
    },
    hint="Add up warps × time in the window over all blocks; divide by SMs × warps an SM holds × the window's length.",
    explanation="How full, not how fast: half full may be all that a kernel needs.",
)

# --- why so little of the GPU is active


def residents(
    blocks: int, threads: int, launch_us: float, occupancy: float, sms: int = 108, warps_per_sm: int = 64
) -> tuple:
    warps = -(-threads // 32)  # rounded up
    there = occupancy / 100 * sms * warps_per_sm / warps
    return there, 1000 * there * launch_us / blocks


RESIDENTS = WrittenExercise(
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
        ("1000 * ", ""): "The stay in ns; the launch is in µs.",
        (" / 100", ""): "Occupancy is in per cent.",
    },
    hint="Warps there = occupancy × SMs × warps an SM holds; blocks there = that / warps of a block, which are rounded "
    "up; a block's stay = blocks there / (blocks / launch).",
    explanation="Little's law: who is there = how many come a second × how long each stays.",
)

EXERCISES = {
    "30.circle": CIRCLE,
    "30.achieved": ACHIEVED,
    "30.why_busy": Explanation(
        (
            "numbers: the utilisation of the chase, and its share of the bytes (or of the arithmetic) here.",
            "why: the counter counts time in which the program had the core, and waiting for memory is such time.",
            "trade-off: what one would have to watch instead, or beside it, and what that costs.",
        ),
        "The core was given to the chase nearly all of the time, so its utilisation is near 100 %, though it used only "
        "a small share of the bytes a second that the copy uses: each read waits for the one before, and the operating "
        "system counts a core that waits for memory as busy. Work done (bytes, operations, or instructions from "
        "hardware counters) tells them apart, which somebody has to count, in the program or with rights to counters.",
    ),
    "30.utilisation": UTILISATION,
    "30.sm_active": SM_ACTIVE,
    "30.occupancy": OCCUPANCY,
    "30.residents": RESIDENTS,
    "30.why_29": Explanation(
        (
            "numbers: how many of the 131,072 blocks are there at a time, for how many SMs.",
            "why: what limits how many are there (how fast blocks start × how long each stays), not how many wait.",
            "trade-off: what would make more of the SMs active, and why more blocks would not.",
        ),
        "At 1.4 % occupancy 97 blocks of one warp are there at a time, for 108 SMs, and 29 % of 108 are 31 SMs. Blocks "
        "start one after another, about one a nanosecond, and each stays only some 90 ns because it squares a single "
        "number, so most have ended before the next ones come; utilisation is 100 % since some block is always there. "
        "More blocks only make the queue longer; more threads a block, or more work a thread, keep the SMs active.",
    ),
    "30.why_scheduler": Explanation(
        (
            "numbers: a shape of the recording in which utilisation and the chosen counter disagree.",
            "why: what the chosen counter says about room for a second job, and utilisation does not.",
            "trade-off: what the chosen counter does not say (memory, bandwidth, who may read it).",
        ),
        "I would give it SM activity: with 131,072 blocks of one thread utilisation says 100 % and SM activity 29 %: "
        "most multiprocessors have nothing to do, which is what a second job needs. It says neither how much memory is "
        "free nor whether the bandwidth is used up (dram_active does), and a kernel that waits for memory counts as "
        "active; occupancy is no better, for fast kernels with many registers have a low one and leave no room.",
    ),
}

"""What students write in 42_packing_a_queue: the reference, what both are asked, and the usual mistakes."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heapreplace

from labkit_course.explanation import Explanation
from labkit_course.written import Case, WrittenExercise

# --- first come, first served


def fifo_makespan(jobs: Sequence[tuple[float, float]], devices: int) -> float:
    free_at = [0.0] * devices
    heapify(free_at)
    for arrives, lasts in jobs:
        heapreplace(free_at, max(arrives, free_at[0]) + lasts)
    return max(free_at)


QUEUE = [(0.0, 10.0), (0.0, 2.0), (1.0, 3.0), (4.0, 1.0), (20.0, 5.0)]
FIFO = WrittenExercise(
    fifo_makespan,
    module="packing",
    cases=(
        Case("two jobs on one device", lambda code: code([(0, 3), (0, 4)], 1)),
        Case("five jobs on two", lambda code: code(QUEUE, 2)),
        Case("five jobs on one device", lambda code: code(QUEUE, 1)),
        Case("four jobs of one moment on two", lambda code: code([(0, 9), (0, 1), (0, 1), (0, 6)], 2)),
        Case("more devices than jobs", lambda code: code([(0, 3), (1, 4)], 5)),
    ),
    mistakes={
        lambda jobs, devices: sum(lasts for _, lasts in jobs) / devices: (
            "That is the work a device has if it could be divided evenly; a job runs on one, once it is there."
        ),
        ("max(arrives, free_at[0])", "free_at[0]"): (
            "No job starts before it arrives: max(arrives, when the device is free)."
        ),
        (
            "heapreplace(free_at, max(arrives, free_at[0]) + lasts)",
            "free_at = [*free_at[1:], max(arrives, free_at[0]) + lasts]",
        ): "Take the device that is free first, not each in turn.",
    },
    hint="Keep for each device when it is free. Each job, in order, goes to the one that is free first, and starts at "
    "the later of that moment and its arrival.",
    explanation="A device for each job, in the order in which they came: what the others are held against.",
)

# --- where a job goes


def best_fit(need: int, free: Sequence[int]) -> int | None:
    left = {place: there - need for place, there in enumerate(free) if there >= need}
    return min(left, key=left.get, default=None)


BEST_FIT = WrittenExercise(
    best_fit,
    module="packing",
    cases=(
        Case("2 of 5, 7 and 3", lambda code: code(2, [5, 7, 3])),
        Case("4 of 6, 7 and 3", lambda code: code(4, [6, 7, 3])),
        Case("3 of 5, 7 and 3", lambda code: code(3, [5, 7, 3])),
        Case("9 of 7 and 3", lambda code: code(9, [7, 3])),
        Case("two that are alike", lambda code: code(1, [4, 4])),
    ),
    mistakes={
        ("min(left, key=left.get", "min(left"): "That is first-fit: best-fit leaves as little as it can.",
        ("min(left", "max(left"): "That leaves most free (worst-fit); best-fit leaves as little as it can.",
        (
            ": there - need for place, there in enumerate(free) if there >= need",
            ": abs(there - need) for place, there in enumerate(free)",
        ): "The nearest may be too small: only devices with enough memory count.",
        (">= need", "> need"): "What fits to the last byte fits.",
    },
    hint="Among the places where free ≥ need, the one with the least free − need; None where there is no such place.",
    explanation="Large holes stay together for jobs that need them.",
)

# --- what sharing is believed to gain


def believed_gain(busy: Sequence[float]) -> float:
    return len(busy) / max(1.0, sum(busy))


GAIN = WrittenExercise(
    believed_gain,
    module="packing",
    cases=(
        Case("0.5 and 0.8", lambda code: code([0.5, 0.8])),
        Case("0.3 and 0.4", lambda code: code([0.3, 0.4])),
        Case("one job of 0.6", lambda code: code([0.6])),
        Case("three of 0.9", lambda code: code([0.9] * 3)),
        Case("no job", lambda code: code([])),
    ),
    mistakes={
        lambda busy: len(busy) / sum(busy) if busy else 0.0: (
            "Jobs that leave the device idle do not run faster than alone: the slowdown is 1 at least."
        ),
        ("len(busy) / ", ""): "That is how many times as long each takes; the gain is n over it.",
        (" / max(1.0, sum(busy))", ""): (
            "That would be sharing for nothing: past 1 in sum, each takes as many times as long."
        ),
    },
    hint="Each of n jobs takes max(1, sum of busy) times as long, so together they do n / that of one job's work.",
    explanation="The simplest model that conserves work. It knows no caches, no bandwidth, and no waiting threads.",
)


def place(need: int, busy: float, devices: Sequence[tuple[int, Sequence[float]]]) -> int | None:
    open_to = {}
    for number, (free, others) in enumerate(devices):
        worth = believed_gain([*others, busy]) >= 1.05 * believed_gain(others)
        if free >= need and (not others or worth):
            open_to[number] = free - need
    return min(open_to, key=open_to.get, default=None)


PLACE = WrittenExercise(
    place,
    module="packing",
    cases=(
        Case("only one that shares has the memory", lambda code: code(5, 0.3, [(4, []), (6, [0.4])])),
        Case("the smaller hole is with a job that fills its device", lambda code: code(2, 1.0, [(8, []), (4, [1.0])])),
        Case("an empty device of 8 and one of 4 with 0.5 busy", lambda code: code(2, 0.5, [(8, []), (4, [0.5])])),
        Case("nothing has the memory", lambda code: code(9, 0.1, [(8, []), (4, [0.5])])),
        Case("all are full, though there is memory", lambda code: code(1, 1.0, [(6, [1.0]), (6, [0.9, 0.9])])),
    ),
    mistakes={
        (" and (not others or worth)", ""): (
            "Memory alone fills busy devices: ask whether the gain grows by 5 %, too."
        ),
        ("free >= need and ", ""): "The job has to fit: free ≥ need.",
        ("return min(", "return max("): (
            "Of the devices that are open take the one that keeps least memory free (best-fit)."
        ),
        ("(not others or worth)", "not others"): (
            "That never shares: a device with jobs is open, too, where sharing gains."
        ),
    },
    hint="A device is open where free ≥ need and it is empty or believed_gain([*others, busy]) is at least 1.05 times "
    "believed_gain(others). Of those, best-fit; None where none is open.",
    explanation="It knows nothing of pairs: only what a monitor shows and what a job asks for.",
)

# --- energy


def energy_j(bars: Sequence[tuple[str, float, float]], devices: int, idle_w: float, busy_w: float) -> float:
    busy_s = 0.0
    busy_until: dict[str, float] = {}
    for device, starts, ends in sorted(bars, key=lambda bar: bar[1]):
        begins = max(starts, busy_until.get(device, starts))
        busy_s += max(0.0, ends - begins)
        busy_until[device] = max(ends, begins)
    makespan_s = max(ends for _, _, ends in bars) - min(starts for _, starts, _ in bars)
    return devices * idle_w * makespan_s + (busy_w - idle_w) * busy_s


BARS = [("a", 0.0, 10.0), ("b", 0.0, 4.0), ("a", 2.0, 12.0), ("b", 6.0, 7.0), ("a", 3.0, 5.0)]
ENERGY = WrittenExercise(
    energy_j,
    module="packing",
    cases=(
        Case("one job of 10 s, 20 W idle and 100 W busy", lambda code: code([("a", 0.0, 10.0)], 1, 20.0, 100.0)),
        Case("the same beside a device that idles", lambda code: code([("a", 0.0, 10.0)], 2, 20.0, 100.0)),
        Case("jobs that overlap on two devices", lambda code: code(BARS, 2, 20.0, 100.0)),
    ),
    mistakes={
        ("begins = max(starts, busy_until.get(device, starts))", "begins = starts"): (
            "Two jobs at once keep one device busy once: overlapping bars count once."
        ),
        ("return devices * idle_w * makespan_s +", "return"): (
            "Devices take their idle power as long as the queue lasts."
        ),
        ("(busy_w - idle_w)", "busy_w"): "A busy device takes busy_w, not idle_w and busy_w.",
        ("devices * idle_w", "idle_w"): "All devices take idle power, also one without a job.",
    },
    hint="Each device takes idle_w over the makespan, and busy_w − idle_w more in the seconds in which it has at least "
    "one job: sort its bars by start, and add what each one adds to the end so far.",
    explanation="Packing saves idle power by ending sooner, and busy power where devices are busy for less time.",
)

EXERCISES = {
    "42.fifo": FIFO,
    "42.best_fit": BEST_FIT,
    "42.gain": GAIN,
    "42.place": PLACE,
    "42.energy": ENERGY,
    "42.why_wait": Explanation(
        rubric=(
            "numbers: makespan, mean wait and mean slowdown of exclusive and of best-fit",
            "why: each job is slower, and the time in line falls by more",
            "trade-off: who gains (the queue) and who loses (a job that would have had a device at once)",
        ),
        model="Under best-fit jobs start at once instead of waiting for a device, so the mean completion time falls "
        "although each job runs slower beside others, and the last one ends sooner. A job that meets an empty machine "
        "loses: it would have been faster with the device for itself.",
    ),
    "42.why_unknown": Explanation(
        rubric=(
            "numbers: makespan and wait with known pairs, with utilisations alone, and with memory alone",
            "why: a full device slows all that are on it; what a utilisation does not tell (caches, waiting threads)",
            "trade-off: what it costs to measure pairs against what knowing them gains on this queue",
        ),
        model="In this replay utilisations alone end the queue as soon as known pairs do, with shorter waits: what "
        "counts here is not to crowd a device, and that they tell. Memory alone crowds devices, so each job is slower, "
        "more of them run out of memory, and the queue takes a third longer. Pairs would pay where jobs of like "
        "utilisation differ in what they do to each other's caches or threads; measuring them grows with the square of "
        "the kinds.",
    ),
}

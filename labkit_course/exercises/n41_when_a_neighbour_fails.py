"""What students write in 41_when_a_neighbour_fails: the reference, what both are asked, and the usual mistakes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import ceil, exp
from statistics import median
from typing import Any

from labkit_course.explanation import Explanation
from labkit_course.written import Case, WrittenExercise

# --- who has to exit


def must_exit(uses: Mapping[str, set[int]], gpu: int) -> list[str]:
    touched = {gpu}
    for gpus in uses.values():
        if gpu in gpus:
            touched |= gpus
    return sorted(client for client, gpus in uses.items() if gpus & touched)


FIVE = {"A": {0}, "B": {0}, "C": {0, 1}, "D": {1}, "E": {2}}
CHAIN = {"A": {0}, "B": {0, 1}, "C": {1, 2}, "D": {2}}
BLAST = WrittenExercise(
    must_exit,
    module="faults",
    cases=(
        Case("five clients of three GPUs, a fault on GPU 0", lambda code: code(FIVE, 0)),
        Case("the same, a fault on GPU 2", lambda code: code(FIVE, 2)),
        Case("a chain of GPUs 0, 1 and 2, a fault on GPU 0", lambda code: code(CHAIN, 0)),
        Case("a GPU that nobody uses", lambda code: code(FIVE, 7)),
    ),
    mistakes={
        ("touched |= gpus", "pass"): (
            "These use the GPU of the fault. But one of them uses another GPU, too, and the clients there are told."
        ),
        (
            "for gpus in uses.values():\n        if gpu in gpus:",
            "for gpus in list(uses.values()) * len(uses):\n        if gpus & touched:",
        ): "Too many: the fault is contained in the GPUs of clients that use the faulty one, and spreads no further.",
        (" if gpus & touched", ""): "A client that shares no GPU with those that are touched goes on.",
    },
    hint="First all GPUs of the clients that use the faulty one; then every client that uses any of these.",
    explanation="One client on two GPUs carries a fault from one to the other.",
)

# --- a client that hangs


def hung(steps: Mapping[str, Sequence[float]], now: float, factor: float = 5) -> list[str]:
    found = []
    for client, times in steps.items():
        gaps = [later - earlier for earlier, later in pairwise(times)]
        if gaps and now - times[-1] > factor * median(gaps):
            found.append(client)
    return found


STEPS = {
    "fast": [0.1 * n for n in range(100)],
    "slow": [0.0, 3.0, 6.0, 9.0],
    "hung": [0.1 * n for n in range(60)],
    "just begun": [9.5],
}
SAVED = [*(0.1 * n for n in range(40)), *(60.0 + 0.1 * n for n in range(40))]
HUNG = WrittenExercise(
    hung,
    module="faults",
    cases=(
        Case("clients of 0.1 and 3 s a step, after 10 s", lambda code: code(STEPS, 10.0)),
        Case(
            "two that once saved for 56 s, and stopped 6 and 3 s ago",
            lambda code: code({"long": SAVED, "short": [*SAVED, SAVED[-1] + 3]}, SAVED[-1] + 6),
        ),
        Case("twice as patient", lambda code: code({"a": [0.0, 1.0, 2.0], "b": [0.0, 1.0]}, 8.0, factor=6.5)),
    ),
    mistakes={
        ("factor * median(gaps)", "factor"): (
            "So many seconds are many steps of one client and one of another: compare with its own usual gap."
        ),
        ("median(gaps)", "sum(gaps) / len(gaps)"): (
            "One long gap, a checkpoint for one, makes the mean patient: take the median."
        ),
        ("median(gaps)", "max(gaps)"): "One long gap makes the largest patient: take the median.",
        ("factor * median(gaps)", "median(gaps)"): "Every second step is later than the median: wait `factor` of it.",
    },
    hint="For each client the gaps between its steps (itertools.pairwise); it hangs where now − its last step is more "
    "than factor × their median. A client with fewer than two steps has no gap, and is left out.",
    explanation="Watch steps, not processes: to the operating system a hung client is busy.",
)

# --- what faults cost


def finish_hours(gaps: Iterable[float], work: float, every: float, save: float = 0.0, restart: float = 0.0) -> float:
    hours, pieces = 0.0, ceil(work / every)
    for gap in gaps:
        kept = int(gap // (every + save))
        if kept >= pieces:
            return hours + pieces * (every + save)
        pieces -= kept
        hours += gap + restart
    return float("inf")


GAPS = [2.5, 7.0, 1.4, 40.0]
FINISH = WrittenExercise(
    finish_hours,
    module="faults",
    cases=(
        Case("no fault in 10 hours of work", lambda code: code([100.0], 10, 1)),
        Case("faults after 2.5, 7 and 1.4 hours, 12 of work, saved every hour", lambda code: code(GAPS, 12, 1)),
        Case("the same, each restart taking half an hour", lambda code: code(GAPS, 12, 1, 0, 0.5)),
        Case("the same, each save a tenth", lambda code: code(GAPS, 12, 1, 0.1, 0.5)),
        Case("faults that come sooner than the first checkpoint", lambda code: code([1.0] * 5, 12, 2)),
    ),
    mistakes={
        ("pieces -= kept", ""): "What was saved before a fault stays: fewer pieces are left after it.",
        ("int(gap // (every + save))", "gap / (every + save)"): (
            "What was done since the last checkpoint is lost: only whole pieces are kept."
        ),
        ("gap + restart", "gap"): "Each fault costs a restart, too.",
        ("hours, pieces =", "save, hours, pieces = 0.0,"): "Each piece takes its work and the time of its save.",
    },
    hint="ceil(work / every) pieces of every + save hours. In each gap as many whole pieces are kept as fit in; if "
    "those are all that is left, the job is done; else gap + restart have passed.",
    explanation="Infinite where no piece ever fits between two faults.",
)


def expected_hours(
    work: float, mtbf: float, sharers: int, every: float, save: float = 0.0, restart: float = 0.0
) -> float:
    rate = sharers / mtbf
    return work / every * (1 / rate + restart) * (exp(rate * (every + save)) - 1)


EXPECTED = WrittenExercise(
    expected_hours,
    module="faults",
    cases=(
        Case("100 hours in one piece, a fault in 200", lambda code: code(100, 200, 1, 100)),
        Case("four sharers, saved every 5 hours", lambda code: code(100, 200, 4, 5)),
        Case("the same, each save 0.2 and each restart 0.5 hours", lambda code: code(100, 200, 4, 5, 0.2, 0.5)),
    ),
    mistakes={
        ("sharers / mtbf", "1 / mtbf"): "A job is stopped by its neighbours' faults, too: rates add up.",
        ("sharers / mtbf", "1 / mtbf / sharers"): "More jobs make faults more frequent, not rarer.",
        ("(every + save)", "every"): "A piece lasts every + save hours, and can fail in all of them.",
        ("(1 / rate + restart)", "1 / rate"): "Each fault costs a restart: 1/λ + restart.",
    },
    hint="λ = sharers / mtbf; a piece takes (1/λ + restart) (e^(λ (every + save)) − 1) hours; there are work / every.",
    explanation="The exponent is why one long piece is hopeless, and the saves are why very short ones are not free.",
)

# --- what to do after a fault


def next_start(endings: Sequence[str], most: int = 3) -> str:
    if endings.count("own") >= most or endings.count("memory") >= 2:
        return "give up"
    if "memory" in endings or list(endings[-2:]) == ["neighbour"] * 2:
        return "alone"
    return "share"


def _answers(*histories: Sequence[str], most: int = 3) -> Any:
    return lambda code: [code(list(endings), most) for endings in histories]


RETRY = WrittenExercise(
    next_start,
    module="faults",
    cases=(
        Case("no ending yet", _answers([])),
        Case("one fault of its own", _answers(["own"], ["own", "own"])),
        Case("three of its own", _answers(["own"] * 3, ["own", "neighbour", "own", "own"])),
        Case("memory that ran out, once and again", _answers(["memory"], ["memory", "own"], ["memory", "memory"])),
        Case("neighbours", _answers(["neighbour"], ["neighbour"] * 2, ["neighbour"] * 9, ["neighbour", "own"])),
        Case("at most one", _answers(["own"], ["neighbour"], most=1)),
    ),
    mistakes={
        ('endings.count("own")', "len(endings)"): (
            "A neighbour's fault is not the job's: only its own count towards `most`."
        ),
        ('return "alone"', 'return "share"'): (
            "What ran out of memory beside others, or was hit twice in a row, gets a device alone."
        ),
        ('endings.count("own") >= most or ', ""): (
            "A job that fails by itself again and again has a mistake: give up after `most`."
        ),
        lambda endings, most=3: "alone" if endings else "share": (
            "Alone is dear, for nobody may share meanwhile: keep it for memory, and for two neighbours in a row."
        ),
    },
    hint='"give up" first: `most` endings "own", or two "memory". Then "alone": any "memory", or the last two endings '
    'are "neighbour". Else "share".',
    explanation="Retry what may pass, isolate what does not fit, and leave alone what is broken.",
)

EXERCISES = {
    "41.blast": BLAST,
    "41.hung": HUNG,
    "41.finish": FINISH,
    "41.expected": EXPECTED,
    "41.retry": RETRY,
    "41.why_crash": Explanation(
        rubric=(
            "numbers: how many neighbours died, and how fast the others were afterwards",
            "why: separate address spaces of processes here; under MPS a fault of the GPU they share",
            "trade-off: sharing below the process gains throughput and shares faults",
        ),
        model="No neighbour died, and those who lived went on, for the operating system gives each process memory of "
        "its own and ends only the one that reads beyond it. Under MPS the processes share the GPU below that line, so "
        "a kernel's fault is reported to all on it: the throughput gained is paid for with shared faults.",
    ),
    "41.why_checkpoint": Explanation(
        rubric=(
            "numbers: the best interval alone and shared, and the hours that each leads to",
            "why: faults of all sharers add up, and each loses what was done since the last checkpoint",
            "trade-off: time of saves against work that is lost; gain of sharing against more faults",
        ),
        model="With four sharers faults come four times as often, so the best interval between checkpoints is about "
        "half as long (it goes with the square root of the time between faults). Saving oftener costs time always, "
        "saving seldom costs work at each fault; the gain of sharing has to be larger than both together.",
    ),
}

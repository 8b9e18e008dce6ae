# %% opening [markdown]
"""
# When a neighbour fails

After this notebook you will be able to

- **say** who dies with whom when a job that shares a device crashes, leaks, hangs or is killed, and **compute** it for clients of several GPUs;
- **measure** what a failing neighbour costs those who live, and **notice** a client that hangs;
- **predict** how long a job takes when faults stop it, and **choose** how often it saves;
- **write** a policy for what to start again, and **choose** a mode by what may fail.

**Time:** 75 minutes, in two halves that stand alone (faults that run, and what faults cost); the machine computes for about two minutes on 2 CPU cores. No GPU is needed; where there is one, its faults are run, too.

**Prerequisites:** [Sharing a device](40_sharing_a_device.ipynb).
"""

# %% checks
from collections.abc import Sequence
from typing import Any

from labkit_course.exercise import Case, Explanation, WrittenExercise

EXERCISES = {}

# %% params-prose [markdown]
"""
The next cell holds what you may change.
"""

# %% params tags=["parameters"]
profile = "standard"  # smoke, standard or full: how many faults are run, and how long each is watched

# %% faults-prose [markdown]
"""
## Ways to fail

Who shares a device shares it with the neighbours' mistakes. These are the faults of this lab:
"""

# %% faults
from labkit_course import apparatus

for fault in apparatus.FAULTS.values():
    print(f"{fault.name:10} {'on a GPU, ' if fault.gpu_only else ''}{fault.words}")

# %% crash-prose [markdown]
"""
All of them really happen, and none can harm your machine: the leak ends at its cap, and all clients have a supervisor, which kills whatever is left of them.

## A crash in the next process

A client called *faulty* and its neighbours each train the same small network, as processes of their own on the same cores (mode `cpu-shared`). Once all of them run, *faulty* reads memory that is not there. There are two neighbours; in the profile `smoke` there is one.

**How many neighbours die with it?**
"""

# %% guess-processes
from labkit_course import explain, guess, model_answer, reveal

guess("41.processes", 0, "neighbours")

# %% guess-after-prose [markdown]
"""
**And those who live: how many times as fast are they afterwards as they were before the crash?**
"""

# %% guess-after
guess("41.after", 1.5, "times as fast")

# %% crash-run-prose [markdown]
"""
The experiment waits until each act is over before the next one begins, so no clock has to be trusted: neighbours begin, *faulty* begins, all are watched, *faulty* fails, those who are left are watched. The columns before, during and after are steps per second, measured; during lasts until *faulty* is gone, and is empty where that is too soon to tell.
"""

# %% crash
import labkit

neighbours, seconds = {"smoke": (1, 0.25), "standard": (2, 1.0), "full": (3, 3.0)}[profile]
crash = apparatus.run_fault(
    "segfault", "cpu-shared", neighbours=neighbours, seconds=seconds, recovery=profile != "smoke"
)
rates = crash.jobs[["before", "during", "after"]].add_suffix(" (steps/s)")
labkit.plots.show(crash.jobs[["job", "status", "reason"]].join(rates))

# %% crash-reveal-prose [markdown]
"""
How far off were you?
"""

# %% crash-reveal
reveal("41.processes", crash.died)
reveal("41.after", crash.rate_ratio("after"))

# %% prose-41-why-crash [markdown]
"""
### Explain

What became of the neighbours, and how fast were those who lived? Say why a process that crashes does not take others with it, and what is different under MPS: its clients are processes, too, and since Volta each has an address space of its own, but what a kernel's fault reports to one client it reports to all who share the GPU.
"""

# %% explain 41.why_crash points=2
### BEGIN SOLUTION
answer = model_answer("41.why_crash")
### END SOLUTION
explain("41.why_crash", answer)

# %% checks
EXERCISES["41.why_crash"] = Explanation(
    rubric=(
        "numbers: how many neighbours died, and how fast the others were afterwards",
        "why: separate address spaces of processes here; under MPS a fault of the GPU they share",
        "trade-off: sharing below the process gains throughput and shares faults",
    ),
    model="No neighbour died, and those who lived went on, for the operating system gives each process memory of "
    "its own and ends only the one that reads beyond it. Under MPS the processes share the GPU below that line, so "
    "a kernel's fault is reported to all on it: the throughput gained is paid for with shared faults.",
)

# %% hang-prose [markdown]
"""
## A hang

A job that hangs is worse than one that crashes, because it goes unnoticed. Here, *faulty* stops training and keeps a core busy with something else, as a program that waits busily for a lock does. It is deaf to SIGTERM.

**How fast are the neighbours meanwhile, of what they were while *faulty* still trained?** 1 means as fast, 2 twice as fast.
"""

# %% guess-hang
guess("41.hang", 0.8, "times as fast")

# %% hang-run-prose [markdown]
"""
It is watched, then sent SIGTERM, and half a second later SIGKILL, which no process can refuse:
"""

# %% hang
hang = apparatus.run_fault("spin", "cpu-shared", neighbours=neighbours, seconds=seconds, recovery=False)
print(f"{hang.died} neighbours died; it took {hang.ended_by} to end the client.")
reveal("41.hang", hang.rate_ratio("during"))
labkit.plots.show(apparatus.figure_fault_timeline(hang.steps, gone_s=hang.gone_s))

# %% ex-41-hung [markdown]
"""
The dotted lines are the moment of the fault, and the one when the client was gone.

### Write: `hung` (8 minutes)

The operating system sees a busy process. A watcher that sees *steps* knows better: `hung(steps, now, factor=5)` gives the names of the clients that hang at the moment `now`. `steps` has for each client the moments of its steps (s), in order.

1. For each client compute the gaps between its steps.
2. It hangs when `now` minus its last step is more than `factor` × its *own* median gap. A client without a gap is left out.

Hint: `itertools.pairwise` and `statistics.median`.
"""

# %% answer 41.hung
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median


def hung(steps: Mapping[str, Sequence[float]], now: float, factor: float = 5) -> list[str]:
    """Names of the clients that hang."""
    ### BEGIN SOLUTION
    found = []
    for client, times in steps.items():
        gaps = [later - earlier for earlier, later in pairwise(times)]
        if gaps and now - times[-1] > factor * median(gaps):
            found.append(client)
    return found
    ### END SOLUTION


# %% check 41.hung points=4
from labkit_course import check

check("41.hung", hung)

# %% checks
STEPS = {
    "fast": [0.1 * n for n in range(100)],
    "slow": [0.0, 3.0, 6.0, 9.0],
    "hung": [0.1 * n for n in range(60)],
    "just begun": [9.5],
}


SAVED = [*(0.1 * n for n in range(40)), *(60.0 + 0.1 * n for n in range(40))]


EXERCISES["41.hung"] = WrittenExercise(
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
        ("factor * median(gaps)", "median(gaps)"): "Every second step is later than the median: wait `factor` of it.",
    },
    hint="For each client the gaps between its steps (itertools.pairwise); it hangs where now − its last step is more "
    "than factor × their median. A client with fewer than two steps has no gap, and is left out.",
    explanation="Watch steps, not processes: to the operating system a hung client is busy.",
)

# %% hung-used-prose [markdown]
"""
What would your watcher have said of the hang above, just before the client was ended? (Here a step is a window of 0.2 s in which the client took any.)
"""

# %% hung-used
before_end = hang.steps[(hang.steps["at_s"] < hang.gone_s) & (hang.steps["steps_per_s"] > 0)]
moments = {client: own["at_s"].tolist() for client, own in before_end.groupby("job")}
print("hangs:", hung(moments, now=hang.gone_s, factor=2) or "none, as far as so short a time shows")

# %% usable-prose [markdown]
"""
## When is the device usable again?

A fault is over when somebody else can work. So a *fresh* process was started after the crash above, and would have been tried again had it been refused. Another had been started before *faulty* began, for comparison. The neighbours trained during both. Most of its time is what any start takes: the interpreter, and importing torch.

**How many seconds after the crash had the fresh process taken its first step?**
"""

# %% guess-usable
guess("41.usable", 3.0, "s")

# %% usable-reveal-prose [markdown]
"""
Seconds from the fault until *faulty* was gone; from its start until a fresh process had taken its first step, before the crash; the same after it, counted from the fault; how many were tried, and how many processes were left behind. The profile `smoke` starts no fresh ones.
"""

# %% usable
reveal("41.usable", crash.fresh_after_s)
columns = ["gone_s", "fresh_before_s", "fresh_after_s", "attempts", "left", "provenance"]
labkit.plots.show(apparatus.fault_table([crash])[columns])

# %% grid-prose [markdown]
"""
## Every fault in every mode of a CPU

In mode `cpu-pinned` each client has cores and memory of its own, as a MIG instance has of a GPU. Rates are those of all neighbours, of what they were before the fault; `ended_by` is what it took to end the client. The profile `smoke` has only the two faults from above.
"""

# %% grid
from itertools import product

modes, faults = ["cpu-shared", "cpu-pinned"], ["exception", "leak", "hold", "spin", "kill"]
grid = [] if profile == "smoke" else list(product(modes, faults))
settings = {"neighbours": neighbours, "seconds": seconds, "recovery": False}
reports = [crash, hang, *(apparatus.run_fault(fault, mode, **settings) for mode, fault in grid)]
table = apparatus.fault_table(reports)
of_before = {"rate_during": "rate during, of before", "rate_after": "rate after, of before"}
table = table[["mode", "fault", "died", *of_before, "ended_by", "left", "provenance"]]
labkit.plots.show(table.rename(columns=of_before))

# %% grid-reading [markdown]
"""
What to look for: in which mode does `spin` slow the neighbours, and in which not? Which faults had to be ended from outside, and did any end a neighbour?

## On a GPU: what is documented

A fault *in a kernel* is another matter than one on the CPU, because the GPU's resources are shared below the processes. This is what NVIDIA documents, by mode; none of it was run here.
"""

# %% documented
documented = apparatus.documented_behaviour()
labkit.plots.show(documented[["mode", "fault", "gpus", "neighbours", "source", "provenance"]])

# %% documented-prose [markdown]
"""
In sentences, with the place to read on:
"""

# %% documented-words
for row in documented.itertuples():
    print(f"{row.mode}, {row.fault}, {row.gpus}: {row.documented}\n    {row.source}, {row.section}: {row.url}\n")

# %% gpu-prose [markdown]
"""
Documents are not always of one mind: the plug-in for Kubernetes says of time-slicing that if one crashes, all do; the API speaks of the *process* that has to start again. Measure where you can. Where a GPU is at hand, the next cell lets a client write out of its memory, under each mode that is possible; for MIG, make as many instances as there are clients and add `"mig"`.
"""

# %% gpu
why_not = labkit.sharing.modes_here(labkit.hardware.get_devices())
able = [mode for mode in ("naive", "mps") if why_not[mode] is None]
print("\n".join(f"Not run: {why_not[mode]}." for mode in ("naive", "mps") if mode not in able))
on_gpu = apparatus.fault_table(
    apparatus.run_fault("gpu-access", mode, neighbours=neighbours, seconds=seconds) for mode in able
)
labkit.plots.show(on_gpu[["mode", "fault", "died", "fresh_before_s", "fresh_after_s", "attempts", "provenance"]])

# %% ex-41-blast [markdown]
"""
## Who has to exit?

### Write: `must_exit` (8 minutes)

Under MPS since Volta a fatal fault is contained in the GPUs that are *shared between the clients of the faulty GPU*, and all clients on any of these have to exit. `must_exit(uses, gpu)` gives their names, sorted. `uses` has for each client the set of GPUs that it uses, and a kernel failed on `gpu`.

1. Collect the GPUs of all clients that use `gpu`.
2. Name every client that uses any of those, and go no further.

Hint: `|=` joins sets, and `gpus & touched` is empty where two have nothing in common.
"""

# %% answer 41.blast
from collections.abc import Mapping


def must_exit(uses: Mapping[str, set[int]], gpu: int) -> list[str]:
    """Clients that a fatal fault on a GPU ends, by name."""
    ### BEGIN SOLUTION
    touched = {gpu}
    for gpus in uses.values():
        if gpu in gpus:
            touched |= gpus
    return sorted(client for client, gpus in uses.items() if gpus & touched)
    ### END SOLUTION


# %% check 41.blast points=4
check("41.blast", must_exit)

# %% checks
FIVE = {"A": {0}, "B": {0}, "C": {0, 1}, "D": {1}, "E": {2}}


CHAIN = {"A": {0}, "B": {0, 1}, "C": {1, 2}, "D": {2}}


EXERCISES["41.blast"] = WrittenExercise(
    must_exit,
    module="faults",
    cases=(
        Case("five clients of three GPUs, a fault on GPU 0", lambda code: code(FIVE, 0)),
        Case("the same, a fault on GPU 2", lambda code: code(FIVE, 2)),
        Case("a chain of GPUs 0, 1 and 2, a fault on GPU 0", lambda code: code(CHAIN, 0)),
        Case("a GPU that no client uses", lambda code: code(FIVE, 7)),
    ),
    mistakes={
        ("touched |= gpus", "pass"): (
            "These use the GPU of the fault. But one of them uses another GPU, too, and the clients there get the error."
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

# %% blast-guess-prose [markdown]
"""
A team of 8 has a machine with four GPUs. Each member uses one GPU, and two of them use two. **On average over the four GPUs, how many clients does a fault end?**
"""

# %% blast-guess
guess("41.ended", 2.0, "clients")

# %% blast-used-prose [markdown]
"""
Count it, and what it would be if no client used two:
"""

# %% blast-used
team = {f"job {n}": {n % 4} for n in range(8)}
linked = team | {"job 0": {0, 1}, "job 2": {2, 3}}
ended = [len(must_exit(linked, gpu)) for gpu in range(4)]
reveal("41.ended", sum(ended) / 4)
print("without the two:", [len(must_exit(team, gpu)) for gpu in range(4)])

# %% ex-41-finish [markdown]
"""
## What faults cost

A job that is stopped by a fault starts again from its last checkpoint. How long does it take in the end?

### Write: `finish_hours` (10 minutes)

`finish_hours(gaps, work, every, save=0, restart=0)` gives the hours until `work` hours of training are done. `gaps` has the hours between faults, in order: a fault comes `gaps[0]` hours after the first start, the next `gaps[1]` hours after the restart, and so on. The job saves after each `every` hours of work, which takes `save` hours; a restart takes `restart` hours.

1. There are ⌈work / every⌉ pieces of `every + save` hours. In a gap as many *whole* pieces are kept as fit into it.
2. If these are all that is left, the job is done after them; else gap and restart have passed, and fewer pieces are left.

Return infinity if the gaps end first.
"""

# %% answer 41.finish
from collections.abc import Iterable
from math import ceil


def finish_hours(gaps: Iterable[float], work: float, every: float, save: float = 0.0, restart: float = 0.0) -> float:
    """Hours until the work is done, with the faults that come."""
    ### BEGIN SOLUTION
    hours, pieces = 0.0, ceil(work / every)
    for gap in gaps:
        kept = int(gap // (every + save))
        if kept >= pieces:
            return hours + pieces * (every + save)
        pieces -= kept
        hours += gap + restart
    return float("inf")
    ### END SOLUTION


# %% check 41.finish points=5
check("41.finish", finish_hours)

# %% checks
GAPS = [2.5, 7.0, 1.4, 40.0]


EXERCISES["41.finish"] = WrittenExercise(
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
    },
    hint="ceil(work / every) pieces of every + save hours. In each gap as many whole pieces are kept as fit in; if "
    "those are all that is left, the job is done; else gap + restart have passed.",
    explanation="Infinite where no piece ever fits between two faults.",
)

# %% ex-41-expected [markdown]
r"""
### Write: `expected_hours` (4 minutes)

If faults come at random, at a rate of $λ$ an hour, a piece of $t$ hours is expected to take $(1/λ + r)\,(e^{λt} − 1)$ hours with a restart of $r$ hours after each fault. Jobs that share a GPU under MPS share its faults, so $λ$ = sharers / mtbf, with `mtbf` the hours between faults of *one* job. `expected_hours(work, mtbf, sharers, every, save=0, restart=0)` adds up the `work / every` pieces.
"""

# %% answer 41.expected
from math import exp


def expected_hours(
    work: float, mtbf: float, sharers: int, every: float, save: float = 0.0, restart: float = 0.0
) -> float:
    """Hours that a job is expected to take."""
    ### BEGIN SOLUTION
    rate = sharers / mtbf
    return work / every * (1 / rate + restart) * (exp(rate * (every + save)) - 1)
    ### END SOLUTION


# %% check 41.expected points=3
check("41.expected", expected_hours)

# %% checks
EXERCISES["41.expected"] = WrittenExercise(
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
    },
    hint="λ = sharers / mtbf; a piece takes (1/λ + restart) (e^(λ (every + save)) − 1) hours; there are work / every.",
    explanation="The exponent is why one long piece is hopeless, and the saves are why very short ones are not free.",
)

# %% both-prose [markdown]
"""
Two ways to the same number, so try one against the other: a job of 100 hours, saved every 5, each save 0.1 and each restart 0.5 hours, four sharers with a fault in 200 hours each. Your simulation, with the gaps of 2,000 tries:
"""

# %% both
import numpy as np

rng = np.random.default_rng(0)
tries = rng.exponential(200 / 4, (2_000, 200))
simulated = np.mean([finish_hours(gaps, 100, 5, 0.1, 0.5) for gaps in tries])
print(f"simulated {simulated:.1f} h, by the formula {expected_hours(100, 200, 4, 5, 0.1, 0.5):.1f} h")

# %% every-prose [markdown]
"""
Saving oftener costs time, saving seldom costs work. **Every how many hours should the four sharers save, to be done soonest?**
"""

# %% every-guess
guess("41.every", 10.0, "hours")

# %% every-run-prose [markdown]
r"""
Try many, for one job alone and for four that share. Young's rule of thumb (1974) says $\sqrt{2 · \text{save} · \text{mtbf} / \text{sharers}}$.
"""

# %% every
every = np.geomspace(0.5, 100, 400)
hours = {sharers: [expected_hours(100, 200, sharers, k, 0.1, 0.5) for k in every] for sharers in (1, 4)}
best = {sharers: every[np.argmin(own)] for sharers, own in hours.items()}
reveal("41.every", best[4])
for sharers, own in hours.items():
    young = (2 * 0.1 * 200 / sharers) ** 0.5
    print(f"{sharers}: every {best[sharers]:.1f} h (Young {young:.1f}) {min(own):.1f} h; never {own[-1]:.0f} h")

# %% prose-41-why-checkpoint [markdown]
"""
### Explain

Why do four sharers save oftener than one, and what does a long interval cost them? Name hours from above, and say what the gain of sharing has to be for it to pay off.
"""

# %% explain 41.why_checkpoint points=2
### BEGIN SOLUTION
answer = model_answer("41.why_checkpoint")
### END SOLUTION
explain("41.why_checkpoint", answer)

# %% checks
EXERCISES["41.why_checkpoint"] = Explanation(
    rubric=(
        "numbers: the best interval alone and shared, and the hours that each leads to",
        "why: faults of all sharers add up, and each loses what was done since the last checkpoint",
        "trade-off: time of saves against work that is lost; gain of sharing against more faults",
    ),
    model="With four sharers faults come four times as often, so the best interval between checkpoints is about "
    "half as long (it goes with the square root of the time between faults). Saving oftener costs time always, "
    "saving seldom costs work at each fault; the gain of sharing has to be larger than both together.",
)

# %% ex-41-retry [markdown]
"""
## Start it again?

### Write: `next_start` (6 minutes)

`next_start(endings, most=3)` says what to do with a job whose attempts have ended so: a list of `"own"` (it failed by itself), `"neighbour"` (a neighbour's fault ended it) and `"memory"` (it ran out of memory), oldest first.

1. `"give up"`: it failed by itself `most` times, or ran out of memory twice, the second time alone.
2. Else `"alone"`: it ever ran out of memory, or its last two endings were a neighbour's.
3. Else `"share"`.
"""

# %% answer 41.retry
from collections.abc import Sequence


def next_start(endings: Sequence[str], most: int = 3) -> str:
    """Whether a job starts again, and how."""
    ### BEGIN SOLUTION
    if endings.count("own") >= most or endings.count("memory") >= 2:
        return "give up"
    if "memory" in endings or list(endings[-2:]) == ["neighbour"] * 2:
        return "alone"
    return "share"
    ### END SOLUTION


# %% check 41.retry points=4
check("41.retry", next_start)


# %% checks
def _answers(*histories: Sequence[str], most: int = 3) -> Any:
    return lambda code: [code(list(endings), most) for endings in histories]


EXERCISES["41.retry"] = WrittenExercise(
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
            "What ran out of memory next to others, or was hit twice in a row, gets a device alone."
        ),
        lambda endings, most=3: "alone" if endings else "share": (
            "Alone is expensive, for no job may share meanwhile: keep it for memory, and for two neighbours in a row."
        ),
    },
    hint='"give up" first: `most` endings "own", or two "memory". Then "alone": any "memory", or the last two endings '
    'are "neighbour". Else "share".',
    explanation="Retry what may pass, isolate what does not fit, and leave alone what is broken.",
)

# %% retry-used-prose [markdown]
"""
Your policy on the faults of this lab, three times in a row each:
"""

# %% retry-used
for kind in ("own", "neighbour", "memory"):
    print(f"{kind:10}", [next_start([kind] * n) for n in range(1, 4)])

# %% prose-claim-C9 [markdown]
"""
## Judge

The MPS documentation says that a fatal fault of one client ends all on that GPU. The processes on a CPU are no test of it: what ends them is the operating system, not a driver that they share.
"""

# %% claim C9 points=1
from labkit_course import claim

under_mps = on_gpu[on_gpu["mode"] == "mps"]["died"].tolist()
said = f"neighbours that died: MPS {under_mps or 'not run'}; CPU {crash.died} of {neighbours}"
### BEGIN SOLUTION
of_all = "holds here" if under_mps == [neighbours] else "does not hold here"
reason = "a CPU keeps processes apart, and no GPU under MPS was at hand" if not under_mps else "an illegal access, run"
answer = of_all if under_mps else "cannot be tested here", reason
### END SOLUTION
claim("C9", said, answer)

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
    died_of_processes=(crash.died, 0, 0),
    rate_after_crash=(crash.rate_ratio("after"), 0.05, 50),
    rate_during_hang=(hang.rate_ratio("during"), 0.01, 50),
    fresh_after_s=(crash.fresh_after_s, 0.05, 120),
    best_every=(best[4], 2, 5),
    simulated_over_formula=(simulated / expected_hours(100, 200, 4, 5, 0.1, 0.5), 0.9, 1.1),
    left_behind=(table["left"].sum(), 0, 0),
)

# %% recap [markdown]
"""
## Recap

- Processes are kept apart by the operating system: a crash, a leak under a cap, or a kill ends one client, and the others get what it leaves.
- A hang costs more than a crash, because it holds what it has until somebody looks: watch for steps, not for processes.
- Under MPS a fatal fault of one client ends all that share its GPU, and a client on two GPUs carries it on; MIG contains it.
- Who shares a GPU shares its faults: the best interval between checkpoints shrinks with the square root of the sharers.
- Retry what may pass, isolate what does not fit, give up on what is broken.

**Next:** [Packing a queue](42_packing_a_queue.ipynb)
"""

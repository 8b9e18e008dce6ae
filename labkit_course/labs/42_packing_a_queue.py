# %% cell-00 [markdown]
"""
# Packing a queue

After this notebook you will be able to

- **write** a first-come-first-served queue, best-fit, and a scheduler of your own that knows nothing of what jobs do to each other;
- **compare** it with one that does, on the same 60 jobs: makespan, wait, slowdown, energy;
- **say** what a wrong memory estimate costs;
- **replay** a queue from recorded profiles, **run** one, and **judge** how far the replay can be trusted.

**Time:** 80 minutes, in two halves that stand alone (up to *Your scheduler*, and from *When an estimate is wrong* on); the machine computes for about two minutes on 2 CPU cores. No GPU is needed.

**Prerequisites:** [Sharing a device](40_sharing_a_device.ipynb).
"""

# %% checks
from labkit_course.exercise import Case, Explanation, WrittenExercise

EXERCISES = {}

# %% cell-01 [markdown]
"""
The next cell holds what you may change.
"""

# %% cell-02 tags=["parameters"]
profile = "standard"  # smoke, standard or full: which queue is really run, and how often
runs_dir = "runs"  # each queue that is run makes a folder of its own in here

# %% cell-03 [markdown]
"""
## A queue

On a machine that several people use, jobs come when they come, and somebody has to decide where and when each starts. The simplest rule is **exclusive**: a device for each job. It is safe, and leaves idle whatever a job does not use.

labkit ships a queue of 60 jobs. They were drawn at random from the jobs below: each of them ran alone on one machine, where its time and its memory were **recorded**; so was what they cost each other in pairs. The estimated memory is labkit's, from before the start.
"""

# %% queue
import labkit

recorded = labkit.sharing.read_recorded()
folder = labkit.project.shipped_datasets() / "recorded"
queue = recorded.fill(labkit.sharing.read_queue(folder / "queue_60.yaml"))
print(f"{len(queue)} jobs; the last comes {queue[-1].arrives_s:.0f} s after the first")
print(f"recorded on {recorded.device}, {recorded.cores} cores")

# %% cell-04 [markdown]
"""
What each kind of job is when it is alone:
"""

# %% kinds
import pandas as pd

alone = {each.job.name: each.profile for each in recorded.jobs}
kinds = pd.DataFrame({"alone (s)": {name: each.duration_s for name, each in alone.items()}})
kinds["memory (MiB)"] = [each.memory_bytes / 2**20 for each in alone.values()]
kinds["estimated (MiB)"] = [each.memory_estimate_bytes / 2**20 for each in alone.values()]
kinds["share of cores"] = [each.utilisation for each in alone.values()]
labkit.plots.show(kinds)

# %% ex-42-fifo [markdown]
"""
## First come, first served

### Write: `fifo_makespan` (8 minutes)

`fifo_makespan(jobs, devices)` gives the time (s) at which the last job ends, if each job has a device for itself. `jobs` are pairs of arrival and duration (s), in the order of arrival; `devices` is their number.

1. Keep for each device when it is free.
2. Each job in turn takes the device that is free first, and starts at the later of that moment and its arrival.

Hint: `heapq.heapreplace` takes the smallest from a heap and puts a new number in; a plain list and `min` will do.
"""

# %% answer 42.fifo
from collections.abc import Sequence
from heapq import heapify, heapreplace


def fifo_makespan(jobs: Sequence[tuple[float, float]], devices: int) -> float:
    """When the last job ends, with a device for each job."""
    ### BEGIN SOLUTION
    free_at = [0.0] * devices
    heapify(free_at)
    for arrives, lasts in jobs:
        heapreplace(free_at, max(arrives, free_at[0]) + lasts)
    return max(free_at)
    ### END SOLUTION


# %% check 42.fifo points=4
from labkit_course import check

check("42.fifo", fifo_makespan)

# %% checks
QUEUE = [(0.0, 10.0), (0.0, 2.0), (1.0, 3.0), (4.0, 1.0), (20.0, 5.0)]


EXERCISES["42.fifo"] = WrittenExercise(
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

# %% fifo-used-prose [markdown]
"""
On the 60 jobs and two small machines, with two cores and 2 GiB of memory each:
"""

# %% fifo-used
alone_s = [(job.arrives_s, job.profile.duration_s) for job in queue]
mine_s = fifo_makespan(alone_s, 2)
print(f"{mine_s:.1f} s on two machines, {fifo_makespan(alone_s, 4):.1f} s on four: predicted")

# %% cell-05 [markdown]
"""
## Sharing

labkit calls that policy *exclusive*. Its others let jobs share a device. A policy is asked whenever something changed: a job came, or ended. It sees what is *believed* of the jobs (estimates) and what a monitor sees of the devices, never the truth. A device is open to a job when its memory suffices and the job would gain more than it costs the others; of those that are open, the policy takes one.
"""

# %% policies
for policy in labkit.sharing.POLICIES.values():
    print(f"{policy.name:17} {policy.summary}")

# %% ex-42-best-fit [markdown]
"""
### Write: `best_fit` (4 minutes)

`best_fit(need, free)` gives the position of the device that leaves least memory free, or None where none has enough. `free` is a list, one number a device; of equal ones take the first.

Hint: `min(..., key=..., default=None)`.
"""

# %% answer 42.best_fit
from collections.abc import Sequence


def best_fit(need: int, free: Sequence[int]) -> int | None:
    """The position of the device that a job goes to, or None."""
    ### BEGIN SOLUTION
    left = {place: there - need for place, there in enumerate(free) if there >= need}
    return min(left, key=left.get, default=None)
    ### END SOLUTION


# %% check 42.best_fit points=3
check("42.best_fit", best_fit)

# %% checks
EXERCISES["42.best_fit"] = WrittenExercise(
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
    },
    hint="Among the places where free ≥ need, the one with the least free − need; None where there is no such place.",
    explanation="Large holes stay together for jobs that need them.",
)

# %% cell-06 [markdown]
"""
CARMA ([arXiv 2508.19073](https://arxiv.org/abs/2508.19073)), whose idea this is, found about 35 % less makespan and 15 % less energy than exclusive, for 60 jobs of its own on a server with four GPUs. **By how many per cent is the makespan of our 60 jobs shorter with best-fit than with exclusive?**
"""

# %% guess-makespan
from labkit_course import explain, guess, model_answer, reveal

guess("42.makespan", 20.0, "% shorter")

# %% cell-07 [markdown]
"""
The replay takes no time: it only adds up. A job next to others progresses more slowly, by as much as such pairs were recorded to (`shared_slowdown`), and takes its *true* memory shortly after its start. The scheduler believes the same pairs, so it **knows what will happen**, as no real one does. All numbers are **predicted from recorded profiles**.
"""

# %% compare
devices = [labkit.sharing.PackingDevice("first", 2 * 2**30), labkit.sharing.PackingDevice("second", 2 * 2**30)]
slowdown = labkit.sharing.shared_slowdown(recorded)
report = labkit.sharing.pack_report(queue, devices, slowdown=slowdown, admission=labkit.sharing.cpu_admission(slowdown))
columns = ["policy", "makespan_s", "makespan_ratio", "mean_wait_s", "mean_completion_s", "mean_slowdown", "ooms"]
labkit.plots.show(report.totals[columns].set_index("policy"))

# %% cell-08 [markdown]
"""
Beside your guess, and CARMA's number for its own jobs on GPUs:
"""

# %% reveal-makespan
ratio = report.totals.set_index("policy")["makespan_ratio"]["best-fit"]
reveal("42.makespan", 100 * (1 - ratio))
exclusive_s = report.totals.set_index("policy")["makespan_s"]["exclusive"]
carma = labkit.sharing.CARMA_MAKESPAN
print(f"CARMA: {100 * (1 - carma):.0f} % shorter; exclusive {exclusive_s:.1f} s, by yours {mine_s:.1f}")

# %% cell-09 [markdown]
"""
Look at the columns: each job is *slower* under a policy that shares, and yet it is done *sooner*, because it waits less. This is best-fit's schedule, a bar for each start of a job; lines of one device are jobs that run at the same time.
"""

# %% gantt
schedule = report.schedule[report.schedule["policy"] == "best-fit"]
labkit.plots.show(labkit.plots.figure_queue(schedule, provenance="predicted"))

# %% prose-42-why-wait [markdown]
"""
### Explain

Each job is *slower* under a policy that shares, and yet it is done *sooner*. Where does the time go? Name numbers of the table, and say who loses.
"""

# %% explain 42.why_wait points=2
### BEGIN SOLUTION
answer = model_answer("42.why_wait")
### END SOLUTION
explain("42.why_wait", answer)

# %% checks
EXERCISES["42.why_wait"] = Explanation(
    rubric=(
        "numbers: makespan, mean wait and mean slowdown of exclusive and of best-fit",
        "why: each job is slower, and the time in line falls by more",
        "trade-off: who gains (the queue) and who loses (a job that would have had a device at once)",
    ),
    model="Under best-fit jobs start at once instead of waiting for a device, so the mean completion time falls "
    "although each job runs slower next to others, and the last one ends sooner. A job that meets an empty machine "
    "loses: it would have been faster with the device for itself.",
)

# %% ex-42-gain [markdown]
r"""
## Your scheduler

Nobody has measured all pairs of jobs beforehand. A scheduler that knows only how busy each job keeps a device alone has to believe something.

### Write: `believed_gain` and `place` (12 minutes)

`believed_gain(busy)`: of $n$ jobs, each of which alone keeps a share of the device busy, each takes $\max(1, \sum \text{busy})$ times as long together. The function gives the work that they do together, of that of one job alone: 0 for no job.
"""

# %% answer 42.gain
from collections.abc import Sequence


def believed_gain(busy: Sequence[float]) -> float:
    """Work that jobs are believed to do together, of that of one alone."""
    ### BEGIN SOLUTION
    return len(busy) / max(1.0, sum(busy))
    ### END SOLUTION


# %% check 42.gain points=2
check("42.gain", believed_gain)

# %% checks
EXERCISES["42.gain"] = WrittenExercise(
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

# %% ex-42-place [markdown]
"""
`place(need, busy, devices)` gives the position of the device on which a job starts, or None: it waits. The job needs `need` bytes and keeps `busy` of a device busy; `devices` has for each its free bytes and a list of the `busy` of the jobs on it.

1. A device is open where the memory suffices and it is empty, or where the job raises the believed gain by 5 % or more.
2. Of those take the one that best-fit would.
"""

# %% answer 42.place
from collections.abc import Sequence


def place(need: int, busy: float, devices: Sequence[tuple[int, Sequence[float]]]) -> int | None:
    """The position of the device on which a job starts, or None."""
    ### BEGIN SOLUTION
    open_to = {}
    for number, (free, others) in enumerate(devices):
        worth = believed_gain([*others, busy]) >= 1.05 * believed_gain(others)
        if free >= need and (not others or worth):
            open_to[number] = free - need
    return min(open_to, key=open_to.get, default=None)
    ### END SOLUTION


# %% check 42.place points=4
check("42.place", place)

# %% checks
EXERCISES["42.place"] = WrittenExercise(
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
    },
    hint="A device is open where free ≥ need and it is empty or believed_gain([*others, busy]) is at least 1.05 times "
    "believed_gain(others). Of those, best-fit; None where none is open.",
    explanation="It knows nothing of pairs: only what a monitor shows and what a job asks for.",
)

# %% unknown-guess-prose [markdown]
"""
What really happens in the replay is what was recorded, whatever the scheduler believes. **How many times as long as with known pairs does the queue take with your scheduler?**
"""

# %% unknown-guess
guess("42.unknown", 1.2, "times as long")

# %% unknown-prose [markdown]
"""
Three beliefs under the same truth: the recorded pairs, your utilisations, and memory alone (a job joins wherever it fits).
"""

# %% unknown
from labkit_course import apparatus

blind = apparatus.OwnPolicy("memory alone", lambda need, busy, held: best_fit(need, [free for free, _ in held]))
own = apparatus.OwnPolicy("utilisations (yours)", place)
known = {"slowdown": slowdown, "admission": labkit.sharing.cpu_admission(slowdown)}
plans = {"known pairs": labkit.sharing.simulate(queue, devices, labkit.sharing.get_policy("best-fit"), **known)}
plans |= {each.name: labkit.sharing.simulate(queue, devices, each, slowdown=slowdown) for each in (own, blind)}
plans["exclusive"] = labkit.sharing.simulate(queue, devices, labkit.sharing.get_policy("exclusive"), **known)

# %% unknown-table-prose [markdown]
"""
Predicted, all four:
"""

# %% unknown-table
shown = ["makespan_s", "mean_wait_s", "mean_completion_s", "mean_slowdown", "ooms"]
totals = pd.DataFrame({name: plan.totals for name, plan in plans.items()}).T[shown].astype(float)
unknown = totals["makespan_s"]["utilisations (yours)"] / totals["makespan_s"]["known pairs"]
reveal("42.unknown", unknown)
labkit.plots.show(totals)

# %% prose-42-why-unknown [markdown]
"""
### Explain

What did not knowing cost, in makespan and in jobs that ran out of memory? What does a utilisation not tell, and when would you measure pairs?
"""

# %% explain 42.why_unknown points=2
### BEGIN SOLUTION
answer = model_answer("42.why_unknown")
### END SOLUTION
explain("42.why_unknown", answer)

# %% checks
EXERCISES["42.why_unknown"] = Explanation(
    rubric=(
        "numbers: makespan and wait with known pairs, with utilisations alone, and with memory alone",
        "why: a full device slows all that are on it; what a utilisation does not show (caches, waiting threads)",
        "trade-off: what it costs to measure pairs against what knowing them gains on this queue",
    ),
    model="In this replay utilisations alone end the queue as soon as known pairs do, with shorter waits: what "
    "counts here is not to crowd a device, and that they show. Memory alone crowds devices, so each job is slower, "
    "more of them run out of memory, and the queue takes a third longer. Pairs would pay where jobs of like "
    "utilisation differ in what they do to each other's caches or threads; measuring them grows with the square of "
    "the kinds.",
)

# %% ex-42-energy [markdown]
"""
## Energy

### Write: `energy_j` (10 minutes)

`energy_j(bars, devices, idle_w, busy_w)` gives the joules of all devices from the first start to the last end. `bars` are tuples of a device's name, start and end (s), in any order, and may overlap; `devices` is how many there are. A device takes `busy_w` watts while at least one job is on it, and `idle_w` otherwise.

1. Add up for each device the seconds in which it has a job: sort by start, and count only what a bar adds to the end so far.
2. Idle watts of all devices over the whole time, and the difference on top of the busy seconds.
"""

# %% answer 42.energy
from collections.abc import Sequence


def energy_j(bars: Sequence[tuple[str, float, float]], devices: int, idle_w: float, busy_w: float) -> float:
    """Joules of all devices from the first start to the last end."""
    ### BEGIN SOLUTION
    busy_s = 0.0
    busy_until: dict[str, float] = {}
    for device, starts, ends in sorted(bars, key=lambda bar: bar[1]):
        begins = max(starts, busy_until.get(device, starts))
        busy_s += max(0.0, ends - begins)
        busy_until[device] = max(ends, begins)
    makespan_s = max(ends for _, _, ends in bars) - min(starts for _, starts, _ in bars)
    return devices * idle_w * makespan_s + (busy_w - idle_w) * busy_s
    ### END SOLUTION


# %% check 42.energy points=5
check("42.energy", energy_j)

# %% checks
BARS = [("a", 0.0, 10.0), ("b", 0.0, 4.0), ("a", 2.0, 12.0), ("b", 6.0, 7.0), ("a", 3.0, 5.0)]


EXERCISES["42.energy"] = WrittenExercise(
    energy_j,
    module="packing",
    cases=(
        Case("one job of 10 s, 20 W idle and 100 W busy", lambda code: code([("a", 0.0, 10.0)], 1, 20.0, 100.0)),
        Case("the same, and a device that idles", lambda code: code([("a", 0.0, 10.0)], 2, 20.0, 100.0)),
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
    },
    hint="Each device takes idle_w over the makespan, and busy_w − idle_w more in the seconds in which it has at least "
    "one job: sort its bars by start, and add what each one adds to the end so far.",
    explanation="Packing saves idle power by ending sooner, and busy power where devices are busy for less time.",
)

# %% energy-used-prose [markdown]
"""
Assume 20 W for an idle machine and 60 W for a busy one; neither was measured. It takes the same power for one job as for two, which flatters sharing:
"""


# %% energy-used
def joules(plan):
    bars = plan.attempts[["device", "starts_s", "ends_s"]].itertuples(index=False, name=None)
    return energy_j(list(bars), 2, 20, 60)


energy = pd.Series({name: joules(plan) / 1e3 for name, plan in plans.items()})
energy_ratio = energy["known pairs"] / energy["exclusive"]
labkit.plots.show(energy.to_frame("predicted energy (kJ)"))

# %% cell-10 [markdown]
"""
## When an estimate is wrong

A job that was believed to be smaller than it is finds no memory left. Its process ends, and all it did is lost. CARMA's remedy is ours: the job runs **again, alone, once**: a device is closed to others, and its own as soon as it is empty.

Suppose that every job were believed to need *half* of what it really takes. **How many of the 60 jobs would run out of memory?**
"""

# %% guess-half
guess("42.half", 15.0, "jobs")

# %% cell-11 [markdown]
"""
The same queue with halved beliefs; the truth stays what it is:
"""

# %% half
from dataclasses import replace

believed = []
for job in queue:
    halved = replace(job.profile, memory_estimate_bytes=job.profile.memory_bytes // 2)
    believed.append(replace(job, profile=halved))
halved = labkit.sharing.simulate(believed, devices, labkit.sharing.get_policy("best-fit"), **known)

# %% cell-12 [markdown]
"""
What came of it, and labkit's estimates:
"""

# %% half-table
reveal("42.half", int(halved.jobs["oom"].sum()))
both = {"labkit's estimates": plans["known pairs"].totals, "half of the truth": halved.totals}
table = pd.DataFrame(both).T[["makespan_s", "mean_completion_s", "ooms", "done", "failed"]].astype(float)
labkit.plots.show(table)

# %% cell-16 [markdown]
"""
## A queue that really runs

A replay cannot be better than what it is made from, so run a queue. `queue_8.yaml` has eight small jobs, `queue_3.yaml`, for the profile `smoke`, three tiny ones. On your machine they share all cores, and the policy may count with 1.25 GiB of memory. **How many times as long as with exclusive will the eight jobs take with best-fit?** (Below 1 is shorter. In `smoke` this is not measured.)
"""

# %% guess-real
guess("42.real", 0.8, "times as long")

# %% cell-17 [markdown]
"""
A supervisor process starts each job when the policy says so, and leaves nothing running, whatever happens. In a terminal, `labkit pack` does the same.
"""

# %% run
memory_bytes, turns = int(1.25 * 2**30), {"smoke": 1, "standard": 1, "full": 3}[profile]
small = profile == "smoke"
real = recorded.fill(labkit.sharing.read_queue(folder / ("queue_3.yaml" if small else "queue_8.yaml")))
names = ["best-fit"] if small else ["exclusive", "best-fit"]
ran = [
    {name: labkit.sharing.pack(real, name, runs_dir=runs_dir, memory_bytes=memory_bytes) for name in names}
    for _ in range(turns)
]

# %% cell-18 [markdown]
"""
Best-fit's schedule, as it was measured:
"""

# %% real-gantt
labkit.plots.show(labkit.plots.figure_queue(ran[-1]["best-fit"].attempts, provenance="measured"))

# %% cell-19 [markdown]
"""
Beside it, the replay of the eight jobs from the recorded profiles. They are of *another* machine, perhaps, and they are steady: in truth a job first starts Python, loads its data and builds its model, mostly on one core, which is when a neighbour gains most.
"""

# %% real-table
from statistics import median

eight = labkit.sharing.read_queue(folder / "queue_8.yaml")
rows = []
for name in ("exclusive", "best-fit"):
    predicted = labkit.sharing.predict(eight, name, memory_bytes=memory_bytes).totals["makespan_s"]
    measured = float("nan") if small else median(turn[name].totals["makespan_s"] for turn in ran)
    rows.append({"policy": name, "predicted_s": predicted, "measured_s": measured})
makespans = pd.DataFrame(rows).set_index("policy")
labkit.plots.show(makespans)

# %% cell-20 [markdown]
"""
How far off were you, and the replay?
"""

# %% real-reveal
ratios = makespans.loc["best-fit"] / makespans.loc["exclusive"]
reveal("42.real", ratios["measured_s"])
print(f"The replay said {ratios['predicted_s']:.2f} times as long.")

# %% prose-claim-C10 [markdown]
"""
## Judge

CARMA: 35 % less makespan and 15 % less energy, on GPUs. Yours are two CPU machines that were replayed, and a queue of eight that ran.
"""

# %% claim C10 points=1
from labkit_course import claim

sooner, saved = 100 * (1 - ratio), 100 * (1 - energy_ratio)
real_words = "not run" if small else f"{ratios['measured_s']:.2f} times the makespan"
said = f"{sooner:.0f} % less makespan, {saved:.0f} % less energy; eight jobs really run: {real_words}"
### BEGIN SOLUTION
both = "holds here" if sooner >= 20 and saved >= 10 else "does not hold here"
answer = both, "of other jobs on CPUs, where the scheduler knew the pairs and the watts are assumed"
### END SOLUTION
claim("C10", said, answer, how="predicted")

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
    fifo_over_exclusive=(mine_s / exclusive_s, 0.99, 1.01),
    makespan_ratio=(ratio, 0.2, 1.5),
    unknown_ratio=(unknown, 0.3, 4),
    energy_ratio=(energy_ratio, 0.2, 1.5),
    half_ooms=(int(halved.jobs["oom"].sum()), 0, 60),
    predicted_ratio=(ratios["predicted_s"], 0.2, 1.5),
    measured_ratio=(None if small else ratios["measured_s"], 0.1, 2),
    jobs_done=(ran[-1]["best-fit"].totals["done"], len(real), len(real)),
)

# %% recap [markdown]
"""
## Recap

- A queue gains from sharing even though every job in it loses: what shrinks is the wait.
- Memory decides first. A wrong estimate costs an attempt, and recovery costs a device that no other job may use meanwhile.
- A greedy scheduler that knows every pair need not be the best one; one that knows utilisations alone can come as far, and one that knows memory alone does not.
- Energy falls with the time that devices idle and with the time that they are busy; a replay knows only assumed watts.
- A replay is as good as what was recorded: run something, and compare.

**Next:** [Time to accuracy](50_time_to_accuracy.ipynb)
"""

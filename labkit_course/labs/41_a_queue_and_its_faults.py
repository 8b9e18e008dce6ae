# %% opening [markdown] disk_gb=0.5
"""
# A queue and its faults

After this notebook you will be able to

- **write** a scheduler that knows nothing of what jobs do to each other, and **compare** it with one that does;
- **say** what a wrong memory estimate costs, and **test** a predicted queue by running one;
- **notice** a job that hangs, and **name** the jobs that a fault on a shared GPU ends;
- **predict** how long a job takes when faults stop it, and **choose** how often it saves.

**Time:** 85 minutes, in two halves that stand alone (*A queue* and *Faults*). The machine computes for about three of them on 2 CPU cores. No GPU is needed. If there is one, a fault is run on it, too.

**Prerequisites:** [Sharing a device](40_sharing_a_device.ipynb).
"""

# %% checks
from collections.abc import Sequence
from typing import Any

from labkit_course.exercise import Case, Explanation, WrittenExercise

MODULE = "faults"
EXERCISES = {}

# %% params-prose [markdown]
"""
The next cell holds what you may change.
"""

# %% params tags=["parameters"]
profile = "standard"  # smoke, standard or full: which queue and which faults are really run, and for how long
runs_dir = "runs"  # each queue that is run makes a folder of its own in here

# %% queue-prose [markdown]
"""
## A queue

On a machine that several people use, something has to decide where and when each job starts. The simplest rule is *exclusive*: a device for each job, in the order in which the jobs come. It is safe, and it leaves idle whatever a job does not use.

labkit ships a queue of 60 jobs, drawn at random from seven kinds. Each kind ran alone on one machine, and so did each pair of kinds. Their times and memory were **recorded**. The estimate of the memory is labkit's, from before the start.
"""

# %% queue
import pandas as pd

import labkit

recorded = labkit.sharing.read_recorded()
folder = labkit.project.shipped_datasets() / "recorded"
queue = recorded.fill(labkit.sharing.read_queue(folder / "queue_60.yaml"))
print(f"{len(queue)} jobs, the last after {queue[-1].arrives_s:.0f} s; recorded on {recorded.device}")
alone = pd.DataFrame({each.job.name: vars(each.profile) for each in recorded.jobs}).T
kinds = pd.DataFrame({"time alone (s)": alone["duration_s"], "cores used (share)": alone["utilisation"]}, dtype=float)
kinds["memory (MiB)"] = alone["memory_bytes"] / 2**20
labkit.plots.show(kinds.assign(**{"estimated (MiB)": alone["memory_estimate_bytes"] / 2**20}))

# %% exclusive-prose [markdown]
"""
Two small machines serve the queue, with two cores and 2 GiB each. Your `makespan` of lab 40 says how long *exclusive* takes: each machine is a slot, and each job has the speed that it has alone.
"""

# %% exclusive
from labkit_course import explain, guess, mine, model_answer, reveal

jobs = [(job.arrives_s, job.profile.duration_s) for job in queue]
exclusive_s = mine("40.makespan")(jobs, 2, lambda running: 1.0)
print(f"exclusive: {exclusive_s:.1f} s, predicted")

# %% guess-makespan-prose [markdown]
"""
labkit's policy *best-fit* lets jobs share. A machine is open to a job if its memory suffices, and if the job adds more than it costs the others, by the recorded pairs. Best-fit takes the open machine that keeps the least memory free.

The idea is CARMA's ([arXiv 2508.19073](https://arxiv.org/abs/2508.19073)). Its abstract reports 35 % less makespan and 15 % less energy than exclusive. That is claim C10. Its jobs ran on four GPUs and are not ours, so half of its number is the threshold. C10 holds here if both the replay below and a queue that really runs are shorter by 17.5 % or more. It does not hold if both are shorter by less. Otherwise, or if the queue did not run, it cannot be tested. Its energy cannot be tested in any case: nothing here measures watts.

**By how many per cent is the makespan of our 60 jobs shorter with best-fit than with exclusive?**
"""

# %% guess-makespan
guess("41.makespan", 20.0, "% shorter")

# %% compare-prose [markdown]
"""
A replay takes no time: it only adds up. A job next to others progresses as slowly as such pairs were recorded to, and takes its *true* memory shortly after its start. This scheduler knows the recorded pairs, so it knows what will happen; no real one does. All numbers are **predicted from recorded profiles**.
"""

# %% compare
devices = [labkit.sharing.PackingDevice(name, 2 * 2**30) for name in ("first", "second")]
slowdown = labkit.sharing.shared_slowdown(recorded)
known = {"slowdown": slowdown, "admission": labkit.sharing.cpu_admission(slowdown)}
plans = {
    name: labkit.sharing.simulate(queue, devices, labkit.sharing.get_policy(name), **known)
    for name in ("exclusive", "best-fit")
}
replayed = plans["best-fit"].totals["makespan_s"] / plans["exclusive"].totals["makespan_s"]
reveal("41.makespan", 100 * (1 - replayed))

# %% gantt-prose [markdown]
"""
The schedule of best-fit has a bar for each start of a job. Lines of one device are jobs that run at the same time.
"""

# %% gantt
from labkit_course import apparatus

labkit.plots.show(apparatus.figure_queue(plans["best-fit"].attempts, provenance="predicted"))

# %% ex-41-place [markdown]
r"""
### Write: `place` (15 minutes)

Recording all pairs beforehand is seldom possible. Your scheduler knows only how much memory a job is estimated to need, and which share `busy` of a device it keeps busy when it is alone. It *believes* that $n$ jobs on a device each take $\max(1, \sum \text{busy})$ times as long as alone. Then the gain of a device, the work that its jobs do together, is $n / \max(1, \sum \text{busy})$ times that of one.

`place(need, busy, devices)` gives the position of the device on which a job starts, or None if it has to wait. `devices` has for each device its free bytes, and a list of the `busy` of the jobs on it.

1. A device is open if it has `need` bytes free, and if it is empty or the job raises its gain to 1.05 times or more.
2. Take the open device that has the least memory free. If several have equally little, take the first of them.
"""

# %% answer 41.place
from collections.abc import Sequence


def place(need: int, busy: float, devices: Sequence[tuple[int, Sequence[float]]]) -> int | None:
    """The position of the device on which a job starts, or None."""

    ### BEGIN SOLUTION
    def gain(shares: Sequence[float]) -> float:
        return len(shares) / max(1.0, sum(shares))

    best = None
    for number, (free, others) in enumerate(devices):
        worth = not others or gain([*others, busy]) >= 1.05 * gain(others)
        if free >= need and worth and (best is None or free < devices[best][0]):
            best = number
    return best
    ### END SOLUTION


# %% check 41.place points=5
from labkit_course import check

check("41.place", place)


# %% checks
def _place_by_min(need: int, busy: float, devices: Sequence[tuple[int, Sequence[float]]]) -> int | None:
    left = {}
    for number, (free, others) in enumerate(devices):
        if free < need:
            continue
        before = len(others) / max(sum(others), 1) if len(others) else 0
        after = (len(others) + 1) / max(sum(others) + busy, 1)
        if before == 0 or after / before >= 1.05:
            left[number] = free - need
    return min(left, key=lambda number: left[number]) if left else None


EXERCISES["41.place"] = WrittenExercise(
    place,
    Case("2 bytes, devices of 5, 7 and 3, all empty", lambda code: code(2, 0.5, [(5, []), (7, []), (3, [])])),
    Case("only one that shares has the memory", lambda code: code(5, 0.3, [(4, []), (6, [0.4])])),
    Case("the smaller hole is with a job that fills its device", lambda code: code(2, 1.0, [(8, []), (4, [1.0])])),
    Case("an empty device of 8 and one of 4 with 0.5 busy", lambda code: code(2, 0.5, [(8, []), (4, [0.5])])),
    Case("a job that fills a device, next to two small ones", lambda code: code(1, 1.0, [(6, [0.2, 0.2]), (9, [])])),
    Case("a third small job", lambda code: code(1, 0.3, [(6, [0.3, 0.4]), (9, [])])),
    Case("two devices that are alike", lambda code: code(1, 0.5, [(4, []), (4, [])])),
    Case("nothing has the memory", lambda code: code(9, 0.1, [(8, []), (4, [0.5])])),
    Case("exactly the memory", lambda code: code(4, 0.1, [(4, []), (3, [])])),
    Case("all are full, though there is memory", lambda code: code(1, 1.0, [(6, [1.0]), (6, [0.9, 0.9])])),
    mistakes={
        (" and worth", ""): "Memory alone fills busy devices: ask whether the gain grows enough, too.",
        ("free < devices[best][0]", "free > devices[best][0]"): (
            "That keeps most memory free (worst-fit). Best-fit keeps the large holes for jobs that need them."
        ),
        (" and (best is None or free < devices[best][0])", " and best is None"): (
            "That is the first device that is open; look at the others, too."
        ),
    },
    variants=(_place_by_min,),
    hint="Which devices are open? Compare the gain of a device without the job and with it. Which of the open ones "
    "would have the smallest hole left?",
    explanation="It knows no pairs: only what a monitor shows and what a job asks for.",
)

# %% unknown-guess-prose [markdown]
"""
What happens in the replay is what was recorded, whatever the scheduler believes. **How many times as long does the queue take with your scheduler as with known pairs?**
"""

# %% unknown-guess
guess("41.unknown", 1.2, "times as long")

# %% unknown-prose [markdown]
"""
The table compares three beliefs under the same truth: the recorded pairs, your `place`, and a scheduler that lets a job join wherever its memory fits.
"""

# %% unknown
blind = apparatus.OwnPolicy(
    "memory alone", lambda need, busy, held: place(need, busy, [(free, []) for free, _ in held])
)
own = apparatus.OwnPolicy("yours", place)
for policy in (own, blind):
    plans[policy.name] = labkit.sharing.simulate(queue, devices, policy, slowdown=slowdown)
totals = pd.DataFrame({name: plan.totals for name, plan in plans.items()}).T.astype(float, errors="ignore")
unknown = totals["makespan_s"]["yours"] / totals["makespan_s"]["best-fit"]
reveal("41.unknown", unknown)
columns = {"makespan_s": "makespan (s)", "mean_wait_s": "mean wait (s)", "mean_completion_s": "mean time to done (s)"}
columns |= {"mean_slowdown": "mean slowdown", "ooms": "out of memory"}
labkit.plots.show(totals[list(columns)].astype(float).rename(columns=columns))

# %% prose-41-why-wait [markdown]
"""
### Explain

Under best-fit each job is slower than under exclusive, and yet it is done sooner. Where does the time go? What did it cost to know only utilisations, or only memory?
"""

# %% explain 41.why_wait points=2
### BEGIN SOLUTION
answer = model_answer("41.why_wait")
### END SOLUTION
explain("41.why_wait", answer)

# %% checks
EXERCISES["41.why_wait"] = Explanation(
    "numbers: wait and slowdown under exclusive and best-fit, and the makespan with one of the other beliefs",
    "why: the wait shrinks by more than the jobs slow down; memory alone crowds a device, utilisations do not",
    "trade-off: a job that would have had a device at once loses; or what measuring pairs costs and gains",
    model="Under best-fit a job takes 1.22 times as long, but it waits 5 s instead of 52 s, so it is done after 13 s "
    "instead of 59 s. My scheduler needs 115 s for the queue, as long as known pairs, because utilisations already say "
    "which device is full; memory alone crowds devices and needs 155 s. A job that meets an empty machine loses. "
    "Measuring pairs would not pay on this queue.",
    half="The mean wait falls from 52 s to 5 s, which is more than the 22 % that each job is slower, so all are done "
    "sooner. (Numbers and why; not who loses, or what knowing the pairs was worth.)",
)

# %% estimate-prose [markdown]
"""
## When an estimate is wrong

A job that is larger than believed finds no memory left. Its process ends, and its work is lost. Like CARMA, labkit runs it **again, once, alone**: a device is closed to others, and is its own as soon as it is empty.

Suppose that every job were believed to need *half* of what it really takes. **How many of the 60 jobs would run out of memory under best-fit?**
"""

# %% guess-half
guess("41.half", 15.0, "jobs")

# %% half
from dataclasses import replace

believed = []
for job in queue:
    smaller = replace(job.profile, memory_estimate_bytes=job.profile.memory_bytes // 2)
    believed.append(replace(job, profile=smaller))
halved = labkit.sharing.simulate(believed, devices, labkit.sharing.get_policy("best-fit"), **known)
reveal("41.half", int(halved.jobs["oom"].sum()))
print(f"{halved.totals['makespan_s']:.0f} s, with labkit's estimates {totals['makespan_s']['best-fit']:.0f} s")

# %% real-prose [markdown]
"""
## A queue that really runs

A replay cannot be better than what it is made from. So run a queue of eight small jobs on your machine, once with exclusive and once with best-fit, which may count on 1.25 GiB of memory. (`smoke` runs two tiny jobs with best-fit alone, `full` takes three turns.) **How many times as long do the eight jobs take with best-fit as with exclusive?**
"""

# %% guess-real
guess("41.real", 0.8, "times as long")

# %% run-prose [markdown]
"""
A supervisor process starts each job when the policy says so, and leaves nothing running. In a terminal, `labkit pack` does the same.
"""

# %% run
small, memory_bytes = profile == "smoke", int(1.25 * 2**30)
real = labkit.sharing.read_queue(folder / ("queue_2.yaml" if small else "queue_8.yaml"))
names, turns = (["best-fit"], 1) if small else (["exclusive", "best-fit"], 3 if profile == "full" else 1)
settings = {"runs_dir": runs_dir, "memory_bytes": memory_bytes}
ran = [{name: labkit.sharing.pack(recorded.fill(real), name, **settings) for name in names} for _ in range(turns)]

# %% real-table-prose [markdown]
"""
Next to the measurement is the replay of the same eight jobs from the recorded profiles. They may be of *another* machine, and they are steady. In truth a job first starts Python and loads its data, mostly on one core, which is when a neighbour gains most.
"""

# %% real-table
from statistics import median

eight = labkit.sharing.read_queue(folder / "queue_8.yaml")
makespans = pd.DataFrame(index=["exclusive", "best-fit"])
predicted = [labkit.sharing.predict(eight, name, memory_bytes=memory_bytes).totals for name in makespans.index]
makespans["predicted (s)"] = [each["makespan_s"] for each in predicted]
if not small:
    makespans["measured (s)"] = [median(turn[name].totals["makespan_s"] for turn in ran) for name in makespans.index]
ratios = makespans.loc["best-fit"] / makespans.loc["exclusive"]
really = ratios.get("measured (s)")
reveal("41.real", really)
labkit.plots.show(makespans)

# %% faults-prose [markdown]
"""
## Faults

If you share a device, you share it with the neighbours' mistakes. These are the faults that labkit can cause in a client. All of them really happen, and none can harm your machine: the leak ends at its cap, and a supervisor kills whatever is left.
"""

# %% faults
for fault in apparatus.FAULTS.values():
    print(f"{fault.name:10} {'on a GPU, ' if fault.gpu_only else ''}{fault.words}")

# %% crash-prose [markdown]
"""
A client called *faulty* and its neighbours each train the same small network, as processes of their own on the same cores. Once all run, *faulty* reads memory that is not its own, and crashes. The operating system gives each process memory of its own and ends only the one that reads beyond it, so the neighbours live. **How many times as fast are they after the crash as they were before it?**
"""

# %% guess-after
guess("41.after", 1.5, "times as fast")

# %% crash-run-prose [markdown]
"""
No clock has to be trusted: each act begins when the one before it is over. Neighbours begin, *faulty* begins, all are watched, *faulty* fails, and those that are left are watched.
"""

# %% crash
neighbours, seconds = {"smoke": (1, 0.25), "standard": (2, 1.0), "full": (3, 3.0)}[profile]
watched = {"neighbours": neighbours, "seconds": seconds}
crash = apparatus.run_fault("segfault", "cpu-shared", **watched)
reveal("41.after", crash.rate_ratio("after"))
rates = crash.jobs[["before", "after"]].add_suffix(" (steps/s)")
labkit.plots.show(crash.jobs[["job", "status", "reason"]].join(rates).set_index("job"))

# %% hang-prose [markdown]
"""
A job that hangs is worse than one that crashes, because it goes unnoticed. Now *faulty* stops training, and keeps a core busy with something else, like a program that waits busily for a lock. It ignores SIGTERM. Half a second later SIGKILL ends it, which no process can refuse. **How many times as fast are the neighbours during the hang as they were when *faulty* still trained?**
"""

# %% guess-hang
guess("41.hang", 0.8, "times as fast")

# %% hang-run-prose [markdown]
"""
The dotted lines of the figure are the moment of the fault, and the one when the client was gone.
"""

# %% hang
hang = apparatus.run_fault("spin", "cpu-shared", **watched)
reveal("41.hang", hang.rate_ratio("during"))
labkit.plots.show(apparatus.figure_fault_timeline(hang.steps, gone_s=hang.gone_s))

# %% ex-41-hung [markdown]
"""
### Write: `hung` (10 minutes)

The operating system sees a busy process. A watcher that sees *steps* knows better. `hung(steps, now, factor=5)` gives the names of the clients that hang at the moment `now`. `steps` has for each client the moments of its steps (s), in order.

A client hangs if `now` minus its last step is more than `factor` times its own *median* gap between steps. A client without a gap is omitted.

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
    "not begun": [],
}
SAVED = [*(0.1 * n for n in range(40)), *(60.0 + 0.1 * n for n in range(40))]
STOPPED = {"long": SAVED, "short": [*SAVED, SAVED[-1] + 3]}


def _hung_with_numpy(steps: Any, now: float, factor: float = 5) -> list[str]:
    import numpy as np

    return [
        name
        for name, times in steps.items()
        if len(times) > 1 and now - times[-1] > factor * float(np.median(np.diff(times)))
    ]


EXERCISES["41.hung"] = WrittenExercise(
    hung,
    Case("clients of 0.1 and 3 s a step, after 10 s", lambda code: code(STEPS, 10.0)),
    Case("two that once saved for 56 s, and stopped 6 and 3 s ago", lambda code: code(STOPPED, SAVED[-1] + 6)),
    Case("more patience", lambda code: code({"a": [0.0, 1.0, 2.0], "b": [0.0, 1.0]}, 8.0, factor=6.5)),
    Case("nobody hangs", lambda code: code({"a": [0.0, 1.0, 2.0]}, 3.0)),
    mistakes={
        ("factor * median(gaps)", "factor"): (
            "The same seconds are many steps of one client and one step of another: compare with its own usual gap."
        ),
        ("median(gaps)", "sum(gaps) / len(gaps)"): (
            "One long gap, such as a checkpoint, makes the mean large, and your watcher too patient."
        ),
        ("factor * median(gaps)", "median(gaps)"): "Every second step is later than the median: wait longer.",
    },
    variants=(_hung_with_numpy,),
    hint="What is a client's usual gap, and how long is it since its last step? Which clients have no gap?",
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

# %% documented-prose [markdown]
"""
## On a GPU

A fault *in a kernel* is another matter. Clients of MPS are processes, too, and since Volta each has an address space of its own. But what a kernel's fault reports to one client, it reports to all that share the GPU. This is what NVIDIA documents; none of it was run here.
"""

# %% documented
documented = apparatus.documented_behaviour().set_index("mode")
labkit.plots.show(documented[["fault", "gpus", "neighbours", "source"]])

# %% ex-41-blast [markdown]
"""
### Write: `must_exit` (9 minutes)

Under MPS since Volta a fatal fault is contained in the GPUs that are *shared between the clients of the faulty GPU*, and all clients on any of these have to exit. `must_exit(uses, gpu)` gives their names, sorted. `uses` has for each client the set of GPUs that it uses, and a kernel failed on `gpu`.

1. Collect the GPUs of all clients that use `gpu`.
2. Name every client that uses any of those, and go no further.
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
from labkit_course import check

check("41.blast", must_exit)

# %% checks
FIVE = {"E": {2}, "B": {0}, "C": {0, 1}, "D": {1}, "A": {0}}
CHAIN = {"A": {0}, "B": {0, 1}, "C": {1, 2}, "D": {2}}


def _exit_by_neighbours(uses: Any, gpu: int) -> list[str]:
    names = set()
    for client in uses:
        for other in uses:
            if gpu in uses[other] and uses[client].intersection(uses[other]):
                names.add(client)
    return sorted(names)


EXERCISES["41.blast"] = WrittenExercise(
    must_exit,
    Case("five clients of three GPUs, a fault on GPU 0", lambda code: code(FIVE, 0)),
    Case("the same, a fault on GPU 2", lambda code: code(FIVE, 2)),
    Case("a chain of GPUs 0, 1 and 2, a fault on GPU 0", lambda code: code(CHAIN, 0)),
    Case("the same, a fault on GPU 1", lambda code: code(CHAIN, 1)),
    Case("a GPU that no client uses", lambda code: code(FIVE, 7)),
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
    variants=(_exit_by_neighbours,),
    hint="Which clients use the faulty GPU, and which other GPUs do these use? Who is on any of them?",
    explanation="One client on two GPUs carries a fault from one to the other.",
)

# %% blast-guess-prose [markdown]
"""
A team of 8 has a machine with four GPUs, two clients on each. Then two of the clients take a second GPU. **On average over the four GPUs, how many clients does a fault end?**
"""

# %% blast-guess
guess("41.ended", 2.0, "clients")

# %% blast-used-prose [markdown]
"""
`job 0` now uses GPUs 0 and 1, and `job 2` uses GPUs 2 and 3.
"""

# %% blast-used
team = {f"job {n}": {n % 4} for n in range(8)}
linked = team | {"job 0": {0, 1}, "job 2": {2, 3}}
ended = [len(must_exit(linked, gpu)) for gpu in range(4)]
reveal("41.ended", sum(ended) / 4)
print("before:", [len(must_exit(team, gpu)) for gpu in range(4)])

# %% gpu-prose [markdown]
"""
If there is a GPU, the next cell lets a client write outside its memory, under each mode that is possible. For MIG, make as many instances as there are clients, and add `"mig"`. The MPS documentation's sentence, that a fatal fault of one client ends all on that GPU, is claim C9. It holds here if every neighbour died under MPS, and does not hold if one lived. Without a GPU it cannot be tested: processes on a CPU share no driver that could end them.
"""

# %% gpu
why_not = labkit.sharing.modes_here(labkit.hardware.get_devices())
able = [mode for mode in ("naive", "mps") if why_not[mode] is None]
print("\n".join(f"Not run: {why_not[mode]}." for mode in ("naive", "mps") if mode not in able))
died = [(mode, apparatus.run_fault("gpu-access", mode, **watched).died, "measured") for mode in able]
on_gpu = pd.DataFrame(died, columns=["mode", "died", "provenance"])
labkit.plots.show(on_gpu.set_index("mode"))

# %% ex-41-finish [markdown]
"""
## What faults cost

A job that a fault stops starts again from its last checkpoint. How long does it take in the end?

### Write: `finish_hours` (13 minutes)

`finish_hours(gaps, work, every, save=0, restart=0)` gives the hours until `work` hours of training are done. A fault comes `gaps[0]` hours after the first start, the next one `gaps[1]` hours after the restart, and so on. The job saves after each `every` hours of work, which takes `save` hours; a restart takes `restart` hours.

1. There are ⌈work / every⌉ pieces of `every + save` hours. In a gap as many *whole* pieces are kept as fit into it.
2. If these are all that is left, the job is done after them. Otherwise gap and restart have passed, and fewer pieces are left.

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
from labkit_course import check

check("41.finish", finish_hours)

# %% checks
GAPS = [2.5, 7.25, 1.4, 40.0]


def _finish_piece_by_piece(gaps: Any, work: float, every: float, save: float = 0.0, restart: float = 0.0) -> float:
    pieces, now = ceil(work / every), 0.0
    for gap in gaps:
        fault = now + gap
        while pieces and now + every + save <= fault:
            now += every + save
            pieces -= 1
        if not pieces:
            return now
        now = fault + restart
    return float("inf")


EXERCISES["41.finish"] = WrittenExercise(
    finish_hours,
    Case("no fault in 10 hours of work", lambda code: code([100.0], 10, 1)),
    Case("faults after 2.5, 7.25 and 1.4 hours, 12 of work, saved every hour", lambda code: code(GAPS, 12, 1)),
    Case("the same, each restart taking half an hour", lambda code: code(GAPS, 12, 1, 0, 0.5)),
    Case("the same, each save a tenth", lambda code: code(GAPS, 12, 1, 0.1, 0.5)),
    Case("work that is no whole number of pieces", lambda code: code(GAPS, 11, 2, 0.1, 0.5)),
    Case("a fault at the very end of the work", lambda code: code([10.0, 5.0], 10, 1)),
    Case("faults that come sooner than the first checkpoint", lambda code: code([1.0] * 5, 12, 2)),
    mistakes={
        ("pieces -= kept", ""): "What was saved before a fault stays: fewer pieces are left after it.",
        ("int(gap // (every + save))", "gap / (every + save)"): (
            "What was done since the last checkpoint is lost: only whole pieces are kept."
        ),
        ("gap + restart", "gap"): "Each fault costs a restart, too.",
    },
    variants=(_finish_piece_by_piece,),
    hint="Keep two numbers: the hours that have passed, and the pieces that are left. What does one gap change of each?",
    explanation="Infinite where no piece ever fits between two faults.",
)

# %% both-prose [markdown]
r"""
Test it against theory. If faults come at random, with a rate of $\lambda$ per hour, a piece of $t$ hours takes $(1/\lambda + r)\,(e^{\lambda t} - 1)$ hours on average, with a restart of $r$ hours. Jobs that share a GPU under MPS share its faults, so their rates add up. Take a job of 100 hours that saves for 0.1 hours and restarts in 0.5. It and three others each have one fault in 200 hours on average.
"""

# %% both
import numpy as np


def expected_hours(sharers, every, work=100, mtbf=200, save=0.1, restart=0.5):
    rate = sharers / mtbf
    return work / every * (1 / rate + restart) * (np.exp(rate * (every + save)) - 1)


tries = np.random.default_rng(0).exponential(200 / 4, (2_000, 200))
simulated = np.mean([finish_hours(gaps, 100, 5, 0.1, 0.5) for gaps in tries])
print(f"saved every 5 hours: simulated {simulated:.1f} h, by the formula {expected_hours(4, 5):.1f} h")

# %% every-prose [markdown]
"""
Saving too often costs time, and saving too rarely costs work. **Every how many hours should the four sharers save, to be done soonest?**
"""

# %% every-guess
guess("41.every", 10.0, "hours")

# %% every-run-prose [markdown]
r"""
Try many intervals, for one job alone and for four that share. Young's rule of thumb (1974) is $\sqrt{2 \cdot \text{save} \cdot \text{mtbf} / \text{sharers}}$.
"""

# %% every
every = np.geomspace(0.5, 100, 400)
hours = {sharers: expected_hours(sharers, every) for sharers in (1, 4)}
best = {sharers: every[np.argmin(own)] for sharers, own in hours.items()}
reveal("41.every", best[4])
for sharers, own in hours.items():
    young = (2 * 0.1 * 200 / sharers) ** 0.5
    print(f"{sharers}: every {best[sharers]:.1f} h (Young {young:.1f}) {min(own):.1f} h; never saved {own[-1]:.0f} h")

# %% prose-41-why-checkpoint [markdown]
"""
### Explain

Four jobs share a GPU under MPS. How often should they save compared with a job alone, and why? What does it cost to get this wrong, and what must the gain of sharing exceed?
"""

# %% explain 41.why_checkpoint points=2
### BEGIN SOLUTION
answer = model_answer("41.why_checkpoint")
### END SOLUTION
explain("41.why_checkpoint", answer)

# %% checks
EXERCISES["41.why_checkpoint"] = Explanation(
    "numbers: the best interval alone and shared, and the hours that each leads to",
    "why: faults of all sharers add up, and each loses what was done since the last checkpoint",
    "trade-off: time of saves against work that is lost, or the gain of sharing against more faults",
    model="With four sharers a fault comes every 50 hours instead of every 200, so the best interval is 3.1 h instead of "
    "6.2 h: it shrinks with the square root of the sharers. The job then takes 107.7 h, alone 103.5 h. Without saves "
    "it would take 323 h, because each fault loses all work. So sharing has to gain more than the 4 % that the other "
    "jobs' faults cost.",
    half="Four sharers should save every 3.1 h and not every 6.2 h, because there are four times as many faults and each "
    "loses the work since the last checkpoint. (Numbers and why; not what a wrong interval costs, or the gain needed.)",
)

# %% prose-claim-C9 [markdown]
"""
## Judge

**C9**: a fatal fault of one client ends all clients of the GPU. The rule is above the cell that runs it on a GPU.
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

# %% prose-claim-C10 [markdown]
"""
**C10**: sharing shortens the makespan of a queue. The thresholds are above your guess of the makespan.
"""

# %% claim C10 points=1
shorter = [100 * (1 - ratio) for ratio in (replayed, really) if ratio is not None]
said = f"makespan shorter by {shorter[0]:.0f} % (60 jobs, replayed)"
said += f" and {shorter[1]:.0f} % (8 jobs, run)" if really is not None else "; no queue run"
### BEGIN SOLUTION
enough = [each >= 17.5 for each in shorter]
verdict_c10 = "holds here" if all(enough) else "cannot be tested here" if any(enough) else "does not hold here"
verdict_c10 = "cannot be tested here" if really is None else verdict_c10
answer = verdict_c10, "of the makespan, with other jobs on CPUs; no watts were measured to test its energy"
### END SOLUTION
claim("C10", said, answer, how="predicted" if really is None else "measured")

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
    makespan_ratio=(replayed, 0.54, 0.58),
    unknown_ratio=(unknown, 0.95, 1.05),
    half_ooms=(int(halved.jobs["oom"].sum()), 5, 5),
    measured_ratio=(really, 0.25, 1.5),
    jobs_done=(ran[-1]["best-fit"].totals["done"], len(real), len(real)),
    rate_after_crash=(crash.rate_ratio("after"), 0.2, 10),
    rate_during_hang=(hang.rate_ratio("during"), 0.1, 5),
    simulated_over_formula=(simulated / expected_hours(4, 5), 0.95, 1.05),
)

# %% assistant rate_during_hang above=0.95 [markdown]
"""
A job that hangs computes nothing, so its neighbours keep more than 95 % of their speed while it hangs.
"""

# %% recap [markdown]
"""
## Recap

- A queue gains from sharing even though every job in it loses: what shrinks is the wait.
- How much a scheduler has to know depends on the queue: compare beliefs under the same truth.
- A wrong estimate costs an attempt, and recovery costs a device that no other job may use meanwhile.
- A hang costs more than a crash, because it holds what it has until something notices: watch steps, not processes.
- Jobs that share a GPU share its faults, so they have to save more often.

**Next:** [Time to accuracy](50_time_to_accuracy.ipynb)
"""

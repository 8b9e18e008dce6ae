# %% cell-00 [markdown] packages="scipy"
"""
# Predict a step

After this notebook you will be able to

- **write** the walk that predicts a training step on a GPU from the calls of its host;
- **say** what the five overheads of a step are worth, for one GPU and for eight that wait for each other;
- **predict** what a change of your own step gains, measure it, and say which model was wrong and why;
- **judge** six claims of Lin et al., *Building a Performance Model for Deep Learning Recommendation Model Training on GPUs* ([arXiv 2201.07821](https://arxiv.org/abs/2201.07821)).

**Time:** 105 minutes in two halves: a recorded step, then your machine. The machine computes for about four of them on 2 CPU cores. No GPU is needed.

**Prerequisites:** [Know your machine](01_know_your_machine.ipynb), [Profile top-down](32_profile_top_down.ipynb), [Make it fast](33_make_it_fast.ipynb).
"""

# %% checks
import functools
from random import Random
from typing import Any

import numpy as np

from labkit_course.exercise import Case, Explanation, WrittenExercise

MODULE = "prediction"
EXERCISES = {}

# %% cell-01 [markdown]
"""
The next cell holds what you may change.
"""

# %% cell-02 tags=["parameters"]
profile = "standard"  # smoke, standard or full: how long the machine is measured, how many placements are tried

# %% cell-03 [markdown]
"""
## A step that somebody recorded

A step of a DLRM on eight V100s, the GPU of the paper, was recorded with a profiler and published ([PARAM](https://github.com/facebookresearch/param)). The batch is small, 16 samples on each of the eight ranks. It is only one step, but a real one.

A host *calls*, one call after another. Some calls launch a *kernel*, which then runs on a *stream* of the GPU. So a step has two clocks:
"""

# %% recorded
import labkit
from labkit_course import apparatus, drawing

drawing("two_clocks")
traces = sorted((labkit.project.shipped_datasets() / "recorded" / "param-v100" / "original").iterdir())
step = apparatus.read_step(traces[0])
print(f"{step.operators} operators, {len(step.kernels)} kernels in {step.duration_us / 1e3:.1f} ms: recorded")

# %% cell-04 [markdown]
"""
The paper sorts the time of the host into five overheads. **T1** lies between two operators. **T2** goes from an operator's start to its first launch. **T3** goes from its last launch to its end. **T4** is the launch call itself. **T5** lies between two launches; an operator that launches nothing is T5 as a whole.

Eight of the kernels are *collectives*: exchanges of data between the ranks. **How many per cent of the step do the other kernels of this rank take, one after the other?**
"""

# %% guess-kernels
from labkit_course import check, claim, explain, guess, mine, model_answer, reveal

guess("60.kernels", 60.0, "% of the step")

# %% reveal-kernels
kernels_us = sum(each.duration_us for each in step.kernels if each.collective is None)
reveal("60.kernels", 100 * kernels_us / step.duration_us)

# %% ex-60-walk [markdown]
"""
## The walk

### Write: `walk` (20 minutes)

`walk(calls, kernels, without=())` returns the time (µs) at which the host and all kernels are done.

`calls` are tuples: the overhead's kind ("T1" to "T5"), the time of the call (µs), the number of the kernel that it launches or None, and the number of the kernel that the host waits for after the call or None. `kernels` are tuples in the order of their launches: the stream, the time of the kernel (µs), and the numbers of the kernels that have to end before it starts.

1. Each call moves the host's clock on. A call whose kind is in `without` takes no time. It still launches, and the host still waits after it.
2. A kernel starts as soon as three things are true: the host has launched it, the kernels it waits for have ended, and its stream is free. Each stream has a clock of its own.
3. A stream is free at the start of the step. After a kernel it is free again 1 µs after that kernel's end; the paper measured this gap.
4. A host that waits for a kernel goes on when that kernel has ended, without a gap.

Hint: a list for the ends of the kernels, and a dictionary for the time at which each stream is free.
"""

# %% answer 60.walk
from collections.abc import Sequence

Call = tuple[str, float, int | None, int | None]
Kernel = tuple[str, float, Sequence[int]]


def walk(calls: Sequence[Call], kernels: Sequence[Kernel], without: Sequence[str] = ()) -> float:
    """When the host and all kernels are done, in microseconds."""
    ### BEGIN SOLUTION
    host, ends, free = 0.0, [], {}
    for kind, took, launches, waits_for in calls:
        if kind not in without:
            host += took
        if launches is not None:
            stream, lasts, after = kernels[launches]
            start = max([host, free.get(stream, 0.0), *(ends[other] for other in after)])
            ends.append(start + lasts)
            free[stream] = ends[-1] + 1.0
        if waits_for is not None:
            host = max(host, ends[waits_for])
    return max([host, *ends])
    ### END SOLUTION


# %% check 60.walk points=6
check("60.walk", walk)

# %% checks
HOST_BOUND = [("T1", 3.0, None, None), ("T2", 5.0, None, None), ("T4", 2.0, 0, None), ("T3", 7.0, None, None)]
GPU_BOUND = [("T4", 3.0, 0, None), ("T4", 3.0, 1, None), ("T4", 3.0, 2, None)]
WAITING = [("T4", 2.0, 0, None), ("T5", 1.0, None, 0), ("T1", 4.0, None, None), ("T4", 2.0, 1, None)]
CROSSING = [("T4", 2.0, 0, None), ("T4", 2.0, 1, None)]


@functools.cache
def recorded() -> tuple[list[Call], list[Kernel]]:
    """A rank of the recorded step of eight V100s, as the notebook gives it to the student's function."""
    from labkit.project import shipped_datasets
    from labkit_course.apparatus import read_step

    step = read_step(min((shipped_datasets() / "recorded" / "param-v100" / "original").iterdir()))
    calls = [(call.kind, call.us, call.launches, call.waits_for) for call in step.calls]
    return calls, [(kernel.stream, kernel.duration_us, kernel.after) for kernel in step.kernels]


def walk_by_index(calls: Sequence[Call], kernels: Sequence[Kernel], without: Sequence[str] = ()) -> float:
    host, done, busy_until = 0.0, {}, {}
    for call in calls:
        host += 0.0 if call[0] in without else call[1]
        if call[2] is not None:
            stream, lasts, after = kernels[call[2]]
            start = host
            if stream in busy_until:
                start = max(start, busy_until[stream] + 1)
            for other in after:
                start = max(start, done[other])
            done[call[2]] = busy_until[stream] = start + lasts
        if call[3] is not None and done[call[3]] > host:
            host = done[call[3]]
    return max(host, max(done.values(), default=0.0))


def _walks(random: Random) -> list[Case]:
    """The host and the GPU are up to a quarter slower or faster."""
    host, gpu = random.uniform(0.8, 1.25), random.uniform(0.8, 1.25)

    def over(calls: list[Call], kernels: list[Kernel], *without: str) -> Any:
        calls = [(kind, host * took, *rest) for kind, took, *rest in calls]
        kernels = [(stream, gpu * lasts, after) for stream, lasts, after in kernels]
        return lambda code: code(calls, kernels, without)

    two = [("7", 50.0, []), ("7", 5.0, [])]
    return [
        Case("a host slower than its kernel", over(HOST_BOUND, [("7", 4.0, [])])),
        Case("three kernels of one stream", over(GPU_BOUND, [("7", 50.0, [])] * 3)),
        Case("the same without T4: the first begins at 0", over(GPU_BOUND, [("7", 50.0, [])] * 3, "T4")),
        Case("kernels of two streams", over(CROSSING, [("7", 50.0, []), ("8", 5.0, [])])),
        Case("one that waits for another stream", over(CROSSING, [("7", 50.0, []), ("8", 5.0, [0])])),
        Case("a host that synchronises", over(WAITING, two)),
        Case("the same without T1", over(WAITING, two, "T1")),
        Case("the same without T4, which still launches", over(WAITING, two, "T4")),
        Case("without T5, after which the host waits", over(WAITING, two, "T5")),
        Case("a recorded rank, bound by its host", over(*recorded())),
        Case("the recorded rank without T1 and T4", over(*recorded(), "T1", "T4")),
        Case("the recorded rank without any", over(*recorded(), "T1", "T2", "T3", "T4", "T5")),
        Case("nothing is launched", over([("T5", 3.0, None, None)], [])),
    ]


EXERCISES["60.walk"] = WrittenExercise(
    walk,
    draw=_walks,
    mistakes={
        ("stream, lasts, after = kernels[launches]", "(_, lasts, after), stream = kernels[launches], 0"): (
            "Kernels of two streams may run at the same time: each stream has a clock of its own."
        ),
        (
            "        if kind not in without:\n            host += took",
            "        if kind in without:\n            continue\n        host += took",
        ): "A call in `without` takes no time, but it still launches its kernel, and the host still waits after it.",
        ("free[stream] = ends[-1] + 1.0", "free[stream] = ends[-1]"): (
            "Two kernels of one stream have a gap between them: rule 3."
        ),
    },
    variants=(walk_by_index,),
    hint="Which three times does a kernel's start depend on, and which two can move the host's clock? Go through the "
    "case of the message by hand.",
    explanation="Lin et al., algorithm 1: two clocks that wait for each other at launches and synchronisations.",
)

# %% walk-used-prose [markdown]
"""
The cell applies your walk to the recorded step. A collective takes here what this rank measured, including the time in which it waited for other ranks.
"""

# %% walk-used
calls = [(each.kind, each.us, each.launches, each.waits_for) for each in step.calls]
kernels = [(each.stream, each.duration_us, each.after) for each in step.kernels]
walked_us = walk(calls, kernels)
miss = walked_us / step.duration_us - 1
print(f"walked: {walked_us / 1e3:.2f} ms (predicted), recorded: {step.duration_us / 1e3:.2f} ms, {miss:+.1%}")

# %% cell-06 [markdown]
"""
A walk that is given a step's own times must reproduce that step. That tests the walk; it predicts nothing. The walk is for another question: how long *would* the step take if something were different?

**Without T1 to T5 on this rank alone, how many per cent of its step are left?**
"""

# %% guess-left
guess("60.left", 30.0, "% of the step")

# %% cell-07 [markdown]
"""
The upper half of the figure is the step with its overheads. The lower half is the step without those in `gone`. Put fewer into `gone`, such as `("T1",)`, and run the cell again:
"""

# %% ablation
kinds = ("T1", "T2", "T3", "T4", "T5")
gone = kinds  # or fewer of them
left = walk(calls, kernels, kinds) / walked_us
reveal("60.left", 100 * left)
walks = {"recorded": apparatus.walk_timeline(step), "predicted": apparatus.walk_timeline(step, without=gone)}
labkit.plots.show(apparatus.figure_walks(walks))

# %% ex-60-exchange [markdown]
"""
## Who waits for whom

Most of what is left is time in collectives. Is that an exchange of data? A rank that arrives early waits for the last one, and the profiler counts this wait as part of the collective.

### Write: `exchange_and_waiting` (10 minutes)

`exchange_and_waiting(spans)` separates the two. `spans[rank][number]` is a pair: when that rank entered that collective and when it left it (µs). All ranks have the same collectives in the same order, and one clock.

1. A collective's *exchange* goes from the moment when the last rank has entered it until the last rank has left it.
2. A rank *waits* in a collective from its own entry until the last rank's entry.

Return two lists: the exchange of each collective (µs), and what each rank waited in all collectives together (µs).
"""

# %% answer 60.exchange
from collections.abc import Sequence

Span = tuple[float, float]


def exchange_and_waiting(spans: Sequence[Sequence[Span]]) -> tuple[list[float], list[float]]:
    """Exchange of each collective, and waiting of each rank, in microseconds."""
    ### BEGIN SOLUTION
    exchange, waiting = [], [0.0] * len(spans)
    for of_ranks in zip(*spans, strict=True):  # one collective, the span of each rank
        last = max(entered for entered, _ in of_ranks)
        exchange.append(max(left for _, left in of_ranks) - last)
        for rank, (entered, _) in enumerate(of_ranks):
            waiting[rank] += last - entered
    return exchange, waiting
    ### END SOLUTION


# %% check 60.exchange points=5
check("60.exchange", exchange_and_waiting)


# %% checks
def _spans(ranks: int, count: int, seed: int) -> list[list[Span]]:
    """Ranks leave a collective at times of their own."""
    random = np.random.default_rng(seed)
    entered = np.sort(random.uniform(0, 9000, (count, 1)), axis=0) + random.uniform(0, 400, (count, ranks))
    left = entered.max(1, keepdims=True) + random.uniform(5, 90, (count, ranks))
    return [[*zip(entered[:, rank].tolist(), left[:, rank].tolist(), strict=True)] for rank in range(ranks)]


def exchange_as_arrays(spans: Sequence[Sequence[Span]]) -> tuple[np.ndarray, np.ndarray]:
    entered, left = np.moveaxis(np.array(spans, dtype=float), 2, 0)
    return left.max(axis=0) - entered.max(axis=0), (entered.max(axis=0) - entered).sum(axis=1)


def _collectives(random: Random) -> list[Case]:
    late = random.uniform(20, 40)
    three, eight = (_spans(ranks, count, random.randrange(10**6)) for ranks, count in ((3, 4), (8, 2)))
    return [
        Case("two ranks, one collective", lambda code: code([[(0.0, 50.0)], [(late, 51.0)]])),
        Case("two ranks, one collective: the second is early", lambda code: code([[(8, 20)], [(2, 21)]])),
        Case("three ranks, four collectives", lambda code: code(three)),
        Case("eight ranks, two collectives", lambda code: code(eight)),
    ]


EXERCISES["60.exchange"] = WrittenExercise(
    exchange_and_waiting,
    draw=_collectives,
    mistakes={
        ("max(left for _, left in of_ranks) - last", "min(left - entered for entered, left in of_ranks)"): (
            "That is the shortest stay. The exchange ends when the last rank leaves, and another one may be that."
        ),
        ("last = max(entered for entered, _ in of_ranks)", "last = min(entered for entered, _ in of_ranks)"): (
            "That counts from the first rank's entry: nothing can be exchanged before the last one is there."
        ),
        ("for rank, (entered, _) in enumerate(of_ranks):\n            waiting[rank] += last - entered", "pass"): (
            "A rank waits in each collective: add up over the collectives, for each rank."
        ),
    },
    variants=(exchange_as_arrays,),
    hint="Draw two ranks on one line of time. When could data begin to move, and what did each rank do before that?",
    explanation="The wait is not the network's: it belongs to the slowest host of the eight.",
)

# %% exchange-used
ranks = [apparatus.read_step(path) for path in traces]
inside = [[each for each in rank.kernels if each.collective is not None] for rank in ranks]
spans = [[(each.start_us, each.start_us + each.duration_us) for each in own] for own in inside]
exchange_us, waiting_us = exchange_and_waiting(spans)
stay_us = sum(end - begin for begin, end in spans[0])
print(f"rank 0: {stay_us / 1e3:.2f} ms in collectives, of which it waited {waiting_us[0] / 1e3:.2f} ms: recorded")
print(f"all exchanges: {sum(exchange_us) / 1e3:.2f} ms: recorded")

# %% cell-10 [markdown]
"""
So the walk over rank 0 alone kept something it should not: it froze each collective at its recorded time, and with it the overheads of the *other* ranks' hosts.

`walk_together` is your walk for all eight ranks. Each rank arrives at a collective when its own host and streams get there. The exchange begins when the last one is there, and then takes as long as in the recording. First a test: with all overheads it has to reproduce the eight steps.
"""

# %% together
import pandas as pd

transfers = dict(enumerate(exchange_us))
together = apparatus.walk_together(ranks, transfers)
steps_ms = pd.DataFrame({"recorded (ms)": [rank.duration_us / 1e3 for rank in ranks]})
steps_ms["predicted (ms)"] = [walked.step_us / 1e3 for walked in together]
labkit.plots.show(steps_ms.rename_axis("rank").T)

# %% together-guess-prose [markdown]
"""
The ranks of the recording began up to 7.5 ms apart, so early ones also wait for late ones. Let all eight begin together. **How many per cent of rank 0's step are left now without T1 to T5 on all ranks?**
"""

# %% guess-together
guess("60.left_together", 44.0, "% of the step")

# %% reveal-together-prose [markdown]
"""
The next cell walks over all ranks, with every overhead and without any.
"""

# %% reveal-together
begun_together = apparatus.begin_together(ranks)
whole = apparatus.walk_together(begun_together, transfers)
bare = apparatus.walk_together(begun_together, transfers, without=kinds)
left_together = [without.step_us / with_all.step_us for without, with_all in zip(bare, whole, strict=True)]
reveal("60.left_together", 100 * left_together[0])
late = apparatus.walk_together(ranks, transfers, without=kinds)[0].step_us / together[0].step_us
print(f"on the eight ranks: {100 * min(left_together):.1f} to {100 * max(left_together):.1f} %: predicted")
print(f"on rank 0, if the others begin as late as recorded: {100 * late:.1f} %: predicted")

# %% each-together-prose [markdown]
"""
Now each overhead is removed by itself, on rank 0 alone and on all ranks. On all ranks the waiting in the collectives shrinks, too.
"""

# %% each-together
saved = {}
for kind in kinds:
    faster = apparatus.walk_together(begun_together, transfers, without=[kind])
    saved[kind] = 100 * (1 - faster[0].step_us / whole[0].step_us)
alone = {kind: 100 * (1 - walk(calls, kernels, [kind]) / walked_us) for kind in kinds}
shorter = pd.DataFrame({"on rank 0 alone": alone, "on all ranks": saved}).round(1)
labkit.plots.show(shorter.rename_axis("rank 0's step is shorter by (%), predicted"))

# %% prose-60-why-kernels-alone [markdown]
"""
### Explain

Two predictions of the step without overheads differ by a factor of four. Why? Which of them would a faster host get? Which change of the training would remove overheads, and which would not?
"""

# %% explain 60.why_kernels_alone points=2
### BEGIN SOLUTION
answer = model_answer("60.why_kernels_alone")
### END SOLUTION
explain("60.why_kernels_alone", answer)

# %% checks
EXERCISES["60.why_kernels_alone"] = Explanation(
    "numbers: what is left without T1 to T5 on one rank, and on all ranks together",
    "why: a collective's time is mostly waiting for other ranks' hosts, that is, their overheads",
    "consequence: which change removes overheads (larger batches, fused operators, CUDA graphs), and which not",
    model="Without T1 to T5 on rank 0 alone, 44 % of its step are left; if all ranks lose them and begin together, 10.8 %. "
    "The difference is waiting: its collectives take 5.8 ms, of which 0.2 ms is exchange. In the rest, hosts of other "
    "ranks were still launching, or had begun later. Faster hosts on all ranks come close to the 10.8 %. CUDA graphs, "
    "fused operators or a larger batch remove overheads; a faster GPU changes little, since kernels are 7 % of the step.",
)

# %% cell-11 [markdown]
"""
## Your own step

A CPU has one timeline, and nothing to launch. Between operators the CPU is at work, too: Python and autograd run there. The next cells build your DLRM of [Train a DLRM](10_train_dlrm.ipynb) with the configuration of preset `tour`. Its step runs on one thread.
"""

# %% model
import torch
import torch.nn.functional as F

torch.set_num_threads(1)
MyDlrm = mine("10.model")
tour = labkit.models.DlrmConfig(13, (2000,) * 8, **labkit.jobs.get_preset("dlrm", "tour").model)


def batch_of(config, size):
    columns = [torch.randint(rows, (size, 1)) for rows in config.num_rows]
    return torch.randn(size, config.dense_dim), torch.stack(columns, 1).int(), torch.rand(size).round()


# %% cell-12 [markdown]
"""
`step_of` returns a function. Each call of it is one step with the given batch:
"""


# %% own-step
def step_of(model, optimizers, batch):
    dense, categorical, label = batch

    def train():
        for optimizer in optimizers:
            optimizer.zero_grad()
        F.binary_cross_entropy_with_logits(model(dense, categorical), label).backward()
        for optimizer in optimizers:
            optimizer.step()

    return train


# %% plain-prose [markdown]
"""
`plain_step` makes your model, and an Adam for all its weights. **For how many per cent of a step with 16 samples does no operator compute?**
"""


# %% guess-idle
def plain_step(config=tour, size=2048):
    torch.manual_seed(0)
    model = MyDlrm(config)
    return step_of(model, [torch.optim.Adam(model.parameters(), lr=2e-3)], batch_of(config, size))


guess("60.idle", 40.0, "% of the step")

# %% cell-14 [markdown]
"""
`paired_times` times the steps in turns and drops a round that another program disturbed. `time_step` times each operator inside a step; what this timing itself takes is measured and subtracted. If the operators together take longer than the step, `require_parts` refuses the table.
"""

# %% idle
from labkit_course import paired_times, require_parts

sizes = {"smoke": (16, 256, 2048), "standard": (16, 64, 256, 1024, 4096), "full": (16, 64, 256, 1024, 4096)}[profile]
rounds = {"smoke": 1, "standard": 5, "full": 15}[profile]
own = {size: plain_step(size=size) for size in sizes}
steps_s = paired_times(own, rounds).median()
timed = {size: labkit.perfmodel.time_step(each) for size, each in own.items()}
for size, each in timed.items() if profile != "smoke" else ():
    require_parts(each.step_s, each.times_s, f"batch size {size}")
reveal("60.idle", 100 * timed[16].idle)

# %% line-prose [markdown]
r"""
The rest of the step is called *idle* in the paper. On a GPU the device has nothing to do then. Here it is Python at work.

### Write: `extrapolate` (10 minutes)

A step of $n$ samples takes $a + b\,n$: something per step, and something per sample. `extrapolate(sizes, seconds, size)` fits $a$ and $b$ to measured steps by least squares and returns the seconds of a step of `size` samples. The sizes go from 16 to 1,024, and a small step counts as much as a large one: minimise the sum of squares of the *relative* errors $(a + b\,n_i - t_i) / t_i$.

Hint: `np.linalg.lstsq`, or `np.polyfit` and its `w`.
"""

# %% answer 60.extrapolate
from collections.abc import Sequence

import numpy as np


def extrapolate(sizes: Sequence[int], seconds: Sequence[float], size: int) -> float:
    """Seconds of a step of that size, by a line through steps of other sizes."""
    ### BEGIN SOLUTION
    sizes, seconds = np.array(sizes, dtype=float), np.array(seconds)
    parts = np.stack([1 / seconds, sizes / seconds], axis=1)  # (steps, 2): what a and b give, as a share of the time
    (start, each), *_ = np.linalg.lstsq(parts, np.ones(len(sizes)), rcond=None)
    return start + each * size
    ### END SOLUTION


# %% check 60.extrapolate points=4
check("60.extrapolate", extrapolate)


# %% checks
def extrapolate_with_polyfit(sizes: Sequence[int], seconds: Sequence[float], size: int) -> float:
    slope, start = np.polyfit(sizes, seconds, 1, w=[1 / each for each in seconds])
    return slope * size + start


EXERCISES["60.extrapolate"] = WrittenExercise(
    extrapolate,
    Case("two steps, 1 ms and 10 µs a sample", lambda code: 1e3 * code([16, 64], [1.16e-3, 1.64e-3], 256)),
    Case("four steps", lambda code: 1e3 * code([16, 64, 256, 1024], [1.5e-3, 1.7e-3, 2.9e-3, 9e-3], 4096)),
    Case("a size below", lambda code: 1e3 * code([64, 256, 1024], [0.8e-3, 2e-3, 6.3e-3], 16)),
    mistakes={
        ("np.stack([1 / seconds, sizes / seconds], axis=1)", "np.stack([np.ones_like(sizes) * 1e9, sizes], axis=1)"): (
            "Both the parts and what they should add up to are divided by the measured seconds."
        ),
        lambda sizes, seconds, size: np.polyval(np.polyfit(sizes, seconds, 1), size): (
            "These are absolute errors: the largest step then decides alone. Weigh each error by its own step."
        ),
        lambda sizes, seconds, size: seconds[-1] * size / sizes[-1]: (
            "That is in proportion to the samples. A step has a part that does not depend on them."
        ),
    },
    variants=(extrapolate_with_polyfit,),
    hint="Two unknowns, one equation for each step. What do you divide an equation by, to make its error relative?",
    explanation="Two numbers of this machine; how far they carry is to be measured.",
)

# %% line-guess-prose [markdown]
"""
Your line is fitted to all sizes but the largest. **By how many per cent will it miss the largest step?**
"""

# %% line-guess
guess("60.line", 10.0, "% off")

# %% line
table = pd.DataFrame({"step (ms)": 1e3 * steps_s, "operators": {n: len(each.operators) for n, each in timed.items()}})
table["idle (%)"] = {size: 100 * each.idle for size, each in timed.items()}
labkit.plots.show(table.rename_axis("batch size (measured)").round(2))
line_s = extrapolate(list(sizes[:-1]), list(steps_s.iloc[:-1]), sizes[-1])
print(f"{sizes[-1]} samples: {1e3 * line_s:.1f} ms predicted, {1e3 * steps_s.iloc[-1]:.1f} ms measured")
reveal("60.line", 100 * abs(line_s / steps_s.iloc[-1] - 1))

# %% ex-60-roofline [markdown]
"""
A line knows nothing of *why*. Two models do: FLOP ÷ peak, as on a data sheet, and the bound of [Know your machine](01_know_your_machine.ipynb), your `step_bound`, for each operator. `calibrate` measures what this machine can do at its best. The table has both for the largest step.
"""

# %% sums
best = labkit.hardware.calibrate(repeats=3)
step_bound, largest = mine("01.bound"), timed[sizes[-1]]
sums_ms = {
    "FLOP ÷ peak": sum(each.flop for each in largest.operators) / best.fp32_gflops / 1e6,
    "roofline": 1e3 * sum(step_bound(each.flop, each.bytes, 1, best) for each in largest.operators),
    "operators, measured": 1e3 * largest.times_s.sum(),
    "step, measured": 1e3 * largest.step_s,
}
labkit.plots.show(pd.Series(sums_ms).to_frame("ms").round(2))

# %% card-prose [markdown]
"""
## What if?

A roofline of the best speeds is too short. labkit's models learn how far off such physics is. Training steps are drawn at random, each of their operators is timed within its step, and a model learns each kind of operator. The result is the *card* of a machine, which `labkit calibrate` writes. Steps that the models had not seen say how good they are.
"""

# %% card
card = labkit.perfmodel.measure_card({"smoke": 2, "standard": 100, "full": 240}[profile])
print(f"one step, again and again: {card.noise:.1%} from its median, measured")
for job in ("dlrm", "speech", "cnn"):
    print(f"steps of {job}, not seen before: {card.error(job):.1%} off (geometric mean)")
if card.is_poor:
    print("That is too far off to predict anything: close other programs, then run this cell again.")

# %% fused-prose [markdown]
"""
In *Make it fast* you put all tables into one tensor, looked all rows up at once, and updated them with an Adam of your own. You measured first. Here you predict first. **How many times as fast is the step with your lookup and your Adam?**
"""

# %% fused-guess
guess("60.fused", 1.5, "times as fast")

# %% fused-use [markdown]
"""
Each of the four changes below changes one thing. The first one starts from your plain step, and the others start from the step with your lookup and Adam.
"""

# %% fused
from dataclasses import replace

FastDlrm, RowAdam, pairs = mine("33.model"), mine("33.optimiser"), mine("10.interaction")


def fused_step(config, size=2048, bf16=False):
    torch.manual_seed(0)
    model = FastDlrm(MyDlrm(config), pairs, bf16)
    return step_of(model, [torch.optim.Adam(model.parameters(), lr=2e-3), RowAdam(model, 2e-3)], batch_of(config, size))


# %% changes-prose [markdown]
"""
The tables have 20,000 rows now. The third entry of each change is the configuration after it:
"""

# %% changes
base = replace(tour, num_rows=(20_000,) * 8)
wide, long = replace(base, bottom_mlp=(512, 16), top_mlp=(1024, 512, 1)), replace(base, num_rows=(100_000,) * 8)
plain, fused = plain_step(base), fused_step(base)
changes = {
    "your lookup and Adam": (plain, fused, base),
    "bf16": (fused, fused_step(base, bf16=True), base),
    "MLPs 8 times as wide": (fused, fused_step(wide), wide),
    "tables 5 times as long": (fused, fused_step(long), long),
}

# %% sheet-prose [markdown]
"""
Two models predict each gain. By the card, a prediction runs the step once to see which operators of which sizes it calls, and adds up what the card says about each; how long that step took does not count. By the *data sheet*, as planners of large trainings do it, a step is your `step_bound` of the whole model: its operations, the bytes of its weights, no calls.
"""


# %% sheet
def card_ms(step):
    [step() for _ in range(3)]
    return labkit.perfmodel.predict_step(labkit.perfmodel.operators_of(step), card, "dlrm").step_ms


def sheet_ms(step, config, bf16=False):
    flop = sum(each.flop for each in labkit.perfmodel.operators_of(step))
    weight_bytes = 4 * sum(each.numel() for each in MyDlrm(config).parameters())
    limits = replace(best, fp32_gflops=best.bf16_gflops) if bf16 else best
    return 1e3 * step_bound(flop, weight_bytes, 0, limits)


# %% table-prose [markdown]
"""
Both models predict each change, and only then it is measured, in pairs.
"""

# %% table
rows = {}
for name, (old, new, config) in changes.items():
    by_card = card_ms(old) / card_ms(new)
    by_sheet = sheet_ms(old, base) / sheet_ms(new, config, name == "bf16")
    pair_s = paired_times({"old": old, "new": new}, rounds)
    rows[name] = {"card": by_card, "data sheet": by_sheet, "measured": (pair_s["old"] / pair_s["new"]).median()}
gains = pd.DataFrame(rows).T
labkit.plots.show(apparatus.figure_gains(gains.rename_axis("change").reset_index()))
reveal("60.fused", gains["measured"].iloc[0])

# %% prose-62-sheet [markdown]
"""
### Explain

Which changes does the data sheet get wrong, and why? For which kind of step would it be right? Use the numbers of your figure.
"""

# %% explain 60.why_datasheet points=2
### BEGIN SOLUTION
answer = model_answer("60.why_datasheet")
### END SOLUTION
explain("60.why_datasheet", answer)

# %% checks
EXERCISES["60.why_datasheet"] = Explanation(
    "numbers: a change whose gain the data sheet misses, and what was measured",
    "why: it counts operations and weights, and no rows that are looked up, no calls, no caches",
    "when it is right: large products, whose operations decide",
    model="The data sheet gives the fused lookup a gain of 1.0, and 1.15 was measured; it promises 2.3 of bf16, which gave "
    "0.94; and MLPs 8 times as wide should take 33 times as long, and took 6.2 times. It counts operations and weights "
    "alone, so a narrow step is next to nothing for it, while most of its 23 ms are calls and rows that are looked up. "
    "It would be right for a step that consists of large products.",
)

# %% cache-prose [markdown]
r"""
## Rows that are still in the cache

The paper's model of an embedding lookup needs the share of rows that are still in the GPU's cache. Its formula, `expected_hit_rate`, takes all rows as equally likely. Real ids are not uniform. A few rows are named most of the time, about as in Zipf's law: $P(r) \propto r^{-s}$.

**100,000 rows, of which 10,000 fit into the cache; 100,000 lookups by Zipf's law with $s = 1.1$. How many per cent hit?**
"""

# %% zipf-guess
guess("60.zipf", 40.0, "% hit")

# %% zipf-use [markdown]
"""
The table compares the formula with a simulated cache, which drops the row whose last use is longest ago.
"""

# %% zipf
hit_rate, rng, length = apparatus.expected_hit_rate, np.random.default_rng(0), 100_000
zipf = rng.choice(length, (1000, 100), p=apparatus.zipf_shares(length, 1.1))
ids = {"simulated, uniform": rng.integers(0, length, (1000, 100)), "simulated, Zipf 1.1": zipf}
fits = (1000, 10_000, 50_000)
hits = pd.DataFrame({"formula": [hit_rate(length, length, rows) for rows in fits]}, fits)
for name, batches in ids.items():
    hits[name] = [apparatus.simulate_hit_rate(batches, length, rows) for rows in fits]
labkit.plots.show((100 * hits).round(1).rename_axis("rows that fit (hits in %)"))
reveal("60.zipf", 100 * hits.loc[10_000, "simulated, Zipf 1.1"])

# %% shard-prose [markdown]
"""
So the formula predicts too many bytes from memory and too long a lookup, wherever some rows are popular.

## Tables on two processes

With several GPUs each holds some of the tables. It looks them up for the samples of all GPUs. In an exchange each GPU then gets the rows of its own samples, and gradients go back the same way. Two processes on two cores, with torch's *gloo* between them, do the same.

### Write: `placed_ms` (10 minutes)

`placed_ms(tables_ms, placements, start_ms, table_ms)` predicts the step of each placement: a dict with the same names, in ms. `tables_ms` is what each table's lookup and update take. `placements` has, by name, the number of each table's process.

1. A process takes as long as its tables together.
2. An exchange takes `start_ms`, and `table_ms` more for each table of the process that has the most tables.
3. A step has two exchanges, and no process goes on before the slowest one is done.
"""

# %% answer 60.placed
from collections import Counter
from collections.abc import Mapping, Sequence


def placed_ms(
    tables_ms: Sequence[float], placements: Mapping[str, Sequence[int]], start_ms: float, table_ms: float
) -> dict[str, float]:
    """A step with each placement, in milliseconds."""
    ### BEGIN SOLUTION
    found = {}
    for name, placement in placements.items():
        loads, counts = Counter(), Counter(placement)
        for owner, own_ms in zip(placement, tables_ms, strict=True):
            loads[owner] += own_ms
        found[name] = max(loads.values()) + 2 * (start_ms + table_ms * max(counts.values()))
    return found
    ### END SOLUTION


# %% check 60.placed points=4
check("60.placed", placed_ms)


# %% checks
def placed_by_process(tables_ms, placements, start_ms, table_ms):
    found = {}
    for name, owners in placements.items():
        of_each = [[ms for ms, owner in zip(tables_ms, owners, strict=True) if owner == one] for one in set(owners)]
        found[name] = max(map(sum, of_each)) + 2 * start_ms + 2 * table_ms * max(map(len, of_each))
    return found


EXERCISES["60.placed"] = WrittenExercise(
    placed_ms,
    Case("two processes", lambda code: code([3.0, 1.0, 2.0], {"a": (0, 1, 1)}, 0.5, 0.0)),
    Case("one has them all", lambda code: code([3.0, 1.0, 2.0], {"all on 1": (1, 1, 1)}, 0.5, 0.1)),
    Case(
        "two placements of four tables: the slowest process has fewer tables",
        lambda code: code([3.0, 1.0, 2.0, 0.5], {"by size": (0, 1, 1, 1), "in turn": (0, 1, 0, 1)}, 0.25, 0.5),
    ),
    Case("three processes", lambda code: code([1.0, 5.0, 2.0, 2.0], {"a": (2, 0, 1, 2)}, 0.25, 0.125)),
    mistakes={
        ("max(loads.values())", "sum(loads.values())"): "The processes work at the same time: the slowest decides.",
        ("2 * (start_ms", "(start_ms"): "Rows go out in the forward pass, gradients come back: two exchanges.",
        ("max(counts.values())", "len(placement)"): "A process sends the rows of its own tables, not those of all.",
    },
    variants=(placed_by_process,),
    hint="For one placement on paper: what does each process look up, how many tables has each, who is last?",
    explanation="As in Lin et al.'s model of several GPUs (arXiv 2404.12674): the slowest rank, and the collectives.",
)

# %% free-prose [markdown]
"""
The time of an exchange is fitted to measured ones: a start, and a time per byte that leaves a process. With two processes, half of each tensor leaves its process. (Each process takes memory of its own, so the models above are dropped.)
"""

# %% exchange
changes.clear()
plain = fused = old = new = own = None
labkit.hardware.give_memory_back()
sharding = apparatus.sharding
sent, batch, width = sharding.sent_share(2), 2048, 32
gloo = sharding.fit_transfer(sharding.SIZES, sharding.time_exchanges(2), sent)
print(f"an exchange (gloo): {1e6 * gloo.start_s:.0f} µs, and {2**20 * 1e6 * gloo.byte_s:.0f} µs a MiB, fitted")

# %% tables-prose [markdown]
"""
Sets of tables are drawn at random, with few or many lookups a sample. The card predicts what each table takes.
"""


# %% tables
def draw_tables(seed):
    rng = np.random.default_rng(seed)
    lengths, lookups = rng.choice([5000, 30_000, 100_000], 6), rng.choice([1, 4, 16, 40], 6)
    return sharding.Tables(tuple(map(int, lengths)), tuple(map(int, lookups)), width, batch)


def alone_ms(tables, number):
    one = replace(tables, rows=tables.rows[number : number + 1], lookups=tables.lookups[number : number + 1])
    return 1e3 * sharding.predict_tables(one, card)


# %% ways-prose [markdown]
"""
For each set your function predicts six placements, and then all six are measured. The choice is right if it takes at most 5 % longer than the best of the six, which is about what repeated measurements differ by.
"""


# %% ways
import labkit_course


def measure(tables, ways):
    tries = 1 if profile == "smoke" else 3
    return labkit_course.undisturbed(lambda: sharding.measure_placements(tables, ways, 2), tries)


# %% ways-measured
right, table_ms = [], 1e3 * gloo.byte_s * sent * 4 * batch * width
for seed in range({"smoke": 1, "standard": 10, "full": 40}[profile]):
    tables = draw_tables(seed)
    ways = sharding.placements(tables, 2, random=3, seed=seed)
    predicted = placed_ms([alone_ms(tables, number) for number in range(6)], ways, 1e3 * gloo.start_s, table_ms)
    real = measure(tables, ways)
    right.append(real[min(predicted, key=predicted.get)] <= 1.05 * min(real.values()))
print(f"{sum(right)} of {len(right)} choices were right: predicted, then measured")

# %% prose-claim-B2 [markdown]
"""
Is that share of right choices enough for the claim of the paper's successor? [Sharding](63_sharding.ipynb) judges it, with 20 recorded sets.

## Judge

**B2.** The paper's abstract: "both the device active time (the sum of kernel runtimes) but also the device idle time" are important. The paper's own predictions of a step are 8 % off, so an idle time below a tenth of the step would not be noticed. Say that the claim holds from a tenth on. Which of your numbers can test it: the share of your CPU's step in which no operator computes, or the recorded rank's kernels and collectives?
"""

# %% claim B2 points=1
busy = sum(each.duration_us for each in step.kernels) / step.duration_us
said = f"the recorded GPU ran no kernel, nor waited in a collective, in {100 * (1 - busy):.0f} % of its step"
### BEGIN SOLUTION
verdict = "holds here" if 1 - busy >= 0.1 else "does not hold here"
answer = verdict, "one rank, batch 16; a CPU cannot test it, since Python computes on it between operators"
### END SOLUTION
claim("B2", said, answer, how="recorded")

# %% prose-claim-B8 [markdown]
"""
**B8.** The paper distinguishes five types of overheads. Does each of them count? Say so if the step gets shorter by one per cent or more when that overhead is gone on all ranks; less than one per cent is within the error of the walk.
"""

# %% claim B8 points=1
said = ", ".join(f"{kind}: {share:.0f} %" for kind, share in saved.items())
### BEGIN SOLUTION
verdict = "holds here" if min(saved.values()) >= 1 else "does not hold here"
answer = verdict, "one recorded step of eight ranks, bound by their hosts; each overhead removed alone"
### END SOLUTION
claim("B8", said + " of the step", answer, how="recorded")

# %% prose-claim-B1 [markdown]
"""
**B1.** The abstract: DLRM's GPU utilisation "is low compared to other well-optimized CV and NLP models". Steps of a ResNet-18 with a batch of 128 on an RTX 2080 Ti were recorded, too. GPU and batch differ between the two recordings, so a small difference says nothing. Say that the claim holds if the DLRM's kernels, without exchanges, fill less than half as much of their step as the ResNet's.
"""

# %% claim B1 points=1
resnet = labkit.runs.recorded_table("param-rtx2080ti", "steps")
shares = kernels_us / step.duration_us, (resnet["busy_us"] / resnet["interval_us"]).median()
said = f"kernels fill {shares[0]:.0%} of the DLRM's step ({busy:.0%} with exchanges and the waiting in them), "
said += f"{shares[1]:.0%} of a ResNet-18's"
### BEGIN SOLUTION
verdict = "holds here" if shares[0] < shares[1] / 2 else "does not hold here"
answer = verdict, "two recordings, on different GPUs, and the DLRM's batch is small"
### END SOLUTION
claim("B1", said, answer, how="recorded")

# %% prose-claim-B3 [markdown]
"""
**B3.** The abstract: all kernel models are less than 10 % off (geometric mean). Yours are those of your card, on operators that they had not seen. Say that the claim holds if kinds that make up nine tenths of the operators' time are less than 10 % off: a kind that takes no time may be off. A card that was called too poor above tests nothing; this goes for B6 and B9, too.
"""

# %% claim B3 points=1
of_kind = pd.DataFrame(card.kinds, ["error", "share"]).T
good = of_kind.loc[of_kind["error"] < 0.10, "share"].sum() / of_kind["share"].sum()
said = f"{good:.0%} of the operators' time is of kinds that are less than 10 % off, of {len(of_kind)} kinds"
### BEGIN SOLUTION
verdict = "holds here" if good >= 0.9 else "does not hold here"
verdict = "cannot be tested here" if card.is_poor else verdict
answer = verdict, "on a CPU whose own noise is part of each error, from a card made in minutes"
### END SOLUTION
claim("B3", said, answer)

# %% prose-claim-B6 [markdown]
"""
**B6.** The abstract: end to end, a step is 7.96 % off (geometric mean). Yours are DLRM steps that the models had not seen. Say that the claim holds within 8 %, or within twice the noise of the machine if that is more: a prediction cannot be better than the step repeats itself.
"""

# %% claim B6 points=1
said = f"{card.error('dlrm'):.1%} off for {len(card.misses['dlrm'])} DLRM steps; noise {card.noise:.1%}"
### BEGIN SOLUTION
verdict = "holds here" if card.error("dlrm") <= max(0.08, 2 * card.noise) else "does not hold here"
verdict = "cannot be tested here" if card.is_poor else verdict
answer = verdict, "steps drawn at random and left out of the fit, on a CPU instead of a GPU"
### END SOLUTION
claim("B6", said, answer)

# %% prose-claim-B9 [markdown]
"""
**B9.** The abstract: "comparable accuracy" on other models that are bound by computation. Say so if the errors of recognisers and of CNNs are each at most 1.5 times the error of DLRMs: with so few steps of each, the errors of two equally good models may differ by that much.
"""

# %% claim B9 points=1
said = ", ".join(f"{job} {card.error(job):.1%}" for job in ("dlrm", "speech", "cnn")) + " off"
### BEGIN SOLUTION
verdict = "holds here" if max(map(card.error, ("speech", "cnn"))) <= 1.5 * card.error("dlrm") else "does not hold here"
verdict = "cannot be tested here" if card.is_poor else verdict
answer = verdict, "all left out of the fit; few steps of each"
### END SOLUTION
claim("B9", said, answer)

# %% scores-prose [markdown]
"""
How good were your guesses? The cell after the scores keeps the numbers of this notebook for a program to read, each with bounds that hold on any machine.
"""

# %% scores
from labkit_course import score_notebook

score_notebook()
quick, ratio = profile == "smoke", steps_ms.iloc[:, 1] / steps_ms.iloc[:, 0]  # one round may be disturbed

# %% results tags=["results"]
from labkit_course import results

results(
    walk_miss=(max(abs(miss), abs(ratio - 1).max()), 0, 0.01),
    left=(left, 0.43, 0.45),
    left_together=(max(left_together), 0.10, 0.11),
    idle_small=(None if quick else timed[16].idle, 0.02, 0.8),
    small_over_large=(None if quick else steps_s.iloc[0] / steps_s.iloc[-1], 0.001, 0.5),
    line_over_measured=(None if quick else line_s / steps_s.iloc[-1], 0.3, 1.5),
    dlrm_error=(None if quick else card.error("dlrm"), 0, 0.4),
    fused_measured=(None if quick else gains["measured"].iloc[0], 0.8, 20),
)

# %% assistant fused_measured below=1.05 [markdown]
"""
A fused lookup moves the same bytes as the separate ones, so fusing them makes the step less than 1.05 times as fast.
"""

# %% recap [markdown]
"""
## Recap

- A step ends when the host *and* the device are done. A walk over launches with two clocks says which of them decides.
- The time of a collective is mostly waiting for the last rank. Remove overheads on all ranks, or the waiting stays.
- A model that is given a step's own times can only be tested by it. What it predicts otherwise has to be measured.
- Predict the gain first, then measure in turns. A data sheet knows operations and weights; it misses calls, caches and rows that are looked up.
- Popular rows stay in the cache: a formula for uniform ids is too pessimistic.
- With several processes the slowest decides.

**Next:** [Sharding](63_sharding.ipynb). Or go back to your training of a DLRM, and ask `labkit whatif dlrm --measure` of it, or `labkit whatif run your_script.py --change batch-size=4096` of a script of yours.
"""

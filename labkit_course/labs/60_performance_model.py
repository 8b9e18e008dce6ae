# %% cell-00 [markdown]
"""
# A performance model

After this notebook you will be able to

- **write** the walk that predicts a training step on a GPU from its launches;
- **say** what the five overheads of a step are, and what is left of it without them, for one GPU and for eight that wait for each other;
- **measure** how much of a step on your machine no operator computes in, over the batch size;
- **judge** four claims of Lin et al., *Building a Performance Model for Deep Learning Recommendation Model Training on GPUs* ([arXiv 2201.07821](https://arxiv.org/abs/2201.07821)).

**Time:** 60 minutes; the machine computes for half a minute on 2 CPU cores. No GPU is needed: the GPU's step was recorded.

**Prerequisites:** [Know your machine](01_know_your_machine.ipynb), [Profile top-down](32_profile_top_down.ipynb).
"""

# %% checks
import functools

from labkit_course.exercise import Case, Explanation, WrittenExercise

EXERCISES = {}

# %% cell-01 [markdown]
"""
The next cell holds what you may change.
"""

# %% cell-02 tags=["parameters"]
profile = "standard"  # smoke, standard or full: how many batch sizes are timed, how many ranks are walked over

# %% cell-03 [markdown]
"""
## A step that somebody recorded

A step of a DLRM on eight V100s, the GPU of the paper, was recorded with a profiler and published ([PARAM](https://github.com/facebookresearch/param)). This is what one of the eight ranks did in it: its host *calls*, one after another, and the *kernels* that the calls launched. Its batch is small, 16 samples a rank, and it is one step: small evidence, and real.
"""

# %% recorded
import labkit
from labkit_course import apparatus

traces = sorted((labkit.project.shipped_datasets() / "recorded" / "param-v100" / "original").iterdir())
step = apparatus.read_step(traces[0])
print(f"{step.operators} operators, {len(step.kernels)} kernels in {step.duration_us / 1e3:.1f} ms: recorded")

# %% cell-04 [markdown]
"""
What the host does is one of the paper's five overheads. **T1** lies between two operators; **T2** goes from an operator's start to its first launch, **T3** from its last launch to its end; **T4** is the launch call itself; **T5** lies between two launches, or is all of an operator that launches nothing. **How many per cent of the step's time do its kernels take, one after the other, without the exchanges between GPUs?**
"""

# %% guess-kernels
from labkit_course import explain, guess, model_answer, reveal

guess("60.kernels", 60.0, "% of the step")

# %% cell-05 [markdown]
"""
Counted from the recording:
"""

# %% reveal-kernels
kernels_us = sum(each.duration_us for each in step.kernels if each.collective is None)
reveal("60.kernels", 100 * kernels_us / step.duration_us)

# %% ex-60-walk [markdown]
"""
## The walk

### Write: `walk` (20 minutes)

`walk(calls, kernels, without=())` gives the time (µs) at which the host and all kernels are done. `calls` are tuples of the host: the overhead's kind ("T1" to "T5"), the time it takes (µs), the number of the kernel that it launches or None, and the number of the kernel whose end the host waits for after it, or None. `kernels` are tuples, in the order in which they are launched: the stream, the time it takes (µs), and the numbers of kernels that end before it starts. Calls of a kind in `without` take no time.

1. The host's clock goes on with each call. A launch lets its kernel start: not before the host is there, not before what it waits for has ended, and not before its stream is free.
2. A stream is free 1 µs after its last kernel has ended. A host that waits for a kernel goes on when that has ended.

Hint: a list for the ends of kernels, a dictionary for when each stream is free.
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
from labkit_course import check

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


EXERCISES["60.walk"] = WrittenExercise(
    walk,
    module="prediction",
    cases=(
        Case("a host slower than its kernel", lambda code: code(HOST_BOUND, [("7", 4.0, [])])),
        Case("three kernels of one stream", lambda code: code(GPU_BOUND, [("7", 50.0, [])] * 3)),
        Case("kernels of two streams", lambda code: code(CROSSING, [("7", 50.0, []), ("8", 5.0, [])])),
        Case("one that waits for another stream", lambda code: code(CROSSING, [("7", 50.0, []), ("8", 5.0, [0])])),
        Case("a host that synchronises", lambda code: code(WAITING, [("7", 50.0, []), ("7", 5.0, [])])),
        Case("the same without T1", lambda code: code(WAITING, [("7", 50.0, []), ("7", 5.0, [])], ["T1"])),
        Case(
            "the same without T4, which still launches",
            lambda code: code(WAITING, [("7", 50.0, []), ("7", 5.0, [])], ["T4"]),
        ),
        Case(
            "without T5, after which the host waits",
            lambda code: code(WAITING, [("7", 50.0, []), ("7", 5.0, [])], ["T5"]),
        ),
        Case("a recorded rank, bound by its host", lambda code: code(*recorded())),
        Case("the recorded rank without T1 and T4", lambda code: code(*recorded(), ["T1", "T4"])),
        Case("nothing is launched", lambda code: code([("T5", 3.0, None, None)], [])),
    ),
    mistakes={
        ("        if kind not in without:\n            host += took", "        host += took"): (
            "A call whose kind is in `without` takes no time."
        ),
        (
            "        if kind not in without:\n            host += took",
            "        if kind in without:\n            continue\n        host += took",
        ): ("A call in `without` takes no time, but it still launches its kernel, and the host still waits after it."),
        ("free[stream] = ends[-1] + 1.0", "free[stream] = ends[-1]"): (
            "Kernels of one stream start a microsecond apart at least: that is the paper's gap."
        ),
    },
    hint="Keep the host's time, the end of each kernel in the order of launch, and for each stream when it is free. A "
    "kernel starts at the latest of: now on the host, its stream free, the kernels in `after` ended.",
    explanation="Lin et al., algorithm 1: two clocks that wait for each other at launches and synchronisations.",
)

# %% walk-used-prose [markdown]
"""
Your walk over the recorded step. Each collective takes here what this rank measured, waiting for others included:
"""

# %% walk-used
calls = [(each.kind, each.us, each.launches, each.waits_for) for each in step.calls]
kernels = [(each.stream, each.duration_us, each.after) for each in step.kernels]
walked_us = walk(calls, kernels)
miss = walked_us / step.duration_us - 1
print(f"walked: {walked_us / 1e3:.2f} ms (predicted), recorded: {step.duration_us / 1e3:.2f} ms, {miss:+.1%}")

# %% cell-06 [markdown]
"""
A walk with a step's own times must reproduce that step. That tests the walk; it predicts nothing. The walk is for another question: how long *would* the step take if something were different?

**Without T1 to T5 on this rank alone, how many per cent of its step are left?**
"""

# %% guess-left
guess("60.left", 30.0, "% of the step")

# %% cell-07 [markdown]
"""
The step without all five, and without each of them. A collective still takes what this rank measured:
"""

# %% ablation
import pandas as pd

kinds = ("T1", "T2", "T3", "T4", "T5")
left = walk(calls, kernels, kinds) / walked_us
reveal("60.left", 100 * left)
alone = {kind: 100 * (1 - walk(calls, kernels, [kind]) / walked_us) for kind in kinds}

# %% cell-08 [markdown]
"""
The step without all five. Below it, remove them one after the other, with the mouse or the arrow keys, and watch the streams close up:
"""

# %% slider
labkit.plots.show(labkit.plots.figure_timeline(apparatus.walk_timeline(step, without=kinds), provenance="predicted"))
apparatus.overheads(step)

# %% cell-10 [markdown]
"""
## Who waits for whom

Most of what is left is time in collectives, and most of that is not an exchange of data. A rank that arrives early waits for the last one, and the profiler counts the wait as part of the collective. A collective that keeps its recorded time therefore keeps the overheads of the *other* ranks' hosts.

`walk_together` is your walk for all eight ranks. Each arrives at a collective when its own host and streams get there. The exchange begins when the last one is there, and then takes as long as in the recording.
"""

# %% together
ranks = [apparatus.read_step(path) for path in traces]
transfers = apparatus.transfers_us(ranks)
together = apparatus.walk_together(ranks, transfers)
steps_ms = pd.DataFrame({"recorded (ms)": [rank.duration_us / 1e3 for rank in ranks]})
steps_ms["predicted (ms)"] = [walked.step_us / 1e3 for walked in together]
labkit.plots.show(steps_ms.rename_axis("rank"))
waited_us = sum(each.duration_us for each in step.kernels if each.collective is not None)
exchange_us = sum(transfers.values())
print(f"collectives: {waited_us / 1e3:.2f} ms; exchange, once all ranks had come: {exchange_us / 1e3:.2f} ms: recorded")

# %% together-guess-prose [markdown]
"""
The ranks of the recording began up to 7.5 ms apart, so the early ones also wait for the late ones. Let all eight begin together. **How many per cent of rank 0's step are left now without T1 to T5 on all ranks?**
"""

# %% guess-together
guess("60.left_together", 100 * left, "% of the step")

# %% reveal-together-prose [markdown]
"""
The walk over all ranks, with every overhead and without any:
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
Each overhead removed by itself, on one rank and on all. On all ranks the waiting in the collectives shrinks, too:
"""

# %% each-together
saved = {}
for kind in kinds:
    faster = apparatus.walk_together(begun_together, transfers, without=[kind])
    saved[kind] = 100 * (1 - faster[0].step_us / whole[0].step_us)
shorter = pd.DataFrame({"on this rank alone": alone, "on all ranks": saved})
labkit.plots.show(shorter.rename_axis("rank 0's step is shorter by (%), predicted"))

# %% prose-60-why-kernels-alone [markdown]
"""
### Explain

Two predictions of the step without overheads differ by a factor of four. Why? Which of them would a faster host get, and what would remove the overheads: a faster GPU, a larger batch, a CUDA graph?
"""

# %% explain 60.why_kernels_alone points=2
### BEGIN SOLUTION
answer = model_answer("60.why_kernels_alone")
### END SOLUTION
explain("60.why_kernels_alone", answer)

# %% checks
EXERCISES["60.why_kernels_alone"] = Explanation(
    rubric=(
        "numbers: what is left without T1 to T5 on one rank, and on all ranks together",
        "why: a collective's time is mostly waiting for other ranks' hosts, that is, their overheads",
        "consequence: which change removes overheads (larger batches, fused operators, CUDA graphs), and which not",
    ),
    model="Without T1 to T5 on rank 0 alone, 44 % of its step are left; if all ranks lose them and begin together, 10.8 %. "
    "The difference is waiting: its collectives take 5.8 ms, of which 0.2 ms is exchange. In the rest, hosts of other "
    "ranks were still launching, or had begun later. Faster hosts on all ranks come close to the 10.8 %. CUDA graphs, "
    "fused operators or a larger batch remove overheads; a faster GPU changes little, since kernels are 7 % of the step.",
)

# %% cell-11 [markdown]
"""
## Your own step

A CPU has one timeline, and nothing to launch. Of the five overheads there are T1, between operators, and T5, operators that compute nothing (views). In both, the CPU is at work: Python and autograd run there. Here is a DLRM as a textbook writes it, on one thread:
"""

# %% model
import torch
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(0)
model = labkit.models.Dlrm(labkit.models.DlrmConfig(13, (5000,) * 8, 16, (64, 16), (128, 64, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

# %% cell-12 [markdown]
"""
A step of it, and batches of any size:
"""


# %% own-step
def train(dense, categorical, label):
    loss = F.binary_cross_entropy_with_logits(model(dense, categorical), label)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def batch_of(size):
    rows = torch.randint(5000, (size, 8, 4), dtype=torch.int32)  # (B, F, L)
    return torch.randn(size, 13), rows, torch.rand(size).round()


# %% cell-13 [markdown]
"""
**In how many per cent of a step with 16 samples does no operator compute?**
"""

# %% guess-idle
guess("60.idle", 40.0, "% of the step")

# %% cell-14 [markdown]
"""
Each operator is timed within the step, by a mode of torch that sees every call below autograd; what timing itself takes is measured, and taken off:
"""

# %% idle
sizes = {
    "smoke": (16, 2048),
    "standard": (16, 64, 256, 1024, 4096),
    "full": (16, 32, 64, 128, 256, 512, 1024, 2048, 4096),
}
timed = {}
for size in sizes[profile]:
    batch = batch_of(size)
    timed[size] = labkit.perfmodel.time_step(lambda batch=batch: train(*batch))
reveal("60.idle", 100 * timed[16].idle)

# %% cell-15 [markdown]
"""
Over the batch size:
"""

# %% idle-table
table = pd.DataFrame({"step (ms)": {size: 1e3 * each.step_s for size, each in timed.items()}})
table["operators"] = [len(each.operators) for each in timed.values()]
table["idle (%)"] = [100 * each.idle for each in timed.values()]
labkit.plots.show(table.rename_axis("batch size (measured)"))

# %% prose-60-why-batch [markdown]
"""
### Explain

How does the idle share change with the batch size, and why? What can a CPU not show of it?
"""

# %% explain 60.why_batch points=2
### BEGIN SOLUTION
answer = model_answer("60.why_batch")
### END SOLUTION
explain("60.why_batch", answer)

# %% checks
EXERCISES["60.why_batch"] = Explanation(
    rubric=(
        "numbers: the idle share at the smallest and at the largest batch",
        "why: the time between operators does not grow with the batch, the operators' does",
        "limit: what a CPU cannot show of the paper's finding",
    ),
    model="What lies between operators, and views, cost the same for 16 samples as for 4,096, while products and "
    "lookups grow with the batch, so the idle share falls. A CPU has one timeline: between operators it "
    "computes, too, namely Python and autograd, and nothing runs meanwhile; on a GPU the two overlap.",
)

# %% ex-60-roofline [markdown]
"""
## Models of kernels

Your `step_bound` of lab 01, for single operators: the call, and then the longer of arithmetic and memory traffic, which go on at the same time.
"""

# %% mine
from labkit_course import mine

step_bound = mine("01.bound")

# %% cell-16 [markdown]
"""
What this machine can do at its best, in a second or two:
"""

# %% card
best = labkit.hardware.calibrate(repeats=3)
print(f"{best.fp32_gflops:,.0f} GFLOP/s, {best.bandwidth_gb_per_s:.0f} GB/s, {best.launch_us:.1f} µs a call: measured")
largest = timed[max(timed)]

# %% cell-17 [markdown]
"""
Two models of the matrix products of your largest step, which was measured: arithmetic at the machine's peak and nothing else, as it stands on data sheets, and your roofline. An error of 100 % is a factor of two.
"""

# %% errors
import math

own_us = [1e6 * step_bound(each.flop, each.bytes, 1, best) for each in largest.operators]
peak_us = [each.flop / best.fp32_gflops / 1e3 for each in largest.operators]
models = pd.DataFrame({"FLOP ÷ peak": peak_us, "roofline": own_us})
products = models["FLOP ÷ peak"] > 0
off = models[products].rdiv(1e6 * largest.times_s[products], axis=0)
errors = off.apply(lambda column: labkit.perfmodel.geometric_error(column.map(math.log)))
labkit.plots.show((100 * errors).to_frame("error a product (%), geometric mean"))

# %% cell-18 [markdown]
"""
And the sums of all operators, and the step. No bytes, no calls, no caches: a data sheet fails in an instructive way, and a roofline of the best speeds is still too short. labkit's own models learn from some hundred timed operators of each kind how far off such physics is; `labkit calibrate` makes them of your machine in two minutes, and `labkit predict` uses them.
"""

# %% sums
sums = {"FLOP ÷ peak": sum(peak_us), "roofline": sum(own_us), "operators, measured": 1e6 * largest.times_s.sum()}
whole = pd.Series(sums | {"step, measured": 1e6 * largest.step_s}) / 1e3
labkit.plots.show(whole.to_frame("ms"))

# %% prose-claim-B2 [markdown]
"""
## Judge

The paper's abstract: "both the device active time (the sum of kernel runtimes) but also the device idle time" are important. Call idle time important where the device has nothing to do in a tenth of the step or more. Which of your numbers can test that: the share of your CPU's step in which no operator computes, or the recorded rank's kernels and collectives?
"""

# %% claim B2 points=1
from labkit_course import claim

busy = sum(each.duration_us for each in step.kernels) / step.duration_us
said = f"the recorded GPU ran no kernel, nor waited in a collective, in {100 * (1 - busy):.0f} % of its step"
### BEGIN SOLUTION
verdict = "holds here" if 1 - busy >= 0.1 else "does not hold here"
answer = verdict, "one rank, batch 16; a CPU cannot test it, since Python computes on it between operators"
### END SOLUTION
claim("B2", said, answer, how="recorded")

# %% prose-claim-B8 [markdown]
"""
The paper distinguishes five types of overheads. Does each of them count? Call it so where the step is shorter by one per cent or more when that overhead is gone on all ranks; less than one per cent is within the error of the walk.
"""

# %% claim B8 points=1
said = ", ".join(f"{kind}: {share:.0f} %" for kind, share in saved.items())
### BEGIN SOLUTION
verdict = "holds here" if min(saved.values()) >= 1 else "does not hold here"
answer = verdict, "one recorded step of eight ranks, bound by their hosts; each overhead removed alone"
### END SOLUTION
claim("B8", said + " of the step", answer, how="recorded")

# %% prose-claim-B11 [markdown]
"""
The paper: kernel time alone underpredicts by up to 78.5 % (V100, another DLRM, batch 512). Yours is the V100, with a batch of 16: call it so where it is half or more.
"""

# %% claim B11 points=1
under = 100 * (1 - kernels_us / step.duration_us)
said = f"kernels alone, exchanges left out: {under:.0f} % under the recorded step"
### BEGIN SOLUTION
verdict = "holds here" if under >= 50 else "does not hold here"
answer = verdict, "the same GPU, but another model and a smaller batch, so only the direction is tested"
### END SOLUTION
claim("B11", said, answer, how="recorded")

# %% prose-claim-B1 [markdown]
"""
The abstract: DLRM's GPU utilisation "is low compared to other well-optimized CV and NLP models". Steps of a ResNet-18 on an RTX 2080 Ti were recorded, too, with a batch of 128. Call it so where the DLRM's kernels, exchanges left out, fill less than half as much of the step as the ResNet's.
"""

# %% claim B1 points=1
resnet = labkit.runs.recorded_table("param-rtx2080ti", "steps")
shares = kernels_us / step.duration_us, (resnet["busy_us"] / resnet["interval_us"]).median()
with_nccl = sum(each.duration_us for each in step.kernels) / step.duration_us
said = f"kernels fill {shares[0]:.0%} of the DLRM's step ({with_nccl:.0%} with exchanges and the waiting in them), "
said += f"{shares[1]:.0%} of a ResNet-18's"
### BEGIN SOLUTION
verdict = "holds here" if shares[0] < shares[1] / 2 else "does not hold here"
answer = verdict, "two recordings, on different GPUs, and the DLRM's batch is small"
### END SOLUTION
claim("B1", said, answer, how="recorded")

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

worst = abs(steps_ms["predicted (ms)"] / steps_ms["recorded (ms)"] - 1).max()
results(
    walk_miss=(abs(miss), 0, 0.01),
    ranks_miss=(worst, 0, 0.01),
    left=(left, 0.43, 0.45),
    left_together=(max(left_together), 0.10, 0.11),
    kernels_share=(kernels_us / step.duration_us, 0.01, 0.5),
    idle_small=(timed[16].idle, 0, 1),
    roofline_error=(errors["roofline"], 0, 50),
)

# %% recap [markdown]
"""
## Recap

- A step ends when the host *and* the device are done; a walk over launches with two clocks says which of them decides.
- The five overheads say what the host does around launches. Removing one shows what it is worth, which its own length does not.
- The time of a collective is mostly waiting for the last rank. Remove overheads on all ranks, or the waiting stays.
- Idle time matters where kernels are short: small batches, small models, many operators.
- A data sheet's FLOP/s say little of operators that move bytes; a roofline says more, and what is learnt from measurements most.
- A model that is given a step's own times can only be tested by it; what it predicts otherwise has to be measured.

**Next:** [What if?](62_what_if.ipynb) asks what a change is worth before it is made.
"""

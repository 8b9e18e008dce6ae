# %% cell-00 [markdown] packages="scipy"
"""
# Sharding

After this notebook you will be able to

- **write** a ring all-reduce, and **say** what it costs;
- **train** on two processes by hand, with the losses of one;
- **account** for what data parallelism, full sharding and tensor parallelism exchange in a step, and what each rank holds;
- **place** embedding tables on processes, and **judge** a claim of a thesis and two of Lin et al., *Towards Universal Performance Modeling for Machine Learning Training on Multi-GPU Platforms* ([arXiv 2404.12674](https://arxiv.org/abs/2404.12674)).

**Time:** 90 minutes with five functions and two explanations. The machine computes for less than one of them. No GPU is needed.

**Prerequisites:** [Predict a step](60_performance_model.ipynb) and [Time to accuracy](50_time_to_accuracy.ipynb).
"""

# %% checks
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from labkit_course import apparatus
from labkit_course.exercise import Case, Exercise, Explanation, WrittenExercise

MODULE = "parallel"
EXERCISES = {}

# %% cell-01 [markdown]
"""
You may change the next cell. `student` is your number, if your course gave you one. It draws the numbers of one question.
"""

# %% cell-02 tags=["parameters"]
profile = "standard"  # smoke, standard or full: how many steps your data parallelism takes
student = 0  # whose numbers the questions have

# %% cell-03 [markdown]
"""
## A sum over all ranks

Processes that train together are called *ranks*. In data parallelism each rank has a gradient of its own, and each needs the sum of all of them: an *all-reduce*. In the simplest way every rank sends its gradient to rank 0, which adds them and sends the sum back. With eight ranks rank 0 then receives and sends seven gradients, while the others wait.

In a *ring* rank *r* sends to rank *r* + 1 only, and the last one sends to rank 0. **How many bytes does each of eight ranks send for each byte of its gradient?**
"""

# %% guess-ring
import pandas as pd
import torch

import labkit
from labkit_course import apparatus, check, claim, draw, explain, guess, mine, model_answer, reveal

guess("63.ring", 7.0, "bytes")

# %% ex-63-ring [markdown]
"""
### Write: `ring_all_reduce` (20 minutes)

Each of *n* ranks cuts its gradient into *n* chunks. `chunks[rank][number]` is such a chunk, a tensor. `ring_all_reduce(chunks)` returns two things: a list like `chunks` in which every rank has the sum of each chunk over all ranks, and a list of the number of chunks that each rank sent.

1. There are 2(*n* − 1) rounds. In round *s* rank *r* sends its chunk number (*r* − *s*) mod *n* to rank (*r* + 1) mod *n*. All ranks send at the same time, so what is sent is what the ranks had before the round.
2. In the first *n* − 1 rounds the receiver *adds* what it gets to its own chunk of that number. After them each rank has one chunk that is complete.
3. In the other *n* − 1 rounds the receiver *replaces* its own chunk.
4. Leave the given lists and tensors as they are.

Hint: collect first what all ranks send in a round, then deliver it.
"""

# %% answer 63.ring
from collections.abc import Sequence

from torch import Tensor


def ring_all_reduce(chunks: Sequence[Sequence[Tensor]]) -> tuple[list[list[Tensor]], list[int]]:
    """The sums that each rank has in the end, and the number of chunks that each has sent."""
    ### BEGIN SOLUTION
    ranks = len(chunks)
    held, sent = [list(own) for own in chunks], [0] * ranks
    for step in range(2 * (ranks - 1)):
        moving = [(rank, (rank - step) % ranks, held[rank][(rank - step) % ranks]) for rank in range(ranks)]
        for rank, number, chunk in moving:
            receiver = held[(rank + 1) % ranks]
            receiver[number] = receiver[number] + chunk if step < ranks - 1 else chunk
            sent[rank] += 1
    return held, sent
    ### END SOLUTION


# %% check 63.ring points=6
check("63.ring", ring_all_reduce)


# %% checks
def _chunks(ranks: int, seed: int) -> list[list[torch.Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    return [[torch.randint(100, (2,), generator=generator) for _ in range(ranks)] for _ in range(ranks)]


def _ring_cases(random: Random) -> list[Case]:
    seed = random.randrange(10**6)
    return [
        Case("two ranks", lambda code: code(_chunks(2, seed))[0]),
        Case("three ranks", lambda code: code(_chunks(3, seed))[0]),
        Case("the chunks that each of five ranks sent", lambda code: code(_chunks(5, seed))[1]),
        Case("five ranks", lambda code: code(_chunks(5, seed))[0]),
        Case("one rank alone", lambda code: code(_chunks(1, seed))),
    ]


def _ring_by_rounds(chunks: Sequence[Sequence[torch.Tensor]]) -> tuple[list[list[torch.Tensor]], list[int]]:
    n = len(chunks)
    now = [[chunk.clone() for chunk in own] for own in chunks]
    for adds in (True, False):
        for s in range(n - 1):
            s = s if adds else s + n - 1
            before = [[chunk.clone() for chunk in own] for own in now]
            for r in range(n):
                number, to = (r - s) % n, (r + 1) % n
                now[to][number] = before[to][number] + before[r][number] if adds else before[r][number]
    return now, [2 * (n - 1)] * n


EXERCISES["63.ring"] = WrittenExercise(
    ring_all_reduce,
    draw=_ring_cases,
    mistakes={
        ("range(2 * (ranks - 1))", "range(ranks - 1)"): (
            "After n - 1 rounds each rank has one complete chunk. It has to get the others, too."
        ),
        ("receiver[number] + chunk if step < ranks - 1 else chunk", "receiver[number] + chunk"): (
            "In the second half a rank gets a chunk that is complete already: what happens if it adds its own again?"
        ),
        ("(rank, (rank - step) % ranks, held[rank][(rank - step) % ranks])", "(rank, rank, held[rank][rank])"): (
            "In each round another chunk goes on: the one that the rank has just got from its neighbour."
        ),
    },
    variants=(_ring_by_rounds,),
    hint="Draw three ranks with chunks a, b and c. Who has the complete sum of which chunk after two rounds?",
    explanation="Each rank sends 2(n - 1) chunks of an n-th of the gradient each, whatever the number of ranks.",
)

# %% ring-used-prose [markdown]
"""
Each chunk is an *n*-th of the gradient, so a rank sends 2(*n* − 1)/*n* bytes for each byte of it, less than two with any number of ranks.
"""

# %% ring-used
sums, sent = ring_all_reduce([[torch.ones(1)] * 8 for _ in range(8)])
per_byte = sent[0] / 8
reveal("63.ring", per_byte)
print(f"{sent[0]} chunks of an eighth: {per_byte} bytes for each byte of the gradient; without a ring, rank 0 sends 7")

# %% sent-prose [markdown]
"""
### Exercise 63.sent

The next cell draws your numbers. How many megabytes does each rank send in one all-reduce of the gradient (a float is 4 bytes)?
"""

# %% sent-draw
numbers = draw("63.sent", student)
print(f"a model of {numbers['million']} million floats on {numbers['ranks']} ranks")

# %% answer 63.sent
### BEGIN SOLUTION
answer = 4 * numbers["million"] * 2 * (numbers["ranks"] - 1) / numbers["ranks"]
### END SOLUTION

# %% check 63.sent points=1
check("63.sent", answer, student)

# %% checks
EXERCISES["63.sent"] = Exercise(
    truth=lambda million, ranks: 8 * million * (ranks - 1) / ranks,
    draw=lambda random: {"million": random.randrange(10, 200), "ranks": random.choice([3, 4, 6, 16])},
    unit="MB",
    mistakes={
        lambda million, ranks: 4 * million * (ranks - 1) / ranks: "A ring goes round twice: to add, then to share.",
        lambda million, ranks: 4 * million: "That is the gradient itself. How many chunks of it does a rank send?",
        lambda million, ranks: 2 * million * (ranks - 1) / ranks: "A float has four bytes.",
    },
    hint="The bytes of the gradient, times what a rank sends for each byte.",
    explanation="The bytes of the gradient, times 2(n - 1)/n.",
)

# %% nccl-prose [markdown]
"""
## What it takes on eight GPUs

The step of eight V100s of [Predict a step](60_performance_model.ipynb) has eight collectives by NVIDIA's NCCL, which uses rings. The table has the bytes of each, and its exchange: from the entry of the last rank to the exit of the last one. A start-up time and a time per byte sent are fitted to the three all-reduces.
"""

# %% nccl
collectives = apparatus.recorded_collectives()
reduces = collectives[collectives["collective"] == "all_reduce"]
nccl = apparatus.sharding.fit_transfer(list(reduces["bytes"]), list(1e-6 * reduces["exchange_us"]), per_byte)
collectives["fitted (µs)"] = None
collectives.loc[reduces.index, "fitted (µs)"] = [1e6 * nccl.seconds(per_byte * each) for each in reduces["bytes"]]
labkit.plots.show(collectives.rename(columns={"exchange_us": "exchange (µs), recorded"}).round(0))
print(f"start-up {1e6 * nccl.start_s:.0f} µs, then {1e-9 / nccl.byte_s:.0f} GB/s: fitted to three recorded exchanges")

# %% nccl-after [markdown]
"""
An all-reduce of 448 bytes takes a quarter of the time of one of 1.6 MB: what counts for small tensors is the start-up. So PyTorch's `DistributedDataParallel` packs gradients into buckets of 25 MB, and starts to exchange a bucket while the backward pass still computes the next.

## Data parallelism by hand

All ranks begin with the same weights. Each computes the gradient of its own share of the batch. If the gradients are added up right, the loss and the weights are those of one process.

### Write: `parallel_step` (15 minutes)

`parallel_step(model, optimizer, batch, rank, ranks, all_reduce)` takes one training step and returns the loss of the *whole* batch, a float. `batch` has the inputs (B, D) and the labels (B,) of all ranks. `all_reduce(tensor)` puts the sum over all ranks into the tensor, on each of them. The loss is the mean binary cross-entropy; the model returns logits (B, 1).

1. This rank's samples are number `rank`, `rank + ranks`, and so on. The ranks may have different numbers of them.
2. The gradients have to be those of the mean over the whole batch, on every rank.
3. All ranks have to call `all_reduce` equally often, or those that call it will wait for the others.
4. `torch` and `F` are there on the other processes, and nothing else of this notebook.
"""

# %% answer 63.parallel
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def parallel_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: tuple[Tensor, Tensor],
    rank: int,
    ranks: int,
    all_reduce: Callable[[Tensor], object],
) -> float:
    """One step of all ranks together; the loss of the whole batch."""
    ### BEGIN SOLUTION
    inputs, labels = (part[rank::ranks] for part in batch)
    logits = model(inputs).squeeze(1)
    loss = F.binary_cross_entropy_with_logits(logits, labels, reduction="sum") / len(batch[1])
    optimizer.zero_grad()
    loss.backward()
    for weight in model.parameters():
        all_reduce(weight.grad)
    optimizer.step()
    whole = loss.detach().clone()
    all_reduce(whole)
    return whole.item()
    ### END SOLUTION


# %% check 63.parallel points=6
check("63.parallel", parallel_step)


# %% checks
def _parallel_in_one_tensor(model, optimizer, batch, rank, ranks, all_reduce):
    samples = len(batch[0])
    own = range(rank, samples, ranks)
    inputs, labels = batch[0][list(own)], batch[1][list(own)]
    optimizer.zero_grad()
    loss = F.binary_cross_entropy_with_logits(model(inputs)[:, 0], labels) * (len(own) / samples)
    loss.backward()
    flat = torch.cat([weight.grad.flatten() for weight in model.parameters()] + [loss.detach().view(1)])
    all_reduce(flat)
    place = 0
    for weight in model.parameters():
        weight.grad.copy_(flat[place : place + weight.numel()].view_as(weight))
        place += weight.numel()
    optimizer.step()
    return float(flat[-1])


EXERCISES["63.parallel"] = WrittenExercise(
    parallel_step,
    Case("one rank", lambda code: apparatus.on_threads(code, 1, 3, 10)),
    Case("two ranks, ten samples", lambda code: apparatus.on_threads(code, 2, 3, 10)),
    Case("three ranks, ten samples: one has four of them", lambda code: apparatus.on_threads(code, 3, 3, 10)),
    mistakes={
        ('reduction="sum") / len(batch[1])', 'reduction="mean")'): (
            "This adds up means of shares. What does each sample have to count in the mean of the whole batch?"
        ),
        ("    all_reduce(whole)\n", ""): "This is the loss of one rank's share: add up the others, too.",
        ("    for weight in model.parameters():\n        all_reduce(weight.grad)\n", ""): (
            "Each rank now trains a model of its own: the gradients have to be added up before the optimiser steps."
        ),
    },
    variants=(_parallel_in_one_tensor,),
    hint="With two ranks of five samples each: by what do you divide a rank's sum, so that the sum over both is the mean?",
    explanation="Sums of shares over the size of the whole batch add up to its mean, also if the shares differ in size.",
)

# %% used-prose [markdown]
"""
Now your step runs on two real processes, with torch's *gloo* between them, in three rounds that take turns with one process. First a batch has 250 samples, then 32,000.

**H9.** In a thesis, four GPUs trained 2.1 to 3.0 times as fast as one on one platform, and 3.7 to 3.9 times on another: at least 53 % of the ideal. Its models were larger than yours, so judge by the batch of 32,000. Say that the claim holds if two processes reach 53 % of their ideal, 1.05 times one, in every round; that it does not hold if they miss it in every round; and else that it cannot be tested.

**With 250 samples, how many times as many samples per second do two processes take as one?**
"""

# %% used-guess
guess("63.speed", 1.8, "times the samples per second")

# %% used
steps, gains, apart = {"smoke": 20, "standard": 200, "full": 1000}[profile], {}, 0.0
runs = apparatus.train_on(parallel_step, {250: steps, 32_000: max(steps // 40, 1)})
for samples, ((alone, together), seconds) in runs.items():
    apart = max(apart, *(abs(one - two) for one, two in zip(alone, together, strict=True)))
    gains[samples] = [one_s / two_s for one_s, two_s in zip(*seconds, strict=True)]
    one_ms, two_ms = (1e3 * sorted(each)[1] for each in seconds)
    print(f"{samples} samples a step: {one_ms:.2f} ms on one process, {two_ms:.2f} ms on two (measured)")
print(f"the losses differ by at most {apart:.1e}")
reveal("63.speed", sorted(gains[250])[1])

# %% used-after [markdown]
"""
The losses agree up to rounding. The speed is another matter: a step of 250 samples is short, and the exchange takes longer than the half of it that is saved. With 32,000 samples the exchange takes no longer, because it sends gradients and not samples.
"""

# %% claim H9 points=1
shares = [gain / 2 for gain in gains[32_000]]
said = f"two processes reach {min(shares):.0%} to {max(shares):.0%} of their ideal with 32,000 samples a step, "
said += f"and {min(gains[250]) / 2:.0%} to {max(gains[250]) / 2:.0%} with 250"
### BEGIN SOLUTION
open_or_not = "does not hold here" if max(shares) < 0.53 else "cannot be tested here"
verdict = "holds here" if min(shares) >= 0.53 else open_or_not
answer = verdict, "an analogue: two cores of one CPU with gloo instead of four GPUs, and one small model"
### END SOLUTION
claim("H9", said, answer)

# %% who-holds [markdown]
"""
## Who holds what

A model may also be too large for a rank. Three ways to divide it, with Adam and fp32, which take 16 bytes for each weight: itself, its gradient and two moments.

- **Data parallel** (DDP): each rank holds all 16 bytes of all weights. A step has one all-reduce of the gradients.
- **Fully sharded** (FSDP, ZeRO-3): each rank holds an *n*-th of the 16 bytes. It gathers the weights of a layer when it needs them, in the forward pass and again in the backward pass, and afterwards the gradients are summed and divided (*reduce-scatter*). Each of the three sends (*n* − 1)/*n* bytes for each byte of the weights. While it computes a layer it also holds this layer's weights as a whole.
- **Tensor parallel**: the weights of a pair of layers are divided so that each rank computes a part of the inner width. Each rank holds an *n*-th of the 16 bytes, too. All ranks see all samples. A pair has an all-reduce of its output (batch × width) in the forward pass, and one of the gradient of its input in the backward pass.

### Write: `account` (15 minutes)

`account(pairs, batch, ranks)` returns a dict from `"data"`, `"full"` and `"tensor"` to a tuple: the bytes that a rank holds for the weights, and the bytes that it sends in a step.

`pairs` has a pair (width, inner) for each pair of layers, of width × inner and inner × width weights. `batch` are the samples of all ranks together. Biases and activations do not count.

Hint: two layers of a pair are equally large, so the largest layer has width × inner weights.
"""

# %% answer 63.account
from collections.abc import Sequence


def account(pairs: Sequence[tuple[int, int]], batch: int, ranks: int) -> dict[str, tuple[float, float]]:
    """Bytes held and bytes sent of a rank: data parallel, fully sharded, tensor parallel."""
    ### BEGIN SOLUTION
    once = (ranks - 1) / ranks  # bytes sent for each byte that is gathered, or reduced and scattered
    weights = sum(2 * width * inner for width, inner in pairs)
    largest = max(width * inner for width, inner in pairs)
    outputs = sum(batch * width for width, _ in pairs)
    return {
        "data": (16 * weights, 2 * once * 4 * weights),
        "full": (16 * weights / ranks + 4 * largest, 3 * once * 4 * weights),
        "tensor": (16 * weights / ranks, 2 * 2 * once * 4 * outputs),
    }
    ### END SOLUTION


# %% check 63.account points=5
check("63.account", account)


# %% checks
def account_by_pair(pairs: Sequence[tuple[int, int]], batch: int, ranks: int) -> dict[str, tuple[float, float]]:
    held, gathered = np.zeros(3), np.zeros(3)  # data, full, tensor
    for width, inner in pairs:
        weight_bytes = 8 * width * inner
        held += 4 * weight_bytes / np.array([1, ranks, ranks])
        gathered += [2 * weight_bytes, 3 * weight_bytes, 16 * batch * width]
    held[1] += max(4 * width * inner for width, inner in pairs)
    return dict(zip(("data", "full", "tensor"), zip(held, gathered - gathered / ranks, strict=True), strict=True))


EXERCISES["63.account"] = WrittenExercise(
    account,
    Case("one pair on two ranks", lambda code: code([(8, 32)], 4, 2)),
    Case("two pairs on four ranks", lambda code: code([(16, 64), (32, 64)], 10, 4)),
    Case("one rank alone", lambda code: code([(16, 64)], 10, 1)),
    Case("a wide pair next to narrow ones, eight ranks", lambda code: code([(4, 8), (128, 512), (4, 8)], 32, 8)),
    mistakes={
        (" + 4 * largest", ""): (
            "A fully sharded rank gathers a layer before it computes it: it then holds that one as a whole."
        ),
        ("3 * once * 4 * weights", "2 * once * 4 * weights"): (
            "The weights are gathered twice, forward and backward, and the gradients are reduced and scattered."
        ),
        ("2 * 2 * once * 4 * outputs", "2 * once * 4 * outputs"): (
            "A tensor-parallel pair has two all-reduces: of its output, and of the gradient of its input."
        ),
    },
    variants=(account_by_pair,),
    hint="Take one pair, two ranks and a batch of four on paper: which tensors move, how often, and how large are they?",
    explanation="Full sharding sends half as much again as data parallelism; tensor parallelism sends activations instead.",
)

# %% account-prose [markdown]
"""
Two models on eight ranks: the MLPs of a large DLRM with a batch of 65,536, and 32 pairs of a language model of 4,096 × 16,384 with 16,384 tokens. The times are predicted with the V100s' all-reduce from above. They say what the exchange would take alone; a good engine hides a part of it behind computation.
"""

# %% account-used
models = {"DLRM's MLPs": ([(1024, 1024)] * 4, 65_536), "language model": ([(4096, 16_384)] * 32, 16_384)}
rows = {}
for name, (pairs, batch) in models.items():
    for way, (held, moved) in account(pairs, batch, 8).items():
        rows[name, way] = {
            "held (GB)": held / 1e9,
            "sent (GB)": moved / 1e9,
            "exchange (ms)": 1e3 * nccl.seconds(moved),
        }
accounts = pd.DataFrame(rows).T.rename_axis(["model (predicted)", "parallel"])
labkit.plots.show(accounts.reset_index().round(2))

# %% prose-63-why-full [markdown]
"""
### Explain

When would you take each of the three ways? Use numbers of both models.
"""

# %% explain 63.why_full points=2
### BEGIN SOLUTION
answer = model_answer("63.why_full")
### END SOLUTION
explain("63.why_full", answer)

# %% checks
EXERCISES["63.why_full"] = Explanation(
    "numbers: what a rank holds, and what it sends, of at least two ways",
    "why: data parallelism and full sharding send weights, tensor parallelism sends activations, which grow with the batch",
    "trade-off: full sharding saves memory for half as much exchange again, or fits where data parallelism does not",
    model="The language model takes 69 GB on each rank data-parallel, which a V100 of 32 GB does not have; fully sharded it takes "
    "9 GB, for 45 GB sent instead of 30. The DLRM's MLPs take 0.13 GB, so data parallelism is best: it sends 0.06 GB, and "
    "tensor parallelism 3.76, since activations grow with the batch and weights do not.",
    half="The language model does not fit data-parallel with 69 GB, fully sharded it takes only 9 GB on each rank, so I would take that.",
)

# %% cell-tables [markdown]
"""
## Tables that are placed whole

Embedding tables are divided differently: a process gets whole tables, looks them up for the samples of all, and sends each process the rows of its samples. A *sharder* chooses the process of each table. With two processes and four tables there are eight choices, and brute force can measure all of them. That was done once for 20 random sets of tables, in five passes that took turns.
"""

# %% recorded
sets, about = apparatus.recorded_plans()
print(f"{len(sets)} sets, {about['device']}, {about['provenance']['when'][:10]}: recorded")
print(about["provenance"]["note"])
first = sets[0]
passes = pd.DataFrame(first.passes_ms, [f"pass {number} (ms), recorded" for number in range(1, 6)]).T
passes.index = ["".join(map(str, way)) for way in first.passes_ms]
print("rows:", first.rows, "lookups per sample:", first.lookups)
labkit.plots.show(passes.rename_axis("process of each table").round(1))

# %% ex-63-right [markdown]
"""
The machine did little else, and still a pass differs by 5 % from the others, and now and then by 50 %. A choice that is slower by less than that cannot be called wrong.

### Write: `is_right` (10 minutes)

`is_right(passes_ms, choice)` says whether a choice is as good as the best placement. `passes_ms` has, for each placement (a tuple), the times of its passes.

1. The best placement is the one with the smallest median.
2. The choice is right if its median is at most 5 % above the best one's.
3. It is also right if the two cannot be distinguished: in at least two passes the choice was at least as fast as the best placement was *in the same pass*, for these two were measured close to each other.
"""

# %% answer 63.right
from collections.abc import Mapping, Sequence
from statistics import median


def is_right(passes_ms: Mapping[tuple[int, ...], Sequence[float]], choice: tuple[int, ...]) -> bool:
    """Whether a placement is as good as the best one, as far as the passes can tell."""
    ### BEGIN SOLUTION
    best = min(passes_ms.values(), key=median)
    own = passes_ms[choice]
    as_fast = sum(mine <= other for mine, other in zip(own, best, strict=True))
    return median(own) <= 1.05 * median(best) or as_fast >= 2
    ### END SOLUTION


# %% check 63.right points=4
check("63.right", is_right)


# %% checks
WAYS_MS = {
    (0, 0): [10.0, 11.0, 10.0, 12.0, 9.0],
    (0, 1): [10.4, 13.0, 10.3, 12.5, 9.9],
    (1, 0): [14.0, 10.5, 13.0, 11.0, 15.0],
    (1, 1): [14.0, 13.0, 8.5, 15.0, 16.0],
    (0, 2): [13.0, 14.0, 13.0, 13.0, 15.0],
}


def right_by_numpy(passes_ms: Any, choice: tuple[int, ...]) -> bool:
    ways = list(passes_ms)
    times = np.array([passes_ms[way] for way in ways])
    middle, own = np.median(times, axis=1), ways.index(choice)
    best = int(middle.argmin())
    return bool(middle[own] / middle[best] <= 1.05 or (times[own] <= times[best]).sum() > 1)


EXERCISES["63.right"] = WrittenExercise(
    is_right,
    Case("the best placement itself", lambda code: code(WAYS_MS, (0, 0))),
    Case("a median 3 % above the best", lambda code: code(WAYS_MS, (0, 1))),
    Case("a slower one that was faster in two passes", lambda code: code(WAYS_MS, (1, 0))),
    Case("one that was slower in all", lambda code: code(WAYS_MS, (0, 2))),
    Case("a slower one that was faster in one pass", lambda code: code(WAYS_MS, (1, 1))),
    mistakes={
        (" or as_fast >= 2", ""): (
            "One pass may have been disturbed. In how many passes was the choice as fast as the best?"
        ),
        ("as_fast >= 2", "min(own) <= max(best)"): (
            "Times of different passes are compared here, and the machine may have been busier in one of them."
        ),
        ("key=median", "key=min"): (
            "The best placement is the one with the smallest median, not the one with the fastest pass."
        ),
    },
    variants=(right_by_numpy,),
    hint="Which placement has the smallest median? Compare the case's placement with it, pass by pass.",
    explanation="What was measured side by side is compared side by side, as in the pairs of the earlier labs.",
)

# %% place-prose [markdown]
"""
The baseline is a choice at random. **How many per cent of all placements are right?**
"""

# %% place-guess
guess("63.random", 25.0, "% of placements")

# %% place-random
at_random = [is_right(each.passes_ms, way) for each in sets for way in each.passes_ms]
reveal("63.random", 100 * sum(at_random) / len(at_random))

# %% ex-63-place [markdown]
"""
### Write: `place` (10 minutes)

Trying all placements is out of the question for 26 tables on eight GPUs: there are 8^26. Sharders are greedy, as TorchRec's is at its core.

`place(costs, processes)` returns the process of each table, a tuple.

1. The most expensive table comes first. Of equally expensive ones the earlier table comes first.
2. Each goes to the process whose tables cost least so far. Of equal processes the one with the lowest number gets it.
"""

# %% answer 63.place
from collections.abc import Sequence


def place(costs: Sequence[float], processes: int) -> tuple[int, ...]:
    """The process of each table."""
    ### BEGIN SOLUTION
    loads, placed = [0.0] * processes, [0] * len(costs)
    for table in sorted(range(len(costs)), key=lambda each: -costs[each]):
        owner = loads.index(min(loads))
        placed[table] = owner
        loads[owner] += costs[table]
    return tuple(placed)
    ### END SOLUTION


# %% check 63.place points=4
check("63.place", place)


# %% checks
def place_with_heap(costs: Sequence[float], processes: int) -> tuple[int, ...]:
    import heapq

    heap, owners = [(0.0, process) for process in range(processes)], {}
    for table, cost in sorted(enumerate(costs), key=lambda each: -each[1]):
        load, owners[table] = heapq.heappop(heap)
        heapq.heappush(heap, (load + cost, owners[table]))
    return tuple(owners[table] for table in range(len(costs)))


EXERCISES["63.place"] = WrittenExercise(
    place,
    Case("four tables on two processes", lambda code: code([1.0, 5.0, 2.0, 3.0], 2)),
    Case("equally expensive tables", lambda code: code([2.0, 2.0, 2.0], 2)),
    Case("five tables on three processes", lambda code: code([4.0, 9.0, 3.0, 3.0, 5.0], 3)),
    Case("fewer tables than processes", lambda code: code([1.0, 2.0], 4)),
    mistakes={
        ("sorted(range(len(costs)), key=lambda each: -costs[each])", "range(len(costs))"): (
            "A large table that comes late finds no room: which one has to be first?"
        ),
        ("loads[owner] += costs[table]", "loads[owner] += 1"): "This counts tables. What has a process to do for each?",
        ("loads.index(min(loads))", "loads.index(max(loads))"): "A table goes to the process that has least so far.",
    },
    variants=(place_with_heap,),
    hint="Do the case by hand: sort the tables, and write down what each process has so far.",
    explanation="Greedy by cost is at most a third worse than the best (Graham, 1969), if the costs are right.",
)

# %% planned-prose [markdown]
"""
MLPerf's recommender, DLRM-DCNv2, has 26 tables of 105 GB together. TorchRec's planner predicts for each what it adds to a step of the GPU that has it, on V100s. The next cell places the tables by your `place` with these costs. The figure has the slowest GPU of three of the planner's plans: with whole tables, and with its own choice between whole tables and tables that are divided by rows, on eight GPUs of 32 GiB and on eight of 16 GiB.
"""

# %% planned
tables, plans = apparatus.planned_tables()
loads = tables["whole_ms"].groupby(list(place(tables["whole_ms"], 8))).sum()
labkit.plots.show(labkit.plots.figure_phases(plans, provenance="predicted"))
largest = tables.loc[tables["whole_ms"].idxmax()]
print(f"your slowest GPU {loads.max():.1f} ms, your fastest {loads.min():.1f} ms: predicted")
print(f"the table with {largest['lookups']:.0f} lookups takes {largest['whole_ms']:.1f} ms alone")

# %% planned-after [markdown]
"""
No placement of whole tables beats its most expensive table, not yours and not the planner's. So the planner divides two tables by rows: each GPU looks up its own rows for the samples of all and sends partial sums, which costs more exchange, and the slowest GPU takes less than half as long. With 16 GiB no table of 40 million rows (20 GB) fits on a GPU, so all of them are divided. None of these times was measured.
"""

# %% constants-prose [markdown]
"""
## Whose constants?

A sharder needs a cost. TorchRec's planner takes the bytes that are looked up over the bandwidth of the memory, once forward and twice backward, and the bytes of the sums that are exchanged over the bandwidth of the network, forward and back. Its constants are those of a V100, unless it is given others: 897 GiB/s for the memory, 600 GiB/s for the network, and 32 GiB for the tables of a GPU. The machine that measured the sets has a memory and a *gloo* that were measured, too.
"""


# %% constants
def cost_ms(lookups, memory_gb_s, network_gb_s):
    sums = 4 * about["batch_size"] * about["dim"] / 1e6  # MB of a table's sums
    return 3 * (lookups + 1) * sums / memory_gb_s + 2 * sums / 2 / network_gb_s


constants = {
    "greedy, a V100's constants": (897 * 1.074, 600 * 1.074),
    "greedy, this machine's": (about["memory_gb_per_s"], about["exchange"]["gb_per_s"]),
}
print(f"memory {about['memory_gb_per_s']:.1f} GB/s, network {about['exchange']['gb_per_s']:.2f} GB/s: recorded")

# %% constants-guess-prose [markdown]
"""
**In how many per cent of the sets is the greedy choice right if the cost of a table is its number of rows?**
"""

# %% constants-guess
guess("63.rows", 50.0, "% of the sets")

# %% constants-used-prose [markdown]
"""
The table compares your greedy sharder by four costs with the plans of TorchRec's planner. *Slower* is the geometric mean of the choice's median over the best one's.
"""

# %% constants-used
import numpy as np

choices = {"greedy by rows": [place(each.rows, 2) for each in sets]}
choices["greedy by lookups"] = [place(each.lookups, 2) for each in sets]
for name, known in constants.items():
    choices[name] = [place([cost_ms(lookups, *known) for lookups in each.lookups], 2) for each in sets]
choices["TorchRec, a V100's constants"] = [each.planner for each in sets]
choices["TorchRec, this machine's"] = [each.planner_here for each in sets]


# %% constants-table
def scored(chosen):
    named = [tuple(int(owner != way[0]) for owner in way) for way in chosen]  # the first table is on process 0
    right = sum(is_right(each.passes_ms, way) for each, way in zip(sets, named, strict=True))
    medians = [{way: np.median(times) for way, times in each.passes_ms.items()} for each in sets]
    slower = [of_set[way] / min(of_set.values()) for of_set, way in zip(medians, named, strict=True)]
    return {"right": right, "slower (×)": np.exp(np.mean(np.log(slower)))}


scores = pd.DataFrame({name: scored(chosen) for name, chosen in choices.items()}).T
labkit.plots.show(scores.round(2).rename_axis(f"right in how many of {len(sets)} sets, recorded"))
reveal("63.rows", 100 * scores.loc["greedy by rows", "right"] / len(sets))

# %% prose-63-why-constants [markdown]
"""
### Explain

Which constants would have chosen right here, a V100's or this machine's? What do they change in the cost of a table, and when would that change a placement?
"""

# %% explain 63.why_constants points=2
### BEGIN SOLUTION
answer = model_answer("63.why_constants")
### END SOLUTION
explain("63.why_constants", answer)

# %% checks
EXERCISES["63.why_constants"] = Explanation(
    "numbers: in how many sets the choices by a V100's and by this machine's constants are right, next to a random placement",
    "why: constants only change what a table costs besides its lookups, which decides where tables have few of them",
    "consequence: when constants would matter (a slow network, few lookups), or what else is missing in the cost",
    model="A V100's constants are right in 12 of 20 sets and this machine's in 14; TorchRec's planner is right in 14 and 13, and a "
    "random placement in 29 %. Only the ratio of memory to network counts: besides its lookups, a table costs as much as 1.5 "
    "of them on a V100 and 13 here, where the network is slow next to the memory. That changes the choice in three sets, such as "
    "the one with lookups of 1, 16, 16 and 40. Two sets more are too few to call ours better. What is missing is the "
    "length of a table, whose rows are in the cache or not.",
    half="A V100's constants are right in 12 sets and ours in 14, so they hardly differ, and I would keep those of the planner.",
)

# %% model-prose [markdown]
"""
## A model that was fitted here

What no planner's cost above has is the length of a table. A row of a long one is rarely in the cache. The multi-GPU paper fits its models to the machine, and so does the next cell, with four numbers: a time per step, a time per row that a process looks up for a sample in short tables, another one in long tables (100,000 rows and more, 13 MB), and a time per table. The process with the most work decides. The numbers are fitted to one half of the sets, and predict all placements of the other half; then the halves change roles.
"""


# %% model
def parts_of(each, way):
    processes = []
    for process in (0, 1):
        own = [(each.rows[table], each.lookups[table]) for table, owner in enumerate(way) if owner == process]
        long = sum(lookups for rows, lookups in own if rows >= 100_000)
        processes.append([1.0, sum(lookups for _, lookups in own) - long, long, len(own)])
    return max(processes, key=lambda parts: parts[1] + 4 * parts[2])  # a row of a long table counts more


# %% fitted-prose [markdown]
"""
The fit is by least squares of the relative errors, and no number may be below zero. The table has the four numbers, fitted to all sets.
"""

# %% fitted
from scipy.optimize import nnls


def fitted(training):
    rows = [(parts_of(each, way), np.median(times)) for each in training for way, times in each.passes_ms.items()]
    weighted = np.array([np.array(parts) / measured for parts, measured in rows])  # relative errors count
    return nnls(weighted, np.ones(len(rows)))[0]


shares = pd.Series(fitted(sets), ["step", "short lookup", "long lookup", "table"]).to_frame("ms, fitted to all sets")
labkit.plots.show(shares.round(2))

# %% model-used-prose [markdown]
"""
The error is the geometric mean over all placements that the model had not seen. The noise is what one pass differs from the median of its five.
"""

# %% model-used
errors, choices["fitted model"] = [], [None] * len(sets)
for half in (0, 1):
    weights = fitted(sets[1 - half :: 2])
    for number in range(half, len(sets), 2):
        predicted = {way: np.dot(weights, parts_of(sets[number], way)) for way in sets[number].passes_ms}
        choices["fitted model"][number] = min(predicted, key=predicted.get)
        errors += [abs(np.log(ms / np.median(sets[number].passes_ms[way]))) for way, ms in predicted.items()]
error = np.exp(np.mean(errors)) - 1
noise = np.exp(np.mean([abs(np.log(one / np.median(p))) for s in sets for p in s.passes_ms.values() for one in p])) - 1
right = scored(choices["fitted model"])["right"]
print(f"predicted times are {error:.0%} off, one pass {noise:.0%}; right in {right:.0f} of {len(sets)} sets: recorded")

# %% prose-claim-B14 [markdown]
"""
## Judge

**B14.** The multi-GPU paper picks the fastest sharding 85 % of the time. A random placement was right as often as you saw above. Ask the fitted model for 70 % or more. With 20 sets the share itself decides nothing: take Wilson's interval, your `success_interval` of [Time to accuracy](50_time_to_accuracy.ipynb). If it lies above 70 %, the claim holds; if it lies below, it does not; if it contains 70 %, the sets cannot test it.
"""

# %% claim B14 points=1
low, high = mine("50.success")(int(right), len(sets))
said = f"right in {right:.0f} of {len(sets)} sets, by the interval {low:.0%} to {high:.0%}; "
said += f"a random placement in {sum(at_random) / len(at_random):.0%}"
### BEGIN SOLUTION
open_or_not = "does not hold here" if high < 0.7 else "cannot be tested here"
verdict = "holds here" if low >= 0.7 else open_or_not
answer = verdict, "two processes with gloo on two shared cores, four tables placed whole, ties count as right"
### END SOLUTION
claim("B14", said, answer, how="recorded")

# %% prose-claim-B15 [markdown]
"""
**B15.** The same paper predicts the steps of random DLRMs 5.21 % off, as a geometric mean. Say that the claim holds within 5.21 %, or within the noise of one pass if that is more: a prediction cannot be better than the step repeats itself. If the noise alone is more than four times the paper's number, the recording cannot test it.
"""

# %% claim B15 points=1
said = f"placements that the model had not seen {error:.1%} off; one pass is {noise:.1%} off its own median"
### BEGIN SOLUTION
verdict = "holds here" if error <= max(0.0521, noise) else "does not hold here"
verdict = "cannot be tested here" if noise > 4 * 0.0521 else verdict
answer = verdict, "the tables' part of a step alone, by a model of four numbers, on two processes of one machine"
### END SOLUTION
claim("B15", said, answer, how="recorded")

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
    ring_per_byte=(per_byte, 1.75, 1.75),
    losses_apart=(apart, 0, 1e-4),
    gain_of_two=(max(gains[32_000]), 0.3, 2.5),
    nccl_gb_per_s=(1e-9 / nccl.byte_s, 20, 60),
    held_data_gb=(accounts.loc[("language model", "data"), "held (GB)"], 68, 69),
    greedy_right=(scores["right"].max() / len(sets), 0.3, 1),
    model_error=(error, 0.05, 0.2),
)

# %% assistant losses_apart below=0.0001 [markdown]
"""
Data parallelism by the mean of the gradients is the same training. The losses of two processes and of one differ by less than 0.0001 over these steps.
"""

# %% recap [markdown]
"""
## Recap

- A ring all-reduce sends 2(*n* − 1)/*n* bytes for each byte of the gradient, on every rank. Small ones cost their start-up.
- Data parallelism is a sum of gradients. Divided by the size of the whole batch, it trains what one process trains.
- Data parallelism and full sharding send weights, tensor parallelism sends activations. Full sharding holds an *n*-th of the memory for half as much exchange again.
- A greedy sharder is as good as its costs, and costs are ratios of constants. Ask where a planner's constants come from, and what its cost leaves out.
- A choice is only wrong if the measurement can tell it from the best one; compare it with a random choice first.

**Next:** [A pipeline on the edge](70_edge_pipeline.ipynb). Or train with `labkit train dlrm --nproc 2 --sharding row`, whose losses are those of one process ([how](../docs/placement.md#tables-sharded-over-processes)).
"""

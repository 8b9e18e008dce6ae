# %% opening [markdown] packages="scipy"
"""
# Memory

After this notebook you will be able to

- **measure** where the bytes of a training step are: parameters, gradients, the optimiser's state, activations of each layer, and what the allocator adds;
- **write** the account of a language model: parameters, operations, numbers kept for the backward pass;
- **write** activation checkpointing, and **say** what it saves and what it costs;
- **predict** the largest batch that fits, what a published model needs, and what a GPU trains for a dollar;
- **fit** a scaling curve under a budget of time, and **test** it on a longer run.

**Time:** 100 minutes. The machine computes for about three of them on 2 CPU cores. No GPU is needed.

**Prerequisites:** [Budgets that bind](02_budgets_that_bind.ipynb), [Make it fast](33_make_it_fast.ipynb).
"""

# %% checks
from operator import call
from random import Random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from labkit_course.exercise import Case, Explanation, WrittenExercise

MODULE = "memory"
EXERCISES = {}

# %% parameters-prose [markdown]
"""
The next cell holds what you may change.
"""

# %% parameters tags=["parameters"]
profile = "standard"  # smoke, standard or full: how long models are trained

# %% model-prose [markdown]
"""
## The bytes of a step

A small language model reads 64 characters and predicts each next one. It has four *blocks*; each has attention, then a layer of four times the width. `apparatus.Block??` prints all of it: plain PyTorch, without dropout. Its text is the source of Python's own library.
"""

# %% model
import torch

import labkit
from labkit_course import apparatus, check, explain, guess, model_answer, paired_times, reveal

torch.set_num_threads(1)
labkit.hardware.give_memory_back()  # a tensor that is freed returns to the system, so that its bytes can be seen
train, validation = apparatus.char_text()
draws = torch.Generator().manual_seed(0)
model = apparatus.CharTransformer(layers=4, width=64, heads=4, context=64)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
batch = apparatus.char_batch(train, 32, model.context, draws)  # (B, T) each

# %% first-step
model.loss(batch).backward()
optimizer.step()
state = [each for moments in optimizer.state.values() for each in moments.values()]
print(f"{sum(each.numel() for each in model.parameters()):,} parameters; batch of {tuple(batch[0].shape)}")

# %% guess-share-prose [markdown]
"""
Four things take memory: the *parameters*, their *gradients*, the *optimiser's state* (two moments per parameter), and the *activations*, which the forward pass keeps for the backward pass. **How many per cent of these bytes are activations?**
"""

# %% guess-share
guess("35.share", 50.0, "% of the bytes")

# %% ex-35-saved [markdown]
"""
### Write: `saved_by_layer` (15 minutes)

Which activations are kept is autograd's business, but it can be watched. In a `with torch.autograd.graph.saved_tensors_hooks(pack, unpack):` block autograd calls `pack(tensor)` for each tensor that it keeps, and `unpack` of what `pack` returned when it needs it.

`saved_by_layer(layers, x)` runs `x` through the layers, one after the other, and returns for each layer the bytes that are kept for its backward pass.

1. Tensors may share memory: count each `tensor.untyped_storage()` once, by its `data_ptr()`, with all its `nbytes()`, for the layer that keeps it first.
2. Parameters are kept, too, but they are there anyway: do not count them.
"""

# %% answer 35.saved
from collections.abc import Sequence

import torch
from torch import Tensor, nn


def saved_by_layer(layers: Sequence[nn.Module], x: Tensor) -> list[int]:
    """Bytes that each layer keeps for the backward pass."""
    ### BEGIN SOLUTION
    seen = {each.untyped_storage().data_ptr() for layer in layers for each in layer.parameters()}
    found = []

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in seen:
            seen.add(storage.data_ptr())
            found[-1] += storage.nbytes()
        return tensor

    for layer in layers:
        found.append(0)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            x = layer(x)
    return found
    ### END SOLUTION


# %% check 35.saved points=5
check("35.saved", saved_by_layer)


# %% checks
class _Halves(nn.Module):
    """Keeps two views of one tensor."""

    def forward(self, x: Tensor) -> Tensor:
        left, right = (x + 1).chunk(2, dim=-1)
        return left * right


def _layers() -> list[nn.Module]:
    torch.manual_seed(0)
    return [nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 6), nn.Softmax(-1)]


def _saved(code: Any, layers: Sequence[nn.Module], *shape: int) -> Any:
    return [int(each) for each in code(layers, torch.zeros(*shape, requires_grad=True))]


def saved_by_class(layers: Sequence[nn.Module], x: Tensor) -> list[int]:
    own, found = {each.data_ptr() for layer in layers for each in layer.parameters()}, []
    for layer in layers:
        kept = {}

        def pack(each, kept=kept):
            kept[each.untyped_storage().data_ptr()] = each.untyped_storage().nbytes()
            return each

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda each: each):
            x = layer(x)
        found.append(sum(count for place, count in kept.items() if place not in own))
        own |= kept.keys()
    return found


EXERCISES["35.saved"] = WrittenExercise(
    saved_by_layer,
    Case("a linear layer, which keeps what it gets", _saved, _layers()[:1], 5, 8),
    Case("four layers, one after the other", _saved, _layers(), 5, 8),
    Case("a layer that keeps two halves of one tensor", _saved, [_Halves()], 5, 8),
    Case("a ReLU, which keeps what the next layer gets", _saved, [nn.ReLU(), nn.Linear(8, 2)], 3, 8),
    mistakes={
        (
            "seen = {each.untyped_storage().data_ptr() for layer in layers for each in layer.parameters()}",
            "seen = set()",
        ): ("Weights are kept for the backward pass as well, but they are no activations."),
        ("            seen.add(storage.data_ptr())\n", ""): (
            "A tensor that two layers keep, or two views of one tensor, take their bytes only once."
        ),
        ("storage.nbytes()", "tensor.nbytes"): "A view keeps its whole storage alive, not its own part.",
    },
    variants=(saved_by_class,),
    hint="Print the shape of each tensor that pack gets for one linear layer: which of them are parameters?",
    explanation="What one layer gives and the next one keeps is counted once, where it is kept first.",
)

# %% saved-used [markdown]
"""
The cell counts the activations of the whole step, and compares their sum with what the process really grows by. The difference is the *allocator's share*: memory that is taken for a moment, and memory that is held in reserve.
"""

# %% bytes
import pandas as pd


class Loss(torch.nn.Module):
    def forward(self, logits):
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[1].flatten())


stages = [*model.blocks, torch.nn.Sequential(model.norm, model.out, Loss())]
by_stage = saved_by_layer(stages, model.embedded(batch[0]))
sizes = {"parameters": sum(each.nbytes for each in model.parameters())}
sizes |= {"gradients": sizes["parameters"], "optimiser": sum(each.nbytes for each in state)}

# %% bytes-shown
sizes |= {f"block {number}": count for number, count in enumerate(by_stage[:-1])} | {"loss": by_stage[-1]}
activations, tensors = sum(by_stage), sum(sizes.values())
optimizer.zero_grad()
grown = apparatus.grown_by(lambda: model.loss(batch).backward())
made = activations + sizes["gradients"]
labkit.plots.show(pd.Series(sizes).div(2**20).round(2).rename("MiB, measured").to_frame().T)
print(f"the process grew by {grown / 2**20:.1f} MiB, {grown / made:.2f} times the {made / 2**20:.1f} of new tensors")
reveal("35.share", 100 * activations / tensors)

# %% ex-35-account [markdown]
"""
## The same by formula

### Write: `account` (20 minutes)

Measuring needs a machine on which the model fits. A formula does not. `account(layers, width, heads, context, vocabulary)` returns three numbers for a model such as this one: its parameters, the numbers *per token* that are kept for the backward pass, and the floating-point operations *per token* of a training step. Write D for the width, T for the context, V for the vocabulary, A for the heads.

1. **Parameters.** A vector for each of V characters and each of T places. In each block four matrices with biases (D to 3 D, D to D, D to 4 D, 4 D to D) and two layer norms of 2 D. At the end a layer norm, and a matrix of V × D without bias.
2. **Kept per token.** In each block: what each layer norm gets and gives, query, key and value, a share for each head and each of the T places, what `merge` gets, and what GELU gets and gives. At the end what the layer norm gets and gives, and V numbers of the softmax.
3. **Operations per token.** A matrix product with n weights takes 2 n in the forward pass, and twice that in the backward pass. Count the four matrices of each block and the last one. In each block attention adds products for scores and for their use: 2 T D each in the forward pass, and twice that in the backward pass.
"""


# %% answer 35.account
def account(layers: int, width: int, heads: int, context: int, vocabulary: int) -> tuple[int, int, int]:
    """Parameters; numbers kept per token; operations per token of a training step."""
    ### BEGIN SOLUTION
    matrices = 12 * width**2
    parameters = (2 * vocabulary + context) * width + layers * (matrices + 13 * width) + 2 * width
    kept = layers * (16 * width + heads * context) + 2 * width + vocabulary
    operations = 6 * (layers * matrices + vocabulary * width) + layers * 3 * 2 * (2 * context * width)
    return parameters, kept, operations
    ### END SOLUTION


# %% check 35.account points=6
check("35.account", account)


# %% checks
def account_in_turn(layers: int, width: int, heads: int, context: int, vocabulary: int) -> list[int]:
    weights = [width * 3 * width, width * width, width * 4 * width, 4 * width * width]
    biases = [3 * width, width, 4 * width, width]
    parameters = vocabulary * width + context * width + 2 * width + vocabulary * width
    kept, forward = 2 * width + vocabulary, 2 * vocabulary * width
    for _ in range(layers):
        parameters += sum(weights) + sum(biases) + 4 * width
        kept += 4 * width + 3 * width + heads * context + width + 8 * width
        forward += 2 * sum(weights) + 4 * context * width
    return [parameters, kept, 3 * forward]


def _accounts(random: Random) -> list[Case]:
    def of(name: str, *shape: int) -> list[Case]:
        parts = "parameters", "numbers kept per token", "operations per token"
        return [
            Case(f"{part} of {name}", lambda code, each=each: int(code(*shape)[each]), relative=1e-9)
            for each, part in enumerate(parts)
        ]

    width = 8 * random.randrange(2, 9)
    drawn = (random.randrange(2, 7), width, random.choice((2, 4)), random.randrange(20, 90), random.randrange(30, 99))
    return [*of("one block of width 1", 1, 1, 1, 1, 1), *of("no block at all", 0, 4, 2, 8, 10), *of(str(drawn), *drawn)]


EXERCISES["35.account"] = WrittenExercise(
    account,
    draw=_accounts,
    mistakes={
        ("layers * 3 * 2 * (2 * context * width)", "0"): (
            "Attention multiplies, too: scores, and shares times values, for T places each."
        ),
        ("heads * context) + 2", "context) + 2"): "Each head has shares of its own.",
        ("6 * (layers", "2 * (layers"): "That is the forward pass. The backward pass takes twice as much again.",
    },
    variants=(account_in_turn,),
    hint="Take one block with D = 1 and T = 1 on paper, tensor by tensor, in the order in which Block.forward makes them.",
    explanation="Per block 12 D² + 13 D parameters, 16 D + A T numbers kept and 72 D² + 12 T D operations per token.",
)

# %% account-used
parameters, kept, operations = account(4, 64, 4, 64, apparatus.VOCABULARY)
counted = sum(each.numel() for each in model.parameters())
tokens = batch[0].numel()
print(f"parameters: {parameters:,} predicted, {counted:,} counted")
print(f"activations: {4 * kept * tokens / 2**20:.2f} MiB predicted, {activations / 2**20:.2f} MiB measured")
by_formula = 4 * kept * tokens / activations

# %% guess-longer-prose [markdown]
"""
## Compute it again instead of keeping it

A block's activations need not be kept. Keep only what the block *gets*, and run it a second time when the backward pass arrives there. That is *activation checkpointing* (Chen et al., [arXiv 1604.06174](https://arxiv.org/abs/1604.06174)). **How many times as long is a step then?**
"""

# %% guess-longer
guess("35.longer", 1.6, "times as long")

# %% ex-35-checkpoint [markdown]
"""
### Write: `Again` (15 minutes)

Write `Again`, a `torch.autograd.Function` that runs a block without keeping its inside. `Again.apply(block, x)` has the value and the gradients of `block(x)`.

1. `forward(ctx, block, x)`: run the block. Within `forward` autograd keeps nothing by itself. Keep the block on `ctx`, and `x` with `ctx.save_for_backward(x)`.
2. `backward(ctx, gradient)`: take `x` as a new leaf that needs a gradient, and run the block again with autograd on (`torch.enable_grad()`).
3. Call `backward(gradient)` on the result. It adds to the gradients of the block's parameters. Return the gradient of each of `forward`'s inputs: None for the block, and that of `x`.
"""

# %% answer 35.checkpoint
import torch


class Again(torch.autograd.Function):
    """A block that keeps what it gets, and is run again in the backward pass."""

    @staticmethod
    def forward(ctx, block, x):
        ### BEGIN SOLUTION
        ctx.block = block
        ctx.save_for_backward(x)
        return block(x)
        ### END SOLUTION

    @staticmethod
    def backward(ctx, gradient):
        ### BEGIN SOLUTION
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            y = ctx.block(x)
        y.backward(gradient)
        return None, x.grad
        ### END SOLUTION


# %% check 35.checkpoint points=6
check("35.checkpoint", Again)


# %% checks
class _AgainByHand(torch.autograd.Function):
    @staticmethod
    def forward(ctx, block, x):
        ctx.save_for_backward(x)
        ctx.run = block
        with torch.no_grad():
            return block(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = (each.detach() for each in ctx.saved_tensors)
        x.requires_grad = True
        parameters = list(ctx.run.parameters())
        with torch.enable_grad():
            found = torch.autograd.grad(ctx.run(x), [x, *parameters], gradient)
        for parameter, each in zip(parameters, found[1:], strict=True):
            parameter.grad = each if parameter.grad is None else parameter.grad + each
        return None, found[0]


class _Counted(nn.Sequential):
    """Counts how often it is run."""

    def __init__(self):
        torch.manual_seed(3)
        super().__init__(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 6))
        self.runs = 0

    def forward(self, x: Tensor) -> Tensor:
        self.runs += 1
        return super().forward(x)


def _twice(code: Any, steps: int = 1) -> dict[str, Any]:
    """Two blocks in a row, each run by the answer; some steps without a zero_grad between them."""
    blocks = [_Counted(), _Counted()]
    x, kept = torch.linspace(-1, 1, 24).view(4, 6).requires_grad_(), []
    for _ in range(steps):
        with torch.autograd.graph.saved_tensors_hooks(lambda each: kept.append(each.nbytes) or each, lambda each: each):
            y = code.apply(blocks[1], code.apply(blocks[0], x))
        y.pow(2).sum().backward()
    return {
        "value": y.detach(),
        "bytes kept in the forward pass": sum(kept),
        "gradient of x": x.grad,
        "gradients of parameters": [each.grad for block in blocks for each in block.parameters()],
        "times that a block is run": [block.runs for block in blocks],
    }


EXERCISES["35.checkpoint"] = WrittenExercise(
    Again,
    Case("two blocks in a row", _twice),
    Case("two steps, whose gradients add up", _twice, 2),
    mistakes={
        ("        with torch.enable_grad():\n            y = ctx.block(x)", "        y = ctx.block(x)"): (
            "In backward autograd is off: the second run has to be inside torch.enable_grad()."
        ),
        ("y.backward(gradient)", "y.backward(torch.ones_like(y))"): (
            "The gradient that arrives from above has to go in: y.backward(gradient)."
        ),
    },
    variants=(_AgainByHand,),
    hint="Compare the gradients of one nn.Linear with and without Again.apply: the one of x, and those of its parameters.",
    explanation="The same gradients from one kept tensor per block; the block runs twice.",
    instead_of=("torch.utils.checkpoint.checkpoint",),
)

# %% again-used-prose [markdown]
"""
`run_block` says how the model runs its blocks. The first part tests that nothing changed but the bytes; then steps with and without checkpointing take turns.
"""


# %% again-used
def step(run_block):
    model.run_block = run_block
    optimizer.zero_grad()
    model.loss(batch).backward()
    return torch.cat([each.grad.flatten() for each in model.parameters()])


ways = {"kept": lambda block, x: block(x), "again": Again.apply}
difference = (step(ways["kept"]) - step(ways["again"])).abs().max().item()
rounds = {"smoke": 1, "standard": 15, "full": 40}[profile]
times = paired_times({name: lambda way=way: step(way) for name, way in ways.items()}, rounds)
longer = (times["again"] / times["kept"]).median()

# %% again-saved
grown_again = apparatus.grown_by(lambda: step(ways["again"]))
saved = {"kept": grown, "again": grown_again}
print(f"largest difference of a gradient: {difference:.1g}")
print(*(f"{name}: the process grew by {count / 2**20:.1f} MiB (measured)" for name, count in saved.items()), sep="\n")
reveal("35.longer", longer)

# %% batch-prose [markdown]
"""
### The largest batch

A step may take 48 MiB. By your account, a sequence takes `4 * kept * 64` bytes. With checkpointing it takes D numbers per token for each block, the inside of one block, and the end. The cell predicts the largest batch from that, and then tries batches.
"""

# %% batch
room, step_by = 48 * 2**20, {"smoke": 128, "standard": 2, "full": 1}[profile]
_, end, _ = account(0, 64, 4, 64, apparatus.VOCABULARY)
per_token = {"kept": kept, "again": 4 * 64 + (kept - end) // 4 + end}
predicted = {name: int((room - sizes["gradients"]) / (4 * 64 * count)) for name, count in per_token.items()}


def fits(way, size):
    global batch
    batch = apparatus.char_batch(train, size, model.context, draws)
    return apparatus.grown_by(lambda: step(ways[way])) <= room


# %% batch-tried
largest, too_large = {}, {}
for way in ways:
    tried = apparatus.tried_sizes(lambda size, way=way: fits(way, size), 8, 256, step_by)
    largest[way] = max(size for size, is_small in tried.items() if is_small)
    too_large[way] = min(size for size, is_small in tried.items() if not is_small)
batch = apparatus.char_batch(train, 32, model.context, draws)
labkit.plots.show(
    pd.DataFrame({"largest batch, predicted": predicted, "fits, measured": largest, "does not fit": too_large})
)

# %% prose-35-why-again [markdown]
"""
### Explain

What does checkpointing save here and what does it cost, in numbers? Why is the measured batch smaller than the predicted one, or larger? When would you rather take a smaller batch?
"""

# %% explain 35.why_again points=2
### BEGIN SOLUTION
answer = model_answer("35.why_again")
### END SOLUTION
explain("35.why_again", answer)

# %% checks
EXERCISES["35.why_again"] = Explanation(
    "numbers: bytes or batch with and without checkpointing, and how many times as long a step is",
    "why the two batches differ from the prediction: the allocator's share, and tensors that live for a moment",
    "consequence: when memory limits a batch that pays, and when a smaller batch is cheaper",
    model="The step grows by 16 instead of 45 MiB, and by the account 109 instead of 36 sequences fit, for a step that is "
    "1.3 times as long: a forward pass more. The account counts what is kept. The process also holds gradients of "
    "activations and memory in reserve, so 88 and 32 fit, in steps of 8. Where a smaller batch trains as well per sample, it costs nothing; "
    "checkpointing pays where one sequence does not fit, or where a small batch leaves the device idle.",
    half="Checkpointing takes 16 instead of 45 MiB and 1.3 times the time, since blocks are run again.",
)

# %% guess-gpt3-prose [markdown]
"""
## A language model on the same page

The account needs no machine, so it also works for models that no laptop holds. GPT-3 has 96 blocks of width 12,288 with 96 heads, and reads 2,048 tokens. **How many GB do the activations of one sequence take, in 16 bits?**
"""

# %% guess-gpt3
guess("35.gpt3", 20.0, "GB")

# %% published
SHAPES = {"GPT-2": (12, 768, 12, 1024, 50257), "GPT-2 XL": (48, 1600, 25, 1024, 50257)}
SHAPES |= {"GPT-3 6.7B": (32, 4096, 32, 2048, 50257), "GPT-3": (96, 12288, 96, 2048, 50257)}
rows = {}
for name, shape in SHAPES.items():
    count, floats, flops = account(*shape)
    count -= shape[4] * shape[1]  # these models use one matrix of tokens for input and output
    rows[name] = {"parameters (billions)": count / 1e9, "AdamW, mixed precision (GB)": 16 * count / 1e9}
    rows[name] |= {"activations of a sequence (GB)": 2 * floats * shape[3] / 1e9}
    rows[name] |= {"kept in checkpoints (GB)": 2 * shape[0] * shape[1] * shape[3] / 1e9}
    rows[name] |= {"attention's share (%)": 100 * 12 * shape[0] * shape[1] * shape[3] / flops}
    rows[name] |= {"6 N D is off by (%)": 100 * (6 * count / flops - 1)}
published = pd.DataFrame(rows).T

# %% published-shown
labkit.plots.show(published.round(2).assign(provenance="predicted"))
reveal("35.gpt3", published.loc["GPT-3", "activations of a sequence (GB)"])

# %% mfu-prose [markdown]
"""
AdamW in mixed precision takes 16 bytes per parameter: 2 for the weight, 2 for its gradient, 4 for each of a copy and two moments in 32 bits (Rajbhandari et al., [arXiv 1910.02054](https://arxiv.org/abs/1910.02054)). The rule 6 N D, six operations for each of N parameters and D tokens (here D is not the width), leaves attention out, and counts the vectors of the places.

**Model FLOP utilisation** (MFU) compares the operations that the model needs with those that the device could do in that time. Only the model's operations count: the second forward pass of checkpointing does not raise MFU. PaLM reports 46 % (Chowdhery et al., [arXiv 2204.02311](https://arxiv.org/abs/2204.02311)). And your step?
"""

# %% mfu
peak = labkit.hardware.matmul_gflops(torch.device("cpu"), torch.float32) * 1e9
mfu = {name: operations * tokens / times[name].median() / peak for name in ways}
print(f"{peak / 1e9:.0f} GFLOP/s in a large matrix product, one core (measured)")
print(", ".join(f"MFU {name}: {value:.0%}" for name, value in mfu.items()), "(measured)")

# %% scaling-prose [markdown]
"""
## What a budget of time buys

A larger model learns more from each token and sees fewer of them. Given *seconds*, which model is best, and what would four times the seconds bring? The cell trains four widths for the same time, and looks at the loss of the validation text on the way.
"""

# %% train
import time

labkit.hardware.keep_memory()  # from here on, speed counts: freed memory is used again
seconds, widths = {"smoke": 0.15, "standard": 8.0, "full": 60.0}[profile], (16, 32, 64, 128)
held_out = apparatus.char_batch(validation, 64, 64, torch.Generator().manual_seed(1))


def learn(own, adam, random):
    adam.zero_grad()
    own.loss(apparatus.char_batch(train, 16, 64, random)).backward()
    adam.step()


# %% train-for
def trained(width, marks):
    torch.manual_seed(0)
    own, random = apparatus.CharTransformer(width=width), torch.Generator().manual_seed(0)
    adam, took, losses = torch.optim.AdamW(own.parameters(), lr=3e-3), 0.0, []
    for mark in marks:
        while took < mark:
            began = time.perf_counter()
            learn(own, adam, random)
            took += time.perf_counter() - began
        with torch.no_grad():
            losses.append(own.loss(held_out).item())
    return losses


# %% curves
marks = [seconds * 2 ** (number / 2 - 3) for number in range(7)]
curves = pd.DataFrame({width: trained(width, marks) for width in widths}, index=marks)
best = curves.min(axis=1)
points = curves.reset_index(names="seconds").melt("seconds", var_name="width", value_name="validation loss")
labkit.plots.show(
    labkit.plots.figure_sweep(points.assign(provenance="measured"), "seconds", "validation loss", "width")
)

# %% ex-35-scaling [markdown]
"""
### Write: `power_law` (15 minutes)

Lower envelopes of such curves are often close to a power law, $loss = a t^{-b}$: a line in logarithms (Kaplan et al., [arXiv 2001.08361](https://arxiv.org/abs/2001.08361)).

`power_law(seconds, losses, at)` fits the line by least squares, and returns a tuple of three losses at the time `at`: the prediction, and the lower and upper end of its 95 % interval for *one new measurement*.

With x the logarithms of n times, r the residuals of the line and x₀ that of `at`, m the mean of x, the standard error of a new logarithm is s · √(1 + 1/n + (x₀ − m)² / Σ(x − m)²), with s² = Σr² / (n − 2). The interval is the prediction ± t times that, t the 97.5 % quantile of Student's distribution with n − 2 degrees of freedom (`scipy.stats.t.ppf`).
"""

# %% answer 35.scaling
import numpy as np
from scipy import stats


def power_law(seconds, losses, at: float) -> tuple[float, float, float]:
    """Predicted loss at a time, and the ends of its 95 % interval."""
    ### BEGIN SOLUTION
    x, y = np.log(np.asarray(seconds, float)), np.log(np.asarray(losses, float))
    slope, level = np.polyfit(x, y, 1)
    freedom, away = len(x) - 2, np.log(at) - x.mean()
    spread = np.sqrt(((y - level - slope * x) ** 2).sum() / freedom)
    error = spread * np.sqrt(1 + 1 / len(x) + away**2 / ((x - x.mean()) ** 2).sum())
    middle, half = level + slope * np.log(at), stats.t.ppf(0.975, freedom) * error
    return float(np.exp(middle)), float(np.exp(middle - half)), float(np.exp(middle + half))
    ### END SOLUTION


# %% check 35.scaling points=5
check("35.scaling", power_law)


# %% checks
def power_law_by_linregress(seconds, losses, at: float) -> list[float]:
    from scipy.stats import linregress, t

    x, y, new = np.log(seconds), np.log(losses), np.log(at)
    line, count = linregress(x, y), len(x)
    error = np.std(y - line.intercept - line.slope * x) * np.sqrt(count / (count - 2))
    error *= np.sqrt(1 + 1 / count + (new - x.mean()) ** 2 / (x.var() * count))
    return [
        float(np.exp(line.intercept + line.slope * new + sign * t.ppf(0.975, count - 2) * error)) for sign in (0, -1, 1)
    ]


def _curves(random: Random) -> list[Case]:
    power, times = random.uniform(0.05, 0.4), np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    noise = np.random.default_rng(random.randrange(10**6)).normal(0, 0.02, 5)
    noisy = 3 * times**-power * np.exp(noise)
    return [
        Case("an exact power law", call, times, 3 * times**-power, 64.0),
        Case("a noisy one, four times as far", call, times, noisy, 64.0),
        Case("a noisy one, in the middle", call, times, noisy, 4.0),
        Case("lists", call, [1, 2, 5], [3.0, 2.5, 2.2], 20),
    ]


EXERCISES["35.scaling"] = WrittenExercise(
    power_law,
    draw=_curves,
    mistakes={
        ("np.sqrt(1 + 1 / len(x)", "np.sqrt(1 / len(x)"): (
            "That is the interval of the line. One new measurement also has a residual of its own: the 1 under the root."
        ),
        ("stats.t.ppf(0.975", "stats.t.ppf(0.95"): "A 95 % interval leaves 2.5 % on each side.",
    },
    variants=(power_law_by_linregress,),
    hint="First the line alone: compare its prediction in the middle of the data with the data. Then the interval.",
    explanation="A prediction far outside of the data has a wide interval, and the interval trusts that it is a line.",
)

# %% scaling-predicted-prose [markdown]
"""
**Which loss does the best width reach after four times the seconds?** Your fit predicts it. The next cell trains the width that was best at the end, and the next larger one, for that long.
"""

# %% scaling-predicted
fitted, low, high = power_law(best.index.to_numpy(), best.to_numpy(), 4 * seconds)
winner = int(curves.iloc[-1].idxmin())
larger = widths[min(widths.index(winner) + 1, len(widths) - 1)]
reached = {width: trained(width, [4 * seconds])[0] for width in dict.fromkeys((winner, larger))}
print(f"after {4 * seconds:g} s: {fitted:.3f} ({low:.3f} to {high:.3f}), predicted by {len(best)} points")
print(", ".join(f"width {width}: {loss:.3f}" for width, loss in reached.items()), "(measured)")
print("inside of the interval" if low <= min(reached.values()) <= high else "outside of the interval")

# %% dollar-prose [markdown]
"""
## An hour, a dollar

Hoffmann and others ([arXiv 2203.15556](https://arxiv.org/abs/2203.15556)) found that a budget of operations is spent best on some 20 tokens per parameter, so 6 N D is 120 N². The table takes each GPU of the catalogue that has a price and a peak in 16 bits, and an MFU of 40 %. It is a *prediction*: nothing was trained.
"""

# %% dollar
bought = {}
for tier in labkit.hardware.load_tiers().values():
    if tier.kind == "gpu" and tier.rental_price_usd_per_h and tier.bf16_tflops:
        hours = 1 / tier.rental_price_usd_per_h
        flops = 0.4 * tier.bf16_tflops * 1e12 * 3600 * hours
        size = (flops / 120) ** 0.5
        fit = "yes" if 16 * size < 0.5 * tier.memory_gb * 1e9 else "no"
        row = {"hours for a dollar": hours, "parameters (millions)": size / 1e6, "tokens (billions)": 20 * size / 1e9}
        bought[tier.label] = row | {"state takes less than half of its memory": fit, "provenance": "predicted"}
labkit.plots.show(pd.DataFrame(bought).T.sort_values("parameters (millions)", ascending=False))

# %% prose-35-why-small [markdown]
"""
### Explain

Which width won under your budget of time, and which after four times the seconds? Did your interval contain the measured loss? What does that say about a prediction for a budget a thousand times as large?
"""

# %% explain 35.why_small points=2
### BEGIN SOLUTION
answer = model_answer("35.why_small")
### END SOLUTION
explain("35.why_small", answer)

# %% checks
EXERCISES["35.why_small"] = Explanation(
    "numbers: the best width at both budgets, the predicted loss with its interval, and the measured one",
    "why a larger model is not best: it sees fewer tokens in the same seconds",
    "consequence: the interval holds for points of the same line; far away the line itself is the assumption",
    model="Width 64 won after 8 s with a loss of 2.49, and after 32 s with 2.06; width 128 had 2.60 and 2.31. In the same 8 s "
    "it took 43 steps instead of 124, so it saw a third of the tokens. 2.22 was predicted (2.16 to 2.28), so 2.06 lies "
    "outside: the curve bends down after the first seconds. The interval knows only the scatter about a line; for a "
    "thousandfold budget the line itself is a guess, and a loss cannot fall below the text's own entropy.",
    half="Width 64 won after 8 s, as the larger one saw fewer tokens, and the measured 2.06 lies outside of the interval.",
)

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
    share=(100 * activations / tensors, 80, 99),
    by_formula=(by_formula, 0.98, 1.02),
    allocator=(grown / made, 0.9, 3),
    gradient_difference=(difference, 0, 1e-5),
    longer=(longer, 0.5, 4),
    saved=(grown / grown_again, 1.2, 6),
    gpt3_gb=(published.loc["GPT-3", "activations of a sequence (GB)"], 150, 160),
    mfu=(mfu["kept"], 0.01, 1.5),
)

# %% assistant longer above=1.8 [markdown]
"""
Checkpointing runs the forward pass a second time, so it nearly doubles the time of a step: more than 1.8 times as long.
"""

# %% recap [markdown]
"""
## Recap

- In a step with a large batch most bytes are activations, and they grow with the batch. Parameters, gradients and the optimiser's state do not.
- Per block and token a transformer keeps 16 D + A T numbers. With a long context the shares of attention are most of it.
- Activation checkpointing keeps one tensor per block and costs one more forward pass, a third more operations.
- 6 N D is close as long as the context is short compared with the width.
- MFU counts the operations that the model needs, not those that were done.
- A budget of time has a best size of its own. A fitted curve predicts nearby budgets; its interval does not know whether the curve is right.

**Next:** [Sharing a device](40_sharing_a_device.ipynb)
"""

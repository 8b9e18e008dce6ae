# %% opening [markdown]
"""
# Know your machine

After this notebook you will be able to

- **time** an operation so that the number means something;
- **measure** how much arithmetic your machine does in a second, how many bytes it moves, and what asking for an operation costs;
- **compute** its roofline, and **predict** a layer's time before it runs;
- **say** how good such a prediction is, and where it fails.

**Time:** 60 minutes with six functions of one to seven lines; the machine computes for about 15 seconds on 2 CPU cores. No GPU is needed.

**Prerequisites:** [Start here](00_start_here.ipynb).
"""

# %% checks
from typing import Any

import numpy as np
import torch

from labkit.hardware import Calibration
from labkit_course.apparatus import FakeClock
from labkit_course.exercise import Case, Exercise, Explanation, WrittenExercise

EXERCISES = {}

# %% parameters-prose [markdown]
"""
What you may change:
"""

# %% parameters tags=["parameters"]
profile = "standard"  # smoke, standard or full: how often each is measured
device = "cpu"  # what is measured, as torch names it: "cuda:0" for a GPU
student = 0  # your number: some questions have numbers of your own

# %% guess-gflops-prose [markdown]
"""
## Three guesses

A data sheet states a peak. What a program gets is less, and depends on how it asks. The product of two matrices of 1024 × 1024 takes 2 · 1024³ operations, a multiplication and an addition for each of its 1024³ terms. It is the work at which a processor is best.

**How many billions of operations a second (GFLOP/s) will this machine do, in single precision, with all cores you may use?** One core of a laptop does up to about a hundred, a datacentre GPU tens of thousands.
"""

# %% guess-gflops
from labkit_course import check, claim, draw, explain, guess, model_answer, reveal

guess("01.gflops", 100.0, "GFLOP/s")

# %% guess-copy-prose [markdown]
"""
Training also moves numbers: weights, activations, rows of tables. **How many GB a second are read and written when an array far larger than any cache is copied?**
"""

# %% guess-copy
guess("01.gb_per_s", 10.0, "GB/s")

# %% guess-launch-prose [markdown]
"""
Each operation on a tensor is asked for from Python: types are checked, memory is found, a kernel is started. **How many microseconds does one addition to a single number take?** The addition itself takes about a thousandth of one.
"""

# %% guess-launch
guess("01.launch", 1.0, "µs")

# %% stopwatch-prose [markdown]
"""
## A stopwatch

Everything else rests on it.
"""

# %% ex-01-best [markdown]
"""
### Exercise 01.best

Write `best_seconds(work, repeats, clock)`: `work` is a function without arguments, `clock` one that gives the seconds.

1. Call the work once, outside of the stopwatch: a first call sets things up.
2. Then `repeats` times: read the clock, call the work, read the clock. Return the least difference: other programs only make it longer.

*Hint:* the check brings a clock of its own, so do not call `time.perf_counter` by name inside.
"""

# %% answer 01.best
import time
from collections.abc import Callable
from typing import Any


def best_seconds(work: Callable[[], Any], repeats: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds of the fastest of some calls, after one that does not count."""
    ### BEGIN SOLUTION
    work()
    seconds = []
    for _ in range(repeats):
        began = clock()
        work()
        seconds.append(clock() - began)
    return min(seconds)
    ### END SOLUTION


# %% check 01.best points=4
check("01.best", best_seconds)


# %% checks
def _timed(*seconds: float, repeats: int) -> Any:
    def ask(code: Any) -> list[float]:
        clock, calls = FakeClock(), []
        work = clock.work(*seconds, does=lambda: calls.append(clock()))
        return [code(work, repeats, clock), len(calls)]

    return ask


EXERCISES["01.best"] = WrittenExercise(
    best_seconds,
    module="machine",
    cases=(
        Case("work whose first call takes longest; seconds and number of calls", _timed(0.9, 0.3, 0.2, repeats=2)),
        Case("a first call that is faster than all others", _timed(0.1, 0.4, 0.3, 0.5, repeats=3)),
        Case("another program in between", _timed(0.5, 0.2, 0.8, 0.21, repeats=3)),
    ),
    mistakes={
        ("work()\n    seconds", "seconds"): (
            "Call the work once before the stopwatch starts: the first call sets things up."
        ),
        ("min(seconds)", "sum(seconds) / repeats"): (
            "Other programs can only make it slower: take the least, not the mean."
        ),
        ("min(", "sum("): "The seconds of one call, not of all.",
    },
    hint="Call the work once; then `repeats` times: clock, work, clock. Return the smallest difference.",
    explanation="The first call pays for set-up, and other programs only slow down: the best call says what it can do.",
)

# %% gflops-prose [markdown]
"""
Your stopwatch on the product. On a GPU a call returns before the work is done, so `sync` waits for it (and larger matrices are needed to fill it).
"""

# %% gflops
import torch
import torch.nn.functional as F

repeats = {"smoke": 5, "standard": 15, "full": 30}[profile]
sync = (lambda: None) if device == "cpu" else torch.cuda.synchronize
size = 1024 if device == "cpu" else 8192
a, b = torch.randn(size, size, device=device), torch.randn(size, size, device=device)
gflops = 2 * size**3 / best_seconds(lambda: (a @ b, sync()), repeats) / 1e9
reveal("01.gflops", gflops)

# %% ex-01-bytes [markdown]
"""
### Exercise 01.bytes

How many bytes does `target.copy_(source)` move? Write `bytes_moved(source)` for a tensor of any shape and type.

*Hint:* `numel()`, `element_size()`; a copy reads and writes.
"""

# %% answer 01.bytes
from torch import Tensor


def bytes_moved(source: Tensor) -> int:
    """Bytes that a copy of the tensor reads and writes."""
    ### BEGIN SOLUTION
    return 2 * source.numel() * source.element_size()
    ### END SOLUTION


# %% check 01.bytes points=3
check("01.bytes", bytes_moved)

# %% checks
EXERCISES["01.bytes"] = WrittenExercise(
    bytes_moved,
    module="machine",
    cases=(
        Case("1,000 numbers of float32", lambda code: code(torch.zeros(1000))),
        Case("a matrix of bfloat16", lambda code: code(torch.zeros(30, 20, dtype=torch.bfloat16))),
        Case("an empty tensor", lambda code: code(torch.zeros(0))),
    ),
    mistakes={
        ("2 * ", ""): "A copy reads each number and writes it: twice the bytes.",
        ("source.element_size()", "4"): "Not every number has 4 bytes: `element_size` of the tensor says how many.",
        ("source.numel()", "len(source)"): "`len` counts rows; `numel` counts numbers.",
    },
    hint="Numbers × bytes of one number, once for reading and once for writing.",
    explanation="(A cache may read the target's lines, too, before they are overwritten: those are not counted here.)",
)

# %% copy-prose [markdown]
"""
128 MiB, more than most caches hold:
"""

# %% copy
source = torch.ones(2**25, device=device)
target = torch.empty_like(source)
copied = bytes_moved(source) / best_seconds(lambda: (target.copy_(source), sync()), repeats) / 1e9
reveal("01.gb_per_s", copied)

# %% launch-prose [markdown]
"""
A thousand additions to one number; the number itself is nothing, the asking is what takes the time.
"""

# %% launch
number = torch.zeros(1, device=device)


def ask():
    for _ in range(1000):
        number.add_(1)
    sync()


launch_us = best_seconds(ask, repeats) / 1000 * 1e6
reveal("01.launch", launch_us)

# %% card-prose [markdown]
"""
`calibrate` measures the same three, and the product with 16-bit `bf16` numbers. These numbers are the machine's **card**. If `bf16` is far slower than single precision, this processor has no arithmetic for it and emulates it.
"""

# %% card
import labkit

card = labkit.hardware.calibrate(device, repeats=3 if profile == "smoke" else 7)
print(f"{card.device}, {card.threads} threads, measured {card.when}: {card.fp32_gflops:,.0f} GFLOP/s,", end=" ")
print(f"bf16 {card.bf16_gflops:,.0f}, {card.bandwidth_gb_per_s:.1f} GB/s, {card.launch_us:.2f} µs an operation")
print(f"yours, of the card's: {gflops / card.fp32_gflops:.2f}, {copied / card.bandwidth_gb_per_s:.2f}, measured")

# %% roofline-prose [markdown]
"""
## The roofline

How fast can a computation run at all? It cannot do more arithmetic than the peak, and it cannot use more numbers than memory delivers. Its **arithmetic intensity** says which comes first: operations for each byte moved (Williams, Waterman and Patterson, CACM 2009).
"""

# %% ex-01-intensity [markdown]
"""
### Exercise 01.intensity

An operation on long vectors in single precision (4 bytes a number) takes `operations` operations for each element, of which it reads `reads` numbers and writes `writes`. What is its arithmetic intensity, in operations a byte?
"""

# %% numbers-01-intensity
numbers = draw("01.intensity", student)

# %% answer-01-intensity-prose [markdown]
"""
Write the answer as an expression of `numbers`, or as a number.
"""

# %% answer 01.intensity
### BEGIN SOLUTION
answer = numbers["operations"] / (4 * (numbers["reads"] + numbers["writes"]))
### END SOLUTION

# %% check 01.intensity points=1
check("01.intensity", answer, student)

# %% checks
EXERCISES["01.intensity"] = Exercise(
    lambda reads, writes, operations: operations / (4 * (reads + writes)),
    draw=lambda random: {
        "reads": random.choice([2, 3, 4]),
        "writes": random.choice([1, 2]),
        "operations": random.choice([2, 3, 5, 7]),
    },
    unit="operations a byte",
    hint="Count what one element costs: the operations, and the bytes that are read and written.",
    explanation="Far left of any ridge: operations on single elements wait for memory.",
    mistakes={
        lambda reads, writes, operations: operations / (4 * reads): "What is written counts, too.",
        lambda reads, writes, operations: operations / (reads + writes): "A single-precision number has 4 bytes.",
        lambda reads, writes, operations: 4 * (reads + writes) / operations: (
            "That is bytes an operation; the intensity is operations a byte."
        ),
    },
)

# %% ex-01-roofline [markdown]
"""
### Exercise 01.roofline

Write `roofline(intensity, card)`: the GFLOP/s that are attainable at an intensity in operations per byte, for a number or an array. The card has `fp32_gflops` and `bandwidth_gb_per_s`.

*Hint:* two limits, and both hold. Where they meet is the **ridge**.
"""

# %% answer 01.roofline
import numpy as np

import labkit


def roofline(intensity: np.ndarray | float, card: labkit.hardware.Calibration) -> np.ndarray:
    """Attainable GFLOP/s at an intensity in operations per byte."""
    ### BEGIN SOLUTION
    return np.minimum(card.fp32_gflops, np.asarray(intensity) * card.bandwidth_gb_per_s)
    ### END SOLUTION


# %% check 01.roofline points=4
check("01.roofline", roofline)

# %% checks
CARD = Calibration("a machine", 2, 100.0, 80.0, 20.0, 2.0, "2026-11-23")


FAST = Calibration("another", 2, 900.0, 80.0, 30.0, 4.0, "2026-11-23")


EXERCISES["01.roofline"] = WrittenExercise(
    roofline,
    module="machine",
    cases=(
        Case("2 operations a byte, left of the ridge", lambda code: code(2.0, CARD)),
        Case("50 operations a byte, right of the ridge", lambda code: code(50.0, CARD)),
        Case("an array on both sides", lambda code: code(np.array([0.25, 4.0, 5.0, 8.0, 100.0]), CARD)),
        Case("another machine", lambda code: code(np.array([1.0, 29.0, 31.0]), FAST)),
    ),
    mistakes={
        ("minimum", "maximum"): "Both limits hold at once, so the lower one counts: the minimum.",
        ("card.fp32_gflops", "np.inf"): "Right of the ridge the peak is the roof.",
        ("(intensity)", "(1 / intensity)"): (
            "Intensity is operations a byte: times bytes a second that is operations a second."
        ),
    },
    hint="np.minimum of the peak and intensity × bandwidth: GB/s × operations a byte are GFLOP/s.",
    explanation="The roof is the lower of the two limits (Williams, Waterman and Patterson, CACM 2009).",
)

# %% roofs-prose [markdown]
"""
Your roof, and next to it two tiers of the catalogue, predicted from their makers' figures; under it the product that you timed, and the vector operation of the exercise at your roof.
"""

# %% roofs
import pandas as pd

roofs = [("this machine", "measured", card.fp32_gflops, card.bandwidth_gb_per_s)]
for tier in map(labkit.hardware.get_tier, ("rtx-4060", "h200")):
    roofs.append((tier.label, "predicted", 1e3 * tier.fp32_tflops, tier.bandwidth_gb_s))
roofs = pd.DataFrame(roofs, columns=["name", "provenance", "peak_gflops", "bandwidth_gb_per_s"])
marks = [("matrix product", "measured", 2 * size**3 / (3 * 4 * size**2), gflops)]
marks.append(("vector operation", "predicted", answer, float(roofline(answer, card))))
marks = pd.DataFrame(marks, columns=["name", "provenance", "flop_per_byte", "gflops"])

# %% roofline-figure-prose [markdown]
"""
Both axes are logarithmic. The vertical distance between two roofs is how many times one machine could be faster; it is not the same everywhere. A lookup of embedding rows lies far to the left: that is why a recommendation model gains less from a processor's peak than an image model does.
"""

# %% roofline-figure
labkit.plots.show(labkit.plots.figure_roofline(roofs, marks))

# %% layer-prose [markdown]
"""
## Predict before you measure

A layer is a product, and some bytes, and one call. On paper first.
"""

# %% ex-01-linear [markdown]
"""
### Exercise 01.linear

`F.linear(x, weight)` for `x` of (rows, inputs) and `weight` of (outputs, inputs), in single precision. Write `linear_cost(rows, inputs, outputs)`: its operations, and the bytes of input, weight and output, each moved once.
"""


# %% answer 01.linear
def linear_cost(rows: int, inputs: int, outputs: int) -> tuple[int, int]:
    """Operations and bytes of a linear layer without bias, in single precision."""
    ### BEGIN SOLUTION
    operations = 2 * rows * inputs * outputs
    numbers = rows * inputs + inputs * outputs + rows * outputs
    return operations, 4 * numbers
    ### END SOLUTION


# %% check 01.linear points=4
check("01.linear", linear_cost)

# %% checks
EXERCISES["01.linear"] = WrittenExercise(
    linear_cost,
    module="machine",
    cases=(
        Case("64 rows, 512 to 256", lambda code: code(64, 512, 256)),
        Case("a single row", lambda code: code(1, 1000, 10)),
        Case("2,048 rows, 13 to 512", lambda code: code(2048, 13, 512)),
    ),
    mistakes={
        ("2 * ", ""): "A multiplication and an addition: two operations for each product.",
        (" + inputs * outputs", ""): "The weights are read, too.",
        (" + rows * outputs", ""): "The result is written, too.",
    },
    hint="rows × inputs × outputs products; the input and the weights are read, the output is written.",
    explanation="The weights count once, however many rows share them: more rows, more operations a byte.",
)

# %% ex-01-bound [markdown]
"""
### Exercise 01.bound

Write `step_bound(operations, moved_bytes, calls, card)`: the seconds that a computation takes by these three limits.

1. Arithmetic and copying go on at the same time: the longer of the two counts.
2. Asking comes on top, `card.launch_us` microseconds a call. (On a GPU it overlaps, too; there this is no bound for many calls.)
"""

# %% answer 01.bound
import labkit


def step_bound(operations: float, moved_bytes: float, calls: int, card: labkit.hardware.Calibration) -> float:
    """Seconds of the longer of arithmetic and memory, and of asking."""
    ### BEGIN SOLUTION
    arithmetic_s = operations / (card.fp32_gflops * 1e9)
    memory_s = moved_bytes / (card.bandwidth_gb_per_s * 1e9)
    return max(arithmetic_s, memory_s) + calls * card.launch_us * 1e-6
    ### END SOLUTION


# %% check 01.bound points=5
check("01.bound", step_bound)

# %% checks
EXERCISES["01.bound"] = WrittenExercise(
    step_bound,
    module="machine",
    cases=(
        Case("a large product: arithmetic", lambda code: code(2e9, 1e7, 1, CARD)),
        Case("a large copy: memory", lambda code: code(0, 2.6e8, 1, CARD)),
        Case("a hundred small operations: asking", lambda code: code(1e4, 4e4, 100, CARD)),
        Case("another machine", lambda code: code(2e9, 1e9, 12, FAST)),
    ),
    mistakes={
        ("max(arithmetic_s, memory_s)", "arithmetic_s + memory_s"): (
            "Arithmetic and copying go on at the same time: the longer of the two counts, not their sum."
        ),
        ("max(", "min("): "The longer of the two counts.",
        (" + calls * card.launch_us * 1e-6", ""): "The cost of asking is missing: `calls` times card.launch_us.",
    },
    hint="Seconds of arithmetic, seconds of memory: the longer one; plus calls × launch_us, in seconds.",
    explanation="Three limits in one line: arithmetic or memory, and the asking, which on a CPU comes on top.",
)

# %% guess-layer-prose [markdown]
"""
A layer of a DLRM's top MLP: 2,048 rows, 512 to 256. **How many microseconds will it take here?** Your model may help.
"""

# %% guess-layer
layer_us = 1e6 * step_bound(*linear_cost(2048, 512, 256), 1, card)
print(f"predicted: {layer_us:.0f} µs")
guess("01.layer", 10_000.0, "µs")

# %% zoo-prose [markdown]
"""
A dozen computations, each with its operations, bytes and a function to time: layers, copies, and additions in place (two numbers read, one written).
"""


# %% zoo
def layer(rows, inputs, outputs):
    x, weight = torch.randn(rows, inputs, device=device), torch.randn(outputs, inputs, device=device)
    return *linear_cost(rows, inputs, outputs), lambda: (F.linear(x, weight), sync())


def copy(count, operations=0):
    x, y = torch.zeros(count, device=device), torch.zeros(count, device=device)
    moved = bytes_moved(x) * (1.5 if operations else 1)
    return operations, moved, lambda: (y.add_(x) if operations else y.copy_(x), sync())


# %% zoo-list-prose [markdown]
"""
Small and large of each:
"""

# %% zoo-list
shapes = [(1, 64, 64), (64, 512, 256), (2048, 13, 512), (2048, 512, 256), (512, 1024, 1024), (2048, 1024, 1024)]
zoo = {f"linear {rows} × {i} → {o}": layer(rows, i, o) for rows, i, o in shapes}
zoo |= {f"copy {4 * count // 1024:,} KiB": copy(count) for count in (2**12, 2**18, 2**24)}
zoo |= {f"add {4 * count // 1024:,} KiB": copy(count, count) for count in (2**12, 2**18, 2**24)}

# %% predict-prose [markdown]
"""
Predicted by your model, measured by your stopwatch:
"""

# %% predict
rows = [
    (name, 1e6 * step_bound(operations, moved, 1, card), 1e6 * best_seconds(work, repeats))
    for name, (operations, moved, work) in zoo.items()
]
table = pd.DataFrame(rows, columns=["computation", "predicted (µs)", "measured (µs)"]).set_index("computation")
labkit.plots.show(table.assign(ratio=table["predicted (µs)"] / table["measured (µs)"]))
reveal("01.layer", table.loc["linear 2048 × 512 → 256", "measured (µs)"])

# %% caches-prose [markdown]
"""
Where is it off? A cache is a part of the answer: copy arrays of growing size, on one thread, and look for steps. The dotted lines are the caches that the system reports for a core (the last is often shared, on a cloud machine with other tenants).
"""

# %% caches
from labkit_course import apparatus

curve = labkit.hardware.cache_curve(
    device, sizes_bytes=labkit.hardware.CACHE_SIZES_BYTES[:: 3 if profile == "smoke" else 1]
)
labkit.plots.show(
    apparatus.figure_cache_curve(curve, dict(labkit.hardware.read_cpu().caches) if device == "cpu" else None)
)

# %% ex-01-why-off [markdown]
"""
### Explain 01.why_off

In two or three sentences: which computation does your model miss most, what does it assume there, and what would a better one have to measure?
"""

# %% explain 01.why_off points=2 id="answer-01-why-off"
### BEGIN SOLUTION
answer = model_answer("01.why_off")
### END SOLUTION
explain("01.why_off", answer)

# %% checks
EXERCISES["01.why_off"] = Explanation(
    rubric=(
        "numbers: names the operation that the model misses most, with its predicted and its measured time",
        "why: says which limit it assumes there, and what is not in the model (caches, shapes that do not fill the "
        "arithmetic units, allocation)",
        "trade-off: says what a better model would need to measure, or why a bound is worth having though it is off",
    ),
    model="The model is off most where data fits into a cache: it takes every byte at the speed of memory, and the "
    "copy is several times as fast. Thin products miss to the other side, for they do not reach a square one's peak."
    " Measured curves by size and shape, as kernel models use, would fix it at the price of measuring each kernel; "
    "the bound costs three numbers, and still says what a computation waits for.",
)

# %% ex-01-geomean [markdown]
"""
### Exercise 01.geomean

Papers sum such tables up in one number. Write `geomean_error(predicted, measured)`: the geometric mean of |predicted / measured − 1|.
"""

# %% answer 01.geomean
from collections.abc import Sequence

import numpy as np


def geomean_error(predicted: Sequence[float], measured: Sequence[float]) -> float:
    """Geometric mean of the relative errors."""
    ### BEGIN SOLUTION
    errors = np.abs(np.asarray(predicted) / np.asarray(measured) - 1)
    return float(np.exp(np.log(errors).mean()))
    ### END SOLUTION


# %% check 01.geomean points=4
check("01.geomean", geomean_error)

# %% checks
PREDICTED, MEASURED = [1.1, 1.6, 3.0, 4.4], [1.0, 2.0, 4.0, 4.0]


EXERCISES["01.geomean"] = WrittenExercise(
    geomean_error,
    module="machine",
    cases=(
        Case("four predictions", lambda code: code(PREDICTED, MEASURED)),
        Case("one that is twice too long", lambda code: code([2.0], [1.0])),
        Case("one far off among good ones", lambda code: code([1.01, 0.99, 5.0], [1.0, 1.0, 1.0])),
    ),
    mistakes={
        ("np.exp(np.log(errors).mean())", "errors.mean()"): (
            "That is the arithmetic mean; the geometric one is exp of the mean logarithm."
        ),
        ("np.asarray(predicted) / np.asarray(measured)", "np.asarray(measured) / np.asarray(predicted)"): (
            "Relative to what was measured, not to what was predicted."
        ),
        ("float(np.exp", "100 * float(np.exp"): "As a share, not in per cent.",
    },
    hint="errors = |predicted / measured − 1|; then exp of the mean of their logarithms.",
    explanation="It forgives single large errors, which the arithmetic mean does not: read both.",
)

# %% error-prose [markdown]
"""
Yours, and the arithmetic mean next to it:
"""

# %% error
predicted, measured = table["predicted (µs)"], table["measured (µs)"]
error = geomean_error(predicted, measured)
plain = (predicted / measured - 1).abs().mean()
print(f"geometric mean {100 * error:.0f} %, arithmetic mean {100 * plain:.0f} %, measured")

# %% claim-B3-prose [markdown]
"""
## Judge

Lin et al. (2022) model each kind of kernel of a DLRM on GPUs: heuristics for lookups, and networks that learnt from thousands of measured shapes. Their kernel models are all under 10 % (geometric mean). Is a model of three numbers as good, on this machine?
"""

# %% claim B3 points=1
### BEGIN SOLUTION
verdict = "holds here" if error < 0.10 else "does not hold here"
answer = verdict, "three numbers know no caches and no shapes; the paper's models learnt from measured ones"
### END SOLUTION
result = f"{100 * error:.0f} % for {len(table)} products, copies and additions, each the best of {repeats}"
claim("B3", result, answer)

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
    fp32_gflops=(card.fp32_gflops, 0.5, 1e6),
    bandwidth_gb_per_s=(card.bandwidth_gb_per_s, 0.2, 1e4),
    launch_us=(card.launch_us, 0.05, 200),
    ridge_flop_per_byte=(card.ridge_flop_per_byte, 0.05, 1e4),
    geomean_error=(error, 1e-4, 100),
)

# %% recap [markdown]
"""
## Recap

- A stopwatch counts from the second call on, and keeps the least.
- Three numbers say most about a machine: its arithmetic, its bandwidth, and what asking for an operation costs.
- The roofline says, from the operations done for each byte, whether arithmetic or memory is the limit.
- A bound on paper comes before a measurement: what differs from it has a reason, such as a cache.

**Next:** [Budgets that bind](02_budgets_that_bind.ipynb)
"""

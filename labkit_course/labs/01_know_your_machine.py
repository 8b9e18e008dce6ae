# %% opening [markdown]
"""
# Know your machine

After this notebook you will be able to

- **time** an operation so that the number means something;
- **measure** how much arithmetic your machine does per second, how many bytes it moves, and what asking for an operation costs;
- **compute** its roofline, and **predict** the time of a layer before it runs;
- **say** how good such a prediction is, and where it fails.

**Time:** 50 minutes with three functions of four to eight lines; the machine computes for about 15 seconds on 2 CPU cores. No GPU is needed.

**Prerequisites:** [Start here](00_start_here.ipynb).
"""

# %% checks
from itertools import pairwise
from random import Random
from typing import Any

import torch

from labkit.hardware import Calibration
from labkit_course.apparatus import FakeClock
from labkit_course.exercise import Case, Exercise, Explanation, WrittenExercise

MODULE = "machine"
EXERCISES = {}

# %% parameters tags=["parameters"]
profile = "standard"  # smoke, standard or full: how often each is measured
device = "cpu"  # what is measured, as torch names it: "cuda:0" for a GPU
student = 0  # your number: one question has numbers of your own

# %% guess-prose [markdown]
r"""
## Three guesses

A data sheet states a peak. A program gets less, and how much less depends on how it asks.

**1. How many billion operations per second (GFLOP/s) will this machine do** in the product of two matrices of 1024 × 1024, in single precision, with all cores that you may use? The product takes $2 \cdot 1024^3$ operations, a multiplication and an addition for each of its $1024^3$ terms. One core of a laptop does up to about a hundred GFLOP/s, a datacentre GPU tens of thousands.

**2. How many GB per second are read and written** when an array far larger than any cache is copied?

**3. How many microseconds does one addition to a single number take?** Each operation is asked for from Python: types are checked, memory is found, a kernel is started. The addition itself takes about a nanosecond.
"""

# %% guess-machine
from labkit_course import check, draw, explain, guess, model_answer, paired_times, results, reveal, score_notebook

guess("01.gflops", 100.0, "GFLOP/s")
guess("01.gb_per_s", 10.0, "GB/s")
guess("01.launch", 1.0, "µs")

# %% ex-01-best [markdown]
"""
## A stopwatch

### Exercise 01.best

Write `best_seconds(work, repeats, clock)`: `work` is a function without arguments, and `clock` returns the time in seconds.

1. Call the work once before the stopwatch starts: a first call sets things up.
2. Then time it `repeats` times, and return the seconds of the fastest call: other programs only make a call longer.

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
def _timed(code: Any, by: float, *seconds: float, repeats: int) -> list[float]:
    clock, calls = FakeClock(), []
    work = clock.work(*(by * each for each in seconds), does=lambda: calls.append(clock()))
    return [code(work, repeats, clock), len(calls)]


def _with_a_minimum(work: Any, repeats: int, clock: Any = time.perf_counter) -> float:
    work()
    least = float("inf")
    while repeats:
        start = clock()
        work()
        least = min(least, clock() - start)
        repeats -= 1
    return least


def _stopwatches(random: Random) -> list[Case]:
    by = random.uniform(0.5, 2)
    return [
        Case("work whose first call takes longest; seconds and number of calls", _timed, by, 0.9, 0.3, 0.2, repeats=2),
        Case("a first call that is faster than all others", _timed, by, 0.1, 0.4, 0.3, 0.5, repeats=3),
        Case("another program in between", _timed, by, 0.5, 0.2, 0.8, 0.21, repeats=3),
        Case("a single repeat", _timed, by, 0.9, 0.4, 0.3, repeats=1),
    ]


EXERCISES["01.best"] = WrittenExercise(
    best_seconds,
    draw=_stopwatches,
    mistakes={
        ("work()\n    seconds", "seconds"): (
            "Call the work once before the stopwatch starts: the first call sets things up."
        ),
        ("min(seconds)", "sum(seconds) / repeats"): (
            "Other programs can only make it slower: which of the times did they disturb least?"
        ),
        ("        began = clock()\n        work()", "        work()\n        began = clock()"): (
            "Between the two looks at the clock nothing happens: the work belongs there."
        ),
    },
    variants=[_with_a_minimum],
    hint="What does the first call do that the others do not, and what do other programs do to a time?",
    explanation="The first call pays for set-up, and other programs only slow down: the best call says what it can do.",
)

# %% measure-prose [markdown]
r"""
Your stopwatch measures all three. On a GPU a call returns before its work is done, so `sync` waits for it; larger matrices are needed to fill it.

How many bytes does a copy move? Each number is read and written, so $2 \cdot 4 \cdot 2^{25}$ bytes for 128 MiB of single precision. That is the convention of the STREAM benchmark. A processor may also read the lines of the target before it overwrites them (*write-allocate*), which makes it three times the array; long copies avoid that by *non-temporal* stores.
"""

# %% measure
import torch
import torch.nn.functional as F

repeats = {"smoke": 5, "standard": 15, "full": 30}[profile]
sync = (lambda: None) if device == "cpu" else torch.cuda.synchronize
size = 1024 if device == "cpu" else 8192
a, b = torch.randn(size, size, device=device), torch.randn(size, size, device=device)
gflops = 2 * size**3 / best_seconds(lambda: (a @ b, sync()), repeats) / 1e9
reveal("01.gflops", gflops)
source, target = torch.ones(2**25, device=device), torch.empty(2**25, device=device)
copied = 2 * 4 * 2**25 / best_seconds(lambda: (target.copy_(source), sync()), repeats) / 1e9
reveal("01.gb_per_s", copied)

# %% launch-prose [markdown]
"""
The next cell adds to one number a thousand times. The additions take almost nothing: the time goes into asking for them.
"""

# %% launch
number = torch.zeros(1, device=device)


def ask():
    for _ in range(1000):
        number.add_(1)
    sync()


reveal("01.launch", best_seconds(ask, repeats) / 1000 * 1e6)

# %% card-prose [markdown]
"""
`calibrate` measures the same three numbers, and the product in 16-bit `bf16`. They are the machine's **card**. If `bf16` is far slower than single precision, this processor emulates it. The last line compares your numbers with the card's: if a ratio is far from 1, something else was computing, and you should run the cells again.
"""

# %% card
import labkit

card = labkit.hardware.calibrate(device, repeats=3 if profile == "smoke" else 7)
print(f"{card.device}, {card.threads} threads, measured {card.when}: {card.fp32_gflops:,.0f} GFLOP/s,", end=" ")
print(f"bf16 {card.bf16_gflops:,.0f}, {card.bandwidth_gb_per_s:.1f} GB/s, {card.launch_us:.2f} µs per operation")
print(f"yours over the card's: {gflops / card.fp32_gflops:.2f}, {copied / card.bandwidth_gb_per_s:.2f}, measured")

# %% roofline-prose [markdown]
"""
## The roofline

How fast can a computation run at all? It cannot do more arithmetic than the peak, and it cannot use more numbers than memory delivers. Its **arithmetic intensity**, the operations for each byte moved, says which limit comes first (Williams, Waterman and Patterson, CACM 2009).
"""

# %% ex-01-intensity [markdown]
"""
### Exercise 01.intensity

An operation on long vectors in single precision (4 bytes a number) does `operations` operations for each element, for which it reads `reads` numbers and writes `writes` numbers. What is its arithmetic intensity?
"""

# %% numbers-01-intensity
numbers = draw("01.intensity", student)

# %% answer-01-intensity-prose [markdown]
"""
These are your numbers. Write the answer as an expression of `numbers`, or as a number.
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
    unit="operations per byte",
    hint="Count what one element costs.",
    explanation="That is far to the left of any ridge: operations on single elements wait for memory.",
    mistakes={
        lambda reads, writes, operations: operations / (4 * reads): "What is written counts, too.",
        lambda reads, writes, operations: operations / (reads + writes): "A single-precision number has 4 bytes.",
        lambda reads, writes, operations: 4 * (reads + writes) / operations: (
            "That is bytes per operation; the intensity is operations per byte."
        ),
    },
)

# %% ex-01-bound [markdown]
"""
### Exercise 01.bound

Write `step_bound(operations, moved_bytes, calls, card)`: the least seconds that a computation takes on the machine of a card. The card has `fp32_gflops`, `bandwidth_gb_per_s` and `launch_us`, the microseconds of one call.

- The machine computes and moves bytes at the same time.
- On a CPU it does neither while a call is made, so each call adds its own time. (A GPU computes while the next calls are made, so with many calls this is no bound for a GPU.)

Later labs use this function as `mine("01.bound")`.

*Hint:* turn everything into seconds first; GFLOP/s and GB/s are $10^9$ per second.
"""

# %% answer 01.bound
import labkit


def step_bound(operations: float, moved_bytes: float, calls: int, card: labkit.hardware.Calibration) -> float:
    """The least seconds of a computation: arithmetic and memory at the same time, and the calls."""
    ### BEGIN SOLUTION
    arithmetic_s = operations / (card.fp32_gflops * 1e9)
    memory_s = moved_bytes / (card.bandwidth_gb_per_s * 1e9)
    return max(arithmetic_s, memory_s) + calls * card.launch_us * 1e-6
    ### END SOLUTION


# %% check 01.bound points=5
check("01.bound", step_bound)

# %% checks
CARD = Calibration("a machine", 2, 100.0, 80.0, 20.0, 2.0, "2026-11-23")
FAST = Calibration("another", 2, 900.0, 80.0, 30.0, 4.0, "2026-11-23")


def _in_microseconds(operations, moved_bytes, calls, card):
    micros = operations / card.fp32_gflops / 1e3
    if moved_bytes / card.bandwidth_gb_per_s / 1e3 > micros:
        micros = moved_bytes / card.bandwidth_gb_per_s / 1e3
    return (micros + calls * card.launch_us) / 1e6


def _computations(random: Random) -> list[Case]:
    by, calls = random.uniform(0.5, 2), random.randrange(80, 120)
    return [
        Case("a large product, one call", lambda code: code(2e9 * by, 1e7 * by, 1, CARD)),
        Case("a large copy, one call", lambda code: code(0, 2.6e8 * by, 1, CARD)),
        Case("a hundred small operations", lambda code: code(1e4 * by, 4e4 * by, calls, CARD)),
        Case("arithmetic and memory that take as long", lambda code: code(1e9 * by, 2e8 * by, 0, CARD)),
        Case("another machine", lambda code: code(2e9 * by, 1e9 * by, 12, FAST)),
    ]


EXERCISES["01.bound"] = WrittenExercise(
    step_bound,
    draw=_computations,
    mistakes={
        ("max(arithmetic_s, memory_s)", "arithmetic_s + memory_s"): (
            "The machine computes and moves bytes at the same time, and you let one wait for the other."
        ),
        ("max(", "min("): "It cannot end before the slower of the two has ended.",
        (" + calls * card.launch_us * 1e-6", ""): "What does asking cost? The card says what one call takes.",
    },
    variants=[_in_microseconds],
    hint="How long would the arithmetic take alone, how long the bytes, and how long the calls? Which of them overlap?",
    explanation="It is the one roofline of this course, in seconds, with the calls on top.",
)

# %% figure-prose [markdown]
"""
The figure draws your roof, and those of two tiers of the catalogue, predicted from their makers' figures. Both axes are logarithmic. The vertical distance between two roofs is how many times as fast one machine could be: it is not the same everywhere. A lookup of embedding rows lies far to the left, so a recommendation model gains less from a processor's peak than an image model does. The vector operation is that of your exercise, at the speed that `step_bound` allows.
"""

# %% roofline-figure
import pandas as pd

roofs = [("this machine", "measured", card.fp32_gflops, card.bandwidth_gb_per_s)]
for tier in map(labkit.hardware.get_tier, ("rtx-4060", "h200")):
    roofs.append((tier.label, "predicted", 1e3 * tier.fp32_tflops, tier.bandwidth_gb_s))
roofs = pd.DataFrame(roofs, columns=["name", "provenance", "peak_gflops", "bandwidth_gb_per_s"])
of_vectors = 1e-9 * 1e6 * answer / step_bound(1e6 * answer, 1e6, 0, card)  # of 1e6 bytes
marks = [("matrix product", "measured", 2 * size**3 / (3 * 4 * size**2), gflops)]
marks.append(("vector operation", "predicted", answer, of_vectors))
marks = pd.DataFrame(marks, columns=["name", "provenance", "flop_per_byte", "gflops"])
labkit.plots.show(labkit.plots.figure_roofline(roofs, marks))

# %% ex-01-linear [markdown]
"""
## Predict before you measure

### Exercise 01.linear

A stack of linear layers without biases is a chain of matrix products. Write `linear_cost(rows, widths)` for `rows` rows and the widths of a stack, inputs first: (512, 256, 1) are two layers, from 512 to 256 and from 256 to 1. It returns three numbers: operations, bytes and calls.

- Single precision: 4 bytes per number.
- Each layer reads its input and its weights and writes its output, each once. What one layer writes, the next one reads again.
- A layer is one call.

*Hint:* `itertools.pairwise(widths)` gives each layer's inputs and outputs.
"""


# %% answer 01.linear
from collections.abc import Sequence
from itertools import pairwise


def linear_cost(rows: int, widths: Sequence[int]) -> tuple[int, int, int]:
    """Operations, bytes and calls of a stack of linear layers without biases, in single precision."""
    ### BEGIN SOLUTION
    operations = numbers = 0
    for inputs, outputs in pairwise(widths):
        operations += 2 * rows * inputs * outputs
        numbers += rows * inputs + inputs * outputs + rows * outputs
    return operations, 4 * numbers, len(widths) - 1
    ### END SOLUTION


# %% check 01.linear points=5
check("01.linear", linear_cost)


# %% checks
def _of_sums(rows, widths):
    layers = list(pairwise(widths))
    weights = sum(m * n for m, n in layers)
    activations = rows * sum(m + n for m, n in layers)
    return 2 * rows * weights, 4 * (weights + activations), len(layers)


def _layers(random: Random) -> list[Case]:
    rows, wide = random.randrange(40, 90), random.randrange(300, 600)
    return [
        Case(f"{rows} rows, one layer from {wide} to 256", lambda code: code(rows, (wide, 256))),
        Case("a single row, one layer", lambda code: code(1, (2 * wide, 10))),
        Case("2,048 rows, three layers", lambda code: code(2048, (13, wide, 256, 64))),
        Case("a list of widths that ends in 1", lambda code: code(5, [rows, 3, 1])),
    ]


EXERCISES["01.linear"] = WrittenExercise(
    linear_cost,
    draw=_layers,
    mistakes={
        ("2 * rows", "rows"): "Each term of a product is a multiplication and an addition.",
        (" + inputs * outputs", ""): "A layer also reads something that does not grow with the rows.",
        (" + rows * outputs", ""): "A layer also writes something.",
    },
    variants=[_of_sums],
    hint="Take one layer of (rows, inputs) times (inputs, outputs): how many products, and which three arrays move?",
    explanation="The weights count once however many rows share them: more rows, more operations per byte.",
)

# %% guess-layer-prose [markdown]
"""
One layer of a DLRM's top MLP has 2,048 rows, 512 inputs and 256 outputs. **How many microseconds will it take here?** Calculate if you like, with your two functions and your card.
"""

# %% guess-layer
guess("01.layer", 10_000.0, "µs")

# %% zoo-prose [markdown]
"""
Here are nine computations, each with its operations, bytes and calls, and a function to time. They are stacks of layers, copies, and additions in place. A copy does no arithmetic. An addition reads two numbers and writes one: one operation for 12 bytes.
"""


# %% zoo
def layers(rows, widths):
    weights = [torch.randn(n, m, device=device) for m, n in pairwise(widths)]
    x = torch.randn(rows, widths[0], device=device)

    def forward():
        y = x
        for weight in weights:
            y = F.linear(y, weight)

    return f"{rows} rows, {' → '.join(map(str, widths))}", linear_cost(rows, widths), forward


# %% vectors
def vectors(count, adds):
    x, y = torch.zeros(count, device=device), torch.zeros(count, device=device)
    name = f"{'add' if adds else 'copy'} {4 * count // 1024:,} KiB"
    if adds:
        return name, (count, 12 * count, 1), lambda: y.add_(x)
    return name, (0, 8 * count, 1), lambda: y.copy_(x)


# %% predict-prose [markdown]
"""
All later notebooks time with `paired_times`. It calls each computation in turn, for several rounds. It drops a round that other programs disturbed, and says what to close if there are many. The least of the rounds counts, as in your stopwatch.
"""

# %% predict
stacks = [(1, (64, 64)), (64, (512, 256)), (2048, (13, 512)), (2048, (512, 256)), (2048, (512, 256, 1))]
zoo = [layers(rows, widths) for rows, widths in stacks]
zoo += [vectors(count, adds) for adds in (False, True) for count in (2**12, 2**24)]
works = {name: work for name, _, work in zoo}
measured_s = paired_times(works, rounds=1 if profile == "smoke" else 3, one_thread=False).min()
predicted_s = pd.Series({name: step_bound(*cost, card) for name, cost, _ in zoo})
table = pd.DataFrame({"predicted (µs)": 1e6 * predicted_s, "measured (µs)": 1e6 * measured_s})
table["ratio"] = predicted_s / measured_s
labkit.plots.show(table.rename_axis("computation").reset_index())
reveal("01.layer", table.loc["2048 rows, 512 → 256", "measured (µs)"])

# %% caches-prose [markdown]
"""
Where is the prediction off? A cache is part of the answer. The next cell copies arrays of growing size on one thread. The dotted lines are the caches that the system reports for a core. The last one is often shared between cores, and on a cloud machine also with other customers.
"""

# %% caches
from labkit_course import apparatus

sizes = labkit.hardware.CACHE_SIZES_BYTES[:: 3 if profile == "smoke" else 1]
curve = labkit.hardware.cache_curve(device, sizes_bytes=sizes)
known = dict(labkit.hardware.read_cpu().caches) if device == "cpu" else None
labkit.plots.show(apparatus.figure_cache_curve(curve, known))

# %% error-prose [markdown]
r"""
Papers sum up such tables in one number, the geometric mean of $|\text{predicted} / \text{measured} - 1|$. It forgives single large errors. One exact prediction even makes it 0, however bad the others are. So read the median and the worst case as well.

Lin et al. (arXiv 2201.07821, abstract) report less than 10 % for each of their kernel models of DLRMs on GPUs. Those models were fitted to thousands of measured shapes. [Predict a step](60_performance_model.ipynb) puts that sentence to the test.
"""

# %% error
import numpy as np

errors = (table["ratio"] - 1).abs()
error = float(np.exp(np.log(errors).mean()))
print(f"geometric mean {error:.0%}, median {errors.median():.0%}, worst {errors.max():.0%}, measured")

# %% ex-01-why-off [markdown]
"""
### Explain 01.why_off

In two or three sentences: which computation does your bound miss most, and why? Would you still use the bound?
"""

# %% explain 01.why_off points=2 id="answer-01-why-off"
### BEGIN SOLUTION
answer = model_answer("01.why_off")
### END SOLUTION
explain("01.why_off", answer)

# %% checks
EXERCISES["01.why_off"] = Explanation(
    "numbers: names the computation that the bound misses most, with its predicted and its measured time",
    "why: says which limit the bound assumes there, and what is not in it (caches, shapes that do not fill the "
    "arithmetic units, allocation)",
    "trade-off: says what a better model would need to measure, or why a bound is worth having though it is off",
    model="The copy of 16 KiB is furthest off: 2.8 µs predicted, 1.2 µs measured. The bound takes its bytes at the 42 GB/s "
    "of memory and its call at the 2.0 µs of an addition, but the arrays stay in a cache, and a copy is asked for more "
    "cheaply. The layer of 2,048 rows misses to the other side, 2.7 ms predicted and 3.2 measured, for it does not fill "
    "the arithmetic units as a square product does. I would still use it: three numbers say what a computation waits "
    "for, and curves by size and shape would have to be measured for every kernel.",
)

# %% scores-prose [markdown]
"""
How good were your guesses? The cell after the scores keeps the numbers of this notebook, each with bounds that hold on any machine.
"""

# %% scores
score_notebook()

# %% results tags=["results"]
results(
    fp32_gflops=(card.fp32_gflops, 2, 2e5),
    product_over_card=(gflops / card.fp32_gflops, 0.2, 3),
    bandwidth_gb_per_s=(card.bandwidth_gb_per_s, 1, 1e4),
    copy_over_card=(copied / card.bandwidth_gb_per_s, 0.2, 4),
    launch_us=(card.launch_us, 0.1, 50),
    ridge_flop_per_byte=(card.ridge_flop_per_byte, 0.2, 500),
    median_error=(errors.median(), 0.005, 5),
)

# %% assistant median_error below=0.1 [markdown]
"""
A roofline of three measured numbers is accurate enough for planning: half of its predictions for these nine computations are off by less than 10 %.
"""

# %% recap [markdown]
"""
## Recap

- A stopwatch counts from the second call on, and keeps the least.
- Three numbers say most about a machine: its arithmetic, its bandwidth, and what asking for an operation costs.
- The roofline says, from the operations per byte, whether arithmetic or memory is the limit.
- A bound on paper comes before a measurement. What differs from it has a reason, such as a cache.

**Next:** [Budgets that bind](02_budgets_that_bind.ipynb)
"""

"""What students write in 10_train_dlrm of a step: what it costs, how long it takes, and which rows it changes."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import torch

from labkit.models import DlrmConfig
from labkit_course.exercise import Exercise
from labkit_course.exercises.n10_model import ONE_TABLE, SMALL, MyDlrm
from labkit_course.explanation import Explanation
from labkit_course.written import Case, WrittenExercise

# --- what a step costs, on paper


def step_cost(config, batch_size):
    vectors = config.num_tables + 1
    bottom = (config.dense_dim, *config.bottom_mlp)
    top = (config.embedding_dim + vectors * (vectors - 1) // 2, *config.top_mlp)
    products = sum(m * n for widths in (bottom, top) for m, n in pairwise(widths))
    biases = sum(config.bottom_mlp) + sum(config.top_mlp)
    in_tables = sum(config.num_rows) * config.embedding_dim
    touched = sum(min(rows, batch_size) for rows in config.num_rows) * config.embedding_dim
    return {
        "parameters": in_tables + products + biases,
        "flops": 3 * 2 * batch_size * (products + vectors**2 * config.embedding_dim),
        "touched_bytes": 7 * 4 * touched,
        "adam_bytes": 7 * 4 * in_tables,
    }


MLPERF = DlrmConfig(13, (40_000_000,) * 26, 128, (512, 256, 128), (1024, 1024, 512, 256, 1))
_BYTES = '"touched_bytes": 7 * 4 * touched,\n        "adam_bytes": 7 * 4 * in_tables'
COST = WrittenExercise(
    step_cost,
    module="dlrm",
    cases=(
        Case("three small tables, batch 10", lambda code: code(SMALL, 10)),
        Case("a single table, batch 1", lambda code: code(ONE_TABLE, 1)),
        Case("MLPerf's DLRM, batch 2,048", lambda code: code(MLPERF, 2048)),
    ),
    mistakes={
        ("3 * 2 * batch_size", "2 * batch_size"): (
            "That is the forward pass: backward has two products for each of forward's, for weights and for inputs."
        ),
        ("3 * 2 * batch_size", "3 * batch_size"): "A multiplication and an addition: two operations each.",
        (" + vectors**2 * config.embedding_dim", ""): "The interaction multiplies, too: V × V × D a row.",
        (_BYTES, _BYTES.replace("7 * ", "")): (
            "That is one pass over the numbers; Adam reads four and writes three for each."
        ),
        (_BYTES, _BYTES.replace("4 * ", "")): "That is how many numbers; each has 4 bytes.",
        ("min(rows, batch_size)", "batch_size"): (
            "A batch cannot name more rows of a table than the table has: min(rows, batch_size)."
        ),
        (" + products + biases", " + products"): "Each layer has biases, too.",
        ("in_tables + products", "products"): "The tables are parameters, too: nearly all of them.",
    },
    hint="parameters: width × next width of both MLPs, inputs first, biases and tables. flops: 3 · 2 · batch_size for "
    "each weight of the MLPs and of the interaction's V × V × D. Bytes: 7 · 4 for each number of the tables alone, of "
    "all rows (adam_bytes) or of those that a batch can name (touched_bytes).",
    explanation="Nearly all parameters are in the tables, and most arithmetic is in the MLPs.",
)


TABLE_GB = Exercise(
    lambda rows, embedding_dim: rows * embedding_dim * 4 / 1e9,
    draw=lambda random: {
        "rows": random.randrange(5, 60) * 1_000_000,
        "embedding_dim": random.choice([32, 64, 96, 128]),
    },
    unit="GB, 1e9 bytes",
    hint="Rows × embedding_dim × bytes of a number.",
    explanation="Each row has embedding_dim numbers of 4 bytes; the optimiser's moments come on top.",
    mistakes={
        lambda rows, embedding_dim: rows * embedding_dim / 1e9: "A single-precision number has 4 bytes.",
        lambda rows, embedding_dim: rows * embedding_dim * 8 / 1e9: "Single precision has 4 bytes, not 8.",
        lambda rows, embedding_dim: rows * embedding_dim * 4: "That is in bytes; a GB is 1e9 of them.",
        lambda rows, embedding_dim: rows * embedding_dim * 4 / 2**30: "That is in GiB, of 2^30 bytes; a GB is 1e9.",
    },
)

# --- how long a step takes, on paper


def predict_ms(flops, table_bytes, calls, card):
    arithmetic_s = flops / (card.fp32_gflops * 1e9)
    memory_s = table_bytes / (card.bandwidth_gb_per_s * 1e9)
    asking_s = calls * card.launch_us * 1e-6
    return 1e3 * (arithmetic_s + memory_s + asking_s)


def _on(fp32_gflops: float, bandwidth_gb_per_s: float, launch_us: float, *step: float) -> Any:
    card = SimpleNamespace(fp32_gflops=fp32_gflops, bandwidth_gb_per_s=bandwidth_gb_per_s, launch_us=launch_us)
    return lambda code: code(*step, card)


PREDICTED = WrittenExercise(
    predict_ms,
    module="dlrm",
    cases=(
        Case("a step of 0.2 GFLOP, 8 MB and 500 calls on a slow machine", _on(20, 5, 4, 2e8, 8e6, 500)),
        Case("the same on a fast one", _on(900, 200, 1.5, 2e8, 8e6, 500)),
        Case("a step of calls alone", _on(20, 5, 4, 0, 0, 1000)),
    ),
    mistakes={
        ("(arithmetic_s + memory_s + asking_s)", "max(arithmetic_s, memory_s, asking_s)"): (
            "The larger one is the time of a single kernel that computes and loads at once; these are different "
            "kernels, one after the other: add them up."
        ),
        (" + asking_s", ""): "Asking takes time, too: launch_us for each call.",
        ("1e3 * (", "("): "That is in seconds.",
        ("1e-6", "1e-3"): "launch_us is in microseconds: 1e-6 s.",
    },
    hint="Three times add up: flops / (GFLOP/s · 1e9), table_bytes / (GB/s · 1e9), calls · launch_us · 1e-6.",
    explanation="It takes each part at the machine's best, and leaves out what nobody counted.",
)

# --- which rows a batch touches, and which Adam changes


def make_optimizers(model, lr):
    for table in model.tables:
        table.sparse = True
    mlps = [*model.bottom.parameters(), *model.top.parameters()]
    return [torch.optim.Adam(mlps, lr=lr), torch.optim.SparseAdam(list(model.tables.parameters()), lr=lr)]


def _owners(code: Any) -> dict[str, str]:
    """Of each parameter of a model with three tables, its optimisers and their rates."""
    model = MyDlrm(SMALL)
    groups = [(type(each).__name__, group) for each in code(model, 0.1) for group in each.param_groups]
    return {
        name: ", ".join(f"{kind} at {group['lr']}" for kind, group in groups for one in group["params"] if one is each)
        or "none"
        for name, each in model.named_parameters()
    }


def _touched(code: Any) -> dict[str, Any]:
    """Weights after a step with row 0 and one without it, and which rows the second changed."""
    torch.manual_seed(0)
    model = MyDlrm(ONE_TABLE)
    optimizers = code(model, 0.1)
    table, changed = model.tables[0].weight, []
    for row in (0, 1):
        before = table.detach().clone()
        loss = model(torch.ones(2, 3), torch.full((2, 1, 1), row, dtype=torch.int32)).square().sum()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        changed.append((table.detach() != before).any(dim=1).nonzero().flatten())
    return {
        "rows that the first step changes": changed[0],
        "rows that the second changes": changed[1],
        "the table": table,
        "the bottom MLP": model.bottom[0].weight,
    }


OPTIMIZERS = WrittenExercise(
    make_optimizers,
    module="dlrm",
    cases=(
        Case("which parameter is in which optimiser", _owners),
        Case("a step with row 0 and one with row 1", _touched),
    ),
    mistakes={
        lambda model, lr: [torch.optim.Adam(model.parameters(), lr=lr)]: (
            "Adam changes every row that ever had a gradient, for its momentum goes on; and reads all."
        ),
        lambda model, lr: [torch.optim.SGD(model.parameters(), lr=lr)]: (
            "That touches few rows, and is not Adam: SparseAdam takes sparse gradients."
        ),
        lambda *given: make_optimizers(*given)[:1]: "The tables have no optimiser now, so they never learn.",
    },
    hint="nn.EmbeddingBag gives a sparse gradient where its `sparse` is True, and torch.optim.SparseAdam takes it; the "
    "MLPs, both of them, stay with Adam. Each optimiser takes the rate `lr`, and each parameter is in one of them.",
    explanation="A step now changes the rows that its batch names, and no others.",
)

WHY_TABLES = Explanation(
    rubric=(
        "numbers: the shares of the parameters and of the arithmetic, or one size in GB beside a memory in GB",
        "why: a row of the log names one row of each table, and passes through every weight of the MLPs",
        "trade-off: what helps one part (more memory, a lower rank, hashing) does nothing for the other",
    ),
    model="More than nine tenths of the parameters are in the tables, yet a sample reads one row of each, while it is "
    "multiplied with every weight of the MLPs, which do most of the arithmetic (83 % here, 96 % in MLPerf's). So "
    "memory decides whether the model fits and arithmetic how quickly its MLPs run: a GPU with more TFLOP/s does not "
    "make the tables fit, and smaller tables, by hashing, save memory for some accuracy.",
)
WHY_ADAM = Explanation(
    rubric=(
        "numbers: rows that a batch names, rows that Adam passes over, and the ratio or the gain measured",
        "why: a dense gradient is zero for most rows, and Adam reads and writes moments and weights of all of them",
        "trade-off: sparse gradients have to be sorted and summed, and momentum no longer moves rows not named",
    ),
    model="A batch of 512 names a small part of the rows, but a dense gradient makes Adam read and write every row "
    "and both its moments, almost thirty times as many on the large log. SparseAdam passes over the named rows alone; "
    "it pays by sorting and summing their numbers, so the gain is far below that ratio and can vanish for small tables "
    "or large batches, and it is not quite the same algorithm, for rows that are not named do not coast on.",
)

EXERCISES = {
    "10.cost": COST,
    "10.table_gb": TABLE_GB,
    "10.why_tables": WHY_TABLES,
    "10.predicted": PREDICTED,
    "10.rows": OPTIMIZERS,
    "10.why_adam": WHY_ADAM,
}

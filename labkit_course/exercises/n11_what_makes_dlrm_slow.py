"""What students write in 11_what_makes_dlrm_slow: what the parts of a step have to do, and what they take.

Shapes: B batch, D embedding dim, F tables, L pooling factor, N = F + 1 features that meet, P pairs of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile, record_function

from labkit.models import Dlrm, DlrmConfig
from labkit.process import silenced
from labkit_course.apparatus import Curve, Limits
from labkit_course.explanation import Explanation
from labkit_course.written import Case, WrittenExercise

# --- the cost model


def mlp_work(widths: Sequence[int], batch_size: int) -> tuple[int, int]:
    flop = moved = 0
    for into, out in pairwise(widths):
        flop += 3 * 2 * batch_size * into * out
        moved += 3 * 4 * (batch_size * into + into * out + batch_size * out)
    return flop, moved


MLP_WORK = WrittenExercise(
    mlp_work,
    module="shape",
    cases=(
        Case("one layer", lambda code: list(code((13, 64), 10))),
        Case("two layers", lambda code: list(code((13, 64, 16), 512))),
        Case("a layer of one number", lambda code: list(code((479, 256, 1), 128))),
    ),
    mistakes={
        ("3 * 2 * batch_size", "2 * batch_size"): (
            "That is the forward pass: backward there are two products more, for the weights' and the input's gradient."
        ),
        ("3 * 2 * batch_size", "3 * batch_size"): "A multiplication and an addition are two operations.",
        ("3 * 4 * (", "3 * ("): "Those are numbers: a number of float32 has 4 bytes.",
        ("3 * 4 * (", "4 * ("): "Each of the three products moves its three matrices.",
        ("into * out + batch_size * out", "into * out"): "A product reads two matrices and writes a third.",
    },
    hint="For each pair of neighbouring widths: three products of 2·B·in·out operations, and each moves the input "
    "(B, in), the weight (in, out) and the output (B, out), 4 bytes a number.",
    explanation="Arithmetic grows with B·in·out, bytes with their sums: large batches have more of the first for each "
    "of the second.",
)


def at_least(flop: float, moved: float, gflops: float, gb_per_s: float) -> tuple[float, str]:
    arithmetic, bandwidth = flop / gflops / 1e6, moved / gb_per_s / 1e6
    return max(arithmetic, bandwidth), "arithmetic" if arithmetic > bandwidth else "bandwidth"


def _told(*numbers: float) -> Callable[[Any], Any]:
    return lambda code: list(code(*numbers))


AT_LEAST = WrittenExercise(
    at_least,
    module="shape",
    cases=(
        Case("arithmetic takes longer", _told(4e9, 1e6, 100.0, 20.0)),
        Case("moving takes longer", _told(1e6, 4e9, 100.0, 20.0)),
        Case("nothing to compute", _told(0.0, 3e6, 100.0, 20.0)),
    ),
    mistakes={
        ("flop / gflops / 1e6, moved / gb_per_s / 1e6", "flop / gflops / 1e9, moved / gb_per_s / 1e9"): (
            "Those are seconds: 1 GFLOP/s is 1e9 a second, and so 1e6 a millisecond."
        ),
        ("max(arithmetic, bandwidth)", "arithmetic + bandwidth"): (
            "A machine computes while it moves: the longer of the two is the least time."
        ),
    },
    hint="Milliseconds of each alone: flop / gflops / 1e6 and moved / gb_per_s / 1e6; the longer one, and its name.",
    explanation="The roofline as two lines of code: whichever takes longer hides the other.",
)


def predict(config, pooling_factor: int, batch_size: int, limits) -> dict[str, float]:
    features, dim = config.num_tables + 1, config.embedding_dim
    pairs = features * (features - 1) // 2
    mlps = 0.0
    for widths in ((config.dense_dim, *config.bottom_mlp), (dim + pairs, *config.top_mlp)):
        flop, moved = mlp_work(widths, batch_size)
        gflops = limits.product_gflops(min(batch_size, widths[1]))
        mlps += at_least(flop, moved, gflops, limits.copy_gb_per_s(moved))[0]
    moved = 3 * 4 * batch_size * config.num_tables * pooling_factor * dim
    embeddings, _ = at_least(0, moved, 1, limits.gather(config.parameter_bytes, 4 * dim))
    flop, moved = 4 * batch_size * features**2 * dim, 4 * batch_size * (8 * features * dim + 6 * features**2)
    gflops = limits.product_gflops(min(features, dim))
    interaction, _ = at_least(flop, moved, gflops, limits.copy_gb_per_s(moved))
    return {"mlps": mlps, "embeddings": embeddings, "interaction": interaction}


MADE_UP = Limits(
    device="made up",
    threads=1,
    when="",
    product_gflops=Curve((8, 256), (10.0, 100.0)),
    copy_gb_per_s=Curve((1e4, 1e8), (100.0, 10.0)),
    gather_gb_per_s=((32, Curve((1e5, 1e9), (40.0, 4.0))), (1024, Curve((1e5, 1e9), (200.0, 60.0)))),
    launch_us=2.0,
)
"""A machine for the checks"""


def _predicted(*, rows: int = 10_000, tables: int = 5, pooling: int = 3, batch: int = 256, width: int = 64) -> Any:
    config = DlrmConfig(20, (rows,) * tables, 16, (width, 16), (width, 1))
    return lambda code: dict(code(config, pooling, batch, MADE_UP))


PREDICT = WrittenExercise(
    predict,
    module="shape",
    cases=(
        Case("five tables", _predicted()),
        Case("larger tables", _predicted(rows=1_000_000)),
        Case("many features, a small batch", _predicted(tables=60, batch=32)),
        Case("wide layers and long bags", _predicted(width=512, pooling=40)),
    ),
    mistakes={
        ("3 * 4 * batch_size * config", "4 * batch_size * config"): (
            "That reads each row once. To update it, it is read once more and written: three times its bytes."
        ),
        ("limits.gather(config.parameter_bytes, 4 * dim)", "limits.copy_gb_per_s(moved)"): (
            "Rows do not lie side by side: `limits.gather(bytes of all tables, bytes of a row)` is their speed."
        ),
        ("(dim + pairs, *config.top_mlp)", "(dim, *config.top_mlp)"): (
            "The top MLP reads the bottom vector (D) and the pairs, N (N - 1) / 2 of them."
        ),
        ("config.parameter_bytes, 4 * dim", "config.parameter_bytes, dim"): "A row has D numbers of 4 bytes each.",
    },
    hint="mlps: the sum of `at_least` for both MLPs, product speed at min(B, first hidden width); embeddings: 0 "
    "operations and 3·4·B·F·L·D bytes at `limits.gather(config.parameter_bytes, 4 * D)`; interaction: as given.",
    explanation="A model of three parts and three curves; the measurement will tell what it leaves out.",
)

# --- the measurement


def step_in_parts(model, optimizers, batch):
    dense, categorical, label = batch
    with record_function("mlps"):
        bottom = model.bottom(dense)  # (B, D)
    with record_function("embeddings"):
        embedded = model.tables(categorical)  # (B, F, D)
    bottom_leaf, embedded_leaf = (each.detach().requires_grad_() for each in (bottom, embedded))
    with record_function("interaction"):
        together = torch.cat([bottom_leaf.unsqueeze(1), embedded_leaf], dim=1)  # (B, N, D)
        crossed = torch.cat([bottom_leaf, model.interaction(together)], dim=1)  # (B, D + P)
    crossed_leaf = crossed.detach().requires_grad_()
    with record_function("mlps"):
        loss = F.binary_cross_entropy_with_logits(model.top(crossed_leaf).squeeze(1), label)
        loss.backward()
    with record_function("interaction"):
        crossed.backward(crossed_leaf.grad)
    with record_function("embeddings"):
        embedded.backward(embedded_leaf.grad)
    with record_function("mlps"):
        bottom.backward(bottom_leaf.grad)
    for part, optimizer in zip(("optimiser", "embeddings"), optimizers, strict=True):
        with record_function(part):
            optimizer.step()
            optimizer.zero_grad()
    return loss.detach()


def _model() -> tuple[Dlrm, list, tuple[Tensor, Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(3)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        model = Dlrm(DlrmConfig(6, (9, 7), 4, (8, 4), (8, 1)))
    optimizers = [
        torch.optim.SGD([*model.bottom.parameters(), *model.top.parameters()], lr=0.5),
        torch.optim.SGD(model.tables.parameters(), lr=0.5),
    ]
    dense, label = torch.randn(5, 6, generator=generator), (torch.rand(5, generator=generator) < 0.5).float()
    return model, optimizers, (dense, torch.randint(7, (5, 2, 3), generator=generator, dtype=torch.int32), label)


def _weights_after(steps: int) -> Callable[[Any], Any]:
    def ask(code: Any) -> Any:
        model, optimizers, batch = _model()
        losses = [code(model, optimizers, batch).detach() for _ in range(steps)]
        return {"losses": losses, "weights": [weight.detach() for weight in model.parameters()]}

    return ask


def _marks(code: Any) -> dict[str, int]:
    model, optimizers, batch = _model()
    code(model, optimizers, batch)  # the first makes what later steps find
    with silenced(), profile(activities=[ProfilerActivity.CPU]) as seen:
        code(model, optimizers, batch)
    marks, products = {}, {}
    for event in seen.events():
        if event.name in ("mlps", "embeddings", "interaction", "optimiser"):
            marks[event.name] = True
            inside = [event]
            while inside:
                each = inside.pop()
                inside += each.cpu_children
                if each.name in ("aten::addmm", "aten::mm", "aten::bmm", "aten::_embedding_bag"):
                    place = f"{each.name.removeprefix('aten::')} in {event.name}"
                    products[place] = products.get(place, 0) + 1
    return {f"marks {name}": True for name in marks} | products


def _uncut(model: nn.Module, optimizers: list, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    with record_function("mlps"):
        loss = F.binary_cross_entropy_with_logits(model(*batch[:2]), batch[2])
        loss.backward()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
    return loss.detach()


IN_PARTS = WrittenExercise(
    step_in_parts,
    module="shape",
    cases=(
        Case("the loss and the weights after a step", _weights_after(1)),
        Case("after three steps", _weights_after(3)),
        Case("what runs within the marks", _marks),
    ),
    mistakes={
        ("        bottom.backward(bottom_leaf.grad)\n", "        pass\n"): (
            "The bottom MLP gets no gradient: hand it on what arrived at its leaf, `bottom.backward(bottom_leaf.grad)`."
        ),
        ("embedded.backward(embedded_leaf.grad)", "embedded_leaf.grad"): (
            "The tables get no gradient: `embedded.backward(embedded_leaf.grad)`."
        ),
        _uncut: "Cut the graph where parts meet, so that each part's backward pass is a call that can be marked.",
    },
    hint="Forward: each part in its mark, and between them `leaf = out.detach().requires_grad_()`. Backward, from the "
    "loss: `out.backward(leaf.grad)`, part by part, each in its mark.",
    explanation="The same gradients as one call of `backward`, and now each part's own time shows.",
)


def crossing(is_over: Callable[[int], bool], low: int, high: int) -> int:
    while low < high:
        middle = (low + high) // 2
        if is_over(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _crosses(at: int, low: int, high: int) -> Callable[[Any], Any]:
    def ask(code: Any) -> Any:
        asked: list[int] = []
        found = code(lambda number: asked.append(number) or number >= at, low, high)
        return {"found": found, "asked at most 12 times": len(asked) <= 12, "asked within": all(
            low <= number <= high for number in asked
        )}  # fmt: skip

    return ask


CROSSING = WrittenExercise(
    crossing,
    module="shape",
    cases=(
        Case("from 37 on, of 1 to 1,000", _crosses(37, 1, 1000)),
        Case("from the first on", _crosses(1, 1, 1000)),
        Case("only at the last", _crosses(1000, 1, 1000)),
        Case("two to choose from", _crosses(8, 7, 8)),
    ),
    mistakes={
        ("(low + high) // 2", "low"): "One by one asks up to a thousand times: halve what is left.",
    },
    hint="While low < high: look at the middle; if it is over, the first one is there or before (high = middle), else "
    "after it (low = middle + 1).",
    explanation="Ten questions find one of a thousand, because what is over stays over.",
)

EXERCISES = {
    "11.mlp_work": MLP_WORK,
    "11.at_least": AT_LEAST,
    "11.predict": PREDICT,
    "11.in_parts": IN_PARTS,
    "11.crossing": CROSSING,
    "11.why_wrong": Explanation(
        rubric=(
            "numbers: the share of shapes whose limiter was predicted, beside that of one name for all, and one shape "
            "where it was not, with both times",
            "why: what the model leaves out there (copies, index work, Python, a cache)",
            "trade-off: what it would take to count that, too, and whether the limiter needs it",
        ),
        model="The limiter was right for 21 of 24 shapes, where naming the MLPs each time is right for 17. Wrong was "
        "one of 16 tables and rows of 32 numbers: 14 ms predicted for the embeddings and 33 measured, because the "
        "update follows indices and sorts nothing in advance, so each row waits for memory; the MLPs were "
        "predicted at 29 ms and took 33. A curve of its own for updates would mend that, at the cost of one more "
        "thing to measure; to name the limiter of most shapes three curves are enough, to predict a time they are "
        "not.",
    ),
}

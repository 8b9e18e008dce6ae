"""What students write in 10_train_dlrm: the reference, what both are asked, and the usual mistakes.

Shapes: B batch, D embedding dim, F tables, L lookups a bag, V = F + 1 vectors that meet, P = V (V − 1) / 2 pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit.course.written import Case, WrittenExercise
from labkit.models.dlrm import Dlrm, DlrmConfig

# --- the interaction


def interaction(vectors: Tensor) -> Tensor:
    products = torch.bmm(vectors, vectors.transpose(1, 2))  # (B, V, V)
    first, second = torch.tril_indices(vectors.shape[1], vectors.shape[1], offset=-1)
    return products[:, first, second]


def _products(vectors: Tensor, *, offset: int = -1, upper: bool = False) -> Tensor:
    indices = torch.triu_indices if upper else torch.tril_indices
    first, second = indices(vectors.shape[1], vectors.shape[1], offset=offset)
    return torch.bmm(vectors, vectors.transpose(1, 2))[:, first, second]


def _vectors(batch: int, count: int, width: int) -> Tensor:
    return torch.randn(batch, count, width, generator=torch.Generator().manual_seed(count))


def _gradient_of_interaction(code: Any) -> Tensor:
    vectors = _vectors(2, 4, 3).requires_grad_()
    out = code(vectors)
    (out * torch.arange(1.0, out.numel() + 1).view_as(out)).sum().backward()
    return vectors.grad


INTERACTION = WrittenExercise(
    interaction,
    module="dlrm",
    cases=(
        Case("2 rows of 4 vectors", lambda code: code(_vectors(2, 4, 3))),
        Case("27 vectors a row, as the click log gives", lambda code: code(_vectors(5, 27, 16))),
        Case("a single table", lambda code: code(_vectors(3, 2, 8))),
        Case("the gradient of the vectors", _gradient_of_interaction),
    ),
    mistakes={
        (lambda vectors: _products(vectors, offset=0)): ("A vector does not meet itself: leave the diagonal out."),
        (lambda vectors: torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)): (
            "All V² products are there; each pair counts once, and none with itself."
        ),
        (lambda vectors: _products(vectors, offset=1, upper=True)): (
            "These are the right products in another order: take the pairs below the diagonal, row by row "
            "(torch.tril_indices with offset=-1), so that weights can be copied from model to model."
        ),
        (lambda vectors: interaction(vectors) / vectors.shape[2] ** 0.5): (
            "A DLRM does not divide by the square root of the width; attention does."
        ),
        (lambda vectors: interaction(F.normalize(vectors, dim=2))): ("A dot product, not the cosine of the angle."),
        (lambda vectors: interaction(vectors.detach()).requires_grad_()): (
            "No gradient comes back to the vectors: neither detach them nor leave torch."
        ),
    },
    hint="`torch.bmm` of the vectors and their transpose gives all V × V products; keep the pairs below the diagonal.",
    explanation="27 vectors make 351 pairs, and the product computes 729: which of the two you count matters later.",
)

# --- the model


def mlp(width: int, widths: Iterable[int]) -> nn.Sequential:
    layers = []
    for out in widths:
        layers += [nn.Linear(width, out), nn.ReLU()]
        width = out
    return nn.Sequential(*layers)


class MyDlrm(nn.Module):
    def __init__(self, config: DlrmConfig):
        super().__init__()
        vectors = config.num_tables + 1
        self.bottom = mlp(config.dense_dim, config.bottom_mlp)
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, config.embedding_dim, mode="sum") for rows in config.num_rows)
        self.top = mlp(config.embedding_dim + vectors * (vectors - 1) // 2, config.top_mlp)[:-1]

    def forward(self, dense: Tensor, categorical: Tensor) -> Tensor:
        bottom = self.bottom(dense)  # (B, D)
        sums = [table(categorical[:, f]) for f, table in enumerate(self.tables)]  # F of (B, D)
        vectors = torch.stack([bottom, *sums], dim=1)  # (B, V, D)
        return self.top(torch.cat([bottom, interaction(vectors)], dim=1)).squeeze(1)


class _ReluAtTheEnd(MyDlrm):
    def __init__(self, config: DlrmConfig):
        super().__init__(config)
        self.top.append(nn.ReLU())


class _Sigmoid(MyDlrm):
    def forward(self, dense: Tensor, categorical: Tensor) -> Tensor:
        return super().forward(dense, categorical).sigmoid()


class _Column(MyDlrm):
    def forward(self, dense: Tensor, categorical: Tensor) -> Tensor:
        return super().forward(dense, categorical).unsqueeze(1)


class _MeanOfBags(MyDlrm):
    def __init__(self, config: DlrmConfig):
        super().__init__(config)
        for table in self.tables:
            table.mode = "mean"


class _BottomLast(MyDlrm):
    def forward(self, dense: Tensor, categorical: Tensor) -> Tensor:
        bottom = self.bottom(dense)
        sums = [table(categorical[:, f]) for f, table in enumerate(self.tables)]
        return self.top(torch.cat([bottom, interaction(torch.stack([*sums, bottom], dim=1))], dim=1)).squeeze(1)


SMALL = DlrmConfig(5, (7, 11, 4), 6, (8, 6), (9, 1))
ONE_TABLE = DlrmConfig(3, (10,), 4, (4,), (1,))


def _logits(code: Any, config: DlrmConfig, lookups: int, *, of_gradients: bool = False) -> Any:
    """Logits of the student's model with the weights of the kit's, or which of its weights got a gradient."""
    generator = torch.Generator().manual_seed(3)
    torch.manual_seed(3)
    kit, model = Dlrm(config), code(config)
    with torch.no_grad():
        for ours, theirs in zip(_weights(kit), _weights(model), strict=True):
            theirs.copy_(ours)
    dense = torch.randn(6, config.dense_dim, generator=generator)
    most = torch.tensor(config.num_rows)[:, None]
    categorical = (torch.rand(6, len(most), lookups, generator=generator) * most).int()
    logits = model(dense, categorical)
    if not of_gradients:
        return logits
    logits.sum().backward()
    return [bool(weight.grad is not None) for weight in _weights(model)]


def _weights(model: nn.Module) -> list[Tensor]:
    return [*model.bottom.parameters(), *model.tables.parameters(), *model.top.parameters()]


MODEL = WrittenExercise(
    MyDlrm,
    module="dlrm",
    cases=(
        Case("three tables and the weights of labkit's model", lambda code: _logits(code, SMALL, 1)),
        Case("bags of three lookups", lambda code: _logits(code, SMALL, 3)),
        Case("a single table and MLPs of one layer", lambda code: _logits(code, ONE_TABLE, 1)),
        Case("which weights get a gradient", lambda code: _logits(code, SMALL, 1, of_gradients=True)),
    ),
    mistakes={
        (_ReluAtTheEnd): ("The last layer of the top MLP gives the logit, which may be negative: no ReLU after it."),
        (_Sigmoid): ("Return logits: the loss, binary_cross_entropy_with_logits, applies the sigmoid itself."),
        (_Column): ("Return one logit a row, of shape (B,): squeeze the last dimension."),
        (_MeanOfBags): ('A bag of several lookups is summed here: nn.EmbeddingBag averages unless mode is "sum".'),
        (_BottomLast): ("The bottom MLP's vector comes first, then the tables in their order."),
    },
    hint="bottom, tables and top are attributes; stack the bottom's vector and the F sums to (B, V, D); the top MLP "
    "reads the bottom's vector and the pairs, concatenated.",
    explanation="With the same weights your model gives the same logits as labkit's.",
)

# --- what a step costs, on paper


def step_cost(config: DlrmConfig, batch_size: int) -> dict[str, float]:
    vectors = config.num_tables + 1
    pairs = vectors * (vectors - 1) // 2
    bottom = (config.dense_dim, *config.bottom_mlp)
    top = (config.embedding_dim + pairs, *config.top_mlp)
    products = sum(m * n for widths in (bottom, top) for m, n in pairwise(widths))
    biases = sum(config.bottom_mlp) + sum(config.top_mlp)
    rows = config.num_tables * batch_size  # at most, with one lookup a table
    return {
        "parameters": sum(config.num_rows) * config.embedding_dim + products + biases,
        # a product forward, two backward (for the weights and for the inputs), 2 operations each
        "flops": 3 * 2 * batch_size * (products + vectors**2 * config.embedding_dim),
        # of the tables: a row is read, and in Adam it and two moments are read and written
        "table_bytes": 4 * config.embedding_dim * rows * 7,
    }


def _changed_cost(**change: Any) -> Any:
    def code(config: DlrmConfig, batch_size: int) -> dict[str, float]:
        right = step_cost(config, batch_size)
        return right | {name: how(right[name], config) for name, how in change.items()}

    return code


MLPERF = DlrmConfig(13, (40_000_000,) * 26, 128, (512, 256, 128), (1024, 1024, 512, 256, 1))
COST = WrittenExercise(
    step_cost,
    module="dlrm",
    cases=(
        Case("three small tables, batch 10", lambda code: code(SMALL, 10)),
        Case("a single table, batch 1", lambda code: code(ONE_TABLE, 1)),
        Case("MLPerf's DLRM, batch 2,048", lambda code: code(MLPERF, 2048)),
    ),
    mistakes={
        (_changed_cost(flops=lambda flops, _: flops / 3)): (
            "That is the forward pass: backward has two products for each of forward's, for weights and for inputs."
        ),
        (_changed_cost(flops=lambda flops, _: flops / 2)): ("A multiplication and an addition: two operations each."),
        (_changed_cost(table_bytes=lambda size, _: size / 7)): (
            "Adam reads the row, the gradient's moments twice, and writes all three: seven passes over a row in all."
        ),
        (_changed_cost(parameters=lambda count, config: count - sum(config.bottom_mlp) - sum(config.top_mlp))): (
            "Each layer has biases, too."
        ),
        (_changed_cost(parameters=lambda count, config: count - sum(config.num_rows) * config.embedding_dim)): (
            "The tables are parameters, too: nearly all of them."
        ),
    },
    hint="Add up width × next width over both MLPs; the interaction's product is V × V × D; each product is done once "
    "forward and twice backward, with two operations for each number.",
    explanation="Nearly all parameters are in the tables, nearly all arithmetic in the MLPs.",
)

# --- AUC


def auc(label: np.ndarray, score: np.ndarray) -> float:
    positive, negative = score[label == 1], np.sort(score[label == 0])
    below = np.searchsorted(negative, positive, side="left")
    not_above = np.searchsorted(negative, positive, side="right")
    return float((below + not_above).mean() / 2 / len(negative))


def _scores(count: int, levels: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    label = (rng.random(count) < 0.3).astype(float)
    return label, np.floor((rng.random(count) + 0.3 * label) * levels)


AUC = WrittenExercise(
    auc,
    module="dlrm",
    cases=(
        Case("four rows", lambda code: code(np.array([0, 1, 1, 0]), np.array([0.1, 0.9, 0.4, 0.2]))),
        Case("1,000 rows without ties", lambda code: code(*_scores(1000, 10**9))),
        Case("scores that are all the same", lambda code: code(np.array([0, 1, 1, 0]), np.ones(4))),
        Case("1,000 rows of five scores, many of them tied", lambda code: code(*_scores(1000, 5))),
        Case("200,000 rows", lambda code: code(*_scores(200_000, 1000))),
    ),
    mistakes={
        (
            lambda label, score: float(
                (np.searchsorted(np.sort(score[label == 0]), score[label == 1], side="left")).mean()
                / (label == 0).sum()
            )
        ): ("A tie counts as half a pair in the right order, and you count it as none."),
        (
            lambda label, score: float(
                (np.searchsorted(np.sort(score[label == 0]), score[label == 1], side="right")).mean()
                / (label == 0).sum()
            )
        ): ("A tie counts as half a pair in the right order, and you count it as a whole one."),
        (lambda label, score: 1 - auc(label, score)): ("That is the share in the wrong order: 1 − AUC."),
        (lambda label, score: float(((score > 0.5) == (label == 1)).mean())): ("That is accuracy, at one threshold."),
    },
    hint="The share of (positive, negative) pairs in which the positive has the higher score; a tie counts a half. "
    "Sort the negatives and use np.searchsorted: all pairs at once would be 10¹⁰ for 200,000 rows.",
    explanation="Pairs in the right order, ties by half: the same as labkit's, and as scikit-learn's.",
)

# --- the loop


def train(run: Any, model: nn.Module, optimizers: list[torch.optim.Optimizer], batches: Any, score: Any) -> None:
    for _ in run.epochs(10):
        for dense, categorical, label in run.batches(batches):
            loss = F.binary_cross_entropy_with_logits(model(dense, categorical), label)
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
            run.step(loss, samples=len(label))
            if run.due:
                run.evaluate(auc=score())


class _Watched:
    """Stands for `labkit.Run` where a loop is checked: two epochs, an evaluation due after each third step."""

    def __init__(self):
        self.losses: list[float] = []
        self.samples = 0
        self.evaluated: list[float] = []

    def epochs(self, most: int) -> Iterator[int]:
        yield from range(min(2, most))

    def batches(self, loader: Any) -> Iterator[Any]:
        yield from loader

    @property
    def due(self) -> bool:
        return len(self.losses) % 3 == 0

    def step(self, loss: Tensor, *, samples: int) -> None:
        self.losses.append(float(loss.detach()))
        self.samples += samples

    def evaluate(self, **metrics: float) -> bool:
        self.evaluated += metrics.values()
        return False


def _data(rows: int = 96) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Batches of 16 whose label follows from the first dense feature."""
    generator = torch.Generator().manual_seed(1)
    dense = torch.randn(rows, SMALL.dense_dim, generator=generator)
    categorical = (
        torch.rand(rows, SMALL.num_tables, 1, generator=generator) * torch.tensor(SMALL.num_rows)[:, None]
    ).int()
    label = (dense[:, 0] > 0).float()
    return list(zip(dense.split(16), categorical.split(16), label.split(16), strict=True))


def _trained(code: Any) -> dict[str, Any]:
    """What a loop does on a small log."""

    def once() -> tuple[_Watched, nn.Module, int]:
        torch.manual_seed(0)
        run, model, batches = _Watched(), MyDlrm(SMALL), _data()
        *train_batches, (dense, categorical, _) = batches
        seen = []
        model.register_forward_hook(lambda *_: seen.append(torch.is_grad_enabled() and model.training))

        def score() -> float:
            with torch.no_grad():
                return float(model(dense, categorical).mean())

        code(run, model, [torch.optim.Adam(model.parameters(), lr=0.01)], train_batches, score)
        return run, model, sum(seen)

    run, _, passes = once()
    again, _, _ = once()
    return {
        "samples": run.samples,
        "forward passes with a gradient": passes,
        "evaluations": len(run.evaluated),
        "losses": run.losses,
        "scores": run.evaluated,
        "the same seed repeats": run.losses == again.losses,
    }


def _loop(body: Any) -> Any:
    """A wrong loop: `body` does what is wrong for a batch."""

    def code(run: Any, model: nn.Module, optimizers: list, batches: Any, score: Any) -> None:
        for _ in run.epochs(10):
            for dense, categorical, label in run.batches(batches):
                body(run, model, optimizers, (dense, categorical, label), score)

    return code


def _step(run: Any, model: nn.Module, optimizers: list, batch: tuple, score: Any, *, without: str = "") -> None:
    dense, categorical, label = batch
    if without == "clean":
        for optimizer in optimizers:
            optimizer.zero_grad()
    loss = F.binary_cross_entropy_with_logits(model(dense, categorical), label)
    loss.backward()
    if without == "order":
        for optimizer in optimizers:
            optimizer.zero_grad()
    for optimizer in optimizers:
        optimizer.step()
        if without not in ("zero_grad", "order"):
            optimizer.zero_grad()
    if without != "step":
        run.step(loss, samples=1 if without == "samples" else len(label))
    if run.due or without == "due":
        run.evaluate(auc=score())


def _wrong(without: str) -> Any:
    return _loop(lambda *each: _step(*each, without=without))


LOOP = WrittenExercise(
    train,
    module="dlrm",
    cases=(Case("two epochs of five batches", _trained),),
    mistakes={
        (_wrong("zero_grad")): ("Gradients add up from step to step: clear them after each (zero_grad)."),
        (_wrong("order")): ("The gradients are cleared before the optimiser uses them."),
        (_wrong("samples")): ("Tell run.step how many samples the batch had: samples=len(label)."),
        (_wrong("step")): ("Tell the run of each step: run.step(loss, samples=len(label))."),
        (_wrong("due")): ("Evaluate where run.due says so, not after each step: evaluations take time, too."),
    },
    hint="loss, backward, a step of each optimiser and clear its gradients, run.step, and run.evaluate where run.due.",
    explanation="The loss falls, the same seed repeats it, and what is scored is never trained on.",
)

# --- which rows a batch touches, and which Adam changes


def make_optimizers(model: nn.Module, lr: float) -> list[torch.optim.Optimizer]:
    for table in model.tables:
        table.sparse = True
    mlps = [*model.bottom.parameters(), *model.top.parameters()]
    return [torch.optim.Adam(mlps, lr=lr), torch.optim.SparseAdam(list(model.tables.parameters()), lr=lr)]


def _dense_adam(model: nn.Module, lr: float) -> list[torch.optim.Optimizer]:
    return [torch.optim.Adam(model.parameters(), lr=lr)]


def _plain_sgd(model: nn.Module, lr: float) -> list[torch.optim.Optimizer]:
    return [torch.optim.SGD(model.parameters(), lr=lr)]


def _mlps_alone(model: nn.Module, lr: float) -> list[torch.optim.Optimizer]:
    return make_optimizers(model, lr)[:1]


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
    cases=(Case("a step with row 0 and one with row 1", _touched),),
    mistakes={
        (_dense_adam): ("Adam changes every row that ever had a gradient, for its momentum goes on; and reads all."),
        (_plain_sgd): ("That touches few rows, and is not Adam: SparseAdam takes sparse gradients."),
        (_mlps_alone): ("The tables have no optimiser now, so they never learn."),
    },
    hint="nn.EmbeddingBag gives a sparse gradient where its `sparse` is True, and torch.optim.SparseAdam takes it; the "
    "MLPs stay with Adam.",
    explanation="A step now changes the rows that its batch names, and no others.",
)

# --- several seeds


def interval(values: list[float]) -> tuple[float, float]:
    from scipy import stats

    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5
    return float(np.mean(values) - half), float(np.mean(values) + half)


def _half_wide(of: Any) -> Any:
    return lambda values: (float(np.mean(values) - of(values)), float(np.mean(values) + of(values)))


SEEDS = WrittenExercise(
    interval,
    module="dlrm",
    cases=(
        Case("five numbers", lambda code: code([9.1, 10.4, 9.7, 11.0, 10.1])),
        Case("two numbers", lambda code: code([1.0, 2.0])),
        Case("twenty numbers", lambda code: code([10 + (7 * i % 13) / 3 for i in range(20)])),
    ),
    mistakes={
        (_half_wide(lambda values: 1.96 * np.std(values, ddof=1) / len(values) ** 0.5)): (
            "1.96 is for many values; of n values take the t distribution with n − 1 degrees of freedom."
        ),
        (_half_wide(lambda values: 12.706204736 * 0 + np.std(values, ddof=1))): (
            "That is how far single runs lie apart; the mean of n of them is known √n times better."
        ),
        (lambda values: (min(values), max(values))): ("The range grows with the number of runs: no interval."),
    },
    hint="mean ± t · s / √n, with s the sample's standard deviation (ddof=1) and t of scipy.stats.t at 0.975.",
    explanation="Five seeds bound the mean to within about 1.24 standard deviations, two to within nine.",
)

EXERCISES = {
    "10.interaction": INTERACTION,
    "10.model": MODEL,
    "10.cost": COST,
    "10.auc": AUC,
    "10.loop": LOOP,
    "10.rows": OPTIMIZERS,
    "10.interval": SEEDS,
}

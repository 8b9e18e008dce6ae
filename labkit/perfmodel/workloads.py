"""Randomly drawn training steps of DLRMs, speech recognisers and small CNNs, in this process and on random batches.

A card is measured on some of them; others, with another seed, test its predictions.

Shapes: B batch, T frames, S characters.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from labkit import errors, fast, jobs, models
from labkit.data.speech import Batch

LARGEST_TABLES_BYTES = 2**26
LARGEST_FLOP = 3e10
"""Largest arithmetic of a step, roughly: some tenths of a second on one core"""
VOCABULARY = 30


@dataclass(frozen=True)
class Workload:
    """A step that can be repeated."""

    job: str
    settings: dict[str, Any]
    step: Callable[[], object]


def draw_workload(job: str, seed: int) -> Workload:
    """A random workload of a job, of moderate size; each seed gives another."""
    rng = np.random.default_rng([seed, list(JOBS).index(job)])
    draw, _ = JOBS[job]
    return build_workload(job, draw(rng) | {"precision": str(rng.choice(("fp32", "bf16"))), "seed": seed})


def build_workload(job: str, settings: dict[str, Any]) -> Workload:
    torch.manual_seed(settings["seed"])
    _, build = JOBS[job]
    return Workload(job, settings, build(**settings))


def _training(
    loss_of: Callable[[], Tensor],
    optimizers: Sequence[Any],
    precision: str = "fp32",
    clipped: Sequence[nn.Parameter] = (),
) -> Callable[[], object]:
    """A step: loss, gradients, some of them clipped, and update."""

    def step() -> None:
        with fast.autocast(precision, "cpu"):
            loss = loss_of()
        loss.backward()
        if clipped:
            nn.utils.clip_grad_norm_(clipped, 5.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()

    return step


def _power(rng: np.random.Generator, low: int, high: int, step: int = 1) -> int:
    """A random number in this range, log-uniform, in multiples of `step`."""
    value = math.exp(rng.uniform(math.log(low), math.log(high)))
    return max(low, round(value / step) * step)


def _draw_dlrm(rng: np.random.Generator) -> dict[str, Any]:
    while True:
        settings = {
            "batch_size": _power(rng, 128, 4096),
            "dense_dim": _power(rng, 8, 256),
            "num_tables": _power(rng, 2, 26),
            "num_rows": _power(rng, 1000, 1_000_000),
            "embedding_dim": _power(rng, 16, 128, 8),
            "pooling_factor": _power(rng, 1, 32),
            "mlp_width": _power(rng, 32, 1024, 8),
            "mlp_depth": int(rng.integers(1, 5)),
            "zipf": float(rng.choice([0.0, 1.1])),
            "optimiser": str(rng.choice(["sgd", "adagrad", "rowwise-adagrad", "adam"])),
            "kernels": str(rng.choice(["plain", "fast", "fast"])),
        }
        tables = 4 * settings["num_tables"] * settings["num_rows"] * settings["embedding_dim"]
        weights = 2 * settings["mlp_depth"] * settings["mlp_width"] ** 2
        if tables <= LARGEST_TABLES_BYTES and 6 * settings["batch_size"] * weights <= LARGEST_FLOP:
            return settings


def _dlrm(**settings: Any) -> Callable[[], object]:
    shape = jobs.ShapeJob.from_settings(settings)
    batches = itertools.cycle(jobs.random_batches(shape))
    model = jobs.dlrm.build_model(jobs.shape_config(shape), shape.kernels)
    optimizers = jobs.dlrm.build_optimizers(model, shape.optimiser, 0.01, shape.kernels)
    return _training(lambda: jobs.dlrm.loss_of(model, next(batches)), optimizers, shape.precision)


def _draw_tables(rng: np.random.Generator) -> dict[str, Any]:
    settings = _draw_dlrm(rng)
    smaller = {
        name: min(settings[name], _power(rng, low, high))
        for name, low, high in (("batch_size", 32, 4096), ("num_rows", 50, 1_000_000), ("pooling_factor", 1, 32))
    }
    return settings | smaller | {"are_gathered": bool(rng.integers(2))}


def _tables(are_gathered: bool, **settings: Any) -> Callable[[], object]:
    shape = jobs.ShapeJob.from_settings(settings)
    if are_gathered:
        return _gathered(shape)
    batches = itertools.cycle(jobs.random_batches(shape))
    model = jobs.dlrm.build_model(jobs.shape_config(shape), shape.kernels)
    _, optimizer = jobs.dlrm.build_optimizers(model, shape.optimiser, 0.01, shape.kernels)
    return _training(lambda: model.tables(next(batches)[1]).mean(), [optimizer])


def _gathered(shape: "jobs.ShapeJob") -> Callable[[], object]:
    """All tables in one tensor, whose rows are read and changed by index, as in hand-written scripts."""
    batches = itertools.cycle(jobs.random_batches(shape))
    starts = shape.num_rows * torch.arange(shape.num_tables)[:, None]
    weight = torch.randn(shape.num_rows * shape.num_tables, shape.embedding_dim)
    moments = [torch.zeros_like(weight) for _ in range({"sgd": 0, "adam": 2}.get(shape.optimiser, 1))]

    def step() -> None:
        rows = next(batches)[1].long() + starts  # (B, F, L)
        found = F.embedding(rows, weight).requires_grad_()  # (B, F, L, D)
        found.sum(2).square().mean().backward()
        with torch.no_grad():
            named, places = torch.unique(rows, return_inverse=True)
            sums = torch.zeros(len(named), shape.embedding_dim).index_add_(
                0, places.flatten(), errors.certain(found.grad).flatten(0, 2)
            )
            change = sums
            for moment in moments:
                new = moment[named].mul_(0.9).addcmul_(sums, sums, value=0.1)
                moment[named] = new
                change = change / (new.sqrt() + 1e-8)
            weight[named] -= 0.01 * change

    return step


def _draw_speech(rng: np.random.Generator) -> dict[str, Any]:
    kind = str(rng.choice(["conv", "conv", "lstm", "bilstm"]))
    return {
        "batch_size": _power(rng, 4, 48),
        "frames": _power(rng, 100, 600),
        "characters": _power(rng, 5, 20),
        "kernels": str(rng.choice(["plain", "fast", "fast"])),
        "model": {
            "kind": kind,
            "channels": _power(rng, 32, 160, 8),
            "layers": int(rng.integers(1, 5)) if kind == "conv" else int(rng.integers(1, 3)),
            "hidden": 0 if kind == "conv" else _power(rng, 32, 192, 8),
            "kernel": int(rng.choice([3, 5, 7])),
            "dropout": 0.1,
            "mask_bins": 8,
            "mask_frames": 6,
        },
    }


def _speech(
    batch_size: int, frames: int, characters: int, kernels: str, model: dict[str, Any], precision: str, seed: int
) -> Callable[[], object]:
    network = jobs.speech.build_model(models.SpeechConfig(vocabulary=VOCABULARY, **model), kernels)
    optimizer = jobs.speech.build_optimizer(network, "adam", 1e-3, kernels)
    lengths = torch.randint(max(80, frames * 3 // 4), frames + 1, (batch_size,))
    lengths[0] = frames
    tokens = torch.randint(1, VOCABULARY, (batch_size, characters))
    counts = torch.full((batch_size,), characters)
    batch = Batch(torch.randn(batch_size, frames, 80), lengths, tokens, counts, [""] * batch_size)

    parameters = list(network.parameters())
    return _training(lambda: jobs.speech.loss_of(network, batch, "cpu"), [optimizer], precision, parameters)


def _draw_cnn(rng: np.random.Generator) -> dict[str, Any]:
    return {
        "batch_size": _power(rng, 8, 128),
        "image": int(rng.choice([16, 28, 32])),
        "channels": _power(rng, 8, 48, 4),
        "blocks": int(rng.integers(1, 4)),
    }


def _cnn(batch_size: int, image: int, channels: int, blocks: int, precision: str, seed: int) -> Callable[[], object]:
    layers: list[nn.Module] = []
    width = 3
    for block in range(blocks):
        out = channels * 2**block
        layers += [nn.Conv2d(width, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(), nn.MaxPool2d(2)]
        width = out
    pixels = (image >> blocks) ** 2
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(width * pixels, 10))
    optimizer = fast.without_compiler(torch.optim.SGD)(model.parameters(), lr=0.01, momentum=0.9)
    images, labels = torch.randn(batch_size, 3, image, image), torch.randint(10, (batch_size,))

    return _training(lambda: F.cross_entropy(model(images).float(), labels), [optimizer], precision)


JOBS = {
    "dlrm": (_draw_dlrm, _dlrm),
    "speech": (_draw_speech, _speech),
    "cnn": (_draw_cnn, _cnn),
    "tables": (_draw_tables, _tables),
}
"""How settings are drawn, and a step is built, by kind; the last has embedding tables alone, the part that differs most
between DLRMs"""

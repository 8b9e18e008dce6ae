"""One DLRM on the same batches by four: facebookresearch/dlrm, TorchRec unsharded, and this kit, plain and fast.

`LABKIT_DLRM=/path/to/checkout python benchmarks/same_model.py` takes the reference from a checkout of
https://github.com/facebookresearch/dlrm, from which no line is here, and TorchRec from where `make bench-peers`
installs it. All start from the same weights, and each gets the batches in its own layout beforehand; a way with other
losses is refused. Ways take a step in turn, and ratios are geometric means over turns with their 95 % intervals.
"""

import argparse
import gc
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

PEERS = Path(sys.prefix) / "peers"
sys.path.append(str(PEERS))  # behind labkit's own packages

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from dlrm_shapes import CPU, LR, SHAPES, Batch, Shape, made_up_batch, precisions, stepper  # noqa: E402
from measuring import Ratio, in_turn, paired, report  # noqa: E402
from torch import Tensor  # noqa: E402

from labkit.data.clicks import SYNTHETIC  # noqa: E402
from labkit.hardware import keep_memory  # noqa: E402
from labkit.jobs import get_preset  # noqa: E402
from labkit.models import Dlrm, DlrmConfig  # noqa: E402

VARIABLE = "LABKIT_DLRM"
TOUR = Shape(DlrmConfig(13, SYNTHETIC["synthetic"].num_rows, **get_preset("dlrm", "tour").model))
POOLED = replace(SHAPES["benchmark"], model=replace(SHAPES["benchmark"].model, num_rows=(250_000,) * 8))
"""The preset `benchmark` with a quarter of the rows: all at once and their gradients take 5 GB, and not 15"""
CASES = {"tour": (TOUR, 512, 40), "small": (SHAPES["small"], 2048, 25), "pooled": (POOLED, 2048, 12)}
"""A shape, its batch size and how many turns"""
CHECKED_STEPS = 3


class Way(NamedTuple):
    """One implementation of the model."""

    prepare: Callable[[Batch], Any]
    """A batch in its own layout"""
    step: Callable[[Any], Tensor]
    """A training step, which returns the loss"""


def reference_way(shape: Shape, weights: Dlrm, checkout: Path) -> Way:
    """The step of facebookresearch/dlrm's training loop, with SGD."""
    sys.path.append(str(checkout))
    sys.modules.setdefault("torch.utils.tensorboard", SimpleNamespace(SummaryWriter=None))  # imported, not used
    with redirect_stdout(StringIO()):  # it says which of its optional imports are missing
        theirs = importlib.import_module("dlrm_s_pytorch")
    config, features = shape.model, shape.model.num_tables + 1
    top = [config.embedding_dim + features * (features - 1) // 2, *config.top_mlp]
    model = theirs.DLRM_Net(
        config.embedding_dim,
        np.array(config.num_rows),
        np.array([config.dense_dim, *config.bottom_mlp]),
        np.array(top),
        arch_interaction_op="dot",
        sigmoid_top=len(top) - 2,
    )
    _copy(weights.tables.table_weights(), [bag.weight for bag in model.emb_l])
    _copy(weights.bottom.parameters(), model.bot_l.parameters())
    _copy(weights.top.parameters(), model.top_l.parameters())
    theirs.dlrm, theirs.args = model, SimpleNamespace(loss_function="bce")  # globals of its script
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    scheduler = theirs.LRPolicyScheduler(optimizer, 0, 0, 0)

    def prepare(batch: Batch) -> tuple:
        dense, categorical, label = batch
        offsets = torch.arange(len(label)).mul(shape.pooling_factor).repeat(config.num_tables, 1)  # (F, B)
        indices = [categorical[:, table].flatten().long() for table in range(config.num_tables)]
        return dense, offsets, indices, label.unsqueeze(1)

    def step(batch: tuple) -> Tensor:
        dense, offsets, indices, label = batch
        loss = theirs.loss_fn_wrap(theirs.dlrm_wrap(dense, offsets, indices, False, CPU), label, False, CPU)
        value = loss.detach()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        return value

    return Way(prepare, step)


def torchrec_way(shape: Shape, weights: Dlrm | None = None) -> Way:
    """TorchRec's DLRM, unsharded: its tables are then plain `nn.EmbeddingBag`s with dense gradients."""
    from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, KeyedJaggedTensor
    from torchrec.models.dlrm import DLRM

    config = shape.model
    names = [f"c{table}" for table in range(config.num_tables)]
    tables = [
        EmbeddingBagConfig(
            name=f"t{name}", embedding_dim=config.embedding_dim, num_embeddings=rows, feature_names=[name]
        )
        for name, rows in zip(names, config.num_rows, strict=True)
    ]
    bags = EmbeddingBagCollection(tables=tables)
    model = DLRM(bags, config.dense_dim, [*config.bottom_mlp], [*config.top_mlp])
    if weights is not None:
        _copy(weights.tables.table_weights(), [bags.embedding_bags[f"t{name}"].weight for name in names])
        _copy(weights.bottom.parameters(), model.dense_arch.parameters())
        first, *others = weights.top.parameters()
        _copy([first[:, _upper_pairs(config)], *others], model.over_arch.parameters())
    optimiser = torch.optim.SGD(model.parameters(), lr=LR)

    def prepare(batch: Batch) -> tuple:
        dense, categorical, label = batch
        lengths = torch.full((config.num_tables * len(label),), shape.pooling_factor, dtype=torch.int32)
        values = categorical.transpose(0, 1).flatten().long()
        return dense, KeyedJaggedTensor(keys=names, values=values, lengths=lengths), label

    def step(batch: tuple) -> Tensor:
        dense, categorical, label = batch
        optimiser.zero_grad()
        loss = F.binary_cross_entropy_with_logits(model(dense, categorical).squeeze(1), label)
        loss.backward()
        optimiser.step()
        return loss.detach()

    return Way(prepare, step)


def _upper_pairs(config: DlrmConfig) -> list[int]:
    """Columns of our top MLP's first layer in TorchRec's order: pairs of features by the smaller one first."""
    count = config.num_tables + 1
    first, second = torch.triu_indices(count, count, offset=1)
    pairs = second * (second - 1) // 2 + first
    return [*range(config.embedding_dim), *(config.embedding_dim + pairs).tolist()]


@torch.no_grad()
def _copy(sources, targets) -> None:
    for source, target in zip(sources, targets, strict=True):
        target.copy_(source)


def kit_way(shape: Shape, weights: Dlrm, kernels: str, precision: str = "fp32") -> Way:
    model, step = stepper(shape.model, kernels=kernels)
    _copy(weights.tables.table_weights(), model.tables.table_weights())
    for mine, given in ((model.bottom, weights.bottom), (model.top, weights.top)):
        _copy(given.parameters(), mine.parameters())
    return Way(lambda batch: batch, lambda batch: step(batch, precision))


def refuse_other_losses(case: str, ways: dict[str, Way], batch: Batch) -> None:
    """All take the same steps on one batch and must find the same losses."""
    losses = {name: [float(way.step(way.prepare(batch))) for _ in range(CHECKED_STEPS)] for name, way in ways.items()}
    (first, expected), *others = losses.items()
    for name, found in others:
        # sums in another order, and bf16 with 8 bits of mantissa
        if not np.allclose(found, expected, rtol=2e-2 if "bf16" in name else 1e-4):
            raise SystemExit(f"{case}: {name} has losses {found}, and {first} {expected}: not the same model")
    print(f"{case}: losses of {CHECKED_STEPS} steps agree: {', '.join(f'{loss:.5f}' for loss in expected)}", flush=True)


def measure(case: str, checkout: Path) -> list[Ratio]:
    shape, batch_size, turns = CASES[case]
    torch.manual_seed(0)
    np.random.seed(0)
    batches, weights = [made_up_batch(shape, batch_size) for _ in range(4)], Dlrm(shape.model)
    ways = {"facebookresearch/dlrm": reference_way(shape, weights, checkout)}
    ways |= {"TorchRec, unsharded": torchrec_way(shape, weights), "labkit, plain": kit_way(shape, weights, "plain")}
    ways |= {f"labkit, fast, {each}": kit_way(shape, weights, "fast", each) for each in precisions()}
    del weights
    refuse_other_losses(case, ways, batches[0])

    def stepping(way: Way) -> Callable[[], object]:
        own = cycle([way.prepare(batch) for batch in batches])
        return lambda: way.step(next(own))

    taken = in_turn({name: stepping(way) for name, way in ways.items()}, turns=turns)
    taken = {name: [1000 * each for each in seconds] for name, seconds in taken.items()}
    return [
        paired(f"step, {case}, batch {batch_size}", way, base, taken[way], taken[base], unit="ms")
        for base in ("facebookresearch/dlrm", "TorchRec, unsharded")
        for way in taken
        if way != base
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), help="these; then nothing is written")
    args = parser.parse_args()
    checkout = Path(os.environ.get(VARIABLE, ""))
    if not (checkout / "dlrm_s_pytorch.py").is_file():
        raise SystemExit(f"{VARIABLE} names no checkout of facebookresearch/dlrm: clone it, and set {VARIABLE} to it.")
    if importlib.util.find_spec("torchrec") is None:
        raise SystemExit(f"TorchRec is not installed in {PEERS}: run `make bench-peers` first.")
    keep_memory()  # as runs of labkit do
    ratios = []
    for case in args.only:
        ratios += measure(case, checkout)
        gc.collect()
    versions = {name: importlib.metadata.version(name) for name in ("torchrec", "fbgemm-gpu-cpu")}
    head = subprocess.run(["git", "-C", checkout, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    versions["facebookresearch/dlrm"] = head.stdout.strip() or "no git checkout"
    report("same_model", ratios, write=args.only == list(CASES), peers=versions)


if __name__ == "__main__":
    main()

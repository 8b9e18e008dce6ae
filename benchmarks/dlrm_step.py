"""How much faster a DLRM training step is than a textbook's: `python benchmarks/dlrm_step.py`.

Both start from the same weights and see the same batches of uniform random rows, which are the hardest on caches.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import dataclass
from itertools import cycle

import numpy as np
import torch
from measuring import Ratio, in_turn, report, speed_ups
from textbook_dlrm import TextbookDlrm, textbook_optimiser, textbook_step

from labkit.compiled import why_not_compiled
from labkit.fast.models import fast_dlrm, fast_speech
from labkit.models.dlrm import Dlrm, DlrmConfig
from labkit.training.clicks_job import ClicksJob
from labkit.training.config import TrainConfig
from labkit.training.step import StepKind, TrainStep
from labkit.training.step_choice import bf16_speedup

CAPS = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "NUMBA_CPU_NAME": "haswell",
    "NUMBA_CPU_FEATURES": "",
}
"""What torch, its libraries and numba read; Haswell was the first with AVX2."""
CPU = torch.device("cpu")
LR = 0.01


@dataclass(frozen=True)
class Shape:
    """A model and what a bag holds."""

    model: DlrmConfig
    pooling_factor: int = 1


SHAPES = {
    "small": Shape(
        DlrmConfig(
            dense_dim=13,
            num_rows=tuple(int(rows) for rows in np.geomspace(10_000, 100_000, 26)),
            embedding_dim=16,
            bottom_mlp=(512, 256, 64, 16),
            top_mlp=(512, 256, 1),
        )
    ),
    "benchmark": Shape(
        DlrmConfig(
            dense_dim=512,
            num_rows=(1_000_000,) * 8,
            embedding_dim=64,
            bottom_mlp=(512, 64),
            top_mlp=(1024, 1024, 1024, 1),
        ),
        pooling_factor=100,
    ),
}
OPTIMISERS = ["sgd", "adagrad", "rowwise-adagrad"]
CASES = [
    (name, batch, optimiser)
    for name, batch in (("small", 2048), ("small", 128), ("benchmark", 2048))
    for optimiser in OPTIMISERS
]


class StepJob:
    """As much of a `ClicksJob` as a step needs."""

    sparse_parameters = ClicksJob.sparse_parameters
    loss = ClicksJob.loss

    def __init__(self, model: Dlrm, batch: tuple[torch.Tensor, ...] | None = None):
        """Hold a model, and the batch to try kinds of step on."""
        self.model, self._batch = model, batch

    def batches(self, epoch: int, start: int):
        yield self._batch, len(self._batch[-1])

    def num_batches(self, epoch: int) -> int:
        return 1


def made_up_batch(shape: Shape, batch_size: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """dense (B, dense_dim), categorical int32 (B, F, L), label (B,)."""
    columns = [torch.randint(rows, (batch_size, 1, shape.pooling_factor)) for rows in shape.model.num_rows]
    dense = torch.randn(batch_size, shape.model.dense_dim)
    return dense, torch.cat(columns, 1).int(), (torch.rand(batch_size) < 0.25).float()


def kinds() -> list[StepKind]:
    """The kinds of step worth timing here."""
    precisions = ["fp32", *(["bf16"] if bf16_speedup(CPU) >= 1 else [])]
    tables = (False,) if why_not_compiled() else (False, True)
    return [StepKind(name, compiled) for name in precisions for compiled in tables]


def measure(name: str, batch_size: int, optimiser: str, *, seconds: float) -> list[Ratio]:
    """Time a step of the textbook and of each kind of ours, in turn, for about so many seconds."""
    shape = SHAPES[name]
    torch.manual_seed(0)
    batches = [made_up_batch(shape, batch_size) for _ in range(4)]
    ways = {}
    textbook = TextbookDlrm(shape.model)
    optimisers = textbook_optimiser(textbook, optimiser, LR)
    split = cycle(
        [(dense, [bags.long() for bags in categorical.unbind(1)], label) for dense, categorical, label in batches]
    )
    ways["textbook"] = lambda: textbook_step(textbook, optimisers, next(split))
    for kind in kinds():
        model = fast_dlrm(shape.model)
        if not ways.keys() - {"textbook"}:
            textbook.take_weights(model)
        step = TrainStep(StepJob(model), TrainConfig(optimiser=optimiser, lr=LR), kind, CPU)
        ways[str(kind)] = _stepper(step, cycle(batches))
    once = in_turn(ways, turns=1, warm_up=1)
    turns = max(3, min(60, int(seconds / sum(times[0] for times in once.values()))))
    taken = in_turn(ways, turns=turns, warm_up=0)
    return speed_ups(f"DLRM step {name}, batch {batch_size}, {optimiser}", taken, base="textbook")


def _stepper(step: TrainStep, batches):
    return lambda: step(next(batches), 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=6, help="of timed steps for each case (6)")
    parser.add_argument("--isa", choices=("avx2",), help="cap the instruction sets, to stand in for such a machine")
    parser.add_argument("--optimisers", nargs="+", choices=OPTIMISERS, default=OPTIMISERS, help="these only")
    parser.add_argument("--only", default="", help="cases whose name holds this, such as small; nothing is written")
    args = parser.parse_args()
    if args.seconds <= 0:
        parser.error("--seconds: give a number above 0")
    cases = [case for case in CASES if args.only in " ".join(map(str, case)) and case[2] in args.optimisers]
    if not cases:
        parser.error(f"no case holds {args.only!r}: there are {', '.join(' '.join(map(str, case)) for case in CASES)}")
    if args.isa and not CAPS.items() <= os.environ.items():  # they are read when torch starts
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | CAPS)
    ratios = [ratio for case in cases for ratio in measure(*case, seconds=args.seconds)]
    report("dlrm_step" + (f"_{args.isa}" if args.isa else ""), ratios, write=not args.only)


if __name__ == "__main__":
    main()

"""How much faster a DLRM training step of the fast kernels is than the plain one: `python benchmarks/dlrm_step.py`.

Both are the job's own step (`labkit/jobs/dlrm.py`), from the same weights and on the same batches of uniform random
rows. Beside each fast step stands the least it could take: its arithmetic, at the speed of matrix products in its
precision in the same turns, or its table rows, whichever is longer. `LABKIT_COMPILED=0` measures it without numba.
"""

import argparse
import os
import sys
from functools import partial
from itertools import cycle
from statistics import median

import torch
from dlrm_shapes import CPU, DTYPES, SHAPES, made_up_batch, precisions, rows_ms, step_flops, stepper
from measuring import Ratio, in_turn, report, speed_ups

from labkit.compiled import why_not_compiled
from labkit.hardware import keep_memory, matmul_gflops

CAPS = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "NUMBA_CPU_NAME": "haswell",
    "NUMBA_CPU_FEATURES": "",
}
"""What torch, its libraries and numba read; Haswell was the first with AVX2."""
OPTIMISERS = ["sgd", "adagrad", "rowwise-adagrad"]
CASES = [
    (name, batch, optimiser)
    for name, batch in (("small", 2048), ("small", 128), ("benchmark", 2048))
    for optimiser in OPTIMISERS
]


def measure(name: str, batch_size: int, optimiser: str, *, seconds: float) -> list[Ratio]:
    """Time the plain step, the fast one in each precision, and products, in turn, for about so many seconds."""
    shape = SHAPES[name]
    torch.manual_seed(0)
    batches = [made_up_batch(shape, batch_size) for _ in range(4)]
    ways, speeds, rows = {}, {precision: [] for precision in precisions()}, 0.0
    for kernels, precision in (("plain", "fp32"), *(("fast", each) for each in speeds)):
        torch.manual_seed(0)
        model, step = stepper(shape.model, optimiser, kernels=kernels)
        ways[f"{kernels}, {precision}"] = partial(
            lambda step, own, precision: step(next(own), precision), step, cycle(batches), precision
        )
        if kernels == "fast":
            rows = rows or rows_ms(shape, batch_size, model.tables.weight.detach())
            ways[precision] = partial(lambda own, dtype: own.append(matmul_gflops(CPU, dtype, repeats=3)),
                                      speeds[precision], DTYPES[precision])  # fmt: skip
    once = in_turn(ways, turns=1, warm_up=1)
    turns = max(3, min(60, int(seconds / sum(times[0] for times in once.values()))))
    taken = in_turn(ways, turns=turns, warm_up=0)
    ratios = []
    for precision, gflops in speeds.items():
        step_ms = [1000 * each for each in taken[f"fast, {precision}"]]
        arithmetic_ms = [step_flops(shape.model, batch_size) / each / 1e6 for each in gflops[-turns:]]
        share = median(max(rows, least) / took for least, took in zip(arithmetic_ms, step_ms, strict=True))
        limit = "arithmetic allows" if median(arithmetic_ms) >= rows else "table rows allow"
        of_both = {way: taken[way] for way in ("plain, fp32", f"fast, {precision}")}
        what, note = f"DLRM step {name}, batch {batch_size}, {optimiser}", f"at {share:.0%} of what its {limit}"
        ratios += speed_ups(what, of_both, base="plain, fp32", note=note)
    return ratios


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
    keep_memory()  # as runs of labkit do
    ratios = [ratio for case in cases for ratio in measure(*case, seconds=args.seconds)]
    name = "_".join(["dlrm_step", *([args.isa] if args.isa else []), *(["no_numba"] if why_not_compiled() else [])])
    report(name, ratios, write=not args.only)


if __name__ == "__main__":
    main()

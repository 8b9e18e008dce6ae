"""How near three estimates of a job's memory come to what it takes: `python benchmarks/memory_estimates.py`.

Every preset, three batch sizes each, fp32 and bf16, tables updated by torch and by the compiled kernels; each job is
measured in processes of its own. Half an hour on two cores; peaks of 4.5 GB.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator

import pandas as pd
from measuring import write_result

from labkit.collocation.memory.score import score
from labkit.training.request import TrainRequest

BATCHES = {
    ("dlrm", "tour", "synthetic"): (128, 512, 8192),
    ("dlrm", "kaggle", "synthetic"): (128, 2048, 16384),
    ("dlrm", "terabyte", "synthetic"): (512, 2048, 16384),
    ("dlrm", "mlperf-v1", "synthetic"): (512, 2048, 16384),
    ("dlrm", "benchmark", "synthetic-benchmark"): (512, 2048, 8192),
    ("speech", "tour", "shipped"): (8, 32, 128),
    ("speech", "budget-m5", "shipped"): (8, 32, 96),
}
"""Of each preset and the data that it is tried on."""


def requests(models: list[str]) -> Iterator[TrainRequest]:
    """Every job of the grid."""
    for (job, preset, data), sizes in BATCHES.items():
        if f"{job}:{preset}" not in models:
            continue
        for batch_size in sizes:
            for precision in ("fp32", "bf16"):
                for compiled in (False, True) if job == "dlrm" else (False,):
                    yield TrainRequest(
                        job, data, preset=preset, batch_size=batch_size, precision=precision, compiled_tables=compiled
                    )


def main() -> None:
    names = [f"{job}:{preset}" for job, preset, _ in BATCHES]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=names, default=names, help="these only, and write no result")
    parser.add_argument("--steps", type=int, default=2, help="that each job is measured for (2)")
    args = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    parts = []
    for request in requests(args.models):
        parts.append(score([request], args.steps))
        print(parts[-1].to_string(index=False, header=len(parts) == 1), flush=True)
    rows = pd.concat(parts, ignore_index=True)
    worst = rows.assign(miss=rows["error_%"].abs()).groupby("method")["miss"].agg(["median", "max"]).round(2)
    print(worst)
    if args.models == names:
        write_result("memory_estimates", worst=worst.T.to_dict(), rows=rows.round(2).to_dict("records"))


if __name__ == "__main__":
    main()

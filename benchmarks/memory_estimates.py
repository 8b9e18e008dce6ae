"""How near a job's first steps, and three formulas, come to its memory: `python benchmarks/memory_estimates.py`.

The process: every preset is tried for its first steps as a plan tries it, then trained for up to two epochs or minutes.
The tensors: with plain kernels, two batch sizes, fp32 and bf16, every allocation of a few steps is counted beside what
is predicted of them. An hour on two cores; peaks of 4 GB.
"""

import argparse
import tempfile
from typing import Any

import pandas as pd
from measuring import write_result
from memory_formulas import METHODS, score

from labkit.jobs import job_command
from labkit.launch import watch
from labkit.sharing import GROWTH_BYTES, first_steps_bytes

JOBS = [
    ("dlrm", {"preset": "tour", "data": "synthetic"}, (512, 8192)),
    ("dlrm", {"preset": "kaggle", "data": "synthetic"}, (128, 16384)),
    ("dlrm", {"preset": "terabyte", "data": "synthetic"}, (2048, 16384)),
    ("dlrm", {"preset": "mlperf-v1", "data": "synthetic"}, (2048, 16384)),
    ("dlrm", {"preset": "benchmark", "data": "synthetic-benchmark"}, (2048, 8192)),
    ("speech", {"preset": "tour", "data": "shipped"}, (8, 32)),
    ("speech", {"preset": "budget-m5", "data": "shipped"}, (8, 32)),
]
"""Of each preset the data that it is tried on, and batch sizes; its own is what the process is measured with, but for
budget-m5, which would take hours."""
WHOLE_RUN = {"target": "none", "max_epochs": 2, "max_seconds": 120}


def process(job: str, settings: dict[str, Any]) -> dict[str, Any]:
    """What a job's first steps tell beside the peak of a run."""
    settings = settings | WHOLE_RUN | {"precision": "fp32"}
    first = first_steps_bytes(job_command(job, **settings), "cpu")
    with tempfile.TemporaryDirectory() as folder:
        result = watch(job, folder, evaluations=False, device="cpu", **settings)["result"]
    peak = result["peak_memory_bytes"]
    row = {"model": job, "preset": settings["preset"], "first_steps": first, "need": first + GROWTH_BYTES}
    row |= {"measured": peak, "steps": result["steps"]}
    return row | {"error_%": 100 * (first / peak - 1), "need_error_%": 100 * ((first + GROWTH_BYTES) / peak - 1)}


def main() -> None:
    names = [f"{job}:{settings['preset']}" for job, settings, _ in JOBS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=names, default=names, help="these only, and write no result")
    args = parser.parse_args()
    processes, tensors = [], []
    for job, settings, sizes in JOBS:
        if f"{job}:{settings['preset']}" not in args.models:
            continue
        own = {"batch_size": sizes[0]} if settings["preset"] == "budget-m5" else {}
        processes.append(process(job, settings | own))
        print(pd.DataFrame(processes[-1:]).round(1).to_string(index=False), flush=True)
        for batch_size in sizes:
            for precision in ("fp32", "bf16"):
                plain = {"batch_size": batch_size, "precision": precision, "kernels": "plain"}
                tensors.append(score([(job, settings | plain)]))
                print(tensors[-1].round(1).to_string(index=False), flush=True)
    rows = pd.concat(tensors, ignore_index=True)
    rows = rows[rows["method"].isin(METHODS)]
    worst = rows.assign(miss=rows["error_%"].abs()).pivot_table(
        index=["model", "preset"], columns="method", values="miss", aggfunc="max", sort=False
    )
    print(worst.round(0))
    if args.models == names:
        write_result(
            "memory_estimates",
            processes=pd.DataFrame(processes).round(2).to_dict("records"),
            worst=worst.round(1).reset_index().to_dict("records"),
            rows=rows.round(2).to_dict("records"),
        )


if __name__ == "__main__":
    main()

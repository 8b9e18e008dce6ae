"""Measures the collocation grid of this machine: collocation_grid.json, in about a quarter of an hour.

Copies of jobs, and mixes of them, share the device in several ways, beside the same jobs alone in the same session;
every round runs three times, the repeats interleaved. After *An Analysis of Collocation on GPUs for Deep Learning
Training* (Robroek et al., arXiv 2209.06018): on a GPU 1, 2, 3 and 7 copies of a small, a medium and a large job under
naive and MPS (collocation_grid_gpu.json; theirs has MIG, too), on a CPU 1, 2 and 4 of two small ones, shared and
pinned.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from labkit.hardware import find_device, get_devices, package_versions, read_cpu
from labkit.launch import Mix, Workload, parse_jobs, with_baseline, with_seconds
from labkit.runs import Provenance
from labkit.sharing import collocate, verdict

HERE = Path(__file__).parent
CPU_MIXES = {
    "dlrm-1": "dlrm:tour",
    "dlrm-2": "dlrm:tour x2",
    "dlrm-4": "dlrm:tour x4",
    "speech-1": "speech:tour",
    "speech-2": "speech:tour x2",
    "speech-4": "speech:tour x4",
    "mix-2": "dlrm:tour, speech:tour",
    "mix-4": "dlrm:tour x2, speech:tour x2",
}
CPU_MODES = ("cpu-shared", "cpu-pinned")
SIZES = {
    "small": "dlrm:tour",
    "medium": "dlrm:benchmark[data=synthetic]",
    "large": "speech:budget-m5",
}
GPU_MIXES = {
    **{f"{size}-{copies}": f"{job} x{copies}" for size, job in SIZES.items() for copies in (1, 2, 3, 7)},
    "mix-3": ", ".join(SIZES.values()),
}
GPU_MODES = ("naive", "mps")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each round (6)")
    parser.add_argument("--repeats", type=int, default=3, help="of each round (3)")
    parser.add_argument("--runs-dir", type=Path, help="keep the runs here (a temporary folder)")
    parser.add_argument("--device", default="cpu", help="cpu, or a GPU's number or UUID (cpu)")
    args = parser.parse_args()
    mixes, modes = (CPU_MIXES, CPU_MODES) if args.device == "cpu" else (GPU_MIXES, GPU_MODES)
    workloads = tuple(
        Workload(f"{name}-{mode}", mode, tuple(parse_jobs(jobs))) for name, jobs in mixes.items() for mode in modes
    )
    plan = Mix("grid", workloads, device=args.device, repeats=args.repeats)
    with tempfile.TemporaryDirectory() as temporary:
        group = collocate(with_baseline(with_seconds(plan, args.seconds), "one"), args.runs_dir or Path(temporary))
        found = verdict(group)
    cpu, device = read_cpu(), find_device(args.device, get_devices())
    content = {
        "provenance": vars(Provenance.now("recorded", note="by make_collocation_grid.py")),
        "machine": {
            "device": device.name,
            "cpu": cpu.model,
            "cores": cpu.available_cores,
            "packages": package_versions(),
        },
        "seconds": args.seconds,
        "modes": json.loads(found.modes.to_json(orient="records", double_precision=6)),
        "slowdowns": json.loads(found.slowdowns.to_json(orient="records", double_precision=6)),
    }
    name = "collocation_grid.json" if args.device == "cpu" else "collocation_grid_gpu.json"
    (HERE / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(found.modes[["mix", "mode", "gain", "gain_low", "gain_high", "slowdown", "fairness"]].round(2).to_string())


if __name__ == "__main__":
    main()

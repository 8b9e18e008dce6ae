"""Measures the collocation grid of this machine's CPU: collocation_grid.json, in about a quarter of an hour.

Copies of two small jobs, and mixes of them, share the cores in every way that a CPU has, beside the same jobs alone in
the same session; every round runs three times, the repeats interleaved. After *An Analysis of Collocation on GPUs for
Deep Learning Training* (Robroek et al., arXiv 2209.06018), whose grid is 1, 2, 3 and 7 copies on a GPU.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from labkit.collocation.collocate import collocate
from labkit.collocation.plan.plan import Plan, Workload
from labkit.collocation.plan.short_form import parse_jobs
from labkit.collocation.plan.variants import with_baseline, with_seconds
from labkit.collocation.verdict.verdict import verdict
from labkit.hardware.cpu import read_cpu
from labkit.hardware.software import package_versions
from labkit.runs import Provenance

HERE = Path(__file__).parent
MIXES = {
    "dlrm-1": "dlrm:tour",
    "dlrm-2": "dlrm:tour x2",
    "dlrm-4": "dlrm:tour x4",
    "speech-1": "speech:tour",
    "speech-2": "speech:tour x2",
    "speech-4": "speech:tour x4",
    "mix-2": "dlrm:tour, speech:tour",
    "mix-4": "dlrm:tour x2, speech:tour x2",
}
MODES = ("cpu-shared", "cpu-pinned")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=6.0, help="of each round (6)")
    parser.add_argument("--repeats", type=int, default=3, help="of each round (3)")
    parser.add_argument("--runs-dir", type=Path, help="keep the runs here (a temporary folder)")
    args = parser.parse_args()
    workloads = tuple(
        Workload(f"{name}-{mode}", mode, tuple(parse_jobs(jobs))) for name, jobs in MIXES.items() for mode in MODES
    )
    plan = Plan("grid", workloads, device="cpu", repeats=args.repeats)
    with tempfile.TemporaryDirectory() as temporary:
        group = collocate(with_baseline(with_seconds(plan, args.seconds), "one"), args.runs_dir or Path(temporary))
        found = verdict(group)
    cpu = read_cpu()
    content = {
        "provenance": vars(Provenance.now("recorded", note="by make_collocation_grid.py")),
        "machine": {"cpu": cpu.model, "cores": cpu.available_cores, "packages": package_versions()},
        "seconds": args.seconds,
        "modes": json.loads(found.modes.to_json(orient="records", double_precision=6)),
        "slowdowns": json.loads(found.slowdowns.to_json(orient="records", double_precision=6)),
    }
    (HERE / "collocation_grid.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(found.modes[["mix", "mode", "gain", "gain_low", "gain_high", "slowdown", "fairness"]].round(2).to_string())


if __name__ == "__main__":
    main()

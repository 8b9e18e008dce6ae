"""How long the list and the page of many runs take: `python benchmarks/many_runs.py`.

Run folders are made up with labkit's own writer: two jobs under three budgets, each run with its own seed and twelve
evaluations; one in ten diverges and one in ten is stopped by hand. Each way is timed in a process of its own, from its
first import; next to it, how long this machine takes to read and parse the same files and do nothing with them. With
`--before CHECKOUT` an older labkit does the same in turns.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
from measuring import write_result

from labkit.runs import Provenance, RunWriter

EVALUATIONS = 12
BUDGETS = {"one-core": 1.0, "all-cores": 1.7, "half": 1.3}
WAYS = {
    "list": """
from labkit.cli import main
assert main(["runs", "list", "--runs-dir", runs]) == 0
""",
    "read": """
import json, pyarrow.parquet
for folder in pathlib.Path(runs).iterdir():
    json.loads((folder / "run.json").read_text())
    [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    [pyarrow.parquet.read_table(part) for part in (folder / "metrics").iterdir()]
""",
    "report": """
from labkit.cli import main
assert main(["report", runs, "--out", runs + ".html"]) == 0
""",
}


def make_runs(runs_dir: Path, count: int) -> None:
    random = np.random.default_rng(0)
    for number in range(count):
        job, budget = ("dlrm", "speech")[number % 2], list(BUDGETS)[number // 2 % 3]
        metric, target = ("auc", 0.78) if job == "dlrm" else ("cer", 0.05)
        run = RunWriter.create(
            runs_dir,
            job,
            config={
                "job": job,
                "data": {"name": "made-up", "fingerprint": "0"},
                "train": {"target_metric": metric, "higher_is_better": job == "dlrm", "target": target, "lr": 0.1},
            },
            budget={"name": budget, "torch_name": "cpu"},
            tier="cloud-cpu-2",
            devices=[],
            seed=number,
            provenance=Provenance.now("emulated"),
            software={},
        )
        pace = random.lognormal(0, 0.2) / BUDGETS[budget]
        share = 1 - np.exp(-np.arange(1, EVALUATIONS + 1) / 5) + random.normal(0, 0.02, EVALUATIONS)
        values = 0.5 + 0.3 * share if job == "dlrm" else np.exp(-4 * share)
        ended_by = random.choice(["max_epochs", "diverged", "stopped"], p=[0.8, 0.1, 0.1])
        for at in range(EVALUATIONS if ended_by == "max_epochs" else int(random.integers(1, EVALUATIONS))):
            wall_s = pace * (at + 1)
            point = {"step": at, "samples": 1000 * (at + 1), "wall_s": wall_s, "train_s": 0.9 * wall_s}
            for name, value in ((metric, values[at]), ("log_loss", 1 - share[at]), ("loss", 1 - share[at])):
                run.metric(name=name, value=float(value), **point)
            run.event("evaluated", metric=metric, value=float(values[at]), metrics={metric: float(values[at])}, **point)
        status = {"max_epochs": "done", "diverged": "failed", "stopped": "stopped"}[ended_by]
        known = {"peak_memory_bytes": 2**30, "energy_j": None, "energy_note": "made up", "samples": point["samples"]}
        known |= {"wall_s": point["wall_s"], "train_s": point["train_s"]}
        run.finish(status, {"ended_by": ended_by, **known})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2000, help="how many (2000)")
    parser.add_argument("--turns", type=int, default=3, help="how many times each way is timed (3)")
    parser.add_argument("--before", type=Path, help="a checkout of an older labkit with its .venv")
    args = parser.parse_args()
    pythons = {"now": sys.executable} | ({"before": args.before / ".venv/bin/python"} if args.before else {})
    taken: dict[str, list[tuple[float, float]]] = {f"{way}, {when}": [] for way in WAYS for when in pythons}
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder) / "runs"
        make_runs(runs, args.runs)
        for _ in range(args.turns):
            for name, way in WAYS.items():
                for when, python in pythons.items():
                    program = f"import pathlib, sys\nruns = sys.argv[1]\n{way}"
                    began, used = time.perf_counter(), cpu_s()
                    subprocess.run(
                        [python, "-c", program, str(runs)], check=True, cwd=folder, stdout=subprocess.DEVNULL
                    )
                    taken[f"{name}, {when}"].append((time.perf_counter() - began, cpu_s() - used))
                    print(f"{name}, {when}: {taken[f'{name}, {when}'][-1]} s", flush=True)
        page = Path(f"{runs}.html").stat().st_size
    both = [{name: median(turn[place] for turn in each) for name, each in taken.items()} for place in (0, 1)]
    print(*map(json.dumps, both), sep="\n")
    name = "many_runs" if args.runs == 2000 else f"many_runs_{args.runs}"
    load = os.getloadavg()
    write_result(name, runs=args.runs, load=load, seconds=both[0], cpu_s=both[1], page_bytes=page)


def cpu_s() -> float:
    """Processor time of all programs that this process ran."""
    return sum(os.times()[2:4])


if __name__ == "__main__":
    main()

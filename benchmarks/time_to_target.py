"""How much sooner the tour's jobs reach their targets with fast kernels: `python benchmarks/time_to_target.py`.

Fast kernels, in the precision that `auto` is or another one, beside plain ones in fp32: two settings of one script,
paired by seed, in turn, each run a process of its own under a budget. Time counts from the first batch to the first
evaluation at the target, evaluations included. Samples to the target stand beside it: kernels that learn the same need
as many. A run that misses its target is named; instead of a ratio there is then the time to expect with restarts.
"""

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

from measuring import Ratio, paired, report

from labkit.launch import watch
from labkit.runs import read_events, read_run
from labkit.tracking import RunFailed

WAYS = {"plain": {"kernels": "plain", "precision": "fp32"}, "fast": {"kernels": "fast"}}
JOBS = ("dlrm", "speech")


def one_run(job: str, way: str, seed: int, budget: str, max_seconds: float) -> dict:
    """Train in a process of its own; what came of it, and where it first was at its target."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {"budget": budget, "seed": seed, "max_seconds": max_seconds, "evaluations": False}
        began = time.perf_counter()
        try:
            answer = watch(job, folder, **settings, **WAYS[way])
        except RunFailed as failure:
            answer = failure.answer
        process_s, result = time.perf_counter() - began, answer["result"]
        precision = read_run(Path(answer["folder"])).config["train"]["precision"]
        reached = next((each for each in read_events(answer["folder"]) if each["event"] == "target_reached"), {})
    to_target_s = reached.get("wall_s")
    said = f"MISSED its target ({result['reason']})" if to_target_s is None else f"target after {to_target_s:.2f} s"
    print(f"{job}, {way}, {precision}, seed {seed}: {said}; process {process_s:.1f} s", flush=True)
    found = {"job": job, "way": way, "precision": precision, "seed": seed, "ended_by": result["ended_by"]}
    found |= {"to_target_s": to_target_s, "trained_s": reached.get("train_s"), "samples": reached.get("samples")}
    return found | {"wall_s": result["wall_s"], "process_s": process_s, "best": result["best_validation"]}


def compared(job: str, runs: list[dict]) -> list[Ratio]:
    """The ratios of a job's paired runs; none where one has missed its target."""
    ways = {way: [run for run in runs if (run["job"], run["way"]) == (job, way)] for way in WAYS}
    of_fast = [run for run in ways["fast"] if run["to_target_s"] is not None]
    if of_fast:
        other = median(1 - run["trained_s"] / run["to_target_s"] for run in of_fast)
        print(f"{job}: {other:.0%} of the fast runs' time to the target is not training (median)")
    missed = False
    for way, own in ways.items():
        successes = sum(run["to_target_s"] is not None for run in own)
        if successes < len(own):
            missed = True
            spent_s = sum(run["to_target_s"] or run["wall_s"] for run in own)
            expected = f"{spent_s / successes:.1f} s to expect with restarts" if successes else "never there"
            print(f"{job}, {way}: {successes} of {len(own)} runs reached the target, {expected}")
    if missed:
        return []
    return [
        paired(f"{what} to the target, {job}", "fast", "plain",
               *([run[field] for run in ways[way]] for way in ("fast", "plain")), unit=unit)
        for what, field, unit in (("time", "to_target_s", "s"), ("samples", "samples", "samples"))
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--seeds", type=int, default=5, help="pairs of each job, at least 2 (5)")
    parser.add_argument("--budget", default="one-core")
    parser.add_argument("--precision", default="auto", help="of the fast runs: auto, fp32 or bf16 (auto)")
    parser.add_argument("--max-seconds", type=float, default=900, help="after which a run has missed its target (900)")
    args = parser.parse_args()
    if args.seeds < 2:
        parser.error("--seeds: an interval takes at least 2")
    WAYS["fast"]["precision"] = args.precision
    runs = []
    for seed in range(args.seeds):
        order = list(WAYS)[:: 1 if seed % 2 == 0 else -1]  # what drifts meets both alike
        runs += [one_run(job, way, seed, args.budget, args.max_seconds) for job in args.jobs for way in order]
    ratios = [ratio for job in args.jobs for ratio in compared(job, runs)]
    report("time_to_target", ratios, write=set(args.jobs) == set(JOBS), budget=args.budget, runs=runs)


if __name__ == "__main__":
    main()

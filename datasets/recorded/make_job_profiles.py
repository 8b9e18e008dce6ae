"""Makes job_profiles.json and queue_60.yaml: python datasets/recorded/make_job_profiles.py

Each job runs on this machine's CPU from its start to its end, alone and beside each of the others, by `labkit pack`'s
own executor. What other programs disturbed is run again. Nothing else should run meanwhile; it takes about a quarter of
an hour on two cores.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations_with_replacement
from pathlib import Path
from statistics import fmean

import numpy as np

from labkit.hardware import read_cpu
from labkit.json_data import to_json
from labkit.launch import PlannedJob, parse_jobs
from labkit.runs import Provenance, read_run
from labkit.sharing import (
    PROFILES_FILE,
    Attempt,
    JobProfile,
    QueuedJob,
    RecordedJob,
    RecordedPair,
    RecordedProfiles,
    cpu_admission,
    job_memory,
    live_devices,
    new_queue,
    run_queue,
    tracked_jobs,
)
from labkit.telemetry import Look, Samples
from labkit.tracking import StopRequest

HERE = Path(__file__).parent
USUAL = "target=none,precision=fp32"
"""The same work in every schedule: an end that time does not move, and a precision that neighbours do not decide."""
JOBS = {
    "clicks-small": ("light", f"dlrm:tour[{USUAL},data=synthetic-small,max_epochs=3]"),
    "speech-short": ("light", f"speech:tour[{USUAL},max_epochs=1]"),
    "clicks": ("medium", f"dlrm:tour[{USUAL},max_epochs=1]"),
    "clicks-4096": ("medium", f"dlrm:tour[{USUAL},max_epochs=1,batch_size=4096]"),
    "kaggle": ("medium", f"dlrm:kaggle[{USUAL},data=synthetic-small,max_epochs=2]"),
    "speech": ("heavy", f"speech:tour[{USUAL},max_epochs=4]"),
    "kaggle-16k": ("heavy", f"dlrm:kaggle[{USUAL},data=synthetic,max_epochs=1,batch_size=16384]"),
}
"""By name: weight, and the job in its short form."""
SEED, JOBS_IN_QUEUE, DEVICES = 60, 60, 2
"""Of queue_60.yaml"""
CARMA_MIX = {"light": 32 / 60, "medium": 22 / 60, "heavy": 6 / 60}
"""Shares of the first 60-task trace in CARMA's repository (philly_trace-t1.sh), as we count them: CIFAR-100 jobs are
light, transformers and Mask R-CNN heavy, the other models on large images and DLRM medium."""
CARMA_LOAD = 1.8
"""Work that arrives over what the devices can do one job at a time, of the same trace: jobs of 1,635 s on average (by
the times in CARMA's README, each counted on one GPU), one every 229 s, on 4 GPUs. Above 1, a queue grows unless jobs
share."""
TRIES = 5


def whole_runs(jobs: Sequence[PlannedJob], runs_dir: Path) -> list[tuple[Attempt, Path]]:
    """The attempt and the run folder of each job, all started at once; the least disturbed of some tries."""
    tried = []
    while not tried or (tried[-1][0]["disturbed"] and len(tried) < TRIES):
        live, look = live_devices(["cpu"]), Look()
        with StopRequest() as stop:
            queue = [QueuedJob(job, profile=JobProfile(1, 0.01)) for job in jobs]
            launches = new_queue(queue, live, "best-fit", runs_dir)
            run_queue(
                launches,
                live,
                on_event=lambda part, event: None,
                stop=stop,
                admission=cpu_admission(lambda profiles: [1.0] * len(profiles)),
            )
        others, attempts = look.others(), [job.attempts[-1] for job in tracked_jobs(launches)]
        for job, attempt in zip(jobs, attempts, strict=True):
            if attempt.ending != "done":
                raise SystemExit(f"{job.name}: {attempt.ending}: {attempt.reason}")
        tried.append((others, [(attempt, launches.folder / attempt.run) for attempt in attempts]))
    others, runs = min(tried, key=lambda each: each[0]["cpu_share"])
    spans = ", ".join(f"{job.name} {run.ends_s - run.starts_s:.1f} s" for job, (run, _) in zip(jobs, runs, strict=True))
    print(f"{spans}; other programs took {others['cpu_share']:.0%} of the cores", flush=True)
    return runs


def recorded_job(name: str, job: PlannedJob, repeats: int, runs_dir: Path) -> RecordedJob:
    """A job alone; others can only make a run longer, so the shortest counts."""
    runs = [whole_runs([job], runs_dir)[0] for _ in range(repeats)]
    cores = read_cpu().available_cores
    busy = [
        fmean(sample.value for sample in Samples(folder).of("process")["cpu_percent"] if sample.value is not None)
        for _, folder in runs
    ]
    profile = JobProfile(
        memory_estimate_bytes=job_memory(job, "cpu"),
        utilisation=min(1.0, fmean(busy) / 100 / cores),
        duration_s=min(attempt.ends_s - attempt.starts_s for attempt, _ in runs),
        memory_bytes=max(read_run(folder).result["peak_memory_bytes"] for _, folder in runs),
        like=name,
    )
    return RecordedJob(job, JOBS[name][0], profile)


def recorded_pair(pair: tuple[RecordedJob, RecordedJob], runs_dir: Path) -> RecordedPair:
    """Two jobs beside each other: what is left of the longer when the shorter has ended takes as long as alone."""
    one, other = pair
    runs = whole_runs([one.job, replace(other.job, name="other")], runs_dir)
    together_s = min(attempt.ends_s for attempt, _ in runs)
    slowdowns = []
    for each, (attempt, _) in zip(pair, runs, strict=True):
        done_s = each.profile.duration_s - (attempt.ends_s - together_s)
        slowdowns.append(round((together_s - attempt.starts_s) / done_s, 3))
    return RecordedPair((one.job.name, other.job.name), tuple(slowdowns))


def draw_queue(jobs: Sequence[RecordedJob]) -> list[tuple[RecordedJob, float]]:
    """Jobs and arrivals: a class by CARMA_MIX, a job of that class evenly, and Poisson arrivals for CARMA_LOAD."""
    random, shares = np.random.default_rng(SEED), np.array(list(CARMA_MIX.values()))
    kinds = {weight: [each for each in jobs if each.weight == weight] for weight in CARMA_MIX}
    classes = random.choice(list(CARMA_MIX), size=JOBS_IN_QUEUE, p=shares / shares.sum())
    drawn = [kinds[name][random.integers(len(kinds[name]))] for name in classes]
    gap_s = np.mean([each.profile.duration_s for each in drawn]) / (DEVICES * CARMA_LOAD)
    arrivals_s = np.concatenate([[0.0], np.cumsum(random.exponential(gap_s, size=JOBS_IN_QUEUE - 1))])
    return list(zip(drawn, arrivals_s, strict=True))


def queue_text(queue: Sequence[tuple[RecordedJob, float]]) -> str:
    """A queue file."""
    lines = [
        f"# {len(queue)} jobs drawn by make_job_profiles.py (seed {SEED}, arrivals for {DEVICES} devices) from",
        "# job_profiles.json. Replay it:",
        "#   labkit pack datasets/recorded/queue_60.yaml --simulate --compare",
        "jobs:",
    ]
    for number, (each, arrives_s) in enumerate(queue, start=1):
        told = each.job.job.settings()
        settings = "".join(f", {name}: {value}" for name, value in told.items() if name not in ("preset", "seed"))
        name = f"{each.job.name}-{number:02d}"
        lines.append(f'  - {{job: "{each.job.label}", name: {name}, arrives: {arrives_s:.1f}{settings}}}')
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS), help="these only")
    parser.add_argument("--repeats", type=int, default=2, help="runs of each job alone")
    parser.add_argument("--to", type=Path, default=HERE, help="folder of the two files")
    args = parser.parse_args()
    planned = {name: replace(parse_jobs(JOBS[name][1])[0], name=name, where="") for name in args.jobs}
    with tempfile.TemporaryDirectory(prefix="labkit-") as scratch:
        jobs = tuple(recorded_job(name, job, args.repeats, Path(scratch)) for name, job in planned.items())
        pairs = tuple(recorded_pair(pair, Path(scratch)) for pair in combinations_with_replacement(jobs, 2))
    cpu = read_cpu()
    note = f"whole runs on shared cores: each job alone, the shortest of {args.repeats}, and each pair"
    provenance = Provenance.now("recorded", note)
    recorded = RecordedProfiles(cpu.model, cpu.available_cores, cpu.memory_bytes, provenance, jobs, pairs)
    (args.to / PROFILES_FILE).write_text(json.dumps(to_json(recorded), indent=1) + "\n", encoding="utf-8")
    if args.jobs == list(JOBS):
        (args.to / "queue_60.yaml").write_text(queue_text(draw_queue(jobs)), encoding="utf-8")


if __name__ == "__main__":
    main()

"""Makes job_profiles.json and queue_60.yaml: python datasets/recorded/make_job_profiles.py

Each job is profiled alone, warm, on this machine's CPU (labkit.collocation.interference.alone), and run from its start
to its end by `labkit pack`'s own executor, one job after another. Nothing else should run meanwhile; it takes about
ten minutes on two cores.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from labkit.collocation.interference.alone import profile_alone
from labkit.collocation.interference.machine import Machine, measure_machine
from labkit.collocation.packing.generate import generate_queue
from labkit.collocation.packing.job_profile import JobProfile
from labkit.collocation.packing.live import run_queue
from labkit.collocation.packing.live_device import live_devices
from labkit.collocation.packing.policy import get_policy
from labkit.collocation.packing.queue_record import read_queue_record
from labkit.collocation.packing.queued_job import QueuedJob
from labkit.collocation.packing.recorded_profiles import (
    PROFILES_FILE,
    RecordedJob,
    RecordedProfiles,
    profile_from_solo,
)
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.collocation.plan.short_form import parse_jobs
from labkit.collocation.plan_check import job_memory
from labkit.hardware.cpu import read_cpu
from labkit.runs import Provenance, read_run
from labkit.tracking.stop import StopRequest

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


def whole_runs(jobs: Sequence[PlannedJob], repeats: int, runs_dir: Path) -> dict[str, list[tuple[float, int]]]:
    """Seconds and bytes of each run of each job, from its process' start to its end, one after another."""
    live = live_devices("cpu-shared", ["cpu"])
    queue = [QueuedJob(job, profile=JobProfile(2**30, 1.0)) for job in jobs]
    found: dict[str, list[tuple[float, int]]] = {job.name: [] for job in jobs}
    for _ in range(repeats):
        with StopRequest() as stop:
            folder = run_queue(
                queue,
                live,
                get_policy("exclusive"),
                mode="cpu-shared",
                runs_dir=runs_dir,
                on_event=lambda event: None,
                stop=stop,
            )
        for job in read_queue_record(folder).jobs:
            attempt = job.attempts[-1]
            if attempt.ending != "done":
                raise SystemExit(f"{job.name}: {attempt.ending}: {attempt.reason}")
            peak_bytes = read_run(folder / attempt.run).result["peak_memory_bytes"]
            found[job.name].append((attempt.ends_s - attempt.starts_s, peak_bytes))
    return found


def recorded_jobs(machine: Machine, seconds: float, repeats: int, runs_dir: Path) -> list[RecordedJob]:
    """All of JOBS, profiled."""
    planned = {name: replace(parse_jobs(job)[0], name=name, where="") for name, (_, job) in JOBS.items()}
    runs = whole_runs(list(planned.values()), repeats, runs_dir)
    recorded = []
    for name, job in planned.items():
        solo = profile_alone(replace(job, device="cpu"), seconds, machine=machine)
        profile = profile_from_solo(
            replace(solo, provenance="recorded"),
            # others can only make a run longer
            min(duration_s for duration_s, _ in runs[name]),
            job_memory(job, "cpu"),
        )
        profile = replace(profile, memory_bytes=max(peak_bytes for _, peak_bytes in runs[name]))
        recorded.append(RecordedJob(job, JOBS[name][0], profile))
        print(
            f"{name:<14} {profile.duration_s:6.1f} s  {profile.memory_bytes / 2**20:6.0f} MiB (estimated "
            f"{profile.memory_estimate_bytes / 2**20:.0f})  {profile.utilisation:.0%} of the cores  runs: "
            f"{', '.join(f'{duration_s:.1f}' for duration_s, _ in runs[name])} s",
            flush=True,
        )
    return recorded


def queue_text(queue: Sequence[QueuedJob], recorded: RecordedProfiles) -> str:
    """A queue file of jobs drawn from what was recorded."""
    lines = [
        f"# {len(queue)} jobs drawn by labkit.collocation.packing.generate (seed {SEED}, arrivals for {DEVICES} "
        "devices) from",
        "# job_profiles.json, by make_job_profiles.py. Replay it:",
        "#   labkit pack datasets/recorded/queue_60.yaml --simulate --compare",
        "profiles:",
    ]
    for each in recorded.jobs:
        profile = each.profile
        lines.append(
            f"  {each.job.name}: {{duration: {profile.duration_s:.2f}, memory: {profile.memory_bytes >> 20}MiB, "
            f"estimate: {profile.memory_estimate_bytes >> 20}MiB, utilisation: {profile.utilisation:.3f}, "
            f"provenance: recorded, note: on {recorded.machine.cores} cores}}"
        )
    lines.append("jobs:")
    for queued in queue:
        job = queued.job
        flags = dict(zip(job.arguments[::2], job.arguments[1::2], strict=True))
        told = {name.removeprefix("--").replace("-", "_"): value for name, value in flags.items()}
        settings = "".join(f", {name}: {value}" for name, value in told.items() if name not in ("preset", "seed"))
        kind = job.name.rsplit("-", 1)[0]
        lines.append(
            f'  - {{job: "{job.label}", name: {job.name}, arrives: {queued.arrives_s:.1f}, profile: {kind}{settings}}}'
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=9.0, help="of steps that are timed for each job")
    parser.add_argument("--repeats", type=int, default=3, help="whole runs of each job; the shortest counts")
    parser.add_argument("--to", type=Path, default=HERE, help="folder of the two files")
    args = parser.parse_args()
    machine = measure_machine()
    with tempfile.TemporaryDirectory(prefix="labkit-") as scratch:
        jobs = recorded_jobs(machine, args.seconds, args.repeats, Path(scratch))
    note = f"each job alone: the steps of {args.seconds:g} s, the shortest of {args.repeats} whole runs"
    provenance = Provenance.now("recorded", note)
    recorded = RecordedProfiles(machine, read_cpu().memory_bytes, provenance, tuple(jobs))
    recorded.save(args.to / PROFILES_FILE)
    queue = generate_queue(recorded.kinds(), n=JOBS_IN_QUEUE, seed=SEED, devices=DEVICES)
    (args.to / "queue_60.yaml").write_text(queue_text(queue, recorded), encoding="utf-8")


if __name__ == "__main__":
    main()

"""`python killed.py sweep|mix|queue PATH COUNT`: makes a list of light runs, or goes on with it, to be killed.

PATH is a sweep's file, or the folder for a mix or queue of COUNT runs.
"""

import sys
from pathlib import Path

from labkit import sharing
from labkit.hardware import cpu_device
from labkit.jobs import ScriptJob
from labkit.launch import Launches, Mix, PlannedJob, Workload, engine, opened, read_sweep_file, run_sweep
from labkit.tracking import StopRequest

DEVICE = sharing.LiveDevice(sharing.PackingDevice("cpu", 2**33), sharing.Share("all cores"), cpu_device())


def jobs(folder: Path, count: int) -> list[PlannedJob]:
    return [
        PlannedJob(f"j{n}", ScriptJob(str(folder / "train.py"), ("--takes", "0.1", "--x", str(n))))
        for n in range(count)
    ]


def sweep(file: Path, _: int, stop: StopRequest) -> None:
    with opened(read_sweep_file(file), file.parent / "runs") as progress:
        run_sweep(progress, lambda part, event: None, stop)


def mix(folder: Path, count: int, stop: StopRequest) -> None:
    if found := Launches.folders(folder / "runs", "mix"):
        return sharing.resume_mix(Launches.read(found[0]), lambda part, event: None, stop)
    workloads = Workload("w", "alone", tuple(jobs(folder, count))), Workload("w", "cpu-shared", tuple(jobs(folder, 2)))
    made = sharing.new_mix(Mix("m", workloads, device="cpu"), folder / "runs", needs={}, quiet=True)
    return sharing.run_mix(made, lambda part, event: None, stop)


def queue(folder: Path, count: int, stop: StopRequest) -> None:
    ways = {"on_event": lambda part, event: None, "stop": stop}
    if found := Launches.folders(folder / "runs", "queue"):
        return sharing.resume_queue(Launches.read(found[0]), [DEVICE], **ways)
    queued = [sharing.QueuedJob(job, profile=sharing.JobProfile(2**32, 0.2)) for job in jobs(folder, count)]
    return sharing.run_queue(sharing.new_queue(queued, [DEVICE], "best-fit", folder / "runs"), [DEVICE], **ways)


if __name__ == "__main__":
    engine.WORKER = "light_run"
    kind, path, count = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    with StopRequest() as asked:
        {"sweep": sweep, "mix": mix, "queue": queue}[kind](path, count, asked)

"""What is a job's own and what belongs to all: counters written by hand into the runs of a group."""

from hand_made_group import HandMadeGroup, Told, even

from labkit.collocation.plan.plan import Workload
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.collocation.verdict.advice import not_attributed
from labkit.collocation.verdict.group_frames import job_table

JOBS = (PlannedJob("a", "dlrm"), PlannedJob("b", "dlrm"))
GPU = [{"torch_name": "cuda:0", "kind": "gpu", "uuid": "GPU-1"}]
OF_CPU = [
    ("host", "process", "cpu_percent", 90.0, "% of a core", None),
    ("host", "process", "memory_resident", 5e8, "bytes", None),
]


def told_of(tmp_path, mode, counters, devices=()):
    """What is said of a round of both jobs, with these counters each."""
    group = HandMadeGroup(tmp_path / mode, (Workload("w", mode, JOBS),), devices=devices)
    told = {job.name: Told(even(10, 10.0), ends_s=10.0, counters=counters) for job in JOBS}
    group.round("w", mode, 0, told)
    return not_attributed(job_table(group.save()))


def test_on_a_cpu_processes_are_told_apart(tmp_path):
    assert told_of(tmp_path, "cpu-shared", OF_CPU) == ""
    assert told_of(tmp_path, "cpu-pinned", OF_CPU[:1]).endswith("but of all that the device did: memory.")


def test_where_the_driver_has_no_share_of_the_job_the_verdict_says_so(tmp_path):
    counters = [
        *OF_CPU,
        ("GPU-1", "process", "sm_utilisation", None, "%", "not supported on this GPU"),
        ("GPU-1", "process", "memory_used", 2e9, "bytes", None),
        ("GPU-1", "device", "sm_active", 60.0, "%", None),
        ("GPU-1", "device", "power", 300.0, "W", None),
    ]
    assert told_of(tmp_path, "naive", counters, GPU) == (
        "In mode naive, no job's own, but of all that the device did: multiprocessors' time (not supported on this "
        "GPU), multiprocessors' activity, multiprocessors' occupancy, GPU memory's traffic, power."
    )
    of_slice = [("MIG-1", "mig", "sm_active", 70.0, "%", None)]
    told = told_of(tmp_path, "mig", [*OF_CPU, *of_slice], GPU)
    assert "multiprocessors' time" not in told and "activity" not in told and "power" in told

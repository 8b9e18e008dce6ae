"""What is a job's own and what belongs to all: counters written by hand into the runs of a group."""

import numpy as np
from hand_made_group import HandMadeGroup, Told, even

from labkit.collocation.plan.plan import Workload
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.collocation.verdict.attribution import attribution, not_attributed
from labkit.collocation.verdict.group_frames import job_table

JOBS = (PlannedJob("a", "dlrm"), PlannedJob("b", "dlrm"))
GPU = [{"torch_name": "cuda:0", "kind": "gpu", "uuid": "GPU-1"}]
SLICE = [{"torch_name": "cuda:0", "kind": "mig", "uuid": "MIG-1", "mig_parent_uuid": "GPU-1"}]
CPU_TIME = ("host", "process", "cpu_percent", 90.0, "% of a core", None)


def attributed(tmp_path, mode, counters, devices=()):
    """Both jobs of a round, with these counters each."""
    group = HandMadeGroup(tmp_path / "g", (Workload("w", mode, JOBS),), devices=devices)
    told = {job.name: Told(even(10, 10.0), ends_s=10.0, counters=counters) for job in JOBS}
    group.round("w", mode, 0, told)
    table = attribution(job_table(group.save()))
    return table[table["job"] == "a"].set_index("what"), table


def test_on_a_cpu_processes_are_told_apart(tmp_path):
    memory = ("host", "process", "memory_resident", 5e8, "bytes", None)
    own, table = attributed(tmp_path, "cpu-shared", [CPU_TIME, memory])
    assert list(own["mean"]) == [90.0, 5e8] and list(own["unit"]) == ["% of a core", "bytes"]
    assert table["own"].all() and not_attributed(table) == ""


def test_where_the_driver_has_no_share_of_the_job_the_device_is_not_divided(tmp_path):
    counters = [
        CPU_TIME,
        ("GPU-1", "process", "sm_utilisation", None, "%", "not supported on this GPU"),
        ("GPU-1", "process", "memory_used", 2e9, "bytes", None),
        ("GPU-1", "device", "sm_active", 60.0, "%", None),
        ("GPU-1", "device", "power", 300.0, "W", None),
        ("GPU-2", "device", "power", 900.0, "W", None),
    ]
    own, table = attributed(tmp_path, "naive", counters, GPU)
    memory, time = own.loc["GPU memory"], own.loc["multiprocessors' time"]
    assert (memory["mean"], memory["scope"], memory["own"]) == (2e9, "process", True)
    assert (time["mean"], time["counter"], time["scope"], time["own"]) == (60.0, "sm_active", "device", False)
    assert time["note"] == "of the whole GPU, which 2 jobs shared; not supported on this GPU"
    assert own.loc["power", "mean"] == 300 and not own.loc["power", "own"]
    words = not_attributed(table)
    assert "In mode naive, no job's own: multiprocessors' time (of the whole GPU, which 2 jobs shared; not" in words
    assert "power (of the whole GPU, which 2 jobs shared)" in words


def test_a_share_of_the_job_comes_before_the_device(tmp_path):
    counters = [
        ("GPU-1", "process", "sm_utilisation", 40.0, "%", None),
        ("GPU-1", "device", "sm_active", 60.0, "%", None),
    ]
    own, _ = attributed(tmp_path, "mps", counters, GPU)
    assert own.loc["multiprocessors' time", ["mean", "own"]].to_list() == [40.0, True]


def test_a_slice_of_its_own_is_the_jobs(tmp_path):
    group = HandMadeGroup(tmp_path / "g", (Workload("w", "alone", JOBS[:1]),), devices=SLICE)
    counters = [("MIG-1", "mig", "sm_active", 70.0, "%", None), ("GPU-1", "device", "power", 300.0, "W", None)]
    group.round("w", "alone", 0, {"a": Told(even(10, 10.0), ends_s=10.0, counters=counters)})
    own = attribution(job_table(group.save())).set_index("what")
    time = own.loc["multiprocessors' time"]
    assert (time["scope"], time["mean"], time["own"]) == ("mig", 70.0, True)
    assert time["note"].startswith("of the slice, which no other job of the round used")


def test_what_was_not_sampled_is_null_with_the_reason(tmp_path):
    own, table = attributed(tmp_path, "naive", [CPU_TIME], GPU)
    assert np.isnan(own.loc["power", "mean"])
    assert own.loc["power", "note"] == "no such counter was found"
    assert len(table) == len(table.drop_duplicates(["job", "scope", "counter"]))


def test_samples_of_other_times_do_not_count(tmp_path):
    group = HandMadeGroup(tmp_path / "g", (Workload("w", "cpu-shared", JOBS[:1]),))
    group.round("w", "cpu-shared", 0, {"a": Told(even(10, 0.5), ends_s=0.5, counters=[CPU_TIME])})  # ended before it
    (cpu, *_) = attribution(job_table(group.save())).itertuples()
    assert np.isnan(cpu.mean) and not cpu.own

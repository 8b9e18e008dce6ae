"""A queue really runs: placed as the scheduler says, without a barrier, with one recovery, stopped at a word."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import light_job
import numpy as np
import psutil
import pytest
from queues import GIB

from labkit.hardware import cpu_device
from labkit.sharing.launching.job import worker_process
from labkit.sharing.modes.place import Share
from labkit.sharing.packing import queue_run
from labkit.sharing.packing.live_device import LiveDevice
from labkit.sharing.packing.policy import PackingDevice, get_policy
from labkit.sharing.packing.queue import JobProfile, QueuedJob
from labkit.sharing.packing.queue_run import QueueRecord, run_queue
from labkit.sharing.plan.planned_job import PlannedJob
from labkit.tracking import StopRequest

DEVICE = LiveDevice(PackingDevice("cpu", 8 * GIB), Share("all cores"), cpu_device())


def job(name, *words, arrives_s=0.0) -> QueuedJob:
    return QueuedJob(PlannedJob(name, light_job.__file__, words), arrives_s, JobProfile(GIB // 50, 0.2, 2.0))


@pytest.fixture
def started(monkeypatch):
    """What was started, without torch: the script itself speaks the protocol."""
    processes = []

    def light(*arguments):
        processes.append(replace(worker_process(*arguments), module="light_job", environment=light_job.PATH))
        return processes[-1]

    monkeypatch.setattr(queue_run, "worker_process", light)
    return processes


def run(queue, tmp_path, policy="best-fit", *, stop=None, on_event=lambda event: None):
    """What became of it."""
    ways = {"runs_dir": tmp_path / "runs", "on_event": on_event, "stop": StopRequest() if stop is None else stop}
    return QueueRecord.read(run_queue(queue, [DEVICE], get_policy(policy), **ways))


def endings(record):
    return {job.name: [attempt.ending for attempt in job.attempts] for job in record.jobs}


def apart(one, other) -> bool:
    return one.ends_s <= other.starts_s or other.ends_s <= one.starts_s


def test_jobs_share_without_a_barrier_and_exclusive_takes_turns(tmp_path, started):
    # a can end only beside b, and b gets ready only when a has gone: a barrier, or turns, would wait for ever
    shared = [
        job("a", f"touch={tmp_path / 'a'}", f"wait={tmp_path / 'b'}"),
        job("b", f"await={tmp_path / 'a'}", f"touch={tmp_path / 'b'}"),
    ]
    record = run(shared, tmp_path)
    assert record.status == "done"
    assert endings(record) == {"a": ["done"], "b": ["done"]}
    assert [job.attempts[0].run for job in record.jobs] == ["run-of-a", "run-of-b"]
    assert not apart(*[job.attempts[0] for job in record.jobs])

    record = run([job(name) for name in "cde"], tmp_path, "exclusive")
    attempts = [job.attempts[0] for job in record.jobs]
    assert all(apart(one, other) for one in attempts for other in attempts if one is not other)
    totals = record.schedule.totals
    assert totals["done"] == 3 and totals["makespan_s"] >= attempts[-1].ends_s - attempts[0].starts_s
    assert np.isnan(totals["energy_j"]) == ("measured" not in totals["energy_note"])


def test_who_ran_out_of_memory_runs_again_alone_and_only_once(tmp_path, started):
    queue = [
        job("beside", f"wait={tmp_path / 'full'}"),
        job("greedy", f"greedy={tmp_path / 'full'}"),
        job("hopeless", "always-greedy"),
        job("wrong", "fails"),
        job("killed", f"killed={tmp_path / 'once'}"),
    ]
    record = run(queue, tmp_path)
    assert endings(record) == {
        "beside": ["done"],
        "greedy": ["out of memory", "done"],
        "hopeless": ["out of memory", "out of memory"],
        "wrong": ["failed"],
        "killed": ["out of memory", "done"],
    }
    assert [job.status for job in record.jobs] == ["done", "done", "failed", "failed", "done"]
    assert record.status == "failed"
    attempts = [attempt for job in record.jobs for attempt in job.attempts]
    for again in (attempt for attempt in attempts if attempt.number == 2):
        assert again.alone
        assert all(apart(again, other) for other in attempts if other is not again), "it was to run alone"
    assert len({process.log for process in started}) == len(started), "a log an attempt"


def test_a_stopped_queue_ends_what_runs_and_starts_nothing_more(tmp_path, started):
    stop = StopRequest()

    def ask(event):
        if event.job == "long" and event.event["kind"] == "Ready":
            stop.request("SIGINT")

    queue = [
        job("first", f"touch={tmp_path / 'first'}"),
        job("long", f"await={tmp_path / 'first'}", "stays"),
        job("later", f"touch={tmp_path / 'later'}", arrives_s=1000),
    ]
    record = run(queue, tmp_path, stop=stop, on_event=ask)
    assert record.status == "stopped"
    assert endings(record) == {"first": ["done"], "long": ["stopped"], "later": []}
    assert [job.status for job in record.jobs] == ["done", "stopped", "expected"]
    assert record.jobs[1].attempts[0].reason == "stopped by SIGINT"


def test_a_killed_supervisor_stops_the_queue(tmp_path, started):
    def kill(event):
        if event.event["kind"] == "Ready":
            for child in psutil.Process().children():
                # the second job to be ready finds a supervisor that is dead already
                with contextlib.suppress(psutil.Error):
                    if "labkit.process.supervisor" in child.cmdline():
                        child.kill()

    record = run([job(name, f"wait={tmp_path / 'go'}") for name in "ab"], tmp_path, on_event=kill)
    assert record.status == "stopped"
    assert {ending for each in endings(record).values() for ending in each} == {"stopped"}
    assert "the supervisor of the jobs ended" in record.jobs[0].attempts[0].reason

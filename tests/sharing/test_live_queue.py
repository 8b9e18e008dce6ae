"""A queue really runs: placed as the scheduler says, without a barrier, with one recovery, stopped at a word."""

import os

import light_job
import numpy as np
import pytest
from queues import GIB

from labkit.hardware import cpu_device
from labkit.jobs import ScriptJob
from labkit.launch import Launches, PlannedJob, engine
from labkit.sharing import (
    JobProfile,
    LiveDevice,
    PackingDevice,
    QueuedJob,
    Share,
    new_queue,
    resume_queue,
    run_queue,
    schedule_in,
    tracked_jobs,
)
from labkit.tracking import StopRequest

DEVICE = LiveDevice(PackingDevice("cpu", 8 * GIB), Share("all cores"), cpu_device())


def job(name, *words, arrives_s=0.0) -> QueuedJob:
    return QueuedJob(PlannedJob(name, ScriptJob(light_job.__file__, words)), arrives_s, JobProfile(GIB // 50, 0.2, 2.0))


@pytest.fixture(autouse=True)
def light(monkeypatch):
    """Processes without torch: the script itself speaks the protocol."""
    monkeypatch.setattr(engine, "WORKER", "light_job")
    paths = [os.path.dirname(light_job.__file__), *filter(None, [os.environ.get("PYTHONPATH")])]  # noqa: PTH120
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))


def run(queue, tmp_path, policy="best-fit", *, stop=None, on_event=lambda part, event: None) -> Launches:
    """What became of it."""
    launches = new_queue(queue, [DEVICE], policy, tmp_path / "runs")
    run_queue(launches, [DEVICE], on_event=on_event, stop=StopRequest() if stop is None else stop)
    return Launches.read(launches.folder)


def endings(launches):
    return {job.name: [attempt.ending for attempt in job.attempts] for job in tracked_jobs(launches)}


def apart(one, other) -> bool:
    return one.ends_s <= other.starts_s or other.ends_s <= one.starts_s


def test_jobs_share_without_a_barrier_and_exclusive_takes_turns(tmp_path):
    # a can end only next to b, and b gets ready only when a has gone: a barrier, or turns, would wait indefinitely
    shared = [
        job("a", f"touch={tmp_path / 'a'}", f"wait={tmp_path / 'b'}"),
        job("b", f"await={tmp_path / 'a'}", f"touch={tmp_path / 'b'}"),
    ]
    record = run(shared, tmp_path)
    assert record.head.status == "done"
    assert endings(record) == {"a": ["done"], "b": ["done"]}
    assert [job.attempts[0].run for job in tracked_jobs(record)] == ["run-of-a", "run-of-b"]
    assert not apart(*[job.attempts[0] for job in tracked_jobs(record)])

    record = run([job(name) for name in "cde"], tmp_path, "exclusive")
    attempts = [job.attempts[0] for job in tracked_jobs(record)]
    assert all(apart(one, other) for one in attempts for other in attempts if one is not other)
    totals = schedule_in(record).totals
    assert totals["done"] == 3 and totals["makespan_s"] >= attempts[-1].ends_s - attempts[0].starts_s
    assert np.isnan(totals["energy_j"]) == ("measured" not in totals["energy_note"])


def test_who_ran_out_of_memory_runs_again_alone_and_only_once(tmp_path):
    queue = [
        job("neighbour", f"wait={tmp_path / 'full'}"),
        job("greedy", f"greedy={tmp_path / 'full'}"),
        job("hopeless", "always-greedy"),
        job("wrong", "fails"),
        job("killed", f"killed={tmp_path / 'once'}"),
    ]
    record = run(queue, tmp_path)
    assert endings(record) == {
        "neighbour": ["done"],
        "greedy": ["out of memory", "done"],
        "hopeless": ["out of memory", "out of memory"],
        "wrong": ["failed"],
        "killed": ["out of memory", "done"],
    }
    assert [job.status for job in tracked_jobs(record)] == ["done", "done", "failed", "failed", "done"]
    assert record.head.status == "failed"
    attempts = [attempt for job in tracked_jobs(record) for attempt in job.attempts]
    for again in (attempt for attempt in attempts if attempt.number == 2):
        assert again.alone
        assert all(apart(again, other) for other in attempts if other is not again), "it was to run alone"
    assert len(list((record.folder / "logs").iterdir())) == len(attempts), "one log per attempt"


def test_a_stopped_queue_ends_what_runs_and_starts_nothing_more(tmp_path):
    stop = StopRequest()

    def ask(part, event):
        if part.name == "long" and event["kind"] == "Ready":
            stop.request("SIGINT")

    queue = [
        job("first", f"touch={tmp_path / 'first'}"),
        job("long", f"await={tmp_path / 'first'}", "stays"),
        job("later", f"touch={tmp_path / 'later'}", arrives_s=1000),
    ]
    record = run(queue, tmp_path, stop=stop, on_event=ask)
    assert record.head.status == "stopped"
    assert endings(record) == {"first": ["done"], "long": ["stopped"], "later": []}
    assert [job.status for job in tracked_jobs(record)] == ["done", "stopped", "queued"]
    assert tracked_jobs(record)[1].attempts[0].reason == "stopped by SIGINT"


def test_a_queue_goes_on_with_what_has_not_ended(tmp_path):
    stop = StopRequest()

    def ask(part, event):
        if part.name == "long" and event["kind"] == "Ready":
            stop.request("SIGINT")

    queue = [job("wrong", "fails"), job("first", f"touch={tmp_path / 'first'}"), job("later", arrives_s=0.5)]
    queue.insert(2, job("long", f"await={tmp_path / 'first'}", f"wait={tmp_path / 'go'}"))
    launches = run(queue, tmp_path, "exclusive", stop=stop, on_event=ask)
    before = tracked_jobs(launches)
    (tmp_path / "go").touch()
    # as earlier versions wrote it of a job that had not arrived
    launches.parts["later"].more = {"status": "expected", "queued_s": 0.0, "overtaken": 0, "attempts": []}
    resume_queue(launches, [DEVICE], on_event=lambda part, event: None, stop=StopRequest())
    record = Launches.read(launches.folder)
    assert endings(record) == {"wrong": ["failed"], "first": ["done"], "long": ["stopped", "done"], "later": ["done"]}
    assert tracked_jobs(record)[:2] == before[:2] and record.head.status == "failed"
    stopped, again = tracked_jobs(record)[2].attempts
    assert again.starts_s >= stopped.ends_s, "seconds go on where they stopped"

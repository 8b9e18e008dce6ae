"""A queue really runs: placed as the scheduler says, without a barrier, with one recovery, stopped at a word."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import light_job
import psutil
import pytest
from queues import GIB

from labkit.collocation.launching.worker_process import worker_process
from labkit.collocation.modes.place import Share
from labkit.collocation.packing import queue_run
from labkit.collocation.packing.live_device import LiveDevice, Monitor
from labkit.collocation.packing.policy import PackingDevice, get_policy
from labkit.collocation.packing.queue import JobProfile, QueuedJob
from labkit.collocation.packing.queue_run import read_queue_record, run_queue
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.hardware.devices import cpu_device
from labkit.tracking.stop import StopRequest

FREE = [{"monitored_free_bytes": 8 * GIB}]


class FixedMonitor:
    """Tells what it is told to, look by look; the last goes on."""

    def __init__(self, looks=(FREE,), at_the_end=None):
        self.looks, self.at_the_end = list(looks), at_the_end

    def __call__(self, devices):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass

    def look(self):
        if len(self.looks) == 1 and self.at_the_end is not None:
            self.at_the_end.touch()
        return self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]

    def energy_j(self):
        return None, "nobody counts"


DEVICE = LiveDevice(PackingDevice("cpu", 8 * GIB), Share("all cores"), cpu_device())


def job(name, *words, gib=1.0, utilisation=0.2, arrives_s=0.0) -> QueuedJob:
    planned = PlannedJob(name, light_job.__file__, words)
    return QueuedJob(planned, arrives_s, JobProfile(int(gib * GIB), utilisation, 2.0))


@pytest.fixture
def started(monkeypatch):
    """What was started, without torch: the script itself speaks the protocol."""
    processes = []

    def light(*arguments):
        processes.append(replace(worker_process(*arguments), module="light_job", environment=light_job.PATH))
        return processes[-1]

    monkeypatch.setattr(queue_run, "worker_process", light)
    return processes


def run(queue, tmp_path, policy="best-fit", *, monitor=None, stop=None, on_event=None):
    """What became of it."""
    folder = run_queue(
        queue,
        [DEVICE],
        get_policy(policy),
        runs_dir=tmp_path / "runs",
        on_event=on_event or (lambda event: None),
        stop=StopRequest() if stop is None else stop,
        monitor=monitor or FixedMonitor(),
    )
    return read_queue_record(folder)


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
    assert not apart(record.jobs[0].attempts[0], record.jobs[1].attempts[0])

    record = run([job(name, f"touch={tmp_path / name}") for name in "cde"], tmp_path, "exclusive")
    attempts = [job.attempts[0] for job in record.jobs]
    assert record.status == "done"
    assert all(apart(one, other) for one in attempts for other in attempts if one is not other)
    found = record.schedule
    assert found.totals["done"] == 3 and found.totals["makespan_s"] >= attempts[-1].ends_s - attempts[0].starts_s
    assert found.totals["energy_note"] == "nobody counts"
    assert list(found.attempts["ending"]) == ["done"] * 3


def test_who_ran_out_of_memory_runs_again_alone_and_only_once(tmp_path, started):
    queue = [
        job("beside", f"wait={tmp_path / 'full'}"),
        job("greedy", f"greedy={tmp_path / 'full'}"),
        job("hopeless", "always-greedy"),
        job("wrong", "fails"),
    ]
    record = run(queue, tmp_path)
    assert endings(record) == {
        "beside": ["done"],
        "greedy": ["out of memory", "done"],
        "hopeless": ["out of memory", "out of memory"],
        "wrong": ["failed"],
    }
    assert {job.name: job.status for job in record.jobs if job.status != "done"} == dict.fromkeys(
        ("hopeless", "wrong"), "failed"
    )
    assert record.status == "failed"
    attempts = [attempt for job in record.jobs for attempt in job.attempts]
    for again in (attempt for attempt in attempts if attempt.number == 2):
        assert again.alone
        assert all(apart(again, other) for other in attempts if other is not again), "it was to run alone"
    assert len({process.log for process in started}) == len(started), "a log an attempt"


@pytest.mark.parametrize(("free_gib", "ends"), [(0.1, ["out of memory", "done"]), (4.0, ["failed"])])
def test_a_kill_counts_as_out_of_memory_only_where_memory_was_full(tmp_path, started, free_gib, ends):
    # the second reading comes while it runs, and lets it die
    monitor = FixedMonitor([FREE, [{"monitored_free_bytes": free_gib * GIB}], FREE], tmp_path / "looked")
    queue = [job("victim", f"wait={tmp_path / 'looked'}", f"killed={tmp_path / 'once'}")]
    record = run(queue, tmp_path, monitor=monitor)
    assert endings(record) == {"victim": ends}
    assert "SIGKILL" in record.jobs[0].attempts[0].reason


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


def test_this_machine_can_be_looked_at():
    with Monitor([DEVICE]) as monitor:
        (look,) = monitor.look()
        joules, note = monitor.energy_j()
    assert 0 < look["monitored_free_bytes"] <= psutil.virtual_memory().total
    assert (joules is None) == ("measured" not in note)

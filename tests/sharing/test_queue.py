"""A queue: its file, what recorded jobs and pairs fill in, and how it really runs."""

import json
import os
import re
import time
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace

import light_job
import numpy as np
import pytest
from queues import GIB, devices, profile

from labkit.errors import UserError
from labkit.hardware import JETSON, cpu_device
from labkit.jobs import DlrmJob, ScriptJob, SpeechJob
from labkit.json_data import to_json
from labkit.launch import Launches, PlannedJob, engine
from labkit.project import shipped_datasets
from labkit.runs import Provenance
from labkit.sharing import (
    JobProfile,
    LiveDevice,
    PackingDevice,
    QueuedJob,
    Share,
    check_queue,
    live_queue,
    new_queue,
    predict,
    read_queue,
    resume_queue,
    run_queue,
    schedule_in,
    tracked_jobs,
)
from labkit.sharing.live_queue import _Meter
from labkit.sharing.queue import (
    QUEUE_EXAMPLE,
    RecordedJob,
    RecordedPair,
    RecordedProfiles,
    read_recorded,
    shared_slowdown,
    slowdown_by_utilisation,
)
from labkit.telemetry.counters import Reading
from labkit.tracking import StopRequest


def queue_of(tmp_path, text: str):
    (tmp_path / "QUEUE.yaml").write_text(text)
    return read_queue(tmp_path / "QUEUE.yaml")


def faults_of(tmp_path, text: str) -> list[str]:
    with pytest.raises(UserError) as refused:
        queue_of(tmp_path, text)
    return str(refused.value).splitlines()


def test_a_row_says_what_the_job_is_when_it_comes_and_what_it_asks_for(tmp_path):
    first, *rest = queue_of(
        tmp_path,
        """
jobs:
  - {job: "dlrm:tour", arrives: 30, duration: 60, memory: 2GiB, utilisation: 0.4}
  - &pair
    job: dlrm
    lr: 0.1
    memory: 1.5GiB
    utilisation: 0.3
    copies: 2
  - {<<: *pair, lr: 0.2, copies: 1, arrives: 1e1}
  - {job: speech, name: own, memory: 1GiB}
""",
    )
    assert (first.job.label, first.arrives_s) == ("dlrm:tour", 30)
    assert first.profile == JobProfile(2 * GIB, 0.4, 60, 2 * GIB)
    assert first.job.where.endswith("QUEUE.yaml, line 3")
    assert [each.job.label for each in rest] == ["dlrm:tour"] * 3 + ["speech:tour"]
    assert len({each.name for each in [first, *rest]}) == 5
    assert [each.profile for each in rest[:3]] == [JobProfile(3 * GIB // 2, 0.3, None, 3 * GIB // 2)] * 3
    assert [each.job.job.lr for each in rest[:3]] == [0.1, 0.1, 0.2]
    assert rest[3].name == "own"
    assert rest[3].profile is None, "a cap alone says nothing of how busy the job is"
    assert [each.arrives_s for each in rest] == [0, 0, 10, 0]
    (tmp_path / "train.py").touch()
    assert len(queue_of(tmp_path, QUEUE_EXAMPLE)) == 4


def test_all_rows_are_checked_and_each_fault_is_one_line_with_its_fix(tmp_path):
    head, *faults = faults_of(
        tmp_path,
        """jbos: []
jobs:
  - {job: dlrm, arrives: soon}
  - {job: dlrm, arrives: -1}
  - {job: dlrm, duration: 10}
  - {job: dlrm, memory: 1GiB, utilisation: 40}
  - {job: dlrm, memory: lots, utilisation: 0.1}
  - job: dlrm
    priority: 3
  - {job: dlmr, memory: 1GiB}
  - {job: dlrm, memory: 1GiB, utilisation: 0.5, duration: 0}
""",
    )
    expected = {
        "line 1": "field 'jbos': it is unknown",
        "line 3": "field 'arrives': 'soon' is not a number",
        "line 4": "field 'arrives': '-1' is not a number of seconds from 0",
        "line 5": "there is no memory and no utilisation of the job alone: write it",
        "line 6": "field 'utilisation': '40' is not a share of the device above 0 and up to 1",
        "line 7": "field 'memory': 'lots' is not a size",
        "line 9": "field 'priority': it is unknown",
        "line 10": "job 'dlmr' is unknown: did you mean 'dlrm'?",
        "line 11": "field 'duration': '0' is not a number of seconds above zero",
    }
    assert f"{len(expected)} errors" in head
    by_line = {re.search(r"line \d+", fault)[0]: fault for fault in faults}
    assert by_line.keys() == expected.keys()
    assert not {place: fault for place, fault in by_line.items() if expected[place] not in fault}


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "has no fields"), ("{a: 3}", "there is no job in it"), ("jobs: 3", "this must be a list")],
)
def test_a_file_that_is_no_queue_is_refused(tmp_path, text, message):
    assert message in "\n".join(faults_of(tmp_path, text))


KNOWN = PlannedJob("known", DlrmJob(batch_size=64))
PROFILE = JobProfile(GIB, 0.9, 30.0, GIB, like="known")
OTHER = replace(PROFILE, like="other")
RECORDED = RecordedProfiles(
    "a CPU",
    4,
    8 * GIB,
    Provenance("recorded", "a test", "2026-01-01"),
    (RecordedJob(KNOWN, "light", PROFILE),),
    (RecordedPair(("known", "known"), (1.2, 1.2)), RecordedPair(("known", "other"), (1.1, 1.5))),
)


def test_what_a_row_says_counts_before_what_was_recorded_and_that_before_what_is_assumed():
    own = JobProfile(3 * GIB, 0.4)
    rows = [
        QueuedJob(replace(KNOWN, name="own"), 0.0, own),
        QueuedJob(replace(KNOWN, name="recorded", seed=3)),
        QueuedJob(PlannedJob("other", SpeechJob())),
        QueuedJob(PlannedJob("other-2", SpeechJob())),
    ]
    estimated = []

    def estimate(job, kind):
        estimated.append(job.name)
        return GIB

    found = check_queue(rows, devices(2, 4), estimate, RECORDED)
    assert not any(row.why_not for row in found)
    said, recorded, assumed, _ = (row.queued.profile for row in found)
    assert said == replace(own, like="known")
    # times and true memory are the other machine's
    assert recorded == replace(PROFILE, duration_s=None, memory_bytes=None)
    assert (assumed.utilisation, assumed.duration_s) == (1.0, None)
    assert [row.fits for row in found] == [("gpu-1",), *[("gpu-0", "gpu-1")] * 3]
    assert found[0].source == "needs by the queue, busy by the queue"
    assert found[1].source == "needs by its first steps, busy recorded on a CPU"
    assert estimated == ["recorded", "other"], "jobs that are alike are estimated once"
    filled = RECORDED.fill([QueuedJob(replace(KNOWN, memory_bytes=2 * GIB)), rows[0]])
    assert [each.profile for each in filled] == [replace(PROFILE, memory_estimate_bytes=2 * GIB), said]


def test_slowdowns_are_those_of_recorded_pairs_where_all_were_measured():
    slowdown = shared_slowdown(RECORDED)
    assert slowdown([PROFILE]) == [1.0]
    assert slowdown([OTHER, PROFILE]) == [1.5, 1.1]
    # three do no more together than pairs: 3/2 times the mean of a job's pairs
    assert slowdown([PROFILE, PROFILE, OTHER]) == pytest.approx([1.5 * 1.15, 1.5 * 1.15, 1.5 * 1.5])
    unknown = [PROFILE, profile(1, 0.9)]
    assert slowdown(unknown) == slowdown_by_utilisation(unknown)


def test_four_jobs_do_in_the_recorded_mixes_what_their_pairs_say():
    grid = json.loads((shipped_datasets() / "recorded" / "collocation_grid.json").read_text())["slowdowns"]
    d, s = "dlrm:tour", "speech:tour"

    def recorded(mode, mix, job):
        return fmean(row["slowdown"] for row in grid if (row["mode"], row["mix"], row["label"]) == (mode, mix, job))

    for mode in ("cpu-shared", "cpu-pinned"):
        of_pair = tuple(recorded(mode, f"{d} + {s}", one) for one in (d, s))
        pairs = [RecordedPair((one, one), (recorded(mode, f"2 × {one}", one),) * 2) for one in (d, s)]
        slowdown = shared_slowdown(replace(RECORDED, pairs=(*pairs, RecordedPair((d, s), of_pair))))
        for job, mix in ((d, f"4 × {d}"), (s, f"4 × {s}")):
            assert slowdown([replace(PROFILE, like=job)] * 4) == pytest.approx([recorded(mode, mix, job)] * 4, rel=0.12)
        found = slowdown([replace(PROFILE, like=job) for job in (d, d, s, s)])
        assert found[1:3] == pytest.approx([recorded(mode, f"2 × {d} + 2 × {s}", one) for one in (d, s)], rel=0.12)


def test_recorded_profiles_are_read_as_they_were_written(tmp_path):
    path = tmp_path / "profiles.json"
    path.write_text(json.dumps(to_json(RECORDED)))
    assert read_recorded(path) == RECORDED
    path.write_text(path.read_text().replace('"pairs"', '"peers"'))
    with pytest.raises(UserError, match=r"profiles\.json: this file is damaged"):
        read_recorded(path)


def test_the_shipped_queues_are_of_recorded_jobs_and_packing_gains():
    recorded, folder = read_recorded(), shipped_datasets() / "recorded"
    assert recorded.provenance.kind == "recorded"
    queue = recorded.fill(read_queue(folder / "queue_60.yaml"))
    assert len(queue) == 60 and all(job.profile.like for job in queue)
    eight = read_queue(folder / "queue_8.yaml")
    alone, packed = (predict(eight, name, memory_bytes=2 * GIB).totals for name in ("exclusive", "best-fit"))
    assert packed["ooms"] == 0 and packed["makespan_s"] < alone["makespan_s"]
    assert alone["makespan_s"] == pytest.approx(sum(recorded.of(job.job).duration_s for job in eight))
    with pytest.raises(UserError, match="memory and utilisation of job a are unknown"):
        predict([QueuedJob(PlannedJob("a", ScriptJob("a.py")))], "best-fit", memory_bytes=GIB)


DEVICE = LiveDevice(PackingDevice("cpu", 8 * GIB), Share("all cores"), cpu_device())


def job(name, *words, arrives_s=0.0) -> QueuedJob:
    return QueuedJob(PlannedJob(name, ScriptJob(light_job.__file__, words)), arrives_s, JobProfile(GIB // 50, 0.2, 2.0))


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a queue in processes without torch, whose script itself speaks the protocol; what became of it."""
    monkeypatch.setattr(engine, "WORKER", "light_job")
    monkeypatch.setattr(live_queue._Pack, "grace_s", 0.2)
    paths = [str(Path(light_job.__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))

    def run(queue, policy="best-fit", *, stop=None, on_event=lambda part, event: None) -> Launches:
        launches = new_queue(queue, [DEVICE], policy, tmp_path / "runs")
        run_queue(launches, [DEVICE], on_event=on_event, stop=StopRequest() if stop is None else stop)
        return Launches.read(launches.folder)

    return run


def endings(launches):
    return {job.name: [attempt.ending for attempt in job.attempts] for job in tracked_jobs(launches)}


def apart(one, other) -> bool:
    return one.ends_s <= other.starts_s or other.ends_s <= one.starts_s


def test_jobs_share_without_a_barrier_and_exclusive_takes_turns(tmp_path, run):
    # a can end only next to b, and b gets ready only when a has gone: a barrier, or turns, would wait indefinitely
    shared = [
        job("a", f"touch={tmp_path / 'a'}", f"wait={tmp_path / 'b'}"),
        job("b", f"await={tmp_path / 'a'}", f"touch={tmp_path / 'b'}"),
    ]
    record = run(shared)
    assert record.head.status == "done"
    assert endings(record) == {"a": ["done"], "b": ["done"]}
    assert [job.attempts[0].run for job in tracked_jobs(record)] == ["run-of-a", "run-of-b"]
    assert not apart(*[job.attempts[0] for job in tracked_jobs(record)])

    record = run([job(name) for name in "cde"], "exclusive")
    attempts = [job.attempts[0] for job in tracked_jobs(record)]
    assert all(apart(one, other) for one in attempts for other in attempts if one is not other)
    totals = schedule_in(record).totals
    assert totals["done"] == 3 and totals["makespan_s"] >= attempts[-1].ends_s - attempts[0].starts_s
    assert np.isnan(totals["energy_j"]) == ("measured" not in totals["energy_note"])


def test_a_queue_on_a_jetson_takes_the_energy_of_its_module():
    jetson = replace(DEVICE, device=replace(cpu_device(), kind="gpu", uuid=JETSON))
    power = Reading("host", "host", "board_power", 10.0, "W", "Jetson sysfs", None)
    meter = _Meter([jetson], SimpleNamespace(read=lambda: [power]))
    time.sleep(0.01)
    joules, source = meter.energy_j()
    assert (
        joules > 0.05 and source == "measured by Jetson board power, integrated, the whole module: CPU, GPU and memory"
    )


def test_who_ran_out_of_memory_runs_again_alone_and_only_once(tmp_path, run):
    queue = [
        job("neighbour", f"wait={tmp_path / 'full'}"),
        job("greedy", f"greedy={tmp_path / 'full'}"),
        job("hopeless", "always-greedy"),
        job("wrong", "fails"),
        job("killed", f"killed={tmp_path / 'once'}"),
    ]
    record = run(queue)
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


def test_a_stopped_queue_ends_what_runs_starts_nothing_more_and_goes_on_with_what_has_not_ended(tmp_path, run):
    stop = StopRequest()

    def ask(part, event):
        if part.name == "long" and event["kind"] == "Ready":
            stop.request("SIGINT")

    queue = [
        job("wrong", "fails"),
        job("first", f"touch={tmp_path / 'first'}"),
        job("long", f"await={tmp_path / 'first'}", f"wait={tmp_path / 'go'}"),
        job("later", arrives_s=0.5),
    ]
    launches = run(queue, "exclusive", stop=stop, on_event=ask)
    before = tracked_jobs(launches)
    assert launches.head.status == "stopped" and before[2].attempts[0].reason == "stopped by SIGINT"
    assert endings(launches) == {"wrong": ["failed"], "first": ["done"], "long": ["stopped"], "later": []}
    assert [job.status for job in before] == ["failed", "done", "stopped", "queued"]
    (tmp_path / "go").touch()
    # as earlier versions wrote it of a job that had not arrived
    launches.parts["later"].more = {"status": "expected", "queued_s": 0.0, "overtaken": 0, "attempts": []}
    resume_queue(launches, [DEVICE], on_event=lambda part, event: None, stop=StopRequest())
    record = Launches.read(launches.folder)
    assert endings(record) == {"wrong": ["failed"], "first": ["done"], "long": ["stopped", "done"], "later": ["done"]}
    assert tracked_jobs(record)[:2] == before[:2] and record.head.status == "failed"
    stopped, again = tracked_jobs(record)[2].attempts
    assert again.starts_s >= stopped.ends_s, "seconds go on where they stopped"

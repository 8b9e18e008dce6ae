"""What a queue's jobs ask for is found before the start; recorded profiles fill what a row does not say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from labkit.collocation.interference.machine import Machine
from labkit.collocation.interference.prediction import predict_slowdowns
from labkit.collocation.interference.solo_profile import SoloProfile
from labkit.collocation.packing.admission import Admission
from labkit.collocation.packing.device_state import DeviceState, PackingDevice
from labkit.collocation.packing.generate import generate_queue
from labkit.collocation.packing.job_profile import JobProfile, slowdown_by_utilisation
from labkit.collocation.packing.pack import predict
from labkit.collocation.packing.policy import POLICIES
from labkit.collocation.packing.queue import read_queue
from labkit.collocation.packing.queue_check import check_queue_here
from labkit.collocation.packing.queued_job import QueuedJob
from labkit.collocation.packing.recorded_profiles import (
    RecordedJob,
    RecordedProfiles,
    cpu_admission,
    read_recorded,
    shared_slowdown,
)
from labkit.collocation.packing.report import pack_report
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.data.store import shipped_datasets
from labkit.errors import UserError
from labkit.runs import Provenance

GIB = 2**30
MACHINE = Machine("a CPU", 4, 100.0, 20.0, 2**25)
DEVICES = [PackingDevice("one", 2 * GIB), PackingDevice("two", 4 * GIB)]
SOLO = SoloProfile(
    "dlrm:tour", "a CPU", 4, "recorded", 10.0, cpu_share=0.9, step_time_one_core_ms=25.0, step_time_crowded_ms=16.0
)
KNOWN = PlannedJob("known", "dlrm", ("--batch-size", "64", "--seed", "{seed}"))
PROFILE = JobProfile(GIB, 0.9, 30.0, GIB, provenance="recorded", solo=SOLO)
RECORDED = RecordedProfiles(
    MACHINE, 8 * GIB, Provenance("recorded", "a test", "2026-01-01"), (RecordedJob(KNOWN, "light", PROFILE),)
)


def no_estimate(job):
    raise AssertionError(f"{job.name} was estimated, and says its memory itself")


def test_what_a_row_says_counts_before_what_was_recorded_and_that_before_what_is_assumed():
    own = JobProfile(3 * GIB, 0.4)
    rows = [
        QueuedJob(replace(KNOWN, name="own"), 0.0, own),
        QueuedJob(replace(KNOWN, name="recorded", seed=3)),
        QueuedJob(PlannedJob("other", "speech")),
        QueuedJob(PlannedJob("other-2", "speech")),
    ]
    estimated = []

    def estimate(job):
        estimated.append(job.name)
        return GIB

    found = check_queue_here(rows, DEVICES, estimate, RECORDED)
    assert found.refusals == []
    said, recorded, assumed, _ = found.queue
    assert said.profile == replace(own, solo=SOLO)
    assert recorded.profile == PROFILE
    assert (assumed.profile.utilisation, assumed.profile.duration_s) == (1.0, None)
    assert [row.fits for row in found.rows] == [("two",), ("one", "two"), ("one", "two"), ("one", "two")]
    assert [row.memory_from for row in found.rows] == ["the queue", *["its first steps"] * 3]
    assert found.rows[1].busy_from == "recorded on a CPU"
    assert estimated == ["recorded", "other"], "jobs that are alike are estimated once"
    elsewhere = check_queue_here(rows[1:2], DEVICES, estimate, RECORDED, here=False).queue[0].profile
    assert (elsewhere.utilisation, elsewhere.duration_s, elsewhere.memory_bytes) == (0.9, None, None)


def test_every_reason_of_a_row_is_in_its_one_line():
    def estimate(job):
        if job.name == "b":
            return None
        raise UserError("the data cannot be had.")

    rows = [
        QueuedJob(PlannedJob("a", "dlrm", where="q.yaml, line 2", memory_bytes=5 * GIB, device="0", cores=2)),
        QueuedJob(PlannedJob("b", "b.py", where="q.yaml, line 3")),
        QueuedJob(PlannedJob("c", "dlrm", where="q.yaml, line 4")),
    ]
    first, second, third = check_queue_here(rows, DEVICES, estimate).refusals
    assert first.startswith("q.yaml, line 2: it asks for device 0")
    assert "cores, gpu_percent and mig_profile" in first and "a needs 5 GiB" in first and "two, which has most" in first
    assert second == (
        "q.yaml, line 3: nobody knows what b.py asks for: write its memory and utilisation, such as 2GiB and 0.5"
    )
    assert third == "q.yaml, line 4: the data cannot be had"


def test_slowdowns_are_the_models_where_all_were_profiled_on_that_machine():
    pair = [PROFILE, PROFILE]
    expected = [each.slowdown for each in predict_slowdowns([SOLO, SOLO], "cpu-shared", MACHINE)]
    assert shared_slowdown(MACHINE, "cpu-shared")(pair) == expected != slowdown_by_utilisation(pair)
    assert shared_slowdown(MACHINE, "cpu-shared")(pair[:1]) == [1.0]
    for machine, jobs in (
        (None, pair),
        (replace(MACHINE, device="other"), pair),
        (MACHINE, [PROFILE, replace(PROFILE, solo=None)]),
    ):
        assert shared_slowdown(machine, "cpu-shared")(jobs) == slowdown_by_utilisation(jobs)
    # half of the cores: 10 + (25 - 10) / 3 ms by Amdahl's law, also alone
    half = shared_slowdown(MACHINE, "cpu-pinned", 0.5)
    assert half([PROFILE]) == pytest.approx([1.5])
    assert half(pair) == pytest.approx([2.5, 2.5])
    assert shared_slowdown(None, "cpu-pinned", 0.5)([PROFILE]) == pytest.approx([1.8])


def test_busy_cores_keep_nobody_out_where_sharing_gains():
    state = DeviceState(DEVICES[1], (PROFILE,))
    slowdown = shared_slowdown(MACHINE, "cpu-shared")
    assert cpu_admission(slowdown).refusal(PROFILE, state, largest_bytes=4 * GIB) is None
    assert "90% busy" in Admission(slowdown=slowdown).refusal(PROFILE, state, largest_bytes=4 * GIB)
    full = cpu_admission(slowdown, 3 * GIB).refusal(PROFILE, state, largest_bytes=4 * GIB)
    assert "needs 1 GiB, and 0 KiB of it is free" in full


def test_recorded_profiles_are_read_as_they_were_written(tmp_path):
    path = tmp_path / "profiles.json"
    RECORDED.save(path)
    assert read_recorded(path) == RECORDED
    path.write_text(path.read_text().replace('"machine"', '"engine"'))
    with pytest.raises(UserError, match="these profiles are damaged"):
        read_recorded(path)
    with pytest.raises(UserError, match="make_job_profiles"):
        read_recorded(tmp_path / "none.json")


def test_the_shipped_queues_are_of_recorded_jobs_and_packing_gains():
    recorded, folder = read_recorded(), shipped_datasets() / "recorded"
    assert recorded.provenance.kind == "recorded"
    assert all(each.profile.provenance == each.profile.solo.provenance == "recorded" for each in recorded.jobs)
    queue = recorded.fill(read_queue(folder / "queue_60.yaml"))
    drawn = generate_queue(recorded.kinds(), seed=60, devices=2)
    assert [job.name for job in queue] == [job.name for job in drawn], "it is what the script would draw"
    assert all(job.profile.solo is not None for job in queue)
    slowdown = shared_slowdown(recorded.machine, "cpu-shared")
    devices = [PackingDevice("first", 2 * GIB), PackingDevice("second", 2 * GIB)]
    report = pack_report(queue, devices, slowdown=slowdown, admission=cpu_admission(slowdown))
    assert list(report.totals["policy"]) == list(POLICIES)
    assert set(report.totals["done"] + report.totals["failed"]) == {60}
    assert report.totals["makespan_ratio"].iloc[1:].max() < 1

    eight = read_queue(folder / "queue_8.yaml")
    assert len(eight) == 8 and all(recorded.of(job.job) for job in eight)
    alone, packed = (predict(eight, name, memory_bytes=2 * GIB).totals for name in ("exclusive", "best-fit"))
    assert packed["ooms"] == 0 and packed["makespan_s"] < alone["makespan_s"]
    durations = [recorded.of(job.job).duration_s for job in eight]
    assert alone["makespan_s"] == pytest.approx(sum(durations))
    with pytest.raises(UserError, match="nobody knows what job a asks for"):
        predict([QueuedJob(PlannedJob("a", "a.py"))], "best-fit", memory_bytes=GIB)

"""What a queue's jobs ask for is found before the start; recorded jobs and pairs fill what a row does not say."""

import json
from dataclasses import replace
from statistics import fmean

import pytest
from queues import GIB, devices, profile

from labkit.errors import UserError
from labkit.jobs import DlrmJob, ScriptJob, SpeechJob
from labkit.json_data import to_json
from labkit.launch import PlannedJob
from labkit.project import shipped_datasets
from labkit.runs import Provenance
from labkit.sharing import POLICIES, JobProfile, QueuedJob, check_queue, cpu_admission, pack_report, predict, read_queue
from labkit.sharing.queue import (
    RecordedJob,
    RecordedPair,
    RecordedProfiles,
    read_recorded,
    shared_slowdown,
    slowdown_by_utilisation,
)

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


def test_every_reason_of_a_row_is_in_its_one_line():
    def estimate(job, kind):
        if job.name == "c":
            raise UserError("the data cannot be had.")

    rows = [
        QueuedJob(PlannedJob("a", DlrmJob(), memory_bytes=5 * GIB, device="0", cores=2)),
        QueuedJob(PlannedJob("b", ScriptJob("b.py"))),
        QueuedJob(PlannedJob("c", DlrmJob())),
    ]
    first, second, third = ("; ".join(row.why_not) for row in check_queue(rows, devices(2, 4), estimate))
    assert first.startswith("the packer chooses devices") and "a needs 5 GiB of memory, and gpu-1" in first
    assert second == "memory and utilisation of b.py are unknown: give both, for example 2GiB and 0.5"
    assert third == "the data cannot be had"


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
    slowdown = shared_slowdown(recorded)
    report = pack_report(queue, devices(2, 2), slowdown=slowdown, admission=cpu_admission(slowdown))
    totals = report.totals
    assert list(totals["policy"]) == list(POLICIES)
    assert set(totals["done"] + totals["failed"]) == {60}
    assert totals["makespan_ratio"].iloc[1:].max() < 1
    assert list(totals["makespan_ratio"]) == pytest.approx(list(totals["makespan_s"] / totals["makespan_s"][0]))
    assert set(report.schedule.groupby("policy")["job"].nunique()) == {60}

    eight = read_queue(folder / "queue_8.yaml")
    alone, packed = (predict(eight, name, memory_bytes=2 * GIB).totals for name in ("exclusive", "best-fit"))
    assert packed["ooms"] == 0 and packed["makespan_s"] < alone["makespan_s"]
    assert alone["makespan_s"] == pytest.approx(sum(recorded.of(job.job).duration_s for job in eight))
    with pytest.raises(UserError, match="memory and utilisation of job a are unknown"):
        predict([QueuedJob(PlannedJob("a", ScriptJob("a.py")))], "best-fit", memory_bytes=GIB)

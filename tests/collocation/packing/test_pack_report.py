"""A queue like CARMA's: how it is drawn, and what sharing makes of it."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from labkit.collocation.packing.device_state import PackingDevice
from labkit.collocation.packing.generate import CARMA_LOAD, CARMA_MIX, generate_queue
from labkit.collocation.packing.job_profile import JobProfile
from labkit.collocation.packing.policy import POLICIES
from labkit.collocation.packing.queued_job import QueuedJob
from labkit.collocation.packing.report import pack_report
from labkit.collocation.packing.schedule import COMPARED
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.errors import UserError

GIB = 2**30
DEVICES = [PackingDevice(f"gpu-{number}", 16 * GIB) for number in range(2)]


def kind(name: str, duration_s: float, memory_gib: float, utilisation: float, estimate_gib: float | None = None):
    estimate = int((estimate_gib or memory_gib) * GIB)
    return QueuedJob(
        PlannedJob(name, "dlrm"), 0.0, JobProfile(estimate, utilisation, duration_s, int(memory_gib * GIB))
    )


KINDS = {
    "light": [kind("light-a", 200, 0.8, 0.15), kind("light-b", 400, 1.5, 0.25)],
    "medium": [kind("medium-a", 900, 4, 0.4), kind("medium-b", 1500, 6, 0.55)],
}


@pytest.mark.parametrize("seed", range(5))
def test_sharing_beats_exclusive_on_sixty_small_and_medium_jobs_on_two_devices(seed):
    report = pack_report(generate_queue(KINDS, n=60, seed=seed), DEVICES)
    totals = report.totals.set_index("policy")
    assert list(totals.index) == list(POLICIES)
    assert (totals["done"] == 60).all()
    sharing = totals.drop(index="exclusive")
    # no job asks for more than 0.55 of a device: packed, the queue is bound by its arrivals
    assert (sharing["makespan_ratio"] < 0.8).all()
    assert (sharing["mean_completion_ratio"] < 0.5).all()
    assert (sharing["device_ratio"] < 1).all()
    assert (sharing["mean_slowdown"] < 1.5).all()
    assert totals.loc["exclusive", "mean_slowdown"] == pytest.approx(1)


def test_recovery_brings_underestimated_jobs_to_their_end():
    kinds = KINDS | {"heavy": [kind("liar", 1200, 12, 0.3, estimate_gib=3)]}
    report = pack_report(generate_queue(kinds, n=60, seed=1), DEVICES)
    totals = report.totals.set_index("policy")
    assert totals.loc["exclusive", "ooms"] == 0
    assert (totals.drop(index="exclusive")["ooms"] > 0).any()
    assert (totals["done"] == 60).all()
    struck = report.jobs[report.jobs["oom"]]
    assert set(struck["label"]) <= {"dlrm:tour"}
    assert (struck["attempts"] == 2).all()


def test_the_report_has_a_bar_for_each_start_and_ratios_to_exclusive():
    report = pack_report(generate_queue(KINDS, n=10), DEVICES, ["best-fit"])
    assert list(report.totals["policy"]) == ["exclusive", "best-fit"]
    assert Counter(report.schedule["policy"]) == {"exclusive": 10, "best-fit": 10}
    assert Counter(report.jobs["policy"]) == {"exclusive": 10, "best-fit": 10}
    exclusive, shared = report.totals.to_dict("records")
    assert shared["makespan_ratio"] == pytest.approx(shared["makespan_s"] / exclusive["makespan_s"])
    ratios = [column for column in report.totals if column.endswith("_ratio")]
    assert len(ratios) == len(COMPARED)
    known = [
        name for name in ratios if name != "energy_ratio" and (name != "mean_wait_ratio" or exclusive["mean_wait_s"])
    ]
    assert all(exclusive[name] == 1 for name in known)
    with pytest.raises(UserError, match="'lifo' is unknown"):
        pack_report(generate_queue(KINDS, n=3), DEVICES, ["lifo"])


def test_a_queue_is_drawn_by_its_seed_its_mix_and_its_load():
    heavy = {"heavy": [kind("heavy", 3000, 12, 0.9)]}
    queue = generate_queue(KINDS | heavy, n=4000, seed=3, devices=4)
    assert queue == generate_queue(KINDS | heavy, n=4000, seed=3, devices=4)
    assert queue != generate_queue(KINDS | heavy, n=4000, seed=4, devices=4)
    shares = Counter(job.name.split("-")[0] for job in queue)
    for name, share in CARMA_MIX.items():
        # four standard deviations of a binomial share of 4,000
        assert shares[name] / 4000 == pytest.approx(share, abs=4 * np.sqrt(0.25 / 4000))
    arrivals = [job.arrives_s for job in queue]
    assert arrivals[0] == 0 and arrivals == sorted(arrivals)
    load = sum(job.profile.duration_s for job in queue) / (4 * arrivals[-1])
    assert load == pytest.approx(CARMA_LOAD, rel=0.07)  # the mean of 4,000 exponential gaps: four deviations are 6 %
    gaps = np.diff(arrivals)
    assert np.std(gaps) == pytest.approx(np.mean(gaps), rel=0.15)  # Poisson: as wide as they are long
    assert len({job.name for job in queue}) == 4000


def test_nothing_to_draw_from_is_refused():
    with pytest.raises(UserError, match="light, medium, heavy"):
        generate_queue({"light": []})
    with pytest.raises(UserError, match="no-time has no duration"):
        generate_queue({"light": [QueuedJob(PlannedJob("no-time", "dlrm"), 0.0, JobProfile(GIB, 0.5))]})
    with pytest.raises(UserError, match="n is 0"):
        generate_queue(KINDS, n=0)

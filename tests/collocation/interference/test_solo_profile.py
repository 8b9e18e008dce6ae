import json
from dataclasses import replace

import pytest
from solo_profiles import CPU, cpu_job

from labkit.collocation.interference.alone import profile_alone
from labkit.collocation.interference.solo_profile import SoloProfile, likeness_of
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.errors import UserError

SCRIPT = """
import sys, torch
a, b = torch.randn(64, 32), torch.randn(32, 16)
weight = torch.nn.Parameter(torch.zeros(1))
optimiser = torch.optim.SGD([weight], lr=0.0)
while True:
    print("a line that is no answer")
    torch.mm(a, b)
    weight.grad = torch.zeros(1)
    optimiser.step()
"""


def test_a_profile_survives_its_file(tmp_path):
    profile = replace(cpu_job(), missing={"gpu_busy": "it ran on a CPU"})
    profile.save(tmp_path / "profiles" / "job.json")
    assert SoloProfile.load(tmp_path / "profiles" / "job.json") == profile
    assert profile.steps_per_s == pytest.approx(100.0)


def test_a_damaged_or_missing_profile_says_what_to_do(tmp_path):
    with pytest.raises(UserError, match="profile_alone"):
        SoloProfile.load(tmp_path / "none.json")
    (tmp_path / "job.json").write_text(json.dumps({"format": 1, "job": "dlrm:tour"}))
    with pytest.raises(UserError, match="damaged"):
        SoloProfile.load(tmp_path / "job.json")


def test_likeness_looks_at_what_a_step_does():
    plain = PlannedJob("a", "dlrm", {"preset": "tour"})
    for same in (
        PlannedJob("b", "dlrm"),
        PlannedJob("c", "dlrm", {"preset": "tour", "seed": 3, "device": "cpu", "lr": None}, cores=1),
    ):
        assert likeness_of(same) == likeness_of(plain)
    for other in (
        PlannedJob("a", "speech", {"preset": "tour"}),
        PlannedJob("a", "dlrm", {"preset": "tour", "batch_size": 64}),
        PlannedJob("a", "script", script="train.py"),
    ):
        assert likeness_of(other) != likeness_of(plain)


def test_a_script_is_profiled_alone_in_a_process_of_its_own(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    profile = profile_alone(PlannedJob("burner", "script", script=str(script)), 0.3, machine=CPU)
    assert profile.job == "train.py"
    assert profile.provenance == "measured"
    # (64, 32) by (32, 16), counted from shapes; the optimiser's step adds a little
    assert profile.flop_per_step == pytest.approx(2 * 64 * 32 * 16, rel=0.01)
    assert profile.bytes_per_step >= 4 * (64 * 32 + 32 * 16 + 64 * 16)
    assert profile.steps_per_s == 1000 / profile.step_time_alone_ms
    # the shares are those rates over the machine's, at the step time that was measured
    per_s = profile.flop_per_step * 1000 / profile.step_time_ms
    assert profile.arithmetic_share == pytest.approx(per_s / 1e9 / CPU.gflops)
    assert profile.step_time_one_core_ms > 0
    assert profile.step_time_crowded_ms > 0
    assert 0 < profile.cpu_share <= 1
    assert profile.memory_bytes > 2**26  # Python with torch takes more
    assert profile.gpu_busy is None
    assert profile.missing["gpu_busy"] == "it ran on a CPU"


def test_a_job_that_ends_too_soon_is_refused_with_what_it_said(tmp_path):
    script = tmp_path / "short.py"
    script.write_text("print('nothing to train')")
    with pytest.raises(UserError, match=r"short\.py.*no optimiser of torch had stepped"):
        profile_alone(PlannedJob("short", "script", script=str(script)), 0.3, machine=CPU)

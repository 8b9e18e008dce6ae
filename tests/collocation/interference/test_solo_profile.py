import pytest
from solo_profiles import CPU

from labkit.collocation.interference import alone
from labkit.collocation.interference.alone import profile_alone
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


def test_a_script_is_profiled_alone_in_a_process_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(alone, "in_words", lambda told: "")  # whatever runs beside these tests
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    profile = profile_alone(PlannedJob("burner", str(script)), 0.3, machine=CPU)
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
    monkeypatch.setattr(alone, "in_words", lambda told: "other programs took 40% of its cores")
    with pytest.raises(UserError, match="other programs took 40% of its cores, and every prediction would be wrong"):
        profile_alone(PlannedJob("burner", str(script)), 0.1, machine=CPU)


def test_a_job_that_ends_too_soon_is_refused_with_what_it_said(tmp_path):
    script = tmp_path / "short.py"
    script.write_text("print('nothing to train')")
    with pytest.raises(UserError, match=r"short\.py was to train alone.*ended by itself, after 0 steps"):
        profile_alone(PlannedJob("short", str(script)), 0.3, machine=CPU)

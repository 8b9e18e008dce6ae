"""A profile of a GPU, made by hand: what its operators launched counts, on the host and on the device."""

import pytest
from kineto import event, note, shaped, steps, trace_of

from labkit.cli.profile_text import print_profile
from labkit.hardware.calibration import Calibration
from labkit.profiling.profile import Profile
from labkit.profiling.recording.settings import ProfileSettings

CARD = Calibration("some GPU", 1, 50_000.0, 300_000.0, 2000.0, 4.0, "2026-11-22")
FLOP = 2 * 4096**3


@pytest.fixture
def profile(tmp_path):
    """A step of 10 ms, in which the GPU multiplies for 8, copies for 0.5, and waits for the rest."""

    def content(begin):
        number = int(begin)
        launch = event("cudaLaunchKernel", begin + 220, 5, "cuda_runtime", correlation=number + 1)
        copy = event("cudaMemcpyAsync", begin + 20, 5, "cuda_runtime", correlation=number + 2)
        return [
            note("host-to-device", begin, 100),
            event("aten::copy_", begin + 10, 30),
            note("forward", begin + 100, 800),
            event("aten::linear", begin + 200, 60),
            shaped("aten::mm", begin + 210, 20, [[4096, 4096], [4096, 4096]]),
            launch,
            copy,
            event("cudaDeviceSynchronize", begin + 1000, 8900, "cuda_runtime"),
            event("Memcpy HtoD", begin + 300, 500, "gpu_memcpy", tid="stream 7", pid=0, correlation=number + 2),
            event("sgemm<float, 4>", begin + 900, 8000, "kernel", tid="stream 7", pid=0, correlation=number + 1),
        ]

    facts = {
        "device": "cuda",
        "settings": {**vars(ProfileSettings())},
        "phases_us": [{}] * 3,
        "unprofiled_step_us": [9900.0, 9900.0],
        "event_cost_us": 1.0,
        "fault_cost_us": None,
        "unprofiled_faults": [],
        "phase_faults": [],
    }
    profile = Profile(tmp_path, facts, CARD, "measured", 4096)
    profile.__dict__["trace"] = trace_of(tmp_path, steps(3, 10_000, content))
    return profile


def test_an_operator_is_as_fast_as_its_kernels_and_not_as_its_launch(profile):
    table = profile.operators.set_index("operator")
    assert table.loc["aten::mm", "gflop_per_s"] == pytest.approx(FLOP / 8000 / 1e3)
    assert table.loc["aten::mm", "of_peak"] < 1
    assert table["device_us"].to_dict() == {
        "aten::mm": 8000, "aten::copy_": 500, "aten::linear": 0, "(outside of operators)": 0,
    }  # fmt: skip
    assert table.index[0] == "aten::mm"


def test_the_phases_add_up_and_waiting_for_the_device_is_sync(profile):
    found = profile.time.phase_us()
    assert sum(found.values()) == pytest.approx(10_000)
    assert found["sync"] == pytest.approx(8900)


def test_what_the_host_could_save_is_bounded_by_the_gpu_that_works_meanwhile(profile):
    findings = {finding.name: finding for finding in profile.findings}
    assert findings["precision"].claimed_share == pytest.approx(0.8 * (1 - 50 / 300))
    # waiting takes 89 % of the host's step, but the GPU has nothing to do for 15 % of it only
    assert findings["sync"].share == pytest.approx(0.15, abs=0.02)


def test_the_answer_tells_the_device_s_time(profile, capsys):
    print_profile(profile)
    said = capsys.readouterr().out
    assert "GPU 0: computing" in said and "GPU ms" in said and "8.000" in said

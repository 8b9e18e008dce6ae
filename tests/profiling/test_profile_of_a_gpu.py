"""A profile of a GPU, made by hand, or of a real one: what its operators launched counts, on host and device."""

import pytest
import torch
from kineto import event, note, shaped, steps, trace_of

from labkit.cli.profile import print_profile
from labkit.hardware import Calibration, calibrate
from labkit.jobs import job_command
from labkit.profiling.capture import StepRecorder, save_limits
from labkit.profiling.over_time import device_breakdown
from labkit.profiling.profile import Profile, read_profile
from labkit.profiling.script_steps import profile_script
from labkit.profiling.tools import ProfileSettings
from labkit.profiling.trace import CUDA_CALLS
from labkit.tracking import StopRequest

CARD = Calibration("some GPU", 1, 50_000.0, 300_000.0, 2000.0, 4.0, "2026-11-22")
FLOP = 2 * 4096**3


@pytest.fixture
def profile(tmp_path):
    """A step of 10 ms, in which the GPU multiplies for 8, copies for 0.5, and waits for the rest."""

    def content(begin):
        number = int(begin)
        return [
            note("host-to-device", begin, 100),
            event("aten::copy_", begin + 10, 30),
            note("forward", begin + 100, 800),
            event("aten::linear", begin + 200, 60),
            shaped("aten::mm", begin + 210, 20, [[4096, 4096], [4096, 4096]]),
            event("cudaLaunchKernel", begin + 220, 5, "cuda_runtime", correlation=number + 1),
            event("cudaMemcpyAsync", begin + 20, 5, "cuda_runtime", correlation=number + 2),
            event("cudaDeviceSynchronize", begin + 1000, 8900, "cuda_runtime"),
            event("Memcpy HtoD", begin + 300, 500, "gpu_memcpy", tid="stream 7", pid=0, correlation=number + 2),
            event("sgemm<float, 4>", begin + 900, 8000, "kernel", tid="stream 7", pid=0, correlation=number + 1),
        ]

    facts = {
        "device": "cuda",
        "settings": {**vars(ProfileSettings())},
        "phases_us": [{}] * 3,
        "unprofiled_step_us": [9900.0, 9900.0],
        "fault_cost_us": None,
        "unprofiled_faults": [],
        "phase_faults": [],
    }
    profile = Profile(tmp_path, facts, CARD, "measured", 4096)
    profile.__dict__["trace"] = trace_of(tmp_path, steps(3, 10_000, content))
    return profile


def test_an_operator_is_as_fast_as_its_kernels_and_not_as_its_launch(profile, capsys):
    table = profile.operators.set_index("operator")
    assert table.loc["aten::mm", "gflop_per_s"] == pytest.approx(FLOP / 8000 / 1e3)
    assert table.loc["aten::mm", "of_peak"] < 1
    assert table["device_us"].to_dict() == {
        "aten::mm": 8000, "aten::copy_": 500, "aten::linear": 0, "(outside of operators)": 0,
    }  # fmt: skip
    assert table.index[0] == "aten::mm"
    # the phases add up, and waiting for the device is sync
    found = profile.time.phase_us()
    assert sum(found.values()) == pytest.approx(10_000)
    assert found["sync"] == pytest.approx(8900)
    print_profile(profile)
    said = capsys.readouterr().out
    assert "GPU 0: computing" in said and "GPU time" in said and "8.000" in said


def test_what_the_host_could_save_is_bounded_by_the_gpu_that_works_meanwhile(profile):
    findings = {finding.name: finding for finding in profile.findings}
    assert findings["precision"].claimed_share == pytest.approx(0.8 * (1 - 50 / 300))
    # waiting takes 89 % of the host's step, but the GPU has nothing to do for 15 % of it only
    assert findings["sync"].share == pytest.approx(0.15, abs=0.02)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_a_real_gpu_s_kernels_memory_and_backward_pass_are_recorded(tmp_path):
    command = job_command("dlrm", runs_dir=tmp_path, data="synthetic-small", device="cuda")
    folder, _ = profile_script(command, StepRecorder(ProfileSettings(memory=True)), StopRequest(), lambda event: None)
    save_limits(folder, calibrate("cuda", repeats=3))
    profile = read_profile(folder)
    events = profile.trace.events
    kernels, launches = (events[events["category"].isin(kinds)] for kinds in (["kernel"], CUDA_CALLS))
    assert len(kernels) > 0 and kernels["correlation"].isin(launches["correlation"]).mean() > 0.99
    (device,) = device_breakdown(profile.trace).itertuples()
    assert device.idle_us + device.compute_us + device.non_compute_us == pytest.approx(device.span_us)
    # autograd's thread belongs to the step
    assert profile.phases["time_us"].sum() == pytest.approx(profile.time.step_us, rel=0.02)
    assert (profile.time.events["phase"] == "backward").any()
    assert profile.time.operators["self_us"].min() > -1.0  # µs: clocks of two threads
    assert (profile.trace.allocations["device"] >= 0).any()

"""Profiles of a real GPU: kernels, the device's time, and the same as Holistic Trace Analysis."""

import pytest
import torch

from labkit.jobs.command import job_command
from labkit.profiling.profile import read_profile
from labkit.profiling.recording.profile_steps import profile_script
from labkit.profiling.recording.recorder import StepRecorder
from labkit.profiling.recording.settings import ProfileSettings
from labkit.profiling.traces.device_time import device_breakdown
from labkit.tracking.stop import StopRequest

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]


@pytest.fixture(scope="module")
def profile(tmp_path_factory):
    from labkit.hardware.calibration import calibrate
    from labkit.profiling.profile import save_card

    runs = tmp_path_factory.mktemp("gpu")
    command = job_command("dlrm", runs_dir=runs, data="synthetic-small", device="cuda")
    recorder = StepRecorder(ProfileSettings(memory=True))
    folder, _ = profile_script(command, recorder, StopRequest(), lambda event: None)
    save_card(folder, calibrate("cuda", repeats=3))
    return read_profile(folder)


def test_kernels_are_recorded_and_joined_with_their_launches(profile):
    kernels = profile.trace.events[profile.trace.events["category"] == "kernel"]
    launches = profile.trace.events[profile.trace.events["category"] == "cuda_runtime"]
    assert len(kernels) > 0
    assert kernels["correlation"].isin(launches["correlation"]).mean() > 0.99
    assert profile.trace.kernels["share"].sum() == pytest.approx(1)


def test_the_device_s_time_is_whole(profile):
    (device,) = device_breakdown(profile.trace).itertuples()
    assert device.idle_us + device.compute_us + device.non_compute_us == pytest.approx(device.span_us)


def test_the_backward_pass_of_autograd_s_thread_belongs_to_the_step(profile):
    phases = profile.phases.set_index("phase")["time_us"]
    assert phases.sum() == pytest.approx(profile.time.step_us, rel=0.02)
    backward = profile.time.events[profile.time.events["phase"] == "backward"]
    assert (backward["category"] == "cpu_op").any()
    assert profile.time.operators["self_us"].min() > -1.0  # µs: clocks of two threads


def test_memory_of_the_device_is_recorded(profile):
    assert (profile.trace.allocations["device"] >= 0).any()

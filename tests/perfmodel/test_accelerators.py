"""What a card says of GPUs; here a CPU stands for one, and gloo for NCCL."""

import pytest
import torch

from labkit.perfmodel import accelerators

LEFT = {"all_reduce": 1.5, "all_to_all": 0.75}


def test_a_device_is_measured_with_its_copies(monkeypatch):
    monkeypatch.setattr(accelerators, "COPY_BYTES", (2**10, 2**20, 2**22))
    found = accelerators.measure_accelerator(torch.device("cpu"))
    assert found.limits.fp32_gflops > 0
    assert found.to_device.seconds(2**22) > found.to_device.seconds(0) > 0


def test_collectives_between_processes_have_a_start_and_a_cost_a_byte(monkeypatch):
    # four processes send 6/4 of a tensor to reduce it, and 3/4 to exchange it
    def times(processes, sizes, backend):
        return {name: [1e-4 + 2e-9 * left * size for size in sizes] for name, left in LEFT.items()}

    monkeypatch.setattr(accelerators, "time_collectives", times)
    found = accelerators.measure_collectives(4, "gloo")
    assert found == {name: pytest.approx({"start_s": 1e-4, "byte_s": 2e-9}, rel=1e-3) for name in LEFT}


def test_without_a_gpu_a_card_has_none(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert accelerators.measure_accelerators() == {}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_a_gpu_takes_longer_to_launch_than_nothing_and_copies_at_some_speed():
    gpu = accelerators.measure_accelerators()["devices"][0]
    assert gpu["limits"]["launch_us"] > 0.5
    assert 1e-12 < gpu["to_device"]["byte_s"] < 1e-8

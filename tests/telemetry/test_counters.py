import os
from types import SimpleNamespace
from unittest.mock import create_autospec

import pynvml
import pytest

from labkit.hardware.device import Device
from labkit.hardware.nvml import Nvml
from labkit.telemetry.gpu_counters import GpuCounters, visible_gpus
from labkit.telemetry.host_counters import HostCounters, ProcessCounters

GPU = Device(kind="gpu", index=0, name="a GPU", torch_name="cuda:0", uuid="GPU-1")


@pytest.fixture
def library():
    library = create_autospec(pynvml)
    library.nvmlDeviceGetUtilizationRates.return_value = SimpleNamespace(gpu=97, memory=40)
    library.nvmlDeviceGetMemoryInfo.return_value = SimpleNamespace(used=3 * 2**30)
    library.nvmlDeviceGetPowerUsage.return_value = 250_000
    library.nvmlDeviceGetTotalEnergyConsumption.return_value = 5_000_000
    library.nvmlDeviceGetClockInfo.return_value = 1410
    library.nvmlDeviceGetComputeRunningProcesses.return_value = [SimpleNamespace(pid=42, usedGpuMemory=2**30)]
    return library


def read(counters: GpuCounters) -> dict:
    return {(r.scope, r.counter): r for r in counters.read()}


def test_gpu_counters_come_in_their_units(library):
    with Nvml(library) as nvml:
        readings = read(GpuCounters(nvml, [GPU], pid=42))
    values = {key: (reading.value, reading.unit) for key, reading in readings.items()}
    assert values == {
        ("device", "gpu_utilisation"): (97, "%"),
        ("device", "memory_used"): (3 * 2**30, "bytes"),
        ("device", "power"): (250, "W"),
        ("device", "energy"): (5000, "J"),
        ("device", "sm_clock"): (1410, "MHz"),
        ("process", "memory_used"): (2**30, "bytes"),
    }
    assert all(reading.source.startswith("NVML nvml") for reading in readings.values())


def test_a_counter_the_gpu_lacks_is_null_with_a_reason_and_hides_no_other(library):
    library.nvmlDeviceGetTotalEnergyConsumption.side_effect = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    with Nvml(library) as nvml:
        counters = GpuCounters(nvml, [GPU], pid=42)
        first, second = read(counters), read(counters)
    assert first["device", "energy"].value is None
    assert "not supported" in first["device", "energy"].note
    assert first["device", "power"].value == 250
    assert ("device", "energy") not in second  # said once


def test_memory_of_other_processes_is_not_the_jobs(library):
    with Nvml(library) as nvml:
        assert ("process", "memory_used") not in read(GpuCounters(nvml, [GPU], pid=7))


def test_slices_of_one_gpu_are_one_gpu():
    slices = [Device(kind="mig", index=0, name="s", uuid=f"MIG-{i}", mig_parent_uuid="GPU-1") for i in range(2)]
    assert len(visible_gpus([Device(kind="cpu", index=0, name="c"), *slices])) == 1


def test_own_process_counts_with_its_memory():
    readings = {r.counter: r for r in ProcessCounters(os.getpid(), own_pid=-1).read()}
    assert readings["memory_resident"].value > 10 * 2**20
    assert readings["threads"].value >= 1


def rapl(tmp_path, energy: str = "5000000"):
    for name in ("intel-rapl:0", "intel-rapl:0:0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "energy_uj").write_text(energy)
        (tmp_path / name / "max_energy_range_uj").write_text("262143328850")
    return tmp_path


def test_a_cpu_package_is_counted_once(tmp_path):
    energies = [r for r in HostCounters(rapl(tmp_path)).read() if "energy" in r.counter]
    assert [(r.counter, r.value) for r in energies] == [("cpu_energy_intel-rapl:0", 5.0)]


def test_an_energy_counter_that_may_not_be_read_says_so(tmp_path):
    (rapl(tmp_path) / "intel-rapl:0" / "energy_uj").unlink()
    (tmp_path / "intel-rapl:0" / "energy_uj").mkdir()  # unreadable for root, too
    energies = [r for r in HostCounters(tmp_path).read() if "energy" in r.counter]
    assert energies[0].value is None
    assert "not readable" in energies[0].note

import pytest

from labkit.telemetry.energy import cpu_energy, gpu_energy

S = 10**9


def test_the_energy_counter_is_preferred_and_power_never_added():
    samples = {
        "energy": [(0, 1000.0, None), (10 * S, 1500.0, None)],
        "power": [(0, 100.0, None), (10 * S, 100.0, None)],
    }
    energy = gpu_energy(samples)
    assert (energy.value_j, energy.source) == (500.0, "NVML energy counter")


def test_power_is_integrated_where_there_is_no_counter():
    samples = {
        "energy": [(0, None, "not supported on this GPU")],
        "power": [(0, 100.0, None), (2 * S, 200.0, None), (3 * S, 200.0, None)],
    }
    energy = gpu_energy(samples)
    assert energy.value_j == pytest.approx(2 * 150 + 200)
    assert "integrated" in energy.source


def test_a_gpu_that_tells_nothing_says_why():
    energy = gpu_energy({"energy": [(0, None, "not supported on this GPU")], "power": []})
    assert energy.value_j is None
    assert "not supported" in energy.note


def test_packages_add_up_and_a_counter_that_wraps_goes_on():
    samples = {
        "cpu_energy_intel-rapl:0": [(0, 90.0, "wraps at 100.0 J"), (1, 95.0, ""), (2, 5.0, ""), (3, 8.0, "")],
        "cpu_energy_intel-rapl:1": [(0, 0.0, "wraps at 100.0 J"), (3, 7.0, "")],
    }
    assert cpu_energy(samples).value_j == pytest.approx(18 + 7)


def test_a_cpu_without_a_counter_says_why():
    energy = cpu_energy({"cpu_energy": [(0, None, "no RAPL energy counter on this machine")]})
    assert energy.value_j is None
    assert energy.note == "not measurable: no RAPL energy counter on this machine"

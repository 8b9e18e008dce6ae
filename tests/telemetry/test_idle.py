"""Idle power and cool-down, from made-up readings twice a second."""

import itertools

import pytest

from labkit.hardware import Device
from labkit.telemetry.counters import Reading
from labkit.telemetry.power import IDLE_S, LATEST_S, Idle, cool_down, idle, sampled

CPU, GPU = Device("cpu", 0, "a CPU"), Device("gpu", 0, "a GPU", uuid="GPU-1")
NO_RAPL = Reading("host", "host", "cpu_energy", None, "J", "RAPL", "no RAPL energy counter on this machine")
HALF_S = 5 * 10**8


def of_gpu(watts, degrees=40.0):
    """Readings of a GPU that draws these watts, one a time; of another, too, and of what is no counter of energy."""
    joules = 0.0
    for number, now_w in enumerate(watts):
        joules += now_w / 2
        told = (("GPU-1", "energy", joules), ("GPU-2", "energy", number * 1e6), ("GPU-1", "temperature", degrees))
        yield number * HALF_S, [Reading(of, "device", what, value, "", "NVML") for of, what, value in told]


def of_cpu(readings):
    return zip(itertools.count(step=HALF_S), itertools.repeat(readings), strict=False)


def test_idle_power_is_the_mean_of_ten_seconds():
    samples = of_gpu(itertools.cycle([40.0, 60.0]))
    state = idle(samples, GPU)
    assert (state.power_w, state.temperature_c) == (50, 40) and "NVML" in state.note
    assert next(samples)[0] == 21 * HALF_S == IDLE_S * 1e9 + HALF_S


def test_where_nothing_is_told_nobody_waits():
    samples = of_cpu([NO_RAPL])
    state = idle(samples, CPU)
    assert state.power_w is state.temperature_c is None and "no RAPL" in state.note
    assert next(samples)[0] == 3 * HALF_S
    wait = cool_down(iter([]), CPU, state, 120)
    assert wait.startswith("no cool-down") and "no RAPL" in wait


@pytest.mark.parametrize(
    ("watts", "degrees", "limit_s", "said"),
    [
        # 100 W for 10 s, then 52: with the mean of five seconds within a tenth of 50 W
        ([100.0] * 20 + [52.0] * 100, 40, 60, "cooled down in 14.5 s"),
        ([50.0] * 100, 40, 60, f"cooled down in {LATEST_S:g}.0 s"),
        ([100.0] * 100, 40, 20, "not cooled down after 20.0 s (100.0 W, 50.0 W when idle, 40 °C)"),
        ([50.0] * 100, 44, 20, "not cooled down after 20.0 s (50.0 W, 50.0 W when idle, 44 °C)"),
        ([100.0] * 100, 40, 0, "not cooled down after 0.0 s (40 °C)"),
    ],
)
def test_a_device_has_cooled_down_when_power_and_temperature_are_back(watts, degrees, limit_s, said):
    assert cool_down(of_gpu(watts, degrees), GPU, Idle(50.0, 40.0, ""), limit_s) == said


def test_this_machine_can_be_sampled():
    with sampled(CPU) as samples:
        (first_ns, readings), (then_ns, _) = itertools.islice(samples, 2)
    assert then_ns > first_ns and {"memory_used"} <= {each.counter for each in readings}

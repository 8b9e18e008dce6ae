"""Idle power and cool-down from made-up readings; power limits: what is refused, and that the one found comes back."""

import itertools
import re
import signal as signals
import subprocess
import sys
from contextlib import closing, nullcontext
from types import SimpleNamespace

import psutil
import pynvml
import pytest
from fake_nvml import AMPERE, FIRST, SLICE, fail, fake_nvml, refuse
from processes import wait_for

from labkit.errors import UserError
from labkit.hardware import Device, Nvml, get_devices
from labkit.telemetry.counters import Reading
from labkit.telemetry.power import (
    IDLE_S,
    LATEST_S,
    Idle,
    PowerLimit,
    check_power_limits,
    cool_down,
    guard,
    idle,
    sampled,
)

CPU, GPU = Device("cpu", 0, "a CPU"), Device("gpu", 0, "a GPU", uuid=FIRST)
NO_RAPL = Reading("host", "host", "cpu_energy", None, "J", "RAPL", "no RAPL energy counter on this machine")
HALF_S = 5 * 10**8


def of_gpu(watts, degrees=40.0):
    """Readings of a GPU that draws these watts, one a time; of another, too, and of what is no counter of energy."""
    joules = 0.0
    for number, now_w in enumerate(watts):
        joules += now_w / 2
        told = ((FIRST, "energy", joules), ("GPU-2", "energy", number * 1e6), (FIRST, "temperature", degrees))
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
    with closing(sampled(CPU)) as samples:
        (first_ns, readings), (then_ns, _) = itertools.islice(samples, 2)
    assert then_ns > first_ns and {"memory_used"} <= {each.counter for each in readings}


CONSTRAINTS, SET = "nvmlDeviceGetPowerManagementLimitConstraints", "nvmlDeviceSetPowerManagementLimit"


def card(**answers):
    """Two A100 that take 100 to 400 W, at 250 W; `.limits` has what they were set to, in mW."""
    limits = []
    told = {CONSTRAINTS: lambda handle: [100_000, 400_000], SET: lambda handle, limit: limits.append((handle, limit))}
    library = fake_nvml(*AMPERE, **told | answers)
    library.limits = limits
    return library


def gpu_of(library):
    return get_devices(Nvml(library))[1]


def test_a_sweep_that_can_be_had_changes_nothing_when_it_is_checked():
    library = card()
    check_power_limits(gpu_of(library), [100, 400], Nvml(library))
    assert not library.limits


STRANGER = {FIRST: [SimpleNamespace(pid=1, usedGpuMemory=2**30)]}


@pytest.mark.parametrize(
    ("library", "why"),
    [
        (card(), "50, 500 W.*from 100 to 400 W"),
        (card(**{CONSTRAINTS: lambda handle: refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)}), "not supported on this GPU"),
        (card(mig=lambda: {SLICE: "1g.5gb"}), "is a MIG slice"),
        (card(computing=STRANGER), "process 1"),
        (fake_nvml(), r"trains on a CPU \(no NVIDIA driver is installed"),
    ],
)
def test_a_sweep_that_cannot_be_had_is_refused_with_the_reason(library, why):
    device = (get_devices(Nvml(library)) * 2)[1]
    with pytest.raises(UserError, match=why):
        check_power_limits(device, [50, 500] if "50" in why else [200], Nvml(library))
    assert not getattr(library, "limits", [])


def test_without_rights_it_says_how_to_get_them():
    library, told = card(**{SET: lambda handle, limit: refuse(pynvml.NVML_ERROR_NO_PERMISSION)}), []
    assert guard(Nvml(library), FIRST, pytest.fail, lambda kind, why: told.append(why)) is None
    assert re.match(r"no permission.*run the whole command as root.*nvidia-smi -i GPU -pl WATTS", *told)


def test_the_guard_sets_what_is_ordered_and_puts_back_what_it_found():
    library, told = card(), []
    orders = iter([{"watts": 150}, {"watts": 200.5}, None])
    assert guard(Nvml(library), FIRST, lambda: next(orders), lambda kind, why: told.append(why)) is None
    # first to what it is: whether it may be
    assert library.limits == [(0, 250_000), (0, 150_000), (0, 200_500), (0, 250_000)]
    assert told == [None, None, None]
    lost = lambda: fail(library, SET, pynvml.NVML_ERROR_GPU_IS_LOST)  # noqa: E731
    assert "lost" in guard(Nvml(library), FIRST, lost, lambda kind, why: None)


# the guard as a process, with a driver that keeps the limit in a file

DRIVER = """
import pathlib, pynvml
limit = pathlib.Path({path!r})
def set_limit(handle, milliwatts):
    if milliwatts > 300_000:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION)
    limit.write_text(str(milliwatts))
pynvml.nvmlInit = pynvml.nvmlShutdown = lambda: None
pynvml.nvmlDeviceGetHandleByUUID = lambda uuid: 0
pynvml.nvmlDeviceGetPowerManagementLimit = lambda handle: int(limit.read_text())
pynvml.nvmlDeviceSetPowerManagementLimit = set_limit
"""


@pytest.fixture
def limit(tmp_path, monkeypatch):
    """The file with the limit, in mW, of each process that is started from here on."""
    (path := tmp_path / "limit").write_text("250000")
    (tmp_path / "sitecustomize.py").write_text(DRIVER.format(path=str(path)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    return path


def test_the_limit_comes_back_after_an_error_and_a_refusal_is_told(limit):
    with pytest.raises(UserError, match="not set to 350 W: no permission"), PowerLimit(GPU) as power:
        power.set(100)
        assert limit.read_text() == "100000"
        power.set(350)
    assert limit.read_text() == "250000"


def test_of_two_sweeps_of_one_gpu_the_later_is_refused(limit):
    with PowerLimit(GPU) as power:
        power.set(100)
        with (
            pytest.raises(UserError, match=f"another process is changing it .process {power.pid} of "),
            PowerLimit(GPU),
        ):
            pass
        assert limit.read_text() == "100000"
    assert limit.read_text() == "250000"
    with PowerLimit(GPU) as power:
        power.set(100)


@pytest.mark.parametrize(("signal", "left"), [("SIGTERM", "250000"), ("SIGKILL", "100000")])
def test_a_guard_that_is_ended_is_missed_and_one_that_is_killed_leaves_a_warning(limit, signal, left):
    warned = pytest.warns(UserWarning, match="may not be restored.*nvidia-smi -i GPU-")
    with warned if signal == "SIGKILL" else nullcontext(), PowerLimit(GPU) as power:
        power.set(100)
        psutil.Process(power.pid).send_signal(getattr(signals, signal))
        power.status()  # waits for its end
        end = "was ended" if left == "250000" else "ended with status -9"
        with pytest.raises(UserError, match=f"not set to 120 W: its guard {end}"):
            power.set(120)
    assert limit.read_text() == left


KILLED = """
import os; from labkit.hardware.devices import Device
from labkit.telemetry.power import PowerLimit
with PowerLimit(Device("gpu", 0, "a GPU", uuid="GPU-1")) as power:
    power.set(100); print(open({path!r}).read(), flush=True); os.kill(os.getpid(), {signal})
"""


@pytest.mark.parametrize("signal", [9, 15])
def test_the_limit_comes_back_after_the_command_was_killed(limit, signal):
    program = KILLED.format(path=str(limit), signal=signal)
    killed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (killed.returncode, killed.stdout) == (-signal, "100000\n")
    wait_for(lambda: limit.read_text() == "250000")

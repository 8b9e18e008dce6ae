"""The ladder on GPUs of five generations and on none: what each tells, and what breaks without breaking the rest."""

import os
import threading
import time
from types import SimpleNamespace

import pynvml
import pytest
from fake_nvml import FIRST, OTHER_SLICE, SECOND, SLICE, error, fail
from gpus import CHILD, COUNTERS, GENERATIONS, GPM, JOB, devices, gpus

from labkit.hardware.device import Device
from labkit.hardware.devices import get_devices
from labkit.hardware.nvml import Nvml
from labkit.telemetry.reading import Reading
from labkit.telemetry.sources.gpm import GpmCounters
from labkit.telemetry.sources.ladder import Ladder, Patient
from labkit.telemetry.sources.machine import open_ladder
from labkit.telemetry.sources.nvml import NvmlCounters, gpus_and_slices

ALL = list(GENERATIONS)


@pytest.fixture
def no_tools(monkeypatch, tmp_path):
    """A PATH without NVIDIA's commands."""
    monkeypatch.setenv("PATH", str(tmp_path))


def read_nvml(library, generation: str, reads: int, between=lambda index: None, pids=(JOB, CHILD)):
    """Readings of each of so many reads of NVML alone, a second apart, and the faults told meanwhile."""
    faults, clock, made = [], [0.0], []
    with Nvml(library) as nvml:
        counters = NvmlCounters(
            nvml, devices(generation), lambda: set(pids), lambda *fault: faults.append(fault), now=lambda: clock[0]
        )
        for index in range(reads):
            between(index)
            clock[0] += 1
            made.append({(r.scope, r.counter): r for r in counters.read()})
    return made, faults


@pytest.mark.parametrize("generation", ALL)
def test_each_generation_tells_what_it_can_and_why_not_the_rest(generation, no_tools):
    nvml, mig, unsupported = Nvml(gpus(generation)), "MIG" in generation, GENERATIONS[generation][1]
    with open_ladder(None, devices(generation), 2, lambda *fault: pytest.fail(str(fault)), nvml=nvml) as ladder:
        list(ladder.read())  # an average needs two samples
        readings = [r for r in ladder.read() if r.device != "host"]
    values = {(r.scope, r.counter): r.value for r in readings if r.value is not None and r.scope != "process"}
    expected = {"memory_used": 3 * 2**30, "power": 250, "sm_clock": 1410, "memory_clock": 5001, "temperature": 61}
    expected |= {"throttle_reasons": 4}
    if "nvmlDeviceGetUtilizationRates" not in unsupported:
        expected |= {"gpu_utilisation": 97, "memory_utilisation": 40}
    if generation != "Pascal":
        expected |= {"energy": 5000}
    if generation in GPM:
        expected |= {"sm_active": 2, "sm_occupancy": 3, "tensor_active": 5, "dram_active": 10}
        rates = {"pcie_tx": 20, "pcie_rx": 21, "nvlink_tx": 60 + 1, "nvlink_rx": 60}
        expected |= {counter: number * 2**20 for counter, number in rates.items()}
    own = {("mig", "memory_used"): 2**30} if mig else {}
    assert values == {("device", counter): value for counter, value in expected.items()} | own
    missing = [r for r in readings if r.value is None]
    assert all(r.note for r in missing)
    if generation not in GPM:  # each rung of the ladder says why it does not tell
        why = next(r for r in missing if r.counter == "sm_active")
        assert "NVML GPM: this GPU has no performance monitoring" in why.note or mig
        assert ("dcgmi is not on PATH" in why.note) == (not mig)


def test_a_slice_of_hopper_has_counters_of_its_own():
    supported = SimpleNamespace(isSupportedDevice=1)
    library = gpus("Ampere with MIG", nvmlGpmQueryDeviceSupport=lambda handle: supported)
    with Nvml(library) as nvml:
        readings = {r.counter: r for r in GpmCounters(nvml, devices("Ampere with MIG")).read()}
    assert (readings["sm_active"].device, readings["sm_active"].scope) == (SLICE, "mig")
    assert library.nvmlGpmMigSampleGet.call_args.args[:2] == (0, 1)  # the whole GPU, and the slice's number in it


def test_memory_and_share_of_the_job_and_its_children_are_theirs_alone():
    (first, second), _ = read_nvml(gpus("Turing"), "Turing", 2)
    assert first["process", "memory_used"].value == 2**30 + 2**29
    assert first["process", "sm_utilisation"].value == 30 + 5  # the latest of each
    assert ("process", "sm_utilisation") not in second  # nothing newer
    ((renumbered,), _) = read_nvml(gpus("Turing"), "Turing", 1, pids=[1])  # as in a container
    reading = renumbered["process", "memory_used"]
    assert reading.value is None and "none of the 3 processes" in reading.note


VISIBLE = {
    None: {FIRST, SECOND}, "0": {FIRST}, "1": {SECOND}, FIRST: {FIRST}, SECOND[:6]: {SECOND}, "1,0": {FIRST, SECOND},
    "": set(),
}  # fmt: skip


@pytest.mark.parametrize("visible", VISIBLE)
@pytest.mark.parametrize("generation", ["Turing", "Ampere with MIG"])
def test_the_gpus_read_are_those_the_job_may_use(generation, visible, monkeypatch):
    """By number or by UUID: what was not made visible is not asked about."""
    library = gpus(generation)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    seen = gpus_and_slices(get_devices(Nvml(library)))
    with Nvml(library) as nvml:
        readings = list(NvmlCounters(nvml, seen, set, print).read())
    expected = VISIBLE[visible]
    if "MIG" in generation and FIRST in expected:  # the first GPU is its slices, and itself for power and clocks
        expected = expected | {SLICE, OTHER_SLICE}
        values = {(r.device, r.scope, r.counter) for r in readings if r.value is not None}
        assert values >= {(SLICE, "mig", "memory_used"), (FIRST, "device", "power")}
    assert {r.device for r in readings} == expected


CALLS = [call for call in COUNTERS if call.startswith("nvmlDeviceGet") and call != "nvmlDeviceGetGpuInstanceId"]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("generation", ALL)
def test_a_call_that_fails_midway_costs_its_own_counters_only(generation, call):
    for code in (pynvml.NVML_ERROR_NO_PERMISSION, pynvml.NVML_ERROR_UNKNOWN, pynvml.NVML_ERROR_TIMEOUT):
        library = gpus(generation)

        def between(index, library=library, code=code):
            if index == 1:
                fail(library, call, code)

        (before, after), faults = read_nvml(library, generation, 2, between)
        lost = {key for key, r in before.items() if r.value is not None and after.get(key, r).value is None}
        assert all(before[key].source.endswith(call) and after[key].note for key in lost)
        assert lost or call in GENERATIONS[generation][1]
        assert not faults


def test_what_failed_for_a_moment_is_asked_again_and_what_is_unsupported_is_not():
    library = gpus("Pascal")
    answers = {1: error(pynvml.NVML_ERROR_TIMEOUT)}

    def between(index):
        library.nvmlDeviceGetPowerUsage.side_effect = answers.get(index, COUNTERS["nvmlDeviceGetPowerUsage"])

    made, _ = read_nvml(library, "Pascal", 4, between)
    assert [readings["device", "power"].value for readings in made] == [250, None, 250, 250]
    assert library.nvmlDeviceGetTotalEnergyConsumption.call_count == 1


def test_nonsense_is_null_with_what_was_said(no_tools):
    nonsense = {
        "gpu_utilisation": ("nvmlDeviceGetUtilizationRates", SimpleNamespace(gpu=4294967295, memory=-1)),
        "power": ("nvmlDeviceGetPowerUsage", "N/A"),
        "energy": ("nvmlDeviceGetTotalEnergyConsumption", 0),  # pre-Volta (codecarbon#1316)
        "temperature": ("nvmlDeviceGetTemperature", -273),
        "memory_used": ("nvmlDeviceGetMemoryInfo", None),
    }
    library = gpus("Turing", **{call: lambda *args, answer=answer: answer for call, answer in nonsense.values()})
    with open_ladder(None, devices("Turing"), 2, print, nvml=Nvml(library)) as ladder:
        readings = {r.counter: r for r in ladder.read() if r.scope == "device"}
    for counter in nonsense:
        assert readings[counter].value is None and "nonsense" in readings[counter].note
    assert readings["sm_clock"].value == 1410


def test_a_gpu_that_is_back_is_shown_to_a_new_session_only():
    """Handles of before are void for good, of the other GPUs' too."""
    lost, readings, faults, clock, averaged = False, [], [], [0.0], []

    def handle_of(uuid):
        if lost and uuid == FIRST and library.nvmlInit.call_count == opened:
            raise error(pynvml.NVML_ERROR_GPU_NOT_FOUND)
        return {FIRST: 0, SECOND: 1}[uuid], library.nvmlInit.call_count

    def power(handle):
        number, opening = handle
        if opening != library.nvmlInit.call_count or (lost and number == 0 and opening == opened):
            raise error(pynvml.NVML_ERROR_GPU_IS_LOST)
        return 1000 * (250 + number)

    library = gpus("Hopper", nvmlDeviceGetHandleByUUID=handle_of, nvmlDeviceGetPowerUsage=power)
    both = [*devices("Hopper"), Device(kind="gpu", index=1, name="another", torch_name="cuda:1", uuid=SECOND)]
    with Nvml(library) as nvml:
        opened = library.nvmlInit.call_count
        counters = NvmlCounters(nvml, both, set, lambda *fault: faults.append(fault), now=lambda: clock[0])
        averages = GpmCounters(nvml, both)
        for index in range(30):
            lost, clock[0] = index >= 5, clock[0] + 1
            readings.append({r.device: r.value for r in counters.read() if r.counter == "power"})
            averaged += [r for r in averages.read() if r.counter == "sm_active"]
    assert readings[0] == readings[-1] == {FIRST: 250, SECOND: 251}
    assert readings[5] == {FIRST: None, SECOND: 251}
    assert [fault for fault, _ in faults] == ["gpu_lost", "gpu_back"]  # told once each
    assert FIRST in faults[0][1]
    assert library.nvmlInit.call_count == opened + 1  # one look, five seconds after the loss, was enough
    missed = [r for r in averaged if r.value is None]
    assert {r.device for r in missed} == {FIRST, SECOND}
    assert {r.note for r in missed} == {"the session with the driver was opened anew"}
    assert len(averaged) - len(missed) == 2 * (30 - 1)  # the first sample of the new session has none before it


def test_a_session_is_not_opened_anew_under_a_call():
    held, go = threading.Event(), threading.Event()

    def slow(handle, sensor):
        held.set()
        go.wait(20)

    with Nvml(gpus("Hopper", nvmlDeviceGetTemperature=slow)) as nvml:
        caller = threading.Thread(target=nvml.read, args=("nvmlDeviceGetTemperature", 0, 0))
        caller.start()
        held.wait(20)
        assert not nvml.reopen()
        go.set()
        caller.join()
        assert nvml.reopen()


@pytest.mark.parametrize(
    "call", ["nvmlDeviceGetHandleByUUID", "nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc", "nvmlGpmSampleGet"]
)
def test_gpm_that_fails_for_a_moment_at_the_start_tells_later(call):
    library = gpus("Hopper")
    working = getattr(library, call).side_effect
    fail(library, call, pynvml.NVML_ERROR_TIMEOUT)
    with Nvml(library) as nvml:
        counters = GpmCounters(nvml, devices("Hopper"))
        first = list(counters.read())
        getattr(library, call).side_effect = working
        assert not list(counters.read())  # an average needs two samples
        second = list(counters.read())
        counters.close()
    assert all(r.value is None and "Timeout" in r.note for r in first)
    assert all(r.value is not None for r in second)
    assert library.nvmlGpmSampleFree.call_count == 2


def test_without_a_driver_the_rest_is_told(no_tools):
    library = gpus("Turing")
    fail(library, "nvmlInit", pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    fail(library, "nvmlDeviceGetHandleByUUID", pynvml.NVML_ERROR_UNINITIALIZED)
    with open_ladder(os.getpid(), devices("Turing"), 2, print, nvml=Nvml(library)) as ladder:
        list(ladder.read())
        readings = {(r.scope, r.counter): r for r in ladder.read()}
    assert readings["process", "memory_resident"].value > 0
    memory = readings["device", "memory_used"]
    assert memory.value is None and "Uninitialized" in memory.note


class Source:
    """Gives these readings, then breaks where it is told to."""

    def __init__(self, *readings, breaks=None):
        self.readings, self.breaks, self.go = readings, breaks, threading.Event()
        self.go.set()

    def read(self):
        self.go.wait()
        yield from self.readings
        if self.breaks:
            raise self.breaks


def memory(value: float, source: str) -> Reading:
    return Reading("host", "host", "memory_used", value, "bytes", source)


def test_a_source_that_hangs_is_a_fault_and_a_gap_and_comes_back():
    source, faults = Source(memory(1.0, "test")), []
    patient = Patient(source, "the driver", lambda kind, what: faults.append(kind), patience_s=0.05)
    assert len(list(patient.read())) == 1
    source.go.clear()
    assert [list(patient.read()) for _ in range(3)] == [[]] * 3
    assert faults == ["source_hangs"]
    source.go.set()
    deadline = time.monotonic() + 20
    while not list(patient.read()) and time.monotonic() < deadline:
        pass
    assert faults == ["source_hangs", "source_back"]
    patient.close()


def test_a_source_that_breaks_stops_no_other_and_the_better_of_two_is_told_in_its_counters_resolution():
    broken = Source(memory(5 * 4096 + 8, "broken"), breaks=RuntimeError("out of luck"))
    other = Source(memory(7 * 4096, "other"), Reading("host", "host", "cpu_percent", 12.3456, "%", "other"))
    readings = {r.counter: r for r in Ladder([broken, other]).read()}
    assert (readings["memory_used"].source, readings["memory_used"].value) == ("broken", 5 * 4096)
    assert readings["cpu_percent"].value == 12.3
    assert readings["sources_failed"].note.endswith(": RuntimeError: out of luck")

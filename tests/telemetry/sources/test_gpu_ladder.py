"""The ladder on GPUs of four generations and on none, and DCGM with fake tools on PATH."""

import os
import threading
from types import SimpleNamespace

import psutil
import pynvml
import pytest
from fake_nvml import (
    CHILD,
    COUNTERS,
    FIRST,
    GENERATIONS,
    GPM,
    JOB,
    OTHER_SLICE,
    SECOND,
    SLICE,
    devices,
    error,
    fail,
    gpus,
    put_on_path,
    refuse,
)
from processes import wait_for

from labkit.hardware import Device, Nvml, get_devices
from labkit.telemetry.counters import Reading
from labkit.telemetry.sources.ladder import Ladder, WithTimeout, open_ladder
from labkit.telemetry.sources.nvidia import DcgmCounters, GpmCounters, NvmlCounters, gpus_and_slices

generations = pytest.mark.parametrize("generation", GENERATIONS)


@pytest.fixture
def no_tools(monkeypatch, tmp_path):
    """A PATH without NVIDIA's commands."""
    monkeypatch.setenv("PATH", str(tmp_path))


def read_nvml(library, seen: list[Device], reads: int, between=lambda index: None, pids=(JOB, CHILD)):
    """Readings of each of so many reads of NVML alone, and the faults told meanwhile."""
    faults, made = [], []
    with Nvml(library) as nvml:
        counters = NvmlCounters(nvml, seen, lambda: set(pids), lambda *fault: faults.append(fault))
        for index in range(reads):
            between(index)
            made.append({(r.device, r.scope, r.counter): r for r in counters.read()})
    return made, faults


@generations
def test_each_generation_tells_what_it_can_and_why_not_the_rest(generation, no_tools):
    nvml, mig, unsupported = Nvml(gpus(generation)), "MIG" in generation, GENERATIONS[generation][1]
    with open_ladder(None, devices(generation), 2, lambda *fault: pytest.fail(str(fault)), nvml=nvml) as ladder:
        readings = [r for r in ladder.read() if r.device != "host"]
    values = {(r.scope, r.counter): r.value for r in readings if r.value is not None and r.scope != "process"}
    expected = {"memory_used": 3 * 2**30, "power": 250, "sm_clock": 1410, "memory_clock": 5001, "temperature": 61}
    expected |= {"throttle_reasons": 4}
    if "nvmlDeviceGetUtilizationRates" not in unsupported:
        expected |= {"gpu_utilisation": 97, "memory_utilisation": 40}
    if "nvmlDeviceGetTotalEnergyConsumption" not in unsupported:
        expected |= {"energy": 5000}
    if generation in GPM:
        expected |= {"graphics_active": 1, "sm_active": 2, "sm_occupancy": 3, "tensor_active": 5, "dram_active": 10}
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
    library = gpus("Ampere with MIG", gpm=True)
    with Nvml(library) as nvml:
        readings = {r.counter: r for r in GpmCounters(nvml, devices("Ampere with MIG")).read()}
    assert (readings["sm_active"].device, readings["sm_active"].scope) == (SLICE, "mig")
    assert library.nvmlGpmMigSampleGet.call_args.args[:2] == (0, 1)  # the whole GPU, and the slice's number in it


def test_memory_and_share_of_the_job_and_its_children_are_theirs_alone():
    (first, second), _ = read_nvml(gpus("Hopper"), devices("Hopper"), 2)
    assert first[FIRST, "process", "memory_used"].value == 2**30 + 2**29
    assert first[FIRST, "process", "sm_utilisation"].value == 30 + 5  # the latest of each
    assert (FIRST, "process", "sm_utilisation") not in second  # nothing newer
    ((renumbered,), _) = read_nvml(gpus("Hopper"), devices("Hopper"), 1, pids=[1])  # as in a container
    reading = renumbered[FIRST, "process", "memory_used"]
    assert reading.value is None and "none of the 3 processes" in reading.note


@pytest.mark.parametrize(
    ("generation", "visible", "expected"),
    [("Turing", SECOND[:6], {SECOND}), ("Turing", "", set()), ("Ampere with MIG", "0", {FIRST, SLICE, OTHER_SLICE})],
)
def test_the_gpus_read_are_those_the_job_may_use(generation, visible, expected, monkeypatch):
    """A divided GPU is its slices, and itself for power and clocks."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    library = gpus(generation)
    (made,), _ = read_nvml(library, gpus_and_slices(get_devices(Nvml(library))), 1)
    assert {device for device, *_ in made} == expected
    assert ((SLICE, "mig", "memory_used") in made) == ((FIRST, "device", "power") in made) == (SLICE in expected)


@generations
def test_a_call_that_fails_for_a_moment_costs_its_own_counters_only(generation):
    for call in COUNTERS:
        library = gpus(generation)
        working = getattr(library, call).side_effect

        def between(index, library=library, call=call, working=working):
            getattr(library, call).side_effect = error(pynvml.NVML_ERROR_TIMEOUT) if index == 1 else working

        (before, after, again), faults = read_nvml(library, devices(generation), 3, between)
        lost = {key for key, r in before.items() if r.value is not None and after.get(key, r).value is None}
        assert all(before[key].source.endswith(call) and after[key].note for key in lost)
        assert lost or call in GENERATIONS[generation][1]
        assert all(again[key].value == before[key].value for key in lost)
        assert not faults


def test_nonsense_is_null_with_what_was_said(no_tools):
    nonsense = {
        "gpu_utilisation": ("nvmlDeviceGetUtilizationRates", SimpleNamespace(gpu=4294967295, memory=-1)),
        "energy": ("nvmlDeviceGetTotalEnergyConsumption", 0),  # pre-Volta (codecarbon#1316)
        "temperature": ("nvmlDeviceGetTemperature", -273),
    }
    library = gpus("Turing", **{call: lambda *args, answer=answer: answer for call, answer in nonsense.values()})
    with open_ladder(None, devices("Turing"), 2, print, nvml=Nvml(library)) as ladder:
        readings = {r.counter: r for r in ladder.read() if r.scope == "device"}
    assert all(readings[counter].value is None and "nonsense" in readings[counter].note for counter in nonsense)
    assert readings["sm_clock"].value == 1410


def test_a_gpu_that_is_lost_is_told_once_and_the_others_go_on():
    library, another = gpus("Turing"), Device("gpu", 1, "another", torch_name="cuda:1", uuid=SECOND)

    def between(index):
        power = library.nvmlDeviceGetPowerUsage
        power.side_effect = lambda handle: refuse(pynvml.NVML_ERROR_GPU_IS_LOST) if index and not handle else 1

    made, faults = read_nvml(library, [*devices("Turing"), another], 3, between)
    assert [{device for device, *_ in readings} for readings in (made[0], made[2])] == [{FIRST, SECOND}, {SECOND}]
    assert [(kind, what[: len(FIRST)]) for kind, what in faults] == [("gpu_lost", FIRST)]


def test_gpm_that_cannot_begin_says_why():
    for call in ("nvmlGpmQueryDeviceSupport", "nvmlGpmSampleGet"):
        library = gpus("Hopper")
        fail(library, call, pynvml.NVML_ERROR_TIMEOUT)
        with Nvml(library) as nvml:
            counters = GpmCounters(nvml, devices("Hopper"))
            assert not counters.supports(devices("Hopper")[0])
            assert all(r.value is None and "Timeout" in r.note for r in counters.read())
            counters.close()
        assert library.nvmlGpmSampleFree.call_count == (2 if call == "nvmlGpmSampleGet" else 0)


def test_without_a_driver_the_rest_is_told(no_tools):
    library = gpus("Turing")
    fail(library, "nvmlInit", pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    fail(library, "nvmlDeviceGetHandleByUUID", pynvml.NVML_ERROR_UNINITIALIZED)
    with open_ladder(os.getpid(), devices("Turing"), 2, print, nvml=Nvml(library)) as ladder:
        readings = {(r.scope, r.counter): r for r in ladder.read()}
    assert readings["process", "memory_resident"].value > 0
    memory = readings["device", "memory_used"]
    assert memory.value is None and "Uninitialized" in memory.note


def source(*readings, breaks=None):
    """Gives these readings, then breaks where it is told to."""

    def read():
        yield from readings
        if breaks:
            raise breaks

    return SimpleNamespace(read=read)


def memory(value: float, source: str) -> Reading:
    return Reading("host", "host", "memory_used", value, "bytes", source)


def test_a_source_that_hangs_is_a_fault_and_a_gap_and_comes_back():
    go, faults = threading.Event(), []
    slow = SimpleNamespace(read=lambda: [memory(1.0, "test")] if go.wait(20) else [])
    limited = WithTimeout(slow, "the driver", lambda kind, what: faults.append(kind), timeout_s=0.5)
    assert [list(limited.read()) for _ in range(3)] == [[]] * 3
    assert faults == ["source_hangs"]
    go.set()
    wait_for(lambda: list(limited.read()))
    assert faults == ["source_hangs", "source_back"]


def test_a_source_that_breaks_stops_no_other_and_the_better_of_two_is_told_in_its_counters_resolution():
    broken = source(memory(5 * 4096 + 8, "broken"), breaks=RuntimeError("out of luck"))
    other = source(memory(7 * 4096, "other"), Reading("host", "host", "cpu_percent", 12.3456, "%", "other"))
    readings = {r.counter: r for r in Ladder([broken, other]).read()}
    assert (readings["memory_used"].source, readings["memory_used"].value) == ("broken", 5 * 4096)
    assert readings["cpu_percent"].value == 12.3
    assert readings["sources_failed"].note.endswith(": RuntimeError: out of luck")


# As dcgmi 3 and 4 print it; what tensor cores do is not available on the GPU
DCGMI = f"""#!/bin/sh
if [ "$1" = discovery ]; then
    echo '| GPU ID | Device Information             |'
    echo '| 0      | Name: another                  |'
    echo '|        | Device UUID: GPU-other-9       |'
    echo '| 7      | Name: a Turing                 |'
    echo '|        | Device UUID: {FIRST} |'
    exit
fi
echo "$@" > "$0.args"
echo $$ > "$0.pid"
echo '#Entity   GRACT  SMACT  SMOCC  TENSO  DRAMA  PCITX  PCIRX  NVLTX  NVLRX'
echo 'ID'
while :; do
    echo 'GPU 0     0.999  0.999  0.999  0.999  0.999  0  0  0  0'
    echo 'GPU 7     0.995  0.555  0.387  N/A    0.250  10485760   20971520   0      0'
    sleep 0.05
done
"""


def test_dcgm_fills_what_nvml_lacks_and_is_not_started_where_gpm_tells(tmp_path, monkeypatch):
    asked = put_on_path(tmp_path, monkeypatch, "dcgmi", DCGMI).with_name("dcgmi.args")
    with open_ladder(None, devices("Hopper"), 2, print, nvml=Nvml(gpus("Hopper"))) as ladder:
        list(ladder.read())
    assert not asked.exists()
    with open_ladder(None, devices("Turing"), 2, print, nvml=Nvml(gpus("Turing"))) as ladder:

        def sampled():
            readings = {(r.scope, r.counter): r for r in ladder.read()}
            return readings if readings["device", "sm_active"].value is not None else None

        readings = wait_for(sampled)
    values = {counter: r.value for (_, counter), r in readings.items() if r.source == "DCGM dmon"}
    share = {"graphics_active": 99.5, "sm_active": 55.5, "sm_occupancy": 38.7, "dram_active": 25}
    assert values == share | {"pcie_tx": 10 * 2**20, "pcie_rx": 20 * 2**20, "nvlink_tx": 0, "nvlink_rx": 0}
    assert "DCGM dmon: dcgmi says N/A" in readings["device", "tensor_active"].note
    assert readings["device", "power"].source == "NVML nvmlDeviceGetPowerUsage"
    assert not psutil.pid_exists(int(asked.with_name("dcgmi.pid").read_text()))
    assert "-e 1001,1002,1003,1004,1005,1009,1010,1011,1012 -i 7 -d 500" in asked.read_text()


@pytest.mark.parametrize(
    ("gpu", "script", "words"),
    [
        ("GPU-not-there", DCGMI, "dcgmi does not list this GPU"),
        (FIRST, "#!/bin/sh\necho Error: no host engine; exit 1", "dcgmi lists no GPU: Error: no host engine"),
        (FIRST, DCGMI.replace("echo '#Entity", "echo No rights; exit 3; echo '#"), "status 3: No rights"),
    ],
)
def test_what_dcgm_does_not_tell_says_why_in_its_words(tmp_path, monkeypatch, gpu, script, words):
    put_on_path(tmp_path, monkeypatch, "dcgmi", script)
    counters = DcgmCounters([Device(kind="gpu", index=0, name="x", torch_name="cuda:0", uuid=gpu)], hz=2)
    wait_for(lambda: all(r.value is None and words in r.note for r in counters.read()))
    counters.close()

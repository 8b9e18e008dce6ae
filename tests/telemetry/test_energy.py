import time

import pytest

from labkit.runs.parts import TELEMETRY, PartWriter
from labkit.runs.record import Provenance
from labkit.runs.writer import RunWriter
from labkit.telemetry.energy import cpu_energy, gpu_energy, run_energy
from labkit.telemetry.memory import peak_memory
from labkit.telemetry.samples import Sample

S = 10**9


POWER = [Sample(0, 100.0), Sample(2 * S, 200.0), Sample(3 * S, 200.0)]


@pytest.mark.parametrize(
    ("samples", "joules", "source", "note"),
    [
        ({"energy": [Sample(0, 1000.0), Sample(3 * S, 1500.0)], "power": POWER}, 500, "NVML energy counter", "host"),
        ({"energy": [Sample(0, None, "not supported")], "power": POWER}, 500, "NVML power, integrated", "host"),
        # a counter that stands still while power is drawn is not believed
        ({"energy": [Sample(0, 7.0), Sample(S, 7.0)], "power": POWER}, 500, "NVML power, integrated", "host"),
        # a GPU that was reset takes no energy back
        (
            {"energy": [Sample(0, 5e6), Sample(S, 5e6 + 100), Sample(2 * S, 20.0), Sample(3 * S, 50.0)]},
            130,
            "NVML energy counter",
            "began anew",
        ),
        ({"energy": [Sample(0, None, "not supported on this GPU")], "power": []}, None, None, "not supported"),
    ],
)
def test_a_gpus_energy_is_counted_or_integrated_and_never_both(samples, joules, source, note):
    energy = gpu_energy(samples)
    assert (energy.value_j, energy.source) == (joules, source)
    assert note in energy.note


def test_packages_add_up():
    samples = {
        "cpu_energy_intel-rapl:0": [Sample(0, 90.0), Sample(1, 95.0), Sample(3, 108.0)],
        "cpu_energy_intel-rapl:1": [Sample(0, 0.0), Sample(3, 7.0)],
    }
    energy = cpu_energy(samples)
    assert (energy.value_j, energy.source) == (18 + 7, "RAPL")
    assert [step.end_ns for step in energy.steps] == [1, 3, 3]


def test_a_cpu_without_a_counter_says_why():
    energy = cpu_energy({"cpu_energy": [Sample(0, None, "no RAPL energy counter on this machine")]})
    assert energy.value_j is None
    assert energy.note == "not measurable: no RAPL energy counter on this machine"


def test_what_the_machine_did_between_two_processes_of_a_run_is_not_the_runs():
    samples = {
        "energy": [
            Sample(0, 0.0), Sample(1 * S, 100.0),
            Sample(9 * S, 5000.0, process=1), Sample(10 * S, 5100.0, process=1),
        ]
    }  # fmt: skip
    assert gpu_energy(samples).value_j == 200.0
    slept = [sample._replace(process=0, time_ns=sample.time_ns * 10) for sample in samples["energy"]]
    assert gpu_energy({"energy": slept}).value_j == 200.0
    power = [sample._replace(value=50.0) for sample in samples["energy"]]
    assert gpu_energy({"power": power}).value_j == 100.0
    packages = [sample._replace(value=sample.value % 1000) for sample in samples["energy"]]
    assert cpu_energy({"cpu_energy_intel-rapl:0": packages}).value_j == 200.0  # the counter began anew at a reboot


def write_gpu_samples(folder, pid: int, joules: dict[str, float], begin: int = 0) -> None:
    samples = PartWriter(folder / "telemetry", TELEMETRY)
    for uuid, each in joules.items():
        for second in (0, 1):
            samples.append(
                {"time_ns": (begin + second) * S, "device": uuid, "scope": "device", "pid": pid, "counter": "energy"}
                | {"value": second * each, "unit": "J", "source": "NVML", "note": None}
            )
    samples.flush()


def gpu_run(tmp_path, **device) -> RunWriter:
    writer = RunWriter.create(
        tmp_path, "t", config={}, budget={"torch_name": "cuda:0"}, tier=None, 
        devices=[{"torch_name": "cuda:0"} | device],
        seed=0, provenance=Provenance.now("measured"), software={},
    )  # fmt: skip
    write_gpu_samples(writer.folder, 1, {"GPU-1": 10.0, "GPU-2": 1000.0})
    return writer


@pytest.mark.parametrize(
    ("device", "joules", "note"),
    [
        ({"uuid": "GPU-2"}, 1000.0, "the GPU alone"),
        ({"uuid": None}, None, "not measurable"),  # not mixed with another
        ({"uuid": "MIG-7", "mig_parent_uuid": "GPU-1"}, 10.0, "other slices included"),
    ],
)
def test_a_run_counts_its_own_gpu(tmp_path, device, joules, note):
    energy = run_energy(gpu_run(tmp_path, **device).folder)
    assert energy.value_j == joules and note in energy.note


def test_a_run_resumed_on_another_gpu_counts_each_where_it_computed(tmp_path):
    writer = gpu_run(tmp_path, uuid="GPU-1")
    other = [{"torch_name": "cuda:0", "uuid": "GPU-2"}]
    writer.event("resumed", step=0, parts=0, devices=other)
    # in a container, the trainer has the same pid each time
    write_gpu_samples(writer.folder, 1, {"GPU-1": 5.0, "GPU-2": 300.0}, begin=time.time_ns() // S + 1)
    assert run_energy(writer.folder).value_j == 10.0 + 300.0


def test_what_was_sampled_in_part_is_no_measurement(tmp_path):
    writer = gpu_run(tmp_path, uuid="GPU-1")
    writer.event("fault", kind="sampler", what="killed")
    assert run_energy(writer.folder).value_j is None
    assert "the sampler failed (killed)" in run_energy(writer.folder).note
    assert peak_memory(writer.folder) is None


def test_a_jetson_counts_the_power_of_its_board():
    energy = cpu_energy({"board_power": [Sample(0, 5.0), Sample(2 * S, 7.0)], "cpu_energy": [Sample(0, None, "no")]})
    assert (energy.value_j, energy.source) == (12.0, "Jetson board power, integrated")


def test_the_gpu_of_a_jetson_counts_the_board_too(tmp_path):
    writer = gpu_run(tmp_path, uuid="jetson")
    samples = PartWriter(writer.folder / "telemetry", TELEMETRY)
    for device, scope, counter, unit in (("host", "host", "board_power", "W"), ("jetson", "device", "sm_clock", "MHz")):
        for second in (0, 2):
            samples.append(
                {"time_ns": second * S, "device": device, "scope": scope, "pid": 1, "counter": counter, "value": 7.0}
                | {"unit": unit, "source": "Jetson sysfs", "note": None}
            )
    samples.flush()
    energy = run_energy(writer.folder)
    assert (energy.value_j, energy.source) == (14.0, "Jetson board power, integrated")

import time

import pytest
from made_up import new_run, write_samples

from labkit.runs import RunWriter
from labkit.telemetry.energy import Sample, cpu_energy, gpu_energy, peak_memory, run_energy

S = 10**9
COUNTER, INTEGRATED = "NVML energy counter", "NVML power, integrated"
POWER = [Sample(0, 100.0), Sample(2 * S, 200.0), Sample(3 * S, 200.0)]
RESET = [Sample(0, 5e6), Sample(S, 5e6 + 100), Sample(2 * S, 20.0), Sample(3 * S, 50.0)]
# of two processes of one run, between which the machine did something else
TWO = [Sample(0, 0.0), Sample(S, 100.0), Sample(9 * S, 5000.0, process=1), Sample(10 * S, 5100.0, process=1)]
SLEPT = [sample._replace(process=0, time_ns=sample.time_ns * 10) for sample in TWO]
PACKAGES = {
    "cpu_energy_intel-rapl:0": [Sample(0, 90.0), Sample(1, 95.0), Sample(3, 108.0)],
    "cpu_energy_intel-rapl:1": [Sample(0, 0.0), Sample(3, 7.0)],
}
NO_RAPL = [Sample(0, None, "no RAPL energy counter on this machine")]
BOARD = [Sample(0, 5.0), Sample(2 * S, 7.0)]


@pytest.mark.parametrize(
    ("of", "samples", "joules", "source", "note"),
    [
        (gpu_energy, {"energy": [Sample(0, 1000.0), Sample(3 * S, 1500.0)], "power": POWER}, 500, COUNTER, "host"),
        (gpu_energy, {"energy": [Sample(0, None, "not supported")], "power": POWER}, 500, INTEGRATED, "host"),
        # a counter that stands still while power is drawn is not believed
        (gpu_energy, {"energy": [Sample(0, 7.0), Sample(S, 7.0)], "power": POWER}, 500, INTEGRATED, "host"),
        (gpu_energy, {"energy": RESET}, 130, COUNTER, "restarted at zero"),  # a GPU that was reset takes no energy back
        (gpu_energy, {"energy": [Sample(0, None, "not supported")], "power": []}, None, None, "not supported"),
        (gpu_energy, {"energy": TWO}, 200, COUNTER, ""),
        (gpu_energy, {"energy": SLEPT}, 200, COUNTER, ""),
        (gpu_energy, {"power": [sample._replace(value=50.0) for sample in TWO]}, 100, INTEGRATED, ""),
        (cpu_energy, PACKAGES, 18 + 7, "RAPL", ""),
        (cpu_energy, {"cpu_energy": NO_RAPL}, None, None, "not measurable: no RAPL energy counter on this machine"),
        (cpu_energy, {"board_power": BOARD, "cpu_energy": NO_RAPL}, 12, "Jetson board power, integrated", ""),
    ],
)
def test_energy_is_counted_or_integrated_and_never_both(of, samples, joules, source, note):
    energy = of(samples)
    assert (energy.value_j, energy.source) == (joules, source)
    assert note in energy.note


def gpu_run(tmp_path, **device) -> RunWriter:
    writer = new_run(tmp_path, torch_name="cuda:0", devices=[{"torch_name": "cuda:0"} | device])
    write_samples(writer.folder, "GPU-1", "energy", {0: 0.0, 1: 10.0})
    write_samples(writer.folder, "GPU-2", "energy", {0: 0.0, 1: 1000.0})
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


def test_a_run_resumed_on_another_gpu_counts_each_where_it_computed_and_all_or_nothing(tmp_path):
    writer = gpu_run(tmp_path, uuid="GPU-1")
    writer.event("resumed", step=0, parts=0, devices=[{"torch_name": "cuda:0", "uuid": "GPU-2"}])
    # in a container, the trainer has the same pid each time
    begin = time.time_ns() // S + 1
    write_samples(writer.folder, "GPU-1", "energy", {begin: 0.0, begin + 1: 5.0})
    write_samples(writer.folder, "GPU-2", "energy", {begin: 0.0, begin + 1: 300.0})
    assert run_energy(writer.folder).value_j == 10.0 + 300.0
    writer.event("fault", kind="sampler", what="killed")
    assert run_energy(writer.folder).value_j is peak_memory(writer.folder) is None
    assert "the sampler failed (killed)" in run_energy(writer.folder).note
    # a Jetson's GPU counts the board
    writer = gpu_run(tmp_path, uuid="jetson")
    write_samples(writer.folder, "host", "board_power", {0: 7.0, 2: 7.0}, unit="W")
    write_samples(writer.folder, "jetson", "sm_clock", {0: 900.0, 2: 900.0}, unit="MHz")
    energy = run_energy(writer.folder)
    assert (energy.value_j, energy.source) == (14.0, "Jetson board power, integrated")


def test_samples_that_end_long_before_the_run_do_not_stand_for_it(tmp_path):
    """A GPU that is lost after a second of 40, and a sampler that is gone without a word."""
    folder = (writer := gpu_run(tmp_path, uuid="GPU-1")).folder
    write_samples(folder, "host", "memory_resident", {0: 1.0, 40: 2.0}, scope="process", unit="bytes")
    energy = run_energy(folder)
    assert (energy.value_j, energy.note) == (None, "the samples of its last 39 s, of 40, are missing")
    write_samples(folder, "GPU-1", "power", {0: 7.0, 35: 7.0}, unit="W")  # all but the last seconds
    assert (run_energy(folder).value_j, peak_memory(folder)) == (35 * 7.0, 2)
    writer.event("ended", status="failed", reason="killed", ended_by="killed")  # is written when somebody finds it
    assert (run_energy(folder).value_j, peak_memory(folder)) == (35 * 7.0, 2)
    writer.event("evaluated", wall_s=100.0)
    assert run_energy(folder).value_j is peak_memory(folder) is None
    writer.record.budget = {"torch_name": "cpu"}
    writer.record.save(folder)
    write_samples(folder, "host", "cpu_energy_intel-rapl:0", {0: 1.0, 40: 2.0})
    assert "not measurable: the samples of its last" in run_energy(folder).note

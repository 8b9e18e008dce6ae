"""The energy of a run: from a counter if there is one, else from integrated power, else None with the reason."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from labkit import runs
from labkit.telemetry.samples import OF_A_RESULT, Sample, Samples
from labkit.telemetry.sources.zeus import HIP, UNTRIED

LONGEST_INTERVAL_NS = 60 * 10**9
"""Samples come twice per second; if two are further apart than this, the machine slept."""


class Step(NamedTuple):
    """The energy between two samples."""

    begin_ns: int
    end_ns: int
    joules: float


@dataclass(frozen=True)
class Energy:
    """Joules with their source, or None with the reason."""

    value_j: float | None
    source: str | None
    note: str
    steps: tuple[Step, ...] = ()
    """Steps that add up to the value, in order of time. With several CPU packages, several steps span the same time."""


OF_ALL = "not its own: jobs shared the device, and its counter includes all of them (`labkit collocate --show`)"


def run_energy(run: Samples | Path | str, *, of_all: bool = False) -> Energy:
    """The energy of the device that a run used, between the first and last sample of each process that trained it.

    For a GPU run that is its GPU; for a CPU run the CPU packages of the whole machine, including other programs. On a
    Jetson it is the whole board in both cases. Counters and integrated power are never added up.

    Args:
        run: the run's folder, or its samples.
        of_all: for a run that shared its device, return the energy of all jobs instead of None.
    """
    samples = run if isinstance(run, Samples) else Samples(run, OF_A_RESULT)
    record = runs.read_run(samples.folder)
    if record.shared is not None and not of_all:
        return Energy(None, None, OF_ALL)
    if samples.failure:
        return Energy(None, None, f"not measurable: the sampler failed ({samples.failure})")
    torch_name = str(record.budget.get("torch_name", "cpu"))
    if not torch_name.startswith("cuda"):
        return cpu_energy(samples.of("host"))
    # one list per process that trained the run; older versions did not write the devices of a resume
    resumed = (event for event in samples.events if event["event"] == "resumed")
    devices = [record.devices, *(event.get("devices", record.devices) for event in resumed)]
    gpus = [gpu_of(each, torch_name) for each in devices]
    if None in gpus:
        return Energy(None, None, "not measurable: the GPU has no UUID by which to find its samples")
    of_gpu = samples.of("device", gpus)  # each process also sampled the other GPUs that it could see
    energy = gpu_energy(of_gpu, mig=any(device.get("mig_parent_uuid") for device in record.devices))
    if energy.source and gpus[-1].startswith(HIP):
        energy = replace(energy, source="Zeus, AMD's energy counter", note=f"{energy.note}; {UNTRIED}")
    # a Jetson's GPU has no counter and no power reading of its own, but its board has
    return energy if energy.value_j is not None else board_energy(samples.of("host")) or energy


def gpu_of(devices: list[dict[str, Any]], torch_name: str) -> str | None:
    """UUID of the whole GPU that a process used, from the devices that its run recorded."""
    device = next((device for device in devices if device.get("torch_name") == torch_name), {})
    return device.get("mig_parent_uuid") or device.get("uuid")


def gpu_energy(samples: dict[str, list[Sample]], *, mig: bool = False) -> Energy:
    """Energy of one GPU from its samples by counter. A MIG slice has no counter of its own, so it gets its GPU's."""
    counter, power = (_intervals(samples.get(name, [])) for name in ("energy", "power"))
    whole = "the whole GPU of this MIG slice, other slices included, without its host"
    note = whole if mig else "the GPU alone, without its host"
    # a counter that does not move while power is drawn is broken
    if counter and not (power and counter[0][0].value == counter[-1][1].value):
        return _counted(counter, "NVML energy counter", note)
    if power:
        return _integrated(power, "NVML power, integrated", note)
    return Energy(None, None, _why(samples, ("energy", "power"), "the GPU was sampled less than twice"))


def cpu_energy(samples: dict[str, list[Sample]]) -> Energy:
    """Energy of all CPU packages from the host's samples by counter, else that of their board."""
    packages = {name: _intervals(rows) for name, rows in samples.items() if name.startswith("cpu_energy_")}
    if packages and all(packages.values()):
        source = "Zeus, Apple's energy counters" if "cpu_energy_apple" in packages else "RAPL"
        note = "all CPU packages of this machine, other programs included, without memory and disks"
        return _counted([each for intervals in packages.values() for each in intervals], source, note)
    why = _why(samples, ("cpu_energy", "board_power"), "the run was sampled less than twice")
    return board_energy(samples) or Energy(None, None, f"not measurable: {why}")


def board_energy(samples: dict[str, list[Sample]]) -> Energy | None:
    """Energy of a whole Jetson module from the host's samples by counter; None on any other machine."""
    power = _intervals(samples.get("board_power", []))
    note = "the whole module: CPU, GPU and memory"
    return _integrated(power, "Jetson board power, integrated", note) if power else None


def _counted(intervals: list[tuple[Sample, Sample]], source: str, note: str) -> Energy:
    """Joules from counters, which may restart at zero."""
    steps = [Step(a.time_ns, b.time_ns, b.value - a.value) for a, b in intervals if b.value >= a.value]
    if len(steps) < len(intervals):
        note += "; the counter restarted at zero, and the energy of that interval is missing"
    return Energy(sum(step.joules for step in steps), source, note, tuple(sorted(steps)))


def _integrated(power: list[tuple[Sample, Sample]], source: str, note: str) -> Energy:
    """Joules from samples of watts, by the trapezoidal rule."""
    steps = [Step(a.time_ns, b.time_ns, (b.time_ns - a.time_ns) / 1e9 * (a.value + b.value) / 2) for a, b in power]
    return Energy(sum(step.joules for step in steps), source, note, tuple(steps))


def _intervals(samples: list[Sample]) -> list[tuple[Sample, Sample]]:
    """Pairs of neighbouring samples within one process; between processes of a resumed run the job did not run."""
    known = [sample for sample in samples if sample.value is not None]
    return [
        (a, b) for a, b in pairwise(known) if a.process == b.process and b.time_ns - a.time_ns < LONGEST_INTERVAL_NS
    ]


def _why(samples: dict[str, list[Sample]], counters: tuple[str, ...], otherwise: str) -> str:
    relevant = [sample for name, rows in samples.items() if name.startswith(counters) for sample in rows]
    noted = [(sample.time_ns, sample.note) for sample in relevant if sample.value is None and sample.note]
    return max(noted, key=lambda each: each[0])[1] if noted else otherwise

"""The energy a run took: from a counter where there is one, else integrated power, else the reason why not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from labkit.runs import read_events, read_run
from labkit.telemetry.samples import Sample, read_samples, sampler_failure
from labkit.telemetry.sources.zeus import HIP, UNTRIED

LONGEST_INTERVAL_NS = 60 * 10**9
"""Samples come twice a second. Further apart than this, the machine slept."""


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
    """What it adds up from, in time's order; with several CPU packages, several steps span the same time."""


OF_ALL = "not its own: the counter of a device that jobs shared is of all of them (`labkit collocate --show`)"


def run_energy(folder: Path | str, *, of_all: bool = False) -> Energy:
    """The energy of the device a run computed on, between first and last sample of each process that trained it.

    A GPU run counts its GPU, a CPU run the CPU packages; the latter belong to the whole machine, other programs
    included. On a Jetson it is the whole board for both. Counters and integrated power are never added up.
    """
    record, events = read_run(folder), read_events(folder)
    if record.shared is not None and not of_all:
        return Energy(None, None, OF_ALL)
    if failure := sampler_failure(events):
        return Energy(None, None, f"not measurable: the sampler failed ({failure})")
    torch_name = str(record.budget.get("torch_name", "cpu"))
    if not torch_name.startswith("cuda"):
        return cpu_energy(read_samples(folder, scope="host"))
    # one a process that trained the run; an older labkit did not write the devices of a resume
    devices = [record.devices, *(e.get("devices", record.devices) for e in events if e["event"] == "resumed")]
    gpus = [gpu_of(each, torch_name) for each in devices]
    if None in gpus:
        return Energy(None, None, "not measurable: the GPU has no UUID to find its samples by")
    samples = read_samples(folder, scope="device", devices=gpus)  # a process saw others beside its own
    energy = gpu_energy(samples, mig=any(device.get("mig_parent_uuid") for device in record.devices))
    if energy.source and gpus[-1].startswith(HIP):
        energy = replace(energy, source="Zeus, AMD's energy counter", note=f"{energy.note}; {UNTRIED}")
    # a Jetson's GPU has no counter and no power of its own, its board has
    return energy if energy.value_j is not None else board_energy(read_samples(folder, scope="host")) or energy


def gpu_of(devices: list[dict[str, Any]], torch_name: str) -> str | None:
    """UUID of the whole GPU that a process computed on, of the devices that its run recorded."""
    device = next((device for device in devices if device.get("torch_name") == torch_name), {})
    return device.get("mig_parent_uuid") or device.get("uuid")


def gpu_energy(samples: dict[str, list[Sample]], *, mig: bool = False) -> Energy:
    """Energy of one GPU from its samples by counter; a MIG slice has no counter of its own."""
    counter, power = (_intervals(samples.get(name, [])) for name in ("energy", "power"))
    whole = "the whole GPU of this MIG slice, its other slices included; without its host"
    note = whole if mig else "the GPU alone, without its host"
    # a counter that stands still while power is drawn counts nothing
    if counter and not (power and counter[0][0].value == counter[-1][1].value):
        return _counted(counter, "NVML energy counter", note)
    if power:
        return _integrated(power, "NVML power, integrated", note)
    return Energy(None, None, _why(samples, ("energy", "power"), "the GPU was sampled less than twice"))


def cpu_energy(samples: dict[str, list[Sample]]) -> Energy:
    """Energy of all CPU packages from the host's samples by counter, or of the board that they are on."""
    packages = {name: _intervals(rows) for name, rows in samples.items() if name.startswith("cpu_energy_")}
    if packages and all(packages.values()):
        source = "Zeus, Apple's energy counters" if "cpu_energy_apple" in packages else "RAPL"
        note = "all CPU packages of this machine, other programs included; no memory, no disks"
        return _counted([each for intervals in packages.values() for each in intervals], source, note)
    why = _why(samples, ("cpu_energy", "board_power"), "the run was sampled less than twice")
    return board_energy(samples) or Energy(None, None, f"not measurable: {why}")


def board_energy(samples: dict[str, list[Sample]]) -> Energy | None:
    """Energy of a whole Jetson module from the host's samples by counter; None on any other machine."""
    power = _intervals(samples.get("board_power", []))
    note = "the module, its CPU, GPU and memory included"
    return _integrated(power, "Jetson board power, integrated", note) if power else None


def _counted(intervals: list[tuple[Sample, Sample]], source: str, note: str) -> Energy:
    """Joules of counters, which begin at zero again after a reset."""
    steps = [Step(a.time_ns, b.time_ns, b.value - a.value) for a, b in intervals if b.value >= a.value]
    if len(steps) < len(intervals):
        note += "; the counter began anew meanwhile, and what passed then is missing"
    return Energy(sum(step.joules for step in steps), source, note, tuple(sorted(steps)))


def _integrated(power: list[tuple[Sample, Sample]], source: str, note: str) -> Energy:
    """Joules between samples of watts, by the trapezoidal rule."""
    steps = [Step(a.time_ns, b.time_ns, (b.time_ns - a.time_ns) / 1e9 * (a.value + b.value) / 2) for a, b in power]
    return Energy(sum(step.joules for step in steps), source, note, tuple(steps))


def _intervals(samples: list[Sample]) -> list[tuple[Sample, Sample]]:
    """Neighbouring samples of one process: between two processes of a resumed run the machine did something else."""
    known = [sample for sample in samples if sample.value is not None]
    return [
        (a, b) for a, b in pairwise(known) if a.process == b.process and b.time_ns - a.time_ns < LONGEST_INTERVAL_NS
    ]


def _why(samples: dict[str, list[Sample]], counters: tuple[str, ...], otherwise: str) -> str:
    of_these = [sample for name, rows in samples.items() if name.startswith(counters) for sample in rows]
    noted = [sample for sample in of_these if sample.value is None and sample.note]
    return max(noted, key=lambda sample: sample.time_ns).note if noted else otherwise

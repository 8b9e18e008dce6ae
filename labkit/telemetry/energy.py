"""One run's telemetry, read without pandas, and its energy: from a counter, else from integrated power, else None."""

import functools
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.compute as pc

from labkit import errors, runs
from labkit.telemetry.sources.host import HIP, UNTRIED

OF_ENERGY = r"^(energy|power|board_power|cpu_energy.*)$"
"""Counters that `run_energy` needs."""
OF_A_RESULT = rf"{OF_ENERGY}|^(memory_resident|memory_resident_peak)$"
"""Counters that a run's result needs: those of `run_energy` and of `peak_memory`."""


class Sample(NamedTuple):
    """One value of one counter."""

    time_ns: int
    value: float | None
    note: str | None = None
    process: int = 0
    """Number of the process that trained the run, in order: each resume begins another one."""


class Samples:
    """The samples of one run, read once."""

    def __init__(self, folder: Path | str, counters: str = ""):
        """Read the telemetry in `folder`; `counters` is a pattern of the counters to keep, by default all."""
        self.folder, self.events = Path(folder), runs.read_events(folder)
        kinds = (event for event in self.events if event.get("kind") == "sampler")
        self.failure: str | None = next((event.get("what") or "unknown cause" for event in kinds), None)
        """Reason why the samples are incomplete; None if the sampler did not fail."""
        self._series: dict[tuple[str, str, int, str], list[Sample]] = {}
        """Samples in the order they were taken, by scope, device, process and counter."""
        self._moments: dict[int, list[int]] = defaultdict(list)
        """Times in ns at which each process existed."""
        times = [int(datetime.fromisoformat(event["time"]).timestamp() * 1e9) for event in self.events]
        # not by pid: a container may give the same one to each of its processes
        resumed = [time_ns for time_ns, event in zip(times, self.events, strict=True) if event["event"] == "resumed"]
        for time_ns, event in zip(times, self.events, strict=True):
            # the end of a killed run was written later, when it was found
            if "wall_s" in event or (event["event"] == "ended" and event.get("ended_by") != "killed"):
                self._moments[bisect_right(resumed, time_ns)].append(time_ns)
        for part in runs.current_parts(self.folder / "telemetry"):
            table = runs.read_part(part, runs.TELEMETRY, ["time_ns", "device", "scope", "counter", "value", "note"])
            if not table:
                continue
            first, last = pc.min_max(table["time_ns"]).as_py().values()
            process = bisect_right(resumed, first)
            self._moments[process] += [first, last]
            rows = table.filter(pc.match_substring_regex(table["counter"], counters)) if counters else table
            for time_ns, device, scope, counter, value, note in zip(*rows.to_pydict().values(), strict=True):
                series = self._series.setdefault((scope, device, process, counter), [])
                series.append(Sample(time_ns, value, note, process))

    @functools.cached_property
    def record(self) -> runs.RunRecord:
        """The record of the run."""
        return runs.read_run(self.folder)

    def of(self, scope: str, devices: Sequence[str] | None = None) -> dict[str, list[Sample]]:
        """The series of one scope by counter, each of them `whole`.

        They are of all devices, one after the other, or of the device that `devices` names for each process that
        trained the run.
        """
        found: dict[str, list[Sample]] = {}
        for (where, device, process, counter), series in self._series.items():
            if where == scope and (devices is None or device == devices[process]):
                found.setdefault(counter, []).extend(series)
        return {counter: whole(series, self._moments) for counter, series in found.items()}


def whole(series: list[Sample], moments: dict[int, list[int]]) -> list[Sample]:
    """A series; if it lacks the last tenth of a process (at least 10 s), a single empty sample that says so.

    `moments` are times in nanoseconds at which each process existed.
    """
    for process, last in {sample.process: sample for sample in series if sample.value is not None}.items():
        took_ns = max(moments[process]) - min(moments[process])
        missing_ns = max(moments[process]) - last.time_ns
        if missing_ns > max(10e9, took_ns / 10):
            note = f"the samples of its last {missing_ns / 1e9:.0f} s, of {took_ns / 1e9:.0f}, are missing"
            return [last._replace(value=None, note=note)]
    return series


def peak_memory(run: Samples | Path | str) -> int | None:
    """Largest resident memory of the job's processes, in bytes; None if nothing, or not everything, was sampled.

    The kernel's own high-water mark of the main process counts where it exists, because it misses no peak between
    samples.
    """
    samples = run if isinstance(run, Samples) else Samples(run, OF_A_RESULT)
    if samples.failure:
        return None
    series = samples.of("process")
    values = [*series.get("memory_resident", []), *series.get("memory_resident_peak", [])]
    return max((int(sample.value) for sample in values if sample.value is not None), default=None)


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
    samples = run if isinstance(run, Samples) else Samples(run, OF_ENERGY)
    record = samples.record
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
    gpus = [gpu for each in devices if (gpu := gpu_of(each, torch_name)) is not None]
    if len(gpus) < len(devices):
        return Energy(None, None, "not measurable: the GPU has no UUID by which to find its samples")
    of_gpu = samples.of("device", gpus)  # each process also sampled the other GPUs that it could see
    is_mig = any(device.get("mig_parent_uuid") for device in record.devices)
    energy = gpu_energy(of_gpu, samples.of("host"), mig=is_mig)
    if gpus[-1].startswith(HIP) and (energy.source or "").startswith("NVML"):
        energy = replace(energy, source="Zeus, AMD's energy counter", note=f"{energy.note}; {UNTRIED}")
    return energy


def gpu_of(devices: Sequence[Mapping[str, Any]], torch_name: str) -> str | None:
    """UUID of the whole GPU that a process used, from the devices that its run recorded."""
    device = next((device for device in devices if device.get("torch_name") == torch_name), {})
    return device.get("mig_parent_uuid") or device.get("uuid")


def gpu_energy(samples: dict[str, list[Sample]], host: dict[str, list[Sample]], *, mig: bool = False) -> Energy:
    """Energy of one GPU from its samples and those of its host, by counter.

    A MIG slice has no counter of its own, so it gets its GPU's, and the GPU of a Jetson gets its module's.
    """
    counter, power = (_intervals(samples.get(name, [])) for name in ("energy", "power"))
    whole = "the whole GPU of this MIG slice, other slices included, without its host"
    note = whole if mig else "the GPU alone, without its host"
    # a counter that does not move while power is drawn is broken
    if counter and not (power and counter[0][0].value == counter[-1][1].value):
        return _summed(counter, "NVML energy counter", note)
    if power:
        return _summed(power, "NVML power, integrated", note, of_power=True)
    why = _why(samples, ("energy", "power"), "the GPU was sampled less than twice")
    return board_energy(host) or Energy(None, None, why)


def cpu_energy(samples: dict[str, list[Sample]]) -> Energy:
    """Energy of all CPU packages from the host's samples by counter, else that of their board."""
    packages = {name: _intervals(rows) for name, rows in samples.items() if name.startswith("cpu_energy_")}
    if packages and all(packages.values()):
        source = "Zeus, Apple's energy counters" if "cpu_energy_apple" in packages else "RAPL"
        note = "all CPU packages of this machine, other programs included, without memory and disks"
        return _summed([each for intervals in packages.values() for each in intervals], source, note)
    why = _why(samples, ("cpu_energy", "board_power"), "the run was sampled less than twice")
    return board_energy(samples) or Energy(None, None, f"not measurable: {why}")


def board_energy(samples: dict[str, list[Sample]]) -> Energy | None:
    """Energy of a whole Jetson module from the host's samples by counter; None on any other machine."""
    power = _intervals(samples.get("board_power", []))
    note = "the whole module: CPU, GPU and memory"
    return _summed(power, "Jetson board power, integrated", note, of_power=True) if power else None


def _summed(pairs: list[tuple[Sample, Sample]], source: str, note: str, *, of_power: bool = False) -> Energy:
    """Joules from a counter, which may restart at zero, or from samples of watts by the trapezoidal rule."""
    steps = []
    for a, b in pairs:
        before, after = errors.certain(a.value), errors.certain(b.value)
        joules = (b.time_ns - a.time_ns) / 1e9 * ((before + after) / 2) if of_power else after - before
        steps.append(Step(a.time_ns, b.time_ns, joules))
    kept = sorted(step for step in steps if step.joules >= 0)
    if len(kept) < len(steps):
        note += "; the counter restarted at zero, and the energy of that interval is missing"
    return Energy(sum(step.joules for step in kept), source, note, tuple(kept))


def _intervals(samples: list[Sample]) -> list[tuple[Sample, Sample]]:
    """Pairs of neighbouring samples within one process; between processes of a resumed run the job did not run."""
    pairs = pairwise(sample for sample in samples if sample.value is not None)
    return [(a, b) for a, b in pairs if a.process == b.process and b.time_ns - a.time_ns < LONGEST_INTERVAL_NS]


def _why(samples: dict[str, list[Sample]], counters: tuple[str, ...], otherwise: str) -> str:
    relevant = [sample for name, rows in samples.items() if name.startswith(counters) for sample in rows]
    noted = [(sample.time_ns, sample.note) for sample in relevant if sample.value is None and sample.note]
    return max(noted, key=lambda each: each[0])[1] if noted else otherwise

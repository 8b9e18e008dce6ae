"""Looks at the devices of a queue from time to time: free memory, how busy they are, and the energy they took."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psutil

from labkit.collocation.packing.live_device import LiveDevice, free_memory
from labkit.hardware.nvml import Nvml
from labkit.telemetry.sources.gpm import GpmCounters
from labkit.telemetry.sources.rapl import RaplCounters


@dataclass(frozen=True)
class Look:
    """One device at one moment; None is what nobody can tell."""

    free_bytes: int | None
    utilisation: float | None
    """Of a GPU, the SM activity since the last look, which CARMA goes by; of CPU cores, their busy time. 0 to 1"""


class Monitor:
    """A context manager. What a partition of a CPU has free is not told: its jobs are capped instead."""

    def __init__(self, devices: Sequence[LiveDevice], nvml: Callable[[], Nvml] = Nvml):
        self._live, self._nvml = devices, nvml

    def __enter__(self) -> Monitor:
        self._stack = contextlib.ExitStack()
        self._session = self._stack.enter_context(self._nvml())
        gpus = [each.device for each in self._live if each.device.kind != "cpu"]
        self._gpm = GpmCounters(self._session, gpus)
        self._stack.callback(self._gpm.close)
        self._rapl = RaplCounters()
        psutil.cpu_percent(percpu=True)  # shares are counted from one call to the next
        self._before = self._read_energy()
        self._taken_j, self._why_no_energy = 0.0, ""
        return self

    def __exit__(self, *exception) -> None:
        self._stack.close()

    def look(self) -> list[Look]:
        """All devices, in their order."""
        cores = psutil.cpu_percent(percpu=True)
        busy = {reading.device: reading.value for reading in self._gpm.read() if reading.counter == "sm_active"}
        self._count_energy()
        return [self._look_at(live, cores, busy) for live in self._live]

    def energy_j(self) -> tuple[float | None, str]:
        """Joules of all devices since the block began and their source, or None and why."""
        self._count_energy()
        if self._why_no_energy:
            return None, self._why_no_energy
        return self._taken_j, "measured by the counters of " + ", ".join(sorted(self._before))

    def _look_at(self, live: LiveDevice, cores: list[float], busy: dict[str, float | None]) -> Look:
        if live.device.kind != "cpu":
            active = busy.get(live.device.uuid)
            return Look(free_memory(live.device, self._session), None if active is None else active / 100)
        own = [cores[core] for core in live.share.cores or () if core < len(cores)] or cores
        utilisation = sum(own) / len(own) / 100
        return Look(None if live.share.cores else free_memory(live.device, self._session), utilisation)

    def _count_energy(self) -> None:
        now = self._read_energy()
        for name, (joules, why) in now.items():
            before = self._before[name][0]
            if joules is None or before is None:
                self._why_no_energy = f"{name}: {why or 'a reading was missed'}"
            elif joules < before:
                self._why_no_energy = f"{name}: its counter began anew"
            else:
                self._taken_j += joules - before
        self._before = now

    def _read_energy(self) -> dict[str, tuple[float | None, str]]:
        """Counter by the name of what it counts for: (joules, "") or (None, why)."""
        found: dict[str, tuple[float | None, str]] = {}
        for live in self._live:
            if live.device.kind == "cpu":
                found |= {f"CPU {r.counter}": (r.value, r.note or "") for r in self._rapl.read()}
                continue
            # a slice has no counter of its own, and its GPU's counts what others do there, too
            handle = self._session.read("nvmlDeviceGetHandleByUUID", live.device.uuid)
            energy = handle if handle.reason else self._session.read(
                "nvmlDeviceGetTotalEnergyConsumption", handle.value
            )  # fmt: skip
            found[live.packing.name] = (None, energy.reason) if energy.reason else (energy.value / 1000, "")
        return found

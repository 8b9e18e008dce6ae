"""Looks at the devices of a queue from time to time: free memory, how busy they are, and the energy they took."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence

from labkit.collocation.packing.live_device import LiveDevice
from labkit.hardware.cpu import read_cpu
from labkit.telemetry.energy import Energy, cpu_energy, gpu_energy
from labkit.telemetry.samples import Sample
from labkit.telemetry.sources.machine import open_ladder

EVERY_S = 1.0


class Monitor:
    """A context manager. What a partition of a CPU has free is not told: its jobs are capped instead."""

    def __init__(self, devices: Sequence[LiveDevice]):
        self._live = devices
        self._samples: dict[str, dict[str, list[Sample]]] = defaultdict(lambda: defaultdict(list))
        """By device and counter, what energy adds up from"""

    def __enter__(self) -> Monitor:
        self._open = open_ladder(None, [each.device for each in self._live], 1 / EVERY_S, lambda kind, what: None)
        self._ladder = self._open.__enter__()
        self.look()
        return self

    def __exit__(self, *exception) -> None:
        self._open.__exit__(*exception)

    def look(self) -> list[dict[str, float]]:
        """Of all devices, in their order, what `Scheduler.observed` takes; without what nobody can tell."""
        now: dict[tuple[str, str], float] = {}
        for reading in self._ladder.read():
            if reading.value is not None:
                now[reading.device, reading.counter] = reading.value
            if "energy" in reading.counter or "power" in reading.counter:
                sample = Sample(time.time_ns(), reading.value, reading.note)
                self._samples[reading.device][reading.counter].append(sample)
        return [_seen(live, now) for live in self._live]

    def energy_j(self) -> tuple[float | None, str]:
        """Joules of all devices since the block began and their source, or None and why."""
        self.look()
        energies = list({self._source(live): self._energy(live) for live in self._live}.values())
        why = [energy.note for energy in energies if energy.value_j is None]
        if why:
            return None, why[0]
        sources = "; ".join(dict.fromkeys(f"{energy.source}, {energy.note}" for energy in energies))
        return sum(energy.value_j for energy in energies), f"measured by {sources}"

    def _source(self, live: LiveDevice) -> str:
        return "host" if live.on_cpu else live.device.mig_parent_uuid or live.device.uuid

    def _energy(self, live: LiveDevice) -> Energy:
        samples = self._samples[self._source(live)]
        return cpu_energy(samples) if live.on_cpu else gpu_energy(samples, mig=live.device.kind == "mig")


def _seen(live: LiveDevice, now: dict[tuple[str, str], float]) -> dict[str, float]:
    if live.on_cpu:
        return {} if live.share.cores else {"monitored_free_bytes": read_cpu().memory_available_bytes}
    used, active = (now.get((live.device.uuid, counter)) for counter in ("memory_used", "sm_active"))
    seen = {} if active is None else {"monitored_utilisation": active / 100}
    return seen if used is None else seen | {"monitored_free_bytes": live.device.memory_bytes - used}

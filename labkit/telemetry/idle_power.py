"""What a device draws while nothing is asked of it, and the wait until it is back there."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from labkit.hardware import Device
from labkit.telemetry.energy import board_energy, cpu_energy, gpu_energy
from labkit.telemetry.reading import Reading
from labkit.telemetry.samples import Sample
from labkit.telemetry.sampling import SampleClock
from labkit.telemetry.sources.ladder import open_ladder

IDLE_S, LATEST_S, HZ = 10.0, 5.0, 2.0
"""The idle device is sampled for so long; one that cools down is judged by its latest seconds; samples a second."""
POWER_TOLERANCE, TEMPERATURE_TOLERANCE_C = 0.1, 3.0
"""It has cooled down within a tenth of its idle power, as measured, and so many degrees of its temperature then."""

Readings = tuple[int, list[Reading]]
"""A time, in ns, and what was read then"""


@dataclass(frozen=True)
class Idle:
    """What was measured of a device for a few seconds; None where that is not told here."""

    power_w: float | None
    temperature_c: float | None
    note: str
    """Where the power is from, or why there is none"""


@contextlib.contextmanager
def sampled(device: Device) -> Iterator[Iterator[Readings]]:
    """Readings of the machine, at even intervals without an end; none is taken outside of the block."""
    with open_ladder(None, [device], HZ, lambda kind, what: None) as ladder:
        clock = SampleClock(HZ)

        def samples() -> Iterator[Readings]:
            while True:
                clock.arrive()
                yield clock.now_ns(), list(ladder.read())
                time.sleep(clock.wait_s())

        yield samples()


def idle(samples: Iterable[Readings], device: Device) -> Idle:
    """What a device draws at rest, of the first seconds of `sampled`; sooner where nothing is told."""
    taken: list[Readings] = []
    for sample in samples:
        taken.append(sample)
        state = _state(taken, device)
        told = state.power_w is not None or state.temperature_c is not None
        if taken[-1][0] - taken[0][0] >= IDLE_S * 1e9 or (len(taken) > 2 and not told):
            break
    return state


def cool_down(samples: Iterable[Readings], device: Device, before: Idle, limit_s: float) -> str:
    """Wait until power and temperature, as far as they are told, are back, or the limit is met; says how it ended."""
    if before.power_w is None and before.temperature_c is None:
        return f"no cool-down: neither power nor temperature is told ({before.note})"
    latest: deque[Readings] = deque()
    began_ns: int | None = None
    for sample in samples:
        latest.append(sample)
        began_ns = sample[0] if began_ns is None else began_ns
        while sample[0] - latest[0][0] > LATEST_S * 1e9:
            latest.popleft()
        seconds, now = (sample[0] - began_ns) / 1e9, _state(latest, device)
        if seconds >= min(LATEST_S, limit_s) and _is_back(now, before):
            return f"cooled down in {seconds:.1f} s"
        if seconds >= limit_s:
            break
    said = (
        [f"{now.power_w:.1f} W, {before.power_w:.1f} W when idle"] if None not in (now.power_w, before.power_w) else []
    )
    said += [f"{now.temperature_c:.0f} °C"] if now.temperature_c is not None else []
    return f"not cooled down after {seconds:.1f} s ({', '.join(said)})"


def _is_back(now: Idle, before: Idle) -> bool:
    limits = (
        (now.power_w, before.power_w and before.power_w * (1 + POWER_TOLERANCE)),
        (now.temperature_c, before.temperature_c and before.temperature_c + TEMPERATURE_TOLERANCE_C),
    )
    return all(limit is None or (value is not None and value <= limit) for value, limit in limits)


def _state(samples: Sequence[Readings], device: Device) -> Idle:
    told: dict[str, dict[str, list[Sample]]] = defaultdict(lambda: defaultdict(list))
    for time_ns, readings in samples:
        for each in readings:
            if each.scope == "host" or (each.scope == "device" and each.device == device.gpu_uuid):
                told[each.scope][each.counter].append(Sample(time_ns, each.value, each.note))
    if device.kind == "cpu":
        energy = cpu_energy(told["host"])
    else:
        energy = gpu_energy(told["device"], mig=device.kind == "mig")
        energy = energy if energy.value_j is not None else board_energy(told["host"]) or energy
    seconds = sum(end - begin for begin, end in {step[:2] for step in energy.steps}) / 1e9
    degrees = [each.value for each in told["device"]["temperature"] if each.value is not None]
    power_w = None if energy.value_j is None else energy.value_j / seconds
    return Idle(power_w, degrees[-1] if degrees else None, energy.source or energy.note)

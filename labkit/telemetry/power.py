"""Power for energy trials: a device's idle power, the cool-down between trials, and a GPU's power limit.

Run as a program, this is the guard of a power limit: it sets the limits it is sent, and restores the original one when
its input closes, which the kernel does when its parent ends for any reason.
"""

from __future__ import annotations

import queue
import signal
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from filelock import Timeout

from labkit import UserError, hardware, process
from labkit.telemetry.counters import Reading
from labkit.telemetry.energy import Sample, cpu_energy, gpu_energy
from labkit.telemetry.sampler import SampleClock
from labkit.telemetry.sources.ladder import open_ladder

IDLE_S, LATEST_S, HZ = 10.0, 5.0, 2.0
"""Seconds that an idle device is sampled; latest seconds by which a cooling device is judged; samples per second."""
POWER_TOLERANCE, TEMPERATURE_TOLERANCE_C = 0.1, 3.0
"""A device has cooled down within these: a share of its idle power, and degrees above its idle temperature."""

Readings = tuple[int, list[Reading]]
"""A time in ns and the readings at that time."""


@dataclass(frozen=True)
class Idle:
    """State of a device over a few seconds; None where it cannot be measured here."""

    power_w: float | None
    temperature_c: float | None
    note: str
    """Source of the power, or the reason why there is none."""


def sampled(device: hardware.Device) -> Generator[Readings]:
    """Endless readings of the machine at even intervals, until it is closed."""
    with open_ladder(None, [device], HZ, lambda kind, what: None) as ladder:
        clock = SampleClock(HZ)
        while True:
            clock.arrive()
            yield clock.now_ns(), list(ladder.read())
            time.sleep(clock.wait_s())


def idle(samples: Iterable[Readings], device: hardware.Device) -> Idle:
    """The idle state of a device, from the first seconds of `sampled`; at once if it cannot be measured."""
    taken: list[Readings] = []
    for sample in samples:
        taken.append(sample)
        state = _state(taken, device)
        is_known = state.power_w is not None or state.temperature_c is not None
        if taken[-1][0] - taken[0][0] >= IDLE_S * 1e9 or (len(taken) > 2 and not is_known):
            break
    return state


def cool_down(samples: Iterable[Readings], device: hardware.Device, before: Idle, limit_s: float) -> str:
    """Wait until power and temperature, if known, are back at idle, but at most `limit_s`; the outcome as text."""
    if before.power_w is None and before.temperature_c is None:
        return f"no cool-down: neither power nor temperature can be measured ({before.note})"
    latest: list[Readings] = []
    began_ns: int | None = None
    for sample in samples:
        began_ns = sample[0] if began_ns is None else began_ns
        latest = [each for each in (*latest, sample) if sample[0] - each[0] <= LATEST_S * 1e9]
        seconds, now = (sample[0] - began_ns) / 1e9, _state(latest, device)
        if seconds >= min(LATEST_S, limit_s) and _is_back(now, before):
            return f"cooled down in {seconds:.1f} s"
        if seconds >= limit_s:
            break
    has_power = None not in (now.power_w, before.power_w)
    said = [f"{now.power_w:.1f} W, {before.power_w:.1f} W when idle"] if has_power else []
    said += [f"{now.temperature_c:.0f} °C"] if now.temperature_c is not None else []
    return f"not cooled down after {seconds:.1f} s ({', '.join(said)})"


def _is_back(now: Idle, before: Idle) -> bool:
    limits = (
        (now.power_w, before.power_w and before.power_w * (1 + POWER_TOLERANCE)),
        (now.temperature_c, before.temperature_c and before.temperature_c + TEMPERATURE_TOLERANCE_C),
    )
    return all(limit is None or (value is not None and value <= limit) for value, limit in limits)


def _state(samples: Sequence[Readings], device: hardware.Device) -> Idle:
    series: dict[str, dict[str, list[Sample]]] = defaultdict(lambda: defaultdict(list))
    for time_ns, readings in samples:
        for each in readings:
            if each.scope == "host" or (each.scope == "device" and each.device == device.gpu_uuid):
                series[each.scope][each.counter].append(Sample(time_ns, each.value, each.note))
    if device.kind == "cpu":
        energy = cpu_energy(series["host"])
    else:
        energy = gpu_energy(series["device"], series["host"], mig=device.kind == "mig")
    seconds = sum(end - begin for begin, end in {step[:2] for step in energy.steps}) / 1e9
    degrees = [each.value for each in series["device"]["temperature"] if each.value is not None]
    power_w = None if energy.value_j is None else energy.value_j / seconds
    return Idle(power_w, degrees[-1] if degrees else None, energy.source or energy.note)


GET, SET = "nvmlDeviceGetPowerManagementLimit", "nvmlDeviceSetPowerManagementLimit"
ANSWER_S = 20.0
"""Seconds for the guard to start, or to set a limit."""
RIGHTS = (
    "Setting it needs an administrator's rights: run the whole command as root, in a container with --cap-add "
    "SYS_ADMIN; or let an administrator set each limit (`sudo nvidia-smi -i GPU -pl WATTS`), and run the trials under "
    "it without --power-limits"
)


def check_power_limits(device: hardware.Device, limits_w: Sequence[float], nvml: hardware.Nvml | None = None) -> None:
    """Refuse power limits that this device cannot have; nothing is changed.

    `nvml` is a session that is not open yet; the default is the driver of this machine.

    Raises:
        UserError: the device is no GPU, a limit is out of its range, or other programs use it.
    """
    if device.kind == "mig":
        raise UserError(
            f"--power-limits: {device.uuid} is a MIG slice, and the power limit of its whole GPU would also slow the "
            "other slices: use a GPU without MIG."
        )
    with nvml or hardware.Nvml() as session:
        if device.kind == "cpu":
            why = f" ({session.reason})" if session.reason else ": choose a GPU with --budget gpu"
            raise UserError(f"--power-limits needs an NVIDIA GPU, but this command trains on a CPU{why}.")
        try:
            handle = session.value("nvmlDeviceGetHandleByUUID", device.uuid)
            limits = session.value("nvmlDeviceGetPowerManagementLimitConstraints", handle)
            session.value(GET, handle)
        except LookupError as error:
            raise UserError(f"--power-limits: {device.name} reports no power limit: {error}.") from None
        low_w, high_w = (milliwatts / 1000 for milliwatts in limits)
        if outside := [f"{limit:g}" for limit in limits_w if not low_w <= limit <= high_w]:
            raise UserError(
                f"--power-limits: {', '.join(outside)} W is out of the range of {device.name}: give limits from "
                f"{low_w:g} to {high_w:g} W."
            )
        if others := hardware.occupants(device, session)[0]:
            raise UserError(
                f"--power-limits: {others[0]} uses {device.name}, and a limit would slow it too: wait until it ends."
            )


class PowerLimit(process.Child):
    """The guard of a GPU's power limit: a context manager that restores the original limit."""

    def __init__(self, device: hardware.Device):
        super().__init__("labkit.telemetry.power", {"uuid": device.uuid})
        self._device = device

    def __enter__(self) -> PowerLimit:
        """Start the guard.

        Raises:
            UserError: another process sweeps this limit, or it cannot be set, for example without root's rights.
        """
        self.start()
        if (why := self._answer()) is not None:
            self.end()
            raise UserError(f"--power-limits: the limit of {self._device.name} cannot be set: {why}.")
        return self

    def set(self, watts: float) -> None:
        """Set the limit.

        Raises:
            UserError: the driver refuses, or the guard has ended.
        """
        self.send({"watts": watts})
        if (why := self._answer()) is not None:
            raise UserError(f"the power limit of {self._device.name} was not set to {watts:g} W: {why}.")

    def _answer(self) -> str | None:
        """Reason why the guard did not carry out the latest order; None if it did."""
        try:
            answer = self.next_message(ANSWER_S) or {"why": f"its guard did not answer for {ANSWER_S:g} s"}
        except EOFError:
            answer = {"why": self._lost() or "its guard was ended, and has restored the original limit"}
        return answer["why"]

    def __exit__(self, *exception: object) -> None:
        self.stop()
        if why := self._lost():
            by_hand = f"`nvidia-smi -i {self._device.uuid} -q -d POWER` shows it"
            name = self._device.name
            warnings.warn(f"the power limit of {name} may not be restored ({why}): {by_hand}", stacklevel=2)
        self.end()

    def _lost(self) -> str | None:
        """Reason why a guard that has ended may not have restored the limit; None if it has."""
        status = self.status()
        return None if status == 0 else self.stderr_tail().strip() or f"its guard ended with status {status}"


def guard(
    nvml: hardware.Nvml, uuid: str, orders: Callable[[], dict[str, Any] | None], tell: Callable[..., None]
) -> str | None:
    """Set each limit that is ordered; after the last order, restore the original one.

    It answers once at the start, on whether it can set limits, and then after each order.

    Returns:
        The reason why the original limit could not be restored; None if it was.
    """
    with nvml as session:
        try:
            handle = session.value("nvmlDeviceGetHandleByUUID", uuid)
            original = session.value(GET, handle)
            session.value(SET, handle, original)  # this shows whether it may be set
        except LookupError as error:
            return tell("answer", why=f"{error}. {RIGHTS}")
        tell("answer", why=None)
        while (order := orders()) is not None:
            tell("answer", why=session.read(SET, handle, round(order["watts"] * 1000)).reason)
        return session.read(SET, handle, original).reason


def main() -> None:
    parent, orders = process.Parent(), queue.SimpleQueue()
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: orders.put(None))
    parent.listen(orders.put, at_end=lambda: orders.put(None))
    uuid = parent.content["uuid"]
    lock = f"power-limit-{uuid}"  # a second guard would find the limit that this one has set, and restore that
    try:
        with hardware.take(lock):
            sys.exit(guard(hardware.Nvml(), uuid, orders.get, parent.tell))
    except Timeout:
        parent.tell("answer", why=f"another process is changing it ({hardware.holder_of(lock)}): wait until it ends")
    except UserError as error:
        parent.tell("answer", why=str(error).rstrip("."))


if __name__ == "__main__":
    main()

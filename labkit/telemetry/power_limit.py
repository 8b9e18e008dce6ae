"""The power limit of a GPU, set for a while and put back, whatever happens to who asked for it.

Run as a program, this is the guard: it sets what it is told, and puts back what it found when its input closes, which
the kernel does when its parent ends.
"""

from __future__ import annotations

import queue
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from filelock import Timeout

from labkit.errors import UserError
from labkit.hardware import Answer, Device, Nvml, holder_of, occupants, take
from labkit.process import Child, Parent

GET, SET = "nvmlDeviceGetPowerManagementLimit", "nvmlDeviceSetPowerManagementLimit"
ANSWER_S = 20.0
"""For the guard to start, and to set a limit"""
RIGHTS = (
    "Setting it takes an administrator's rights: run the whole command as root, in a container with --cap-add "
    "SYS_ADMIN; or have one set a limit (`sudo nvidia-smi -i GPU -pl WATTS`), and run the trials without "
    "--power-limits under each"
)
"""How to get them"""


def check_power_limits(device: Device, limits_w: Sequence[float], nvml: Nvml | None = None) -> None:
    """Refuse a sweep of power limits that this device cannot have; nothing is changed.

    `nvml` is not yet open; the default talks to the driver of this machine.

    Raises:
        UserError: there is no such GPU, a limit is out of its range, or others compute on it.
    """
    if device.kind == "mig":
        raise UserError(
            f"--power-limits: {device.uuid} is a MIG slice, which has no power limit of its own; that of its whole GPU "
            "would slow the other slices, too: sweep on a GPU without MIG."
        )
    with nvml or Nvml() as session:
        if device.kind == "cpu":
            why = f" ({session.reason})" if session.reason else ": choose it with --budget gpu"
            raise UserError(f"--power-limits sweeps the limit of an NVIDIA GPU, and training is to use a CPU{why}.")
        handle = session.read("nvmlDeviceGetHandleByUUID", device.uuid)
        limits = _after(handle, lambda: session.read("nvmlDeviceGetPowerManagementLimitConstraints", handle.value))
        found = _after(limits, lambda: session.read(GET, handle.value))
        if found.reason is not None:
            raise UserError(f"--power-limits: {device.name} tells no power limit: {found.reason}.")
        low_w, high_w = (milliwatts / 1000 for milliwatts in limits.value)
        if outside := [f"{limit:g}" for limit in limits_w if not low_w <= limit <= high_w]:
            raise UserError(
                f"--power-limits: {device.name} takes {low_w:g} to {high_w:g} W, not {', '.join(outside)}: name limits "
                "within that."
            )
        others, _ = occupants(device, session)
        if others:
            raise UserError(
                f"--power-limits: {others[0]} uses {device.name}, and a limit would slow it, too: wait for its end."
            )


class PowerLimit(Child):
    """The guard of a GPU's power limit; a context manager, after which the limit is what it was before."""

    def __init__(self, device: Device):
        super().__init__("labkit.telemetry.power_limit", {"uuid": device.uuid})
        self._device = device

    def __enter__(self) -> PowerLimit:
        """Start the guard.

        Raises:
            UserError: another sweep goes on, or the limit cannot be set, for want of rights or otherwise.
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
        """Why the guard did not do the latest."""
        try:
            told = self.next_message(ANSWER_S) or {"why": f"its guard has said nothing for {ANSWER_S:g} s"}
        except EOFError:
            told = {"why": self._lost() or "its guard was ended, and has put back the limit that it found"}
        return told["why"]

    def __exit__(self, *exception: object) -> None:
        self.stop()
        if why := self._lost():
            by_hand = f"`nvidia-smi -i {self._device.uuid} -q -d POWER` shows it"
            warnings.warn(f"{self._device.name} may not have its power limit back ({why}): {by_hand}", stacklevel=2)
        self.end()

    def _lost(self) -> str | None:
        """Why the limit that was found may not be back, of a guard that has ended."""
        status = self.status()
        return None if status == 0 else self.stderr_tail().strip() or f"its guard ended with status {status}"


def guard(nvml: Nvml, uuid: str, orders: Callable[[], dict[str, Any] | None], tell: Callable[..., None]) -> str | None:
    """Set the limits that are ordered until there is no order more, then what there was before; why it could not.

    It tells first whether it can, and then of each order.
    """
    with nvml as session:
        handle = session.read("nvmlDeviceGetHandleByUUID", uuid)
        found = _after(handle, lambda: session.read(GET, handle.value))
        # to what it is: whether it may be
        setting = _after(found, lambda: session.read(SET, handle.value, found.value))
        if setting.reason is not None:
            return tell("answer", why=f"{setting.reason}. {RIGHTS}")
        tell("answer", why=None)
        while (order := orders()) is not None:
            milliwatts = round(order["watts"] * 1000)
            tell("answer", why=session.read(SET, handle.value, milliwatts).reason)
        return session.read(SET, handle.value, found.value).reason


def _after(before: Answer, call: Callable[[], Answer]) -> Answer:
    """What a call gives, where the one before it gave something."""
    return before if before.reason is not None else call()


def main() -> None:
    parent, orders = Parent(), queue.SimpleQueue()
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: orders.put(None))
    parent.listen(orders.put, at_end=lambda: orders.put(None))
    uuid = parent.content["uuid"]
    lock = f"power-limit-{uuid}"  # a second guard would find the limit that this one set, and put that back last
    try:
        with take(lock):
            sys.exit(guard(Nvml(), uuid, orders.get, parent.tell))
    except Timeout:
        parent.tell("answer", why=f"another sweep of it goes on ({holder_of(lock)}): wait for its end")
    except UserError as error:
        parent.tell("answer", why=str(error).rstrip("."))


if __name__ == "__main__":
    main()

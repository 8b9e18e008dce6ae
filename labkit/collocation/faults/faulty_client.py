"""The program of a client in the fault lab: it trains a small model, and fails when it is told to.

It is told `{"fault", "steps", "device", "cores"}`; at the first order "go" it begins, and at the second it fails. So no
clock decides what has happened before the fault.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from labkit.collocation.faults.fault import FAULTS
from labkit.hardware.budgets.budget import is_out_of_memory
from labkit.process.child import Parent

BEGIN, FAIL = 1, 2
"""Cues."""
TELL_EVERY_S = 0.05
BATCH, WIDTH = 256, 384
"""Wide enough that a step on a CPU is mostly arithmetic, some milliseconds of it."""
LEAK_BYTES, LEAK_CHUNK_BYTES = 256 * 2**20, 4 * 2**20
"""What a leaking client may take beyond what it has; no more than this of the machine is ever at stake."""
FAR = 2**40
"""Elements: no GPU has so much memory behind a tensor."""


class Training:
    """A multi-layer perceptron that learns to copy its input: (BATCH, WIDTH) in, (BATCH, WIDTH) out."""

    def __init__(self, device: str):
        layers = [nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)]
        self.model = nn.Sequential(*layers).to(device)
        self.optimiser = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.inputs = torch.randn(BATCH, WIDTH, device=device)

    def step(self) -> float:
        """Take a step, and wait for its end: a GPU would run behind, and its errors with it."""
        loss = nn.functional.mse_loss(self.model(self.inputs), self.inputs)
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        return loss.item()


class _Cues:
    """Counts the cues; the end of the orders asks to stop."""

    def __init__(self, parent: Parent):
        self.given, self.over = 0, False
        self._changed = threading.Condition()
        parent.listen(lambda order: self._take(given=self.given + 1), lambda: self._take(over=True))

    def wait(self, cue: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self.given >= cue or self.over)

    def _take(self, **changes: Any) -> None:
        with self._changed:
            vars(self).update(changes)
            self._changed.notify_all()


def fail(fault: str, device: str) -> None:
    """Fail so; it returns from no fault but "kill", which comes from outside."""
    {
        "exception": _raise,
        "segfault": lambda: ctypes.string_at(0),
        "leak": lambda: _leak(device),
        "spin": _spin,
        "hold": threading.Event().wait,
        "gpu-assert": lambda: _index_out_of_tensor(device),
        "gpu-access": lambda: _write_out_of_memory(device),
    }.get(fault, lambda: None)()


def _raise() -> None:
    raise RuntimeError("the fault that was asked for")


def _leak(device: str) -> None:
    if device == "cpu" and sys.platform == "linux":
        _cap_data()
    held = []
    while len(held) * LEAK_CHUNK_BYTES < LEAK_BYTES:
        held.append(torch.ones(LEAK_CHUNK_BYTES // 4, device=device))
    raise MemoryError(f"it took its cap of {LEAK_BYTES / 2**20:.0f} MiB beyond what it had")


def _cap_data() -> None:
    """Let the kernel refuse what is beyond the cap to this process.

    Elsewhere than on Linux, and on a GPU, it is the leak itself that stops there.
    """
    import resource

    import psutil

    has = psutil.Process().memory_info().data
    resource.setrlimit(resource.RLIMIT_DATA, (has + LEAK_BYTES, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def _spin() -> None:
    while True:
        pass


def _index_out_of_tensor(device: str) -> None:
    torch.zeros(4, device=device)[torch.tensor([99], device=device)].sum().item()


def _write_out_of_memory(device: str) -> None:
    real = torch.zeros(4, device=device)

    class Wide:
        __cuda_array_interface__: dict[str, Any] = {  # noqa: RUF012
            "shape": (FAR,),
            "typestr": "<f4",
            "data": (real.data_ptr(), False),
            "version": 2,
        }

    torch.as_tensor(Wide(), device=device)[FAR - 1].fill_(1.0)
    torch.cuda.synchronize(device)


def main() -> int:
    parent = Parent()
    command, tell = parent.content, parent.tell
    if command["cores"] is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, command["cores"])  # the mode's variables say how many threads
    if command["fault"] in FAULTS and FAULTS[command["fault"]].hangs:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _leave_no_core()
    try:
        _train(command, _Cues(parent), tell)
    except BaseException as error:
        traceback.print_exc()
        status = "out_of_memory" if is_out_of_memory(error) else "failed"
        tell("Failed", status=status, reason=f"{type(error).__name__}: {error}".splitlines()[0])
        return 1
    tell("Ended", status="done")
    return 0


def _leave_no_core() -> None:
    with contextlib.suppress(ImportError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def _train(command: dict[str, Any], cues: _Cues, tell: Callable[..., None]) -> None:
    device, fault = command["device"], command["fault"]
    training = Training(device)
    tell("Ready")
    cues.wait(BEGIN)
    steps, tell_at = 0, 0.0
    while not cues.over and steps != command["steps"]:
        if fault is not None and cues.given >= FAIL:
            tell("Fails", steps=steps, at_s=time.monotonic())
            fail(fault, device)
        training.step()
        steps += 1
        now = time.monotonic()
        if now >= tell_at:
            tell("Steps", steps=steps, at_s=now)
            tell_at = now + TELL_EVERY_S


if __name__ == "__main__":
    status = main()
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    os._exit(status)

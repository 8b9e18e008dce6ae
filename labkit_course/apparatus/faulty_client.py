"""The program of a client in the fault lab: it trains a small model, and fails on order.

Its settings are `{"fault", "device", "cores"}`; at the first order it begins, and at the second it fails.
So no clock decides what has happened before the fault.
"""

import contextlib
import ctypes
import os
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psutil
import torch
from torch import nn

from labkit.hardware import is_out_of_memory
from labkit.process import Parent

BATCH, WIDTH = 256, 384
"""Wide enough that a step on a CPU is mostly arithmetic, some milliseconds of it."""
LEAK_BYTES, LEAK_CHUNK_BYTES = 256 * 2**20, 4 * 2**20
"""What a leaking client may take beyond what it has; no more than this of the machine is ever at stake."""
FAR = 2**40
"""Elements: no GPU has so much memory behind a tensor."""


@dataclass(frozen=True)
class Fault:
    """One way to fail."""

    name: str
    words: str
    """What the client does."""
    hangs: bool = False
    """Whether it ignores SIGTERM and stays until it is killed."""
    gpu_only: bool = False


FAULTS = {
    fault.name: fault
    for fault in (
        Fault("exception", "raises an exception that is not caught"),
        Fault("segfault", "reads memory that is not there, so that the kernel ends its process by SIGSEGV"),
        Fault("leak", "allocates until its cap"),
        Fault("spin", "computes something else without end: no step, and a core kept busy", hangs=True),
        Fault("hold", "sleeps without end: no step, and all of its memory kept", hangs=True),
        Fault("kill", "is killed from outside by SIGKILL"),
        Fault("gpu-assert", "fails an assertion in a kernel: an index that is out of its tensor", gpu_only=True),
        Fault("gpu-access", "writes from a kernel where no memory is: an illegal memory access", gpu_only=True),
    )
}


def training(device: str) -> Callable[[], float]:
    """A step of a perceptron that learns to copy its input, (BATCH, WIDTH), which waits for its own end."""
    layers = [nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)]
    model = nn.Sequential(*layers).to(device)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.randn(BATCH, WIDTH, device=device)

    def step() -> float:
        loss = nn.functional.mse_loss(model(inputs), inputs)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return loss.item()  # a GPU would run behind, and its errors with it

    return step


def fail(fault: str, device: str) -> None:
    """Fail so; it returns from no fault but "kill", which comes from outside."""
    if fault == "exception":
        raise RuntimeError("the fault that was asked for")
    if fault == "segfault":
        ctypes.string_at(0)
    if fault == "leak":
        _leak(device)
    while fault == "spin":
        pass
    if fault == "hold":
        threading.Event().wait()
    if fault == "gpu-assert":  # an index out of its tensor
        torch.zeros(4, device=device)[torch.tensor([99], device=device)].sum().item()
    if fault == "gpu-access":
        _write_out_of_memory(device)


def _leak(device: str) -> None:
    if device == "cpu" and sys.platform == "linux":
        # the kernel refuses what is beyond the cap; elsewhere, and on a GPU, it is the leak itself that stops there
        has = psutil.Process().memory_info().data
        resource.setrlimit(resource.RLIMIT_DATA, (has + LEAK_BYTES, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    held = []
    while len(held) * LEAK_CHUNK_BYTES < LEAK_BYTES:
        held.append(torch.ones(LEAK_CHUNK_BYTES // 4, device=device))
    raise MemoryError(f"it took its cap of {LEAK_BYTES / 2**20:.0f} MiB beyond what it had")


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
    parent, orders, over = Parent(), threading.Semaphore(0), threading.Event()
    command = parent.content

    def end() -> None:
        over.set()
        orders.release()

    parent.listen(lambda order: orders.release(), end)
    if command["cores"] is not None:
        os.sched_setaffinity(0, command["cores"])  # the mode's variables say how many threads
    if command["fault"] in FAULTS and FAULTS[command["fault"]].hangs:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))  # a crash leaves none
    try:
        step = training(command["device"])
        parent.tell("Ready")
        orders.acquire()
        steps, tell_at = 0, 0.0
        while not over.is_set():
            if command["fault"] and orders.acquire(blocking=False) and not over.is_set():
                parent.tell("Fails", steps=steps, at_s=time.monotonic())
                fail(command["fault"], command["device"])
            step()
            steps += 1
            now = time.monotonic()
            if now >= tell_at:
                parent.tell("Steps", steps=steps, at_s=now)
                tell_at = now + 0.05
    except BaseException as error:
        traceback.print_exc()
        status = "out_of_memory" if is_out_of_memory(error) else "failed"
        parent.tell("Failed", status=status, reason=f"{type(error).__name__}: {error}".splitlines()[0])
        return 1
    parent.tell("Ended", status="done")
    return 0


if __name__ == "__main__":
    status = main()
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    os._exit(status)

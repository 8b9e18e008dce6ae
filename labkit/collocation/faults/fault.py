"""The ways in which a client of the fault lab fails."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """One way to fail."""

    name: str
    words: str
    """What the client does"""
    hangs: bool = False
    """Whether it stays, deaf to SIGTERM, until it is killed"""
    gpu_only: bool = False


FAULTS = {
    fault.name: fault
    for fault in (
        Fault("exception", "raises an exception that nobody catches"),
        Fault("segfault", "reads memory that is not there, so that the kernel ends its process by SIGSEGV"),
        Fault("leak", "allocates until its cap"),
        Fault("spin", "computes something else for ever: no step, and a core kept busy", hangs=True),
        Fault("hold", "sleeps for ever: no step, and all of its memory kept", hangs=True),
        Fault("kill", "is killed from outside by SIGKILL"),
        Fault("gpu-assert", "fails an assertion in a kernel: an index that is out of its tensor", gpu_only=True),
        Fault("gpu-access", "writes from a kernel where no memory is: an illegal memory access", gpu_only=True),
    )
}

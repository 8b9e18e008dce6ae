"""What a process takes before any tensor: measured on this machine, since it depends on builds and libraries."""

from __future__ import annotations

import functools

from labkit.collocation.memory.measure import ask_child


@functools.cache
def base_bytes(job: str, compiled: bool) -> int:
    """Bytes that a process holds when it has trained one step of a model of no size; measured once a process.

    Args:
        job: "dlrm" or "speech".
        compiled: with the compiled kernels of the table update, which bring a compiler along.
    """
    return ask_child({"what": "base", "job": job, "compiled": compiled})["bytes"]

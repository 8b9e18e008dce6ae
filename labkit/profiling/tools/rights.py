"""What the kernel lets this process do: its capabilities, and whether it is in a container."""

from __future__ import annotations

from pathlib import Path

STATUS = Path("/proc/self/status")
CONTAINER_MARKS = (Path("/.dockerenv"), Path("/run/.containerenv"))
"""Files that Docker and Podman put into a container"""
CAPABILITIES = {"SYS_PTRACE": 19, "SYS_ADMIN": 21, "PERFMON": 38}
"""Bits of CapEff (capabilities(7), linux/capability.h)"""


def in_container() -> bool:
    """Whether this is a container of Docker or Podman."""
    return any(mark.exists() for mark in CONTAINER_MARKS)


def has_capability(*names: str) -> bool:
    """Whether this process has one of the capabilities; true where the kernel has no such thing."""
    try:
        lines = STATUS.read_text().splitlines()
    except OSError:
        return True
    bits = next((int(line.split()[1], 16) for line in lines if line.startswith("CapEff:")), None)
    return bits is None or any(bits >> CAPABILITIES[name] & 1 for name in names)

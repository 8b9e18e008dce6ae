"""What a container leaves of the machine: CPU quota and memory limit of the control groups, v1 and v2."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Limits:
    """Limits of the control groups this process is in; None where there is none."""

    cores: float | None = None
    """CPU time per time: 1.5 means one and a half cores"""
    memory_bytes: int | None = None


def cgroup_limits(root: Path = Path("/")) -> Limits:
    """Return the tightest limits of this process' control group and its parents.

    Args:
        root: the root of the file system, for tests.
    """
    cores: list[float] = []
    memory: list[int] = []
    for controllers, path in _groups(root):
        for folder in _folders(root, controllers, path):
            cores += _cores(folder)
            memory += _memory(folder)
    return Limits(min(cores, default=None), min(memory, default=None))


def _groups(root: Path) -> Iterator[tuple[str, str]]:
    for line in (_read(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "memory") or "cpu" in controllers.split(","):
            yield controllers, path


def _folders(root: Path, controllers: str, path: str) -> Iterator[Path]:
    mount = root / "sys/fs/cgroup" / controllers
    folder = mount / path.lstrip("/")
    # In a container the path may be the host's and not exist here: its own group is then the mount itself.
    while folder != mount and mount in folder.parents:
        yield folder
        folder = folder.parent
    yield mount


def _cores(folder: Path) -> list[float]:
    v2 = (_read(folder / "cpu.max") or "max").split()
    if v2[0] != "max":
        return [int(v2[0]) / int(v2[1])]
    quota, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
    return [int(quota) / int(period)] if quota and period and int(quota) > 0 else []


def _memory(folder: Path) -> list[int]:
    for name in ("memory.max", "memory.limit_in_bytes"):
        text = _read(folder / name)
        # v1 writes "no limit" as the largest multiple of the page size
        if text and text != "max" and int(text) < 2**62:
            return [int(text)]
    return []


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None

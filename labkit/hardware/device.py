"""One description for everything that can run a job: a CPU, a GPU or a MIG slice."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Device:
    """Something that can run a job. A field is None where it does not apply or could not be read."""

    kind: str
    """cpu, gpu or mig"""
    index: int
    """Number of the GPU in PCI order (of the parent GPU for a MIG slice); 0 for the CPU."""
    name: str
    torch_name: str | None = None
    """What torch calls it in this process, or None where CUDA cannot reach it."""
    uuid: str | None = None
    memory_bytes: int | None = None
    cores: int | None = None
    """CPU cores this process may use"""
    machine_cores: int | None = None
    """CPU cores of the machine, or of the container, of which this process may be bound to fewer"""
    sm_count: int | None = None
    compute_capability: str | None = None
    power_limit_w: float | None = None
    driver_version: str | None = None
    mig_mode: str | None = None
    """on or off"""
    mig_parent_uuid: str | None = None
    mig_profile: str | None = None
    """for example 1g.10gb"""
    missing: dict[str, str] = field(default_factory=dict, compare=False, hash=False)
    """Why a field is None, by the field's name."""

    @property
    def gpu_uuid(self) -> str | None:
        """UUID of the physical GPU."""
        return self.mig_parent_uuid or self.uuid

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

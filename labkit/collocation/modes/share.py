"""What one job gets of the device that it shares."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Share:
    """What binds the process of one job."""

    device: str
    """In words: the GPU, the slice, or the cores"""
    environment: dict[str, str] = field(default_factory=dict)
    """Variables that bind it, CUDA_VISIBLE_DEVICES for one; an empty value takes a variable away"""
    cores: tuple[int, ...] | None = None
    """CPU cores that it is bound to; None leaves it all"""
    memory_bytes: int | None = None
    """Cap on its memory, or None"""
    torch_name: str = "cpu"
    """What torch calls the device in the job's process"""

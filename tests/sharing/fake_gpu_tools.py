"""MIG instances that come and go: they live in a file, which the fake NVML reads."""

import json
from pathlib import Path
from types import SimpleNamespace

from labkit.hardware import Nvml, find_device, get_devices
from labkit.sharing.modes import mode_refusals, mode_shares
from labkit.sharing.shares import Place, Refusal, Share


def write_mig(state: Path, *, on: bool = True, instances=(), **more) -> Path:
    """The MIG state of the first GPU: the profiles of its instances, numbered from 1."""
    numbered = {str(number): each for number, each in enumerate(instances, start=1)}
    state.write_text(json.dumps({"on": on, "instances": numbered, **more}))
    return state


def slices_in(state: Path):
    """What `fake_nvml` asks for the slices."""

    def slices() -> dict | None:
        mig = json.loads(state.read_text())
        return {f"MIG-{number}": each for number, each in mig["instances"].items()} if mig["on"] else None

    return slices


def process(pid: int, memory_bytes: int = 2**30) -> SimpleNamespace:
    return SimpleNamespace(pid=pid, usedGpuMemory=memory_bytes)


def place_on(library, device: str | None, nvml: Nvml, **more) -> Place:
    devices = get_devices(Nvml(library))
    return Place(find_device(device, devices), devices, nvml, **more)


def refusals(mode: str, jobs, library, device: str | None = None, **more) -> list[Refusal]:
    """What is against a mode on a fake machine."""
    with Nvml(library) as nvml:
        return mode_refusals(mode, jobs, place_on(library, device, nvml, **more))


def shares(mode: str, jobs, library, device: str | None = None, **more) -> dict[str, Share]:
    """What jobs get in a mode on a fake machine."""
    with Nvml(library) as nvml:
        return mode_shares(mode, jobs, place_on(library, device, nvml, **more))

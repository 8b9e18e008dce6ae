"""MIG instances that come and go: they live in a file, which a fake nvidia-smi changes and the fake NVML reads."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

from fake_nvml import FIRST, put_on_path

from labkit.hardware import Nvml, find_device, get_devices
from labkit.sharing.modes import mode_refusals, mode_shares
from labkit.sharing.shares import Place, Refusal, Share


def write_mig(state: Path, *, on: bool = True, instances=(), **more) -> Path:
    """The MIG state of the first GPU: the profiles of its instances, numbered from 1."""
    numbered = {str(number): each for number, each in enumerate(instances, start=1)}
    state.write_text(json.dumps({"on": on, "instances": numbered, "next": len(numbered) + 1, "calls": [], **more}))
    return state


def read_mig(state: Path) -> dict:
    return json.loads(state.read_text())


def slices_in(state: Path):
    """What `fake_nvml` asks for the slices."""

    def slices() -> dict | None:
        mig = read_mig(state)
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


NVIDIA_SMI = """
import atexit, json, pathlib, sys
path = pathlib.Path(STATE)
state = json.loads(path.read_text())
arguments = sys.argv[1:]
state["calls"].append(arguments)
atexit.register(lambda: path.write_text(json.dumps(state)))
assert arguments[:3] == ["mig", "-i", GPU], arguments
what = arguments[3]
if state.get("no_rights"):
    sys.exit("Unable to create a GPU instance: Insufficient Permissions")
if what == "-cgi":
    for made, each in enumerate(arguments[4].split(",")):
        if made == state.get("breaks_after"):
            sys.exit("Failed to create GPU instances: Insufficient Resources")
        number, state["next"] = state["next"], state["next"] + 1
        state["instances"][str(number)] = each
        print(f"Successfully created GPU instance ID  {number} on GPU  0 using profile MIG {each} (ID 19)")
        print(f"Successfully created compute instance ID  0 on GPU  0 GPU instance ID  {number} using profile MIG x")
elif what == "-dgi":
    assert arguments[4] == "-gi" and arguments[5] in state["instances"], arguments
    if state.get("busy", 0) > 0:
        state["busy"] -= 1
        sys.exit("Unable to destroy GPU instance ID  1 from GPU  0: In use by another client")
    del state["instances"][arguments[5]]
"""


def nvidia_smi(folder: Path, monkeypatch, state: Path) -> Path:
    """A fake nvidia-smi that changes the MIG state of the first GPU."""
    return put_on_path(folder, monkeypatch, "nvidia-smi", f"STATE, GPU = {str(state)!r}, {FIRST!r}\n{NVIDIA_SMI}")

"""Machines with two GPUs, or none, for tests: an NVML whose MIG instances come and go, and fake commands on PATH.

MIG instances live in a file, which the fake nvidia-smi changes and the fake NVML reads.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import fake_nvml as machine
import pynvml
from fake_nvml import FIRST, SECOND, error, put_on_path

from labkit.collocation.modes.choice import mode_refusals, mode_shares
from labkit.collocation.modes.place import Place, Refusal, Share
from labkit.hardware.devices import find_device, get_devices
from labkit.hardware.nvml import Nvml

GENERATIONS = {
    "pascal": "NVIDIA GeForce GTX 1080 Ti",
    "ampere": "NVIDIA A100-SXM4-40GB",
    "hopper": "NVIDIA H100 80GB HBM3",
}
PROFILES = {
    # of an A100 with 40 GB: NVML's number of the kind, nvidia-smi's, compute slices, MiB, memory slices.
    # Source: NVIDIA MIG User Guide, "Supported MIG Profiles"
    "1g.5gb": (0, 19, 1, 4864, 1),
    "2g.10gb": (1, 14, 2, 9856, 2),
    "3g.20gb": (2, 9, 3, 19968, 4),
    "4g.20gb": (3, 5, 4, 19968, 4),
    "7g.40gb": (4, 0, 7, 40192, 8),
    "1g.5gb+me": (7, 20, 1, 4864, 1),
    "1g.10gb": (9, 15, 1, 9856, 2),
}


def write_mig(state: Path, *, on: bool = True, instances=(), **more) -> Path:
    """The MIG state of the first GPU: the profiles of its instances, numbered from 1."""
    numbered = {str(number): each for number, each in enumerate(instances, start=1)}
    state.write_text(json.dumps({"on": on, "instances": numbered, "next": len(numbered) + 1, "calls": [], **more}))
    return state


def read_mig(state: Path) -> dict:
    return json.loads(state.read_text())


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


def fake_nvml(
    generation: str | None,
    *,
    mig: Path | None = None,
    computing=None,
    drawing=None,
    names=None,
    compute_mode: int = pynvml.NVML_COMPUTEMODE_DEFAULT,
    administrator: bool = True,
):
    """An NVML of two GPUs of a generation, a key of GENERATIONS, or None for a machine without a driver.

    `mig` is the file with the first GPU's MIG state; `computing` and `drawing` are processes by UUID, with `names`;
    `administrator`, whether the capacity for more instances may be asked for.
    """
    name = GENERATIONS[generation or "pascal"]

    def slices() -> dict | None:
        state = read_mig(mig)
        return {f"MIG-{number}": each for number, each in state["instances"].items()} if state["on"] else None

    def profile_of(handle):
        return PROFILES[slices()[handle]] if isinstance(handle, str) else None

    def memory(handle):
        total = profile_of(handle)[3] * 2**20 if profile_of(handle) else machine.GPUS[name][2] * 2**30
        return SimpleNamespace(total=total, free=total, used=0)

    def listed(processes):
        return lambda handle: (processes or {}).get(handle if isinstance(handle, str) else (FIRST, SECOND)[handle], [])

    def profile_info(handle, kind, version=2):
        for title, (number_of_kind, number, count, mib, _) in PROFILES.items():
            if mig is not None and number_of_kind == kind:
                return SimpleNamespace(id=number, sliceCount=count, memorySizeMB=mib, name=f"MIG {title}")
        raise error(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def capacity(handle, number):
        if not administrator:
            raise error(pynvml.NVML_ERROR_NO_PERMISSION)
        there = [PROFILES[title] for title in read_mig(mig)["instances"].values()]
        (own,) = [each for each in PROFILES.values() if each[1] == number]
        compute, memory = 7 - sum(each[2] for each in there), 8 - sum(each[4] for each in there)
        return min(compute // own[2], memory // own[4])

    answers = {
        "nvmlSystemGetDriverVersion": lambda: "570.86",
        "nvmlSystemGetProcessName": lambda pid: (names or {}).get(pid, "/usr/bin/python3"),
        "nvmlDeviceGetMemoryInfo": memory,
        "nvmlDeviceGetAttributes": lambda handle: SimpleNamespace(multiprocessorCount=14 * profile_of(handle)[2]),
        "nvmlDeviceGetComputeMode": lambda handle: compute_mode,
        "nvmlDeviceGetComputeRunningProcesses": listed(computing),
        "nvmlDeviceGetGraphicsRunningProcesses": listed(drawing),
        "nvmlDeviceGetGpuInstanceProfileInfo": profile_info,
        "nvmlDeviceGetGpuInstanceRemainingCapacity": capacity,
    }
    fails = {} if generation else {"nvmlInit": pynvml.NVML_ERROR_LIBRARY_NOT_FOUND}
    return machine.fake_nvml(name, name, mig=slices if mig else None, fails=fails, **answers)


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

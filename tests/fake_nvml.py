"""A machine with NVIDIA GPUs, for tests: pynvml's functions with made-up answers, and fake commands on PATH."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import create_autospec

import pynvml

FIRST, SECOND = "GPU-aaaa1111-0000", "GPU-bbbb2222-0000"
"""UUIDs of the GPUs"""
SLICE, OTHER_SLICE = "MIG-11110000-0000", "MIG-22220000-0000"
GPUS = {
    # name: (compute capability, CUDA cores, GiB)
    "NVIDIA Tegra X1": ((5, 3), 128, 4),
    "NVIDIA GeForce GTX 1080 Ti": ((6, 1), 3584, 11),
    "Tesla V100-SXM2-16GB": ((7, 0), 5120, 16),
    "Tesla T4": ((7, 5), 2560, 16),
    "NVIDIA A100-SXM4-40GB": ((8, 0), 6912, 40),
    "NVIDIA A10G": ((8, 6), 10240, 24),
    "NVIDIA GeForce RTX 4060": ((8, 9), 3072, 8),
    "NVIDIA L4": ((8, 9), 7680, 24),
    "NVIDIA L40S": ((8, 9), 18176, 48),
    "NVIDIA H100 80GB HBM3": ((9, 0), 16896, 80),
    "NVIDIA H200": ((9, 0), 16896, 141),
}


def error(code: int) -> pynvml.NVMLError:
    return pynvml.NVMLError(code)


def refuse(code: int):
    raise error(code)


def fake_nvml(*names: str, mig=None, fails=(), **answers):
    """An NVML of these GPUs, whose handles are their numbers and the UUIDs of slices.

    Args:
        names: of GPUS; the first is `FIRST`, the second `SECOND`.
        mig: gives the slices of the first GPU as they are now, each UUID with its profile, or None where MIG is off.
        fails: calls with NVML's number of the failure that each ends in.
        answers: functions for calls that are not here, or in place of those that are.
    """
    uuids = (FIRST, SECOND)[: len(names)]

    def slices():
        return (mig() if mig else None) or {}

    def handle_of(uuid):
        found = uuids.index(uuid) if uuid in uuids else uuid if uuid in slices() else None
        return refuse(pynvml.NVML_ERROR_NOT_FOUND) if found is None else found

    def kind(handle):
        """The first GPU's, for its slices."""
        return GPUS[names[0 if handle in slices() else handle]]

    def name(handle):
        return f"{names[0]} MIG {slices()[handle]}" if handle in slices() else names[handle]

    def memory(handle):
        total = 5 if handle in slices() else kind(handle)[2] * 2**30
        return SimpleNamespace(total=total, free=total, used=0)

    def mig_mode(handle):
        if GPUS[names[handle]][0] < (8, 0):
            refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return [int(handle == 0 and mig is not None and mig() is not None)] * 2

    def mig_slice(handle, place):
        there = list(slices()) if handle == 0 else []
        return there[place] if place < len(there) else refuse(pynvml.NVML_ERROR_NOT_FOUND)

    calls = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: "580.1",
        "nvmlDeviceGetCount": lambda: len(names),
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetHandleByUUID": handle_of,
        "nvmlDeviceGetName": name,
        "nvmlDeviceGetUUID": lambda handle: handle if handle in slices() else uuids[handle],
        "nvmlDeviceGetMemoryInfo": memory,
        "nvmlDeviceGetCudaComputeCapability": lambda handle: kind(handle)[0],
        "nvmlDeviceGetNumGpuCores": lambda handle: kind(handle)[1],
        "nvmlDeviceGetPowerManagementLimit": lambda handle: 250_000,
        "nvmlDeviceGetAttributes": lambda handle: SimpleNamespace(multiprocessorCount=14),
        "nvmlDeviceGetMigMode": mig_mode,
        "nvmlDeviceGetMaxMigDeviceCount": lambda handle: 7,
        "nvmlDeviceGetMigDeviceHandleByIndex": mig_slice,
    } | answers
    calls |= {call: error(code) for call, code in dict(fails).items()}
    return SimpleNamespace(
        **{call: create_autospec(getattr(pynvml, call), side_effect=answer) for call, answer in calls.items()}
    )


def fail(library, call: str, code: int) -> None:
    """Let a call of the library fail from now on."""
    getattr(library, call).side_effect = error(code)


def put_on_path(folder: Path, monkeypatch, name: str, code: str) -> Path:
    """A command for this test, found before all others: a script with its interpreter named, or Python code."""
    tool = folder / "bin" / name
    tool.parent.mkdir(exist_ok=True)
    tool.write_text(code if code.startswith("#!") else f"#!{sys.executable} -S\n{code}")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")
    return tool

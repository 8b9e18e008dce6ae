"""The doctor: what this machine is, and what to install on it."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from pathlib import Path
from typing import Any

from labkit.hardware.budgets.names import offered_budgets
from labkit.hardware.cpu import CpuInfo, isa_capped, read_cpu
from labkit.hardware.device import Device
from labkit.hardware.devices import get_devices
from labkit.hardware.nvml import Nvml
from labkit.hardware.software import PACKAGES, install_command, package_versions
from labkit.hardware.tiers import match_tier
from labkit.hardware.tools import find_mps, find_profilers

PROFILER_INSTALLS = {
    "nsys": "install NVIDIA Nsight Systems: https://developer.nvidia.com/nsight-systems",
    "ncu": "install NVIDIA Nsight Compute: https://developer.nvidia.com/nsight-compute",
    "py-spy": "python -m pip install py-spy",
    "perf": "sudo apt install linux-tools-common linux-tools-generic",
    "dcgmi": "install NVIDIA DCGM: https://developer.nvidia.com/dcgm",
}
"""How to get each profiler."""

PACKAGE_USES = {
    "core": "labkit needs it",
    "fast": "training steps and data preparation are faster with it",
    "lab": "the notebooks need it",
}
"""What a missing package means, by what needs it."""

NVIDIA_ONLY = ("nsys", "ncu", "dcgmi")
"""Profilers that say nothing on a machine without an NVIDIA GPU."""


def examine(nvml: Nvml | None = None) -> dict[str, Any]:
    """Return everything the doctor knows, as JSON-able data. Works without torch installed.

    Args:
        nvml: a session that is not yet open; the default talks to the driver of this machine.
    """
    cpu = read_cpu()
    nvml = nvml or Nvml()
    devices = get_devices(nvml)
    disk_free = shutil.disk_usage(Path.cwd()).free
    versions = package_versions()
    tier = match_tier(devices[0])
    report: dict[str, Any] = {
        "python": platform.python_version(),
        "executable": sys.executable,
        "system": f"{platform.system()} {platform.release()}",
        "cpu": _cpu_report(cpu) | {"tier": tier and tier.name},
        "memory": {
            "total_bytes": cpu.memory_bytes,
            "available_bytes": cpu.memory_available_bytes,
            "limited_by_container": cpu.memory_limited,
        },
        "disk": {"path": str(Path.cwd()), "free_bytes": disk_free},
        "gpus": [_gpu_report(device) for device in devices[1:]],
        "driver": {"found": nvml.reason is None, "version": _driver_version(devices), "reason": nvml.reason},
        "cuda_visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "mig": _mig_report(devices),
        "mps": find_mps(),
        "profilers": [tool.to_dict() for tool in find_profilers()],
        "packages": versions,
        "budgets": [budget.to_dict() for budget in offered_budgets(devices)],
    }
    report["advice"] = _advice(report)
    return report


def _cpu_report(cpu: CpuInfo) -> dict[str, Any]:
    usable, notes = isa_capped(cpu.isa) if cpu.isa is not None else (None, ["this system does not say"])
    return {
        "model": cpu.model,
        "board": cpu.board,
        "architecture": cpu.architecture,
        "physical_cores": cpu.physical_cores,
        "logical_cores": cpu.logical_cores,
        "available_cores": cpu.available_cores,
        "quota_cores": cpu.quota_cores,
        "isa": None if cpu.isa is None else list(cpu.isa),
        "isa_usable": None if usable is None else list(usable),
        "isa_notes": notes,
        "caches_bytes": dict(cpu.caches),
    }


def _gpu_report(device: Device) -> dict[str, Any]:
    tier = match_tier(device)
    return device.to_dict() | {"tier": tier and tier.name}


def _driver_version(devices: list[Device]) -> str | None:
    return next((device.driver_version for device in devices if device.driver_version), None)


def _mig_report(devices: list[Device]) -> dict[str, Any]:
    gpus = devices[1:]
    slices = [device for device in gpus if device.kind == "mig"]
    if not gpus:
        note = "no GPU"
    elif slices:
        note = None
    else:
        note = next((gpu.missing["mig_mode"] for gpu in gpus if "mig_mode" in gpu.missing), "off")
    return {"on": any(device.mig_mode == "on" for device in gpus), "slices": len(slices), "note": note}


def _advice(report: dict[str, Any]) -> list[dict[str, str]]:
    advice = []
    missing = [package for package, version in report["packages"].items() if version is None]
    for need, what in PACKAGE_USES.items():
        packages = [package for package in missing if PACKAGES[package] == need]
        if packages:
            advice.append({"why": f"{', '.join(packages)} not installed ({what})", "do": install_command(packages)})
    advice += _gpu_advice(report)
    for tool in report["profilers"]:
        if tool["works"] or (tool["name"] in NVIDIA_ONLY and not report["gpus"]):
            continue
        found = f"found but {tool['note']}" if tool["path"] else "not found"
        advice.append({"why": f"profiler {tool['name']}: {found}", "do": PROFILER_INSTALLS[tool["name"]]})
    if report["memory"]["available_bytes"] < 2e9:
        free = report["memory"]["available_bytes"] / 1e9
        advice.append({"why": f"only {free:.1f} GB of memory are free now", "do": "close other programs before a lab"})
    return advice


def _gpu_advice(report: dict[str, Any]) -> list[dict[str, str]]:
    torch_version = report["packages"]["torch"] or ""
    gpus = report["gpus"]
    advice = []
    if any(gpu["torch_name"] for gpu in gpus) and torch_version.endswith("+cpu"):
        why = f"there is a GPU, but torch {torch_version} is built for CPUs only"
        do = "python -m pip install --force-reinstall torch (Windows: see https://pytorch.org/get-started)"
        advice.append({"why": why, "do": do})
    unreachable = [gpu for gpu in gpus if gpu["torch_name"] is None]
    advice += [{"why": f"{gpu['name']} is out of reach", "do": gpu["missing"]["torch_name"]} for gpu in unreachable]
    mixed = len({gpu["name"] for gpu in gpus if gpu["kind"] == "gpu"}) > 1
    if mixed and os.environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        why = "the GPUs differ, and CUDA numbers the fastest first while the driver numbers them by slot"
        advice.append({"why": why, "do": "export CUDA_DEVICE_ORDER=PCI_BUS_ID"})
    return advice

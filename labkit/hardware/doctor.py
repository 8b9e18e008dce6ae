"""The doctor: a description of this machine, and advice on what to install."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from labkit import json_data
from labkit.hardware.budgets.names import offered_budgets
from labkit.hardware.cpu import ISA_CAPS, read_cpu
from labkit.hardware.devices import Device, get_devices
from labkit.hardware.nvml import Nvml
from labkit.hardware.software import EXTRAS, PROFILERS, find_mps, find_profilers, package_versions, requirements
from labkit.hardware.tiers import tier_name


def examine(nvml: Nvml | None = None) -> dict[str, Any]:
    """Return the doctor's report as JSON-able data. `nvml` is a session that is not open yet."""
    cpu, nvml, versions = read_cpu(), nvml or Nvml(), package_versions()
    devices = get_devices(nvml)
    gpus = devices[1:]
    caps = [f"{name}={os.environ[name]} limits which ones torch uses" for name in ISA_CAPS if os.environ.get(name)]
    report: dict[str, Any] = {
        "python": platform.python_version(),
        "executable": sys.executable,
        "system": f"{platform.system()} {platform.release()}",
        "cpu": asdict(cpu) | {"isa_notes": caps, "tier": tier_name(devices[0])},
        "memory": {
            "total_bytes": cpu.memory_bytes,
            "available_bytes": cpu.memory_available_bytes,
            "limited_by_container": cpu.memory_limited,
        },
        "disk": {"path": str(Path.cwd()), "free_bytes": shutil.disk_usage(Path.cwd()).free},
        "gpus": [device.to_dict() | {"tier": tier_name(device)} for device in gpus],
        "driver": {
            "found": nvml.reason is None,
            "version": next((gpu.driver_version for gpu in gpus if gpu.driver_version), None),
            "reason": nvml.reason,
        },
        "cuda_visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "mig": _mig(gpus),
        "mps": find_mps(),
        "profilers": [asdict(tool) for tool in find_profilers()],
        "packages": versions,
        "budgets": [json_data.to_json(budget) for budget in offered_budgets(devices)],
    }
    advice = [*_package_advice(versions), *_gpu_advice(gpus, versions.get("torch") or ""), *_profiler_advice(report)]
    if cpu.memory_available_bytes < 2e9:
        free = cpu.memory_available_bytes / 1e9
        advice.append((f"only {free:.1f} GB of memory is free now", "close other programs before a lab"))
    report["advice"] = [{"why": why, "do": do} for why, do in advice]
    return report


def _mig(gpus: list[Device]) -> dict[str, Any]:
    slices = sum(gpu.kind == "mig" for gpu in gpus)
    why = next((gpu.missing["mig_mode"] for gpu in gpus if "mig_mode" in gpu.missing), "off")
    note = None if slices else why if gpus else "no GPU"
    return {"on": any(gpu.mig_mode == "on" for gpu in gpus), "slices": slices, "note": note}


def _package_advice(versions: dict[str, str | None]) -> list[tuple[str, str]]:
    advice, required = [], requirements()
    for need, what in EXTRAS.items():
        missing = [name for name, (_, of) in required.items() if of == need and versions[name] is None]
        if missing:
            # with labkit's version bounds, so that the command does not break another lab
            command = " ".join(f'"{required[name][0]}"' for name in missing)
            advice.append((f"missing: {', '.join(missing)} ({what})", f"python -m pip install {command}"))
    return advice


def _gpu_advice(gpus: list[Device], torch_version: str) -> list[tuple[str, str]]:
    advice = []
    if any(gpu.torch_name for gpu in gpus) and torch_version.endswith("+cpu"):
        do = "python -m pip install --force-reinstall torch (Windows: see https://pytorch.org/get-started)"
        advice.append((f"this machine has a GPU, but torch {torch_version} is built for CPUs only", do))
    advice += [(f"CUDA cannot use {gpu.name}", gpu.missing["torch_name"]) for gpu in gpus if gpu.torch_name is None]
    mixed = len({gpu.name for gpu in gpus if gpu.kind == "gpu"}) > 1
    if mixed and os.environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        why = "the GPUs differ: CUDA numbers the fastest first, the driver numbers them by slot"
        advice.append((why, "export CUDA_DEVICE_ORDER=PCI_BUS_ID"))
    return advice


def _profiler_advice(report: dict[str, Any]) -> list[tuple[str, str]]:
    advice = []
    for tool in report["profilers"]:
        profiler = PROFILERS[tool["name"]]
        if not tool["works"] and (report["gpus"] or not profiler.needs_gpu):
            found = f"found but {tool['note']}" if tool["path"] else "not found"
            advice.append((f"profiler {tool['name']}: {found}", profiler.install))
    return advice

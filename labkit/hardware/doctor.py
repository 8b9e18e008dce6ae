"""The doctor: the software of this machine, a description of it, and advice on what to install."""

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from labkit import json_data
from labkit.hardware.budgets import offered_budgets
from labkit.hardware.cpu import ISA_CAPS, read_cpu
from labkit.hardware.devices import Device, Nvml, get_devices
from labkit.hardware.mps import find_mps
from labkit.hardware.tiers import tier_name

EXTRAS = {
    "core": "labkit needs it",
    "fast": "training steps and data preparation are faster with it",
    "lab": "the notebooks need it",
}
"""What a missing package means, by what needs it: the core, or the extra of that name."""


def requirements() -> dict[str, tuple[str, str]]:
    """Requirement (as `pip` takes it) and the one of `EXTRAS` that needs it, by package; empty if not installed."""
    try:
        listed = metadata.requires("labkit") or []
    except metadata.PackageNotFoundError:
        return {}
    found = {}
    for line in listed:
        requirement, _, marker = (part.strip() for part in line.partition(";"))
        extra = re.search(r"extra == ['\"](\w+)", marker)
        need, name = extra[1] if extra else "core", re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        if need in EXTRAS and name != "labkit":
            found[name] = requirement, need
    return found


def package_versions() -> dict[str, str | None]:
    """Return the version of every package that labkit requires, None where it is missing."""
    return {package: installed_version(package) for package in requirements()}


def installed_version(package: str) -> str | None:
    """Return the installed version of a package, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


class Profiler(NamedTuple):
    """A profiler that labkit can use. Each prints its version when called with --version."""

    install: str
    needs_gpu: bool = True
    """Whether it is useless on a machine without an NVIDIA GPU."""


PROFILERS = {
    "nsys": Profiler("install NVIDIA Nsight Systems: https://developer.nvidia.com/nsight-systems"),
    "ncu": Profiler("install NVIDIA Nsight Compute: https://developer.nvidia.com/nsight-compute"),
    "py-spy": Profiler("python -m pip install py-spy", needs_gpu=False),
    "perf": Profiler("sudo apt install linux-tools-common linux-tools-generic", needs_gpu=False),
    "dcgmi": Profiler("install NVIDIA DCGM: https://developer.nvidia.com/dcgm"),
}
ANSWER_TIMEOUT_S = 10
"""Seconds that a tool may take to print its version; after that it counts as not working."""


@dataclass(frozen=True)
class Tool:
    """A command on this machine, found or not."""

    name: str
    path: str | None
    version: str | None
    works: bool
    note: str | None = None
    """Reason why it does not work, or what limits it."""


def find_profilers() -> list[Tool]:
    """Every profiler that labkit can use, found or not."""
    return [find_profiler(name) for name in PROFILERS]


def find_profiler(name: str) -> Tool:
    """Return one of the profilers, found or not."""
    path = which(name)
    if path is None:
        return Tool(name, None, None, works=False, note="not on PATH")
    try:
        answer = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=ANSWER_TIMEOUT_S, check=False, errors="replace"
        )
    except subprocess.TimeoutExpired:
        return Tool(name, path, None, works=False, note=f"did not print its version within {ANSWER_TIMEOUT_S} s")
    except OSError as error:
        return Tool(name, path, None, works=False, note=f"does not start: {error.strerror}")
    said = [line.strip() for line in (answer.stdout + answer.stderr).splitlines() if line.strip()] or ["no message"]
    if answer.returncode != 0:
        return Tool(name, path, None, works=False, note=f"ends with status {answer.returncode}: {said[0]}")
    # the first line with a digit, because some tools print a banner or a licence first
    version = next((line for line in said if any(character.isdigit() for character in line)), None)
    return Tool(name, path, version, works=True, note=perf_limit() if name == "perf" else None)


def which(name: str) -> str | None:
    """Path of a command: on PATH, or next to the running Python, where pip installs commands."""
    return shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))


def perf_limit() -> str | None:
    """Reason why this user may not count perf events here; None where they may."""
    paranoid = Path("/proc/sys/kernel/perf_event_paranoid")
    if not paranoid.is_file():
        return "the kernel has no perf events"
    if (level := int(paranoid.read_text())) > 2 and os.geteuid() != 0:
        return f"the kernel does not allow it for users (perf_event_paranoid is {level}; it must be 2 or less)"
    return None


def examine(nvml: Nvml | None = None) -> dict[str, Any]:
    """Return the doctor's report as JSON-able data. `nvml` is a session that is not open yet."""
    cpu, nvml, versions = read_cpu(), nvml or Nvml(), package_versions()
    devices = get_devices(nvml)
    gpus, slices = devices[1:], sum(device.kind == "mig" for device in devices)
    why_no_slices = next((gpu.missing["mig_mode"] for gpu in gpus if "mig_mode" in gpu.missing), "off")
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
        "gpus": [asdict(device) | {"tier": tier_name(device)} for device in gpus],
        "driver": {
            "found": nvml.reason is None,
            "version": next((gpu.driver_version for gpu in gpus if gpu.driver_version), None),
            "reason": nvml.reason,
        },
        "cuda_visible_devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
        "mig": {
            "on": any(gpu.mig_mode == "on" for gpu in gpus),
            "slices": slices,
            "note": None if slices else why_no_slices if gpus else "no GPU",
        },
        "mps": find_mps(),
        "profilers": [asdict(tool) for tool in find_profilers()],
        "packages": versions,
        "budgets": [json_data.to_json(budget) for budget in offered_budgets(devices)],
    }
    report["advice"] = [{"why": why, "do": do} for why, do in _advice(report, gpus)]
    return report


def _advice(report: dict[str, Any], gpus: list[Device]) -> Iterator[tuple[str, str]]:
    """What is missing or does not fit, and what to do about it."""
    versions, required = report["packages"], requirements()
    for need, what in EXTRAS.items():
        missing = [name for name, (_, of) in required.items() if of == need and versions[name] is None]
        if missing:
            # with labkit's version bounds, so that the command does not break another lab
            command = " ".join(f'"{required[name][0]}"' for name in missing)
            yield f"missing: {', '.join(missing)} ({what})", f"python -m pip install {command}"
    torch, torchaudio = versions.get("torch") or "", installed_version("torchaudio")
    if any(gpu.torch_name for gpu in gpus) and torch.endswith("+cpu"):
        do = "python -m pip install --force-reinstall torch (Windows: see https://pytorch.org/get-started)"
        yield f"this machine has a GPU, but torch {torch} is built for CPUs only", do
    yield from ((f"CUDA cannot use {gpu.name}", gpu.missing["torch_name"]) for gpu in gpus if gpu.torch_name is None)
    mixed = len({gpu.name for gpu in gpus if gpu.kind == "gpu"}) > 1
    if mixed and os.environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        why = "the GPUs differ: CUDA numbers the fastest first, the driver numbers them by slot"
        yield why, "export CUDA_DEVICE_ORDER=PCI_BUS_ID"
    # labkit needs no torchaudio, but transformers imports it
    if torchaudio is not None and torch.endswith("+cpu") and not torchaudio.endswith("+cpu"):
        why = f"torchaudio {torchaudio} needs CUDA, but torch {torch} has none: importing it or transformers fails"
        index = "--index-url https://download.pytorch.org/whl/cpu"
        yield why, f"python -m pip install --force-reinstall --no-deps {index} torchaudio (or uninstall torchaudio)"
    yield from _torchrec_advice(torch)
    for tool in report["profilers"]:
        profiler = PROFILERS[tool["name"]]
        if not tool["works"] and (gpus or not profiler.needs_gpu):
            found = f"found but {tool['note']}" if tool["path"] else "not found"
            yield f"profiler {tool['name']}: {found}", profiler.install
    if (free := report["memory"]["available_bytes"]) < 2e9:
        yield f"only {free / 1e9:.1f} GB of memory is free now", "close other programs before a lab"


def why_no_torchrec() -> str | None:
    """What is wrong with the pair of packages that shards tables, and its two install lines; None where it works."""
    return "; ".join(f"{why}: {do}" for why, do in _torchrec_advice(installed_version("torch") or "")) or None


def _torchrec_advice(torch_version: str) -> list[tuple[str, str]]:
    """What to do about TorchRec and FBGEMM, whose version belongs to torch's: 1.X to 2.(X + 5)."""
    if not (minor := re.match(r"2\.(\d+)", torch_version)):
        return []
    version = f"1.{int(minor[1]) - 5}.0"
    found = {"torchrec": installed_version("torchrec")}
    found["fbgemm-gpu-cpu"] = installed_version("fbgemm-gpu-cpu") or installed_version("fbgemm-gpu")
    if all(each is not None and each.split(".")[:2] == version.split(".")[:2] for each in found.values()):
        return []
    here = ", ".join(f"{name} {each or 'is missing'}" for name, each in found.items())
    # torchrec's own requirements name the CUDA build of fbgemm-gpu, so both come without theirs
    do = f"python -m pip install --no-deps fbgemm-gpu-cpu=={version} torchrec=={version} && python -m pip install "
    do += "pyre-extensions tensordict torchmetrics==1.0.3 iopath tqdm"
    return [(f"tables cannot be sharded (`--sharding`) with torch {torch_version}: {here}", do)]

"""The CPU of this machine: cores, instruction sets, caches and memory, as far as a container allows."""

from __future__ import annotations

import math
import os
import platform
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from labkit.hardware.budgets.limits import cgroup_limits

ISA_FLAGS = {
    "avx2": "avx2",
    "avx512f": "avx512",
    "avx512_vnni": "avx512_vnni",
    "avx512_bf16": "avx512_bf16",
    "avx512_fp16": "avx512_fp16",
    "amx_tile": "amx",
    "amx_int8": "amx_int8",
    "amx_bf16": "amx_bf16",
    "asimd": "neon",
    "sve": "sve",
    "sve2": "sve2",
    "bf16": "arm_bf16",
}
"""Linux names of the instruction sets that matter to training, and ours."""

ONEDNN_LEVELS = {
    "SSE41": (),
    "AVX": (),
    "AVX2": ("avx2",),
    "AVX2_VNNI": ("avx2",),
    "AVX2_VNNI_2": ("avx2",),
    "AVX512_CORE": ("avx2", "avx512"),
    "AVX512_CORE_VNNI": ("avx2", "avx512", "avx512_vnni"),
    "AVX512_CORE_BF16": ("avx2", "avx512", "avx512_vnni", "avx512_bf16"),
    "AVX512_CORE_FP16": ("avx2", "avx512", "avx512_vnni", "avx512_bf16", "avx512_fp16"),
}
"""What ONEDNN_MAX_CPU_ISA leaves. Source: oneDNN documentation, "CPU Dispatcher Control"."""

ATEN_LEVELS = {"default": (), "avx2": ("avx2",), "avx512": ("avx2", "avx512")}
"""What ATEN_CPU_CAPABILITY leaves of the sets that ATen itself uses. Source: aten/src/ATen/native/README."""


@dataclass(frozen=True)
class CpuInfo:
    """The CPU and memory this process may use. None where this system does not say."""

    model: str
    architecture: str
    """for example x86_64, aarch64"""
    board: str | None
    """Name of a single-board computer, for example Raspberry Pi 5 Model B Rev 1.0"""
    physical_cores: int | None
    logical_cores: int
    available_cores: int
    """Cores left by CPU affinity and the container's quota"""
    machine_cores: int
    """Cores of the machine, or of the container: what its first process may use, within the quota"""
    quota_cores: float | None
    """The container's CPU quota in cores"""
    isa: tuple[str, ...] | None
    """Instruction sets present, in our names"""
    caches: Mapping[str, int]
    """Bytes of one cache of each level: L1d, L2, L3"""
    memory_bytes: int
    """Memory of the machine, or the container's limit where that is less"""
    memory_available_bytes: int
    memory_limited: bool
    """Whether a container's limit is what memory_bytes gives"""


def read_cpu(root: Path = Path("/")) -> CpuInfo:
    """Return what this process may use of the CPU.

    Args:
        root: the root of the file system, for tests.
    """
    cpuinfo = _cpuinfo(root)
    limits = cgroup_limits(root)
    memory = psutil.virtual_memory()
    limited = limits.memory_bytes is not None and limits.memory_bytes < memory.total
    total = limits.memory_bytes if limited else memory.total
    logical = psutil.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else logical

    def within_quota(cores: int) -> int:
        return cores if limits.cores is None else max(1, min(cores, math.floor(limits.cores)))

    return CpuInfo(
        model=_model(cpuinfo),
        architecture=platform.machine(),
        board=_board(root),
        physical_cores=psutil.cpu_count(logical=False),
        logical_cores=logical,
        available_cores=within_quota(usable),
        machine_cores=within_quota(max(usable, _first_process_cores(root) or logical)),
        quota_cores=limits.cores,
        isa=_isa(cpuinfo),
        caches=_caches(root),
        memory_bytes=total,
        memory_available_bytes=min(memory.available, total),
        memory_limited=limited,
    )


def isa_capped(isa: tuple[str, ...], environment: Mapping[str, str] = os.environ) -> tuple[tuple[str, ...], list[str]]:
    """Return the instruction sets that torch may use here, and what the environment takes away, in words.

    ATen's own kernels obey ATEN_CPU_CAPABILITY, matrix multiplication in oneDNN obeys ONEDNN_MAX_CPU_ISA. A
    set stays usable while one of the two may use it.

    >>> caps = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}
    >>> isa_capped(("avx2", "avx512", "amx"), caps)[0]
    ('avx2',)
    """
    aten_name = environment.get("ATEN_CPU_CAPABILITY", "")
    onednn_name = environment.get("ONEDNN_MAX_CPU_ISA") or environment.get("DNNL_MAX_CPU_ISA", "")
    aten = ATEN_LEVELS.get(aten_name.lower(), ATEN_LEVELS["avx512"])
    onednn = ONEDNN_LEVELS.get(onednn_name.upper(), isa)
    usable = tuple(name for name in isa if name in aten or name in onednn)
    notes = []
    if aten_name.lower() in ATEN_LEVELS:
        notes.append(f"ATEN_CPU_CAPABILITY={aten_name} caps torch's own kernels")
    if onednn_name.upper() in ONEDNN_LEVELS:
        notes.append(f"ONEDNN_MAX_CPU_ISA={onednn_name} caps matrix multiplication")
    return usable, notes


def core_order(root: Path = Path("/")) -> list[int]:
    """Return the logical CPUs of this process, one of every physical core before their siblings."""
    if not hasattr(os, "sched_getaffinity"):
        return list(range(os.cpu_count() or 1))
    allowed = sorted(os.sched_getaffinity(0))
    seen: dict[str, int] = {}
    ranks = {}
    for cpu in allowed:
        siblings = root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
        core = siblings.read_text().strip() if siblings.is_file() else str(cpu)
        ranks[cpu] = seen[core] = seen.get(core, -1) + 1
    return sorted(allowed, key=lambda cpu: (ranks[cpu], cpu))


def _cpuinfo(root: Path) -> dict[str, str]:
    # The first processor's entries; a machine that mixes cores still shares one instruction set.
    path = root / "proc/cpuinfo"
    entries: dict[str, str] = {}
    for line in path.read_text(errors="replace").splitlines() if path.is_file() else []:
        key, colon, value = line.partition(":")
        if colon:
            entries.setdefault(key.strip().lower(), value.strip())
    return entries


def _model(cpuinfo: Mapping[str, str]) -> str:
    named = cpuinfo.get("model name") or cpuinfo.get("cpu model")
    return named or _sysctl("machdep.cpu.brand_string") or platform.processor() or platform.machine() or "unknown CPU"


def _isa(cpuinfo: Mapping[str, str]) -> tuple[str, ...] | None:
    listed = cpuinfo.get("flags") or cpuinfo.get("features")
    if listed is not None:
        present = set(listed.lower().split())
        return tuple(ours for flag, ours in ISA_FLAGS.items() if flag in present)
    leaf7 = _sysctl("machdep.cpu.leaf7_features")
    if leaf7 is not None:
        present = {name.lower() for name in leaf7.split()}
        return tuple(ours for flag, ours in ISA_FLAGS.items() if flag in present)
    # Every 64-bit Arm has Advanced SIMD; what else it has, this system does not say.
    return ("neon",) if platform.machine().lower() in ("arm64", "aarch64") else None


def _board(root: Path) -> str | None:
    path = root / "proc/device-tree/model"
    return path.read_bytes().decode(errors="replace").strip("\0\n ") if path.is_file() else None


def _first_process_cores(root: Path) -> int | None:
    """How many cores the first process of this machine or container may use; None where the system does not say."""
    try:
        status = (root / "proc/1/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    allowed = re.search(r"^Cpus_allowed:\s+([0-9a-f,]+)$", status, re.MULTILINE)
    return int(allowed[1].replace(",", ""), 16).bit_count() if allowed else None


def _caches(root: Path) -> dict[str, int]:
    caches = {}
    for index in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = (_text(index / name) for name in ("level", "type", "size"))
        amount = re.fullmatch(r"(\d+)([KM])", size or "")
        if amount and kind != "Instruction":
            name = f"L{level}" + ("d" if kind == "Data" else "")
            caches[name] = int(amount[1]) * (2**10 if amount[2] == "K" else 2**20)
    return caches


def _text(path: Path) -> str | None:
    return path.read_text().strip() if path.is_file() else None


def _sysctl(name: str) -> str | None:
    if platform.system() != "Darwin":
        return None
    answer = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, check=False)
    return answer.stdout.strip() or None

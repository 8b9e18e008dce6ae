"""The CPU and memory of this machine, within the limits of its container, and what malloc keeps; sizes as text."""

import ctypes
import math
import os
import platform
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def size_text(count: float) -> str:
    """A number of bytes as text, with about three digits.

    >>> size_text(1536 * 2**20), size_text(300 * 2**20), size_text(2000), size_text(10**18)
    ('1.5 GiB', '300 MiB', '2 KiB', '931322575 GiB')
    """
    if count >= 2**30:
        gib = count / 2**30
        return f"{gib:.3g} GiB" if gib < 1000 else f"{gib:.0f} GiB"
    return f"{count / 2**20:.0f} MiB" if count >= 2**20 else f"{count / 2**10:.0f} KiB"


def parse_size(text: str) -> int | None:
    """Bytes of "2GiB", "500 MB" or "4096"; None for any other text.

    >>> parse_size("2GiB"), parse_size("0.5 kb"), parse_size("lots")
    (2147483648, 500, None)
    """
    amount = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)", text)
    unit = UNITS.get(amount[2].upper()) if amount else None
    return int(float(amount[1]) * unit) if amount and unit else None


ISA_FLAGS = {
    "avx2": "avx2", "avx512f": "avx512", "avx512_vnni": "avx512_vnni", "avx512_bf16": "avx512_bf16",
    "avx512_fp16": "avx512_fp16", "amx_tile": "amx", "amx_int8": "amx_int8", "amx_bf16": "amx_bf16",
    "asimd": "neon", "sve": "sve", "sve2": "sve2", "bf16": "arm_bf16",
}  # fmt: skip
"""Our names of the instruction sets that matter for training, by Linux name."""

ISA_CAPS = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA")
"""Variables that stop torch's own kernels, and oneDNN's matrix multiplication, from using some of them."""


@dataclass(frozen=True)
class CpuInfo:
    """The CPU and memory this process may use. A field is None where the system does not report it."""

    model: str
    architecture: str
    """for example x86_64, aarch64"""
    board: str | None
    """Name of a single-board computer, for example Raspberry Pi 5 Model B Rev 1.0."""
    physical_cores: int | None
    logical_cores: int
    available_cores: int
    """Cores within this process' CPU affinity and the container's quota."""
    machine_cores: int
    """Cores that the first process of the machine or container may use, within the quota."""
    quota_cores: float | None
    """CPU quota of the container, in cores."""
    isa: tuple[str, ...] | None
    """Instruction sets present, by our names."""
    caches: Mapping[str, int]
    """Bytes of one cache per level: L1d, L2, L3."""
    memory_bytes: int
    """Memory of the machine, or the container's limit where that is smaller."""
    memory_available_bytes: int
    memory_limited: bool
    """Whether memory_bytes is a container's limit."""


def read_cpu(root: Path = Path("/")) -> CpuInfo:
    """Return the CPU as this process may use it. `root` of the file system is for tests."""
    cpuinfo = _cpuinfo(root)
    quota, limit = cgroup_limits(root)
    memory = psutil.virtual_memory()
    total = memory.total if limit is None else min(limit, memory.total)
    logical = psutil.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else logical
    board = root / "proc/device-tree/model"

    allowed = re.search(r"^Cpus_allowed:\s+([0-9a-f,]+)$", _text(root / "proc/1/status") or "", re.MULTILINE)
    machine = int(allowed[1].replace(",", ""), 16).bit_count() if allowed else logical

    def within_quota(cores: int) -> int:
        return cores if quota is None else max(1, min(cores, math.floor(quota)))

    return CpuInfo(
        model=_model(cpuinfo),
        architecture=platform.machine(),
        board=(_text(board) or "").strip("\0\n ") or None,
        physical_cores=psutil.cpu_count(logical=False),
        logical_cores=logical,
        available_cores=within_quota(usable),
        machine_cores=within_quota(max(usable, machine)),
        quota_cores=quota,
        isa=_isa(cpuinfo),
        caches=_caches(root),
        memory_bytes=total,
        memory_available_bytes=min(memory.available, total),
        memory_limited=total < memory.total,
    )


def cgroup_limits(root: Path = Path("/")) -> tuple[float | None, int | None]:
    """A container's limits, of cores (a float) and of memory in bytes; None where there is no limit.

    They are the tightest limits among this process' control group and its parents, v1 and v2.
    """
    cores: list[float] = []
    memory: list[int] = []
    for folder in _control_groups(root):
        # v2 has both numbers in one file, v1 one in each of two, and -1 for no quota
        quota, period = ((_text(folder / "cpu.max") or "").split() or [None, None])[:2]
        quota, period = quota or _text(folder / "cpu.cfs_quota_us"), period or _text(folder / "cpu.cfs_period_us")
        if quota not in (None, "max", "-1") and period:
            cores.append(int(quota) / int(period))
        limit = _text(folder / "memory.max") or _text(folder / "memory.limit_in_bytes")
        # v1 writes "no limit" as the largest multiple of the page size
        if limit not in (None, "max") and int(limit) < 2**62:
            memory.append(int(limit))
    return min(cores, default=None), min(memory, default=None)


def _control_groups(root: Path) -> Iterator[Path]:
    for line in (_text(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory") and "cpu" not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup" / controllers
        folder = mount / path.lstrip("/")
        # In a container the path may be the host's and not exist here; its own group is then the mount itself.
        while folder != mount and mount in folder.parents:
            yield folder
            folder = folder.parent
        yield mount


def core_order(root: Path = Path("/")) -> list[int]:
    """Return the logical CPUs of this process: first one per physical core, then their siblings."""
    if not hasattr(os, "sched_getaffinity"):
        return list(range(os.cpu_count() or 1))
    allowed = sorted(os.sched_getaffinity(0))
    seen: dict[int, int] = {}
    ranks = {}
    for cpu in allowed:
        core = physical_core(cpu, root)
        ranks[cpu] = seen[core] = seen.get(core, -1) + 1
    return sorted(allowed, key=lambda cpu: (ranks[cpu], cpu))


def physical_core(cpu: int, root: Path = Path("/")) -> int:
    """The first logical CPU of the physical core that a logical CPU is of."""
    first = re.match(r"\d+", _text(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list") or "")
    return int(first[0]) if first else cpu


def _cpuinfo(root: Path) -> dict[str, str]:
    # the first processor's entries: even a machine with different cores has one instruction set
    pairs = re.findall(r"^([^:\n]+):(.*)$", _text(root / "proc/cpuinfo") or "", re.MULTILINE)
    return {key.strip().lower(): value.strip() for key, value in reversed(pairs)}


def _model(cpuinfo: Mapping[str, str]) -> str:
    named = cpuinfo.get("model name") or cpuinfo.get("cpu model")
    if named and "model" in cpuinfo and not re.search(r"\d", named):  # virtual machines call all generations alike
        named += f", family {cpuinfo.get('cpu family')} model {cpuinfo['model']}"
    return named or _sysctl("machdep.cpu.brand_string") or platform.processor() or platform.machine() or "unknown CPU"


def _isa(cpuinfo: Mapping[str, str]) -> tuple[str, ...] | None:
    listed = cpuinfo.get("flags") or cpuinfo.get("features") or _sysctl("machdep.cpu.leaf7_features")
    if listed is not None:
        present = set(listed.lower().split())
        return tuple(ours for flag, ours in ISA_FLAGS.items() if flag in present)
    # every 64-bit Arm has Advanced SIMD; this system does not report anything else
    return ("neon",) if platform.machine().lower() in ("arm64", "aarch64") else None


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
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _sysctl(name: str) -> str | None:
    if platform.system() != "Darwin":
        return None
    answer = subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, check=False)
    return answer.stdout.strip() or None


GLIBC = {-3: 1 << 30, -1: 1 << 30, -2: 1 << 26}
"""M_MMAP_THRESHOLD, M_TRIM_THRESHOLD and M_TOP_PAD of mallopt(3), in bytes. No tensor gets a mapping of its own. The
heap grows by 64 MiB, and returns memory to the system only above 1 GiB."""
AT_FIRST = dict.fromkeys(GLIBC, 1 << 17)
"""glibc's initial values. It adapts them to what is freed, until they are set by hand."""
VARIABLES = "MALLOC_MMAP_THRESHOLD_=1073741824 MALLOC_TRIM_THRESHOLD_=1073741824 MALLOC_TOP_PAD_=67108864"
"""`GLIBC` as environment variables, for a program that has not started yet."""


def keep_memory() -> bool:
    """Let glibc's malloc keep what this process frees. Call it before tensors are made.

    By default glibc returns large tensors to the system when they are freed. Each step then gets fresh pages, and the
    system clears each page at its first touch, a page fault. In a step of four Linear(1024) in bf16 on 2048 samples,
    page faults fell from 2000–3500 to 25 and the step became 3 to 6 % shorter (four pairs of runs, one core of an AMD
    EPYC, Zen 5, torch 2.13, 22 November 2026). The gain is larger where a step computes little per page: the DLRM of
    notebook 33 became 2.0 to 2.5 times as fast on such a core. The cost: the process holds its peak until it ends.

    Returns:
        False where there is no glibc, and so nothing to set (macOS, Windows, musl).
    """
    return _set(GLIBC)


def give_memory_back() -> bool:
    """Return free memory to the system, now and from now on, as glibc does by default; False without glibc."""
    return _set(AT_FIRST) and bool(ctypes.CDLL(None).malloc_trim(0) >= 0)


def _set(values: dict[int, int]) -> bool:
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return all([mallopt(name, value) for name, value in values.items()])

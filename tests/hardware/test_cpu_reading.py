"""The CPU and the container's limits, read from trees of /proc and /sys made here."""

import os

import psutil
import pytest

from labkit.hardware.cpu import cgroup_limits, core_order, read_cpu

XEON = "processor : 0\nmodel name : Xeon\nflags : avx2 avx512f avx512_bf16 amx_tile amx_bf16\n\nprocessor : 1\n"
PI = "processor : 0\nBogoMIPS : 108.00\nFeatures : fp asimd crc32\n"


def tree(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_cpu_is_named_with_its_instruction_sets_and_cores(tmp_path):
    status = "Name:\tinit\nCpus_allowed:\tf,ffffffff\n"
    cpu = read_cpu(tree(tmp_path / "server", {"proc/cpuinfo": XEON, "proc/1/status": status}))
    assert cpu.model == "Xeon"
    assert cpu.isa == ("avx2", "avx512", "avx512_bf16", "amx", "amx_bf16")
    assert cpu.machine_cores == 36  # what its first process may use
    files = {"proc/cpuinfo": PI, "proc/device-tree/model": "Raspberry Pi 5 Model B Rev 1.0\0"}
    board = read_cpu(tree(tmp_path / "board", files))
    assert (board.isa, board.board) == (("neon",), "Raspberry Pi 5 Model B Rev 1.0") and board.model


def test_a_machine_that_says_nothing_is_not_a_crash_and_caches_are_data_caches(tmp_path, monkeypatch):
    files = {}
    for index, cache in enumerate((("1", "Data", "48K"), ("1", "Instruction", "32K"), ("2", "Unified", "2048K"))):
        folder = f"sys/devices/system/cpu/cpu0/cache/index{index}"
        files |= {f"{folder}/{key}": text for key, text in zip(("level", "type", "size"), cache, strict=True)}
    assert read_cpu(tree(tmp_path / "caches", files)).caches == {"L1d": 48 * 1024, "L2": 2 * 2**20}
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: None)
    cpu = read_cpu(tmp_path)
    assert (cpu.isa, cpu.board, cpu.caches, cpu.physical_cores, cpu.available_cores) == (None, None, {}, None, 1)


V2 = {
    "proc/self/cgroup": "0::/user/job\n",
    "sys/fs/cgroup/user/job/cpu.max": "300000 100000",
    "sys/fs/cgroup/user/job/memory.max": str(2**32),
    # the parent group is the tighter one
    "sys/fs/cgroup/user/cpu.max": "150000 100000",
    "sys/fs/cgroup/user/memory.max": str(2**30),
}
V1 = {
    "proc/self/cgroup": "4:memory:/box/1\n1:cpu,cpuacct:/box/1\n9:name=systemd:/\n0::/\n",
    "sys/fs/cgroup/cpu,cpuacct/box/1/cpu.cfs_quota_us": "150000",
    "sys/fs/cgroup/cpu,cpuacct/box/1/cpu.cfs_period_us": "100000",
    "sys/fs/cgroup/memory/box/1/memory.limit_in_bytes": str(2**30),
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
}
INSIDE_DOCKER = {  # the path is the host's, the files are at the mount
    "proc/self/cgroup": "4:memory:/docker/abc\n1:cpu:/docker/abc\n",
    "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "150000",
    "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": str(2**30),
}
NO_QUOTA = INSIDE_DOCKER | {
    "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
    "sys/fs/cgroup/cpu.max": "max 100000",
    "sys/fs/cgroup/memory.max": "max",
}


def test_container_limits_are_what_the_machine_has(tmp_path):
    for place, files in enumerate((V2, V1, INSIDE_DOCKER)):
        root = tree(tmp_path / str(place), files)
        assert cgroup_limits(root) == (1.5, 2**30)
        cpu = read_cpu(root)
        assert (cpu.available_cores, cpu.memory_bytes, cpu.memory_limited) == (1, 2**30, True)
    assert cgroup_limits(tree(tmp_path, NO_QUOTA)) == (None, None)
    assert not read_cpu(tmp_path).memory_limited


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system has no CPU affinity")
def test_siblings_come_after_one_of_every_core(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3})
    pairs = {0: "0-1", 1: "0-1", 2: "2-3", 3: "2-3"}
    files = {f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list": pair for cpu, pair in pairs.items()}
    assert core_order(tree(tmp_path, files)) == [0, 2, 1, 3]

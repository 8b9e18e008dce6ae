"""The CPU, read from trees of /proc and /sys made here; its card; cores that no two processes hold."""

import os
import subprocess
import sys

import pandas as pd
import psutil
import pytest
import torch

from labkit.errors import UserError
from labkit.hardware import calibration, leases
from labkit.hardware.calibration import cache_curve, calibrate, copy_gb_per_s, launch_us, matmul_gflops
from labkit.hardware.cpu import cgroup_limits, core_order, read_cpu
from labkit.hardware.leases import lease_cores, leased_cores, own_cores
from labkit.plots import figure_roofline
from labkit_course.apparatus import figure_cache_curve

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
    virtual = "processor : 0\ncpu family : 25\nmodel : 17\nmodel name : AMD EPYC\n"  # as of Zen 3, which is model 1
    assert read_cpu(tree(tmp_path / "virtual", {"proc/cpuinfo": virtual})).model == "AMD EPYC, family 25 model 17"


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


CPU = torch.device("cpu")


def test_what_is_counted(monkeypatch):
    monkeypatch.setattr(calibration, "_once_s", lambda work, device: work() is None or 1.0)  # all work takes a second
    # a matrix product: a multiplication and an addition each
    assert matmul_gflops(CPU, torch.float32, size=100) == pytest.approx(2 * 100**3 / 1e9)
    # a copy: what is read and what is written, sixteen small ones in a turn
    assert copy_gb_per_s(CPU, 2**24) == copy_gb_per_s(CPU, 2**20) == pytest.approx(2 * 2**24 / 1e9)
    assert launch_us(CPU, calls=1000) == pytest.approx(1000.0)


def test_the_cache_curve_is_of_one_thread_and_the_ridge_is_of_the_card(monkeypatch):
    card = calibrate("cpu", repeats=1)
    assert card.fp32_gflops > 0
    assert card.ridge_flop_per_byte == pytest.approx(card.fp32_gflops / card.bandwidth_gb_per_s)
    seen, before = [], torch.get_num_threads()
    monkeypatch.setattr(calibration, "copy_gb_per_s", lambda *args, **how: seen.append(torch.get_num_threads()) or 1.0)
    curve = cache_curve("cpu", sizes_bytes=[2**12, 2**13])
    assert (seen, torch.get_num_threads()) == ([1, 1], before)
    assert curve["size_bytes"].tolist() == [2**13, 2**14]


def test_the_figures_mark_the_caches_and_a_roof_rises_with_the_bandwidth_to_the_peak():
    curve = pd.DataFrame({"size_bytes": [2**12, 2**20], "gb_per_s": [80.0, 10.0]})
    figure = figure_cache_curve(curve, {"L1d": 2**15, "L2": 2**19})
    assert [annotation.text for annotation in figure.layout.annotations] == ["L1d", "L2"]
    assert [shape.x0 for shape in figure.layout.shapes] == [32.0, 512.0]
    here = {"name": ["here"], "provenance": ["measured"]}
    roofs = pd.DataFrame(here | {"peak_gflops": [100.0], "bandwidth_gb_per_s": [10.0]})
    roof = figure_roofline(roofs, pd.DataFrame(here | {"flop_per_byte": [0.25], "gflops": [2.5]})).data[0]
    assert dict(zip(roof.x, roof.y, strict=True))[10.0] == max(roof.y) == pytest.approx(100.0)  # the ridge
    assert min(roof.y) == pytest.approx(10.0 * min(roof.x))


needs_two_cores = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="needs two cores"
)
HOLD = """
import sys
from labkit.hardware.leases import lease_cores
cores = lease_cores(int(sys.argv[1]), say=lambda words: print(words, flush=True))
print(*cores, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def no_lease(monkeypatch, tmp_path):
    monkeypatch.delenv(leases.LEASED_VARIABLE, raising=False)
    monkeypatch.setenv(leases.FOLDER_VARIABLE, str(tmp_path / "cores"))
    monkeypatch.setattr(leases, "core_order", lambda: [0, 1])
    monkeypatch.setattr(leases, "_locks", {})


@pytest.fixture
def holder():
    """Starts processes that hold so many cores, and ends them."""
    started = []

    def start(count):
        command = [sys.executable, "-c", HOLD, str(count)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process, process.stdout.readline().strip()

    yield start
    for process in started:
        process.kill()
        process.communicate()


@needs_two_cores
def test_two_processes_get_cores_of_their_own_and_a_third_is_told_who_has_them_until_one_is_killed(holder, monkeypatch):
    first, one = holder(1)
    with leased_cores(1) as mine:
        assert {one, str(mine[0])} == {"0", "1"}
        monkeypatch.delenv(leases.LEASED_VARIABLE)  # or this process would wait for the third
        third, words = holder(1)
        assert f"process {first.pid} of " in words and f"process {os.getpid()} of " in words
        assert "Waiting for them" in words
        first.kill()
        assert third.stdout.readline().strip() == one


@needs_two_cores
def test_who_does_not_wait_is_refused_and_takes_none(holder):
    holder(1)
    with pytest.raises(UserError, match=r"This needs 2 more CPU cores, and other runs hold CPU \d \(process \d+ of"):
        lease_cores(2, waits=False)
    with leased_cores(1, waits=False) as free:
        assert free == own_cores()
    with pytest.raises(KeyboardInterrupt):
        lease_cores(2, stopped=lambda: True)


def test_what_this_process_holds_counts_and_what_it_starts_may_use_it_but_not_its_fork(holder):
    with leased_cores(1) as first, leased_cores(1) as again:
        assert first == again == [0]
        assert leases._file("cpu0").parent.stat().st_mode & 0o7777 == 0o1777
        assert leases._file("cpu0").stat().st_mode & 0o777 == 0o666
        if not (child := os.fork()):
            os._exit(len(leases._held()))
        assert os.waitpid(child, 0)[1] == 0
        assert holder(1)[1] == "0"  # this process waits for what it starts
    assert holder(1)[1] == "0"
    with pytest.raises(UserError, match="other runs hold"):
        lease_cores(2, waits=False)


def test_without_affinity_cores_are_dealt_unlocked_and_a_folder_that_cannot_be_made_is_told(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(leases.FOLDER_VARIABLE, str(tmp_path / "file" / "cores"))
    with pytest.raises(leases.UserError, match=leases.FOLDER_VARIABLE):
        lease_cores(1)
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    assert lease_cores(1) == [0] and not leases._locks

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from labkit.telemetry.sources import host_proc, host_psutil
from labkit.telemetry.sources.rapl import RaplCounters

HAS_PROC = Path("/proc/thread-self/children").exists()
needs_proc = pytest.mark.skipif(not HAS_PROC, reason="needs Linux' /proc")
KINDS = [pytest.param(host_proc, marks=needs_proc, id="proc"), pytest.param(host_psutil, id="psutil")]


@pytest.mark.parametrize("kind", KINDS)
def test_own_process_counts_with_its_memory_and_threads(kind):
    counters = kind.ProcessCounters(os.getpid(), own_pid=-1)
    before = time.process_time()
    while time.process_time() < before + 0.3:  # a core's work, for the share to be seen
        pass
    readings = {r.counter: r.value for r in counters.read()}
    ours = [psutil.Process(), *psutil.Process().children(recursive=True)]  # whatever other tests left running
    assert readings["memory_resident"] == pytest.approx(sum(each.memory_info().rss for each in ours), rel=0.05)
    assert readings["threads"] == sum(each.num_threads() for each in ours)
    assert readings["cpu_percent"] >= 0


@needs_proc
def test_the_processor_time_of_a_process_is_exact():
    counters = host_proc.ProcessCounters(os.getpid(), own_pid=-1)
    list(counters.read())
    cpu, wall = time.process_time(), time.monotonic()
    while time.process_time() < cpu + 0.2:
        pass
    share = next(r.value for r in counters.read() if r.counter == "cpu_percent")
    # what else happens between the two readings of each clock
    assert share == pytest.approx(100 * (time.process_time() - cpu) / (time.monotonic() - wall), rel=0.1)


@pytest.mark.parametrize("kind", KINDS)
def test_children_count_and_the_sampler_does_not(kind):
    program = [sys.executable, "-c", "ballast = b'x' * 80_000_000; print(flush=True); input()"]
    counters = kind.ProcessCounters(os.getpid(), own_pid=-1)
    alone = next(r.value for r in counters.read() if r.counter == "memory_resident")
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        without = kind.ProcessCounters(os.getpid(), own_pid=child.pid)
        both = kind.ProcessCounters(os.getpid(), own_pid=-1)
        held = [next(r.value for r in each.read() if r.counter == "memory_resident") for each in (both, without)]
        child.stdin.close()
    assert held[0] - alone > 70e6
    assert held[1] - alone < 40e6
    list(both.read())  # a child that ended is no error


@needs_proc
def test_children_that_end_leave_no_file_open():
    counters = host_proc.ProcessCounters(os.getpid(), own_pid=-1)
    list(counters.read())  # opens those of children that other tests left running
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as child:
            counters._look_at = 0.0
            list(counters.read())
            assert child.pid in counters._children
            child.stdin.close()
        list(counters.read())
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_process_that_is_gone_is_told(kind):
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as child:
        counters = kind.ProcessCounters(child.pid, own_pid=-1)
        child.stdin.close()
    with pytest.raises(ProcessLookupError):
        list(counters.read())
    with pytest.raises(ProcessLookupError):
        kind.ProcessCounters(child.pid, own_pid=-1)


@needs_proc
def test_a_process_that_is_ending_is_gone_and_not_empty(tmp_path):
    """Its memory is given back before it is a zombie."""
    folder = tmp_path / str(os.getpid())
    folder.mkdir()
    (folder / "statm").write_text("0 0 0 0 0 0 0")
    (folder / "status").write_text("VmHWM: 1 kB\n")
    for flags, ending in ((0x400000, False), (0x400000 | host_proc.PF_EXITING, True)):
        fields = ["R", "1", "1", "1", "0", "-1", str(flags), *["0"] * 10, "3", *["0"] * 20]
        (folder / "stat").write_text(f"{os.getpid()} (py thon) {' '.join(fields)}\n")
        counters = host_proc.ProcessCounters(os.getpid(), -1, tmp_path)
        if ending:
            with pytest.raises(ProcessLookupError):
                list(counters.read())
        else:
            assert any(r.counter == "threads" for r in counters.read())


@needs_proc
def test_proc_tells_what_psutil_tells_of_the_host():
    lean = {r.counter: r.value for r in host_proc.HostCounters().read()}
    memory = psutil.virtual_memory()
    assert lean["memory_used"] == pytest.approx(memory.total - memory.available, rel=0.1)


@needs_proc
def test_the_busy_share_of_the_host_is_of_the_time_between_two_readings(tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal: 100 kB\nMemFree: 10 kB\nMemAvailable: 40 kB\n")
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 0 0 900 0 0 0 0 7 7\n")
    counters = host_proc.HostCounters(tmp_path)
    stat.write_text("cpu  120 5 5 960 10 0 0 0 7 7\n")  # 30 of 100 ticks busy, 10 waiting for disks
    readings = {r.counter: r.value for r in counters.read()}
    assert readings == {"cpu_percent": 30.0, "memory_used": 60 * 1024}
    assert [r.counter for r in counters.read()] == ["memory_used"]  # no tick has passed


def rapl(tmp_path, energy: str = "5000000"):
    for name in ("intel-rapl:0", "intel-rapl:0:0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "energy_uj").write_text(energy)
        (tmp_path / name / "max_energy_range_uj").write_text("262143328850")
    return tmp_path


def test_a_cpu_package_is_counted_once(tmp_path):
    energies = [r for r in RaplCounters(rapl(tmp_path)).read() if "energy" in r.counter]
    assert [(r.counter, r.value) for r in energies] == [("cpu_energy_intel-rapl:0", 5.0)]


def test_an_energy_counter_that_may_not_be_read_says_so(tmp_path):
    (rapl(tmp_path) / "intel-rapl:0" / "energy_uj").unlink()
    (tmp_path / "intel-rapl:0" / "energy_uj").mkdir()  # unreadable for root, too
    energies = [r for r in RaplCounters(tmp_path).read() if "energy" in r.counter]
    assert energies[0].value is None
    assert "not readable" in energies[0].note

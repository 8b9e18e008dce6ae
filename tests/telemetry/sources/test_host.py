"""CPU, memory and energy of the host and of a job's processes, and the vocabulary of all counters."""

import re
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path

import psutil
import pytest

from labkit.telemetry.counters import vocabulary
from labkit.telemetry.sources import host
from labkit.telemetry.sources.host import HostCounters, ProcessCounters, RaplCounters

WAITS = [sys.executable, "-c", "ballast = b'x' * int(input()); print(flush=True); input()"]


def values(counters) -> dict[str, float]:
    return {reading.counter: reading.value for reading in counters.read()}


def test_a_process_counts_with_its_children_and_without_the_sampler_and_is_told_when_it_is_gone():
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(WAITS, **pipes) as child:
        print(80_000_000, file=child.stdin, flush=True)
        child.stdout.readline()
        ours = psutil.Process()
        both, without = ProcessCounters(ours.pid, own_pid=-1), ProcessCounters(ours.pid, own_pid=child.pid)
        of_child = ProcessCounters(child.pid, own_pid=-1)
        own, together = values(without), values(both)
        family = {ours, *ours.children(recursive=True)} - {psutil.Process(child.pid)}  # with what other tests left
        assert own["memory_resident"] == pytest.approx(sum(each.memory_info().rss for each in family), rel=0.1)
        assert own["threads"] == sum(each.num_threads() for each in family)
        assert together["memory_resident"] - own["memory_resident"] > 70e6
        assert both.pids() == {each.pid for each in family} | {child.pid}
        began, without, cpu_s = time.monotonic(), ProcessCounters(ours.pid, own_pid=child.pid), time.process_time()
        while time.process_time() < cpu_s + 0.2:  # a core's work, for the share to be seen
            pass
        share = values(without)["cpu_percent"] / 100
        assert share * (time.monotonic() - began) >= 0.2 and share <= own["threads"]
        child.stdin.close()
    assert values(both)["memory_resident"] < together["memory_resident"]  # a child that ended is no error
    for gone in (lambda: values(of_child), lambda: ProcessCounters(child.pid, own_pid=-1)):
        with pytest.raises(ProcessLookupError):
            gone()


def test_the_busy_share_of_the_host_is_of_the_time_between_two_readings(monkeypatch):
    times = namedtuple("times", "user nice system idle iowait irq softirq steal guest guest_nice")
    told = [times(1.0, 0, 0, 9.0, 0, 0, 0, 0, 0.1, 0), *[times(1.2, 0.05, 0.05, 9.6, 0.1, 0, 0, 0, 0.1, 0)] * 2]
    monkeypatch.setattr(host.psutil, "cpu_times", lambda: told.pop(0))
    counters = HostCounters()
    readings = values(counters)
    assert readings["cpu_percent"] == pytest.approx(30)  # of a second, a tenth waiting for disks
    memory = psutil.virtual_memory()
    assert readings["memory_used"] == pytest.approx(memory.total - memory.available, rel=0.1)
    assert [*values(counters)] == ["memory_used"]  # no tick has passed


def test_a_cpu_package_is_counted_once_and_goes_on_when_its_counter_is_full_and_says_so_if_unreadable(tmp_path):
    for name in ("intel-rapl:0", "intel-rapl:0:0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "energy_uj").write_text("5000000")
        (tmp_path / name / "max_energy_range_uj").write_text("262143328850")
    file, counters = tmp_path / "intel-rapl:0" / "energy_uj", RaplCounters(tmp_path)
    assert values(counters) == {"cpu_energy_intel-rapl:0": 5.0}
    for says, joules in (("6000000", 6.0), ("1000000", 262143.32885 + 1.0), ("2000000", 262143.32885 + 2.0)):
        file.write_text(says)
        assert values(counters) == {"cpu_energy_intel-rapl:0": pytest.approx(joules)}
    file.unlink()
    file.mkdir()  # unreadable for root, too
    counters = RaplCounters(tmp_path)
    for _ in range(2):
        (reading,) = counters.read()
        assert (reading.counter, reading.value) == ("cpu_energy", None) and "cannot be read" in reading.note


ROOT = Path(__file__).parents[3]


def test_the_documentation_is_the_vocabulary():
    for counter in vocabulary():
        assert counter.definition.endswith(".") and counter.not_said.endswith("."), counter.name
        assert set(counter.scopes) <= {"host", "process", "device", "mig"}
    text = (ROOT / "docs" / "counters.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| ([\w, ]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", text, re.MULTILINE)
    assert [tuple(cell.strip() for cell in row) for row in rows] == [
        (c.name, ", ".join(c.scopes), c.unit, c.definition, c.not_said) for c in vocabulary()
    ]

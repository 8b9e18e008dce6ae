"""Fresh memory in each step is named first, and is gone once the allocator keeps what is freed."""

import json
import mmap
import subprocess
import sys
from pathlib import Path

import pytest
from fresh_memory import EACH_BYTES, FRESH

from labkit.hardware.allocator import keep_memory
from labkit.profiling.recording.costs import fault_cost_us, minor_faults

PAGES = FRESH * EACH_BYTES / mmap.PAGESIZE
HUGE = Path("/sys/kernel/mm/transparent_hugepage/enabled")

if minor_faults() is None:
    pytest.skip("this system counts no page faults", allow_module_level=True)
if HUGE.exists() and "[always]" in HUGE.read_text(encoding="utf-8"):
    pytest.skip("all memory comes in pages of 2 MiB, whose faults are few", allow_module_level=True)


def found(tmp_path, *how):
    """What a step's page faults are, and the names of the findings, but for what other programs do to it."""
    script = Path(__file__).with_name("fresh_memory.py")
    answer = subprocess.run([sys.executable, script, tmp_path, *how], capture_output=True, text=True, check=True)
    faults, findings = json.loads(answer.stdout.splitlines()[-1])
    return faults, [name for name in findings if name != "idle"]


def test_fresh_memory_is_named_first(tmp_path):
    faults, findings = found(tmp_path)
    # each page is touched once; the allocator's own few come on top
    assert faults["unprofiled"] >= PAGES
    assert sum(faults["by_phase"].values()) >= PAGES
    assert findings[0] == "page faults"


def test_kept_memory_is_no_finding(tmp_path):
    # in a process of its own, since it cannot be taken back
    can = subprocess.run([sys.executable, "-c", f"from {keep_memory.__module__} import *; print(keep_memory())"],
                         capture_output=True, text=True, check=True)  # fmt: skip
    if can.stdout.strip() != "True":
        pytest.skip("an allocator that takes no such settings")
    faults, findings = found(tmp_path, "keep")
    assert faults["unprofiled"] < 0.1 * PAGES
    assert "page faults" not in findings


def test_a_fault_costs_something():
    # a page of 4 KiB takes 0.04 µs to clear at 100 GB/s, and the system's own work comes on top
    assert fault_cost_us() > 0.03

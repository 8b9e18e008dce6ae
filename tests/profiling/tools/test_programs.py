"""The table of profilers: what hinders each here is told before anything runs, with what mends it."""

import os
import sys

import pytest

from labkit.hardware.tools import Tool
from labkit.profiling.tools import programs
from labkit.profiling.tools.programs import PROGRAMS


def found(monkeypatch, **fields):
    tool = Tool(**{"name": "x", "path": "/usr/bin/x", "version": "1.0", "works": True} | fields)
    monkeypatch.setattr(programs, "find_profiler", lambda name: tool)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [("nsys", "CUDA toolkit"), ("ncu", "CUDA toolkit"), ("py-spy", "pip install"), ("perf", "apt install linux-perf")],
)
def test_a_tool_that_is_missing_or_broken_is_told_with_where_to_get_it(monkeypatch, tmp_path, name, remedy):
    found(monkeypatch, works=False, note="ends with status 127: libz.so.1: no such file")
    why = PROGRAMS[name].why_not()
    assert f"{name} does not work here: ends with status 127: libz.so.1" in why and remedy in why
    monkeypatch.undo()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))  # beside which it would be found, too
    why = PROGRAMS[name].why_not()
    assert f"{name} is not on PATH" in why and remedy in why


@pytest.mark.parametrize(
    ("name", "said", "remedy"),
    [
        # said by py-spy 0.4.3 to root without CAP_SYS_PTRACE
        ("py-spy", "Error: Failed to get process executable name.\nCaused by:\n    0: Permission denied (os error 13)",
         "--cap-add=SYS_PTRACE"),
        # the first lines of perf's message (tools/perf/util/evsel.c)
        ("perf", "Error:\nAccess to performance monitoring and observability operations is limited.",
         "sudo sysctl kernel.perf_event_paranoid=2"),
    ],
)  # fmt: skip
def test_a_system_that_lets_no_tool_look_is_told_with_what_to_do(tmp_path, monkeypatch, name, said, remedy):
    (tmp_path / "said").write_text(said)
    tool = tmp_path / name
    tool.write_text(f"#!/bin/sh\ncat {tmp_path}/said >&2; exit 1\n")
    tool.chmod(0o755)
    found(monkeypatch, path=str(tool))
    why = PROGRAMS[name].why_not()
    assert f"{name} may not look at this process" in why and said.split()[-1] in why and remedy in why
    tool.write_text("#!/bin/sh\nexit 0\n")
    assert PROGRAMS[name].why_not() is None


@pytest.mark.parametrize(
    ("setting", "user", "is_told"), [("1", 1000, True), ("1", 0, False), ("0", 1000, False), ("", 1000, False)]
)
def test_a_driver_that_forbids_counters_is_known_before(tmp_path, monkeypatch, setting, user, is_told):
    found(monkeypatch)
    monkeypatch.setattr(programs, "DRIVER_SETTINGS", tmp_path / "params")
    monkeypatch.setattr(os, "geteuid", lambda: user)
    if setting:
        (tmp_path / "params").write_text(f"ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: {setting}\n")
    assert ("NVreg_RestrictProfilingToAdminUsers=0" in (PROGRAMS["ncu"].why_not() or "")) == is_told


@pytest.mark.parametrize(("limit", "sample"), [(None, "process-tree"), ("the kernel forbids it", "none")])
def test_nsys_takes_no_samples_of_the_cpu_where_the_kernel_forbids_them(monkeypatch, tmp_path, limit, sample):
    monkeypatch.setattr(programs, "perf_limit", lambda: limit)
    assert f"--sample={sample}" in PROGRAMS["nsys"].starts(tmp_path / "x.nsys-rep")

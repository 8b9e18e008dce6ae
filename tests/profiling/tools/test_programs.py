"""What hinders a profiler here is told before anything runs, with what mends it."""

import sys

import pytest

from labkit.errors import UserError
from labkit.hardware.tools import Tool
from labkit.profiling.tools import nsys, programs, py_spy
from labkit.profiling.tools.programs import check_tool
from labkit.tracking.command import ScriptCommand

SCRIPT = ScriptCommand("train.py", budget="one-core")


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("nsys", "developer.nvidia.com"),
        ("ncu", "developer.nvidia.com"),
        ("py-spy", "pip install"),
        ("perf", "apt install"),
    ],
)
def test_a_tool_that_is_missing_or_broken_is_told_with_where_to_get_it(monkeypatch, tmp_path, name, remedy):
    broken = Tool(name, "/usr/bin/x", None, works=False, note="ends with status 127: libz.so.1: no such file")
    with monkeypatch.context() as patch:
        patch.setattr(programs, "find_profiler", lambda name: broken)
        with pytest.raises(UserError, match=f"{name} does not work here: ends with status 127: libz.so.1.*{remedy}"):
            check_tool(name, SCRIPT)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))  # beside which it would be found, too
    with pytest.raises(UserError, match=f"{name} is not on PATH.*{remedy}"):
        check_tool(name, SCRIPT)


def test_a_system_that_lets_no_tool_look_is_told_with_what_to_do(tmp_path, monkeypatch):
    # said by py-spy 0.4.3 to root without CAP_SYS_PTRACE
    (tmp_path / "said").write_text(
        "Error: Failed to get process executable name.\n    0: Permission denied (os error 13)"
    )
    tool = tmp_path / "py-spy"
    tool.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo 1.0 && exit\ncat {tmp_path}/said >&2; exit 1\n')
    tool.chmod(0o755)
    monkeypatch.setattr(py_spy, "which", lambda name: str(tool))
    monkeypatch.setattr(programs, "find_profiler", lambda name: Tool(name, str(tool), "1.0", works=True))
    with pytest.raises(UserError, match=r"may not look at this process .*\(os error 13\).*--cap-add=SYS_PTRACE"):
        check_tool("py-spy", SCRIPT)
    tool.write_text("#!/bin/sh\nexit 0\n")
    check_tool("py-spy", SCRIPT)
    limited = Tool("perf", "/usr/bin/perf", "6.1", works=True, note="the kernel forbids it to users")
    monkeypatch.setattr(programs, "find_profiler", lambda name: limited)
    with pytest.raises(UserError, match=r"the kernel forbids it .*sudo sysctl kernel.perf_event_paranoid=2"):
        check_tool("perf", SCRIPT)


@pytest.mark.parametrize(("limit", "sample"), [(None, "process-tree"), ("the kernel forbids it", "none")])
def test_nsys_takes_no_samples_of_the_cpu_where_the_kernel_forbids_them(monkeypatch, tmp_path, limit, sample):
    monkeypatch.setattr(nsys, "perf_limit", lambda: limit)
    assert f"--sample={sample}" in nsys.command_line(tmp_path / "x.nsys-rep")

"""Linux perf: the real one where it is, else a fake."""

import shutil
import sys

import pytest
from fake_tools import arguments, fake_tool

from labkit.errors import UserError
from labkit.hardware.tools import Tool
from labkit.profiling.tools import perf
from labkit.profiling.tools.perf import perf_command, why_no_perf
from labkit.profiling.tools.run_tool import run_tool


def test_a_run_with_perf_on_path_is_counted(tmp_path, monkeypatch):
    body = 'while [ "$1" != -o ]; do shift; done\necho counted > "$2"; shift 3; exec "$@"'
    tool = fake_tool("perf", body, tmp_path / "bin", monkeypatch)
    output = tmp_path / "counts.txt"
    said = run_tool(perf_command(output, ["echo", "a b"]), refusals=perf.REFUSALS, show=False)
    assert (said, output.read_text()) == ("a b\n", "counted\n")
    called = arguments(tool)
    assert called[:2] == ["stat", "-e"] and called[-3:] == ["--", "echo", "a b"]
    assert {"cycles", "instructions", "cache-misses"} <= set(called[called.index("-e") + 1].split(","))


def test_a_kernel_that_forbids_it_is_told_with_the_setting(tmp_path, monkeypatch):
    # the first lines of perf's message (tools/perf/util/evsel.c)
    words = "Error:\\nAccess to performance monitoring and observability operations is limited."
    fake_tool("perf", f"printf '{words}' >&2; exit 255", tmp_path / "bin", monkeypatch)
    with pytest.raises(UserError, match=r"sudo sysctl kernel.perf_event_paranoid=2"):
        run_tool(perf_command(tmp_path / "x", ["true"]), refusals=perf.REFUSALS, show=False)


def tool_with(monkeypatch, **fields):
    monkeypatch.setattr(perf.sys, "platform", "linux")
    found = Tool(**({"name": "perf", "path": "/usr/bin/perf", "version": "perf 6.1", "works": True} | fields))
    monkeypatch.setattr(perf, "find_profiler", lambda name: found)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"path": None, "works": False}, "perf is not on PATH. Install it with `sudo apt install linux-perf`"),
        ({"works": False, "note": "ends with status 2: WARNING: perf not found for kernel 6.8"}, "linux-tools-$(uname"),
        ({"note": "the kernel forbids it to users (perf_event_paranoid is 4, it needs 2 or less)"}, "sudo sysctl"),
    ],
)
def test_why_there_are_no_counters_names_what_to_do(monkeypatch, fields, words):
    tool_with(monkeypatch, **fields)
    assert words in why_no_perf()


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("<not supported>,,cycles,0,100.00,,", "shows no counters of its processor"),
        ("Access to performance monitoring and observability operations is limited.", "--cap-add=PERFMON"),
        ("654321,,cycles,561693,100.00,,", None),
    ],
)
def test_whether_there_are_counters_is_tried(tmp_path, monkeypatch, said, words):
    tool_with(monkeypatch)
    fake_tool("perf", f"echo '{said}' >&2", tmp_path / "bin", monkeypatch)
    why = why_no_perf()
    assert why is None if words is None else words in why


def test_other_systems_are_told_that_perf_is_linux(monkeypatch):
    monkeypatch.setattr(perf.sys, "platform", "darwin")
    assert "perf belongs to Linux" in why_no_perf()


@pytest.fixture
def real_perf():
    if shutil.which("perf") is None:
        pytest.skip("needs perf, which is not on PATH")
    if perf.find_profiler("perf").note:
        pytest.skip(f"needs a perf that may count: {perf.find_profiler('perf').note}")


def test_the_real_perf_counts_a_program(tmp_path, real_perf):
    output = tmp_path / "counts.txt"
    program = [sys.executable, "-c", "print(sum(range(10**6)))"]
    assert run_tool(perf_command(output, program), refusals=perf.REFUSALS, show=False) == "499999500000\n"
    said = output.read_text()
    assert "task-clock" in said and "page-faults" in said
    assert ("insn per cycle" in said) == (why_no_perf() is None)


def test_the_status_of_the_program_under_the_real_perf_is_told(tmp_path, real_perf):
    with pytest.raises(UserError, match="perf ended with status 3"):
        run_tool(perf_command(tmp_path / "x", ["sh", "-c", "exit 3"]), show=False)

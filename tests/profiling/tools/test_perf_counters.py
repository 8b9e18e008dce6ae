"""Linux perf: the real one where it is, and counts of machines that have what this one may lack."""

import shutil
import sys

import pytest
from fake_tools import arguments, fake_tool

from labkit.errors import DataError, UserError
from labkit.hardware.tools import Tool
from labkit.profiling.tools import perf
from labkit.profiling.tools.perf import perf_command, perf_figures, read_perf_stat, why_no_perf
from labkit.profiling.tools.run_tool import run_tool

# The form of perf-stat(1), CSV FORMAT; the last fields are what perf derives.
COUNTED = """\
# started on Sun Nov 22 07:15:53 2026

4000000,,cycles:u,1661061,100.00,,
6000000,,instructions:u,1661061,100.00,1.50,insn per cycle
80000,,cache-references:u,1661061,75.10,,
20000,,cache-misses:u,1661061,75.20,25.000,of all cache refs
106.21,msec,task-clock,106210650,100.00,0.384,CPUs utilized
0,,cpu-migrations,106210650,100.00,0.000,/sec
,,,,,2.00,a figure of its own
"""
# What perf 6.1 wrote in a virtual machine without counters.
NOT_SUPPORTED = """\
# started on Sun Nov 22 07:15:53 2026

<not supported>,,cycles,0,100.00,,
<not supported>,,instructions,0,100.00,,
106.21,msec,task-clock,106210650,100.00,0.384,CPUs utilized
9394,,page-faults,106210650,100.00,88.447,K/sec
"""
# The names that perf gives the counters of processors with two kinds of cores (perf-stat(1), INTEL HYBRID SUPPORT).
HYBRID = """\
300,,cpu_core/instructions/u,1000,100.00,,
500,,cpu_atom/instructions/u,1000,100.00,,
200,,cpu_core/cycles/u,1000,100.00,,
<not counted>,,cpu_atom/cycles/u,0,0.00,,
"""


def read(folder, text):
    path = folder / "counts.csv"
    path.write_text(text)
    return read_perf_stat(path)


def test_counts_come_with_their_units_and_estimates_say_so(tmp_path):
    counts = read(tmp_path, COUNTED).set_index("counter")
    assert list(counts.columns) == ["value", "unit", "note"]
    assert counts.loc["cycles:u", "value"] == 4_000_000 and counts.loc["cycles:u", "note"] is None
    assert counts.loc["task-clock", "value"] == 106.21 and counts.loc["task-clock", "unit"] == "msec"
    assert counts.loc["cpu-migrations", "value"] == 0  # a count of nothing is a count
    assert counts.loc["cache-misses:u", "note"] == "an estimate: counted during 75.2 % of the time"
    assert len(counts) == 6


def test_figures_follow_from_the_counts(tmp_path):
    figures = perf_figures(read(tmp_path, COUNTED))
    assert figures == {"ipc": 1.5, "cache_miss_share": 0.25, "branch_miss_share": None}


def test_what_was_not_counted_is_null_with_a_note_and_never_zero(tmp_path):
    counts = read(tmp_path, NOT_SUPPORTED)
    assert counts["value"].isna().tolist() == [True, True, False, False]
    assert counts["note"].tolist()[:3] == ["this machine does not have the counter"] * 2 + [None]
    assert set(perf_figures(counts).values()) == {None}


def test_two_kinds_of_cores_count_where_both_counts_are_known(tmp_path):
    counts = read(tmp_path, HYBRID)
    assert perf_figures(counts)["ipc"] == 1.5  # 300 / 200: of the others, the cycles are not known
    assert counts["note"].tolist()[3].startswith("not counted")
    whole = read(tmp_path, HYBRID.replace("<not counted>,,cpu_atom/cycles/u,0,0.00", "800,,cpu_atom/cycles/u,1,100.00"))
    assert perf_figures(whole)["ipc"] == 0.8


def test_an_event_with_commas_in_its_name_is_read(tmp_path):
    counts = read(tmp_path, "12,,cpu/event=0x3c,umask=0x0/,1661061,100.00,,\n")
    assert counts["counter"].tolist() == ["cpu/event=0x3c,umask=0x0/"] and counts["value"].tolist() == [12]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (COUNTED[:90], r"counts.csv, line 4: this is no row of counts. .*count once more"),
        (COUNTED.replace("4000000", "4.000.000"), r"counts.csv, line 3, field 'value': '4.000.000' is not a number"),
        ("# started on Sun Nov 22 07:15:53 2026\n\n", "there are no counts in it. Was perf stopped"),
    ],
)
def test_damage_is_told_with_its_place_and_remedy(tmp_path, text, words):
    with pytest.raises(DataError, match=words):
        read(tmp_path, text)


def test_a_run_with_perf_on_path_is_counted_and_read(tmp_path, monkeypatch):
    (tmp_path / "of_elsewhere").write_text(COUNTED)
    body = f'while [ "$1" != -o ]; do shift; done\ncp {tmp_path}/of_elsewhere "$2"; shift 3; exec "$@"'
    tool = fake_tool("perf", body, tmp_path / "bin", monkeypatch)
    output = tmp_path / "counts.csv"
    said = run_tool(perf_command(output, ["echo", "a b"]), refusals=perf.REFUSALS, show=False)
    assert said == "a b\n"
    assert perf_figures(read_perf_stat(output))["ipc"] == 1.5
    called = arguments(tool)
    assert called[:2] == ["stat", "-x,"] and called[-3:] == ["--", "echo", "a b"]
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
    output = tmp_path / "counts.csv"
    program = [sys.executable, "-c", "print(sum(range(10**6)))"]
    assert run_tool(perf_command(output, program), refusals=perf.REFUSALS, show=False) == "499999500000\n"
    counts = read_perf_stat(output)
    plain = {counter.split(":")[0]: value for counter, value in zip(counts["counter"], counts["value"], strict=True)}
    assert plain["task-clock"] > 0 and plain["page-faults"] > 0
    has_counters = why_no_perf() is None
    assert (perf_figures(counts)["ipc"] is not None) == has_counters
    assert has_counters == counts["value"].notna().all()


def test_the_status_of_the_program_under_the_real_perf_is_told(tmp_path, real_perf):
    with pytest.raises(UserError, match="perf ended with status 3"):
        run_tool(perf_command(tmp_path / "x", ["sh", "-c", "exit 3"]), show=False)

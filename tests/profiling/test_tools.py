"""Scripts under profilers that are programs of their own: real ones where they are, else fakes on PATH."""

import os
import subprocess
import sys

import psutil
import pytest
from processes import wait_for

from labkit.errors import UserError
from labkit.hardware.doctor import Tool
from labkit.profiling import capture, tools
from labkit.profiling.tools import check_tool, python_functions, read_tool_profile
from labkit.runs import read_run
from labkit.tracking import ScriptCommand

SCRIPT = """\
import sys, time
import torch

def dig(depth):
    return sum(range(200)) if depth == 0 else dig(depth - 1)

def prepare(seconds):
    until = time.process_time() + seconds
    while time.process_time() < until:
        sum(range(1000))

model = torch.nn.Linear(8, 1)
optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
prepare(float(sys.argv[1]))
for _ in range(int(sys.argv[2])):
    for _ in range(20_000):  # some 30 ms, beside which all that labkit does in a step is little
        dig(20)
    model(torch.ones(4, 8)).sum().backward()
    optimiser.step()
print("trained")
"""
# Runs the command that it is given, as perf does.
FAKE = """\
#!/bin/sh
[ "$1" = --version ] && exit 0
while [ "$1" != {python} ]; do shift; done
"$@"
"""


@pytest.fixture(autouse=True)
def nothing_is_left_running():
    before = {*psutil.Process().children(recursive=True)}
    yield
    assert {*psutil.Process().children(recursive=True)} <= before


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "dug.py"
    path.write_text(SCRIPT)
    return path


@pytest.fixture
def put(tmp_path, monkeypatch):
    """Puts a shell script on PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}")
    (tmp_path / "bin").mkdir()

    def put(name, text):
        path = tmp_path / "bin" / name
        path.write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    return put


@pytest.fixture
def profile(cli, script):
    """Profiles a few steps of the script under a tool."""
    few = ("profile run --skip 2 --warmup 1 --steps 3 --runs-dir", script.parent / "runs", "--tool")
    return lambda tool, *arguments, flags="", status=0: cli(
        *few, tool, *flags.split(), script, *arguments, status=status
    )


def folder_of(script):
    return next(path for path in (script.parent / "runs").iterdir() if (path / "run.json").is_file())


def test_tools_are_refused_with_what_to_use_instead(put, script, profile):
    put("nsys", "echo 1.0")
    said = profile("nsys", flags="--budget one-core", status=2).err
    assert "would run on the CPU" in said and "--tool py-spy" in said and "--tool perf" in said
    put("py-spy", "echo 1.0")
    assert "--memory applies to torch.profiler" in profile("py-spy", flags="--memory", status=2).err
    assert not (script.parent / "runs").exists()


def test_of_tools_by_hand_the_command_is_printed_and_can_be_run(put, script, profile, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(tools, "runs_on_gpu", lambda script: True)
        for name, part in (("nsys", "--delay 10 --duration 20"), ("ncu", "--launch-count 300")):
            put(name, "echo 1.0")
            assert part in (said := profile(name).out) and f"{name}-ui" in said
    put("perf", FAKE.format(python=sys.executable))
    command = profile("perf", "0", "2", flags="--budget one-core").out.splitlines()[0]
    assert command.startswith("perf stat -d")
    subprocess.run(command, shell=True, check=True)
    assert read_run(folder_of(script)).result["steps"] == 2


def test_a_tool_that_is_missing_broken_or_may_not_look_is_told_with_the_remedy(put, monkeypatch):
    note = "ends with status 127: libz.so.1: no such file"
    for name, remedy in (("nsys", "developer.nvidia.com"), ("py-spy", "pip install"), ("perf", "apt install")):
        for path, words in ((None, "is not on PATH"), ("/usr/bin/x", f"does not work here: {note}")):
            monkeypatch.setattr(
                "labkit.hardware.find_profiler", lambda name, path=path: Tool(name, path, None, False, note)
            )
            with pytest.raises(UserError, match=f"{name} {words}.*{remedy}"):
                check_tool(name, ScriptCommand("train.py"))
    # said by py-spy 0.4.3 to root without CAP_SYS_PTRACE
    said = "Error: Failed to get process executable name.\n    0: Permission denied (os error 13)"
    monkeypatch.setattr(
        "labkit.hardware.find_profiler", lambda name: Tool(name, name, "1.0", True, "the kernel forbids it")
    )
    put("py-spy", f"echo '{said}' >&2; exit 1")
    with pytest.raises(UserError, match=r"may not attach to this process .*\(os error 13\).*--cap-add=SYS_PTRACE"):
        check_tool("py-spy", ScriptCommand("train.py"))
    put("py-spy", "exit 0")
    check_tool("py-spy", ScriptCommand("train.py"))
    with pytest.raises(UserError, match=r"the kernel forbids it.*sudo sysctl kernel.perf_event_paranoid=2"):
        check_tool("perf", ScriptCommand("train.py"))


def test_a_py_spy_that_fails_or_hangs_is_told_and_ended(tmp_path, put, monkeypatch):
    put("py-spy", "echo 'Error: no such process'; exit 3")
    failed = tools.PySpy(tmp_path / "out")
    failed._process.wait()
    with pytest.raises(UserError, match="py-spy ended before the steps did, with status 3: Error: no such"):
        failed.end()
    put("py-spy", f"trap '' INT\necho > {tmp_path}/began\nexec sleep 300")
    monkeypatch.setattr(tools, "PY_SPY_GRACE_S", 0.1)
    hanging = tools.PySpy(tmp_path / "out")
    wait_for((tmp_path / "began").exists)
    with pytest.raises(UserError, match="and was stopped"):
        hanging.end()


def test_a_real_py_spy_looks_at_the_steady_steps_only(script, monkeypatch, profile):
    if why := tools.why_refused():
        pytest.skip(f"needs a py-spy that may look: {why}")
    monkeypatch.setattr(capture, "LEAST_S", 1.5)
    assert profile("py-spy", "2", "100000", flags="--json").json["tool"] == "py-spy"
    functions = read_tool_profile(folder_of(script)).functions
    assert (functions["function"][0], functions["file"][0], functions["line"][0]) == ("dig", str(script), 5)
    assert "prepare" not in functions["function"].tolist()
    assert functions["samples"].max() == functions["self_samples"].sum()


STACKS = """\
<module> (cli.py:8);<module> (/w/train.py:8);main (/w/train.py:7);fib (/w/train.py:3) 2
<module> (cli.py:8);<module> (/w/train.py:8);main (/w/train.py:7);fib (/w/train.py:3);fib (/w/train.py:2) 5
<module> (cli.py:8);<module> (/w/train.py:8);main (/w/train.py:7) 1
<module> (cli.py:8);<module> (/w/train.py:8);load (my data (1).py:40);read (lib.so) 2
_bootstrap (threading.py:9);refresh (live.py:7) 4
<module> (/w/train.py:7);charge (/l/labkit/profiling/phase_clock.py:3);enter (torch.py:1) 5
run (/l/labkit/tracking/script.py:9);<module> (/w/train.py:7);step (/l/labkit/tracking/run.py:3) 6
"""


def test_stacks_through_the_script_become_functions_each_counted_once_a_sample(tmp_path):
    path = tmp_path / "py-spy.txt"
    path.write_text(STACKS)
    table = python_functions(path, "/w/train.py").set_index("function")
    assert table.index[0] == "fib" and not {"refresh", "charge", "enter", "step"} & set(table.index)
    assert table.loc["fib", ["samples", "self_samples", "share", "line"]].tolist() == [7, 7, 0.7, 2]
    assert table.loc["main", ["samples", "self_samples", "with_callees"]].tolist() == [8, 1, 0.8]
    assert table.loc["load", "file"] == "my data (1).py" and table["line"].isna()[["load", "read"]].all()
    assert table["self_samples"].sum() == 10
    for text, words in (
        (STACKS[:130], r"py-spy.txt, line 2: this line has no number of samples at its end. .*profile again"),
        ("main (other.py:7) 3\n", "py-spy took no sample within the steps"),
    ):
        path.write_text(text)
        with pytest.raises(UserError, match=words):
            python_functions(path, "/w/train.py")

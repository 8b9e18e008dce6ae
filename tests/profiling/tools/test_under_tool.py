"""Scripts under profilers that are programs of their own: real ones where they are, else fakes on PATH."""

import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import time

import psutil
import pytest
import torch
from fake_tools import arguments, fake_tool
from test_ncu import FORBIDDEN
from test_nsys import STATS

from labkit.cli import main
from labkit.errors import UserError
from labkit.hardware.tools import which
from labkit.profiling.recording import steady_steps
from labkit.profiling.recording.settings import ProfileSettings
from labkit.profiling.recording.steady_steps import PerfSwitch, SteadySteps
from labkit.profiling.tools import py_spy, under_tool
from labkit.profiling.tools.perf import NO_COUNTERS, why_no_perf
from labkit.profiling.tools.tool_profile import read_tool_profile
from labkit.runs import read_run
from labkit.runs.process import process_started
from labkit.tracking.phases import FORWARD

FEW = ["--skip", "2", "--warmup", "1", "--steps", "3"]
JOB = ["profile", "dlrm", "--data", "synthetic-small", *FEW]
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
    for _ in range(200):
        dig(20)
    model(torch.ones(4, 8)).sum().backward()
    optimiser.step()
print("trained")
"""
LOOPS = """\
def nested(step):
    for _ in range(1):
        pass
    for _ in range(1):
        pass
        for _ in range(1):
            step()

def single(step):
    while True:
        step(); break

def without(step):
    step()
"""
# Each runs the command that it is given, as the tool does, and then writes what the tool wrote elsewhere.
NSYS = """
case "$1 $2" in
    --version*) echo "NVIDIA Nsight Systems version 2024.5.1.113-245134619542v0"; exit 0;;
    "stats --help-reports") exit 1;;
    stats*) exec cat {folder}/stats;;
esac
while [ "$1" != -o ]; do shift; done
output=$2; shift 2
"$@"; status=$?
echo recorded > "$output"
exit $status
"""
NCU = """
case "$1" in --version) echo "Version 2024.3.2.0"; exit 0;; esac
while [ "$1" != --export ]; do shift; done
output=$2
while [ "$1" != --launch-count ]; do shift; done
shift 2
"$@"; status=$?
echo launches > "$output"
exit $status
"""
OLD_PERF = """
case "$1 $2" in
    --version*) echo "perf version 5.4.0"; exit 0;;
    "stat -h") echo "    -D, --delay <n>  ms to wait before starting measurement" >&2; exit 129;;
    *cycles*) exit 0;;
esac
case "$*" in *" true") exit 0;; esac
while [ "$1" != -o ]; do shift; done
output=$2; shift 3
"$@"; status=$?
echo "1.50 insn per cycle" > "$output"
exit $status
"""


@pytest.fixture(autouse=True)
def nothing_is_left_running():
    yield
    assert psutil.Process().children(recursive=True) == []


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """Windows that end with their steps."""
    monkeypatch.setattr(under_tool, "LEAST_S", dict.fromkeys(under_tool.LEAST_S, 0.0))


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "dug.py"
    path.write_text(SCRIPT)
    return path


@pytest.fixture
def fake_nsys(tmp_path, monkeypatch):
    (tmp_path / "stats").write_text(STATS)
    monkeypatch.setattr(under_tool, "why_no_gpu", lambda tool, what: None)
    return fake_tool("nsys", NSYS.format(folder=tmp_path), tmp_path / "bin", monkeypatch)


@pytest.fixture
def fake_ncu(tmp_path, monkeypatch):
    monkeypatch.setattr(under_tool, "why_no_gpu", lambda tool, what: None)
    monkeypatch.setattr(under_tool.ncu, "why_no_ncu", lambda: None)
    return fake_tool("ncu", NCU.format(folder=tmp_path), tmp_path / "bin", monkeypatch)


@pytest.fixture
def real_py_spy():
    if which("py-spy") is None:
        pytest.skip("needs py-spy, which is not on PATH (pip install py-spy)")
    if why := py_spy.why_no_py_spy():
        pytest.skip(f"needs a py-spy that may look: {why}")


@pytest.fixture
def real_perf():
    if shutil.which("perf") is None:
        pytest.skip("needs perf, which is not on PATH")
    if (why := why_no_perf()) and why != f"{NO_COUNTERS}.":
        pytest.skip(f"needs a perf that may count: {why}")


def folder_of(runs):
    return next(path for path in runs.iterdir() if (path / "run.json").is_file())


def run(arguments, runs):
    return main([*arguments, "--runs-dir", str(runs)])


def test_the_window_opens_after_the_first_steps_and_has_so_many(tmp_path):
    steady = SteadySteps(ProfileSettings(skip=2, warmup=1, steps=3), "nsys")
    steady.start(tmp_path, torch.device("cpu"))
    ends = []
    for name in ["before"] * 3 + [FORWARD] * 3:
        with steady.clock.watch(name):
            pass
        ends.append(steady.step())
    steady.finish()
    assert ends == [False] * 5 + [True]
    facts = json.loads((tmp_path / "trace" / "tool.json").read_text())
    assert (facts["steps"], facts["steps_taken"], facts["device"]) == (3, 6, "cpu")
    assert 0 < facts["window_s"] < facts["observed_s"]
    assert set(facts["phases_us"]) == {"", FORWARD}


def test_the_window_goes_on_until_there_was_time_for_samples(tmp_path, monkeypatch):
    now = iter(range(100))
    monkeypatch.setattr(steady_steps.time, "perf_counter", lambda: float(next(now)))
    steady = SteadySteps(ProfileSettings(skip=2, warmup=1, steps=1), "py-spy", least_s=30)
    steady.start(tmp_path, torch.device("cpu"))
    while not steady.step():
        pass
    monkeypatch.undo()
    steady.finish()
    assert steady.steps > 10


def test_steps_that_end_too_soon_are_written_down_as_none(tmp_path):
    steady = SteadySteps(ProfileSettings(skip=2, warmup=1, steps=3), "perf")
    steady.start(tmp_path, torch.device("cpu"))
    steady.step()
    steady.finish()
    assert json.loads((tmp_path / "trace" / "tool.json").read_text())["steps"] == 0


def test_a_perf_that_does_not_answer_is_told(tmp_path, monkeypatch):
    fifos = tmp_path / "control", tmp_path / "answers"
    for fifo in fifos:
        os.mkfifo(fifo)
    monkeypatch.setattr(steady_steps, "ANSWER_S", 0.01)
    with pytest.raises(UserError, match=r"perf did not answer to 'enable' .*profile again"):
        PerfSwitch(*fifos).say("enable")


def test_a_job_under_nsys_is_recorded_in_its_steady_steps_and_told(tmp_path, fake_nsys, capsys):
    runs = tmp_path / "runs"
    assert run([*JOB, "--tool", "nsys"], runs) == 0
    said = capsys.readouterr().out
    assert "steps 1 to 3 pass, then nsys looks at 3" in said and "nsys looked at 3 steady steps" in said
    for words in ("[CUDA memcpy Device-to-Host]", "cudaLaunchKernel", "sample_actions", "nsys-ui"):
        assert words in said.replace("\n", "")
    folder = folder_of(runs)
    assert (folder / "trace" / "nsys.nsys-rep").read_text() == "recorded\n"
    record = read_run(folder)
    assert record.status == "done" and record.config["profile"]["tool"] == "nsys"
    profile = read_tool_profile(folder)
    assert len(profile.tables["kernels"]) == 5 and len(profile.tables["ranges"]) == 1
    assert profile.facts["steps"] == 3 and profile.facts["steps_taken"] == 6


def test_nsys_is_told_to_record_between_cuda_s_start_and_stop(tmp_path, fake_nsys):
    called = tmp_path / "called"
    fake_nsys.write_text(fake_nsys.read_text().replace("output=$2", f'cp "$0.args" {called}; output=$2'))
    run([*JOB, "--tool", "nsys"], tmp_path / "runs")
    words = called.read_text().splitlines()
    assert words[0] == "profile" and {"--capture-range=cudaProfilerApi", "--capture-range-end=stop"} < set(words)
    assert words[-3:-1] == ["-m", "labkit.profiling.tools.child"]


def test_such_a_run_has_no_page_but_says_what_to_open(tmp_path, fake_nsys, capsys):
    runs = tmp_path / "runs"
    run([*JOB, "--tool", "nsys", "--json"], runs)
    answer = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert answer["tool"] == "nsys" and answer["tables"]["kernels"][0]["calls"] == 97620
    assert run(["profile", "show", answer["run"]], runs) == 2
    said = capsys.readouterr().err
    assert "nsys-ui" in said and "nsys.nsys-rep" in said and "--text" in said
    assert run(["profile", "show", answer["run"], "--text"], runs) == 0
    assert "cudaLaunchKernel" in capsys.readouterr().out
    assert run(["profile", "diff", answer["run"], answer["run"]], runs) == 2
    assert "--tool torch" in capsys.readouterr().err


def test_a_script_under_ncu_is_looked_at_kernel_by_kernel(tmp_path, fake_ncu, script, capsys):
    runs = tmp_path / "runs"
    assert main(["profile", "run", *FEW, "--tool", "ncu", "--runs-dir", str(runs), str(script), "0", "50"]) == 0
    said = capsys.readouterr().out
    assert "ncu looked at kernels of 3 steady steps" in said and "ncu-ui" in said
    assert (folder_of(runs) / "trace" / "ncu.ncu-rep").read_text() == "launches\n"
    called = arguments(fake_ncu)
    assert called[called.index("--profile-from-start") + 1] == "off"
    record = read_run(folder_of(runs))
    assert record.config["profile"]["tool"] == "ncu" and record.config["script"] == str(script)
    assert record.result["steps"] == 6 and "trained" not in said


def test_tools_for_gpus_are_refused_on_a_cpu_with_what_to_use_there(tmp_path, monkeypatch, capsys):
    fake_tool("nsys", NSYS.format(folder=tmp_path), tmp_path / "bin", monkeypatch)
    assert run([*JOB, "--budget", "one-core", "--tool", "nsys"], tmp_path / "runs") == 2
    said = capsys.readouterr().err
    assert "would run on the CPU" in said and "--tool py-spy" in said and "--tool perf" in said
    assert not (tmp_path / "runs").exists()


def test_a_tool_that_recorded_nothing_is_told(tmp_path, fake_nsys, capsys):
    fake_nsys.write_text(fake_nsys.read_text().replace('echo recorded > "$output"', ""))
    assert run([*JOB, "--tool", "nsys"], tmp_path / "runs") == 2
    assert "no nsys.nsys-rep in its trace/" in capsys.readouterr().err


def test_a_script_that_fails_under_a_tool_tells_its_own_error(tmp_path, fake_nsys, capsys):
    runs = tmp_path / "runs"
    script = tmp_path / "broken.py"
    script.write_text("raise KeyError('no such column')\n")
    assert main(["profile", "run", "--tool", "nsys", "--runs-dir", str(runs), str(script)]) == 2
    said = capsys.readouterr().err
    assert "labkit: " in said and "KeyError: 'no such column'" in said.splitlines()[-1]
    assert "ended with status" not in said and read_run(folder_of(runs)).status == "failed"


def test_the_loop_that_takes_the_steps_is_found(tmp_path):
    script = tmp_path / "loops.py"
    script.write_text(LOOPS)
    functions, found = runpy.run_path(str(script)), []
    for name in ("nested", "single", "without"):
        functions[name](lambda: found.append(steady_steps._loop_of(script)[1:]))
    assert found == [(4, 7), (10, 11), (14, 14)]


def test_a_job_that_is_refused_under_a_tool_tells_why(tmp_path, fake_nsys, capsys):
    assert run(["profile", "dlrm", "--data", str(tmp_path / "none.tsv"), "--tool", "nsys"], tmp_path / "runs") == 2
    said = capsys.readouterr().err
    assert "none.tsv" in said and "ended with status" not in said


def test_a_bug_of_ours_under_a_tool_comes_with_its_traceback(tmp_path, fake_nsys, monkeypatch, capsys):
    monkeypatch.setattr(under_tool, "asdict", lambda settings: {"nothing": 1})
    assert run([*JOB, "--tool", "nsys"], tmp_path / "runs") == 1
    said = capsys.readouterr().err
    assert "TypeError" in said and "child.py" in said and "bug in labkit" in said


def test_a_tool_that_fails_is_told_in_its_words(tmp_path, monkeypatch, fake_nsys, capsys):
    fake_nsys.write_text('#!/bin/sh\n[ "$1" = --version ] && echo 1.2 && exit\necho "Error: no licence" >&2; exit 3\n')
    assert run([*JOB, "--tool", "nsys"], tmp_path / "runs") == 2
    said = capsys.readouterr().err
    assert "nsys ended with status 3: Error: no licence" in said and "--tool torch." in said
    assert "request.json" not in said  # it is gone by then


def wait_for(condition, seconds=60):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.05)


ENDLESS = "import os, time\nopen({pid!r} + '~', 'w').write(str(os.getpid()))\nos.replace({pid!r} + '~', {pid!r})\n"


@pytest.fixture
def endless(tmp_path):
    """A script that takes no step and never ends, and the file that its number goes to."""
    pid = tmp_path / "pid"
    path = tmp_path / "endless.py"
    path.write_text(ENDLESS.format(pid=str(pid)) + "while True: time.sleep(0.05)\n")
    return path, pid


def test_a_refusal_ends_the_program_too(tmp_path, fake_ncu, endless, capsys):
    script, pid = endless
    (tmp_path / "refusal").write_text(FORBIDDEN)
    waits = f'(while [ ! -f {pid} ]; do sleep 0.05; done; cat {tmp_path}/refusal >&2) & "$@"'
    fake_ncu.write_text(fake_ncu.read_text().replace('"$@"; status=$?', f"{waits}; status=$?"))
    runs = tmp_path / "runs"
    assert main(["profile", "run", "--tool", "ncu", "--runs-dir", str(runs), str(script)]) == 2
    assert "NVreg_RestrictProfilingToAdminUsers=0" in capsys.readouterr().err
    assert process_started(int(pid.read_text())) is None


def test_a_program_ends_with_a_killed_launcher(tmp_path, monkeypatch, endless):
    script, pid = endless
    body = (
        'case "$1" in --version) echo "py-spy 0.4.3"; exit 0;; esac\nwhile [ "$1" != -- ]; do shift; done; shift; "$@"'
    )
    fake_tool("py-spy", body, tmp_path / "bin", monkeypatch)
    runs = tmp_path / "runs"
    command = [
        sys.executable,
        "-m",
        "labkit",
        "profile",
        "run",
        "--tool",
        "py-spy",
        "--runs-dir",
        str(runs),
        str(script),
    ]
    environment = os.environ | {"TMPDIR": str(tmp_path)}  # which a killed launcher does not tidy up
    launcher = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    try:
        wait_for(pid.is_file)
        program = int(pid.read_text())
    finally:
        launcher.send_signal(signal.SIGKILL)
        launcher.wait()
    try:
        wait_for(lambda: process_started(program) is None)
    finally:
        if process_started(program) is not None:
            os.kill(program, signal.SIGKILL)
    assert read_run(folder_of(runs)).status == "stopped"


def test_an_old_perf_counts_the_whole_program_and_says_so(tmp_path, monkeypatch, capsys):
    tool = fake_tool("perf", OLD_PERF.format(folder=tmp_path), tmp_path / "bin", monkeypatch)
    monkeypatch.setattr(under_tool.perf, "why_no_perf", lambda: None)
    runs = tmp_path / "runs"
    assert run([*JOB, "--tool", "perf"], runs) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "1.50 insn per cycle" in said
    assert "the counts are of the whole program" in said
    assert not any(word.startswith(("--control", "--delay")) for word in arguments(tool))


def test_a_tool_that_may_not_look_is_refused_before_anything_starts(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(under_tool.py_spy, "why_no_py_spy", lambda: py_spy.FORBIDDEN)
    assert run([*JOB, "--tool", "py-spy"], tmp_path / "runs") == 2
    assert "--cap-add=SYS_PTRACE" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_what_only_torch_s_profiler_records_is_refused_with_others(tmp_path, capsys):
    assert run([*JOB, "--tool", "perf", "--memory"], tmp_path / "runs") == 2
    assert "--memory says what torch.profiler records" in capsys.readouterr().err


def test_the_real_perf_counts_the_steady_steps_only(tmp_path, real_perf, script, capsys):
    runs = tmp_path / "runs"
    arguments = ["profile", "run", *FEW, "--tool", "perf", "--runs-dir", str(runs), "--json", str(script), "2", "50"]
    assert main(arguments) == 0
    answer = json.loads(capsys.readouterr().out.splitlines()[-1])
    run(["profile", "show", answer["run"], "--text"], runs)
    said = capsys.readouterr().out
    clock_ms = float(re.search(r"([\d.,]+) msec task-clock", said)[1].replace(",", ""))
    # the start and `prepare` take more than 2 s of a core; perf's two answers may take a while on a busy machine
    assert 0 < clock_ms / 1e3 < answer["facts"]["window_s"] * os.cpu_count() + 0.5
    assert ("insn per cycle" not in said) == any(NO_COUNTERS[5:60] in note for note in answer["notes"])


def told_by_py_spy(arguments, capsys):
    status = main(arguments)
    said = capsys.readouterr()
    if py_spy.FORBIDDEN in said.err:
        pytest.skip(f"needs a py-spy that may look: {said.err}")
    assert status == 0
    return said.out


def test_the_real_py_spy_finds_the_dearest_function_of_a_job(tmp_path, real_py_spy, monkeypatch, capsys):
    monkeypatch.setattr(under_tool, "LEAST_S", {"py-spy": 1.0})
    runs = tmp_path / "runs"
    said = told_by_py_spy([*JOB, "--tool", "py-spy", "--runs-dir", str(runs)], capsys)
    assert "cannot be switched on and off" in said.replace("\n", " ")
    functions = read_tool_profile(folder_of(runs)).tables["functions"]
    assert functions["function"].str.contains("backward").any()
    assert functions["share"].sum() == pytest.approx(1)
    whole = functions["self_samples"].sum()
    loop = functions[functions["file"].str.endswith("jobs/dlrm.py")].set_index("function")["samples"]
    assert loop["main"] == whole  # only what is in the loop
    assert not functions["function"].str.contains("load_clicks").any()
    assert functions["line"].notna().any()


def test_the_real_py_spy_finds_the_dearest_function_of_a_script(tmp_path, real_py_spy, script, monkeypatch, capsys):
    monkeypatch.setattr(under_tool, "LEAST_S", {"py-spy": 1.0})
    runs = tmp_path / "runs"
    arguments = ["profile", "run", *FEW, "--tool", "py-spy", "--runs-dir", str(runs), str(script), "0", "100000"]
    assert "dug.py:5" in told_by_py_spy(arguments, capsys)
    functions = read_tool_profile(folder_of(runs)).tables["functions"]
    assert functions["function"][0] == "dig" and functions["file"][0] == str(script)

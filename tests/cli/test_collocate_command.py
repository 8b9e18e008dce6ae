"""`labkit collocate`, as its users run it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from labkit.cli import main
from labkit.collocation.launching.group_record import GroupRecord, read_group
from labkit.process.containment import MARK

SCRIPT = """\
import sys, time
import torch
model = torch.nn.Linear(4, 1)
optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(int(sys.argv[1])):
    optimiser.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimiser.step()
    time.sleep(float(sys.argv[2]))
"""


@pytest.fixture
def script(tmp_path, monkeypatch) -> Path:
    """A script that trains for as many steps as it is told."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def test_a_mix_is_checked_run_and_judged(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    jobs = "dlrm:tour[data=synthetic-small,max_epochs=1,precision=fp32] x2"
    assert main(["collocate", "--jobs", jobs, "--mode", "cpu-shared,cpu-pinned", "--baseline", "one", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert answer["status"] == "done"
    pair = [mode for mode in answer["modes"] if mode["jobs"] == 2]
    assert [mode["mode"] for mode in pair] == ["alone", "cpu-shared", "cpu-pinned"]
    assert all(mode["gain"] > 0 and mode["makespan_s"] > 0 for mode in pair)
    assert {row["job"] for row in answer["time_to_accuracy"]} >= {"dlrm-tour-1", "dlrm-tour-2", "all jobs"}
    # which mode, or none, is how busy the machine was while it was measured
    assert answer["advice"][0]["reason"]
    # the same, asked again of the folder
    assert main(["collocate", "--show", answer["group"]]) == 0
    shown = capsys.readouterr().out
    assert "2 × dlrm:tour: measured" in shown
    assert "Verdict on 2 × dlrm:tour" in shown
    odd = tmp_path / "runs" / "20260101-000000-group-odd-0000"
    odd.mkdir()
    (odd / "group.json").write_text(json.dumps({"schema_version": "of elsewhere"}))
    assert main(["collocate", "--list"]) == 0
    said = capsys.readouterr()
    assert answer["group"] in said.out
    assert "left out: " in said.err and odd.name in said.err


def test_what_cannot_run_is_refused_before_anything_starts(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["collocate", "--jobs", "dlrm:tour[memory=900GiB], speech", "--mode", "mps,cpu-pinned"]) == 2
    said = capsys.readouterr().err
    assert "nothing was started:" in said
    assert "mode mps shares a GPU, and the device is the CPU: use mode cpu-shared, or choose a GPU" in said
    assert "asks for 900 GiB of memory" in said
    assert not (tmp_path / "runs").exists()


def test_a_check_starts_nothing(tmp_path, script, capsys):
    assert main(["collocate", "--jobs", f"{script}[memory=1GiB] 1 0 x2", "--mode", "cpu-pinned", "--check"]) == 0
    assert "before the start" in capsys.readouterr().out
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("arguments", [[], ["plan.yaml", "--jobs", "dlrm"], ["--show", "a", "--list"]])
def test_one_thing_at_a_time(arguments, capsys):
    assert main(["collocate", *arguments]) == 2
    assert "name one of: a plan's file, --jobs, --resume GROUP, --show GROUP, or --list" in capsys.readouterr().err


def test_a_csv_of_radts_has_its_statuses_beside_it(tmp_path, script, capsys):
    plan = tmp_path / "experiment.csv"
    plan.write_text(
        "Experiment,Workload,Name,Status,Run,Devices,Collocation,Listeners,File,Params\n"
        "1,1,one,FINISHED,abc,cpu,-,smi+top,train.py,3 0\n"
        "1,2,left,,,cpu,-,smi+top,train.py,3 0\n"
        '1,2,right,,,cpu,-,smi+top,train.py,"3 0"\n'
    )
    assert main(["collocate", str(plan), "--baseline", "none"]) == 0
    said = capsys.readouterr().out
    assert "1-1 is finished, and left out." in said
    (group,) = GroupRecord.folders(tmp_path / "runs")
    runs = [job.run for job in read_group(group).rounds[0].jobs]
    lines = plan.with_name("experiment.status.csv").read_text().splitlines()
    assert lines[1] == "1,1,one,FINISHED,abc,cpu,-,smi+top,train.py,3 0"
    assert lines[2] == f"1,2,left,FINISHED,{runs[0]},cpu,-,smi+top,train.py,3 0"
    assert lines[3] == f"1,2,right,FINISHED,{runs[1]},cpu,-,smi+top,train.py,3 0"


def test_a_killed_group_is_resumed_where_it_was(tmp_path, script):
    arguments = [
        "collocate",
        "--jobs",
        f"{script}[memory=1GiB] 40 0.05 x2",
        "--mode",
        "cpu-shared",
        "--baseline",
        "one",
    ]
    launcher = subprocess.Popen([sys.executable, "-m", "labkit", *arguments], cwd=tmp_path)

    def is_shared() -> bool:
        groups = GroupRecord.folders(tmp_path / "runs")
        return bool(groups) and read_group(groups[0]).rounds[1].go_at is not None

    wait_for(is_shared)
    launcher.send_signal(signal.SIGKILL)
    launcher.wait(60)
    (group,) = GroupRecord.folders(tmp_path / "runs")
    before = read_group(group)
    assert before.status == "interrupted"
    assert before.rounds[0].status == "done"
    wait_for(lambda: not processes_of(tmp_path))
    assert not list(group.glob(".group.json.*"))

    assert main(["collocate", "--resume", str(group)]) == 0
    after = read_group(group)
    assert after.status == "done"
    assert after.rounds[0] == before.rounds[0], "what was done is not run again"
    assert [(job.status, job.attempt) for job in after.rounds[1].jobs] == [("done", 2), ("done", 2)]


WITH_RUN = """\
import sys
import torch, labkit
torch.manual_seed(int(sys.argv[1]))
model, x = torch.nn.Linear(4, 1), torch.randn(64, 4)
y = x.sum(1, keepdim=True)
optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
with labkit.Run("line", target="error <= 0.05", seed=int(sys.argv[1])) as run:
    for step in range(1000):
        loss = (model(x) - y).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        run.step(loss, samples=64)
        if step % 10 == 0 and run.evaluate(error=loss.item()):
            break
"""


def test_a_script_with_a_run_has_its_time_to_target(tmp_path, script, capsys):
    script.write_text(WITH_RUN)
    jobs = f"{script}[memory=1GiB] {{seed}} x2"
    assert main(["collocate", "--jobs", jobs, "--mode", "cpu-shared", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out.splitlines()[-1])
    times = {(row["mode"], row["job"]): row for row in answer["time_to_accuracy"]}
    assert all(times["cpu-shared", job]["median_s"] > 0 for job in ("train-1", "train-2", "all jobs"))
    group = Path(answer["folder"])
    assert {Path(job["log"]).is_absolute() or (group / job["log"]).is_file() for job in answer["jobs"]} == {True}

    assert main(["runs", "list", "--runs-dir", "runs", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    shared = [row for row in rows if row["budget"] == "cpu-shared, 2 × train.py"]
    assert sorted((row["seed"], row["target_reached"]) for row in shared) == [(0, True), (1, True)]
    assert (len(rows), {row["group"] for row in rows}) == (4, {group.name})
    assert main(["report", "runs"]) == 0
    assert "4 runs in" in capsys.readouterr().out
    assert main(["run", "--resume", shared[0]["run"]]) == 2
    assert f"this run is one of the jobs of {group.name}" in capsys.readouterr().err


@pytest.mark.parametrize("ends", ["with a run", "without"])
def test_runs_stop_ends_one_job_of_a_group(tmp_path, script, ends):
    if ends == "with a run":
        script.write_text(WITH_RUN.replace("range(1000)", "range(10**9)").replace("<= 0.05", "<= 0.0"))
    jobs = f"{script}[memory=1GiB] {10**9 if ends == 'without' else 0} 0.01"
    command = [sys.executable, "-m", "labkit", "collocate", "--jobs", jobs, "--mode", "alone"]
    launcher = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL)

    def runs() -> list[Path]:
        return [path.parent for path in tmp_path.glob("runs/*/*/run.json") if list(path.parent.glob("metrics/*"))]

    wait_for(lambda: runs() or launcher.poll() is not None)
    assert main(["runs", "stop", runs()[0].name]) == 0
    assert launcher.wait(60) == 1
    (job,) = read_group(runs()[0].parent).rounds[0].jobs
    assert (job.status, job.reason) == ("stopped", f"stopped {'on' if ends == 'with a run' else 'by'} request")


def test_a_failed_script_is_told_with_its_reason_and_its_log(tmp_path, script, capsys):
    assert main(["collocate", "--jobs", f"{script}[memory=1GiB] five 0", "--mode", "alone"]) == 1
    said = capsys.readouterr().out
    assert "train: failed" in said
    assert "ValueError: invalid literal for int()" in said
    assert "Traceback" in next(tmp_path.glob("runs/*/logs/*.log")).read_text()


def test_what_a_script_says_is_printed_as_it_is(tmp_path, script, capsys):
    script.write_text("raise ValueError('cannot open [/data/train] for [red]reading')")
    assert main(["collocate", "--jobs", f"{script}[memory=1GiB]", "--mode", "alone"]) == 1
    assert "cannot open [/data/train] for [red]reading" in capsys.readouterr().out
    (group,) = GroupRecord.folders(tmp_path / "runs")
    assert main(["collocate", "--show", str(group)]) == 1
    assert "cannot open [/data/train] for [red]reading" in capsys.readouterr().out


def test_a_script_ends_as_python_ends_it(tmp_path, script):
    script.write_text(
        "import atexit, threading, time\nfrom pathlib import Path\n"
        "atexit.register(Path('exited').touch)\n"
        "def late():\n    time.sleep(0.5)\n    Path('late').touch()\n"
        "threading.Thread(target=late).start()\n"
        "class Holder: pass\nholder = Holder()\nholder.file, holder.self = open('kept', 'w'), holder\n"
        "holder.file.write('to the disk')\n"
    )
    assert main(["collocate", "--jobs", f"{script}[memory=1GiB]", "--mode", "alone"]) == 0
    assert (tmp_path / "exited").exists()
    assert (tmp_path / "late").exists()
    assert (tmp_path / "kept").read_text() == "to the disk"


def test_what_python_prints_at_its_start_is_no_event(tmp_path, script, monkeypatch):
    (tmp_path / "chatty").mkdir()
    (tmp_path / "chatty" / "sitecustomize.py").write_text("print('welcome to this cluster')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "chatty"))
    assert main(["collocate", "--jobs", f"{script}[memory=1GiB] 3 0", "--mode", "alone"]) == 0


def test_a_row_is_finished_when_its_last_repeat_is(tmp_path, script):
    plan = tmp_path / "experiment.csv"
    plan.write_text(
        "Experiment,Workload,Name,Status,Run,Devices,Collocation,Listeners,File,Params\n"
        "1,1,a,,,cpu,-,smi,train.py,60 0.05\n"
    )
    command = [sys.executable, "-m", "labkit", "collocate", str(plan), "--repeats", "2", "--baseline", "none"]
    launcher = subprocess.Popen(command, cwd=tmp_path)

    def is_second() -> bool:
        groups = GroupRecord.folders(tmp_path / "runs")
        return bool(groups) and read_group(groups[0]).rounds[1].status == "running"

    wait_for(is_second)
    launcher.kill()
    launcher.wait(60)
    assert "FINISHED" not in plan.read_text() and not plan.with_name("experiment.status.csv").exists()
    wait_for(lambda: not processes_of(tmp_path))


def processes_of(folder: Path) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            if MARK in process.environ() and Path(process.cwd()) == folder:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def wait_for(condition) -> None:
    until = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < until, "it did not come to that"
        time.sleep(0.1)

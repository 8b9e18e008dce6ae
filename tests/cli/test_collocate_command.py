"""`labkit collocate`, as its users run it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from labkit.cli import main
from labkit.launch import Launches

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
WITH_RUN = """\
import sys, time, labkit
with labkit.Run("line", target="error <= 0.05", seed=int(sys.argv[1])) as run:
    for step in range(1000):
        time.sleep(0.01)
        run.step(1 / (step + 1), samples=64)
        if step % 10 == 0 and run.evaluate(error=1 / (step + 1)):
            break
"""
HEADER = "Experiment,Workload,Name,Status,Run,Devices,Collocation,Listeners,File,Params\n"


@pytest.fixture
def script(tmp_path, monkeypatch) -> Path:
    """A script that trains for as many steps as it is told."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def mix_of(tmp_path) -> Launches:
    """The one that was run."""
    (folder,) = Launches.folders(tmp_path / "runs", "mix")
    return Launches.read(folder)


def test_a_mix_is_checked_run_and_judged(tmp_path, script, capsys):
    script.write_text(WITH_RUN)
    jobs = f"{script}[memory=1GiB] {{seed}} x2"
    assert main(["collocate", "--jobs", jobs, "--mode", "cpu-shared", "--baseline", "one", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert answer["status"] == "done"
    pair = [mode for mode in answer["modes"] if mode["jobs"] == 2]
    assert [mode["mode"] for mode in pair] == ["alone", "cpu-shared"]
    assert all(mode["gain"] > 0 and mode["makespan_s"] > 0 for mode in pair)
    times = {(row["mode"], row["job"]): row for row in answer["time_to_accuracy"]}
    assert all(times["cpu-shared", job]["median_s"] > 0 for job in ("train-1", "train-2", "all jobs"))
    assert answer["advice"][0]["reason"]  # which mode, or none, is how busy the machine was
    group = Path(answer["folder"])
    assert all((group / job["log"]).is_file() for job in answer["jobs"])

    # the same, asked again of the folder
    assert main(["collocate", "--show", answer["group"]]) == 0
    shown = capsys.readouterr().out
    assert "2 × train.py: measured" in shown and "Verdict on 2 × train.py" in shown
    assert "time to target" in shown and "slowdown of each job" in shown and "alone, own hardware" in shown
    odd = tmp_path / "runs" / "20260101-000000-mix-odd-0000"
    odd.mkdir()
    (odd / "launches.jsonl").write_text(json.dumps({"head": {"schema_version": "of elsewhere"}}) + "\n")
    assert main(["collocate", "--list"]) == 0
    said = capsys.readouterr()
    assert answer["group"] in said.out
    assert "left out: " in said.err and odd.name in said.err

    # its runs are beside all others
    assert main(["runs", "list", "--runs-dir", "runs", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    shared = [row for row in rows if row["budget"] == "cpu-shared, 2 × train.py"]
    assert sorted((row["seed"], row["target_reached"]) for row in shared) == [(0, True), (1, True)]
    assert (len(rows), {row["group"] for row in rows}) == (3, {group.name})
    assert main(["run", "--resume", shared[0]["run"]]) == 2
    assert f"this run is one of the jobs of {group.name}" in capsys.readouterr().err


def test_what_cannot_run_is_refused_before_anything_starts(tmp_path, script, capsys):
    for arguments in ([], ["plan.yaml", "--jobs", "dlrm"], ["--show", "a", "--list"]):
        assert main(["collocate", *arguments]) == 2
        assert "name one of: a file, --jobs, --resume MIX, --show MIX, or --list" in capsys.readouterr().err
    jobs = f"dlrm:tour[memory=900GiB], {script}[memory=1GiB]"
    assert main(["collocate", "--jobs", jobs, "--mode", "mps,cpu-pinned"]) == 2
    said = capsys.readouterr().err
    assert "nothing was started:" in said
    assert "mode mps shares a GPU, and the device is the CPU: use mode cpu-shared, or choose a GPU" in said
    assert "ask for 901 GiB of memory together (dlrm-tour 900 GiB, train 1 GiB)" in said
    assert main(["collocate", "--jobs", f"{script}[memory=1GiB] 1 0 x2", "--mode", "cpu-pinned", "--check"]) == 0
    assert "before the start" in capsys.readouterr().out
    assert not (tmp_path / "runs").exists()


def test_a_csv_of_radts_runs_unchanged(tmp_path, script, capsys):
    plan = tmp_path / "experiment.csv"
    plan.write_text(f"{HEADER}1,1,one,FINISHED,abc,cpu,-,smi+top,train.py,3 0\n")
    assert main(["collocate", str(plan), "--baseline", "none"]) == 0
    assert "Status is not read, so all rows run" in capsys.readouterr().out
    (part,) = mix_of(tmp_path).parts.values()
    assert (part.status, part.launch.about["job"]) == ("done", "one")


def test_a_failure_is_told_with_its_reason(tmp_path, script, capsys):
    script.write_text("raise ValueError('cannot open [/data/train] for [red]reading')")
    assert main(["collocate", "--jobs", f"{script}[memory=1GiB]", "--mode", "alone"]) == 1
    said = capsys.readouterr().out
    assert "train: failed" in said and "ValueError: cannot open [/data/train] for [red]reading" in said
    group = mix_of(tmp_path).folder
    assert "Traceback" in (group / "logs/alone-alone-0-train.log").read_text()
    assert main(["collocate", "--show", str(group)]) == 1
    assert "cannot open [/data/train] for [red]reading" in capsys.readouterr().out

"""`labkit pack`, as its users run it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from labkit.cli import main
from labkit.project import shipped_datasets
from labkit.sharing import read_pack, tracked_jobs

SCRIPT = """\
import sys, time
from pathlib import Path
Path(sys.argv[1]).touch()
while not Path(sys.argv[2]).exists():
    time.sleep(0.02)
"""
QUEUE = """\
jobs:
  - {script: train.py, name: a, arguments: "a b", memory: 1GiB, utilisation: 0.3}
  - {script: train.py, name: b, arguments: "b a", memory: 1GiB, utilisation: 0.3}
"""


@pytest.fixture
def queue(tmp_path, monkeypatch) -> Path:
    """Two scripts that end only beside each other."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    path = tmp_path / "queue.yaml"
    path.write_text(QUEUE)
    return path


def test_a_queue_is_checked_run_and_told(queue, capsys):
    queue.write_text(QUEUE.replace("0.3}", "0.3, duration: 5}"))
    assert main(["pack", str(queue), "--check", "--device", "cpu"]) == 0
    said = capsys.readouterr().out
    assert "before the start" in said and "1 GiB" in said and not Path("runs").exists()
    assert main(["pack", str(queue), "--device", "cpu", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out.splitlines()[-1])
    (ran,), (row,) = answer["queues"], answer["policies"]
    assert (ran["status"], row["policy"], row["provenance"], row["done"]) == ("done", "best-fit", "measured", 2)
    assert row["makespan_s"] > 0 and row["energy_note"] and row["mean_slowdown"] > 0
    for job in tracked_jobs(read_pack(ran["folder"])):
        assert (Path(ran["folder"]) / job.attempts[0].run / "run.json").is_file()


def test_a_comparison_runs_exclusive_first_and_a_failure_is_told_with_its_reason(queue, tmp_path, capsys):
    (tmp_path / "train.py").write_text("raise ValueError('no such thing')")
    queue.write_text("".join(QUEUE.splitlines(keepends=True)[:2]))
    assert main(["pack", str(queue), "--device", "cpu", "--compare"]) == 1
    said = capsys.readouterr().out
    assert said.index("exclusive: 1 jobs") < said.index("best-fit: 1 jobs") and "Energy" in said
    assert said.count("a: failed: ValueError: no such thing") == 2


def test_every_row_that_cannot_run_is_refused_with_its_line_and_nothing_starts(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    path = tmp_path / "queue.yaml"
    path.write_text(
        "jobs:\n"
        "  - {job: dlrm:tour, memory: 900000GiB, utilisation: 0.5}\n"
        "  - {script: train.py}\n"
        "  - {script: train.py, memory: 1GiB, utilisation: 0.1, device: cpu}\n"
        "  - {script: train.py, name: sound, memory: 1GiB, utilisation: 0.1}\n"
    )
    assert main(["pack", str(path), "--device", "cpu"]) == 2
    said = capsys.readouterr()
    _, *lines = said.err.splitlines()
    assert [line.split(": ")[0].split(", ")[1] for line in lines] == ["line 2", "line 3", "line 4"]
    assert "make its batch smaller" in lines[0]
    assert "memory and utilisation of train.py are unknown" in lines[1]
    assert "the packer chooses devices" in lines[2]
    assert "sound" in said.out, "the table has a row for each job"
    assert not (tmp_path / "runs").exists()


def test_sixty_jobs_are_replayed_under_every_policy(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    sixty = str(shipped_datasets() / "recorded" / "queue_60.yaml")
    assert main(["pack", sixty, "--simulate", "--compare", "--memory", "2GiB", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert answer["provenance"] == "predicted"
    exclusive, *others = answer["policies"]
    assert exclusive["policy"] == "exclusive" and len(others) == 1
    assert {row["jobs"] for row in answer["policies"]} == {60}
    assert min(row["makespan_ratio"] for row in others) < 0.95, "packing is to gain something"
    assert main(["pack", sixty, "--simulate", "--policy", "exclusive"]) == 0
    said = capsys.readouterr().out
    assert "predicted from recorded profiles" in said
    assert "Energy is unknown: a simulation knows no power" in said
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "name one of: a queue's file, --resume QUEUE, or --show QUEUE"),
        (["queue.yaml", "--devices", "2"], "--devices is for --simulate"),
        (["--show", "x"], "queue 'x': runs holds no queue: name another folder"),
        (["nowhere.yaml"], "nowhere.yaml"),
        (["queue.yaml", "--device", "cpu", "--memory", "512MiB"], "a needs 1 GiB of memory"),
        (["queue.yaml", "--simulate", "--memory", "much"], "--memory 'much' is not a size"),
        (["queue.yaml", "--simulate"], "has no duration"),
    ],
)
def test_what_makes_no_sense_is_refused(queue, capsys, arguments, reason):
    assert main(["pack", *arguments]) == 2
    assert reason in capsys.readouterr().err

"""`labkit monitor` and `labkit energy trial`: what they watch, in which order, and what they print."""

import os
import subprocess
import sys
import threading
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from made_up import new_run, write_samples

import labkit
from labkit import hardware, telemetry
from labkit.hardware import Device
from labkit.launch import End, ScriptRuns
from labkit.runs import read_events, read_run
from labkit.telemetry import Latest, Reading
from labkit.tta import run_table


def test_the_machine_or_a_process_with_its_children_is_shown(cli):
    out = cli("monitor --once").text
    assert all(words in out for words in ("this machine", "host memory_used", "cpu_percent")) and "process" not in out
    out = cli(f"monitor {os.getpid()} --seconds 1 --hz 10").text
    assert f"process {os.getpid()} and its children" in out
    assert "process memory_resident" in out and "▁" in out


def test_of_a_driver_that_comes_and_goes_the_latest_fault_is_shown(monkeypatch, cli):
    def ladder(pid, devices, hz, on_fault):
        fault, shown = lambda: on_fault("source_back", "it is back"), Reading("host", "host", "power", 1.0, "W", "x")
        return nullcontext(SimpleNamespace(read=lambda: [fault(), shown][1:]))

    monkeypatch.setattr("labkit.telemetry.open_ladder", ladder)
    assert cli("monitor --once").text.count("it is back") == 1


def test_a_recording_is_shown_on_any_machine_and_replaces_no_file(tmp_path, cli):
    path = tmp_path / "readings.jsonl"
    cli("monitor --seconds 0.5 --hz 10 --record", path)
    # it ends with the recording, long before the time given
    out = cli("monitor --hz 50 --seconds 500 --replay", path).text
    assert "played from" in out and "host memory_used" in out and "▁" in out
    assert "exists already" in cli("monitor --once --record", path, status=2).err
    path.write_text("[]\nnonsense\n")
    assert "line 2: " in cli("monitor --replay", path, status=2).text


def test_a_process_that_ends_ends_the_view(cli):
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as child:
        threading.Timer(3.0, child.stdin.close).start()
        assert "memory_resident" in cli(f"monitor {child.pid} --seconds 600 --hz 10").text


@pytest.fixture
def run(tmp_path):
    writer = new_run(tmp_path)
    about = {"scope": "process", "unit": "% of a core", "source": "a test"}
    write_samples(writer.folder, "host", "cpu_percent", {1: 10.0, 2: 99.5}, **about)
    write_samples(writer.folder, "host", "energy", {3: None}, note="no counter here", **about)
    writer.event("evaluated", metric="auc", value=0.75, wall_s=3.0, samples=1)
    writer.finish("done", {})
    return writer.folder


def test_a_run_is_shown_from_its_folder_alone(run, cli):
    out = cli("monitor", run).text
    assert "done, auc 0.7500 after 3 s" in out
    assert "process cpu_percent 99.5 % of a core a test ▁█" in out
    assert "energy: no counter here" in out
    line = '{"event": "evaluated", "time": "2026-01-01T00:00:00+00:00", "metric": "auc", "value": null, "wall_s": 4.0}'
    (run / "events.jsonl").write_text((run / "events.jsonl").read_text() + line + "\n")
    assert "auc - after 4 s" in cli("monitor", run).text  # it diverged


def test_a_counter_that_falls_silent_is_not_shown_and_one_that_is_missing_says_why():
    latest = Latest()
    latest.take([there := Reading("GPU-1", "device", "power", 100.0, "W", "NVML")])
    for _ in range(5):
        latest.take([Reading("host", "host", "memory_used", 1.0, "bytes", "psutil")])
    assert [history[-1].counter for history in latest.shown()] == ["memory_used"]
    latest.take([there._replace(value=None, note="time-out")])
    assert latest.missing() == {"time-out": ["power"]}


SCRIPT = """
import sys, time, labkit
with labkit.Run("t") as run:
    while True:
        time.sleep(0.01)
        run.step(1.0, samples=4)
"""


@pytest.fixture
def script(tmp_path):
    (path := tmp_path / "train.py").write_text(SCRIPT)
    return str(path)


@pytest.fixture
def gpu(tmp_path, monkeypatch):
    """A GPU at 50 W when idle, whose trials are written at once; the list of what was done to it."""
    done = []

    class Card:
        def __enter__(self):
            return self

        def __exit__(self, *error):
            done.append("put back")

        def set(self, watts):
            done.append(f"{watts:g} W")

    def trained(runs):
        for part in runs.launches.parts.values():
            command = runs.begin([part])[0].command
            done.append(f"trial {command.trial['number']}")
            if runs.train_s == 13 and command.trial["number"] == 2:
                runs.settle(part, End("failed", "it diverged", {"refused": True}))
                runs.on_event(part, {"kind": "State"})
            train = {} if command.power_limit_w is None else {"power_limit_w": command.power_limit_w}
            writer = new_run(tmp_path, torch_name="cuda:0", config={"trial": command.trial, "train": train})
            writer.event("began", clock_s=0.0)
            for step in range(1, 31):
                writer.metric(step=step, wall_s=step, train_s=step, samples=10 * step, name="loss", value=1.0)
            writer.finish("done", {})
            runs.on_event(part, {"kind": "Ended", "folder": str(writer.folder)})

    devices = [Device("cpu", 0, "a CPU", torch_name="cpu"), Device("gpu", 0, "a GPU", "cuda:0", "GPU-1")]
    assert labkit.Run  # what imports get_devices by name is loaded before it is replaced
    idle = telemetry.Idle(50.0, 40.0, "a counter")
    monkeypatch.setattr(hardware, "get_devices", lambda: devices)
    monkeypatch.setattr(telemetry, "PowerLimit", lambda device: Card())
    monkeypatch.setattr(telemetry, "check_power_limits", lambda device, limits: done.append(f"checked {limits}"))
    monkeypatch.setattr(telemetry, "idle", lambda samples, device: idle)
    monkeypatch.setattr(telemetry, "cool_down", lambda *_: done.append("cool") or "cooled down in 5 s")
    monkeypatch.setattr(ScriptRuns, "run", trained)
    monkeypatch.chdir(tmp_path)
    return done


def test_limits_take_turns_up_and_down_and_the_one_found_is_put_back(gpu, script, cli):
    told = cli("energy trial --trials 2 --power-limits 200,100 --json", script).json
    order = [("100 W", 1), ("200 W", 1), ("200 W", 2), ("100 W", 2)]
    assert gpu == [
        "checked [100.0, 200.0]", *(each for limit, number in order for each in (limit, "cool", f"trial {number}")),
        "put back",
    ]  # fmt: skip
    assert [(row["power_limit_w"], row["trials"]) for row in told["means"]] == [(100, 2), (200, 2)]
    assert [row["power_limit_w"] for row in told["trials"]] == [100, 200, 200, 100]
    assert told["idle_power_w"] == 50
    assert read_run(told["folders"][0]).config["trial"]["cool_down"] == "cooled down in 5 s"


def test_the_table_has_means_with_intervals_and_what_was_dropped(gpu, script, cli):
    out = cli("energy trial --trials 2", script).text
    assert "as found 10 (10 to 10)" in out and "idle: 50 W (a counter)" in out and "steady from the first of" in out
    assert not any("W" in each for each in gpu)


def test_a_trial_that_fails_ends_all_after_the_tables_of_those_before_and_the_limit_is_put_back(gpu, script, cli):
    told = cli("energy trial --power-limits 100 --seconds 13", script, status=2)
    assert gpu[-2:] == ["trial 2", "put back"] and "it diverged" in told.err
    assert "idle: 50 W" in told.out and "samples/s" in told.out
    assert len(cli("energy trial --seconds 13 --json", script, status=2).json["trials"]) == 1


def test_a_trial_of_a_script_is_a_run_that_says_so(script, tmp_path, cli, monkeypatch):
    monkeypatch.setenv("LABKIT_QUIET", "1")
    place = tmp_path / "runs"
    told = cli("energy trial --trials 1 --seconds 0.5 --cool-down 0 --json --runs-dir", place, script).json
    (trial,), (folder,) = told["trials"], told["folders"]
    assert "of 10 pieces of 1 s it has" in trial["note"]
    record = read_run(folder)
    assert record.status == "stopped" and record.config["trial"]["number"] == 1
    assert record.result["train_s"] >= 0.5
    assert run_table([folder]).empty
    assert "energy trial" in cli("runs list --runs-dir", place).out
    assert "1 energy trial left out" in cli("report", place, "--out", tmp_path / "page.html", status=2).out
    assert [event["clock_s"] >= 0 for event in read_events(folder) if event["event"] == "began"] == [True]


def test_a_run_whose_folder_was_named_trial_something_is_told_of(tmp_path, cli):
    writer = new_run(tmp_path, "trial", budget={})
    writer.finish("done", {})
    writer.folder.rename(tmp_path / "trial-of-mine")
    assert writer.folder.name in cli("energy trial- --runs-dir", tmp_path).out

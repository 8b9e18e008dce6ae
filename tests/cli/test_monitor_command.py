import os
import subprocess
import sys
import threading
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from made_up import new_run

from labkit.runs import TELEMETRY
from labkit.runs.parts import PartWriter
from labkit.telemetry import Latest, Reading, Tail, TelemetryWriter


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
    parts = PartWriter(writer.folder / "telemetry", TELEMETRY)
    row = {"device": "host", "scope": "process", "pid": 1, "counter": "cpu_percent", "unit": "% of a core"}
    for second, value in enumerate((10.0, 99.5)):
        parts.append(row | {"time_ns": second + 1, "value": value, "source": "a test"})
    parts.append(row | {"time_ns": 3, "counter": "energy", "value": None, "note": "no counter here", "source": "x"})
    parts.flush()
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


def test_a_tail_gives_each_row_once_although_parts_are_merged(tmp_path):
    tail, seen = Tail(tmp_path), []
    with TelemetryWriter(tmp_path, 1) as writer:
        for second in range(150):
            writer.append(second + 1, Reading("host", "host", "cpu_percent", float(second), "%", "test"))
            writer.flush()
            seen += tail.rows() if second % 7 == 0 else []
    seen += tail.rows()
    assert [reading.value for _, reading in seen] == [float(second) for second in range(150)]


def test_a_counter_that_falls_silent_is_not_shown_and_one_that_is_missing_says_why():
    latest = Latest()
    latest.take([there := Reading("GPU-1", "device", "power", 100.0, "W", "NVML")])
    for _ in range(5):
        latest.take([Reading("host", "host", "memory_used", 1.0, "bytes", "psutil")])
    assert [history.reading.counter for history in latest.shown()] == ["memory_used"]
    latest.take([there._replace(value=None, note="time-out")])
    assert latest.missing() == {"time-out": ["power"]}

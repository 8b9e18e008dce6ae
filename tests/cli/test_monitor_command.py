import io
import os
import subprocess
import sys
import threading

import pytest

from labkit.cli import main
from labkit.runs.parts import TELEMETRY, PartWriter
from labkit.runs.record import Provenance
from labkit.runs.writer import RunWriter
from labkit.telemetry.latest import Latest
from labkit.telemetry.reading import Reading
from labkit.telemetry.samples import Tail


def text(capsys) -> str:
    return " ".join(capsys.readouterr().out.split())


def test_the_machine_or_a_process_with_its_children_is_shown(capsys):
    assert main(["monitor", "--once"]) == 0
    out = text(capsys)
    assert "this machine" in out
    assert "host memory_used" in out and "cpu_percent" in out and "process" not in out
    assert main(["monitor", str(os.getpid()), "--seconds", "1", "--hz", "10"]) == 0
    out = text(capsys)
    assert f"process {os.getpid()} and its children" in out
    assert "process memory_resident" in out and "▁" in out


def test_a_process_that_ends_ends_the_view(capsys):
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as child:
        threading.Timer(3.0, child.stdin.close).start()
        assert main(["monitor", str(child.pid), "--seconds", "600", "--hz", "10"]) == 0
    assert "memory_resident" in text(capsys)


@pytest.fixture
def run(tmp_path):
    writer = RunWriter.create(
        tmp_path, "t", config={}, budget={"torch_name": "cpu"}, tier=None, devices=[], seed=0,
        provenance=Provenance.now("measured"), software={},
    )  # fmt: skip
    parts = PartWriter(writer.folder / "telemetry", TELEMETRY)
    row = {"device": "host", "scope": "process", "pid": 1, "counter": "cpu_percent", "unit": "% of a core"}
    for second, value in enumerate((10.0, 99.5)):
        parts.append(row | {"time_ns": second + 1, "value": value, "source": "a test"})
    parts.append(row | {"time_ns": 3, "counter": "energy", "value": None, "note": "no counter here", "source": "x"})
    parts.flush()
    writer.event("evaluated", metric="auc", value=0.75, wall_s=3.0, samples=1)
    writer.finish("done", {})
    return writer.folder


def test_a_run_is_shown_from_its_folder_alone(run, capsys):
    for device in ([], ["--device", "host"]):
        assert main(["monitor", str(run), *device]) == 0
        out = text(capsys)
        assert "done, auc 0.7500 after 3 s" in out
        assert "process cpu_percent 99.5 % of a core a test ▁█" in out
        assert "energy: no counter here" in out
    for which in ([str(run)], ["--once"]):
        assert main(["monitor", *which, "--device", "GPU-7"]) == 2
        assert "no counter is of such a device" in capsys.readouterr().err
    line = '{"event": "evaluated", "time": "2026-01-01T00:00:00+00:00", "metric": "auc", "value": null, "wall_s": 4.0}'
    (run / "events.jsonl").write_text((run / "events.jsonl").read_text() + line + "\n")
    assert main(["monitor", str(run)]) == 0
    assert "auc - after 4 s" in text(capsys)  # it diverged


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--hz", "500"], "--hz is 500"),
        (["9999999"], "there is no process 9999999"),
        (["nothing-like-it"], "there is no run 'nothing-like-it'"),
        (["--device", "17"], "no GPU of that number"),
        *((["--seconds", seconds], "give a number of seconds above zero") for seconds in ("nan", "0", "-1", "inf")),
        (["--replay", os.devnull], "no GPU answers in this recording"),
        (["--replay", os.devnull, "--record", "x"], "contradict each other"),
    ],
)
def test_what_cannot_be_watched_is_refused(arguments, words, tmp_path, capsys):
    assert main(["monitor", *arguments, "--runs-dir", str(tmp_path)]) == 2
    assert words in " ".join(capsys.readouterr().err.split())


def test_a_tail_gives_each_row_once_although_parts_are_merged(tmp_path):
    from labkit.telemetry.sampling import TelemetryWriter

    tail, seen = Tail(tmp_path), []
    with TelemetryWriter(tmp_path, 1) as writer:
        for second in range(150):
            writer.append(second + 1, Reading("host", "host", "cpu_percent", float(second), "%", "test"))
            writer.flush()
            if second % 7 == 0:
                seen += tail.rows()
    seen += tail.rows()
    assert [row.reading.value for row in seen] == [float(second) for second in range(150)]


def test_a_tail_loses_nothing_of_a_sample_that_two_parts_hold(tmp_path):
    parts, tail = PartWriter(tmp_path / "telemetry", TELEMETRY), Tail(tmp_path)
    row = {"time_ns": 5, "device": "host", "scope": "host", "value": 1.0}
    seen = []
    for counter in ("a", "b"):
        parts.append(row | {"counter": counter})
        parts.flush()
        seen += [row.reading.counter for row in tail.rows()]
    assert seen == ["a", "b"]


def test_a_counter_that_falls_silent_is_not_shown_and_one_that_is_missing_says_why():
    latest = Latest()
    there = Reading("GPU-1", "device", "power", 100.0, "W", "NVML")
    latest.take([there])
    assert [course.reading for course in latest.shown()] == [there]
    for _ in range(5):
        latest.take([Reading("host", "host", "memory_used", 1.0, "bytes", "psutil")])
    assert [course.reading.counter for course in latest.shown()] == ["memory_used"]
    latest.take([there._replace(value=None, note="time-out")])
    assert latest.missing() == {"time-out": ["power"]}


def test_a_narrow_terminal_keeps_the_sources_and_shortens_the_courses():
    from rich.console import Console

    from labkit.cli.monitor import _view

    latest = Latest()
    for value in range(60):
        latest.take(
            [Reading("host", "process", "memory_resident_peak", 4096.0 * value, "bytes", "/proc/PID/status VmHWM")]
        )
    for width, bars in ((100, 15), (200, 40)):
        console = Console(width=width, record=True, file=io.StringIO())
        console.print(_view("a run", latest, width))
        text = console.export_text()
        assert "/proc/PID/status VmHWM" in text and "memory_resident_peak" in text
        assert sum(text.count(bar) for bar in "▁▂▃▄▅▆▇█") >= bars

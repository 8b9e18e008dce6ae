"""Damaged runs, traces, plans and records are read as they are, or refused, and never take others along."""

import contextlib
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import campaign
import pytest
from campaign import each_told, labkit
from made_up import new_run

from labkit import hardware, launch, sharing
from labkit.hardware import Calibration
from labkit.profiling.capture import save_limits
from labkit.profiling.tools import FACTS, KINETO

TWO_RUNS = """
import labkit
for seed in (0, 1):
    with labkit.Run("soak", target="accuracy >= 0.8", config={"lr": 0.1, "model": {"width": 3}}, seed=seed) as run:
        for step in range(1, 4):
            run.step(1.0 / step, samples=10)
            run.evaluate(accuracy=step / 4)
        run.test(accuracy=0.7)
"""


def write_runs(folder: Path) -> None:
    """Two finished runs of a script, `first` and `second`."""
    with tempfile.TemporaryDirectory() as other:
        subprocess.run([sys.executable, "-c", TWO_RUNS], cwd=other, check=True, capture_output=True)
        for path, name in zip(sorted(Path(other, "runs").iterdir()), ("first", "second"), strict=True):
            shutil.move(path, folder / name)


def list_all(runs: Path) -> list:
    return [labkit("runs", "list", "--runs-dir", runs), labkit("energy", "--estimate", "--runs-dir", runs)]


def show_each(runs: Path) -> list:
    commands = ("runs show {}", "energy {}", "profile show {} --text")
    told = [command.format(name).split() for name in ("first", "second") for command in commands]
    return each_told(*(partial(labkit, *words, "--runs-dir", runs) for words in told))


def frames(runs: Path) -> list:
    from labkit.live.board import Board
    from labkit.runs import list_runs, read_telemetry
    from labkit.tta import curves, run_table, summary

    folders = sorted(runs.iterdir())
    table, board = run_table(folders), Board([runs])
    while board.look() and board.unread:
        pass
    frame = curves(folders, runs=table)
    telemetry = read_telemetry(folders)
    return [each.to_csv() for each in (list_runs(runs), table, frame, summary(frame, table), telemetry)]


def page(runs: Path) -> str:
    out = runs.parent / "page.html"
    labkit("report", runs, "--out", out)
    return hashlib.sha256(out.read_bytes()).hexdigest()  # it has megabytes of plotly


def write_profiled(folder: Path) -> None:
    """A profiled run of two steps, with a trace of torch's own."""
    run = new_run(folder, "tiny", config={"job": "tiny", "profile": {}}, budget={"name": "all-cores"})
    run.finish("done", {"reason": "profiled"})
    (run.folder / "trace").mkdir()
    traces = Path(__file__).parents[1] / "profiling" / "traces"
    shutil.copy(traces / "torch-2.13.json.gz", run.folder / "trace" / KINETO)
    facts = {"settings": {"skip": 2, "warmup": 1, "steps": 2}, "device": "cpu"}
    facts |= {"phases_us": [{"forward": [300.0, 280.0], "backward": [500.0, 450.0]}] * 2}
    facts |= {"fault_cost_us": 0.1, "unprofiled_faults": [3, 4], "phase_faults": [{"forward": 3}] * 2}
    facts |= {"unprofiled_step_us": [900.0, 950.0]}
    (run.folder / "trace" / FACTS).write_text(json.dumps(facts))
    save_limits(run.folder, Calibration("A CPU", 2, 100.0, 120.0, 20.0, 1.5, "2026-11-21"))
    for path in run.folder.iterdir():
        path.rename(folder / path.name)
    run.folder.rmdir()


def write_trace(folder: Path) -> None:
    """A small trace, whose every field is likely to be hit."""
    step = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "ts": 0, "dur": 10, "pid": 1, "tid": 1}
    own = {"External id": 3, "Input Dims": [[2, 3], [3, 5]], "Input type": ["float"] * 2, "Concrete Inputs": [""] * 2}
    events = [
        step,
        step | {"cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 5.5, "args": own},
        step | {"cat": "cuda_runtime", "name": "launch", "ts": 2, "dur": 1, "args": {"correlation": 7}},
        step | {"cat": "kernel", "name": "gemm", "ts": 3, "dur": 4, "pid": 0, "tid": 7, "args": {"correlation": 7}},
        {"ph": "i", "name": "[memory]", "ts": 4, "pid": 1, "tid": 1, "args": {"Bytes": 64, "Addr": 9, "Device Id": 0}},
        step | {"name": "ProfilerStep#2", "ts": 10},
    ]
    (folder / "trace.json").write_text(json.dumps({"traceEvents": events}, indent=1))


def read_frames(folder: Path) -> list:
    from labkit.profiling import memory_over_time, read_trace
    from labkit.profiling.over_time import device_breakdown, operators_at_work
    from labkit.profiling.step_time import step_time

    trace = read_trace(folder / "trace.json")
    frames = [trace.events, trace.allocations, operators_at_work(trace), device_breakdown(trace)]
    return [frame.to_csv() for frame in [*frames, memory_over_time(trace), step_time(trace).phases]]


def show(run: Path) -> list:
    told = labkit("profile", "show", run, "--text")
    labkit("profile", "show", run, "--no-browser", "--out", run.with_name("page.html"))
    return [told]


@pytest.mark.parametrize("read", [list_all, show_each, frames, page])
def test_one_of_two_runs_can_always_be_shown(outcomes, read):
    assert not [each for each in outcomes(write_runs, read) if each.kind == "refused"]


@pytest.mark.parametrize(("write", "read"), [(write_trace, read_frames), (write_profiled, show)])
def test_damaged_traces_are_refused_or_read_as_they_are(outcomes, write, read):
    assert outcomes(write, read)


CSV = """Experiment,Workload,Name,Status,Run,Devices,Collocation,Listeners,File,Params
1,1,first,,,cpu,-,smi+top,train.py,"--lr 0.1 --note 'a, b'"
1,1,,,,cpu,-,,dlrm:tour[batch_size=256],
1,2,,DONE FINISHED,20261121-run,cpu,cpu-shared,,speech,
"""
YAML = """name: pair
mode: [alone, cpu-shared]
repeats: 2
timeout: 60
workloads:
  - name: two
    jobs:
      - job: dlrm:tour
        copies: 2
        cores: 1
        batch_size: 256
      - script: train.py
        arguments: --lr 0.1 --seed {seed}
        memory: 1.5GiB
"""
SWEEP = """name: study
script: train.py
arguments: --quiet
grid: {lr: [1e-3, 2e-3]}
cells:
  - {width: 64, fused: true}
random: {samples: 3, seed: 0, settings: {rows: {from: 4, to: 128, scale: log, whole: true}, pooling: {choice: [1, 8]}}}
seeds: [0, 1]
repeats: 2
budget: [one-core, whole]
max_seconds: 20
"""
QUEUE = """jobs:
  - job: dlrm:tour
    copies: 3
    memory: 1.5GiB
    utilisation: 0.3
    duration: 120
  - script: train.py
    arrives: 30
    memory: 2GiB
    utilisation: 0.5
"""


def write_plans(folder: Path) -> None:
    """Plans in both formats, a queue and a sweep; their script, which no case damages, lies in the folder above."""
    folder.with_name("train.py").write_text("")
    for name, text in (("plan.csv", CSV), ("plan.yaml", YAML), ("queue.yaml", QUEUE), ("sweep.yaml", SWEEP)):
        (folder / name).write_text(text.replace("train.py", "../train.py"))


def write_records(folder: Path) -> None:
    """The records of a group and a queue, and guesses of the course."""
    with tempfile.TemporaryDirectory() as other:
        plans = Path(other, "plans")
        plans.mkdir()
        write_plans(plans)
        mix = sharing.new_mix(
            launch.read_yaml_mix(plans / "plan.yaml"), other, needs={"two/dlrm-tour-1": 2**30}, quiet=None
        )
        live = sharing.LiveDevice(
            sharing.PackingDevice("cpu", 2**33), sharing.Share("all cores"), hardware.cpu_device()
        )
        queue = sharing.new_queue(sharing.read_queue(plans / "queue.yaml"), [live], "best-fit", other)
    next(iter(mix.parts.values())).status = "done"
    attempt = {"number": 1, "device": 0, "alone": False, "queued_s": 0.0, "starts_s": 1.0, "ends_s": 60.0}
    attempt["ending"] = "done"
    next(iter(queue.parts.values())).more = {"status": "done", "attempts": [attempt]}
    for name, launches in (("group", mix), ("queue", queue)):
        (folder / name).mkdir()
        launches.folder, launches.file = folder / name, folder / name / launches.file.name
        launches.write()
    guesses = [{"kind": "guess", "name": f"0{n}.x", "guess": n + 0.5, "truth": 2.0, "unit": "s"} for n in range(4)]
    (folder / "progress.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in guesses))


def read_plans(folder: Path) -> list:
    return each_told(
        lambda: launch.read_csv_mix(folder / "plan.csv")[0],
        lambda: launch.read_yaml_mix(folder / "plan.yaml"),
        lambda: sharing.read_queue(folder / "queue.yaml"),
        lambda: launch.read_sweep_file(folder / "sweep.yaml"),
    )


def read_records(folder: Path) -> list:
    from labkit_course import score_course

    os.environ["LABKIT_COURSE"] = str(folder)
    with contextlib.redirect_stdout(io.StringIO()) as scores:
        score_course()
    told = each_told(
        lambda: labkit("collocate", "--list", "--runs-dir", folder),
        lambda: labkit("collocate", "--show", folder / "group"),
        lambda: labkit("pack", "--show", folder / "queue"),
        lambda: sharing.tracked_jobs(launch.Launches.read(folder / "queue", "queue")),
    )
    return [scores.getvalue(), *told]


@pytest.mark.parametrize(("write", "read"), [(write_plans, read_plans), (write_records, read_records)])
def test_damaged_plans_and_records_are_refused_or_read_as_they_are(outcomes, write, read):
    assert outcomes(write, read)


def read_carelessly(folder: Path) -> float:
    return sum(json.loads((folder / "numbers.json").read_bytes()))


def hang(folder: Path) -> None:
    time.sleep(60)


def test_tracebacks_fail_with_their_seed_and_a_reader_that_hangs_is_ended(reader, tmp_path, monkeypatch):
    numbers = tmp_path / "numbers"
    numbers.mkdir()
    (numbers / "numbers.json").write_text(json.dumps([1.5, 2, 3]))
    with pytest.raises(AssertionError, match=r"seed \d+, numbers.json: .*: traceback"):
        campaign.campaign(reader, read_carelessly, numbers, range(60))
    monkeypatch.setattr(campaign, "LIMIT_S", 0.3)
    assert reader.read(hang, numbers) == ("hang", "not done after 0.3 s")

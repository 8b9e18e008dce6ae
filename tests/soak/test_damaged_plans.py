"""Damaged plans, queues and records of groups are read as they are, or refused; the campaign finds what it should."""

import contextlib
import io
import json
import os
import tempfile
import time
from pathlib import Path

import campaign
import pytest
from campaign import each_told, labkit

from labkit.hardware import cpu_device
from labkit.launch import Launches, read_csv_mix, read_sweep_file, read_yaml_mix
from labkit.sharing import (
    LiveDevice,
    PackingDevice,
    Share,
    new_mix,
    new_queue,
    read_queue as read_queue_file,
    tracked_jobs,
)

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
        mix = new_mix(read_yaml_mix(plans / "plan.yaml"), other, needs={"two/dlrm-tour-1": 2**30}, quiet=None)
        live = LiveDevice(PackingDevice("cpu", 2**33), Share("all cores"), cpu_device())
        queue = new_queue(read_queue_file(plans / "queue.yaml"), [live], "best-fit", other)
    next(iter(mix.parts.values())).status = "done"
    attempt = {"number": 1, "device": 0, "alone": False, "queued_s": 0.0, "starts_s": 1.0, "ends_s": 60.0}
    attempt["ending"] = "done"
    next(iter(queue.parts.values())).more = {"status": "done", "attempts": [attempt]}
    for name, launches in (("group", mix), ("queue", queue)):
        (folder / name).mkdir()
        launches.folder = folder / name
        launches.write()
    guesses = [{"kind": "guess", "name": f"0{n}.x", "guess": n + 0.5, "truth": 2.0, "unit": "s"} for n in range(4)]
    (folder / "progress.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in guesses))


def read_plans(folder: Path) -> list:
    return each_told(
        lambda: read_csv_mix(folder / "plan.csv")[0],
        lambda: read_yaml_mix(folder / "plan.yaml"),
        lambda: read_queue_file(folder / "queue.yaml"),
        lambda: read_sweep_file(folder / "sweep.yaml"),
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
        lambda: tracked_jobs(Launches.read(folder / "queue", "queue")),
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

"""Damaged plans, queues and records of groups, which people write and edit by hand."""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path

import campaign
import pytest
from campaign import labkit

from labkit.collocation.launching.group_record import new_group
from labkit.collocation.packing.policy import PackingDevice
from labkit.collocation.packing.queue import Attempt, TrackedJob
from labkit.collocation.packing.queue import read_queue as read_queue_file
from labkit.collocation.packing.queue_run import QueueRecord, read_queue_record
from labkit.collocation.plan.csv_plan import read_csv_plan
from labkit.collocation.plan.yaml_plan import read_yaml_plan
from labkit.errors import UserError

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


@pytest.fixture
def plans(tmp_path) -> Path:
    """Plans in both formats, a queue and their script, which no case damages: it lies in the folder above."""
    folder = tmp_path / "plans"
    folder.mkdir()
    (tmp_path / "train.py").write_text("")
    for name, text in (("plan.csv", CSV), ("plan.yaml", YAML), ("queue.yaml", QUEUE)):
        (folder / name).write_text(text.replace("train.py", "../train.py"))
    return folder


@pytest.fixture
def records(plans) -> Path:
    """The records of a group and a queue, and guesses of the course."""
    folder = plans.with_name("records")
    _, group = new_group(folder, read_yaml_plan(plans / "plan.yaml"), {"two/dlrm-tour-1": 2**30})
    group.rounds[0].jobs[0].status = "done"
    (folder / "group").mkdir()
    group.save(folder / "group")
    jobs = [TrackedJob(queued) for queued in read_queue_file(plans / "queue.yaml")]
    jobs[0].attempts.append(Attempt(1, 0, False, 0.0, 1.0, 60.0, "done"))
    queue = QueueRecord(id="q", policy="best-fit", mode="cpu-shared", devices=[PackingDevice("cpu", 2**33)], jobs=jobs)
    (folder / "queue").mkdir()
    queue.save(folder / "queue")
    for made in folder.glob("*-group-*"):
        (made / "logs").rmdir()
        made.rmdir()
    guesses = [f'{{"time": "now", "name": "0{n}.x", "guess": {n}.5, "truth": 2.0, "unit": "s"}}\n' for n in range(4)]
    (folder / "guesses.jsonl").write_text("".join(guesses))
    return folder


def _each(*reads) -> list:
    """What each says, or why it refuses: any of the files may be the damaged one."""
    told = []
    for read in reads:
        try:
            told.append(read())
        except UserError as error:
            told.append(str(error))
    return told


def read_plans(folder: Path) -> list:
    return _each(
        lambda: read_csv_plan(folder / "plan.csv").plan,
        lambda: read_yaml_plan(folder / "plan.yaml"),
        lambda: read_queue_file(folder / "queue.yaml"),
    )


def read_records(folder: Path) -> list:
    from labkit.course.guesses import score_course

    os.environ["LABKIT_COURSE"] = str(folder)
    with contextlib.redirect_stdout(io.StringIO()) as scores:
        score_course()
    return [
        scores.getvalue(),
        *_each(
            lambda: labkit("collocate", "--list", "--runs-dir", folder),
            lambda: labkit("collocate", "--show", folder / "group"),
            lambda: labkit("pack", "--show", folder / "queue"),
            lambda: read_queue_record(folder / "queue").jobs,
        ),
    ]


@pytest.mark.parametrize(("files", "read"), [("plans", read_plans), ("records", read_records)])
def test_damaged_plans_and_records_are_read_or_refused(reader, request, seeds, files, read):
    campaign.campaign(reader, read, request.getfixturevalue(files), seeds)

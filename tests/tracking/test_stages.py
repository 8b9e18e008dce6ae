"""Stages of a run: what is recorded of each, and what the message says if memory ends one."""

import numpy as np
import pytest
from folders import events, in_harness

from labkit.hardware import Budget, memory_error, now_in
from labkit.runs import read_run
from labkit.tracking import StopRequest


@pytest.fixture(autouse=True)
def outside():
    """No stage is left over for other tests."""
    yield
    now_in(None)


def test_a_stage_records_its_time_memory_and_facts(run):
    with run() as open_run:
        with open_run.stage("load") as stage:
            held = np.ones(2**24)  # 128 MiB
            stage.note(rows=3)
        with open_run.stage("clean"):
            del held
        assert not open_run.evaluate(accuracy=0.5)
    load, clean = events(open_run.folder, "stage")
    assert (load["name"], load["rows"], clean["name"]) == ("load", 3, "clean")
    assert load["seconds"] == stage.seconds > 0
    assert load["peak_bytes"] == stage.peak_bytes > 2**27
    assert [window["name"] for window in events(open_run.folder, "windows")] == ["load", "clean"]
    result = read_run(open_run.folder).result
    assert list(result["stages"]) == ["load", "clean"]
    assert result["train_s"] >= sum(result["stages"].values()) > 0


def test_memory_that_was_given_back_within_a_stage_is_in_its_peak(run):
    with run() as open_run:
        with open_run.stage("peak") as peak:
            np.ones(2**25).sum()
        with open_run.stage("after") as after:
            pass
    assert peak.peak_bytes - after.peak_bytes > 2**27


def test_a_stage_that_failed_has_no_end_and_is_named_in_the_message(run):
    with pytest.raises(MemoryError), run() as open_run:
        with open_run.stage("load"):
            pass
        with open_run.stage("train", at="scale 4", smaller="--scale 2"):
            raise MemoryError
    assert [event["name"] for event in events(open_run.folder, "stage_began")] == ["load", "train"]
    assert [event["name"] for event in events(open_run.folder, "stage")] == ["load"]
    record = read_run(open_run.folder)
    assert record.status == "failed" and list(record.result["stages"]) == ["load"]
    assert "ran out of memory in its stage 'train' at scale 4: close other programs, or" in record.result["reason"]
    said = str(memory_error(Budget("memory=1GiB", None, 2**30), None, MemoryError()))
    assert "needs more memory in its stage 'train' at scale 4 than its budget 'memory=1GiB' allows" in said
    assert said.endswith("memory=2GiB), or make it smaller: --scale 2.")


def test_outside_a_stage_the_message_names_none(run):
    with run() as open_run, open_run.stage("load", smaller="--scale 2"):
        pass
    said = str(memory_error(Budget("memory=1GiB", None, 2**30), None, MemoryError()))
    assert "needs more memory than its budget" in said and "--batch-size" in said


def test_a_run_that_is_asked_to_stop_ends_after_its_stage(run, runs):
    stop = StopRequest()
    with in_harness(runs, stop) as harness:
        with run() as open_run:
            with open_run.stage("load"):
                stop.request("SIGTERM")
            raise AssertionError("the next stage began")
        answer = harness.answer
    assert answer["status"] == "stopped" and list(answer["result"]["stages"]) == ["load"]

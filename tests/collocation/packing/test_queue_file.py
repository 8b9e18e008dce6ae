"""QUEUE.yaml: what a row may say, and one message for each row that is wrong."""

from __future__ import annotations

import re

import pytest

from labkit.collocation.packing.device_state import PackingDevice
from labkit.collocation.packing.job_profile import JobProfile
from labkit.collocation.packing.queue import EXAMPLE, memory_faults, read_queue
from labkit.errors import UserError

GIB = 2**30


def queue_of(tmp_path, text: str):
    path = tmp_path / "QUEUE.yaml"
    path.write_text(text)
    return read_queue(path)


def faults_of(tmp_path, text: str) -> list[str]:
    with pytest.raises(UserError) as refused:
        queue_of(tmp_path, text)
    return str(refused.value).replace(str(tmp_path), "").splitlines()


def test_a_row_says_what_the_job_is_when_it_comes_and_what_it_asks_for(tmp_path):
    first, *rest = queue_of(
        tmp_path,
        """
seconds: 20
profiles:
  small: {duration: 120, memory: 1.5GiB, estimate: 3GiB, utilisation: 0.3, provenance: measured, note: n}
jobs:
  - {job: "dlrm:tour", arrives: 30, duration: 60, memory: 2GiB, utilisation: 0.4}
  - &pair
    job: dlrm
    lr: 0.1
    profile: small
    copies: 2
  - {<<: *pair, lr: 0.2, copies: 1, arrives: 1e1}
  - {job: speech, name: own, profile: {memory: 1GiB, utilisation: 1}, memory: 4GiB, duration: 9}
  - job: dlrm
    memory: 1GiB
""",
    )
    assert (first.job.label, first.arrives_s) == ("dlrm:tour", 30)
    assert first.profile == JobProfile(2 * GIB, 0.4, 60, 2 * GIB)
    assert first.job.where.endswith("QUEUE.yaml, line 6")
    assert first.job.arguments[2:4] == ("--max-seconds", "20.0")
    assert [each.job.label for each in rest] == ["dlrm:tour"] * 3 + ["speech:tour", "dlrm:tour"]
    assert len({each.name for each in [first, *rest]}) == 6
    small = JobProfile(3 * GIB, 0.3, 120, 3 * GIB // 2, "measured", "n")
    assert [each.profile for each in rest[:3]] == [small] * 3
    assert [each.job.arguments[3] for each in rest[:3]] == ["0.1", "0.1", "0.2"]
    assert rest[3].profile == JobProfile(4 * GIB, 1.0, 9, GIB), "memory beside a profile is what is believed"
    assert rest[3].name == "own"
    assert rest[4].profile is None, "a cap alone says nothing of how busy the job is"
    assert [each.arrives_s for each in rest] == [0, 0, 10, 0, 0]


def test_all_rows_are_checked_and_each_fault_is_one_line_with_its_fix(tmp_path):
    head, *faults = faults_of(
        tmp_path,
        """jbos: []
profiles:
  p: {memory: 1GiB}
  q: 3
jobs:
  - {job: dlrm, arrives: soon}
  - {job: dlrm, arrives: -1}
  - {job: dlrm, profile: pp}
  - {job: dlrm, duration: 10}
  - {job: dlrm, memory: 1GiB, utilisation: 40}
  - {job: dlrm, profile: {memory: lots, utilisation: 0.1}}
  - {job: dlrm, profile: {ram: 1GiB}}
  - {job: dlrm, priority: 3}
  - just words
  - {job: dlrm, profile: p}
  - {job: dlmr, arrives: soon}
  - {job: dlrm, name: one}
  - {job: dlrm, name: one}
""",
    )
    expected = [
        ("line 1", "field 'jbos': it is unknown", "did you mean 'jobs'?"),
        ("line 3", "profile 'p': there is no utilisation of the job alone", "write it"),
        ("line 4", "'3' stands where fields belong", "write them"),
        ("line 6", "field 'arrives': 'soon' is not a number", "write one"),
        ("line 7", "field 'arrives': it is -1", "give seconds from 0"),
        ("line 8", "field 'profile': profile 'pp' is unknown", "did you mean 'p'?"),
        ("line 9", "there is no memory and no utilisation of the job alone", "write it"),
        ("line 10", "utilisation is 40", "above 0 and up to 1"),
        ("line 11", "field 'memory': 'lots' is not a size", "such as 2GiB"),
        ("line 12", "field 'ram': it is unknown", "choose one of duration, memory"),
        ("line 13", "field 'priority': it is unknown", "choose one of"),
        ("line 5", "'just words' stands where fields belong", "write them"),
        ("line 16", "job 'dlmr' is unknown", "did you mean 'dlrm'?"),
        ("line 18", "the job of line 17 is called 'one', too", "rename one"),
    ]
    assert f"{len(expected)} mistakes" in head
    by_line = {re.search(r"line \d+", fault)[0]: fault for fault in faults}
    assert len(faults) == len(expected), "\n".join(faults)
    for place, what, fix in expected:
        assert what in by_line[place] and fix in by_line[place], by_line[place]
    assert not any("line 15" in fault for fault in faults), "a row was blamed for the fault of its profile"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it holds no fields"),
        ("seconds: 3", "there is no job in it"),
        ("jobs: []", "an empty list stands where a list belongs"),
        ("jobs: [{job: dlrm, job: speech}]", "field 'job': it stands there twice: leave one away"),
        ("jobs: 3", "'3' stands where a list belongs"),
        ("jobs: [", "this is no YAML"),
        ("jobs: [{job: dlrm}]\nprofiles: [1]", "a list stands where fields belong"),
        ("jobs: [{job: dlrm, arrives: !!python/object:os.system {}}]", "could not determine a constructor for the tag"),
    ],
)
def test_a_file_that_is_no_queue_is_refused(tmp_path, text, message):
    assert message in faults_of(tmp_path, text)[0]


def test_jobs_larger_than_every_device_are_named(tmp_path):
    queue = queue_of(
        tmp_path,
        """jobs:
  - {job: dlrm, name: fits, memory: 8GiB, utilisation: 0.5}
  - {job: dlrm, name: huge, memory: 100GiB, utilisation: 0.5}
  - {job: dlrm}
""",
    )
    [fault] = memory_faults(queue, [PackingDevice("small", 4 * GIB), PackingDevice("large", 8 * GIB)])
    assert "QUEUE.yaml, line 3: job huge is estimated at 100 GiB" in fault
    assert "large, has 8 GiB" in fault


def test_the_example_of_the_message_is_a_queue(tmp_path):
    (tmp_path / "train.py").touch()
    queue = queue_of(tmp_path, EXAMPLE)
    assert len(queue) == 4 and all(job.profile for job in queue)

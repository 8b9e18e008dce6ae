"""QUEUE.yaml: what a row may say, and one message for each row that is wrong."""

import re

import pytest
from queues import GIB

from labkit.errors import UserError
from labkit.sharing.queue import QUEUE_EXAMPLE, JobProfile, read_queue


def queue_of(tmp_path, text: str):
    (tmp_path / "QUEUE.yaml").write_text(text)
    return read_queue(tmp_path / "QUEUE.yaml")


def faults_of(tmp_path, text: str) -> list[str]:
    with pytest.raises(UserError) as refused:
        queue_of(tmp_path, text)
    return str(refused.value).splitlines()


def test_a_row_says_what_the_job_is_when_it_comes_and_what_it_asks_for(tmp_path):
    first, *rest = queue_of(
        tmp_path,
        """
jobs:
  - {job: "dlrm:tour", arrives: 30, duration: 60, memory: 2GiB, utilisation: 0.4}
  - &pair
    job: dlrm
    lr: 0.1
    memory: 1.5GiB
    utilisation: 0.3
    copies: 2
  - {<<: *pair, lr: 0.2, copies: 1, arrives: 1e1}
  - {job: speech, name: own, memory: 1GiB}
""",
    )
    assert (first.job.label, first.arrives_s) == ("dlrm:tour", 30)
    assert first.profile == JobProfile(2 * GIB, 0.4, 60, 2 * GIB)
    assert first.job.where.endswith("QUEUE.yaml, line 3")
    assert [each.job.label for each in rest] == ["dlrm:tour"] * 3 + ["speech:tour"]
    assert len({each.name for each in [first, *rest]}) == 5
    assert [each.profile for each in rest[:3]] == [JobProfile(3 * GIB // 2, 0.3, None, 3 * GIB // 2)] * 3
    assert [each.job.job.lr for each in rest[:3]] == [0.1, 0.1, 0.2]
    assert rest[3].name == "own"
    assert rest[3].profile is None, "a cap alone says nothing of how busy the job is"
    assert [each.arrives_s for each in rest] == [0, 0, 10, 0]
    (tmp_path / "train.py").touch()
    assert len(queue_of(tmp_path, QUEUE_EXAMPLE)) == 4


def test_all_rows_are_checked_and_each_fault_is_one_line_with_its_fix(tmp_path):
    head, *faults = faults_of(
        tmp_path,
        """jbos: []
jobs:
  - {job: dlrm, arrives: soon}
  - {job: dlrm, arrives: -1}
  - {job: dlrm, duration: 10}
  - {job: dlrm, memory: 1GiB, utilisation: 40}
  - {job: dlrm, memory: lots, utilisation: 0.1}
  - job: dlrm
    priority: 3
  - {job: dlmr, memory: 1GiB}
  - {job: dlrm, memory: 1GiB, utilisation: 0.5, duration: 0}
""",
    )
    expected = {
        "line 1": "field 'jbos': it is unknown",
        "line 3": "field 'arrives': 'soon' is not a number",
        "line 4": "field 'arrives': '-1' is not a number of seconds from 0",
        "line 5": "there is no memory and no utilisation of the job alone: write it",
        "line 6": "field 'utilisation': '40' is not a share of the device above 0 and up to 1",
        "line 7": "field 'memory': 'lots' is not a size",
        "line 9": "field 'priority': it is unknown",
        "line 10": "job 'dlmr' is unknown: did you mean 'dlrm'?",
        "line 11": "field 'duration': '0' is not a number of seconds above zero",
    }
    assert f"{len(expected)} errors" in head
    by_line = {re.search(r"line \d+", fault)[0]: fault for fault in faults}
    assert by_line.keys() == expected.keys()
    assert not {place: fault for place, fault in by_line.items() if expected[place] not in fault}


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "has no fields"), ("{a: 3}", "there is no job in it"), ("jobs: 3", "this must be a list")],
)
def test_a_file_that_is_no_queue_is_refused(tmp_path, text, message):
    assert message in "\n".join(faults_of(tmp_path, text))

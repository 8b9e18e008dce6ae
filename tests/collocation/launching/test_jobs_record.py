"""A group's record: what it plans, what a reader of a killed one sees, and what is said of a damaged one."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from labkit.errors import UserError
from labkit.sharing.launching.jobs_record import GroupRecord, planned_rounds
from labkit.sharing.plan.plan import ENDLESS, Plan, Workload, with_baseline, with_seconds
from labkit.sharing.plan.planned_job import PlannedJob

TOUR = ("--preset", "tour", "--seed", "{seed}")
A = PlannedJob("a", "dlrm", TOUR)
B = PlannedJob("b", "dlrm", TOUR, seed=1)
C = PlannedJob("c", "speech", TOUR)


def plan_of(*workloads: tuple[str, tuple[PlannedJob, ...]], **settings) -> Plan:
    return Plan("p", tuple(Workload(mode, mode, jobs) for mode, jobs in workloads), **settings)


def rounds(plan: Plan) -> list[tuple[str, int, list[str]]]:
    return [(each.mode, each.repeat, [job.job for job in each.jobs]) for each in planned_rounds(plan)]


def test_jobs_alone_have_a_round_each_and_repeats_are_interleaved():
    plan = plan_of(("alone", (A, B)), ("cpu-shared", (A, B)), repeats=2)
    once = [("alone", ["a"]), ("alone", ["b"]), ("cpu-shared", ["a", "b"])]
    assert rounds(plan) == [(mode, repeat, jobs) for repeat in (0, 1) for mode, jobs in once]


def test_the_baseline_is_what_does_not_run_alone_already():
    shared = plan_of(("cpu-shared", (A, B, C)))
    assert rounds(with_baseline(shared))[:3] == [("alone", 0, ["a"]), ("alone", 0, ["b"]), ("alone", 0, ["c"])]
    assert rounds(with_baseline(shared, "one"))[:2] == [("alone", 0, ["a"]), ("alone", 0, ["c"])]
    assert with_baseline(shared, "none") is shared
    there = plan_of(("alone", (A, B, C)), ("cpu-shared", (A, B, C)))
    assert with_baseline(there) is there
    twice = plan_of(("cpu-shared", (A, replace(C, name="x"))), ("cpu-pinned", (replace(B, name="a"), C)))
    assert [[job.name for job in each.jobs] for each in with_baseline(twice).workloads[:2]] == [["a", "x"], ["a"]]


def test_seconds_are_for_jobs_that_do_not_say_their_end():
    own = replace(A, arguments=(*TOUR, "--max-epochs", "2"))
    script = PlannedJob("s", "train.py")
    timed = with_seconds(plan_of(("alone", (B, own, script))), 3.0).workloads[0].jobs
    assert timed[0].arguments == (*TOUR, "--max-seconds", "3.0", "--max-epochs", str(ENDLESS), "--target", "none")
    assert timed[1:] == (own, script)
    with pytest.raises(UserError, match="seconds is 0: give a number above zero"):
        with_seconds(plan_of(("alone", (A,))), 0.0)


def test_a_group_is_read_as_it_was_saved_and_what_is_wrong_with_it_is_told(tmp_path):
    plan = plan_of(("alone", (A, C)), device="cpu")
    folder, record = GroupRecord.new(tmp_path, "p", plan=plan, needs={"alone/a": 5}, rounds=planned_rounds(plan))
    record.save(folder)
    assert GroupRecord.read(folder) == record
    assert GroupRecord.find(folder.name[:15], tmp_path) == folder
    with pytest.raises(UserError, match=f"group 'x' is none of those in .* the latest are {folder.name}"):
        GroupRecord.find("x", tmp_path)
    with pytest.raises(UserError, match=r"group 'x': .* holds no group: name another folder"):
        GroupRecord.find("x", folder)
    record.pid = 2**22 + 1
    record.save(folder)
    assert GroupRecord.read(folder).status == "interrupted"

    path, whole = folder / "group.json", (folder / "group.json").read_text()
    path.write_text(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"group\.json: this file is damaged"):
        GroupRecord.read(folder)
    path.write_text(whole.replace('"mode": "alone"', '"mode": "apart"', 1))
    with pytest.raises(UserError, match="mode 'apart' is unknown"):
        GroupRecord.read(folder)
    path.write_text(json.dumps(json.loads(whole) | {"schema_version": 99}))
    with pytest.raises(UserError, match="another version of labkit wrote this group"):
        GroupRecord.read(folder)
    with pytest.raises(UserError, match=r"no group of labkit's, because it has no group\.json"):
        GroupRecord.read(tmp_path)

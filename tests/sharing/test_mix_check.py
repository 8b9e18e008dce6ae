"""Every row of a plan is checked before anything starts."""

import psutil

from labkit.errors import UserError
from labkit.jobs import DlrmJob
from labkit.launch import Mix, PlannedJob, Workload
from labkit.sharing.check import check_mix

GIB = 2**30


def plan_of(mode: str, *jobs: PlannedJob) -> Mix:
    return Mix("p", (Workload(mode, mode, jobs),), device="cpu")


def job(name: str, **fields) -> PlannedJob:
    return PlannedJob(name, DlrmJob(), **fields)


def test_jobs_that_fit_alone_may_not_fit_together():
    def refusals(mode, need, *jobs):
        return check_mix(plan_of(mode, *jobs), lambda job, kind: need).refusals

    need = int(psutil.virtual_memory().available * 0.6)
    assert refusals("alone", need, job("a"), job("b")) == ()
    (refusal,) = refusals("cpu-shared", need, job("a"), job("b"))
    assert "with b the jobs need" in refusal and "at once" in refusal
    for mode in ("alone", "cpu-shared", "cpu-pinned"):
        (refusal,) = refusals(mode, 2**50, job("a"))
        assert "a needs 1048576 GiB" in refusal


def test_all_rows_are_checked_and_each_has_one_message():
    rows = (
        ("cpu-shared", (job("a"), job("b"))),
        ("mps", (job("c"),)),
        ("mig", (job("d", mig_profile="9g.90gb"),)),
        ("cpu-pinned", (job("e", cores=4096),)),
    )
    plan = Mix("p", tuple(Workload(mode, mode, jobs) for mode, jobs in rows), device="cpu")
    found = check_mix(plan, lambda job, kind: GIB // 8)
    assert [line.split(":")[0] for line in found.refusals] == ["mps", "mig", "cpu-pinned"]
    assert "mode mps shares a GPU" in found.refusals[0] and "mode mig shares a GPU" in found.refusals[1]
    assert "ask for 4096 cores together (e 4096)" in found.refusals[2]
    assert [row.job for row in found.rows] == list("abcde")
    assert all(row.free_bytes > row.needs_bytes == GIB // 8 and "core" in row.device for row in found.rows[:2])


def test_what_stands_against_a_row_or_the_plan_is_reported_where_it_is():
    def estimate(job, kind):
        raise UserError("there is no dataset 'nowhere'.")

    found = check_mix(plan_of("alone", job("a", where="job 1 of --jobs")), estimate)
    assert found.refusals == ("job 1 of --jobs: there is no dataset 'nowhere'.",)
    assert found.rows[0].why_not == ("there is no dataset 'nowhere'",), "to be joined with others"
    found = check_mix(plan_of("alone", job("a", memory_bytes=GIB)), estimate)
    assert found.rows[0].needs_bytes == GIB and found.refusals == (), "what the plan gives counts before the estimate"
    (refusal,) = check_mix(Mix("p", (Workload("w", "naive", (job("a"),)),), device="7"), estimate).refusals
    assert "this machine has no device '7'" in refusal

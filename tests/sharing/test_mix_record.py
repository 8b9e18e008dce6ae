"""The record of a mix: what it plans, what a reader of a killed one sees, and how a damaged one is refused."""

import json
from dataclasses import replace

import pytest

from labkit.errors import UserError
from labkit.jobs import ENDLESS, DlrmJob, ScriptJob, SpeechJob
from labkit.launch import Launches, Mix, PlannedJob, Workload, mix_launches, with_baseline, with_seconds
from labkit.sharing import mix_in, new_mix, read_mix

A = PlannedJob("a", DlrmJob())
B = PlannedJob("b", DlrmJob(), seed=1)
C = PlannedJob("c", SpeechJob())


def plan_of(*workloads: tuple[str, tuple[PlannedJob, ...]], **settings) -> Mix:
    return Mix("p", tuple(Workload(mode, mode, jobs) for mode, jobs in workloads), **settings)


def rounds(plan: Mix) -> list[tuple[str, int, list[str]]]:
    found = {}
    for each in mix_launches(plan):
        key = each.together, each.mode, each.about["repeat"]
        found.setdefault(key, []).append(each.about["job"])
    return [(mode, repeat, jobs) for (_, mode, repeat), jobs in found.items()]


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
    own = replace(A, job=DlrmJob(max_epochs=2))
    script = PlannedJob("s", ScriptJob("train.py"))
    timed = with_seconds(plan_of(("alone", (B, own, script))), 3.0).workloads[0].jobs
    assert (timed[0].job.max_seconds, timed[0].job.max_epochs, timed[0].job.target.value) == (3.0, ENDLESS, None)
    assert timed[1:] == (own, script)
    with pytest.raises(UserError, match="seconds is 0: give a number above zero"):
        with_seconds(plan_of(("alone", (A,))), 0.0)


def test_a_mix_is_read_as_it_was_saved_and_a_damaged_one_is_refused(tmp_path):
    mix = plan_of(("alone", (A, C)), device="cpu")
    launches = new_mix(mix, tmp_path, needs={"alone/a": 5}, quiet=True)
    launches.write()
    found = read_mix(launches.folder)
    assert (found.head, found.parts, mix_in(found)) == (launches.head, launches.parts, mix)
    assert Launches.find(launches.folder.name[:15], tmp_path, "mix") == launches.folder
    with pytest.raises(UserError, match=f"mix 'x' is none of those in .* the latest are {launches.folder.name}"):
        Launches.find("x", tmp_path, "mix")
    with pytest.raises(UserError, match=r"mix 'x': .* holds no mix: name another folder"):
        Launches.find("x", launches.folder, "mix")
    launches.head.pid = 2**22 + 1
    launches.write()
    assert read_mix(launches.folder).head.status == "interrupted"

    whole = launches.file.read_text()
    launches.file.write_text(whole.replace('"mode": "alone"', '"mode": "apart"', 1))
    with pytest.raises(UserError, match=r"its mix is damaged|mode 'apart' is unknown"):
        mix_in(read_mix(launches.folder))
    head, *rest = whole.splitlines()
    launches.file.write_text("\n".join([head.replace('"schema_version": 3', '"schema_version": 99'), *rest]) + "\n")
    with pytest.raises(UserError, match="another version of labkit wrote this"):
        read_mix(launches.folder)
    with pytest.raises(UserError, match=r"labkit ran no mix here, because it has no launches\.jsonl"):
        read_mix(tmp_path)


def test_a_group_of_an_earlier_version_can_still_be_read(tmp_path):
    job = {"name": "a", "script": "dlrm", "arguments": ["--seed", "{seed}"], "seed": 1}
    plan = {"name": "p", "workloads": [{"name": "w", "mode": "alone", "jobs": [job]}], "repeats": 1}
    outcome = {"job": "a", "label": "dlrm:tour", "status": "done", "run": "r", "reason": "", "wall_s": 2.0}
    one = {"workload": "w", "mode": "alone", "repeat": 0, "status": "done", "go_at": "2026-11-21T10:15:02+01:00"}
    record = {
        "id": "20261121-group-p",
        "host": "h",
        "status": "done",
        "started_at": "x",
        "ended_at": None,
        "plan": plan,
    }
    record |= {"plan": plan, "provenance": {"kind": "measured", "by": "labkit", "when": "2026-11-21T10:15:02+01:00"}}
    record |= {"rounds": [one | {"jobs": [outcome | {"device": "cores", "log": "logs/a.log", "attempt": 2}]}]}
    (tmp_path / "group.json").write_text(json.dumps(record | {"schema_version": 2}))
    (part,) = read_mix(tmp_path).parts.values()
    assert (part.status, part.run, part.wall_s, part.attempts) == ("done", "r", 2.0, 2)
    assert (part.launch.mode, part.launch.about["workload"], part.launch.about["job"]) == ("alone", "w", "a")
    (tmp_path / "group.json").write_text("{}")
    with pytest.raises(UserError, match="this record is damaged, or of another version"):
        read_mix(tmp_path)

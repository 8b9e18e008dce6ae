"""A mix: each row is checked before anything starts, what it needs of the memory, and the record of one."""

import json
from dataclasses import replace
from types import SimpleNamespace

import psutil
import pytest

from labkit.data import prepared_root
from labkit.errors import UserError
from labkit.jobs import DlrmJob, ScriptJob, SpeechJob, job_command
from labkit.jobs.settings import ENDLESS
from labkit.launch import Launches, Mix, PlannedJob, Workload, mix_launches, watch, with_baseline, with_seconds
from labkit.sharing import memory_probe as need, mix_in, new_mix, read_mix
from labkit.sharing.check import check_mix
from labkit.sharing.memory_probe import GROWTH_BYTES, first_steps_bytes
from labkit.tracking import ScriptCommand

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
    record = {"id": "20261121-group-p", "host": "h", "status": "done", "started_at": "x", "ended_at": None}
    record |= {"plan": plan, "provenance": {"kind": "measured", "by": "labkit", "when": "2026-11-21T10:15:02+01:00"}}
    record |= {"rounds": [one | {"jobs": [outcome | {"device": "cores", "log": "logs/a.log", "attempt": 2}]}]}
    (tmp_path / "group.json").write_text(json.dumps(record | {"schema_version": 2}))
    (part,) = read_mix(tmp_path).parts.values()
    assert (part.status, part.run, part.wall_s, part.attempts) == ("done", "r", 2.0, 2)
    assert (part.launch.mode, part.launch.about["workload"], part.launch.about["job"]) == ("alone", "w", "a")
    (tmp_path / "group.json").write_text("{}")
    with pytest.raises(UserError, match="this record is damaged, or of another version"):
        read_mix(tmp_path)


GIB = 2**30


def job(name: str, **fields) -> PlannedJob:
    return PlannedJob(name, DlrmJob(), **fields)


def test_jobs_that_fit_alone_may_not_fit_together():
    def refusals(mode, need, *jobs):
        return check_mix(plan_of((mode, jobs), device="cpu"), lambda job, kind: need).refusals

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
    # what cannot be on this device is not tried for its memory
    found = check_mix(plan, lambda job, kind: GIB // 8 if job.name in "abe" else pytest.fail("it was tried"))
    assert [line.split(":")[0] for line in found.refusals] == ["mps", "mig", "cpu-pinned"]
    assert "mode mps shares a GPU" in found.refusals[0] and "mode mig shares a GPU" in found.refusals[1]
    assert "ask for 4096 cores together (e 4096)" in found.refusals[2]
    assert [row.job for row in found.rows] == list("abcde")
    assert all(row.free_bytes > row.needs_bytes == GIB // 8 and "core" in row.device for row in found.rows[:2])


def test_what_stands_against_a_row_or_the_plan_is_reported_where_it_is():
    def estimate(job, kind):
        raise UserError("there is no dataset 'nowhere'.")

    found = check_mix(plan_of(("alone", (job("a", where="job 1 of --jobs"),)), device="cpu"), estimate)
    assert found.refusals == ("job 1 of --jobs: there is no dataset 'nowhere'.",)
    assert found.rows[0].why_not == ("there is no dataset 'nowhere'",), "to be joined with others"
    found = check_mix(plan_of(("alone", (job("a", memory_bytes=GIB),)), device="cpu"), estimate)
    assert found.rows[0].needs_bytes == GIB and found.refusals == (), "what the plan gives counts before the estimate"
    (refusal,) = check_mix(Mix("p", (Workload("w", "naive", (job("a"),)),), device="7"), estimate).refusals
    assert "this machine has no device '7'" in refusal


NEAR = 0.15  # one job's peak differs so much from process to process, and grows by less in an epoch (`GROWTH_BYTES`)
WITHOUT_RUN = """
import torch
large = torch.ones(50_000_000)
weight = torch.nn.Parameter(torch.zeros(10))
optimiser = torch.optim.SGD([weight], lr=0.1)
for step in range(10**9):
    weight.grad = torch.ones(10)
    optimiser.step()
"""
WITH_FLAG = "import argparse as a\np = a.ArgumentParser()\np.add_argument('-n', type=int)\np.parse_args()"


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    return lambda text, *arguments: path.write_text(text) and ScriptCommand(str(path), arguments, folder=str(tmp_path))


def test_the_first_steps_tell_what_a_short_run_takes(tmp_path):
    settings = {"data": "synthetic-small", "precision": "fp32", "max_epochs": 1, "target": "none"}
    found = first_steps_bytes(job_command("dlrm", **settings), "cpu")
    peak = watch("dlrm", tmp_path, **settings)["result"]["peak_memory_bytes"]
    assert found == pytest.approx(peak, rel=NEAR)
    assert found + GROWTH_BYTES >= peak


def test_any_script_is_tried_once_and_leaves_nothing(script, tmp_path, tmp_path_factory, monkeypatch):
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path_factory.mktemp("cache")))  # where no other test tries anything
    found = first_steps_bytes(script(WITHOUT_RUN, "--lr", "1", "--seed", "{seed}"), "cpu")
    assert 200_000_000 < found < 2**30  # 50 million numbers, and Python with torch
    assert [each.name for each in tmp_path.iterdir()] == ["train.py"]
    assert not list(prepared_root().glob("trial-*"))
    monkeypatch.setattr(need, "_Trial", None)  # would have to be tried again
    assert first_steps_bytes(script(WITHOUT_RUN, "--lr", "1", "--seed", "{seed}"), "cpu") == found
    for other in (script(WITHOUT_RUN, "--lr", "2"), script(WITHOUT_RUN + "\n", "--lr", "1")):
        with pytest.raises(TypeError):
            first_steps_bytes(other, "cpu")
    for module in (tmp_path / "model.py", tmp_path / "parts" / "layer.py"):
        module.parent.mkdir(exist_ok=True)
        module.write_text("SIZE = 1")
        with pytest.raises(TypeError):
            first_steps_bytes(script(WITHOUT_RUN, "--lr", "1", "--seed", "{seed}"), "cpu")
        module.unlink()


def test_a_trial_ends_before_it_takes_what_is_not_free(script, monkeypatch):
    monkeypatch.setattr("labkit.hardware.read_cpu", lambda: SimpleNamespace(memory_available_bytes=9 << 26))
    greedy = "import time\nheld = []\nfor _ in range(99): held.append(bytearray(1 << 24)); time.sleep(0.01)"
    with pytest.raises(UserError, match=r"train\.py was tried .* takes more memory than is free \(512 MiB"):
        first_steps_bytes(script(greedy), "cpu")


def test_a_script_that_fails_says_why(script):
    with pytest.raises(UserError, match=r"train\.py was tried .* failed: .*ValueError: no such file"):
        first_steps_bytes(script("raise ValueError('no such file')"), "cpu")
    with pytest.raises(UserError, match=r"ended with status 2 before its first step: .*: invalid int value: 'x'"):
        first_steps_bytes(script(WITH_FLAG, "-n", "x"), "cpu")
    with pytest.raises(UserError, match="made for a dataset"):
        first_steps_bytes(job_command("dlrm", preset="kaggle"), "cpu")


def test_a_script_without_a_step_has_no_known_need_however_stubborn(script, monkeypatch):
    monkeypatch.setattr(need, "LONGEST_TRIAL_S", 1.0)
    monkeypatch.setattr(need._Trial, "grace_s", 2.0)
    text = "import time, signal\nsignal.signal(2, lambda *_: 0)\nwhile True: time.sleep(1)"
    before = psutil.Process().children(recursive=True)
    assert first_steps_bytes(script(text), "cpu") is None
    assert {*psutil.Process().children(recursive=True)} <= {*before}

"""Plans in YAML: what they give, and what is said of every wrong row."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from labkit.collocation.plan.csv_plan import read_csv_plan
from labkit.collocation.plan.plan import Plan
from labkit.collocation.plan.yaml_plan import read_yaml_plan
from labkit.errors import UserError


@pytest.fixture
def read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plans").mkdir()
    path = (tmp_path / "plans" / "mix.yaml").relative_to(tmp_path)

    def reader(text: str, **options) -> Plan:
        path.write_text(text, encoding="utf-8")
        return read_yaml_plan(path, **options)

    return reader


@pytest.fixture
def refusal(read):
    def refused(text: str) -> list[str]:
        with pytest.raises(UserError) as caught:
            read(text)
        return str(caught.value).splitlines()

    return refused


def test_a_plan_gives_its_fields(read):
    plan = read(
        "name: first\ndevice: 0\nmode: [alone, cpu-shared]\nrepeats: 3\ntimeout: 90\nseconds: 2.5\n"
        "jobs:\n  - {job: dlrm:tour, copies: 2, lr: 1e-3}\n  - {job: speech, max_seconds: 9, cores: 1, memory: 2GiB}\n"
    )
    assert (plan.name, plan.device, plan.repeats, plan.timeout_s) == ("first", "0", 3, 90.0)
    assert [(workload.name, workload.mode) for workload in plan.workloads] == [("alone",) * 2, ("cpu-shared",) * 2]
    first, second, speech = plan.workloads[0].jobs
    assert plan.workloads[1].jobs == plan.workloads[0].jobs
    told = ("--preset", "tour", "--lr", "0.001", "--max-seconds", "2.5", "--seed", "{seed}")
    assert (first.arguments, first.seed) == (second.arguments, 0) == (told, 0)
    assert (second.name, second.seed) == ("dlrm-tour-2", 1)
    assert speech.arguments[2:4] == ("--max-seconds", "9.0") and (speech.cores, speech.memory_bytes) == (1, 2**31)
    assert speech.where == "plans/mix.yaml, line 9"


def test_a_plan_says_little_where_little_is_asked(read):
    plan = read("mode: alone\njobs:\n- job: dlrm\n")
    assert (plan.name, plan.device, plan.repeats, plan.spin) == ("mix", None, 1, False)
    assert Plan.from_dict(json.loads(json.dumps(asdict(plan)))) == plan
    assert [w.mode for w in read("jobs:\n- job: dlrm\n", default_mode="alone").workloads] == ["alone"]
    assert [w.mode for w in read("mode: naive\njobs:\n- job: dlrm\n", default_mode="alone").workloads] == ["naive"]


def test_workloads_are_groups_with_modes_of_their_own(read):
    plan = read(
        "mode: naive\nworkloads:\n- {name: pair, mode: [alone, cpu-pinned], jobs: [{job: dlrm, copies: 2}]}\n"
        "- jobs: [{job: speech}]\n"
    )
    assert [(w.name, w.mode, len(w.jobs)) for w in plan.workloads] == [
        ("pair-alone", "alone", 2), ("pair-cpu-pinned", "cpu-pinned", 2), ("workload-2", "naive", 1),
    ]  # fmt: skip


def test_values_are_read_as_they_were_written(read, tmp_path):
    (tmp_path / "plans" / "train.py").write_text("")
    plan = read(
        "mode: alone\njobs:\n- &usual {job: dlrm, target: 0.80, name: 2024-01-01}\n- {<<: *usual, name: on}\n"
        "- {script: train.py, arguments: [--lr, 1e-3, yes, two words]}\n- {script: train.py, args: -n 'a b'}\n"
    )
    jobs = plan.workloads[0].jobs
    assert jobs[0].arguments[2:4] == jobs[1].arguments[2:4] == ("--target", "0.80")
    assert [job.name for job in jobs] == ["2024-01-01", "on", "train-1", "train-2"]
    assert jobs[2].arguments == ("--lr", "1e-3", "yes", "two words")
    assert jobs[3].arguments == ("-n", "a b")


def test_scripts_and_data_are_found_beside_the_plan(read, tmp_path):
    (tmp_path / "plans" / "train.py").write_text("")
    (tmp_path / "plans" / "clicks.csv").write_text("")
    (tmp_path / "plans" / "synthetic").mkdir()
    plan = read(
        "mode: alone\njobs:\n- script: train.py\n- {job: dlrm, data: clicks.csv}\n- {job: dlrm, data: synthetic}"
    )
    script, own, named = plan.workloads[0].jobs
    assert script.script == "plans/train.py"
    assert own.arguments[2:4] == ("--data", "plans/clicks.csv")
    assert named.arguments[2:4] == ("--data", "synthetic")


def test_all_rows_are_checked_and_each_has_one_line(refusal):
    found = refusal(
        "mode: alone\n"
        "jobs:\n"
        "  - job: dlmr:tour\n"
        "    batch_szie: 4\n"
        "  - script: nope.py\n"
        "  - {job: dlrm, seed: x}\n"
        "  - {job: dlrm, name: a}\n"
        "  - {job: dlrm, name: a}\n"
        "  - {job: dlrm, target: 78}\n"
        "  - {job: dlrm, budget: half}\n"
        "  - {job: speech}\n"
    )
    assert found == [
        "plans/mix.yaml: 6 mistakes to mend before anything can start:",
        "plans/mix.yaml, line 3: job 'dlmr' is unknown: did you mean 'dlrm'? A script's name ends in .py.",
        "plans/mix.yaml, line 5: there is no script plans/nope.py: check the path, which counts from the plan's "
        "folder.",
        "plans/mix.yaml, line 6, field 'seed': 'x' is not a whole number: write one, such as 256.",
        "plans/mix.yaml, line 8, field 'name': the job of line 7 is called 'a', too: rename one.",
        "plans/mix.yaml, line 9: target: 78 is nothing to train the AUC to: give a value above 0 and below 1 (write "
        "0.78 for 78 %).",
        "plans/mix.yaml, line 10, field 'budget': the mode decides what a job may use: leave budget away, or give "
        "cores and memory for mode cpu-pinned.",
    ]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("mode: alone\njobs: [{job: dlrm, name: a, copies: 2}, {job: dlrm, name: a-2}]", "is called 'a-2', too"),
        ("mode: alone\njobs: [&a {job: dlrm, name: b}, *a]", "is called 'b', too"),
        ("nmae: x\nmode: alone\njobs: [{job: dlrm}]", "line 1, field 'nmae': it is unknown: did you mean 'name'?"),
        ("mode: cpu-shred\njobs: [{job: dlrm}]", "line 1, field 'mode': 'cpu-shred' is unknown: did you mean "),
        ("mode: [alone, alone]\njobs: [{job: dlrm}]", "two workloads of mode alone"),
        ("mode: alone\nbudget: half\njobs: [{job: dlrm}]", "line 2, field 'budget': the mode decides"),
        ("mode: alone\nrepeats: 0\njobs: [{job: dlrm}]", "repeats is 0: give a whole number from 1."),
        ("mode: alone\ntimeout: soon\njobs: [{job: dlrm}]", "field 'timeout': 'soon' is not a number"),
        ("jobs: [{job: dlrm}]", "there is no mode: say how the jobs share, with one or more of alone, naive"),
        ("mode: alone", "there is no job: list jobs that run together under jobs"),
        ("mode: alone\njobs: []", "field 'jobs': a list belongs here: begin each item"),
        ("mode: alone\njobs: [dlrm:tour]", "fields belong here: write them as in job: dlrm:tour."),
        ("mode: alone\njobs: [{job: dlrm}]\nworkloads: []", "both are there: put all jobs in one of the two"),
        ("mode: alone\njobs: [{job: dlrm, script: a.py}]", "give it one of job (such as dlrm:tour) and script"),
        ("mode: alone\njobs: [{job: dlrm, arguments: a}]", "only a script has arguments"),
        ("mode: alone\njobs: [{job: dlrm, arguments: a, args: b}]", "args is another spelling of arguments: leave"),
        ("mode: alone\njobs: [{job: dlrm, job: speech}]", "field 'job': it stands there twice"),
        ("mode: alone\njobs: [{job: dlrm, name: a/b}]", "name 'a/b' names a file, too"),
        ("mode: alone\njobs: [{job: dlrm, memory: lots}]", "field 'memory': 'lots' is not a size: write one"),
        ("mode: alone\njobs: [{job: dlrm, copies: 0}]", "0 copies cannot be"),
        ("mode: alone\njobs: [{job: dlrm, seed: [1]}]", "field 'seed': a list stands where one value belongs"),
        ("mode: alone\njobs: [{job: dlrm, seed: !!python/name:os.system 1}]", "line 2: this is no YAML (could not"),
        ("mode: alone\nworkloads: [{name: a, jobs: [{job: dlrm}]}, {name: a, jobs: [{job: dlrm}]}]", "two workloads"),
        ("jobs:\n\t- x", "line 2: this is no YAML (found character '\\t' that cannot start any token)"),
        ("", "it holds no fields: a plan looks like"),
        ("[" * 5000, "its lists are nested too deep"),
    ],
)  # fmt: skip
def test_a_mistake_names_its_place_and_the_fix(refusal, text, part):
    assert part in "\n".join(refusal(text))


@pytest.mark.parametrize(("name", "read_it"), [("mix.yaml", read_yaml_plan), ("mix.csv", read_csv_plan)])
def test_a_plan_that_is_not_there_is_told(tmp_path, name, read_it):
    with pytest.raises(UserError, match=r"There is no file .*: check the path\."):
        read_it(tmp_path / name)
    (tmp_path / name).write_bytes(b"a: \xff")
    with pytest.raises(UserError, match="byte 3 is not UTF-8"):
        read_it(tmp_path / name)

"""Plans as one line of text, in YAML and in radT's CSV: what they come to, and what is said of every mistake."""

import json
from dataclasses import replace

import pytest

from labkit.errors import UserError
from labkit.jobs import DlrmJob, SpeechJob
from labkit.json_data import build, to_json
from labkit.launch import Mix, on_device, parse_jobs, read_csv_mix, read_yaml_mix
from labkit.sharing.check import check_mix

HEADER = "Experiment,Workload,Name,Status,Run,Devices,Collocation,File,Listeners,Params\n"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A working folder with two scripts, and a folder `plans`."""
    monkeypatch.chdir(tmp_path)
    for name in ("plans", "code"):
        (tmp_path / name).mkdir()
    for name in ("train.py", "code/train.py"):
        (tmp_path / name).touch()
    return tmp_path


def written(folder, name: str, text: str):
    path = (folder / "plans" / name).relative_to(folder)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def from_yaml(folder):
    return lambda text, **options: read_yaml_mix(written(folder, "mix.yaml", text), **options)


@pytest.fixture
def from_csv(folder):
    return lambda rows, header=HEADER: read_csv_mix(written(folder, "plan.csv", header + rows))


def no_need(*_) -> None:
    """What a job takes of the memory is not known."""


def refusal(read, *text: str) -> list[str]:
    with pytest.raises(UserError) as caught:
        read(*text)
    return str(caught.value).splitlines()


def test_copies_have_names_and_seeds_of_their_own():
    jobs = parse_jobs("dlrm:tour x3, speech:tour,")
    assert [job.name for job in jobs] == ["dlrm-tour-1", "dlrm-tour-2", "dlrm-tour-3", "speech-tour"]
    assert [job.seed for job in jobs] == [0, 1, 2, 0]
    assert {job.job for job in jobs} == {DlrmJob(), SpeechJob()}
    assert [job.label for job in jobs] == ["dlrm:tour"] * 3 + ["speech:tour"]
    assert [job.seed for job in parse_jobs("dlrm[seed=5] x2")] == [5, 6], "they count up from the one given"
    jobs = parse_jobs("train.py --seed {seed} x2, train.py x2")
    assert [(job.job.arguments, job.seed) for job in jobs] == [
        (("--seed", "{seed}"), 0), (("--seed", "{seed}"), 1), ((), 0), ((), 0),
    ]  # fmt: skip
    jobs = parse_jobs("dlrm:tour, dlrm:tour[batch_size=64], dlrm")
    assert [job.name for job in jobs] == ["dlrm-tour-1", "dlrm-tour-2", "dlrm-tour-3"], "they are numbered together"
    assert jobs[0].job == jobs[2].job != jobs[1].job, "the usual preset need not be named"


def test_settings_stand_in_brackets_and_arguments_survive_as_they_were_quoted(folder):
    (job,) = parse_jobs("dlrm:tour[batch_size=256, max_epochs=1,data='my clicks, all.csv',target=auc=0.7,memory=1GiB]")
    assert (job.label, job.memory_bytes) == ("dlrm:tour", 2**30)
    assert (job.job.batch_size, job.job.max_epochs, job.job.data) == (256, 1, "my clicks, all.csv")
    assert job.job.target.value == 0.7
    jobs = parse_jobs("train.py --lr 0.1 --note 'two words, a comma' --sizes [1,2] x2, dlrm")
    assert jobs[0].job.arguments == ("--lr", "0.1", "--note", "two words, a comma", "--sizes", "[1,2]")
    assert [job.name for job in jobs] == ["train-1", "train-2", "dlrm-tour"]
    (folder / "my [1].py").write_text("")
    (job,) = parse_jobs("'my [1].py'[cores=1,gpu_percent=50] a 'x3'")
    assert (job.job.path, job.job.arguments, job.cores, job.gpu_percent) == ("my [1].py", ("a", "x3"), 1, 50.0)


def test_every_mistake_of_a_line_is_reported_at_once():
    assert refusal(parse_jobs, "dlmr:tour, speech, dlrm:tuor x2, dlrm[batch_szie=3,seed=x], nope.py, dlrm x0") == [
        "--jobs: 6 errors; nothing was started:",
        "job 1 of --jobs (dlmr:tour): job 'dlmr' is unknown: did you mean 'dlrm'? A script's name ends in .py.",
        "job 3 of --jobs (dlrm:tuor x2): preset 'tuor' of dlrm is unknown: choose one of tour, kaggle, terabyte, "
        "mlperf-v1, benchmark.",
        "job 4 of --jobs (dlrm[batch_szie=3,seed=x]), field 'batch_szie': it is unknown: did you mean 'batch_size'?",
        "job 4 of --jobs (dlrm[batch_szie=3,seed=x]), field 'seed': 'x' is not a whole number: write one, such as 256.",
        "job 5 of --jobs (nope.py): there is no script nope.py: check the path, which counts from the working folder.",
        "job 6 of --jobs (dlrm x0), field 'copies': '0' is not a whole number from 1 to 1000: write one, such as 2.",
    ]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "there is no job in it: write jobs such as dlrm:tour x3"),
        ("dlrm 'x", 'a quote or bracket in "dlrm \'x" is not closed'),
        ("dlrm[seed]", "'seed' is not a setting: write name=value in the brackets"),
        ("dlrm[seed=1,seed=2]", "field 'seed': it is given twice"),
        ("dlrm x 3", "'x 3' is not understood after dlrm: only a script has arguments"),
        ("train.py[batch_size=3]", "field 'batch_size': it is unknown: choose one of device, cores, memory"),
        ("dlrm[budget=half]", "field 'budget': the mode decides what a job may use: remove budget, or give cores"),
        ("train.py[args=1] 2", "field 'args': it is another spelling of arguments: remove one."),
        ("dlrm[precision=fp16]", "field 'precision': 'fp16' is unknown: did you mean 'bf16'?"),
        ("dlrm[gpu_percent=101]", "field 'gpu_percent': gpu_percent is 101: give a number above 0 and up to 100."),
        (
            "dlrm[mig_profile=3g40]",
            "field 'mig_profile': mig_profile '3g40' is not a MIG profile: write one",
        ),
        ("dlrm:tour[preset=kaggle]", "the job already names preset 'tour'"),
        ("dlrm[optimiser=sgd]", "field 'optimiser': the learning rate of preset 'tour' is for adam"),
    ],
)
def test_a_mistake_in_a_line_names_its_item_and_the_fix(text, part):
    assert part in " ".join(refusal(parse_jobs, text))


def test_a_plan_in_yaml_gives_its_fields(from_yaml):
    plan = from_yaml(
        "name: first\ndevice: 0\nmode: [alone, cpu-shared]\nrepeats: 3\ntimeout: 90\n"
        "jobs:\n  - {job: dlrm:tour, copies: 2, lr: 1e-3}\n  - {job: speech, cores: 1, memory: 2GiB}\n"
    )
    assert (plan.name, plan.device, plan.repeats, plan.timeout_s) == ("first", "0", 3, 90.0)
    assert [(workload.name, workload.mode) for workload in plan.workloads] == [("alone",) * 2, ("cpu-shared",) * 2]
    first, second, speech = plan.workloads[0].jobs
    assert plan.workloads[1].jobs == plan.workloads[0].jobs
    assert (first.job, first.seed) == (second.job, 0) == (DlrmJob(lr=1e-3), 0)
    assert (second.name, second.seed) == ("dlrm-tour-2", 1)
    assert (speech.cores, speech.memory_bytes) == (1, 2**31)
    assert speech.where == "plans/mix.yaml, line 8"
    plan = from_yaml("jobs:\n- job: dlrm\n", default_mode="alone")
    assert (plan.name, plan.device, plan.repeats, plan.workloads[0].mode) == ("mix", None, 1, "alone")
    assert build(json.loads(json.dumps(to_json(plan))), Mix) == plan
    (refusal,) = check_mix(from_yaml("device: cpu\nmode: mps\njobs:\n- job: dlrm\n"), no_need).refusals
    assert refusal.startswith("plans/mix.yaml, line 2, field 'mode', mps: mode mps shares a GPU")


def test_workloads_are_groups_with_modes_of_their_own(from_yaml):
    text = (
        "mode: naive\nworkloads:\n- {name: pair, mode: [alone, cpu-pinned], jobs: [{job: dlrm, copies: 2}]}\n"
        "- jobs: [{job: speech}]\n"
    )
    assert [(w.name, w.mode, len(w.jobs)) for w in from_yaml(text).workloads] == [
        ("pair-alone", "alone", 2), ("pair-cpu-pinned", "cpu-pinned", 2), ("workload-2", "naive", 1),
    ]  # fmt: skip
    asked = [(w.name, w.mode) for w in from_yaml(text, modes=["mps"]).workloads]
    assert asked == [("pair", "mps"), ("workload-2", "mps")], "modes of the command line count instead"


def test_values_are_read_as_they_were_written_and_files_are_found_next_to_the_plan(from_yaml, folder):
    for name in ("train.py", "clicks.csv"):
        (folder / "plans" / name).touch()
    (folder / "plans" / "synthetic").mkdir()
    plan = from_yaml(
        "mode: alone\njobs:\n- &usual {job: dlrm, target: 0.80, name: 2024-01-01}\n- {<<: *usual, name: on}\n"
        "- {script: train.py, arguments: [--lr, 1e-3, yes, two words]}\n- {script: train.py, args: -n 'a b'}\n"
        "- {job: dlrm, name: on, data: clicks.csv}\n- {job: dlrm, data: synthetic}\n"
    )
    jobs = plan.workloads[0].jobs
    assert [job.name for job in jobs] == ["2024-01-01", "on-1", "train-1", "train-2", "on-2", "dlrm-tour"]
    assert jobs[0].job.target == jobs[1].job.target and jobs[0].job.target.value == 0.8
    assert jobs[2].job.arguments == ("--lr", "1e-3", "yes", "two words") and jobs[2].job.path == "plans/train.py"
    assert jobs[3].job.arguments == ("-n", "a b")
    assert str(jobs[4].job.data) == "plans/clicks.csv"
    assert jobs[5].job.data == "synthetic", "a dataset's name stays"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (
            "mode: alone\njobs:\n- script: nope.py\n- {job: dlrm, seed: x}\n- {job: dlrm, target: 78}",
            "plans/mix.yaml: 3 errors; nothing was started:\n"
            "plans/mix.yaml, line 3, field 'script': there is no script plans/nope.py: check the path, which "
            "counts from the plan's folder.\n"
            "plans/mix.yaml, line 4, field 'seed': 'x' is not a whole number: write one, such as 256.\n"
            "plans/mix.yaml, line 5, field 'target': target: the AUC cannot be trained to 78: give a value above 0 "
            "and up to 1 ",
        ),
        ("repeats: 0\njobs: [{job: dlrm}]", "line 1, field 'repeats': '0' is not a whole number from 1: write one"),
        ("timeout: -1\njobs: [{job: dlrm}]", "line 1, field 'timeout': '-1' is not a number of seconds above zero: w"),
        ("mode: alone\njobs: []", "line 2, field 'jobs': the list is empty: give at least one item."),
        (
            "jobs:\n- &a {job: dlrm,\n  coppies: 2}\n- <<: *a\n  coppies: 3\n\n  seed: x",
            "line 3, field 'coppies': it is unknown: did you mean 'copies'?\n"
            "plans/mix.yaml, line 5, field 'coppies': it is unknown: did you mean 'copies'?\n"
            "plans/mix.yaml, line 7, field 'seed': 'x' is not a whole number",
        ),
        ("mode: cpu-shred\njobs: [{job: dlrm}]", "line 1, field 'mode': 'cpu-shred' is unknown: did you mean "),
        ("mode: alone", "there is no job: list jobs that run together under jobs"),
        ("mode: alone\njobs: [dlrm:tour]", "begin each as in `- job: dlrm:tour`"),
        ("mode: alone\njobs: [{job: dlrm}]\nworkloads: [{jobs: [{job: dlrm}]}]", "both are there: put all jobs in one"),
        ("mode: alone\njobs: [{job: dlrm, script: a.py}]", "give it one of job (such as dlrm:tour) and script"),
        ("mode: alone\njobs: [{job: dlrm, job: speech}]", "line 2: this is not YAML (field 'job' is given twice)"),
        ("mode: alone\njobs: [{job: dlrm, name: a/b}]", "line 2, field 'name': name 'a/b' also names a file"),
        ("jobs:\n- job: dlrm\n  cores: 0", "line 3, field 'cores': cores is 0: give a whole number from 1."),
        ("jobs:\n- job: dlrm\n  lr: -1", "line 3, field 'lr': lr (--lr) is -1.0: give a number above 0."),
        ("jobs:\n- copies: 2\n  job: dlmr", "line 3, field 'job': job 'dlmr' is unknown: did you mean 'dlrm'?"),
        ("jobs:\n- {job: dlrm,\n  args: x}", "line 3, field 'args': 'x' is not understood after dlrm"),
        ("mode: alone\njobs: [{job: dlrm, seed: !!python/name:os.system 1}]", "line 2: this is not YAML (could not"),
        ("jobs:\n\t- x", "line 2: this is not YAML (found character '\\t' that cannot start any token)"),
        ("", "has no fields: a plan looks like"),
        ("[" * 2000, "this is not YAML (maximum recursion depth exceeded"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_yaml_names_its_place_and_the_fix(from_yaml, text, part):
    assert part in "\n".join(refusal(from_yaml, text))


def test_rows_of_one_workload_of_a_csv_run_together_as_their_columns_say(from_csv):
    mix, notices = from_csv(
        "0,1,one,,,0,-,../code/train.py,smi+top,\"--batch-size 128 --note 'two, words'\"\n"
        "0,2,a,,,0,-,../code/train.py,smi,\n"
        "0,2,b,,,GPU-1a2b,-,code/train.py,SMI+nsys,\n"
        "\n"
        "0,3,,,,0,MPS,../code/train.py,smi,\n"
        "1,3,MIG shared gpu 1,,,2,3g.20gb,../code/train.py,smi,\n"
        "1,3,MIG shared gpu 2,,,2.0,1g.5gb,../code/train.py,smi,\n"
        "2,1,,,,cpu,nan,../code/train.py,top,\n"
        "2,1,,,,,-,../code/train.py,top\n"
        "2,2,,,,cpu,cpu-pinned,dlrm:tour,top,\n"
    )
    assert [(w.name, w.mode, [(j.name, j.device, j.mig_profile) for j in w.jobs]) for w in mix.workloads] == [
        ("0-1", "alone", [("one", "0", None)]),
        ("0-2", "naive", [("a", "0", None), ("b", "GPU-1a2b", None)]),
        ("0-3", "mps", [("train", "0", None)]),
        ("1-3", "mig", [("MIG-shared-gpu-1", "2", "3g.20gb"), ("MIG-shared-gpu-2", "2", "1g.5gb")]),
        ("2-1", "cpu-shared", [("train-1", "cpu", None), ("train-2", "cpu", None)]),
        ("2-2", "cpu-pinned", [("dlrm-tour", "cpu", None)]),
    ]
    first, (_, other) = mix.workloads[0].jobs[0], mix.workloads[1].jobs
    assert first.job.arguments == ("--batch-size", "128", "--note", "two, words")
    assert (first.job.path, first.folder) == ("plans/../code/train.py", "plans/../code")
    assert other.job.path == "code/train.py", "found from the working folder too, as radT has it"
    (notice,) = notices
    assert notice.startswith("plans/plan.csv, line 4: nsys is left out") and "`labkit profile`" in notice
    (refusal,) = check_mix(on_device(replace(mix, workloads=mix.workloads[2:3]), "cpu"), no_need).refusals
    assert refusal.startswith("plans/plan.csv, line 6, field 'Collocation', 0-3: mode mps shares a GPU, and the device")


def test_columns_stand_in_any_order_and_statuses_are_not_read(from_csv):
    other = "Mine, File,Workload,Experiment,Status,Run,Collocation,Profilers,Devices\n"
    mix, notices = from_csv("x,../code/train.py,7,0,FINISHED,,-,top,\n", other)
    assert [workload.name for workload in mix.workloads] == ["0-7"]
    assert notices == [
        "plans/plan.csv, line 1: nothing is read from 'Mine', which labkit does not know.",
        "plans/plan.csv: Status is not read, so all rows run; --resume goes on with what was cut short.",
    ]


@pytest.mark.parametrize(
    ("row", "part"),
    [
        (
            "0,1,,,,0,-,../code/trian.py,,",
            "line 2, field 'File': there is no script plans/../code/trian.py nor",
        ),
        (
            "0,3,,,,0,-,../code/train.py,,\n0,3,,,,0,MPS,../code/train.py,,",
            "line 3, field 'Collocation': it is mps",
        ),
        ("0,4,,,,0,-,../code/train.py,,--note 'open", "field 'Params': the arguments \"--note 'open\" end inside a"),
        ("0,1,,,,0,3g20gb,../code/train.py,,", "field 'Collocation': '3g20gb' is neither -, MPS, a MIG profile such"),
        ("0,1,,,,0,-,dlrm:tour[device=1] x2,,", "field 'File': copies, device cannot stand in it"),
        ("0,1,,,,0,-,../code/train.py,,a,b", "line 2: it has 11 fields, and the header 10"),
        (",1,,,,0,-,../code/train.py,,", "line 2, field 'Experiment': it is empty"),
        ('0,1,,,,0,-,../code/train.py,,\n0,2,"a\nb,,', "line 3: this is not CSV (unexpected end of data)"),
        ("", "it has no rows: add some"),
    ],
)
def test_a_mistake_in_a_csv_names_its_row_and_the_fix(from_csv, row, part):
    assert part in "\n".join(refusal(from_csv, row + "\n"))


def test_a_header_that_lacks_something_is_reported(from_csv):
    reported = "\n".join(refusal(from_csv, "", "Experiment,Workload,Run,Devices,Colocation,File\n"))
    assert "each of Status, Collocation" in reported and "in any order, and commas separate them." in reported
    (reported,) = refusal(from_csv, "0,1,,,,0,-,../code/train.py,,--lr 1\n", HEADER.replace("Params", "Parms"))
    assert reported == "plans/plan.csv, line 1: the column 'Parms' is unknown: did you mean 'Params'?"


@pytest.mark.parametrize(("name", "read"), [("mix.yaml", read_yaml_mix), ("mix.csv", read_csv_mix)])
def test_a_plan_that_is_not_there_is_reported(folder, name, read):
    assert "check the path." in refusal(read, folder / name)[0]
    (folder / name).write_bytes(b"a: \xff")
    assert "byte 3 is not UTF-8" in refusal(read, folder / name)[0]

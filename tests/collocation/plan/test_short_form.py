"""Jobs in one line of text: what is read, and what is said of every mistake."""

from __future__ import annotations

import subprocess
import sys

import pytest

from labkit.collocation.plan.job_settings import MOST_COPIES
from labkit.collocation.plan.short_form import parse_jobs
from labkit.errors import UserError


def refusal(text: str) -> list[str]:
    with pytest.raises(UserError) as caught:
        parse_jobs(text)
    return str(caught.value).splitlines()


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    return "train.py"


def test_copies_have_names_and_seeds_of_their_own(script):
    jobs = parse_jobs("dlrm:tour x3, speech:tour,")
    assert [job.name for job in jobs] == ["dlrm-tour-1", "dlrm-tour-2", "dlrm-tour-3", "speech-tour"]
    assert [job.seed for job in jobs] == [0, 1, 2, 0]
    assert {job.arguments for job in jobs} == {("--preset", "tour", "--seed", "{seed}")}
    assert [job.label for job in jobs] == ["dlrm:tour"] * 3 + ["speech:tour"]
    assert [job.seed for job in parse_jobs("dlrm[seed=5] x2")] == [5, 6], "they count up from the one given"
    jobs = parse_jobs("train.py --seed {seed} x2, train.py x2")
    assert [(job.arguments, job.seed) for job in jobs] == [
        (("--seed", "{seed}"), 0), (("--seed", "{seed}"), 1), ((), 0), ((), 0),
    ]  # fmt: skip


def test_items_that_would_have_one_name_are_numbered_together():
    jobs = parse_jobs("dlrm:tour, dlrm:tour[batch_size=64], dlrm")
    assert [job.name for job in jobs] == ["dlrm-tour-1", "dlrm-tour-2", "dlrm-tour-3"]
    assert jobs[0].likeness == jobs[2].likeness != jobs[1].likeness, "the usual preset need not be named"


def test_settings_stand_in_brackets():
    (job,) = parse_jobs("dlrm:tour[batch_size=256, max_epochs=1,data='my clicks, all.csv',target=auc=0.7,memory=1GiB]")
    assert (job.script, job.label) == ("dlrm", "dlrm:tour")
    assert job.arguments == (
        "--preset", "tour", "--batch-size", "256", "--data", "my clicks, all.csv", "--max-epochs", "1", "--target",
        "auc=0.7", "--seed", "{seed}",
    )  # fmt: skip
    assert job.memory_bytes == 2**30


def test_arguments_of_a_script_survive_as_they_were_quoted(script, tmp_path):
    jobs = parse_jobs("train.py --lr 0.1 --note 'two words, a comma' --sizes [1,2] x2, dlrm")
    assert jobs[0].arguments == ("--lr", "0.1", "--note", "two words, a comma", "--sizes", "[1,2]")
    assert [job.name for job in jobs] == ["train-1", "train-2", "dlrm-tour"]
    assert (jobs[0].script, jobs[0].label) == ("train.py", "train.py")
    (tmp_path / "my [1].py").write_text("")
    (job,) = parse_jobs("'my [1].py'[cores=1] a")
    assert (job.script, job.arguments, job.cores) == ("my [1].py", ("a",), 1)


def test_a_script_has_a_place_but_no_settings_of_training(script):
    (job,) = parse_jobs("train.py[cores=1,gpu_percent=50] 'x3'")
    assert (job.cores, job.gpu_percent, job.arguments) == (1, 50.0, ("x3",))
    assert refusal("train.py[batch_size=3]") == [
        "job 1 of --jobs (train.py[batch_size=3]), field 'batch_size': it is unknown: choose one of device, cores, "
        "memory, gpu_percent, mig_profile. What is the script's own goes among its arguments."
    ]


def test_every_mistake_is_told_at_once_and_nothing_is_lost():
    found = refusal("dlmr:tour, speech, dlrm:tuor x2, dlrm[batch_szie=3,seed=x], nope.py, dlrm x0")
    assert found == [
        "--jobs: 6 mistakes to mend before anything can start:",
        "job 1 of --jobs (dlmr:tour): job 'dlmr' is unknown: did you mean 'dlrm'? A script's name ends in .py.",
        "job 3 of --jobs (dlrm:tuor x2): preset 'tuor' of dlrm is unknown: did you mean 'tour'?",
        "job 4 of --jobs (dlrm[batch_szie=3,seed=x]), field 'batch_szie': it is unknown: did you mean 'batch_size'?",
        "job 4 of --jobs (dlrm[batch_szie=3,seed=x]), field 'seed': 'x' is not a whole number: write one, such as 256.",
        "job 5 of --jobs (nope.py): there is no script nope.py: check the path, which counts from the working folder.",
        f"job 6 of --jobs (dlrm x0): 0 copies cannot be: give a whole number from 1 to {MOST_COPIES}.",
    ]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "there is no job in it: write jobs such as dlrm:tour x3"),
        ("dlrm,,speech", "job 2 of --jobs (): there is no job in it"),
        ("dlrm 'x", "' in \"dlrm 'x\" is not closed"),
        ("dlrm[seed=1", "[ in 'dlrm[seed=1' is not closed"),
        ("dlrm[seed]", "'seed' is no setting: write name=value in the brackets"),
        ("dlrm[seed=1,seed=2]", "it stands there twice"),
        ("dlrm x 3", "'x 3' is not understood after dlrm"),
        ("dlrm[max_epochs=0]", "max_epochs (--max-epochs) is 0: give a whole number above 0."),
        ("dlrm[target=78]", "write 0.78 for 78 %"),
        ("dlrm[max_seconds=nan]", "'nan' is not a number"),
        ("dlrm[target=good]", "target: 'good' is not a number: write a value such as 0.78"),
        ("dlrm[data=--x]", "expected one argument"),
        ("dlrm[precision=fp16]", "field 'precision': 'fp16' is unknown: did you mean 'bf16'?"),
        ("dlrm[runs_dir=x]", "field 'runs_dir': it is unknown"),
        ("dlrm[cores=0]", "cores is 0: give a whole number from 1."),
        ("dlrm[gpu_percent=101]", "gpu_percent is 101: give a number above 0 and up to 100."),
        ("dlrm[mig_profile=3g40]", "mig_profile '3g40' is no MIG profile: write one such as 3g.40gb"),
        ("dlrm[budget=half]", "the mode decides what a job may use"),
        ("dlrm:tour[preset=kaggle]", "the job names preset 'tour', too"),
        ("dlrm[optimiser=sgd]", "would not suit sgd: give one with --lr."),
        ("dlrm:kaggle", "name yours with --data"),
        ("dlrm x99999", "99999 copies cannot be"),
    ],
)
def test_a_mistake_names_its_item_and_the_fix(text, part):
    assert part in " ".join(refusal(text))


def test_plans_of_scripts_are_read_without_torch_pandas_and_arrow():
    code = (
        "import sys, labkit.collocation.plan.csv_plan, labkit.collocation.plan.yaml_plan as y, "
        f"labkit.collocation.plan.short_form as s; s.parse_jobs({__file__!r} + ' x2'); "
        "print({'torch', 'pandas', 'pyarrow'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"

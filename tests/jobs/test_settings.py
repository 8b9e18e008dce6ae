"""Settings of jobs, and a DLRM's shape."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from made_up import write_run
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from labkit.cli import build_parser
from labkit.cli.run import resumed_command
from labkit.errors import UserError
from labkit.jobs import JOBS, DlrmJob, ScriptJob, ShapeJob, SpeechJob, dlrm_shape, job_from_json, read_flags
from labkit.jobs.dlrm_shape import STEP, mark, mark_parts, part_shares
from labkit.jobs.launching import job_command
from labkit.json_data import build, to_json
from labkit.placement import Placement
from labkit.runs import read_metrics, read_run
from labkit.tracking import ScriptCommand, StopRequest, Target, run_command

RECORDED = json.loads((Path(__file__).parent / "recorded_configs.json").read_text())
"""Of runs of the version before runs recorded their settings (24 November), the information on their data apart"""
OTHERS = {"compiled_tables", "precision", "step_note"}
"""Recorded by the scripts themselves"""


@pytest.mark.parametrize(
    ("job", "fewest"),
    [
        (DlrmJob(), {}),
        (DlrmJob(batch_size=512, optimiser="adam", seed=3), {"seed": 3}),
        (DlrmJob(optimiser="adagrad", lr=0.002), {"optimiser": "adagrad", "lr": 0.002}),
        (DlrmJob(max_seconds=5.0), {"max_seconds": 5.0}),
        (SpeechJob(clip_norm=0.0, layers=2), {"clip_norm": 0.0, "layers": 2}),
        (SpeechJob(target="none"), {"target": Target.parse("min cer")}),
        (SpeechJob(target=0.05), {}),
        (DlrmJob(target=0.75), {"target": Target.parse("auc >= 0.75")}),
        (DlrmJob(target="log_loss=0.4512345678"), {"target": Target.parse("log_loss <= 0.4512345678")}),
        (DlrmJob(placement=Placement("cached", cache_rows="5%")), {"placement": "cached", "cache_rows": 0.05}),
        (ShapeJob(placement=Placement("disk", memory_cap="1MiB")), {"placement": "disk", "memory_cap": 2**20}),
    ],
    ids=str,
)
def test_a_job_crosses_as_the_fewest_settings_that_make_it(job, fewest):
    assert job.settings() == fewest
    assert job_from_json(json.loads(json.dumps(job.to_json()))) == job
    assert type(job).from_settings(read_flags(type(job), job.arguments)) == job, "its command line is equivalent"
    command = build(json.loads(json.dumps(to_json(job.command(cores=(1, 2))))), ScriptCommand)
    assert command == job.command(cores=(1, 2)) and command.settings == job.to_json()


def test_what_follows_from_a_setting_is_worked_out_again():
    assert DlrmJob(seed=2).with_settings(max_seconds=3.0) == DlrmJob(seed=2, max_seconds=3.0)
    assert [SpeechJob(clip_norm=norm).recorded()["clip_norm"] for norm in (None, 0.0, 1.5)] == [5.0, None, 1.5]
    script = ScriptJob("train.py", ("--seed", "{seed}"))
    assert job_from_json(script.to_json()) == script and script.takes_seed
    assert script.command().seeded(3).arguments == ("--seed", "3")


@pytest.mark.parametrize(
    ("kind", "settings", "field"),
    [
        *((DlrmJob, {"batch_size": size}, "batch_size") for size in (0, 0.5, "512")),
        (DlrmJob, {"lr": -1.0}, "lr"),
        (DlrmJob, {"max_seconds": 0.0}, "max_seconds"),
        *((DlrmJob, {"seed": seed}, "seed") for seed in (-1, True)),
        (DlrmJob, {"optimiser": "adagrad"}, "optimiser"),
        (DlrmJob, {"optimiser": "adagrd", "lr": 1.0}, "optimiser"),
        (DlrmJob, {"preset": "huge"}, "preset"),
        (DlrmJob, {"preset": "kaggle"}, "data"),
        (DlrmJob, {"schema": "clicks.toml"}, "schema"),
        *((DlrmJob, {"target": target}, "target") for target in ("1.2", "cer=0.1", "good", "min auc")),
        *((DlrmJob, {"compress": "hash", "compress_to": share}, "compress_to") for share in (0.0, 1.0)),
        (DlrmJob, {"compress_to": 0.5}, "compress_to"),
        (DlrmJob, {"compress": "hash", "compress_to": 0.5, "placement": "host"}, "compress"),
        (DlrmJob, {"cache_policy": "fifo", "placement": "cached"}, "cache_policy"),
        (DlrmJob, {"cache_policy": "lfu"}, "cache_policy"),
        (DlrmJob, {"placement": "cached", "cache_rows": "0%"}, "cache_rows"),
        (DlrmJob, {"placement": "cached", "memory_cap": "1GiB"}, "memory_cap"),
        (DlrmJob, {"placement": "disk", "memory_cap": "lots"}, "memory_cap"),
        (DlrmJob, {"placement": "host", "staleness": 1}, "staleness"),
        (DlrmJob, {"placement": "remote", "staleness": -1}, "staleness"),
        (DlrmJob, {"sizes": 1}, "sizes"),
        (SpeechJob, {"layers": 10**6}, "layers"),
        (SpeechJob, {"clip_norm": -1.0}, "clip_norm"),
        (SpeechJob, {"hidden": 16}, "hidden"),
        (SpeechJob, {"target": "5"}, "target"),
        (ShapeJob, {"num_tables": 0}, "num_tables"),
        (ShapeJob, {"seconds": -1}, "seconds"),
        (ShapeJob, {"zipf": -0.5}, "zipf"),
        (ShapeJob, {"placement": "cached", "cache_rows": 100, "num_rows": 3, "num_tables": 2}, "cache_rows"),
    ],
    ids=str,
)
def test_a_setting_that_cannot_be_names_its_field(kind, settings, field):
    with pytest.raises(UserError) as error:
        kind.from_settings(settings)
    assert error.value.field == field


def test_a_refusal_says_what_is_wrong_and_what_to_do():
    with pytest.raises(UserError, match=r"^lr \(--lr\) is -1\.0: give a number above 0\.$"):
        DlrmJob(lr=-1.0)
    with pytest.raises(UserError, match="is for tables that are remote, and these are host: omit it, or"):
        Placement("host", staleness=1)


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda recorded: " ".join(recorded["config"]["arguments"]))
def test_a_run_of_an_earlier_version_resumes_with_the_settings_that_it_recorded(recorded, tmp_path):
    name = recorded["config"]["job"]
    config = recorded["config"] | {"script": str(JOBS[name].script())}
    folder = write_run(tmp_path, [0.7], config=config, status="stopped", keeps=["model"])
    content = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(content | {"budget": recorded["budget"]}))
    command = resumed_command(build_parser("run").parse_args(["run", "--resume", str(folder)]), ["--max-epochs", "9"])
    job = JOBS[name].from_settings(command.settings["settings"])
    assert job.max_epochs == 9 and command.budget.cores == recorded["budget"]["cores"]
    now = json.loads(json.dumps(job.recorded()))
    before = {key: value for key, value in recorded["config"]["train"].items() if key not in OTHERS and key in now}
    schedule = {"schedule": before["schedule"]} if "schedule" in now else {}  # the script adds its length
    assert now | schedule == before
    assert str(job.target).rpartition(" ")[2] == str(recorded["config"]["train"]["target"])


OWN = '''
from dataclasses import dataclass
from typing import Literal
from labkit.jobs import Job, read_job

@dataclass(frozen=True)
class DigitsJob(Job):
    """Trains a CNN."""

    lr: float = 0.1
    """Learning rate"""
    kind: Literal["plain", "wide"] = "plain"
    fused: bool = False

job = read_job(DigitsJob)
print(job.all_settings(), job.arguments)
'''


def test_a_reader_s_own_dataclass_has_its_fields_as_flags(tmp_path):
    (tmp_path / "digits.py").write_text(OWN)

    def run(*arguments):
        return subprocess.run([sys.executable, "digits.py", *arguments], cwd=tmp_path, capture_output=True, text=True)

    said = run("--help").stdout
    assert "Trains a CNN." in said and "Learning rate (default: 0.1)" in said and "{plain,wide}" in said
    said = run("--lr", "1", "--fused").stdout
    assert said == "{'lr': 1.0, 'kind': 'plain', 'fused': True} ('--lr', '1.0', '--fused')\n"
    refused = run("--lrx", "1")
    assert refused.returncode == 2 and "unrecognized arguments: --lrx 1" in refused.stderr


SMALL = {"num_tables": 3, "num_rows": 50, "embedding_dim": 4, "mlp_width": 8, "mlp_depth": 1, "batch_size": 16}


class TwoParts(nn.Module):
    """One part has nearly all the arithmetic, forward and backward."""

    def __init__(self):
        super().__init__()
        self.heavy, self.light = nn.Linear(1500, 1500), nn.Linear(1500, 1)

    def forward(self, x):
        return self.light(torch.tanh(self.heavy(x)))


def shares_of_steps(slow: str) -> dict[str, float]:
    model, x = TwoParts(), torch.randn(400, 1500)
    mark_parts(model, {"heavy": "heavy", "light": "light"})
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        for _ in range(2):
            with record_function(STEP):
                model(x).sum().backward()
                with mark("optimiser"):
                    for _ in range(200 if slow == "optimiser" else 0):
                        torch.randn(300, 300) @ torch.randn(300, 300)
    return part_shares(seen.events(), joins="between")


@pytest.mark.quiet  # an interruption would count to a part
def test_a_part_has_its_forward_and_its_backward_pass():
    shares = shares_of_steps("model")
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["heavy"] > 0.5, "the backward pass alone is two thirds of its arithmetic"
    assert shares["light"] > 0
    assert shares["between"] > 0, "tanh stands between both, and its backward pass, too"


def test_what_runs_within_a_mark_counts_to_it():
    assert shares_of_steps("optimiser")["optimiser"] > 0.4 > shares_of_steps("model").get("optimiser", 0)


@pytest.mark.parametrize("where", [{"device": "cpu"}, {"placement": "cached"}, {"placement": "disk"}])
def test_a_run_tells_its_step_time_and_shares_also_of_tables_elsewhere(where, tmp_path, monkeypatch, no_sampler):
    monkeypatch.setenv("LABKIT_QUIET", "1")
    command = job_command(str(dlrm_shape.__file__), runs_dir=tmp_path, seconds=0.05, **where, **SMALL)
    answer = run_command(command, StopRequest(), lambda event: None)
    told = read_metrics([answer["folder"]]).set_index("name")["value"]
    assert "placement" not in where or told["placement_lookups"] > 0
    shares = told[told.index.str.startswith("share_")]
    assert set(shares.index) >= {"share_mlps", "share_embeddings", "share_interaction", "share_optimiser", "share_rest"}
    assert shares.sum() == pytest.approx(1)
    assert told["step_time_ms"] > 0
    config = read_run(answer["folder"]).config
    assert config["train"]["num_tables"] == 3 and config["model"]["num_rows"] == [50] * 3


@pytest.mark.parametrize("zipf", [0.0, 1.1])
def test_batches_have_the_shape_asked_for(zipf):
    (dense, categorical, label), *others = dlrm_shape.random_batches(ShapeJob(**SMALL, zipf=zipf, pooling_factor=5))
    assert (dense.shape, categorical.shape, label.shape) == ((16, 64), (16, 3, 5), (16,))
    assert len(others) == dlrm_shape.BATCHES - 1 and not torch.equal(others[0][1], categorical)
    assert categorical.min() >= 0 and categorical.max() < 50


def test_a_larger_exponent_names_fewer_rows():
    distinct = [
        dlrm_shape.random_batches(ShapeJob(num_rows=10_000, zipf=zipf, num_tables=1))[0][1].unique().numel()
        for zipf in (0.0, 0.8, 1.5)
    ]
    assert distinct == sorted(distinct, reverse=True) and distinct[0] > 2 * distinct[2]


def test_a_shape_that_memory_has_no_room_for_is_refused():
    with pytest.raises(UserError, match="free: give fewer tables"):
        ShapeJob(num_rows=10**12).refuse_too_large()


@pytest.mark.parametrize(
    ("more", "word"),
    [
        ({"optimiser": "rowwise-adagrad", "lr": 0.1}, "another optimiser"),
        ({"optimiser": "adam"}, "rowwise-adagrad"),
        ({"optimiser": "sgd", "lr": 0.1, "placement": "host"}, "--placement"),
        ({"optimiser": "sgd", "lr": 0.1, "compress": "hash", "compress_to": 0.5}, "--compress"),
    ],
)
def test_what_sharded_tables_cannot_do_is_refused_with_the_reason(more, word):
    assert DlrmJob(sharding="column", optimiser="sgd", lr=0.1).arguments[:2] == ("--optimiser", "sgd")
    with pytest.raises(UserError, match=word) as refused:
        DlrmJob.from_settings({"sharding": "column"} | more)
    assert refused.value.field == "sharding"

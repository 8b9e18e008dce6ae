"""Steps of a DLRM of any shape, and what its parts take of them."""

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from labkit.errors import UserError
from labkit.jobs import dlrm_shape
from labkit.jobs.dlrm_shape import STEP, mark, mark_parts, part_shares
from labkit.jobs.launching import job_command
from labkit.jobs.settings import ShapeJob
from labkit.runs import read_metrics, read_run
from labkit.tracking import StopRequest, run_command

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


def test_a_run_tells_its_step_time_and_shares(tmp_path, monkeypatch, no_sampler):
    monkeypatch.setenv("LABKIT_QUIET", "1")
    script = str(dlrm_shape.__file__)
    command = job_command(script, runs_dir=tmp_path, seconds=0.05, device="cpu", **SMALL)
    answer = run_command(command, StopRequest(), lambda event: None)
    told = read_metrics([answer["folder"]]).set_index("name")["value"]
    shares = told[told.index.str.startswith("share_")]
    assert set(shares.index) >= {"share_mlps", "share_embeddings", "share_interaction", "share_optimiser", "share_rest"}
    assert shares.sum() == pytest.approx(1)
    assert told["step_time_ms"] > 0
    config = read_run(answer["folder"]).config
    assert config["train"]["num_tables"] == 3 and config["model"]["num_rows"] == [50] * 3


@pytest.mark.parametrize("placement", ["cached", "disk"])
def test_tables_may_live_elsewhere(placement, tmp_path, monkeypatch, no_sampler):
    monkeypatch.setenv("LABKIT_QUIET", "1")
    command = job_command(str(dlrm_shape.__file__), runs_dir=tmp_path, seconds=0.05, placement=placement, **SMALL)
    told = read_metrics([run_command(command, StopRequest(), lambda event: None)["folder"]]).set_index("name")["value"]
    assert told["share_embeddings"] > 0
    assert told["placement_lookups"] > 0


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

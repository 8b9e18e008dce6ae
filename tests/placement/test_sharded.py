"""Sharded tables train what one process trains, whatever the sharding and the number of processes."""

import os
from functools import partial
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from processes import on_ranks

from labkit import UserError, hardware
from labkit.jobs import OPTIMISERS, dlrm, dlrm_sharded
from labkit.models import Dlrm, DlrmConfig
from labkit.placement import ShardedTables, refuse_unfused
from labkit.runs import read_metrics, read_run, run_folders
from labkit.telemetry import own_peak_bytes

needs_torchrec = pytest.mark.skipif(
    hardware.why_no_torchrec() is not None, reason="needs TorchRec: see `labkit doctor`"
)
of_the_soak = pytest.mark.skipif("LABKIT_SOAK" not in os.environ, reason="four processes: `make soak` runs it")
MODEL = DlrmConfig(3, (500, 3000, 40, 7), 16, (32, 16), (16, 1))
RATES = {"sgd": 0.5, "adagrad": 0.02, "rowwise-adagrad": 0.02}
WAYS = [(way, kind) for way in ("table", "row", "column", "data") for kind in RATES]
WAYS.remove(("column", "rowwise-adagrad"))
STEPS = 30
SAME = 1e-6
"""The sums of fp32 are taken in another order; eight times the largest difference ever seen"""


def batches(steps):
    """Batches of 61 samples, which two processes cannot share evenly."""
    generator = torch.Generator().manual_seed(7)
    for _ in range(steps):
        columns = [torch.randint(rows, (61, 1, 2), generator=generator) for rows in MODEL.num_rows]
        dense, label = torch.randn(61, 3, generator=generator), torch.rand(61, generator=generator).round()
        yield dense, torch.cat(columns, 1).int(), label


def sharded(way, kind):
    """The model, and its optimisers."""
    torch.manual_seed(3)
    how = {"sharding": way, "optimiser": kind, "lr": RATES[kind], "batch_size": 61, "free_bytes": 2**30}
    model = Dlrm(MODEL, tables=partial(ShardedTables, **how))
    mlps = torch.nn.ModuleDict({"bottom": model.bottom, "top": model.top})
    of_mlps = OPTIMISERS[kind][0](mlps.parameters(), lr=RATES[kind])
    model.bottom, model.top = map(torch.nn.parallel.DistributedDataParallel, mlps.values())
    return model, mlps, [each for each in (of_mlps, model.tables.whole) if each is not None]


def losses_of(model, optimisers, steps, share=None):
    """The loss of each step's whole batch."""
    losses = []
    for batch in steps:
        dense, categorical, label, weight = share(*batch) if share else (*batch, torch.full_like(batch[2], 1 / 61))
        logit = model(dense, categorical)
        loss = F.binary_cross_entropy_with_logits(logit, label, weight, reduction="sum")
        loss.backward()
        for each in optimisers:
            each.step()
            each.zero_grad()
        loss = loss.detach().clone()
        if share:
            dist.all_reduce(loss)
            loss /= dist.get_world_size()
        losses.append(loss)
    return torch.stack(losses)


def plain_losses(kind):
    torch.manual_seed(3)
    model = Dlrm(MODEL)
    return losses_of(model, dlrm.build_optimizers(model, kind, RATES[kind], "plain"), batches(STEPS))


def start(rank, ranks, folder, work, given):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet-{ranks}", rank=rank, world_size=ranks)
    found = work(*given)
    if rank == 0:
        torch.save(found, f"{folder}/found.pt")
    dist.barrier()
    os._exit(0)  # gloo may abort a process that closes its connections after the other one


def found_on(ranks, folder, work, *given):
    """What a function returns on the first of several processes."""
    on_ranks(ranks, start, ranks, str(folder), work, given)
    return torch.load(folder / "found.pt", weights_only=True)


def train_each(ways):
    found = {}
    for way in ways:
        model, _, optimisers = sharded(*way)
        found[way] = losses_of(model, optimisers, batches(STEPS), dlrm_sharded.share_of)
    return found


def train_half(way, kind, folder, first):
    """The losses of the first or the second 15 steps, which go on from a checkpoint; both write one."""
    model, mlps, optimisers = sharded(way, kind)
    run = SimpleNamespace(folder=folder, position=SimpleNamespace(step=first))
    shards = dlrm_sharded.Shards(model.tables, mlps, optimisers[0], run)
    if first:
        shards.load_state_dict({"step": first})
    losses = losses_of(model, optimisers, list(batches(first + 15))[first:], dlrm_sharded.share_of)
    run.position.step = first + 15
    shards.state_dict()
    return losses


@needs_torchrec
@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=of_the_soak)])
def test_every_sharding_on_several_processes_has_the_losses_of_one(tmp_path, ranks):
    found = found_on(ranks, tmp_path, train_each, WAYS)
    for way, kind in WAYS:
        torch.testing.assert_close(found[way, kind], plain_losses(kind), atol=SAME, rtol=0, msg=f"{way}, {kind}")


@needs_torchrec
def test_a_checkpoint_goes_on_with_another_sharding_and_number_of_processes(tmp_path):
    """Two processes and tables, then four and rows, then one and whole tables."""
    kind = "rowwise-adagrad"
    found = [
        found_on(ranks, tmp_path, train_half, way, kind, tmp_path, 15 * number)
        for number, (ranks, way) in enumerate([(2, "table"), (4, "row"), (1, "data")])
    ]
    torch.manual_seed(3)
    model = Dlrm(MODEL)
    whole = losses_of(model, dlrm.build_optimizers(model, kind, RATES[kind], "plain"), batches(45))
    torch.testing.assert_close(torch.cat(found), whole, atol=SAME, rtol=0)


@needs_torchrec
def test_a_checkpoint_that_cannot_be_read_is_named(tmp_path):
    with dlrm_sharded.process_group():
        model, mlps, optimisers = sharded("table", "sgd")
        run = SimpleNamespace(folder=tmp_path, position=SimpleNamespace(step=1))
        dlrm_sharded.Shards(model.tables, mlps, optimisers[0], run).state_dict()
        for shard in tmp_path.rglob("*.distcp"):
            shard.unlink()
        with pytest.raises(UserError, match="step-000000000001: these shards cannot be read from this checkpoint"):
            dlrm_sharded.Shards(model.tables, mlps, optimisers[0], run).load_state_dict({"step": 1})


@pytest.mark.parametrize("kernel", ["dense", "quant"])
def test_a_plan_that_would_drop_the_optimiser_is_refused(kernel):
    plan = {"table_0": SimpleNamespace(sharding_type="row_wise", compute_kernel=kernel)}
    with pytest.raises(UserError, match='compute_kernel="fused"'):
        refuse_unfused(plan)
    refuse_unfused({"table_0": SimpleNamespace(sharding_type="data_parallel", compute_kernel="dense")})


def grown_bytes():
    """The memory that the largest process takes for tables of 768 MB, sharded by rows, and a step."""
    import torchrec  # noqa: F401  so that it does not count

    before = own_peak_bytes()  # not ru_maxrss, which a process inherits from the one that started it
    rows = (1_500_000, 1_500_000, 1000, 1000)
    how = {"sharding": "row", "optimiser": "sgd", "lr": 0.1, "batch_size": 64, "free_bytes": 2**33}
    tables = ShardedTables(rows, 64, **how)
    for weight in tables.table_weights():
        weight.uniform_(-1, 1)
    tables(torch.zeros(16, 4, 2, dtype=torch.int32)).sum().backward()
    grown = torch.tensor(own_peak_bytes() - before)
    dist.all_reduce(grown, dist.ReduceOp.MAX)
    return grown


@needs_torchrec
@of_the_soak
def test_tables_too_large_for_a_process_fit_into_four(tmp_path):
    assert found_on(4, tmp_path, grown_bytes) < 0.6 * found_on(1, tmp_path, grown_bytes)


@needs_torchrec
def test_the_job_trains_on_two_processes_and_goes_on_in_one(tmp_path, cli):
    """With another sharding; its losses are those of the plain script."""
    command = "train dlrm --data synthetic-small --optimiser rowwise-adagrad --lr 0.02 --target none --precision fp32"
    cli(f"{command} --kernels plain --max-epochs 2 --runs-dir", tmp_path / "plain")
    cli(f"{command} --kernels plain --max-epochs 1 --nproc 2 --sharding row --runs-dir", tmp_path / "sharded")
    (folder,), (plain,) = (run_folders(tmp_path / name) for name in ("sharded", "plain"))
    assert set(read_run(folder).config["plan"].values()) == {"row_wise"}
    cli("run --nproc 1 --resume", folder, "--", "--sharding", "data", "--max-epochs", "2")
    record = read_run(folder)
    assert record.status == "done" and record.result["samples"] == 100_000
    metrics = read_metrics([folder, plain]).query("name == 'loss'").groupby("run")["value"]
    losses, right = metrics.get_group(folder.name).tolist(), metrics.get_group(plain.name).tolist()
    assert losses[:30] == pytest.approx(right[:30], abs=SAME)  # later a ReLU may be on the other side of 0
    assert losses == pytest.approx(right, abs=0.01)

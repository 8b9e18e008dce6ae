"""The kit's jobs on several processes train what one process trains."""

import os
import sys
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from processes import NoSampler, on_ranks

from labkit import UserError
from labkit.data.speech import Batch
from labkit.jobs import dlrm, job_command, speech, why_slower
from labkit.jobs.ranks import Company
from labkit.runs import read_metrics, read_run, run_folders

DLRM = ["--data", "synthetic-small", "--batch-size", "2047", "--max-epochs", "1", "--target", "none"]
DLRM += ["--precision", "fp32"]
SPEECH = ["--max-epochs", "2", "--batch-size", "5", "--target", "none"]
WAYS = {  # those of the prototype, and the one kernel that sums its gradients in another order
    "sgd": ["--optimiser", "sgd", "--lr", "0.3", "--kernels", "plain"],
    "adam": ["--optimiser", "adam", "--lr", "0.002", "--kernels", "plain"],
    "rowwise-adagrad": ["--optimiser", "rowwise-adagrad", "--lr", "0.02", "--kernels", "plain"],
    "fast": ["--optimiser", "rowwise-adagrad", "--lr", "0.02", "--kernels", "fast"],
}


def train(way: str, folder: Path, tones: Path) -> None:
    """Train as `python dlrm.py` or `python speech.py` does."""
    import labkit.telemetry

    labkit.telemetry.Sampler = NoSampler
    flags = [*DLRM, *WAYS[way]] if way in WAYS else [*SPEECH, "--data", str(tones)]
    sys.argv = ["train.py", *flags, "--runs-dir", str(folder / way)]
    (dlrm if way in WAYS else speech).main()


def train_rank(rank: int, way: str, folder: Path, tones: Path) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("error", FutureWarning)  # a user would read it from each rank
    sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115  the end of the process closes it
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2"}
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet-{way}", rank=rank, world_size=2)
    train(way, folder, tones)  # which ends by os._exit


@pytest.fixture(scope="module")
def trained(tmp_path_factory, tiny_speech):
    """The folders of one and of two processes."""
    one, two = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    for way in (*WAYS, "speech"):  # each in processes of its own, as users train
        on_ranks(2, train_rank, way, two, tiny_speech)
    patch = pytest.MonkeyPatch()
    with patch.context() as patched:
        patched.setattr(sys, "argv", [])
        patched.setattr("labkit.telemetry.Sampler", NoSampler)
        for way in WAYS:
            train(way, one, tiny_speech)
    return one, two


def read(folder: Path):
    (run,) = run_folders(folder)
    return read_run(run), read_metrics([run])


@pytest.mark.parametrize("way", WAYS)
def test_two_processes_train_the_dlrm_of_one(trained, way):
    (one, before), (two, after) = (read(folder / way) for folder in trained)
    assert (one.result["steps"], one.result["samples"]) == (two.result["steps"], two.result["samples"]) == (25, 50_000)
    for name in ("auc", "loss"):
        ours, theirs = (frame["value"][frame["name"] == name].to_numpy() for frame in (before, after))
        assert len(ours) == (25 if name == "loss" else 9)
        assert theirs == pytest.approx(ours, abs=1e-6), f"sums of float32 in another order differ by 3e-7: {name}"
    assert two.result["metrics"]["auc"] == pytest.approx(one.result["metrics"]["auc"], abs=1e-6)
    assert two.config["ranks"] == 2 and "ranks" not in one.config
    phases = two.result["ranks"][1]["phases_s"]
    assert {"forward", "backward", "optimiser"} <= phases.keys()
    assert all(total >= waited >= 0 for total, waited in phases.values())


def test_two_processes_train_a_recogniser(trained):
    record, metrics = read(trained[1] / "speech")
    assert (record.status, record.result["steps"], record.result["samples"]) == ("done", 2 * 4, 2 * 16)
    assert len(metrics.query("name == 'cer'")) >= 2


def shares_of(batch, monkeypatch, count=2):
    """The share of each rank, with its weight."""
    found = []
    for rank in range(count):
        monkeypatch.setattr("labkit.jobs.ranks.dist.get_rank", lambda rank=rank: rank)
        company = Company("cpu")
        company.count = count
        (share,) = company.share([batch])
        found.append((share, float(company.weight)))
    return found


def test_shares_are_a_batch_and_their_weighted_mean_is_its_mean(monkeypatch):
    numbers = torch.arange(5.0).square()
    texts = list("abcde")
    lengths = torch.arange(5)
    found = shares_of(Batch(numbers, lengths, numbers, lengths, texts), monkeypatch)
    assert [share.texts for share, _ in found] == [["a", "c", "e"], ["b", "d"]]
    assert sum(weight * share.features.mean() for share, weight in found) / 2 == numbers.mean()
    small = shares_of((numbers[:1], lengths[:1]), monkeypatch)
    assert [(len(share[0]), weight) for share, weight in small] == [(1, 1.0), (1, 1.0)]


def test_one_process_is_as_it_was():
    company, model, loader = Company("cpu"), torch.nn.Linear(1, 1), [1]
    assert (company.weight, company.parallel(model), company.share(loader)) == (None, model, loader)


def test_a_place_where_ranks_cannot_meet_is_named(monkeypatch):
    import socket

    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        for name, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(UserError, match=f"rank 0 on .* cannot meet the others at 127.0.0.1:{port}"):
            Company("cpu")


@pytest.mark.parametrize(("job", "count", "is_slower"), [("dlrm", 2, True), ("dlrm", 1, False), ("speech", 2, False)])
def test_where_several_processes_do_not_pay_it_is_said(job, count, is_slower):
    assert ("Omit --nproc" in why_slower(job_command(job, device="cpu"), count)) == is_slower

"""Sweeps on a real Slurm, which the tests start: each cell ends once, whatever is killed or preempted meanwhile."""

import socket
import sys
from collections import Counter
from pathlib import Path

import psutil
import pytest
from processes import wait_for
from slurm_cluster import slurm, slurm_cluster, steps, why_not

from labkit.launch import read_progress, read_sweep, read_sweep_file
from labkit.runs import readable_runs, run_folders

# its cells wait for cores that tests beside it hold, for longer than a test waits
pytestmark = [pytest.mark.quiet, pytest.mark.skipif(bool(why_not()), reason=why_not())]

TRAIN = """
import argparse, time, torch, labkit
flags = argparse.ArgumentParser()
flags.add_argument("--lr", type=float)
flags.add_argument("--seed", type=int)
args = flags.parse_args()
torch.manual_seed(args.seed)
x = torch.randn(256, 8)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
with labkit.Run("line", config={"lr": args.lr}, seed=args.seed) as run:
    run.keep(model=model, optimizer=optimizer)
    for epoch in run.epochs(20):
        loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.step(loss, samples=256)
        time.sleep(0.1)
        run.evaluate(error=loss.item())
"""
ACROSS = """
import time, torch, torch.distributed as dist, labkit
dist.init_process_group("gloo")
with labkit.Run("across") as run:
    for _ in range(5):
        total = torch.ones(1)
        dist.all_reduce(total)
        run.step(total.item(), samples=1)
dist.destroy_process_group()
"""


def records(runs):
    return [record for _, record in readable_runs(run_folders(runs))]


def queue_and_logs(runs):
    """What Slurm and its tasks say of a sweep."""
    logs = [f"{path.name}: {path.read_text()[-3000:]}" for path in sorted(runs.glob("sweeps/*/logs/*.log"))]
    return "\n".join([slurm("squeue"), slurm("sinfo"), *logs])


def ended(file, runs):
    """Wait until the queue is empty; how many cells there are in each state."""
    wait_for(lambda: not slurm("squeue", "-h"), lambda: queue_and_logs(runs))
    progress = read_progress(read_sweep_file(file), runs)
    return Counter(part.status for part in progress.launches.parts.values())


def assert_nothing_is_left(folder: Path):
    left = []
    for process in psutil.process_iter(["environ", "name", "status"]):
        is_ours = (process.info["environ"] or {}).get("SLURM_CONF", "").startswith(str(folder))
        left += [process.info["name"]] * (is_ours and process.info["status"] != psutil.STATUS_ZOMBIE)
    assert not left and not steps()


@pytest.mark.usefixtures("light_cells")
def test_twelve_cells_of_which_one_is_killed_and_all_are_preempted_end_once_each(write, runs, tmp_path, cli):
    cells = "cells:\n  - {ends: crashes-once}\n  - {ends: done}\ngrid: {x: [1, 2, 3, 4, 5, 6]}\n"
    file = write(f"{cells}settings: {{takes: 1, saves: 1}}\nbudget: ['cores=1']\n")
    with slurm_cluster(tmp_path / "slurm", cpus=12):
        said = cli("sweep --executor slurm --slurm --partition=nope --runs-dir", runs, file, status=2).text
        assert "sbatch: invalid partition specified: nope; " in said and "correct --slurm" in said
        said = cli("sweep --executor slurm --slurm -plow --at-most 12 --runs-dir", runs, file).text
        assert "Submitted to Slurm as 1: `scancel 1` stops it. In Slurm's queue: 12 of its tasks." in said
        assert "Submitted" not in cli("sweep --executor slurm --runs-dir", runs, file).out, "they are in the queue"
        wait_for(
            lambda: sum(path.stat().st_size for path in runs.glob("*/checkpoint/latest.pt")) > 2,
            lambda: queue_and_logs(runs),
        )
        assert "running" in cli("sweep --dry-run --runs-dir", runs, file).out
        slurm("sbatch", "--partition=high", "--exclusive", "--output=/dev/null", "--wrap=true")  # preempts all
        whole = write("grid: {x: [1]}\n", "whole.yaml")  # meanwhile
        cli("sweep --executor slurm --slurm --cpus-per-task=1 --runs-dir", tmp_path / "whole", whole)
        assert ended(file, runs) == {"done": 12}
        assert ended(whole, tmp_path / "whole") == {"done": 1}
        log = "".join(path.read_text() for path in runs.glob("sweeps/s/logs/slurm-1_*.log"))
        assert log.count("DUE TO PREEMPTION") == 12
        assert "Submitted" not in cli("sweep --executor slurm --runs-dir", runs, file).out
    assert [record.budget["name"] for record in records(tmp_path / "whole")] == ["one-core"], "as Slurm gave it"
    cells = Counter(record.config["sweep"]["cell"] for record in records(runs) if record.status == "done")
    assert len(cells) == 12 and set(cells.values()) == {1}
    statuses = Counter(record.status for record in records(runs))
    for folder, record in readable_runs(run_folders(runs)):
        if record.status == "interrupted":  # preempted before its first checkpoint, and begun again
            assert not (folder / "checkpoint" / "latest.pt").exists()
            statuses["interrupted"] -= 1
    statuses = +statuses
    assert statuses == {"done": 12, "failed": 6}, "what was preempted went on in its folder"
    assert {record.result["samples"] for record in records(runs) if record.status == "done"} == {10}
    assert_nothing_is_left(tmp_path)


def test_a_cell_that_was_preempted_has_the_results_of_one_that_ran_here(write, runs, tmp_path, cli):
    file = write("grid: {lr: [0.01]}\nseeds: [3]\nbudget: ['cores=1']\n")
    (tmp_path / "train.py").write_text(TRAIN)
    with slurm_cluster(tmp_path / "slurm"):
        cli("sweep --executor slurm --runs-dir", runs, file)
        wait_for(lambda: [*runs.glob("*/checkpoint/latest.pt")], lambda: queue_and_logs(runs))
        slurm("sbatch", "--partition=high", "--exclusive", "--output=/dev/null", "--wrap=true")
        cli("sweep --runs-dir", tmp_path / "here", file)  # meanwhile
        assert ended(file, runs) == {"done": 1}
    (log,) = runs.glob("sweeps/s/logs/slurm-*.log")
    assert "PREEMPTION" in log.read_text() and "sampler" not in log.read_text(), "it heeds no signal that is the job's"
    there, here = read_sweep(file, runs), read_sweep(file, tmp_path / "here")
    same = ["lr", "budget", "seed", "state", "provenance", "samples", "loss", "error_logged"]
    assert there[same].equals(here[same]) and list(there) == list(here)
    (folder,) = run_folders(runs)
    assert "resumed" in (folder / "events.jsonl").read_text()
    assert_nothing_is_left(tmp_path)


def test_torchrun_across_two_nodes_is_one_run(runs, tmp_path):
    (tmp_path / "across.py").write_text(ACROSS)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--rdzv-backend=c10d", "--rdzv-id=1"]
    with slurm_cluster(tmp_path / "slurm", nodes=2, cpus=1):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        slurm("srun", "-N2", "-n2", f"--chdir={tmp_path}", *torchrun, f"--rdzv-endpoint=127.0.0.1:{port}", "across.py")
    (record,) = records(runs)
    assert (record.status, record.result["steps"]) == ("done", 5)

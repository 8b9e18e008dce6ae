"""Trains a DLRM whose tables TorchRec shards over processes: `labkit train dlrm --sharding row`, or under torchrun.

The MLPs are data-parallel. Losses are those of one process.
"""

import contextlib
import shutil
from collections.abc import Generator, Iterable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn.parallel import DistributedDataParallel

import labkit
from labkit import UserError, runs, tracking
from labkit.data.clicks import ClickBatches, load_clicks
from labkit.fast import autocast, chosen_precision
from labkit.jobs.dlrm import EVALUATIONS_PER_EPOCH, OPTIMISERS, WATCHED_ROWS, build_model, evaluate
from labkit.jobs.job import read_job
from labkit.jobs.ranks import Company
from labkit.jobs.settings import DlrmJob, memory_for_tables
from labkit.models import DlrmConfig
from labkit.placement import ShardedTables, described


def share_of(*tensors: Tensor) -> tuple[Tensor, ...]:
    """This process' samples of a batch, and their weights, whose mean over the processes gives the batch's mean.

    All shares are equally large, as TorchRec needs them: the last sample fills up a share, with weight 0.
    """
    rank, world, samples = dist.get_rank(), dist.get_world_size(), len(tensors[0])
    rows = torch.arange(rank, -(-samples // world) * world, world)
    return *(tensor[rows.clamp(max=samples - 1)] for tensor in tensors), (rows < samples) * (world / samples)


class Together(nn.Module):
    """The logits of a batch, of which each process computes a share."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, dense: Tensor, categorical: Tensor) -> Tensor:
        with torch.inference_mode(False), torch.no_grad():  # TorchRec's exchanges refuse tensors of inference mode
            own = self.model(*share_of(dense, categorical)[:2])
        shares = [torch.empty_like(own) for _ in range(dist.get_world_size())]
        dist.all_gather(shares, own)
        return torch.stack(shares, 1).flatten()[: len(dense)]


class Shards:
    """Checkpoints of a sharded model: each process writes its part, and any number of processes read them."""

    keeps_best, saves_together = False, True

    def __init__(self, tables: ShardedTables, mlps: nn.Module, of_mlps: torch.optim.Optimizer, run: labkit.Run):
        self._tables, self._mlps, self._of_mlps, self._run, self._saved = tables, mlps, of_mlps, run, -1
        self._folder = run.folder / "checkpoint" / "sharded"

    def state_dict(self) -> dict[str, Any]:
        """Write a checkpoint together with the other processes; a run's own checkpoint names its step."""
        if self._saved != (step := self._run.position.step):
            self._folder.mkdir(parents=True, exist_ok=True)
            with runs.disk_full_as_user_error(self._folder), first_failure():
                dcp.save(self._content(), checkpoint_id=self._of(step))
            self._saved = step
            _remove(sorted(self._folder.glob("step-*"))[:-2])  # the run's own may still name the one before
        return {"step": step}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        path, content = self._of(saved["step"]), self._content()
        try:
            with first_failure():
                dcp.load(content, checkpoint_id=path)
        except Exception as error:
            raise UserError(
                f"{path}: these shards cannot be read from this checkpoint ({type(error).__name__}: {error}): restore "
                "its files, resume with the --sharding that wrote it, or start a new run."
            ) from error
        set_state_dict(self._mlps, self._of_mlps, model_state_dict=content["mlps"], optim_state_dict=content["optim"])
        self._saved = saved["step"]
        _remove(later for later in self._folder.glob("step-*") if later.name > path.name)

    def _content(self) -> dict[str, Any]:
        # an optimiser's own state_dict numbers the weights, and has no place for a state that no step has made yet
        mlps, optim = get_state_dict(self._mlps, self._of_mlps)
        return {"tables": self._tables.shards(), "mlps": mlps, "optim": optim}

    def _of(self, step: int) -> Path:
        return self._folder / f"step-{step:012d}"


def _remove(folders: Iterable[Path]) -> None:
    for folder in folders if dist.get_rank() == 0 else ():
        shutil.rmtree(folder)


@contextlib.contextmanager
def first_failure() -> Generator[None]:
    """Raise what failed first; DCP's own exception has the failures of all processes, and is no Exception."""
    try:
        yield
    except dcp.api.CheckpointException as error:
        raise next(iter(error.failures.values()))[0] from error


@contextlib.contextmanager
def process_group() -> Generator[None]:
    """The processes that a launcher has started, or this one alone."""
    company, status = Company("cpu"), 0
    if alone := not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    except SystemExit as ending:
        status = ending.code if isinstance(ending.code, int) else 1
    if alone:
        dist.destroy_process_group()
    company.leave(status)
    if status:
        raise SystemExit(status)


def train(job: DlrmJob) -> None:
    """Train as `labkit.jobs.dlrm` does, with the tables sharded."""
    # settings
    preset = job.preset_values
    if (device := labkit.device("cpu" if job.device == "auto" else job.device)) != "cpu":
        raise UserError(f"--sharding trains on CPUs, and --device is {device}: omit one of the two.", field="device")
    precision, why = chosen_precision(job.precision, device)

    # data
    options: dict[str, Any] = {} if preset.max_num_rows is None else {"max_rows_per_table": preset.max_num_rows}
    options |= {"schema": job.schema, "on_bad_row": job.on_bad_row, "progress": tracking.tell_preparing}
    log = load_clicks(job.data, **options)
    training, validation = log.split("train"), log.split("validation").spread(WATCHED_ROWS)
    job = job.fitted(len(training))
    batches = ClickBatches(training, job.batch_size, job.seed)

    # model and optimisers
    config = DlrmConfig(len(log.dense_names), log.table_rows, **preset.model)
    torch.manual_seed(job.seed)
    free_bytes = memory_for_tables(job.placement)[1]
    how = {"sharding": job.sharding, "optimiser": job.optimiser, "lr": job.lr, "batch_size": job.batch_size}
    model = build_model(config, job.kernels, partial(ShardedTables, **how, free_bytes=free_bytes))
    mlps = nn.ModuleDict({"bottom": model.bottom, "top": model.top})
    of_mlps = OPTIMISERS[job.optimiser][0](mlps.parameters(), lr=job.lr)
    for name, mlp in mlps.items():
        setattr(model, name, DistributedDataParallel(mlp))
    optimizers = [each for each in (of_mlps, model.tables.whole) if each is not None]
    together = Together(model)
    about = described(job.placement, config.num_rows, job.optimiser, config.embedding_dim)
    own = {"precision": precision, "plan": model.tables.plan, "tables": about, "step_note": why}
    settings = job.run_settings(log, len(training), EVALUATIONS_PER_EPOCH, model=asdict(config), **own)
    with labkit.Run("dlrm", **settings) as run:
        run.keep(model=Shards(model.tables, mlps, of_mlps, run))
        for _ in run.epochs(job.max_epochs):
            for batch in run.batches(batches):
                dense, categorical, label, weight = share_of(*batch)
                with run.phase("forward"), autocast(precision, device):
                    logit = model(dense, categorical).float()
                    loss = F.binary_cross_entropy_with_logits(logit, label, weight, reduction="sum")
                with run.phase("backward"):
                    loss.backward()  # which also updates the shards
                with run.phase("optimiser"):
                    for optimizer in optimizers:
                        optimizer.step()
                        optimizer.zero_grad()
                own, all_samples = int(weight.count_nonzero()), len(batch[0])
                mean = loss.detach() * all_samples / (max(own, 1) * dist.get_world_size())  # of this share
                run.step(mean, samples=own)
                if run.due:
                    run.evaluate(**evaluate(together, validation, precision, device))
        if run.load_best():
            run.test(**evaluate(together, log.split("test"), precision, device))


def main() -> None:
    job = read_job(DlrmJob)
    with process_group():
        train(job.with_settings(sharding=job.sharding or "auto"))


if __name__ == "__main__":
    main()

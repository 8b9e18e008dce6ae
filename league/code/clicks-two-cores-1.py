"""Trains a DLRM on a click log to a target AUC: `python dlrm.py`, `labkit train dlrm`, or a copy of yours."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import labkit
from labkit import UserError
from labkit.compiled import why_not_compiled
from labkit.data.clicks import ClickBatches, click_metrics, in_order, load_clicks
from labkit.fast import EmbeddingTables, PairwiseProducts, autocast, chosen_precision, fast_optimisers, quick_optimiser
from labkit.jobs.job import read_job
from labkit.jobs.ranks import Company
from labkit.jobs.settings import DlrmJob
from labkit.models import CompressedTables, Dlrm, DlrmConfig, RowwiseAdagrad, TableAFeature
from labkit.placement import PlacedOptimiser, PlacedTables, ahead, described, placed_tables
from labkit.tracking import tell_preparing

EVALUATIONS_PER_EPOCH = 10
"""More would locate a crossing more closely, and take a larger share of the run"""
WATCHED_ROWS = 20_480
"""Most validation rows of one evaluation, evenly spaced and the same each time: enough to see the curve rise"""
EVALUATION_ROWS = 2048
"""Rows of a forward pass in an evaluation; on a CPU its results then stay in the cache"""
OPTIMISERS = {
    "sgd": (torch.optim.SGD, torch.optim.SGD),
    "adagrad": (torch.optim.Adagrad, torch.optim.Adagrad),
    "rowwise-adagrad": (torch.optim.Adagrad, RowwiseAdagrad),
    "adam": (torch.optim.Adam, torch.optim.SparseAdam),
}
"""One class for the weights of the MLPs, and one for tables, whose gradients are sparse"""


def build_model(config: DlrmConfig, kernels: str, tables: Callable[..., nn.Module] = EmbeddingTables) -> Dlrm:
    """The model; the same seed gives the same weights for either kernels, and for tables in any place."""
    if kernels == "fast":
        return Dlrm(config, tables=tables, interaction=PairwiseProducts)
    return Dlrm(config, tables=tables) if tables is not EmbeddingTables else Dlrm(config)


def chosen_tables(job: DlrmJob, device: str) -> Callable[..., nn.Module]:
    """Tables in their place with a row for each category, or compressed ones on the device."""
    if job.compress == "none":
        return placed_tables(job.placement, job.optimiser, device=device, folder=job.runs_dir)
    tables = EmbeddingTables if job.kernels == "fast" else TableAFeature
    return partial(CompressedTables, method=job.compress, share=job.compress_to, tables=tables)


def build_optimizers(model: Dlrm, name: str, lr: float, kernels: str) -> list[Any]:
    dense = [*model.bottom.parameters(), *model.top.parameters()]
    dense_kind, table_kind = OPTIMISERS[name]
    if isinstance(model.tables, PlacedTables):
        of_dense = quick_optimiser(dense_kind, dense, lr) if kernels == "fast" else dense_kind(dense, lr=lr)
        return [of_dense, PlacedOptimiser(model.tables, lr)]
    if kernels == "fast":
        return fast_optimisers(OPTIMISERS[name], dense, getattr(model.tables, "stored", model.tables), lr)
    return [dense_kind(dense, lr=lr), table_kind(list(model.tables.parameters()), lr=lr)]


def loss_of(model: nn.Module, batch: Sequence[Tensor]) -> Tensor:
    """The mean binary cross-entropy of (dense (B, D), categorical (B, F, L), label (B,))."""
    dense, categorical, label = batch
    return F.binary_cross_entropy_with_logits(model(dense, categorical).float(), label)


@torch.inference_mode()
def evaluate(model: nn.Module, split, precision: str, device: str) -> dict[str, float]:
    """AUC and the other metrics of all rows of a split."""
    model.eval()
    logits = []
    with autocast(precision, device):
        for dense, categorical, _ in in_order(split, EVALUATION_ROWS):
            logits.append(model(dense.to(device), categorical.to(device)).float().cpu())
    model.train()
    return click_metrics(split.label, torch.cat(logits).numpy())


def main() -> None:
    # settings
    job = read_job(DlrmJob)
    if job.sharding is not None:
        from labkit.jobs import dlrm_sharded  # which imports from here

        return dlrm_sharded.main()
    preset = job.preset_values
    device = labkit.device(job.device)
    company = Company(device)
    precision, why = chosen_precision(job.precision, device)

    # data
    options: dict[str, Any] = {} if preset.max_num_rows is None else {"max_rows_per_table": preset.max_num_rows}
    log = load_clicks(job.data, schema=job.schema, on_bad_row=job.on_bad_row, progress=tell_preparing, **options)
    train, validation = log.split("train"), log.split("validation").spread(WATCHED_ROWS)
    job = job.fitted(len(train))
    batches = company.share(ClickBatches(train, job.batch_size, job.seed))

    # model and optimiser
    config = DlrmConfig(len(log.dense_names), log.table_rows, **preset.model)
    job.refuse_large_tables(config)
    torch.manual_seed(job.seed)
    model = build_model(config, job.kernels, chosen_tables(job, device)).to(device)
    optimizers = build_optimizers(model, job.optimiser, job.lr, job.kernels)
    forward = company.parallel(model)
    is_placed = isinstance(model.tables, PlacedTables)
    if is_placed and company.count > 1:
        raise UserError(
            f"--placement {job.placement.kind} with {company.count} processes: each of them would train tables of its "
            "own. Use --placement device, or --sharding, which divides the tables among them."
        )
    stored_rows = [len(weight) for weight in model.tables.table_weights()]
    settings = job.run_settings(
        log,
        len(train),
        EVALUATIONS_PER_EPOCH,
        model=asdict(config),
        precision=precision,
        compiled_tables=job.kernels == "fast" and device == "cpu" and not is_placed and why_not_compiled() is None,
        tables=described(job.placement, stored_rows, job.optimiser, config.embedding_dim),
        step_note=why,
    )
    with labkit.Run("dlrm", **settings) as run:
        run.keep(model=model, dense=optimizers[0], tables=optimizers[1])
        for _ in run.epochs(job.max_epochs):
            for batch in run.batches(ahead(model.tables, batches)):
                with run.phase("host-to-device"):
                    batch = [tensor.to(device, non_blocking=True) for tensor in batch]
                with run.phase("forward"), autocast(precision, device):
                    loss = loss_of(forward, batch)
                with run.phase("backward"):
                    loss.backward(company.weight)
                with run.phase("optimiser"):
                    for optimizer in optimizers:
                        optimizer.step()
                        optimizer.zero_grad()
                run.step(loss, samples=company.counts * len(batch[0]))
                if run.due:
                    run.evaluate(**evaluate(model, validation, precision, device))

        if is_placed:
            run.log(**model.tables.metrics())

        # the test split is touched once, with the weights that were best on the validation split
        if run.load_best():
            run.test(**evaluate(model, log.split("test"), precision, device))
    company.leave()


if __name__ == "__main__":
    main()

"""A step of one of the kit's jobs with plain kernels, of tensors that have shapes and no memory.

Shapes: B batch, D dense features, F tables, L pooling factor, T frames.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from labkit.data.clicks import load_clicks
from labkit.fast import autocast
from labkit.jobs import DlrmJob, SpeechJob, dlrm, speech
from labkit.models import Dlrm, DlrmConfig, SpeechModel


@dataclass(frozen=True)
class PlainStep:
    """What to call under torch's FakeTensorMode."""

    job: DlrmJob | SpeechJob
    model: Callable[[], nn.Module]
    loss: Callable[[nn.Module], Tensor]
    """The loss of a batch, which each call makes again"""
    optimisers: Callable[[nn.Module], list[torch.optim.Optimizer]]
    lookups: int = 0
    """Lookups in embedding tables"""


def plain_step(job: DlrmJob | SpeechJob) -> PlainStep:
    """The step that a job takes; its data is prepared if it was not."""
    build = {"name": job.optimiser, "lr": job.lr, "kernels": "plain"}
    if isinstance(job, DlrmJob):
        most_rows = job.preset_values.max_num_rows
        options = {} if most_rows is None else {"max_rows_per_table": most_rows}
        log = load_clicks(job.data, schema=job.schema, on_bad_row=job.on_bad_row, **options)
        config = DlrmConfig(len(log.dense_names), log.table_rows, **job.preset_values.model)
        bags = job.batch_size, config.num_tables, log.pooling_factor  # (B, F, L)

        def click_loss(model: nn.Module) -> Tensor:
            dense, label = torch.empty(job.batch_size, config.dense_dim), torch.empty(job.batch_size)
            with autocast(job.precision, "cpu"):
                return dlrm.loss_of(model, (dense, torch.empty(bags, dtype=torch.int32), label))

        optimisers = functools.partial(dlrm.build_optimizers, **build)
        return PlainStep(job, lambda: Dlrm(config), click_loss, optimisers, torch.Size(bags).numel())
    data, shape, _ = speech.load_data(job)
    frames = int(max(data.split("train").lengths))  # at random, nearly every batch has one of the longest

    def speech_loss(model: nn.Module) -> Tensor:
        with autocast(job.precision, "cpu"):
            features, lengths = torch.empty(job.batch_size, frames, shape.mel_bins), torch.empty(job.batch_size)
            return model(features, lengths.long())[0].sum()  # the sizes of a CTC loss depend on its batch's values

    return PlainStep(
        job, lambda: SpeechModel(shape), speech_loss, lambda model: [speech.build_optimizer(model, **build)]
    )

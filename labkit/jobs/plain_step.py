"""A step of one of the kit's jobs with plain kernels, of tensors that have shapes and no memory.

Shapes: B batch, D dense features, F tables, L pooling factor, T frames.
"""

from __future__ import annotations

import functools
import importlib
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from labkit.data.clicks import load_clicks
from labkit.fast import autocast
from labkit.jobs.flags import job_flags, read_arguments
from labkit.models import Dlrm, DlrmConfig, SpeechModel


@dataclass(frozen=True)
class PlainStep:
    """What to call under torch's FakeTensorMode."""

    settings: Namespace
    """Of the job's script"""
    model: Callable[[], nn.Module]
    loss: Callable[[nn.Module], Tensor]
    """Of a batch, made anew"""
    optimisers: Callable[[nn.Module], list[torch.optim.Optimizer]]
    lookups: int = 0
    """In embedding tables"""


def plain_step(job: str, arguments: Sequence[str]) -> PlainStep:
    """The step that a job takes with these arguments of its script; its data is prepared if it was not."""
    script = importlib.import_module(f"labkit.jobs.{job}")
    args, preset = read_arguments(job_flags(job), arguments)
    build = {"name": args.optimiser, "lr": args.lr, "kernels": "plain"}
    if job == "dlrm":
        options = {} if preset.max_num_rows is None else {"max_rows_per_table": preset.max_num_rows}
        log = load_clicks(args.data, schema=args.schema, on_bad_row=args.on_bad_row, **options)
        config = DlrmConfig(len(log.dense_names), log.table_rows, **preset.model)
        bags = args.batch_size, config.num_tables, log.pooling_factor  # (B, F, L)

        def click_loss(model: nn.Module) -> Tensor:
            dense, label = torch.empty(args.batch_size, config.dense_dim), torch.empty(args.batch_size)
            with autocast(args.precision, "cpu"):
                return script.loss_of(model, (dense, torch.empty(bags, dtype=torch.int32), label))

        optimisers = functools.partial(script.build_optimizers, **build)
        return PlainStep(args, lambda: Dlrm(config), click_loss, optimisers, torch.Size(bags).numel())
    speech, shape, _ = script.load_data(args, preset)
    frames = int(max(speech.split("train").lengths))  # at random, nearly every batch has one of the longest

    def speech_loss(model: nn.Module) -> Tensor:
        with autocast(args.precision, "cpu"):
            features, lengths = torch.empty(args.batch_size, frames, shape.mel_bins), torch.empty(args.batch_size)
            return model(features, lengths.long())[0].sum()  # the sizes of a CTC loss depend on its batch's values

    return PlainStep(
        args, lambda: SpeechModel(shape), speech_loss, lambda model: [script.build_optimizer(model, **build)]
    )

"""One training step and one evaluation of a job, walked through with tensors that have shapes and no memory.

Torch's FakeTensorMode computes every result's shape on its `meta` device while tensors keep the device that they stand
for, so autocast and the model choose the ways that they would choose with real ones.

Shapes: B batch, F tables, L pooling factor, T frames, S characters, V alphabet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily

from labkit.collocation.memory.job_shape import ClickShape, SpeechShape
from labkit.collocation.memory.storage_log import StorageLog, room
from labkit.collocation.memory.table_update import PredictedUpdate
from labkit.fast.models import fast_dlrm, fast_speech
from labkit.models.dlrm import Dlrm, DlrmConfig
from labkit.models.speech import SpeechConfig, SpeechModel
from labkit.fast.tables import EmbeddingTables
from labkit.training.clicks_job import EVALUATION_ROWS
from labkit.training.config import TrainConfig
from labkit.training.optimisers import Optimisers
from labkit.training.request import TrainRequest
from labkit.training.step import StepKind

GPU_GRANULARITY = 512
"""Bytes that torch's caching allocator rounds every allocation up to (docs.pytorch.org, CUDA semantics)."""


@dataclass(frozen=True)
class ShapedJob:
    """A job that is all shapes: what `Job` is to the loop, this is to the walk."""

    model: nn.Module
    """Made under FakeTensorMode"""
    batch: Callable[[], Any]
    """Makes a training batch"""
    loss: Callable[[Any], Tensor]
    evaluate: Callable[[], Any]
    """Takes the evaluation's forward pass over its largest piece"""
    num_rows: tuple[int, ...] = ()
    """Of the embedding tables"""


@dataclass(frozen=True)
class Walked:
    """What the walk saw at the moment when most was held; bytes."""

    parameters: int
    gradients: int
    optimiser: int
    activations: int
    temporary: int
    phase: str
    """In which the peak lies: forward, backward, update or evaluation"""

    @property
    def total(self) -> int:
        return self.parameters + self.gradients + self.optimiser + self.activations + self.temporary


def walk(request: TrainRequest, shape: ClickShape | SpeechShape, kind: StepKind, device: str, threads: int) -> Walked:
    """Walk through two steps, the second with the optimiser's state in place, and an evaluation.

    Args:
        request: what is to be trained.
        shape: of its data.
        kind: how a step computes.
        device: "cpu" or "cuda"; a torch without CUDA has shapes of the CPU's ways only, and walks those for both.
        threads: of the compiled table update.
    """
    config = request.train_config(shape.train_samples)
    on_gpu = device == "cuda"
    place = torch.device("cuda" if on_gpu and torch.backends.cuda.is_built() else "cpu")
    log = StorageLog(GPU_GRANULARITY if on_gpu else 1)
    with FakeTensorMode(), torch.device(place), log:
        log.phase = "parameters"
        job = shaped_job(request, shape, config.batch_size, place)
        log.phase = "optimiser"
        way = "sparse" if on_gpu or config.grad_clip_norm else ("compiled" if kind.compiled_tables else "plain")
        optimisers, tables = _optimisers(job, config, way, threads)
        kept = {"parameters": log.numbers([*job.model.parameters(), *job.model.buffers()])}
        for step in range(2):
            if step == 1:
                log.mark("second step")
            gradients = _step(job, optimisers, kind, place, log)
        state = [value for part in optimisers.parts for each in part.state.values() for value in each.values()]
        state = [value for value in state if isinstance(value, Tensor)] + (tables.state if tables else [])
        kept |= {"optimiser": log.numbers(state), "gradients": gradients}
        log.phase = "evaluation"
        job.model.eval()
        with torch.no_grad(), kind.autocast(place):
            evaluated = job.evaluate()
        held, phase = log.at_peak("second step")
        del evaluated
    return _sorted_out(log, held, phase, kept)


def _step(job: ShapedJob, optimisers: Optimisers, kind: StepKind, place: torch.device, log: StorageLog) -> set[int]:
    """Take one step as `TrainStep` does; return where the gradients lie."""
    log.phase = "forward"
    batch = job.batch()
    with kind.autocast(place):
        loss = job.loss(batch)
    log.mark("forward done")
    log.phase = "backward"
    loss.backward()
    gradients = [parameter.grad for parameter in job.model.parameters() if parameter.grad is not None]
    for module in job.model.modules():
        if isinstance(module, EmbeddingTables):
            gradients.append(module._bags[1])
    places = log.numbers(gradients)
    del gradients
    log.phase = "update"
    optimisers.step(0)
    return places


def _optimisers(
    job: ShapedJob, config: TrainConfig, way: str, threads: int
) -> tuple[Optimisers, PredictedUpdate | None]:
    """The dense parameters' own optimiser, and for the tables a stand-in that knows the sizes only."""
    tables = next((module for module in job.model.modules() if isinstance(module, EmbeddingTables)), None)
    if tables is None:
        return Optimisers(job.model, (), config, total_steps=1), None
    dense = nn.ParameterList(parameter for parameter in job.model.parameters() if parameter is not tables.weight)
    tables.keeps_bags = True
    optimisers = Optimisers(dense, (), config, total_steps=1)
    stand_in = PredictedUpdate(tables, job.num_rows, config.optimiser, way, threads)
    plain_step = optimisers.step

    def step(index: int) -> None:
        plain_step(index)
        stand_in.step()

    optimisers.step = step
    return optimisers, stand_in


def _sorted_out(log: StorageLog, held: set[int], phase: str, kept: dict[str, set[int]]) -> Walked:
    """Share out what is held at the peak; what the forward pass left for the backward pass are activations."""
    parts = {name: held & numbers for name, numbers in kept.items()}
    rest = held - set().union(*parts.values())
    activations = rest & log.held_at("forward done")
    parts |= {"activations": activations, "temporary": rest - activations}
    return Walked(**{name: log.bytes_of(numbers) for name, numbers in parts.items()}, phase=phase)


def shaped_job(
    request: TrainRequest, shape: ClickShape | SpeechShape, batch_size: int, place: torch.device
) -> ShapedJob:
    """The job of a request as shapes; to be called under FakeTensorMode."""
    if isinstance(shape, ClickShape):
        return _clicks(request, shape, batch_size, place)
    return _speech(request, shape, place)


def _clicks(request: TrainRequest, shape: ClickShape, batch_size: int, place: torch.device) -> ShapedJob:
    config = DlrmConfig(dense_dim=shape.dense_dim, num_rows=shape.num_rows, **request.chosen_preset.model)
    model = _shaped(lambda: fast_dlrm(config), place)

    def batch_of(rows: int) -> tuple[Tensor, Tensor, Tensor]:
        categorical = torch.empty(rows, config.num_tables, shape.pooling_factor, dtype=torch.int32)
        return torch.empty(rows, shape.dense_dim), categorical, torch.empty(rows)

    def loss(batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:  # that of ClicksJob
        dense, categorical, label = batch
        return F.binary_cross_entropy_with_logits(model(dense, categorical).float(), label)

    def evaluate() -> tuple:
        batch = batch_of(min(EVALUATION_ROWS, shape.validation_samples))
        return batch, model(*batch[:2]).float()

    size = min(batch_size, shape.train_samples)
    return ShapedJob(model, lambda: batch_of(size), loss, evaluate, shape.num_rows)


def _speech(request: TrainRequest, shape: SpeechShape, place: torch.device) -> ShapedJob:
    model = _shaped(
        lambda: fast_speech(SpeechConfig(vocabulary=shape.vocabulary, **request.chosen_preset.model)), place
    )
    characters = shape.longest[2]

    def batch_of(utterances: int, frames: int) -> tuple[Tensor, Tensor]:
        features = torch.empty(utterances, frames, model.config.mel_bins)
        return features, torch.empty(utterances, dtype=torch.int64)

    def loss(batch: tuple[Tensor, Tensor]) -> Tensor:
        log_probabilities, _ = model(*batch)
        return _CtcLoss.apply(log_probabilities.transpose(0, 1), characters)

    def evaluate() -> tuple:
        batch = batch_of(*shape.evaluated)
        return batch, model(*batch)[0].argmax(2)

    return ShapedJob(model, lambda: batch_of(*shape.longest[:2]), loss, evaluate)


class _CtcLoss(torch.autograd.Function):
    """Takes the room of torch's CTC loss on a CPU, whose own shapes cannot be had without the lengths' values.

    It keeps the log of alpha, (B, T', 2 S + 1), and makes that of beta and the gradient going back (aten, LossCTC.cpp).
    """

    @staticmethod
    def forward(ctx: Any, log_probabilities: Tensor, characters: int) -> Tensor:
        outputs, utterances, _ = log_probabilities.shape
        ctx.save_for_backward(log_probabilities)
        ctx.alpha = room(4 * utterances * outputs * (2 * characters + 1))
        return log_probabilities.new_empty(())

    @staticmethod
    def backward(ctx: Any, _) -> tuple[Tensor, None]:
        (log_probabilities,) = ctx.saved_tensors
        beta = room(sum(each.numel() for each in ctx.alpha))
        gradient = torch.empty_like(log_probabilities)
        del beta
        return gradient, None


def _shaped(make: Callable[[], nn.Module], place: torch.device) -> nn.Module:
    """A model of shapes on a device; made on `meta` first, where modules may be moved as their constructors like."""
    with unset_fake_temporarily(), torch.device("meta"):
        model = make()
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            setattr(module, name, nn.Parameter(_like(parameter, place)))
        for name, buffer in list(module.named_buffers(recurse=False)):
            module._buffers[name] = _like(buffer, place)
    return model


def _like(tensor: Tensor, place: torch.device) -> Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=place)

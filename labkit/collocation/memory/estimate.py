"""How much memory a job will take, known before it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from labkit.training.request import TrainRequest

if TYPE_CHECKING:
    import pandas as pd

    from labkit.collocation.memory.job_shape import ClickShape, SpeechShape
    from labkit.collocation.memory.walk import Walked
    from labkit.training.step import StepKind

METHODS = ("ours", "torch's tracker", "Horus' formula")
HEAP_SLACK_BYTES = 64 << 20
"""What glibc's malloc keeps of freed memory at the end of its heap before it gives some back: twice the largest size
that it learns to serve from there, 32 MiB (mallopt(3), M_MMAP_THRESHOLD and M_TRIM_THRESHOLD on 64-bit systems)."""
SEGMENT_BYTES = 2 << 20
"""torch's caching allocator asks a GPU for memory in multiples of this (docs.pytorch.org, CUDA semantics)."""
CUDA_CONTEXT_BYTES = 512 << 20
"""Assumed, not measured: what a process holds on a GPU beside tensors, the context and loaded kernels. It differs from
GPU to GPU and with what was called: pytorch/pytorch#86509 tells of 287 MB with kernels loaded when they are needed and
667 MB without, #109888 of about 400 MB."""


@dataclass(frozen=True)
class MemoryEstimate:
    """Predicted; the first five are held at the moment when most is held, and make up `tensors_bytes`."""

    parameters_bytes: int
    """Weights and buffers"""
    gradients_bytes: int
    """Of weights, and of the bags whose rows are still to be updated"""
    optimiser_bytes: int
    """The optimiser's state"""
    activations_bytes: int
    """What the forward pass leaves for the backward pass, the batch among it"""
    temporary_bytes: int
    """All else"""
    tensors_bytes: int
    """Peak of all tensors together"""
    process_bytes: int
    """What the process takes of the device: on a CPU Python, libraries, tensors and the data that it maps, all of which
    the system counts as its memory once it is touched; more than that where operators leave room untouched, as oneDNN's
    LSTM does; on a GPU tensors and an assumed CUDA context"""
    peak: str
    """The phase that the peak lies in: forward, backward, update or evaluation"""
    kind: str
    """Of the step; of several that a run would choose from, the one that takes most"""
    notes: tuple[str, ...] = ()
    """What is assumed or left out, in words"""


def estimate_memory(request: TrainRequest, *, device: str = "cpu") -> MemoryEstimate:
    """Predict a training job's memory by walking through it with tensors that have shapes and no memory.

    Data is prepared if it is neither generated nor prepared yet, as a run would; of it only sizes are read.

    Args:
        request: what is to be trained. Where precision or table update are left to be chosen by speed, the way that
            takes most counts.
        device: "cpu" or "cuda".

    Raises:
        UserError: the request's data cannot be used.
    """
    import torch

    shape = shape_of(request)
    found = [(kind, _walked(request, shape, kind, device)) for kind in step_kinds(request, device)]
    kind, walked = max(found, key=lambda each: each[1].total)
    if device == "cpu":
        from labkit.collocation.memory.process_base import base_bytes

        slack = min(HEAP_SLACK_BYTES, walked.activations + walked.temporary)
        process = walked.total + slack + base_bytes(request.job, kind.compiled_tables) + shape.mapped_bytes
        notes = ["the part of Python and its libraries is measured on this machine, with a model of no size"]
    else:
        process = -(-walked.total // SEGMENT_BYTES) * SEGMENT_BYTES + CUDA_CONTEXT_BYTES
        notes = [f"{CUDA_CONTEXT_BYTES >> 20} MiB for the CUDA context are assumed, not measured"]
        if not torch.backends.cuda.is_built():
            notes.append("this torch knows no CUDA: the step was walked through as a CPU takes it")
    return MemoryEstimate(
        parameters_bytes=walked.parameters,
        gradients_bytes=walked.gradients,
        optimiser_bytes=walked.optimiser,
        activations_bytes=walked.activations,
        temporary_bytes=walked.temporary,
        tensors_bytes=walked.total,
        process_bytes=process,
        peak=walked.phase,
        kind=str(kind),
        notes=tuple(notes),
    )


def estimates(request: TrainRequest) -> pd.DataFrame:
    """What three methods predict for the tensors of a job on a CPU.

    Returns:
        Columns method, predicted (bytes), kind (of the step that was looked at).
    """
    import pandas as pd

    from labkit.collocation.memory.horus import horus_estimate
    from labkit.collocation.memory.tracker import tracked_bytes

    shape, ours = shape_of(request), estimate_memory(request)
    kind = next(each for each in step_kinds(request, "cpu") if str(each) == ours.kind)
    predicted = [ours.tensors_bytes, tracked_bytes(request, shape, kind), horus_estimate(request, shape)]
    return pd.DataFrame({"method": METHODS, "predicted": predicted, "kind": ours.kind})


def shape_of(request: TrainRequest) -> ClickShape | SpeechShape:
    """The sizes that decide a job's memory."""
    from labkit.collocation.memory.job_shape import click_shape, speech_shape

    return click_shape(request) if request.job == "dlrm" else speech_shape(request)


def step_kinds(request: TrainRequest, device: str) -> list[StepKind]:
    """The kinds of step that a run of this request could choose from here."""
    from labkit.compiled import why_not_compiled
    from labkit.training.step import StepKind

    precisions = ("fp32", "bf16") if request.precision == "auto" else (request.precision,)
    ways = {None: (False, True), True: (True,), False: (False,)}[request.compiled_tables]
    clips = request.chosen_preset.train.get("grad_clip_norm") is not None
    if request.job != "dlrm" or device != "cpu" or clips or (ways != (False,) and why_not_compiled()):
        ways = (False,)
    return [StepKind(precision, compiled) for precision in precisions for compiled in ways]


def _walked(request: TrainRequest, shape: ClickShape | SpeechShape, kind: StepKind, device: str) -> Walked:
    import torch

    from labkit.collocation.memory.walk import walk

    return walk(request, shape, kind, device, threads=torch.get_num_threads())

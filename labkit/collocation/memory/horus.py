"""Horus' formula for the memory of a training job (Yeung et al., IEEE TPDS 33(1), 2022, doi 10.1109/TPDS.2021.3079202).

The formula is taken as the authors of CARMA (arXiv 2508.19073) compute it, not from Horus' own text, which was not at
hand: repository itu-rad/CARMA, commit e044017, `workloads/ehsan-horus_estimator.py` (function process_model_files) and
the last lines of `workloads/dlrm.model`:

    (A·B + P) + B·P  numbers of 4 bytes

with A activations of a sample, summed over the outputs of all layers, P parameters, which are also the gradients, and B
samples a batch. For CARMA's DLRM A = 5,768, P = 909,313 and B = 32,768: 29,986,283,521 numbers, printed there as
111.8 GiB (it is 111.7), where 1.47 GB were measured. It counts a gradient of every parameter for every sample.

What follows here is ours: which layers count (modules without children, and for a recogniser the longest batch).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves

from labkit.collocation.memory.job_shape import ClickShape, SpeechShape
from labkit.collocation.memory.walk import shaped_job
from labkit.training.request import TrainRequest

NUMBER = 4
"""Bytes, whatever the precision."""


def horus_bytes(activations: int, parameters: int, batch_size: int) -> int:
    """Bytes that a job takes, by Horus' formula.

    >>> horus_bytes(activations=10, parameters=3, batch_size=2)  # (20 + 3 + 6) numbers
    116

    Args:
        activations: numbers that the layers put out for one sample.
        parameters: numbers that are trained.
        batch_size: samples a step.
    """
    return NUMBER * (activations * batch_size + parameters + batch_size * parameters)


def horus_estimate(request: TrainRequest, shape: ClickShape | SpeechShape) -> int:
    """Bytes that a request's job takes, by Horus' formula."""
    batch_size = request.train_config(shape.train_samples).batch_size
    with FakeTensorMode():
        job = shaped_job(request, shape, batch_size, torch.device("cpu"))
        put_out = layer_outputs(job.model, lambda: job.loss(job.batch()))
        parameters = sum(parameter.numel() for parameter in job.model.parameters())
    return horus_bytes(put_out // batch_size, parameters, batch_size)


def layer_outputs(model: nn.Module, forward) -> int:
    """Numbers in the outputs of all layers, modules without children, during a call of `forward`."""
    counts: list[int] = []

    def count(module: nn.Module, inputs: tuple, output) -> None:
        first = next(leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor))  # not a recurrent layer's state
        counts.append(first.numel())

    hooks = [
        module.register_forward_hook(count) for module in model.modules() if not any(True for _ in module.children())
    ]
    forward()
    for hook in hooks:
        hook.remove()
    return sum(counts)

"""A job's memory by formula, for one that is too large to be tried.

    parameters + gradients + optimiser states + activations of a step + the gradient of the largest activation

all held at once, as they nearly are when the backward pass begins. Dense gradients are as large as their parameters; of
an embedding table only the rows that a batch names have one, each with its number. Activations are what autograd keeps
of the forward pass for the backward pass, found by walking through that with tensors that have shapes and no memory.
What operators take while they run, and what the data takes, is not in it.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from labkit.jobs.memory import OPTIMISER_STATES
from labkit.jobs.plain_step import PlainStep

NUMBER, ROW_NUMBER = 4, 8
"""Bytes of an fp32 number, and of a row's place in a sparse gradient"""


def formula(step: PlainStep) -> dict[str, int]:
    """Predicted bytes of a job's tensors, by the terms above: their sum is the prediction."""
    kept: dict[int, Tensor] = {}  # by storage; the tensors themselves, so that no number is given twice

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage()._cdata] = tensor
        return tensor

    with FakeTensorMode(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model = step.model()
        loss = step.loss(model)
    own = {each.untyped_storage()._cdata for each in [*model.parameters(), *model.buffers()]}
    activations = [each.untyped_storage().nbytes() for place, each in kept.items() if place not in own]
    del loss
    parameters = gradients = sum(each.nbytes for each in model.parameters())
    if step.lookups:
        gradients -= sum(each.nbytes for each in model.tables.parameters())
        gradients += step.lookups * (NUMBER * model.config.embedding_dim + ROW_NUMBER)
    return {
        "parameters": parameters,
        "gradients": gradients,
        "optimiser": OPTIMISER_STATES[step.settings.optimiser] * parameters,
        "activations": sum(activations),
        "gradient of the largest": max(activations),
    }

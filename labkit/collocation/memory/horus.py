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

from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves

from labkit.jobs.plain_step import PlainStep

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


def horus_estimate(step: PlainStep) -> int:
    """Bytes that a job takes, by Horus' formula."""
    put_out: list[int] = []

    def count(module: nn.Module, inputs: tuple, output) -> None:
        first = next(leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor))  # not a recurrent layer's state
        put_out.append(first.numel())

    with FakeTensorMode():
        model = step.model()
        for module in model.modules():
            if not any(True for _ in module.children()):
                module.register_forward_hook(count)
        step.loss(model)
        parameters = sum(parameter.numel() for parameter in model.parameters())
    return horus_bytes(sum(put_out) // step.settings.batch_size, parameters, step.settings.batch_size)

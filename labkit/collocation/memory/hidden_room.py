"""What some of torch's operators take on a CPU beyond the results whose shapes they tell.

Found by comparing the shapes that FakeTensorMode knows with torch.profiler's allocations (torch 2.13, oneDNN on a CPU
with AVX-512). Each is checked against measured peaks by `benchmarks/memory_estimates.py`.

Shapes: T steps, B batch, H hidden, I input.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten
FLOAT = 4


def complete(function: Any, args: tuple, result: Any) -> tuple[Any, list[int]]:
    """The result with the room it really has, and sizes in bytes of what is taken while the operator runs."""
    first = result[0] if isinstance(result, tuple) else result
    if not isinstance(first, Tensor) or first.device.type != "cpu":
        return result, []
    if function is aten.gather.default and first.dtype.itemsize == 2:
        return result, [FLOAT * first.numel()]  # 16-bit numbers are gathered into fp32 first
    if function is aten.mkldnn_rnn_layer.default:
        layer_input, weights = args[0], args[1:3]
        hidden, training = args[10], args[15]
        if training:
            workspace = torch.empty(lstm_workspace_bytes(layer_input, hidden), dtype=torch.uint8)
            result = (*result[:3], workspace)
        return result, [*_reordered(weights), _gates_bytes(layer_input, hidden)]
    if function is aten.mkldnn_rnn_layer_backward.default:
        layer_input, weights = args[0], args[1:3]
        sizes = [*_reordered(weights), _gates_bytes(layer_input, args[6].shape[-1])]
        if layer_input.dtype.itemsize == 2:
            sizes += [FLOAT * weight.numel() for weight in weights]  # their gradients, which oneDNN makes in fp32
        return result, sizes
    return result, []


def lstm_workspace_bytes(layer_input: Tensor, hidden: int) -> int:
    """What oneDNN keeps of an LSTM layer (T, B, I) for its backward pass.

    Gates and outputs of each step in the layer's precision, and ten states a step and one more: four in the layer's
    precision, six in fp32. Without the rounding of each part to 4096 bytes.
    """
    steps, batch, _ = layer_input.shape
    size = layer_input.dtype.itemsize
    return batch * hidden * (5 * size * steps + (4 * size + 6 * FLOAT) * (steps + 1))


def _gates_bytes(layer_input: Tensor, hidden: int) -> int:
    """In fp32 the four gates of all steps come from one product."""
    steps, batch, _ = layer_input.shape
    return 4 * FLOAT * steps * batch * hidden if layer_input.dtype == torch.float32 else 0


def _reordered(weights: tuple[Tensor, ...]) -> list[int]:
    """Weights, laid out as oneDNN wants them."""
    return [weight.numel() * weight.dtype.itemsize for weight in weights]

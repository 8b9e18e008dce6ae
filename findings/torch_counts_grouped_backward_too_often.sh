#!/usr/bin/env bash
# torch counts a backward pass of a grouped convolution as 1 + g times the forward pass.
# Guess: 2 times, whatever the groups: the gradient of the input and that of the weights take as many products each.
# Seen: 3 at 2 groups, 9 at 8; the weights' gradient is counted as if there were one group. So the FLOPs of a depthwise network
# come out far too high. Source: https://github.com/pytorch/pytorch/blob/v2.13.0/torch/utils/flop_counter.py
# labkit: counts convolutions itself (labkit/profiling/work.py).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0+cpu --extra-index-url https://download.pytorch.org/whl/cpu
cd "$folder"
venv/bin/python - <<'PYTHON'
import torch
from torch.utils.flop_counter import FlopCounterMode

ratios = {}
for groups in (1, 2, 8):
    layer = torch.nn.Conv2d(8, 8, 3, groups=groups, bias=False)
    with FlopCounterMode(display=False) as forward:
        loss = layer(torch.rand(1, 8, 16, 16, requires_grad=True)).sum()
    with FlopCounterMode(display=False) as backward:
        loss.backward()
    ratios[groups] = backward.get_total_flops() / forward.get_total_flops()
print(f"torch {torch.__version__}: backward by forward, by groups: {ratios}")
raise SystemExit(ratios != {1: 2.0, 2: 3.0, 8: 9.0})
PYTHON

#!/usr/bin/env bash
# torch counts no FLOPs of an LSTM on a CPU.
# Guess: 8 T B H (I + H): four gates multiply input and state at each of T times, as an LSTM cell in a loop does.
# Seen: 0, and as many as guessed with oneDNN switched off. On a CPU the layer is one operator of oneDNN's,
# mkldnn_rnn_layer, for which the counter has no formula, and it counts such an operator as nothing, without a word:
# https://github.com/pytorch/pytorch/blob/v2.13.0/torch/utils/flop_counter.py
# labkit: counts recurrent layers itself (labkit/profiling/work.py).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0+cpu --extra-index-url https://download.pytorch.org/whl/cpu
cd "$folder"
venv/bin/python - <<'PYTHON'
import torch
from torch.utils.flop_counter import FlopCounterMode

steps, batch, inputs, hidden = 10, 4, 32, 64
layer, sequence = torch.nn.LSTM(inputs, hidden), torch.rand(steps, batch, inputs)
counted = {}
for enabled in (True, False):
    with torch.backends.mkldnn.flags(enabled=enabled), FlopCounterMode(display=False) as counter:
        layer(sequence)
    counted[enabled] = counter.get_total_flops()
print(f"torch {torch.__version__}: FLOPs with oneDNN and without: {list(counted.values())}")
raise SystemExit(list(counted.values()) != [0, 8 * steps * batch * hidden * (inputs + hidden)])
PYTHON

#!/usr/bin/env bash
# numpy.ma.masked.item() is 0.0.
# Guess: item() of a masked value is None, as in tolist(), or NaN, as in float(); or it raises an error.
# Seen: it is the number under the mask, 0.0 for numpy.ma.masked, without a warning. The mean of a column without any
# valid value is numpy.ma.masked, so a loss or metric that calls item() on it becomes a perfect 0.
# labkit: a masked number is refused by name where it comes in (labkit/tracking/values.py).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check numpy==2.4.6
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np

mean = np.ma.masked_invalid([np.nan, np.nan]).mean()
print(f"numpy {np.__version__}: mean {mean!r}, item() {mean.item()!r}, float() {float(mean)}, tolist() {mean.tolist()!r}")
raise SystemExit(mean.item() != 0.0 or not np.isnan(float(mean)))
PYTHON

#!/usr/bin/env bash
# A sum of float32 in a function that numba compiled is 9 % too large.
# Guess: np.sum in @njit is NumPy's sum within rounding, some parts in a million.
# Seen: of ten million times 0.1 it is 1,087,937, and NumPy's is 1,000,000. NumPy adds in pairs, numba one number after
# the other into a float32: https://github.com/numba/numba/blob/0.68.1/numba/np/arraymath.py (array_sum)
# labkit: kernels add a few rows at a time, and may regroup sums (labkit/fast/compiled_tables.py); a mean over many rows
# is NumPy's or torch's.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check numba==0.68.1 numpy==2.4.6
cd "$folder"
venv/bin/python - <<'PYTHON'
import numba
import numpy as np


@numba.njit
def summed(values):
    return np.sum(values)


values = np.full(10_000_000, 0.1, np.float32)
found, expected = float(summed(values)), float(values.sum())
print(f"numba {numba.__version__}, numpy {np.__version__}: {found:,.0f} in @njit, {expected:,.0f} by NumPy")
raise SystemExit(not (found > 1.05e6 and abs(expected - 1e6) < 10))
PYTHON

#!/usr/bin/env bash
# isinstance(numpy.timedelta64(3, "s"), numbers.Integral) is true, and int() of it fails.
# Guess: a duration is no integer, or int() gives its number of units.
# Seen: timedelta64 inherits from signedinteger, which NumPy registers as Integral. int() calls item(), which is a
# datetime.timedelta for seconds (TypeError), and an integer for nanoseconds (3000000000).
# labkit: durations and times of NumPy are written as text before anything asks for numbers (labkit/tracking/values.py).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check numpy==2.4.6
"$folder/venv/bin/python" - <<'PYTHON'
import numbers

import numpy as np

seconds = np.timedelta64(3, "s")
error = None
try:
    int(seconds)
except TypeError as failure:
    error = str(failure)
exact = int(seconds.astype("timedelta64[ns]"))
print(f"numpy {np.__version__}: Integral {isinstance(seconds, numbers.Integral)}; int(): {error}; of nanoseconds {exact}")
raise SystemExit(not isinstance(seconds, numbers.Integral) or error is None)
PYTHON

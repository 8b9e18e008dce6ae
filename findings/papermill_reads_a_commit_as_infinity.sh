#!/usr/bin/env bash
# papermill writes the commit 12e4567 into a notebook as infinity, and the student 007 as 7.
# Guess: -p makes a number of what Python would read as one in its source; 007 and 2026_11_30 stay texts, as does a hash.
# Seen: float('inf'), 7 and 20261130, without a word; -r keeps the text. Each value is tried by int() and float(), which
# take zeros in front, underscores and any exponent: https://github.com/nteract/papermill/blob/2.7.0/papermill/cli.py
# labkit: gives parameters by papermill's function in Python, where a text stays one (labkit_course/runner.py).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check papermill==2.7.0
cd "$folder"
cat > in.ipynb <<'NOTEBOOK'
{"cells": [], "metadata": {"kernelspec": {"name": "python3", "language": "python", "display_name": "Python"}}, "nbformat": 4, "nbformat_minor": 4}
NOTEBOOK
venv/bin/papermill in.ipynb out.ipynb --prepare-only --log-level ERROR \
    -p commit 12e4567 -p student 007 -p day 2026_11_30 -r kept 12e4567
venv/bin/python - <<'PYTHON'
import importlib.metadata
import json

(cell,) = json.load(open("out.ipynb"))["cells"]
lines = "".join(cell["source"]).splitlines()[1:]
print(f"papermill {importlib.metadata.version('papermill')}: {lines}")
raise SystemExit(lines != ["commit = float('inf')", "student = 7", "day = 20261130", 'kept = "12e4567"'])
PYTHON

#!/usr/bin/env bash
# jupytext turns a comment that begins with cp, ls, cat or echo into code.
# Guess: "# cat is an animal" stays a comment, whatever its first word.
# Seen: the cell has `cat is an animal`, which Python cannot parse. Commands of a shell are commented in scripts, and back.
# Source: https://github.com/mwouts/jupytext/blob/v1.19.6/src/jupytext/magics.py
# labkit: `labkit course build` refuses such a comment (labkit_course/gate.py).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check jupytext==1.19.6
cd "$folder"
venv/bin/python - <<'PYTHON'
import jupytext

made = {}
for comment in ("# cat is an animal", "# echo of a signal", "# the cat is an animal"):
    notebook = jupytext.reads(f"# %%\nx = 1\n{comment}\ny = 2\n", fmt="py:percent")
    made[comment] = notebook.cells[0].source.splitlines()[1]
print(f"jupytext {jupytext.__version__}: {made}")
raise SystemExit(list(made.values()) != ["cat is an animal", "echo of a signal", "# the cat is an animal"])
PYTHON

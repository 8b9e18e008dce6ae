#!/usr/bin/env bash
# The last trace of torch's profiler has a step in which nothing ran.
# Guess: a trace of schedule(wait=1, warmup=1, active=3) has three steps, in each cycle.
# Seen: after 8 steps the trace has two, the second of some microseconds, so a mean is half of a step's time. After 7 it
# has this step alone, and replaces the trace before it where the handler writes to one file. Each step() opens the next
# ProfilerStep, the last one, too: https://github.com/pytorch/pytorch/blob/v2.13.0/torch/profiler/profiler.py
# labkit: leaves a last step without operators out (recorded_steps in labkit/profiling/step_time.py).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-compile torch==2.13.0
cd "$folder"
venv/bin/python - <<'PYTHON'
import json
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule

matrix = torch.rand(200, 200)
products = {}
for taken in (5, 7, 8):
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=1, warmup=1, active=3),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace("trace.json"),
    ) as profiler:
        for _ in range(taken):
            matrix @ matrix
            profiler.step()
    events = [event for event in json.loads(Path("trace.json").read_text())["traceEvents"] if event["ph"] == "X"]
    products[taken] = {
        step["name"]: sum(
            event["name"] == "aten::mm" and step["ts"] <= event["ts"] < step["ts"] + step["dur"] for event in events
        )
        for step in events
        if step["name"].startswith("ProfilerStep#")
    }
print(f"torch {torch.__version__}: products in each step of the last trace, by steps taken: {products}")
raise SystemExit([[*each.values()] for each in products.values()] != [[1, 1, 1], [0], [1, 0]])
PYTHON

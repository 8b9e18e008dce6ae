#!/usr/bin/env bash
# One number that is logged late takes all later steps of its curve from TensorBoard.
# Guess: TensorBoard shows each number at its step, in whatever order they were logged.
# Seen: of steps 0 to 99, then 10 once more, it shows 11 steps; with --load_fast false all 101 numbers, as its
# EventAccumulator does. The loader that pip installs takes a step back for a job that began again, and so shows one number
# of those logged without a step: https://github.com/tensorflow/tensorboard/blob/2.21.0/tensorboard/data/server/reservoir.rs
# labkit: an import keeps every number unless the file says that a job began again (labkit/bridges/tensorboard_runs.py).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-compile tensorboard==2.21.0
cd "$folder"
venv/bin/python - <<'PYTHON'
import json
import time
import urllib.request

import tensorboard
from tensorboard import default, program
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

writer = EventFileWriter("logs")
for tag, steps in (("late", [*range(100), 10]), ("without", [0] * 50), ("end", [0])):
    for step in steps:
        value = Summary.Value(tag=tag, simple_value=0.5)
        writer.add_event(Event(step=step, wall_time=time.time(), summary=Summary(value=[value])))
writer.close()
shown = {}
for fast in ("auto", "false"):
    board = program.TensorBoard(default.get_plugins())
    board.configure(argv=["", "--logdir", "logs", "--port", "0", "--load_fast", fast])
    pages = board.launch() + "data/plugin/scalars/"
    for _ in range(60):
        time.sleep(0.5)
        if "end" in json.load(urllib.request.urlopen(pages + "tags")).get(".", {}):
            break
    shown[fast] = [len(json.load(urllib.request.urlopen(f"{pages}scalars?run=.&tag={tag}"))) for tag in ("late", "without")]
print(f"tensorboard {tensorboard.__version__}: numbers shown, of 101 and of 50 without a step, by load_fast: {shown}")
raise SystemExit(shown != {"auto": [11, 1], "false": [101, 50]})
PYTHON

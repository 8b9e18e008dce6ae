#!/usr/bin/env bash
# TensorBoard does not show scalars of 64 bits, as torch's SummaryWriter logs them with double_precision.
# Guess: it shows 16,777,217, which 32 bits cannot hold, as it is.
# Seen: there is no such tag; with --load_fast false there is, with 64 bits. The loader that pip installs and TensorBoard
# takes by itself knows one type of scalar tensors, DT_FLOAT, and leaves out others without a word: tensor_proto_to_scalar
# in https://github.com/tensorflow/tensorboard/blob/2.21.0/tensorboard/data/server/data_compat.rs
# labkit: `labkit runs import` reads such numbers with all their bits (labkit/bridges/tensorboard_runs.py).
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
from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.summary.writer.event_file_writer import EventFileWriter

TOKENS = 2**24 + 1
# what torch's add_scalar(tag, TOKENS, 1, new_style=True, double_precision=...) writes, without the time to install torch
metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="scalars"))
writer = EventFileWriter("logs")
for tag, tensor in (
    ("double", TensorProto(double_val=[TOKENS], dtype="DT_DOUBLE")),
    ("single", TensorProto(float_val=[TOKENS], dtype="DT_FLOAT")),
):
    value = Summary.Value(tag=tag, tensor=tensor, metadata=metadata)
    writer.add_event(Event(step=1, wall_time=time.time(), summary=Summary(value=[value])))
writer.close()
shown = {}
for fast in ("auto", "false"):
    board = program.TensorBoard(default.get_plugins())
    board.configure(argv=["", "--logdir", "logs", "--port", "0", "--load_fast", fast])
    pages = board.launch() + "data/plugin/scalars/"
    for _ in range(60):
        time.sleep(0.5)
        tags = json.load(urllib.request.urlopen(pages + "tags"))
        if "single" in tags.get(".", {}):
            break
    shown[fast] = {
        tag: json.load(urllib.request.urlopen(f"{pages}scalars?run=.&tag={tag}"))[0][2] for tag in sorted(tags["."])
    }
print(f"tensorboard {tensorboard.__version__}: {TOKENS} as it is shown, by load_fast: {shown}")
raise SystemExit(shown != {"auto": {"single": TOKENS - 1}, "false": {"double": TOKENS, "single": TOKENS - 1}})
PYTHON

"""Takes from the authors' traces what the performance model reads, without names of files and machines.

python datasets/recorded/make_param_traces.py dlrm_kineto.tar.gz   (facebookresearch/param, et_replay/tests/inputs)
"""

from __future__ import annotations

import gzip
import json
import sys
import tarfile
from pathlib import Path

OUT = Path(__file__).parent / "param-v100" / "original"
CATEGORIES = ("cpu_op", "user_annotation", "cuda_runtime", "kernel", "gpu_memcpy", "gpu_memset")
FIELDS = ("name", "cat", "ph", "ts", "dur", "tid")
ARGUMENTS = ("correlation", "bytes", "Input Dims", "Input type")
LONGEST_NAME = 120
"""Of a kernel, whose template parameters go on for thousands of characters"""


def stripped(event: dict) -> dict:
    kept = {name: event[name] for name in FIELDS} | {"name": event["name"][:LONGEST_NAME]}
    return kept | {"args": {name: event["args"][name] for name in ARGUMENTS if name in event.get("args", {})}}


with tarfile.open(sys.argv[1]) as archive:
    for member in archive.getmembers():
        if member.isfile():
            trace = json.load(archive.extractfile(member))
            threads: dict[str, str] = {}
            events = [stripped(each) for each in trace["traceEvents"] if each.get("cat") in CATEGORIES]
            for event in events:
                if event["cat"] in CATEGORIES[:3]:
                    event["tid"] = threads.setdefault(event["tid"], f"thread {len(threads)}")
            path = OUT / f"rank{trace['distributedInfo']['rank']}.json.gz"
            text = json.dumps({"traceEvents": events}, separators=(",", ":"))
            path.write_bytes(gzip.compress(text.encode(), mtime=0))

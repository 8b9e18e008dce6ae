"""Takes from the authors' traces what the performance model reads, without names of files and machines.

python datasets/recorded/make_param_traces.py FOLDER   (facebookresearch/param, et_replay/tests/inputs)
"""

from __future__ import annotations

import gzip
import json
import sys
import tarfile
from pathlib import Path

HERE = Path(__file__).parent
ON_THE_HOST, ON_THE_GPU = ("cpu_op", "user_annotation", "cuda_runtime"), ("kernel", "gpu_memcpy", "gpu_memset")
FIELDS = ("name", "cat", "ph", "ts", "dur", "tid")
ARGUMENTS = ("correlation", "bytes", "Input Dims", "Input type")
LONGEST_NAME = 120
"""Of a kernel, whose template parameters go on for thousands of characters"""


def stripped(event: dict) -> dict:
    kept = {name: event[name] for name in FIELDS} | {"name": event["name"][:LONGEST_NAME]}
    return kept | {"args": {name: event["args"][name] for name in ARGUMENTS if name in event.get("args", {})}}


def write(path: Path, text: str) -> None:
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def dlrm(folder: Path) -> None:
    with tarfile.open(folder / "dlrm_kineto.tar.gz") as archive:
        for member in filter(tarfile.TarInfo.isfile, archive.getmembers()):
            trace = json.load(archive.extractfile(member))
            threads: dict[str, str] = {}
            events = [stripped(each) for each in trace["traceEvents"] if each.get("cat") in ON_THE_HOST + ON_THE_GPU]
            for event in events:
                if event["cat"] in ON_THE_HOST:
                    event["tid"] = threads.setdefault(event["tid"], f"thread {len(threads)}")
            rank = trace["distributedInfo"]["rank"]
            text = json.dumps({"traceEvents": events}, separators=(",", ":"))
            write(HERE / "param-v100" / "original" / f"rank{rank}.json.gz", text)


def resnet(folder: Path) -> None:
    """What ran on the GPU, with the time of its launch, and the two annotations that tell steps and waiting apart."""
    events = json.loads(gzip.decompress((folder / "resnet_kineto.json.gz").read_bytes()))["traceEvents"]
    launches = {each["args"]["correlation"]: each["ts"] for each in events if each.get("cat") == "cuda_runtime"}
    lines = ["what,launch_us,start_us,duration_us"]
    first = min(launches.values())
    for event in events:
        if event.get("cat") in ON_THE_GPU:
            launched = launches[event["args"]["correlation"]] - first
            lines.append(f"{event['cat']},{launched},{event['ts'] - first},{event['dur']}")
        elif event.get("cat") == "user_annotation" and "zero_grad" not in event["name"]:
            what = "loader" if "DataLoader" in event["name"] else "optimiser"
            lines.append(f"{what},,{event['ts'] - first},{event['dur']}")
    write(HERE / "param-rtx2080ti" / "original" / "events.csv.gz", "\n".join(lines) + "\n")


dlrm(Path(sys.argv[1]))
resnet(Path(sys.argv[1]))

"""What reading much telemetry takes: `python benchmarks/telemetry_read.py`.

Made-up rows of ten runs, in parts as the sampler merges them, are read at once in a process of its own. Its peak beyond
what it held after its imports, and what the frame weighs, are those of `read_telemetry`. With `--before CHECKOUT` an
older labkit reads the same in turns, and with `--polars PYTHON` polars does, in a Python that has it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa
from measuring import speed_ups, write_result

from labkit.runs import TELEMETRY, part_path, read_telemetry, write_part
from labkit.telemetry import own_peak_bytes, vocabulary

RUNS, PART_ROWS = 10, 12_000
"""A merged part holds five minutes of 40 counters a second"""

POLARS = """
import json, sys, time, polars as pl
pl.read_parquet(sys.argv[1] + "/*/telemetry/part-00000.parquet")
began, cpu = time.perf_counter(), time.process_time()
frame = pl.read_parquet(sys.argv[1] + "/*/telemetry/*.parquet", include_file_paths="run")
print(json.dumps({"seconds": time.perf_counter() - began, "cpu_s": time.process_time() - cpu, "rows": len(frame)}))
"""


def write_run(folder: Path, rows: int) -> None:
    """Write parts of so many rows, without a note but for a few."""
    dice, counters = np.random.default_rng(0), vocabulary()
    (folder / "telemetry").mkdir(parents=True)
    for number, begin in enumerate(range(0, rows, PART_ROWS)):
        count = min(PART_ROWS, rows - begin)
        which = [counters[place] for place in np.sort(dice.integers(len(counters), size=count))]
        columns = {
            "time_ns": 1_800_000_000 * 10**9 + np.arange(begin, begin + count) * 10**6,
            "device": ["host" if "host" in each.scopes else "GPU-5d1c9f0e-3a7e-4b06" for each in which],
            "scope": [each.scopes[0] for each in which],
            "pid": np.full(count, 4711),
            "counter": [each.name for each in which],
            "value": dice.normal(size=count),
            "unit": [each.unit for each in which],
            "source": ["nvml" if "device" in each.scopes else "psutil" for each in which],
            "note": [None if place else "the driver does not tell this counter" for place in range(count)],
        }
        write_part(pa.table(columns, schema=TELEMETRY), part_path(folder / "telemetry", number))


def read(folder: Path) -> dict[str, float]:
    """Read all runs below a folder in this process."""
    folders = sorted(folder.iterdir())
    read_telemetry(folders[:1]).head()  # imports, and what a first reading sets up
    before, began, cpu = own_peak_bytes(), time.perf_counter(), time.process_time()
    frame = read_telemetry(folders)
    took = {"seconds": time.perf_counter() - began, "cpu_s": time.process_time() - cpu}
    weighs = int(frame.memory_usage(deep=True).sum())
    return {"rows": len(frame), "peak_bytes": own_peak_bytes() - before, "frame_bytes": weighs, **took}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000, help="of all runs together (10 million)")
    parser.add_argument("--turns", type=int, default=5, help="how many times each way reads (5)")
    parser.add_argument("--before", type=Path, help="a checkout of an older labkit with its .venv")
    parser.add_argument("--polars", help="a Python that has polars")
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.read is not None:
        print(json.dumps(read(args.read)))
        return
    with tempfile.TemporaryDirectory() as folder:
        for run in range(RUNS):
            write_run(Path(folder) / f"20261123-10151{run}-dlrm-{run:04x}", args.rows // RUNS)
        ways = {"labkit": [sys.executable, __file__, "--read", folder]}
        if args.before:
            ways["before"] = [args.before / ".venv/bin/python", __file__, "--read", folder]
        if args.polars:
            ways["polars"] = [args.polars, "-c", POLARS, folder]
        found: dict[str, list[dict]] = {name: [] for name in ways}
        for _ in range(args.turns):
            for name, command in ways.items():
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                found[name].append(json.loads(done.stdout))
                print(name, found[name][-1], flush=True)
    ratios = []
    for key, what in (("seconds", "time"), ("cpu_s", "processor time")):
        taken = {name: [each[key] for each in turns] for name, turns in found.items()}
        for base in [name for name in ways if name != "labkit"]:
            own = {name: taken[name] for name in ("labkit", base)}
            ratios += speed_ups(f"reading telemetry, {what}", own, base=base, unit="s")
    print(*ratios, f"load of this machine: {os.getloadavg()}", sep="\n")
    if args.rows == 10_000_000:
        load = os.getloadavg()
        write_result("telemetry_read", runs=RUNS, load=load, ratios=[asdict(each) for each in ratios], turns=found)


if __name__ == "__main__":
    main()

"""What reading much telemetry takes: `python benchmarks/telemetry_read.py`.

Made-up rows of ten runs, in parts as the sampler merges them, are read at once in a process of its own. Its peak beyond
what it held after its imports, and what the frame weighs, are those of `read_telemetry`.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from measuring import write_result

from labkit.runs import TELEMETRY, part_path, read_telemetry, write_part
from labkit.telemetry import own_peak_bytes, vocabulary

RUNS, PART_ROWS = 10, 12_000
"""A merged part holds five minutes of 40 counters a second"""


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
    before, began = own_peak_bytes(), time.perf_counter()
    frame = read_telemetry(folders)
    took_s = time.perf_counter() - began
    weighs = int(frame.memory_usage(deep=True).sum())
    return {"rows": len(frame), "peak_bytes": own_peak_bytes() - before, "frame_bytes": weighs, "seconds": took_s}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000, help="of all runs together (5 million)")
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.read is not None:
        print(json.dumps(read(args.read)))
        return
    with tempfile.TemporaryDirectory() as folder:
        for run in range(RUNS):
            write_run(Path(folder) / f"20261123-10151{run}-dlrm-{run:04x}", args.rows // RUNS)
        command = [sys.executable, __file__, "--read", folder]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print(
        f"{found['rows']:,} rows: peak {found['peak_bytes'] / 1e9:.2f} GB beyond what was held before, frame "
        f"{found['frame_bytes'] / 1e9:.2f} GB, {found['seconds']:.1f} s"
    )
    if args.rows == 5_000_000:
        write_result("telemetry_read", runs=RUNS, **found)


if __name__ == "__main__":
    main()

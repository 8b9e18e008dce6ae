"""Whether the sampler loses or reorders samples over a long time: `python benchmarks/sampler_soak.py`.

Ten minutes at 100 Hz beside a job that does nothing. Every point of the schedule must be a sample or be counted as
missed, in order, and points must be as far apart at the end as at the beginning. Beside it runs a bare loop that only
waits for points as far apart: what it misses of its own says how steady the machine is.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from measuring import write_result

from labkit.runs import read_telemetry
from labkit.telemetry import SampleClock, Sampler


def bare_loop(seconds: float, hz: float) -> tuple[int, float]:
    """How many points of its schedule a loop misses that does nothing but wait for them, and the longest gap in ms."""
    clock, missed, longest_s, before = SampleClock(hz), 0, 0.0, time.monotonic()
    end = before + seconds
    while before < end:
        missed += clock.arrive()
        time.sleep(clock.wait_s())
        now = time.monotonic()
        longest_s, before = max(longest_s, now - before), now
    return missed, 1000 * longest_s


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="of sampling (600)")
    parser.add_argument("--hz", type=float, default=100, help="samples a second (100)")
    parser.add_argument("--bare", action="store_true", help="only the bare loop")
    args = parser.parse_args()
    if args.bare:
        print(*bare_loop(args.seconds, args.hz))
        return 0
    command = [sys.executable, __file__, "--bare", *sys.argv[1:]]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as bare,
    ):
        with Sampler(Path(folder), hz=args.hz) as sampler:
            time.sleep(args.seconds)
        frame = read_telemetry([folder])
        bare_missed, bare_longest_ms = bare.stdout.read().split()
    memory = frame[(frame["counter"] == "memory_used") & (frame["scope"] == "host")]
    missed = int(frame.loc[frame["counter"] == "samples_missed", "value"].sum())
    times_s = memory["time_ns"].to_numpy() / 1e9
    apart_ms = 1000 * np.diff(times_s)
    # the last sample is taken when the job ends, wherever the schedule is then
    due = round((times_s[-2] - times_s[0]) * args.hz) + 1
    taken = len(times_s) - 1
    found = {
        "seconds": args.seconds,
        "hz": args.hz,
        "due": due,
        "taken": taken,
        "missed": missed,
        "bare_loop": {"missed": int(bare_missed), "longest_gap_ms": float(bare_longest_ms)},
        "reordered": int((apart_ms <= 0).sum()),
        "apart_ms": {str(q): float(np.quantile(apart_ms[:-1], q)) for q in (0.001, 0.5, 0.999, 1.0)},
        "deaths": sampler.deaths,
    }
    print("\n".join(f"{name}: {value}" for name, value in found.items()))
    if args.seconds >= 600:
        write_result("sampler_soak", **found)
    return 0 if due == taken + missed and not found["reordered"] and not sampler.deaths else 1


if __name__ == "__main__":
    sys.exit(main())

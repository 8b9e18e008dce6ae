"""What looking costs: a sample of host and job, and the sampler's share of a core. `python benchmarks/sampler_cost.py`.

A sample by a plain loop over psutil and one by the whole ladder of this machine, which also checks and rounds each
value, take turns in one process. The share is the CPU time of the sampler's own process over a quiet half minute at
2 Hz, its start left out.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import psutil
from measuring import in_turn, report, speed_ups

from labkit.hardware import get_devices
from labkit.telemetry import Sampler, open_ladder

TURNS, SAMPLES = 40, 25


def by_psutil() -> None:
    """A sample of the host and of this process with its children, as one would write it."""
    psutil.cpu_percent(), psutil.virtual_memory()
    own = psutil.Process()
    for process in [own, *own.children(recursive=True)]:
        with process.oneshot():
            process.cpu_times(), process.memory_info(), process.num_threads()


def turn_of(sample):
    """A turn: so many samples."""

    def run() -> None:
        for _ in range(SAMPLES):
            sample()

    return run


def share_of_a_core(seconds: float) -> float:
    """CPU seconds a second of a sampler at its usual pace, beside a job that sleeps."""
    with tempfile.TemporaryDirectory() as folder, Sampler(Path(folder)):
        (child,) = psutil.Process().children()
        before = sum(child.cpu_times()[:2])
        time.sleep(seconds)
        return (sum(child.cpu_times()[:2]) - before) / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30, help="of watching the sampler (30)")
    args = parser.parse_args()
    with (
        subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as child,
        open_ladder(os.getpid(), get_devices(), 2, print) as ladder,
    ):  # a job has a child
        ways = {"psutil": turn_of(by_psutil), "the ladder": turn_of(lambda: list(ladder.read()))}
        taken = in_turn(ways, turns=TURNS)
        child.stdin.close()
    each = {way: [seconds / SAMPLES for seconds in times] for way, times in taken.items()}
    share = share_of_a_core(args.seconds)
    for way, times in each.items():
        print(f"a sample by {way}: {1000 * median(times):.3f} ms")
    print(f"the sampler at 2 Hz: {100 * share:.2f} % of a core")
    report("sampler_cost", speed_ups("a sample of host and job", each, base="psutil"), share_of_a_core=share)


if __name__ == "__main__":
    main()

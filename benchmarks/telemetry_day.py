"""What a day of telemetry weighs: `python benchmarks/telemetry_day.py`.

A day of 40 counters at 10 Hz, of two made-up GPUs and their host, goes through the sampler's own ladder and writer as
fast as it can. Every share of time and every power is noise around a mean, kept in the resolution of its counter;
clocks, temperatures and memory move seldom. Every five simulated seconds a part is written, as the sampler does.
"""

import argparse
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
from measuring import write_result

from labkit.telemetry import Counter, Ladder, Reading, TelemetryWriter, vocabulary

HZ, COUNTERS, PART_S = 10, 40, 5
BEGIN_NS = 1_800_000_000 * 10**9
JITTER_NS = 50_000
"""Standard deviation of when a sample is taken."""


class MadeUp:
    """Counters of two GPUs, a host and a job."""

    def __init__(self):
        self._random = np.random.default_rng(0)
        of_gpu = [counter for counter in vocabulary() if "device" in counter.scopes]
        series = [(f"GPU-{gpu}", "device", counter) for gpu in range(2) for counter in of_gpu]
        series += [("host", "process", counter) for counter in vocabulary() if "process" in counter.scopes]
        self.series = series[:COUNTERS]
        self._sum = np.zeros(len(self.series))

    def read(self) -> Iterator[Reading]:
        """Yield one reading each."""
        noise = self._random.normal(size=len(self.series))
        for place, (device, scope, counter) in enumerate(self.series):
            value = self._value(counter, place, noise[place])
            yield Reading(device, scope, counter.name, value, counter.unit, "made up")

    def _value(self, counter: Counter, place: int, noise: float) -> float:
        if counter.name in ("gpu_utilisation", "memory_utilisation", "sm_utilisation"):
            return float(np.clip(round(80 + 10 * noise), 0, 100))  # whole numbers, as NVML has them
        if counter.unit.startswith("%"):
            return float(np.clip(50 + 10 * noise, 0, 100))
        if counter.name == "power":
            return 250 + 10 * noise
        if counter.name == "energy":
            self._sum[place] += (250 + 10 * noise) / HZ
            return self._sum[place]
        if counter.unit == "bytes/s":
            return abs(1e9 + 1e8 * noise)
        self._sum[place] += noise > 3  # now and then
        return {"bytes": 8e9 + 2**21 * self._sum[place], "MHz": 1410 + 15 * self._sum[place] % 4}.get(counter.unit, 4.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=int, default=24, help="of simulated time (24)")
    args = parser.parse_args()
    source, now_ns = MadeUp(), BEGIN_NS
    ladder, jitter, process = Ladder([source]), np.random.default_rng(1), psutil.Process()
    held = []
    with tempfile.TemporaryDirectory() as folder:
        with TelemetryWriter(Path(folder), os.getpid()) as writer:
            for hour in range(args.hours):
                for sample in range(3600 * HZ):
                    now_ns += 10**9 // HZ
                    taken_ns = now_ns + int(jitter.normal(0, JITTER_NS))
                    for reading in ladder.read():
                        writer.append(taken_ns, reading)
                    if sample % (PART_S * HZ) == PART_S * HZ - 1:
                        writer.flush()
                held.append(process.memory_info().rss)
                print(f"after {hour + 1} h the writer holds {held[-1] / 1e6:.0f} MB", flush=True)
        parts = list((Path(folder) / "telemetry").iterdir())
        size = sum(part.stat().st_size for part in parts)
    print(f"{args.hours} h of {len(source.series)} counters at {HZ} Hz: {size / 1e6:.1f} MB in {len(parts)} parts")
    if args.hours == 24:
        write_result(
            "telemetry_day", counters=len(source.series), hz=HZ, bytes_on_disk=size, parts=len(parts), memory_bytes=held
        )


if __name__ == "__main__":
    main()

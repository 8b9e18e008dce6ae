"""How fast traces are read, and in how much memory: `python benchmarks/trace_reader.py`.

The operators of a hundred steps of a small DLRM, by torch's own table (`key_averages`, which needs no file) and from
the file; each turn profiles anew, because torch keeps its table. Then a trace of 1 GB, in a process of its own.
"""

import argparse
import json
import re
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import pandas as pd
import torch
from measuring import in_own_process, report, speed_ups
from torch import nn
from torch.profiler import profile

from labkit.profiling import read_trace, stream_events
from labkit.telemetry import own_peak_bytes

TABLES, ROWS, WIDTH, BATCH_SIZE = 8, 10_000, 16, 128


def dlrm_step():
    """A training step, as a textbook writes it."""
    tables = nn.ModuleList([nn.EmbeddingBag(ROWS, WIDTH, mode="sum") for _ in range(TABLES)])
    bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, WIDTH), nn.ReLU())
    top = nn.Sequential(nn.Linear(WIDTH * (TABLES + 1), 64), nn.ReLU(), nn.Linear(64, 1))
    parameters = [*tables.parameters(), *bottom.parameters(), *top.parameters()]
    optimiser = torch.optim.SGD(parameters, lr=0.1)
    dense, clicked = torch.randn(BATCH_SIZE, 13), torch.rand(BATCH_SIZE, 1).round()
    rows = torch.randint(0, ROWS, (TABLES, BATCH_SIZE, 1))

    def step() -> None:
        pooled = [table(index) for table, index in zip(tables, rows, strict=True)]
        logits = top(torch.cat([bottom(dense), *pooled], dim=1))
        optimiser.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(logits, clicked).backward()
        optimiser.step()

    return step


def own_us(events: pd.DataFrame) -> pd.Series:
    """Own time of operators by name."""
    return events[events["category"] == "cpu_op"].groupby("name", observed=True)["self_us"].sum()


def large_trace(small: Path, large: Path, size: float) -> None:
    """Write the events of a trace again and again, one repetition after the other, until there are so many bytes."""
    events = [event for event in stream_events(small) if event["ph"] == "X"]
    began = min(event["ts"] for event in events)
    span = max(event["ts"] + event.get("dur", 0) for event in events) - began
    text = json.dumps(events)[1:-1].replace('"ts": ', '\n"ts": ')
    with large.open("w") as file:
        file.write('{"traceEvents": [')
        written, turn = 0, 0
        while written < size:
            moved = re.sub(r'\n"ts": ([\d.]+)', partial(_later, turn * span), text)
            written += file.write(", " * (turn > 0) + moved)
            turn += 1
        file.write("]}")


def _later(by_us: float, found: re.Match) -> str:
    return f'"ts": {float(found[1]) + by_us:.3f}'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5, help="of profiling a hundred steps (5)")
    parser.add_argument("--gb", type=float, default=1.0, help="of the large trace, in 1e9 bytes (1)")
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.read:
        began = time.perf_counter()
        events = read_trace(args.read).events
        operators, seconds = len(own_us(events)), time.perf_counter() - began
        # of this process alone: what wait4 tells begins with the peak of the process that started it
        found = {
            "seconds": seconds,
            "events": len(events),
            "operators": operators,
            "peak_bytes": own_peak_bytes(),
        }
        print(json.dumps(found))
        return
    step, taken = dlrm_step(), {"key_averages": [], "labkit": []}
    step()
    with tempfile.TemporaryDirectory() as folder:
        small, large = Path(folder) / "small.json", Path(folder) / "large.json"
        for _ in range(args.turns):
            with profile(record_shapes=True) as profiler:
                for _ in range(100):
                    step()
            profiler.export_chrome_trace(str(small))
            for way, work in (
                ("key_averages", profiler.key_averages),
                ("labkit", lambda: own_us(read_trace(small).events)),
            ):
                began = time.perf_counter()
                work()
                taken[way].append(time.perf_counter() - began)
        large_trace(small, large, args.gb * 1e9)
        size = large.stat().st_size
        found, _ = in_own_process([__file__, "--read", str(large)])
    held = f"{found['peak_bytes'] / 2**30:.2f} GiB held, torch's libraries included"
    print(f"{size / 1e9:.2f} GB with {found['events']:,} events: {found['seconds']:.0f} s, {held}")
    ratios = speed_ups("operators of a trace of 100 steps", taken, base="key_averages", unit="s")
    report("trace_reader", ratios, large={**found, "size_bytes": size})


if __name__ == "__main__":
    sys.exit(main())

"""Long training in bounded memory: `python benchmarks/long_run.py --minutes 60`, or with `--placement`.

A DLRM of 40 million rows, Criteo Kaggle's vocabularies made larger alike, takes batches in Criteo's layout, drawn as
they come: of R rows row R u^4 for a uniform u, so that few are popular. Every ten seconds it says how many samples it
took in a second, and how much memory it has.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import numpy as np
import psutil
import torch
from measuring import write_result

from labkit.hardware import keep_memory
from labkit.jobs import build_optimizers
from labkit.jobs.dlrm import build_model, loss_of
from labkit.models import DlrmConfig
from labkit.perfmodel import PUBLISHED_ROWS
from labkit.placement import Placement, ahead, placed_tables

ROWS, DIM, WINDOW_S = 40_000_000, 16, 10.0


def criteo_batches(num_rows: tuple[int, ...], batch_size: int) -> Iterator[tuple[torch.Tensor, ...]]:
    """Without end: dense (B, 13), categorical int32 (B, 26, 1), label (B,)."""
    rng = np.random.default_rng(0)
    while True:
        rows = (rng.random((batch_size, len(num_rows))) ** 4 * num_rows).astype(np.int32)
        dense, label = rng.standard_normal((batch_size, 13), np.float32), rng.random(batch_size, np.float32) < 0.25
        yield tuple(map(torch.from_numpy, (dense, rows[:, :, None], label.astype(np.float32))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--batch-size", type=int, default=2048)
    args = parser.parse_args()
    placement = Placement("cached", cache_over="disk", cache_rows="5%", memory_cap="256MiB")
    keep_memory()
    num_rows = tuple(max(3, round(rows * ROWS / sum(PUBLISHED_ROWS["kaggle"]))) for rows in PUBLISHED_ROWS["kaggle"])
    config = DlrmConfig(13, num_rows, DIM, (512, 256, 64, DIM), (512, 256, 1))
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        torch.manual_seed(0)
        model = build_model(config, "fast", placed_tables(placement, "sgd", folder=folder))
        optimisers = build_optimizers(model, "sgd", 0.01, "fast")
        batches = iter(ahead(model.tables, criteo_batches(num_rows, args.batch_size)))
        windows, process, began = [], psutil.Process(), time.monotonic()
        while time.monotonic() < began + 60 * args.minutes:
            start, steps, took = time.monotonic(), 0, 0.0
            while took < WINDOW_S:
                loss_of(model, next(batches)).backward()
                for each in optimisers:
                    each.step()
                    each.zero_grad()
                steps, took = steps + 1, time.monotonic() - start
            windows.append(
                {"samples_per_s": steps * args.batch_size / took, "memory_bytes": process.memory_info().rss}
                | {"samples": steps * args.batch_size}
            )
            print("{samples_per_s:,.0f} samples/s, {memory_bytes:,} bytes of memory".format(**windows[-1]), flush=True)
    parts = windows[: len(windows) // 3], windows[-(len(windows) // 3) :]
    first, last = (median(each["samples_per_s"] for each in part) for part in parts)
    samples = sum(each["samples"] for each in windows)
    print(f"{samples:,} samples; the last third at {last / first:.2f} times the first third's speed")
    write_result(
        "long_run", minutes=args.minutes, rows=sum(num_rows), placement=placement.kind, samples=samples, windows=windows
    )


if __name__ == "__main__":
    main()

"""Training with embedding tables in each place, beside tables on the device: `python benchmarks/placements.py`.

The step is the DLRM job's own, with fast kernels, of the preset `kaggle`: 26 tables with the vocabularies of the Criteo
Kaggle log, the largest cut, so that all ways fit into memory side by side. Rows are Zipf-distributed, popular ones
anywhere in a table. All ways take the same batches, in turn. The disk's file is four times its memory cap.
"""

import argparse
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from itertools import cycle, islice
from pathlib import Path

import numpy as np
import torch
from measuring import in_turn, speed_ups, write_result

from labkit.hardware import keep_memory
from labkit.jobs import build_optimizers
from labkit.jobs.dlrm import build_model, loss_of
from labkit.models import DlrmConfig
from labkit.perfmodel import PUBLISHED_ROWS, table_bytes
from labkit.placement import DiskStore, PlacedTables, Placement, ahead, placed_tables

CASES = [(16, 2_000_000, "sgd"), (64, 500_000, "sgd"), (64, 500_000, "rowwise-adagrad")]
"""Embedding dim, rows of a table at most, optimiser"""
BATCHES, STEPS = 300, 10
"""Batches that are gone through again and again, and steps of a turn"""


def zipf_batches(config: DlrmConfig, batch_size: int, exponent: float) -> list[tuple]:
    """dense (B, 13), categorical int32 (B, 26, 1), label (B,)."""
    rng, columns = np.random.default_rng(0), []
    for rows in config.num_rows:
        shares = np.cumsum(np.arange(1.0, rows + 1) ** -exponent)
        ranks = np.searchsorted(shares, rng.random(BATCHES * batch_size) * shares[-1])
        columns.append(rng.permutation(rows).astype(np.int32)[np.minimum(ranks, rows - 1)])
    categorical = torch.from_numpy(np.stack(columns, 1)).view(BATCHES, batch_size, len(columns), 1)
    dense, label = torch.randn(batch_size, config.dense_dim), (torch.rand(batch_size) < 0.25).float()
    return [(dense, each, label) for each in categorical]


def trainer(
    config: DlrmConfig, optimiser: str, batches: list[tuple], folder: str, placement: Placement
) -> tuple[Callable[[], None], torch.nn.Module]:
    """What takes the next `STEPS` steps, and its tables."""
    torch.manual_seed(0)
    model = build_model(config, "fast", placed_tables(placement, optimiser, folder=folder))
    optimisers = build_optimizers(model, optimiser, 0.01, "fast")
    endless: Iterator[tuple] = iter(ahead(model.tables, cycle(batches)))

    def steps() -> None:
        for batch in islice(endless, STEPS):
            loss_of(model, batch).backward()
            for each in optimisers:
                each.step()
                each.zero_grad()

    return steps, model.tables


def measure(dim: int, most_rows: int, optimiser: str, *, batch_size: int, exponent: float, turns: int) -> list:
    num_rows = tuple(min(rows, most_rows) for rows in PUBLISHED_ROWS["kaggle"])
    config = DlrmConfig(13, num_rows, dim, (512, 256, 64, dim), (512, 256, 1))
    batches, size = zipf_batches(config, batch_size, exponent), table_bytes(num_rows, dim, optimiser)
    ways = {
        "device": Placement("device"),
        "host": Placement("host"),
        "cached, 10 %": Placement("cached"),
        "cached, 10 %, lfu": Placement("cached", cache_policy="lfu"),
        "disk, 4 times its memory": Placement("disk", memory_cap=size // 4),
        "remote, staleness 0": Placement("remote"),
        "remote, staleness 1": Placement("remote", staleness=1),
    }
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        made = {name: trainer(config, optimiser, batches, folder, place) for name, place in ways.items()}
        taken = in_turn({name: steps for name, (steps, _) in made.items()}, turns=turns, warm_up=8)
        what = f"{STEPS} steps, D {dim}, {optimiser}, {size / 1e9:.2f} GB"
        ratios = []
        for name, (_, tables) in made.items():
            if not isinstance(tables, PlacedTables):
                continue
            counted, note = tables.store.counters, ""
            if name.startswith("cached"):
                note = f"hit rate {tables.metrics()['placement_hit_rate']:.3f}"
            if isinstance(tables.store, DiskStore):
                done = (turns + 8) * STEPS
                note = f"{tables.metrics()['placement_disk_read_bytes'] / done / 1e6:.1f} MB a step from the disk"
                note += f", of {counted.read_bytes / done / 1e6:.1f} MB of rows"
            ratios += speed_ups(what, {way: taken[way] for way in ("device", name)}, base="device", note=note)
            print(ratios[-1], flush=True)
            tables.store.close()
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=2048)
    parser.add_argument("--zipf", type=float, default=1.1, help="exponent of the rows' distribution (1.1)")
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--only", type=int, help="this case, from 0; nothing is written")
    args = parser.parse_args()
    keep_memory()
    ratios = []
    for number, case in enumerate(CASES):
        if args.only in (None, number):
            ratios += measure(*case, batch_size=args.batch_size, exponent=args.zipf, turns=args.turns)
    if args.only is None:
        write_result("placements", ratios=[asdict(ratio) for ratio in ratios])


if __name__ == "__main__":
    main()

"""How fast a Criteo file is prepared: `python benchmarks/prepare_clicks.py`, rows a second of one core's time.

labkit's reader and the textbook's lines one by one take turns on one core; a turn is a process, so that the most memory
it held is its own. With `--against polars` (to be installed next to labkit) both may use two cores, and what counts is
the time on the clock, from the first import on; processor time stands next to it.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from statistics import median

from click_pipeline import MIN_COUNT, ROWS, made_up_file
from measuring import bind_to, cores, in_own_process, report, speed_ups

TEXTBOOK_ROWS = 100_000
"""Of the textbook's turn, whose time is scaled up: its rows take ten times as long."""


def prepare(path: Path) -> None:
    from labkit import runs
    from labkit.data.clicks import load_clicks

    runs.spare_pandas()  # as the job does
    with tempfile.TemporaryDirectory() as folder:
        load_clicks(str(path), cache_dir=Path(folder), min_count=MIN_COUNT)


def prepare_as_textbook(path: Path) -> None:
    from textbook_rows import TextbookRows

    with tempfile.TemporaryDirectory() as folder:
        part = first_lines(path, TEXTBOOK_ROWS, Path(folder))
        TextbookRows(part, train_share=6 / 7, min_count=MIN_COUNT)


def prepare_with_polars(path: Path) -> None:
    """The same arrays but for the order of equally frequent values, in memory, without a check of the fields."""
    import numpy as np
    import polars as pl

    numbers, texts = [f"I{number}" for number in range(1, 14)], [f"C{number}" for number in range(1, 27)]
    types = {"label": pl.UInt8} | dict.fromkeys(numbers, pl.Int64) | dict.fromkeys(texts, pl.String)
    table = pl.read_csv(path, separator="\t", has_header=False, new_columns=list(types), schema_overrides=types)
    train = len(table) * 6 // 7
    logs = table.select(pl.col(numbers).cast(pl.Float64).sign() * pl.col(numbers).cast(pl.Float64).abs().log1p())
    means, deviations = logs[:train].mean(), logs[:train].std(ddof=0)
    columns = [
        ((pl.col(name) - means[name][0]) / deviations[name][0]).fill_null(0).cast(pl.Float32) for name in numbers
    ]
    logs.select(columns).to_numpy()
    rows = []
    for name in texts:
        counts = table[name][:train].fill_null("").value_counts(sort=True).filter(pl.col("count") >= MIN_COUNT)
        known = pl.DataFrame({name: counts[name], "row": np.arange(1, len(counts) + 1, dtype=np.int32)})
        values = table.select(pl.col(name).fill_null(""))
        rows.append(values.join(known, on=name, how="left", maintain_order="left")["row"].fill_null(0).to_numpy())
    np.stack(rows, 1), table["label"].to_numpy()


WAYS = {"labkit": prepare, "textbook": prepare_as_textbook, "polars": prepare_with_polars}


def first_lines(path: Path, count: int, folder: Path) -> Path:
    part = folder / f"first-{count}.tsv"
    with path.open("rb") as source:
        part.write_bytes(b"".join(line for line, _ in zip(source, range(count), strict=False)))
    return part


def run_way(way: str, path: Path, count: int) -> tuple[dict[str, float], float]:
    """({"wall": seconds, "cpu": seconds}, most memory in GB) of one way, on this number of cores."""
    command = [__file__, "--way", way, "--data", str(path), "--cores", str(count)]
    return in_own_process(command, environment={"OMP_NUM_THREADS": str(count)})


def take_turn(way: str, path: Path, count: int) -> None:
    bind_to(cores()[:count])
    wall, cpu = time.perf_counter(), time.process_time()
    WAYS[way](path)
    scale = ROWS / TEXTBOOK_ROWS if way == "textbook" else 1.0
    print(json.dumps({"wall": (time.perf_counter() - wall) * scale, "cpu": (time.process_time() - cpu) * scale}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help=f"a Criteo file of {ROWS:,} rows; default: a generated one")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--against", choices=("textbook", "polars"), default="textbook")
    parser.add_argument("--way", help=argparse.SUPPRESS)
    parser.add_argument("--cores", type=int, default=1, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.way:
        take_turn(args.way, args.data, args.cores)
        return
    base, count = args.against, 2 if args.against == "polars" else 1
    ways = [base, "labkit"]
    taken = {clock: {way: [] for way in ways} for clock in ("wall", "cpu")}
    memory, load = dict.fromkeys(ways, 0.0), []
    with tempfile.TemporaryDirectory() as folder:
        path = args.data or made_up_file(Path(folder) / "criteo.tsv")
        for _ in range(args.turns):
            load.append(os.getloadavg()[0] if hasattr(os, "getloadavg") else None)
            for way in ways:
                seconds, peak = run_way(way, path, count)
                for clock, values in taken.items():
                    values[way].append(seconds[clock])
                memory[way] = max(memory[way], peak)
    for way in ways:
        held = f"at most {memory[way]:.2f} GB" + (f" for {TEXTBOOK_ROWS:,} rows" if way == "textbook" else "")
        print(f"{way}: {ROWS / median(taken['cpu'][way]):,.0f} rows a second of one core's time, {held}")
    clocks = ("wall", "cpu") if base == "polars" else ("cpu",)
    report(
        "prepare_clicks" if base == "textbook" else "prepare_clicks_polars",
        [
            ratio
            for clock in clocks
            for ratio in speed_ups(f"prepare {ROWS:,} Criteo rows, {clock}", taken[clock], base=base, unit="s")
        ],
        memory_gb=memory,
        cores=count,
        load=load,
        turns=taken,
        textbook_rows=TEXTBOOK_ROWS,
    )


if __name__ == "__main__":
    main()

"""How fast a Criteo file is prepared: `python benchmarks/prepare_clicks.py`, rows a second of one core's time.

labkit's reader and the textbook's lines one by one take turns on one core; a turn is a process, so that the most memory
it held is its own.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from statistics import median

from click_pipeline import ROWS, made_up_file
from measuring import bind_to, cores, in_own_process, report, speed_ups

TEXTBOOK_ROWS = 100_000
"""Of the textbook's turn, whose time is scaled up: its rows take ten times as long."""


def prepare(path: Path) -> float:
    """Processor seconds of preparing a file."""
    from labkit.data.clicks import load_clicks

    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        load_clicks(str(path), cache_dir=Path(folder))
        return time.process_time() - began


def prepare_as_textbook(path: Path) -> float:
    """Processor seconds that the textbook would take, from those of its first rows."""
    from textbook_rows import TextbookRows

    with tempfile.TemporaryDirectory() as folder:
        part = first_lines(path, TEXTBOOK_ROWS, Path(folder))
        began = time.process_time()
        TextbookRows(part, train_share=6 / 7, min_count=2)
        return (time.process_time() - began) * ROWS / TEXTBOOK_ROWS


def first_lines(path: Path, count: int, folder: Path) -> Path:
    part = folder / f"first-{count}.tsv"
    with path.open("rb") as source:
        part.write_bytes(b"".join(line for line, _ in zip(source, range(count), strict=False)))
    return part


def run_way(way: str, path: Path) -> tuple[float, float]:
    """(processor seconds, most memory in GB) of one way, on one core."""
    return in_own_process([__file__, "--way", way, "--data", str(path)], environment={"OMP_NUM_THREADS": "1"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help=f"a Criteo file of {ROWS:,} rows; default: a generated one")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--way", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.way:
        bind_to(cores()[:1])
        print(json.dumps((prepare_as_textbook if args.way == "textbook" else prepare)(args.data)))
        return
    ways = ["textbook", "labkit"]
    taken, memory = {way: [] for way in ways}, dict.fromkeys(ways, 0.0)
    with tempfile.TemporaryDirectory() as folder:
        path = args.data or made_up_file(Path(folder) / "criteo.tsv")
        for _ in range(args.turns):
            for way in ways:
                seconds, peak = run_way(way, path)
                taken[way].append(seconds)
                memory[way] = max(memory[way], peak)
    for way in ways:
        held = f"at most {memory[way]:.2f} GB" + (f" for {TEXTBOOK_ROWS:,} rows" if way == "textbook" else "")
        print(f"{way}: {ROWS / median(taken[way]):,.0f} rows a second of one core, {held}")
    report(
        "prepare_clicks",
        speed_ups(f"prepare {ROWS:,} Criteo rows", taken, base="textbook", unit="s"),
        memory_gb=memory,
        textbook_rows=TEXTBOOK_ROWS,
    )


if __name__ == "__main__":
    main()

"""How long many runs take to list, and many samples to ask: `python benchmarks/query.py`.

Run folders are copies of one that labkit's own writer made, each with its own id and seed. The list is timed in a
process of its own, without the cache (cold: every run.json is read and checked) and with it (warm); the command's
whole time, from its first import, stands next to it. Samples lie in parts as the sampler merges them. They are asked by
SQL over the cache, through a database that is opened for each query and through one that stays open, and by
`read_telemetry`, in turns. What making the cache takes, once, is timed on its own. Each time has the processor's
seconds next to it, which other programs change less.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from measuring import write_result

from labkit import runs

COUNTERS = 20
OLD_S = 1.7e9
"""A time of change long ago: a run that has just ended is not kept in the cache yet"""
LIST = """
import sys, time, json
from labkit import runs
import duckdb, pandas, pyarrow.parquet
began, used = time.perf_counter(), time.process_time()
columns = "run, job, budget, seed, status, target, time_to_target_s"
frame = runs.query(f"SELECT {columns} FROM runs ORDER BY run", sys.argv[1])
print(json.dumps([time.perf_counter() - began, time.process_time() - used]))
"""
OF_ONE = "SELECT time_ns, value FROM telemetry WHERE run = '{run}' AND counter = 'counter_07'"
OF_ALL = """SELECT time_bucket(INTERVAL 1 minute, time) AS minute, quantile_cont(value, [0.5, 0.99])
FROM telemetry WHERE counter = 'counter_07' GROUP BY minute ORDER BY minute"""
BUCKETS = """SELECT counter, time_bucket(INTERVAL 1 minute, time) AS minute, approx_quantile(value, [0.5, 0.99])
FROM telemetry GROUP BY counter, minute"""


def make_runs(runs_dir: Path, count: int) -> list[Path]:
    """Copies of a run with twelve evaluations."""
    train = {"target": 0.8, "target_metric": "auc", "lr": 0.1, "batch_size": 4096, "optimizer": "sgd", "max_epochs": 4}
    config = {"job": "made-up", "train": train}
    first = runs.RunWriter.create(
        runs_dir, "made-up", config=config, budget={"name": "all-cores"}, devices=[], seed=0,
        provenance=runs.Provenance.now("emulated"), software={"labkit": "0", "torch": "2"}, tier=None,
    )  # fmt: skip
    for at in range(1, 13):
        point = {"step": at, "samples": 1000 * at, "wall_s": float(at), "train_s": 0.9 * at}
        first.metric(name="auc", value=at / 14, **point)
        first.event("evaluated", metric="auc", value=at / 14, metrics={"auc": at / 14}, **point)
    first.finish("done", {"ended_by": "max_epochs", "energy_j": None, "energy_note": "made up", **point})
    (first.folder / ".lock").unlink()
    record, folders = json.loads((first.folder / "run.json").read_text()), [first.folder]
    for number in range(1, count):
        folder = runs_dir / f"{first.folder.name[:-4]}{number:05d}"
        shutil.copytree(first.folder, folder)
        (folder / "run.json").write_text(json.dumps(record | {"id": folder.name, "seed": number}, indent=1))
        folders.append(folder)
    age(runs_dir)
    return folders


def age(runs_dir: Path) -> None:
    for folder, _, files in os.walk(runs_dir):
        for path in (folder, *(os.path.join(folder, name) for name in files)):  # noqa: PTH118
            os.utime(path, (OLD_S, OLD_S))


def write_samples(folder: Path, number: int, samples: int) -> None:
    """`samples` of a run in merged parts of five minutes at 2 Hz."""
    (folder / "telemetry").mkdir()
    random, each = np.random.default_rng(number), 600
    names = [f"counter_{place:02d}" for place in range(COUNTERS)]
    for part, at in enumerate(range(0, samples // COUNTERS, each)):
        ticks = np.arange(at, min(at + each, samples // COUNTERS))
        count = len(ticks) * COUNTERS
        text = {
            name: pa.repeat(word, count) for name, word in (("device", "GPU-0"), ("scope", "device"), ("unit", "W"))
        }
        table = (
            pa.table(
                {
                    "time_ns": np.tile(
                        (ticks * 500_000_000 + number * 10**9).astype(np.int64) + 1_790_000_000 * 10**9, COUNTERS
                    ),
                    **text,
                    "pid": pa.repeat(7, count),
                    "counter": pa.array(np.repeat(names, len(ticks))),
                    "value": np.round(random.normal(100, 10, count), 2),
                    "source": pa.repeat("NVML", count),
                    "note": pa.nulls(count, pa.string()),
                }
            )
            .select(runs.TELEMETRY.names)
            .cast(runs.TELEMETRY)
        )
        runs.write_part(table, runs.part_path(folder / "telemetry", 60 * part, 60 * part + 59))


def listing(runs_dir: Path, turns: int) -> dict[str, list[float]]:
    """Seconds, and seconds of the processor, of each way: medians."""
    found: dict[str, list[list[float]]] = {"cold": [], "warm": [], "command": []}
    command = (
        f"from labkit.cli import main; main(['query', 'SELECT run, status FROM runs', {str(runs_dir)!r}, '--csv'])"
    )
    for _ in range(turns):
        shutil.rmtree(runs_dir / ".labkit-store", ignore_errors=True)
        for name in ("cold", "warm"):
            answer = subprocess.run([sys.executable, "-c", LIST, str(runs_dir)], check=True, stdout=subprocess.PIPE)
            found[name].append(json.loads(answer.stdout))
        before, began = os.times(), time.perf_counter()
        subprocess.run([sys.executable, "-c", command], check=True, stdout=subprocess.DEVNULL)
        after, seconds = os.times(), time.perf_counter() - began
        used = after.children_user + after.children_system - before.children_user - before.children_system
        found["command"].append([seconds, used])
    return {name: np.median(each, axis=0).tolist() for name, each in found.items()}


def asking(runs_dir: Path, folders: list[Path], turns: int) -> dict[str, list[float]]:
    """Seconds, and seconds of the processor, of each way: medians."""
    one = OF_ONE.format(run=folders[len(folders) // 2].name)
    some = folders[: max(1, len(folders) // 100)]

    def reader() -> None:
        frame = runs.read_telemetry(some)
        frame[frame["counter"] == "counter_07"].groupby(frame["time_ns"] // (60 * 10**9))["value"].quantile([0.5, 0.99])

    found: dict[str, list[list[float]]] = {}

    def timed(name: str, way) -> None:
        began, used = time.perf_counter(), time.process_time()
        way()
        found.setdefault(name, []).append([time.perf_counter() - began, time.process_time() - used])

    timed("make the cache", lambda: runs.query("SELECT count(*) FROM telemetry", runs_dir))
    with runs.Database(runs_dir) as database:
        database.query(one)
        for _ in range(turns):
            timed("one counter of one run, opened for it", lambda: runs.query(one, runs_dir))
            timed("one counter of one run", lambda: database.query(one))
            timed("p50 and p99 a minute of one counter of all runs", lambda: database.query(OF_ALL))
            timed("approximate p50 and p99 a minute of each counter of all runs", lambda: database.query(BUCKETS))
            timed("p50 and p99 a minute of one counter of a hundredth of the runs, by read_telemetry", reader)
    return {name: np.median(each, axis=0).tolist() for name, each in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5000, help="how many are listed (5000)")
    parser.add_argument("--samples", type=int, default=100_000_000, help="samples of telemetry, over 1,000 runs (1e8)")
    parser.add_argument("--turns", type=int, default=5, help="how many times each way is timed (5)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        make_runs(Path(folder) / "runs", args.runs)
        listed = listing(Path(folder) / "runs", args.turns)
        print(json.dumps(listed), flush=True)
        folders = make_runs(Path(folder) / "sampled", 1000)
        for number, each in enumerate(folders):
            write_samples(each, number, args.samples // 1000)
        age(Path(folder) / "sampled")
        asked = asking(Path(folder) / "sampled", folders, args.turns)
        print(json.dumps(asked), flush=True)
        kept = sum(path.stat().st_size for path in (Path(folder) / "sampled" / ".labkit-store").rglob("*.parquet"))
    more = {"samples": args.samples, "cache_bytes": kept, "load": os.getloadavg()}
    write_result("query", runs=args.runs, listed_s=listed, asked_s=asked, **more)


if __name__ == "__main__":
    main()

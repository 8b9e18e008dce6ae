"""A sweep that never ran, on machines that others use, too: made-up runs, some disturbed by another program.

What was planted can be seen in the counters only, as it could on real machines. Lab 52 looks for it.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Generator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from labkit import project, runs

if TYPE_CHECKING:
    import pandas as pd

EVERY_S, THREADS = 0.5, 2
"""Seconds between two samples; cores that a run can keep busy"""
TARGET, MINUTE_S, EVALUATION_S = 0.78, 60, 4
PLANTED = {"adagrad": {"neighbour": 10, "bursts": 22, "memory": 36}, "sgd": {"neighbour": 2, "bursts": 5, "memory": 9}}
"""By optimizer: of 100 runs, those below the first number have a neighbour, those below the next one have bursts …"""
NEEDED_S = {"adagrad": 400.0, "sgd": 420.0}
"""Seconds of undisturbed training to the target"""
BEGAN = datetime(2026, 11, 1, tzinfo=UTC)
NOTE = "made up: no program ran, and what disturbed it was drawn, too"
LATE = "not read in time"
LOOP = "import time\nwhile time.time() < {end}: sum(range(10**5))"
START = "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {loop!r}], stdout=-3).pid)"
LONGEST_S = 60
"""Seconds after which a neighbour ends, whatever became of the notebook"""


@dataclass(frozen=True)
class _Drawn:
    """A run as it was drawn."""

    number: int
    optimizer: str
    cores: int
    """Of the machine"""
    kind: str
    """What was planted: neighbour, bursts or memory; empty for nothing"""

    @property
    def name(self) -> str:
        return f"{self.began:%Y%m%d-%H%M%S}-made-up-{self.number:04d}"

    @property
    def began(self) -> datetime:
        return BEGAN + timedelta(minutes=2 * self.number)


def _drawn(number: int) -> _Drawn:
    optimizer = ("adagrad", "sgd")[number % 2]
    place = number // 2 * 19 % 100  # spread evenly, so that few runs have the same shares as many
    kind = next((kind for kind, below in PLANTED[optimizer].items() if place < below), "")
    return _Drawn(number, optimizer, (2, 4, 8)[number // 2 % 3], kind)


def planted(count: int) -> pd.DataFrame:
    """What `make_runs` planted: columns run and kind (neighbour, bursts, memory; empty for nothing)."""
    import pandas as pd

    return pd.DataFrame([(each.name, each.kind) for each in map(_drawn, range(count))], columns=["run", "kind"])


def make_runs(folder: Path | str, count: int) -> None:
    """Make the folders of the first `count` runs, the same ones at each call, if they are not there."""
    for each in map(_drawn, range(count)):
        if not (Path(folder) / each.name / "run.json").is_file():
            _write(each, Path(folder) / each.name)


def _write(run: _Drawn, folder: Path) -> None:
    import pyarrow as pa

    rng = np.random.default_rng([52, run.number])
    counters, progress, taken = _signals(run, rng)
    needed_s = NEEDED_S[run.optimizer] * rng.lognormal(0, 0.03)
    done_s = np.cumsum(progress) * EVERY_S
    count = int(np.searchsorted(done_s, needed_s)) + 1
    wall_s = count * EVERY_S

    began_ns, size = round(run.began.timestamp() * 1e9), count * len(counters)
    texts = {name: np.repeat([about[place] for about in counters], count) for place, name in enumerate(_ABOUT)}
    values = np.concatenate([series[:count] for series in counters.values()])
    is_missing = np.isnan(values)
    columns = {
        "time_ns": np.tile(began_ns + (np.arange(count) * EVERY_S * 1e9).astype(np.int64), len(counters)),
        "pid": np.full(size, 100 + run.number),
        "value": pa.array(values, mask=is_missing),
        "source": np.repeat("made up", size),
        "note": pa.array(np.where(is_missing, LATE, ""), mask=~is_missing),
    }
    (folder / "metrics").mkdir(parents=True, exist_ok=True)
    (folder / "telemetry").mkdir(exist_ok=True)
    table = pa.table({name: (columns | texts)[name] for name in runs.TELEMETRY.names}, schema=runs.TELEMETRY)
    runs.write_part(table, runs.part_path(folder / "telemetry", 0))

    at = np.append(np.arange(MINUTE_S, wall_s, MINUTE_S), wall_s)  # of the evaluations
    trained_s = np.interp(at, (np.arange(count) + 1) * EVERY_S, done_s[:count])
    metrics = {"step": (10 * trained_s).astype(np.int64), "wall_s": at, "train_s": at, "name": ["auc"] * len(at)}
    metrics |= {"samples": metrics["step"] * 256}
    metrics["value"] = TARGET + 0.05 - 0.3 * np.exp(np.log(6) * -trained_s / trained_s[-1])
    table = pa.table({name: metrics[name] for name in runs.METRICS.names}, schema=runs.METRICS)
    runs.write_part(table, runs.part_path(folder / "metrics", 0))

    ended = (run.began + timedelta(seconds=wall_s)).isoformat()
    events = [{"event": "started", "time": run.began.isoformat()}, {"event": "ended", "time": ended, "status": "done"}]
    (folder / "events.jsonl").write_text("".join(json.dumps(each) + "\n" for each in events), encoding="utf-8")
    last = {name: float(column[-1]) for name, column in metrics.items() if name in ("wall_s", "train_s", "samples")}
    result = last | {"time_to_target_s": wall_s, "target_reached": True, "ended_by": "target", "reason": "target"}
    record = _record(run, ended, result | {"others": _labkits_mark(taken[:count])})
    # without waiting for the disk, as a run must: these can be made again
    (folder / "run.json").write_text(json.dumps(asdict(record)), encoding="utf-8")


_ABOUT = ("device", "scope", "counter", "unit")


def _signals(run: _Drawn, rng: np.random.Generator) -> tuple[dict[tuple[str, ...], np.ndarray], np.ndarray, np.ndarray]:
    """By device, scope, counter and unit the values; the progress, 1 where nothing disturbs; cores that others take."""
    at = np.arange(0, 1500, EVERY_S)
    size, spare = len(at), run.cores - THREADS
    evaluates = at % MINUTE_S > MINUTE_S - EVALUATION_S
    wanted = np.where(evaluates, 0.6, 1.9)
    others = 0.03 + rng.exponential(0.04, size)
    if not run.kind and rng.random() < 0.3:  # somebody who disturbs nobody: there is room
        others += 0.8 * spare * (at > rng.uniform(0, 300))
    memory, waits = rng.uniform(0.8, 1.6) + 0.02 * rng.standard_normal(size), np.ones(size)
    if run.kind == "neighbour":
        others += (spare + rng.uniform(0.8, 1.3)) * (at > rng.uniform(0, 120))
    elif run.kind == "bursts":
        for begin in rng.uniform(10, 380, rng.integers(2, 5)):
            others += (spare + 1.7) * ((at >= begin) & (at < begin + rng.uniform(6, 10)))
    elif run.kind == "memory":
        begin, lasts = rng.uniform(20, 120), rng.uniform(200, 300)
        is_full = (at > begin) & (at < begin + lasts)
        memory, waits = memory + 3 * is_full, np.where(is_full, 0.4, 1.0)  # pages come back from the disk
    others = np.minimum(others, run.cores - 0.1)
    taken = np.clip(others - spare, 0, THREADS)
    own = waits * np.minimum(wanted, THREADS - taken)
    resident = 0.9 + (rng.random() < 0.1) * 2.5 * np.minimum(at / 500, 1)  # some grow by themselves

    seen = own + 0.01 * rng.standard_normal(size)
    for late in np.flatnonzero(rng.random(size - 3) < 0.004):  # looks that came too early: the next one has the rest
        early = slice(late, late + 1 + (rng.random() < 0.2))
        seen[early.stop] += 0.8 * seen[early].sum()
        seen[early] *= 0.2
    host = np.clip(100 * (own + others) / run.cores + 0.2 * rng.standard_normal(size), 0, 100)
    seen, host = (np.where(rng.random(size) < 0.003, np.nan, each) for each in (seen, host))
    if rng.random() < 0.05:
        seen[(at > 100) & (at < 100 + rng.uniform(30, 60))] = np.nan
    counters = {
        ("host", "host", "cpu_percent", "%"): host.round(1),
        ("host", "process", "cpu_percent", "% of a core"): (100 * seen.clip(0)).round(1),
        ("host", "host", "memory_used", "bytes"): 4096 * ((memory + resident) * 2**18).round(),
        ("host", "process", "memory_resident", "bytes"): 4096 * (resident * 2**18).round(),
        ("host", "process", "threads", "count"): np.where(evaluates, THREADS + 1.0, THREADS + 4.0),
    }
    return counters, np.where(evaluates, 0.0, own / wanted), taken


def _labkits_mark(taken: np.ndarray) -> dict[str, Any]:
    """What labkit would have recorded of other programs: their share of the CPU time of the whole run."""
    share = round(float(taken.mean()) / THREADS, 3)
    marked = share >= runs.BUSY or share * THREADS >= runs.MOST_OF_A_CORE
    return {"cpu_share": share, "largest": "python (process 7)" if marked else None, "on_gpu": [], "disturbed": marked}


def _record(run: _Drawn, ended: str, result: Any) -> runs.RunRecord:
    machine = {"machine_cores": run.cores, "threads": THREADS}
    train: Any = {"optimizer": run.optimizer, "target_metric": "auc", "target": TARGET, "higher_is_better": True}
    cpu: Any = {"kind": "cpu", "name": f"made-up CPU of {run.cores} cores", "torch_name": "cpu", "cores": THREADS}
    config: Any = {"job": "made-up", "machine": machine, "train": train}
    return runs.RunRecord(
        id=run.name,
        name="made-up",
        config=config,
        budget={"name": "two-cores", "torch_name": "cpu"},
        tier=None,
        devices=[cpu],
        host=f"machine-{run.number % 16:02d}",
        software={},
        git_commit=None,
        seed=run.number,
        argv=[],
        provenance=runs.Provenance("emulated", f"labkit {project.VERSION}", run.began.isoformat(), NOTE),
        status="done",
        pid=0,
        pid_started=0.0,
        started_at=run.began.isoformat(),
        ended_at=ended,
        result=result,
    )


@contextlib.contextmanager
def neighbour(cores: int) -> Generator[None]:
    """Keep that many cores busy during the block, with processes that are no children of this one.

    To labkit they are other programs: what starts each of them ends at once.
    """
    start = START.format(loop=LOOP.format(end=time.time() + LONGEST_S))
    loops = [psutil.Process(int(subprocess.check_output([sys.executable, "-c", start]))) for _ in range(cores)]
    try:
        yield
    finally:
        for loop in loops:
            with contextlib.suppress(psutil.NoSuchProcess):
                loop.kill()

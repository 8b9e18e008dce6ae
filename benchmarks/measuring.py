"""What all benchmarks share: ways that are timed in turn, and ratios that a machine's moods leave alone."""

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from math import exp, log, sqrt
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Ratio:
    """How many times as fast one way was as another, in one run."""

    what: str
    way: str
    base: str
    ratio: float
    """Of the medians, or the geometric mean of pairs."""
    low: float
    """The lowest ratio of one turn, or the lower end of the 95 % interval of that mean."""
    high: float
    way_value: float
    base_value: float
    unit: str
    note: str = ""

    def __str__(self) -> str:
        spread = f"{self.ratio:6.2f}  ({self.low:.2f} to {self.high:.2f})"
        values = f"{self.base_value:.4g} and {self.way_value:.4g} {self.unit}"
        return f"{self.what:<42} {self.way:<28} {spread:<24} {values}{'; ' + self.note if self.note else ''}"


def in_turn(ways: Mapping[str, Callable[[], object]], *, turns: int, warm_up: int = 2) -> dict[str, list[float]]:
    """Seconds of each way in each turn; all ways take their turn before the next begins."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(-warm_up, turns):
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            if turn >= 0:
                taken[name].append(time.perf_counter() - began)
    return taken


def speed_ups(
    what: str, taken: Mapping[str, list[float]], *, base: str, unit: str = "ms", note: str = ""
) -> list[Ratio]:
    """How many times as fast as `base` each other way is, from its seconds in each turn."""
    scale = {"ms": 1000, "s": 1}[unit]
    return [
        Ratio(
            what,
            way,
            base,
            median(taken[base]) / median(seconds),
            *_ends(slow / fast for slow, fast in zip(taken[base], seconds, strict=True)),
            scale * median(seconds),
            scale * median(taken[base]),
            unit,
            note,
        )
        for way, seconds in taken.items()
        if way != base
    ]


def paired(what: str, way: str, base: str, ways: list[float], bases: list[float], *, unit: str) -> Ratio:
    """How many times as much `base` took as `way` in pairs: the geometric mean, with its 95 % t-interval."""
    from scipy.stats import t as student

    logs = [log(of_base / of_way) for of_way, of_base in zip(ways, bases, strict=True)]
    half = student.ppf(0.975, len(logs) - 1) * stdev(logs) / sqrt(len(logs))
    ratio, low, high = (exp(mean(logs) + by) for by in (0.0, -half, half))
    note = f"{len(logs)} pairs, 95 % interval"
    return Ratio(what, way, base, ratio, low, high, median(ways), median(bases), unit, note)


def machine() -> dict[str, object]:
    """What a result was measured on, and when."""
    import torch

    from labkit.hardware import package_versions, read_cpu

    cpu = read_cpu()
    return {
        "cpu": cpu.model,
        "cores": cpu.available_cores,
        "isa": cpu.isa and list(cpu.isa),
        "caps": {
            name: os.environ[name] for name in ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA") if name in os.environ
        },
        "memory_bytes": cpu.memory_bytes,
        "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "packages": {name: version for name, version in package_versions().items() if version},
        "when": time.strftime("%Y-%m-%d"),
    }


def in_own_process(command: list[str], *, environment: Mapping[str, str] | None = None) -> tuple[Any, float]:
    """What a Python program printed as JSON, and the most memory that it held, in 1e9 bytes."""
    child = subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, env={**os.environ, **(environment or {})}
    )
    answer = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} ended with status {status}")
    unit = 1 if sys.platform == "darwin" else 1024
    return json.loads(answer), usage.ru_maxrss * unit / 1e9


def bind_to(cores: Iterable[int]) -> None:
    """Let this process run on these cores only, where the system can do that."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, set(cores))


def cores() -> list[int]:
    """The cores that this process may run on."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def report(name: str, ratios: list[Ratio], *, write: bool = True, **more: object) -> None:
    """Print ratios, and write them with what they were measured on to `results/NAME.json`."""
    for ratio in ratios:
        print(ratio, flush=True)
    if write:
        write_result(name, ratios=[asdict(ratio) for ratio in ratios], **more)


def write_result(name: str, **content: object) -> None:
    """Write what a benchmark found, with what it was measured on, to `results/NAME.json`."""
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps({"benchmark": name, "machine": machine(), **content}, indent=1)
    (RESULTS / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def _ends(values) -> tuple[float, float]:
    values = list(values)
    return min(values), max(values)

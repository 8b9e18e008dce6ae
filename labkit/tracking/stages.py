"""Stages of a run, such as loading and cleaning: their seconds, joules and most memory, and which one memory ended."""

import contextlib
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

import psutil

from labkit import hardware
from labkit.tracking.energy import window
from labkit.tracking.events import phase
from labkit.tracking.log import RunLog

LOOK_S = 0.004
"""Seconds between two looks at the memory that this process holds: a look takes 40 µs"""


@dataclass
class Stage:
    """One stage; `seconds` and `peak_bytes` are known after its block."""

    name: str
    seconds: float | None = None
    peak_bytes: int = 0
    """Most memory that this process held, counted as a budget counts it"""
    facts: dict[str, Any] = field(default_factory=dict)

    def note(self, **facts: Any) -> None:
        """Record numbers of your own with this stage, such as its rows."""
        self.facts |= facts


@contextlib.contextmanager
def measured(stage: Stage, log: RunLog, budget: hardware.Budget, at: str, smaller: str) -> Generator[Stage]:
    """Measure a stage and record it; see `Run.stage`. What its block raises leaves it without an end in the record."""
    log.event("stage_began", name=stage.name)
    log.flush()  # a stage that needs too much memory may be killed
    hardware.give_memory_back()  # or each stage would hold what the largest before it held
    words = f" in its stage {stage.name!r}{f' at {at}' if at else ''}"
    hardware.now_in(budget, words, f"make it smaller{f': {smaller}' if smaller else ''}")
    began = time.perf_counter()
    with _looking(stage), window(stage.name), phase(stage.name):
        yield stage
    stage.seconds = log.stages[stage.name] = time.perf_counter() - began
    log.event("stage", name=stage.name, seconds=stage.seconds, peak_bytes=stage.peak_bytes, **stage.facts)
    hardware.now_in(budget)  # after an error it stays, for its message


@contextlib.contextmanager
def _looking(stage: Stage) -> Generator[None]:
    """Look at this process' memory again and again.

    The kernel's own high-water mark would not do: it counts mapped files, and pandas maps the CSV that it reads.
    """
    own, ended = psutil.Process(), threading.Event()

    def look() -> None:
        is_last = False
        while not is_last:
            is_last = ended.wait(LOOK_S)
            held = hardware.held(own.pid) or own.memory_info().rss  # without /proc, mapped files count, too
            stage.peak_bytes = max(stage.peak_bytes, held)

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()

"""Takes a job's steps on command: so many seconds on these cores, then none until the next command."""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from labkit.profiling.profile import KINETO
from labkit.profiling.recording.recorder import StepRecorder
from labkit.profiling.recording.settings import ProfileSettings
from labkit.profiling.traces.trace import read_trace
from labkit.profiling.work.operators import operators_at_work
from labkit.telemetry.memory import own_peak_bytes

WARM_UP_STEPS, WARM_UP_S = 5, 1.0
"""Both pass before the job says that it is ready: the first steps allocate, compile and fill caches."""
RECORDED = ProfileSettings(skip=2, warmup=1, steps=3, graph=False)
"""Steps whose operators are counted; their times are not used, since the profiler is in them."""


class CommandedSteps:
    """A `labkit.tracking.harness.StepObserver` that holds the job between commands.

    Commands are dictionaries: `{"do": "run", "seconds", "settle_s", "cores", "threads", "linger"}`, `{"do": "record"}`
    and `{"do": "hold"}`; None ends the job. Each is answered by one dictionary; a run with linger goes on until the
    next command.
    """

    def __init__(self, commands: queue.Queue, answer: Callable[[dict[str, Any]], None]):
        """Take commands from a queue, and give answers to a function."""
        self.taken = 0
        """Steps so far"""
        self.is_done = False
        """Whether it was told to end"""
        self._commands, self._answer = commands, answer
        self._recorder: StepRecorder | None = None
        self._run: dict[str, Any] | None = None
        self._opened: tuple[int, float, float, int] | None = None
        """Steps, wall time, CPU time and nanoseconds since 1970 at which the run's window opened"""
        self._is_ready = self._lingers = False

    def describe(self) -> dict[str, Any]:
        return {"tool": "solo profile"}

    def start(self, folder: Path, on: torch.device) -> None:
        self._folder, self._device = folder, on
        self._threads = torch.get_num_threads()
        self._cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
        self._began = time.perf_counter()

    def step(self) -> bool:
        """Take note of a step; wait for a command where there is nothing to do. True once the job is to end."""
        self.taken += 1
        if self._recorder is not None:
            if self._recorder.step():
                self._end_recording()
        elif self._run is not None:
            self._look_at_the_clock()
        elif not self._is_ready:
            self._is_ready = self.taken >= WARM_UP_STEPS and time.perf_counter() - self._began >= WARM_UP_S
            if self._is_ready:
                self._answer({"folder": str(self._folder), "device": str(self._device), "threads": self._threads})
        if self._is_ready and self._run is None and self._recorder is None:
            self._obey()
        return self.is_done

    def finish(self) -> None:
        if self._recorder is not None:
            self._recorder.finish()

    def _obey(self) -> None:
        if self._lingers and self._commands.empty():
            return
        command = self._commands.get()
        if command is None:
            self.is_done = True
        elif command["do"] == "record":
            self._recorder = StepRecorder(RECORDED)
            self._recorder.start(self._folder, self._device)
        elif command["do"] == "run":
            self._bind(command["cores"], command["threads"])
            self._run, self._opened, self._lingers = command, None, command["linger"]
            self._began = time.perf_counter()
        else:  # hold
            self._lingers = False
            self._answer({"held": True})
            self._obey()

    def _look_at_the_clock(self) -> None:
        now = time.perf_counter()
        if self._opened is None:
            if now - self._began >= self._run["settle_s"]:
                self._opened = self._now()
        elif now - self._opened[1] >= self._run["seconds"]:
            steps, wall_s, cpu_s, took_ns = (
                late - early for late, early in zip(self._now(), self._opened, strict=True)
            )
            self._run = None
            times = {"wall_s": wall_s, "cpu_s": cpu_s, "began_ns": time.time_ns() - took_ns, "took_ns": took_ns}
            self._answer({"steps": steps, **times, "memory_bytes": self._peak_memory()})

    def _now(self) -> tuple[int, float, float, int]:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)  # a step has ended when its kernels have
        return self.taken, time.perf_counter(), time.process_time(), time.time_ns()

    def _peak_memory(self) -> int:
        return torch.cuda.max_memory_reserved(self._device) if self._device.type == "cuda" else own_peak_bytes()

    def _bind(self, cores: list[int] | None, threads: int | None) -> None:
        """Bind all of this process to some cores, None for all, and compute with so many threads, None for one each."""
        if self._cores is None or self._device.type == "cuda":
            return
        _bind_all_threads(cores or self._cores)
        threads = threads or min(self._threads, len(cores or self._cores))
        torch.set_num_threads(threads)
        if "numba" in sys.modules:  # its kernels update tables in threads of their own
            numba = sys.modules["numba"]
            numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))

    def _end_recording(self) -> None:
        recorder, self._recorder = self._recorder, None
        recorder.finish()
        done = operators_at_work(read_trace(self._folder / "trace" / KINETO))
        self._answer({name: float(done[name].sum()) / RECORDED.steps for name in ("flop", "bytes")})


def _bind_all_threads(cores: Iterable[int]) -> None:
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(ProcessLookupError):  # one may end between being listed and being bound
            os.sched_setaffinity(int(task.name), cores)

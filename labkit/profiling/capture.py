"""Watches a few steady steps of a run, and writes what it saw into the run's `trace/`.

torch.profiler records them, or py-spy samples this process meanwhile.
"""

import contextlib
import json
import mmap
import os
import time
from collections import defaultdict
from collections.abc import Generator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, schedule

from labkit import errors, hardware, process, runs
from labkit.profiling.tools import FACTS, GRAPH, KINETO, LEAST_S, LIMITS, STACKS, TOOL_FACTS, ProfileSettings, PySpy

try:
    import resource
except ImportError:  # Windows
    resource = None

ROOM_BYTES = 64 << 20
"""Memory touched before the profiler starts. What the profiler records takes the place of tensors, which then need
other memory; this much is ready without page faults if the allocator keeps what is freed. Ten steps of the small DLRM
of `labkit profile dlrm` took 24 to 32 MiB."""
FRESH, FAULT_ROUNDS = bytes(1 << 20), 20
"""Memory per round, and rounds; short ones, because other programs take the core in between."""


class PhaseClock:
    """Times phases: wall time, CPU time of the process, page faults. Each is also an annotation in the trace."""

    def __init__(self):
        self._open: list[torch.profiler.record_function] = []
        self.restart()

    def restart(self) -> None:
        """Forget all times so far."""
        self._sums: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(3))
        self._at = _now()

    @property
    def phase(self) -> str:
        """The current phase; empty outside of all phases."""
        return self._open[-1].name if self._open else ""

    @contextlib.contextmanager
    def watch(self, name: str) -> Generator[None]:
        """Time the block as a phase; its time does not count for an enclosing phase."""
        self.begin(name)
        try:
            yield
        finally:
            self.end()

    def begin(self, name: str) -> None:
        self._charge()
        self._open.append(torch.profiler.record_function(name))
        self._open[-1].__enter__()

    def end(self) -> None:
        self._charge()
        self._open.pop().__exit__(None, None, None)

    def read(self) -> tuple[dict[str, list[float]], dict[str, float]]:
        """Wall and CPU time (µs), and page faults, of each phase since the last reading."""
        self._charge()
        sums = {name: sums.tolist() for name, sums in self._sums.items()}
        self.restart()
        times_us = {name: [1e6 * wall_s, 1e6 * cpu_s] for name, (wall_s, cpu_s, _) in sums.items()}
        return times_us, {name: faults for name, (*_, faults) in sums.items()}

    def _charge(self) -> None:
        now = _now()
        self._sums[self.phase] += now - self._at
        self._at = now


def _now() -> np.ndarray:
    return np.array([time.perf_counter(), time.process_time(), minor_faults()])


def minor_faults() -> int:
    """Minor page faults of this process so far; 0 where the system does not count them (Windows)."""
    return 0 if resource is None else resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def fault_cost_us() -> float | None:
    """Microseconds per page fault: of two writes to fresh memory, only the first one faults.

    The least of some rounds counts, since other programs only slow it down. None where faults are not counted.
    """
    if resource is None:
        return None
    rounds = []
    for _ in range(FAULT_ROUNDS):
        fresh = mmap.mmap(-1, len(FRESH), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # as malloc requests it
        before, began = minor_faults(), time.perf_counter()
        fresh[:] = FRESH
        between = time.perf_counter()
        fresh[:] = FRESH
        rounds.append((between - began, time.perf_counter() - between, minor_faults() - before))
    first_s, second_s, faults = map(min, zip(*rounds, strict=True))
    return 1e6 * max(0.0, first_s - second_s) / max(1, faults)


class StepWatcher:
    """Watches the steps of a run and times their phases; the observer of a `labkit.tracking.harness.Harness`."""

    def __init__(self, settings: ProfileSettings, tool: str):
        self.settings, self.tool = settings, tool
        self.taken = 0
        """Number of steps so far"""
        self.is_done = False
        """Whether nothing is left to watch"""
        self.clock = PhaseClock()
        self.profiler: profile | None = None
        """torch's profiler while it records"""

    def describe(self) -> dict[str, Any]:
        return {"tool": self.tool, **asdict(self.settings)}

    def start(self, folder: Path, on: torch.device) -> None:
        self.trace = folder / "trace"
        self.trace.mkdir(exist_ok=True)
        self.computes_on(on)

    def computes_on(self, device: torch.device) -> None:
        """Note the device, which may be known only after the first step."""
        if self.taken == 0:
            self.device = device
            self.is_on_gpu = device.type == "cuda"

    def of_compiled(self, graphs: int) -> str:
        """A note on a script in which torch.compile compiled graphs."""
        return (
            f"torch.compile compiled {graphs} graph{'s' * (graphs > 1)}. What it fused is shown as one operator, such "
            "as CompiledFunction, and a compiled function that also takes the optimiser's step as one phase; to look "
            "into them, profile again with TORCH_COMPILE_DISABLE=1, which runs all operators one by one"
        )

    def step(self) -> bool:
        """Note a step; True once everything is recorded."""
        raise NotImplementedError

    def finish(self) -> None:
        """End the recording, which may be unfinished."""
        self.is_done = True

    def write_facts(self, name: str, **facts: Any) -> None:
        """Write facts that belong to the recording."""
        of_all = {"settings": asdict(self.settings), "device": str(self.device), "threads": torch.get_num_threads()}
        runs.replace_text(self.trace / name, json.dumps(of_all | facts, indent=1) + "\n")


class StepRecorder(StepWatcher):
    """Skips some steps, times some, records some with torch.profiler, and one more as a graph of operators."""

    def __init__(self, settings: ProfileSettings):
        super().__init__(settings, "torch")
        self._graph: ExecutionTraceObserver | None = None
        self._unprofiled: list[tuple[float, float]] = []
        self._profiled: list[tuple[dict[str, list[float]], dict[str, float]]] = []

    def step(self) -> bool:
        self.taken += 1
        plan, warm = self.settings, self.settings.skip + self.settings.warmup
        if self.taken <= plan.skip:
            if self.is_on_gpu and self.taken in (plan.skip - plan.timed, plan.skip):
                torch.cuda.synchronize(self.device)  # so that the steps in between take as long as their kernels
            times, faults = self.clock.read()
            self._unprofiled.append((sum(wall_us for wall_us, _ in times.values()), sum(faults.values())))
            if self.taken == plan.skip:
                self._start_profiler()
        elif self.taken <= warm + plan.steps:
            if self.taken > warm:
                self._profiled.append(self.clock.read())
            with process.silenced():
                errors.certain(self.profiler).step()
            self.clock.restart()
            if self.taken == warm + plan.steps:
                self._stop_profiler()
                self._graph = ExecutionTraceObserver().register_callback(str(self.trace / GRAPH))
                with process.silenced():
                    self._graph.start()
        else:
            self._stop_graph()
            self.is_done = True
        return self.is_done

    def finish(self) -> None:
        """Write what was recorded, even if the steps ended before the schedule did."""
        self.is_done = True
        try:
            self._stop_graph()
            self._stop_profiler()
        finally:
            timed = self._unprofiled[-self.settings.timed :]
            self.write_facts(
                FACTS,
                unprofiled_step_us=[step_us for step_us, _ in timed],
                phases_us=[times for times, _ in self._profiled],
                fault_cost_us=fault_cost_us(),
                unprofiled_faults=[faults for _, faults in timed],
                phase_faults=[faults for _, faults in self._profiled],
            )

    def _start_profiler(self) -> None:
        plan = self.settings
        torch.ones(ROOM_BYTES, dtype=torch.uint8)  # touched, and freed
        self.profiler = profile(
            activities=[ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * self.is_on_gpu],
            schedule=schedule(wait=0, warmup=plan.warmup, active=plan.steps, repeat=1),
            record_shapes=plan.shapes,
            profile_memory=plan.memory,
        )
        with process.silenced():  # the environment silences it only before torch loads
            self.profiler.start()

    def _stop_profiler(self) -> None:
        profiler, self.profiler = self.profiler, None
        if profiler is None:
            return
        with process.silenced():
            profiler.stop()
        if self._profiled:  # else it never reached a step to record
            profiler.export_chrome_trace(str(self.trace / KINETO))

    def _stop_graph(self) -> None:
        graph, self._graph = self._graph, None
        if graph is not None:
            with process.silenced():
                graph.stop()
                graph.unregister_callback()


class SampledSteps(StepWatcher):
    """Skips the first steps, then lets py-spy sample the steps of the settings, or more of them for `LEAST_S`."""

    def __init__(self, settings: ProfileSettings, script: Path | str):
        super().__init__(settings, "py-spy")
        self._script = os.path.abspath(script)  # noqa: PTH100  links stay as they are, as in a stack
        self._py_spy: PySpy | None = None
        self._steps, self._opened, self._window_s = 0, 0.0, 0.0

    def step(self) -> bool:
        self.taken += 1
        self._steps = max(0, self.taken - self.settings.skip - self.settings.warmup)
        if self.taken == self.settings.skip + self.settings.warmup:
            self._py_spy = PySpy(self.trace / STACKS)
            self._opened = time.perf_counter()
        elif self._steps >= self.settings.steps and time.perf_counter() - self._opened >= LEAST_S:
            self._close()
        return self.is_done

    def finish(self) -> None:
        """Stop sampling if the steps ended before the schedule did, and write the facts."""
        if self._py_spy is not None and not self.is_done:
            self._close()
        self.write_facts(TOOL_FACTS, tool=self.tool, script=self._script, steps=self._steps, window_s=self._window_s)

    def _close(self) -> None:
        self.is_done = True
        self._window_s = time.perf_counter() - self._opened
        errors.certain(self._py_spy).end()


def save_limits(folder: Path, limits: "hardware.Calibration") -> None:
    """Keep the machine's limits next to a run's trace."""
    runs.replace_text(folder / "trace" / LIMITS, json.dumps(asdict(limits), indent=1) + "\n")

"""Looks at a few steady steps of a run, and writes what it saw into the run's `trace/`.

torch.profiler records them, or a profiler that is a program of its own looks at this process meanwhile.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ExecutionTraceObserver, ProfilerActivity, profile, schedule

from labkit.process import silenced
from labkit.profiling.profile import FACTS, GRAPH, KINETO
from labkit.profiling.recording.phase_clock import PhaseClock, fault_cost_us
from labkit.profiling.recording.settings import CHATTER, ProfileSettings
from labkit.profiling.tools.programs import OUTPUTS, TOOL_FACTS
from labkit.profiling.tools.py_spy import LEAST_S, PySpy
from labkit.runs import replace_text

ROOM_BYTES = 64 << 20
"""What the profiler writes down comes to lie where tensors were, which then need other memory. That much is ready for
them, without page faults, if the allocator keeps what is freed; ten steps of the small DLRM of `labkit profile dlrm`
took 24 to 32 MiB."""


class StepWatcher:
    """Looks at the steps of a run, by its clock; the observer of a `labkit.tracking.harness.Harness`."""

    def __init__(self, settings: ProfileSettings, tool: str):
        self.settings, self.tool = settings, tool
        self.taken = 0
        """Steps so far"""
        self.is_done = False
        """Whether nothing more is to be seen"""
        self.clock = PhaseClock()
        self.profiler: profile | None = None
        """Of torch, where it is that which looks"""

    def describe(self) -> dict[str, Any]:
        return {"tool": self.tool, **asdict(self.settings)}

    def start(self, folder: Path, on: torch.device) -> None:
        self.trace = folder / "trace"
        self.trace.mkdir(exist_ok=True)
        self.computes_on(on)

    def computes_on(self, device: torch.device) -> None:
        """Take note of the device, which may be known only after the first step."""
        if self.taken == 0:
            self.device = device
            self.is_on_gpu = self.clock.nvtx = device.type == "cuda"

    def step(self) -> bool:
        """Take note of a step; True once all is recorded."""
        raise NotImplementedError

    def write_facts(self, name: str, **facts: Any) -> None:
        """Write down what belongs to what was recorded."""
        of_all = {
            "settings": asdict(self.settings),
            "device": str(self.device),
            "threads": torch.get_num_threads(),
        }
        replace_text(self.trace / name, json.dumps(of_all | facts, indent=1) + "\n")


class StepRecorder(StepWatcher):
    """Passes over some steps, times some, then records some, and one more as a graph of operators."""

    def __init__(self, settings: ProfileSettings):
        super().__init__(settings, "torch")
        self._graph: ExecutionTraceObserver | None = None
        self._unprofiled: list[tuple[float, int]] = []
        self._profiled: list[tuple[dict[str, list[float]], dict[str, int]]] = []

    def step(self) -> bool:
        self.taken += 1
        plan, warm = self.settings, self.settings.skip + self.settings.warmup
        if self.taken <= plan.skip:
            if self.is_on_gpu and self.taken in (plan.skip - plan.timed, plan.skip):
                torch.cuda.synchronize(self.device)  # so that all these steps together take what their kernels take
            times, faults = self.clock.read()
            self._unprofiled.append((sum(wall_us for wall_us, _ in times.values()), sum(faults.values())))
            if self.taken == plan.skip:
                self._start_profiler()
        elif self.taken <= warm + plan.steps:
            if self.taken > warm:
                self._profiled.append(self.clock.read())
            self.profiler.step()
            self.clock.restart()
            if self.taken == warm + plan.steps:
                self._stop_profiler()
                self._graph = ExecutionTraceObserver().register_callback(str(self.trace / GRAPH))
                with silenced():
                    self._graph.start()
        else:
            self._stop_graph()
            self.is_done = True
        return self.is_done

    def finish(self) -> None:
        """Write what was recorded, also where the steps ended before the schedule did."""
        self.is_done = True
        try:
            self._stop_graph()
            self._stop_profiler()
        finally:
            self._write()

    def _write(self) -> None:
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
        os.environ.setdefault("KINETO_LOG_LEVEL", CHATTER["KINETO_LOG_LEVEL"])  # read when a profiler starts
        self.profiler = profile(
            activities=[ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * self.is_on_gpu],
            schedule=schedule(wait=0, warmup=plan.warmup, active=plan.steps, repeat=1),
            record_shapes=plan.shapes,
            profile_memory=plan.memory,
        )
        self.profiler.start()

    def _stop_profiler(self) -> None:
        profiler, self.profiler = self.profiler, None
        if profiler is None:
            return
        profiler.stop()
        if self._profiled:  # else it never came to what it was to record
            profiler.export_chrome_trace(str(self.trace / KINETO))

    def _stop_graph(self) -> None:
        graph, self._graph = self._graph, None
        if graph is not None:
            with silenced():
                graph.stop()
                graph.unregister_callback()


class SteadySteps(StepWatcher):
    """Lets the first steps pass, then has a tool look: nsys for the steps of the settings, py-spy for longer."""

    def __init__(self, settings: ProfileSettings, tool: str, script: Path | str):
        super().__init__(settings, tool)
        self._script = os.path.abspath(script)  # noqa: PTH100  links stay as they are, as in a stack
        self.least_s = LEAST_S if tool == "py-spy" else 0.0
        """The window is open for so long at least"""
        self._py_spy: PySpy | None = None
        self._steps, self._opened, self._window_s = 0, 0.0, 0.0

    def step(self) -> bool:
        self.taken += 1
        self._steps = max(0, self.taken - self.settings.skip - self.settings.warmup)
        if self.taken == self.settings.skip + self.settings.warmup:
            self._open()
        elif self._steps >= self.settings.steps and time.perf_counter() - self._opened >= self.least_s:
            self._close()
        return self.is_done

    def finish(self) -> None:
        """Close the window where the steps ended before the schedule did, and write down what it was."""
        if self._opened and not self.is_done:
            self._close()
        self.write_facts(TOOL_FACTS, tool=self.tool, script=self._script, steps=self._steps, window_s=self._window_s)

    def _open(self) -> None:
        if self.is_on_gpu:
            torch.cuda.synchronize(self.device)  # what was launched before belongs to steps that pass
            torch.cuda.profiler.start()
        if self.tool == "py-spy":
            self._py_spy = PySpy(self.trace / OUTPUTS[self.tool])
        self._opened = time.perf_counter()

    def _close(self) -> None:
        self.is_done = True
        if self.is_on_gpu:
            torch.cuda.synchronize(self.device)
        self._window_s = time.perf_counter() - self._opened
        if self._py_spy is not None:
            self._py_spy.end()
        if self.is_on_gpu:
            torch.cuda.profiler.stop()

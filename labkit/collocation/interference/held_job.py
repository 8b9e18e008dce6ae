"""A job in a process of its own that trains only while it is told to."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from labkit.collocation.launching.worker_process import script_command
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.errors import UserError
from labkit.process.containment import end_killed
from labkit.runs.process import OUT_OF_CTRL_C
from labkit.tracking.command import ScriptCommand

PASSIVE_WAITS = {"OMP_WAIT_POLICY": "PASSIVE"}
"""Idle threads of OpenMP give their core away, so that CPU time is work."""
LONGEST_END_S = 30.0
SETTLE_S = 0.2
"""Before what is timed, in which caches and neighbours get used to it"""
LEAST_SAMPLES_HZ = 0.1
"""On a CPU nothing of the telemetry is used, and each sample takes time from the job."""


@dataclass(frozen=True)
class Stretch:
    """Steps of a job that were timed."""

    steps: int
    wall_s: float
    cpu_s: float
    """Of all threads of its process"""
    memory_bytes: int
    """Most that it held so far: resident memory, or on a GPU what torch reserved"""
    began_ns: int = 0
    """Since 1970, as telemetry has it"""
    took_ns: int = 0

    @property
    def step_time_ms(self) -> float:
        return 1000 * self.wall_s / self.steps


class HeldJob:
    """A context manager that leaves no process behind; within it the job is warm, and stands still between runs."""

    def __init__(self, job: PlannedJob, runs_dir: Path, *, spin: bool = False):
        """Hold a job, whose run folder is made in `runs_dir`; `spin` as in `Plan.spin`."""
        self.job, self.runs_dir, self.spin = job, runs_dir, spin
        self.device, self.threads, self.folder = "cpu", 0, runs_dir
        """As torch names the device, CPU threads that compute, and the run's folder; known once it is entered"""

    def __enter__(self) -> HeldJob:
        """Start it, and wait until its first steps are taken.

        Raises:
            UserError: the job was refused, or ended before it was warm.
        """
        self._stack = contextlib.ExitStack()
        with contextlib.ExitStack() as stack:
            self._errors = stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8"))
            self._process = subprocess.Popen(
                [sys.executable, "-m", "labkit.collocation.interference.commanded_job"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                text=True,
                encoding="utf-8",
                env=dict(os.environ) if self.spin else os.environ | PASSIVE_WAITS,
                **OUT_OF_CTRL_C,
            )
            stack.callback(self._end)
            self._tell(self._command.to_dict())
            ready = self._answer()
            self._stack = stack.pop_all()
        self.device, self.threads, self.folder = ready["device"], ready["threads"], Path(ready["folder"])
        return self

    def __exit__(self, *exception) -> None:
        self._stack.close()

    @property
    def _command(self) -> ScriptCommand:
        sample_hz = LEAST_SAMPLES_HZ if self.job.device == "cpu" else None
        command = script_command(self.job).seeded(self.job.seed)
        return replace(command, seed=None, runs_dir=str(self.runs_dir), device=self.job.device, sample_hz=sample_hz)

    @property
    def pid(self) -> int:
        """Of its process"""
        return self._process.pid

    def begin(
        self,
        seconds: float,
        *,
        cores: Sequence[int] | None = None,
        threads: int | None = None,
        linger: bool = False,
    ) -> None:
        """Let it train; `end` says what it did.

        Args:
            seconds: that are timed, and the rest of the step under way.
            cores: CPU cores that it is bound to; None takes all it had at its start.
            threads: that compute; None takes one a core.
                linger: go on after the timed seconds, as a neighbour, until `hold`.
        """
        bound = {"cores": None if cores is None else list(cores), "threads": threads}
        self._tell({"do": "run", "seconds": seconds, "settle_s": SETTLE_S, "linger": linger, **bound})

    def end(self) -> Stretch:
        """Wait for the timed seconds to be over."""
        return Stretch(**self._answer())

    def run(self, seconds: float, *, cores: Sequence[int] | None = None, threads: int | None = None) -> Stretch:
        """Let it train for some seconds, by itself."""
        self.begin(seconds, cores=cores, threads=threads)
        return self.end()

    def hold(self) -> None:
        """Stop a job that lingers, and wait until it stands still."""
        self._tell({"do": "hold"})
        self._answer()

    def work(self) -> tuple[float, float]:
        """Floating-point operations and bytes of a step, of the operators that have a formula; a few more steps."""
        self._tell({"do": "record"})
        answer = self._answer()
        return answer["flop"], answer["bytes"]

    def _tell(self, content: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):  # why it ended is said where its answer is missed
            self._process.stdin.write(json.dumps(content) + "\n")
            self._process.stdin.flush()

    def _answer(self) -> dict[str, Any]:
        line = self._process.stdout.readline()
        answer = json.loads(line) if line else {"error": self._last_words()}
        if "error" in answer:
            raise UserError(f"{self.job.label} was to train alone, for its profile: {answer['error']}")
        return answer

    def _last_words(self) -> str:
        status = self._process.wait()
        self._errors.seek(0)
        words = self._errors.read()[-2000:].strip()
        return (
            f"its process ended with status {status} before it was told to. See whether it trains by itself, for long "
            f"enough; it said:\n{words or '(nothing)'}"
        )

    def _end(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=LONGEST_END_S)
        except BaseException as error:
            self._process.kill()
            end_killed(self._process)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
        finally:
            self._process.stdout.close()

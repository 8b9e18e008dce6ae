"""What a job's memory really comes to: a few steps and an evaluation, in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from labkit.errors import UserError
from labkit.training.request import TrainRequest

STEPS = 3
"""Enough for the optimiser's state to be there while a whole step is taken, twice."""


@dataclass(frozen=True)
class Measured:
    """What was measured on this machine."""

    tensors_bytes: int
    """Peak of all tensors together: torch's allocator, the batch's arrays and those of the compiled table update"""
    process_bytes: int
    """Peak of the process; memory of a GPU is not in it"""
    kind: str
    """Of the step, in words"""


def measure_peak(request: TrainRequest, steps: int = STEPS, device: str = "cpu") -> Measured:
    """Train for some steps on the longest batch, evaluate once, and say how much memory was held at most.

    Two processes do so one after the other, one with torch's profiler for the tensors, one without for the process;
    nothing is left of them, or written but the prepared data.

    Raises:
        UserError: the job could not run here, for want of memory say.
    """
    asked = {"request": request.to_dict(), "steps": steps, "device": device}
    tensors = ask_child(asked | {"what": "tensors"})
    process = ask_child(asked | {"what": "process"})
    return Measured(tensors["bytes"], process["bytes"], tensors["kind"])


def ask_child(asked: dict[str, Any]) -> dict[str, Any]:
    """What a process of its own answers.

    Raises:
        UserError: it failed; the text ends with what it said.
    """
    child = subprocess.run(
        [sys.executable, "-m", "labkit.collocation.memory.measured_child"],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        env=os.environ.copy(),
    )
    if child.returncode:
        said = child.stderr.strip().splitlines()
        raise UserError(
            f"the process that measures memory ended with status {child.returncode}: {said[-1] if said else 'killed'}. "
            "Where it was killed, the job takes more memory than is free here: choose a smaller batch or preset."
        )
    return json.loads(child.stdout)

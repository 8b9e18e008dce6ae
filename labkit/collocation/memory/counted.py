"""Takes a job's first steps in a process of its own while every allocation of a tensor is counted.

The process (`python -m labkit.collocation.memory.counted`) reads a `ScriptCommand` as JSON, and writes the peak.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace

from labkit.errors import UserError
from labkit.tracking.command import ScriptCommand

STEPS = 3
"""Enough for the optimiser's state to be there while a whole step is taken, twice."""


def counted_bytes(command: ScriptCommand) -> int:
    """Peak of all tensors in a script's first steps on a CPU.

    Raises:
        UserError: it failed; the text ends with what it said.
    """
    with tempfile.TemporaryDirectory(prefix="labkit-") as folder:
        child = subprocess.run(
            [sys.executable, "-m", "labkit.collocation.memory.counted"],
            input=json.dumps(replace(command, runs_dir=folder, device="cpu").to_dict()),
            capture_output=True,
            text=True,
        )
    if child.returncode:
        said = child.stderr.strip().splitlines()[-1:]
        raise UserError(f"{command.script}: the process that counts its tensors failed: {''.join(said)}")
    return int(child.stdout)


def main() -> None:
    from torch.profiler import ProfilerActivity, profile

    from labkit.tracking.script import run_command
    from labkit.tracking.stop import StopRequest

    command = ScriptCommand.from_dict(json.load(sys.stdin))
    answer, steps = os.fdopen(os.dup(1), "w"), itertools.count(1)
    os.dup2(2, 1)  # what the script prints is no answer
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run_command(command, StopRequest(), lambda event: None, on_step=lambda: next(steps) == STEPS)
    events = sorted(profiler.profiler.kineto_results.events(), key=lambda event: event.start_ns())
    changes = [event.nbytes() for event in events if event.name() == "[memory]"]
    print(max(itertools.accumulate(changes)), file=answer, flush=True)


if __name__ == "__main__":
    main()

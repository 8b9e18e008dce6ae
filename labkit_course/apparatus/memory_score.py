"""The bytes of a script's tensors; run as a program, this takes its first steps while every allocation is counted."""

from __future__ import annotations

import itertools
import tempfile
from dataclasses import replace

from torch.profiler import ProfilerActivity, profile

from labkit.errors import UserError
from labkit.process import Child, Parent
from labkit.tracking import ScriptCommand, StopRequest, run_command

STEPS = 3
"""Steps that are counted: the optimiser's state is there while a whole step is taken, twice."""


def counted_bytes(command: ScriptCommand) -> int:
    """Peak of all tensors in a script's first steps on a CPU, in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="labkit-") as folder:
        content = replace(command, runs_dir=folder, device="cpu").to_dict()
        with Child("labkit_course.apparatus.memory_score", content) as child:
            counted = next((message["bytes"] for message in child.messages() if message["kind"] == "Counted"), None)
            if counted is None:
                said = child.stderr_tail().strip().splitlines()[-1:]
                raise UserError(f"{command.script}: the process that counts its tensors failed: {''.join(said)}")
    return counted


def main() -> None:
    parent, steps = Parent(), itertools.count(1)
    command = ScriptCommand.from_dict(parent.content)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run_command(command, StopRequest(), lambda event: None, on_step=lambda: next(steps) == STEPS)
    events = sorted(profiler.profiler.kineto_results.events(), key=lambda event: event.start_ns())
    changes = [event.nbytes() for event in events if event.name() == "[memory]"]
    parent.tell("Counted", bytes=max(itertools.accumulate(changes)))


if __name__ == "__main__":
    main()

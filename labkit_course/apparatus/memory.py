"""What a job holds: its tensors, its process, and the largest batch that a budget's memory has room for.

The largest batch is found by short runs, doubled until one runs out, then bisected. Run as a program, this takes a
script's first steps while every allocation of a tensor is counted.
"""

import itertools
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from labkit.errors import UserError, certain
from labkit.hardware import Budget, held
from labkit.jobs import job_command
from labkit.json_data import build, to_json
from labkit.launch import ScriptRuns
from labkit.process import Child, Parent
from labkit.tracking import ScriptCommand, StopRequest, run_command

HEADROOM = 8
"""A trial has an eighth less memory than the budget: later epochs bring batches of other lengths, whose kernels and
buffers stay. The recogniser `tour`, with narrower images, at a batch of 256 held 342 MiB after an epoch, 380 after two
and 386 after ten (one core of an AMD EPYC, 25 November 2026); with a sixteenth, one of 18 longer runs with other seeds
ran out."""
LOOK_S = 0.02
"""Seconds between two looks at what a process holds."""
STEPS = 3
"""Steps whose tensors are counted: the optimiser's state is there while a whole step is taken, twice."""


class _Trial(ScriptRuns):
    """A run that is asked what it holds, as a budget counts it."""

    shows_output, poll_s, most_bytes = False, LOOK_S, 0

    def look(self) -> None:
        for pid in self.pids.values():
            self.most_bytes = max(self.most_bytes, held(pid) or 0)


def memory_held(job: str, budget: str | None = None, **settings: Any) -> int:
    """The most bytes that a run of a job holds, as a budget of memory counts them; the settings say when it ends."""
    return _tried(job_command(job, budget=budget, **settings)).most_bytes


def largest_batch(job: str, budget: str, *, first: int, most: int, step: int = 1, **settings: Any) -> dict[int, bool]:
    """Try batch sizes of a job under a budget, each in a run of its own that trains for as long as the settings say.

    Each prints a line.

    Args:
        job: "dlrm", "speech", or the path of a script that takes --batch-size.
        budget: its name, as --budget takes it.
        first: the size to begin with.
        most: the largest that is of interest, such as the number of training samples.
        step: how near to the largest one to come.
        settings: the script's flags by name; `max_epochs=2` shows most lengths.

    Returns:
        Each size that was tried, in that order, and whether it fits.

    Raises:
        UserError: not even the first one fits, or the job failed for another reason than its memory.
    """

    def fits(batch_size: int) -> bool:
        command = job_command(job, budget=budget, batch_size=batch_size, **settings)
        began, trial = time.perf_counter(), _tried(replace(command, budget=_less(certain(command.budget))))
        held_it = trial.end.status != "out_of_memory"
        print(f"batch {batch_size}: {'fits' if held_it else 'out of memory'} ({time.perf_counter() - began:.0f} s)")
        return held_it

    tried = tried_sizes(fits, first, most, step)
    if not any(tried.values()):
        raise UserError(
            f"the budget {budget!r} does not hold a batch of {first}: give it more memory, or begin with a smaller one."
        )
    return tried


def tried_sizes(fits: Callable[[int], bool], first: int, most: int, step: int) -> dict[int, bool]:
    """Double from `first` up to `most` until one does not fit, then halve what is open until it is at most `step`.

    >>> tried_sizes(lambda size: size <= 150, 32, 1000, 16)
    {32: True, 64: True, 128: True, 256: False, 192: False, 160: False, 144: True}
    """
    tried = {first: fits(first)}
    low, high = first, most + step if tried[first] else first
    while (low < most) if high > most else (high - low > step):  # nothing failed so far, or something did
        size = min(2 * low, most) if high > most else (low + high) // 2
        tried[size] = fits(size)
        low, high = (size, high) if tried[size] else (low, size)
    return tried


def _tried(command: ScriptCommand) -> _Trial:
    """The run at its end, which may be that it needed more memory than it may have; it leaves no folder."""
    with tempfile.TemporaryDirectory(prefix="labkit-trial-") as folder:
        trial = _Trial("probe", [replace(command, runs_dir=folder)], stop=StopRequest())
        trial.run()
    if trial.end.status == "failed":
        raise UserError(f"{command.script}: {trial.end.reason}")
    return trial


def _less(budget: Budget) -> Budget:
    """The budget with an eighth less of each memory that it caps."""
    caps = {name: getattr(budget, name) for name in ("memory_bytes", "gpu_memory_bytes")}
    return replace(budget, **{name: cap and cap - cap // HEADROOM for name, cap in caps.items()})


def counted_bytes(command: ScriptCommand) -> int:
    """Peak of all tensors in a script's first steps on a CPU, in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="labkit-") as folder:
        content = to_json(replace(command, runs_dir=folder, device="cpu"))
        with Child("labkit_course.apparatus.memory", content) as child:
            counted = next((message["bytes"] for message in child.messages() if message["kind"] == "Counted"), None)
            if counted is None:
                said = child.stderr_tail().strip().splitlines()[-1:]
                raise UserError(f"{command.script}: the process that counts its tensors failed: {''.join(said)}")
    return counted


def main() -> None:
    from torch.profiler import ProfilerActivity, profile  # only where tensors are counted

    parent, steps = Parent(), itertools.count(1)
    command = build(parent.content, ScriptCommand)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run_command(command, StopRequest(), lambda event: None, on_step=lambda: next(steps) == STEPS)
    events = sorted(profiler.profiler.kineto_results.events(), key=lambda event: event.start_ns())
    changes = [event.nbytes() for event in events if event.name() == "[memory]"]
    parent.tell("Counted", bytes=max(itertools.accumulate(changes)))


if __name__ == "__main__":
    main()

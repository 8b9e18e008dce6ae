"""Binds this process to its budget's cores, looks who else uses them, and chooses how its threads wait.

All of it before NumPy and torch are loaded, which read once how many threads to have and how these wait.
"""

from __future__ import annotations

import os

from labkit.runs import disturbance_text
from labkit.tracking.command import ScriptCommand
from labkit.tracking.ending import StopRequest
from labkit.tracking.events import Notice, OnEvent

WAIT_POLICY = "OMP_WAIT_POLICY"


def bind_process(command: ScriptCommand, on_event: OnEvent, stop: StopRequest) -> None:
    """Bind this process to the cores of a command's budget, for as long as it lives.

    Threads of one run wait busily for each other, which is best on cores of their own, and ruinous where another
    program takes one of these for a while: beside one busy process a DLRM on two cores trained 16 times as fast with
    threads that wait passively (benchmarks/busy_neighbour.py). So they wait passively where others take a tenth of the
    cores or half a core; OMP_WAIT_POLICY, where it is set, decides instead.
    Where other runs hold the cores it waits until they are free or `stop` is requested, or raises a `UserError`.
    """

    def say(words: str) -> None:
        on_event(Notice(words))

    budget = command.budget
    if budget is not None:
        os.environ.update(budget.environment())
    from labkit.telemetry import others_now, own_affinity  # NumPy comes with it

    cores = own_affinity()
    if budget is not None:
        for note in budget.take_cores(waits=command.waits_for_cores, say=say, stopped=lambda: bool(stop)):
            say(note)
    if command.collocation is not None:
        return  # whoever runs jobs side by side has looked, and chosen
    # of all cores that it could have had: a program on the others leaves it alone
    found = disturbance_text(others_now(count=budget and budget.cores, cores=cores))
    if not found:
        return
    waits = ""
    if (budget is None or budget.cores != 1) and WAIT_POLICY not in os.environ:
        os.environ[WAIT_POLICY] = "PASSIVE"
        waits = ", and its threads wait passively, which loses least beside others"
    say(f"Before the start {found}: if that goes on, this run is marked as disturbed{waits}.")

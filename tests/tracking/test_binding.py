"""How a process is bound before its libraries are loaded, and what it finds of other programs."""

import os

import pytest

from labkit.hardware.budgets.budget import Budget
from labkit.telemetry import others
from labkit.tracking.binding import WAIT_POLICY, bind_process
from labkit.tracking.command import ScriptCommand
from labkit.tracking.stop import StopRequest

QUIET = {"cpu_share": 0.02, "largest": None, "on_gpu": [], "disturbed": False}
BUSY = {"cpu_share": 0.5, "largest": "stress (process 7)", "on_gpu": [], "disturbed": True}
WHOLE = Budget("all-cores", 2)


@pytest.fixture
def bind(monkeypatch):
    """Binds this process in effigy; (what was told, how threads wait)."""
    monkeypatch.setattr(Budget, "take_cores", lambda self, **how: [])
    monkeypatch.delenv(WAIT_POLICY, raising=False)

    def run(budget, found, **more):
        told = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(others, "others_now", lambda **what: found)
            patch.setattr(os, "environ", dict(os.environ))
            command = ScriptCommand("t.py", budget=budget, **more)
            bind_process(command, lambda event: told.append(event.text), StopRequest())
            return told, os.environ.get(WAIT_POLICY)

    return run


def test_threads_wait_as_they_do_by_default_unless_that_costs(bind, monkeypatch):
    assert bind(WHOLE, QUIET) == ([], None)
    assert bind(None, QUIET) == ([], None)
    # who runs jobs side by side chooses for them
    assert bind(None, BUSY, collocation={"mode": "cpu-shared"}) == ([], None)
    (told,), waits = bind(Budget("one-core", 1), BUSY)  # one thread waits for nobody
    assert waits is None and "passively" not in told
    monkeypatch.setenv(WAIT_POLICY, "ACTIVE")
    assert bind(WHOLE, BUSY)[1] == "ACTIVE"


@pytest.mark.parametrize("budget", [None, WHOLE])
def test_beside_other_programs_threads_wait_passively_which_is_told(bind, budget):
    (told,), waits = bind(budget, BUSY)
    assert waits == "PASSIVE"
    assert told.startswith("Before the start other programs took 50% of its cores, most of it stress (process 7)")
    assert "its threads wait passively" in told

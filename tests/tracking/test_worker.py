"""How the processes of runs are bound."""

import os

import pytest

from labkit import telemetry
from labkit.hardware import Budget
from labkit.tracking.ending import StopRequest
from labkit.tracking.harness import ScriptCommand
from labkit.tracking.worker import WAIT_POLICY, bind_process

QUIET = {"cpu_share": 0.02, "largest": None, "on_gpu": [], "disturbed": False}
BUSY = {"cpu_share": 0.5, "largest": "stress (process 7)", "on_gpu": [], "disturbed": True}
WHOLE = Budget("all-cores", 2)


@pytest.mark.parametrize(
    ("budget", "found", "more", "policy", "waits"),
    [
        (WHOLE, QUIET, {}, None, None),
        (None, BUSY, {}, None, "PASSIVE"),
        (WHOLE, BUSY, {}, None, "PASSIVE"),
        (WHOLE, BUSY, {}, "ACTIVE", "ACTIVE"),
        (Budget("one-core", 1), BUSY, {}, None, None),  # one thread waits for nobody
        # who runs jobs side by side chooses for them
        (None, BUSY, {"collocation": {"mode": "cpu-shared"}}, None, None),
    ],
)
def test_beside_other_programs_threads_wait_passively_which_is_told(monkeypatch, budget, found, more, policy, waits):
    told = []
    variables = {name: value for name, value in os.environ.items() if name != WAIT_POLICY}
    monkeypatch.setattr(os, "environ", variables | ({WAIT_POLICY: policy} if policy else {}))
    monkeypatch.setattr(Budget, "take_cores", lambda self, **how: [])
    monkeypatch.setattr(telemetry, "others_now", lambda **what: found)
    bind_process(ScriptCommand("t.py", budget=budget, **more), lambda event: told.append(event.text), StopRequest())
    assert os.environ.get(WAIT_POLICY) == waits
    assert len(told) == (found is BUSY and not more)
    assert all("other programs took 50% of its cores, most of it stress (process 7)" in text for text in told)
    assert all(("its threads wait passively" in text) == (waits == "PASSIVE") for text in told)

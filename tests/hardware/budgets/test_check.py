"""What budgets do beside what they promise, and the command that says so."""

import json
import re
import sys
from dataclasses import replace

import pytest
from test_names import BIG, H100

from labkit.cli import main
from labkit.errors import UserError
from labkit.hardware.budgets.check import BudgetCheck, _predicted, budget_shares, overdraw
from labkit.hardware.budgets.names import parse_budget
from labkit.hardware.devices import get_devices


def test_a_budget_is_checked_by_what_a_process_does_under_it(capsys):
    assert main(["budgets", "--check", "one-core", "cores=1,memory=1GiB", "--json"]) == 0
    check, of_memory = json.loads(capsys.readouterr().out)
    assert (check["memory_binds"], of_memory["memory_binds"]) == (None, sys.platform.startswith("linux"))
    cores = get_devices()[0].cores
    assert (check["predicted_arithmetic"], check["cores"]) == (1 / cores, 1)
    assert 0 < check["cores_used"] <= 1.05
    assert check["predicted_bandwidth"] is None  # the catalogue has none for this machine
    # how near it comes depends on who else uses the machine
    assert check["arithmetic"] > 0 and check["bandwidth"] > 0


def test_what_the_catalogue_predicts(mps):
    devices = [BIG, H100]
    arithmetic, bandwidth = _predicted(parse_budget("t4-like", devices), devices, 2800.0)
    assert arithmetic == pytest.approx(8.14 / 66.9, rel=0.05)
    assert bandwidth == pytest.approx(320 / 3350, rel=0.05)
    assert _predicted(parse_budget("half-gpu", devices), devices, 2800.0) == (0.5, None)
    machine = [replace(BIG, cores=8, memory_bytes=32 * 2**30)]
    # a board's cores are others, its peak is the most that it reaches
    assert _predicted(parse_budget("jetson-nano-like", machine), machine, 51.2) == (None, 25.6 / 51.2)


def test_shares_are_a_row_each_and_the_command_lists_budgets_and_checks(capsys, monkeypatch):
    checks = [BudgetCheck("jetson-xavier-nx-like", 2, 1.0, 0.6, 0.9, None, 0.64, True, "emulated")]
    assert [tuple(row) for row in budget_shares(checks).itertuples(index=False)] == [
        ("jetson-xavier-nx-like", "arithmetic", 60, "emulated"),  # which nothing predicts
        ("jetson-xavier-nx-like", "bandwidth", 90, "emulated"),
        ("jetson-xavier-nx-like", "bandwidth", 64, "predicted"),
    ]
    assert main(["budgets", "--all"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "one-core" in out and "emulated" in out and "t4-like" in out
    assert "docs/budgets.md" in out and "memory bandwidth, caches" in out
    monkeypatch.setattr("labkit.hardware.check_budgets", lambda names: checks)
    assert main(["budgets", "--check", "jetson-xavier-nx-like"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"jetson-xavier-nx-like +1.00 +2 +yes +0.60 +- +0.90 +0.64", out)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux can enforce this")
def test_a_process_that_overdraws_says_its_budgets_name(capsys):
    stopped, said = overdraw("memory=1GiB", 2 * 2**30)
    assert stopped
    assert "budget 'memory=1GiB' allows (1 GiB)" in said and "memory=2GiB)." in said
    stopped, said = overdraw("memory=1GiB", 2**20)
    assert not stopped and said.startswith("Nothing stopped the process.")
    too_small = "'memory=1MiB' allows 1 MiB, but Python and its libraries already use"
    with pytest.raises(UserError, match=too_small):
        overdraw("memory=1MiB", 1)
    for name, why in (("memory=1MiB", too_small), ("t5-like", "t5-like")):
        assert main(["budgets", "--check", name]) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert why in said and "UserError" not in said

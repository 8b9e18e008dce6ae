"""Without a numba that works, labkit takes its plain ways and says why."""

import os
import subprocess
import sys

import pytest

from labkit.compiled import SWITCH, why_not_compiled

USE = """
from labkit.compiled import why_not_compiled
import torch
from labkit.fast.optimisers import fast_optimisers
from labkit.fast.tables import EmbeddingTables
fast_optimisers((torch.optim.SGD, torch.optim.SGD), [torch.nn.Parameter(torch.ones(1))], EmbeddingTables([3], 2), 0.1)
print(why_not_compiled())
"""


def used_with(begin: str = "", **variables: str) -> str:
    """What a new process says that begins so, with environment variables."""
    environment = {name: value for name, value in os.environ.items() if name != SWITCH} | variables
    answer = subprocess.run([sys.executable, "-c", begin + USE], env=environment, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.strip()


def test_a_numba_that_does_not_import_is_done_without(tmp_path):
    (tmp_path / "numba.py").write_text('raise ImportError("Numba needs NumPy 2.3 or less. Got NumPy 9.9.")')
    said = used_with(PYTHONPATH=str(tmp_path))
    assert said == "numba does not work here (Numba needs NumPy 2.3 or less. Got NumPy 9.9.)"


def test_a_numba_with_no_place_for_what_it_compiles_is_done_without():
    pytest.importorskip("numba")
    said = used_with(NUMBA_CACHE_LOCATOR_CLASSES="ZipCacheLocator")
    assert said.startswith("numba does not work here (cannot cache function '_nothing'")


def test_no_numba_is_done_without():
    begin = """
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name == "numba" else find(name)
"""
    assert used_with(begin) == 'numba is not installed (pip install "labkit[fast]")'


def test_the_switch_turns_compiled_kernels_off(monkeypatch):
    monkeypatch.setenv(SWITCH, "0")
    assert SWITCH in why_not_compiled()

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
NO_NUMBA = """
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name == "numba" else find(name)
"""
BROKEN = """
import sys, tempfile, pathlib
folder = tempfile.mkdtemp()
pathlib.Path(folder, "numba.py").write_text('raise ImportError("Numba needs NumPy 2.3 or less.")')
sys.path.insert(0, folder)
"""


@pytest.mark.parametrize(
    ("begin", "variables", "said"),
    [
        (NO_NUMBA, {}, 'numba is not installed (pip install "labkit[fast]")'),
        (BROKEN, {}, "numba does not work here (Numba needs NumPy 2.3 or less.)"),
        ("", {"NUMBA_CACHE_LOCATOR_CLASSES": "ZipCacheLocator"}, "numba does not work here (cannot cache function"),
    ],
)
def test_a_numba_that_is_missing_or_broken_or_has_no_cache_is_done_without(begin, variables, said):
    if not begin:
        pytest.importorskip("numba")
    environment = {name: value for name, value in os.environ.items() if name != SWITCH} | variables
    answer = subprocess.run([sys.executable, "-c", begin + USE], env=environment, capture_output=True, text=True)
    assert answer.stdout.startswith(said), answer.stderr


def test_the_switch_turns_compiled_kernels_off(monkeypatch):
    monkeypatch.setenv(SWITCH, "0")
    assert SWITCH in why_not_compiled()

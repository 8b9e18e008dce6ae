"""Without a numba that works, labkit takes its plain ways and says why."""

import os
import subprocess
import sys

from labkit.compiled import SWITCH, why_not_compiled

USE = """
import torch
from labkit.compiled import why_not_compiled
from labkit.fast.optimisers import fast_optimisers
from labkit.fast.dlrm import EmbeddingTables
fast_optimisers((torch.optim.SGD, torch.optim.SGD), [torch.nn.Parameter(torch.ones(1))], EmbeddingTables([3], 2), 0.1)
print(why_not_compiled())
"""


def test_a_numba_that_is_broken_is_done_without(tmp_path):
    (tmp_path / "numba.py").write_text('raise ImportError("Numba needs NumPy 2.3 or less.")')
    environment = {name: value for name, value in os.environ.items() if name != SWITCH}
    environment["PYTHONPATH"] = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    answer = subprocess.run([sys.executable, "-c", USE], env=environment, capture_output=True, text=True)
    assert answer.stdout == "numba does not work here (Numba needs NumPy 2.3 or less.)\n", answer.stderr


def test_the_switch_turns_compiled_kernels_off(monkeypatch):
    monkeypatch.setenv(SWITCH, "0")
    assert SWITCH in why_not_compiled()

"""Compiled kernels leave the number of threads that torch computes with alone."""

import subprocess
import sys

import pytest

pytest.importorskip("numba")

# a process of its own, because numba starts its threads once: with as many as there are cores
PROGRAM = """
import torch
torch.set_num_threads(1)
from labkit.fast.optimisers import fast_optimisers
from labkit.fast.tables import EmbeddingTables
tables = EmbeddingTables([3, 4], 2)
fast_optimisers((torch.optim.SGD, torch.optim.SGD), [torch.nn.Parameter(torch.ones(1))], tables, 0.1)
print(torch.get_num_threads())
"""


def test_torch_keeps_its_number_of_threads():
    environment = {"NUMBA_NUM_THREADS": "2", "PATH": ""}
    ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment, check=True)
    assert ended.stdout.strip() == "1"

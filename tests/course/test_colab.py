"""The first code cell of a notebook installs labkit on Colab, and does nothing anywhere else."""

import builtins
import shlex
import sys
from types import ModuleType

import pytest

from labkit.course.colab import COLAB_CELL
from labkit.project import REPOSITORY


@pytest.fixture
def magics(monkeypatch):
    """The magics that the cell runs."""
    asked = []

    class Shell:
        def run_line_magic(self, name, line):
            asked.append((name, shlex.split(line)))

    monkeypatch.setattr(builtins, "get_ipython", Shell, raising=False)
    return asked


def test_it_installs_the_projects_address_on_colab(monkeypatch, magics):
    monkeypatch.setitem(sys.modules, "google.colab", ModuleType("google.colab"))
    exec(COLAB_CELL, {})
    assert magics == [("pip", ["install", "--quiet", f"labkit[lab] @ git+{REPOSITORY}@main"])]


def test_it_does_nothing_elsewhere(magics):
    exec(COLAB_CELL, {})
    assert magics == []

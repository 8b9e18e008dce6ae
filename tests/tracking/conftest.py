"""Runs in this process: quiet, and without a sampler's process beside each."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import labkit
from labkit.hardware import one_thread
from labkit.tracking import checkpoints


@pytest.fixture
def runs(tmp_path, monkeypatch, no_sampler) -> Iterator[Path]:
    """A folder for runs."""
    monkeypatch.setenv("LABKIT_QUIET", "1")
    with one_thread():
        yield tmp_path / "runs"


@pytest.fixture
def save_each_time(monkeypatch):
    """Save a checkpoint after each evaluation, however long saving takes on this machine."""
    monkeypatch.setattr(checkpoints, "REST", 0)


@pytest.fixture
def run(runs):
    """Makes a run of the name "t" in the folder for runs."""
    return lambda **options: labkit.Run("t", runs_dir=runs, **options)

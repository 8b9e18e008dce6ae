"""What the campaigns share: one child process, the undamaged folders, and which seeds are drawn."""

import functools
import os
from pathlib import Path

import pytest
from campaign import Reader, campaign


@pytest.fixture(scope="session")
def reader():
    child = Reader()
    yield child
    child.close()


@pytest.fixture(scope="session")
def outcomes(reader, tmp_path_factory):
    """`outcomes(write, read)`: what became of damaged copies of the folder that `write` makes, by LABKIT_SOAK's seeds
    ("FIRST:END")."""
    first, _, end = os.environ.get("LABKIT_SOAK", "0:4").partition(":")

    @functools.cache
    def original(write) -> Path:
        folder = tmp_path_factory.mktemp(write.__name__) / "original"
        folder.mkdir()
        write(folder)
        return folder

    return lambda write, read: campaign(reader, read, original(write), range(int(first), int(end)))

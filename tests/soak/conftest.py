"""What the campaigns share: one child process, and which seeds are drawn."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session")
def reader():
    from campaign import Reader  # its module is found from here only

    child = Reader()
    yield child
    child.close()


@pytest.fixture(scope="session")
def seeds() -> range:
    """The seeds of each campaign: LABKIT_SOAK="FIRST:END"."""
    first, _, end = os.environ.get("LABKIT_SOAK", "0:4").partition(":")
    return range(int(first), int(end))

"""Fixtures shared by all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real datasets beside the checkout; tests that need it skip without it."""
    if not SHARED_DATA.is_dir():
        pytest.skip("needs the real datasets beside the checkout (shared/data), which are not here")
    return SHARED_DATA


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    """Keep prepared data out of the user's cache: one folder for the whole test session."""
    cache = tmp_path_factory.getbasetemp() / "labkit-cache"
    monkeypatch.setenv("LABKIT_CACHE", str(cache))
    return cache

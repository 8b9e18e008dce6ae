"""What all tests of profiles share."""

import os

import pytest

from labkit.hardware.budgets.budget import THREAD_VARIABLES


@pytest.fixture(autouse=True)
def own_threads():
    """A command that is called in this process sets the thread counts of its budget for the process' whole life."""
    before = dict(os.environ)
    yield
    for name in set(os.environ) - set(before):
        if name in THREAD_VARIABLES:
            del os.environ[name]
    os.environ.update({name: before[name] for name in THREAD_VARIABLES if name in before})

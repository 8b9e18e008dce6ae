"""What all tests of profiles share."""

import os
from unittest import mock

import pytest


@pytest.fixture(autouse=True)
def own_threads():
    """A command that is called in this process sets the thread counts of its budget for the process' whole life."""
    with mock.patch.dict(os.environ):
        yield

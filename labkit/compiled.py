"""Whether kernels that numba compiles at their first call can be used; without them labkit takes its plain ways."""

from __future__ import annotations

import functools
import importlib.util
import os

SWITCH = "LABKIT_COMPILED"
"""Environment variable; 0 turns the compiled kernels off."""


def why_not_compiled() -> str | None:
    """Why no compiled kernel may be used in this process; None where they may. Imports numba, to be sure."""
    if os.environ.get(SWITCH) == "0":
        return f"{SWITCH}=0"
    return _why_not_numba()


@functools.cache
def _why_not_numba() -> str | None:
    if importlib.util.find_spec("numba") is None:
        return 'numba is not installed (pip install "labkit[fast]")'
    try:
        import numba

        numba.njit(cache=True)(_nothing)  # raises where no folder can keep what it compiles
    except Exception as error:  # it checks the versions of what it needs, in its own ways
        return f"numba does not work here ({' '.join(str(error).split())})"
    return None


def _nothing() -> None:
    """What numba is tried on."""

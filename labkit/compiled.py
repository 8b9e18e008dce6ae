"""Whether kernels that numba compiles at their first call can be used; without them labkit takes its plain ways."""

from __future__ import annotations

import importlib.util
import os

SWITCH = "LABKIT_COMPILED"
"""Environment variable; 0 turns the compiled kernels off."""


def why_not_compiled() -> str | None:
    """Why no compiled kernel may be used in this process; None where they may."""
    if os.environ.get(SWITCH) == "0":
        return f"{SWITCH}=0"
    if importlib.util.find_spec("numba") is None:
        return "numba is not installed (pip install numba)"
    return None

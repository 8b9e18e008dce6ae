"""Whether numba can compile the fast kernels at their first call; without it labkit uses its plain PyTorch."""

import functools
import importlib.util
import os

SWITCH = "LABKIT_COMPILED"
"""Environment variable; 0 disables the compiled kernels"""


def why_not_compiled() -> str | None:
    """The reason why compiled kernels cannot be used in this process; None if they can. Imports numba to find out."""
    if os.environ.get(SWITCH) == "0":
        return f"{SWITCH}=0"
    return _why_not_numba()


@functools.cache
def _why_not_numba() -> str | None:
    if importlib.util.find_spec("numba") is None:
        return 'numba is not installed (pip install -e ".[fast]")'
    try:
        import numba

        numba.njit(cache=True)(lambda: None)  # raises if there is no folder for what it compiles
    except Exception as error:  # numba raises many types for versions that do not fit
        return f"numba does not work here ({' '.join(str(error).split())})"
    return None

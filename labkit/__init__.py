"""labkit: what does it cost to reach this accuracy, on this hardware, run this way?

`labkit.Run` is the one thing a training script needs; `labkit.device` names what to compute on,
`labkit.energy.window` a span of a run whose joules are told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from labkit.tracking import energy
    from labkit.tracking.harness import device
    from labkit.tracking.run import Run

__version__ = "0.1.0"
__all__ = ["Run", "__version__", "device", "energy"]

_HOMES = {"Run": "labkit.tracking.run", "device": "labkit.tracking.harness", "energy": "labkit.tracking.energy"}


def __getattr__(name: str) -> Any:
    """Load what needs torch and Arrow when it is first used, so that `import labkit` takes no time."""
    if name not in _HOMES:
        raise AttributeError(f"module 'labkit' has no attribute {name!r}")
    import importlib

    home = importlib.import_module(_HOMES[name])
    return getattr(home, name, home)  # `energy` is a module itself

"""labkit: what does it cost to reach this accuracy, on this hardware, run this way?

`labkit.Run` is the one thing a training script needs. `labkit.device` names what to compute on, and
`labkit.energy.window` marks a span of a run whose energy is reported. Everything else is in the rooms, such as
`labkit.tta` and `labkit.plots`.
"""

import lazy_loader

from labkit.project import VERSION

# Whatever needs torch, Arrow or pandas loads when it is first used, so that `import labkit` takes no time.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

__version__ = VERSION

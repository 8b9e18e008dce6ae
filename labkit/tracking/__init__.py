"""What a training script tells labkit, through one small object: `labkit.Run`."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

"""What the machine did while a run went on, sampled by a process of its own."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

"""The same mathematics at the limit of the machine: a file per idea, which names the plain PyTorch that it equals."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

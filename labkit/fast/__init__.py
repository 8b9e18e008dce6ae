"""The same mathematics at the machine's limit: a file an idea, each beside the plain PyTorch that it equals."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

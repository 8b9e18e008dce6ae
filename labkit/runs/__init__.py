"""The run folder: the only thing producers write and the only thing readers read."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

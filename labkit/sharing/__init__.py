"""Several jobs on one device: plans, modes, memory estimates, the launcher, its verdict, packing and faults."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

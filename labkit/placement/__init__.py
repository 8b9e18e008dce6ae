"""Where a DLRM's embedding tables live: main memory, a cache in front of it, a disk, another process."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

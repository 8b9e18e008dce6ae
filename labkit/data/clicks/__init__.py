"""Click logs: a generator with a planted teacher, the Criteo layout, and any table with a small schema."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

"""Other trackers: their runs as run folders, and ours in their files; archives; runs done again."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

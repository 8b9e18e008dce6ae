"""Files in which a user plans runs: read so that each field knows its line, and refused with all mistakes at once."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

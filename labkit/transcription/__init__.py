"""What a trained recogniser hears: audio to text, to characters at their times, and how wrong it is."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

"""Ordered indexes in memory, a learned one among them, and the instruments that count what a request costs."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

"""Processes of ours and what they start: how they find each other, and how all of them end."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

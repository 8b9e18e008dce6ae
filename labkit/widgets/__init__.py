"""Interactive views for notebooks: each has a description, works from the keyboard, and has a one-line equivalent."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

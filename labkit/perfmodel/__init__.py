"""Predicts what training takes, from what a machine was measured to do."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

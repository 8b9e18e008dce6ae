"""Sweeps: grids of runs from a file, one cell after another, resumed where they broke off, and read as a frame."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

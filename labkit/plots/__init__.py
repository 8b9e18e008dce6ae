"""Frames to figures: pure functions, in one theme.

The `provenance` of a figure says where its numbers come from: "measured", "recorded", "emulated" or "predicted".
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

"""Frames to figures: pure functions, one module a topic, in one theme.

Of every figure, `template` is "labkit_light" or "labkit_dark", and `provenance` says where the numbers come from:
"measured", "recorded", "emulated" or "predicted".
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

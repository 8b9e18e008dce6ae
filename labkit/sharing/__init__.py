"""Several jobs on one device: modes, memory needs, rounds of a mix, verdicts and advice; queues, real or simulated."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

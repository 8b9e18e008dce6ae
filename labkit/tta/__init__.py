"""Time to accuracy: from evaluation curves to the time, samples and money a target costs."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

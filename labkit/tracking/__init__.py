"""`labkit.Run`, through which a training script reports to labkit, and the harness around the script."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

"""What this machine is: devices, the catalogue of tiers, budgets, and the doctor who looks at all of it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

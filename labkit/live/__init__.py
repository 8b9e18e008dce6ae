"""The page of `labkit live`: the report's page, served while the runs go on."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

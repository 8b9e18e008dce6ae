"""The models of the course: a recommendation model (DLRM) and a speech recogniser."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

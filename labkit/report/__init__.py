"""The page that answers the question: one offline HTML file from any set of runs."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

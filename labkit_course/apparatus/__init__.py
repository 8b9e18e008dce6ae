"""What only one lab needs: experiments, slow programs, planted faults and single-lab widgets."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

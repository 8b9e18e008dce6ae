"""The kit's own jobs: training scripts that anyone can read, copy and change."""

import lazy_loader

_front_door, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    if name == "watch":
        raise AttributeError("labkit.jobs.watch is labkit.launch.watch now")  # for one version
    return _front_door(name)

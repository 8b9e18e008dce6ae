"""The course: notebooks that teach, build, run and check themselves."""

import os

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # before torch loads: its profiler's chatter teaches nothing

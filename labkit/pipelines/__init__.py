"""Whole pipelines on small machines: load, clean, features, train, serve; what each stage takes, and what limits it.

A pipeline is a job: a script with `labkit.Run`, whose stages are `run.stage` (`trips.py`, `spam.py`, …). What is shared
stands next to it: generators (`data`), ways to make features (`ways`), what the runs say (`stages`, `merit`), and
serving (`serving`, `load`).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

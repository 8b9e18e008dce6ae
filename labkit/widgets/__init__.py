"""Interactive views for notebooks: each has a description, works from the keyboard, and has a one-line equivalent."""

from labkit.widgets.explorer import explore
from labkit.widgets.monitor import monitor

__all__ = ["explore", "monitor"]

"""Interactive views for notebooks: each has a description, works from the keyboard, and has a one-line equivalent."""

from labkit.widgets.explorer import explore
from labkit.widgets.live import live
from labkit.widgets.monitor import monitor
from labkit.widgets.profile_view import profile_view
from labkit.widgets.recorder import Recorder

__all__ = ["Recorder", "explore", "live", "monitor", "profile_view"]

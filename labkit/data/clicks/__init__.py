"""Click logs: a generator with a planted teacher, the Criteo layout, and any table with a small schema."""

from labkit.data.clicks.load import load_clicks
from labkit.data.clicks.prepared import ClickLog, ClickSplit

__all__ = ["ClickLog", "ClickSplit", "load_clicks"]

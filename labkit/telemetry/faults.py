"""What can break while samples are taken and leaves the others whole."""

from __future__ import annotations

from collections.abc import Callable

FAULTS = {
    "sampler_died": "the sampler died and was started again: its samples have a gap",
    "gpu_lost": "a GPU was lost: its samples have a gap",
    "gpu_back": "a GPU that was lost answers again",
    "source_hangs": "a source of counters hangs: its samples have a gap",
    "source_back": "a source of counters that hung answers again",
}
"""Kinds of faults, as in the events of a run, in words."""

OnFault = Callable[[str, str], None]
"""Told (kind, what) of a fault."""

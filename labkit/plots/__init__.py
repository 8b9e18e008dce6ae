"""Frames to figures: pure functions, one module a topic, in one theme.

Of every figure, `template` is "labkit_light" or "labkit_dark", and `provenance` says where the numbers come from:
"measured", "recorded", "emulated" or "predicted".
"""

from labkit.plots.alignment import figure_alignment
from labkit.plots.batch_size import figure_batch_size
from labkit.plots.costs import figure_costs, figure_pareto
from labkit.plots.describe import describe
from labkit.plots.sweep import figure_sweep
from labkit.plots.time_against_target import figure_time_against_target
from labkit.plots.time_to_accuracy import figure_time_to_accuracy

__all__ = [
    "describe", "figure_alignment", "figure_batch_size", "figure_costs", "figure_pareto", "figure_sweep",
    "figure_time_against_target", "figure_time_to_accuracy",
]  # fmt: skip

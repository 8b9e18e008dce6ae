"""What each way of estimating is worth: predictions beside measured peaks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from labkit.collocation.memory.estimate import estimate_memory, estimates
from labkit.collocation.memory.measure import STEPS, measure_peak
from labkit.training.request import TrainRequest

if TYPE_CHECKING:
    import pandas as pd

PROCESS = "ours, process"
"""The method whose prediction stands beside the peak of the process; all others are of tensors."""
SETTINGS = ("model", "preset", "batch_size", "precision", "compiled_tables")


def score(requests: Iterable[TrainRequest], steps: int = STEPS) -> pd.DataFrame:
    """Predict and measure each job on this machine's CPU, one after another.

    Args:
        requests: jobs whose precision and table update are named, so that all look at the same step.
        steps: that each is measured for.

    Returns:
        Columns model, preset, batch_size, precision, compiled_tables, method, predicted and measured (bytes), error_%
        (above zero: predicted more than was measured).
    """
    import pandas as pd

    rows = []
    for request in requests:
        predicted = estimates(request)
        measured = measure_peak(request, steps)
        pairs = [(each.method, each.predicted, measured.tensors_bytes) for each in predicted.itertuples()]
        pairs.append((PROCESS, estimate_memory(request).process_bytes, measured.process_bytes))
        settings = (request.job, request.preset, request.chosen_batch_size, request.precision)
        for method, bytes_predicted, bytes_measured in pairs:
            error = 100 * (bytes_predicted / bytes_measured - 1)
            compiled = bool(request.compiled_tables)
            rows.append((*settings, compiled, method, bytes_predicted, bytes_measured, error))
    return pd.DataFrame(rows, columns=[*SETTINGS, "method", "predicted", "measured", "error_%"])

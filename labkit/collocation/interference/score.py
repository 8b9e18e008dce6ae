"""How good predicted slowdowns are, beside guesses that need no model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from labkit.collocation.interference.prediction import Prediction
from labkit.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

MODEL = "model"
WAYS = {MODEL: "predicted", "as many times as there are jobs": "jobs", "no slowdown": "alone"}
"""Ways to predict, and the columns with what they say."""


def score(predictions: Sequence[Prediction], measured: Sequence[float]) -> pd.DataFrame:
    """Predictions beside measurements, one row a job.

    Args:
        predictions: of any number of workloads, one after another.
        measured: the slowdown of each.

    Returns:
        Columns mode, job, jobs, alone (1: no slowdown), predicted, measured, error (of the prediction, as a share of
        what was measured), why.

    Raises:
        UserError: there are not as many of both, or a measurement is not above zero.
    """
    import pandas as pd

    if len(predictions) != len(measured):
        raise UserError(f"{len(predictions)} predictions and {len(measured)} measurements: give one of each a job.")
    if not all(slowdown > 0 for slowdown in measured):
        raise UserError("a measured slowdown is not above zero: leave out jobs that took no step.")
    frame = pd.DataFrame(
        {
            "mode": [each.mode for each in predictions],
            "job": [each.job for each in predictions],
            "jobs": [each.jobs for each in predictions],
            "alone": 1.0,
            "predicted": [each.slowdown for each in predictions],
            "measured": list(measured),
            "why": [each.why for each in predictions],
        }
    )
    frame.insert(6, "error", frame["predicted"] / frame["measured"] - 1)
    return frame


def mean_errors(scored: pd.DataFrame) -> pd.DataFrame:
    """Mean absolute percentage errors of the model and of two guesses, by mode and over all.

    Returns:
        Columns mode ("all" last), way, mape (in %), predictions.
    """
    import pandas as pd

    groups = [*scored.groupby("mode", sort=False), ("all", scored)]
    rows = [
        (mode, way, 100 * (group[column] / group["measured"] - 1).abs().mean(), len(group))
        for mode, group in groups
        for way, column in WAYS.items()
    ]
    return pd.DataFrame(rows, columns=["mode", "way", "mape", "predictions"])

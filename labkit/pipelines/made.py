"""What a stage of a pipeline made: items, and bytes that are computed from rows and types."""

import contextlib
from collections.abc import Callable, Generator
from typing import Any

import numpy as np

from labkit import UserError, tracking
from labkit.pipelines.kinds import PipelineJob

HELD_OUT = 0.2
"""Share of the data that is not trained on, and that is served"""


@contextlib.contextmanager
def stage(run: "tracking.Run", job: PipelineJob, name: str) -> Generator[Callable[[int, Any], None]]:
    """A stage of a pipeline's run; its block notes the number of items that it made, and their data or their bytes."""
    with run.stage(name, at=f"scale {job.scale:g}", smaller=f"--scale {job.scale / 2:g}") as about:
        yield lambda count, data: about.note(
            items=int(count), of=job.items, bytes=data if isinstance(data, int) else bytes_of(data)
        )


def bytes_of(data: Any) -> int:
    """Bytes of data, computed from its rows and types; a text counts as UTF-8.

    Counters of the system, such as /proc/PID/io, would not do: a CSV that pandas maps is not read by their count, and
    each import is.

    Args:
        data: an array, a sparse matrix, a frame, a column of one, or a sequence of these.

    >>> bytes_of(np.zeros((10, 3), "float32"))
    120
    """
    if hasattr(data, "indptr"):
        return data.data.nbytes + data.indices.nbytes + data.indptr.nbytes
    if hasattr(data, "columns"):
        return sum(bytes_of(data[name]) for name in data.columns)
    if not hasattr(data, "dtype"):
        return sum(map(bytes_of, data))
    is_text = not isinstance(data.dtype, np.dtype) or data.dtype == object
    return sum(len(text.encode()) for text in data) if is_text else data.nbytes


def held_out(items: int) -> int:
    """The first item that is held out: a pipeline trains on what was there first, and serves what comes later."""
    return max(1, min(items - 1, round(items * (1 - HELD_OUT))))


def auc(is_positive: np.ndarray, scores: np.ndarray, scale: float) -> float:
    """The area under the ROC curve.

    Raises:
        UserError: what is held out is all of one kind.
    """
    from sklearn.metrics import roc_auc_score

    if len(np.unique(is_positive)) < 2:
        raise UserError(
            f"scale (--scale) is {scale:g}: the {len(is_positive):,} items that are held out are all of one kind, so "
            "they cannot be scored: give a larger scale.",
            field="scale",
        )
    return float(roc_auc_score(is_positive, scores))

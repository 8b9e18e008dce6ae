"""What a step of a DLRM has to do, part by part, and how long a machine takes for it at least.

Counted is the step of `labkit.jobs.dlrm_shape` with fast kernels in fp32: bytes are those that its operations read and
write, each for itself, for what one of them leaves in a cache depends on the size.

Letters: B batch, F tables, N = F + 1 features that meet, L pooling factor, D embedding dim, W weights of the MLPs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from labkit.models.dlrm import DlrmConfig
from labkit.perfmodel.limits import Limits

if TYPE_CHECKING:
    import pandas as pd

CALLS_A_LAYER, CALLS_OF_TABLES, CALLS_OF_INTERACTION = 12, 10, 20
"""Operations that torch is asked for in a step, forward and backward, counted in a profile"""


@dataclass(frozen=True)
class Work:
    """One operation, or several of one kind."""

    part: str
    """"mlps", "embeddings", "interaction" or "optimiser" """
    flop: float = 0.0
    size: float = 0.0
    """The smallest of a product's three sizes"""
    bytes: float = 0.0
    """Read and written"""
    table_bytes: float = 0.0
    """Of the table whose random rows these bytes are; 0 where they lie side by side"""
    row_bytes: int = 0
    calls: float = 0.0

    def seconds(self, limits: Limits) -> tuple[str, float]:
        """What limits it, "arithmetic", "bandwidth" or "calls", and the time it takes at least."""
        if self.table_bytes:
            speed = limits.gather(self.table_bytes, self.row_bytes)
        else:
            speed = limits.copy_gb_per_s(self.bytes)
        times = {
            "arithmetic": self.flop / limits.product_gflops(self.size) / 1e9 if self.flop else 0.0,
            "bandwidth": self.bytes / speed / 1e9,
            "calls": self.calls * limits.launch_us / 1e6,
        }
        bound = max(times, key=times.__getitem__)
        return bound, max(times["arithmetic"], times["bandwidth"]) + times["calls"]


def step_work(config: DlrmConfig, pooling_factor: int, batch_size: int) -> Iterator[Work]:
    """All that a step with plain SGD does."""
    batch, features, dim = batch_size, config.num_tables + 1, config.embedding_dim
    pairs = features * (features - 1) // 2
    bottom, top = [config.dense_dim, *config.bottom_mlp], [dim + pairs, *config.top_mlp]
    weights = 0
    for layers in (bottom, top):
        for number, (into, out) in enumerate(pairwise(layers)):
            # the gradient of the dense features is not needed
            products = 2 if layers is bottom and number == 0 else 3
            moved = 4 * (products * (batch * into + batch * out + into * out) + 4 * batch * out)  # and ReLU, twice
            flop = 2 * products * batch * into * out
            yield Work("mlps", flop=flop, size=min(batch, into, out), bytes=moved, calls=CALLS_A_LAYER)
            weights += into * out + out
    yield Work(
        "interaction",
        flop=4 * batch * features**2 * dim,  # N x D by D x N, and backward N x N by N x D
        size=min(features, dim),
        bytes=4 * batch * (8 * features * dim + 6 * features**2),
        calls=CALLS_OF_INTERACTION,
    )
    # random rows: read to be summed, then read and written to be updated
    rows = {"table_bytes": config.parameter_bytes, "row_bytes": 4 * dim}
    lookups = batch * config.num_tables * pooling_factor
    yield Work("embeddings", bytes=3 * lookups * 4 * dim, calls=CALLS_OF_TABLES, **rows)
    yield Work("embeddings", bytes=4 * (3 * batch * config.num_tables * dim + 3 * lookups))  # sums, gradient, indices
    yield Work("optimiser", bytes=12 * weights, calls=4)


def predict_step(config: DlrmConfig, pooling_factor: int, batch_size: int, limits: Limits) -> pd.DataFrame:
    """How long the parts of a step take at least.

    Columns part, time_ms, share (of all parts), bound: what most of that time is for, "arithmetic", "bandwidth" or
    "calls"; the part that takes the longest first, which is the limiter.
    """
    import pandas as pd

    done = [(work.part, *work.seconds(limits)) for work in step_work(config, pooling_factor, batch_size)]
    frame = pd.DataFrame(done, columns=["part", "bound", "seconds"])
    by_bound = frame.groupby(["part", "bound"])["seconds"].sum().reset_index()
    bound = by_bound.sort_values("seconds").groupby("part")["bound"].last()
    seconds = frame.groupby("part")["seconds"].sum().sort_values(ascending=False)
    told = {"time_ms": 1e3 * seconds, "share": seconds / seconds.sum(), "bound": bound.reindex(seconds.index)}
    return pd.DataFrame(told).reset_index()


def limiters(cells: pd.DataFrame, limits: Limits) -> pd.DataFrame:
    """The limiter of each shape, foreseen and measured.

    Args:
        cells: of a sweep of `dlrm_shape.py`, with a column for each number of a shape, and its shares.
        limits: of the machine that it ran on.

    Returns:
        The cells that have ended, with predicted and measured (each a part), is_right, and predicted_ms: what the
        limiter that was measured takes at least.
    """
    import pandas as pd

    from labkit.jobs.dlrm_shape import shape_config

    done = cells[cells["share_mlps"].notna()]
    found = []
    for cell in done.itertuples():
        times = predict_step(shape_config(cell), cell.pooling_factor, cell.batch_size, limits)
        times = times.set_index("part")["time_ms"]
        measured = max(times.index, key=lambda part: getattr(cell, f"share_{part}"))
        found.append((times.idxmax(), measured, times[measured]))
    told = pd.DataFrame(found, columns=["predicted", "measured", "predicted_ms"], index=done.index)
    return done.join(told).assign(is_right=told["predicted"] == told["measured"])

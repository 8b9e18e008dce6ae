"""Which machines hold a DLRM's embedding tables: the arithmetic of why production tables outgrow a GPU."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from labkit.errors import UserError
from labkit.hardware import Tier, load_tiers
from labkit.jobs import JOBS, get_preset
from labkit.placement import row_width

# Rows of the tables by the data that a preset is made for, capped as the preset caps them. Those of the Criteo logs
# were read in mlcommons/inference (its DLRM reference), of `benchmark` in facebookresearch/dlrm's
# bench/dlrm_s_benchmark.sh; both on 2026-11-23.
PUBLISHED_ROWS = {
    "kaggle": (
        1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194, 27, 14992, 5461306, 10, 5652,
        2173, 4, 7046547, 18, 15, 286181, 105, 142572,
    ),
    "terabyte": (
        9980333, 36084, 17217, 7378, 20134, 3, 7112, 1442, 61, 9758201, 1333352, 313829, 10, 2208, 11156, 122, 4, 970,
        14, 9994222, 7267859, 9946608, 415421, 12420, 101, 36,
    ),
    "mlperf-v1": (
        39884406, 39043, 17289, 7420, 20263, 3, 7120, 1543, 63, 38532951, 2953546, 403346, 10, 2208, 11938, 155, 4, 976,
        14, 39979771, 25641295, 39664984, 585935, 12972, 108, 36,
    ),
    "benchmark": (1_000_000,) * 8,
}  # fmt: skip
"""By preset"""


def table_bytes(num_rows: Sequence[int], embedding_dim: int, optimiser: str = "sgd") -> int:
    """Bytes of fp32 tables and of what an optimiser keeps for them; row-wise Adagrad keeps one number a row.

    >>> table_bytes([1000], 64), table_bytes([1000], 64, "rowwise-adagrad"), table_bytes([1000], 64, "adam")
    (256000, 260000, 768000)
    """
    known = JOBS["dlrm"].optimisers
    if optimiser not in known:
        raise UserError(f"optimiser {optimiser!r} is unknown: choose one of {', '.join(known)}.", field="optimiser")
    return 4 * sum(num_rows) * row_width(optimiser, embedding_dim)


def tiers_that_hold(bytes_needed: float) -> pd.DataFrame:
    """Each memory of each tier, and whether tables of so many bytes fit: `tier, kind, memory, capacity_gb, holds`.

    `memory` is `one device`, `all devices` (of a server, its tables spread row by row and evenly) or `host`. `holds` is
    None where the catalogue has no capacity. It is an upper bound: MLPs, activations and the driver need memory, too.
    """
    if not 0 < bytes_needed < float("inf"):
        raise UserError(f"{bytes_needed} bytes: give a number above 0.", field="bytes_needed")
    rows = [
        (tier.name, tier.kind, memory, capacity_gb, None if capacity_gb is None else bytes_needed <= capacity_gb * 1e9)
        for tier in load_tiers().values()
        for memory, capacity_gb in _memories(tier).items()
    ]
    frame = pd.DataFrame(rows, columns=["tier", "kind", "memory", "capacity_gb", "holds"])
    return frame.astype({"capacity_gb": float, "holds": object})


def _memories(tier: Tier) -> dict[str, float | None]:
    if tier.kind != "server":
        return {"host" if tier.kind == "cpu" else "one device": tier.memory_gb}
    each = tier.memory_gb
    return {"one device": each, "all devices": each and each * tier.devices, "host": tier.host_memory_gb}


def presets_and_tiers(optimisers: Sequence[str] = ("sgd", "rowwise-adagrad")) -> pd.DataFrame:
    """`tiers_that_hold` for each preset whose data has published sizes: `preset, optimiser, needed_gb` before them."""
    frames = []
    for preset, num_rows in PUBLISHED_ROWS.items():
        for optimiser in optimisers:
            needed = table_bytes(num_rows, get_preset("dlrm", preset).model["embedding_dim"], optimiser)
            told = {"preset": preset, "optimiser": optimiser, "needed_gb": needed / 1e9}
            frames.append(pd.DataFrame([told]).merge(tiers_that_hold(needed), how="cross"))
    return pd.concat(frames, ignore_index=True)

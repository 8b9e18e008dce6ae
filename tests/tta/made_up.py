"""Made-up runs as frames: what `run_table` and `curves` would give of them."""

from __future__ import annotations

import numpy as np
import pandas as pd


def made_up(
    curves,
    *,
    job="dlrm",
    budget="all-cores",
    metric="auc",
    target=0.7,
    unreached="failed",
    seeds=None,
    every_s=10.0,
    **columns,
):
    """(curves, runs): a run for each list of values, evaluated every `every_s` wall seconds (a list: each its own).

    A run ends at its last evaluation, one without any after 1 s.
    """
    count = len(curves)
    every_s, unreached = np.broadcast_to(every_s, count), np.broadcast_to(unreached, count)
    rows, frames = [], []
    for number, values in enumerate(curves):
        shared = {
            "run": f"{job}-{budget}-{number}",
            "job": job,
            "budget": budget,
            "seed": number if seeds is None else seeds[number],
            "provenance": "measured",
            "tier": None,
        }
        wall_s = np.arange(1, len(values) + 1) * every_s[number]
        end_s = wall_s[-1] if len(values) else 1.0
        row = {
            "metric": metric,
            "higher_is_better": None,
            "target": target,
            "status": "done",
            "disturbed": "",
            "unreached": str(unreached[number]),
            "confirm": 2,
            "settings": {"budget": budget},
            "wall_s": end_s,
            "train_s": end_s / 2,
            "samples": end_s * 100,
            "samples_per_s": 100.0 + number,
            "peak_memory_bytes": 2.0**30 * (1 + number),
            "peak_gpu_memory_bytes": 2.0**31 * (1 + number),
            "energy_j": np.nan,
            "energy_note": "no counter here",
        }
        rows.append(shared | row | columns)
        frame = pd.DataFrame({"wall_s": wall_s, "train_s": wall_s / 2, "samples": wall_s * 100, "value": values})
        frames.append(frame.assign(**{name: rows[-1][name] for name in (*shared, "metric")}))
    return pd.concat(frames, ignore_index=True).astype({"value": float}), pd.DataFrame(rows)


def together(*made):
    """Several of these as one."""
    return tuple(pd.concat(frames, ignore_index=True) for frames in zip(*made, strict=True))


def arriving(times, **more):
    """Runs that reach 0.7 at these seconds; one of inf fails after 3 s, one below 0 is cut off after so many."""
    kinds = [("failed", 3.0) if np.isinf(t) else ("censored", -t) if t < 0 else ("failed", t) for t in times]
    values = [[0.8] if 0 <= t < np.inf else [0.5] for t in times]
    return made_up(values, every_s=[end for _, end in kinds], unreached=[kind for kind, _ in kinds], **more)

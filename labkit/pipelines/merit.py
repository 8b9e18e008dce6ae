"""A figure of merit for pipelines: how many per minute, weighed by their size, and the same per watt.

After the metric of TPCx-AI, AIUCpm@SF = 60 · SF · N / (T_load · T_train · T_serve · T_throughput)^¼, as the driver of
its kit computes it. Ours has the stages of one stream, and other use cases: it is not comparable with TPC results.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import geometric_mean
from typing import Any

import numpy as np
import pandas as pd

from labkit import UserError, tta
from labkit.pipelines.stages import PipelineRun

PARTS = {"load": ("load",), "prepare": ("clean", "features"), "train": ("train",), "serve": ("serve",)}
"""The four times of the figure, by the stages in them"""
NOT_COMPARABLE = "not comparable with TPC results"


def pipelines_per_minute(scale: float, seconds: Sequence[Mapping[str, float]]) -> float:
    """60 · S · N / (load · prepare · train · serve)^¼, each time the geometric mean over the N pipelines.

    Args:
        scale: the scale S of all pipelines.
        seconds: of each pipeline its load, prepare, train and serve.

    >>> pipelines_per_minute(2, [{"load": 1, "prepare": 4, "train": 4, "serve": 1}])
    60.0
    """
    if not seconds or any(not of_one.get(part, 0) > 0 for of_one in seconds for part in PARTS):
        raise UserError("the figure of merit needs load, prepare, train and serve of each pipeline, all above 0 s.")
    means = [geometric_mean(of_one[part] for of_one in seconds) for part in PARTS]
    return 60 * scale * len(seconds) / math.prod(means) ** 0.25


def power_of(runs: Sequence[PipelineRun], assumed_power_w: float | None = None) -> tuple[float | None, str]:
    """The mean watts of runs, by their time, and where they come from; None and why if those of a run are not known.

    They are measured if they were for each run, else predicted from the catalogue.
    """
    accounts = [tta.energy_account(run.folder, estimate=True, assumed_power_w=assumed_power_w) for run in runs]
    watts = [account.average_power_w for account in accounts if account.average_power_w is not None]
    if len(watts) < len(accounts):
        return None, next(account.note for account in accounts if account.average_power_w is None)
    kinds = {account.kind for account in accounts}
    kind = "predicted" if "predicted" in kinds else ", ".join(sorted(kinds))
    sources = ", ".join(dict.fromkeys(account.source or "" for account in accounts))
    return float(np.average(watts, weights=[sum(run.seconds.values()) for run in runs])), f"{kind}: {sources}"


def merit_table(runs: Sequence[PipelineRun], assumed_power_w: float | None = None) -> pd.DataFrame:
    """The figure of merit of each budget and scale, of the newest finished run of each pipeline.

    Returns:
        Columns budget, scale, pipelines (their names), load, prepare, train, serve (s), per_minute, watts, per_minute_w
        (NaN without a power), power (its source) and kind.
    """
    chosen: dict[tuple[str, float], dict[str, PipelineRun]] = {}
    for run in runs:
        if run.record.status == "done" and run.is_whole:
            chosen.setdefault((run.record.budget["name"], run.scale), {})[run.pipeline] = run
    rows = []
    for (budget, scale), by_name in chosen.items():
        own = list(by_name.values())
        times = [{part: sum(run.seconds[name] for name in stages) for part, stages in PARTS.items()} for run in own]
        figure, (watts, power) = pipelines_per_minute(scale, times), power_of(own, assumed_power_w)
        row: dict[str, Any] = {"budget": budget, "scale": scale, "pipelines": ", ".join(sorted(by_name))}
        row |= {part: geometric_mean(each[part] for each in times) for part in PARTS}
        row |= {"per_minute": figure, "watts": watts, "per_minute_w": watts and figure / watts}
        rows.append(row | {"power": power, "kind": own[0].record.provenance.kind})
    names = ["budget", "scale", "pipelines", *PARTS, "per_minute", "watts", "per_minute_w", "power", "kind"]
    return pd.DataFrame(rows, columns=names).sort_values(["scale", "budget"], ignore_index=True)

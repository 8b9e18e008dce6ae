"""The scale at which memory ends a pipeline, and in which stage: a line through the peaks of runs at two scales."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from labkit import UserError, hardware
from labkit.pipelines.stages import PipelineRun


@dataclass(frozen=True)
class MemoryFit:
    """Memory of a pipeline's stages as a line in its scale, in the order of the stages."""

    lines: Mapping[str, tuple[float, float]]
    """Of each stage: bytes at scale 0 (Python and its libraries), and bytes per scale"""

    def peak(self, stage: str, scale: float) -> float:
        """Bytes predicted for a stage."""
        at_zero, per_scale = self.lines[stage]
        return at_zero + per_scale * scale

    def dies_in(self, scale: float, memory_bytes: float) -> str | None:
        """The first stage that needs more than a limit; None if all fit."""
        return next((stage for stage in self.lines if self.peak(stage, scale) > memory_bytes), None)

    def breaks_at(self, memory_bytes: float) -> tuple[float, str | None]:
        """The smallest scale that does not fit, and the stage that dies there; infinite and None if none grows."""
        reached = {
            stage: max(0.0, (memory_bytes - at_zero) / per_scale)
            for stage, (at_zero, per_scale) in self.lines.items()
            if per_scale > 0
        }
        stage = min(reached, key=reached.__getitem__, default=None)
        return (np.inf, None) if stage is None else (reached[stage], stage)


def fit_memory(scales: Sequence[float], peaks: Sequence[Mapping[str, float]]) -> MemoryFit:
    """Fit a line per stage through the peaks of runs; of two runs it goes through both.

    Raises:
        UserError: the runs have fewer than two scales.
    """
    if len(set(scales)) < 2:
        raise UserError(
            f"the peaks are of {len(set(scales))} scale{'s' * (len(set(scales)) != 1)}, and a line needs two: run the "
            "pipeline at another one, too (`labkit pipeline run trips --scale 4`).",
            field="scales",
        )
    stages = [stage for stage in peaks[0] if all(stage in each for each in peaks)]
    lines = {}
    for stage in stages:
        per_scale, at_zero = np.polyfit(scales, [each[stage] for each in peaks], 1)
        lines[stage] = (float(at_zero), float(per_scale))
    return MemoryFit(lines)


def fit_runs(runs: Sequence[PipelineRun]) -> MemoryFit:
    """The fit of finished runs that differ in scale only."""
    whole = [run for run in runs if run.is_whole]
    peaks = [run.stages.set_index("stage")["peak_bytes"].astype(float).to_dict() for run in whole]
    return fit_memory([run.scale for run in whole], peaks)


EDGE = [f"{name}-like" for name, tier in hardware.load_tiers().items() if tier.kind == "edge"]


def memory_of(budget: str) -> int:
    """Bytes of a tier of the catalogue, such as jetson-nano-like, also a larger one than this machine, or of a budget.

    Raises:
        UserError: it limits no memory.
    """
    tier = hardware.load_tiers().get(budget.removesuffix("-like"))
    if tier is not None and tier.memory_gb is not None:
        return int(tier.memory_gb * 1e9)
    limit = hardware.parse_budget(budget).memory_bytes
    if limit is None:
        raise UserError(f"the budget {budget!r} does not limit memory: name a tier, or memory=400MiB.", field="budget")
    return limit


def limits_table(runs: Sequence[PipelineRun], budgets: Sequence[str] = EDGE) -> pd.DataFrame:
    """Where each pipeline breaks under each budget, next to what runs under it did.

    Returns:
        Columns pipeline, budget, memory_bytes, fitted (scales of the fit, as text), breaks_at and stage (predicted),
        and seen (what runs under that budget did, as text).
    """
    groups: dict[tuple, list[PipelineRun]] = {}
    for run in runs:
        groups.setdefault(run.setup, []).append(run)
    rows = []
    for (pipeline, _), group in groups.items():
        scales = sorted({run.scale for run in group if run.is_whole})
        if len(scales) < 2:
            continue
        fit, fitted = fit_runs(group), ", ".join(f"{scale:g}" for scale in scales)
        for budget in budgets:
            memory = memory_of(budget)
            seen = "; ".join(_seen(run) for run in group if run.record.budget.get("memory_bytes") == memory)
            rows.append((pipeline, budget, memory, fitted, *fit.breaks_at(memory), seen))
    return pd.DataFrame(rows, columns=["pipeline", "budget", "memory_bytes", "fitted", "breaks_at", "stage", "seen"])


def _seen(run: PipelineRun) -> str:
    how = "done" if run.record.status == "done" else f"{run.record.status} in {run.unfinished}"
    return f"scale {run.scale:g} {how}"

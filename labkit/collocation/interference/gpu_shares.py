"""What a run used of its GPU, as shares of 1, from its telemetry."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from labkit.collocation.interference.held_job import Stretch
from labkit.runs import read_run
from labkit.telemetry.samples import Sample, read_samples

COUNTERS = {
    "gpu_busy": "gpu_utilisation",
    "sm_active": "sm_active",
    "sm_occupancy": "sm_occupancy",
    "dram_active": "dram_active",
}
"""Fields of a profile, and the counters in % that they are means of."""


def gpu_shares(folder: Path, stretches: Sequence[Stretch] = ()) -> dict[str, float | str]:
    """Means of the counters of the GPU, or slice, that a run computed on.

    Args:
        folder: of the run.
        stretches: in which a sample counts; all do if there are none.

    Returns:
        By field of `SoloProfile`: a share of 1, or why there is none.
    """
    record = read_run(folder)
    name = str(record.budget.get("torch_name", "cpu"))
    gpu = next((each for each in record.devices if each.get("torch_name") == name), {})
    scope = "mig" if gpu.get("mig_parent_uuid") else "device"
    if not gpu.get("uuid"):
        return dict.fromkeys(COUNTERS, "its run does not say which GPU it was")
    samples = read_samples(folder, scope=scope, device=gpu["uuid"])
    return {name: _mean(samples.get(counter, []), stretches) for name, counter in COUNTERS.items()}


def _mean(samples: list[Sample], stretches: Sequence[Stretch]) -> float | str:
    counted = [
        sample
        for sample in samples
        if not stretches or any(0 <= sample.time_ns - each.began_ns <= each.took_ns for each in stretches)
    ]
    values = [sample.value for sample in counted if sample.value is not None]
    if values:
        return fmean(values) / 100
    return next((sample.note for sample in counted if sample.note), "it was not sampled")

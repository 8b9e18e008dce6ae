"""What of a shared device can be put down to each job, and what cannot."""

from __future__ import annotations

import pandas as pd

from labkit.runs import read_telemetry

ON_HOST = {"CPU time": ("cpu_percent",), "memory": ("memory_resident",)}
ON_GPU = {
    "multiprocessors' time": ("sm_utilisation", "sm_active"),
    "multiprocessors' activity": ("sm_active",),
    "multiprocessors' occupancy": ("sm_occupancy",),
    "GPU memory's traffic": ("dram_active",),
    "GPU memory": ("memory_used",),
    "power": ("power",),
}
"""What one would know of a job, and the counters that tell it by process, or by MIG slice"""


def not_attributed(jobs: pd.DataFrame) -> str:
    """In sentences, what was counted of shared devices as a whole only, and why; empty where there is nothing.

    Such a counter is of all jobs that share the device, and is not divided among them. `jobs` is of `job_table`.
    """
    shared = jobs[jobs["folder"].notna() & (jobs["mode"] != "alone")]
    samples = read_telemetry(shared["folder"])
    own = samples[samples["scope"].isin(["process", "mig"])]
    known = own[own["value"].notna()].groupby("run", observed=True)["counter"].agg(set)
    sentences = []
    for mode, rounds in shared.groupby("mode", sort=False):
        wanted = ON_HOST | (ON_GPU if (rounds["on"] == "gpu").any() else {})
        missing = [
            what + _why_not(own[own["run"].isin(rounds["run"]) & own["counter"].isin(counters)])
            for what, counters in wanted.items()
            if not all(known.get(run, set()) & set(counters) for run in rounds["run"])
        ]
        if missing:
            sentences.append(f"In mode {mode}, no job's own, but of all that the device did: {', '.join(missing)}.")
    return " ".join(sentences)


def _why_not(samples: pd.DataFrame) -> str:
    notes = samples["note"].dropna().unique()
    return f" ({notes[-1]})" if len(notes) else ""

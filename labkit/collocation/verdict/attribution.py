"""What of a shared device can be put down to each job, and what cannot."""

from __future__ import annotations

from datetime import datetime

import numpy as np
import pandas as pd

from labkit.runs import read_run, read_telemetry
from labkit.telemetry.energy import gpu_of
from labkit.telemetry.vocabulary import COUNTERS

ON_GPU = {
    "multiprocessors' time": (
        ("process", "sm_utilisation"),
        ("mig", "sm_active"),
        ("device", "sm_active"),
        ("device", "gpu_utilisation"),
    ),
    "multiprocessors' activity": (("mig", "sm_active"), ("device", "sm_active")),
    "multiprocessors' occupancy": (("mig", "sm_occupancy"), ("device", "sm_occupancy")),
    "GPU memory's traffic": (("mig", "dram_active"), ("device", "dram_active")),
    "GPU memory": (("process", "memory_used"), ("mig", "memory_used"), ("device", "memory_used")),
    "power": (("device", "power"),),
}
"""What one would know of a job on a GPU, and where to look (scope, counter), its own first."""
ON_HOST = {
    "CPU time": (("process", "cpu_percent"), ("host", "cpu_percent")),
    "memory": (("process", "memory_resident"), ("host", "memory_used")),
}
SCOPES = {"mig": "the slice", "device": "the whole GPU", "host": "the whole machine"}
COLUMNS = ["workload", "mode", "repeat", "job", "what", "counter", "mean", "unit", "scope", "own", "note"]


def attribution(jobs: pd.DataFrame) -> pd.DataFrame:
    """What each job took of its device, one row a job, round and quantity, from the best source there is.

    `process` values are the job's own, and so are those of a MIG slice that no other job is in. Where the driver has
    neither, the row is that of the whole device, whose jobs cannot be told apart: it says so, and is not divided among
    them.

    Args:
        jobs: `job_table`.

    Returns:
        COLUMNS. mean is over the samples between barrier and end of the job; NaN with the reason in note where there
        are none. own says whether the value is the job's alone; note says whose it is, and why there is no better one.
    """
    started = jobs[jobs["folder"].notna() & jobs["go_at"].notna() & jobs["wall_s"].notna()]
    telemetry = dict(list(read_telemetry(started["folder"]).groupby("run", sort=False, observed=True)))
    rows = []
    for _, own in started.groupby("round", sort=True):
        places = {job["job"]: _place(job["folder"]) for _, job in own.iterrows()}
        for _, job in own.iterrows():
            gpu, device = places[job["job"]]
            sharing = {
                "mig": sum(each == device for _, each in places.values()),
                "device": sum(each == gpu for each, _ in places.values()),
                "host": len(places),
            }
            samples = telemetry.get(job["run"])
            samples = None if samples is None else samples[samples["device"].isin({"host", gpu, device})]
            for what, rungs in (ON_HOST if gpu is None else ON_HOST | ON_GPU).items():
                known = {name: job[name] for name in ("workload", "mode", "repeat", "job")} | {"what": what}
                rows.append(known | _best(samples, rungs, job, sharing))
    table = pd.DataFrame(rows, columns=COLUMNS)
    # two quantities may come down to one counter
    return table.drop_duplicates(["workload", "mode", "repeat", "job", "scope", "counter"]).reset_index(drop=True)


def not_attributed(attributed: pd.DataFrame) -> str:
    """In sentences, what of `attribution` is no single job's, and why; empty where everything is."""
    missing = attributed[~attributed["own"].astype(bool) & (attributed["mode"] != "alone")]
    return " ".join(
        f"In mode {mode}, no job's own: {', '.join(dict.fromkeys(own['what']))} ({note})."
        for (mode, note), own in missing.groupby(["mode", "note"], sort=False)
    )


def _place(folder: str) -> tuple[str | None, str]:
    """The GPU (None on a CPU) and the device, which may be a slice of it, that a run computed on."""
    record = read_run(folder)
    torch_name = str(record.budget.get("torch_name", "cpu"))
    if not torch_name.startswith("cuda"):
        return None, "host"
    device = next((each for each in record.devices if each.get("torch_name") == torch_name), {})
    gpu = gpu_of(record.devices, torch_name).uuid or torch_name
    return gpu, device.get("uuid") or gpu


def _best(samples: pd.DataFrame | None, rungs: tuple, job: pd.Series, sharing: dict[str, int]) -> dict:
    """The first of the rungs that has values, whose they are, and why those before it have none."""
    why = "nothing was sampled" if samples is None else "no such counter was found"
    begin_ns = datetime.fromisoformat(job["go_at"]).timestamp() * 1e9
    for scope, counter in rungs if samples is not None else ():
        rows = samples[(samples["scope"] == scope) & (samples["counter"] == counter)]
        values = rows[rows["value"].notna() & rows["time_ns"].between(begin_ns, begin_ns + job["wall_s"] * 1e9)]
        if len(values):
            notes = [] if (scope, counter) == rungs[0] else [why]
            others = sharing.get(scope, 1)
            if scope != "process":
                whose = f"which {others} jobs shared" if others > 1 else "which no other job of the round used"
                notes.insert(0, f"of {SCOPES[scope]}, {whose}")
            found = {"counter": counter, "mean": values["value"].mean(), "unit": values["unit"].iloc[0], "scope": scope}
            return found | {"own": others == 1 and scope != "host", "note": "; ".join(notes)}
        why = next(reversed(rows["note"].dropna().to_list()), why)
    scope, counter = rungs[0]
    missing = {"counter": counter, "mean": np.nan, "unit": COUNTERS[scope, counter].unit, "scope": scope}
    return missing | {"own": False, "note": why}

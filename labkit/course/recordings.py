"""What others measured on a GPU, which ships with labkit: datasets/recorded/README.md says how it was made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from labkit.data.store import shipped_datasets

if TYPE_CHECKING:
    import pandas as pd

RECORDED = "recorded on an A100, EuroMLSys 2023"
"""Yousefzadeh-Asl-Miandoab, Robroek and Tözün, Profiling and Monitoring Deep Learning Training Tasks."""
SHARES = {"gr_engine_active": "graphics_active", "sm_active": "sm_active", "sm_occupancy": "sm_occupancy"}
LAUNCHES = 2_000_000
"""Of each shape, back to back"""


def square_kernel() -> pd.DataFrame:
    """What an A100's counters said of a kernel that squares numbers, in 87 shapes.

    Returns:
        Columns blocks, threads (a block), launch_us (from one launch to the next, from whole seconds),
        gpu_utilisation, graphics_active, sm_active, sm_occupancy (all %) and provenance, which names the source.
    """
    frame = _read("pmdlt_square_a100.csv").rename(columns={"threads_per_block": "threads"} | SHARES)
    shares = {counter: 100 * frame[counter] for counter in SHARES.values()}
    frame = frame.assign(launch_us=1e6 * frame["samples"] / LAUNCHES, gpu_utilisation=frame["gpu_util_percent"])
    frame = frame.assign(**shares, provenance=RECORDED)
    return frame[["blocks", "threads", "launch_us", "gpu_utilisation", *SHARES.values(), "provenance"]]


def mnist_runs() -> pd.DataFrame:
    """Runs of five epochs of an MNIST CNN beside tools that look.

    Returns:
        Columns tools (a set of names), train_s; and where `top` ran, peak_memory_mib of the training process,
        hostengine_cpu_percent (of a core, mean) and span_s of the log, a report included; provenance.
    """
    frame = _read("pmdlt_mnist_overheads_a100.csv")
    names = {"trainer_peak_res_mib": "peak_memory_mib", "hostengine_cpu_percent_mean": "hostengine_cpu_percent"}
    frame = frame.rename(columns=names | {"log_span_s": "span_s"})
    tools = [frozenset(each for each in said.split(", ") if not each.startswith("baseline")) for said in frame["tools"]]
    columns = ["tools", "train_s", *names.values(), "span_s", "provenance"]
    return frame.assign(tools=tools, provenance=RECORDED)[columns]


def _read(name: str) -> pd.DataFrame:
    import pandas as pd

    return pd.read_csv(shipped_datasets() / "recorded" / name)

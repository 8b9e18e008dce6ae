"""Makes the Parquet files of the recordings from the files of their authors, which lie beside them in original/.

python datasets/recorded/make.py
"""

from __future__ import annotations

import runpy
from dataclasses import asdict
from pathlib import Path

import pandas as pd

from labkit.runs import EVALUATIONS, RUNS
from labkit_course.apparatus import read_step

HERE = Path(__file__).parent
read_published = runpy.run_path(str(HERE / "published.py"))["read_published"]
LAUNCHES = 2_000_000
"""Of each shape of the kernel, back to back"""


def zeus() -> dict[str, pd.DataFrame]:
    runs, evaluations = read_published(sorted((HERE / "zeus-nsdi23" / "original").iterdir()))
    runs = runs[runs["job"].isin(["deepspeech2 on librispeech", "ncf on movielens-1m"])].reset_index(drop=True)
    return {RUNS: runs, EVALUATIONS: evaluations[evaluations["run"].isin(runs["run"])].reset_index(drop=True)}


def mlperf() -> dict[str, pd.DataFrame]:
    runs, evaluations = read_published(sorted((HERE / "mlperf-rcp" / "original").iterdir()))
    return {RUNS: runs, EVALUATIONS: evaluations}


def torchrec() -> dict[str, pd.DataFrame]:
    return {"one_epoch.parquet": pd.read_csv(HERE / "torchrec-dlrm" / "original" / "readmes.csv")}


def pmdlt() -> dict[str, pd.DataFrame]:
    original = HERE / "pmdlt-a100" / "original"
    names = {
        "threads_per_block": "threads",
        "gr_engine_active": "graphics_active",
        "gpu_util_percent": "gpu_utilisation",
    }
    shapes = pd.read_csv(original / "square_kernel.csv").rename(columns=names)
    shares = ["graphics_active", "sm_active", "sm_occupancy"]
    shapes[shares] *= 100
    shapes = shapes.assign(launch_us=1e6 * shapes["samples"] / LAUNCHES)
    names = {"trainer_peak_res_mib": "peak_memory_mib", "hostengine_cpu_percent_mean": "hostengine_cpu_percent"}
    runs = pd.read_csv(original / "mnist_runs.csv").rename(columns=names | {"log_span_s": "span_s"})
    runs["tools"] = runs["tools"].str.replace(r"baseline( \(nothing else logged\))?(, )?", "", regex=True)
    return {
        "square_kernel.parquet": shapes[["blocks", "threads", "launch_us", "gpu_utilisation", *shares]],
        "mnist_runs.parquet": runs[["tools", "train_s", *names.values(), "span_s"]],
    }


def param() -> dict[str, pd.DataFrame]:
    rows = []
    for rank in range(8):
        step = read_step(HERE / "param-v100" / "original" / f"rank{rank}.json.gz")
        for number, kernel in enumerate(step.kernels):
            told = {"rank": rank, "number": number} | asdict(kernel)
            rows.append(told | {"start_us": kernel.start_us - step.start_us, "after": str(list(kernel.after))})
    return {"kernels.parquet": pd.DataFrame(rows).astype({"collective": "Int64"})}


def resnet() -> dict[str, pd.DataFrame]:
    events = pd.read_csv(HERE / "param-rtx2080ti" / "original" / "events.csv.gz")
    events["end_us"] = events["start_us"] + events["duration_us"]
    ends_us = events.loc[events["what"] == "optimiser", "end_us"]
    on_gpu = events[~events["what"].isin(["optimiser", "loader"])]
    by_step = on_gpu.groupby(ends_us.searchsorted(on_gpu["launch_us"]))
    steps = by_step.agg(kernels=("what", "size"), busy_us=("duration_us", "sum"), end_us=("end_us", "max"))
    steps = steps.iloc[: len(ends_us)]  # a copy comes after the last
    steps.insert(0, "interval_us", steps.pop("end_us").diff())
    loader_us = events.loc[events["what"] == "loader", "duration_us"].to_numpy()
    return {"steps.parquet": steps.assign(loader_us=loader_us).rename_axis("step").iloc[1:].reset_index()}


def radt() -> dict[str, pd.DataFrame]:
    samples = pd.read_csv(HERE / "radt-cpu" / "original" / "samples.csv.gz")
    return {"samples.parquet": samples.sort_values(["timestamp_ms", "metric"], ignore_index=True)}


MAKERS = {
    "zeus-nsdi23": zeus,
    "mlperf-rcp": mlperf,
    "torchrec-dlrm": torchrec,
    "pmdlt-a100": pmdlt,
    "param-v100": param,
    "param-rtx2080ti": resnet,
    "radt-cpu": radt,
}

if __name__ == "__main__":
    for name, make in MAKERS.items():
        for file, frame in make().items():
            frame.to_parquet(HERE / name / file, index=False, compression="zstd")
            print(f"{name}/{file}: {len(frame):,} rows, {(HERE / name / file).stat().st_size:,} bytes")

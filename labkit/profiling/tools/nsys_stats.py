"""What Nsight Systems recorded, summed up by name, as its own `nsys stats` writes it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.errors import DataError, UserError
from labkit.hardware.tools import which

if TYPE_CHECKING:
    import pandas as pd

REPORTS = {
    "cuda_gpu_kern_sum": ("kernels", "Name", "Instances"),
    "cuda_gpu_mem_time_sum": ("kernels", "Operation", "Count"),
    "cuda_api_sum": ("api_calls", "Name", "Num Calls"),
    "nvtx_sum": ("ranges", "Range", "Instances"),
}
"""Reports of `nsys stats` since 2023: the frame that each is part of, and its columns of names and of counts"""
HEADINGS = {"kernels": "kernel", "api_calls": "operator", "ranges": "phase"}
TIME = "Total Time (ns)"


def export_stats(recording: Path) -> None:
    """Let nsys write its statistics beside a recording, a file a report; of what was not recorded there is none.

    Raises:
        UserError: nsys fails.
    """
    reports = [part for report in REPORTS for part in ("--report", report)]
    stem = recording.with_suffix("")
    command = ["stats", "--format", "csv", "--output", str(stem), "--force-export=true", *reports, str(recording)]
    done = subprocess.run(
        [which("nsys") or "nsys", *command],
        capture_output=True, text=True, errors="replace", check=False, env=os.environ | {"LC_ALL": "C"},
    )  # fmt: skip
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())[-500:]
        raise UserError(f"{recording}: nsys stats ended with status {done.returncode}: {said}. `nsys-ui` may open it.")


def read_stats(recording: Path) -> dict[str, pd.DataFrame]:
    """Read the statistics beside a recording.

    Returns:
        Frames, dearest first: kernels (what ran on the device, copies and sets of memory included: kernel, calls,
        total_us, share), api_calls (of CUDA on the host: operator, calls, total_us, share), ranges (of NVTX, which may
        lie within each other: phase, calls, total_us, share).

    Raises:
        DataError: a file is damaged.
    """
    import pandas as pd

    rows: dict[str, list[pd.DataFrame]] = {frame: [] for frame in HEADINGS}
    for report, (frame, name, calls) in REPORTS.items():
        path = recording.with_name(f"{recording.stem}_{report}.csv")
        if not path.is_file() or not path.stat().st_size:
            continue
        try:
            table = pd.read_csv(path, thousands=",")
            # a colon before a range stands for NVTX's default domain
            named = {HEADINGS[frame]: table[name].astype(str).str.removeprefix(":"), "calls": table[calls].astype(int)}
            rows[frame].append(pd.DataFrame(named).assign(total_us=table[TIME].astype(float) / 1e3))
        except (ValueError, KeyError) as error:  # pandas' own errors are ValueErrors
            fix = f"Write it once more: `nsys stats --format csv --output {recording.stem} {recording.name}`."
            raise DataError(f"this table cannot be read ({error}).", fix=fix, file=path) from error
    return {frame: _sums(found, HEADINGS[frame]) for frame, found in rows.items()}


def _sums(tables: list[pd.DataFrame], heading: str) -> pd.DataFrame:
    import pandas as pd

    if not tables:
        return pd.DataFrame(columns=[heading, "calls", "total_us", "share"])
    sums = pd.concat(tables).groupby(heading, as_index=False).sum()
    sums["share"] = sums["total_us"] / sums["total_us"].sum()
    return sums.sort_values("total_us", ascending=False, ignore_index=True)

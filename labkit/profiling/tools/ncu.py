"""NVIDIA Nsight Compute: its command line, whether it may count here, and what it counted as frames."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.errors import DataError, UserError
from labkit.hardware.tools import find_profiler
from labkit.profiling.tools.csv_cells import REWRITE, number, split_row
from labkit.profiling.tools.rights import has_capability
from labkit.profiling.tools.run_tool import Refusal, missing_tool

if TYPE_CHECKING:
    import pandas as pd

METRICS = {
    "duration_us": ("gpu__time_duration.sum", "Duration"),
    "sm_throughput_percent": (
        "sm__throughput.avg.pct_of_peak_sustained_elapsed", "Compute (SM) Throughput", "SM [%]", "SOL SM",
    ),
    "dram_throughput_percent": (
        "dram__throughput.avg.pct_of_peak_sustained_elapsed",
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
        "DRAM Throughput",
    ),
    "achieved_occupancy_percent": ("sm__warps_active.avg.pct_of_peak_sustained_active", "Achieved Occupancy"),
}  # fmt: skip
"""Our columns, and the names of the metric: first the one to ask for, then those of other versions and of the page
`details`. Source: Nsight Compute, Profiling Guide, Metrics Reference, and the section files that come with it"""
_COLUMNS = {name: column for column, names in METRICS.items() for name in names}
_US = {
    "ns": 1e-3, "nsecond": 1e-3, "us": 1.0, "usecond": 1.0, "ms": 1e3, "msecond": 1e3, "s": 1e6, "second": 1e6,
}  # fmt: skip
_UNKNOWN = ("", "n/a", "nan", "(!) n/a", "(!) nan")
DRIVER_SETTINGS = Path("/proc/driver/nvidia/params")
FORBIDDEN = (
    "this user may not read the GPU's performance counters (ERR_NVGPUCTRPERM), without which ncu measures nothing. An "
    "administrator of the machine allows it to everybody with `echo 'options nvidia "
    "NVreg_RestrictProfilingToAdminUsers=0' | sudo tee /etc/modprobe.d/nvidia-profiling.conf` and a restart (where the "
    "driver is in the initial ramdisk, run `sudo update-initramfs -u` before it). Or run it as root with `sudo -E`; a "
    "container needs `docker run --cap-add=SYS_ADMIN`; on Windows and WSL it is NVIDIA's control panel, Developer, "
    "Manage GPU Performance Counters. See https://developer.nvidia.com/ERR_NVGPUCTRPERM. Nsight Systems and "
    "torch.profiler need no such right."
)
REFUSALS = (Refusal("ERR_NVGPUCTRPERM", f"ncu: {FORBIDDEN}"),)


def ncu_command(
    output: Path,
    command: Sequence[str],
    *,
    kernels: int,
    skip: int = 0,
    nvtx_range: str | None = None,
    options: Sequence[str] = (),
) -> list[str]:
    """The command line that looks at some launches of kernels, each of which it repeats a few times.

    Args:
        output: the file for the table and ncu's messages, `.csv`.
        command: the program and its arguments.
        kernels: how many launches to look at.
        skip: how many to let pass before: the first ones are seldom those of a usual step.
        nvtx_range: look only at launches within the ranges of that name (`torch.cuda.nvtx.range`).
        options: more of ncu's own.
    """
    within = [] if nvtx_range is None else ["--nvtx", "--nvtx-include", f"{nvtx_range}/"]
    return [
        "ncu",
        "--csv",
        *("--page", "raw"),
        *("--print-units", "base"),
        *("--log-file", str(output)),
        *("--target-processes", "all"),
        *("--launch-skip", str(skip)),
        *("--launch-count", str(kernels)),
        *within,
        *options,
        *("--metrics", ",".join(names[0] for names in METRICS.values())),
        *command,
    ]


def why_no_ncu() -> str | None:
    """Why kernels cannot be looked at here, as far as can be told before; None where nothing speaks against it."""
    tool = find_profiler("ncu")
    if tool.path is None:
        return str(missing_tool("ncu"))
    if not tool.works:
        return f"ncu does not work here: {tool.note}. Install it anew, or try `{tool.path} --version`."
    try:
        only_root = "RmProfilingAdminOnly: 1" in DRIVER_SETTINGS.read_text()
    except OSError:
        return None
    allowed = os.geteuid() == 0 and has_capability("SYS_ADMIN")
    return f"ncu: {FORBIDDEN}" if only_root and not allowed else None


def read_ncu_launches(path: Path) -> pd.DataFrame:
    """Read the table of `ncu --csv`, of the page `raw` (a column a metric) or `details` (a row a metric).

    Returns:
        One row a launch: launch (its number), kernel, duration_us, sm_throughput_percent, dram_throughput_percent,
        achieved_occupancy_percent, note. What was not measured is NaN, and the note says so. ncu holds the clocks at
        their base and empties caches, so that durations are longer than in the program by itself.

    Raises:
        UserError: ncu was not allowed to count, or looked at no launch.
        DataError: there is no table, or it is damaged.
    """
    import pandas as pd

    text = path.read_text(encoding="utf-8", errors="replace")
    launches: dict[tuple[str, int], dict] = {}
    for place, cells in _rows(path, text):
        key = cells.get("Process ID", ""), int(number(cells["ID"], path, place, "ID"))
        launch = launches.setdefault(key, {"kernel": cells["Kernel Name"]})
        for name, unit, value in _metrics(cells):
            known = _value(_COLUMNS[name], unit, value, path, place, name)
            if known is not None:
                launch.setdefault(_COLUMNS[name], known)
    if not launches:
        raise _nothing(path, text)
    frame = pd.DataFrame(
        [
            {"launch": place, "kernel": launch["kernel"]}
            | {column: launch.get(column, float("nan")) for column in METRICS}
            for (_, place), launch in launches.items()
        ]
    )
    frame["note"] = [_note([column for column in METRICS if pd.isna(row[column])]) for _, row in frame.iterrows()]
    return frame


def read_ncu_csv(path: Path) -> pd.DataFrame:
    """Read the table of `ncu --csv` and sum it up by kernel.

    Returns:
        Columns kernel, calls (launches looked at), total_us, self_us (the same), share, sm_throughput_percent,
        dram_throughput_percent, achieved_occupancy_percent (means by time), note; dearest first. What was not measured
        in each of a kernel's launches is NaN, and the note says so; the shares are, once a time is missing.

    Raises:
        UserError: ncu was not allowed to count, or looked at no launch.
        DataError: there is no table, or it is damaged.
    """
    import pandas as pd

    rows = []
    for kernel, launches in read_ncu_launches(path).groupby("kernel", sort=False):
        total_us = launches["duration_us"].sum(skipna=False)
        weights = launches["duration_us"] if total_us > 0 else pd.Series(1.0, launches.index)
        means = {
            column: (launches[column] * weights).sum(skipna=False) / weights.sum(skipna=False)
            for column in METRICS
            if column != "duration_us"
        }
        lacking = [column for column in METRICS if launches[column].isna().any()]
        row = {"kernel": kernel, "calls": len(launches), "total_us": total_us, "self_us": total_us}
        rows.append(row | means | {"note": _note(lacking)})
    frame = pd.DataFrame(rows)
    frame.insert(4, "share", frame["self_us"] / frame["self_us"].sum(skipna=False))
    return frame.sort_values("self_us", ascending=False, ignore_index=True)


def _rows(path: Path, text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Lines of the table as cells by column, with the units of a wide one under its metrics' names with a suffix."""
    header: list[str] | None = None
    units: dict[str, str] = {}
    for place, line in enumerate(text.splitlines(), 1):
        if not line.startswith('"'):  # ncu's messages, and what the program printed
            continue
        row = split_row(line, path, place)
        if "ID" in row and "Kernel Name" in row:
            header, units = row, {}
            continue
        if header is None:
            continue
        # rows of the page `details` end before the columns for advice, with a comma
        least = header.index("Metric Value") + 1 if "Metric Value" in header else len(header)
        if not least <= len(row) <= len(header):
            what = f"this row has {len(row)} fields, the table has {len(header)}."
            raise DataError(what, fix=REWRITE, file=path, line=place)
        cells = dict(zip(header, row, strict=False))
        if not cells["ID"]:
            units = {f"{column} unit": unit for column, unit in cells.items()}
        else:
            yield place, cells | units


def _metrics(cells: dict[str, str]) -> list[tuple[str, str, str]]:
    """Name, unit and value of the known metrics in one row of either form."""
    if "Metric Name" in cells:
        name = cells["Metric Name"]
        return [(name, cells["Metric Unit"], cells["Metric Value"])] if name in _COLUMNS else []
    return [(name, cells.get(f"{name} unit", ""), cells[name]) for name in _COLUMNS if name in cells]


def _value(column: str, unit: str, value: str, path: Path, place: int, name: str) -> float | None:
    """The value in our unit; None where it was not measured, or is another quantity of the same name."""
    if value.strip() in _UNKNOWN or (column != "duration_us" and unit != "%"):
        return None
    if column != "duration_us":
        return number(value, path, place, name)
    if unit not in _US:
        fix = "Write the table once more, with --print-units base."
        raise DataError(f"{unit!r} is no unit of time.", fix=fix, file=path, line=place, field=name)
    return number(value, path, place, name) * _US[unit]


def _note(lacking: list[str]) -> str | None:
    if not lacking:
        return None
    return f"not measured: {', '.join(METRICS[column][0] for column in lacking)} (not asked for, or not on this GPU)"


def _nothing(path: Path, text: str) -> UserError:
    """Why there is no launch in it."""
    for refusal in REFUSALS:
        if re.search(refusal.words, text):
            return UserError(refusal.why)
    if "No kernels were profiled" in text:
        return UserError(
            f"{path}: ncu looked at no kernel. Fewer were launched than were to be skipped, no range has that name, or "
            "the program did not use the GPU: skip fewer, look at the name, or see what Nsight Systems records."
        )
    return DataError("there is no table of ncu in it.", fix="Write one with `ncu --csv --page raw`.", file=path)

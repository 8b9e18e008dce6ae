"""What nsys and py-spy wrote, as frames: summed up by name, as `nsys stats` does it, and by Python's functions."""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.errors import DataError, UserError
from labkit.hardware.tools import which

if TYPE_CHECKING:
    import pandas as pd

_PLACE = re.compile(r"(?P<function>.*?) \((?P<file>.*?)(?::(?P<line>\d+))?\)")
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


def python_functions(path: Path, script: str) -> pd.DataFrame:
    """Sum up the stacks of `py-spy record --format raw` that pass through a script: those of the thread that runs it.

    Args:
        path: the stacks, a line each, with the number of samples at its end.
        script: path of a Python file.

    Returns:
        Columns function, file, line (its own with most samples; null where it had none or py-spy knows none), samples
        (with it anywhere on the stack, once however often it called itself), self_samples (in itself), and of all
        samples share (of its own) and with_callees; dearest first.

    Raises:
        UserError: no sample was taken of the script.
        DataError: it is damaged.
    """
    import pandas as pd

    samples, own, own_of_lines = Counter(), Counter(), Counter()
    for number, text in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
        stack, _, count = text.rpartition(" ")
        if not count.isdecimal():
            fix = "The file was cut off, or is no output of `py-spy record --format raw`: profile again."
            raise DataError("this line has no number of samples at its end.", fix=fix, file=path, line=number)
        places = [place for part in stack.split(";") if (place := _PLACE.fullmatch(part))]
        if not any(place["file"] == script for place in places):
            continue
        samples.update(dict.fromkeys({place.group("function", "file") for place in places}, int(count)))
        last = places[-1].group("function", "file")
        own[last] += int(count)
        own_of_lines[last, places[-1]["line"]] += int(count)
    if not own:
        raise UserError(
            f"{path}: py-spy took no sample within the steps. Let them go on for longer (--steps), or see what it took "
            "in the file."
        )
    rising = sorted(own_of_lines.items(), key=lambda item: item[1])
    dearest_line = {place: line and int(line) for (place, line), _ in rising}  # the last one of a place remains
    rows = [(*place, dearest_line.get(place), count, own[place]) for place, count in samples.items()]
    found = pd.DataFrame(rows, columns=["function", "file", "line", "samples", "self_samples"])
    found["line"] = found["line"].astype("Int64")
    found["share"], found["with_callees"] = (found[of] / own.total() for of in ("self_samples", "samples"))
    return found.sort_values(["self_samples", "samples"], ascending=False, kind="stable", ignore_index=True)

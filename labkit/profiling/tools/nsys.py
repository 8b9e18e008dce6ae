"""NVIDIA Nsight Systems: its command line, what it cannot see here, and its statistics as frames."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.errors import DataError, UserError
from labkit.hardware.tools import ANSWER_TIMEOUT_S, find_profiler, perf_limit
from labkit.profiling.tools.csv_cells import REWRITE, number, split_row
from labkit.profiling.tools.rights import has_capability, in_container
from labkit.profiling.tools.run_tool import missing_tool, run_tool

if TYPE_CHECKING:
    import pandas as pd

TRACED = ("cuda", "nvtx", "osrt", "cublas", "cudnn")
REPORTS = {
    "cuda_gpu_kern_sum": ("kernels", "gpukernsum"),
    "cuda_gpu_mem_time_sum": ("kernels", "gpumemtimesum"),
    "cuda_api_sum": ("api_calls", "cudaapisum"),
    "nvtx_sum": ("ranges", "nvtxsum"),
}
"""What becomes of each report of `nsys stats`, and its name before version 2023"""
_FRAMES: dict[str, str | None] = {name: frame for new, (frame, old) in REPORTS.items() for name in (new, old)} | {
    "cuda_gpu_kern_gb_sum": "kernels",  # with a row for each size of grid
    "nvtx_pushpop_sum": "ranges",
    "nvtxppsum": "ranges",
    "osrt_sum": None,  # calls of the operating system, in a table like that of CUDA's calls
    "osrtsum": None,
}
STATS_INPUTS = (".nsys-rep", ".qdrep", ".sqlite")
_BANNER = re.compile(r"^\s*(?:Processing|Running)\b.*\b(\w+)\.py\b|^\s*\*\* .*\((\w+)\):?\s*$")
"""What nsys prints before a table: `Processing [x.sqlite] with […/cuda_api_sum.py]...` or `** … (cuda_api_sum):`"""
_TIME = re.compile(r"Total Time \((\w+)\)")
_US = {"ns": 1e-3, "us": 1.0, "μs": 1.0, "ms": 1e3, "s": 1e6, "sec": 1e6}
_NAME, _CALLS = ("Name", "Operation", "Range"), ("Instances", "Num Calls", "Count", "Operations")


@dataclass(frozen=True)
class NsysStats:
    """What Nsight Systems recorded, summed up by name; dearest first."""

    kernels: pd.DataFrame
    """What ran on the device, copies and sets of memory included: kernel, calls, total_us, self_us, share"""
    api_calls: pd.DataFrame
    """Calls of CUDA's interface on the host: operator, calls, total_us, self_us, share"""
    ranges: pd.DataFrame
    """Ranges of NVTX, which may lie within each other: phase, calls, total_us"""
    notes: tuple[str, ...] = ()
    """What the recording does not hold, in the words of nsys"""


def nsys_command(
    output: Path, command: Sequence[str], *, sample_cpu: bool = True, options: Sequence[str] = ()
) -> list[str]:
    """The command line that records a program.

    Args:
        output: the report to write, `.nsys-rep`.
        command: the program and its arguments.
        sample_cpu: also ask each core regularly where it is; left out where the kernel forbids it.
        options: more of `nsys profile`.
    """
    sampled = sample_cpu and _why_no_samples() is None
    return [
        "nsys",
        "profile",
        f"--trace={','.join(TRACED)}",
        f"--sample={'process-tree' if sampled else 'none'}",
        f"--cpuctxsw={'process-tree' if sampled else 'none'}",
        "--force-overwrite=true",
        *options,
        "-o",
        str(output),
        *command,
    ]


def nsys_limits() -> list[str]:
    """What a recording will lack on this machine, and how to mend it.

    Raises:
        UserError: there is no nsys here, or it does not start.
    """
    tool = find_profiler("nsys")
    if tool.path is None:
        raise missing_tool("nsys")
    if not tool.works:
        raise UserError(f"nsys does not work here: {tool.note}. Install it anew, or try `{tool.path} --version`.")
    why = _why_no_samples()
    return (
        [f"No samples of the CPU: {why}. Kernels, CUDA calls and NVTX ranges are recorded all the same."] if why else []
    )


def _why_no_samples() -> str | None:
    limit = perf_limit()
    if limit is not None:
        return f"{limit}; `sudo sysctl kernel.perf_event_paranoid=2` mends it until the next start"
    if in_container() and not has_capability("SYS_ADMIN", "PERFMON"):
        return "the container lacks the capability for it; start it with `docker run --cap-add=SYS_ADMIN`"
    return None


def read_nsys_stats(*sources: Path) -> NsysStats:
    """Read a recording of nsys, or what `nsys stats --format csv` wrote.

    Args:
        sources: a recording (`.nsys-rep`, `.qdrep`, `.sqlite`), or files with the CSV of one or more reports.

    Raises:
        UserError: nsys is needed to read the recording and is not there, or fails.
        DataError: a table is damaged, or there is none.
    """
    found: dict[str, list[tuple[str, int, float]]] = {"kernels": [], "api_calls": [], "ranges": []}
    notes: list[str] = []
    for source in sources:
        text = _stats(source) if source.suffix in STATS_INPUTS else source.read_text(encoding="utf-8", errors="replace")
        read = _Tables(source)
        read.take(text.splitlines())
        for frame, rows in read.rows.items():
            found[frame] += rows
        notes += read.notes
        if not read.is_known:
            raise DataError(
                "there is no table of `nsys stats` in it.",
                fix="Write one with `nsys stats --format csv --report cuda_gpu_kern_sum REPORT.nsys-rep`.",
                file=source,
            )
    ranges = _sums(found["ranges"], "phase")[["phase", "calls", "total_us"]]
    return NsysStats(_sums(found["kernels"], "kernel"), _sums(found["api_calls"], "operator"), ranges, tuple(notes))


def _stats(recording: Path) -> str:
    if not recording.is_file():
        raise UserError(f"{recording}: there is no such recording. Record one with `nsys profile` first.")
    fresh = [] if recording.suffix == ".sqlite" else ["--force-export=true"]  # not of what was recorded before
    reports = [part for report in _report_names() for part in ("--report", report)]
    return run_tool(["nsys", "stats", "--format", "csv", "--output", "-", *fresh, *reports, str(recording)], show=False)


def _report_names() -> list[str]:
    """The reports by the names that this nsys gives them."""
    try:
        # some versions end with a status above 0 after the list
        answer = subprocess.run(
            ["nsys", "stats", "--help-reports"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError as error:
        raise missing_tool("nsys") from error
    except subprocess.TimeoutExpired:
        return list(REPORTS)
    offered = set(re.findall(r"\w+", answer.stdout + answer.stderr))
    return [old if old in offered and new not in offered else new for new, (_, old) in REPORTS.items()]


class _Tables:
    """Collects rows of the tables in one text."""

    def __init__(self, source: Path):
        self._source = source
        self.rows: dict[str, list[tuple[str, int, float]]] = {"kernels": [], "api_calls": [], "ranges": []}
        self.notes: list[str] = []
        self.is_known = False
        """Whether there was a table, or word of one that is empty"""

    def take(self, lines: Iterable[str]) -> None:
        by_name = next((name for name in _FRAMES if self._source.stem.endswith(f"_{name}")), None)
        report, header = by_name, None
        for place, line in enumerate(lines, 1):
            if not line.strip():
                header = None
            elif "SKIPPED:" in line:
                self.is_known = True
                what = line.partition("SKIPPED:")[2].partition("does not contain")[2].strip(" .")
                self.notes.append(f"{report or 'nsys stats'}: the recording has no {what or 'data for it'}")
            elif banner := _BANNER.search(line):
                report, header = banner[1] or banner[2], None
            elif _TIME.search(line):
                header = split_row(line, self._source, place)
                self.is_known = True
            elif header is not None:
                self._add(report, header, split_row(line, self._source, place), place)

    def _add(self, report: str | None, header: list[str], row: list[str], place: int) -> None:
        if len(row) != len(header):
            what = f"this row has {len(row)} fields, its table has {len(header)}."
            raise DataError(what, fix=REWRITE, file=self._source, line=place)
        name, calls = (next((column for column in known if column in header), None) for known in (_NAME, _CALLS))
        frame = _FRAMES.get(report) if report else _frame_of(name, calls)
        if frame is None or name is None or calls is None:
            return  # a report that nobody asked for
        time = next(column for column in header if _TIME.fullmatch(column))
        cells = dict(zip(header, row, strict=True))
        unit = _TIME.fullmatch(time)[1]
        if unit not in _US:
            raise DataError(f"{unit!r} is no unit of time.", fix=REWRITE, file=self._source, line=place, field=time)
        total_us = number(cells[time], self._source, place, time) * _US[unit]
        count = int(number(cells[calls], self._source, place, calls))
        # a colon before a range stands for NVTX's default domain
        self.rows[frame].append((cells[name].removeprefix(":") if name == "Range" else cells[name], count, total_us))


def _frame_of(name: str | None, calls: str | None) -> str | None:
    """What a table without a heading is, by its columns."""
    if name == "Range":
        return "ranges"
    return "api_calls" if calls == "Num Calls" else "kernels"


def _sums(rows: list[tuple[str, int, float]], heading: str) -> pd.DataFrame:
    import pandas as pd

    frame = pd.DataFrame(rows, columns=[heading, "calls", "total_us"])
    frame = frame.astype({heading: object, "calls": "int64", "total_us": "float64"})
    frame = frame.groupby(heading, as_index=False).sum()
    frame["self_us"] = frame["total_us"]  # they do not nest
    whole_us = frame["total_us"].sum()
    frame["share"] = frame["self_us"] / whole_us if whole_us else 0.0
    return frame.sort_values("self_us", ascending=False, ignore_index=True)

"""What NVIDIA's data centre GPU manager tells, through `dcgmi dmon`: profiling counters from Volta on.

It needs DCGM's host engine and, mostly, its rights; where it does not run, each counter says why.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Iterator

from labkit.hardware.device import Device
from labkit.telemetry.reading import Reading
from labkit.telemetry.sources.tool_stream import RESTART_S, ToolStream

SOURCE = "DCGM dmon"
FIELDS = {
    "SMACT": ("sm_active", "%", 100, 1002),
    "SMOCC": ("sm_occupancy", "%", 100, 1003),
    "TENSO": ("tensor_active", "%", 100, 1004),
    "DRAMA": ("dram_active", "%", 100, 1005),
    "PCITX": ("pcie_tx", "bytes/s", 1, 1009),
    "PCIRX": ("pcie_rx", "bytes/s", 1, 1010),
    "NVLTX": ("nvlink_tx", "bytes/s", 1, 1011),
    "NVLRX": ("nvlink_rx", "bytes/s", 1, 1012),
}
"""By column of its table: our counter, unit, ours in DCGM's, and DCGM's number (dcgm_fields.h, DCGM_FI_PROF_*)."""
LEAST_MS = 100
"""DCGM samples its profiling counters no faster."""
ANSWER_S = 10.0
"""For its list of GPUs."""
MOST_LINES = 1000
"""Of that list: a handful for each GPU."""
NOT_LISTED = "dcgmi does not list this GPU"
_ROW = re.compile(r"\s*GPU[\s-]*(\d+)\s+(.*)")


class DcgmCounters:
    """Reads whole GPUs through one `dcgmi dmon`, which runs as long as this is open."""

    def __init__(self, devices: Iterable[Device], hz: float, now: Callable[[], float] = time.monotonic):
        """Start `dcgmi` for these devices, to be read `hz` times a second."""
        self._wanted, self._hz, self._now = sorted({device.gpu_uuid for device in devices}), hz, now
        # DCGM numbers all GPUs of the host; in a container, or with another order, NVML's numbers are others
        self._numbers: dict[str, int] = {}
        self._listing = _Listing(now)
        self._stream: ToolStream | None = None
        self._columns: list[str] = []

    def read(self) -> Iterator[Reading]:
        """Yield the latest row of each GPU."""
        if self._stream is None:
            self._open()
        rows = self._rows(self._stream.lines()) if self._stream else {}
        for uuid in self._wanted:
            cells, why_not = rows.get(self._numbers.get(uuid, -1)), self._why_not(uuid)
            for column, (counter, unit, scale, _) in FIELDS.items():
                value, why = (None, why_not) if cells is None else _number(cells.get(column))
                yield Reading(uuid, "device", counter, None if value is None else scale * value, unit, SOURCE, why)

    def close(self) -> None:
        """End `dcgmi`."""
        self._listing.close()
        if self._stream:
            self._stream.close()

    def _open(self) -> None:
        listed = self._listing.look()
        self._numbers = {uuid: number for uuid, number in listed.items() if uuid in self._wanted}
        if not self._numbers:
            self._listing.why = NOT_LISTED if listed else self._listing.why
            return
        period_ms = max(LEAST_MS, round(1000 / self._hz))
        fields = ",".join(str(number) for *_, number in FIELDS.values())
        # two tables of all GPUs, each with its two lines of heading
        keep = 2 * (len(self._numbers) + 2)
        gpus = ",".join(map(str, sorted(self._numbers.values())))
        command = ["dcgmi", "dmon", "-e", fields, "-i", gpus, "-d", str(period_ms)]
        self._stream = ToolStream(command, period_s=period_ms / 1000, keep=keep)

    def _why_not(self, uuid: str) -> str:
        if self._stream is None:
            return self._listing.why
        if uuid not in self._numbers:
            return NOT_LISTED
        return self._stream.why or "dcgmi has printed no row of this GPU yet"

    def _rows(self, lines: list[str]) -> dict[int, dict[str, str]]:
        """By GPU the cells of its latest row, by column."""
        rows = {}
        for line in lines:
            if line.lstrip().startswith("#"):
                self._columns = line.lstrip("# ").split()[1:]
            elif (row := _ROW.match(line)) and self._columns:
                rows[int(row[1])] = dict(zip(self._columns, row[2].split(), strict=False))
        return rows


class _Listing:
    """`dcgmi discovery -l`, asked beside the sampler and asked again while it lists nothing."""

    def __init__(self, now: Callable[[], float]):
        self._now, self._asked_at = now, -math.inf
        self._tool: ToolStream | None = None
        self.why = "dcgmi has not listed its GPUs yet"
        """Why nothing is listed"""

    def look(self) -> dict[str, int]:
        """By UUID, DCGM's number of each GPU that it knows; none as long as it has not answered."""
        if self._tool is None:
            if self._now() - self._asked_at < RESTART_S:
                return {}
            self._asked_at = self._now()
            self._tool = ToolStream(["dcgmi", "discovery", "-l"], period_s=math.inf, keep=MOST_LINES)
        said = self._tool.lines_of_ended()
        if said is None and self._now() - self._asked_at < ANSWER_S:
            return {}
        found, number = {}, None
        for line in said or []:
            if row := re.match(r"\|\s*(\d+)\s*\|", line):
                number = int(row[1])
            if (uuid := re.search(r"Device UUID:\s*(GPU-[\w-]+)", line)) and number is not None:
                found[uuid[1]] = number
        if not found:
            self.why = self._tool.why or f"dcgmi lists no GPU: {said[-1] if said else 'it says nothing'}"
        self.close()
        return found

    def close(self) -> None:
        if self._tool:
            self._tool.close()
            self._tool = None


def _number(text: str | None) -> tuple[float | None, str | None]:
    try:
        return float(text or ""), None
    except ValueError:
        return None, f"dcgmi says {text or 'nothing'}"

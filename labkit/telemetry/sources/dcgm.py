"""What NVIDIA's data centre GPU manager tells, through `dcgmi dmon`: profiling counters from Volta on.

It needs DCGM's host engine and, mostly, its rights; where it does not run, each counter says why.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from labkit.hardware.device import Device
from labkit.telemetry.reading import Reading
from labkit.telemetry.sources.tool_stream import NoCommand, ToolStream

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
NOT_LISTED = "dcgmi does not list this GPU"
_ROW = re.compile(r"\s*GPU[\s-]*(\d+)\s+(.*)")


class DcgmCounters:
    """Reads whole GPUs through one `dcgmi dmon`, which runs as long as this is open."""

    def __init__(self, devices: Iterable[Device], hz: float):
        """Start `dcgmi` for these devices, to be read `hz` times a second."""
        self._wanted = sorted({device.gpu_uuid for device in devices})
        # DCGM numbers all GPUs of the host; in a container, or with another order, NVML's numbers are others
        self._numbers: dict[str, int] = {}
        self._period_ms = max(LEAST_MS, round(1000 / hz))
        # two tables of all GPUs, each with its two lines of heading
        keep = 2 * (len(self._wanted) + 2)
        self._stream = ToolStream("dcgmi", self._arguments, period_s=self._period_ms / 1000, keep=keep)
        self._columns: list[str] = []

    def read(self) -> Iterator[Reading]:
        """Yield the latest row of each GPU."""
        rows = self._rows(self._stream.lines())
        for uuid in self._wanted:
            cells = rows.get(self._numbers.get(uuid, -1))
            why_not = NOT_LISTED if self._numbers and uuid not in self._numbers else self._stream.why
            for column, (counter, unit, scale, _) in FIELDS.items():
                value, why = (None, why_not or "dcgmi has printed no row of this GPU yet")
                if cells is not None:
                    value, why = _number(cells.get(column), scale)
                yield Reading(uuid, "device", counter, value, unit, SOURCE, why)

    def close(self) -> None:
        """End `dcgmi`."""
        self._stream.close()

    def _arguments(self, stream: ToolStream) -> list[str]:
        said, listed, number = stream.ask(["discovery", "-l"]), {}, None
        for line in said:
            if row := re.match(r"\|\s*(\d+)\s*\|", line):
                number = int(row[1])
            if (uuid := re.search(r"Device UUID:\s*(GPU-[\w-]+)", line)) and number is not None:
                listed[uuid[1]] = number
        if not listed:
            raise NoCommand(f"dcgmi lists no GPU: {said[-1] if said else 'it says nothing'}")
        self._numbers = {uuid: number for uuid, number in listed.items() if uuid in self._wanted}
        if not self._numbers:
            raise NoCommand(NOT_LISTED)
        fields = ",".join(str(number) for *_, number in FIELDS.values())
        gpus = ",".join(map(str, sorted(self._numbers.values())))
        return ["dmon", "-e", fields, "-i", gpus, "-d", str(self._period_ms)]

    def _rows(self, lines: list[str]) -> dict[int, dict[str, str]]:
        """By GPU the cells of its latest row, by column."""
        rows = {}
        for line in lines:
            if line.lstrip().startswith("#"):
                self._columns = line.lstrip("# ").split()[1:]
            elif (row := _ROW.match(line)) and self._columns:
                rows[int(row[1])] = dict(zip(self._columns, row[2].split(), strict=False))
        return rows


def _number(text: str | None, scale: float) -> tuple[float | None, str | None]:
    try:
        return scale * float(text or ""), None
    except ValueError:
        return None, f"dcgmi says {text or 'nothing'}"

"""What NVIDIA's data centre GPU manager tells, through `dcgmi dmon`: profiling counters from Volta on.

It needs DCGM's host engine and, mostly, its rights; where it does not run, each counter says why.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator

from labkit.hardware.device import Device
from labkit.telemetry.reading import Reading
from labkit.telemetry.sources.tool_stream import ToolStream

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
_ROW = re.compile(r"\s*GPU[\s-]*(\d+)\s+(.*)")


class DcgmCounters:
    """Reads whole GPUs through one `dcgmi dmon`, which runs as long as this is open."""

    def __init__(self, devices: Iterable[Device], hz: float):
        """Start `dcgmi` for these devices, to be read `hz` times a second."""
        wanted = {device.gpu_uuid for device in devices}
        # DCGM numbers all GPUs of the host; in a container, or with another order, NVML's numbers are others
        self._uuids = {number: uuid for number, uuid in _listed().items() if uuid in wanted}
        self._unlisted = sorted(wanted - set(self._uuids.values()))
        self._stream: ToolStream | None = None
        if not self._uuids:
            return
        period_ms = max(LEAST_MS, round(1000 / hz))
        numbers = ",".join(str(number) for *_, number in FIELDS.values())
        # two tables of all GPUs, each with its two lines of heading
        keep = 2 * (len(self._uuids) + 2)
        command = ["dcgmi", "dmon", "-e", numbers, "-i", ",".join(map(str, self._uuids)), "-d", str(period_ms)]
        self._stream = ToolStream(command, period_s=period_ms / 1000, keep=keep)
        self._columns: list[str] = []

    def read(self) -> Iterator[Reading]:
        """Yield the latest row of each GPU."""
        why = "dcgmi does not list this GPU" if shutil.which("dcgmi") else "dcgmi is not on PATH"
        for uuid in self._unlisted:
            for counter, unit, *_ in FIELDS.values():
                yield Reading(uuid, "device", counter, None, unit, SOURCE, why)
        rows = self._rows(self._stream.lines()) if self._stream else {}
        for index, uuid in self._uuids.items():
            cells = rows.get(index)
            for column, (counter, unit, scale, _) in FIELDS.items():
                value, why = None, self._stream.why or "dcgmi has printed no row of this GPU yet"
                if cells is not None:
                    value, why = _number(cells.get(column))
                yield Reading(uuid, "device", counter, None if value is None else scale * value, unit, SOURCE, why)

    def close(self) -> None:
        """End `dcgmi`."""
        if self._stream:
            self._stream.close()

    def _rows(self, lines: list[str]) -> dict[int, dict[str, str]]:
        """By GPU the cells of its latest row, by column."""
        rows = {}
        for line in lines:
            if line.lstrip().startswith("#"):
                self._columns = line.lstrip("# ").split()[1:]
            elif (row := _ROW.match(line)) and self._columns:
                rows[int(row[1])] = dict(zip(self._columns, row[2].split(), strict=False))
        return rows


def _listed() -> dict[int, str]:
    """By DCGM's number, the UUID of each GPU that it knows; none where it does not answer."""
    path = shutil.which("dcgmi")
    if path is None:
        return {}
    try:
        said = subprocess.run([path, "discovery", "-l"], capture_output=True, text=True, timeout=ANSWER_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    found, number = {}, None
    for line in said.stdout.splitlines():
        if row := re.match(r"\|\s*(\d+)\s*\|", line):
            number = int(row[1])
        if (uuid := re.search(r"Device UUID:\s*(GPU-[\w-]+)", line)) and number is not None:
            found[number] = uuid[1]
    return found


def _number(text: str | None) -> tuple[float | None, str | None]:
    try:
        return float(text or ""), None
    except ValueError:
        return None, f"dcgmi says {text or 'nothing'}"

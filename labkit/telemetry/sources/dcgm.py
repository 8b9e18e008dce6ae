"""Profiling counters from NVIDIA's Data Center GPU Manager (DCGM), through `dcgmi dmon`; for Volta and later.

It needs DCGM's host engine and usually its rights. If it does not run, each counter gives the reason.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator

from labkit import hardware
from labkit.telemetry.counters import Reading

SOURCE = "DCGM dmon"
FIELDS = {
    "GRACT": ("graphics_active", "%", 100, 1001),
    "SMACT": ("sm_active", "%", 100, 1002),
    "SMOCC": ("sm_occupancy", "%", 100, 1003),
    "TENSO": ("tensor_active", "%", 100, 1004),
    "DRAMA": ("dram_active", "%", 100, 1005),
    "PCITX": ("pcie_tx", "bytes/s", 1, 1009),
    "PCIRX": ("pcie_rx", "bytes/s", 1, 1010),
    "NVLTX": ("nvlink_tx", "bytes/s", 1, 1011),
    "NVLRX": ("nvlink_rx", "bytes/s", 1, 1012),
}
"""Our counter, its unit, the factor from DCGM's unit, and DCGM's number (dcgm_fields.h), by column of dmon's table."""
LEAST_MS = 100
"""Shortest period at which DCGM samples its profiling counters."""
STALE_PERIODS = 3
"""Number of periods, of at least a second together, after which a value is too old to report."""
ANSWER_S, DCGMI_GRACE_S = 10.0, 2.0
"""Seconds for `dcgmi` to list GPUs, and to end."""
NOT_LISTED, NO_ROW = "dcgmi does not list this GPU", "dcgmi has printed no row of this GPU yet"
_ROW = re.compile(r"GPU[\s-]*(\d+)\s+(.*)")


class DcgmCounters:
    """Reads whole GPUs through one `dcgmi dmon` process, which runs until `close`."""

    def __init__(self, devices: Iterable[hardware.Device], hz: float):
        self._wanted = sorted({device.gpu_uuid for device in devices})
        # DCGM's numbers are those of the host, which can differ from NVML's, as in a container
        self._numbers: dict[str, int] = {}
        self._period_ms = max(LEAST_MS, round(1000 / hz))
        self._rows: dict[int, dict[str, str]] = {}
        """Cells of the latest row by column, by GPU."""
        self._heard_at = time.monotonic()
        self._process: subprocess.Popen | None = None
        self._why = self._start()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        if self._process is not None:
            self._listener.start()

    def read(self) -> Iterator[Reading]:
        is_silent = time.monotonic() - self._heard_at > max(1.0, STALE_PERIODS * self._period_ms / 1000)
        rows, why_not = ({}, "dcgmi says nothing") if is_silent else (self._rows, NO_ROW)
        for uuid in self._wanted:
            cells = rows.get(self._numbers.get(uuid, -1))
            why = self._why or (why_not if uuid in self._numbers else NOT_LISTED)
            for column, (counter, unit, scale, _) in FIELDS.items():
                value, note = (None, why) if cells is None else _number(cells.get(column), scale)
                yield Reading(uuid, "device", counter, value, unit, SOURCE, note)

    def close(self) -> None:
        if self._process is not None:
            for end in (self._process.terminate, self._process.kill):
                end()
                self._listener.join(DCGMI_GRACE_S)

    def _start(self) -> str | None:
        """Start `dcgmi dmon` for the GPUs that `dcgmi discovery` lists. Returns the reason if it cannot, else None."""
        if shutil.which("dcgmi") is None:
            return "dcgmi is not on PATH"
        how = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        how |= {"text": True, "errors": "replace"}
        try:
            said = subprocess.run(["dcgmi", "discovery", "-l"], timeout=ANSWER_S, check=False, **how).stdout
            listed, number = {}, -1
            for line in said.splitlines():
                if row := re.match(r"\|\s*(\d+)\s*\|", line):
                    number = int(row[1])
                if uuid := re.search(r"Device UUID:\s*(GPU-[\w-]+)", line):
                    listed[uuid[1]] = number
            if not listed:
                return f"dcgmi lists no GPU: {said.strip() or 'it says nothing'}"
            self._numbers = {uuid: listed[uuid] for uuid in self._wanted if uuid in listed}
            if not self._numbers:
                return NOT_LISTED
            fields = ",".join(str(number) for *_, number in FIELDS.values())
            gpus = ",".join(map(str, sorted(self._numbers.values())))
            command = ["dcgmi", "dmon", "-e", fields, "-i", gpus, "-d", str(self._period_ms)]
            self._process = subprocess.Popen(command, **how)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"dcgmi does not start: {error}"
        return None

    def _listen(self) -> None:
        columns, last = [], ""
        for line in filter(None, map(str.strip, self._process.stdout)):
            self._heard_at, last = time.monotonic(), line
            if line.startswith("#"):
                columns = line.lstrip("# ").split()[1:]
            elif (row := _ROW.match(line)) and columns:
                self._rows[int(row[1])] = dict(zip(columns, row[2].split(), strict=False))
        self._why = f"dcgmi ended with status {self._process.wait()}{last and f': {last}'}"
        self._rows.clear()


def _number(text: str | None, scale: float) -> tuple[float | None, str | None]:
    try:
        return scale * float(text or ""), None
    except ValueError:
        return None, f"dcgmi says {text or 'nothing'}"

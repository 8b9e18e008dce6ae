"""Energy of the CPU packages, from the kernel's powercap files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from labkit.telemetry.reading import Reading

POWERCAP = Path("/sys/class/powercap")


class RaplCounters:
    """Joules of each CPU package since some moment, counted by the processor itself (Intel SDM 3B, §16.10)."""

    def __init__(self, powercap: Path = POWERCAP):
        # a package domain is intel-rapl:0; intel-rapl:0:0 is a part of it that must not be counted twice
        self._packages = [path for path in sorted(powercap.glob("intel-rapl:*")) if path.name.count(":") == 1]
        self._broken: str | None = None if self._packages else "no RAPL energy counter on this machine"

    def read(self) -> Iterator[Reading]:
        if self._broken:
            yield Reading("host", "host", "cpu_energy", None, "J", "RAPL", self._broken)
            return
        for package in self._packages:
            try:
                joules = int((package / "energy_uj").read_text()) / 1e6
                wrap = int((package / "max_energy_range_uj").read_text()) / 1e6
            except OSError as error:
                self._broken = f"RAPL is there but not readable ({error.strerror})"
                yield Reading("host", "host", "cpu_energy", None, "J", "RAPL", self._broken)
                return
            yield Reading("host", "host", f"cpu_energy_{package.name}", joules, "J", "RAPL", f"wraps at {wrap} J")

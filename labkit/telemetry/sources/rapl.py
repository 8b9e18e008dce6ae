"""Energy of the CPU packages, from the kernel's powercap files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from labkit.telemetry.reading import Reading

POWERCAP = Path("/sys/class/powercap")


class RaplCounters:
    """Joules of each CPU package since some moment, counted by the processor itself (Intel SDM 3B, §16.10).

    The processor's counter begins anew at zero when it is full, after an hour or so; these go on.
    """

    def __init__(self, powercap: Path = POWERCAP):
        # a package domain is intel-rapl:0; intel-rapl:0:0 is a part of it that must not be counted twice
        packages = [path for path in sorted(powercap.glob("intel-rapl:*")) if path.name.count(":") == 1]
        self._latest = {package: (0, 0) for package in packages}
        """Of each package, what its counter said, and what it had said when it was full, in μJ"""
        self._broken: str | None = None if packages else "no RAPL energy counter on this machine"

    def read(self) -> Iterator[Reading]:
        for package, (before, full) in self._latest.items():
            try:
                now = int((package / "energy_uj").read_text())
                if now < before:
                    full += int((package / "max_energy_range_uj").read_text())
            except OSError as error:
                self._latest, self._broken = {}, f"RAPL is there but not readable ({error.strerror})"
                break
            self._latest[package] = now, full
            yield Reading("host", "host", f"cpu_energy_{package.name}", (full + now) / 1e6, "J", "RAPL")
        if self._broken:
            yield Reading("host", "host", "cpu_energy", None, "J", "RAPL", self._broken)

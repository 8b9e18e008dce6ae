"""GPU load, clock and board power of NVIDIA Jetson modules: from sysfs, and from `tegrastats` what sysfs does not give.

Sources: Jetson Linux Developer Guide, "tegrastats" and "INA3221 power monitor".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from labkit.hardware.devices import JETSON, JETSON_LOADS
from labkit.telemetry.reading import Reading
from labkit.telemetry.sources.tool_stream import ToolStream

_CLOCKS = ("sys/class/devfreq/*gpu*/cur_freq", "sys/class/devfreq/*.g[vpa]*b/cur_freq")
_RAILS = ("VDD_IN", "POM_5V_IN")
"""Names of the rail that feeds the whole module. AGX boards have none: their rails feed a part each."""
_QUANTITIES = {
    "gpu_utilisation": ("device", "%", 1, re.compile(r"GR3D_FREQ (\d+)%")),
    "sm_clock": ("device", "MHz", 1, re.compile(r"GR3D_FREQ \d+%@\[?(\d+)")),
    "board_power": ("host", "W", 1e-3, re.compile(rf"(?:{'|'.join(_RAILS)}) (\d+)(?:mW)?/")),
}
"""By counter: scope, unit, ours in tegrastats' unit, and how tegrastats says it."""


class JetsonCounters:
    """Reads a Jetson's files, and starts `tegrastats` only for what no file gives."""

    def __init__(self, hz: float, gpu: str = JETSON, root: Path = Path("/")):
        """Look for the files under `root`; `tegrastats`, if need be, prints `hz` times a second.

        `gpu` is what its readings call the GPU: the UUID that NVML gives it, if any.
        """
        self._gpu = gpu
        self._files = {
            "gpu_utilisation": _reader(root, JETSON_LOADS, 0.1),  # per mille
            "sm_clock": _reader(root, _CLOCKS, 1e-6),  # Hz
            "board_power": _power_reader(root),
        }
        self._tool: ToolStream | None = None
        if None in self._files.values():
            period_ms = max(10, round(1000 / hz))
            asked = ["--interval", str(period_ms)]
            self._tool = ToolStream("tegrastats", lambda _: asked, period_s=period_ms / 1000, keep=1)

    def read(self) -> Iterator[Reading]:
        """Yield the load, the clock and the board's power."""
        line = "".join(self._tool.lines()) if self._tool else ""
        for counter, (scope, unit, per_tegrastats, pattern) in _QUANTITIES.items():
            device, read = self._gpu if scope == "device" else "host", self._files[counter]
            if read is not None:
                try:
                    yield Reading(device, scope, counter, read(), unit, "Jetson sysfs")
                except (OSError, ValueError) as error:
                    yield Reading(device, scope, counter, None, unit, "Jetson sysfs", str(error))
                continue
            found = pattern.search(line)
            value = float(found[1]) * per_tegrastats if found else None
            why = None if found else self._tool.why or "neither sysfs nor tegrastats gives it on this board"
            yield Reading(device, scope, counter, value, unit, "tegrastats", why)

    def close(self) -> None:
        """End `tegrastats`."""
        if self._tool:
            self._tool.close()


def _reader(root: Path, patterns: tuple[str, ...], scale: float) -> Callable[[], float] | None:
    path = next((path for pattern in patterns for path in sorted(root.glob(pattern))), None)
    return path and (lambda: scale * float(path.read_text()))


def _power_reader(root: Path) -> Callable[[], float] | None:
    """Watts of the rail that feeds the module: volts times amperes of an INA3221, or its own product."""
    for label in sorted(root.glob("sys/bus/i2c/drivers/ina3221/*/hwmon/hwmon*/in*_label")):
        if label.read_text().strip() in _RAILS:
            number = label.name.removeprefix("in").removesuffix("_label")
            volts, amperes = label.with_name(f"in{number}_input"), label.with_name(f"curr{number}_input")
            return lambda: float(volts.read_text()) * float(amperes.read_text()) / 1e6  # mV times mA
    for name in sorted(root.glob("sys/bus/i2c/drivers/ina3221x/*/iio:device*/rail_name_*")):
        if name.read_text().strip() in _RAILS:
            power = name.with_name(f"in_power{name.name[-1]}_input")
            return lambda: float(power.read_text()) / 1e3  # mW
    return None

"""GPU load, clock and board power of NVIDIA Jetson modules, from the kernel's files.

Source: Jetson Linux Developer Guide, "INA3221 power monitor".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from labkit import hardware
from labkit.telemetry.counters import Reading

_CLOCKS = ("sys/class/devfreq/*gpu*/cur_freq", "sys/class/devfreq/*.g[vpa]*b/cur_freq")
_RAILS = ("VDD_IN", "POM_5V_IN")
"""Names of the rail that feeds the whole module. AGX boards have none: each of their rails feeds a part."""


class JetsonCounters:
    """Reads a Jetson's files. (Zeus reads the board's power only, not the GPU's load and clock, and is an extra.)"""

    def __init__(self, gpu: str = hardware.JETSON, root: Path = Path("/")):
        """Find the files under `root`. `gpu` is the GPU's name in readings: the UUID from NVML, if it has one."""
        self._counters = [
            (gpu, "device", "gpu_utilisation", "%", _reader(root, hardware.JETSON_LOADS, 0.1)),  # per mille
            (gpu, "device", "sm_clock", "MHz", _reader(root, _CLOCKS, 1e-6)),  # Hz
            ("host", "host", "board_power", "W", _power_reader(root)),
        ]

    def read(self) -> Iterator[Reading]:
        for device, scope, counter, unit, read in self._counters:
            value, why = None, "this board's kernel has no file for it"
            if read is not None:
                try:
                    value, why = read(), None
                except (OSError, ValueError) as error:
                    why = str(error)
            yield Reading(device, scope, counter, value, unit, "Jetson sysfs", why)


def _reader(root: Path, patterns: tuple[str, ...], scale: float) -> Callable[[], float] | None:
    path = next((path for pattern in patterns for path in sorted(root.glob(pattern))), None)
    return None if path is None else lambda: scale * float(path.read_text())


def _power_reader(root: Path) -> Callable[[], float] | None:
    """Reader of the module's power in W: an INA3221's volts times amperes, or its own product of them."""
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

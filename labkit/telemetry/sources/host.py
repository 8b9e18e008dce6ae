"""CPU, memory and energy of the host and of a job's processes; Jetson boards; what only Zeus can read."""

import contextlib
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

from labkit import hardware
from labkit.telemetry.counters import Reading

POWERCAP = Path("/sys/class/powercap")
WITHOUT_ROOT = "without root, it can be read through zeusd with `labkit[zeus]` (docs/counters.md)"
FAMILY_S = 0.5
"""Seconds between two searches for new child processes; a search costs as much as a sample."""


def busy_and_idle_s(times: Any) -> tuple[float, float]:
    """CPU seconds in which cores were busy, and in which they were idle, from `psutil.cpu_times`."""
    idle = times.idle + getattr(times, "iowait", 0.0)
    guests = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)  # already part of user and nice
    return sum(times) - idle - guests, idle


class HostCounters:
    """CPU and memory of the whole host."""

    def __init__(self):
        self._before = busy_and_idle_s(psutil.cpu_times())

    def read(self) -> Iterator[Reading]:
        now = busy_and_idle_s(psutil.cpu_times())
        busy, idle = (after - before for before, after in zip(self._before, now, strict=True))
        if busy + idle > 0:  # zero within one tick of 10 ms
            self._before = now
            yield Reading("host", "host", "cpu_percent", 100 * max(0.0, busy) / (busy + idle), "%", "psutil")
        memory = psutil.virtual_memory()
        yield Reading("host", "host", "memory_used", memory.total - memory.available, "bytes", "psutil")


class RaplCounters:
    """Joules of each CPU package, counted by the processor itself (Intel SDM 3B, §16.10).

    The processor's counter restarts at zero when it overflows, after about an hour; these values go on.
    """

    def __init__(self, powercap: Path = POWERCAP):
        # intel-rapl:0 is a package; intel-rapl:0:0 is a part of it that must not be counted twice
        packages = [path for path in sorted(powercap.glob("intel-rapl:*")) if path.name.count(":") == 1]
        self._latest = {package: (0, 0) for package in packages}
        """Latest value of each package's counter, and the sum of its overflows, in μJ."""
        self._broken: str | None = None if packages else "no RAPL energy counter on this machine"

    def read(self) -> Iterator[Reading]:
        for package, (before, full) in self._latest.items():
            try:
                now = int((package / "energy_uj").read_text())
                if now < before:
                    full += int((package / "max_energy_range_uj").read_text())
            except OSError as error:
                self._latest, self._broken = {}, f"RAPL cannot be read ({error.strerror}); {WITHOUT_ROOT}"
                break
            self._latest[package] = now, full
            yield Reading("host", "host", f"cpu_energy_{package.name}", (full + now) / 1e6, "J", "RAPL")
        if self._broken:
            yield Reading("host", "host", "cpu_energy", None, "J", "RAPL", self._broken)


class ProcessCounters:
    """CPU, memory and threads of a process and its descendants, without those that serve labkit."""

    def __init__(self, pid: int, apart: set[int], ranks: Mapping[int, int] | None = None):
        """Read process `pid` without its children `apart`; `ranks` are the job's processes by pid, if it has several.

        Raises ProcessLookupError if it does not exist; `read` does so once it has ended.
        """
        self._root, self._helpers, self._look_at = pid, apart, 0.0
        self._family, self._ranks = {pid: _Process(pid)}, ranks or {}

    def read(self) -> Iterator[Reading]:
        if time.monotonic() >= self._look_at:
            for pid in [*self._ranks, *_below(self._root, *self._ranks, but=self._helpers)]:
                if pid not in self._family:
                    with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                        self._family[pid] = _Process(pid)
            self._look_at = time.monotonic() + FAMILY_S
        values = {self._root: self._family[self._root].read()}
        for pid in [*self._family][1:]:
            try:
                values[pid] = self._family[pid].read()
            except ProcessLookupError:
                del self._family[pid]
        cpu, resident, threads = map(sum, zip(*values.values(), strict=True))
        yield Reading("host", "process", "cpu_percent", cpu, "% of a core", "CPU clock of the processes")
        yield Reading("host", "process", "memory_resident", resident, "bytes", "psutil")
        yield Reading("host", "process", "threads", threads, "count", "psutil")
        if peak := peak_bytes(self._root):
            yield Reading("host", "process", "memory_resident_peak", peak, "bytes", "/proc/PID/status VmHWM")
        for pid, rank in self._ranks.items():
            if pid in values:
                own = f"rank {rank}", "rank"
                yield Reading(*own, "cpu_percent", values[pid][0], "% of a core", "CPU clock of the processes")
                yield Reading(*own, "memory_resident", values[pid][1], "bytes", "psutil")

    def pids(self) -> set[int]:
        return {*self._family}


class _Process:
    """One process of the job; every method raises ProcessLookupError once it has ended."""

    def __init__(self, pid: int):
        self._pid, self._at = pid, time.monotonic()
        try:
            self._process = psutil.Process(pid)
            self.cpu_s = self._cpu_seconds()
        except (OSError, psutil.Error) as error:
            raise ProcessLookupError(pid) from error

    def read(self) -> tuple[float, int, int]:
        """(% of a core since the last reading, resident bytes, threads)."""
        try:
            cpu_s, at = self._cpu_seconds(), time.monotonic()
            resident, threads = self._process.memory_info().rss, self._process.num_threads()
        except (OSError, psutil.Error) as error:
            raise ProcessLookupError(self._pid) from error
        if not resident:  # it is ending, and its memory was freed already
            raise ProcessLookupError(self._pid)
        share = (cpu_s - self.cpu_s) / max(at - self._at, 1e-9)
        self.cpu_s, self._at = cpu_s, at
        return 100 * share, resident, threads

    def _cpu_seconds(self) -> float:
        if sys.platform.startswith("linux"):  # exact; /proc counts in ticks
            return time.clock_gettime((~self._pid << 3) | 2)  # CPUCLOCK_SCHED of linux/posix-timers.h
        return sum(self._process.cpu_times()[:2])


def family_cpu_s() -> float:
    """CPU time of this process and of its descendants that live."""
    total = time.process_time()
    for pid in _below(os.getpid()):
        with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
            total += _Process(pid).cpu_s
    return total


def _below(*roots: int, but: Collection[int] = ()) -> Iterator[int]:
    """The descendants of processes, without `but` and what is below those."""
    waiting = [*roots]
    while waiting:
        for pid in _children(waiting.pop()):
            if pid not in but:
                waiting.append(pid)
                yield pid


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError, psutil.Error):
        if not Path("/proc/thread-self/children").exists():  # psutil is slower: it reads every process of the machine
            return [child.pid for child in psutil.Process(pid).children()]
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_bytes().split())
    return found


def forget_peak_memory() -> None:
    """Reset the kernel's high-water mark of this process, so that a run does not count its data's preparation.

    Where the kernel does not allow it, the mark keeps the earlier peak.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # proc(5): 5 resets the peak resident set size


def own_peak_bytes() -> int:
    """The most memory that this process has held, in bytes."""
    # not getrusage's, which starts with the peak of the process that started this one
    memory = psutil.Process().memory_info()
    # Windows reports its peak; elsewhere the current size is the best there is
    return peak_bytes("self") or getattr(memory, "peak_wset", memory.rss)


def peak_bytes(pid: int | str) -> int | None:
    """The kernel's high-water mark of a process' memory; None where it keeps none."""
    with contextlib.suppress(OSError):
        _, found, rest = Path(f"/proc/{pid}/status").read_text().partition("VmHWM:")
        return 1024 * int(rest.split(None, 1)[0]) if found else None


_CLOCKS = ("sys/class/devfreq/*gpu*/cur_freq", "sys/class/devfreq/*.g[vpa]*b/cur_freq")
_RAILS = ("VDD_IN", "POM_5V_IN")
"""Names of the rail that feeds the whole module. AGX boards have none: each of their rails feeds a part."""


class JetsonCounters:
    """Reads a Jetson's files. (Zeus reads the board's power only, not the GPU's load and clock, and is an extra.)

    Source: Jetson Linux Developer Guide, "INA3221 power monitor".
    """

    def __init__(self, gpu: str = hardware.JETSON, root: Path = Path("/")):
        """Find the files under `root`. `gpu` is the GPU's name in readings: the UUID from NVML, if it has one."""
        self._counters = [
            (gpu, "device", "gpu_utilisation", "%", _first(root, hardware.JETSON_LOADS), 0.1),  # per mille
            (gpu, "device", "sm_clock", "MHz", _first(root, _CLOCKS), 1e-6),  # Hz
            ("host", "host", "board_power", "W", *_power_files(root)),
        ]

    def read(self) -> Iterator[Reading]:
        for device, scope, counter, unit, paths, scale in self._counters:
            value, why = None, None if paths else "this board's kernel has no file for it"
            try:
                value = scale * math.prod(float(path.read_text()) for path in paths) if paths else None
            except (OSError, ValueError) as error:
                why = str(error)
            yield Reading(device, scope, counter, value, unit, "Jetson sysfs", why)


def _first(root: Path, patterns: tuple[str, ...]) -> list[Path]:
    return [path for pattern in patterns for path in sorted(root.glob(pattern))][:1]


def _power_files(root: Path) -> tuple[list[Path], float]:
    """Files whose product, times the factor, is the module's power in W; none on a board without such a rail."""
    for label in sorted(root.glob("sys/bus/i2c/drivers/ina3221/*/hwmon/hwmon*/in*_label")):
        if label.read_text().strip() in _RAILS:
            number = label.name.removeprefix("in").removesuffix("_label")
            return [label.with_name(f"in{number}_input"), label.with_name(f"curr{number}_input")], 1e-6  # mV times mA
    for name in sorted(root.glob("sys/bus/i2c/drivers/ina3221x/*/iio:device*/rail_name_*")):
        if name.read_text().strip() in _RAILS:
            return [name.with_name(f"in_power{name.name[-1]}_input")], 1e-3  # mW, the driver's own product
    return [], 1.0


SOCKET = "ZEUSD_SOCK_PATH"
"""Zeus' own variable with the socket of zeusd, which runs as root."""
HIP = "hip:"
"""Stands for the UUID of an AMD GPU, together with torch's number of it."""
UNTRIED = "read through Zeus, which was never tested on an AMD card here"
"""Note on the joules of an AMD GPU."""
INSTALL = "Zeus can read it: pip install -e '.[zeus]'"
Read = Callable[[], Iterator[Reading]]


def zeus_places() -> list[tuple[Callable[[], Read], Reading]]:
    """What only Zeus could read here: a function that opens it, and the reading if that fails.

    Zeus is imported only on a machine with one of these. NVIDIA GPUs, and RAPL that can be read, need no extra.
    """
    nothing = Reading("host", "host", "cpu_energy", None, "J", "Zeus")
    found: list[tuple[Callable[[], Read], Reading]] = [(_daemon, nothing)] if os.environ.get(SOCKET) else []
    found += [(_apple, nothing)] if (sys.platform, platform.machine()) == ("darwin", "arm64") else []
    found += [(_amd, nothing._replace(device=f"{HIP}0", scope="device", counter="energy"))] if _has_amd_gpu() else []
    return found


class ZeusCounters:
    """Reads one of `zeus_places`; if that fails, every reading is null with the reason."""

    read: Read

    def __init__(self, open_it: Callable[[], Read], nothing: Reading):
        try:
            self.read = open_it()
        except Exception as error:  # Zeus, a daemon or a driver may fail in any way, and the other sources go on
            absent = isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("zeus")
            why = nothing._replace(note=INSTALL if absent else f"{type(error).__name__}: {error}")
            self.read = lambda: iter([why])


def _has_amd_gpu() -> bool:
    return Path("/dev/kfd").exists()  # the compute driver's device, amdkfd's


def _daemon() -> Read:
    from zeus.utils.zeusd import ZeusdClient, ZeusdConfig

    client = ZeusdClient(ZeusdConfig.uds(os.environ[SOCKET]))

    def read() -> Iterator[Reading]:
        for number, package in client.get_cpu_energy(dram=False).items():
            counter, microjoules = f"cpu_energy_intel-rapl:{number}", package.cpu_energy_uj
            note = None if microjoules is not None else "zeusd reports none"
            yield Reading("host", "host", counter, microjoules and microjoules / 1e6, "J", "Zeus zeusd", note)

    return read


def _apple() -> Read:
    from zeus.device.soc.apple import AppleSilicon

    chip = AppleSilicon()

    def read() -> Iterator[Reading]:
        millijoules = chip.get_total_energy_consumption().cpu_total_mj
        note = None if millijoules is not None else "this chip does not report the energy of its CPU"
        value = millijoules and millijoules / 1e3
        yield Reading("host", "host", "cpu_energy_apple", value, "J", "Zeus AppleSilicon", note)

    return read


def _amd() -> Read:
    from zeus.device.exception import ZeusBaseGPUError
    from zeus.device.gpu.amd import AMDGPUs, amdsmi_is_available

    if not amdsmi_is_available():
        raise OSError("AMD SMI, which comes with ROCm from 6.2 on, cannot be loaded")
    gpus = AMDGPUs().gpus  # in the order of HIP_VISIBLE_DEVICES, which is torch's numbering

    def read() -> Iterator[Reading]:
        for number, gpu in enumerate(gpus):
            try:
                value, note = gpu.get_total_energy_consumption() / 1e3, None
            except ZeusBaseGPUError as error:
                value, note = None, str(error)
            yield Reading(f"{HIP}{number}", "device", "energy", value, "J", "Zeus AMDGPUs", note)

    return read

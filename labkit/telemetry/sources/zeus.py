"""Counters that only Zeus (`labkit[zeus]`) can read: RAPL through its daemon, Apple silicon, AMD GPUs.

Zeus is imported only on a machine with one of these. NVIDIA GPUs, and RAPL that can be read directly, need no extra.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from labkit.telemetry.counters import Reading

SOCKET = "ZEUSD_SOCK_PATH"
"""Zeus' own variable with the socket of zeusd, which runs as root."""
HIP = "hip:"
"""Stands for the UUID of an AMD GPU, together with torch's number of it."""
UNTRIED = "read through Zeus, which was never tested on an AMD card here"
"""Note on the joules of an AMD GPU."""
INSTALL = "Zeus can read it: pip install 'labkit[zeus]'"
Read = Callable[[], Iterator[Reading]]


def zeus_places() -> list[tuple[Callable[[], Read], Reading]]:
    """What Zeus could read here: a function that opens it, and the reading if that fails."""
    nothing = Reading("host", "host", "cpu_energy", None, "J", "Zeus")
    found: list[tuple[Callable[[], Read], Reading]] = [(_daemon, nothing)] if os.environ.get(SOCKET) else []
    found += [(_apple, nothing)] if (sys.platform, platform.machine()) == ("darwin", "arm64") else []
    found += [(_amd, nothing._replace(device=f"{HIP}0", scope="device", counter="energy"))] if _has_amd_gpu() else []
    return found


class ZeusCounters:
    """Reads one of `zeus_places`; if that fails, every reading is null with the reason."""

    def __init__(self, open_it: Callable[[], Read], nothing: Reading):
        try:
            self._read = open_it()
        except Exception as error:  # Zeus, a daemon or a driver may fail in any way, and the other sources go on
            absent = isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("zeus")
            why = nothing._replace(note=INSTALL if absent else f"{type(error).__name__}: {error}")
            self._read = lambda: iter([why])

    def read(self) -> Iterator[Reading]:
        yield from self._read()


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

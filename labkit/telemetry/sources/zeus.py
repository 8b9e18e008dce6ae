"""What Zeus (`labkit[zeus]`) reaches and our own sources do not: RAPL through its daemon, Apple silicon, AMD GPUs.

Zeus is imported only where one of these is here; NVIDIA's GPUs and a RAPL that can be read are never left to it.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from labkit.telemetry.reading import Reading

SOCKET = "ZEUSD_SOCK_PATH"
"""Names the socket of zeusd, which runs as root; Zeus' own variable"""
HIP = "hip:"
"""Stands, with its number, for the UUID of an AMD GPU, as torch counts them"""
UNTRIED = "read through Zeus, which was never tried on an AMD card here"
"""What is told with joules of one"""
INSTALL = "Zeus reads it: pip install 'labkit[zeus]'"
Read = Callable[[], Iterator[Reading]]


def zeus_places() -> list[tuple[Callable[[], Read], Reading]]:
    """What Zeus could read here: how it is opened, and what is told where it is not."""
    nothing = Reading("host", "host", "cpu_energy", None, "J", "Zeus")
    found = [(_daemon, nothing)] if os.environ.get(SOCKET) else []
    found += [(_apple, nothing)] if (sys.platform, platform.machine()) == ("darwin", "arm64") else []
    found += [(_amd, nothing._replace(device=f"{HIP}0", scope="device", counter="energy"))] if _has_amd_gpu() else []
    return found


class ZeusCounters:
    """Reads one of `zeus_places`; where that fails, every reading is null and says why."""

    def __init__(self, open_it: Callable[[], Read], nothing: Reading):
        try:
            self._read = open_it()
        except Exception as error:  # whatever Zeus, a daemon or a driver makes of it, the other sources go on
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
        for number, told in client.get_cpu_energy(dram=False).items():
            counter, microjoules = f"cpu_energy_intel-rapl:{number}", told.cpu_energy_uj
            note = None if microjoules is not None else "zeusd tells none"
            yield Reading("host", "host", counter, microjoules and microjoules / 1e6, "J", "Zeus zeusd", note)

    return read


def _apple() -> Read:
    from zeus.device.soc.apple import AppleSilicon

    chip = AppleSilicon()

    def read() -> Iterator[Reading]:
        millijoules = chip.get_total_energy_consumption().cpu_total_mj
        note = None if millijoules is not None else "this chip does not tell that of its CPU"
        value = millijoules and millijoules / 1e3
        yield Reading("host", "host", "cpu_energy_apple", value, "J", "Zeus AppleSilicon", note)

    return read


def _amd() -> Read:
    from zeus.device.exception import ZeusBaseGPUError
    from zeus.device.gpu.amd import AMDGPUs, amdsmi_is_available

    if not amdsmi_is_available():
        raise OSError("AMD SMI, which comes with ROCm from 6.2 on, cannot be loaded")
    gpus = AMDGPUs().gpus  # those that HIP_VISIBLE_DEVICES shows, in its order, as torch counts them

    def read() -> Iterator[Reading]:
        for number, gpu in enumerate(gpus):
            try:
                value, note = gpu.get_total_energy_consumption() / 1e3, None
            except ZeusBaseGPUError as error:
                value, note = None, str(error)
            yield Reading(f"{HIP}{number}", "device", "energy", value, "J", "Zeus AMDGPUs", note)

    return read

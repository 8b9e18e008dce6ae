"""Jetson modules from their files and from tegrastats; no Jetson is needed."""

import os
import time
from functools import partial
from unittest.mock import create_autospec

import pynvml
import pytest

from labkit.hardware.device import Device
from labkit.hardware.devices import JETSON, get_devices, is_jetson
from labkit.hardware.nvml import Nvml
from labkit.hardware.tiers import match_tier
from labkit.telemetry.sources.jetson import JetsonCounters
from labkit.telemetry.sources.machine import open_ladder


def write(root, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text + "\n")


def orin(root):
    """Files of an Orin Nano: load in per mille, clock in Hz, an INA3221 with volts and amperes."""
    write(root, "sys/devices/platform/17000000.gpu/load", "615")
    write(root, "sys/class/devfreq/17000000.gpu/cur_freq", "624750000")
    monitor = "sys/bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon1"
    write(root, f"{monitor}/in2_label", "VDD_CPU_GPU_CV")
    write(root, f"{monitor}/in1_label", "VDD_IN")
    write(root, f"{monitor}/in1_input", "5040")
    write(root, f"{monitor}/curr1_input", "1200")


def nano(root):
    """Files of a Jetson Nano: an older driver that multiplies itself."""
    write(root, "sys/devices/gpu.0/load", "1000")
    write(root, "sys/class/devfreq/57000000.gpu/cur_freq", "921600000")
    monitor = "sys/bus/i2c/drivers/ina3221x/6-0040/iio:device0"
    write(root, f"{monitor}/rail_name_0", "POM_5V_IN")
    write(root, f"{monitor}/in_power0_input", "4321")


@pytest.mark.parametrize(
    ("board", "expected"), [(orin, (61.5, 624.75, 6.048)), (nano, (100, 921.6, 4.321))], ids=["orin", "nano"]
)
def test_files_give_load_clock_and_the_power_of_the_board(tmp_path, board, expected):
    board(tmp_path)
    counters = JetsonCounters(2, root=tmp_path)
    readings = {r.counter: r for r in counters.read()}
    values = tuple(readings[name].value for name in ("gpu_utilisation", "sm_clock", "board_power"))
    assert values == pytest.approx(expected)
    assert {r.source for r in readings.values()} == {"Jetson sysfs"}
    assert counters._tool is None  # nothing is started where files tell


LINE = (
    "RAM 2568/7620MB (lfb 4x2MB) SWAP 0/3810MB CPU [12%@1510,off] EMC_FREQ 3%@2133 "
    "GR3D_FREQ 61%@[620] VIC_FREQ 0%@115 CPU@45C VDD_IN 5432mW/5400mW VDD_SOC 1200mW/1190mW"
)


def test_tegrastats_gives_what_no_file_does(tmp_path, monkeypatch):
    write(tmp_path, "sys/devices/gpu.0/load", "500")
    tool = tmp_path / "bin" / "tegrastats"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\nwhile :; do echo '{LINE}'; sleep 0.05; done\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")
    counters = JetsonCounters(2, root=tmp_path)
    deadline = time.monotonic() + 20
    readings = {}
    while time.monotonic() < deadline:
        readings = {r.counter: (r.value, r.source) for r in counters.read()}
        if readings["board_power"][0] is not None:
            break
    counters.close()
    assert readings == {
        "gpu_utilisation": (50.0, "Jetson sysfs"),
        "sm_clock": (620.0, "tegrastats"),
        "board_power": (pytest.approx(5.432), "tegrastats"),
    }
    assert not counters._tool._thread.is_alive()


def test_a_board_that_tells_nothing_says_why(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    for reading in JetsonCounters(2, root=tmp_path).read():
        assert (reading.value, reading.note) == (None, "tegrastats is not on PATH")
    assert not is_jetson(tmp_path)
    write(tmp_path, "etc/nv_tegra_release", "# R36")
    assert is_jetson(tmp_path)


def test_the_gpu_of_a_jetson_is_a_device_without_nvml(monkeypatch):
    board = Device(
        kind="cpu", index=0, name="NVIDIA Jetson Nano Developer Kit", torch_name="cpu", memory_bytes=4 * 10**9
    )
    monkeypatch.setattr("labkit.hardware.devices.is_jetson", lambda: True)
    monkeypatch.setattr("labkit.hardware.devices.cpu_device", lambda: board)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    library = create_autospec(pynvml)
    library.nvmlInit.side_effect = pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
    _, gpu = get_devices(Nvml(library))
    assert (gpu.torch_name, gpu.uuid, gpu.memory_bytes) == ("cuda:0", JETSON, 4 * 10**9)
    assert match_tier(gpu).name == "jetson-nano"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert len(get_devices(Nvml(library))) == 1


@pytest.mark.parametrize(
    ("shown", "uuid"), [([], JETSON), ([Device(kind="gpu", index=0, name="Orin", uuid="GPU-orin")], "GPU-orin")]
)
def test_a_jetson_that_nvml_shows_goes_by_its_uuid(shown, uuid, monkeypatch, tmp_path):
    orin(tmp_path)
    monkeypatch.setattr("labkit.telemetry.sources.machine.is_jetson", lambda: True)
    monkeypatch.setattr("labkit.telemetry.sources.machine.JetsonCounters", partial(JetsonCounters, root=tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    tells_little = create_autospec(pynvml)
    for call in dir(tells_little):
        if call.startswith("nvmlDeviceGet") and call != "nvmlDeviceGetHandleByUUID":
            getattr(tells_little, call).side_effect = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    with open_ladder(None, shown, 2, print, nvml=Nvml(tells_little)) as ladder:
        readings = {(r.device, r.counter): (r.value, r.source) for r in ladder.read()}
    assert readings[uuid, "gpu_utilisation"] == (61.5, "Jetson sysfs")
    assert readings["host", "board_power"] == (6.05, "Jetson sysfs")

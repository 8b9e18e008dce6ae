"""Jetson modules from their files; no Jetson is needed."""

from functools import partial

import pytest
from fake_nvml import fake_nvml

from labkit.hardware import JETSON, Device, Nvml, get_devices, is_jetson, match_tier
from labkit.telemetry.sources.jetson import JetsonCounters
from labkit.telemetry.sources.ladder import open_ladder

ORIN = {  # load in per mille, clock in Hz, an INA3221 with volts and amperes
    "sys/devices/platform/17000000.gpu/load": "615",
    "sys/class/devfreq/17000000.gpu/cur_freq": "624750000",
    "sys/bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon1/in2_label": "VDD_CPU_GPU_CV",
    "sys/bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon1/in1_label": "VDD_IN",
    "sys/bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon1/in1_input": "5040",
    "sys/bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon1/curr1_input": "1200",
}
NANO = {  # an older driver that multiplies itself
    "sys/devices/gpu.0/load": "1000",
    "sys/class/devfreq/57000000.gpu/cur_freq": "921600000",
    "sys/bus/i2c/drivers/ina3221x/6-0040/iio:device0/rail_name_0": "POM_5V_IN",
    "sys/bus/i2c/drivers/ina3221x/6-0040/iio:device0/in_power0_input": "4321",
}


def write(root, files: dict[str, str]):
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text + "\n")


@pytest.mark.parametrize(
    ("board", "expected"), [(ORIN, (61.5, 624.75, 6.048)), (NANO, (100, 921.6, 4.321))], ids=["orin", "nano"]
)
def test_files_give_load_clock_and_the_power_of_the_board(tmp_path, board, expected):
    write(tmp_path, board)
    readings = {r.counter: r for r in JetsonCounters(root=tmp_path).read()}
    values = tuple(readings[name].value for name in ("gpu_utilisation", "sm_clock", "board_power"))
    assert values == pytest.approx(expected)
    assert {r.source for r in readings.values()} == {"Jetson sysfs"}


def test_a_board_that_tells_nothing_says_why(tmp_path):
    notes = [(reading.value, reading.note) for reading in JetsonCounters(root=tmp_path).read()]
    assert notes == [(None, "this board's kernel has no file for it")] * 3
    assert not is_jetson(tmp_path)
    write(tmp_path, {"etc/nv_tegra_release": "# R36"})
    assert is_jetson(tmp_path)


def test_the_gpu_of_a_jetson_is_a_device_without_nvml(monkeypatch):
    board = Device("cpu", 0, "NVIDIA Jetson Nano Developer Kit", torch_name="cpu", memory_bytes=4 * 10**9)
    monkeypatch.setattr("labkit.hardware.devices.is_jetson", lambda: True)
    monkeypatch.setattr("labkit.hardware.devices.cpu_device", lambda: board)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    _, gpu = get_devices(Nvml(fake_nvml()))
    assert (gpu.torch_name, gpu.uuid, gpu.memory_bytes) == ("cuda:0", JETSON, 4 * 10**9)
    assert match_tier(gpu).name == "jetson-nano"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert len(get_devices(Nvml(fake_nvml()))) == 1


@pytest.mark.parametrize(("shown", "uuid"), [([], JETSON), ([Device("gpu", 0, "Orin", uuid="GPU-orin")], "GPU-orin")])
def test_a_jetson_that_nvml_shows_goes_by_its_uuid(shown, uuid, monkeypatch, tmp_path):
    write(tmp_path, ORIN)
    monkeypatch.setattr("labkit.hardware.is_jetson", lambda: True)
    monkeypatch.setattr("labkit.telemetry.sources.ladder.JetsonCounters", partial(JetsonCounters, root=tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with open_ladder(None, shown, 2, print, nvml=Nvml(fake_nvml())) as ladder:
        readings = {(r.device, r.counter): (r.value, r.source) for r in ladder.read()}
    assert readings[uuid, "gpu_utilisation"] == (61.5, "Jetson sysfs")
    assert readings["host", "board_power"] == (6.05, "Jetson sysfs")

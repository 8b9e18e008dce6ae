"""DCGM beside NVML: when `dcgmi` is asked, what it fills in, and what becomes of it; with fake tools on PATH."""

import os
import stat
import time

import psutil
import pytest
from gpus import devices, fake_nvml

from labkit.hardware.device import Device
from labkit.hardware.nvml import Nvml
from labkit.telemetry.sources.dcgm import DcgmCounters
from labkit.telemetry.sources.machine import open_ladder
from labkit.telemetry.sources.tool_stream import RESTART_S, ToolStream

DCGMI = """#!/bin/sh
if [ "$1" = discovery ]; then
    echo '| GPU ID | Device Information             |'
    echo '| 0      | Name: another                  |'
    echo '|        | Device UUID: GPU-other-9       |'
    echo '| 7      | Name: a Turing                 |'
    echo '|        | Device UUID: GPU-aaaa-0        |'
    exit
fi
echo "$@" > "$0.args"
echo '#Entity   SMACT  SMOCC  TENSO  DRAMA  PCITX  PCIRX  NVLTX  NVLRX'
echo 'ID'
while :; do
    echo 'GPU 0     0.999  0.999  0.999  0.999  0  0  0  0'
    echo 'GPU 7     0.555  0.387  N/A    0.250  10485760   20971520   0      0'
    sleep 0.05
done
"""


@pytest.fixture
def fake_dcgmi(tmp_path, monkeypatch):
    """Prints as dcgmi 3 and 4 do; what tensor cores do is not available on the GPU."""
    path = tmp_path / "dcgmi"
    path.write_text(DCGMI)
    path.chmod(path.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return path


def test_dcgm_fills_what_nvml_lacks_before_hopper(fake_dcgmi):
    with open_ladder(None, devices("Turing"), 2, print, nvml=Nvml(fake_nvml("Turing"))) as ladder:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            readings = {(r.scope, r.counter): r for r in ladder.read()}
            if readings["device", "sm_active"].value is not None:
                break
    values = {counter: r.value for (_, counter), r in readings.items() if r.source == "DCGM dmon"}
    share = {"sm_active": 55.5, "sm_occupancy": 38.7, "dram_active": 25}
    assert values == share | {"pcie_tx": 10 * 2**20, "pcie_rx": 20 * 2**20, "nvlink_tx": 0, "nvlink_rx": 0}
    assert "DCGM dmon: dcgmi says N/A" in readings["device", "tensor_active"].note
    assert readings["device", "power"].source == "NVML nvmlDeviceGetPowerUsage"
    arguments = fake_dcgmi.with_name("dcgmi.args").read_text()
    assert "-e 1002,1003,1004,1005,1009,1010,1011,1012 -i 7 -d 500" in arguments


def test_a_dcgmi_that_ends_is_told_in_its_words(tmp_path, monkeypatch):
    path = tmp_path / "dcgmi"
    listing = "if [ $1 = discovery ]; then echo '| 0 | x |'; echo '| | Device UUID: GPU-aaaa-0 |'; exit; fi"
    words = "Error: unable to establish a connection to the host engine"
    path.write_text(f"#!/bin/sh\n{listing}\necho '{words}'\nexit 1\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with open_ladder(None, devices("Turing"), 2, print, nvml=Nvml(fake_nvml("Turing"))) as ladder:
        deadline = time.monotonic() + 20
        why = ""
        while "host engine" not in why and time.monotonic() < deadline:
            why = next(r.note for r in ladder.read() if r.counter == "sm_active")
    assert "dcgmi ended with status 1: Error: unable to establish a connection to the host engine" in why


def test_a_tool_that_ends_is_started_again_later(tmp_path, monkeypatch):
    path = tmp_path / "tool"
    path.write_text(
        f"#!/bin/sh\necho x >> {tmp_path}/starts\ncat {tmp_path}/starts\n[ -e {tmp_path}/ok ] && sleep 99\n"
    )
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    clock = [0.0]
    stream = ToolStream(["tool"], period_s=100, keep=9, now=lambda: clock[0])

    def ask(until):
        deadline = time.monotonic() + 20
        while not until(lines := stream.lines()) and time.monotonic() < deadline:
            time.sleep(0.01)
        return lines

    ask(lambda lines: stream.why)
    assert stream.why == "tool ended with status 1: x"
    ask(lambda lines: True)
    assert (tmp_path / "starts").read_text() == "x\n"  # not at once
    (tmp_path / "ok").touch()
    clock[0] = RESTART_S + 1
    assert ask(lambda lines: len(lines) == 2) == ["x", "x"]
    assert stream.why is None
    tool = psutil.Process(stream._process.pid)
    beside = tool.children()
    stream.close()
    assert not tool.is_running()
    assert not psutil.wait_procs(beside, timeout=20)[1]


def test_a_gpu_that_dcgm_does_not_list_gets_no_others_counters(fake_dcgmi):
    stranger = [Device(kind="gpu", index=0, name="x", torch_name="cuda:0", uuid="GPU-not-there")]
    counters = DcgmCounters(stranger, hz=2)
    deadline = time.monotonic() + 20
    readings = list(counters.read())
    while "not listed" in readings[0].note and time.monotonic() < deadline:
        readings = list(counters.read())
    counters.close()
    assert {(r.device, r.value, r.note) for r in readings} == {("GPU-not-there", None, "dcgmi does not list this GPU")}


def test_dcgm_is_not_started_where_gpm_tells(fake_dcgmi):
    with open_ladder(None, devices("Hopper"), 2, print, nvml=Nvml(fake_nvml("Hopper"))) as ladder:
        list(ladder.read())
    assert not fake_dcgmi.with_name("dcgmi.args").exists()

"""DCGM beside NVML: when `dcgmi` is asked, what it fills in, and what becomes of it; with fake tools on PATH."""

import psutil
import pytest
from fake_nvml import FIRST, devices, gpus, put_on_path
from processes import wait_for

from labkit.hardware import Device, Nvml
from labkit.telemetry.sources.dcgm import DcgmCounters
from labkit.telemetry.sources.ladder import open_ladder

# As dcgmi 3 and 4 print it; what tensor cores do is not available on the GPU
DCGMI = f"""#!/bin/sh
if [ "$1" = discovery ]; then
    echo '| GPU ID | Device Information             |'
    echo '| 0      | Name: another                  |'
    echo '|        | Device UUID: GPU-other-9       |'
    echo '| 7      | Name: a Turing                 |'
    echo '|        | Device UUID: {FIRST} |'
    exit
fi
echo "$@" > "$0.args"
echo $$ > "$0.pid"
echo '#Entity   GRACT  SMACT  SMOCC  TENSO  DRAMA  PCITX  PCIRX  NVLTX  NVLRX'
echo 'ID'
while :; do
    echo 'GPU 0     0.999  0.999  0.999  0.999  0.999  0  0  0  0'
    echo 'GPU 7     0.995  0.555  0.387  N/A    0.250  10485760   20971520   0      0'
    sleep 0.05
done
"""


def test_dcgm_fills_what_nvml_lacks_and_is_not_started_where_gpm_tells(tmp_path, monkeypatch):
    asked = put_on_path(tmp_path, monkeypatch, "dcgmi", DCGMI).with_name("dcgmi.args")
    with open_ladder(None, devices("Hopper"), 2, print, nvml=Nvml(gpus("Hopper"))) as ladder:
        list(ladder.read())
    assert not asked.exists()
    with open_ladder(None, devices("Turing"), 2, print, nvml=Nvml(gpus("Turing"))) as ladder:

        def sampled():
            readings = {(r.scope, r.counter): r for r in ladder.read()}
            return readings if readings["device", "sm_active"].value is not None else None

        readings = wait_for(sampled)
    values = {counter: r.value for (_, counter), r in readings.items() if r.source == "DCGM dmon"}
    share = {"graphics_active": 99.5, "sm_active": 55.5, "sm_occupancy": 38.7, "dram_active": 25}
    assert values == share | {"pcie_tx": 10 * 2**20, "pcie_rx": 20 * 2**20, "nvlink_tx": 0, "nvlink_rx": 0}
    assert "DCGM dmon: dcgmi says N/A" in readings["device", "tensor_active"].note
    assert readings["device", "power"].source == "NVML nvmlDeviceGetPowerUsage"
    assert not psutil.pid_exists(int(asked.with_name("dcgmi.pid").read_text()))
    assert "-e 1001,1002,1003,1004,1005,1009,1010,1011,1012 -i 7 -d 500" in asked.read_text()


@pytest.mark.parametrize(
    ("gpu", "script", "words"),
    [
        ("GPU-not-there", DCGMI, "dcgmi does not list this GPU"),
        (FIRST, "#!/bin/sh\necho Error: no host engine; exit 1", "dcgmi lists no GPU: Error: no host engine"),
        (FIRST, DCGMI.replace("echo '#Entity", "echo No rights; exit 3; echo '#"), "status 3: No rights"),
    ],
)
def test_what_dcgm_does_not_tell_says_why_in_its_words(tmp_path, monkeypatch, gpu, script, words):
    put_on_path(tmp_path, monkeypatch, "dcgmi", script)
    counters = DcgmCounters([Device(kind="gpu", index=0, name="x", torch_name="cuda:0", uuid=gpu)], hz=2)
    wait_for(lambda: all(r.value is None and words in r.note for r in counters.read()))
    counters.close()

"""The host and a job's processes, Jetson modules from their files, a made-up Zeus of 0.16, and all counters' words."""

import re
import subprocess
import sys
import time
from collections import namedtuple
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace

import psutil
import pytest
from fake_nvml import fake_nvml
from made_up import new_run, write_samples

from labkit import telemetry
from labkit.hardware import JETSON, Device, Nvml, get_devices, is_jetson, match_tier
from labkit.telemetry.counters import vocabulary
from labkit.telemetry.energy import Sample, cpu_energy, run_energy
from labkit.telemetry.sources import host
from labkit.telemetry.sources.host import (
    INSTALL,
    SOCKET,
    HostCounters,
    JetsonCounters,
    ProcessCounters,
    RaplCounters,
    ZeusCounters,
    zeus_places,
)
from labkit.telemetry.sources.ladder import Ladder, open_ladder
from labkit.tracking import log

WAITS = [sys.executable, "-c", "ballast = b'x' * int(input()); print(flush=True); input()"]


def values(counters) -> dict[str, float]:
    return {reading.counter: reading.value for reading in counters.read()}


def test_a_process_counts_with_its_children_and_without_the_sampler_and_is_told_when_it_is_gone(template):
    assert template is None or template.await_ready()  # a child, too, that would still grow
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(WAITS, **pipes) as child:
        print(80_000_000, file=child.stdin, flush=True)
        child.stdout.readline()
        ours = psutil.Process()
        both, without = ProcessCounters(ours.pid, apart=set()), ProcessCounters(ours.pid, apart={child.pid})
        of_child = ProcessCounters(child.pid, apart=set())
        own, together = values(without), values(both)
        family = {ours, *ours.children(recursive=True)} - {psutil.Process(child.pid)}  # with what other tests left
        assert own["memory_resident"] == pytest.approx(sum(each.memory_info().rss for each in family), rel=0.1)
        assert own["threads"] == sum(each.num_threads() for each in family)
        assert together["memory_resident"] - own["memory_resident"] > 70e6
        assert both.pids() == {each.pid for each in family} | {child.pid}
        began, without, cpu_s = time.monotonic(), ProcessCounters(ours.pid, apart={child.pid}), time.process_time()
        while time.process_time() < cpu_s + 0.2:  # a core's work, for the share to be seen
            pass
        share = values(without)["cpu_percent"] / 100
        assert share * (time.monotonic() - began) >= 0.2 and share <= own["threads"]
        child.stdin.close()
    assert values(both)["memory_resident"] < together["memory_resident"]  # a child that ended is no error
    for gone in (lambda: values(of_child), lambda: ProcessCounters(child.pid, apart=set())):
        with pytest.raises(ProcessLookupError):
            gone()


def test_the_busy_share_of_the_host_is_of_the_time_between_two_readings(monkeypatch):
    times = namedtuple("times", "user nice system idle iowait irq softirq steal guest guest_nice")
    told = [times(1.0, 0, 0, 9.0, 0, 0, 0, 0, 0.1, 0), *[times(1.2, 0.05, 0.05, 9.6, 0.1, 0, 0, 0, 0.1, 0)] * 2]
    monkeypatch.setattr(host.psutil, "cpu_times", lambda: told.pop(0))
    counters = HostCounters()
    readings = values(counters)
    assert readings["cpu_percent"] == pytest.approx(30)  # of a second, a tenth waiting for disks
    memory = psutil.virtual_memory()
    assert readings["memory_used"] == pytest.approx(memory.total - memory.available, rel=0.1)
    assert [*values(counters)] == ["memory_used"]  # no tick has passed


def test_a_cpu_package_is_counted_once_and_goes_on_when_its_counter_is_full_and_says_so_if_unreadable(tmp_path):
    for name in ("intel-rapl:0", "intel-rapl:0:0"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "energy_uj").write_text("5000000")
        (tmp_path / name / "max_energy_range_uj").write_text("262143328850")
    file, counters = tmp_path / "intel-rapl:0" / "energy_uj", RaplCounters(tmp_path)
    assert values(counters) == {"cpu_energy_intel-rapl:0": 5.0}
    for says, joules in (("6000000", 6.0), ("1000000", 262143.32885 + 1.0), ("2000000", 262143.32885 + 2.0)):
        file.write_text(says)
        assert values(counters) == {"cpu_energy_intel-rapl:0": pytest.approx(joules)}
    file.unlink()
    file.mkdir()  # unreadable for root, too
    counters = RaplCounters(tmp_path)
    for _ in range(2):
        (reading,) = counters.read()
        assert (reading.counter, reading.value) == ("cpu_energy", None) and "cannot be read" in reading.note


ROOT = Path(__file__).parents[3]


def test_the_documentation_is_the_vocabulary():
    for counter in vocabulary():
        assert counter.definition.endswith(".") and counter.not_said.endswith("."), counter.name
        assert set(counter.scopes) <= {"host", "process", "rank", "device", "mig"}
    text = (ROOT / "docs" / "counters.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| ([\w, ]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", text, re.MULTILINE)
    assert [tuple(cell.strip() for cell in row) for row in rows] == [
        (c.name, ", ".join(c.scopes), c.unit, c.definition, c.not_said) for c in vocabulary()
    ]


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
    monkeypatch.setattr("labkit.telemetry.sources.host.JetsonCounters", partial(JetsonCounters, root=tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with open_ladder(None, shown, 2, print, nvml=Nvml(fake_nvml())) as ladder:
        readings = {(r.device, r.counter): (r.value, r.source) for r in ladder.read()}
    assert readings[uuid, "gpu_utilisation"] == (61.5, "Jetson sysfs")
    assert readings["host", "board_power"] == (6.05, "Jetson sysfs")


class GpuError(Exception):
    """Stands for ZeusBaseGPUError."""


@pytest.fixture
def here(monkeypatch):
    """Says what this machine is, and which modules Zeus has."""

    def make(*, socket=None, apple=False, amd=False, **modules):
        monkeypatch.setattr(host, "_has_amd_gpu", lambda: amd)
        monkeypatch.setattr(host.platform, "machine", lambda: "arm64" if apple else "x86_64")
        monkeypatch.setattr(host, "sys", SimpleNamespace(platform="darwin" if apple else "linux"))
        monkeypatch.setenv(SOCKET, socket) if socket else monkeypatch.delenv(SOCKET, raising=False)
        for name in ("zeus", "zeus.device", "zeus.device.soc", "zeus.device.gpu", "zeus.utils"):
            monkeypatch.setitem(sys.modules, name, ModuleType(name) if modules else None)
        for name, content in modules.items():
            monkeypatch.setitem(sys.modules, f"zeus.{name.replace('__', '.')}", SimpleNamespace(**content))
        return [ZeusCounters(*place) for place in zeus_places()]

    return make


def daemon(microjoules):
    """zeusd of two packages."""

    class Client:
        def __init__(self, config):
            assert config == "/run/zeusd.sock"

        def get_cpu_energy(self, cpu_ids=None, cpu=True, dram=True):
            return {
                number: SimpleNamespace(cpu_energy_uj=uj, dram_energy_uj=7) for number, uj in enumerate(microjoules)
            }

    return {"ZeusdClient": Client, "ZeusdConfig": SimpleNamespace(uds=lambda path: path)}


def test_its_daemon_stands_in_for_a_rapl_that_cannot_be_read(here, tmp_path, monkeypatch):
    (tmp_path / "intel-rapl:0").mkdir()
    assert here() == [], "where it helps nothing it is no source"
    counters = here(socket="/run/zeusd.sock", utils__zeusd=daemon([5e6, None]))
    readings = {reading.counter: reading for reading in Ladder([RaplCounters(tmp_path), *counters]).read()}
    assert readings["cpu_energy_intel-rapl:0"].value == 5 and readings["cpu_energy_intel-rapl:0"].source == "Zeus zeusd"
    assert readings["cpu_energy_intel-rapl:1"].note == "zeusd reports none"
    assert host.WITHOUT_ROOT in readings["cpu_energy"].note
    # where RAPL can be read, our own value counts
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("9000000")
    told = [r for r in Ladder([RaplCounters(tmp_path), *counters]).read() if r.counter == "cpu_energy_intel-rapl:0"]
    assert [(reading.value, reading.source) for reading in told] == [(9, "RAPL")]


def test_of_apple_silicon_the_cpu_counts_and_is_named_so(here):
    totals = iter([1_000, 3_500, None])
    chip = lambda: SimpleNamespace(  # noqa: E731
        get_total_energy_consumption=lambda: SimpleNamespace(cpu_total_mj=next(totals), gpu_mj=9)
    )
    (counters,) = here(apple=True, device__soc__apple={"AppleSilicon": chip})
    (first,), (second,), (missing,) = counters.read(), counters.read(), counters.read()
    assert (first.value, second.value, missing.value) == (1, 3.5, None) and "does not report" in missing.note
    energy = cpu_energy({first.counter: [Sample(0, first.value), Sample(10**9, second.value)]})
    assert (energy.value_j, energy.source) == (2.5, "Zeus, Apple's energy counters")


def test_amd_gpus_tell_their_energy_under_the_number_that_torch_gives_them(here):
    def refused():
        raise GpuError("not supported on this AMD GPU")

    calls = (lambda: 5_000_000), refused
    gpus = SimpleNamespace(gpus=[SimpleNamespace(get_total_energy_consumption=call) for call in calls])
    modules = {"AMDGPUs": lambda: gpus, "amdsmi_is_available": lambda: True}
    counters = here(amd=True, device__gpu__amd=modules, device__exception={"ZeusBaseGPUError": GpuError})
    told, missing = Ladder(counters).read()
    assert (told.device, told.scope, told.counter, told.value) == ("hip:0", "device", "energy", 5000)
    assert (missing.device, missing.value, missing.note) == ("hip:1", None, "not supported on this AMD GPU")


WITHOUT_SMI = {
    "device__gpu__amd": {"AMDGPUs": None, "amdsmi_is_available": lambda: False},
    "device__exception": {"ZeusBaseGPUError": GpuError},
}


@pytest.mark.parametrize(
    ("machine", "modules", "why"),
    [
        ({"socket": "/run/zeusd.sock"}, {}, INSTALL),
        ({"apple": True}, {}, INSTALL),
        ({"amd": True}, {}, INSTALL),
        ({"amd": True}, WITHOUT_SMI, "OSError: AMD SMI, which comes with ROCm from 6.2 on, cannot be loaded"),
    ],
)
def test_where_it_would_help_and_cannot_the_reason_is_told(here, machine, modules, why):
    (counters,) = here(**machine, **modules)
    (reading,) = counters.read()
    assert (reading.value, reading.note) == (None, why)


def test_the_ladder_of_a_machine_with_its_daemon_asks_it(here):
    here(socket="/run/zeusd.sock", utils__zeusd=daemon([5e6]))
    with open_ladder(None, [], 2.0, print) as ladder:
        assert "cpu_energy_intel-rapl:0" in values(ladder)


def test_a_run_on_an_amd_gpu_names_it_as_its_samples_are_named(monkeypatch):
    import torch

    assert log.amd_gpus("cuda:1") == []  # not under CUDA
    monkeypatch.setattr(torch.version, "hip", "6.4")
    about = SimpleNamespace(name="AMD Instinct MI300X", total_memory=192)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda name: about)
    (gpu,) = log.amd_gpus("cuda:1")
    assert (gpu.uuid, gpu.torch_name, gpu.index, gpu.name) == ("hip:1", "cuda:1", 1, about.name)
    assert log.amd_gpus("cpu") == []


def test_the_note_of_joules_of_an_amd_card_says_that_none_was_ever_tried(tmp_path):
    device = {"torch_name": "cuda:0", "uuid": "hip:0"}
    writer = new_run(tmp_path, torch_name="cuda:0", devices=[device])
    joules = {0: 0.0, 1: 100.0, 2: 200.0}
    write_samples(writer.folder, "hip:0", "energy", joules, source="Zeus AMDGPUs", begin_s=time.time())
    writer.finish("done", {})
    energy = run_energy(writer.folder)
    assert (energy.value_j, energy.source) == (200, "Zeus, AMD's energy counter") and "never tested" in energy.note


def test_the_cpu_time_of_a_family_counts_its_children():
    burn = "import time\nwhile time.process_time() < 0.3: pass\nprint('done', flush=True)\ninput()"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", burn], **pipes) as child:
        assert child.stdout.readline() == "done\n"
        assert telemetry.family_cpu_s() - time.process_time() > 0.25
        child.communicate("\n")

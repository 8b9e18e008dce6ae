"""GPUs as the driver lists them, and the catalogue of tiers."""

import datetime

import pynvml
import pytest
from fake_nvml import FIRST, OTHER_SLICE, SECOND, SLICE, fake_nvml

from labkit.errors import UserError
from labkit.hardware.budgets import parse_budget, possible_budgets
from labkit.hardware.devices import Device, Nvml, get_devices
from labkit.hardware.tiers import (
    GRID_FIGURES,
    cpu_tier,
    get_grid,
    get_tier,
    load_grids,
    load_tiers,
    match_tier,
    tier_name,
)

ARCHITECTURES = {
    # name: (compute capability, multiprocessors, tier)
    "NVIDIA GeForce GTX 1080 Ti": ("6.1", 28, "gtx-1080-ti"),
    "Tesla V100-SXM2-16GB": ("7.0", 80, "v100"),
    "Tesla T4": ("7.5", 40, "t4"),
    "NVIDIA A100-SXM4-40GB": ("8.0", 108, "a100-40"),
    "NVIDIA L4": ("8.9", 60, "l4"),
    "NVIDIA L40S": ("8.9", 142, None),
    "NVIDIA H100 80GB HBM3": ("9.0", 132, "h100"),
}
A, B, T4, A100 = FIRST, SECOND, "Tesla T4", "NVIDIA A100-SXM4-40GB"


def gpus(library):
    devices = get_devices(Nvml(library))
    assert devices[0].kind == "cpu" and devices[0].torch_name == "cpu"
    return devices[1:]


@pytest.fixture(autouse=True)
def all_visible(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_every_architecture_reports_its_multiprocessors_and_tier():
    for name, expected in ARCHITECTURES.items():
        (gpu,) = gpus(fake_nvml(name))
        assert (gpu.compute_capability, gpu.sm_count, tier_name(gpu)) == expected
        assert (gpu.power_limit_w, gpu.driver_version, gpu.torch_name) == (250, "580.1", "cuda:0")


BOTH = {SLICE: "1g.5gb", OTHER_SLICE: "1g.5gb"}


@pytest.mark.parametrize(
    ("slices", "setting", "expected"),
    [
        (None, None, [(A, "cuda:0"), (B, "cuda:1")]),
        (None, "GPU-bbbb", [(B, "cuda:0")]),
        (None, "GPU-", []),  # ambiguous
        (None, f"{B}, 0", [(B, "cuda:0"), (A, "cuda:1")]),
        (None, "", []),
        (None, "1,7,0", [(B, "cuda:0")]),  # CUDA stops at the first invalid entry
        (None, "0,0", [(A, "cuda:0")]),
        # a process reaches one slice
        (BOTH, None, [(SLICE, "cuda:0"), (OTHER_SLICE, None), (B, None)]),
        (BOTH, "0", [(SLICE, "cuda:0"), (OTHER_SLICE, None)]),
        (BOTH, "MIG-2222", [(OTHER_SLICE, "cuda:0")]),
        (BOTH, A, [(SLICE, "cuda:0"), (OTHER_SLICE, None)]),
    ],
)
def test_visibility_is_read_as_cuda_reads_it(monkeypatch, slices, setting, expected):
    if setting is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    found = gpus(fake_nvml(A100, A100, mig=lambda: slices))
    assert [(device.uuid, device.torch_name) for device in found] == expected
    assert all((device.torch_name is None) == ("torch_name" in device.missing) for device in found)


def test_a_mig_slice_knows_its_profile_parent_and_share():
    (device,) = gpus(fake_nvml(A100, mig=lambda: {SLICE: "1g.5gb"}))
    assert (device.kind, device.mig_profile, device.mig_parent_uuid) == ("mig", "1g.5gb", A)
    assert (device.sm_count, device.memory_bytes, device.compute_capability) == (14, 4864 * 2**20, "8.0")
    assert match_tier(device) is None


def test_what_nothing_can_run_on_is_listed_with_the_reason():
    (undivided,) = gpus(fake_nvml(A100, mig=dict))
    assert undivided.torch_name is None and "no MIG slice" in undivided.missing["torch_name"]
    (fallen,) = gpus(fake_nvml(T4, fails={"nvmlDeviceGetHandleByIndex": pynvml.NVML_ERROR_GPU_IS_LOST}))
    assert fallen.torch_name is None and fallen.missing["torch_name"]
    session = Nvml(fake_nvml(fails={"nvmlInit": pynvml.NVML_ERROR_DRIVER_NOT_LOADED}))
    assert [device.kind for device in get_devices(session)] == ["cpu"]
    assert "not loaded" in session.reason


FIELD_OF_CALL = {
    "nvmlDeviceGetMemoryInfo": "memory_bytes",
    "nvmlDeviceGetNumGpuCores": "sm_count",
    "nvmlDeviceGetPowerManagementLimit": "power_limit_w",
    "nvmlSystemGetDriverVersion": "driver_version",
}


def test_one_failing_call_costs_one_value():
    for call, lost in FIELD_OF_CALL.items():
        library = fake_nvml(A100, fails={call: pynvml.NVML_ERROR_NOT_SUPPORTED})
        (gpu,) = gpus(library)
        assert call in gpu.missing[lost]
        assert [field for field in FIELD_OF_CALL.values() if getattr(gpu, field) is None] == [lost]
        library.nvmlShutdown.assert_called_once_with()  # the session is closed again
    (gpu,) = gpus(fake_nvml(T4, fails={"nvmlDeviceGetCudaComputeCapability": pynvml.NVML_ERROR_UNKNOWN}))
    assert gpu.sm_count is None and "compute capability" in gpu.missing["sm_count"]


def cpu(name="some CPU", cores=2):
    return Device("cpu", 0, name, torch_name="cpu", cores=cores)


def gpu(name):
    return Device("gpu", 0, name)


def has_a_source_or_a_reason_to_be_null(figure):
    if figure.value is None:
        return figure.note and figure.source is None
    return figure.source and figure.url and datetime.date.fromisoformat(figure.date) <= datetime.date(2026, 11, 23)


@pytest.mark.parametrize("tier", load_tiers().values(), ids=lambda tier: tier.name)
def test_every_figure_is_dense_and_has_a_source_and_a_date_or_a_reason_to_be_null(tier):
    for key, figure in tier.figures.items():
        assert getattr(tier, key) == figure.value and has_a_source_or_a_reason_to_be_null(figure), key
        assert figure.value is None or (figure.value > 0 and figure.checked != ("not re-read" in figure.source)), key
    # BF16 runs at twice the rate of TF32 on every tensor core that has both; sparsity on one breaks that.
    if tier.bf16_tflops and tier.tf32_tflops:
        assert tier.bf16_tflops == pytest.approx(2 * tier.tf32_tflops, rel=0.02)
    # The A100 has the widest gap of all: 16 dense BF16 operations for each FP32 one, by its data sheet.
    if tier.bf16_tflops:
        assert tier.bf16_tflops / tier.fp32_tflops <= 16.1


@pytest.mark.parametrize(
    ("device", "tier"),
    [
        (gpu("NVIDIA GeForce RTX 2070 SUPER"), None),
        (gpu("NVIDIA GeForce RTX 4060 Laptop GPU"), None),
        (gpu("NVIDIA A100-SXM4-80GB"), "a100-80"),
        (gpu("Tesla P100-PCIE-16GB"), "p100-pcie"),
        (gpu("Tesla V100-PCIE-32GB"), "v100-pcie"),
        (gpu("Quadro RTX 6000"), "quadro-rtx-6000"),
        (gpu("NVIDIA RTX 6000 Ada Generation"), None),
        (gpu("NVIDIA A40"), "a40"),
        (gpu("NVIDIA RTX A6000"), None),
        (cpu(cores=3), "cloud-cpu-4"),
        (cpu(cores=17), None),
        (cpu("Raspberry Pi 5 Model B Rev 1.0", 4), "raspberry-pi-5"),
        (cpu("NVIDIA Jetson Xavier NX Developer Kit", 6), "jetson-xavier-nx"),
    ],
)
def test_a_device_finds_its_own_tier_and_no_relative(device, tier):
    found = match_tier(device)
    assert (found and found.name) == tier


def test_the_catalogue_has_every_tier_of_the_course_and_finds_the_nearest():
    asked = "laptop-2 cloud-cpu-16 raspberry-pi-5 jetson-nano jetson-xavier-nx jetson-orin-nano jetson-agx-orin v100 "
    asked += "gtx-1080-ti rtx-2070 rtx-3060 rtx-4060 t4 l4 a10g a100-40 a100-80 h100 h200 "
    asked += "p100-pcie v100-pcie quadro-rtx-6000 a40 big-basin big-basin-v2 zion zionex"
    assert {*asked.split()} <= set(load_tiers())
    assert cpu_tier(5).name == "cloud-cpu-8"
    assert cpu_tier(None) is None
    with pytest.raises(UserError, match="rtx-3060"):
        get_tier("rtx3060")


def test_the_command_prints_the_catalogue_and_one_tier_with_its_sources(cli):
    printed = cli("tiers").out
    assert all(name in printed for name in load_tiers())
    assert " 2018 " in printed and "204.8*" in printed  # not read in the source named
    printed = cli("tiers h200").out
    assert "4,800" in printed and "https://hmc-tech.com" in printed and "2026-11-21" in printed
    told = {tier["name"]: tier for tier in cli("tiers --json").json}
    assert told["h200"]["bandwidth_gb_s"]["value"] == 4800 and "devices" not in told["h200"]
    assert told["zion"]["devices"]["value"] == 8 and told["zion"]["devices"]["date"] == "2019-03-14"


def test_a_server_is_for_predictions_and_no_budget(cli):
    printed = cli("tiers big-basin").out
    assert "devices in the server" in printed and "memory of its CPUs" in printed
    with pytest.raises(UserError, match="labkit tiers zion"):
        parse_budget("zion-like", [cpu()])
    assert not any("zion" in name or "basin" in name for name in possible_budgets()[1])


def test_every_figure_has_a_source_or_a_reason_to_be_null_and_the_cleanest_grid_comes_first():
    for grid in load_grids().values():
        for figure in map(grid.figure, GRID_FIGURES):
            assert has_a_source_or_a_reason_to_be_null(figure), grid.name
            assert figure.value is None or figure.url.startswith("https://")
    carbon = [grid.carbon_g_per_kwh for grid in load_grids().values() if grid.carbon_g_per_kwh]
    assert carbon == sorted(carbon) and carbon[0] > 0
    # Retail electricity has cost between a cent and a dollar everywhere.
    assert all(0.01 < grid.price_usd_per_kwh < 1 for grid in load_grids().values() if grid.price_usd_per_kwh)


def test_an_unknown_grid_is_answered_with_the_nearest_names():
    assert get_grid("us").price_usd_per_kwh == 0.127
    with pytest.raises(UserError, match="germany"):
        get_grid("Germny")
    with pytest.raises(AttributeError, match="a grid has no power_w"):
        _ = get_grid("us").power_w

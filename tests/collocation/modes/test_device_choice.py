"""Names of devices."""

import pytest
from fake_gpu_tools import FIRST, SECOND, fake_nvml, write_mig

from labkit.collocation.modes.device_choice import device_names, find_device
from labkit.errors import UserError
from labkit.hardware.devices import get_devices
from labkit.hardware.nvml import Nvml


@pytest.fixture(autouse=True)
def all_visible(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.mark.parametrize(
    ("name", "uuid"),
    [
        (None, FIRST),
        ("0", FIRST),
        ("1", SECOND),
        (SECOND, SECOND),
        ("GPU-bbbb", SECOND),
        ("cuda:1", SECOND),
        ("cpu", None),
    ],
)
def test_a_gpu_has_a_number_a_uuid_and_its_beginning(name, uuid):
    assert find_device(name, get_devices(Nvml(fake_nvml("ampere")))).uuid == uuid


@pytest.mark.parametrize(
    ("name", "uuid"), [("0:0", "MIG-1"), ("0:1", "MIG-2"), ("MIG-2", "MIG-2"), ("0", "MIG-1"), (FIRST, "MIG-1")]
)
def test_a_slice_has_a_number_in_its_gpu_and_a_divided_gpu_stands_for_its_first(name, uuid, tmp_path):
    state = write_mig(tmp_path / "mig", instances=[("3g.20gb", 0), ("2g.10gb", 4)])
    assert find_device(name, get_devices(Nvml(fake_nvml("ampere", mig=state)))).uuid == uuid


def test_without_a_gpu_the_default_is_the_cpu():
    assert find_device(None, get_devices(Nvml(fake_nvml(None)))).kind == "cpu"


@pytest.mark.parametrize(("name", "words"), [("7", "no device '7' here"), ("GPU-", "several devices begin with")])
def test_another_name_is_refused_with_what_there_is(name, words):
    with pytest.raises(UserError, match=words) as refused:
        find_device(name, get_devices(Nvml(fake_nvml("ampere"))))
    assert f"0 (NVIDIA A100-SXM4-40GB, {FIRST}); 1 (" in str(refused.value)
    assert "choose one of cpu (" in str(refused.value)


def test_a_device_that_is_hidden_is_refused_with_what_hides_it(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(UserError, match=r"CUDA_VISIBLE_DEVICES=0 may hide some"):
        find_device("1", get_devices(Nvml(fake_nvml("ampere"))))


def test_every_name_that_is_listed_is_taken(tmp_path):
    state = write_mig(tmp_path / "mig", instances=[("3g.20gb", 0), ("2g.10gb", 4)])
    devices = get_devices(Nvml(fake_nvml("ampere", mig=state)))
    assert [find_device(each.split(" ")[0], devices) for each in device_names(devices)] == devices

"""The doctor: truthful with fake tools, without packages, with a driver and without."""

from dataclasses import replace
from importlib import metadata
from types import SimpleNamespace

import pytest
from fake_nvml import fake_nvml, put_on_path

from labkit.hardware import doctor
from labkit.hardware.devices import Nvml
from labkit.hardware.doctor import examine
from labkit_course import labs_on


@pytest.fixture(autouse=True)
def no_tools(tmp_path, monkeypatch):
    """An empty PATH, and a Python beside which no py-spy is."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr("labkit.hardware.doctor.sys", SimpleNamespace(executable=str(tmp_path / "python")))
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path / "mps"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.fixture
def no_driver():
    return Nvml(fake_nvml())


def install(monkeypatch, found):
    """What a function finds for their names are the versions of the packages that are installed."""

    def version(package):
        if (known := found(package)) is None:
            raise metadata.PackageNotFoundError
        return known

    monkeypatch.setattr(doctor.metadata, "version", version)


def test_tools_are_found_with_their_version_or_the_reason_why_they_do_not_start(no_driver, monkeypatch, tmp_path):
    assert not examine(no_driver)["mps"]["available"]
    for name, script in {
        "nsys": "echo Copyright; echo 'NVIDIA Nsight Systems version 2026.1.1'",
        "perf": "echo 'WARNING: perf not found for kernel 6.18' >&2; exit 2",
        "nvidia-cuda-mps-control": f"echo > {tmp_path}/started",
    }.items():
        put_on_path(tmp_path, monkeypatch, name, f"#!/bin/sh\n{script}\n")
    (tmp_path / "mps").mkdir()
    (tmp_path / "mps" / "control").touch()
    report = examine(no_driver)
    found = {tool["name"]: tool for tool in report["profilers"]}
    assert found["nsys"]["version"] == "NVIDIA Nsight Systems version 2026.1.1" and found["nsys"]["works"]
    assert not found["py-spy"]["works"] and found["py-spy"]["path"] is None
    assert not found["perf"]["works"] and "not found for kernel" in found["perf"]["note"]
    advice = {item["why"]: item["do"] for item in report["advice"]}
    assert any("perf" in why and "apt install" in do for why, do in advice.items())
    assert not any("dcgmi" in why for why in advice)  # useless without a GPU, so not advised
    assert report["mps"]["available"] and report["mps"]["daemon_seen"]
    assert not (tmp_path / "started").exists()


def test_gpus_are_reported_with_tier_budget_and_advice(monkeypatch):
    install(monkeypatch, lambda package: "2.13.0+cpu" if package == "torch" else "1")
    report = examine(Nvml(fake_nvml("Tesla T4")))
    assert report["driver"] == {"found": True, "version": "580.1", "reason": None}
    assert report["gpus"][0]["tier"] == "t4"
    assert "not supported" in report["mig"]["note"]
    assert report["budgets"][-1]["name"] == "gpu"
    advised = " ".join(item["why"] for item in report["advice"])
    assert "built for CPUs only" in advised and "nsys" in advised
    assert "torchaudio 1 needs CUDA" in advised


def test_what_is_missing_stops_only_the_labs_that_need_it(no_driver, monkeypatch):
    install(monkeypatch, lambda package: None if package == "soundfile" else "1")
    report = examine(no_driver)
    assert not report["driver"]["found"] and "no NVIDIA driver" in report["driver"]["reason"]
    labs = {lab["notebook"]: lab for lab in labs_on(report)}
    with_sound = ["20_train_speech", "21_speech_on_budgets"]
    assert all("soundfile" in labs[name]["why"] for name in with_sound)
    assert [name for name, lab in labs.items() if not lab["runs"]] == with_sound
    (advice,) = [item for item in report["advice"] if "soundfile" in item["why"]]
    # with the bounds of labkit's own requirements, so that the command does not break another lab
    assert advice["do"].startswith('python -m pip install "soundfile') and ">=0.13.1" in advice["do"]
    install(monkeypatch, lambda package: None if package == "jupyterlab" else "1")
    assert not any(lab["runs"] for lab in labs_on(examine(no_driver)))
    small = replace(doctor.read_cpu(), memory_bytes=10**9, memory_available_bytes=10**9)
    monkeypatch.setattr(doctor, "read_cpu", lambda: small)
    report = examine(no_driver)
    assert all("needs 2 GB of memory" in lab["why"] for lab in labs_on(report))
    assert "only 1.0 GB of memory is free now" in [item["why"] for item in report["advice"]]


def test_the_command_prints_every_section(cli, monkeypatch):
    report = examine(Nvml(fake_nvml("NVIDIA A100-SXM4-40GB", mig=lambda: dict.fromkeys(["MIG-1", "MIG-2"], "1g.5gb"))))
    monkeypatch.setattr("labkit.hardware.examine", lambda: dict(report))
    monkeypatch.setenv("COLUMNS", "160")
    report["cpu"]["isa_notes"] = ["ATEN_CPU_CAPABILITY=avx2 limits which ones torch uses"]
    printed = cli("doctor").out
    for word in (
        *("This machine", "GPUs", "Profilers", "Packages", "Labs", "20_train_speech", "1g.5gb", "on, 2 slices"),
        "=avx2 limits",
    ):
        assert word in printed
    assert {"cpu", "labs"} <= cli("doctor --json").json.keys()


@pytest.mark.parametrize(
    ("torch_version", "found", "asked"),
    [
        ("2.13.0+cpu", {"torchrec": "1.8.0", "fbgemm-gpu-cpu": "1.8.0"}, None),
        ("2.13.0+cu130", {"torchrec": "1.8.1", "fbgemm-gpu": "1.8.0"}, None),  # the build for CUDA
        ("2.13.0+cpu", {}, "fbgemm-gpu-cpu==1.8.0 torchrec==1.8.0"),
        ("2.13.0+cpu", {"torchrec": "1.8.0"}, "fbgemm-gpu-cpu==1.8.0 torchrec==1.8.0"),
        ("2.14.1", {"torchrec": "1.8.0", "fbgemm-gpu-cpu": "1.8.0"}, "fbgemm-gpu-cpu==1.9.0 torchrec==1.9.0"),
    ],
)
def test_torchrec_and_fbgemm_belong_to_the_version_of_torch(monkeypatch, torch_version, found, asked):
    install(monkeypatch, ({"torch": torch_version} | found).get)
    why = doctor.why_no_torchrec()
    assert why is None if asked is None else asked in why and "torchmetrics==1.0.3" in why and torch_version in why

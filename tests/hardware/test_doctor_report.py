"""The doctor: truthful with fake tools, without packages, with a driver and without."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import ArgumentParser
from importlib import metadata

import pynvml
import pytest
from test_nvml_devices import fake_nvml

from labkit.cli import doctor as command
from labkit.course.labs import LABS, labs_on
from labkit.fast.times import StepTimes, remember
from labkit.hardware import software
from labkit.hardware.doctor import examine
from labkit.hardware.nvml import Nvml

posix_only = pytest.mark.skipif(os.name != "posix", reason="fake tools are shell scripts")


@pytest.fixture
def tools(tmp_path, monkeypatch):
    """An empty PATH, and a way to put fake tools on it."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path / "mps"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def add(name, script):
        tool = tmp_path / name
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)

    return add


@pytest.fixture
def no_driver():
    return Nvml(fake_nvml(fails={"nvmlInit": pynvml.NVML_ERROR_LIBRARY_NOT_FOUND}))


def found(report, name):
    return next(tool for tool in report["profilers"] if tool["name"] == name)


@posix_only
def test_a_profiler_on_path_is_found_with_its_version(tools, no_driver, monkeypatch, tmp_path):
    tools("nsys", "echo 'NVIDIA Nsight Systems version 2026.1.1'")
    tools("ncu", "echo Copyright; echo 'Version 2026.2.0.0'")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))  # beside which py-spy may be
    report = examine(no_driver)
    assert found(report, "nsys")["version"] == "NVIDIA Nsight Systems version 2026.1.1"
    assert found(report, "ncu")["version"] == "Version 2026.2.0.0"
    assert found(report, "nsys")["works"]
    assert not found(report, "py-spy")["works"] and found(report, "py-spy")["path"] is None


@posix_only
def test_a_profiler_that_does_not_start_is_not_called_working(tools, no_driver):
    tools("perf", "echo 'WARNING: perf not found for kernel 6.18' >&2; exit 2")
    report = examine(no_driver)
    perf = found(report, "perf")
    assert not perf["works"] and "not found for kernel" in perf["note"]
    assert any("perf" in item["why"] and "apt install" in item["do"] for item in report["advice"])


@posix_only
def test_mps_is_seen_and_not_touched(tools, no_driver, tmp_path):
    assert not examine(no_driver)["mps"]["available"]
    tools("nvidia-cuda-mps-control", f"touch {tmp_path}/started")
    (tmp_path / "mps").mkdir()
    (tmp_path / "mps" / "control").touch()
    mps = examine(no_driver)["mps"]
    assert mps["available"] and mps["daemon_seen"]
    assert not (tmp_path / "started").exists()


def test_without_a_driver_the_reason_is_given(tools, no_driver):
    report = examine(no_driver)
    assert report["gpus"] == []
    assert not report["driver"]["found"] and "no NVIDIA driver" in report["driver"]["reason"]
    assert not any("nsys" in item["why"] for item in report["advice"])  # useless here, so not advised


def test_gpus_are_reported_with_tier_budget_and_advice(tools, monkeypatch):
    monkeypatch.setattr(software.metadata, "version", lambda package: "2.13.0+cpu" if package == "torch" else "1")
    report = examine(Nvml(fake_nvml(["Tesla T4"])))
    assert report["driver"] == {"found": True, "version": "580.1", "reason": None}
    assert report["gpus"][0]["tier"] == "t4"
    assert "not supported" in report["mig"]["note"]
    assert report["budgets"][-1]["name"] == "gpu"
    assert any("built for CPUs only" in item["why"] for item in report["advice"])
    assert any("nsys" in item["why"] for item in report["advice"])


def test_a_missing_package_stops_only_the_labs_that_need_it(tools, no_driver, monkeypatch):
    def version(package):
        if package == "soundfile":
            raise metadata.PackageNotFoundError
        return "1"

    monkeypatch.setattr(software.metadata, "version", version)
    report = examine(no_driver)
    labs = {lab["notebook"]: lab for lab in labs_on(report)}
    assert len(labs) == len(LABS)
    assert not labs["20_train_speech"]["runs"] and "soundfile" in labs["20_train_speech"]["why"]
    assert all(lab["runs"] for name, lab in labs.items() if name != "20_train_speech")
    (advice,) = [item for item in report["advice"] if "soundfile" in item["why"]]
    # with the bounds of labkit's own requirements, so that the command does not break another lab
    assert advice["do"].startswith('python -m pip install "soundfile') and ">=0.13.1" in advice["do"]


def test_without_the_notebook_packages_no_lab_runs_and_they_are_advised(tools, no_driver, monkeypatch):
    def version(package):
        if software.PACKAGES[package] == "lab":
            raise metadata.PackageNotFoundError
        return "1"

    monkeypatch.setattr(software.metadata, "version", version)
    report = examine(no_driver)
    assert not any(lab["runs"] for lab in labs_on(report))
    assert any('pip install "jupyterlab' in item["do"] for item in report["advice"])


def test_a_small_machine_is_told_what_it_lacks(tools, no_driver, monkeypatch):
    from labkit.hardware import doctor

    small = doctor.read_cpu()
    values = {name: getattr(small, name) for name in small.__dataclass_fields__}
    monkeypatch.setattr(doctor, "read_cpu", lambda: type(small)(**values | {"memory_bytes": 10**9}))
    assert all("needs 2 GB of memory" in lab["why"] for lab in labs_on(examine(no_driver)))


def doctor_command(*argv):
    parser = ArgumentParser()
    command.add_parser(parser.add_subparsers())
    args = parser.parse_args(["doctor", *argv])
    return args.run(args)


def test_the_command_prints_json_that_is_the_examination(capsys):
    assert doctor_command("--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["cpu"]["available_cores"] >= 1
    assert {"cpu", "memory", "disk", "gpus", "driver", "mig", "mps", "profilers", "packages", "labs"} <= set(report)


def test_the_command_prints_every_section(capsys, monkeypatch):
    nvml = Nvml(fake_nvml(["NVIDIA A100-SXM4-40GB"], mig={0: ["MIG-1", "MIG-2"]}))
    report = examine(nvml)
    monkeypatch.setattr("labkit.hardware.doctor.examine", lambda: report)
    monkeypatch.setenv("COLUMNS", "160")
    assert doctor_command() == 0
    printed = capsys.readouterr().out
    for word in (
        "This machine",
        "GPUs",
        "Profilers",
        "Packages",
        "Labs",
        "20_train_speech",
        "1g.5gb",
        "on, 2 slices",
    ):
        assert word in printed


def test_the_command_tells_and_forgets_what_steps_took(capsys, monkeypatch, tmp_path, no_driver):
    report = examine(no_driver)
    monkeypatch.setattr("labkit.hardware.doctor.examine", lambda: dict(report))
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "160")
    remember(StepTimes("a processor", "dlrm tour on synthetic", {"fp32": 4.0, "bf16": 2.0}, "2026-11-21"))
    assert doctor_command() == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "fp32 4 ms, bf16 2 ms; measured 2026-11-21" in printed
    assert "dlrm tour on synthetic" in printed and "a processor" in printed
    assert doctor_command("--forget-steps", "--json") == 0
    said = capsys.readouterr()
    assert said.err == "labkit: remembered times of a training step that are now forgotten: 1\n"
    assert json.loads(said.out)["steps"] == []


def test_the_doctor_imports_no_heavy_library():
    code = (
        "import sys; from labkit.hardware.doctor import examine; examine()\n"
        "print([name for name in ('torch', 'numpy', 'pandas', 'duckdb', 'plotly') if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert answer.stdout.strip() == "[]"

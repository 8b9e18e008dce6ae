"""A machine with NVIDIA GPUs, for tests: pynvml's functions with made-up answers, and fake commands on PATH."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import create_autospec

import pynvml

from labkit.hardware import Device

FIRST, SECOND = "GPU-aaaa1111-0000", "GPU-bbbb2222-0000"
"""UUIDs of the GPUs"""
SLICE, OTHER_SLICE = "MIG-11110000-0000", "MIG-22220000-0000"
GPUS = {
    # name: (compute capability, CUDA cores, GiB)
    "NVIDIA GeForce GTX 1080 Ti": ((6, 1), 3584, 11),
    "Tesla V100-SXM2-16GB": ((7, 0), 5120, 16),
    "Tesla T4": ((7, 5), 2560, 16),
    "NVIDIA A100-SXM4-40GB": ((8, 0), 6912, 40),
    "NVIDIA GeForce RTX 4060": ((8, 9), 3072, 8),
    "NVIDIA L4": ((8, 9), 7680, 24),
    "NVIDIA L40S": ((8, 9), 18176, 48),
    "NVIDIA H100 80GB HBM3": ((9, 0), 16896, 80),
}
PASCAL, AMPERE, HOPPER = (2 * [name] for name in GPUS if name.split()[-1] in ("Ti", "A100-SXM4-40GB", "HBM3"))
"""Machines with two of a kind"""
PROFILES = {
    # of an A100 with 40 GB: NVML's number of the kind, nvidia-smi's, compute slices, MiB, memory slices.
    # Source: NVIDIA MIG User Guide, "Supported MIG Profiles"
    "1g.5gb": (0, 19, 1, 4864, 1),
    "2g.10gb": (1, 14, 2, 9856, 2),
    "3g.20gb": (2, 9, 3, 19968, 4),
    "4g.20gb": (3, 5, 4, 19968, 4),
    "7g.40gb": (4, 0, 7, 40192, 8),
    "1g.5gb+me": (7, 20, 1, 4864, 1),
    "1g.10gb": (9, 15, 1, 9856, 2),
}


def error(code: int) -> pynvml.NVMLError:
    return pynvml.NVMLError(code)


def refuse(code: int):
    raise error(code)


def fake_nvml(*names: str, mig=None, computing=(), drawing=(), fails=(), **answers):
    """An NVML of these GPUs, whose handles are their numbers and the UUIDs of slices.

    Args:
        names: of GPUS; the first is `FIRST`, the second `SECOND`; none for a machine without a driver.
        mig: gives the slices of the first GPU as they are now, each UUID with its profile, or None where MIG is off.
        computing: processes by UUID; drawing: those that only draw.
        fails: calls with NVML's number of the failure that each ends in.
        answers: functions for calls that are not here, or in place of those that are.
    """
    uuids = (FIRST, SECOND)[: len(names)]

    def slices():
        return (mig() if mig else None) or {}

    def handle_of(uuid):
        found = uuids.index(uuid) if uuid in uuids else uuid if uuid in slices() else None
        return refuse(pynvml.NVML_ERROR_NOT_FOUND) if found is None else found

    def kind(handle):
        """The first GPU's, for its slices."""
        return GPUS[names[0 if handle in slices() else handle]]

    def name(handle):
        return f"{names[0]} MIG {slices()[handle]}" if handle in slices() else names[handle]

    def memory(handle):
        total = PROFILES[slices()[handle]][3] * 2**20 if handle in slices() else kind(handle)[2] * 2**30
        return SimpleNamespace(total=total, free=total, used=0)

    def mig_mode(handle):
        if GPUS[names[handle]][0] < (8, 0):
            refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return [int(handle == 0 and mig is not None and mig() is not None)] * 2

    def mig_slice(handle, place):
        there = list(slices()) if handle == 0 else []
        return there[place] if place < len(there) else refuse(pynvml.NVML_ERROR_NOT_FOUND)

    def profile_info(handle, number_of_kind, version=2):
        for title, (own, number, count, mib, _) in PROFILES.items():
            if mig is not None and own == number_of_kind:
                return SimpleNamespace(id=number, sliceCount=count, memorySizeMB=mib, name=f"MIG {title}")
        refuse(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def capacity(handle, number):
        there = [PROFILES[title] for title in slices().values()]
        (own,) = [each for each in PROFILES.values() if each[1] == number]
        return min((7 - sum(each[2] for each in there)) // own[2], (8 - sum(each[4] for each in there)) // own[4])

    def uuid(handle):
        return handle if handle in slices() else uuids[handle]

    calls = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlSystemGetDriverVersion": lambda: "580.1",
        "nvmlDeviceGetCount": lambda: len(names),
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetHandleByUUID": handle_of,
        "nvmlDeviceGetName": name,
        "nvmlDeviceGetUUID": uuid,
        "nvmlDeviceGetMemoryInfo": memory,
        "nvmlDeviceGetCudaComputeCapability": lambda handle: kind(handle)[0],
        "nvmlDeviceGetNumGpuCores": lambda handle: kind(handle)[1],
        "nvmlDeviceGetPowerManagementLimit": lambda handle: 250_000,
        "nvmlDeviceGetAttributes": lambda handle: SimpleNamespace(
            multiprocessorCount=14 * PROFILES[slices()[handle]][2]
        ),
        "nvmlDeviceGetMigMode": mig_mode,
        "nvmlDeviceGetMaxMigDeviceCount": lambda handle: 7,
        "nvmlDeviceGetMigDeviceHandleByIndex": mig_slice,
        "nvmlDeviceGetGpuInstanceProfileInfo": profile_info,
        "nvmlDeviceGetGpuInstanceRemainingCapacity": capacity,
        "nvmlDeviceGetComputeMode": lambda handle: pynvml.NVML_COMPUTEMODE_DEFAULT,
        "nvmlDeviceGetComputeRunningProcesses": lambda handle: dict(computing).get(uuid(handle), []),
        "nvmlDeviceGetGraphicsRunningProcesses": lambda handle: dict(drawing).get(uuid(handle), []),
        "nvmlSystemGetProcessName": lambda pid: "/usr/bin/python3",
    } | answers
    fails = dict(fails) if names else {"nvmlInit": pynvml.NVML_ERROR_LIBRARY_NOT_FOUND} | dict(fails)
    calls |= {call: error(code) for call, code in fails.items()}
    return SimpleNamespace(
        **{call: create_autospec(getattr(pynvml, call), side_effect=answer) for call, answer in calls.items()}
    )


def fail(library, call: str, code: int) -> None:
    """Let a call of the library fail from now on."""
    getattr(library, call).side_effect = error(code)


# GPUs of four generations with their counters

JOB, CHILD, STRANGER = 42, 43, 77
GENERATIONS = {
    # the GPU, and the calls that it does not support
    "Pascal": ("NVIDIA GeForce GTX 1080 Ti", ["nvmlDeviceGetTotalEnergyConsumption"]),
    "Turing": ("Tesla T4", ["nvmlDeviceGetProcessUtilization"]),
    "Ampere with MIG": ("NVIDIA A100-SXM4-40GB", ["nvmlDeviceGetUtilizationRates"]),
    "Hopper": ("NVIDIA H100 80GB HBM3", []),
}
GPM = ("Hopper",)


def _shares(handle, since_us):
    rows = [(JOB, 1000, 10), (JOB, 2000, 30), (CHILD, 2000, 5), (STRANGER, 2000, 60)]
    told = [SimpleNamespace(pid=pid, timeStamp=at, smUtil=share) for pid, at, share in rows if at > since_us]
    return told or refuse(pynvml.NVML_ERROR_NOT_FOUND)


def _averages(asked):
    for metric in asked.metrics[: asked.numMetrics]:
        metric.nvmlReturn, metric.value = pynvml.NVML_SUCCESS, float(metric.metricId)
    return asked


COUNTERS = {
    "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=97, memory=40),
    "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(
        total=40 * 2**30, used=(1 + 2 * (handle != SLICE)) * 2**30
    ),
    "nvmlDeviceGetPowerUsage": lambda handle: 250_000,
    "nvmlDeviceGetTotalEnergyConsumption": lambda handle: 5_000_000,
    "nvmlDeviceGetClockInfo": lambda handle, kind: {1: 1410, 2: 5001}[kind],
    "nvmlDeviceGetTemperature": lambda handle, sensor: 61,
    "nvmlDeviceGetCurrentClocksThrottleReasons": lambda handle: 4,
    "nvmlDeviceGetComputeRunningProcesses": lambda handle: [
        SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in ((JOB, 2**30), (CHILD, 2**29), (STRANGER, 2**31))
    ],
}
MORE = {
    "nvmlDeviceGetProcessUtilization": _shares,
    "nvmlDeviceGetGpuInstanceId": lambda handle: (SLICE, OTHER_SLICE).index(handle) + 1,
    "nvmlGpmSampleAlloc": pynvml.c_nvmlGpmSample_t,
    "nvmlGpmSampleFree": lambda sample: None,
    "nvmlGpmSampleGet": lambda handle, sample: sample,
    "nvmlGpmMigSampleGet": lambda handle, instance, sample: sample,
    "nvmlGpmMetricsGet": _averages,
}


def gpus(generation: str, *, gpm: bool | None = None, **answers):
    """An NVML with two GPUs of a generation, the first with two slices where that has MIG."""
    name, unsupported = GENERATIONS[generation]
    mig = (lambda: {SLICE: "1g.5gb", OTHER_SLICE: "1g.5gb"}) if "MIG" in generation else None
    supported = SimpleNamespace(isSupportedDevice=int(generation in GPM if gpm is None else gpm))
    answers = {"nvmlGpmQueryDeviceSupport": lambda handle: supported} | COUNTERS | MORE | answers
    return fake_nvml(name, name, mig=mig, fails=dict.fromkeys(unsupported, pynvml.NVML_ERROR_NOT_SUPPORTED), **answers)


def devices(generation: str) -> list[Device]:
    """What a job on the first GPU sees: the GPU, or its first slice."""
    if "MIG" in generation:
        return [Device("mig", 0, "a slice", torch_name="cuda:0", uuid=SLICE, mig_parent_uuid=FIRST)]
    return [Device("gpu", 0, f"a {generation}", torch_name="cuda:0", uuid=FIRST)]


def put_on_path(folder: Path, monkeypatch, name: str, code: str) -> Path:
    """A command for this test, found before all others: a script with its interpreter named, or Python code."""
    tool = folder / "bin" / name
    tool.parent.mkdir(exist_ok=True)
    tool.write_text(code if code.startswith("#!") else f"#!{sys.executable} -S\n{code}")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")
    return tool


def fake_mps(folder: Path, monkeypatch) -> Path:
    """A daemon that stays in the foreground until it is asked to quit, as NVIDIA's does; where its pid stands."""
    code = f"""
import os, pathlib, sys, time
pipes = pathlib.Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
if sys.argv[1:] == ["-f"]:
    pathlib.Path({str(folder / "pid")!r}).write_text(str(os.getpid()))
    (pipes / "control").touch()
    while not (pipes / "quit").exists():
        time.sleep(0.02)
elif not (pipes / "control").exists():
    sys.exit("Cannot find MPS control daemon process")
elif sys.stdin.read().startswith("quit"):
    (pipes / "quit").touch()
"""
    put_on_path(folder, monkeypatch, "nvidia-cuda-mps-control", code)
    return folder / "pid"

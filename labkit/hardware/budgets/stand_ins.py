"""Budgets that stand in for other hardware: a tier of the catalogue, or half of this machine."""

from __future__ import annotations

from labkit.errors import UserError
from labkit.hardware.budgets.budget import Budget
from labkit.hardware.device import Device
from labkit.hardware.sizes import size_text
from labkit.hardware.tiers import Tier, cpu_tier, get_tier, match_tier
from labkit.hardware.tools import find_mps

LIKE = "-like"
OF_A_CPU = ("memory bandwidth", "caches", "clocks and instruction sets")
OF_A_GPU = ("memory bandwidth", "L2 cache", "clocks", "precisions", "power")
"""What no budget takes from a machine."""


def half_of_cpu(cpu: Device) -> Budget:
    """Half of the cores, at least one, and half of the memory."""
    cores = max(1, cpu.cores // 2)
    tier = cpu_tier(cores)
    return Budget("half", cores, cpu.memory_bytes // 2, tier=tier and tier.name, emulated=True, not_emulated=OF_A_CPU)


def half_of_gpu(devices: list[Device]) -> Budget:
    """Half of the multiprocessors and of the memory of the first GPU.

    Raises:
        UserError: there is no GPU of which a part can be had.
    """
    gpu = _divisible_gpu("half-gpu", devices)
    return Budget(
        "half-gpu",
        None,
        torch_name=gpu.torch_name,
        emulated=True,
        gpu_percent=50.0,
        gpu_memory_bytes=gpu.memory_bytes // 2,
        not_emulated=OF_A_GPU,
    )


def stand_in(name: str, devices: list[Device]) -> Budget:
    """The budget that comes as near to a tier as this machine can.

    A CPU tier is as many cores and as much memory. A board (edge tier) is its CPU and the memory that its GPU shares,
    with as many cores, or all of this machine's where it has fewer, which is told. A GPU tier is a share of this
    machine's GPU by the ratio of both FP32 peaks, and the tier's memory.

    Args:
        name: of a tier, with or without "-like".
        devices: what this machine has, its CPU first.

    Raises:
        UserError: there is no such tier, or it is larger than this machine, or cannot be enforced here.
    """
    tier = get_tier(name.removesuffix(LIKE))
    own = [device for device in devices if (match := match_tier(device)) and match.name == tier.name]
    if tier.kind == "gpu":
        return _gpu_stand_in(name, tier, own, devices)
    cpu = devices[0]
    # a generic CPU is in a tier by its cores alone
    if own and tier.kind == "edge":
        return Budget(name, cpu.cores, tier=tier.name)
    cores, memory = tier.cores, tier.memory_gb and int(tier.memory_gb * 1e9)
    missing = list(OF_A_CPU)
    if cores > cpu.cores:
        if tier.kind != "edge":
            raise UserError(
                f"The budget {name!r} has {cores} cores and this process may use {cpu.cores}: a budget only makes a "
                "machine smaller. `labkit budgets` lists those it can stand in for."
            )
        missing.append(f"{cpu.cores} of its {cores} cores")
        cores = cpu.cores
    if memory and memory >= cpu.memory_bytes:
        missing.append(f"its {size_text(memory)} of memory: here are {size_text(cpu.memory_bytes)}")
        memory = None
    if cores == cpu.cores and memory is None:
        raise UserError(f"The budget {name!r} is not smaller than this machine, which a budget can only make smaller.")
    if tier.fp32_tflops:
        missing.append("its GPU")
    return Budget(name, cores, memory, tier=tier.name, emulated=True, not_emulated=tuple(missing))


def _gpu_stand_in(name: str, tier: Tier, own: list[Device], devices: list[Device]) -> Budget:
    if own and own[0].torch_name:
        return Budget(name, None, torch_name=own[0].torch_name, tier=tier.name)
    gpu = _divisible_gpu(name, devices)
    whole = match_tier(gpu)
    if whole is None or not whole.fp32_tflops or not tier.fp32_tflops:
        unknown = tier.label if whole and whole.fp32_tflops else gpu.name
        raise UserError(f"The budget {name!r} needs the FP32 peak of {unknown}, which the catalogue does not have.")
    share = tier.fp32_tflops / whole.fp32_tflops
    if share > 1 or tier.memory_gb * 1e9 > gpu.memory_bytes:
        raise UserError(
            f"The budget {name!r} stands for {tier.label} ({tier.fp32_tflops:g} TFLOP/s, {tier.memory_gb:g} GB), which "
            f"is more than {gpu.name} has ({whole.fp32_tflops:g} TFLOP/s, {gpu.memory_bytes / 1e9:.0f} GB): a budget "
            "only makes a GPU smaller."
        )
    missing = list(OF_A_GPU)
    if tier.bandwidth_gb_s and whole.bandwidth_gb_s:
        missing[0] = f"memory bandwidth ({tier.bandwidth_gb_s:g} GB/s, here {whole.bandwidth_gb_s:g})"
    # less than one multiprocessor cannot be had
    percent = max(100 * share, 100 / gpu.sm_count if gpu.sm_count else 1.0)
    return Budget(
        name,
        None,
        torch_name=gpu.torch_name,
        tier=tier.name,
        emulated=True,
        gpu_percent=round(percent, 1),
        gpu_memory_bytes=int(tier.memory_gb * 1e9),
        not_emulated=tuple(missing),
    )


def _divisible_gpu(name: str, devices: list[Device]) -> Device:
    """The first GPU of which CUDA MPS can give a part.

    Raises:
        UserError: there is none, and why.
    """
    gpu = next((device for device in devices[1:] if device.torch_name), None)
    if gpu is None:
        raise UserError(
            f"The budget {name!r} is a part of an NVIDIA GPU, and this machine has none that CUDA can use "
            "(`labkit doctor` says what was found). Budgets of a CPU: one-core, half, jetson-nano-like."
        )
    mps = find_mps()
    if not mps["available"]:
        raise UserError(f"The budget {name!r} needs CUDA MPS to bind: {mps['note']}.")
    if gpu.kind == "mig":
        raise UserError(
            f"The budget {name!r} is a share of a whole GPU, and this process has a MIG slice, which is one already."
        )
    return gpu

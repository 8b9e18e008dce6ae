"""Named budgets: those this machine offers, those that stand in for other hardware, and those a user describes."""

from __future__ import annotations

from labkit import UserError
from labkit.hardware.budgets.budget import Budget
from labkit.hardware.cpu import parse_size, size_text
from labkit.hardware.devices import Device, get_devices
from labkit.hardware.software import find_mps
from labkit.hardware.tiers import Tier, cpu_tier, get_tier, load_tiers, match_tier, tier_name

LIKE = "-like"
OF_A_CPU = ("memory bandwidth", "caches", "clocks and instruction sets")
OF_A_GPU = ("memory bandwidth", "L2 cache", "clocks", "precisions", "power")
"""Properties of a machine that no budget changes."""


def offered_budgets(devices: list[Device] | None = None) -> list[Budget]:
    """Return the budgets this machine offers: one-core, all-cores if it has several, and each GPU."""
    cpu, *gpus = get_devices() if devices is None else devices
    budgets = [_cores("one-core", 1, cpu)]
    if cpu.cores > 1:
        budgets.append(_cores("all-cores", cpu.cores, cpu))
    gpus = [gpu for gpu in gpus if gpu.torch_name is not None]
    for number, gpu in enumerate(gpus):
        name = "gpu" if len(gpus) == 1 else f"gpu:{number}"
        budgets.append(Budget(name, None, torch_name=gpu.torch_name, tier=tier_name(gpu)))
    return budgets


def possible_budgets(devices: list[Device] | None = None) -> tuple[list[Budget], dict[str, str]]:
    """Every named budget that can be enforced here, and the reasons why the others cannot, by name."""
    devices = get_devices() if devices is None else devices
    possible, refused = offered_budgets(devices), {}
    stand_ins = [f"{tier.name}{LIKE}" for tier in load_tiers().values() if tier.kind != "server"]
    for name in ("half", "half-gpu", *stand_ins):
        try:
            budget = parse_budget(name, devices)
        except UserError as error:
            refused[name] = str(error)
            continue
        # the whole machine under another name is in the list already
        if budget.emulated:
            possible.append(budget)
    return possible, refused


def parse_budget(text: str, devices: list[Device] | None = None) -> Budget:
    """The budget of that name: an offered one, `half`, `half-gpu`, a tier (`t4`, `t4-like`), `cores=N[,memory=2GiB]`.

    Raises:
        UserError: the name is unknown, or this machine is too small for the budget or cannot enforce it.
    """
    devices = get_devices() if devices is None else devices
    offered = {budget.name: budget for budget in offered_budgets(devices)}
    offered.setdefault("all-cores", offered["one-core"])
    if "gpu:0" in offered:
        offered["gpu"] = offered["gpu:0"]
    if text in offered:
        return offered[text]
    if text == "half":
        return _cores("half", max(1, devices[0].cores // 2), devices[0], devices[0].memory_bytes // 2)
    if text == "half-gpu":
        gpu = _divisible_gpu(text, devices)
        return _part_of_gpu(text, gpu, 50.0, gpu.memory_bytes // 2, OF_A_GPU)
    if text.removesuffix(LIKE) in load_tiers():
        return _stand_in(text, get_tier(text.removesuffix(LIKE)), devices)
    if "=" in text:
        return _own_budget(text, devices[0])
    offer = (
        f"This machine offers {', '.join(offered)}, half, tiers of the catalogue (`labkit budgets` lists them), and "
        "budgets of your own such as cores=1,memory=2GiB."
    )
    if text == "gpu" or text.startswith("gpu:"):
        reachable = sum(device.torch_name is not None for device in devices[1:])
        raise UserError(
            f"The budget {text!r} needs a GPU that CUDA can use, and this machine has {reachable or 'none'}: run "
            f"`labkit doctor` to see why. {offer}"
        )
    raise UserError(f"There is no budget called {text!r}. {offer}")


def _own_budget(text: str, cpu: Device) -> Budget:
    limits: dict[str, int] = {}
    for part in text.split(","):
        key, _, value = (piece.strip() for piece in part.partition("="))
        if key in limits:
            raise UserError(f"The budget {text!r} gives {key}= twice: remove one of them.")
        if key == "cores" and value.isdecimal() and int(value) > 0:
            limits["cores"] = int(value)
        elif key == "memory" and value[-1:].isalpha() and (size := parse_size(value)):
            limits["memory"] = size
        else:
            raise UserError(
                f"{part.strip()!r} in the budget {text!r} is not valid: write cores=N with N at least 1, and memory= "
                "with a unit, as in cores=2,memory=2GiB."
            )
    cores, memory_bytes = limits.get("cores", cpu.cores), limits.get("memory")
    if cores > cpu.cores:
        raise UserError(
            f"The budget {text!r} needs {cores} cores, but this process may use only {cpu.cores} (the machine has "
            f"{cpu.machine_cores or cpu.cores}): use at most cores={cpu.cores}."
        )
    if memory_bytes is not None and memory_bytes > cpu.memory_bytes:
        raise UserError(
            f"The budget {text!r} needs {size_text(memory_bytes)} of memory, but this process may use only "
            f"{size_text(cpu.memory_bytes)}: use at most memory={cpu.memory_bytes // 2**20}MiB."
        )
    return _cores(text, cores, cpu, memory_bytes)


def _cores(name: str, cores: int, cpu: Device, memory_bytes: int | None = None) -> Budget:
    # a process bound to fewer cores than the machine has also runs on a part of a larger machine
    emulated = cores < (cpu.machine_cores or cpu.cores) or memory_bytes is not None
    tier = match_tier(cpu) if cores == cpu.cores else cpu_tier(cores)
    missing = OF_A_CPU if emulated else ()
    return Budget(name, cores, memory_bytes, tier=tier and tier.name, emulated=emulated, not_emulated=missing)


def _stand_in(name: str, tier: Tier, devices: list[Device]) -> Budget:
    """The budget that comes closest to a tier on this machine (docs/budgets.md)."""
    if tier.kind == "server":
        raise UserError(
            f"The budget {name!r} is a server with several devices, which no budget can stand in for. Its figures are "
            f"used in predictions only: see `labkit tiers {tier.name}`."
        )
    own = [device for device in devices if tier_name(device) == tier.name]
    if tier.kind == "gpu":
        return _gpu_stand_in(name, tier, own, devices)
    cpu = devices[0]
    # generic CPU tiers differ only in their number of cores, so only a board can be the tier itself
    if own and tier.kind == "edge":
        return Budget(name, cpu.cores, tier=tier.name)
    cores, memory = tier.cores, tier.memory_gb and int(tier.memory_gb * 1e9)
    missing = list(OF_A_CPU)
    if cores > cpu.cores:
        if tier.kind != "edge":
            raise UserError(
                f"The budget {name!r} has {cores} cores, but this process may use only {cpu.cores}, and a budget can "
                "only make a machine smaller: choose one that `labkit budgets` lists."
            )
        missing.append(f"{cpu.cores} of its {cores} cores")
        cores = cpu.cores
    if memory and memory >= cpu.memory_bytes:
        missing.append(f"its {size_text(memory)} of memory (here {size_text(cpu.memory_bytes)})")
        memory = None
    if cores == cpu.cores and memory is None:
        raise UserError(f"The budget {name!r} is no smaller than this machine: choose all-cores instead.")
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
        raise UserError(
            f"The budget {name!r} needs the FP32 peak of {unknown}, which is not in the catalogue: choose another one "
            "that `labkit budgets` lists."
        )
    share = tier.fp32_tflops / whole.fp32_tflops
    if share > 1 or tier.memory_gb * 1e9 > gpu.memory_bytes:
        raise UserError(
            f"The budget {name!r} stands for {tier.label} ({tier.fp32_tflops:g} TFLOP/s, {tier.memory_gb:g} GB), which "
            f"is more than {gpu.name} has ({whole.fp32_tflops:g} TFLOP/s, {gpu.memory_bytes / 1e9:.0f} GB), and a "
            "budget can only make a GPU smaller: choose one that `labkit budgets` lists."
        )
    missing = list(OF_A_GPU)
    if tier.bandwidth_gb_s and whole.bandwidth_gb_s:
        missing[0] = f"memory bandwidth ({tier.bandwidth_gb_s:g} GB/s, here {whole.bandwidth_gb_s:g})"
    # a share cannot be less than one multiprocessor
    percent = max(100 * share, 100 / gpu.sm_count if gpu.sm_count else 1.0)
    return _part_of_gpu(name, gpu, round(percent, 1), int(tier.memory_gb * 1e9), missing, tier.name)


def _part_of_gpu(name: str, gpu: Device, percent: float, memory_bytes: int, missing, tier: str | None = None) -> Budget:
    part = {"torch_name": gpu.torch_name, "gpu_percent": percent, "gpu_memory_bytes": memory_bytes}
    return Budget(name, None, tier=tier, emulated=True, not_emulated=tuple(missing), **part)


def _divisible_gpu(name: str, devices: list[Device]) -> Device:
    """The first GPU, if CUDA MPS can give out a share of it."""
    gpu = next((device for device in devices[1:] if device.torch_name), None)
    if gpu is None:
        raise UserError(
            f"The budget {name!r} is a share of an NVIDIA GPU, and this machine has none that CUDA can use: run "
            "`labkit doctor` to see why, or choose a CPU budget, such as one-core, half or jetson-nano-like."
        )
    mps = find_mps()
    if not mps["available"]:
        raise UserError(f"The budget {name!r} needs CUDA MPS to bind: {mps['note']}.")
    if gpu.kind == "mig":
        raise UserError(
            f"The budget {name!r} is a share of a whole GPU, but this process has a MIG slice, which is already a "
            "share: use --budget gpu."
        )
    return gpu

"""The names of budgets: what this machine offers, and what a user may ask for."""

from __future__ import annotations

from labkit.errors import UserError
from labkit.hardware.budgets.budget import Budget
from labkit.hardware.budgets.stand_ins import LIKE, OF_A_CPU, half_of_cpu, half_of_gpu, stand_in
from labkit.hardware.cpu import read_cpu
from labkit.hardware.device import Device
from labkit.hardware.devices import get_devices
from labkit.hardware.sizes import parse_size, size_text
from labkit.hardware.tiers import cpu_tier, load_tiers, match_tier


def offered_budgets(devices: list[Device] | None = None) -> list[Budget]:
    """Return the budgets this machine offers: one-core, all-cores where there are several, and each GPU."""
    devices = get_devices() if devices is None else devices
    cores, whole = devices[0].cores, devices[0].machine_cores or devices[0].cores
    budgets = [_cores("one-core", 1, devices[0], emulated=whole > 1)]
    if cores > 1:
        # a process that is bound to fewer cores than there are has a part of a larger machine, too
        emulated = cores < whole
        budgets.append(_cores("all-cores", cores, devices[0], emulated=emulated))
    gpus = [device for device in devices[1:] if device.torch_name is not None]
    for number, device in enumerate(gpus):
        tier = match_tier(device)
        name = "gpu" if len(gpus) == 1 else f"gpu:{number}"
        budgets.append(Budget(name, None, torch_name=device.torch_name, tier=tier and tier.name))
    return budgets


def beside_a_view(devices: list[Device] | None = None) -> str:
    """The budget of a run that is watched in a browser on this machine: its GPU, or all cores but one.

    On all cores, threads that wait for each other would lose far more than the core that the browser takes.
    """
    devices = get_devices() if devices is None else devices
    offered = offered_budgets(devices)
    if offered[-1].torch_name != "cpu":
        return next(budget.name for budget in offered if budget.torch_name != "cpu")
    return "one-core" if devices[0].cores <= 2 else f"cores={devices[0].cores - 1}"


def parse_budget(text: str, devices: list[Device] | None = None) -> Budget:
    """Return the budget a user named.

    That is an offered one, `half`, `half-gpu`, a tier of the catalogue (`t4` or `t4-like`), or `cores=N[,memory=2GiB]`.

    Raises:
        UserError: the name is unknown, or the budget is larger than the machine or cannot be enforced on it.
    """
    devices = get_devices() if devices is None else devices
    offered = {budget.name: budget for budget in offered_budgets(devices)}
    if "all-cores" not in offered:
        offered["all-cores"] = offered["one-core"]
    if "gpu:0" in offered:
        offered["gpu"] = offered["gpu:0"]
    if text in offered:
        return offered[text]
    if text in ("half", "half-gpu"):
        return half_of_cpu(devices[0]) if text == "half" else half_of_gpu(devices)
    if text.removesuffix(LIKE) in load_tiers():
        return stand_in(text, devices)
    if "=" in text:
        return _own_budget(text, devices[0])
    if text == "gpu" or text.startswith("gpu:"):
        reachable = sum(device.torch_name is not None for device in devices[1:])
        raise UserError(
            f"The budget {text!r} needs a GPU that CUDA can use, and this machine has {reachable or 'none'}. "
            f"`labkit doctor` says what it found and why; {_offer(offered)}"
        )
    raise UserError(f"There is no budget called {text!r}: {_offer(offered)}")


def _own_budget(text: str, cpu: Device) -> Budget:
    asked: dict[str, int] = {}
    for part in text.split(","):
        key, _, value = (piece.strip() for piece in part.partition("="))
        if key in asked:
            raise UserError(f"The budget {text!r} says {key}= twice: leave one of the two away.")
        if key == "cores" and value.isdecimal() and int(value) > 0:
            asked["cores"] = int(value)
        elif key == "memory" and value[-1:].isalpha() and parse_size(value):
            asked["memory"] = parse_size(value)
        else:
            raise UserError(
                f"The part {part.strip()!r} of the budget {text!r} is not understood. Write cores=N with N "
                "at least 1, and memory= with a unit, as in cores=2,memory=2GiB."
            )
    cores, memory_bytes = asked.get("cores", cpu.cores), asked.get("memory")
    if cores > cpu.cores:
        raise UserError(
            f"The budget {text!r} asks for {cores} cores and this process may use {cpu.cores} "
            f"(of {read_cpu().logical_cores} in the machine). Ask for at most cores={cpu.cores}."
        )
    if memory_bytes is not None and memory_bytes > cpu.memory_bytes:
        raise UserError(
            f"The budget {text!r} asks for {size_text(memory_bytes)} of memory and this process may use "
            f"{size_text(cpu.memory_bytes)}. Ask for at most memory={cpu.memory_bytes // 2**20}MiB."
        )
    emulated = cores < (cpu.machine_cores or cpu.cores) or memory_bytes is not None
    return _cores(text, cores, cpu, memory_bytes, emulated=emulated)


def _cores(name: str, cores: int, cpu: Device, memory_bytes: int | None = None, *, emulated: bool) -> Budget:
    tier = match_tier(cpu) if cores == cpu.cores else cpu_tier(cores)
    missing = OF_A_CPU if emulated else ()
    return Budget(name, cores, memory_bytes, tier=tier and tier.name, emulated=emulated, not_emulated=missing)


def _offer(offered: dict[str, Budget]) -> str:
    return (
        f"this machine offers {', '.join(offered)}, half, tiers of the catalogue (`labkit budgets` lists them), and "
        "cores=N,memory=2GiB for one of your own."
    )


def possible_budgets(devices: list[Device] | None = None) -> tuple[list[Budget], dict[str, str]]:
    """Every named budget: those that can be enforced here, and why the others cannot."""
    devices = get_devices() if devices is None else devices
    possible, refused = offered_budgets(devices), {}
    for name in ("half", "half-gpu", *(f"{tier}{LIKE}" for tier in load_tiers())):
        try:
            budget = parse_budget(name, devices)
        except UserError as error:
            refused[name] = str(error)
            continue
        # the machine itself, under another name, is not told twice
        if budget.emulated:
            possible.append(budget)
    return possible, refused

"""Budgets: how much of this machine a run may use, and what makes it bind."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from labkit.errors import UserError
from labkit.hardware.cpu import core_order, read_cpu
from labkit.hardware.device import Device
from labkit.hardware.devices import get_devices
from labkit.hardware.sizes import parse_size, size_text, size_value
from labkit.hardware.tiers import cpu_tier, match_tier

try:
    import resource
except ImportError:  # Windows has no resource limits
    resource = None

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "ARROW_NUM_THREADS",
    "RAYON_NUM_THREADS",
)
"""Each numerical library reads its own variable, once, when it is loaded."""


@dataclass(frozen=True)
class Budget:
    """What a run may use."""

    name: str
    cores: int | None
    """CPU cores, or None where the CPU is not limited"""
    memory_bytes: int | None = None
    """Cap on the process' own memory, or None"""
    torch_name: str = "cpu"
    """cpu, or cuda:0 and so on"""
    tier: str | None = None
    """Name of the catalogue's tier for these resources"""
    emulated: bool = False
    """Whether this is less than the whole machine, enforced here"""

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-able data."""
        return asdict(self)

    def environment(self) -> dict[str, str]:
        """Return the variables that make a child process start with this many threads in every library."""
        return {} if self.cores is None else dict.fromkeys(THREAD_VARIABLES, str(self.cores))

    def enforce(self) -> list[str]:
        """Bind this process to the budget and return, in words, what this system cannot enforce.

        Cores bind by CPU affinity of every thread that runs already (new ones inherit it).

        Memory binds by RLIMIT_DATA: Linux counts private writable memory against it, and an allocation
        beyond it fails where it is made, so the run ends with an error and the machine stays up. RLIMIT_AS
        would count address space that torch and CUDA reserve and never touch; a memory control group would
        let the kernel kill the process without a word.

        Raises:
            UserError: the process already uses more memory than the cap.
        """
        notes = _late_libraries(self.environment())
        os.environ.update(self.environment())
        if self.cores is not None:
            notes += _bind_cores(self.cores)
        if self.memory_bytes is not None:
            notes += _cap_memory(self)
        return notes

    @contextlib.contextmanager
    def memory_guard(self, device: Device, batch_size: int) -> Iterator[None]:
        """Turn running out of memory inside the block into the named error of `memory_error`."""
        try:
            yield
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            raise memory_error(self, device, batch_size, error) from error


def offered_budgets(devices: list[Device] | None = None) -> list[Budget]:
    """Return the budgets this machine offers: one-core, all-cores where there are several, and each GPU."""
    devices = get_devices() if devices is None else devices
    cores, whole = devices[0].cores, devices[0].machine_cores or devices[0].cores
    budgets = [Budget("one-core", 1, tier=_cpu_tier_name(devices[0], 1), emulated=whole > 1)]
    if cores > 1:
        # a process that is bound to fewer cores than there are has a part of a larger machine, too
        emulated = cores < whole
        budgets.append(Budget("all-cores", cores, tier=_cpu_tier_name(devices[0], cores), emulated=emulated))
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
    """Return the budget a user named: an offered one, or `cores=N[,memory=2GiB]`.

    Raises:
        UserError: the name is unknown, or the budget is larger than the machine.
    """
    devices = get_devices() if devices is None else devices
    offered = {budget.name: budget for budget in offered_budgets(devices)}
    if "all-cores" not in offered:
        offered["all-cores"] = offered["one-core"]
    if "gpu:0" in offered:
        offered["gpu"] = offered["gpu:0"]
    if text in offered:
        return offered[text]
    if "=" in text:
        return _own_budget(text, devices[0])
    if text == "gpu" or text.startswith("gpu:"):
        reachable = sum(device.torch_name is not None for device in devices[1:])
        raise UserError(
            f"The budget {text!r} needs a GPU that CUDA can use, and this machine has {reachable or 'none'}. "
            f"`labkit doctor` says what it found and why; {_offer(offered)}"
        )
    raise UserError(f"There is no budget called {text!r}: {_offer(offered)}")


def memory_error(budget: Budget, device: Device, batch_size: int, error: Exception) -> UserError:
    """Return the error a run ends with when it needs more memory than its budget, its GPU or the machine has."""
    smaller = f"make it smaller: a --batch-size below {batch_size}, or a smaller preset"
    if type(error).__name__ == "OutOfMemoryError":  # torch's, for a GPU
        has = f" ({size_text(device.memory_bytes)})" if device.memory_bytes else ""
        return UserError(f"The run needs more memory than {device.name} has{has}, so it was stopped: {smaller}.")
    if budget.memory_bytes is None:
        said = f" ({error})" if str(error) else ""
        return UserError(f"This machine had no more memory for the run{said}: close other programs, or {smaller}.")
    cap = size_text(budget.memory_bytes)
    return UserError(
        f"The run needs more memory than its budget {budget.name!r} allows ({cap}), so it was stopped and "
        "nothing else on this machine was touched. Give it more (for example --budget "
        f"cores={budget.cores},memory={size_value(2 * budget.memory_bytes)}), or {smaller}."
    )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of Python, NumPy, Arrow or torch means that memory ran out."""
    if isinstance(error, MemoryError):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    signs = (
        "can't allocate memory",
        "cannot allocate memory",
        "bad_alloc",
        "out of memory",
        "can't start new thread",
    )
    return isinstance(error, RuntimeError) and any(sign in str(error).lower() for sign in signs)


def _late_libraries(environment: dict[str, str]) -> list[str]:
    if int(environment.get("OMP_NUM_THREADS", 0)) >= (os.cpu_count() or 1):
        return []
    started_so = all(os.environ.get(name) == value for name, value in environment.items())
    if started_so or "numpy" not in sys.modules:
        return []
    return [
        "NumPy was loaded before the budget was set: it keeps its number of threads, on the budget's cores. "
        "A process started with the budget's environment has it right from the start."
    ]


def _bind_cores(cores: int) -> list[str]:
    if not hasattr(os, "sched_setaffinity"):
        return [
            "This system has no CPU affinity: the budget sets the number of threads of every library, but "
            f"does not keep them on {cores} core{'s' * (cores > 1)}."
        ]
    chosen = core_order()[:cores]
    for task in Path("/proc/self/task").iterdir():
        # A thread may end between being listed and being bound.
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(task.name), chosen)
    return []


def _cap_memory(budget: Budget) -> list[str]:
    if resource is None or not Path("/proc/self/status").is_file():
        return [f"This system cannot cap a process' memory: the {size_text(budget.memory_bytes)} do not bind."]
    used = _data_bytes()
    if used >= budget.memory_bytes:
        raise UserError(
            f"The budget {budget.name!r} allows {size_text(budget.memory_bytes)}, but Python and its libraries "
            f"already use {size_text(used)} before the run starts. Give it more, for example --budget "
            f"cores={budget.cores},memory={size_value(max(2 * used, 2**31))}."
        )
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    cap = budget.memory_bytes if hard == resource.RLIM_INFINITY else min(budget.memory_bytes, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (cap, hard))
    return ["The memory cap counts this process' own memory; files it maps (the prepared data) are not counted."]


def _data_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"^VmData:\s+(\d+) kB", status, re.MULTILINE)[1]) * 1024


def _own_budget(text: str, cpu: Device) -> Budget:
    asked: dict[str, int] = {}
    for part in text.split(","):
        key, _, value = (piece.strip() for piece in part.partition("="))
        if key == "cores" and value.isdecimal() and int(value) > 0:
            asked["cores"] = int(value)
        elif key == "memory" and parse_size(value):
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
    return Budget(text, cores, memory_bytes, tier=_cpu_tier_name(cpu, cores), emulated=emulated)


def _cpu_tier_name(cpu: Device, cores: int) -> str | None:
    tier = match_tier(cpu) if cores == cpu.cores else cpu_tier(cores)
    return tier and tier.name


def _offer(offered: dict[str, Budget]) -> str:
    return f"this machine offers {', '.join(offered)}, and cores=N,memory=2GiB for one of your own."

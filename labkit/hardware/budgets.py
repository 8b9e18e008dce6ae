"""Budgets: what part of this machine a run may use, by name, and what makes that bind."""

import contextlib
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from labkit import UserError, errors
from labkit.hardware import memory_watch
from labkit.hardware.cpu import parse_size, size_text
from labkit.hardware.devices import Device, get_devices
from labkit.hardware.leases import lease_cores
from labkit.hardware.mps import find_mps, start_mps
from labkit.hardware.tiers import Tier, cpu_tier, get_tier, load_tiers, match_tier, tier_name

THREAD_VARIABLES = (
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"),
    *("NUMEXPR_NUM_THREADS", "NUMBA_NUM_THREADS", "ARROW_NUM_THREADS", "RAYON_NUM_THREADS"),
)
"""Variables with the number of threads. Each numerical library reads its own, once, when it is loaded."""
_guards: list[subprocess.Popen] = []
"""Guard of this process' MPS daemon; its pipe must stay open as long as the process lives."""


@dataclass(frozen=True)
class Budget:
    """What a run may use. A limit of None is no limit."""

    name: str
    cores: int | None
    """CPU cores."""
    memory_bytes: int | None = None
    """Limit on the memory of the run's processes."""
    torch_name: str = "cpu"
    """cpu, cuda:0 and so on."""
    tier: str | None = None
    """Catalogue tier of these resources."""
    emulated: bool = False
    """Whether this is less than the whole machine."""
    gpu_percent: float | None = None
    """Share of the GPU's multiprocessors that kernels may use at once (CUDA MPS), in %."""
    gpu_memory_bytes: int | None = None
    """Limit on the GPU memory that the process allocates."""
    not_emulated: tuple[str, ...] = ()
    """Differences from the hardware that this stands in for."""

    def allows(self) -> str:
        """What a run may use, as text."""
        parts = [f"{self.cores} core{'s' * (self.cores > 1)}"] if self.cores else []
        parts += [size_text(self.memory_bytes)] if self.memory_bytes else []
        share = f"{self.gpu_percent:g} % of " if self.gpu_percent else ""
        parts += [f"{share}{self.torch_name}"] if self.torch_name != "cpu" else []
        parts += [f"{size_text(self.gpu_memory_bytes)} of its memory"] if self.gpu_memory_bytes else []
        return ", ".join(parts)

    def with_memory(self, memory_bytes: int) -> str:
        """Its cores with that much memory, as the flag of a command, such as "--budget cores=2,memory=2GiB"."""
        cores = "" if self.cores is None else f"cores={self.cores},"
        return f"--budget {cores}memory={size_text(memory_bytes).replace(' ', '')}"

    def environment(self) -> dict[str, str]:
        """Return the variables that set the number of threads of every library in a child process."""
        variables = {} if self.cores is None else dict.fromkeys(THREAD_VARIABLES, str(self.cores))
        if self.gpu_percent is not None:
            variables["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = f"{self.gpu_percent:g}"
        return variables

    def enforce(self) -> list[str]:
        """Bind this process to the budget. Returns notes on what this system cannot enforce."""
        os.environ.update(self.environment())
        return [*self.take_cores(), *self.cap_memory()]

    def cap_memory(self, at_end: str | None = None, outlet: int | None = None) -> list[str]:
        """Start a watch that ends this process with an error above its memory limit.

        A limit on address space (RLIMIT_DATA, RLIMIT_AS) would not do: oneDNN reserves 2 GiB of it that it never
        touches, and some of torch's libraries crash when an allocation fails.

        Args:
            at_end: function that records the end if the process has to be killed (see `memory_watch.start`).
            outlet: file descriptor for that function.

        Returns:
            Notes on what this system cannot enforce.

        Raises:
            UserError: the process already uses more memory than the limit.
        """
        if self.memory_bytes is None:
            return []
        used = memory_watch.held(os.getpid())
        if used is None:
            return [f"This system cannot limit a process' memory to {size_text(self.memory_bytes)}."]
        if used >= self.memory_bytes:
            raise UserError(
                f"The budget {self.name!r} allows {size_text(self.memory_bytes)}, but Python and its libraries "
                f"already use {size_text(used)} before the run starts: give it more, for example "
                f"{self.with_memory(max(2 * used, 2**31))}."
            )
        memory_watch.start(self, at_end, outlet)
        return []

    def take_cores(self, **how: Any) -> list[str]:
        """Bind this process to cores that no other labkit process holds; the arguments are those of `lease_cores`.

        This sets the CPU affinity of every running thread; new threads inherit it.

        Returns:
            Notes on what this system cannot enforce.
        """
        if self.cores is None:
            return []
        cores = lease_cores(self.cores, **how)
        if not hasattr(os, "sched_setaffinity"):
            return [
                "This system has no CPU affinity: the budget sets the number of threads of every library, but cannot "
                f"keep them on {self.cores} core{'s' * (self.cores > 1)} or keep other runs off those cores."
            ]
        for task in Path("/proc/self/task").iterdir():
            # a thread may end after it was listed
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(task.name), cores)
        return []

    def share_gpu(self) -> None:
        """Bind this process to its share of the GPU; CUDA must not have started in it.

        Raises:
            UserError: CUDA has already started, or CUDA MPS does not start.
        """
        if self.gpu_percent is None:
            return
        if (torch := sys.modules.get("torch")) is not None and torch.cuda.is_initialized():
            raise UserError(
                f"The budget {self.name!r} cannot be enforced, because this process already uses CUDA: start the run "
                "in a process of its own, as `labkit train` does."
            )
        environment, guard = start_mps()
        os.environ.update(environment | self.environment())
        _guards.append(guard)

    def bind_torch(self) -> None:
        """Bind torch in this process to the budget's threads, and to its share of the GPU and its memory."""
        self.share_gpu()
        import torch

        if self.cores is not None:
            torch.set_num_threads(self.cores)
        if self.torch_name == "cpu":
            return
        if not torch.cuda.is_available():
            raise UserError(
                f"This torch ({torch.__version__}) cannot use the GPU {self.torch_name}: install a CUDA build "
                "(https://pytorch.org/get-started/locally), or train with --device cpu."
            )
        whole = torch.cuda.get_device_properties(self.torch_name).total_memory
        part = self.gpu_memory_bytes / whole if self.gpu_memory_bytes else 1.0
        torch.cuda.set_per_process_memory_fraction(part, torch.device(self.torch_name))


def set_threads(count: int) -> None:
    """Set the number of threads of the libraries that this process inherited loaded, for which variables come too late.

    torch has `bind_torch`, and pyarrow makes its threads when it needs them.
    """
    import threadpoolctl

    threadpoolctl.ThreadpoolController().select(internal_api="openblas").limit(limits=count)
    if (numba := sys.modules.get("numba")) is not None:
        numba.config.reload_config()


LIKE = "-like"
OF_A_CPU = ("memory bandwidth", "caches", "clocks and instruction sets")
OF_A_GPU = ("memory bandwidth", "L2 cache", "clocks", "precisions", "power")
"""Properties of a machine that no budget changes."""


def offered_budgets(devices: list[Device] | None = None) -> list[Budget]:
    """Return the budgets this machine offers: one-core, all-cores if it has several, and each GPU."""
    cpu, *gpus = get_devices() if devices is None else devices
    budgets = [_cores("one-core", 1, cpu)]
    if (cores := errors.certain(cpu.cores)) > 1:
        budgets.append(_cores("all-cores", cores, cpu))
    gpus = [gpu for gpu in gpus if gpu.torch_name is not None]
    for number, gpu in enumerate(gpus):
        name = "gpu" if len(gpus) == 1 else f"gpu:{number}"
        budgets.append(Budget(name, None, torch_name=errors.certain(gpu.torch_name), tier=tier_name(gpu)))
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
        cores, memory_bytes = errors.certain(devices[0].cores), errors.certain(devices[0].memory_bytes)
        return _cores("half", max(1, cores // 2), devices[0], memory_bytes // 2)
    if text == "half-gpu":
        gpu, memory_bytes = _divisible_gpu(text, devices)
        return _part_of_gpu(text, gpu, 50.0, memory_bytes // 2, OF_A_GPU)
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
    most_cores, most_bytes = errors.certain(cpu.cores), errors.certain(cpu.memory_bytes)
    cores, memory_bytes = limits.get("cores", most_cores), limits.get("memory")
    if cores > most_cores:
        raise UserError(
            f"The budget {text!r} needs {cores} cores, but this process may use only {cpu.cores} (the machine has "
            f"{cpu.machine_cores or cpu.cores}): use at most cores={cpu.cores}."
        )
    if memory_bytes is not None and memory_bytes > most_bytes:
        raise UserError(
            f"The budget {text!r} needs {size_text(memory_bytes)} of memory, but this process may use only "
            f"{size_text(most_bytes)}: use at most memory={most_bytes // 2**20}MiB."
        )
    # a limit on memory alone takes no core from others
    return replace(_cores(text, cores, cpu, memory_bytes), cores=limits.get("cores"))


def _cores(name: str, cores: int, cpu: Device, memory_bytes: int | None = None) -> Budget:
    # a process bound to fewer cores than the machine has also runs on a part of a larger machine
    emulated = cores < errors.certain(cpu.machine_cores or cpu.cores) or memory_bytes is not None
    tier = match_tier(cpu) if cores == cpu.cores else cpu_tier(cores)
    missing = OF_A_CPU if emulated else ()
    return Budget(name, cores, memory_bytes, tier=tier.name if tier else None, emulated=emulated, not_emulated=missing)


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
    cores, memory = errors.certain(tier.cores), int(tier.memory_gb * 1e9) if tier.memory_gb else None
    most_cores, most_bytes = errors.certain(cpu.cores), errors.certain(cpu.memory_bytes)
    missing = list(OF_A_CPU)
    if cores > most_cores:
        if tier.kind != "edge":
            raise UserError(
                f"The budget {name!r} has {cores} cores, but this process may use only {cpu.cores}, and a budget can "
                "only make a machine smaller: choose one that `labkit budgets` lists."
            )
        missing.append(f"{most_cores} of its {cores} cores")
        cores = most_cores
    if memory and memory >= most_bytes:
        missing.append(f"its {size_text(memory)} of memory (here {size_text(most_bytes)})")
        memory = None
    if cores == most_cores and memory is None:
        raise UserError(f"The budget {name!r} is no smaller than this machine: choose all-cores instead.")
    if tier.fp32_tflops:
        missing.append("its GPU")
    return Budget(name, cores, memory, tier=tier.name, emulated=True, not_emulated=tuple(missing))


def _gpu_stand_in(name: str, tier: Tier, own: list[Device], devices: list[Device]) -> Budget:
    if own and own[0].torch_name:
        return Budget(name, None, torch_name=own[0].torch_name, tier=tier.name)
    gpu, memory_bytes = _divisible_gpu(name, devices)
    whole = match_tier(gpu)
    if whole is None or not whole.fp32_tflops or not tier.fp32_tflops:
        unknown = tier.label if whole and whole.fp32_tflops else gpu.name
        raise UserError(
            f"The budget {name!r} needs the FP32 peak of {unknown}, which is not in the catalogue: choose another one "
            "that `labkit budgets` lists."
        )
    share, memory_gb = tier.fp32_tflops / whole.fp32_tflops, errors.certain(tier.memory_gb)
    if share > 1 or memory_gb * 1e9 > memory_bytes:
        raise UserError(
            f"The budget {name!r} stands for {tier.label} ({tier.fp32_tflops:g} TFLOP/s, {memory_gb:g} GB), which "
            f"is more than {gpu.name} has ({whole.fp32_tflops:g} TFLOP/s, {memory_bytes / 1e9:.0f} GB), and a "
            "budget can only make a GPU smaller: choose one that `labkit budgets` lists."
        )
    missing = list(OF_A_GPU)
    if tier.bandwidth_gb_s and whole.bandwidth_gb_s:
        missing[0] = f"memory bandwidth ({tier.bandwidth_gb_s:g} GB/s, here {whole.bandwidth_gb_s:g})"
    # a share cannot be less than one multiprocessor
    percent = max(100 * share, 100 / gpu.sm_count if gpu.sm_count else 1.0)
    return _part_of_gpu(name, gpu, round(percent, 1), int(memory_gb * 1e9), missing, tier.name)


def _part_of_gpu(name: str, gpu: Device, percent: float, memory_bytes: int, missing, tier: str | None = None) -> Budget:
    part: dict[str, Any] = {"torch_name": gpu.torch_name, "gpu_percent": percent, "gpu_memory_bytes": memory_bytes}
    return Budget(name, None, tier=tier, emulated=True, not_emulated=tuple(missing), **part)


def _divisible_gpu(name: str, devices: list[Device]) -> tuple[Device, int]:
    """The first GPU, if CUDA MPS can give out a share of it, and its memory in bytes."""
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
    if gpu.memory_bytes is None:
        why = gpu.missing.get("memory_bytes", "its driver does not report it")
        raise UserError(f"The budget {name!r} is a share of a GPU whose memory is unknown ({why}): use --budget gpu.")
    return gpu, gpu.memory_bytes

"""What makes a budget bind: cores by affinity and threads, memory by a watch that ends the run with a named error."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from labkit.errors import UserError
from labkit.hardware.budgets import memory_watch
from labkit.hardware.device import Device
from labkit.hardware.leases import lease_cores
from labkit.hardware.sizes import size_text, size_value

THREAD_VARIABLES = (
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"),
    *("NUMEXPR_NUM_THREADS", "NUMBA_NUM_THREADS", "ARROW_NUM_THREADS", "RAYON_NUM_THREADS"),
)
"""Each numerical library reads its own variable, once, when it is loaded."""
_guards: list[subprocess.Popen] = []
"""That of this process' MPS daemon, whose pipe must stay open as long as it lives"""


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
    gpu_percent: float | None = None
    """Share of the GPU's multiprocessors that kernels may use at once (CUDA MPS), or None"""
    gpu_memory_bytes: int | None = None
    """Cap on what the process allocates on the GPU, or None"""
    not_emulated: tuple[str, ...] = ()
    """What differs from the hardware that this stands in for, in words"""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Budget:
        return cls(**values | {"not_emulated": tuple(values["not_emulated"])})

    def allows(self) -> str:
        """Say in words what a run may use."""
        parts = [f"{self.cores} core{'s' * (self.cores > 1)}"] if self.cores else []
        parts += [size_text(self.memory_bytes)] if self.memory_bytes else []
        share = f"{self.gpu_percent:g} % of " if self.gpu_percent else ""
        parts += [f"{share}{self.torch_name}"] if self.torch_name != "cpu" else []
        parts += [f"{size_text(self.gpu_memory_bytes)} of its memory"] if self.gpu_memory_bytes else []
        return ", ".join(parts)

    def environment(self) -> dict[str, str]:
        """Return the variables that make a child process start with this many threads in every library."""
        variables = {} if self.cores is None else dict.fromkeys(THREAD_VARIABLES, str(self.cores))
        if self.gpu_percent is not None:
            variables["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = f"{self.gpu_percent:g}"
        return variables

    def enforce(self) -> list[str]:
        """Bind this process to the budget and return, in words, what this system cannot enforce."""
        os.environ.update(self.environment())
        return [*self.take_cores(), *self.cap_memory()]

    def cap_memory(self, at_end: str | None = None, files: Sequence[int] = ()) -> list[str]:
        """Have a watch beside this process end it with an error beyond its memory; what this system cannot enforce.

        No limit of address space binds (RLIMIT_DATA, RLIMIT_AS): oneDNN reserves two GiB of it that it never touches,
        and torch's libraries do not all survive an allocation that fails.

        Args:
            at_end: records the end should the process have to be killed, as `memory_watch.start` takes it.
            files: descriptors that stay open for it.

        Raises:
            UserError: the process already uses more memory than the cap.
        """
        if self.memory_bytes is None:
            return []
        used = memory_watch.held(os.getpid())
        if used is None:
            words = f"This system cannot cap a process' memory: the {size_text(self.memory_bytes)} do not bind."
            return [words]
        if used >= self.memory_bytes:
            raise UserError(
                f"The budget {self.name!r} allows {size_text(self.memory_bytes)}, but Python and its libraries "
                f"already use {size_text(used)} before the run starts. Give it more, for example --budget "
                f"cores={self.cores},memory={size_value(max(2 * used, 2**31))}."
            )
        memory_watch.start(self.memory_bytes, f"{too_much(self)}.", at_end, files)
        return []

    def take_cores(
        self,
        *,
        waits: bool = True,
        say: Callable[[str], None] = lambda words: print(words, file=sys.stderr),
        stopped: Callable[[], bool] = lambda: False,
    ) -> list[str]:
        """Bind this process to cores that no other process of labkit holds, as `lease_cores` takes them.

        They bind by CPU affinity of every thread that runs already; new ones inherit it.

        Returns:
            In words, what this system cannot enforce.
        """
        if self.cores is None:
            return []
        cores = lease_cores(self.cores, waits=waits, say=say, stopped=stopped)
        if not hasattr(os, "sched_setaffinity"):
            return [
                "This system has no CPU affinity: the budget sets the number of threads of every library, but does not "
                f"keep them on {self.cores} core{'s' * (self.cores > 1)}, nor other runs away from them."
            ]
        for task in Path("/proc/self/task").iterdir():
            # A thread may end between being listed and being bound.
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(task.name), cores)
        return []

    def share_gpu(self) -> None:
        """Bind this process to its share of the GPU, from here on and before CUDA begins in it.

        Raises:
            UserError: CUDA has begun, or CUDA MPS does not start.
        """
        if self.gpu_percent is None:
            return
        if (torch := sys.modules.get("torch")) is not None and torch.cuda.is_initialized():
            raise UserError(
                f"The budget {self.name!r} cannot bind any more: this process uses CUDA already, for as long as it "
                "lives. Start the run in a process of its own, as `labkit train` does."
            )
        from labkit.hardware.budgets.mps import start_mps

        environment, guard = start_mps()
        os.environ.update(environment | self.environment())
        _guards.append(guard)

    def bind_torch(self) -> None:
        """Bind torch in this process to the budget's threads and to its share of the GPU and of the GPU's memory."""
        self.share_gpu()
        import torch

        if self.cores is not None:
            torch.set_num_threads(self.cores)
        if self.torch_name == "cpu":
            return
        if not torch.cuda.is_available():
            raise UserError(
                f"the GPU {self.torch_name} is there, but this torch ({torch.__version__}) cannot use it: install a "
                "CUDA build (https://pytorch.org/get-started/locally), or train with --device cpu."
            )
        whole = torch.cuda.get_device_properties(self.torch_name).total_memory
        part = self.gpu_memory_bytes / whole if self.gpu_memory_bytes else 1.0
        torch.cuda.set_per_process_memory_fraction(part, torch.device(self.torch_name))


def memory_error(budget: Budget, device: Device, error: Exception) -> UserError:
    """Return the error a run ends with when it needs more memory than its budget, its GPU or the machine has."""
    smaller = "make it smaller: its batch (--batch-size of labkit's jobs), or its model (--preset)"
    if type(error).__name__ == "OutOfMemoryError":  # torch's, for a GPU
        if budget.gpu_memory_bytes is not None:
            return UserError(
                f"The run needs more GPU memory than its budget {budget.name!r} allows "
                f"({size_text(budget.gpu_memory_bytes)}), so it was stopped: {smaller}, or give it a larger budget."
            )
        has = f" ({size_text(device.memory_bytes)})" if device.memory_bytes else ""
        return UserError(f"The run needs more memory than {device.name} has{has}, so it was stopped: {smaller}.")
    if budget.memory_bytes is not None:
        return UserError(f"{too_much(budget)}, or {smaller}.")
    said = f" ({error})" if str(error) else ""
    return UserError(f"This machine had no more memory for the run{said}: close other programs, or {smaller}.")


def too_much(budget: Budget) -> str:
    """Why its budget of memory stopped a run, as a sentence without its full stop."""
    cores = "" if budget.cores is None else f"cores={budget.cores},"
    return (
        f"The run needs more memory than its budget {budget.name!r} allows ({size_text(budget.memory_bytes)}), so it "
        "was stopped and nothing else on this machine was touched. Give it more (for example --budget "
        f"{cores}memory={size_value(2 * budget.memory_bytes)})"
    )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of Python, NumPy, Arrow or torch means that memory ran out."""
    if isinstance(error, MemoryError) or (memory_watch.is_used_up() and isinstance(error, Exception)):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    signs = (
        "can't allocate memory",
        "cannot allocate memory",
        "bad_alloc",
        "out of memory",
        "can't start new thread",
        r"could not create a (primitive|memory)$",  # oneDNN, whose kernels and buffers need memory, too
    )
    return isinstance(error, RuntimeError) and re.search("|".join(signs), str(error).lower()) is not None

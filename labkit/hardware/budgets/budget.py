"""A budget and its enforcement: cores by affinity and threads, memory by a watch that ends the run with an error."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from labkit import UserError
from labkit.hardware.budgets import memory_watch
from labkit.hardware.cpu import size_text, size_value
from labkit.hardware.devices import Device
from labkit.hardware.leases import lease_cores

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

    def cap_memory(self, at_end: str | None = None, files: Sequence[int] = ()) -> list[str]:
        """Start a watch that ends this process with an error above its memory limit.

        A limit on address space (RLIMIT_DATA, RLIMIT_AS) would not do: oneDNN reserves 2 GiB of it that it never
        touches, and some of torch's libraries crash when an allocation fails.

        Args:
            at_end: function that records the end if the process has to be killed (see `memory_watch.start`).
            files: descriptors that stay open for that function.

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
                f"already use {size_text(used)} before the run starts: give it more, for example --budget "
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
        """Bind this process to cores that no other labkit process holds; the arguments are those of `lease_cores`.

        This sets the CPU affinity of every running thread; new threads inherit it.

        Returns:
            Notes on what this system cannot enforce.
        """
        if self.cores is None:
            return []
        cores = lease_cores(self.cores, waits=waits, say=say, stopped=stopped)
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
        from labkit.hardware.budgets.mps import start_mps

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


def memory_error(budget: Budget, device: Device, error: Exception) -> UserError:
    """Return the error of a run that needs more memory than its budget, its GPU or the machine has."""
    smaller = "make it smaller: reduce its batch (--batch-size in labkit's jobs) or its model (--preset)"
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
    return UserError(f"This machine ran out of memory{said}: close other programs, or {smaller}.")


def too_much(budget: Budget) -> str:
    """Reason why its memory budget stopped a run: a sentence without its full stop."""
    cores = "" if budget.cores is None else f"cores={budget.cores},"
    return (
        f"The run needs more memory than its budget {budget.name!r} allows ({size_text(budget.memory_bytes)}), so it "
        "was stopped and nothing else on this machine was touched. Give it more (for example --budget "
        f"{cores}memory={size_value(2 * budget.memory_bytes)})"
    )


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error from Python, NumPy, Arrow or torch means that memory ran out."""
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
        r"could not create a (primitive|memory)$",  # oneDNN, which also needs memory for kernels and buffers
    )
    return isinstance(error, RuntimeError) and re.search("|".join(signs), str(error).lower()) is not None

"""bf16 where it pays: probed once on each machine, and remembered."""

from __future__ import annotations

import json
import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from labkit.data.store import prepared_root

# Large enough that arithmetic, not the call, is timed. On a CPU that is one hidden layer of the presets at a mid-sized
# batch; a GPU is not busy with less than this.
_SHAPES = {"cpu": (1024, 512, 256), "cuda": (4096, 4096, 4096)}
_CALLS = {"cpu": 1, "cuda": 20}
PROBE = 2
"""Counts the ways this was probed in: what an older labkit measured another way is not remembered."""


@dataclass(frozen=True)
class Precision:
    """The number format a run computes in, and why."""

    name: str
    """"fp32" or "bf16"."""
    reason: str

    def autocast(self, device: torch.device) -> torch.autocast:
        """The context in which the forward pass runs."""
        return torch.autocast(device.type, dtype=torch.bfloat16, enabled=self.name == "bf16")


def choose_precision(wanted: str, device: torch.device) -> Precision:
    """Settle "auto", "fp32" or "bf16" for this device.

    "auto" takes bf16 only where a matrix product is faster in it: CPUs without bf16 arithmetic emulate it and run
    an order of magnitude slower.
    """
    if wanted != "auto":
        return Precision(wanted, "as asked")
    ratio, when = _remembered_ratio(device)
    if ratio > 1.1:  # less would be lost again in the casts around the matrix products
        return Precision("bf16", f"auto: a bf16 matrix product ran {ratio:.2f}x as fast as fp32 here, measured {when}")
    return Precision("fp32", f"auto: a bf16 matrix product ran only {ratio:.2f}x as fast as fp32 here, measured {when}")


def _remembered_ratio(device: torch.device) -> tuple[float, str]:
    path = prepared_root() / "precision.json"
    key = _machine_key(device)
    try:
        answers = json.loads(path.read_text())
    except (OSError, ValueError):
        answers = {}
    if key not in answers:
        answers[key] = {"speedup_bf16": bf16_speedup(device), "when": time.strftime("%Y-%m-%d")}
        _replace(path, json.dumps(answers, indent=1))
    return answers[key]["speedup_bf16"], answers[key]["when"]


def _machine_key(device: torch.device) -> str:
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
    else:
        # the two variables cap the instruction set, which decides whether bf16 is real
        caps = [os.environ.get(name, "") for name in ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA")]
        name = " ".join([platform.processor(), torch.backends.cpu.get_cpu_capability(), *caps]).strip()
        name += f" {_cpu_model()} {torch.get_num_threads()} threads"
    return f"probe {PROBE} | {name} | torch {torch.__version__}"


def _cpu_model() -> str:
    from labkit.hardware.cpu import read_cpu

    return read_cpu().model


def bf16_speedup(device: torch.device) -> float:
    """Time of an fp32 matrix product over that of the same under autocast, casts included; interleaved, best of 7."""
    rows, inner, outer = _SHAPES[device.type]
    a, b = torch.randn(rows, inner, device=device), torch.randn(inner, outer, device=device)
    times: dict[str, list[float]] = {"fp32": [], "bf16": []}
    for _ in range(8):
        for name, taken in times.items():
            taken.append(_product_s(a, b, Precision(name, "probe")))
    # the first of each sets up its kernel
    return min(times["fp32"][1:]) / min(times["bf16"][1:])


def _product_s(a: torch.Tensor, b: torch.Tensor, precision: Precision) -> float:
    """Seconds of a number of products of fp32 operands."""
    with precision.autocast(a.device):
        _synchronise(a.device)
        start = time.perf_counter()
        for _ in range(_CALLS[a.device.type]):
            a @ b
        _synchronise(a.device)
        return time.perf_counter() - start


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)

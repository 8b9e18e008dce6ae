"""fp32 or bf16: a setting of a run, which `auto` fills in by a rule of what computes."""

from __future__ import annotations

import torch

from labkit.hardware import read_cpu


def autocast(precision: str, device: torch.device | str) -> torch.autocast:
    """The context in which a forward pass of that precision runs."""
    return torch.autocast(torch.device(device).type, dtype=torch.bfloat16, enabled=precision == "bf16")


def chosen_precision(asked: str, device: str) -> tuple[str, str]:
    """The precision of a run on that device, and why: for "auto", bf16 where units of their own multiply it."""
    if asked != "auto":
        return asked, "as asked"
    if torch.device(device).type == "cuda":
        capability = torch.cuda.get_device_capability(device)
        precision = "bf16" if capability >= (8, 0) else "fp32"  # bf16 came to the tensor cores with Ampere
        return precision, f"auto: a GPU of compute capability {capability[0]}.{capability[1]}; bf16 from 8.0 on"
    cpu = read_cpu()
    isa = cpu.isa or ()
    if "amx_bf16" in isa:
        return "bf16", "auto: a CPU with AMX's tiles for bf16"
    if "avx512_bf16" in isa and "AMD" in cpu.model:  # an Intel without AMX took twice fp32's time
        return "bf16", "auto: an AMD CPU with AVX-512's bf16"
    return "fp32", "auto: a CPU without fast products in bf16"

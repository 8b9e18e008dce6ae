"""The precision of a run: fp32 or bf16, which `auto` chooses by the device."""

from __future__ import annotations

import torch

from labkit import hardware


def autocast(precision: str, device: torch.device | str) -> torch.autocast:
    """The context for a forward pass in this precision."""
    return torch.autocast(torch.device(device).type, dtype=torch.bfloat16, enabled=precision == "bf16")


def chosen_precision(asked: str, device: str) -> tuple[str, str]:
    """The precision of a run on a device, and the reason: "auto" is bf16 if the device has units for its products."""
    if asked != "auto":
        return asked, "as requested"
    if torch.device(device).type == "cuda":
        capability = torch.cuda.get_device_capability(device)
        precision = "bf16" if capability >= (8, 0) else "fp32"  # tensor cores have bf16 since Ampere
        return precision, f"auto: a GPU of compute capability {capability[0]}.{capability[1]}; bf16 from 8.0 on"
    cpu = hardware.read_cpu()
    isa = cpu.isa or ()
    if "amx_bf16" in isa:
        return "bf16", "auto: a CPU with AMX's tiles for bf16"
    if "avx512_bf16" in isa and "AMD" in cpu.model:  # on an Intel CPU without AMX it took twice the time of fp32
        return "bf16", "auto: an AMD CPU with AVX-512's bf16"
    return "fp32", "auto: a CPU without fast products in bf16"

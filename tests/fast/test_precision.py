"""Which precision `auto` is, by rule."""

from types import SimpleNamespace

import pytest
import torch

from labkit.fast.precision import chosen_precision


@pytest.mark.parametrize(
    ("device", "has", "chosen", "why"),
    [
        ("cuda:0", (7, 5), "fp32", "compute capability 7.5"),
        ("cuda:1", (8, 0), "bf16", "compute capability 8.0"),
        ("Intel", ("avx512", "avx512_bf16", "amx", "amx_int8"), "fp32", "without fast"),
        ("Intel", ("avx512", "amx", "amx_bf16"), "bf16", "with AMX"),
        ("AMD EPYC", ("avx512", "avx512_bf16"), "bf16", "an AMD CPU"),
        ("AMD EPYC", None, "fp32", "without fast"),  # a system that does not say
    ],
)
def test_auto_is_bf16_where_units_of_their_own_multiply_it(device, has, chosen, why, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda on: has)
    cpu = SimpleNamespace(isa=has, model=device)
    monkeypatch.setattr("labkit.hardware.read_cpu", lambda: cpu)
    device = device if device.startswith("cuda") else "cpu"
    assert chosen_precision("auto", device)[0] == chosen
    assert why in chosen_precision("auto", device)[1]
    for asked in ("fp32", "bf16"):
        assert chosen_precision(asked, device) == (asked, "as requested")

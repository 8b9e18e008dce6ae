import pytest
import torch

from labkit.training import precision
from labkit.training.precision import choose_precision

CPU = torch.device("cpu")


@pytest.fixture
def probes(monkeypatch, tmp_path):
    """Replace the probe, whose answers are this machine's, by one that counts its calls."""
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path))
    answers = {"speedup": 0.06, "calls": 0}

    def probe(device):
        answers["calls"] += 1
        return answers["speedup"]

    monkeypatch.setattr(precision, "bf16_speedup", probe)
    return answers


def test_bf16_is_not_chosen_where_it_is_slower(probes):
    chosen = choose_precision("auto", CPU)
    assert chosen.name == "fp32"
    assert "0.06x" in chosen.reason


def test_bf16_is_chosen_where_it_is_faster(probes):
    probes["speedup"] = 6.9
    assert choose_precision("auto", CPU).name == "bf16"


def test_the_machine_is_probed_once(probes):
    first = choose_precision("auto", CPU)
    probes["speedup"] = 6.9
    assert choose_precision("auto", CPU) == first
    assert probes["calls"] == 1


def test_another_instruction_set_is_another_machine(probes, monkeypatch):
    choose_precision("auto", CPU)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    choose_precision("auto", CPU)
    assert probes["calls"] == 2


def test_a_damaged_memory_is_probed_again(probes, tmp_path):
    (tmp_path / "precision.json").write_text("{")
    assert choose_precision("auto", CPU).name == "fp32"


def test_asking_needs_no_probe(probes):
    assert choose_precision("bf16", CPU).name == "bf16"
    assert probes["calls"] == 0


def test_the_probe_measures_a_ratio():
    assert 0 < precision.bf16_speedup(CPU) < 1000

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


def test_another_number_of_threads_is_another_machine(probes, monkeypatch):
    choose_precision("auto", CPU)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4096)
    choose_precision("auto", CPU)
    assert probes["calls"] == 2


def test_the_probe_compares_the_best_of_each_without_the_first(monkeypatch):
    seconds = {"fp32": iter([0.1, *[5.0] * 6, 3.0]), "bf16": iter([0.1, 4.0, *[9.0] * 6])}
    monkeypatch.setattr(precision, "_product_s", lambda a, b, of: next(seconds[of.name]))
    assert precision.bf16_speedup(CPU) == 3.0 / 4.0


def test_a_product_of_the_probe_runs_in_its_precision(monkeypatch):
    made = []
    real = torch.Tensor.__matmul__
    monkeypatch.setattr(torch.Tensor, "__matmul__", lambda a, b: made.append(real(a, b)))
    for name in ("fp32", "bf16"):
        assert precision._product_s(torch.ones(2, 2), torch.ones(2, 2), precision.Precision(name, "")) > 0
    assert [product.dtype for product in made] == [torch.float32, torch.bfloat16]

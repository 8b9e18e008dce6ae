"""What is faster on this machine is measured once for a job, kept, and then holds for all."""

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from labkit.fast import precision
from labkit.fast.models import fast_dlrm
from labkit.fast.precision import faster_precision
from labkit.fast.times import StepTimes, forget, remember, remembered
from labkit.models.dlrm import DlrmConfig
from labkit.models.speech import SpeechConfig, SpeechModel


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture
def measured(cache, monkeypatch):
    """Made-up times in place of this machine's; counts the measurements."""
    answers = {"calls": 0, "ms": {"fp32": 4.0, "bf16": 3.0}}

    def measure(model, loss, device):
        answers["calls"] += 1
        return dict(answers["ms"])

    monkeypatch.setattr(precision, "_measure", measure)
    return answers


def choose(job: str = "a job"):
    return faster_precision(job, torch.nn.Linear(1, 1), lambda: None)


def test_the_faster_one_is_chosen_and_explained_but_for_a_gain_that_noise_could_make(measured):
    chosen, why = choose()
    assert chosen == "bf16"
    assert why.startswith("forward and backward here: fp32 4 ms, bf16 3 ms; measured 2")
    measured["ms"]["bf16"] = 3.9
    assert choose("another job")[0] == "fp32"


def test_a_machine_is_measured_once_for_a_job(measured, monkeypatch):
    first = choose()
    measured["ms"]["bf16"] = 9.0
    assert choose() == first
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    assert choose() == first  # all budgets of a comparison are answered alike
    torch.set_num_threads(threads)
    assert measured["calls"] == 1
    assert choose("another job")[0] == "fp32"
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")  # in effect another machine
    assert choose()[0] == "fp32"
    assert measured["calls"] == 3


def test_a_damaged_memory_is_measured_again(measured, cache):
    (cache / "steps.json").write_text("{")
    choose()
    assert measured["calls"] == 1 and len(remembered()) == 1


def test_runs_that_start_together_remember_all_that_they_measured(cache):
    made = [StepTimes("here", f"job {n}", {"fp32": 1.0, "bf16": 2.0}, "2026-11-21") for n in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(remember, made))
    assert {times.job for times in remembered()} == {times.job for times in made}
    assert forget() == 40
    assert remembered() == []


def test_measuring_leaves_model_and_random_numbers_as_they_are(cache):
    """With batch norms, whose statistics every pass moves, dropout, and tables that keep the bags of a pass."""
    torch.manual_seed(0)
    clicks = fast_dlrm(DlrmConfig(3, (5, 7), embedding_dim=4, bottom_mlp=(8, 4), top_mlp=(6, 1)))
    clicks.tables.keeps_bags = True
    rows = torch.zeros(2, 2, 1, dtype=torch.int32)
    speech = SpeechModel(SpeechConfig(vocabulary=29, kind="conv", channels=16, layers=1, dropout=0.5))
    for job, model, loss in (
        ("clicks", clicks, lambda: clicks(torch.ones(2, 3), rows).sum()),
        ("speech", speech, lambda: speech(torch.randn(2, 61, 80), torch.tensor([61, 50]))[0].sum()),
    ):
        before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
        faster_precision(job, model, loss)
        torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
        assert torch.equal(torch.get_rng_state(), state)
        assert all(parameter.grad is None for parameter in model.parameters())
        loss().backward()  # no bags of a pass before are in the way
    assert [min(times.step_time_ms.values()) > 0 for times in remembered()] == [True, True]

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from labkit.compiled import SWITCH
from labkit.data.clicks import load_clicks
from labkit.models.dlrm import DlrmConfig
from labkit.models.speech import SpeechConfig
from labkit.training import step_choice
from labkit.training.clicks_job import ClicksJob
from labkit.training.config import OPTIMISERS, TrainConfig
from labkit.training.step import StepKind
from labkit.training.step_choice import choose_step, step_time_ms
from labkit.training.step_memory import StepTimes, forget, remember, remembered

CPU = torch.device("cpu")
PLAIN, COMPILED, BF16 = StepKind("fp32"), StepKind("fp32", True), StepKind("bf16")


@pytest.fixture
def job():
    log = load_clicks("synthetic-small")
    model = DlrmConfig(dense_dim=13, num_rows=log.table_rows, embedding_dim=8, bottom_mlp=(8,), top_mlp=(32, 1))
    torch.manual_seed(0)
    return ClicksJob(log, model, batch_size=64, seed=0, device=CPU)


@pytest.fixture
def probes(monkeypatch, tmp_path):
    """Replace what is measured, which is this machine's, by made-up times; count the measurements."""
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path))
    monkeypatch.delenv(SWITCH, raising=False)
    answers = {"bf16": 0.06, "calls": 0, "ms": {PLAIN: 4.0, COMPILED: 2.0, BF16: 3.0, StepKind("bf16", True): 1.0}}

    def measured(kinds, job, config, device, stopped):
        answers["calls"] += 1
        return {kind: answers["ms"][kind] for kind in kinds}

    monkeypatch.setattr(step_choice, "step_time_ms", measured)
    monkeypatch.setattr(step_choice, "bf16_speedup", lambda device: answers["bf16"])
    monkeypatch.setattr(step_choice, "why_not_compiled", lambda: None)
    return answers


def test_kinds_that_cannot_be_are_named_with_the_reason(probes, job):
    settings = TrainConfig(batch_size=64, precision="fp32")
    kind, why = choose_step("fp32", True, job, settings, torch.device("cuda"))
    assert (kind, why) == (PLAIN, "fp32; not compiled tables: they are for CPUs")


def choose(job, *, precision="auto", compiled=None, **settings):
    return choose_step(precision, compiled, job, TrainConfig(batch_size=64, **settings), CPU)


def test_a_run_that_is_to_end_tries_no_further(job, monkeypatch, tmp_path):
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path))
    monkeypatch.setattr(step_choice, "bf16_speedup", lambda device: 2.0)
    asked = []

    def stopped():
        asked.append(1)
        return len(asked) > 3

    settings = TrainConfig(batch_size=64)
    kind, why = choose_step("auto", False, job, settings, CPU, stopped)
    assert (kind, why) == (PLAIN, "fp32: the run was stopped while kinds of step were tried")
    assert len(asked) == 4
    assert not list(tmp_path.rglob("*.json"))  # nothing half measured is remembered


def test_the_fastest_kind_is_chosen_and_explained(probes, job):
    kind, why = choose(job)
    assert kind == COMPILED
    assert "fp32 4 ms, fp32 with compiled tables 2 ms" in why
    assert "not bf16: its matrix products ran 0.06 times as fast" in why


def test_bf16_is_tried_where_its_products_are_faster(probes, job):
    probes["bf16"] = 6.9
    assert choose(job)[0] == StepKind("bf16", True)


def test_a_gain_that_noise_could_make_leaves_the_plain_step(probes, job):
    probes["ms"][COMPILED] = 3.9
    assert choose(job)[0] == PLAIN


def test_a_machine_that_was_busy_when_it_was_measured_is_measured_again(probes, job):
    quiet = dict(probes["ms"])
    probes["ms"][COMPILED] = 90.0
    assert choose(job)[0] == PLAIN
    probes["ms"] = quiet
    kind, why = choose(job)
    assert kind == COMPILED and "fp32 with compiled tables 2 ms" in why


def test_a_machine_is_measured_in_two_runs_of_each_job(probes, job, monkeypatch):
    choose(job)
    second = choose(job)
    probes["ms"][COMPILED] = 9.0
    assert choose(job) == second
    assert probes["calls"] == 2
    for change in (
        lambda: setattr(job, "batch_size", 128),
        lambda: monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2"),
        lambda: monkeypatch.setattr(torch, "get_num_threads", lambda: 4096),
    ):
        before = probes["calls"]
        probes["ms"][COMPILED] = 9.0
        change()
        assert choose(job)[0] == PLAIN
        assert probes["calls"] == before + 1


def test_a_damaged_memory_is_measured_again(probes, job, tmp_path):
    (tmp_path / "steps.json").write_text("{")
    choose(job)
    assert probes["calls"] == 1 and len(remembered()) == 1


def test_a_cache_that_cannot_be_written_keeps_nobody_from_training(probes, job, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path / "file"))
    kind, why = choose(job)
    assert kind == COMPILED and "; not remembered: " in why


def test_runs_that_start_together_remember_all_that_they_measured(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path))
    made = [
        StepTimes("here", "dlrm", f"shape {n}", ["fp32"], {"fp32": 1.0}, {}, "fp32", "2026-11-21") for n in range(40)
    ]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(remember, made))
    assert {times.shape for times in remembered()} == {times.shape for times in made}
    forget()
    assert remembered() == []


def test_what_is_asked_for_is_not_measured(probes, job):
    assert choose(job, precision="bf16", compiled=False) == (BF16, "bf16; as asked")
    assert choose(job, precision="fp32", compiled=True)[0] == COMPILED
    assert probes["calls"] == 0


def test_without_numba_the_plain_step_is_taken_and_said(probes, job, monkeypatch):
    monkeypatch.setattr(step_choice, "why_not_compiled", lambda: "numba is not installed")
    kind, why = choose(job, precision="fp32")
    assert kind == PLAIN
    assert why == "fp32; not compiled tables: numba is not installed"


def test_clipped_gradients_keep_torchs_update(probes, job):
    kind, why = choose(job, precision="fp32", grad_clip_norm=1.0)
    assert kind == PLAIN
    assert why == "fp32; not compiled tables: clipping needs the gradient that they never make"


@pytest.mark.compiled
@pytest.mark.parametrize("optimiser", OPTIMISERS)
def test_trying_steps_leaves_the_job_as_it_is(job, monkeypatch, tmp_path, optimiser):
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path))
    before, state = copy.deepcopy(job.model.state_dict()), torch.get_rng_state()
    choose(job, optimiser=optimiser)
    torch.testing.assert_close(job.model.state_dict(), before, rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), state)
    (times,) = remembered()
    assert min(times.step_time_ms.values()) > 0


def test_trying_steps_leaves_a_recogniser_as_it_is(tiny_speech):
    from labkit.data.speech import load_speech
    from labkit.training.speech_job import SpeechJob

    speech = load_speech(str(tiny_speech))
    model = SpeechConfig(vocabulary=len(speech.alphabet), kind="conv", channels=16, layers=1)
    job = SpeechJob(speech, model, batch_size=4, seed=0, device=CPU)
    before = copy.deepcopy(job.model.state_dict())  # with the running statistics of its batch norms
    took = step_time_ms([PLAIN], job, TrainConfig(batch_size=4, target_metric="cer"), CPU)
    assert took[PLAIN] > 0
    torch.testing.assert_close(job.model.state_dict(), before, rtol=0, atol=0)


def test_tables_of_other_sizes_are_another_job(job):
    log = load_clicks("synthetic-small")
    shape = {"dense_dim": 13, "embedding_dim": 8, "bottom_mlp": (8,), "top_mlp": (32, 1)}
    sizes = [(1000,) * 26, (900, 1100, *[1000] * 24), (1100, 900, *[1000] * 24)]
    models = [DlrmConfig(num_rows=each, **shape) for each in sizes]
    described = {ClicksJob(log, model, batch_size=64, seed=0, device=CPU).describe() for model in models}
    assert len(described) == 3


def test_the_probe_of_bf16_compares_the_best_of_each_without_the_first(monkeypatch):
    seconds = {"fp32": iter([0.1, *[5.0] * 6, 3.0]), "bf16": iter([0.1, 4.0, *[9.0] * 6])}
    monkeypatch.setattr(step_choice, "_product_s", lambda a, b, kind: next(seconds[kind.precision]))
    assert step_choice.bf16_speedup(CPU) == 3.0 / 4.0


def test_a_product_of_the_probe_runs_in_its_precision(monkeypatch):
    made = []
    real = torch.Tensor.__matmul__
    monkeypatch.setattr(torch.Tensor, "__matmul__", lambda a, b: made.append(real(a, b)))
    for name in ("fp32", "bf16"):
        assert step_choice._product_s(torch.ones(2, 2), torch.ones(2, 2), StepKind(name)) > 0
    assert [product.dtype for product in made] == [torch.float32, torch.bfloat16]


def test_models_whose_steps_differ_are_described_differently(tiny_speech):
    from labkit.data.speech import load_speech
    from labkit.training.speech_job import SpeechJob

    speech = load_speech(str(tiny_speech))
    shape = {"vocabulary": 29, "kind": "lstm", "channels": 16, "layers": 1, "hidden": 8}
    changes = [{}, {"channels": 32}, {"layers": 2}, {"hidden": 16}, {"kernel": 7}, {"strides": (2,)}, {"kind": "bigru"}]
    jobs = [SpeechJob(speech, SpeechConfig(**shape | each), batch_size=4, seed=0, device=CPU) for each in changes]
    assert len({job.describe() for job in jobs}) == len(jobs)

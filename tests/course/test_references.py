"""References against what others made: torch's CTC loss and EmbeddingBag, the kit's cache, and arithmetic."""

import inspect
import math

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F

from labkit.errors import UserError
from labkit.placement.cached import CacheIndex
from labkit.runs import recorded
from labkit.tta import crossings, median_time
from labkit_course.lab import from_lab, load_lab

ctc_loss = from_lab("20", "ctc_loss")
decompose, sooner_share = (from_lab("21", name) for name in ("decompose", "sooner_share"))
LruCache, placed_step = (from_lab("12", name) for name in ("LruCache", "placed_step"))


@pytest.mark.parametrize("seed", range(8))
def test_the_loss_by_dynamic_programming_is_torchs(seed):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(1, 4, (seed,), generator=generator).tolist()  # of three letters: many are doubled
    outputs = torch.randn(12, 4, generator=generator).log_softmax(1)
    theirs = F.ctc_loss(outputs[:, None], torch.tensor([tokens]), [12], [len(tokens)], reduction="sum")
    assert ctc_loss(outputs, tokens) == pytest.approx(theirs.item(), rel=1e-5)


def platform(rng, samples, rate):
    """A row a seed; rates of single runs are up to a fifth off."""
    rates = rate * rng.uniform(0.8, 1.2, len(samples))
    return pd.DataFrame({"time_s": samples / rates, "samples": samples})


def test_the_factors_multiply_to_the_ratio_of_the_medians():
    rng = np.random.default_rng(0)
    for _ in range(20):
        slow, fast = (platform(rng, rng.integers(2_000, 20_000, 3), rate) for rate in (700, 1300))
        parts = decompose(slow, fast)
        assert parts["rates"] * parts["samples"] == pytest.approx(parts["times"])
        assert parts["times"] == pytest.approx(slow["time_s"].median() / fast["time_s"].median())
        assert parts["low"] <= parts["high"]


def test_at_one_batch_the_gap_is_flat_by_construction():
    to_target = np.array([[3_000, 3_500, 2_500], [9_000, 7_000, 8_000]])  # two targets, three seeds
    gaps = [
        decompose(*(pd.DataFrame({"time_s": need / rate, "samples": need}) for rate in (700, 1300)))
        for need in to_target
    ]
    assert [gap["samples"] for gap in gaps] == [1, 1]
    assert gaps[0]["times"] == pytest.approx(gaps[1]["times"]) == pytest.approx(1300 / 700)


def test_labs_21_and_50_take_one_estimate_of_the_gap_of_two_recorded_gpus():
    zeus = recorded("zeus-nsdi23", job="deepspeech2 on librispeech", power_limit_w="max")
    found = crossings(zeus.curves, zeus.runs, 0.40, x="epochs").merge(
        zeus.runs[["run", "device", "batch_size", "epoch_s"]], on="run"
    )
    found = found.assign(samples=found["time_to_target_s"].fillna(math.inf))
    found["time_s"] = found["samples"] * found["epoch_s"]
    largest = found[found["batch_size"] == found.groupby("device")["batch_size"].transform("max")]
    of = {device: own.set_index("seed")[["time_s", "samples"]] for device, own in largest.groupby("device")}
    medians = {
        device: float(median_time(np.isfinite(own["time_s"]), own["time_s"])[0]) for device, own in of.items()
    }  # as lab 50 has them
    assert decompose(of["P100"], of["A40"])["times"] == pytest.approx(medians["P100"] / medians["A40"])


def test_single_runs_of_alike_platforms_tell_nothing():
    times = [3.0, math.inf, 2.0]
    assert sooner_share(times, times) == 0.5


def test_the_cache_hits_as_the_kits_does_even_where_a_batch_is_larger():
    rng = np.random.default_rng(2)
    for slots, size in ((30, 20), (15, 40)):
        cache, index = LruCache(slots), CacheIndex(200, slots, "lru")
        for _ in range(200):
            rows = np.unique(rng.zipf(1.2, size) % 200)
            assert cache.look_up(rows.tolist()) == len(rows) - index.look(rows).missed


def test_a_step_of_rows_elsewhere_is_that_of_an_embedding_bag_with_sgd():
    torch.manual_seed(4)
    bag, top = torch.nn.EmbeddingBag(50, 8, mode="sum", sparse=True), torch.nn.Linear(8, 1)
    sgd, table = torch.optim.SGD(bag.parameters(), lr=0.3), bag.weight.detach().clone()
    for _ in range(5):
        bags = torch.randint(50, (40, 3))
        loss = placed_step(
            lambda rows: table[rows], table.__setitem__, bags, lambda sums: top(sums).square().mean(), 0.3
        )
        sgd.zero_grad()
        own = top(bag(bags)).square().mean()
        own.backward()
        sgd.step()
        torch.testing.assert_close(loss, own.detach())
    torch.testing.assert_close(table, bag.weight.detach())  # sums of gradients in another order


def test_a_lab_is_loaded_without_being_run_and_without_the_students_code(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mylab").mkdir()
    (tmp_path / "mylab" / "machine.py").write_text("def ratio_interval(alone, under):\n    return 0\n")
    load_lab.cache_clear()
    lab = load_lab("31")
    assert lab.ratio_interval is from_lab("02", "ratio_interval") and capsys.readouterr().out == ""
    assert not hasattr(lab, "profile")  # of the parameters cell
    for code in (lab.effects, LruCache):  # a function and a class, from their lines in the file
        assert inspect.getsource(code).startswith(("def effects(", "class LruCache:"))
    assert inspect.getsourcefile(lab.effects) == lab.__file__
    with pytest.raises(UserError, match="no lab '99': the labs are 00, 01"):
        load_lab("99")

"""Speech on budgets: the loss is torch's, two factors make the gap, and at one batch only one of them can move."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F

from labkit_course.exercises.n21_speech_on_budgets import ctc_loss, decompose, sooner_share


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


def test_the_factors_multiply_to_the_ratio_that_was_measured():
    rng = np.random.default_rng(0)
    for _ in range(20):
        slow, fast = (platform(rng, rng.integers(2_000, 20_000, 3), rate) for rate in (700, 1300))
        parts = decompose(slow, fast)
        assert parts["rates"] * parts["samples"] == pytest.approx(parts["times"])
        measured = np.exp(np.log(slow["time_s"]).mean() - np.log(fast["time_s"]).mean())
        assert parts["times"] == pytest.approx(measured)
        assert parts["low"] <= parts["times"] <= parts["high"]


def test_at_one_batch_the_gap_is_flat_by_construction():
    to_target = np.array([[3_000, 3_500, 2_500], [9_000, 7_000, 8_000]])  # two targets, three seeds
    gaps = [
        decompose(*(pd.DataFrame({"time_s": need / rate, "samples": need}) for rate in (700, 1300)))
        for need in to_target
    ]
    assert [gap["samples"] for gap in gaps] == [1, 1]
    assert gaps[0]["times"] == pytest.approx(gaps[1]["times"]) == pytest.approx(1300 / 700)


def test_single_runs_of_alike_platforms_tell_nothing():
    times = [3.0, math.inf, 2.0]
    assert sooner_share(times, times) == 0.5

"""What the recorded trainings of four GPUs say under labkit's analysis: the figures that the course builds on."""

import numpy as np
import pytest

from labkit.runs import recorded
from labkit.tta import by_batch_size, crossings, survival

SPEECH = "deepspeech2 on librispeech"


def test_hours_to_a_word_error_rate_of_35_at_batch_32_and_the_highest_power_limits():
    runs, curves = recorded("zeus-nsdi23", job=SPEECH, batch_size=32, power_limit_w="max")
    table = by_batch_size(curves, runs, 0.35, unit="epochs").set_index("device")
    expected = {"P100": 90.4, "V100": 22.9, "RTX 6000": 23.4, "A40": 20.0}
    assert {gpu: round(time_s / 3600, 1) for gpu, time_s in table["time_s"].items()} == expected
    by_wall = survival(curves, runs, 0.35).merge(runs[["budget", "device"]].drop_duplicates()).set_index("device")
    assert by_wall["median"].to_dict() == pytest.approx(table["time_s"].to_dict()), "one time, two ways"
    assert (table["reached"] == 5).all()


def test_no_run_of_batch_128_and_more_gets_there_at_any_power_limit_and_all_of_them_count():
    runs, curves = recorded("zeus-nsdi23", job=SPEECH)
    large = runs[runs["batch_size"] >= 128]
    assert set(large["device"]) == {"A40", "RTX 6000", "V100"} and set(large["batch_size"]) == {128, 156, 192}
    outcomes = crossings(curves, runs, 0.35).set_index("run")["outcome"]
    assert len(outcomes) == len(runs) and (outcomes[large["run"]] == "failed").all()
    table = by_batch_size(curves, runs, 0.35, unit="epochs")
    is_large = table["batch_size"] >= 128
    assert (table["failed"][is_large] == 5).all() and np.isinf(table["time_s"][is_large]).all()
    assert np.isfinite(table["time_s"][~is_large]).all(), "at the smaller ones more than half arrive"


def test_at_one_batch_the_ratio_of_two_gpus_is_the_same_at_every_target():
    runs, curves = recorded("zeus-nsdi23", job=SPEECH, batch_size=64, power_limit_w="max")
    hours = survival(curves, runs, curves["value"].unique()).pivot(index="target", columns="budget", values="median")
    gaps = hours.max(axis=1) / hours.min(axis=1)
    assert len(gaps) == 7 and gaps.to_list() == pytest.approx([3.782] * 7, abs=1e-3)

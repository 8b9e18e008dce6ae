"""What the recorded trainings of four GPUs say under labkit's analysis: the figures that the course builds on."""

import numpy as np
import pytest

from labkit.project import shipped_datasets
from labkit.runs import recorded, run_folders
from labkit.tta import by_batch_size, crossings, curves, run_table, survival

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


def test_labkit_s_own_runs_on_a_gpu_are_recorded_not_measured_here_and_bring_its_energy_and_price():
    folders = run_folders(shipped_datasets() / "recorded" / "speech_h200")
    runs = run_table(folders).set_index("seed").sort_index()
    assert set(runs["provenance"]) == {"recorded"} and set(runs["tier"]) == {"h200"}
    reached = crossings(curves(folders), runs.reset_index(), 0.05).set_index("run").loc[runs["run"]]
    assert reached["outcome"].to_list() == ["reached"] * 3
    assert reached["time_to_target_s"].round(1).to_list() == [5.9, 7.2, 10.0]
    assert runs["energy_j"].round().to_list() == [965, 1018, 1408]

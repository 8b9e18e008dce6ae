import numpy as np
import pandas as pd
import pytest
import torch

from labkit_course.apparatus import busy, sweep


@pytest.fixture(params=[pytest.param("1", marks=pytest.mark.compiled), "0"], ids=["compiled", "interpreted"])
def small(request, monkeypatch):
    monkeypatch.setenv("LABKIT_COMPILED", request.param)
    monkeypatch.setattr(busy, "COPIED_BYTES", 2**22)  # of 64 KiB the call would take longer than the bytes
    monkeypatch.setattr(busy, "TURN_S", 0.002)
    return request.param


def test_every_load_is_watched_and_only_two_of_them_use_many_bytes_or_operations(small):
    threads = torch.get_num_threads()
    places = np.roll(np.arange(2**12), 1)
    frame = pd.DataFrame([busy.watch(load, 0.05) for load in busy.loads(places)]).set_index("load")
    assert torch.get_num_threads() == threads
    assert list(frame.index) == ["spin", "chase", "copy", "product"]
    assert ("interpreted" in frame.loc["chase", "what"]) == (small == "0")
    assert (frame["cpu_percent"] > 0).all() and set(frame["provenance"]) == {"measured"}
    assert frame["gflops"].gt(0).tolist() == [False, False, False, True] and frame.loc["spin", "gb_per_s"] == 0
    assert 0 < frame.loc["chase", "gb_per_s"] < frame.loc["copy", "gb_per_s"]


def test_shares_are_of_the_best_given():
    shares = busy.with_shares(pd.DataFrame({"gflops": [50.0], "gb_per_s": [2.0]}), 100.0, 8.0)
    assert shares.loc[0, ["share_of_peak", "share_of_bandwidth"]].tolist() == [50, 25]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_the_sweep_shows_a_full_utilisation_and_little_activity_with_one_thread():
    frame = sweep([(1, 1), (1024, 1024), (131072, 1024)], 2.0)
    assert frame.loc[0, "gpu_utilisation"] > 50
    active = frame["sm_active"].dropna()
    assert active.empty or active.iloc[0] < 10 < active.iloc[-1]

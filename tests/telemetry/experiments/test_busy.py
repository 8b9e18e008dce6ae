import pandas as pd
import pytest
import torch

from labkit.telemetry.experiments import busy
from labkit.telemetry.experiments.gpu_sweep import square_kernel, sweep


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(busy, "CHASED", 2**12)
    monkeypatch.setattr(busy, "COPIED_BYTES", 2**16)
    monkeypatch.setattr(busy, "TURN_S", 0.002)


def test_every_load_is_watched_and_only_two_of_them_use_many_bytes_or_operations(small):
    threads = torch.get_num_threads()
    frame = busy.watch_all(0.05).set_index("load")
    assert torch.get_num_threads() == threads
    assert list(frame.index) == ["spin", "chase", "copy", "product"]
    assert (frame["cpu_percent"] > 0).all()
    assert set(frame["provenance"]) == {"measured"}
    assert (frame.loc["spin", ["gflops", "gb_per_s"]] == 0).all()
    assert frame.loc["chase", "gflops"] == frame.loc["copy", "gflops"] == 0
    assert frame.loc["product", "gflops"] > 0
    assert 0 < frame.loc["chase", "gb_per_s"] < frame.loc["copy", "gb_per_s"]


@pytest.mark.parametrize("compiled", [pytest.param(True, marks=pytest.mark.compiled), False])
def test_a_chase_goes_through_all_places_in_one_circle(small, monkeypatch, compiled):
    if not compiled:
        monkeypatch.setenv("LABKIT_COMPILED", "0")
    load = busy._chase()
    assert ("interpreted" in load.what) == (not compiled)
    inside = dict(zip(load.work.__code__.co_freevars, load.work.__closure__, strict=True))
    places, follow = inside["places"].cell_contents, inside["follow"].cell_contents
    at, seen = 0, set()
    while at not in seen:
        seen.add(at)
        at = places[at]
    assert len(seen) == busy.CHASED
    assert follow(places, 7, 1234) == busy.chase(places, 7, 1234)


def test_shares_are_of_the_best_given():
    shares = busy.with_shares(pd.DataFrame({"gflops": [50.0], "gb_per_s": [2.0]}), 100.0, 8.0)
    assert shares.loc[0, ["share_of_peak", "share_of_bandwidth"]].tolist() == [50, 25]


def test_published_counters_name_their_source():
    frame = square_kernel()
    assert set(frame["provenance"]) == {"recorded, published at EuroMLSys 2023"}
    assert frame.loc[0, ["gpu_utilisation", "sm_active", "sm_occupancy"]].tolist() == pytest.approx([91, 0.2, 0])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_the_sweep_shows_a_full_utilisation_and_little_activity_with_one_thread():
    frame = sweep(2.0)
    assert frame.loc[0, "gpu_utilisation"] > 50
    active = frame["sm_active"].dropna()
    assert active.empty or active.iloc[0] < 10 < active.iloc[-1]

"""The machine's card: what is counted, and that the thread setting of the process is left alone."""

import pandas as pd
import pytest
import torch

from labkit.hardware import calibration
from labkit.hardware.calibration import cache_curve, calibrate, copy_gb_per_s, launch_us, matmul_gflops
from labkit.plots import figure_cache_curve, figure_roofline

CPU = torch.device("cpu")


def test_what_is_counted(monkeypatch):
    monkeypatch.setattr(calibration, "_once_s", lambda work, device: work() is None or 1.0)  # all work takes a second
    # a matrix product: a multiplication and an addition each
    assert matmul_gflops(CPU, torch.float32, size=100) == pytest.approx(2 * 100**3 / 1e9)
    # a copy: what is read and what is written, sixteen small ones in a turn
    assert copy_gb_per_s(CPU, 2**24) == copy_gb_per_s(CPU, 2**20) == pytest.approx(2 * 2**24 / 1e9)
    assert launch_us(CPU, calls=1000) == pytest.approx(1000.0)


def test_the_cache_curve_is_of_one_thread_and_the_ridge_is_of_the_card(monkeypatch):
    card = calibrate("cpu", repeats=1)
    assert card.fp32_gflops > 0
    assert card.ridge_flop_per_byte == pytest.approx(card.fp32_gflops / card.bandwidth_gb_per_s)
    seen, before = [], torch.get_num_threads()
    monkeypatch.setattr(calibration, "copy_gb_per_s", lambda *args, **how: seen.append(torch.get_num_threads()) or 1.0)
    curve = cache_curve("cpu", sizes_bytes=[2**12, 2**13])
    assert (seen, torch.get_num_threads()) == ([1, 1], before)
    assert curve["size_bytes"].tolist() == [2**13, 2**14]


def test_the_figures_mark_the_caches_and_a_roof_rises_with_the_bandwidth_to_the_peak():
    curve = pd.DataFrame({"size_bytes": [2**12, 2**20], "gb_per_s": [80.0, 10.0]})
    figure = figure_cache_curve(curve, {"L1d": 2**15, "L2": 2**19})
    assert [annotation.text for annotation in figure.layout.annotations] == ["L1d", "L2"]
    assert [shape.x0 for shape in figure.layout.shapes] == [32.0, 512.0]
    here = {"name": ["here"], "provenance": ["measured"]}
    roofs = pd.DataFrame(here | {"peak_gflops": [100.0], "bandwidth_gb_per_s": [10.0]})
    roof = figure_roofline(roofs, pd.DataFrame(here | {"flop_per_byte": [0.25], "gflops": [2.5]})).data[0]
    assert dict(zip(roof.x, roof.y, strict=True))[10.0] == max(roof.y) == pytest.approx(100.0)  # the ridge
    assert min(roof.y) == pytest.approx(10.0 * min(roof.x))

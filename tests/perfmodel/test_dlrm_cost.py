"""What a step of a DLRM has to do, and how long it takes at least."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
import torch

from labkit.models.dlrm import Dlrm, DlrmConfig
from labkit.perfmodel.dlrm_cost import limiters, predict_step, step_work
from labkit.perfmodel.limits import Curve, Limits, measure_limits

CONFIG = DlrmConfig(20, (1000, 1000, 1000), 8, (32, 8), (16, 1))
LIMITS = Limits(
    device="made up",
    threads=1,
    when="2026-11-23",
    product_gflops=Curve((8, 64), (10.0, 80.0)),
    copy_gb_per_s=Curve((1e4, 1e8), (100.0, 10.0)),
    gather_gb_per_s=((32, Curve((1e5, 1e9), (40.0, 4.0))), (512, Curve((1e5, 1e9), (100.0, 40.0)))),
    launch_us=2.0,
)


def test_the_products_are_those_that_torch_counts():
    from torch.utils.flop_counter import FlopCounterMode

    model = Dlrm(CONFIG)
    with FlopCounterMode(display=False) as counter:
        model(torch.randn(64, 20), torch.zeros(64, 3, 1, dtype=torch.int32)).sum().backward()
    # torch's own interaction multiplies twice in the backward pass, the fast one once
    twice = 2 * 64 * 4 * 4 * 8
    assert sum(work.flop for work in step_work(CONFIG, 1, 64)) == counter.get_total_flops() - twice


def test_a_curve_is_a_line_on_logarithmic_axes_and_level_beyond():
    curve = Curve((10, 1000), (1.0, 100.0))
    assert [curve(size) for size in (1, 10, 100, 1000, 10**6)] == pytest.approx([1, 1, 10, 100, 100])


def test_rows_are_slower_in_larger_tables_and_smaller_rows():
    assert LIMITS.gather(1e5, 32) > LIMITS.gather(1e7, 32) > LIMITS.gather(1e9, 32)
    assert LIMITS.gather(1e9, 32) < LIMITS.gather(1e9, 128) < LIMITS.gather(1e9, 512)


def limiter(pooling=1, batch=512, limits=LIMITS, **changes):
    return predict_step(replace(CONFIG, **changes), pooling, batch, limits).iloc[0]


def test_the_limiter_is_the_part_that_takes_longest():
    assert limiter(bottom_mlp=(2048, 2048, 8))["part"] == "mlps"
    assert limiter(bottom_mlp=(2048, 2048, 8))["bound"] == "arithmetic"
    assert limiter(pooling=500, num_rows=(10**7,) * 3)["part"] == "embeddings"
    assert limiter(pooling=500, num_rows=(10**7,) * 3)["bound"] == "bandwidth"
    assert limiter(num_rows=(1000,) * 200, batch=4096)["part"] == "interaction"
    assert limiter(batch=1)["bound"] == "calls"


def test_slower_memory_makes_embeddings_the_limiter():
    slow = replace(LIMITS, gather_gb_per_s=tuple((row, Curve((1.0,), (0.01,))) for row in (32, 512)))
    assert limiter(pooling=20)["part"] != "embeddings"
    assert limiter(pooling=20, limits=slow)["part"] == "embeddings"


def test_this_machine_is_measured():
    limits = measure_limits(largest_bytes=2**20, rounds=1)
    assert limits.threads == torch.get_num_threads()
    speeds = [*limits.product_gflops.speeds, *limits.copy_gb_per_s.speeds, *limits.gather_gb_per_s[0][1].speeds]
    assert min(speeds) > 0 and limits.launch_us > 0
    assert limits.product_gflops(1024) > limits.product_gflops(8)
    assert max(limits.copy_gb_per_s.sizes) <= 2 * 2**20


def test_cells_of_a_sweep_are_judged_and_those_that_failed_are_left_out():
    shape = {"dense_dim": 20, "num_tables": 3, "num_rows": 10**7, "embedding_dim": 8, "mlp_depth": 1, "batch_size": 512}
    shares = {"share_mlps": 0.2, "share_embeddings": 0.6, "share_interaction": 0.1, "share_optimiser": 0.1}
    long_bags = shape | {"mlp_width": 16, "pooling_factor": 500}
    cells = pd.DataFrame(
        [
            long_bags | shares,
            shape | {"mlp_width": 2048, "pooling_factor": 1} | shares,  # where these shares would be a surprise
            long_bags | dict.fromkeys(shares, float("nan")),
        ]
    )
    judged = limiters(cells, LIMITS)
    assert judged["measured"].tolist() == ["embeddings"] * 2
    assert judged["predicted"].tolist() == ["embeddings", "mlps"]
    assert judged["is_right"].tolist() == [True, False]

"""How fast click logs are generated: rows a second on one core, and beside a plain Python loop over the rows.

Run it with `python benchmarks/generate_clicks.py`. The loop draws the same kinds of features, with NumPy
one value at a time, as the random-data generators do that dominate the time of the training they feed.
"""

import argparse
import math
import os
import time

import numpy as np

from labkit.data.clicks import ClickGenerator, GeneratorConfig

ROWS = 400_000
LOOP_ROWS = 1_000


def loop_rows(config: GeneratorConfig, rows: int) -> list[tuple]:
    """Rows made one by one: Zipf categories by inverse cumulative distribution, a linear teacher."""
    rng = np.random.default_rng(config.seed)
    cumulative = []
    for size in config.num_rows:
        share = np.arange(1, size + 1) ** -config.zipf_exponent
        cumulative.append(np.cumsum(share / share.sum()))
    effects = [rng.standard_normal(size + 1) for size in config.num_rows]
    slopes = rng.standard_normal(config.dense_dim)
    made = []
    for _ in range(rows):
        dense = [math.floor(math.exp(rng.standard_normal() + 1)) for _ in range(config.dense_dim)]
        categories = [int(np.searchsorted(table, rng.random())) for table in cumulative]
        logit = sum(slope * math.log1p(value) for slope, value in zip(slopes, dense, strict=True))
        logit += sum(effect[category] for effect, category in zip(effects, categories, strict=True))
        made.append((dense, categories, int(rng.random() < 1 / (1 + math.exp(-max(-50.0, min(50.0, logit)))))))
    return made


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    config = GeneratorConfig()
    start = time.perf_counter()
    generator = ClickGenerator(config)
    start_up_s = time.perf_counter() - start
    start = time.process_time()
    for _ in generator.blocks("train", ROWS):
        pass
    rows_per_s = ROWS / (time.process_time() - start)
    start = time.process_time()
    loop_rows(config, LOOP_ROWS)
    loop_rows_per_s = LOOP_ROWS / (time.process_time() - start)
    print(f"{config.dense_dim} dense and {len(config.num_rows)} categorical features, one core")
    print(f"generator        {rows_per_s:>10,.0f} rows/s, after {start_up_s:.2f} s to calibrate the teacher")
    print(f"loop over rows   {loop_rows_per_s:>10,.0f} rows/s")
    print(f"ratio            {rows_per_s / loop_rows_per_s:>10,.0f}")


if __name__ == "__main__":
    main()

"""A script that trains with one bottleneck, or with none: `planted.py NAME`."""

import sys

import torch

from labkit.course.slow_trainer import (
    SlowTrainer,
    StoredBatches,
    batch_in_python,
    hits_at_once,
    hits_one_by_one,
    look_up_one_by_one,
    look_up_together,
)
from labkit.hardware.allocator import keep_memory
from labkit.hardware.calibration import matmul_gflops

TUNED = {
    "make_batch": StoredBatches(),
    "look_up": look_up_together,
    "count_hits": hits_at_once,
    "precision": "bf16",
    "batch_size": 4096,
}
PLANTED = {
    "none": {},
    "input": {"make_batch": batch_in_python},
    # of a table each, as many lookups as one call for all; it matters where they are small
    "lookups": {"look_up": look_up_one_by_one, "make_batch": StoredBatches(256), "tables": 256, "batch_size": 512},
    "sync": {"count_hits": hits_one_by_one},
    "precision": {"precision": "fp32"},
    "batch size": {"batch_size": 16},
}


def precision_that_pays() -> str:
    speeds = [matmul_gflops(torch.device("cpu"), dtype, repeats=3) for dtype in (torch.float32, torch.bfloat16)]
    return "bf16" if speeds[1] > speeds[0] else "fp32"


if __name__ == "__main__":
    keep_memory()  # page faults are a bottleneck of their own
    trainer = SlowTrainer(**{**TUNED, "precision": precision_that_pays(), **PLANTED[sys.argv[1]]})
    for _ in range(100):
        trainer.step()

"""Steps that fill fresh memory besides, profiled as in a notebook: `fresh_memory.py FOLDER [keep]`."""

import json
import sys
from dataclasses import asdict

import torch
from planted import TUNED, precision_that_pays

from labkit.course.slow_trainer import SlowTrainer, hits_at_once
from labkit.hardware.allocator import keep_memory
from labkit.profiling.recording.profile_steps import profile_steps

FRESH, EACH_BYTES = 4, 2**26


def hits_with_fresh_memory(logit, label):
    for _ in range(FRESH):
        torch.zeros(EACH_BYTES // 4)  # more than glibc ever keeps by itself
    return hits_at_once(logit, label)


if __name__ == "__main__":
    torch.set_num_threads(1)
    if "keep" in sys.argv:
        keep_memory()
    trainer = SlowTrainer(**{**TUNED, "precision": precision_that_pays(), "count_hits": hits_with_fresh_memory})
    profile = profile_steps(trainer.step, sys.argv[1], skip=8, warmup=1, steps=4)
    print(json.dumps([profile.faults and asdict(profile.faults), [finding.name for finding in profile.findings]]))

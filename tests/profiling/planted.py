"""Trains with one bottleneck, or with none, and prints what a profile of each finds: `planted.py FOLDER`.

All of it is one process, on one core. What other programs do to it makes a step longer, so of two profiles the quicker
one counts, and shares are of the time in which it had a core.
"""

import json
import sys
from dataclasses import asdict

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
from labkit.hardware.calibration import calibrate
from labkit.profiling.diagnosis import rules
from labkit.profiling.recording.costs import fault_cost_us
from labkit.profiling.recording.profile_steps import profile_steps

TUNED = {
    "make_batch": StoredBatches(),
    "look_up": look_up_together,
    "count_hits": hits_at_once,
    "precision": "bf16",
    "batch_size": 4096,
}
FRESH_BYTES = 2**27
WORTH_SHARE = rules.WORTH_SHARE


def hits_with_fresh_memory(logit, label):
    torch.zeros(FRESH_BYTES // 4)  # more than glibc ever keeps by itself
    return hits_at_once(logit, label)


PLANTED = {
    "kept memory": {"count_hits": hits_with_fresh_memory},
    "none": {},
    "input": {"make_batch": batch_in_python, "batch_size": 1024},
    # of a table each, as many lookups as one call for all; it matters where they are small
    "lookups": {"look_up": look_up_one_by_one, "make_batch": StoredBatches(256), "tables": 256, "batch_size": 512},
    "sync": {"count_hits": hits_one_by_one},
    "precision": {"precision": "fp32"},
    "batch size": {"batch_size": 16},
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    card = calibrate(repeats=3)
    tuned = TUNED | {"precision": "bf16" if card.bf16_gflops > card.fp32_gflops else "fp32"}

    def found(**planted):
        trainer = SlowTrainer(**tuned | planted)
        schedule = {"skip": 3, "warmup": 1, "steps": 3, "graph": False}
        profiles = [profile_steps(trainer.step, sys.argv[1], card=card, **schedule) for _ in range(2)]
        best = min(profiles, key=lambda profile: profile.time.step_us)
        ran = 1 - best.phases.set_index("phase")["share"].get("idle", 0.0)
        rules.WORTH_SHARE = WORTH_SHARE * ran
        findings = [finding.name for finding in best.findings if finding.name != "idle"]
        return {"findings": findings, "faults": best.faults and asdict(best.faults)}

    answers = {"page faults": found(count_hits=hits_with_fresh_memory)}
    # page faults are a bottleneck of their own; what is kept from here on cannot be given back
    kept = keep_memory()
    answers |= {name: found(**planted) for name, planted in PLANTED.items()}
    answers |= {"keeps": kept, "card": asdict(card), "fault_cost_us": fault_cost_us()}
    print(json.dumps(answers))

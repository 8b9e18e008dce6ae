"""Trains with one bottleneck, or with none, and prints what a profile of each finds: `planted.py FOLDER`.

All of it is one process, on one core. What other programs do to it makes a step longer, so of several profiles the
quickest one counts, and shares are of the time in which it had a core.
"""

import json
import sys
from dataclasses import asdict

import torch

from labkit.course import slow_trainer as trainers
from labkit.hardware.allocator import keep_memory
from labkit.hardware.calibration import calibrate
from labkit.profiling.diagnosis import rules
from labkit.profiling.recording.costs import fault_cost_us
from labkit.profiling.recording.profile_steps import profile_steps

FRESH_BYTES = 2**27
WORTH_SHARE = rules.WORTH_SHARE


def hits_with_fresh_memory(logit, label):
    torch.zeros(FRESH_BYTES // 4)  # more than glibc ever keeps by itself
    return trainers.hits_at_once(logit, label)


TUNED = {
    "make_batch": trainers.StoredBatches(),
    "look_up": trainers.look_up_together,
    "count_hits": trainers.hits_at_once,
    "batch_size": 4096,
}
OF_MEMORY = {"count_hits": hits_with_fresh_memory, "batch_size": 1024}
PLANTED = {
    "kept memory": OF_MEMORY,
    "none": {},
    "input": {"make_batch": trainers.batch_in_python, "batch_size": 512},
    # of a table each, as many lookups as one call for all; it matters where they are small
    "lookups": {
        "look_up": trainers.look_up_one_by_one, "make_batch": trainers.StoredBatches(256), "tables": 256,
        "batch_size": 512,
    },
    "sync": {"count_hits": trainers.hits_one_by_one, "batch_size": 1024},
    "precision": {"precision": "fp32"},
    "batch size": {"batch_size": 16},
}  # fmt: skip
CLOSE = ("none", "lookups", "precision", "batch size")
"""Where little decides, two profiles are made at least."""
UNDISTURBED, MOST = 0.9, 4
"""Share of the time in which a profile had a core, and how many profiles are made to find such a one."""

if __name__ == "__main__":
    torch.set_num_threads(1)
    card = calibrate(repeats=3)
    tuned = TUNED | {"precision": "bf16" if card.bf16_gflops > card.fp32_gflops else "fp32"}

    def found(name, planted):
        trainer = trainers.SlowTrainer(**tuned | planted)
        schedule = {"skip": 2, "warmup": 1, "steps": 3, "graph": False}
        profiles, ran = [], 0.0
        while len(profiles) < (2 if name in CLOSE else 1) or (ran < UNDISTURBED and len(profiles) < MOST):
            profiles.append(profile_steps(trainer.step, sys.argv[1], card=card, **schedule))
            best = min(profiles, key=lambda profile: profile.time.step_us)
            ran = 1 - best.phases.set_index("phase")["share"].get("idle", 0.0)
        rules.WORTH_SHARE = WORTH_SHARE * ran
        findings = [finding.name for finding in best.findings if finding.name != "idle"]
        return {"findings": findings, "faults": best.faults and asdict(best.faults)}

    answers = {"page faults": found("page faults", OF_MEMORY)}
    # page faults are a bottleneck of their own; what is kept from here on cannot be given back
    kept = keep_memory()
    answers |= {name: found(name, planted) for name, planted in PLANTED.items()}
    answers |= {"keeps": kept, "card": asdict(card), "fault_cost_us": fault_cost_us()}
    print(json.dumps(answers))

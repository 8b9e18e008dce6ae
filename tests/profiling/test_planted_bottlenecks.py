"""Each of six bottlenecks is named first on the script that has it alone, and a well-tuned script has none.

All of them are trained in one process of their own, on one core, by running this file. What other programs do to it
makes a step longer, so of some profiles the quickest one counts.
"""

import contextlib
import json
import mmap
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from labkit.hardware import calibrate, keep_memory
from labkit.profiling.capture import fault_cost_us, minor_faults
from labkit.profiling.profile import profile_steps
from labkit.tracking import log
from labkit_course.apparatus import slow_trainer as trainers
from labkit_course.lab import from_lab

pytestmark = pytest.mark.quiet
look_up, make_batch = (from_lab("32", name) for name in ("look_up", "make_batch"))
FRESH_BYTES = 2**27
PAGES = FRESH_BYTES / mmap.PAGESIZE
HUGE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
UNDISTURBED, TRIES = 0.95, 4
"""Share of the time in which a profile had a core; as long as the quickest had less, another is made."""
BF16_PAYS = 1.25
"""Speed of products in bf16 over fp32 from which on a tenth of a step can be saved for sure."""


def hits(logit, label):  # as lab 32 gives it
    return ((logit > 0) == (label > 0.5)).sum()


def touch_memory(*_):
    torch.zeros(FRESH_BYTES // 4)  # more than glibc ever keeps by itself
    return 0


def train_all(folder):
    torch.set_num_threads(1)
    no_sampler = contextlib.nullcontext()  # the imports of its process take a second of a core
    no_sampler.failure = None
    log.Sampler = lambda *_, **__: no_sampler
    card = calibrate(repeats=3)
    tuned = {
        "make_batch": make_batch,
        "look_up": look_up,
        "count_hits": hits,
        "batch_size": 4096,
        "precision": "bf16" if card.bf16_gflops > card.fp32_gflops else "fp32",
    }
    # of narrow layers, slow arithmetic does not hide what is planted
    narrow = {"hidden": 64}
    planted = {
        "none": {},
        "input": {"make_batch": trainers.batch_in_python, "batch_size": 512},
        "lookups": {"look_up": trainers.look_up_one_by_one, "tables": 256, "batch_size": 256, **narrow},
        "sync": {"count_hits": trainers.hits_one_by_one, "batch_size": 1024, **narrow},
        "precision": {"precision": "fp32"},
        "batch size": {"batch_size": 16},
    }

    def found(changes):
        trainer, profiles, ran = trainers.SlowTrainer(**tuned | changes), [], 0.0
        while ran < UNDISTURBED and len(profiles) < TRIES:
            profiles.append(profile_steps(trainer.step, folder, limits=card, skip=2, warmup=1, steps=3))
            best = min(profiles, key=lambda profile: profile.time.step_us)
            ran = 1 - best.phases.set_index("phase")["share"].get("idle", 0.0)
        return [finding.name for finding in best.findings if finding.name != "idle"], best.faults

    answers, faults = {}, None
    if fault_cost_us() is not None:
        answers["page faults"], faults = found({"count_hits": touch_memory, "batch_size": 1024})
    # page faults are a bottleneck of their own; what is kept from here on cannot be given back
    keeps = keep_memory()
    for _ in range(8):  # the heap takes some rounds to find its size
        before, _ = minor_faults(), touch_memory()
    answers["faults of kept memory"] = minor_faults() - before if keeps else 0
    answers |= {name: found(changes)[0] for name, changes in planted.items()}
    print(json.dumps(answers | {"faults": faults and asdict(faults), "card": asdict(card)}))


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    command = [sys.executable, __file__, tmp_path_factory.mktemp("runs")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("planted", ["input", "lookups", "sync", "batch size"])
def test_the_planted_bottleneck_is_named_first(planted, answers):
    assert answers[planted][:1] == [planted]


def test_fp32_is_named_first_where_bf16_pays(answers):
    card = answers["card"]
    if card["bf16_gflops"] < BF16_PAYS * card["fp32_gflops"]:
        assert "precision" not in answers["precision"]
        pytest.skip(f"bf16 does not pay on {card['device']}, and the tool does not say that it does")
    assert answers["precision"][0] == "precision"


def test_a_well_tuned_script_has_nothing_worth_more_than_five_per_cent(answers):
    assert answers["none"] == []


def test_fresh_memory_is_named_first_and_kept_memory_has_no_faults(answers):
    if (faults := answers["faults"]) is None:
        pytest.skip("this system counts no page faults")
    if HUGE.exists() and "[always]" in HUGE.read_text(encoding="utf-8"):
        pytest.skip("all memory comes in pages of 2 MiB, whose faults are few")
    # each page is touched once; the allocator's own few come on top
    assert faults["unprofiled"] >= PAGES and sum(faults["by_phase"].values()) >= PAGES
    assert answers["page faults"][0] == "page faults"
    # a page of 4 KiB takes 0.04 µs to clear at 100 GB/s, and the system's own work comes on top
    assert faults["cost_us"] > 0.03
    assert answers["faults of kept memory"] < 0.1 * PAGES


if __name__ == "__main__":
    train_all(sys.argv[1])

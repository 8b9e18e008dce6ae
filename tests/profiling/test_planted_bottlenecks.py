"""Each of six bottlenecks is named first on the script that has it alone, and a well-tuned script has none.

All of them are trained in one process of their own, on one core, by running this file. What other programs do to it
makes a step longer, so of two profiles the quicker one counts, and shares are of the time in which it had a core.
"""

import json
import mmap
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
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


UNDISTURBED = 0.95
"""Share of the time in which a profile had a core; one that had less is made once more."""


def train_all(folder):
    torch.set_num_threads(1)
    card = calibrate(repeats=3)
    tuned = {
        "make_batch": trainers.StoredBatches(),
        "look_up": trainers.look_up_together,
        "count_hits": trainers.hits_at_once,
        "batch_size": 4096,
        "precision": "bf16" if card.bf16_gflops > card.fp32_gflops else "fp32",
    }
    # of a table each, as many lookups as one call for all; it matters where they are small
    small = {"make_batch": trainers.StoredBatches(256), "tables": 256, "batch_size": 512}
    of_memory = {"count_hits": hits_with_fresh_memory, "batch_size": 1024}
    planted = {
        "kept memory": of_memory,
        "none": {},
        "input": {"make_batch": trainers.batch_in_python, "batch_size": 512},
        "lookups": {"look_up": trainers.look_up_one_by_one, **small},
        "sync": {"count_hits": trainers.hits_one_by_one, "batch_size": 1024},
        "precision": {"precision": "fp32"},
        "batch size": {"batch_size": 16},
    }

    def found(changes):
        trainer = trainers.SlowTrainer(**tuned | changes)
        schedule = {"skip": 2, "warmup": 1, "steps": 3, "graph": False}
        profiles, ran = [], 0.0
        while not profiles or (ran < UNDISTURBED and len(profiles) < 2):
            profiles.append(profile_steps(trainer.step, folder, card=card, **schedule))
            best = min(profiles, key=lambda profile: profile.time.step_us)
            ran = 1 - best.phases.set_index("phase")["share"].get("idle", 0.0)
        rules.WORTH_SHARE = WORTH_SHARE * ran
        findings = [finding.name for finding in best.findings if finding.name != "idle"]
        return {"findings": findings, "faults": best.faults and asdict(best.faults)}

    answers = {"page faults": found(of_memory)}
    # page faults are a bottleneck of their own; what is kept from here on cannot be given back
    kept = keep_memory()
    answers |= {name: found(changes) for name, changes in planted.items()}
    answers |= {"keeps": kept, "card": asdict(card), "fault_cost_us": fault_cost_us()}
    print(json.dumps(answers))


BF16_PAYS = 1.25
"""Speed of products in bf16 over fp32 from which on a tenth of a step can be saved for sure."""
PAGES = FRESH_BYTES / mmap.PAGESIZE
HUGE = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    command = [sys.executable, __file__, tmp_path_factory.mktemp("runs")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("planted", ["input", "lookups", "sync", "batch size"])
def test_the_planted_bottleneck_is_named_first(planted, answers):
    assert answers[planted]["findings"][:1] == [planted]


def test_fp32_is_named_first_where_bf16_pays(answers):
    card, found = answers["card"], answers["precision"]["findings"]
    if card["bf16_gflops"] < BF16_PAYS * card["fp32_gflops"]:
        assert "precision" not in found
        pytest.skip(f"bf16 does not pay on {card['device']}, and the tool does not say that it does")
    assert found[0] == "precision"


def test_a_well_tuned_script_has_nothing_worth_more_than_five_per_cent(answers):
    assert answers["none"]["findings"] == []


def test_fresh_memory_is_named_first_and_kept_memory_is_no_finding(answers):
    faults = answers["page faults"]["faults"]
    if faults is None:
        pytest.skip("this system counts no page faults")
    if HUGE.exists() and "[always]" in HUGE.read_text(encoding="utf-8"):
        pytest.skip("all memory comes in pages of 2 MiB, whose faults are few")
    # each page is touched once; the allocator's own few come on top
    assert faults["unprofiled"] >= PAGES and sum(faults["by_phase"].values()) >= PAGES
    assert answers["page faults"]["findings"][0] == "page faults"
    # a page of 4 KiB takes 0.04 µs to clear at 100 GB/s, and the system's own work comes on top
    assert answers["fault_cost_us"] > 0.03
    if answers["keeps"]:
        assert answers["kept memory"]["faults"]["unprofiled"] < 0.1 * PAGES
        assert "page faults" not in answers["kept memory"]["findings"]


if __name__ == "__main__":
    train_all(sys.argv[1])

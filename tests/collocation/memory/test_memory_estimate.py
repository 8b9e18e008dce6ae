import os
import subprocess
import sys
from dataclasses import fields

import pytest

from labkit.collocation.memory.estimate import METHODS, MemoryEstimate, estimate_memory, estimates, step_kinds
from labkit.collocation.memory.job_shape import ClickShape
from labkit.collocation.memory.measure import ask_child
from labkit.collocation.memory.walk import walk
from labkit.training.request import TrainRequest
from labkit.training.step import StepKind

NEAR = 0.15
"""What an estimate may miss a measured peak by; the whole grid is in benchmarks/results/memory_estimates.json."""

JOBS = [
    TrainRequest("dlrm", "synthetic-small", batch_size=128, precision="fp32", compiled_tables=False),
    TrainRequest("dlrm", "synthetic-small", batch_size=8192, precision="bf16", compiled_tables=False),
    TrainRequest("speech", batch_size=8, precision="bf16"),
    TrainRequest("speech", batch_size=48, precision="fp32"),
]


@pytest.mark.parametrize("request_", JOBS, ids=lambda each: f"{each.job}-{each.batch_size}-{each.precision}")
def test_tensors_are_estimated_near_to_what_is_measured(request_, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    # of tensors alone: allocations are counted, so the figure is the same on a busy machine
    measured = ask_child({"what": "tensors", "request": request_.to_dict(), "steps": 2, "device": "cpu"})["bytes"]
    assert estimate_memory(request_).tensors_bytes == pytest.approx(measured, rel=NEAR)


def test_parts_add_up_and_the_process_takes_more():
    estimate = estimate_memory(JOBS[0])
    parts = ("parameters", "gradients", "optimiser", "activations", "temporary")
    assert sum(getattr(estimate, f"{part}_bytes") for part in parts) == estimate.tensors_bytes
    assert estimate.process_bytes > estimate.tensors_bytes
    assert {field.name for field in fields(MemoryEstimate)} >= {"peak", "kind", "notes"}


def test_the_optimiser_decides_how_much_state_there_is():
    def state(optimiser: str) -> int:
        request = TrainRequest(
            "dlrm", "synthetic-small", precision="fp32", compiled_tables=False, optimiser=optimiser, lr=1.0
        )
        return estimate_memory(request).optimiser_bytes

    weights = estimate_memory(JOBS[0]).parameters_bytes
    assert state("sgd") == 0
    assert state("adagrad") == pytest.approx(weights, rel=0.05)
    assert state("adam") == pytest.approx(2 * weights, rel=0.05)


def test_a_gpu_needs_what_tensors_take_and_an_assumed_context():
    estimate = estimate_memory(JOBS[0], device="cuda")
    assert estimate.process_bytes > estimate.tensors_bytes + (256 << 20)
    assert any("assumed" in note for note in estimate.notes)


def test_what_is_left_to_be_chosen_counts_as_the_dearest_way():
    fixed = [
        estimate_memory(TrainRequest("speech", batch_size=32, precision=precision)) for precision in ("fp32", "bf16")
    ]
    free = estimate_memory(TrainRequest("speech", batch_size=32))
    assert free.tensors_bytes == max(each.tensors_bytes for each in fixed)
    assert [str(kind) for kind in step_kinds(TrainRequest("speech"), "cpu")] == ["fp32", "bf16"]


def test_all_methods_answer():
    frame = estimates(JOBS[0])
    assert tuple(frame["method"]) == METHODS
    assert (frame["predicted"] > 0).all()


def test_a_job_of_a_terabyte_is_estimated_without_memory():
    program = """
import resource
import torch.distributed._tools.mem_tracker
from labkit.collocation.memory.horus import horus_estimate
from labkit.collocation.memory.job_shape import ClickShape
from labkit.collocation.memory.tracker import tracked_bytes
from labkit.collocation.memory.walk import walk
from labkit.training.request import TrainRequest
from labkit.training.step import StepKind

shape = ClickShape(13, (40_000_000,) * 26, 1, 4_000_000_000, 90_000_000, 0)
request = TrainRequest("dlrm", "synthetic", preset="mlperf-v1", batch_size=65_536, optimiser="adam", lr=1.0)
resource.setrlimit(resource.RLIMIT_DATA, (2 << 30, 2 << 30))
total = walk(request, shape, StepKind("fp32"), "cpu", threads=2).total
assert total > 3 * 4 * 128 * sum(shape.num_rows), total
assert tracked_bytes(request, shape, StepKind("bf16")) > 4 * 128 * sum(shape.num_rows)
assert horus_estimate(request, shape) > total
"""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert ended.returncode == 0, ended.stderr[-2000:]


def test_the_walk_leaves_the_gradient_of_bags_to_the_update():
    shape = ClickShape(4, (1000,) * 4, 1, 100_000, 1, 0)
    request = TrainRequest("dlrm", "synthetic", preset="tour", batch_size=4096)
    one, two = (walk(request, shape, StepKind("fp32", compiled), "cpu", threads=2) for compiled in (False, True))
    assert one.phase != "evaluation"
    # compiled: slots for 4,000 rows, and for two threads room for 1,000 distinct rows
    assert two.total - one.total == pytest.approx(4 * 4000 + 2 * 1000 * 4 + 2 * 1000 * 16 * 4, abs=1000)

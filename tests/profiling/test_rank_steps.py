"""Traces of several ranks: what is exchange and what is waiting, and the rank that is late."""

import json
import os
import time

import pytest
import torch
import torch.distributed as dist
from kineto import event, note

from labkit import UserError
from labkit.profiling import compare_ranks


def trace_of(folder, name, *steps, length=1000):
    """A rank's trace, whose steps have one collective each: when it begins in the step, and how long it lasts."""
    events = []
    for number, (begins, lasts) in enumerate(steps):
        start = number * length
        events += [
            note(f"ProfilerStep#{number}", start, length),
            event("aten::mm", start, begins),
            note("gloo:all_reduce", start + begins, lasts, tid=2),
        ]
    (folder / name).write_text(json.dumps({"traceEvents": events}))
    return folder / name


def test_the_last_rank_of_each_step_only_exchanges_and_the_others_also_wait(tmp_path):
    waits, late = (
        trace_of(tmp_path, "a.json", (100, 850), (100, 650)),
        trace_of(tmp_path, "b.json", (800, 150), (600, 150)),
    )
    found = compare_ranks([waits, late])
    assert [(row["rank"], row["exchange_us"], row["waiting_us"]) for row in found.rows] == [
        ("a.json", 150, 600),
        ("b.json", 150, 0),
    ]
    assert found.late == ("b.json", 600)
    assert "b.json is late: the others wait 0.6 ms per step for it, 60 % of one." in found.headline.replace(
        "60%", "60 %"
    )


def test_ranks_that_are_late_in_turn_are_not_late(tmp_path):
    traces = [
        trace_of(tmp_path, "a.json", (100, 800), (700, 200)),
        trace_of(tmp_path, "b.json", (700, 200), (100, 800)),
    ]
    found = compare_ranks(traces)
    assert [row["waiting_us"] for row in found.rows] == [300, 300]
    assert found.late is None and "No rank is late" in found.headline


def test_traces_that_cannot_be_compared_are_refused(tmp_path):
    one, two = trace_of(tmp_path, "a.json", (1, 500)), trace_of(tmp_path, "b.json", (1, 500), (1, 500))
    with pytest.raises(UserError, match=r"b.json: its steps are not those of a.json"):
        compare_ranks([one, two])
    alone = [trace_of(tmp_path, name, (900, 1)) for name in ("c.json", "d.json")]
    with pytest.raises(UserError, match="no trace notes that a rank waits"):
        compare_ranks(alone)


def record_rank(rank, folder):
    from torch.profiler import ProfilerActivity, profile, schedule

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    model, steps = torch.nn.Linear(8, 1), schedule(wait=0, warmup=1, active=3, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], schedule=steps) as profiler:
        for _ in range(4):
            model(torch.ones(4, 8)).mean().backward()
            time.sleep(0.1 * rank)  # as for a batch that comes late
            for weight in model.parameters():
                dist.all_reduce(weight.grad)
            profiler.step()
    profiler.export_chrome_trace(f"{folder}/traces/rank{rank}.json")
    os._exit(0)  # gloo may abort a process that closes its connections after the other one


def test_a_late_rank_of_two_real_ones_is_named(tmp_path, cli):
    (tmp_path / "traces").mkdir()
    torch.multiprocessing.spawn(record_rank, args=(str(tmp_path),), nprocs=2)
    assert "rank1.json is late: the others wait" in cli("profile show", tmp_path / "traces").out
    found = cli("profile show --json", tmp_path / "traces").json
    assert found["late"][0] == "rank1.json"
    assert found["rows"][0]["waiting_us"] > 50_000 > found["rows"][1]["waiting_us"]

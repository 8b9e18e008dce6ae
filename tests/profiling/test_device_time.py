"""What devices did, by hand."""

import random

import pytest
from kineto import event, trace_of

from labkit.profiling.traces.device_time import device_breakdown


def ran(name, start, end, stream=7, device=0, cat="kernel"):
    return event(name, start, end - start, cat, stream, device, correlation=1, stream=stream, device=device)


@pytest.fixture
def trace(tmp_path):
    return lambda *events: trace_of(tmp_path, [event("aten::mm", 0, 1), *events])


NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, ...)"


def test_time_in_which_streams_overlap_counts_once(trace):
    found = device_breakdown(
        trace(
            ran("gemm", 100, 130),
            ran("relu", 120, 150, stream=13),
            ran("gemm", 125, 128, stream=20),  # within the first
            ran(NCCL, 140, 180, stream=20),
            ran("Memcpy HtoD (Pageable -> Device)", 190, 200, cat="gpu_memcpy"),
        )
    )
    row = found.iloc[0].to_dict()
    assert len(found) == 1 and row["device"] == 0
    assert (row["span_us"], row["idle_us"], row["compute_us"], row["non_compute_us"]) == (100, 10, 50, 40)
    assert (row["idle_share"], row["compute_share"], row["non_compute_share"]) == (0.1, 0.5, 0.4)


def test_each_device_has_its_own_time(trace):
    both = trace(ran("gemm", 0, 10), ran("gemm", 20, 30), ran("gemm", 0, 30, device=1), ran(NCCL, 0, 30, device=1))
    found = device_breakdown(both).set_index("device")
    assert found["idle_us"].to_dict() == {0: 10, 1: 0}
    assert found["compute_share"].to_dict() == pytest.approx({0: 2 / 3, 1: 1})
    assert device_breakdown(trace()).empty


def test_a_devices_time_is_divided_as_hta_divides_it(tmp_path, monkeypatch):
    hta = pytest.importorskip("hta.trace_analysis", reason="HTA is not installed: pip install HolisticTraceAnalysis")
    monkeypatch.setenv("HTA_DISABLE_NS_ROUNDING", "1")
    draw, free, events = random.Random(17), dict.fromkeys((7, 13, 20), 0.0), []
    for number in range(150):
        launched, stream = 5e6 + 50 * number, draw.choice(list(free))
        name, kind = draw.choice(
            [("gemm", "kernel"), (NCCL, "kernel"), ("Memcpy HtoD (Pageable -> Device)", "gpu_memcpy")]
        )
        start = max(launched + draw.uniform(5, 9), free[stream])
        free[stream] = start + draw.uniform(4, 90)
        ids = {"correlation": number + 1, "stream": stream, "device": 0}
        events += [
            event("aten::addmm", launched - 2, 12, tid=4321, pid=4321, **{"External id": number + 1}),
            event("cudaLaunchKernel", launched, 4, "cuda_runtime", 4321, 4321, cbid=211, correlation=number + 1),
            event(name, start, free[stream] - start, kind, stream, 0, **ids),
        ]
    events.append(event("ProfilerStep#4", 5e6 - 9, 8000, "user_annotation", 4321, 4321))
    events.sort(key=lambda each: each["ts"])
    ours = device_breakdown(trace_of(tmp_path, events)).iloc[0]
    found = hta.TraceAnalysis(trace_files={0: str(tmp_path / "t.json")}, trace_dir="/", include_last_profiler_step=True)
    theirs = found.get_temporal_breakdown(visualize=False).iloc[0]
    for our, their in (("span", "kernel"), *((part, part) for part in ("idle", "compute", "non_compute"))):
        # in ns they differ by the rounding of sums of up to 1e7 µs in doubles
        assert ours[f"{our}_us"] == pytest.approx(theirs[f"{their}_time(us)"], abs=1e-4)
        assert ours[f"{our}_us"] > 0.02 * ours["span_us"], "a part too small to compare"

"""What devices did: numbers by hand. HTA's are in test_hta_agreement.py."""

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


def test_a_trace_without_a_device_has_no_rows(trace):
    of_cpu = trace(event("ProfilerStep#1", 0, 5, "user_annotation"))
    assert device_breakdown(of_cpu).empty

"""What devices did: numbers by hand, and as Holistic Trace Analysis divides the time of made-up traces."""

import random

import pytest
from kineto import event, note, trace_of, write

from labkit.profiling.traces.device_time import device_breakdown
from labkit.profiling.traces.trace import read_trace


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


HOST, DEVICE, STREAMS = 4321, 0, (7, 13, 20)
WORK = (
    ("kernel", "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x64x32_execute_segment_k_off_kernel__5x_cublas"),
    ("kernel", "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int)"),
    ("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
    ("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)"),
    ("gpu_memset", "Memset (Device)"),
)


def training(seed, digits):
    """Events of five steps on a GPU: operators launch kernels and copies, which queue on streams."""
    draw, events, correlation, now = random.Random(seed), [], 100, 5_000_000
    free = dict.fromkeys(STREAMS, 0)

    def us(low, high):
        return round(draw.uniform(low, high), digits)

    for number in range(4, 9):
        began = now
        now += us(300, 600)  # a batch is loaded
        for _ in range(30):
            correlation += 1
            (category, name), stream = draw.choice(WORK), draw.choice(STREAMS)
            launched = now + us(2, 5)
            start = max(launched + us(5, 9), free[stream])
            free[stream] = start + (lasts := us(4, 160))
            where = {"device": DEVICE, "context": 1, "stream": stream, "correlation": correlation}
            events += [
                event("aten::addmm", now, 12, pid=HOST, tid=HOST, **{"External id": correlation}),
                event("cudaLaunchKernel", launched, 4, "cuda_runtime", HOST, HOST, cbid=211, correlation=correlation),
                event(name, start, lasts, category, stream, DEVICE, **where),
            ]
            now += us(15, 60)
        now = max(now, *free.values()) + us(5, 50)  # it waits for the device
        events.append(note(f"ProfilerStep#{number}", began, now - began, HOST) | {"pid": HOST})
        now += us(1, 3)
    return sorted(events, key=lambda each: each["ts"])


@pytest.mark.parametrize("digits", [0, 3], ids=["us", "ns"])
def test_a_devices_time_is_divided_as_hta_divides_it(tmp_path, monkeypatch, digits):
    hta = pytest.importorskip("hta.trace_analysis", reason="HTA is not installed: pip install HolisticTraceAnalysis")
    if digits:  # else HTA shortens each kernel to whole µs
        monkeypatch.setenv("HTA_DISABLE_NS_ROUNDING", "1")
    paths = [write(tmp_path / f"rank-{rank}.json", training(17 + rank, digits), rank) for rank in range(2)]
    files = {rank: str(path) for rank, path in enumerate(paths)}
    found = hta.TraceAnalysis(trace_files=files, trace_dir="/", include_last_profiler_step=True)
    theirs = found.get_temporal_breakdown(visualize=False).set_index("rank")
    for rank, path in enumerate(paths):
        ours = device_breakdown(read_trace(path)).iloc[0]
        for our, their in (("span", "kernel"), *((part, part) for part in ("idle", "compute", "non_compute"))):
            # in ns they differ by the rounding of sums of up to 1e7 µs in doubles
            assert ours[f"{our}_us"] == pytest.approx(theirs.loc[rank, f"{their}_time(us)"], abs=1e-4)
            assert ours[f"{our}_us"] > 0.05 * ours["span_us"], "a part too small to compare"
    # as docs/profiling.md asks it
    assert set(found.get_queue_length_summary()["queue_length"].reset_index()["stream"]) == set(STREAMS)

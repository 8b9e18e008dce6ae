"""Our breakdowns beside those of Holistic Trace Analysis, and what labkit asks it for, on made-up traces of a GPU."""

import gzip
import json
import random
import sys

import pytest
from kineto import event, write

from labkit.errors import UserError
from labkit.profiling.traces import hta as ask_hta
from labkit.profiling.traces.device_time import device_breakdown, kernel_breakdown
from labkit.profiling.traces.trace import read_trace

FIRST_STEP, STEPS, LAYERS = 4, 5, 12
RUNS_AHEAD = FIRST_STEP + 1
"""The step that does not wait for the device."""
HOST, DEVICE = 4321, 0
COMPUTE, EXTRA, NCCL = 7, 13, 20
KERNELS = (
    "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x64x32_execute_segment_k_off_kernel__5x_cublas",
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >(int)",
    "void at::native::(anonymous namespace)::EmbeddingBag_updateOutputKernel_sum_mean<float, long>(long const*)",
    "triton_poi_fused_relu_threshold_backward_3",
)
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


class Kineto:
    """A trace as torch.profiler writes it of training on a GPU: operators launch kernels, which queue on streams."""

    def __init__(self, seed, rank=0, whole_us=True):
        self.random, self.whole_us, self.rank = random.Random(seed), whole_us, rank
        self.events, self.now, self.correlation = [], 5_000_000, 100
        self.free = dict.fromkeys((COMPUTE, EXTRA, NCCL), 0)

    def us(self, low, high):
        return self.random.randint(low, high) if self.whole_us else round(self.random.uniform(low, high), 3)

    def add(self, cat, name, start, end, pid=HOST, tid=HOST, **args):
        span = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid}
        self.events.append(
            {**span, "ts": start, "dur": end - start if self.whole_us else round(end - start, 3), "args": args}
        )

    def launch(self, operator, call, cat, name, stream, least_us, most_us, after=0, **args):
        """An operator that launches one thing, which begins when its stream is free, and `after` another one's end."""
        self.correlation += 1
        begun = self.now
        call_at = begun + self.us(2, 5)
        self.now = call_at + self.us(3, 9)
        self.add("cuda_runtime", call, call_at, self.now, cbid=211, correlation=self.correlation)
        start = max(self.now + self.us(1, 4), self.free[stream] + self.us(0, 2), after)
        self.free[stream] = start + self.us(least_us, most_us)
        where = {"device": DEVICE, "context": 1, "stream": stream, "correlation": self.correlation}
        where["External id"] = begun
        self.add(cat, name, start, self.free[stream], DEVICE, stream, **where, **args)
        flow = {"id": self.correlation, "cat": "ac2g", "name": "ac2g"}
        self.events.append({"ph": "s", **flow, "pid": HOST, "tid": HOST, "ts": call_at})
        self.events.append({"ph": "f", **flow, "pid": DEVICE, "tid": stream, "ts": start, "bp": "e"})
        self.now += self.us(1, 6)
        self.add("cpu_op", operator, begun, self.now, **{"External id": begun, "Record function id": 0})
        self.now += self.us(1, 30)

    def step(self, number):
        begun = self.now
        self.now += self.us(300, 600)  # a batch is loaded
        self.launch("aten::copy_", "cudaMemcpyAsync", "gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", COMPUTE, 20, 60,
                    bytes=1 << 20, **{"memory bandwidth (GB/s)": 12.5})  # fmt: skip
        shape = {"grid": [64, 1, 1], "block": [128, 1, 1], "registers per thread": 32, "shared memory": 0}
        for layer in range(LAYERS):
            name = self.random.choice(KERNELS)
            stream = EXTRA if layer % 5 == 4 else COMPUTE
            self.launch("aten::addmm", "cudaLaunchKernel", "kernel", name, stream, 4, 160, **shape)
            if layer % 3 == 2:
                self.launch("nccl:all_reduce", "cudaLaunchKernelExC", "kernel", ALL_REDUCE, NCCL, 80, 400,
                            after=self.free[COMPUTE], **shape)  # fmt: skip
        self.launch("aten::zero_", "cudaMemsetAsync", "gpu_memset", "Memset (Device)", EXTRA, 2, 8, bytes=4096)
        self.launch("aten::item", "cudaMemcpyAsync", "gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", COMPUTE, 1, 3,
                    after=max(self.free.values()), bytes=4)  # fmt: skip
        if number != RUNS_AHEAD:  # the others wait for the device
            waits = self.now
            self.now = max(self.now, *self.free.values()) + self.us(3, 8)
            self.correlation += 1
            self.add("cuda_runtime", "cudaDeviceSynchronize", waits, self.now, cbid=165, correlation=self.correlation)
        self.now += self.us(5, 50)
        self.add("user_annotation", f"ProfilerStep#{number}", begun, self.now, **{"External id": begun})
        self.add("gpu_user_annotation", f"ProfilerStep#{number}", begun + 20, self.now + 20, DEVICE, COMPUTE)
        self.now += self.us(1, 3)

    def write(self, path):
        for number in range(FIRST_STEP, FIRST_STEP + STEPS):
            self.step(number)
        host, gpu = ({"ph": "M", "pid": pid, "tid": 0, "ts": 5_000_000} for pid in (HOST, DEVICE))
        about = [
            host | {"name": "process_name", "args": {"name": "python"}},
            gpu | {"name": "process_labels", "args": {"labels": "GPU 0"}},
        ]
        whole = {"ph": "X", "cat": "Trace", "ts": 5_000_000, "dur": self.now - 5_000_000, "pid": "Spans"}
        whole |= {"tid": "PyTorch Profiler", "name": "PyTorch Profiler (0)", "args": {"Op count": 0}}
        trace = {
            "schemaVersion": 1,
            "deviceProperties": [{"id": 0, "name": "NVIDIA H100", "computeMajor": 9, "numSms": 132, "warpSize": 32}],
            "distributedInfo": {"backend": "nccl", "rank": self.rank, "world_size": 2},
            "displayTimeUnit": "ms",
            "traceEvents": [*about, *sorted(self.events, key=lambda event: event["ts"]), whole],
        }
        path.write_bytes(gzip.compress(json.dumps(trace).encode()))
        return path


@pytest.fixture(scope="module")
def analysis():
    return pytest.importorskip(
        "hta.trace_analysis", reason="HTA is not installed: pip install HolisticTraceAnalysis"
    ).TraceAnalysis


@pytest.fixture
def ranks(tmp_path, request, monkeypatch):
    """Traces of two processes, with times in whole µs or in ns."""
    if request.param == "ns":  # else HTA shortens each kernel to whole µs
        monkeypatch.setenv("HTA_DISABLE_NS_ROUNDING", "1")
    made = [Kineto(seed=17 + rank, rank=rank, whole_us=request.param == "us") for rank in range(2)]
    return [each.write(tmp_path / f"rank-{each.rank}.json.gz") for each in made]


# HTA's numbers are those of the same intervals. In ns they differ by the rounding of sums of up to 1e7 µs in doubles.
SAME_US = 1e-4


@pytest.mark.parametrize("ranks", ["us", "ns"], indirect=True)
def test_a_devices_time_is_divided_as_hta_divides_it(ranks, analysis):
    files = {rank: str(path) for rank, path in enumerate(ranks)}
    found = analysis(trace_files=files, trace_dir="/", include_last_profiler_step=True)
    theirs = found.get_temporal_breakdown(visualize=False).set_index("rank")
    for rank, path in enumerate(ranks):
        ours = device_breakdown(read_trace(path)).iloc[0]
        for our, their in (("span", "kernel"), *((part, part) for part in ("idle", "compute", "non_compute"))):
            assert ours[f"{our}_us"] == pytest.approx(theirs.loc[rank, f"{their}_time(us)"], abs=SAME_US)
        for part in ("idle", "compute", "non_compute"):
            # HTA rounds percentages to two places
            assert 100 * ours[f"{part}_share"] == pytest.approx(theirs.loc[rank, f"{part}_time_pctg"], abs=0.0051)
            assert ours[f"{part}_share"] > 0.05, "a part too small to compare"


@pytest.mark.parametrize("ranks", ["us"], indirect=True)  # of ns HTA drops what is no whole µs of each stretch
def test_kinds_of_kernels_take_the_time_that_hta_gives_them(ranks, analysis):
    for path in ranks:
        found = analysis(trace_files={0: str(path)}, trace_dir="/", include_last_profiler_step=True)
        theirs, _ = found.get_gpu_kernel_breakdown(visualize=False, include_memory_kernels=True)
        ours = kernel_breakdown(read_trace(path)).set_index("kind")
        theirs = theirs[theirs["sum"] > 0]
        assert ours["time_us"].to_dict() == theirs.set_index("kernel_type")["sum"].to_dict()
        assert {"COMPUTATION", "COMMUNICATION", "MEMORY", "COMPUTATION overlapping COMMUNICATION"} <= set(ours.index)
        # HTA rounds percentages to one place
        shares = theirs.set_index("kernel_type")["percentage"].to_dict()
        assert (100 * ours["share"]).to_dict() == pytest.approx(shares, abs=0.051)


@pytest.mark.parametrize("ranks", ["us"], indirect=True)
def test_queue_lengths_are_told_for_each_rank_and_stream(ranks, analysis):
    found = ask_hta.queue_lengths(ranks)
    assert sorted(map(tuple, found[["rank", "stream"]].to_numpy().tolist())) == [
        (rank, stream) for rank in (0, 1) for stream in (COMPUTE, EXTRA, NCCL)
    ]
    launches = found[found["rank"] == 0].set_index("stream")["count"]
    assert launches[NCCL] == 2 * STEPS * LAYERS // 3  # one up at each launch, one down at each start
    assert (found["min"] == 0).all() and (found["max"] >= 1).all()


@pytest.mark.parametrize("ranks", ["us"], indirect=True)
def test_the_critical_path_of_a_step_leads_from_its_first_call_to_its_last_kernel(ranks, analysis):
    step = RUNS_AHEAD + 2  # one that waits for the device, after one that did
    found = ask_hta.critical_path(ranks[0], step)
    events = read_trace(ranks[0]).events.astype({"name": str, "category": str})
    whole = events[events["name"] == f"ProfilerStep#{step}"].iloc[0]
    inside = events[events["start_us"].between(whole["start_us"], whole["start_us"] + whole["duration_us"])]
    begins = inside.loc[inside["category"] == "cpu_op", "start_us"].min()
    kernels = inside[inside["category"].isin(["kernel", "gpu_memcpy", "gpu_memset"])]
    assert found["duration_us"].sum() == (kernels["start_us"] + kernels["duration_us"]).max() - begins
    assert found.loc[found["bound_by"] == "cpu_bound", "name"].tolist() == ["aten::copy_"]
    assert "Memcpy DtoH (Device -> Pageable)" in found["name"].tolist()


@pytest.mark.parametrize("ranks", ["us"], indirect=True)
def test_what_hta_cannot_do_is_told(ranks, analysis, tmp_path, monkeypatch):
    with pytest.raises(UserError, match=r"step 99 is not in this trace. It has 4, 5, 6, 7, 8"):
        ask_hta.critical_path(ranks[0], 99)
    of_cpu = write(tmp_path / "t.json", [event("aten::mm", 10, 5)])
    for ask in (lambda: ask_hta.queue_lengths([of_cpu]), lambda: ask_hta.critical_path(of_cpu, 1)):
        with pytest.raises(UserError, match="this analysis is of GPUs"):
            ask()
    monkeypatch.setitem(sys.modules, "hta.trace_analysis", None)
    monkeypatch.setitem(sys.modules, "hta", None)
    with pytest.raises(UserError, match="pip install HolisticTraceAnalysis"):
        ask_hta.queue_lengths(ranks)

"""What students write in 60_performance_model: the reference, what both are asked, and the usual mistakes."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from labkit_course.explanation import Explanation
from labkit_course.written import Case, WrittenExercise

# --- the walk

Call = tuple[str, float, int | None, int | None]
Kernel = tuple[str, float, Sequence[int]]


def walk(calls: Sequence[Call], kernels: Sequence[Kernel], without: Sequence[str] = ()) -> float:
    host, ends, free = 0.0, [], {}
    for kind, took, launches, waits_for in calls:
        if kind not in without:
            host += took
        if launches is not None:
            stream, lasts, after = kernels[launches]
            start = max([host, free.get(stream, 0.0), *(ends[other] for other in after)])
            ends.append(start + lasts)
            free[stream] = ends[-1] + 1.0
        if waits_for is not None:
            host = max(host, ends[waits_for])
    return max([host, *ends])


HOST_BOUND = [("T1", 3.0, None, None), ("T2", 5.0, None, None), ("T4", 2.0, 0, None), ("T3", 7.0, None, None)]
GPU_BOUND = [("T4", 3.0, 0, None), ("T4", 3.0, 1, None), ("T4", 3.0, 2, None)]
WAITING = [("T4", 2.0, 0, None), ("T5", 1.0, None, 0), ("T1", 4.0, None, None), ("T4", 2.0, 1, None)]
CROSSING = [("T4", 2.0, 0, None), ("T4", 2.0, 1, None)]


@functools.cache
def recorded() -> tuple[list[Call], list[Kernel]]:
    """A rank of the recorded step of eight V100s, as the notebook gives it to the student's function."""
    from labkit.perfmodel import read_step
    from labkit.project import shipped_datasets

    step = read_step(min((shipped_datasets() / "recorded" / "param-v100" / "original").iterdir()))
    calls = [(call.kind, call.us, call.launches, call.waits_for) for call in step.calls]
    return calls, [(kernel.stream, kernel.duration_us, kernel.after) for kernel in step.kernels]


WALK = WrittenExercise(
    walk,
    module="prediction",
    cases=(
        Case("a host slower than its kernel", lambda code: code(HOST_BOUND, [("7", 4.0, [])])),
        Case("three kernels of one stream", lambda code: code(GPU_BOUND, [("7", 50.0, [])] * 3)),
        Case("kernels of two streams", lambda code: code(CROSSING, [("7", 50.0, []), ("8", 5.0, [])])),
        Case("one that waits for another stream", lambda code: code(CROSSING, [("7", 50.0, []), ("8", 5.0, [0])])),
        Case("a host that synchronises", lambda code: code(WAITING, [("7", 50.0, []), ("7", 5.0, [])])),
        Case("the same without T1", lambda code: code(WAITING, [("7", 50.0, []), ("7", 5.0, [])], ["T1"])),
        Case("a recorded rank, bound by its host", lambda code: code(*recorded())),
        Case("nothing is launched", lambda code: code([("T5", 3.0, None, None)], [])),
    ),
    mistakes={
        ("        if kind not in without:\n            host += took", "        host += took"): (
            "A call whose kind is in `without` takes no time."
        ),
        ("return max([host, *ends])", "return host"): (
            "The step ends when the host *and* all kernels are done: the GPU may be the last."
        ),
        ("free[stream] = ends[-1] + 1.0", "free[stream] = ends[-1]"): (
            "Kernels of one stream start a microsecond apart at least: that is the paper's gap."
        ),
        (", *(ends[other] for other in after)", ""): "A kernel starts after the kernels that it waits for, too.",
        ("free.get(stream, 0.0)", 'free.get("", 0.0)'): (
            "Kernels of one stream run one after another: a stream is free when its last kernel has ended."
        ),
        (
            "        if waits_for is not None:\n            host = max(host, ends[waits_for])\n",
            "",
        ): "A call that synchronises ends when its kernel has ended: the host waits.",
        ("max([host, free", "max([free"): "No kernel starts before the host has launched it.",
    },
    hint="Keep the host's time, the end of each kernel in the order of launch, and for each stream when it is free. A "
    "kernel starts at the latest of: now on the host, its stream free, the kernels in `after` ended.",
    explanation="Lin et al., algorithm 1: two clocks that wait for each other at launches and synchronisations.",
)

# --- the roofline of a kernel


def kernel_us(flop: float, moved: float, gflop_per_s: float, gb_per_s: float, call_us: float) -> float:
    return call_us + max(flop / gflop_per_s, moved / gb_per_s) / 1e3


ROOFLINE = WrittenExercise(
    kernel_us,
    module="prediction",
    cases=(
        Case("much arithmetic", lambda code: code(2e9, 1e6, 100.0, 20.0, 2.0)),
        Case("many bytes", lambda code: code(1e6, 4e8, 100.0, 20.0, 2.0)),
        Case("nothing but the call", lambda code: code(0.0, 0.0, 100.0, 20.0, 2.0)),
        Case("both alike", lambda code: code(1e8, 2e7, 100.0, 20.0, 0.5)),
    ),
    mistakes={
        ("max(flop / gflop_per_s, moved / gb_per_s)", "(flop / gflop_per_s + moved / gb_per_s)"): (
            "Arithmetic and memory work at the same time: the slower of the two decides."
        ),
        ("call_us + ", ""): "Asking for it takes call_us, however small it is.",
        (" / 1e3", ""): "flop ÷ (GFLOP/s) is in nanoseconds: 1,000 of them are a microsecond.",
        ("max(", "min("): "The slower of the two decides: max.",
    },
    hint="x flop at y GFLOP/s take x / y nanoseconds, and so do x bytes at y GB/s.",
    explanation="The roofline of Williams et al. (CACM 2009), as a time, with the cost of the call before it.",
)

EXERCISES = {
    "60.walk": WALK,
    "60.roofline": ROOFLINE,
    "60.why_kernels_alone": Explanation(
        rubric=(
            "numbers: the kernels' share of the step, and what is left of it without T1 to T5",
            "why: the host is slower than the kernels it launches, so the GPU waits for launches",
            "consequence: which change removes overheads (larger batches, fused operators, CUDA graphs), and which not",
        ),
        model="The kernels fill less than half of this step: its batch is small, so each of them is done before the "
        "host has launched the next, and the time of the step is the host's. Without T1 to T5 what is left are the "
        "kernels and the collectives. CUDA graphs or fused operators take the host's part away; a faster GPU would "
        "change next to nothing.",
    ),
    "60.why_batch": Explanation(
        rubric=(
            "numbers: the idle share at the smallest and at the largest batch",
            "why: the time between operators does not grow with the batch, the operators' does",
            "limit: what a CPU cannot show of the paper's finding",
        ),
        model="What lies between operators, and views, cost the same for 16 samples as for 4,096, while products and "
        "lookups grow with the batch, so the idle share falls. A CPU has one timeline: between operators it "
        "computes, too, namely Python and autograd, and nothing runs meanwhile; on a GPU the two overlap.",
    ),
}

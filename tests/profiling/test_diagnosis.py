"""What the rules claim of a step, and what they leave alone."""

import pytest
from kineto import event, note, shaped, steps, trace_of

from labkit.hardware import Calibration
from labkit.profiling.case import Case, Faults, GpuTime
from labkit.profiling.over_time import launched_us
from labkit.profiling.rules import diagnose
from labkit.profiling.step_time import step_time

LIMITS = Calibration("some CPU", 2, 100.0, 250.0, 20.0, 1.0, "2026-11-22")
NO_BF16 = Calibration("some CPU", 2, 100.0, 40.0, 20.0, 1.0, "2026-11-22")
LENGTH = 10_000
LARGE, THIN = [[4096, 1024], [1024, 1024]], [[16, 1024], [1024, 1024]]
THIN_US = 2 * 16 * 1024 * 1024 / 100.0 / 1e3
"""What the card needs for such a product."""


def work(begin, length):
    """A long product of large matrices in bf16: nothing to find."""
    return shaped("aten::mm", begin, length, LARGE, "c10::BFloat16")


def phased(phase, length, *more):
    """A phase of so many microseconds, in which nothing happens but `more`, and work in the rest of the step."""

    def content(begin):
        rest = [note("forward", begin + length, LENGTH - length), work(begin + length, LENGTH - length)]
        return [note(phase, begin, length), *(each(begin) for each in more), *rest]

    return content


def on_a_gpu(begin):
    launch = event("cudaLaunchKernel", begin + 15, 5, "cuda_runtime", correlation=int(begin) + 1)
    kernel = event("sgemm", begin + 100, 6000, "kernel", tid="stream 7", pid=0, correlation=int(begin) + 1)
    return [note("forward", begin, 9900), shaped("aten::mm", begin + 10, 20, LARGE), launch, kernel]


def fp32_products(begin):
    return [note("forward", begin, LENGTH), shaped("aten::mm", begin, 5000, LARGE), work(begin + 5000, 5000)]


def thin_products(begin):
    return [
        note("forward", begin, LENGTH),
        shaped("aten::mm", begin + 5000, 3 * THIN_US, THIN),
        work(begin + 7000, 3000),
    ]


def embeddings(calls, length, gap=5.0):
    """So many lookups of ten rows, and a product for the rest of the step."""

    def content(begin):
        begins = [begin + number * (length + gap) for number in range(calls)]
        lookups = [shaped("aten::embedding", each, length, [[5000, 16], [10]]) for each in begins]
        end = begins[-1] + length + gap
        return [note("forward", begin, LENGTH), *lookups, work(end, begin + LENGTH - end)]

    return content


def short_calls(phase, name="aten::add_", count=100):
    def content(begin):
        calls = [event(name, begin + 7000 + 20 * number, 8) for number in range(count)]
        return [note("forward", begin, 7000), work(begin, 7000), note(phase, begin + 7000, 3000), *calls]

    return content


def copies(begin):
    copy = event("aten::copy_", begin + 5000, 2900)
    return [note("forward", begin, 4900), work(begin, 4900), note("backward", begin + 5000, 5000), copy]


def computing(length):
    return lambda begin: [note("forward", begin, LENGTH), work(begin, length)]


# content; what else is known; per finding its share, or the share it claims; None: there is none of that name.
# `gpu` is how long it idles and copies in a step, in microseconds
CASES = {
    "a step that multiplies": (computing(9900), {}, {}),
    "input": (phased("input", 6000), {}, {"input": {"share": 0.6, "bound": 2.5}}),
    # a GPU that works meanwhile bounds what input can save
    "input beside a GPU": (phased("input", 6000), {"gpu": (1000.0, 0.0)}, {"input": {"share": 0.1}}),
    "input beside a busy GPU": (phased("input", 6000), {"gpu": (100.0, 0.0)}, {}),
    "copies": (phased("host-to-device", 3000), {"gpu": (3000.0, 0.0)}, {"host-to-device": {"share": 0.3}}),
    # a GPU that copies is busy, and its copies can still be hidden behind its kernels
    "copies of a GPU": (phased("host-to-device", 3000), {"gpu": (0.0, 5000.0)}, {"host-to-device": {"share": 0.5}}),
    # the time of kernels counts and not that of their launches
    "kernels in fp32": (on_a_gpu, {"gpu": (4000.0, 0.0)}, {"precision": {"claimed_share": 0.6 * (1 - 1 / 2.5)}}),
    "fp32": (fp32_products, {}, {"precision": {"claimed_share": 0.5 * (1 - 1 / 2.5)}}),
    "fp32 where bf16 is slower": (fp32_products, {"limits": NO_BF16}, {}),
    # one call for all would still take a hundredth of it
    "lookups, with the Python between": (embeddings(100, 8.0), {}, {"lookups": {"claimed_share": 0.13 * 0.99}}),
    "few lookups": (embeddings(3, 500.0), {}, {"lookups": None}),
    # their work remains, shared by two threads
    "long lookups": (embeddings(10, 400.0), {}, {"lookups": {"claimed_share": 0.2}}),
    "optimiser": (short_calls("optimiser"), {}, {"optimiser calls": {"claimed_share": 0.3}}),
    "fused optimiser": (short_calls("optimiser", "aten::_fused_adam_"), {}, {"optimiser calls": None}),
    # a hundred calls of 8 µs, and of the time between them as much as Python needs; but all of it may be spread. The
    # rest of the three milliseconds is somebody's own work
    "short calls": (short_calls("forward"), {}, {
        "batch size": {"claimed_share": 0.08 + 102 * 3 / LENGTH, "share": 0.3},
        "python": {"claimed_share": 0.3 - 0.08 - 102 * 3 / LENGTH},
    }),
    "products of few rows": (thin_products, {"limits": NO_BF16},
                             {"batch size": {"claimed_share": (2 * THIN_US + 4 * 3) / LENGTH}}),
    # what was idle is nobody else's
    "no core": (computing(7000), {"idle_us": 2500.0},
                {"idle": {"share": 0.25}, "python": {"claimed_share": 0.3 * 0.75}}),
    # of the copy, and nothing of what lies outside of operators
    "page faults": (copies, {"faults": Faults(2000, {"backward": 2000.0}, 1.5)},
                    {"page faults": {"claimed_share": 0.29}, "python": {"claimed_share": 0.21}}),
    # with more of them than the copy has time for, Python's is the next
    "many page faults": (copies, {"faults": Faults(4000, {"backward": 4000.0}, 1.0)},
                         {"page faults": {"claimed_share": 0.4}, "python": {"claimed_share": 0.1}}),
    "page faults of input": (phased("input", 6000), {"faults": Faults(1000, {"input": 1000.0}, 2.0)},
                             {"page faults": {"claimed_share": 0.2}, "input": {"claimed_share": 0.4}}),
    # those that only the profiler has are none of the step's
    "the profiler's page faults": (computing(LENGTH), {"faults": Faults(0, {"forward": 5000.0}, 1.0)}, {}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_rule_claims_what_is_its_own(case, tmp_path):
    content, known, expected = CASES[case]
    trace = trace_of(tmp_path, steps(2, LENGTH, content))
    known = dict(known)
    time = step_time(trace, idle_us=known.pop("idle_us", 0.0))
    if gpu := known.pop("gpu", None):
        known["device"] = GpuTime(*gpu, launched_us(trace)[time.events["row"].to_numpy()])
    findings = {finding.name: finding for finding in diagnose(Case(time, known.pop("limits", LIMITS), **known))}
    assert sum(finding.claimed_share for finding in findings.values()) <= 1 + 1e-9
    assert expected or not findings
    for name, shares in expected.items():
        assert (name in findings) == (shares is not None)
        found = {share: getattr(findings[name], share) for share in shares or ()}
        assert found == pytest.approx(shares or {}, rel=0.06, abs=0.01)

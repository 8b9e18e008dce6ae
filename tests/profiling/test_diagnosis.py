"""What the rules claim of a step, and what they leave alone."""

import pytest
from kineto import event, note, shaped, steps, trace_of

from labkit.hardware.calibration import Calibration
from labkit.profiling.diagnosis import Case, Device, Faults, diagnose
from labkit.profiling.step_time import step_time
from labkit.profiling.traces.device_time import launched_us

CARD = Calibration("some CPU", 2, 100.0, 250.0, 20.0, 1.0, "2026-11-22")
NO_BF16 = Calibration("some CPU", 2, 100.0, 40.0, 20.0, 1.0, "2026-11-22")


def found(path, content, *, card=CARD, length=10_000, gpu=None, **more):
    """Findings by name; `gpu` is how long it idles and copies in a step, in microseconds."""
    trace = trace_of(path, steps(2, length, content))
    time = step_time(trace)
    device = gpu and Device(*gpu, launched_us(trace)[time.events["row"].to_numpy()])
    findings = diagnose(Case(time, card, device=device, **more))
    assert sum(finding.claimed_share for finding in findings) <= 1 + 1e-9
    return {finding.name: finding for finding in findings}


def work(begin, length):
    """A long product of large matrices in bf16: nothing to find."""
    return shaped("aten::mm", begin, length, [[4096, 1024], [1024, 1024]], "c10::BFloat16")


def test_nothing_is_found_in_a_step_that_multiplies(tmp_path):
    assert found(tmp_path, lambda begin: [note("forward", begin, 9900), work(begin + 10, 9880)]) == {}


def test_input_is_bounded_by_amdahl(tmp_path):
    def content(begin):
        return [note("input", begin, 6000), note("forward", begin + 6000, 4000), work(begin + 6000, 4000)]

    (finding,) = found(tmp_path, content).values()
    assert finding.name == "input"
    assert finding.share == pytest.approx(0.6)
    assert finding.bound == pytest.approx(2.5)


def test_a_gpu_that_works_meanwhile_bounds_what_input_can_save(tmp_path):
    def content(begin):
        return [note("input", begin, 6000), note("forward", begin + 6000, 4000), work(begin + 6000, 4000)]

    assert found(tmp_path, content, gpu=(1000.0, 0.0))["input"].share == pytest.approx(0.1)
    assert found(tmp_path, content, gpu=(100.0, 0.0)) == {}


def test_copying_to_the_device_counts_only_where_there_is_one(tmp_path):
    def content(begin):
        return [note("host-to-device", begin, 3000), note("forward", begin + 3000, 7000), work(begin + 3000, 7000)]

    assert "host-to-device" not in found(tmp_path, content)
    assert found(tmp_path, content, gpu=(3000.0, 0.0))["host-to-device"].share == pytest.approx(0.3)
    # a GPU that copies is busy, and its copies can still be hidden behind its kernels
    assert found(tmp_path, content, gpu=(0.0, 5000.0))["host-to-device"].share == pytest.approx(0.5)


def test_on_a_gpu_the_time_of_kernels_counts_and_not_that_of_their_launches(tmp_path):
    def content(begin):
        launch = event("cudaLaunchKernel", begin + 15, 5, "cuda_runtime", correlation=int(begin) + 1)
        kernel = event("sgemm", begin + 100, 6000, "kernel", tid="stream 7", pid=0, correlation=int(begin) + 1)
        product = shaped("aten::mm", begin + 10, 20, [[4096, 1024], [1024, 1024]])
        return [note("forward", begin, 9900), product, launch, kernel]

    finding = found(tmp_path, content, gpu=(4000.0, 0.0))["precision"]
    assert finding.claimed_share == pytest.approx(0.6 * (1 - 1 / 2.5))


def fp32_products(begin):
    return [
        note("forward", begin, 10_000),
        shaped("aten::mm", begin, 5000, [[4096, 1024], [1024, 1024]]),
        work(begin + 5000, 5000),
    ]


def test_fp32_counts_where_bf16_is_faster_here(tmp_path):
    finding = found(tmp_path, fp32_products)["precision"]
    assert finding.claimed_share == pytest.approx(0.5 * (1 - 1 / 2.5))
    # at best it reaches what large products do in bf16
    assert finding.share >= finding.claimed_share
    assert found(tmp_path, fp32_products, card=NO_BF16) == {}


def embeddings(calls, length, gap=5.0):
    """So many lookups of ten rows, and a product for the rest of the step."""

    def content(begin):
        lookups = [
            shaped("aten::embedding", begin + number * (length + gap), length, [[5000, 16], [10]], "float")
            for number in range(calls)
        ]
        end = begin + calls * (length + gap)
        return [note("forward", begin, 10_000), *lookups, work(end, begin + 10_000 - end)]

    return content


def test_many_small_lookups_count_with_the_python_between_them(tmp_path):
    finding = found(tmp_path, embeddings(100, 8.0))["lookups"]
    # one call would still take a hundredth of it
    assert finding.claimed_share == pytest.approx(0.13 * 0.99, rel=0.02)
    assert "100 embedding lookups" in finding.evidence


def test_a_few_lookups_and_long_ones_are_left_alone(tmp_path):
    assert "lookups" not in found(tmp_path, embeddings(3, 500.0))
    # the work of long ones remains, shared by two threads
    assert found(tmp_path, embeddings(10, 400.0))["lookups"].claimed_share == pytest.approx(0.2, rel=0.05)


def short_calls(phase, name="aten::add_", count=100):
    def content(begin):
        calls = [event(name, begin + 7000 + 20 * number, 8) for number in range(count)]
        return [note("forward", begin, 7000), work(begin, 7000), note(phase, begin + 7000, 3000), *calls]

    return content


def test_short_calls_of_the_optimiser_count_unless_it_is_fused(tmp_path):
    assert "optimiser calls" in found(tmp_path, short_calls("optimiser"))
    assert "optimiser calls" not in found(tmp_path, short_calls("optimiser", "aten::_fused_adam_"))


def test_short_calls_elsewhere_are_what_a_larger_batch_spreads(tmp_path):
    findings = found(tmp_path, short_calls("forward"))
    # a hundred calls of 8 µs, and of the time between them as much as Python needs
    assert findings["batch size"].claimed_share == pytest.approx(0.08 + 102 * 3 / 10_000, rel=0.05)
    assert findings["batch size"].share == pytest.approx(0.3, rel=0.05)  # but all of it may be spread
    # the rest of the three milliseconds is somebody's own work
    assert findings["python"].claimed_share == pytest.approx(0.3 - 0.08 - 102 * 3 / 10_000, rel=0.05)


def test_products_of_few_rows_lose_what_a_larger_batch_wins(tmp_path):
    def content(begin):
        rows = [[16, 1024], [1024, 1024]]
        flop = 2 * 16 * 1024 * 1024
        least_us = flop / 100.0 / 1e3
        products = [shaped("aten::mm", begin + 5000, 3 * least_us, rows, "float") for _ in range(1)]
        return [note("forward", begin, 10_000), *products, work(begin + 7000, 3000)]

    finding = found(tmp_path, content, card=NO_BF16)["batch size"]
    lost_us = 2 * 2 * 16 * 1024 * 1024 / 100.0 / 1e3
    assert finding.claimed_share == pytest.approx((lost_us + 4 * 3) / 10_000, rel=0.05)


def test_time_without_a_core_is_idle(tmp_path):
    content = lambda begin: [note("forward", begin, 10_000), work(begin, 7000)]  # noqa: E731
    findings = found(tmp_path, content, idle_us=2500.0)
    assert findings["idle"].share == pytest.approx(0.25)
    # what was idle is nobody else's
    assert findings["python"].claimed_share == pytest.approx(0.3 * 0.75, abs=0.01)


def test_page_faults_are_taken_from_the_phase_that_has_them(tmp_path):
    def content(begin):
        copy = event("aten::copy_", begin + 5000, 2900)
        return [note("forward", begin, 4900), work(begin, 4900), note("backward", begin + 5000, 5000), copy]

    plain = found(tmp_path, content)
    assert plain["python"].claimed_share == pytest.approx(0.21, abs=0.01)
    findings = found(tmp_path, content, faults=Faults(2000, {"backward": 2000.0}, 1.5))
    # of the copy, and nothing of what lies outside of operators
    assert findings["page faults"].claimed_share == pytest.approx(0.3, abs=0.011)
    assert findings["python"].claimed_share == pytest.approx(0.21, abs=0.02)
    # with more of them than the copy has time for, Python's is the next
    findings = found(tmp_path, content, faults=Faults(4000, {"backward": 4000.0}, 1.0))
    assert findings["page faults"].claimed_share == pytest.approx(0.4)
    assert findings["python"].claimed_share == pytest.approx(0.1, abs=0.01)


def test_page_faults_of_a_phase_that_is_claimed_as_a_whole_count_once(tmp_path):
    def content(begin):
        return [note("input", begin, 6000), note("forward", begin + 6000, 4000), work(begin + 6000, 4000)]

    findings = found(tmp_path, content, faults=Faults(1000, {"input": 1000.0}, 2.0))
    assert findings["page faults"].claimed_share == pytest.approx(0.2)
    assert findings["input"].claimed_share == pytest.approx(0.4)


def test_page_faults_that_only_the_profiler_has_are_none_of_the_step_s(tmp_path):
    content = lambda begin: [note("forward", begin, 10_000), work(begin, 10_000)]  # noqa: E731
    assert found(tmp_path, content, faults=Faults(0, {"forward": 5000.0}, 1.0)) == {}
    half = found(tmp_path, content, faults=Faults(1000, {"forward": 2000.0}, 1.0))
    assert half["page faults"].claimed_share == pytest.approx(0.1)

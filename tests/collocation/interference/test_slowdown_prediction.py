from dataclasses import replace

import pytest
from solo_profiles import CPU, GPU, cpu_job, gpu_job

from labkit.collocation.interference.prediction import predict_slowdowns
from labkit.collocation.interference.stretching import stretched
from labkit.errors import UserError


def slowdowns(profiles, mode, machine=CPU, **parts):
    return [each.slowdown for each in predict_slowdowns(profiles, mode, machine, **parts)]


def test_alone_nobody_slows_down():
    assert slowdowns([cpu_job(), cpu_job()], "alone") == [1.0, 1.0]


@pytest.mark.parametrize("jobs", [2, 3, 4])
def test_jobs_that_want_all_cores_slow_down_by_their_number(jobs):
    assert slowdowns([cpu_job()] * jobs, "cpu-shared") == pytest.approx([jobs] * jobs)


def test_jobs_of_one_thread_each_do_not_feel_each_other_on_two_cores():
    single = cpu_job(one_core_ms=10.0, crowded_ms=10.0, cpu_share=0.5)
    assert slowdowns([single, single], "cpu-shared") == pytest.approx([1.0, 1.0])
    assert slowdowns([single, single], "cpu-pinned") == pytest.approx([1.0, 1.0])
    assert slowdowns([single] * 4, "cpu-shared") == pytest.approx([2.0] * 4)


def test_a_job_sees_the_cores_that_a_lighter_one_leaves():
    # 0.2 of two cores, and all of them: 0.4 cores, and 1.6; T(1.6) on the line through T(1) = 20 and T(2) = 10 over 1/c
    light, heavy = cpu_job(one_core_ms=10.0, crowded_ms=10.0, cpu_share=0.2), cpu_job()
    assert slowdowns([light, heavy], "cpu-shared") == pytest.approx([1.0, (20 / 1.6) / 10])


def test_taking_turns_costs_what_it_cost_when_crowded():
    spinning = cpu_job(one_core_ms=12.0, crowded_ms=35.0)
    [shared, _] = predict_slowdowns([spinning, cpu_job()], "cpu-shared", CPU)
    [pinned, _] = predict_slowdowns([spinning, cpu_job()], "cpu-pinned", CPU)
    assert shared.slowdown == pytest.approx(3.5)
    assert pinned.slowdown == pytest.approx(1.2)
    assert shared.why.startswith("cores")


def test_a_job_whose_threads_wait_for_each_other_is_faster_on_one_core():
    [prediction] = predict_slowdowns([cpu_job(one_core_ms=6.0)], "cpu-pinned", CPU, cores=[1])
    assert prediction.slowdown == pytest.approx(0.6)
    assert "own threads" in prediction.why


def test_amdahls_law_lies_between_one_core_and_all():
    machine = CPU.__class__("a CPU", cores=4, gflops=100.0, gb_per_s=10.0)
    # p + q / c with p = 4, q = 24: 28 ms on one core, 10 ms on four, 16 ms on two
    job = cpu_job(10.0, one_core_ms=28.0)
    assert slowdowns([job], "cpu-pinned", machine, cores=[2]) == pytest.approx([1.6])


def test_two_jobs_on_one_pinned_core_take_turns():
    assert slowdowns([cpu_job()] * 4, "cpu-pinned") == pytest.approx([4.0] * 4)


def test_copies_share_the_bandwidth_of_memory():
    # 100 MB in 10 ms is all of 10 GB/s, on one core as on two
    copy = cpu_job(10.0, one_core_ms=10.0, crowded_ms=10.0, cpu_share=0.5, moved=100e6, touched=1e12)
    [one, other] = predict_slowdowns([copy, copy], "cpu-pinned", CPU)
    assert (one.slowdown, other.slowdown) == pytest.approx((2.0, 2.0), rel=1e-3)
    assert one.why.startswith("memory bandwidth")


def test_a_neighbour_takes_the_cache():
    # alone its 16 MB lie in the cache of 32 MB; beside 48 MB more, half of them: 8 MB at 10 GB/s are 0.8 ms
    fits = cpu_job(4.0, one_core_ms=4.0, moved=16e6)
    large = cpu_job(1000.0, one_core_ms=1000.0, moved=48e6)
    [prediction, _] = predict_slowdowns([fits, large], "cpu-pinned", CPU)
    assert prediction.slowdown == pytest.approx(1.2)
    assert prediction.why.startswith("cache")
    assert slowdowns([fits], "cpu-pinned", cores=[1]) == pytest.approx([1.0])


def test_processes_take_turns_on_a_gpu_only_as_far_as_it_is_busy():
    assert slowdowns([gpu_job(0.5), gpu_job(0.5)], "naive", GPU) == pytest.approx([1.0, 1.0])
    assert slowdowns([gpu_job(1.0)] * 3, "naive", GPU) == pytest.approx([3.0] * 3)
    light, heavy = slowdowns([gpu_job(0.3), gpu_job(1.0)], "naive", GPU)
    assert 1 < light < heavy
    assert 0.3 / light + 1.0 / heavy == pytest.approx(1.0)  # the GPU is busy all the time, and no longer


def test_kernels_that_overlap_are_held_up_by_the_fullest_resource():
    small = gpu_job(1.0, sm_active=0.9, sm_occupancy=0.2, dram_active=0.6)
    [naive, _] = predict_slowdowns([small, small], "naive", GPU)
    [mps, _] = predict_slowdowns([small, small], "mps", GPU)
    assert mps.slowdown == pytest.approx(1.2)  # 2 × 0.6 of the bandwidth, in 0.6 of the time: 0.4 + 0.6 · 4/3
    assert "bandwidth" in mps.why
    assert naive.slowdown == pytest.approx(2.0)
    # without its occupancy, multiprocessors that are active count as full
    assert slowdowns([gpu_job(1.0, sm_active=0.9, dram_active=0.1)] * 2, "mps", GPU) == pytest.approx([1.8, 1.8])


def test_a_slice_slows_down_what_is_wider_than_the_slice_and_nothing_else():
    wide, narrow = (gpu_job(0.5, sm_active=sm, dram_active=0.05) for sm in (0.5, 0.1))
    slices = ["3g.40gb", "3g.40gb"]
    # half of the time is kernels, which use all multiprocessors: on 3 of 7 they take 7/3 as long
    assert slowdowns([wide, narrow], "mig", GPU, slices=slices) == pytest.approx([0.5 + 0.5 * 7 / 3, 1.0])
    bound = gpu_job(1.0, sm_active=0.3, dram_active=1.0)
    [prediction] = predict_slowdowns([bound], "mig", GPU, slices=["3g.40gb"])
    assert prediction.slowdown == pytest.approx(2.0)
    assert "bandwidth" in prediction.why


def test_what_a_profile_does_not_say_is_asked_for():
    with pytest.raises(UserError, match="no gpu_busy"):
        predict_slowdowns([gpu_job(None)], "naive", GPU)
    with pytest.raises(UserError, match="profiled on a CPU"):
        predict_slowdowns([cpu_job()], "naive", GPU)
    with pytest.raises(UserError, match="one MIG profile a job"):
        predict_slowdowns([gpu_job(1.0)], "mig", GPU)
    with pytest.raises(UserError, match="9x"):
        predict_slowdowns([gpu_job(1.0, sm_active=0.5, dram_active=0.5)], "mig", GPU, slices=["9x"])
    with pytest.raises(UserError, match="2, 1 of the 2 cores"):
        predict_slowdowns([cpu_job(), cpu_job()], "cpu-pinned", CPU, cores=[2, 1])
    with pytest.raises(UserError, match="unknown"):
        predict_slowdowns([cpu_job()], "together", CPU)


def test_no_resource_gives_more_than_it_has_and_the_slowest_decides():
    demands = [[0.9, 0.3], [0.4, 0.8], [0.5, 0.7]]
    found, binding = stretched(demands)
    for resource in range(2):
        assert sum(job[resource] / slowed for job, slowed in zip(demands, found, strict=True)) <= 1 + 1e-6
    assert min(found) > 1
    assert binding[0] == 0
    assert binding[1] == 1


def test_slowdown_counts_from_mode_alone_whose_threads_wait_busily():
    passive = cpu_job()
    busy = replace(passive, step_time_alone_ms=passive.step_time_ms / 2)
    for mode in ("cpu-shared", "cpu-pinned"):
        [one, _] = predict_slowdowns([passive, passive], mode, CPU)
        [other, _] = predict_slowdowns([busy, busy], mode, CPU)
        assert other.slowdown == pytest.approx(2 * one.slowdown)

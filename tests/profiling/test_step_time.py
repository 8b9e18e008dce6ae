"""Where the time of a step goes, each microsecond once, on host and GPU, and the frames of its views."""

from dataclasses import replace

import pytest
import torch
from kineto import event, note, shaped, steps, trace_of

from labkit.cli.profile import print_profile
from labkit.errors import UserError
from labkit.hardware import Calibration, calibrate
from labkit.jobs import job_command
from labkit.profiling.capture import StepRecorder, save_limits
from labkit.profiling.over_time import device_breakdown, memory_over_time, timeline
from labkit.profiling.profile import Profile, compare, read_profile, roofline_frames
from labkit.profiling.script_steps import profile_script
from labkit.profiling.step_time import BACKWARD_CALL, PYTHON, call_tree, step_time
from labkit.profiling.tools import ProfileSettings
from labkit.profiling.trace import CUDA_CALLS
from labkit.tracking import StopRequest

CARD = Calibration("some CPU", 2, 100.0, 250.0, 20.0, 1.0, "2026-11-22")


def time_of(path, events):
    return step_time(trace_of(path, events))


def phases(time):
    return dict(zip(time.phases["phase"], time.phases["time_us"], strict=True))


def a_step(begin):
    return [
        note("input", begin + 10, 100),
        note("host-to-device", begin + 50, 20),
        note("forward", begin + 120, 300),
        event("aten::mm", begin + 130, 200),
        event("aten::empty", begin + 140, 10),
        note("backward", begin + 430, 400),
        event("aten::mm", begin + 440, 350),
        note("Optimizer.step#SGD.step", begin + 850, 100),
        event("aten::add_", begin + 860, 50),
    ]


def test_phases_and_operators_add_up_to_the_step_and_nested_ones_count_once(tmp_path):
    time = time_of(tmp_path, steps(2, 1000, a_step))
    assert time.step_us == 1000 and time.steps == 2
    expected = {"input": 80, "host-to-device": 20, "forward": 300, "backward": 400, "optimiser": 100, "other": 100}
    assert phases(time) == pytest.approx(expected)
    table = time.operators.set_index("operator")
    own_us = {"aten::mm": 540, "aten::empty": 10, "aten::add_": 50, PYTHON: 400}
    assert table["self_us"].to_dict() == pytest.approx(own_us)
    assert table["calls"].to_dict() == {"aten::mm": 2, "aten::empty": 1, "aten::add_": 1, PYTHON: 0}
    # idle time is taken from all phases but input and sync
    idle = phases(replace(time, idle_us=90))
    assert idle["input"] == 80 and idle["forward"] == pytest.approx(300 - 90 * 300 / 920)
    assert sum(idle.values()) == pytest.approx(1000)


def reads(begin):
    """Numbers read one by one, from the tensor's being taken apart to the last read."""
    items = [event("aten::item", begin + 510 + 10 * number, 2) for number in range(20)]
    unbind = [event("aten::unbind", begin + 450, 50), event("aten::select", begin + 460, 10)]
    return [note("forward", begin + 100, 200), event("aten::mm", begin + 110, 100), *unbind, *items]


def crossing(begin):
    """A script's own annotation around the model opens in our input, and closes in our forward pass."""
    return [
        note("input", begin, 200),
        note("model_inference", begin + 150, 300),
        note("forward", begin + 200, 400),
        note("backward", begin + 550, 300),  # begins before the forward pass ends
        note("enumerate(DataLoader)#_Iter.__next__", begin + 900, 100),
    ]


def accumulated(begin):
    """What follows a backward pass is between steps where gradients are accumulated."""
    names = ["input", "forward", "backward", "after backward", "forward", "backward", "after backward"]
    notes = [note(name, begin + 100 * at, 100) for at, name in enumerate(names)]
    return [*notes, note("Optimizer.step#SGD.step", begin + 650, 50)]


def cut(begin):
    """A wait is cut where a phase or a step ends; input may read what it likes."""
    items = [event("aten::item", begin + at, lasts) for at, lasts in ((290, 10), (305, 95), (990, 10))]
    return [note("input", begin, 50), event("aten::item", begin + 2, 10), note("forward", begin + 50, 250), *items]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (reads, {"forward": 200, "sync": 252, "other": 548}),
        (lambda begin: [event("aten::item", begin + 500, 3)], {"sync": 3, "other": 997}),
        (crossing, {"input": 300, "forward": 350, "backward": 300, "other": 50}),
        (accumulated, {"input": 100, "between steps": 100, "forward": 200, "backward": 200, "optimiser": 50,
                       "other": 350}),
        (cut, {"input": 50, "forward": 240, "sync": 120, "other": 590}),
    ],
)  # fmt: skip
def test_each_microsecond_belongs_to_one_phase(tmp_path, content, expected):
    found = phases(time_of(tmp_path, steps(3, 1000, content)))
    assert found == pytest.approx(expected)


def test_autograd_s_own_thread_works_in_the_backward_phase(tmp_path):
    def content(begin):
        return [
            note("forward", begin, 200),
            note("backward", begin + 300, 400),
            event(f"{BACKWARD_CALL}: MmBackward0", begin + 350, 300, tid=2),
            event("aten::mm", begin + 400, 100, tid=2),
        ]

    time = time_of(tmp_path, steps(2, 1000, content))
    table = time.operators.set_index("operator")["self_us"].to_dict()
    assert table == pytest.approx({f"{BACKWARD_CALL}: MmBackward0": 200, "aten::mm": 100, PYTHON: 700})
    assert phases(time) == pytest.approx({"forward": 200, "backward": 400, "other": 400})


def test_other_threads_and_what_lies_outside_of_steps_do_not_count(tmp_path):
    events = steps(2, 1000, lambda begin: [note("forward", begin + 100, 200)])
    events += [event("aten::copy_", 350, 200, tid=3), event("aten::add", 2500, 100)]
    assert time_of(tmp_path, events).operators["operator"].tolist() == [PYTHON]
    with pytest.raises(UserError, match="has no steps"):
        time_of(tmp_path, [event("aten::mm", 0, 10)])


def layers(begin, product=300, extra=()):
    return [
        note("forward", begin + 100, 500),
        event("aten::linear", begin + 110, product + 20),
        event("aten::mm", begin + 120, product),
        event("aten::linear", begin + 450, 100),
        event("aten::mm", begin + 460, 50),
        *(event(name, begin + 650, 100) for name in extra),
    ]


def test_the_tree_adds_up_calls_reached_in_the_same_way(tmp_path):
    tree = call_tree(step_time(trace_of(tmp_path, steps(4, 1000, layers))))
    found = {row.name: (row.depth, row.calls, row.total_us, row.self_us) for row in tree.itertuples()}
    assert found == {
        "step": (0, 1, 1000, 0),
        "other": (1, 1, 500, 500),
        "forward": (1, 1, 500, 80),
        "aten::linear": (2, 2, 420, 70),
        "aten::mm": (3, 2, 350, 350),
    }
    inside = tree.set_index("node")
    for row in tree[tree["parent"] >= 0].itertuples():
        above = inside.loc[row.parent]
        assert above["begin_us"] <= row.begin_us
        assert row.begin_us + row.total_us <= above["begin_us"] + above["total_us"] + 1e-6


def test_a_timeline_has_the_lines_of_threads_and_streams(tmp_path):
    def content(begin):
        kernel = event("sgemm", begin + 200, 500, "kernel", tid="stream 7", pid=0, correlation=3)
        copy = event("Memcpy HtoD", begin + 50, 10, "gpu_memcpy", tid="stream 7", pid=0)
        return [*layers(begin), kernel, copy, event("aten::copy_", begin + 10, 20, tid=2)]

    frame = timeline(trace_of(tmp_path, steps(3, 1000, content)))
    assert frame["start_us"].min() == 0
    assert set(frame["lane"]) == {
        "thread 1", "thread 1, level 1", "thread 1, level 2", "thread 1, level 3", "thread 2", "GPU 0 stream 7",
    }  # fmt: skip
    assert set(frame["kind"]) == {"annotation", "operator", "kernel", "copy or fill"}
    assert (frame["start_us"] + frame["duration_us"] <= 1000).all()


def memory(time, size, device=-1):
    args = {"Bytes": size, "Device Id": device}
    return {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 9, "tid": 1, "ts": time, "args": args}


def test_a_last_step_in_which_nothing_ran_does_not_count(tmp_path):
    after = note("ProfilerStep#2", 2000, 5)  # which the last call of the profiler's step() opened
    assert time_of(tmp_path, [*steps(2, 1000, a_step), after]).step_us == 1000
    with pytest.raises(UserError, match="has no steps"):
        time_of(tmp_path, [event("aten::mm", 100, 50), after])


def test_memory_held_adds_up_what_was_taken_and_given_back(tmp_path):
    took = ((150, 100), (250, 1000), (300, 50), (350, -50), (450, -100), (600, 10), (700, -1000))
    trace = trace_of(tmp_path, [note("ProfilerStep#0", 0, 1000), *(memory(*each) for each in took)])
    assert memory_over_time(trace)["held_bytes"].tolist() == [100, 1100, 1150, 1100, 1000, 1010, 10]


def profile_of(path, events, card=CARD, samples=None, **facts):
    path.mkdir()
    facts = {"device": "cpu", "settings": {}, "phases_us": [{}] * 3, "unprofiled_step_us": []} | facts
    profile = Profile(path, facts, card, "measured", samples)
    profile.__dict__["trace"] = trace_of(path, events)
    return profile


def test_differences_of_operators_and_of_phases_add_up_to_that_of_the_step(tmp_path):
    before = profile_of(tmp_path / "a", steps(3, 1000, layers))
    after = profile_of(tmp_path / "b", steps(3, 800, lambda begin: layers(begin, product=100, extra=["aten::relu"])))
    difference = compare(before, after)
    assert difference.total_us == pytest.approx(-200)
    for frame in (difference.operators, difference.phases):
        assert frame["difference_us"].sum() == pytest.approx(-200)
        assert frame["after_us"].sum() == pytest.approx(800)
    by_name = difference.operators.set_index("operator")["difference_us"]
    assert by_name.to_dict() == pytest.approx({"aten::mm": -200, "aten::relu": 100, PYTHON: -100, "aten::linear": 0})
    assert difference.operators["operator"].iloc[0] == "aten::mm"  # the largest first
    assert "1.25 times as fast" in difference.headline()


def test_the_roofline_has_a_point_for_each_operator_that_multiplies(tmp_path):
    squares = [[64, 64], [64, 64]]
    calls = lambda begin: [shaped("aten::mm", begin, 500, squares), shaped("aten::where", begin + 600, 9, squares)]  # noqa: E731
    events = steps(2, 1000, calls)
    roofs, marks = roofline_frames(profile_of(tmp_path / "a", events))
    assert roofs["peak_gflops"].tolist() == [100.0, 250.0]
    assert marks["name"].tolist() == ["aten::mm"]
    assert marks["gflops"].iloc[0] == pytest.approx(2 * 64**3 / 500 / 1e3)
    assert marks["flop_per_byte"].iloc[0] == pytest.approx(2 * 64**3 / (3 * 64 * 64 * 4))


GPU = Calibration("some GPU", 1, 50_000.0, 300_000.0, 2000.0, 4.0, "2026-11-22")
FLOP = 2 * 4096**3


@pytest.fixture
def profile(tmp_path):
    """A step of 10 ms, in which the GPU multiplies for 8, copies for 0.5, and waits for the rest."""

    def content(begin):
        number = int(begin)
        return [
            note("host-to-device", begin, 100),
            event("aten::copy_", begin + 10, 30),
            note("forward", begin + 100, 800),
            event("aten::linear", begin + 200, 60),
            shaped("aten::mm", begin + 210, 20, [[4096, 4096], [4096, 4096]]),
            event("cudaLaunchKernel", begin + 220, 5, "cuda_runtime", correlation=number + 1),
            event("cudaMemcpyAsync", begin + 20, 5, "cuda_runtime", correlation=number + 2),
            event("cudaDeviceSynchronize", begin + 1000, 8900, "cuda_runtime"),
            event("Memcpy HtoD", begin + 300, 500, "gpu_memcpy", tid="stream 7", pid=0, correlation=number + 2),
            event("sgemm<float, 4>", begin + 900, 8000, "kernel", tid="stream 7", pid=0, correlation=number + 1),
        ]

    facts = {"settings": {**vars(ProfileSettings())}, "unprofiled_step_us": [9900.0] * 2}
    facts |= {"fault_cost_us": None, "unprofiled_faults": [], "phase_faults": []}
    return profile_of(tmp_path / "gpu", steps(3, 10_000, content), GPU, 4096, device="cuda", **facts)


def test_an_operator_is_as_fast_as_its_kernels_and_not_as_its_launch(profile, capsys):
    table = profile.operators.set_index("operator")
    assert table.loc["aten::mm", "gflop_per_s"] == pytest.approx(FLOP / 8000 / 1e3)
    assert table.loc["aten::mm", "of_peak"] < 1
    assert table["device_us"].to_dict() == {
        "aten::mm": 8000, "aten::copy_": 500, "aten::linear": 0, "(outside of operators)": 0,
    }  # fmt: skip
    assert table.index[0] == "aten::mm"
    # the phases add up, and waiting for the device is sync
    found = profile.time.phase_us
    assert sum(found.values()) == pytest.approx(10_000)
    assert found["sync"] == pytest.approx(8900)
    print_profile(profile)
    said = capsys.readouterr().out
    assert "GPU 0: computing" in said and "GPU time" in said and "8.000" in said


def test_what_the_host_could_save_is_bounded_by_the_gpu_that_works_meanwhile(profile):
    findings = {finding.name: finding for finding in profile.findings}
    assert findings["precision"].claimed_share == pytest.approx(0.8 * (1 - 50 / 300))
    # waiting takes 89 % of the host's step, but the GPU has nothing to do for 15 % of it only
    assert findings["sync"].share == pytest.approx(0.15, abs=0.02)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_a_real_gpu_s_kernels_memory_and_backward_pass_are_recorded(tmp_path):
    command = job_command("dlrm", runs_dir=tmp_path, data="synthetic-small", device="cuda")
    folder, _ = profile_script(command, StepRecorder(ProfileSettings(memory=True)), StopRequest(), lambda event: None)
    save_limits(folder, calibrate("cuda", repeats=3))
    profile = read_profile(folder)
    events = profile.trace.events
    kernels, launches = (events[events["category"].isin(kinds)] for kinds in (["kernel"], CUDA_CALLS))
    assert len(kernels) > 0 and kernels["correlation"].isin(launches["correlation"]).mean() > 0.99
    (device,) = device_breakdown(profile.trace).itertuples()
    assert device.idle_us + device.compute_us + device.non_compute_us == pytest.approx(device.span_us)
    # autograd's thread belongs to the step
    assert profile.phases["time_us"].sum() == pytest.approx(profile.time.step_us, rel=0.02)
    assert (profile.time.events["phase"] == "backward").any()
    assert profile.time.operators["self_us"].min() > -1.0  # µs: clocks of two threads
    assert (profile.trace.allocations["device"] >= 0).any()

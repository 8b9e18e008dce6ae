"""Where the time of a step goes: phases, operators and waits, each microsecond once."""

import pytest
from kineto import event, note, steps, trace_of

from labkit.errors import UserError
from labkit.profiling.step_time import BACKWARD_CALL, PYTHON, step_time


def time_of(path, events):
    return step_time(trace_of(path, events))


def phases(time, idle_us=0.0):
    frame = time.phases(idle_us)
    return dict(zip(frame["phase"], frame["time_us"], strict=True))


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
    idle = phases(time, idle_us=90)
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


def waiting(begin):
    return [note("forward", begin, 100), event("cudaDeviceSynchronize", begin + 200, 600, "cuda_runtime")]


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
        (waiting, {"forward": 100, "sync": 600, "other": 300}),
        (cut, {"input": 50, "forward": 240, "sync": 120, "other": 590}),
    ],
)  # fmt: skip
def test_each_microsecond_belongs_to_one_phase(tmp_path, content, expected):
    found = phases(time_of(tmp_path, steps(3, 1000, content)))
    assert found == pytest.approx(expected)


def test_autograd_s_own_threads_work_in_the_backward_phase_and_no_longer_than_it(tmp_path):
    def together(begin):
        calls = [event(f"{BACKWARD_CALL}: MmBackward0", begin + 100, 500, tid=tid) for tid in (2, 3)]
        return [note("backward", begin + 50, 600), *calls]

    table = time_of(tmp_path, steps(2, 1000, together)).operators.set_index("operator")["self_us"]
    assert table[f"{BACKWARD_CALL}: MmBackward0"] == pytest.approx(600)
    assert table.min() >= 0 and table.sum() == pytest.approx(1000)

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


def test_a_trace_without_steps_is_refused(tmp_path):
    with pytest.raises(UserError, match="has no steps"):
        time_of(tmp_path, [event("aten::mm", 0, 10)])

"""Timing in turns: what is kept, dropped and refused."""

import pytest

from labkit import UserError
from labkit_course import paired_times, require_parts, undisturbed
from labkit_course.timing import SHORTEST_S


class FakeClock:
    def __init__(self):
        self.now, self.calls = 0.0, []

    def __call__(self):
        return self.now

    def way(self, name, seconds):
        def work():
            self.calls.append(name)
            self.now += seconds

        return work


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def looks(monkeypatch):
    """What the looks of the rounds see, in order: a share of the cores that the largest other program takes."""
    seen = []

    class Look:
        def __init__(self, **_):
            pass

        def others(self):
            share, largest = seen.pop(0)
            return {"cpu_share": share, "largest": largest, "on_gpu": [], "disturbed": share > 0.1}

    monkeypatch.setattr("labkit.telemetry.Look", Look)
    return seen


def test_ways_take_turns_in_an_order_that_reverses(clock, looks):
    looks += [(0.0, None)] * 3
    times = paired_times({"a": clock.way("a", 0.1), "b": clock.way("b", 0.2)}, clock=clock)
    assert times.to_dict("list") == {"a": pytest.approx([0.1] * 3), "b": pytest.approx([0.2] * 3)}
    assert "".join(clock.calls) == "ab" + "abbaab"  # each is called once before the first round


def test_a_short_way_is_called_until_its_time_can_be_compared(clock, looks):
    looks += [(0.0, None)] * 3
    times = paired_times({"a": clock.way("a", SHORTEST_S / 10)}, clock=clock)
    assert times["a"].tolist() == pytest.approx([SHORTEST_S / 10] * 3)
    assert 1 + 3 * 10 <= len(clock.calls) <= 1 + 3 * 11  # tenths do not add up to one exactly


def test_a_disturbed_round_is_dropped_as_a_whole_and_repeated(clock, looks):
    looks += [(0.0, None), (0.5, "make (process 7)"), (0.0, None), (0.0, None)]
    ways = {"a": clock.way("a", 0.1), "b": clock.way("b", 0.2)}
    assert paired_times(ways, clock=clock).shape == (3, 2)
    assert clock.calls.count("a") == clock.calls.count("b") == 5


@pytest.mark.parametrize(
    ("largest", "todo"),
    [
        ("make (process 7)", "Close it"),
        ("chromium (process 7)", "in your browser"),
        ("Web Content (process 7)", "in your browser"),
        ("jupyter-lab (process 7)", "other notebooks"),
        (None, "Close other programs"),
    ],
)
def test_more_disturbed_than_quiet_rounds_are_refused(clock, looks, largest, todo):
    looks += [(0.5, largest)] * 4
    with pytest.raises(UserError, match=f"4 of 4 rounds were disturbed: .*50%.*{todo}.*run this cell again"):
        paired_times({"a": clock.way("a", 0.1)}, clock=clock)


def test_a_single_round_is_returned_however_busy_the_machine(clock):
    assert paired_times({"a": clock.way("a", 0.1)}, rounds=1, clock=clock)["a"].tolist() == pytest.approx([0.1])


def test_parts_that_exceed_their_whole_are_refused():
    require_parts(0.15, [0.1, 0.06], "a step of 16")
    with pytest.raises(UserError, match="a step of 16: the parts take 357 ms and the whole takes 150 ms"):
        require_parts(0.15, [0.3, 0.057], "a step of 16")


def test_a_measurement_is_made_again_until_nothing_disturbs_it(looks):
    looks += [(0.5, None), (0.0, None)]
    values = iter((1, 2))
    assert undisturbed(lambda: next(values)) == 2
    looks += [(0.5, "make (process 7)")] * 4
    assert undisturbed(lambda: 3, tries=1) == 3
    with pytest.raises(UserError, match=r"3 of 3 .*Close it"):
        undisturbed(lambda: 4)

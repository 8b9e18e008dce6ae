from labkit.telemetry.schedule import Schedule

MS = 10**6


class Clock:
    def __init__(self, ns: int = 0):
        self.ns = ns

    def __call__(self) -> int:
        return self.ns


def test_the_time_that_sampling_takes_does_not_add_up():
    clock = Clock(7)
    schedule, began = Schedule(10, clock), clock.ns
    for number in range(1, 1001):
        clock.ns += 30 * MS + number  # a sample takes its time, never the same
        wait_s, missed = schedule.advance()
        assert missed == 0
        clock.ns += round(1e9 * wait_s)
        assert clock.ns - began == number * 100 * MS


def test_points_that_passed_meanwhile_are_missed_and_not_made_up_for():
    clock = Clock()
    schedule = Schedule(10, clock)
    clock.ns = 350 * MS
    assert schedule.advance() == (0.05, 3)  # due at 100, 200 and 300
    clock.ns = 400 * MS
    assert schedule.advance() == (0.1, 0)
    clock.ns = 500 * MS  # done just when the next is due
    assert schedule.advance() == (0.1, 0)


def test_a_sample_that_ends_when_the_next_is_due_misses_none():
    clock = Clock()
    schedule = Schedule(10, clock)
    clock.ns = 100 * MS
    assert schedule.advance() == (0.0, 0)


def test_a_system_clock_that_is_set_moves_no_sample():
    clock, date = Clock(5), Clock(1_000)
    schedule = Schedule(10, clock, date)
    date.ns = 0
    clock.ns += 42
    assert schedule.now_ns() == 1_042

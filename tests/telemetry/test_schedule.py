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
    for number in range(1000):
        clock.ns += round(1e9 * schedule.wait_s())
        assert clock.ns - began == number * 100 * MS
        assert schedule.arrive() == 0
        clock.ns += 30 * MS + number  # a sample takes its time, never the same


def test_points_that_passed_meanwhile_are_missed_and_not_made_up_for():
    clock = Clock()
    schedule = Schedule(10, clock)
    assert schedule.arrive() == 0
    clock.ns = 350 * MS
    assert schedule.wait_s() == 0
    assert schedule.arrive() == 2  # those at 100 and 200; this is the one of 300, late
    assert schedule.wait_s() == 0.05
    clock.ns = 400 * MS
    assert schedule.arrive() == 0
    clock.ns = 420 * MS  # woken before the next, because the job ended
    assert schedule.arrive() == 0


def test_a_system_clock_that_is_set_moves_no_sample():
    clock, date = Clock(5), Clock(1_000)
    schedule = Schedule(10, clock, date)
    date.ns = 0
    clock.ns += 42
    assert schedule.now_ns() == 1_042

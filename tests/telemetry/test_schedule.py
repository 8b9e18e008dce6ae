from types import SimpleNamespace

from labkit.telemetry.schedule import Schedule

MS = 10**6


def test_samples_come_on_a_grid_and_what_came_late_is_missed_and_not_made_up_for():
    clock, date = SimpleNamespace(ns=7), SimpleNamespace(ns=1_000)
    schedule = Schedule(10, lambda: clock.ns, lambda: date.ns)
    for number in range(1000):
        clock.ns += round(1e9 * schedule.wait_s())
        assert clock.ns - 7 == number * 100 * MS
        assert schedule.arrive() == 0
        clock.ns += 30 * MS + number  # a sample takes its time, never the same
    date.ns = 0  # a system clock that is set moves no sample
    assert schedule.now_ns() == 1_000 + clock.ns - 7
    clock.ns = 7 + 100_250 * MS
    assert schedule.wait_s() == 0
    assert schedule.arrive() == 2  # those at 100.0 and 100.1 s; this is the one of 100.2, late
    assert schedule.wait_s() == 0.05
    clock.ns += 50 * MS
    assert schedule.arrive() == 0
    clock.ns += 20 * MS  # woken before the next, because the job ended
    assert schedule.arrive() == 0

from labkit.tracking.crossings import Crossings, Point
from labkit.tracking.goal import Target


def watch(values: list[float], confirm: int = 2) -> Crossings:
    crossings = Crossings(Target.parse("auc >= 0.8"), confirm)
    for step, value in enumerate(values):
        crossings.observe(value, Point(step, step * 10, step * 1.0, step * 0.5))
    return crossings


def test_one_lucky_evaluation_is_no_sustained_crossing():
    crossings = watch([0.7, 0.81, 0.79, 0.82, 0.83])
    assert crossings.first.step == 1
    assert crossings.sustained.step == 3


def test_a_crossing_not_confirmed_is_not_sustained():
    assert watch([0.7, 0.79, 0.81]).sustained is None


def test_each_crossing_is_announced_once():
    crossings = Crossings(Target.parse("auc >= 0.8"), 2)
    announced = [crossings.observe(0.9, Point(step, 0, 0.0, 0.0)) for step in range(4)]
    assert announced == [["first"], ["sustained"], [], []]


def test_state_survives_a_resume_between_crossing_and_confirmation():
    before = watch([0.7, 0.81])
    after = Crossings(before.target, 2)
    after.load_state_dict(before.state_dict())
    assert after.observe(0.82, Point(2, 20, 2.0, 1.0)) == ["sustained"]
    assert after.sustained == before.first

from labkit.tracking.crossings import Crossings, Point
from labkit.tracking.goal import Target


def watch(crossings: Crossings, values: list[float]) -> list[list[str]]:
    return [crossings.observe(value, Point(step, step * 10, 1.0, 0.5)) for step, value in enumerate(values)]


def test_one_lucky_evaluation_is_no_sustained_crossing_and_each_is_announced_once():
    crossings = Crossings(Target.parse("auc >= 0.8"), 2)
    assert watch(crossings, [0.7, 0.81, 0.79, 0.82, 0.83, 0.9]) == [[], ["first"], [], [], ["sustained"], []]
    assert (crossings.first.step, crossings.sustained.step) == (1, 3)


def test_state_survives_a_resume_between_crossing_and_confirmation():
    before, after = (Crossings(Target.parse("auc >= 0.8"), 2) for _ in range(2))
    watch(before, [0.7, 0.81])
    assert before.sustained is None
    after.load_state_dict(before.state_dict())
    assert after.observe(0.82, Point(2, 20, 2.0, 1.0)) == ["sustained"]
    assert after.sustained == before.first

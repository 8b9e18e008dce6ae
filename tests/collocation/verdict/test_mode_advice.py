"""Which mode is advised, and that the words say no more than the repeats can show."""

import pandas as pd

from labkit.collocation.verdict.advice import advise
from labkit.collocation.verdict.verdict import ROUND_COLUMNS, Verdict, mode_table


def judged(gains: dict[str, list[float]], *, fairness: dict[str, float] | None = None, on: str = "cpu", complete=()):
    """A verdict in which the repeats of each mode have these gains; modes in `complete` lost their last round."""
    rows = [
        {
            "mix": "2 × dlrm:tour",
            "family": "dlrm:tour",
            "mode": mode,
            "repeat": repeat,
            "jobs": 2,
            "complete": not (mode in complete and repeat == len(own) - 1),
            "gain": gain,
            "slowdown": 1.0 if mode == "alone" else 2 / gain,
            "worst_slowdown": 1.0 if mode == "alone" else 2.2 / gain,
            "fairness": (fairness or {}).get(mode, 0.9),
            "makespan_gain": gain,
            "on": on,
            "provenance": "measured",
            "note": "b ran out of memory" if mode in complete else "",
        }
        for mode, own in gains.items()
        for repeat, gain in enumerate(own)
    ]
    table = pd.DataFrame(rows, columns=ROUND_COLUMNS)
    nothing = pd.DataFrame()
    return Verdict(nothing, table, mode_table(table), nothing, nothing, nothing)


ALONE = [0.99, 1.0, 1.01]


def advised(gains, **options):
    (advice,) = advise(judged(gains, **options))
    return advice


def test_a_clear_gain_is_advised_with_what_it_costs():
    advice = advised({"alone": ALONE, "cpu-shared": [1.58, 1.6, 1.62], "cpu-pinned": [1.28, 1.3, 1.32]})
    assert advice.mode == "cpu-shared"
    assert "Use cpu-shared: it gets 1.60 times (95 % interval 1.55 to 1.65) as much work done" in advice.reason
    assert "Each job takes 1.25 times as long as alone, the slowest 1.38 times (fairness 0.90" in advice.reason
    assert "no difference" not in advice.reason
    # each repeat is beside its own runs alone, so the spread of those is in the interval already: 1.13 to 1.38
    advice = advised({"alone": [0.8, 1.0, 1.2], "cpu-shared": [1.2, 1.25, 1.3]})
    assert advice.mode == "cpu-shared" and "1.25 times (95 % interval 1.13 to 1.38)" in advice.reason


def test_a_gain_that_these_repeats_cannot_show_is_none():
    advice = advised({"alone": [0.9, 1.0, 1.1], "cpu-shared": [0.9, 1.1, 1.3]})
    assert advice.mode == "alone"
    assert "no gain that 3 repeats can show" in advice.reason
    assert "Not measured: cpu-pinned." in advice.reason


def test_of_two_that_cannot_be_told_apart_the_fairer_is_advised():
    gains = {"alone": ALONE, "naive": [1.5, 1.6, 1.7], "mps": [1.45, 1.55, 1.65]}
    advice = advised(gains, fairness={"naive": 0.7, "mps": 0.99}, on="gpu")
    assert advice.mode == "mps" and "Not measured: mig." in advice.reason
    assert "Between mps and naive there is no difference that 3 repeats can show." in advice.reason


def test_sharing_that_loses_is_not_advised():
    advice = advised({"alone": ALONE, "cpu-shared": [0.78, 0.8, 0.82]})
    assert advice.mode == "alone"
    assert "cpu-shared gets 0.80 times (95 % interval 0.75 to 0.85) as much work done: sharing loses." in advice.reason
    near = advised({"alone": ALONE, "cpu-shared": [0.98, 0.99, 1.0]}, fairness={"alone": 0.8, "cpu-shared": 1.0})
    assert near.mode == "alone", "however fair, sharing that gains nothing only delays"


def test_one_repeat_proves_nothing():
    for gain in (1.05, 1.5, 0.8):
        advice = advised({"alone": [1.0], "cpu-shared": [gain]})
        assert advice.mode is None
        assert f"cpu-shared gets {gain:.2f} times as much work done" in advice.reason
        assert "One repeat, as of cpu-shared, proves nothing: repeat it 3 times or more (--repeats 3)." in advice.reason


def test_a_mode_in_which_a_job_broke_is_not_advised():
    gains = {"alone": ALONE, "cpu-shared": [1.6, 1.6, float("nan")], "cpu-pinned": [1.18, 1.2, 1.22]}
    advice = advised(gains, complete=("cpu-shared",))
    assert advice.mode == "cpu-pinned"
    assert "In cpu-shared, 1 of 3 rounds did not come to their end: b ran out of memory." in advice.reason


def test_without_the_runs_alone_there_is_no_advice():
    advice = advised({"cpu-shared": [float("nan")] * 3})
    assert advice.mode is None and "add mode alone" in advice.reason
    advice = advised({"alone": ALONE})
    assert advice.mode is None and "Not measured: cpu-shared, cpu-pinned." in advice.reason

"""Which mode is advised, and that the words say no more than the repeats can show."""

import numpy as np
import pandas as pd
import pytest

from labkit.sharing.verdicts import ROUND_COLUMNS, Verdict, advise, mode_table

NAN = float("nan")
ALONE = {"alone": [0.99, 1.0, 1.01]}


# the repeats' gains by mode; the mode that is advised; what is said
CASES = {
    "a clear gain": (
        ALONE | {"cpu-shared": [1.58, 1.6, 1.62], "cpu-pinned": [1.28, 1.3, 1.32]},
        "cpu-shared",
        "Use cpu-shared: it gets 1.60 times (95 % interval 1.55 to 1.65) as much work done",
    ),
    "what it costs": (
        ALONE | {"cpu-shared": [1.58, 1.6, 1.62]},
        "cpu-shared",
        "Each job takes 1.25 times as long as alone, the slowest 1.38 times (fairness 0.90",
    ),
    # each repeat is compared with its own runs alone, so the spread of those is in the interval already
    "alone varies": (
        {"alone": [0.8, 1.0, 1.2], "cpu-shared": [1.2, 1.25, 1.3]},
        "cpu-shared",
        "1.25 times (95 % interval 1.13 to 1.38)",
    ),
    "too few": ({"alone": [1.0] * 3, "cpu-shared": [0.9, 1.1, 1.3]}, "alone", "no gain that 3 repeats can show"),
    "the fairer": (
        ALONE | {"naive": [1.5, 1.6, 1.7], "mps": [1.45, 1.55, 1.65]},
        "mps",
        "Between mps and naive there is no difference that 3 repeats can show.",
    ),
    "a loss": (ALONE | {"mps": [0.78, 0.8, 0.82]}, "alone", "0.75 to 0.85) as much work done: sharing loses."),
    "one repeat": ({"alone": [1.0], "cpu-shared": [1.5]}, None, "One repeat, as of cpu-shared, proves nothing: repeat"),
    "a job broke": (
        ALONE | {"cpu-shared": [1.6, 1.6, NAN], "cpu-pinned": [1.18, 1.2, 1.22]},
        "cpu-pinned",
        "In cpu-shared, 1 of 3 rounds did not come to their end: b ran out of memory.",
    ),
    "nothing alone": ({"cpu-shared": [NAN] * 3}, None, "add mode alone"),
    "nothing shared": (ALONE, None, "Not measured: cpu-shared, cpu-pinned."),
}


@pytest.mark.parametrize("case", CASES)
def test_advice_says_no_more_than_the_repeats_show(case):
    gains, mode, words = CASES[case]
    rows = []
    for name, own in gains.items():
        known = {"mix": "2 × dlrm:tour", "mode": name, "jobs": 2, "on": "gpu" if "mps" in gains else "cpu"}
        known |= {"disturbed": False, "fairness": {"naive": 0.7, "mps": 0.99}.get(name, 0.9)}
        for repeat, gain in enumerate(own):
            slowdown, broke = 1.0 if name == "alone" else 2 / gain, np.isnan(gain)
            measured = {"slowdown": slowdown, "worst_slowdown": 1.1 * slowdown, "makespan_gain": gain, "gain": gain}
            measured |= {"repeat": repeat, "complete": not broke, "note": "b ran out of memory" if broke else ""}
            rows.append(known | measured)
    nothing, table = pd.DataFrame(), pd.DataFrame(rows, columns=ROUND_COLUMNS)
    (advice,) = advise(Verdict(nothing, table, mode_table(table), nothing, nothing, nothing))
    assert advice.mode == mode
    assert words in advice.reason

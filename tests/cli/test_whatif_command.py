"""`labkit whatif`, and what `labkit predict` says of tiers and targets."""

import json

import pytest
from test_predict_command import card, script  # noqa: F401  a fixture

from labkit.cli import main
from labkit.errors import UserError
from labkit.perfmodel import read_change


def last(capfd) -> dict:
    return json.loads(capfd.readouterr().out.splitlines()[-1])


def changed(capfd, *changes: str) -> list[dict]:
    flags = [flag for change in changes for flag in ("--change", change)]
    assert main(["whatif", "run", "--json", *flags, script()]) == 0
    return last(capfd)["changes"]


def test_a_faster_machine_gains_and_is_not_measured(card, capfd):  # noqa: F811
    rows = changed(capfd, "arithmetic=2", "bandwidth=2", "overheads=0", "arithmetic=2,bandwidth=2,overheads=0")
    gains = [row["gain"] for row in rows]
    assert gains[0] == 1.0
    assert min(gains[1:4]) >= 1.0
    assert gains[4] > max(gains[:4])
    assert {row["measured_ms"] for row in rows} == {None}


def test_a_tier_has_an_interval_whose_ends_are_a_factor_of_two_further_away(card, capfd):  # noqa: F811
    own, tier = changed(capfd, "tier=cloud-cpu-2")
    assert tier["step_ms"] == pytest.approx(own["step_ms"])
    assert tier["high_ms"] == pytest.approx(2 * own["high_ms"])
    assert tier["low_ms"] == pytest.approx(own["low_ms"] / 2)


def test_a_flag_is_predicted_from_its_own_step_and_then_measured(card, capfd):  # noqa: F811
    assert main(["whatif", "dlrm", "--data", "synthetic-small", "--budget", "all-cores", "--no-wait", "--json",
                 "--measure", "--change", "batch-size=1024"]) == 0  # fmt: skip
    own, more = last(capfd)["changes"]
    assert (own["samples"], more["samples"]) == (512, 1024)
    assert own["measured_gain"] == 1.0
    assert more["measured_gain"] > 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("faster", "not NAME=VALUE"),
        ("bandwidth=much", "takes a number"),
        ("tier=a,card=b", "two machines"),
        ("bandwith=2", "did you mean bandwidth"),
    ],
)
def test_a_change_that_is_not_understood(change, words):
    with pytest.raises(UserError, match=words):
        read_change(change)


def test_a_change_behind_the_script_is_refused(card, capfd):  # noqa: F811
    assert main(["whatif", "run", script(), "--change", "bandwidth=2"]) == 2
    assert "put it before" in capfd.readouterr().err


def test_a_prediction_tells_memory_the_longest_chain_and_a_tier(card, capfd):  # noqa: F811
    assert main(["predict", "run", "--json", "--tier", "cloud-cpu-1", script()]) == 0
    told = last(capfd)
    assert told["tier"] == "cloud-cpu-1"
    assert told["memory_bytes"] > 1e7
    assert 0 < told["critical_ms"] <= told["step_ms"]
    assert "It was not measured" in told["notes"][-1]


def test_a_target_that_was_never_measured(card, capfd):  # noqa: F811
    assert main(["predict", "dlrm", "--data", "synthetic-small", "--target", "auc=0.7"]) == 2
    assert "no run here has measured auc with these settings" in " ".join(capfd.readouterr().err.split())


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--rows", "10,10", "--lookups", "1"), "give one number per table"),
        (("--processes", "1"), "at least 2 processes"),
        (("--rows", "0", "--lookups", "1"), "at least 1"),
    ],
)
def test_tables_that_cannot_be_placed(card, capfd, flags, words):  # noqa: F811
    assert main(["whatif", "sharding", *flags]) == 2
    assert words in " ".join(capfd.readouterr().err.split())

"""A market of recorded runs: what is bought, what is refused, and the regret of three plain strategies."""

import math
from random import Random
from statistics import mean, median

import pytest

from labkit import UserError, runs
from labkit.tta import crossings
from labkit_course.market import JOB, RECORDING, Market


def test_answers_are_those_of_the_recording():
    market, frames = (
        Market(student=3),
        runs.recorded(RECORDING, job=JOB, power_limit_w="max", device="A40", batch_size=32),
    )
    offer = next(each for each in market.offers if (each.device, each.batch_size) == ("A40", 32))
    found = crossings(frames.curves, frames.runs, 0.35)
    costs = sorted(found["spent_s"] * offer.usd_per_h / 3600)
    market.left_usd = 1e6
    bought = [market.buy(offer) for _ in range(len(costs) + 1)]
    assert sorted(each.cost_usd for each in bought[:-1]) == pytest.approx(costs)
    assert bought[-1].cost_usd == bought[0].cost_usd  # the first seed answers again
    assert [each.reached for each in bought[:-1]].count(True) == found["reached"].sum()
    assert market.expected_usd(offer) == pytest.approx(sum(costs) / found["reached"].sum())
    assert market.left_usd == pytest.approx(1e6 - sum(each.cost_usd for each in bought))


def test_a_run_is_cut_off_where_its_money_ends():
    market = Market()
    offer = market.offers[0]
    whole = Market().buy(offer)
    part = market.buy(offer, most_usd=whole.cost_usd / 2)
    assert part.cut_off and not part.reached and part.cost_usd == whole.cost_usd / 2
    assert whole.best < part.best and market.left_usd == 75 - part.cost_usd
    assert market.buy(offer, most_usd=0.01).best == math.inf  # not one epoch


def test_an_allowance_is_not_overdrawn():
    market = Market(allowance_usd=5)
    for most in (5.01, 0, -1, math.nan):
        with pytest.raises(UserError, match=r"\$5.00 of the allowance are left"):
            market.buy(market.offers[0], most)
    assert market.left_usd == 5 and not market.history
    assert market.buy(market.offers[0]).cut_off and market.left_usd == 0
    with pytest.raises(UserError, match=r"\$0.00 of the allowance are left"):
        market.buy(market.offers[0])
    with pytest.raises(UserError, match="not offered"):
        market.buy(Market(student=1).offers[0], 1)
    with pytest.raises(UserError, match=r"not recorded: give one of 0.35"):
        Market(target=0.37)


def test_every_student_has_a_market_of_their_own_that_stays():
    assert Market(7).offers == Market(7).offers != Market(8).offers
    best = {min(Market(n).offers, key=Market(n).regret).device for n in range(20)}
    assert len(best) >= 3
    assert all(min(map(market.regret, market.offers)) == 0 for market in map(Market, range(5)))


def least_per_hour(market):
    """The cheapest GPU at a middle batch; nothing is bought."""
    return min((each for each in market.offers if each.batch_size == 32), key=lambda each: each.usd_per_h)


def cheapest(market):
    """The offer that was cheapest, of those that reached the target."""
    reached = [each for each in market.history if each.reached] or market.history
    return min(reached, key=lambda each: each.cost_usd).offer


def once_each(market):
    """Offers at random until the money is gone."""
    for offer in Random(0).sample(market.offers, len(market.offers)):
        if market.left_usd > 0:
            market.buy(offer)
    return cheapest(market)


def one_axis_at_a_time(market):
    """Every GPU at batch 32, then other batches on the one that was cheapest."""
    for offer in (each for each in market.offers if each.batch_size == 32):
        if market.left_usd > 0:
            market.buy(offer)
    device = cheapest(market).device
    for size in (64, 24, 16):
        for offer in (each for each in market.offers if (each.device, each.batch_size) == (device, size)):
            if market.left_usd > 0:
                market.buy(offer)
    return cheapest(market)


def test_the_regret_that_the_docs_state():
    """docs/capstone.md, for 100 students with $75 each; the reference of lab 90 caps what it buys."""
    found = {}
    for strategy in (least_per_hour, once_each, one_axis_at_a_time):
        markets = [Market(student) for student in range(100)]
        regrets = [market.regret(strategy(market)) for market in markets]
        found[strategy.__name__] = round(100 * mean(regrets)), round(100 * median(regrets))
    assert found == {"least_per_hour": (78, 50), "once_each": (43, 19), "one_axis_at_a_time": (15, 0)}

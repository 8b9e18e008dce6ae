"""Exercises of 51_cost_and_energy. A price that nobody knows is NaN, a target that nobody reaches costs inf."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from labkit.hardware import Tier, get_grid, get_tier
from labkit.tta import on_front
from labkit_course.exercise import Exercise
from labkit_course.explanation import Explanation
from labkit_course.written import Case, WrittenExercise

# --- from seconds to grams

GRAMS = Exercise(
    lambda hours, watts, grid: hours * watts / 1000 * get_grid(grid).carbon_g_per_kwh,
    draw=lambda random: {
        "hours": random.choice([9.5, 12.0, 22.5, 90.0]),
        "watts": random.choice([98, 134, 177, 215]),
        "grid": random.choice(["norway", "france", "us", "poland", "india"]),
    },
    hint="Hours × watts are watt-hours; 1,000 of them are a kilowatt-hour, which emits the grid's grams.",
    explanation="The same joules weigh over twenty times as much in India as in Norway.",
    unit="g CO2e",
    mistakes={
        lambda hours, watts, grid: hours * watts * get_grid(grid).carbon_g_per_kwh: (
            "Those are watt-hours: a kilowatt-hour has 1,000."
        ),
        lambda hours, watts, grid: hours * watts * 3600 / 1000 * get_grid(grid).carbon_g_per_kwh: (
            "Joules are watts × seconds, and a kilowatt-hour has 3.6 million of them: with hours, leave 3,600 out."
        ),
        lambda hours, watts, grid: hours * watts / 1000: "Those are kilowatt-hours: times the grid's grams.",
    },
)


def bill(
    hours: float, joules: float, tier: Tier, *, years: float, usd_per_kwh: float, g_per_kwh: float
) -> dict[str, float]:
    rent, price = tier.rental_price_usd_per_h, tier.list_price_usd
    kwh = joules / 3.6e6
    return {
        "rent_usd": math.nan if rent is None else hours * rent,
        "purchase_usd": math.nan if price is None else hours * price / (years * 365.25 * 24),
        "electricity_usd": kwh * usd_per_kwh,
        "carbon_g": kwh * g_per_kwh,
    }


def _billed(name: str, hours: float = 20.0, joules: float = 9e6, years: float = 3.0) -> Any:
    return lambda code: code(hours, joules, get_tier(name), years=years, usd_per_kwh=0.15, g_per_kwh=400)


BILL = WrittenExercise(
    bill,
    module="cost",
    cases=(
        Case("20 h and 9 MJ on an A40", _billed("a40")),
        Case("80 h and 36 MJ on a P100, in five years", _billed("p100-pcie", 80.0, 3.6e7, 5.0)),
        Case("a V100 PCIe, which has no list price", _billed("v100-pcie")),
        Case("an RTX 3060, which nobody rents out", _billed("rtx-3060")),
        Case("a target that nobody reaches: inf hours and joules", _billed("a40", math.inf, math.inf)),
        Case("joules that nobody measured: NaN", _billed("a40", 20.0, math.nan)),
    ),
    mistakes={
        ("math.nan if price is None else hours", "hours * 0 if price is None else hours"): (
            "No price is not a price of 0: it would be the cheapest of all. NaN says that nobody knows."
        ),
        ("math.nan if rent is None else hours * rent", "hours * rent"): (
            "Some tiers have no rent: their rental_price_usd_per_h is None, which gives NaN."
        ),
        ("hours * price / (years * 365.25 * 24)", "price"): (
            "One training does not use up the card: it takes hours out of years of use."
        ),
        (" * 365.25 * 24", ""): "Years into hours: 365.25 days of 24.",
        ("3.6e6", "3600"): "A kilowatt-hour has 3.6 million joules: 1,000 W for 3,600 s.",
        ("kwh * g_per_kwh", "joules * g_per_kwh"): "Grams are by the kilowatt-hour, too.",
    },
    hint="Hours × rent; hours × list price / hours in those years; kWh × price; kWh × grams. None gives NaN.",
    explanation="Three kinds of dollars from one training. They answer three questions, so do not add them up unasked.",
)

# --- failures are paid for


def expected(runs: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    of_setting = runs.groupby(by)
    reached = of_setting["reached"].sum()
    spent = of_setting[["spent_s", "spent_j"]].agg(lambda column: column.sum(skipna=False))
    table = spent.div(reached, axis=0).set_axis(["time_s", "energy_j"], axis=1)
    return table.assign(runs=of_setting.size(), reached=reached).reset_index()


def _attempts(*rows: tuple[str, int, bool, float, float]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["device", "batch_size", "reached", "spent_s", "spent_j"])


def _expected(*rows: tuple[str, int, bool, float, float], by: tuple[str, ...] = ("device",)) -> Any:
    def ask(code: Any) -> list:
        table = code(_attempts(*rows), list(by))
        return [[*map(str, row)] for row in table[list(by)].to_numpy()] + [
            list(table[name].astype(float)) for name in ("time_s", "energy_j", "runs", "reached")
        ]

    return ask


A, B = ("A40", 32), ("A40", 64)
EXPECTED = WrittenExercise(
    expected,
    module="cost",
    cases=(
        Case("two that arrive", _expected((*A, True, 100.0, 9e3), (*A, True, 140.0, 11e3))),
        Case(
            "two that arrive and one that fails",
            _expected((*A, True, 100.0, 9e3), (*A, False, 300.0, 3e4), (*A, True, 140.0, 11e3)),
        ),
        Case(
            "two batch sizes, of which one never arrives",
            _expected(
                *((*A, True, 100.0, 9e3), (*B, False, 300.0, 3e4), (*B, False, 300.0, 3e4)), by=("device", "batch_size")
            ),
        ),
        Case(
            "a run whose joules nobody measured: NaN",
            _expected((*A, True, 100.0, math.nan), (*A, True, 140.0, 11e3)),
        ),
    ),
    mistakes={
        ("runs.groupby(by)", 'runs[runs["reached"]].groupby(by)'): (
            "The runs that failed are left out, and somebody has paid for them: sum over all runs."
        ),
        ("spent.div(reached, axis=0)", "spent.div(of_setting.size(), axis=0)"): (
            "Divide by the runs that arrived: a failure has bought nothing."
        ),
        (".agg(lambda column: column.sum(skipna=False))", ".sum()"): (
            "A run without a counter has NaN joules, and pandas sums it as 0: what is not known makes the sum unknown "
            "(skipna=False)."
        ),
        ("spent.div(reached, axis=0)", "spent.div(reached, axis=0)[reached > 0]"): (
            "A setting that never arrives stays in the table: it costs inf."
        ),
    },
    hint="Group by `by`; sum spent_s and spent_j over all runs of a group, with skipna=False; divide by those reached.",
    explanation="The expected cost where each run that fails is started anew, of time and of energy alike.",
)


def cheapest(costs: pd.DataFrame, by: str) -> dict[float, str]:
    known = costs[np.isfinite(costs[by])]
    least = known.loc[known.groupby("target")[by].idxmin()]
    return dict(zip(least["target"], least["device"], strict=True))


def _cheapest(*rows: tuple[float, str, float], by: str = "rent_usd") -> Any:
    # the labels of rows are not their places, as after a filter
    costs = pd.DataFrame(rows, columns=["target", "device", by], index=range(10, 10 + len(rows)))
    return lambda code: {str(target): device for target, device in code(costs, by).items()}


CHEAPEST = WrittenExercise(
    cheapest,
    module="cost",
    cases=(
        Case(
            "two tiers and two targets", _cheapest((0.6, "A", 1.0), (0.6, "B", 2.0), (0.4, "A", 9.0), (0.4, "B", 3.0))
        ),
        Case(
            "several settings a tier: the best of each counts",
            _cheapest((0.5, "A", 1.0), (0.5, "A", 9.0), (0.5, "B", 3.0), (0.5, "B", 2.0), by="electricity_usd"),
        ),
        Case("a tier without a price: NaN", _cheapest((0.5, "A", math.nan), (0.5, "B", 3.0), by="purchase_usd")),
        Case("a target that nobody reaches", _cheapest((0.5, "A", 1.0), (0.3, "A", math.inf), (0.3, "B", math.inf))),
    ),
    mistakes={
        ("np.isfinite(costs[by])", "costs[by].notna()"): (
            "At a target that nobody reaches all cost inf, and none is the cheapest: leave it out."
        ),
        ("known = costs[np.isfinite(costs[by])]", "known = costs.fillna(0).replace(np.inf, np.nan).dropna()"): (
            "With 0 for what is not known, the tier without a price wins."
        ),
        ("idxmin", "idxmax"): "That is the dearest.",
        (
            'known = costs[np.isfinite(costs[by])]\n    least = known.loc[known.groupby("target")[by].idxmin()]',
            'known = costs[np.isfinite(costs[by])].groupby(["target", "device"])[by].mean().reset_index()\n'
            '    least = known.loc[known.groupby("target")[by].idxmin()]',
        ): "Nobody trains at the mean of all settings: of each tier the best one counts.",
    },
    hint="Keep rows with np.isfinite; groupby('target')[by].idxmin() gives the row of the least; costs.loc finds it.",
    explanation="NaN and inf are two things, and neither is ever the cheapest.",
)


def hours_to_buy(tier: Tier, watts: float, usd_per_kwh: float) -> float:
    if tier.list_price_usd is None or tier.rental_price_usd_per_h is None:
        return math.nan
    saved_usd_per_h = tier.rental_price_usd_per_h - watts / 1000 * usd_per_kwh
    return tier.list_price_usd / saved_usd_per_h if saved_usd_per_h > 0 else math.inf


BUY = WrittenExercise(
    hours_to_buy,
    module="cost",
    cases=(
        Case("an A40 at 250 W", lambda code: code(get_tier("a40"), 250.0, 0.127)),
        Case("a P100 at 120 W", lambda code: code(get_tier("p100-pcie"), 120.0, 0.3)),
        Case("a V100 PCIe, which has no list price", lambda code: code(get_tier("v100-pcie"), 200.0, 0.127)),
        Case("electricity that is dearer than the rent", lambda code: code(get_tier("a40"), 300.0, 2.0)),
    ),
    mistakes={
        (" - watts / 1000 * usd_per_kwh", ""): "Rent includes electricity; your own card's you pay by yourself.",
        ("watts / 1000", "watts"): "Watts into kilowatts.",
        ("math.inf", "-1.0"): "Where an hour of rent is no dearer than its electricity, buying never pays: inf.",
        ("return math.nan", "return 0.0"): "Without one of the prices nobody knows: NaN, not 0 hours.",
    },
    hint="An hour of your own saves the rent, and costs watts / 1000 × price. List price over what an hour saves.",
    explanation="The host, its space and whoever looks after it are not in this number.",
)

# --- time against energy


def against_full_power(points: pd.DataFrame) -> pd.DataFrame:
    full = points.loc[points.groupby("batch_size")["power_limit_w"].idxmax()].set_index("batch_size")
    full = full.loc[points["batch_size"]]
    return points.assign(
        slower_percent=100 * (points["time_s"] / full["time_s"].to_numpy() - 1),
        saved_percent=100 * (1 - points["energy_j"] / full["energy_j"].to_numpy()),
    )


def _limits(*rows: tuple[int, int, float, float]) -> Any:
    points = pd.DataFrame(
        rows, columns=["batch_size", "power_limit_w", "time_s", "energy_j"], index=range(5, 5 + len(rows))
    )
    return lambda code: [list(code(points)[name] + 1000) for name in ("slower_percent", "saved_percent")]


POWER = WrittenExercise(
    against_full_power,
    module="cost",
    cases=(
        Case("one batch size at two limits", _limits((32, 250, 100.0, 2e4), (32, 150, 125.0, 1.5e4))),
        Case(
            "two batch sizes, in any order",
            _limits((64, 125, 90.0, 1.6e4), (32, 250, 100.0, 2e4), (64, 250, 80.0, 2.4e4), (32, 125, 140.0, 1.4e4)),
        ),
        Case("a limit that costs energy, too", _limits((32, 300, 100.0, 2e4), (32, 100, 320.0, 3.7e4))),
    ),
    mistakes={
        ("100 * (1 - points", "100 * (points"): "Saved is 1 − own / full, in per cent.",
        (
            'points.loc[points.groupby("batch_size")["power_limit_w"].idxmax()].set_index("batch_size")\n'
            '    full = full.loc[points["batch_size"]]',
            'points.loc[[points["power_limit_w"].idxmax()] * len(points)]',
        ): "Compare at the same batch size: otherwise two things differ, and not the limit alone.",
        ("idxmax()", "idxmin()"): "Against the largest power limit, which is what a card comes with.",
    },
    hint="Of each batch size the row with the largest limit (groupby, idxmax); then own / full of time and energy.",
    explanation="One thing differs, the limit: so what is lost and saved is the limit's.",
)


FRONT = WrittenExercise(
    on_front,
    module="cost",
    cases=(
        Case("a point that is best in both", lambda code: [*map(bool, code([3.0, 1.0, 2.0], [30.0, 10.0, 20.0]))]),
        Case("three that trade", lambda code: [*map(bool, code([1.0, 2.0, 3.0], [30.0, 20.0, 10.0]))]),
        Case("one behind the others", lambda code: [*map(bool, code([1.0, 3.0, 2.5], [30.0, 10.0, 31.0]))]),
        Case(
            "one as fast as another, which takes more energy",
            lambda code: [*map(bool, code([1.0, 1.0, 2.0], [30.0, 20.0, 5.0]))],
        ),
        Case("two that are the same", lambda code: [*map(bool, code([1.0, 1.0, 2.0], [30.0, 30.0, 40.0]))]),
    ),
    mistakes={
        ("a <= own_x and b <= own_y", "a < own_x and b < own_y"): (
            "One that is as fast and takes less energy is better: <= in both, and not the same point."
        ),
        (" and (a, b) != (own_x, own_y)", ""): "A point is not beaten by itself, nor by another that is the same.",
        ("a <= own_x and b <= own_y", "a <= own_x"): "Slower is no fault where it takes less energy.",
        ("not any(", "any("): "The front is what nobody beats: True where there is no better one.",
    },
    hint="A point is off the front if any other has no more of both costs and is not the same pair.",
    explanation="Off the front you lose time or energy for nothing; on it you have to choose.",
)


def zeus_setting(points: pd.DataFrame, eta: float, max_power_w: float) -> int:
    cost_j = eta * points["energy_j"] + (1 - eta) * max_power_w * points["time_s"]
    return cost_j.idxmin()


def _zeus(eta: float, *rows: tuple[float, float]) -> Any:
    points = pd.DataFrame(rows, columns=["time_s", "energy_j"], index=range(7, 7 + len(rows)))
    return lambda code: int(code(points, eta, 250.0))


ZEUS = WrittenExercise(
    zeus_setting,
    module="cost",
    cases=(
        Case("η = 0: time alone", _zeus(0.0, (100.0, 1e4), (90.0, 2e4), (120.0, 0.8e4))),
        Case("η = 1: energy alone", _zeus(1.0, (100.0, 1e4), (90.0, 2e4), (120.0, 0.8e4))),
        Case("η = 0.5", _zeus(0.5, (90.0, 2e4), (120.0, 1.8e4), (100.0, 1.5e4))),
        Case("η = 0.2", _zeus(0.2, (100.0, 2.4e4), (104.0, 1.9e4), (125.0, 1.2e4))),
        Case("η = 0.8", _zeus(0.8, (100.0, 2.4e4), (104.0, 1.9e4), (125.0, 1.2e4))),
    ),
    mistakes={
        ("eta * points", "(1 - eta) * points"): "η is the weight of the energy, and both parts are there.",
        (" * max_power_w", ""): "Seconds and joules do not add up: the largest power turns seconds into joules.",
        ("cost_j.idxmin()", "int(cost_j.argmin())"): "The label of the row, as points.loc takes it: idxmin.",
        ("idxmin", "idxmax"): "The least cost.",
    },
    hint="η × energy_j + (1 − η) × max_power_w × time_s, a cost in joules; .idxmin() of it.",
    explanation="Zeus' cost (You, Chung and Chowdhury, NSDI 2023; `zeus_cost` in their zeus/utils/metric.py).",
)


def eta_of_prices(usd_per_h: float, usd_per_kwh: float, max_power_w: float) -> float:
    electricity_usd_per_h = max_power_w / 1000 * usd_per_kwh
    return electricity_usd_per_h / (electricity_usd_per_h + usd_per_h)


ETA = WrittenExercise(
    eta_of_prices,
    module="cost",
    cases=(
        Case("$0.44 an hour, $0.127 a kWh, 300 W", lambda code: code(0.44, 0.127, 300.0)),
        Case("an hour that costs nothing", lambda code: code(0.0, 0.127, 300.0)),
        Case("electricity that costs nothing", lambda code: code(1.46, 0.0, 250.0)),
        Case("$2.30 an hour, $0.3 a kWh, 250 W", lambda code: code(2.3, 0.3, 250.0)),
    ),
    mistakes={
        ("return electricity_usd_per_h /", "return usd_per_h /"): "That is the weight of time, 1 − η.",
        (" / 1000", ""): "Watts into kilowatts.",
        ("(electricity_usd_per_h + usd_per_h)", "usd_per_h"): (
            "η / (1 − η) is that ratio. η itself is a share of the whole."
        ),
    },
    hint="η : (1 − η) = (max_power_w / 1000 × usd_per_kwh) : usd_per_h. So η is the first over the sum of both.",
    explanation="η is the share of electricity in the price of an hour at full power: prices choose it, not taste.",
)

EXERCISES = {
    "51.grams": GRAMS,
    "51.bill": BILL,
    "51.expected": EXPECTED,
    "51.cheapest": CHEAPEST,
    "51.buy": BUY,
    "51.front": FRONT,
    "51.power": POWER,
    "51.zeus": ZEUS,
    "51.eta": ETA,
    "51.why_cheapest": Explanation(
        rubric=(
            "numbers: names the cheapest tier by rent and by electricity at an easy and at a hard target, with costs",
            "why: rent is time × a price that a market made, electricity is energy; batch and limit are chosen anew",
            "trade-off: says which of the prices is one's own, and what it leaves out (host, a price's vendor and day)",
        ),
        model="By rent the A40 is the cheapest at every target, because it is both the fastest and the one with the "
        "lowest price an hour; the V100, hardly slower, costs six times as much, so it is the price that "
        "decides. By electricity the V100 is a little cheaper at the easy targets and the A40 at the hard ones: joules "
        "differ by some per cent where rents differ fivefold. Whoever rents should look at the first, whoever has the "
        "card at the second; neither has the host in it, and rents are of different vendors and days.",
    ),
    "51.why_limit": Explanation(
        rubric=(
            "numbers: per cent of time lost and of energy saved at one limit, and where a lower limit saves no more",
            "why: power falls faster than speed near the top; far down the idle power is paid for longer",
            "trade-off: when η or the prices would choose it, and why NCF gains nothing",
        ),
        model="At the V100's batch of 48 a limit of 150 W takes 14 % more time and saves 25 % of the energy, since "
        "near the top the clock costs more power than it gives speed. On the A40 at 100 W both are lost: training "
        "takes three times as long, and the power that a card draws in any case runs on. At rental prices an hour "
        "outweighs its joules and no limit pays; it does for somebody whose machine is paid for, or who counts carbon. "
        "NCF hardly loads the GPU, so that its power never meets the limit.",
    ),
}

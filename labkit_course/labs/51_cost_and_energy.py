# %% opening [markdown] packages="scipy"
"""
# Cost and energy

After this notebook you will be able to

- **turn** hours and joules into dollars and grams of CO₂, and **tell** rent, purchase and electricity apart;
- **write** what a target costs with its failures paid for, and **find** the tier that is cheapest for it;
- **write** the Pareto front of time and energy, and **choose** on it by prices, which is what Zeus' η is;
- **explain** what a power limit buys, and where a larger batch stops paying;
- **put** your own machine on the same axes, and **say** which of its numbers is an estimate.

**Time:** 80 minutes. The machine computes for about half a minute on 2 CPU cores. No GPU is needed.

**Prerequisites:** [Time to accuracy](50_time_to_accuracy.ipynb).
"""

# %% checks
import math
from typing import Any

import pandas as pd

from labkit.hardware import get_tier
from labkit_course.exercise import Case, Explanation, WrittenExercise

MODULE = "cost"
EXERCISES = {}

# %% parameters-prose [markdown]
"""
The next cell holds what you may change. The years of use and the power of your machine are *assumptions*.
"""

# %% parameters tags=["parameters"]
profile = "standard"  # smoke, standard or full: how many seeds of your own
runs_dir = "runs"  # run folders are made in its subfolder notebooks
target = 0.40  # WER of DeepSpeech2; recorded are 0.65, 0.60 ... 0.35
years = 3.0  # of use, day and night, after which a card that was bought is worth nothing
grid = "us"  # or "world": the grids of which both a price and a carbon intensity are known
assumed_power_w = 30.0  # of your machine while it trains, where it has no counter of energy

# %% grid-prose [markdown]
"""
The catalogue has what a kilowatt-hour costs and emits. If you know better numbers, write them in place of these.
"""

# %% grid
import labkit
from labkit_course import check, claim, explain, guess, model_answer, reveal

of_grid = labkit.hardware.get_grid(grid)
usd_per_kwh, g_per_kwh = of_grid.price_usd_per_kwh, of_grid.carbon_g_per_kwh
for name in ("price_usd_per_kwh", "carbon_g_per_kwh"):
    figure = of_grid.figure(name)
    print(f"{name} {figure.value:g}: {figure.source}, {figure.date}")

# %% one [markdown]
"""
## From seconds to grams

The authors of *Zeus* (You, Chung and Chowdhury, NSDI 2023, Apache-2.0) trained DeepSpeech2 on LibriSpeech and NCF on MovieLens-1M, and measured the seconds and the mean power of an epoch on four GPUs, once at each batch size and power limit. All of it is *recorded*, not measured here. Power is that of the GPU alone, without its host.
"""

# %% load
runs, evaluations = labkit.runs.recorded("zeus-nsdi23", job="deepspeech2 on librispeech")
columns = ["device", "batch_size", "power_limit_w", "epochs", "epoch_s", "average_power_w", "energy_j", "provenance"]
some = runs[(runs["batch_size"] == 32) & (runs["seed"] == 1)].groupby("device").tail(1)
labkit.plots.show(some[columns].set_index("device"))

# %% one-words [markdown]
"""
A row is one training to its last target, at batch 32 and the largest power limit: epochs × seconds per epoch × watts are its joules. An A40 with a limit of 300 W draws less on average: a limit is not a power.
"""

# %% prices-prose [markdown]
"""
Dollars need prices, and those come from a market, not from a GPU: vendors and days differ, and one of those below is the price of the GPU without its machine.
"""

# %% prices
tiers = {own.device: labkit.hardware.get_tier(own.tier) for own in some.itertuples()}
for device, tier in tiers.items():
    for name, unit in (("rental_price_usd_per_h", "an hour"), ("list_price_usd", "to buy")):
        price = tier.figure(name)
        shown = f"${price.value:,g} {unit}: {price.source}, {price.date}" if price.value else f"no price {unit}"
        print(f"{device}: {shown}{'; ' * bool(price.note)}{price.note or ''}")

# %% guess-share-prose [markdown]
"""
**An A40 trains for hours. How much does its electricity cost, in per cent of its rent?**
"""

# %% guess-share
guess("51.electricity", 20.0, "%")

# %% ex-51-bill [markdown]
"""
### Write 51.bill (15 minutes)

Write `bill(hours, joules, tier, *, years, usd_per_kwh, g_per_kwh)`: what one training costs, as a dict of

1. `rent_usd`: by `tier.rental_price_usd_per_h`.
2. `purchase_usd`: the share of `tier.list_price_usd` that its hours make up of `years` years of use, day and night (365.25 days a year).
3. `electricity_usd` and `carbon_g`: by the kilowatt-hour.
4. The catalogue has `None` where it knows no price. What depends on that price is then `math.nan`: not known.
"""

# %% answer 51.bill
import math

import labkit


def bill(
    hours: float, joules: float, tier: labkit.hardware.Tier, *, years: float, usd_per_kwh: float, g_per_kwh: float
) -> dict[str, float]:
    """Rent, share of the list price, electricity and carbon of one training; NaN without a price."""
    ### BEGIN SOLUTION
    rent, price = tier.rental_price_usd_per_h, tier.list_price_usd
    kwh = joules / 3.6e6
    return {
        "rent_usd": math.nan if rent is None else hours * rent,
        "purchase_usd": math.nan if price is None else hours * price / (years * 365.25 * 24),
        "electricity_usd": kwh * usd_per_kwh,
        "carbon_g": kwh * g_per_kwh,
    }
    ### END SOLUTION


# %% check 51.bill points=5
check("51.bill", bill)


# %% checks
def _billed(code: Any, name: str, hours: float = 20.0, joules: float = 9e6, years: float = 3.0) -> Any:
    return code(hours, joules, get_tier(name), years=years, usd_per_kwh=0.15, g_per_kwh=400)


def bill_by_price(hours, joules, tier, *, years, usd_per_kwh, g_per_kwh):
    own = {"rent_usd": tier.rental_price_usd_per_h, "purchase_usd": tier.list_price_usd}
    hourly = {name: float("nan") if price is None else price for name, price in own.items()}
    hourly["purchase_usd"] /= years * 365.25 * 24
    costs = {name: hours * price for name, price in hourly.items()}
    return costs | {"electricity_usd": joules / 3600 / 1000 * usd_per_kwh, "carbon_g": joules / 3.6e6 * g_per_kwh}


EXERCISES["51.bill"] = WrittenExercise(
    bill,
    Case("20 h and 9 MJ on an A40", _billed, "a40"),
    Case("80 h and 36 MJ on a P100, in five years", _billed, "p100-pcie", 80.0, 3.6e7, 5.0),
    Case("a V100 PCIe, which has no list price", _billed, "v100-pcie"),
    Case("an RTX 3060, which has no rental price", _billed, "rtx-3060"),
    Case("a target that no run reaches: inf hours and joules", _billed, "a40", math.inf, math.inf),
    Case("joules that were not measured: NaN", _billed, "a40", 20.0, math.nan),
    mistakes={
        ("math.nan if price is None else hours", "hours * 0 if price is None else hours"): (
            "No price is not a price of 0: it would be the cheapest of all. NaN says that it is not known."
        ),
        ("math.nan if rent is None else hours * rent", "hours * rent"): (
            "Some tiers have no rent: their rental_price_usd_per_h is None, which gives NaN."
        ),
        ("hours * price / (years * 365.25 * 24)", "price"): (
            "One training does not use up the card: it takes hours out of years of use."
        ),
    },
    variants=(bill_by_price,),
    hint="Four questions: which price, per what, times how much of it? And what if that price is None?",
    explanation="Three kinds of dollars from one training. They answer three questions, so do not add them up unasked.",
)

# %% bill-use [markdown]
"""
This is your bill for the trainings in the first table. A dash is a price that is not known.
"""

# %% bill-use-code
import pandas as pd

assumed = {"years": years, "usd_per_kwh": usd_per_kwh, "g_per_kwh": g_per_kwh}
bills = [bill(own.wall_s / 3600, own.energy_j, tiers[own.device], **assumed) for own in some.itertuples()]
bills = pd.DataFrame(bills, index=some["device"]).assign(provenance=some["provenance"].iloc[0])
labkit.plots.show(bills)
reveal("51.electricity", 100 * bills.loc["A40", "electricity_usd"] / bills.loc["A40", "rent_usd"])

# %% failures [markdown]
"""
## What a target costs

Not every training arrives, and failures are paid for. If each one that fails is started again, a success costs all that was spent, divided by the number of successes. That is true of seconds and of joules. `crossings` says how many seconds each run spent; multiplied by its average power, these are joules.
"""

# %% attempts
SETTING = ["device", "batch_size", "power_limit_w"]


def attempts(runs, evaluations, target):
    hits = labkit.tta.crossings(evaluations, runs, target).merge(runs[["run", *SETTING, "average_power_w"]], on="run")
    hits["spent_j"] = hits["spent_s"] * hits["average_power_w"]
    hits.loc[~hits["reached"], "provenance"] = "recorded; its length assumed"
    return hits[[*SETTING, "seed", "outcome", "reached", "spent_s", "spent_j", "provenance"]]


# %% attempts-prose [markdown]
"""
The table has five seeds of one setting at the hardest target. Two of them failed, and how long those went on was not recorded. They are *assumed* to have gone on to epoch 16, the limit of the authors' simulator (100 for NCF). So a cost with failures in it is only partly recorded.
"""


# %% attempts-show
def assumed_percent(tried):  # of all the time spent, that of failures
    return 100 * tried["spent_s"][~tried["reached"]].sum() / tried["spent_s"].sum()


hard = attempts(runs, evaluations, 0.35)
five = hard.query("device == 'V100' and batch_size == 96 and power_limit_w == 250")
labkit.plots.show(five.set_index("seed"))
print(f"assumed: {assumed_percent(five):.0f} % of these hours, {assumed_percent(hard):.0f} % of those of all settings")

# %% ex-51-expected [markdown]
"""
### Write 51.expected (10 minutes)

Write `expected(runs, by)`. From a frame like that it makes a frame with a row for each group of the columns `by`. Its columns are those of `by`, `time_s` and `energy_j` of a success, and the counts `runs` and `reached`.

1. Sum `spent_s` and `spent_j` over *all* runs of a group. Joules that were not measured are NaN, and make the sum NaN.
2. Divide by the number of runs that reached the target. If none did, the result is `inf`, and the row stays.

*Hint:* a sum of pandas leaves NaN out unless you pass `skipna=False`.
"""

# %% answer 51.expected
import pandas as pd


def expected(runs: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Expected seconds and joules of a success, each failure started again, a row a group."""
    ### BEGIN SOLUTION
    of_setting = runs.groupby(by)
    reached = of_setting["reached"].sum()
    spent = of_setting[["spent_s", "spent_j"]].agg(lambda column: column.sum(skipna=False))
    table = spent.div(reached, axis=0).set_axis(["time_s", "energy_j"], axis=1)
    return table.assign(runs=of_setting.size(), reached=reached).reset_index()
    ### END SOLUTION


# %% check 51.expected points=5
check("51.expected", expected)


# %% checks
def _expected(code: Any, *rows: tuple[str, int, bool, float, float], by: tuple[str, ...] = ("device",)) -> Any:
    runs = pd.DataFrame(rows, columns=["device", "batch_size", "reached", "spent_s", "spent_j"])
    return code(runs, list(by))[[*by, "time_s", "energy_j", "runs", "reached"]].to_numpy().tolist()


def expected_by_group(runs, by):
    rows = []
    for key, own in runs.groupby(by):
        reached = int(own["reached"].sum())
        sums = own[["spent_s", "spent_j"]].to_numpy().sum(axis=0)
        time_s, energy_j = sums / reached if reached else (math.inf, math.inf)
        rows.append([*key, time_s, energy_j, len(own), reached])
    return pd.DataFrame(rows, columns=[*by, "time_s", "energy_j", "runs", "reached"])


A, B, TWO = ("A40", 32), ("A40", 64), ("device", "batch_size")
EXERCISES["51.expected"] = WrittenExercise(
    expected,
    Case("two that arrive", _expected, (*A, True, 100.0, 9e3), (*A, True, 140.0, 11e3)),
    Case(
        "two that arrive and one that fails",
        _expected,
        (*A, True, 100.0, 9e3),
        (*A, False, 300.0, 3e4),
        (*A, True, 140.0, 11e3),
    ),
    Case(
        "two batch sizes, of which one never arrives",
        _expected,
        (*A, True, 100.0, 9e3),
        (*B, False, 300.0, 3e4),
        (*B, False, 300.0, 3e4),
        by=TWO,
    ),
    Case("joules that were not measured: NaN", _expected, (*A, True, 100.0, math.nan), (*A, True, 140.0, 11e3)),
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
    },
    variants=(expected_by_group,),
    hint="Which runs are paid for, and which of them bought a success? And what is the sum if one part is not known?",
    explanation="The expected cost where each run that fails is started again, of time and of energy alike.",
)

# %% expected-use [markdown]
"""
The table has your costs next to the mean of the finished runs, at the hardest target on the V100. (`labkit.tta.survival` computes the same.)
"""

# %% expected-use-code
finished = hard[hard["reached"]].groupby(SETTING)["spent_s"].mean() / 3600
table = expected(hard, SETTING).set_index(SETTING).assign(finished_h=finished, provenance="recorded")
table["hours"] = table["time_s"] / 3600
table.loc[table["reached"] < table["runs"], "provenance"] = "recorded; failures' length assumed"
shown = table.xs("V100").xs(250, level="power_limit_w")
labkit.plots.show(shown[["runs", "reached", "finished_h", "hours", "provenance"]])

# %% costs-prose [markdown]
"""
The next cell applies your two functions to every setting and every target of a job.
"""


# %% costs
def costs_of(job):
    runs, evaluations = labkit.runs.recorded("zeus-nsdi23", job=job)
    goals = sorted(set(evaluations["value"]))
    tables = [expected(attempts(runs, evaluations, goal), SETTING).assign(target=goal) for goal in goals]
    costs = pd.concat(tables, ignore_index=True)
    bills = [bill(own.time_s / 3600, own.energy_j, tiers[own.device], **assumed) for own in costs.itertuples()]
    facts = runs[["metric", "higher_is_better", "provenance"]].iloc[0]
    costs["setting"] = "batch " + costs["batch_size"].astype(str) + ", " + costs["power_limit_w"].astype(str) + " W"
    return costs.join(pd.DataFrame(bills)).assign(hours=costs["time_s"] / 3600, kwh=costs["energy_j"] / 3.6e6, **facts)


costs = costs_of("deepspeech2 on librispeech")

# %% guess-p100-prose [markdown]
"""
Each GPU takes its own best batch size and power limit. **To a WER of 0.40, how many times the A40's rent does the P100 cost?** Twice? Five times?
"""

# %% guess-p100
guess("51.p100", 5.0, "times")

# %% cheapest-use [markdown]
"""
Which tier is cheapest for which target, by three kinds of dollars, and by carbon? A cost that is not known is never the least. No setting that is cheapest here has a failure, so no assumed length decides.
"""

# %% cheapest-use-code
import numpy as np

DOLLARS = ["rent_usd", "purchase_usd", "electricity_usd"]


def cheapest(costs, by):
    known = costs[np.isfinite(costs[by])]
    return known.loc[known.groupby("target")[by].idxmin()].set_index("target")["device"]


winners = pd.DataFrame({by: cheapest(costs, by) for by in [*DOLLARS, "carbon_g"]})[::-1]
labkit.plots.show(winners.rename_axis(f"target WER, {costs['provenance'].iloc[0]}"))

# %% figure-costs-prose [markdown]
"""
By electricity and by carbon the winners agree wherever you live: both are joules times one number. The figure shows each GPU at its best setting. What has no price has no line.
"""

# %% figure-costs
keys = ["device", "target", "metric", "higher_is_better", "provenance"]
best = costs.groupby(keys, as_index=False)[DOLLARS].min()
labkit.plots.show(labkit.plots.figure_costs(best, DOLLARS))
rents = best.set_index(["device", "target"])["rent_usd"]
reveal("51.p100", rents["P100", 0.40] / rents["A40", 0.40])

# %% ex-51-why-cheapest [markdown]
"""
### Explain 51.why_cheapest

In two or three sentences: why is another tier the cheapest by electricity than by rent, at some targets? Which of the prices would you go by?
"""

# %% explain 51.why_cheapest points=2 id="answer-51-why-cheapest"
### BEGIN SOLUTION
answer = model_answer("51.why_cheapest")
### END SOLUTION
explain("51.why_cheapest", answer)

# %% checks
EXERCISES["51.why_cheapest"] = Explanation(
    "numbers: names the cheapest tier by rent and by electricity at an easy and at a hard target, with costs",
    "why: rent is time × a price that a market made, electricity is energy; batch and limit are chosen again",
    "trade-off: says which of the prices is one's own, and what it leaves out (host, a price's vendor and day)",
    model="By rent the A40 is the cheapest at every target (0.61 dollars at a WER of 0.65, 8.54 at 0.35; the V100 3.43 "
    "and 51.92), because it is the fastest and has the lowest price an hour: a market made that price. By electricity the "
    "V100 is a little cheaper at 0.65 (2.6 against 2.7 cents) and the A40 at 0.35 (37 against 38 cents): that is energy, "
    "and joules differ by some per cent where rents differ sixfold. A renter goes by the first, an owner by the second; "
    "neither includes the host, and the rents are of different vendors and days.",
)

# %% ncf-prose [markdown]
"""
Is it the same for another job? The table has NCF on MovieLens, a recommender, at an NDCG of 0.4.
"""

# %% ncf
ncf = costs_of("ncf on movielens-1m")
least = ncf[ncf["target"] == 0.4].groupby("device")[[*DOLLARS, "carbon_g"]].min()
labkit.plots.show(least.assign(provenance="recorded"))

# %% ncf-words [markdown]
"""
The P100, four times as slow with speech, takes less electricity than the A40 here: NCF leaves the GPUs at 34 W (P100) to 87 W (A40) on average, far below their limits. A ranking of tiers is one of a job, a target and a price.
"""

# %% claim-H3-prose [markdown]
"""
## Judge

**H3.** The study of speech recognition on three GPU platforms (ADMS 2020) says in its abstract that one gets "good results even without high-end equipment". Take as high-end the most expensive of these tiers by rent, and as a good result the hardest target. Say that the claim holds if a tier of at most half that rent gets there in at most 1.25 times its time: a quarter more time is little, compared with half the price.
"""

# %% claim H3 points=1
hours = costs[costs["target"] == 0.35].groupby("device")["time_s"].min() / 3600
rent = pd.Series({device: tier.rental_price_usd_per_h for device, tier in tiers.items()})
costliest, others = rent.idxmax(), rent[rent <= rent.max() / 2].index
ratios = pd.DataFrame({"time": hours / hours[costliest], "cost": hours * rent / (hours * rent)[costliest]}).loc[others]
words = ", ".join(
    f"{own.Index} takes {own.time:.2f} of its time, {own.cost:.2f} of its cost" for own in ratios.itertuples()
)
### BEGIN SOLUTION
verdict = "holds here" if (ratios["time"] <= 1.25).any() else "does not hold here"
answer = verdict, "an analogue: single GPUs of 2018 to 2020, and the lowest rent is that of the newest, no small one"
### END SOLUTION
claim("H3", f"WER 0.35 without the most expensive ({costliest}): {words}", answer, how="recorded")

# %% guess-batch-prose [markdown]
"""
## Where more batch stops paying

With a larger batch an epoch gets faster up to some size, and more epochs are needed. **At which batch size does the A40 take the fewest *joules*?** Its recorded sizes are 8, 16, 32, 64, 128 and 192.
"""

# %% guess-batch
guess("51.batch", 64, "samples")

# %% batch-joules-prose [markdown]
"""
The figure shows hours and kilowatt-hours of a success over the batch size, at the largest limit.
"""

# %% batch-joules
limit = costs["power_limit_w"] == costs.groupby("device")["power_limit_w"].transform("max")
at_full = costs[limit & (costs["target"] == target)]
labkit.plots.show(labkit.plots.figure_costs(at_full, ["hours", "kwh"], x="batch_size"))
a40 = at_full[at_full["device"] == "A40"]
reveal("51.batch", float(a40.loc[a40["energy_j"].idxmin(), "batch_size"]))

# %% batch-words [markdown]
"""
Both curves turn: below, an epoch takes longer; above, epochs get no faster and more of them are needed. Beyond the turn a larger batch costs time *and* energy, and no price makes it right.
"""

# %% front [markdown]
"""
## The front of time and energy

A power limit makes a GPU slower; down to some limit it also saves energy. Batch sizes and limits together give many settings of one GPU, most of them plainly bad.
"""

# %% points
device = "V100"
points = costs[(costs["device"] == device) & (costs["target"] == target) & np.isfinite(costs["time_s"])].copy()
max_power_w = float(points["power_limit_w"].max())
print(f"{len(points)} settings of the {device} reach a WER of {target:g}, recorded")

# %% guess-front-prose [markdown]
"""
**How many of them are not beaten: no other setting is as good or better in both time and energy?**
"""

# %% guess-front
guess("51.front", 20, "settings")

# %% ex-51-front [markdown]
"""
### Write 51.front (10 minutes)

`on_front(x, y)` takes two costs of each point, here time and energy. It returns for each point whether it is on the *Pareto front*: no other point is as good or better in both. Two points that are the same do not beat each other.
"""

# %% answer 51.front
from collections.abc import Sequence


def on_front(x: Sequence[float], y: Sequence[float]) -> list[bool]:
    """Whether no other point is as good or better in both, a point each."""
    ### BEGIN SOLUTION
    points = list(zip(x, y, strict=True))
    return [
        not any(a <= own_x and b <= own_y and (a, b) != (own_x, own_y) for a, b in points) for own_x, own_y in points
    ]
    ### END SOLUTION


# %% check 51.front points=4
check("51.front", on_front)


# %% checks
def on_front_by_sorting(x, y):
    best, kept = math.inf, set()
    for one, other in sorted(set(zip(x, y, strict=True))):
        if other < best:
            best = other
            kept.add((one, other))
    return [pair in kept for pair in zip(x, y, strict=True)]


EXERCISES["51.front"] = WrittenExercise(
    on_front,
    Case("a point that is best in both", lambda code: code([3.0, 1.0, 2.0], [30.0, 10.0, 20.0])),
    Case("three that trade", lambda code: code([1.0, 2.0, 3.0], [30.0, 20.0, 10.0])),
    Case("one behind the others", lambda code: code([1.0, 3.0, 2.5], [30.0, 10.0, 31.0])),
    Case("one as fast as another, which takes more energy", lambda code: code([1.0, 1.0, 2.0], [30.0, 20.0, 5.0])),
    Case("two that are the same", lambda code: code([1.0, 1.0, 2.0], [30.0, 30.0, 40.0])),
    mistakes={
        ("a <= own_x and b <= own_y", "a < own_x and b < own_y"): (
            "One that is as fast and takes less energy is better: <= in both, and not the same point."
        ),
        (" and (a, b) != (own_x, own_y)", ""): "A point is not beaten by itself, nor by another that is the same.",
        ("a <= own_x and b <= own_y", "a <= own_x"): "Slower is no fault where it takes less energy.",
    },
    variants=(on_front_by_sorting,),
    hint="Take two points of the message: does one of them cost no more than the other in both, and are they different?",
    explanation="Off the front you lose time or energy for nothing; on it you have to choose.",
)

# %% front-figure-prose [markdown]
"""
The front is what you may sensibly choose from. (A double click shows the far settings, too.)
"""

# %% front-figure
points["front"] = on_front(list(points["time_s"]), list(points["energy_j"]))
labkit.plots.show(labkit.plots.figure_pareto(points, "hours", "kwh"))
reveal("51.front", int(points["front"].sum()))

# %% guess-power-prose [markdown]
"""
## What a power limit buys

At one batch size only the limit differs. **A V100 at batch 48 is limited to 150 W instead of 250. How much energy does that save, in per cent?**
"""

# %% guess-power
guess("51.saved", 40.0, "%")

# %% power-use [markdown]
"""
The tables compare each limit with the largest one, at the fastest batch size, on the GPU above and on another.
"""


# %% power-use-code
def limits_of(device, batch_size):
    own = costs[(costs["device"] == device) & (costs["target"] == target) & (costs["batch_size"] == batch_size)]
    own = own.set_index("power_limit_w")[["hours", "kwh", "provenance"]]
    full = own.loc[own.index.max()]
    slower, saved = own["hours"] / full["hours"] - 1, 1 - own["kwh"] / full["kwh"]
    return own.assign(slower_percent=100 * slower, saved_percent=100 * saved)


limited = limits_of("V100", 48)
labkit.plots.show(limited.rename_axis("V100, batch 48, limit (W)"))
labkit.plots.show(limits_of("A40", 32).rename_axis("A40, batch 32, limit (W)"))
reveal("51.saved", limited["saved_percent"].get(150))

# %% ex-51-why-limit [markdown]
"""
### Explain 51.why_limit

In two or three sentences: why does a limit save more energy than it costs time, and where does that end? Use two rows of these tables.
"""

# %% explain 51.why_limit points=2 id="answer-51-why-limit"
### BEGIN SOLUTION
answer = model_answer("51.why_limit")
### END SOLUTION
explain("51.why_limit", answer)

# %% checks
EXERCISES["51.why_limit"] = Explanation(
    "numbers: per cent of time lost and of energy saved at one limit, and where a lower limit saves no more",
    "why: power falls faster than speed near the top; far down the idle power is paid for longer",
    "trade-off: for whom a limit pays, and for whom it does not",
    model="At the V100's batch of 48 a limit of 150 W takes 14 % more time and saves 25 % of the energy, since "
    "near the top the clock costs more power than it gives speed. On the A40 at 100 W both are lost: training "
    "takes three times as long, and the power that a card draws in any case runs on. At rental prices an hour "
    "outweighs its joules and no limit pays; it does for somebody whose machine is paid for, or who counts carbon.",
)

# %% ex-51-eta [markdown]
r"""
## Which point of the front?

*Zeus* weighs time and energy by a number $\eta$ from 0 (time alone) to 1 (energy alone), and turns seconds into joules by the largest power of the GPU:

$$\text{cost} = \eta \cdot \text{energy} + (1 - \eta) \cdot \text{max power} \cdot \text{time}$$

$\eta$ looks like taste. But dollars weigh time and energy, too: an hour costs something, and so does a kilowatt-hour.

### Write 51.eta (10 minutes)

`zeus_choice(points, usd_per_h, usd_per_kwh, max_power_w)` returns two things: the $\eta$ with which Zeus' cost ranks all settings exactly as dollars do, and the label of the row of `points` (`time_s`, `energy_j`; arbitrary labels) that is the cheapest by it.

Two weighings rank alike if their weights have the same ratio. Mind the units: joules and kilowatt-hours, seconds and hours, watts and kilowatts.
"""

# %% answer 51.eta
import pandas as pd


def zeus_choice(points: pd.DataFrame, usd_per_h: float, usd_per_kwh: float, max_power_w: float) -> tuple[float, int]:
    """The weight of energy in Zeus' cost that these prices are, and the label of the row that it chooses."""
    ### BEGIN SOLUTION
    usd_per_s, usd_per_j = usd_per_h / 3600, usd_per_kwh / 3.6e6
    # eta : (1 - eta) * max_power_w = usd_per_j : usd_per_s
    eta = max_power_w * usd_per_j / (max_power_w * usd_per_j + usd_per_s)
    cost_j = eta * points["energy_j"] + (1 - eta) * max_power_w * points["time_s"]
    return eta, cost_j.idxmin()
    ### END SOLUTION


# %% check 51.eta points=5
check("51.eta", zeus_choice)


# %% checks
def _choice(code: Any, usd_per_h: float, usd_per_kwh: float, max_power_w: float = 250.0) -> tuple[float, int]:
    rows = [(100.0, 2.4e4), (90.0, 2.6e4), (125.0, 1.2e4), (104.0, 1.9e4), (300.0, 1.3e4)]
    points = pd.DataFrame(rows, columns=["time_s", "energy_j"], index=[70, 3, 11, 42, 0])
    eta, label = code(points, usd_per_h, usd_per_kwh, max_power_w)
    return 1 + eta, label


def zeus_choice_in_dollars(points, usd_per_h, usd_per_kwh, max_power_w):
    full_usd_per_h = max_power_w / 1000 * usd_per_kwh  # of electricity, at the largest power
    usd = points["time_s"] / 3600 * usd_per_h + points["energy_j"] / 3.6e6 * usd_per_kwh
    return full_usd_per_h / (full_usd_per_h + usd_per_h), points.index[usd.to_numpy().argmin()]


EXERCISES["51.eta"] = WrittenExercise(
    zeus_choice,
    Case("$0.44 an hour, $0.127 a kWh, 300 W", _choice, 0.44, 0.127, 300.0),
    Case("an hour that costs nothing", _choice, 0.0, 0.127),
    Case("electricity that costs nothing", _choice, 1.46, 0.0),
    Case("$0.05 an hour, $0.3 a kWh", _choice, 0.05, 0.3),
    Case("$0.01 an hour, $0.2 a kWh", _choice, 0.01, 0.2),
    mistakes={
        ("eta = max_power_w * usd_per_j / (", "eta = usd_per_s / ("): "That is the weight of time, 1 − η.",
        ("usd_per_kwh / 3.6e6", "usd_per_kwh / 3600"): "Watts or kilowatts: joules of a kilowatt-hour are 3.6 million.",
        ("cost_j.idxmin()", "int(cost_j.argmin())"): "The label of the row, not its place.",
    },
    variants=(zeus_choice_in_dollars,),
    hint="What does a second cost by each of the two weighings, and what does a joule? Compare the ratios.",
    explanation="Zeus' cost (You, Chung and Chowdhury, NSDI 2023). η is the share of electricity in the price of an hour "
    "at full power: prices choose it, not taste.",
)

# %% guess-eta-prose [markdown]
r"""
A renter pays for the electricity with the rent, so $\eta$ is 0. **An owner pays for it on top. What is $\eta$ for an owner to whom an hour of the V100 is worth the rent that others pay?**
"""

# %% guess-eta
guess("51.eta_of_rent", 0.3)

# %% eta-use [markdown]
"""
The cell shows what four kinds of owner choose, by what an hour of the card is worth to them.
"""

# %% eta-use-code
chosen = {}
for usd_per_h in (0.0, 0.03, 0.20, rent[device]):
    eta, label = zeus_choice(points, usd_per_h, usd_per_kwh, max_power_w)
    chosen[f"${usd_per_h:.2f} an hour"] = label
    print(f"to whom an hour is worth ${usd_per_h:.2f}: η {eta:.3f}, {points.loc[label, 'setting']}, recorded")
labkit.plots.show(labkit.plots.figure_pareto(points, "hours", "kwh", chosen=chosen))
reveal("51.eta_of_rent", eta)

# %% eta-words [markdown]
r"""
A card of some 5,000 dollars costs twenty cents per hour over three years. At that price nothing but time is worth saving. Zeus' default, $\eta = 0.5$, is the choice of an owner to whom an hour is worth some three cents, or of one who cares more for carbon than the price of electricity does.
"""

# %% own [markdown]
"""
## Your machine on the same axes

Now a DLRM of labkit's is trained here, to an AUC of 0.72. It is *another job* than the recorded ones: what it costs can be on the same axes, but a ratio to a recorded job would mean nothing.

**How many trainings of that DLRM to its target does one dollar of rent buy, on a tier like your machine?**
"""

# %% guess-own
guess("51.trainings", 500, "trainings")

# %% train
from pathlib import Path

folder = Path(runs_dir) / "notebooks"
seeds = {"smoke": [0], "standard": range(3), "full": range(10)}[profile]
settings = {"data": "synthetic-small", "target": "0.72", "max_seconds": 60, "evaluations": False}
folders = [labkit.launch.watch("dlrm", folder, seed=seed, **settings)["folder"] for seed in seeds]

# %% account-prose [markdown]
"""
`energy_account` reads a counter of energy (NVML, RAPL). Where there is none, it says why, multiplies the time by your assumed power, and calls the result *predicted*. Prices are those of your machine's tier in the catalogue. If it has no tier, only electricity has a price.
"""

# %% account
guessed = {"estimate": True, "assumed_power_w": assumed_power_w, "grid_g_per_kwh": g_per_kwh}
accounts = [labkit.tta.energy_account(folder, **guessed) for folder in folders]
print(f"{accounts[0].energy_j:.3g} J, {accounts[0].kind}: {accounts[0].source}; {accounts[0].note}")
table = labkit.tta.run_table(folders)
tier = table["tier"].iloc[0]
print(labkit.tta.cost_usd(3600, tier).note)

# %% own-expected-prose [markdown]
"""
Your two functions say what a success costs.
"""

# %% own-expected
from types import SimpleNamespace

hits = labkit.tta.crossings(labkit.tta.curves(folders), table, 0.72)
pairs = zip(accounts, hits["reached"], strict=True)
spent = [account.energy_to_target_j if reached else account.energy_j for account, reached in pairs]
own = expected(hits.assign(spent_j=spent).astype({"spent_j": float}), ["budget"]).iloc[0].to_dict()
unpriced = SimpleNamespace(rental_price_usd_per_h=None, list_price_usd=None)
priced = unpriced if tier is None else labkit.hardware.get_tier(tier)
own |= bill(own["time_s"] / 3600, own["energy_j"], priced, **assumed)
how = "measured" if accounts[0].kind == "measured" else f"time measured, energy {accounts[0].kind}"
own |= {"device": "DLRM here", "setting": own["budget"], "provenance": how}

# %% together-prose [markdown]
"""
The table and the figure compare it with each GPU's fastest setting of the recorded jobs, at a WER of 0.35 and an NDCG of 0.4.
"""


# %% together
def fastest(costs, target, job):
    own = costs[costs["target"] == target]
    own = own.loc[own.groupby("device")["time_s"].idxmin()]
    return own.assign(device=job + " on " + own["device"])


theirs = [fastest(costs, 0.35, "DeepSpeech2"), fastest(ncf, 0.4, "NCF")]
together = pd.concat([*theirs, pd.DataFrame([own])], ignore_index=True)
columns = ["setting", "time_s", "energy_j", *DOLLARS, "carbon_g", "provenance"]
labkit.plots.show(together.set_index("device")[columns])

# %% together-figure
labkit.plots.show(labkit.plots.figure_pareto(together, "time_s", "energy_j"))
rent_usd = own.get("rent_usd", 0.0)
trainings = 1 / rent_usd if rent_usd > 0 else None
reveal("51.trainings", trainings)

# %% together-words [markdown]
"""
Hollow marks were recorded elsewhere; yours is filled. Without a counter, your energy is a measured time times `assumed_power_w`. Starting Python and preparing data are in none of these numbers.
"""

# %% scores-prose [markdown]
"""
How good were your guesses? The cell after the scores keeps the numbers of this notebook for a program to read, each with bounds that hold on any machine.
"""

# %% scores
from labkit_course import score_notebook

score_notebook()

# %% results tags=["results"]
from labkit_course import results

results(
    electricity_percent=(100 * bills.loc["A40", "electricity_usd"] / bills.loc["A40", "rent_usd"], 3, 8),
    assumed_percent=(assumed_percent(hard), 18, 18.5),
    p100_over_a40_rent=(rents["P100", 0.40] / rents["A40", 0.40], 13, 15),
    on_the_front=(int(points["front"].sum()), 9, 9),
    saved_percent=(limited["saved_percent"].get(150), 25, 25.5),
    trainings_a_dollar=(trainings, 100, 1e7),
)

# %% assistant trainings_a_dollar above=10000 [markdown]
"""
Models of this size cost next to nothing: a dollar of rent buys more than 10,000 trainings of this DLRM to its target.
"""

# %% recap [markdown]
"""
## Recap

- Seconds × watts are joules, and a price and a grid turn joules into dollars and grams. Rent, purchase and electricity are three questions.
- No price is NaN and no success is inf: neither is 0, and neither is ever the cheapest.
- Failures are paid for, in joules as in hours: all that was spent, over the successes. How long a recorded failure went on is assumed.
- The cheapest tier belongs to a job, a target and a price; here rents differed more than energies did.
- Past some batch size a larger one costs time *and* energy. A power limit trades one for the other, on a front that prices choose from: η is the share of electricity in the price of an hour at full power.

**Next:** [Experiment data](52_experiment_data.ipynb)
"""

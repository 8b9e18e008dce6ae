# %% opening [markdown] packages="scipy soundfile"
"""
# Cost and energy

After this notebook you will be able to

- **turn** seconds and watts into joules, dollars and grams of CO₂, and **tell** rent, purchase and electricity apart;
- **write** what a target costs with its failures paid for, and **find** the tier that is cheapest for it;
- **write** the Pareto front of time and energy, and **choose** on it by prices, which is what Zeus' η is;
- **explain** what a power limit buys, and where a larger batch stops paying;
- **put** your own machine on the same axes, and **say** which of its numbers is an estimate.

**Time:** 90 minutes in two halves: recorded runs, then yours. The second half needs the cells of the first. The machine computes for about a minute on 2 CPU cores. No GPU is needed.

**Prerequisites:** [Time to accuracy](50_time_to_accuracy.ipynb).
"""

# %% checks
import math
from typing import Any

import numpy as np
import pandas as pd

from labkit.hardware import get_grid, get_tier
from labkit_course.exercise import Case, Exercise, Explanation, WrittenExercise

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
student = 0

# %% grid-prose [markdown]
"""
The catalogue has what a kilowatt-hour costs and emits. If you know better numbers, write them in place of these.
"""

# %% grid
import labkit

usd_per_kwh, g_per_kwh = (
    labkit.hardware.get_grid(grid).price_usd_per_kwh,
    labkit.hardware.get_grid(grid).carbon_g_per_kwh,
)
for name in ("price_usd_per_kwh", "carbon_g_per_kwh"):
    figure = labkit.hardware.get_grid(grid).figure(name)
    print(f"{name} {figure.value:g}: {figure.source}, {figure.date}")

# %% one [markdown]
"""
## From seconds to grams

The authors of *Zeus* (You, Chung and Chowdhury, NSDI 2023, Apache-2.0) trained DeepSpeech2 on LibriSpeech and NCF on MovieLens-1M, and measured seconds and mean power of an epoch on four GPUs, at each batch size and power limit. All of it is *recorded*, not measured here. Power is that of the GPU alone, without its host, and was measured once.
"""

# %% load
runs, evaluations = labkit.runs.recorded("zeus-nsdi23", job="deepspeech2 on librispeech")
columns = ["device", "batch_size", "power_limit_w", "epochs", "epoch_s", "average_power_w", "energy_j", "provenance"]
some = runs[(runs["batch_size"] == 32) & (runs["seed"] == 1)].groupby("device").tail(1)
labkit.plots.show(some[columns].set_index("device"))

# %% one-words [markdown]
"""
A row is one training to its last target, at batch 32 and the largest power limit: epochs × seconds an epoch × watts are its joules. An A40 with a limit of 300 W draws less on average: a limit is not a power.
"""

# %% ex-51-grams [markdown]
"""
### Compute 51.grams

A training takes `hours` at `watts`, on the grid of the country `grid`. How many grams of CO₂ equivalent is that? `draw` prints your numbers.
"""

# %% draw-51-grams
from labkit_course import check, claim, draw, explain, guess, model_answer, reveal

numbers = draw("51.grams", student)
print(f"{labkit.hardware.get_grid(numbers['grid']).carbon_g_per_kwh:g} g CO2e a kWh")

# %% ex-51-grams-answer [markdown]
"""
Write the grams, or how to compute them from `numbers`, in place of the dots.
"""

# %% answer 51.grams
import labkit

### BEGIN SOLUTION
answer = numbers["hours"] * numbers["watts"] / 1000 * labkit.hardware.get_grid(numbers["grid"]).carbon_g_per_kwh
### END SOLUTION

# %% check 51.grams points=1
check("51.grams", answer, student)

# %% checks
EXERCISES["51.grams"] = Exercise(
    lambda hours, watts, grid: hours * watts / 1000 * get_grid(grid).carbon_g_per_kwh,
    draw=lambda random: {
        "hours": random.choice([9.5, 12.0, 22.5, 90.0]),
        "watts": random.choice([98, 134, 177, 215]),
        "grid": random.choice(["norway", "france", "us", "poland", "india"]),
    },
    hint="The grid's grams belong to a unit of energy: how many of these units does your training take?",
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

# %% prices-prose [markdown]
"""
Dollars need prices. Those come from a market, not from a GPU. Read what each one is: vendors and days differ, and one is the price of the GPU without its machine.
"""

# %% prices
tiers = {
    own["device"]: labkit.hardware.get_tier(own["tier"])
    for _, own in runs[["device", "tier"]].drop_duplicates().iterrows()
}
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
def _billed(name: str, hours: float = 20.0, joules: float = 9e6, years: float = 3.0) -> Any:
    return lambda code: code(hours, joules, get_tier(name), years=years, usd_per_kwh=0.15, g_per_kwh=400)


def bill_by_price(hours, joules, tier, *, years, usd_per_kwh, g_per_kwh):
    own = {"rent_usd": tier.rental_price_usd_per_h, "purchase_usd": tier.list_price_usd}
    hourly = {name: float("nan") if price is None else price for name, price in own.items()}
    hourly["purchase_usd"] /= years * 365.25 * 24
    costs = {name: hours * price for name, price in hourly.items()}
    return costs | {"electricity_usd": joules / 3600 / 1000 * usd_per_kwh, "carbon_g": joules / 3.6e6 * g_per_kwh}


EXERCISES["51.bill"] = WrittenExercise(
    bill,
    module="cost",
    cases=(
        Case("20 h and 9 MJ on an A40", _billed("a40")),
        Case("80 h and 36 MJ on a P100, in five years", _billed("p100-pcie", 80.0, 3.6e7, 5.0)),
        Case("a V100 PCIe, which has no list price", _billed("v100-pcie")),
        Case("an RTX 3060, which has no rental price", _billed("rtx-3060")),
        Case("a target that no run reaches: inf hours and joules", _billed("a40", math.inf, math.inf)),
        Case("joules that were not measured: NaN", _billed("a40", 20.0, math.nan)),
    ),
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
The table has your bill of one training on each GPU, to its last target, at batch 32. A dash is a price that is not known.
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

Not every training arrives, and failures are paid for. If each one that fails is started again, a success costs all that was spent over the number of successes: of seconds and of joules alike. `crossings` says how many seconds each run spent, and its average power makes joules of them.
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
The table has five seeds of one setting at the hardest target. Two of them failed. How long those went on was not recorded. The card of the recording says that they are *taken to have* gone on to epoch 16, the limit of the authors' simulator (100 for NCF). So what they spent is assumed, and a cost with failures in it is only partly recorded.
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
### Write 51.expected (15 minutes)

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
def _attempts(*rows: tuple[str, int, bool, float, float]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["device", "batch_size", "reached", "spent_s", "spent_j"])


def _expected(*rows: tuple[str, int, bool, float, float], by: tuple[str, ...] = ("device",)) -> Any:
    def ask(code: Any) -> list:
        table = code(_attempts(*rows), list(by))
        return [[*map(str, row)] for row in table[list(by)].to_numpy()] + [
            list(table[name].astype(float)) for name in ("time_s", "energy_j", "runs", "reached")
        ]

    return ask


def expected_by_group(runs, by):
    rows = []
    for key, own in runs.groupby(by):
        reached = int(own["reached"].sum())
        sums = {
            name: float(np.divide(own[column].to_numpy().sum(), reached or math.nan))
            for name, column in (("time_s", "spent_s"), ("energy_j", "spent_j"))
        }
        sums = sums if reached else dict.fromkeys(sums, math.inf)
        rows.append(dict(zip(by, key, strict=True)) | sums | {"runs": len(own), "reached": reached})
    return pd.DataFrame(rows)


A, B = ("A40", 32), ("A40", 64)


EXERCISES["51.expected"] = WrittenExercise(
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
            "a run whose joules were not measured: NaN",
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
    return costs.join(pd.DataFrame(bills)).assign(**facts)


costs = costs_of("deepspeech2 on librispeech")

# %% guess-p100-prose [markdown]
"""
Each GPU takes its own best batch size and power limit. **To a WER of 0.40, how many times the A40's rent does the P100 cost?** Twice? Five times?
"""

# %% guess-p100
guess("51.p100", 5.0, "times")

# %% cheapest-use [markdown]
"""
Which tier is cheapest for which target, by three kinds of dollars, and by carbon? A cost that is not known is never the least, and a target that no run reaches has no winner. No setting that is the cheapest here has a failure, so no length that is assumed decides.
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
By electricity and by carbon the winners agree wherever you live: both are joules times one number. The figure shows how far the GPUs are apart, each at its best setting. What has no price has no line.
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
    rubric=(
        "numbers: names the cheapest tier by rent and by electricity at an easy and at a hard target, with costs",
        "why: rent is time × a price that a market made, electricity is energy; batch and limit are chosen again",
        "trade-off: says which of the prices is one's own, and what it leaves out (host, a price's vendor and day)",
    ),
    model="By rent the A40 is the cheapest at every target (0.61 dollars at a WER of 0.65, 8.54 at 0.35; the V100 3.43 "
    "and 51.92), because it is the fastest and has the lowest price an hour: a market made that price. By electricity the "
    "V100 is a little cheaper at 0.65 (2.6 against 2.7 cents) and the A40 at 0.35 (37 against 38 cents): that is energy, "
    "and joules differ by some per cent where rents differ sixfold. A renter goes by the first, an owner by the second; "
    "neither includes the host, and the rents are of different vendors and days.",
)

# %% ncf-prose [markdown]
"""
Is it the same for another job? The tables have NCF on MovieLens, a recommender that reaches most of its targets within a minute.
"""

# %% ncf
ncf = costs_of("ncf on movielens-1m")
winners_ncf = pd.DataFrame({by: cheapest(ncf, by) for by in [*DOLLARS, "carbon_g"]})
labkit.plots.show(winners_ncf.rename_axis(f"target NDCG, {ncf['provenance'].iloc[0]}; failures' length assumed"))
labkit.plots.show(
    ncf[ncf["target"] == 0.4].groupby("device")[[*DOLLARS, "carbon_g"]].min().assign(provenance="recorded")
)

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
at_full = at_full.assign(hours=at_full["time_s"] / 3600, kwh=at_full["energy_j"] / 3.6e6)
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

A power limit makes a GPU slower; down to some limit it also takes less energy. Batch sizes and limits together give many settings of one GPU, and most of them are plainly bad.
"""

# %% points
import numpy as np

device = "V100"
own = costs[(costs["device"] == device) & (costs["target"] == target) & np.isfinite(costs["time_s"])]
words = "batch " + own["batch_size"].astype(str) + ", " + own["power_limit_w"].astype(str) + " W"
points = own.assign(setting=words, hours=own["time_s"] / 3600, kwh=own["energy_j"] / 3.6e6)
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
    },
    variants=(on_front_by_sorting,),
    hint="Take two points of the message: does one of them cost no more than the other in both, and are they different?",
    explanation="Off the front you lose time or energy for nothing; on it you have to choose.",
)

# %% front-figure-prose [markdown]
"""
The front is what you may sensibly choose from. Look at what the settings on it have in common. (The axes end at 1.8 times the front; a double click shows the far ones, too.)
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

# %% ex-51-power [markdown]
"""
### Write 51.power (10 minutes)

Write `against_full_power(points)`: the frame with two more columns, `slower_percent` and `saved_percent` (of energy), each against the row of the *same* `batch_size` with the largest `power_limit_w`.

The rows come in any order, and their labels are arbitrary.
"""

# %% answer 51.power
import pandas as pd


def against_full_power(points: pd.DataFrame) -> pd.DataFrame:
    """With columns slower_percent and saved_percent, against the largest limit at the same batch size."""
    ### BEGIN SOLUTION
    full = points.loc[points.groupby("batch_size")["power_limit_w"].idxmax()].set_index("batch_size")
    full = full.loc[points["batch_size"]]
    return points.assign(
        slower_percent=100 * (points["time_s"] / full["time_s"].to_numpy() - 1),
        saved_percent=100 * (1 - points["energy_j"] / full["energy_j"].to_numpy()),
    )
    ### END SOLUTION


# %% check 51.power points=3
check("51.power", against_full_power)


# %% checks
def _limits(*rows: tuple[int, int, float, float]) -> Any:
    points = pd.DataFrame(
        rows, columns=["batch_size", "power_limit_w", "time_s", "energy_j"], index=range(5, 5 + len(rows))
    )
    return lambda code: [list(code(points)[name] + 1000) for name in ("slower_percent", "saved_percent")]


def against_full_power_by_merging(points):
    full = points.sort_values("power_limit_w").drop_duplicates("batch_size", keep="last")
    both = points.merge(full[["batch_size", "time_s", "energy_j"]], on="batch_size", suffixes=("", "_full"))
    both.index = points.index
    both["slower_percent"] = (both["time_s"] / both["time_s_full"] - 1) * 100
    both["saved_percent"] = (1 - both["energy_j"] / both["energy_j_full"]) * 100
    return both.drop(columns=["time_s_full", "energy_j_full"])


EXERCISES["51.power"] = WrittenExercise(
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
    variants=(against_full_power_by_merging,),
    hint="Which row is the one to compare with, for each row of the message? How do you bring its numbers next to the row?",
    explanation="One thing differs, the limit: so what is lost and saved is the limit's.",
)

# %% power-use [markdown]
"""
The tables have the fastest batch size, on the GPU above and on another.
"""

# %% power-use-code
columns = ["hours", "slower_percent", "saved_percent", "provenance"]
limits = against_full_power(points).set_index("power_limit_w")
labkit.plots.show(limits.query("batch_size == 48")[columns].rename_axis("V100, batch 48, limit (W)"))
a40 = costs[(costs["device"] == "A40") & (costs["target"] == target) & (costs["batch_size"] == 32)]
a40 = against_full_power(a40.assign(hours=a40["time_s"] / 3600)).set_index("power_limit_w")
labkit.plots.show(a40[columns].rename_axis("A40, batch 32, limit (W)"))
limited = against_full_power(points).set_index(["batch_size", "power_limit_w"])["saved_percent"]
reveal("51.saved", limited.get((48, 150)))

# %% ex-51-why-limit [markdown]
"""
### Explain 51.why_limit

In two or three sentences: why does a limit save more energy than it costs time, and where does that end? Use two rows of your tables.
"""

# %% explain 51.why_limit points=2 id="answer-51-why-limit"
### BEGIN SOLUTION
answer = model_answer("51.why_limit")
### END SOLUTION
explain("51.why_limit", answer)

# %% checks
EXERCISES["51.why_limit"] = Explanation(
    rubric=(
        "numbers: per cent of time lost and of energy saved at one limit, and where a lower limit saves no more",
        "why: power falls faster than speed near the top; far down the idle power is paid for longer",
        "trade-off: for whom a limit pays, and for whom it does not",
    ),
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

### Write 51.eta (15 minutes)

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
def _choice(usd_per_h: float, usd_per_kwh: float, max_power_w: float = 250.0) -> Any:
    rows = [(100.0, 2.4e4), (90.0, 2.6e4), (125.0, 1.2e4), (104.0, 1.9e4), (300.0, 1.3e4)]
    points = pd.DataFrame(rows, columns=["time_s", "energy_j"], index=[70, 3, 11, 42, 0])

    def ask(code: Any) -> list[float]:
        eta, label = code(points, usd_per_h, usd_per_kwh, max_power_w)
        return [1 + float(eta), int(label)]

    return ask


def zeus_choice_in_dollars(points, usd_per_h, usd_per_kwh, max_power_w):
    full_usd_per_h = max_power_w / 1000 * usd_per_kwh  # of electricity, at the largest power
    usd = points["time_s"] / 3600 * usd_per_h + points["energy_j"] / 3.6e6 * usd_per_kwh
    return full_usd_per_h / (full_usd_per_h + usd_per_h), points.index[usd.to_numpy().argmin()]


EXERCISES["51.eta"] = WrittenExercise(
    zeus_choice,
    module="cost",
    cases=(
        Case("$0.44 an hour, $0.127 a kWh, 300 W", _choice(0.44, 0.127, 300.0)),
        Case("an hour that costs nothing", _choice(0.0, 0.127)),
        Case("electricity that costs nothing", _choice(1.46, 0.0)),
        Case("$0.05 an hour, $0.3 a kWh", _choice(0.05, 0.3)),
        Case("$0.01 an hour, $0.2 a kWh", _choice(0.01, 0.2)),
    ),
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

Now a DLRM and a speech recogniser of labkit's are trained here, to targets of their own: an AUC of 0.72, and a CER of 0.05 (0.8 at `smoke`). They are *other jobs* than the recorded ones. What they cost can be on the same axes, but a ratio to a recorded job would mean nothing. This half needs the cells of the first.

**How many trainings of that DLRM to its target does one dollar of rent buy, on a tier like your machine?**
"""

# %% guess-own
guess("51.trainings", 500, "trainings")

# %% train
from pathlib import Path

seeds = {"smoke": [0], "standard": range(3), "full": range(10)}[profile]
goals = {"dlrm": ("synthetic-small", 0.72), "speech": ("shipped", 0.8 if profile == "smoke" else 0.05)}
titles, folders = {"dlrm": "DLRM", "speech": "recogniser"}, {}
for job, (data, goal) in goals.items():
    settings = {"data": data, "target": str(goal), "max_seconds": 60, "evaluations": False}
    folders[job] = [
        labkit.launch.watch(job, Path(runs_dir) / "notebooks", seed=seed, **settings)["folder"] for seed in seeds
    ]

# %% account-prose [markdown]
"""
`energy_account` reads the counter of energy where there is one (NVML, RAPL), and says why where there is none. With `estimate` it then multiplies the time by a power, here your assumption, and calls the result *predicted*. Its time begins with the run, a little before the clock of the training.
"""

# %% account
guessed = {"estimate": True, "assumed_power_w": assumed_power_w, "grid_g_per_kwh": g_per_kwh}
accounts = {job: [labkit.tta.energy_account(folder, **guessed) for folder in own] for job, own in folders.items()}
for job, (first, *_) in accounts.items():
    print(f"{job}: {first.energy_j:.3g} J, {first.kind}: {first.source}; {first.note}")

# %% own-tier-prose [markdown]
"""
The prices of your machine are those of its tier in the catalogue. A machine of no tier has none, and neither do some tiers: dollars are then NaN, and the note says why.
"""

# %% own-tier
from types import SimpleNamespace

name = labkit.tta.run_table(folders["dlrm"])["tier"].iloc[0]
known = isinstance(name, str)
own_tier = (
    labkit.hardware.get_tier(name) if known else SimpleNamespace(rental_price_usd_per_h=None, list_price_usd=None)
)
print(labkit.tta.cost_usd(3600, name).note)

# %% own-expected-prose [markdown]
"""
The cell adds up what each run spent until its target. Your `expected` says what a success costs.
"""

# %% own-expected
rows = []
for job, (_, goal) in goals.items():
    table = labkit.tta.run_table(folders[job])
    hits = labkit.tta.crossings(labkit.tta.curves(folders[job]), table, goal).assign(job=job)
    pairs = zip(accounts[job], hits["reached"], strict=True)
    hits["spent_j"] = [account.energy_to_target_j if reached else account.energy_j for account, reached in pairs]
    own = expected(hits.astype({"spent_j": float}), ["job", "budget"]).iloc[0]
    bought = bill(own["time_s"] / 3600, own["energy_j"], own_tier, **assumed)
    how = "measured" if accounts[job][0].kind == "measured" else f"time measured, energy {accounts[job][0].kind}"
    rows.append({**own, **bought, "device": f"{titles[job]} here", "setting": own["budget"], "provenance": how})

# %% together-prose [markdown]
"""
The table and the figure compare them with each GPU's fastest setting of the recorded jobs, at a WER of 0.35 and an NDCG of 0.4.
"""


# %% together
def fastest(costs, target, job):
    own = costs[costs["target"] == target]
    own = own.loc[own.groupby("device")["time_s"].idxmin()]
    words = "batch " + own["batch_size"].astype(str) + ", " + own["power_limit_w"].astype(str) + " W"
    return own.assign(setting=words, device=job + " on " + own["device"])


theirs = [fastest(costs, 0.35, "DeepSpeech2"), fastest(ncf, 0.4, "NCF")]
together = pd.concat([*theirs, pd.DataFrame(rows)], ignore_index=True)
columns = ["setting", "time_s", "energy_j", *DOLLARS, "carbon_g", "provenance"]
labkit.plots.show(together.set_index("device")[columns])

# %% together-figure
labkit.plots.show(labkit.plots.figure_pareto(together, "time_s", "energy_j"))
rent_usd = together.set_index("device").loc["DLRM here", "rent_usd"]
trainings = 1 / rent_usd if rent_usd > 0 else None
reveal("51.trainings", trainings)

# %% together-words [markdown]
"""
Hollow marks were recorded elsewhere; yours are filled. Your energy is an assumption times a measured time unless a counter says otherwise, so its place in the figure follows `assumed_power_w` by a straight line: change it, and see. Starting Python and preparing data are in none of these numbers.
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
    saved_percent=(limited.get((48, 150)), 25, 25.5),
    trainings_a_dollar=(trainings, 100, 1e7),
)

# %% assistant trainings_a_dollar above=10000 [markdown]
"""
Models of this size cost next to nothing: a dollar of rent buys more than 10,000 trainings of this DLRM to its target.
"""

# %% recap [markdown]
"""
## Recap

- Seconds × watts are joules; joules, a price and a grid are dollars and grams. Rent, purchase and electricity are three questions.
- No price is NaN and no success is inf: neither is 0, and neither is ever the cheapest.
- Failures are paid for, in joules as in hours: all that was spent, over the successes. How long a recorded failure went on is assumed: say so, and try another length.
- The cheapest tier belongs to a job, a target and a price; here rents differed more than energies did.
- Past some batch size a larger one costs time *and* energy. A power limit trades one for the other, on a front that prices choose from: η is the share of electricity in the price of an hour at full power.

**Next:** [Experiment data](52_experiment_data.ipynb)
"""

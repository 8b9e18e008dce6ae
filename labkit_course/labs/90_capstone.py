# %% opening [markdown] packages="scipy"
"""
# Capstone

After this notebook you will be able to

- **plan** an experiment: the smallest effect that matters, and the number of pairs that finds it;
- **register** what you expect before the first run, and **score** afterwards how well you knew it;
- **judge** pairs of runs by an interval, with the failed ones counted;
- **hand** a run to somebody who runs it again;
- **search** for a good setting with little money, and **say** when a record is one.

**Time:** 90 minutes. The machine computes for about two of them on 2 CPU cores. No GPU is needed. A capstone of your own takes weeks: replace script, question and plan by yours.

**Prerequisites:** [Budgets that bind](02_budgets_that_bind.ipynb), [Time to accuracy](50_time_to_accuracy.ipynb), [Cost and energy](51_cost_and_energy.ipynb).
"""

# %% checks
import functools
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np

from labkit.errors import UserError
from labkit_course import market
from labkit_course.exercise import Case, Explanation, WrittenExercise

MODULE = "capstone"
EXERCISES = {}

# %% parameters-prose [markdown]
"""
The next cell holds what you may change.
"""

# %% parameters tags=["parameters"]
profile = "standard"  # smoke, standard or full: how many pairs
runs_dir = "runs"  # run folders are made in a subfolder of it
student = 0  # whose market it is

# %% question [markdown]
"""
## A question and a pilot

A small perceptron predicts the next character of Python's own documentation from the eight before it. Its script trains by plain SGD until it needs at most a given number of bits per character. *Does it get there sooner with twice the learning rate, on one core and on all cores?*

A plan needs to know how much pairs vary. A pilot is a few pairs that do not count later.
"""

# %% place
import json
import shutil
import sys
import time
from pathlib import Path

import labkit
from labkit_course import apparatus

place = Path(runs_dir) / time.strftime("capstone-%m%d-%H%M%S")
(place / "pilot").mkdir(parents=True)
script = Path(shutil.copy(Path(apparatus.__file__).with_name("characters.py"), place))

# %% pilot
quick, python = profile == "smoke", sys.executable
settings = {"bits": 3.8 if quick else 3.2, "steps": 800}
rates = [0.25, 0.5]
grid = {"grid": {"lr": rates}, "seeds": list(range(90, 92 if quick else 94)), "budget": ["one-core"]}
pilot = place / "pilot" / "pilot.yaml"
pilot.write_text(json.dumps({"script": f"../{script.name}", "settings": settings} | grid))
# %env LABKIT_WARM=1
# %env TERM=dumb
# !{python} -m labkit sweep {pilot} --runs-dir {place / "pilot"}

# %% pilot-times
cells = labkit.launch.read_sweep(pilot, place / "pilot")
pairs = cells.pivot(index="seed", columns="lr", values="time_to_target_s")
pairs.columns = ["before_s", "after_s"]
labkit.plots.show(pairs.assign(times_as_fast=pairs["before_s"] / pairs["after_s"], provenance="measured"))

# %% guess-ratio-prose [markdown]
"""
**How many times as fast does twice the learning rate reach the target on one core, over all pairs?** Say what you expect before the real runs begin.
"""

# %% guess-ratio
from labkit_course import check, explain, guess, model_answer, reveal

guess("90.ratio", 1.5, "times as fast")

# %% ex-90-pairs [markdown]
r"""
## How many pairs

### Write: `pairs_needed` (15 minutes)

`pairs_needed(before_s, after_s, smallest, power=0.8)` returns the least number of pairs with which a share `power` of such studies finds a true effect of `smallest`. `before_s` and `after_s` are the seconds of the pilot's pairs, and a `smallest` of 0.2 means 1.2 times as fast.

1. A pair's effect is the logarithm of its ratio of times. Its spread is the standard deviation of the sample.
2. A study of $n$ pairs finds the effect if its 95 % interval does not contain 0. It does so with that power if $(t_{0.975} + t_\text{power}) \cdot s / \sqrt n$ is at most the smallest effect, as a logarithm. Both quantiles of Student's $t$ have $n - 1$ degrees of freedom.
3. Begin with two pairs.

Hint: `scipy.stats.t.ppf(share, freedom)` is a quantile.
"""

# %% answer 90.pairs
from collections.abc import Sequence

import numpy as np
from scipy.stats import t


def pairs_needed(before_s: Sequence[float], after_s: Sequence[float], smallest: float, power: float = 0.8) -> int:
    """The least number of pairs that finds an effect with this power."""
    ### BEGIN SOLUTION
    spread = np.log(np.divide(before_s, after_s)).std(ddof=1)
    pairs = 2
    while (t.ppf(0.975, pairs - 1) + t.ppf(power, pairs - 1)) * spread / pairs**0.5 > np.log1p(smallest):
        pairs += 1
    return pairs
    ### END SOLUTION


# %% check 90.pairs points=5
check("90.pairs", pairs_needed)


# %% checks
def pairs_by_table(before_s: Sequence[float], after_s: Sequence[float], smallest: float, power: float = 0.8) -> int:
    logs = np.log(np.asarray(before_s, float)) - np.log(np.asarray(after_s, float))
    n = np.arange(2, 2000)
    reach = (t.ppf(0.975, n - 1) + t.ppf(power, n - 1)) * np.std(logs, ddof=1) / np.sqrt(n)
    return int(n[reach <= np.log(1 + smallest)][0])


def _pilots(random: Random) -> list[Case]:
    drawn = np.random.default_rng(random.randrange(10**6))
    before, after = (np.exp(drawn.normal(middle, 0.12, 5)).tolist() for middle in (1.2, 1.0))
    few = (before[:3], [each * ratio for each, ratio in zip(before, (0.8, 1.0, 1.1), strict=False)])
    return [
        Case("five pairs and an effect of 5 %", lambda code: code(before, after, 0.05)),
        Case("the same, and an effect of 30 %", lambda code: code(before, after, 0.3)),
        Case("three pairs and an effect of 50 %", lambda code: code(*few, 0.5)),
        Case("a power of 95 %", lambda code: code(before, after, 0.3, power=0.95)),
        Case("pairs that hardly vary", lambda code: code([1.0, 2.0, 3.0], [0.5, 1.0, 1.501], 0.5)),
    ]


EXERCISES["90.pairs"] = WrittenExercise(
    pairs_needed,
    draw=_pilots,
    mistakes={
        ("std(ddof=1)", "std()"): "NumPy divides by n: the standard deviation of a sample divides by n − 1.",
        ("t.ppf(0.975, pairs - 1) + t.ppf(power, pairs - 1)", "t.ppf(0.975, pairs - 1)"): (
            "An interval just as wide as the effect misses it in half of all studies: add the quantile of the power."
        ),
        ("np.log1p(smallest)", "smallest"): (
            "The spread is one of logarithms, so the effect has to be a logarithm, too."
        ),
    },
    variants=(pairs_by_table,),
    instead_of=("labkit.tta.intervals.runs_needed",),
    hint="Print the left side of the inequality for 2, 3, 4 pairs: it has to fall below the logarithm of 1 + smallest.",
    explanation="`labkit.tta.runs_needed` does the same. A pilot of few pairs knows its spread badly: add some pairs.",
)

# %% pairs-used-prose [markdown]
"""
You cannot afford any number of pairs. The cell takes the smallest effect of 30 % or more that `most` pairs can find. Five pairs are the fewest.
"""

# %% pairs-used
most, times_s = 10, (pairs["before_s"], pairs["after_s"])
smallest = next(each for each in np.arange(3, 100) / 10 if pairs_needed(*times_s, each) <= most)
spread = float(np.log(times_s[0] / times_s[1]).std())
seeds = list(range(max(5, pairs_needed(*times_s, smallest))))
print(f"{len(seeds)} pairs find an effect of {smallest:.0%} with a power of 80 % (predicted)")

# %% register-prose [markdown]
"""
## Register

Now predict what *one* run with the present learning rate takes to the target, under each budget. An interval should contain four of five runs: low and high seconds, dollars and joules. The dollars follow from the seconds and the price of the tier. Most machines have no counter for joules: then these are not scored.

Change the intervals in the next cell. The first ones are the pilot's middle, divided and multiplied by 1.5.
"""

# %% predict
offered = [each.name for each in labkit.hardware.offered_budgets() if each.torch_name == "cpu"]
budgets = [*offered, "cores=1"][:2]
tiers = {budget: labkit.hardware.parse_budget(budget).tier for budget in budgets}
middle_s = float(times_s[0].median())
seconds = {budget: [middle_s / 1.5, middle_s * 1.5] for budget in budgets}  # your prediction
usd = {b: [labkit.tta.cost_usd(each, tiers[b]).value_usd or each * 1e-5 for each in seconds[b]] for b in budgets}
joules = {budget: [each * 10 for each in own] for budget, own in seconds.items()}  # as if a core drew 10 W

# %% plan
PLAN = f"""question = "Is twice the learning rate sooner?"
script = "{script.name}"
target = "bits_per_character <= {settings["bits"]}"
setting = "lr"
values = {rates}
budgets = {json.dumps(budgets)}
seeds = {seeds}
smallest_effect = {smallest}
spread = {spread}
settings = {{bits = {settings["bits"]}, steps = {settings["steps"]}}}
"""

# %% register
from labkit_course import capstone

for name in budgets:
    PLAN += f'[predicted."{name}"]\ntime_s = {seconds[name]}\ncost_usd = {usd[name]}\nenergy_j = {joules[name]}\n'
(place / "plan.toml").write_text(PLAN)
made = capstone.register(place / "plan.toml", place / "runs")
print(f"registered at {made.registered_at}, SHA-256 {made.sha256[:16]}…")

# %% run-prose [markdown]
"""
In a terminal this is `labkit course register plan.toml`. The register lies next to the runs. It also wrote a sweep with all runs of the plan. Each seed runs with both learning rates and both budgets, one after another. (At `smoke`, only two of the seeds do.)
"""

# %% run
sweep = json.loads((place / "runs" / capstone.SWEEP).read_text())
study = place / "runs" / "some.yaml"
study.write_text(json.dumps(sweep | {"seeds": seeds[:2] if quick else seeds}))
# !{python} -m labkit sweep {study} --runs-dir {place / "runs"}

# %% too-late-prose [markdown]
"""
The runs are there. Can the prediction still be improved a little?
"""

# %% too-late
(place / "better.toml").write_text(PLAN.replace("sooner?", "better?"))
try:
    capstone.register(place / "better.toml", place / "runs")
except labkit.UserError as error:
    print(error)

# %% ex-90-judge [markdown]
"""
## Judge

### Write: `judge_pairs` (15 minutes)

`judge_pairs(before_s, after_s, smallest)` returns how many times as fast the second is, the low and high end of the 95 % interval of that, and a verdict. Both arrays have the seconds of the same seeds in the same order. A run that failed has `math.inf` there.

1. If any run failed, return `(math.nan, math.nan, math.nan, "failed")`: the times of the others are not a fair sample.
2. The middle and the interval (Student's $t$) are of the logarithms of the ratios, and are returned as ratios.
3. The verdict is `"sooner"` if the whole interval is at `1 + smallest` or above; `"later"` if it is at `1 / (1 + smallest)` or below; `"no difference"` if it lies between the two; else `"cannot tell"`.
"""

# %% answer 90.judge
import math

import numpy as np
from scipy.stats import t


def judge_pairs(before_s: np.ndarray, after_s: np.ndarray, smallest: float) -> tuple[float, float, float, str]:
    """Times as fast, its 95 % interval, and what that says next to the smallest effect that matters."""
    ### BEGIN SOLUTION
    if not (np.isfinite(before_s).all() and np.isfinite(after_s).all()):
        return math.nan, math.nan, math.nan, "failed"
    logs = np.log(before_s / after_s)
    half = t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / len(logs) ** 0.5
    ratio, low, high = np.exp([logs.mean(), logs.mean() - half, logs.mean() + half]).tolist()
    matters = 1 + smallest
    if low >= matters:
        return ratio, low, high, "sooner"
    if high <= 1 / matters:
        return ratio, low, high, "later"
    return ratio, low, high, "no difference" if 1 / matters < low and high < matters else "cannot tell"
    ### END SOLUTION


# %% check 90.judge points=6
check("90.judge", judge_pairs)


# %% checks
def judge_by_logs(before_s: np.ndarray, after_s: np.ndarray, smallest: float) -> tuple[float, float, float, str]:
    if np.isinf(before_s).any() or np.isinf(after_s).any():
        return float("nan"), float("nan"), float("nan"), "failed"
    logs = np.log(before_s) - np.log(after_s)
    middle, half = np.mean(logs), t.interval(0.95, len(logs) - 1)[1] * np.std(logs, ddof=1) / np.sqrt(len(logs))
    least, low, high = np.log1p(smallest), middle - half, middle + half
    words = "sooner" if low >= least else "later" if high <= -least else "cannot tell"
    words = "no difference" if max(-low, high) < least else words
    return np.exp(middle), np.exp(low), np.exp(high), words


def _studies(random: Random) -> list[Case]:
    drawn = np.random.default_rng(random.randrange(10**6))
    before = np.exp(drawn.normal(1, 0.3, 6))

    def study(ratio: float, spread: float, smallest: float, failed: str = "") -> Any:
        noise = drawn.permutation([-1.2, -0.7, 0.0, 0.1, 0.6, 1.2])
        sides = [before.copy(), before / ratio * np.exp(spread * noise)]
        if failed:
            sides[failed == "after"][2] = np.inf
        return lambda code: code(*sides, smallest)

    return [
        Case("twice as fast in all pairs", study(2.0, 0.05, 0.3)),
        Case("half as fast", study(0.5, 0.05, 0.3)),
        Case("a small gain, measured well", study(1.05, 0.02, 0.3)),
        Case("a gain, measured badly", study(1.4, 0.4, 0.3)),
        Case("a sure gain that may be too small", study(1.35, 0.1, 0.3)),
        Case("slower by a good quarter, measured well", study(0.72, 0.02, 0.3)),
        Case("perhaps slower, by as much", study(0.9, 0.2, 0.3)),
        Case("a failed run after", study(2.0, 0.05, 0.3, "after")),
        Case("a failed run before", study(2.0, 0.05, 0.3, "before")),
    ]


EXERCISES["90.judge"] = WrittenExercise(
    judge_pairs,
    draw=_studies,
    mistakes={
        ("logs = np.log(before_s / after_s)", "logs = np.log(after_s / before_s)"): (
            "Times as fast is the time before over the time after: larger is sooner."
        ),
        ("if low >= matters", "if low > 1"): (
            "An interval above 1 says that there is an effect, not that it matters: compare with 1 + smallest."
        ),
        ("t.ppf(0.975, len(logs) - 1)", "1.96"): "With a few pairs the quantile is that of Student's t, not 1.96.",
    },
    variants=(judge_by_logs,),
    instead_of=("labkit.tta.intervals.mean_interval",),
    hint="Draw the interval on a line with three marks: 1 / (1 + smallest), 1, and 1 + smallest. Which verdict is which place?",
    explanation="*No difference* and *cannot tell* are two results: the first one needs a narrow interval.",
)

# %% judged-prose [markdown]
"""
`labkit course capstone` judges the run folders against the register. It names what does not count and what is missing. Your function gets the same pairs.
"""

# %% judged
found = capstone.judge(made, place / "runs")
labkit.plots.show(found.cells.assign(provenance="measured"))
print(*found.remarks, sep="\n")
table = capstone.runs_of(made, place / "runs")
reached = labkit.tta.crossings(labkit.tta.curves(table["folder"], runs=table), table, settings["bits"])
table = table.merge(reached[["run", "time_to_target_s"]], on="run").fillna({"time_to_target_s": math.inf})

# %% own-verdict
own = table.pivot(index=["budget", "seed"], columns="value", values="time_to_target_s").dropna()
verdicts = {budget: judge_pairs(*of.to_numpy().T, smallest) for budget, of in own.groupby("budget")}
for budget, (ratio, low, high, said) in verdicts.items():
    print(f"{budget}: {ratio:.2f} times as fast ({low:.2f} to {high:.2f}), {said}: measured")
reveal("90.ratio", verdicts["one-core"][0])

# %% pairs-figure
finding = f"Pairs with twice the learning rate, and the least that matters: {1 + smallest:.1f} times as fast."
figure = labkit.plots.new_figure("seed", "times as fast", finding, yaxis_type="log")
for number, (budget, of) in enumerate(own.groupby("budget")):
    mark = {"symbol": ("circle", "diamond")[number], "size": 10}
    ratio = of[0] / of[1]
    figure.add_scatter(
        x=of.index.get_level_values("seed"), y=ratio, mode="markers", marker=mark, name=f"{budget} · measured"
    )
figure.add_hline(y=1 + smallest, line_dash="dash")
labkit.plots.show(figure)

# %% ex-90-score [markdown]
r"""
## How well did you know it?

### Write: `calibration` (10 minutes)

`calibration(low, high, found, level)` returns the share of the values `found` inside the predicted interval, and the mean interval score.

1. An interval that should contain a share `level` has the score $(b - a) + \frac{2}{1 - \text{level}} \cdot d$, where $a$, $b$ and $x$ are the *logarithms* of low, high and the value, and $d$ is how far $x$ is outside (Gneiting and Raftery 2007, equation 43). Lower is better.
2. A failed run has `math.inf` in `found`. It is outside, and the mean of the scores is over the other runs.
"""

# %% answer 90.score
import numpy as np


def calibration(low: float, high: float, found: np.ndarray, level: float) -> tuple[float, float]:
    """The share of values inside a predicted interval, and its mean score."""
    ### BEGIN SOLUTION
    inside = float(((low <= found) & (found <= high)).mean())
    a, b, x = np.log(low), np.log(high), np.log(found[np.isfinite(found)])
    outside = np.maximum(a - x, 0) + np.maximum(x - b, 0)
    return inside, float((b - a + 2 / (1 - level) * outside).mean())
    ### END SOLUTION


# %% check 90.score points=4
check("90.score", calibration)


# %% checks
def calibration_in_a_loop(low: float, high: float, found: np.ndarray, level: float) -> tuple[float, float]:
    scores, inside = [], 0
    for value in found:
        inside += low <= value <= high
        if value < np.inf:
            distance = np.log(low / value) if value < low else np.log(value / high) if value > high else 0.0
            scores.append(np.log(high / low) + distance * 2 / (1 - level))
    return inside / len(found), sum(scores) / len(scores)


def _forecasts(random: Random) -> list[Case]:
    found = np.exp(np.random.default_rng(random.randrange(10**6)).normal(1, 0.5, 8))
    failed = np.append(found, np.inf)
    low, high = np.sort(found)[[2, 5]] * 1.0001
    return [
        Case("four of eight inside", lambda code: code(low, high, found, 0.8)),
        Case("all inside", lambda code: code(found.min() / 2, found.max() * 2, found, 0.8)),
        Case("none inside", lambda code: code(found.max() * 2, found.max() * 3, found, 0.8)),
        Case("another level", lambda code: code(low, high, found, 0.5)),
        Case("a failed run", lambda code: code(low, high, failed, 0.8)),
    ]


EXERCISES["90.score"] = WrittenExercise(
    calibration,
    draw=_forecasts,
    mistakes={
        ("2 / (1 - level)", "2 / level"): "The weight of a miss grows with the level: 2 divided by 1 − level.",
        ("np.log(low), np.log(high), np.log(found[np.isfinite(found)])", "low, high, found[np.isfinite(found)]"): (
            "Take logarithms first: then seconds and joules are scored alike."
        ),
        ("(found <= high)).mean()", "(found <= high))[np.isfinite(found)].mean()"): (
            "A failed run is outside of every interval: the share is one of all runs."
        ),
    },
    variants=(calibration_in_a_loop,),
    hint="Which distance does a value below the interval have, and which one above it? Inside it is 0.",
    explanation="Nobody improves this score by an interval that is too wide or too narrow: the true quantiles win.",
)

# %% guess-inside-prose [markdown]
"""
**How many per cent of your runs lie inside their predicted seconds, over both budgets?**
"""

# %% guess-inside
guess("90.inside", 80.0, "% of the runs")

# %% inside
present = table[table["value"] == 0]
scored = {b: calibration(*seconds[b], of["time_to_target_s"].to_numpy(), 0.8) for b, of in present.groupby("budget")}
for budget, (share, score) in scored.items():
    print(f"{budget}: {share:.0%} inside, score {score:.2f}; the width alone is {math.log(1.5**2):.2f}: measured")
reveal("90.inside", 100 * sum(share for share, _ in scored.values()) / len(scored))
labkit.plots.show(found.calibration.assign(provenance="measured"))

# %% explain-effect [markdown]
"""
Explain in two sentences what your study found. Give the interval for both budgets, say what it means compared with the smallest effect, and say what your predicted seconds missed and why.
"""

# %% explain 90.why_effect points=2
### BEGIN SOLUTION
answer = model_answer("90.why_effect")
### END SOLUTION
explain("90.why_effect", answer)

# %% checks
EXERCISES["90.why_effect"] = Explanation(
    "numbers: the ratio with its interval under both budgets, and the share of runs inside",
    "why: what the interval says next to the smallest effect; why times left the predicted interval",
    "consequence: more pairs, a wider interval of prediction, or another budget's pilot",
    model="On one core twice the learning rate was 2.1 times as fast (1.03 to 4.3), and on all cores 1.8 times (1.09 to 3.1): "
    "both intervals exclude 1 and hold the 1.3 that matters, so whether it matters stays open. Of ten runs, seven "
    "lay in the predicted seconds. Other programs took most of the cores, so pairs varied far more than the pilot's "
    "four: on a busy machine I need more pairs and wider predictions, or a quiet hour.",
    half="It was 2.1 times as fast on one core, with an interval from 1.03 to 4.3, so the larger learning rate is better.",
)

# %% again-prose [markdown]
"""
## Somebody else runs it again

An archive has the run folder with checksums. Give it to somebody with another checkout. `reproduce` runs the script again and says what differs. Here you play both parts:
"""

# %% again
run, archive = table["folder"].iloc[0], place / "one-run.zip"
# !{python} -m labkit runs archive {run} {archive}
# !{python} -m labkit runs reproduce {archive} --runs-dir {place / "again"}

# %% ex-90-spend [markdown]
"""
## A market of runs

A search costs money, too. `market.Market(student)` sells trainings of DeepSpeech2 on four GPUs at several batch sizes, from an allowance of $75. The times are *recorded* (You et al. 2023), the prices are *drawn* for you. Its `offers` are objects with `device`, `batch_size` and `usd_per_h`. Its `buy(offer, most_usd)` trains once, with the next seed, and returns what it `cost_usd` and whether it `reached` a word error rate of 35 %. It is cut off at `most_usd`, and to ask for more than `left_usd` is an error.

### Write: `spend` (20 minutes)

`spend(shop)` buys runs and returns the offer with which the target costs least. Your regret is how much more that offer costs than the best one, over all recorded seeds and with restarts. Its mean over twelve markets has to be at most 10 %.

1. Time depends on both the GPU and the batch size. Small and large batches are slow on every GPU, so a middle one, such as 32, compares the GPUs. Begin with the lowest price per hour: if it wins, all that follow are cut off early.
2. A run that has cost as much as the best one so far can only be worse: let `most_usd` cut it off. Stop when nothing is left.
3. Then try other batch sizes on the best GPU.
"""

# %% answer 90.spend
from labkit_course import market


def spend(shop: market.Market) -> market.Offer:
    """Buy runs, and return the offer with which the target costs least."""
    ### BEGIN SOLUTION
    best = None
    by_price = sorted(shop.offers, key=lambda offer: offer.usd_per_h)
    for size in (32, 64, 24, 56, 48):
        device = None if best is None or size == 32 else best.offer.device
        for offer in by_price:
            most = shop.left_usd if best is None else min(shop.left_usd, best.cost_usd)
            if offer.batch_size == size and device in (None, offer.device) and most > 0:
                bought = shop.buy(offer, most)
                best = bought if bought.reached else best
    return best.offer
    ### END SOLUTION


# %% check 90.spend points=5
check("90.spend", spend)


# %% checks
def spend_by_neighbours(shop: market.Market) -> market.Offer:
    costs: dict[market.Offer, float] = {}

    def attempt(device: str | None, size: int) -> None:
        for offer in sorted(shop.offers, key=lambda each: each.usd_per_h):
            most = min([shop.left_usd, *costs.values()])
            if offer.batch_size == size and device in (None, offer.device) and most > 0:
                bought = shop.buy(offer, most)
                if bought.reached:
                    costs[offer] = bought.cost_usd

    attempt(None, 32)
    for size in (64, 24, 56, 48, 72):
        attempt(min(costs, key=costs.__getitem__).device, size)
    return min(costs, key=costs.__getitem__)


class _Shop(market.Market):
    """A market whose grader is not there."""

    @property
    def regret(self) -> Any:
        raise UserError("only the grader knows the regret: buy runs, and compare what they cost")

    expected_usd = regret


@functools.cache
def _regrets(code: Any, first: int) -> tuple[bool, bool]:
    """Whether the mean regret of twelve students is small enough, and whether anything was bought."""
    students = range(first, first + 12)
    shops = [_Shop(student) for student in students]
    chosen = [code(shop) for shop in shops]
    if strange := [offer for offer, shop in zip(chosen, shops, strict=True) if offer not in shop.offers]:
        raise UserError(f"{strange[0]!r} is not one of shop.offers")
    regrets = [market.Market(student).regret(offer) for student, offer in zip(students, chosen, strict=True)]
    if (mean := float(np.mean(regrets))) > 0.1:
        raise UserError(
            f"the mean regret is {mean:.0%}, the largest in market.Market({first + int(np.argmax(regrets))})"
        )
    return True, all(shop.history for shop in shops)


def _markets(random: Random) -> list[Case]:
    """Other students for each try."""
    first = 12 * random.randrange(3)
    return [
        Case("the mean regret of twelve markets is at most 10 %", lambda code: _regrets(code, first)[0]),
        Case("something is bought in each of them", lambda code: _regrets(code, first)[1]),
    ]


EXERCISES["90.spend"] = WrittenExercise(
    spend,
    draw=_markets,
    mistakes={
        lambda shop: min(shop.offers, key=lambda offer: (offer.batch_size != 32, offer.usd_per_h)): (
            "The cheapest hour is not the cheapest training: slow GPUs need many hours. Buy runs, and compare."
        ),
    },
    variants=(spend_by_neighbours,),
    hint="Which runs did you pay for to their end although they could no longer be the cheapest?",
    explanation="Cutting off what cannot win any more leaves money for more offers: racing, as in successive halving.",
)

# %% guess-regret-prose [markdown]
"""
**In your own market, how many per cent more than the best offer does the choice of the cheapest GPU per hour cost, at batch 32?**
"""

# %% guess-regret
guess("90.regret", 50.0, "% more")

# %% regret
shop = market.Market(student)
chosen = spend(shop)
lazy = min((offer for offer in shop.offers if offer.batch_size == 32), key=lambda offer: offer.usd_per_h)
for offer, words in ((chosen, "yours"), (lazy, "the cheapest per hour")):
    expected = shop.expected_usd(offer)
    print(
        f"{words}: {offer.device}, batch {offer.batch_size}: ${expected:.2f}, regret {shop.regret(offer):.0%}: recorded"
    )
print(f"{len(shop.history)} runs were bought, and ${shop.left_usd:.2f} are left")
reveal("90.regret", 100 * shop.regret(lazy))

# %% league-prose [markdown]
"""
## A league

`labkit league` has records on small budgets. A challenger beats a record if its times of the same seeds are smaller by more than two runs of one seed differ, with p < 0.01 in an exact test in which a failed run takes an infinite time. Why so strict? Suppose that ten challengers bring a script that is *no better*, and the best median of ten seeds counts. **In how many per cent of such contests does one of them hold the record?**
"""

# %% guess-false
guess("90.false", 50.0, "% of the contests")

# %% false-records
from labkit_course import league

draw = np.random.default_rng(0)
by_median, by_rules = [], []
for _ in range(60):
    record = np.median(np.exp(draw.normal(0, 0.05, 10)))
    times = np.exp(draw.normal(0, 0.05, (10, 10, 3)))  # ten challengers, ten seeds; standing, challenger, standing
    by_median.append(any(np.median(each[:, 1]) < record for each in times))
    by_rules.append(any(league.compare(each[:, ::2], each[:, 1]).is_record for each in times))
reveal("90.false", 100 * np.mean(by_median))
print(f"by the league's rules in {np.mean(by_rules):.0%} of the contests: predicted (simulated)")

# %% league-words [markdown]
"""
Ask `labkit league show` for the tracks, and enter a record: `docs/league.md` says how, and which rules a run folder cannot show.
"""

# %% explain-league [markdown]
"""
Explain in two sentences how somebody could hold a record of the league without a better script, which of its rules makes that hard, and what no rule finds.
"""

# %% explain 90.why_league points=2
### BEGIN SOLUTION
answer = model_answer("90.why_league")
### END SOLUTION
explain("90.why_league", answer)

# %% checks
EXERCISES["90.why_league"] = Explanation(
    "numbers: the share of contests with a false record by medians, and by the rules",
    "why: a way to win by luck or by a slower standing side, and the rule against it",
    "limit: something that a run folder cannot show, such as work before the first batch or deleted runs",
    model="By medians at least one of ten equal challengers held a record in 53 of 60 contests, since somebody is lucky; by the "
    "rules none did, because seven pairs or more must be won by more than the noise. Slowing the standing "
    "side down is hard, as its runs stand around each challenger's, but deleted runs and training before the first batch show in no run folder.",
    half="With medians there was a false record in 88 % of the contests, with the rules in 0 %, because p has to be below 0.01.",
)

# %% results tags=["results"]
from labkit_course import results

results(
    pairs=(len(seeds), 5, 10),
    ratio=(verdicts["one-core"][0], 0.3, 10),
    regret=(shop.regret(chosen), 0, 1),
    false_by_median=(np.mean(by_median), 0.7, 1),
    false_by_rules=(np.mean(by_rules), 0, 0.1),
)

# %% assistant false_by_median below=0.05 [markdown]
"""
The median of ten seeds is robust. If ten challengers are no better than the record, one of them takes it in fewer than 5 % of the contests.
"""

# %% recap [markdown]
"""
## Recap

- Decide which effect matters, then how many pairs find it. A plan without power is a coin that you toss for days.
- What is registered cannot be bent later. What is predicted with an interval can be scored.
- An interval gives one of four verdicts, and a failed run is a result.
- Somebody else's rerun is the test of an archive.
- A search pays for what it tries: cut off what cannot win.
- A record needs pairs, noise and a small p; otherwise ten challengers make one by luck.

**Next:** a capstone of your own. Take a question from a lab, such as one of [Make it fast](33_make_it_fast.ipynb), write its plan, and hand in the SHA-256 of its register before the first run.
"""

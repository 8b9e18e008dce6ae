# %% opening [markdown]
"""
# Start here

After this notebook you will be able to

- **train** a model to a target accuracy, and **compute** when it got there;
- **find** everything that was recorded about a run, and **count** what its events say;
- **name** the budgets a run can be given here, and **price** them by their tier;
- **judge** a sentence of a paper by numbers.

**Time:** 30 minutes with four functions of one to five lines; the machine computes for 20 seconds on 2 CPU cores. No GPU is needed.

**Prerequisites:** some Python, and labkit installed (`make setup`, or `pip install`).
"""

# %% checks
from typing import Any

import numpy as np

from labkit_course.exercise import Case, Exercise, Explanation, WrittenExercise

EXERCISES = {}

# %% parameters-prose [markdown]
"""
The next cell holds what you may change. `seed` fixes the random numbers of a training.
"""

# %% parameters tags=["parameters"]
profile = "standard"  # smoke, standard or full
runs_dir = "runs"  # run folders are made in its subfolder notebooks
data = "synthetic-small"  # a click log that labkit generates
seed = 0
student = 0  # your number: some questions have numbers of your own

# %% question [markdown]
"""
## What does it cost to get there?

labkit answers one question with numbers from your own machine: **what does it cost to reach this accuracy, on this hardware, run this way?**

You are about to train a small recommendation model (a DLRM) on generated clicks, on one core. The target is an AUC of 0.75: in 75 of 100 pairs of one clicked and one ignored advertisement, the model scores the clicked one higher. Guessing would give 0.5. The training split has 50,000 rows.

**How many seconds of training will it need?** A guess shows what you believe, and how far off it is shows what to learn next. Write a number, and run the cell; nobody but you sees it.
"""

# %% guess-time
from labkit_course import check, claim, draw, explain, guess, model_answer, reveal

guess("00.time_to_target", 10.0, "s")

# %% train-prose [markdown]
"""
`watch` starts the training in a process of its own, bound to the **budget** `one-core`, and prints how it goes. After the target is met, one more evaluation has to confirm it.
"""

# %% train
from pathlib import Path

import labkit

runs, target = Path(runs_dir) / "notebooks", 0.75
limit_s = {"smoke": 20, "standard": 60, "full": 60}[profile]
run = labkit.jobs.watch("dlrm", runs, data=data, budget="one-core", target=target, seed=seed, max_seconds=limit_s)

# %% curve-prose [markdown]
"""
The run has evaluated its model now and then. This is its curve:
"""

# %% curve
curve = labkit.tta.curves([run["folder"]])[["wall_s", "value"]]
labkit.plots.show(curve.rename(columns={"wall_s": "time (s)", "value": "AUC on the validation split"}).tail(8))

# %% ex-00-time-to-target [markdown]
"""
### Exercise 00.time_to_target

When was the target met? Write `time_to_target(times, values, target, higher_is_better)` for a curve of any metric: of an AUC larger values are better, of an error rate smaller ones.

1. Go through the evaluations in their order.
2. Return the time of the first one at or past the target; `None` where there is none.

*Hint:* `zip(times, values)`. Nothing is interpolated: between two evaluations the value was not known.
"""

# %% answer 00.time_to_target
from collections.abc import Sequence


def time_to_target(
    times: Sequence[float], values: Sequence[float], target: float, higher_is_better: bool = True
) -> float | None:
    """The time of the first value at or past the target; None if there is none."""
    ### BEGIN SOLUTION
    for time, value in zip(times, values, strict=True):
        there = value >= target if higher_is_better else value <= target
        if there:
            return time
    return None
    ### END SOLUTION


# %% check 00.time_to_target points=3
check("00.time_to_target", time_to_target)

# %% checks
RISE = ([0.4, 0.9, 1.3, 1.8, 2.4], [0.55, 0.66, 0.71, 0.70, 0.73])


EXERCISES["00.time_to_target"] = WrittenExercise(
    time_to_target,
    module="tta",
    cases=(
        Case("five evaluations, target 0.65", lambda code: code(*RISE, 0.65)),
        Case("a curve that falls below the target again", lambda code: code(*RISE, 0.702)),
        Case("a value that is exactly the target", lambda code: code(*RISE, 0.73)),
        Case("a target that is never met", lambda code: code(*RISE, 0.75)),
        Case("no evaluation at all", lambda code: code([], [], 0.5)),
        Case("an error rate, which falls", lambda code: code([1.0, 2.0, 3.0], [0.9, 0.5, 0.2], 0.5, False)),
    ),
    mistakes={
        ("in zip(times, values, strict=True)", "in zip(times[::-1], values[::-1])"): (
            "That is the last evaluation past the target: the first one is meant."
        ),
        lambda times, values, target, *_: times[np.abs(np.subtract(values, target)).argmin()]: (
            "That is the evaluation nearest to the target, which may lie short of it."
        ),
        ("return time\n", "return times[max(0, times.index(time) - 1)]\n"): (
            "That is the evaluation before: there the target is not met yet."
        ),
    },
    hint="Go through the pairs of time and value in order; return the first time whose value is at or past the target.",
    explanation="The first evaluation at or past the target, as labkit and MLPerf count; without one there is no time.",
)

# %% reveal-time-prose [markdown]
"""
How far off was your guess? The factor counts in both directions. A run that did not get there within its limit has no time to target: it is *censored*, and the guess is not scored.
"""

# %% reveal-time
time_to_target_s = time_to_target(curve["wall_s"], curve["value"], target)
reveal("00.time_to_target", time_to_target_s)

# %% guess-harder-prose [markdown]
"""
The clock starts when the data is prepared and the model is built, and includes evaluation, as MLPerf counts. Now move the target. **How many times as long does 0.75 take as 0.70?**
"""

# %% guess-harder
guess("00.harder", 1.5, "times")

# %% harder-prose [markdown]
"""
Your function for several targets on the same curve:
"""

# %% harder
import pandas as pd

targets = (0.60, 0.65, 0.70, 0.74, target)
times_s = {goal: time_to_target(curve["wall_s"], curve["value"], goal) for goal in targets}
labkit.plots.show(pd.DataFrame({"target AUC": targets, "time to target (s), emulated": times_s.values()}))
harder = time_to_target_s / times_s[0.70] if time_to_target_s else None
reveal("00.harder", harder)

# %% figure-prose [markdown]
"""
The same as a figure: the ring marks the first evaluation past the target. The legend says where numbers come from. *Emulated*: one core of a larger machine stands in for a small one, whose caches and memory may differ. A run on all of a machine is *measured*; shown on another, *recorded*; computed, *predicted*.
"""

# %% figure
table, evaluations = labkit.tta.run_table([run["folder"]]), labkit.tta.curves([run["folder"]])
crossed = labkit.tta.crossings(evaluations, table, target)
labkit.plots.show(labkit.plots.figure_time_to_accuracy(evaluations, target, crossings=crossed))

# %% ex-00-why-both [markdown]
"""
### Explain 00.why_both

A colleague says: "mine trains in a second". In two or three sentences: why is that no answer yet? Use two rows of your table, and say what has to be told with a time.
"""

# %% explain 00.why_both points=2 id="answer-00-why-both"
### BEGIN SOLUTION
answer = model_answer("00.why_both")
### END SOLUTION
explain("00.why_both", answer)

# %% checks
EXERCISES["00.why_both"] = Explanation(
    rubric=(
        "numbers: gives two targets of one's own run with their times, and their ratio",
        "why: the curve flattens towards what is possible on the data",
        "trade-off: says what a comparison needs, the same target on the same data, or a time for several targets",
    ),
    model="On my run the harder of two targets that lie two hundredths apart took clearly longer than the easier "
    "one, because the curve flattens towards what can be learnt from this data. A time without its target, or an "
    "accuracy without its time, can therefore be made to look as good as one likes: compare two machines at the "
    "same target, better at several.",
)

# %% folder-prose [markdown]
"""
## The run is a folder

All about the run is in one folder: copy it, and you have copied the experiment. `run.json` says what was run, where, and how it ended; `events.jsonl` has a line a fact; metrics, telemetry and checkpoints lie beside them.
"""

# %% folder
record, events = labkit.runs.read_run(run["folder"]), labkit.runs.read_events(run["folder"])
print(record.provenance.kind, record.status, f"test AUC {record.result['metrics']['auc']:.3f}")
print(*sorted({event["event"] for event in events}), sep=", ")

# %% ex-00-test-looks [markdown]
"""
### Exercise 00.test_looks

A test split that is looked at often is a training split by another name. How often was it in this run? Write `test_looks(events)` for a list of dicts: the event `tested` is a look at the test split, `evaluated` one at the validation split.

*Hint:* `event["event"]` is the kind of a line.
"""

# %% answer 00.test_looks
from collections.abc import Iterable
from typing import Any


def test_looks(events: Iterable[dict[str, Any]]) -> int:
    """How many times the test split was looked at."""
    ### BEGIN SOLUTION
    return sum(event["event"] == "tested" for event in events)
    ### END SOLUTION


# %% check 00.test_looks points=3
check("00.test_looks", test_looks)


# %% checks
def _events(*kinds: str) -> list[dict[str, Any]]:
    return [{"event": kind, "wall_s": 1.0 + n, "train_s": 0.8 + 0.7 * n} for n, kind in enumerate(kinds)]


ONE_LOOK = _events("started", "evaluated", "evaluated", "target_reached", "tested", "ended")


PEEKING = _events("started", "evaluated", "tested", "evaluated", "tested", "evaluated", "tested", "ended")


EXERCISES["00.test_looks"] = WrittenExercise(
    test_looks,
    module="tta",
    cases=(
        Case("the events of a run with one look", lambda code: code(ONE_LOOK)),
        Case("a run that was tested after each evaluation", lambda code: code(PEEKING)),
        Case("a run that was stopped before its end", lambda code: code(_events("started", "evaluated"))),
    ),
    mistakes={
        ('"tested"', '"evaluated"'): (
            "Those are the evaluations of the validation split; the test split's event is `tested`."
        ),
        ("sum", "any"): "Count them: there may be several.",
        ('== "tested"', 'in ("tested", "evaluated")'): (
            "Only the looks at the test split: `evaluated` is the validation split, which may be looked at."
        ),
    },
    hint='Each event is a dict; count those whose event["event"] is "tested".',
    explanation="The target was watched on the validation split, so the test split could stay closed to the end.",
)

# %% guess-share-prose [markdown]
"""
Evaluating takes time, too, and it is in the time to target. **Which share of the time went into it, in per cent?**
"""

# %% guess-share
guess("00.evaluating", 10.0, "%")

# %% ex-00-evaluation-share [markdown]
"""
### Exercise 00.evaluation_share

An event `evaluated` has two clocks, both from the start: `wall_s` counts everything, `train_s` training alone. Write `evaluation_share(events)`: the share of the wall time until the last evaluation that was not training.

*Hint:* keep the events that are `evaluated`; the last is `[-1]`.
"""

# %% answer 00.evaluation_share
from collections.abc import Iterable
from typing import Any


def evaluation_share(events: Iterable[dict[str, Any]]) -> float:
    """Share of the time until the last evaluation that was not training."""
    ### BEGIN SOLUTION
    last = [event for event in events if event["event"] == "evaluated"][-1]
    return 1 - last["train_s"] / last["wall_s"]
    ### END SOLUTION


# %% check 00.evaluation_share points=3
check("00.evaluation_share", evaluation_share)

# %% checks
EXERCISES["00.evaluation_share"] = WrittenExercise(
    evaluation_share,
    module="tta",
    cases=(
        Case("the events of a run with two evaluations", lambda code: code(ONE_LOOK)),
        Case("a single evaluation", lambda code: code(_events("started", "evaluated", "ended"))),
        Case("a run of three evaluations", lambda code: code(PEEKING)),
    ),
    mistakes={
        ("[-1]", "[0]"): "That is after the first evaluation: both clocks add up, so read them at the last one.",
        ("1 - ", ""): "That is the share of training; the other part is wanted.",
        ('1 - last["train_s"] / last["wall_s"]', 'last["wall_s"] / last["train_s"] - 1'): (
            "A share of all the time: divide by wall_s."
        ),
    },
    hint="`wall_s` counts everything, `train_s` training alone, both from the start: what part of the last wall_s is "
    "not training?",
    explanation="Each look costs time, and that is part of the time to target, as the one who waits feels it.",
)

# %% looks-prose [markdown]
"""
Your two functions on this run:
"""

# %% looks
looks, share = test_looks(events), evaluation_share(events)
print(f"looks at the test split: {looks}")
reveal("00.evaluating", 100 * share)

# %% budgets-prose [markdown]
"""
## Budgets and prices

A **budget** is what a run may use, and labkit enforces it. A **tier** is an entry of a catalogue of hardware, from a laptop to an H200; every figure in it has a source and a date, and where none was found there is no figure. A budget is priced as the tier it stands for:
"""

# %% budgets
tiers = labkit.hardware.load_tiers()
rows = [
    (each.name, each.tier, tiers[each.tier].rental_price_usd_per_h if each.tier else None, each.emulated)
    for each in labkit.hardware.offered_budgets()
]
labkit.plots.show(pd.DataFrame(rows, columns=["budget", "priced as tier", "rental price ($/h)", "emulated"]))

# %% ex-00-cost [markdown]
"""
### Exercise 00.cost

A run takes `minutes` minutes on a tier that is rented at `usd_per_h` US dollars an hour. What did it cost, in US dollars?
"""

# %% numbers-00-cost
numbers = draw("00.cost", student)

# %% answer-00-cost-prose [markdown]
"""
Write the answer as an expression of `numbers`, or as a number.
"""

# %% answer 00.cost
### BEGIN SOLUTION
answer = numbers["minutes"] / 60 * numbers["usd_per_h"]
### END SOLUTION

# %% check 00.cost points=1
check("00.cost", answer, student)

# %% checks
EXERCISES["00.cost"] = Exercise(
    lambda minutes, usd_per_h: minutes / 60 * usd_per_h,
    draw=lambda random: {
        "minutes": random.choice(range(21, 58, 3)),
        "usd_per_h": random.choice([0.08, 0.31, 0.59, 0.79, 1.48, 2.5]),
    },
    unit="US dollars",
    hint="Cost is hours × dollars an hour.",
    explanation="A rent by the hour pays for time alone, whatever came out of it.",
    mistakes={
        lambda minutes, usd_per_h: minutes * usd_per_h: "The price is by the hour, and the time in minutes.",
        lambda minutes, usd_per_h: 100 * minutes / 60 * usd_per_h: "That is in cents.",
        lambda minutes, usd_per_h: usd_per_h / (minutes / 60): "Multiply the price by the hours, do not divide.",
    },
)

# %% guess-spread-prose [markdown]
"""
**How many times the rent of the cheapest GPU of the catalogue does the most expensive one cost?**
"""

# %% guess-spread
guess("00.spread", 20.0, "times")

# %% ex-00-price-spread [markdown]
"""
### Exercise 00.price_spread

Write `price_spread(prices)`: how many times the cheapest the most expensive costs, where a price that is not known is `None`.
"""

# %% answer 00.price_spread
from collections.abc import Iterable


def price_spread(prices: Iterable[float | None]) -> float:
    """The highest price over the lowest; None is no price."""
    ### BEGIN SOLUTION
    known = [price for price in prices if price is not None]
    return max(known) / min(known)
    ### END SOLUTION


# %% check 00.price_spread points=3
check("00.price_spread", price_spread)

# %% checks
EXERCISES["00.price_spread"] = WrittenExercise(
    price_spread,
    module="tta",
    cases=(
        Case("three prices", lambda code: code([0.5, 4.0, 1.0])),
        Case("one that is not known", lambda code: code([0.5, None, 4.0, 0.25])),
        Case("a single price", lambda code: code([None, 2.0])),
    ),
    mistakes={
        ("/", "-"): "How many times, not how much more.",
        ("max(known) / min(known)", "min(known) / max(known)"): (
            "The most expensive over the cheapest, not the other way round."
        ),
        ("price for price in prices if price is not None", "price or 0 for price in prices"): (
            "No price is not a price of 0: leave None out."
        ),
    },
    hint="Leave out what is None; then the largest over the smallest.",
    explanation="Where no source was found the catalogue has no price, and says None: never 0.",
)

# %% spread-prose [markdown]
"""
GPUs with a rental price, by the catalogue:
"""

# %% spread
gpus = {tier.label: tier.rental_price_usd_per_h for tier in tiers.values() if tier.kind == "gpu"}
spread = price_spread(gpus.values())
reveal("00.spread", spread)

# %% claim-H4-prose [markdown]
"""
## Judge

Labs end with claim cards: a sentence of a paper, your number, your verdict (`"holds here"`, `"does not hold here"` or `"cannot be tested here"`) and one reason. The first is of a study of speech recognition on three GPU platforms (ADMS 2020): the most expensive has "10X price of the least expensive one". Those were bought in 2020; the catalogue has what GPUs are rented at today. Does a factor of ten or more lie between them?
"""

# %% claim H4 points=1
### BEGIN SOLUTION
verdict = "holds here" if spread >= 10 else "does not hold here"
answer = verdict, "rents of single GPUs by the catalogue, not list prices of whole platforms"
### END SOLUTION
result = f"the most expensive GPU's rent is {spread:.1f} times the cheapest's"
claim("H4", result, answer, how="recorded")

# %% scores-prose [markdown]
"""
How good were your guesses?
"""

# %% scores
from labkit_course import score_notebook

score_notebook()

# %% results-prose [markdown]
"""
The numbers of this notebook, each with bounds that hold on any machine, for a program to read:
"""

# %% results tags=["results"]
from labkit_course import results

results(
    time_to_target_s=(time_to_target_s, 0.05, 60),
    test_looks=(looks, 0, 1),
    evaluation_share=(share, 0, 1),
    price_spread=(spread, 1, 1000),
    test_auc=(run["result"]["metrics"]["auc"], 0.6, 0.85),
)

# %% recap [markdown]
"""
## Recap

- Time to target is the first evaluation at or past the target; a time without its target says nothing.
- A run is a folder: record, events, metrics, telemetry and checkpoints. The test split is looked at once, at the end.
- A budget is enforced; a run under less than the whole machine is `emulated`, and figures say so.
- A tier prices a budget; every figure in the catalogue names its source.
- What you write is kept in `mylab/`, where you find it again; several labs take up what you wrote in an earlier one.

**Next:** [Know your machine](01_know_your_machine.ipynb)
"""

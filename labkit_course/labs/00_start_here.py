# %% opening [markdown]
"""
# Start here

After this notebook you will be able to

- **train** a model to a target accuracy, and **compute** when it got there;
- **find** everything that was recorded about a run, and **read** what it cost from its events;
- **name** the budgets that a run can be given here, and **price** them by their tier.

**Time:** 45 minutes with two functions of about ten lines; the machine computes for 20 seconds on 2 CPU cores. No GPU is needed.

**Prerequisites:** some Python, and labkit installed (`make setup`, or `pip install`).
"""

# %% checks
from typing import Any

from labkit_course.exercise import Case, Explanation, WrittenExercise

MODULE = "tta"
EXERCISES = {}

# %% parameters-prose [markdown]
"""
You may change the next cell. `seed` fixes the random numbers of a training.
"""

# %% parameters tags=["parameters"]
profile = "standard"  # smoke, standard or full
runs_dir = "runs"  # run folders are made in its subfolder notebooks
data = "synthetic-small"  # a click log that labkit generates
seed = 0

# %% question [markdown]
"""
## What does it cost to get there?

labkit answers one question with numbers from your own machine: **what does it cost to reach this accuracy, on this hardware, run this way?**

You are about to train a small recommendation model (a DLRM) on generated clicks, on one core. The target is an AUC of 0.75: in 75 of 100 pairs of one clicked and one ignored advertisement, the model gives the clicked one the higher score. Guessing would give 0.5. The training split has 50,000 rows.

**How many seconds of training will it need?** A guess shows what you believe. How far off it is shows what to learn next. Write a number and run the cell. It is kept on your machine only.
"""

# %% guess-time
from labkit_course import check, explain, guess, model_answer, reveal

guess("00.time_to_target", 10.0, "s")

# %% train-prose [markdown]
"""
`watch` starts the training in a process of its own, under the **budget** `one-core`, and prints its progress. When an evaluation meets the target, one more evaluation has to confirm it.
"""

# %% train
from pathlib import Path

import pandas as pd

import labkit

runs, target = Path(runs_dir) / "notebooks", 0.75
limit_s = {"smoke": 20, "standard": 60, "full": 60}[profile]
run = labkit.launch.watch("dlrm", runs, data=data, budget="one-core", target=target, seed=seed, max_seconds=limit_s)

# %% curve-prose [markdown]
"""
The run evaluated its model now and then. The table shows its last three evaluations.
"""

# %% curve
curve = labkit.tta.curves([run["folder"]])[["wall_s", "value"]]
labkit.plots.show(curve.rename(columns={"wall_s": "time (s)", "value": "AUC on the validation split"}).tail(3))

# %% ex-00-time-to-target [markdown]
"""
### Exercise 00.time_to_target

When was the target met? There are two answers. The *first* evaluation that meets it may be luck, because each evaluation is noisy. The *confirmed* one is the first whose next evaluation meets the target, too.

Write `time_to_target(times, values, target, higher_is_better)`. It returns the two times as a pair `(first, confirmed)`.

- A value that equals the target meets it. A larger AUC is better, and a smaller error rate is better: `higher_is_better` says which kind it is.
- The confirmed time is that of the earlier of two evaluations in a row that both meet the target.
- Where there is no such evaluation, the time is `None`. Nothing is interpolated: between two evaluations the value was not known.

*Hint:* `zip(times, values)` gives the evaluations in order. Remember whether the previous one met the target.
"""

# %% answer 00.time_to_target
from collections.abc import Sequence


def time_to_target(
    times: Sequence[float], values: Sequence[float], target: float, higher_is_better: bool = True
) -> tuple[float | None, float | None]:
    """The time of the first evaluation that meets the target, and of the first that the next one confirms."""
    ### BEGIN SOLUTION
    first, before = None, None  # before: the time of the evaluation before, if it met the target
    for time, value in zip(times, values, strict=True):
        met = value >= target if higher_is_better else value <= target
        if met and first is None:
            first = time
        if met and before is not None:
            return first, before
        before = time if met else None
    return first, None
    ### END SOLUTION


# %% check 00.time_to_target points=5
check("00.time_to_target", time_to_target)


# %% checks
def _by_index(times, values, target, higher_is_better=True):
    sign = 1 if higher_is_better else -1
    met = [sign * value >= sign * target for value in values]
    first = [time for time, is_met in zip(times, met, strict=True) if is_met]
    both = [i for i in range(len(met) - 1) if met[i] and met[i + 1]]
    return first[0] if first else None, times[both[0]] if both else None


TIMES = [0.4, 0.9, 1.3, 1.8, 2.4, 2.9]
LUCKY = [0.55, 0.71, 0.66, 0.70, 0.72, 0.74]

EXERCISES["00.time_to_target"] = WrittenExercise(
    time_to_target,
    Case("a curve that meets the target once by luck, then for good", lambda code: code(TIMES, LUCKY, 0.70)),
    Case("a curve that rises", lambda code: code(TIMES, sorted(LUCKY), 0.65)),
    Case("the last evaluation alone meets it", lambda code: code(TIMES, LUCKY, 0.735)),
    Case("a value that is exactly the target", lambda code: code(TIMES, LUCKY, 0.72)),
    Case("a target that is never met", lambda code: code(TIMES, LUCKY, 0.75)),
    Case("no evaluation at all", lambda code: code([], [], 0.5)),
    Case("an error rate, which falls", lambda code: code(TIMES, [0.9, 0.5, 0.6, 0.5, 0.4, 0.2], 0.5, False)),
    Case("a first evaluation at second 0", lambda code: code([0.0, 1.0, 2.0], [0.8, 0.9, 0.9], 0.7)),
    mistakes={
        ("return first, before", "return first, time"): (
            "The second of the two evaluations only confirms: the model was there at the earlier one."
        ),
        ("        before = time if met else None", "        before = time if met else before"): (
            "The two evaluations have to follow each other directly: one that misses the target begins the count again."
        ),
        ("if higher_is_better else value <= target", ""): "A smaller error rate is better.",
    },
    variants=[
        _by_index,
        (
            "        if met and before is not None:",
            "        if not met:\n            before = None\n            continue\n        if before is not None:",
        ),
    ],
    hint="Go through the evaluations in order. Keep the first that meets the target, and compare each with its neighbour.",
    explanation="labkit counts both, and compares runs by the first, as MLPerf does; nothing is interpolated.",
)

# %% reveal-time-prose [markdown]
"""
How far off was your guess? If a run reaches its time limit before it meets the target, it has no time to target. It is *censored*, and the guess is not scored. The clock starts once the data is prepared and the model is built. It includes evaluations, as MLPerf's clock does.
"""

# %% reveal-time
time_to_target_s, confirmed_s = time_to_target(curve["wall_s"], curve["value"], target)
reveal("00.time_to_target", time_to_target_s)
print(pd.Series({"first met (s)": time_to_target_s, "confirmed (s)": confirmed_s}, dtype=float).round(2).to_string())

# %% guess-harder-prose [markdown]
"""
Now move the target. **How many times as long does 0.75 take as 0.70?** After your guess, your function computes the time to several targets on the same curve.
"""

# %% guess-harder
guess("00.harder", 1.5, "times")

# %% harder
targets = (0.60, 0.65, 0.70, 0.74, target)
times_s = {goal: time_to_target(curve["wall_s"], curve["value"], goal) for goal in targets}
first_s = {goal: first for goal, (first, _) in times_s.items()}
table = pd.DataFrame.from_dict(times_s, orient="index", columns=["first met (s)", "confirmed (s)"])
labkit.plots.show(table.rename_axis("target AUC").reset_index())
reveal("00.harder", first_s[target] / first_s[0.70] if first_s[target] else None)

# %% figure-prose [markdown]
"""
The figure shows the same curve. The ring marks the first evaluation that met the target. The legend says where the numbers come from. *Emulated*: one core of a larger machine stands in for a small machine, whose caches and memory may differ. A run on a whole machine is *measured*. A run from another machine is *recorded*. A number that is computed is *predicted*.
"""

# %% figure
evaluations, recorded = labkit.tta.curves([run["folder"]]), labkit.tta.run_table([run["folder"]])
crossed = labkit.tta.crossings(evaluations, recorded, target)
labkit.plots.show(labkit.plots.figure_time_to_accuracy(evaluations, target, crossings=crossed))

# %% ex-00-why-both [markdown]
"""
### Explain 00.why_both

A colleague says: "mine trains in a second". In two or three sentences: why is that not an answer yet? Use two rows of your table.
"""

# %% explain 00.why_both points=2 id="answer-00-why-both"
### BEGIN SOLUTION
answer = model_answer("00.why_both")
### END SOLUTION
explain("00.why_both", answer)

# %% checks
EXERCISES["00.why_both"] = Explanation(
    "numbers: gives two targets of one's own run with their times, and their ratio or difference",
    "why: the curve flattens towards what is possible on the data",
    "trade-off: says what a comparison needs, the same target on the same data, or a time for several targets",
    model="On my run an AUC of 0.70 took 0.24 s and 0.75 took 0.33 s, 1.4 times as long for five hundredths more, "
    "because the curve flattens towards what can be learnt from this data. A time without its target, or a target "
    "without its time, can be made to look as good as one likes: compare two machines at the same target on the same "
    "data, better at several targets.",
)

# %% folder-prose [markdown]
"""
## The run is a folder

Everything about the run is in one folder: copy it, and you have copied the experiment. `run.json` says what was run, where, and how it ended. `events.jsonl` has one line per event. Metrics, telemetry and checkpoints are next to them.
"""

# %% folder
record, events = labkit.runs.read_run(run["folder"]), labkit.runs.read_events(run["folder"])
print(record.provenance.kind, record.status, f"test AUC {record.result['metrics']['auc']:.3f}")
print(*sorted({event["event"] for event in events}), sep=", ")

# %% guess-share-prose [markdown]
"""
Evaluating takes time too, and it is part of the time to target. **Which share of the time did the run not spend on training, in per cent?**
"""

# %% guess-share
guess("00.evaluating", 10.0, "%")

# %% ex-00-account [markdown]
"""
### Exercise 00.account

What did the run cost, and was it fair? Write `account(events, usd_per_h)`. `events` is a list of dicts; `event["event"]` is the kind of each. It returns a dictionary of three numbers:

- `"test_looks"`: how many times the test split was looked at (events `tested`). A test split that is looked at often is a training split by another name.
- `"not_training"`: the share, from 0 to 1, of the time until the last evaluation in which the run did not train. Events `evaluated` have two clocks, both from the start: `wall_s` counts everything, `train_s` counts training only. It is `None` if nothing was evaluated.
- `"cost_usd"`: US dollars for that whole time, at a rent of `usd_per_h` dollars per hour. It is `None` if nothing was evaluated, or if the price is not known (`None`). An unknown price is not a price of 0.

*Hint:* the last event `evaluated` has what you need; collect these events in a list first.
"""

# %% answer 00.account
from collections.abc import Sequence
from typing import Any


def account(events: Sequence[dict[str, Any]], usd_per_h: float | None) -> dict[str, float | None]:
    """Looks at the test split, the share of the time that was not training, and what the time cost."""
    ### BEGIN SOLUTION
    looks = sum(event["event"] == "tested" for event in events)
    evaluated = [event for event in events if event["event"] == "evaluated"]
    if not evaluated:
        return {"test_looks": looks, "not_training": None, "cost_usd": None}
    last = evaluated[-1]
    cost_usd = None if usd_per_h is None else last["wall_s"] / 3600 * usd_per_h
    share = 1 - last["train_s"] / last["wall_s"]
    return {"test_looks": looks, "not_training": share, "cost_usd": cost_usd}
    ### END SOLUTION


# %% check 00.account points=5
check("00.account", account)


# %% checks
def _events(*kinds: str) -> list[dict[str, Any]]:
    return [{"event": kind, "wall_s": 1.0 + n, "train_s": 0.8 + 0.7 * n} for n, kind in enumerate(kinds)]


def _account_in_a_loop(events: Any, usd_per_h: float | None) -> dict[str, float | None]:
    looks, wall_s, train_s = 0, None, None
    for event in events:
        if event["event"] == "tested":
            looks += 1
        if event["event"] != "evaluated":
            continue
        wall_s, train_s = event["wall_s"], event["train_s"]
    found = {"test_looks": looks, "not_training": None, "cost_usd": None}
    if wall_s is not None and train_s is not None:
        found["not_training"] = (wall_s - train_s) / wall_s
        found["cost_usd"] = None if usd_per_h is None else wall_s * usd_per_h / 3600
    return found


ONE_LOOK = _events("started", "evaluated", "evaluated", "target_reached", "tested", "ended")
PEEKING = _events("started", "evaluated", "tested", "evaluated", "tested", "evaluated", "tested", "ended")

EXERCISES["00.account"] = WrittenExercise(
    account,
    Case("a run with one look at the test split, at 0.79 dollars per hour", lambda code: code(ONE_LOOK, 0.79)),
    Case("a run that was tested after each evaluation", lambda code: code(PEEKING, 2.5)),
    Case("the same, without a price", lambda code: code(PEEKING, None)),
    Case("a price of 0", lambda code: code(ONE_LOOK, 0.0)),
    Case("a run that was stopped before its first evaluation", lambda code: code(_events("started", "ended"), 0.5)),
    mistakes={
        ("evaluated[-1]", "evaluated[0]"): (
            "Both clocks add up from the start: read them at the last evaluation, not at the first."
        ),
        ('1 - last["train_s"] / last["wall_s"]', 'last["wall_s"] / last["train_s"] - 1'): (
            "That is a share of the training time. The text asks for a share of all the time."
        ),
        ('last["wall_s"] / 3600', 'last["train_s"] / 3600'): "The machine is rented while it evaluates, too.",
    },
    variants=[_account_in_a_loop],
    hint="Two of the three numbers come from the last event of its kind, and both may be missing: which kind, and when?",
    explanation="The test split stayed closed to the end; evaluations cost time, and the rent runs meanwhile.",
)

# %% budgets-prose [markdown]
"""
## Budgets and prices

A **budget** is what a run may use, and labkit enforces it. A **tier** is an entry of a catalogue of hardware, from a laptop to an H200. Every figure in it has a source and a date. A figure without a source is left empty. A budget is priced as the tier that it stands for.
"""

# %% budgets
tiers = labkit.hardware.load_tiers()
budgets = {each.name: each.tier for each in labkit.hardware.offered_budgets()}
prices = {name: tiers[tier].rental_price_usd_per_h if tier else None for name, tier in budgets.items()}
rows = [(name, budgets[name] or "none", price) for name, price in prices.items()]
labkit.plots.show(pd.DataFrame(rows, columns=["budget", "priced as tier", "rent ($ per hour)"]))

# %% account-prose [markdown]
"""
This is your account of the run, at the rent of its budget. One run costs next to nothing; a search over a thousand settings with five seeds each is 5,000 runs.
"""

# %% account
found = account(events, prices["one-core"])
print(f"looks at the test split: {found['test_looks']}")
reveal("00.evaluating", None if found["not_training"] is None else 100 * found["not_training"])
if found["cost_usd"] is not None:
    print(f"5,000 such runs: {5000 * found['cost_usd']:.2f} US dollars, emulated")

# %% guess-spread-prose [markdown]
"""
**How many times the rent of the cheapest GPU in the catalogue does the most expensive one cost?**
"""

# %% guess-spread
guess("00.spread", 20.0, "times")

# %% spread-prose [markdown]
"""
The next cell compares the GPUs with a known rent. Their speeds differ too, so the cheapest per hour need not be the cheapest per target: [Cost and energy](51_cost_and_energy.ipynb) asks which one is.
"""

# %% spread
rents = [tier.rental_price_usd_per_h for tier in tiers.values() if tier.kind == "gpu"]
known = [rent for rent in rents if rent is not None]
reveal("00.spread", max(known) / min(known))

# %% scores-prose [markdown]
"""
How good were your guesses? The cell after the scores keeps the numbers of this notebook, each with bounds that hold on any machine.
"""

# %% scores
from labkit_course import results, score_notebook

score_notebook()

# %% results tags=["results"]
results(
    time_to_target_s=(time_to_target_s, 0.05, limit_s),
    test_looks=(found["test_looks"], 0, 1),
    not_training=(found["not_training"], 0.01, 0.8),
    price_spread=(max(known) / min(known), 2, 100),
    test_auc=(run["result"]["metrics"]["auc"], 0.7, 0.82),
)

# %% assistant not_training below=0.1 [markdown]
"""
In a short run like this one, nearly all of the time goes into training steps. Whatever else it does, such as evaluating, takes less than a tenth of the time.
"""

# %% recap [markdown]
"""
## Recap

- Time to target has two answers, the first evaluation that meets it and the first that is confirmed. A time without its target says nothing.
- A run is a folder: record, events, metrics, telemetry and checkpoints. The test split is looked at once, at the end.
- A budget is enforced. A run under less than the whole machine is `emulated`, and figures say so.
- A tier prices a budget; every figure in the catalogue names its source.
- What you write is kept in `mylab/`, and several labs use what you wrote in an earlier one.

**Next:** [Know your machine](01_know_your_machine.ipynb)
"""

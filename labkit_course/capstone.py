"""A capstone: a plan is registered before its runs begin, and judged from their folders afterwards."""

import hashlib
import json
import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from labkit import json_data, tta
from labkit.errors import DataError, UserError, certain
from labkit.runs import RunRecord, moment_ns, readable_runs, replace_text, run_folders, timestamp
from labkit.tracking import Target

REGISTER, SWEEP = "register.json", "register.yaml"
FEWEST_SEEDS, POWER = 5, 0.8
MOST_SPREADS = 30
"""Spreads in an effect, from which thousands of pairs would be needed"""
QUANTITIES = ("time_s", "cost_usd", "energy_j")
HOW = "docs/capstone.md has a whole plan."


@dataclass(frozen=True)
class Plan:
    """What is asked, what is run, and what is predicted of it."""

    question: str
    target: str
    """Such as "accuracy >= 0.97"; the runs must have it, too"""
    setting: str
    """The one thing that differs"""
    values: tuple[Any, Any]
    """Of that setting: as it is now, and the intervention"""
    budgets: tuple[str, str]
    """Names, as `--budget` takes them"""
    seeds: list[int]
    """Each is run with both values, and makes a pair under each budget"""
    smallest_effect: float
    """The least that matters, as a share: 0.1 is 1.1 times as fast"""
    spread: float
    """Standard deviation of the pairs' log-ratios of time that was assumed, from a few pilot runs"""
    predicted: dict[str, dict[str, list[float]]]
    """By budget, the low and high end of time_s, cost_usd and energy_j that a run with the first value takes to the
    target"""
    script: str = ""
    """A Python file, from the plan's folder; or else `job`"""
    job: str = ""
    """Such as "dlrm:tour\""""
    settings: dict[str, Any] = field(default_factory=dict)
    """Those that are the same in all runs"""
    level: float = 0.8
    """Share of runs that a predicted interval is to hold"""

    def __post_init__(self) -> None:
        value = Target.parse(self.target).value
        is_found = 0 < self.spread < MOST_SPREADS * math.log1p(max(0.0, self.smallest_effect))
        needed = max(FEWEST_SEEDS, self.needed) if is_found else 0
        intervals = [pair for of_budget in self.predicted.values() for pair in of_budget.values()]
        for name, is_right, fix in (
            ("target", value is not None, "give the metric a value to reach."),
            ("script", bool(self.script) != bool(self.job), "give one of script and job."),
            ("values", self.values[0] != self.values[1], "give two values that differ."),
            ("budgets", self.budgets[0] != self.budgets[1], "give two budgets that differ."),
            ("seeds", len(set(self.seeds)) == len(self.seeds), "give each seed once."),
            ("smallest_effect", self.smallest_effect > 0, "give a share above 0."),
            ("spread", is_found, f"give that of a few pilot pairs, above 0 and below {MOST_SPREADS} times the effect."),
            ("level", 0 < self.level < 1, "give a share between 0 and 1, such as 0.8."),
            ("predicted", set(self.predicted) == set(self.budgets), "give an interval for each of the two budgets."),
            ("predicted", all(set(QUANTITIES) == set(each) for each in self.predicted.values()), f"give {QUANTITIES}."),
            ("predicted", all(len(p) == 2 and 0 < p[0] < p[1] for p in intervals), "give low and high, above 0."),
            (
                "seeds",
                len(self.seeds) >= needed,
                f"{len(self.seeds)} are too few: with a spread of {self.spread:g}, {needed} pairs find an effect of "
                f"{self.smallest_effect:g} with a power of {POWER:.0%}. Give more, or a larger smallest_effect.",
            ),
        ):
            if not is_right:
                raise UserError(fix, field=name)

    @property
    def needed(self) -> int:
        """Pairs that find the smallest effect with a power of 80 %."""
        return tta.runs_needed(self.spread, math.log1p(self.smallest_effect), POWER)

    def cell(self, record: RunRecord, settings: dict[str, Any]) -> tuple[str, int] | None:
        """The budget of a run and the number of its value, 0 or 1; None if it is not of this plan."""
        ran = record.config.get("job") if self.job else Path(str(record.config.get("script"))).name
        if ran != (self.job.partition(":")[0] if self.job else Path(self.script).name):
            return None
        numbers = [n for n, value in enumerate(self.values) if _same(settings.get(self.setting), value)]
        return (record.ran_under, numbers[0]) if numbers and record.ran_under in self.budgets else None


def _same(found: Any, value: Any) -> bool:
    """Whether a setting has a value; a script's settings are recorded as texts."""
    try:
        return float(found) == float(value)
    except (TypeError, ValueError):
        return str(found) == str(value)


@dataclass(frozen=True)
class Register:
    """A plan, and when it was registered."""

    plan: Plan
    registered_at: json_data.Moment
    sha256: str
    """Of plan and time: a reader who has it can see later that neither was changed"""

    @classmethod
    def of(cls, plan: Plan, registered_at: str) -> "Register":
        text = json.dumps([json_data.to_json(plan), registered_at], sort_keys=True)
        return cls(plan, registered_at, hashlib.sha256(text.encode()).hexdigest())


def read_plan(path: Path) -> Plan:
    """Read a plan.

    Raises:
        DataError: it is no TOML, a field is missing, unknown or wrong, or its seeds are too few for its effect.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        json_data.check_shape(content, Plan, exact=True)
        plan = json_data.build(content, Plan)
    except UserError as error:
        raise DataError(str(error), file=path, field=error.field, fix=HOW) from None
    except (OSError, ValueError) as error:
        raise DataError(f"this is no plan ({error}).", file=path, fix=HOW) from error
    if plan.script and not (path.parent / plan.script).is_file():
        what = f"there is no script {plan.script} in the plan's folder."
        raise DataError(what, file=path, field="script", fix=HOW)
    return plan


def read_register(runs_dir: Path) -> Register:
    """The register of a folder of runs.

    Raises:
        UserError: there is none, or it was changed by hand.
    """
    file = runs_dir / REGISTER
    try:
        content = json_data.read_json(file, Register, fix="Restore it from a copy.")
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{file} is missing: run `labkit course register PLAN.toml --runs {runs_dir}` first.") from None
    found = json_data.build(content, Register)
    if found != Register.of(found.plan, found.registered_at):
        raise UserError(f"{file} was changed by hand, since its SHA-256 is another: restore it from a copy.")
    return found


def register(path: Path, runs_dir: Path) -> Register:
    """Register a plan, in one step, next to the runs that it is about; with a sweep file that makes them.

    Raises:
        UserError: the plan is wrong, or another one is registered there and its runs have begun.
    """
    plan = read_plan(path)
    if (file := runs_dir / REGISTER).exists():
        old = read_register(runs_dir)
        if old.plan == plan:
            return old
        begun = runs_of(old, runs_dir)
        if count := int((begun["began"] > moment_ns(old.registered_at)).sum()) if len(begun) else 0:
            raise UserError(
                f"{file}: another plan was registered at {old.registered_at}, and {count} of its runs began since, so "
                "it stays as it is. Register this one for a new folder of runs, with --runs."
            )
    runs_dir.mkdir(parents=True, exist_ok=True)
    made = Register.of(plan, timestamp())
    sweep: dict[str, Any] = {"name": "capstone", "job": plan.job}
    if plan.script:
        sweep = {"name": "capstone", "script": str((path.parent / plan.script).resolve())}
    sweep |= {"settings": plan.settings} if plan.settings else {}
    sweep |= {"grid": {plan.setting: list(plan.values)}, "seeds": plan.seeds, "budget": list(plan.budgets)}
    replace_text(runs_dir / SWEEP, json.dumps(sweep, indent=1) + "\n")  # JSON is YAML, too
    replace_text(file, json.dumps(json_data.to_json(made), indent=1) + "\n")
    return made


def runs_of(made: Register, runs_dir: Path) -> pd.DataFrame:
    """The runs of a registered plan, oldest first: `labkit.tta.run_table` with columns value (0 or 1) and began."""
    folders = run_folders(runs_dir)
    records = readable_runs(folders) if folders else []
    records = [(path.resolve(), record) for path, record in records if not (record.profiled or record.is_trial)]
    if not records:
        return pd.DataFrame()
    table, known = tta.table_of(records), {str(path): record for path, record in records}
    cells = [made.plan.cell(known[row["folder"]], row["settings"]) for row in table.to_dict("records")]
    table = table.assign(
        value=[cell and cell[1] for cell in cells],
        began=[moment_ns(known[folder].started_at) for folder in table["folder"]],
    )
    return table[[cell is not None for cell in cells]].sort_values("began", ignore_index=True)


def interval_score(low: float, high: float, found: float, level: float) -> float:
    """The score of a predicted interval, on logarithms; lower is better.

    Its width, and for a value outside 2 / (1 − level) times its distance: the forecaster's best answer is the true
    quantiles (Gneiting and Raftery, Strictly proper scoring rules, 2007, equation 43). Logarithms make seconds,
    dollars and joules comparable.

    >>> round(interval_score(1, 2, 1.5, 0.8), 3), round(interval_score(1, 2, 4, 0.8), 3)
    (0.693, 7.625)
    """
    a, b, x = math.log(low), math.log(high), math.log(found)
    return b - a + 2 / (1 - level) * (max(a - x, 0) + max(x - b, 0))


def verdict(low: float, high: float, smallest: float) -> str:
    """What the interval of a mean log-ratio of times says, next to the smallest one that matters."""
    if math.isnan(low):
        return "cannot be decided: too few pairs"
    if low >= smallest:
        return "sooner, and it matters"
    if high <= -smallest:
        return "later, and it matters"
    return "no difference that matters" if -smallest < low and high < smallest else "cannot be decided: run more pairs"


@dataclass(frozen=True)
class Judgement:
    """What came of a registered plan."""

    cells: pd.DataFrame
    """A row per budget and value: runs that count, those that reached the target, missing seeds, expected_s (the
    expected time with restarts)"""
    effects: pd.DataFrame
    """A row per budget: pairs, how many times as fast the intervention is with its 95 % interval, and the verdict"""
    calibration: pd.DataFrame
    """A row per budget and predicted quantity: the runs that it is known of, how many are inside, the interval score"""
    remarks: list[str]
    """What does not count, what is missing and what failed, as sentences"""


def judge(made: Register, runs_dir: Path) -> Judgement:
    """Judge the runs of a plan: those that began after it was registered, each seed's first.

    Raises:
        UserError: no run of it counts.
    """
    plan, target, remarks = made.plan, Target.parse(made.plan.target), []
    table, first = runs_of(made, runs_dir), {}
    for row in table.to_dict("records"):
        key = (row["budget"], row["value"], row["seed"])
        is_other = (row["metric"], row["target"]) != (target.metric.name, target.value)
        for is_wrong, why in (
            (row["began"] <= moment_ns(made.registered_at), "began before the plan was registered"),
            (row["status"] == "running", "still goes on"),
            (row["seed"] not in plan.seeds, f"has seed {row['seed']}, which is not in the plan"),
            (is_other, f"has another target than {plan.target}"),
            (key in first, f"repeats {first.get(key)}"),
        ):
            if is_wrong:
                remarks.append(f"{row['run']} does not count: it {why}.")
                break
        else:
            first[key] = row["run"]
            if row["disturbed"]:
                remarks.append(f"{row['run']} counts, though {row['disturbed']}.")
    if not first:
        raise UserError(" ".join([f"{runs_dir}: no run of the plan counts yet: `labkit sweep` makes them.", *remarks]))
    counted = table[table["run"].isin(first.values())].reset_index(drop=True)
    found = tta.crossings(tta.curves(counted["folder"], runs=counted), counted, certain(target.value))
    counted = counted.merge(found[["run", "outcome", "reached", "time_to_target_s", "spent_s"]], on="run")
    for row in counted[~counted["reached"]].to_dict("records"):
        remarks.append(f"{row['run']} counts as failed: it did not reach the target ({row['outcome']}).")
    cells = pd.DataFrame([_cell(plan, counted, b, n) for b in plan.budgets for n in (0, 1)])
    effects = pd.DataFrame([_effect(plan, counted[counted["budget"] == budget], budget) for budget in plan.budgets])
    return Judgement(cells, effects, _calibration(plan, counted[counted["value"] == 0]), remarks)


def _cell(plan: Plan, counted: pd.DataFrame, budget: str, number: int) -> dict[str, Any]:
    own = counted[(counted["budget"] == budget) & (counted["value"] == number)]
    reached, missing = int(own["reached"].sum()), [seed for seed in plan.seeds if seed not in set(own["seed"])]
    expected_s = own["spent_s"].sum() / reached if reached else np.inf
    named = {"budget": budget, plan.setting: plan.values[number], "runs": len(own), "reached": reached}
    return named | {"missing_seeds": ", ".join(map(str, missing)), "expected_s": expected_s}


def _effect(plan: Plan, own: pd.DataFrame, budget: str) -> dict[str, Any]:
    """Of the pairs of one budget. Where a run failed, no ratio is given: the times of the others are no fair draw."""
    pairs = own[own.groupby("seed")["value"].transform("nunique") == 2]
    before, after = (pairs[pairs["value"] == number] for number in (0, 1))
    failed = pairs.loc[~pairs["reached"], "seed"].nunique()
    sooner = tta.speed_up(after, before)
    ratio, low, high = sooner[:3] if sooner else (np.nan,) * 3
    said = verdict(math.log(low), math.log(high), math.log1p(plan.smallest_effect))
    said = "cannot be decided: runs failed, see expected_s" if failed else said
    row = {"budget": budget, "pairs": len(before), "failed_pairs": failed, "times_as_fast": ratio}
    return row | {"low": low, "high": high, "verdict": said}


def _calibration(plan: Plan, counted: pd.DataFrame) -> pd.DataFrame:
    times = counted["time_to_target_s"].to_numpy(float)
    costs = [tta.cost_usd(time_s, tier).value_usd for time_s, tier in zip(times, counted["tier"], strict=True)]
    joules = [tta.energy_account(folder).energy_to_target_j for folder in counted["folder"]]
    found = pd.DataFrame(dict(zip(QUANTITIES, (times, costs, joules), strict=True)), dtype=float)
    rows = []
    for budget in plan.budgets:
        for name, (low, high) in plan.predicted[budget].items():
            here = (counted["budget"] == budget).to_numpy()
            failed = here & ~counted["reached"].to_numpy(bool)  # which no interval holds
            values: Sequence[float] = found.loc[here & ~failed, name].dropna().tolist()
            scores = [interval_score(low, high, value, plan.level) for value in values]
            known = len(values) + int(failed.sum()) * bool(values)
            inside = sum(low <= value <= high for value in values)
            row = {"budget": budget, "predicted": name, "low": low, "high": high, "known_runs": known}
            rows.append(row | {"inside": inside, "score": np.mean(scores) if scores else np.nan})
    return pd.DataFrame(rows)

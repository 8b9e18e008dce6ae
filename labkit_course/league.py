"""A league of small budgets: whose runs reach a target soonest, by rules that run folders can show."""

import contextlib
import csv
import hashlib
import math
import shutil
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from labkit import json_data, tracking, tta
from labkit.errors import DataError, UserError, certain
from labkit.runs import RunRecord, moment_ns, read_events, read_run, replace_text, run_folders

TRACKS, HISTORY, CODE = "tracks.toml", "history.csv", "code"
COLUMNS = ["track", "date", "holder", "seeds", "reached", "median_s", "times_as_fast", "p", "machine", "commit", "code",
           "sha256"]  # fmt: skip
"""Of the history; median_s counts a failed run as infinite, code is the script's copy, sha256 the script's"""
FEWEST_SEEDS = 7
"""With fewer, not even a challenger that wins every pair has a p below LEVEL"""
LEVEL = 0.01


@dataclass(frozen=True)
class Track:
    """What the runs of a track have in common."""

    target: str
    cores: int | None = None
    max_usd: float | None = None
    data: str | None = None
    tested: bool = False


@dataclass(frozen=True)
class Run:
    """A run that keeps the rules."""

    folder: Path
    record: RunRecord
    time_s: float
    """To the target, confirmed; infinite if it failed, for whatever reason"""

    @property
    def began(self) -> int:
        return moment_ns(self.record.started_at)

    @property
    def ended(self) -> int:
        return moment_ns(self.record.ended_at or self.record.started_at)


@dataclass(frozen=True)
class Outcome:
    """How a challenger did."""

    p: float
    floor: float
    """Noise: the median ratio of two standing runs of one seed"""
    times_as_fast: float
    """Median over the pairs"""
    seeds: int
    failed: tuple[int, int]
    """Runs of the standing record and of the challenger that failed"""

    @property
    def is_record(self) -> bool:
        return self.p < LEVEL


def read_tracks(league: Path) -> dict[str, Track]:
    """The tracks of a league, by name."""
    file = league / TRACKS
    fix = "--league names the folder of a league; that of labkit's checkout is `league`."
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
        json_data.check_shape(content, dict[str, Track], exact=True)
    except (OSError, ValueError) as error:
        raise DataError(f"these tracks cannot be read ({error}).", file=file, fix=fix) from error
    return {name: json_data.build(each, Track) for name, each in content.items()}


def track_named(league: Path, name: str) -> Track:
    tracks = read_tracks(league)
    if name not in tracks:
        raise UserError(f"{name} is no track of {league}: there are {', '.join(tracks)}.")
    return tracks[name]


def read_history(league: Path) -> list[dict[str, str]]:
    """The records of a league, oldest first: COLUMNS, all of them texts."""
    file = league / HISTORY
    with file.open(encoding="utf-8", newline="") as lines:
        rows = csv.DictReader(lines)
        if rows.fieldnames != COLUMNS:
            what = f"its columns are not {', '.join(COLUMNS)}."
            raise DataError(what, file=file, line=1, fix="Restore it from version control.")
        return list(rows)


def checked(track: Track, folders: Sequence[Path]) -> list[Run]:
    """The runs of one side, oldest first, which must be of one program and keep the rules.

    Raises:
        UserError: a run breaks a rule; the text names it.
    """
    runs = sorted((_run(track, Path(folder)) for folder in folders), key=lambda run: run.began)
    settings = tta.run_table([run.folder for run in runs])["settings"].tolist()
    for run, own in zip(runs, settings, strict=True):
        if (_sha256(run), _arguments(run), own) != (_sha256(runs[0]), _arguments(runs[0]), settings[0]):
            raise UserError(f"{run.folder} has another script or other settings than {runs[0].folder}, on its side.")
    return runs


def _sha256(run: Run) -> str:
    return run.record.config["script_sha256"]  # which `_run` saw there


def _arguments(run: Run) -> list[str]:
    """The arguments of a script, without its seed."""
    given: list[str] = dict(run.record.config).get("arguments", [])  # ty: ignore[invalid-assignment]
    return [text for before, text in zip(["", *given], given, strict=False) if "--seed" not in (before, text)]


def _run(track: Track, folder: Path) -> Run:
    record, target = read_run(folder), tracking.Target.parse(track.target)
    train, result = record.config.get("train", {}), record.result or {}
    events = Counter(event["event"] for event in read_events(folder))
    given = train.get("target_metric"), train.get("target"), dict(train).get("confirm_evaluations")
    others, data, cores = result.get("others"), record.config.get("data", {}).get("name"), _device(record).get("cores")
    runs = tta.run_table([folder])
    found = tta.crossings(tta.curves([folder], runs=runs), runs, certain(target.value)) if len(runs) else runs
    time_s = float(found["sustained_time_s"].fillna(math.inf).iloc[0]) if len(found) else math.inf
    for is_broken, why in (
        (record.provenance.kind not in ("measured", "emulated"), f"it is {record.provenance.kind}, not measured"),
        ({"imported", "profile", "trial"} & record.config.keys(), "it was imported, profiled or a trial"),
        (record.shared, "it shared its device"),
        (record.status == "running", "it still goes on"),
        (given != (target.metric.name, target.value, tracking.CONFIRM), f"its target is not {track.target}, confirmed"),
        (track.cores not in (None, cores), f"it had {cores} cores, not {track.cores}"),
        (track.data not in (None, data), f"its data are {data}, not {track.data}"),
        (record.seed is None, "it has no seed"),
        ("script_sha256" not in record.config, "its script is not known: run it from a file, with this labkit"),
        (events["resumed"], "it was resumed"),
        (events["tested"] > 1, f"it looked at the test split {events['tested']} times"),
        (track.tested and time_s < math.inf and not events["tested"], "it was not scored on the test split"),
        (others and others["disturbed"], "other programs disturbed it"),
    ):
        if is_broken:
            raise UserError(f"{folder} breaks a rule of the league: {why}.")
    if track.max_usd is not None:
        cost = tta.cost_usd(time_s, record.tier)
        if cost.value_usd is None and time_s < math.inf:
            raise UserError(f"{folder} breaks a rule of the league: {cost.note}.")
        time_s = time_s if (cost.value_usd or 0) <= track.max_usd else math.inf
    return Run(folder, record, time_s)


def _device(record: RunRecord) -> dict[str, Any]:
    used = (dict(each) for each in record.devices if each.get("torch_name") == record.budget.get("torch_name"))
    return next(used, {})


def machine_of(run: Run) -> str:
    """The machine, the budget and the data of a run, as text: equal for runs that may be compared."""
    device, data = _device(run.record), run.record.config.get("data", {})
    named = f"{device.get('name')}, {device.get('cores')} of {device.get('machine_cores')} cores"
    return f"{run.record.host}, {named}, {run.record.ran_under}, data {data.get('fingerprint', 'of the script')}"


def judge(track: Track, standing: Sequence[Path], challenger: Sequence[Path]) -> Outcome:
    """Whether a challenger beats the standing record: each seed as standing, challenger, standing, one after another.

    Raises:
        UserError: the runs break a rule; the text names run and rule.
    """
    old, new = checked(track, standing), checked(track, challenger)
    for run in (*old, *new):
        if machine_of(run) != machine_of(old[0]):
            raise UserError(f"{run.folder} ran on {machine_of(run)}, and {old[0].folder} on {machine_of(old[0])}.")
    seeds = sorted(certain(run.record.seed) for run in new)
    if seeds != list(range(len(seeds))) or len(seeds) < FEWEST_SEEDS:
        raise UserError(f"the challenger has seeds {seeds}: run each of 0 to {FEWEST_SEEDS - 1} or more, once.")
    times = np.empty((len(seeds), 3))
    for run in new:
        own = [each for each in old if each.record.seed == run.record.seed]
        if len(own) != 2 or not own[0].ended <= run.began <= run.ended <= own[1].began:
            raise UserError(f"seed {run.record.seed} must be run as standing, challenger, standing, one after another.")
        times[certain(run.record.seed)] = own[0].time_s, run.time_s, own[1].time_s
    given = {run.folder.resolve() for run in (*old, *new)}
    if len(given) != 3 * len(seeds):
        raise UserError("the standing record was run with seeds that the challenger does not have.")
    for folder in {each for place in given for each in map(Path.resolve, run_folders(place.parent))} - given:
        record = read_run(folder)
        is_of_these = record.config.get("script_sha256") in (_sha256(old[0]), _sha256(new[0]))
        if is_of_these and old[0].began <= moment_ns(record.started_at) <= old[-1].ended:
            raise UserError(f"{folder} was run in between, and is not among the runs given: all of them count.")
    return compare(times[:, ::2], times[:, 1])


def compare(standing: np.ndarray, challenger: np.ndarray) -> Outcome:
    """Compare times to a target, where a run that failed is infinite.

    The noise floor is the median ratio of the two standing runs of a seed. A pair is the challenger's run and one
    standing run, in turn the one before and the one after it, so that drift favours neither. One-sided exact Wilcoxon
    signed-rank test of the log-ratios less the floor.

    Args:
        standing: (n, 2) seconds, of the runs before and after the challenger's.
        challenger: (n,) seconds.

    Raises:
        UserError: fewer than three seeds have two standing runs that reached the target.
    """
    with np.errstate(invalid="ignore"):
        logs = np.log(standing)
        noise = np.abs(logs[:, 0] - logs[:, 1])[np.isfinite(standing).all(axis=1)]
        if len(noise) < 3:
            raise UserError("the standing record reached its target twice with fewer than three seeds: no noise floor.")
        pairs = logs[np.arange(len(logs)), np.arange(len(logs)) % 2] - np.log(challenger)
    pairs = np.nan_to_num(pairs, nan=0.0, posinf=np.inf, neginf=-np.inf)  # where both failed, neither is sooner
    floor = float(np.median(noise))
    failed = int(np.isinf(standing).sum()), int(np.isinf(challenger).sum())
    return Outcome(signed_rank_p(pairs - floor), math.exp(floor), math.exp(np.median(pairs)), len(pairs), failed)


def signed_rank_p(differences: np.ndarray) -> float:
    """The exact one-sided p of Wilcoxon's signed-rank test; differences may be infinite, and ties share their rank.

    >>> signed_rank_p(np.array([1.0, 2, 3, 4, 5, 6, np.inf])) == 1 / 128
    True
    """
    from scipy.stats import rankdata

    twice = (2 * rankdata(np.abs(differences))).astype(int)  # whole numbers, as a shared rank may be a half
    ways = np.zeros(twice.sum() + 1)
    ways[0] = 1
    for rank in twice:  # with either sign
        ways[rank:] += ways[:-rank].copy()
    return float(ways[twice[differences > 0].sum() :].sum() / 2 ** len(differences))


def enter(
    league: Path, name: str, holder: str, script: Path, standing: Sequence[Path], challenger: Sequence[Path]
) -> dict[str, str]:
    """Write a record into the history, with a copy of its script next to it.

    Raises:
        UserError: the runs break a rule, do not beat the standing record, or are of another script.
    """
    track, history = track_named(league, name), read_history(league)
    own = [each for each in history if each["track"] == name]
    runs = checked(track, challenger)
    first, times, sha256 = runs[0].record, [run.time_s for run in runs], _sha256(runs[0])
    if hashlib.sha256(script.read_bytes()).hexdigest() != sha256:
        raise UserError(f"{script} is not the script of {runs[0].folder}, since its SHA-256 is another.")
    kept = (each["code"] for each in history if each["sha256"] == sha256)  # perhaps on another track
    code = next(kept, f"{CODE}/{name}-{len(own) + 1}{script.suffix}")
    made = {"track": name, "date": first.started_at[:10], "holder": holder, "times_as_fast": "", "p": ""}
    if own:
        outcome = judge(track, standing, challenger)
        if _sha256(checked(track, standing)[0]) != own[-1]["sha256"]:
            raise UserError(f"{standing[0]} is not of the standing record, whose script is {league / own[-1]['code']}.")
        if not outcome.is_record:
            raise UserError(f"no record: p is {outcome.p:.3g}, and has to be below {LEVEL}.")
        made |= {"times_as_fast": f"{outcome.times_as_fast:.3f}", "p": f"{outcome.p:.2g}"}
    elif (
        len({run.record.seed for run in runs}) < max(FEWEST_SEEDS, len(runs))
        or sum(map(math.isinf, times)) > len(times) / 2
    ):
        raise UserError(f"a first record takes {FEWEST_SEEDS} seeds or more, of which at least half reach the target.")
    made |= {"seeds": str(len(runs)), "reached": str(int(np.isfinite(times).sum()))}
    made |= {"median_s": f"{np.median(times):.4g}", "machine": machine_of(runs[0]), "commit": first.git_commit or ""}
    made |= {"code": code, "sha256": sha256}
    (league / CODE).mkdir(exist_ok=True)
    with contextlib.suppress(shutil.SameFileError):
        shutil.copyfile(script, league / code)
    rows = pd.DataFrame([*history, made], columns=COLUMNS)
    replace_text(league / HISTORY, rows.to_csv(index=False, lineterminator="\n"))
    return made

"""A run as another tracker logged it, and the run folder that it becomes."""

import contextlib
import json
import math
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypedDict

from labkit import UserError, errors, json_data, runs, tracking

SEEDS = {"seed", "random_seed", "rng_seed", "manual_seed", "random_state", "seed_everything"}
"""Names of parameters that hold a seed; in `trainer.seed` and `trainer/seed` the last word counts"""
PLACES = {
    "run_name", "run_id", "exp_name", "name", "output_dir", "out_dir", "log_dir", "logdir", "save_dir", "logging_dir",
    "checkpoint_dir", "ckpt_dir", "timestamp", "date", "hostname",
}  # fmt: skip
"""Names of parameters that say where a run is kept, and so make no series of their own"""
LONGEST = 2000
"""Characters kept of a name or a setting"""
SINCE_NS, UNTIL_NS = 946_684_800 * 10**9, 4_102_444_800 * 10**9
"""The years 2000 and 2100: other times were never set, or are in another unit"""
ENDED_BY = {"done": "script", "failed": "error", "stopped": "stopped"}
UNKNOWN_END = "{} not say how a run ended, so it counts as cut off after its last point"
WORDS = {"true": True, "false": False, "none": None, "null": None}
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
EXPORTED = ("samples", "train_s")
"""Columns of ours that an export writes as metrics next to its evaluations"""


class Point(NamedTuple):
    """One logged number."""

    name: str
    step: int | None
    time_ns: int
    value: float


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


class _Aim(TypedDict):
    metric: str
    value: float | None
    higher_is_better: bool | None


class _Always(TypedDict):
    name: str
    seed: int | None
    clock_ns: int
    status: str


class _Ours(_Always, total=False):
    tier: str | None
    budget: str
    ended_by: str | None
    target: _Aim


@dataclass
class Logged:
    """A run as another tracker keeps it."""

    tool: str
    """Program and version, such as "MLflow 3.17.2\""""
    id: str
    """What the tracker calls it, and never calls another run"""
    name: str
    group: str
    """Experiment or project: its runs are one job's"""
    source: str
    """File, folder or address"""
    status: runs.Status
    began_ns: int | None
    """Start of the run; None where only its points have times"""
    ended_ns: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    points: list[Point] = field(default_factory=list)
    """Numbers of the training, in the order in which they were logged"""
    system: list[Point] = field(default_factory=list)
    """Counters of the machine"""
    in_order: bool = True
    """Whether the tracker keeps the order in which points were logged; otherwise they are sorted by time"""
    data: dict[str, str] | None = None
    """Name and fingerprint of the dataset"""
    host: str | None = None
    devices: list[str] = field(default_factory=list)
    """Names of the GPUs"""
    seed: int | None = None
    ours: dict[str, Any] = field(default_factory=dict)
    """What an export of labkit's noted of the run"""
    left_out: Counter[str] = field(default_factory=Counter)
    """What a run folder cannot hold, with how many of it there were"""
    notes: list[str] = field(default_factory=list)
    """What was changed or is doubtful"""

    def take(self, name: str, step: int | None, time_ns: int, value: Any) -> None:
        """Take a number of the training; anything else a run folder cannot hold, and it is counted by its kind."""
        if is_number(value):
            self.points.append(Point(name, step, time_ns, float(value)))
        else:
            kind = value.get("_type", "objects") if isinstance(value, dict) else "texts"
            self.left_out[re.sub(r"^trackio\.|-file$", "", str(kind))[:40]] += 1

    def take_sample(self, name: str, time_ns: int, value: Any) -> None:
        """Take a sample of a counter of the machine, if it is a number."""
        if is_number(value):
            self.system.append(Point(name, None, time_ns, float(value)))

    def take_ours(self, noted: Any) -> None:
        """Take what an export of labkit's noted of the run, if it is that."""
        try:
            json_data.check_shape(noted, _Ours)
        except ValueError:
            return
        self.ours, self.seed = noted, noted["seed"]
        self.name, self.began_ns = noted["name"], noted["clock_ns"]
        if noted["status"] in ENDED_BY:
            self.status = noted["status"]
            self.notes = [note for note in self.notes if "how a run ended" not in note]


@dataclass(frozen=True)
class Wishes:
    """What the user says of the runs that are imported."""

    target: tracking.Target | None = None
    seed_name: str | None = None
    """Parameter that holds the seed, where it has another name than SEEDS"""
    percent: tuple[str, ...] = ()
    """Metrics that were logged in per cent"""
    tier: str | None = None
    """Tier that prices the runs"""


def clean(text: object, longest: int = LONGEST) -> str:
    """Text from another program: one line without control characters, of bounded length, that files can hold."""
    one_line = CONTROL.sub(" ", str(text)).encode("utf-8", "replace").decode("utf-8").strip()
    return one_line if len(one_line) <= longest else one_line[: longest - 1] + "…"


def setting(value: Any) -> Any:
    """A parameter as JSON has it; text that is a number, true, false or none becomes that.

    >>> [setting(text) for text in ("0.1", "64", "True", "none", "adam", "nan", "1_000")]
    [0.1, 64, True, None, 'adam', 'nan', '1_000']
    """
    if isinstance(value, str):
        if value.lower() in WORDS:
            return WORDS[value.lower()]
        for kind in (int, float) if "_" not in value and len(value) < 25 else ():
            with contextlib.suppress(ValueError):
                number = kind(value)
                return number if abs(number) < 2**63 else value
        return clean(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return value if math.isfinite(value) and abs(value) < 2**63 else str(value)
    return clean(json.dumps(value, default=str).replace("\\u0000", " "))  # which a record may not hold, even in quotes


def flattened(config: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Nested settings by dotted names; an object with a `_type`, as W&B has them, is one value."""
    flat: dict[str, Any] = {}
    for name, value in config.items():
        is_nested = isinstance(value, dict) and value and "_type" not in value
        flat |= flattened(value, f"{before}{name}.") if is_nested else {f"{before}{name}": value}
    return flat


def refuse_without_times(logged: Logged) -> None:
    everything = [*logged.points, *logged.system]
    if not everything:
        raise UserError(f"run {clean(logged.name, 80)!r} of {logged.source} logged no numbers.")
    if unset := sum(not SINCE_NS < point.time_ns < UNTIL_NS for point in everything):
        raise UserError(
            f"run {clean(logged.name, 80)!r} of {logged.source}: {unset} of {len(everything)} points are from before "
            "2000 or after 2100, so its times are wrong: log it with times in milliseconds since 1970."
        )


def began_of(logged: Logged) -> int:
    """The start of the run's clock, which is no later than its first point."""
    times = [point.time_ns for point in logged.points or logged.system]
    if logged.began_ns is not None and SINCE_NS < logged.began_ns < UNTIL_NS:
        times.append(logged.began_ns)
    return min(times, default=0)


def scaled(points: list[Point], percent: tuple[str, ...]) -> list[Point]:
    """The points with names that files can hold, and shares where the user says per cent."""
    names = {name: clean(name, 200) for name in {point.name for point in points}}
    return [
        Point(names[name], step, time_ns, value / 100 if name in percent else value)
        for name, step, time_ns, value in points
    ]


def in_order_of_time(points: list[Point], logged: Logged) -> list[Point]:
    """The points in order of time, with steps; a clock that jumped back goes on from where it was."""
    if not logged.in_order:
        points = sorted(points, key=lambda point: (point.time_ns, point.step or 0))
    jumps, behind_ns, last_ns, ordered = 0, 0, 0, []
    for point in points:
        if point.time_ns + behind_ns < last_ns - 10**9:  # several threads may log out of turn by less
            jumps, behind_ns = jumps + 1, last_ns - point.time_ns
        last_ns = max(last_ns, point.time_ns + behind_ns)
        ordered.append(point._replace(time_ns=point.time_ns + behind_ns))
    if jumps:
        logged.notes.append(f"its clock went back {jumps} times; its times go on from there")
        ordered.sort(key=lambda point: point.time_ns)
    steps: dict[str, set[int | None]] = defaultdict(set)
    for point in ordered:
        steps[point.name].add(point.step)
    counts = Counter(point.name for point in ordered)
    numbered = {name for name, own in steps.items() if None in own or (own == {0} and counts[name] > 1)}
    if not numbered:
        return ordered
    logged.notes.append(f"{len(numbered)} of its metrics had no steps, or only step 0: their points are counted")
    count: Counter[str] = Counter()
    for place, point in enumerate(ordered):
        if point.name in numbered:
            ordered[place] = point._replace(step=count[point.name])
            count[point.name] += 1
    return ordered


def refuse_unknown_metric(target: tracking.Target | None, names: set[str]) -> None:
    """Refuse a target whose metric none of the runs logged."""
    if target is None or target.metric.name in names or (target.metric.name == "validation_loss" and "loss" in names):
        return
    near = errors.nearest(target.metric.name, names)
    some = ", ".join(sorted(clean(name, 60) for name in names)[:20])
    raise UserError(
        f"--target: none of these runs logged {target.metric.name!r}. {near}They logged {some or 'nothing'}."
    )

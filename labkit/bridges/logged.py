"""A run as another tracker logged it."""

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypedDict

from labkit import UserError, errors, json_data, runs, tracking

LONGEST = 2000
"""Characters kept of a name or a setting"""
ENDED_BY = {"done": "script", "failed": "error", "stopped": "stopped"}
UNKNOWN_END = "{} not say how a run ended, so it counts as cut off after its last point"
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
    status: runs.Status = "interrupted"
    """Interrupted unless the tracker says how the run ended"""
    began_ns: int | None = None
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


def flattened(config: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Nested settings by dotted names; an object with a `_type`, as W&B has them, is one value."""
    flat: dict[str, Any] = {}
    for name, value in config.items():
        is_nested = isinstance(value, dict) and value and "_type" not in value
        flat |= flattened(value, f"{before}{name}.") if is_nested else {f"{before}{name}": value}
    return flat


def refuse_unknown_metric(target: tracking.Target | None, names: set[str]) -> None:
    """Refuse a target whose metric none of the runs logged."""
    if target is None or target.metric.name in names or (target.metric.name == "validation_loss" and "loss" in names):
        return
    near = errors.nearest(target.metric.name, names)
    some = ", ".join(sorted(clean(name, 60) for name in names)[:20])
    raise UserError(
        f"--target: none of these runs logged {target.metric.name!r}. {near}They logged {some or 'nothing'}."
    )

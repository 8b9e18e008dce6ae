"""Two profiles side by side: which operators make one step faster than the other."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from labkit.profiling.profile import Profile


@dataclass(frozen=True)
class Comparison:
    """How the steps of two runs differ."""

    before: Profile
    after: Profile

    @cached_property
    def operators(self) -> pd.DataFrame:
        """Columns operator, calls_before, calls_after, before_us, after_us, difference_us (of one step), the largest
        difference first; one that only one of them has counts as zero in the other. The differences add up to
        `total_us`."""
        return _joined(self.before.time.operators, self.after.time.operators, "operator", "self_us", "calls")

    @cached_property
    def phases(self) -> pd.DataFrame:
        """Columns phase, before_us, after_us, difference_us, which add up, too."""
        return _joined(self.before.phases, self.after.phases, "phase", "time_us")

    @property
    def before_us(self) -> float:
        return self.before.time.step_us

    @property
    def after_us(self) -> float:
        return self.after.time.step_us

    @property
    def total_us(self) -> float:
        """By how much the second step is longer."""
        return self.after_us - self.before_us

    def headline(self) -> str:
        """The difference in a sentence; of steps of several sizes, by their samples."""
        before, after = self.before.samples, self.after.samples
        ratio, unit = self.before_us / self.after_us, ""
        if None not in (before, after) and before != after:
            ratio, unit = ratio * after / before, f" by the sample (a step has {before:,} and {after:,} of them)"
        how = f"{ratio:.3g} times as fast" if ratio >= 1 else f"{1 / ratio:.3g} times as slow"
        steps = f"From {self.before_us / 1e3:.4g} to {self.after_us / 1e3:.4g} ms a step, both profiled"
        said = f"{steps}: {self.after.folder.name} is {how} as {self.before.folder.name}{unit}."
        told = [
            f"{what} {one} and {other}"
            for (what, one), (_, other) in zip(_circumstances(self.before), _circumstances(self.after), strict=True)
            if one != other
        ]
        return said + (f" They differ otherwise, too: {'; '.join(told)}." if told else "")

    def to_dict(self) -> dict[str, Any]:
        return {
            "before": self.before.folder.name,
            "after": self.after.folder.name,
            "before_us": self.before_us,
            "after_us": self.after_us,
            "samples": (self.before.samples, self.after.samples),
            "difference_us": self.total_us,
            "operators": self.operators.to_dict("records"),
            "phases": self.phases.to_dict("records"),
        }


def compare(before: Profile, after: Profile) -> Comparison:
    """Match the operators of two profiles by name."""
    return Comparison(before, after)


def _circumstances(profile: Profile) -> list[tuple[str, Any]]:
    recorded = " and ".join(name for name in ("shapes", "memory") if getattr(profile.settings, name)) or "times alone"
    card = profile.card
    return [("on", card.device), ("threads", card.threads), ("times", profile.provenance), ("recorded with", recorded)]


def _joined(before: pd.DataFrame, after: pd.DataFrame, key: str, time: str, *more: str) -> pd.DataFrame:
    columns = [key, time, *more]
    both = before[columns].merge(after[columns], on=key, how="outer", suffixes=("_before", "_after")).fillna(0.0)
    both = both.rename(columns={f"{time}_before": "before_us", f"{time}_after": "after_us"})
    both["difference_us"] = both["after_us"] - both["before_us"]
    return both.sort_values("difference_us", key=abs, ascending=False, kind="stable", ignore_index=True)

"""Two profiles side by side: which operators make one step faster than the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from labkit.profiling.profile import Profile


@dataclass(frozen=True)
class Comparison:
    """How the steps of two runs differ."""

    names: tuple[str, str]
    """Of the runs"""
    operators: pd.DataFrame
    """Columns operator, calls_before, calls_after, before_us, after_us, difference_us (of one step); the largest
    difference first. The differences add up to `total_us`"""
    phases: pd.DataFrame
    """Columns phase, before_us, after_us, difference_us, which add up, too"""
    before_us: float
    after_us: float
    samples: tuple[int | None, int | None] = (None, None)
    """Of a step of each; None where it is not known"""
    warning: str = ""
    """What else differs between them: where they ran"""

    @property
    def total_us(self) -> float:
        """By how much the second step is longer."""
        return self.after_us - self.before_us

    def headline(self) -> str:
        """The difference in a sentence; of steps of several sizes, by their samples."""
        steps = f"From {self.before_us / 1e3:.4g} to {self.after_us / 1e3:.4g} ms a step, both profiled: "
        before, after = self.samples
        ratio, unit = self.before_us / self.after_us, ""
        if None not in self.samples and before != after:
            ratio, unit = ratio * after / before, f" by the sample (a step has {before:,} and {after:,} of them)"
        how = f"{ratio:.3g} times as fast" if ratio >= 1 else f"{1 / ratio:.3g} times as slow"
        return f"{steps}{self.names[1]} is {how} as {self.names[0]}{unit}.{self.warning}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "before": self.names[0],
            "after": self.names[1],
            "before_us": self.before_us,
            "after_us": self.after_us,
            "samples": self.samples,
            "difference_us": self.total_us,
            "operators": self.operators.to_dict("records"),
            "phases": self.phases.to_dict("records"),
        }


def compare(before: Profile, after: Profile) -> Comparison:
    """Match the operators of two profiles by name; one that only one of them has counts as zero in the other."""
    operators = _joined(before.time.operators, after.time.operators, "operator", "self_us", "calls")
    phases = _joined(before.phases, after.phases, "phase", "time_us")
    names = before.folder.name, after.folder.name
    told = [
        f"{what} {one} and {other}"
        for what, one, other in (
            ("on", before.card.device, after.card.device),
            ("threads", before.card.threads, after.card.threads),
            ("times", before.provenance, after.provenance),
            ("recorded with", _recorded(before), _recorded(after)),
        )
        if one != other
    ]
    warning = f" They differ otherwise, too: {'; '.join(told)}." if told else ""
    samples = before.samples, after.samples
    return Comparison(names, operators, phases, before.time.step_us, after.time.step_us, samples, warning)


def _recorded(profile: Profile) -> str:
    """What makes its profiler more or less costly."""
    asked = [name for name in ("shapes", "memory") if getattr(profile.settings, name)]
    return " and ".join(asked) or "times alone"


def _joined(before: pd.DataFrame, after: pd.DataFrame, key: str, time: str, *more: str) -> pd.DataFrame:
    columns = [key, time, *more]
    both = before[columns].merge(after[columns], on=key, how="outer", suffixes=("_before", "_after")).fillna(0.0)
    both = both.rename(columns={f"{time}_before": "before_us", f"{time}_after": "after_us"})
    both["difference_us"] = both["after_us"] - both["before_us"]
    return both.sort_values("difference_us", key=abs, ascending=False, kind="stable", ignore_index=True)

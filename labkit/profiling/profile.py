"""A profiled run, read back: its trace, what its steps took, the machine's card, and what to change."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from labkit.errors import DataError, UserError
from labkit.hardware import Calibration
from labkit.json_data import read_json
from labkit.profiling.diagnosis.case import Case, Faults, Finding, GpuTime
from labkit.profiling.diagnosis.rules import diagnose
from labkit.profiling.recording.settings import ProfileSettings
from labkit.profiling.step_time import OWN_IDLENESS, StepTime, step_time
from labkit.profiling.traces.device_time import device_breakdown, launched_directly_us, launched_us
from labkit.profiling.traces.trace import Trace, read_trace
from labkit.profiling.work import operators_at_work
from labkit.runs import read_run, replace_text

if TYPE_CHECKING:
    import pandas as pd

KINETO, GRAPH, FACTS, CARD = "kineto.json.gz", "graph.json.gz", "profile.json", "card.json"
"""Files of a run's `trace/`: the trace, the graph of operators, what belongs to both, and the machine's card."""


class ProfileFacts(TypedDict):
    """What readers rely on of `profile.json`."""

    settings: ProfileSettings
    device: str
    phases_us: list[dict[str, tuple[float, float]]]
    """Of each step, by phase: wall time, and time in which it had a core"""
    unprofiled_step_us: list[float]
    fault_cost_us: float | None
    unprofiled_faults: list[float]
    phase_faults: list[dict[str, float]]


DONE_BY = {"aten::convolution": "aten::mkldnn_convolution", "aten::embedding": "aten::index_select"}
"""Operators whose formula has another name than the one in which the time is spent."""
WORTH_A_POINT = 0.005
"""Share of the time; what an operator that took less achieved says little."""


@dataclass(frozen=True)
class Profile:
    """What was recorded of a run's steps."""

    folder: Path
    facts: ProfileFacts
    card: Calibration
    """What the machine can do, measured right after the steps"""
    provenance: str
    """Of its times: "measured", or "emulated" under a budget smaller than the machine"""
    samples: int | None = None
    """Of one step; None where it is not known"""

    @cached_property
    def trace(self) -> Trace:
        return read_trace(self.folder / "trace" / KINETO)

    @cached_property
    def time(self) -> StepTime:
        return step_time(self.trace, steps=len(self.facts["phases_us"]))

    @property
    def settings(self) -> ProfileSettings:
        return ProfileSettings(**self.facts["settings"])

    @property
    def unprofiled_step_us(self) -> float | None:
        """Median of the steps before the profiler started; None where there were none."""
        times = self.facts["unprofiled_step_us"]
        return self._middle(times) if times else None

    @property
    def overhead(self) -> float | None:
        """A profiled step's time over that of an unprofiled one, both medians, or on a GPU both means."""
        return self._middle(self.time.lengths_us) / self.unprofiled_step_us if self.unprofiled_step_us else None

    def _middle(self, times: list[float]) -> float:
        # a GPU ends the steps later than the host, which waits for it once for all of them
        return (median if self.facts["device"] == "cpu" else mean)(times)

    @cached_property
    def faults(self) -> Faults | None:
        """Minor page faults of a step; None where they were not counted."""
        plain, phases, cost_us = (self.facts[name] for name in ("unprofiled_faults", "phase_faults", "fault_cost_us"))
        if not plain or not phases or cost_us is None:
            return None
        by_phase: Counter[str] = sum(map(Counter, phases), Counter())
        return Faults(median(plain), {name: count / len(phases) for name, count in by_phase.items()}, cost_us)

    @property
    def headline(self) -> str:
        """What a step takes, in a sentence."""
        cost = ""
        if self.unprofiled_step_us:
            more = self.overhead - 1
            cost = f"looking costs {more:.0%} (medians)" if more > 0 else "what looking costs is lost in the noise"
            cost = f"; unprofiled it took {self.unprofiled_step_us / 1e3:.4g} ms: {cost}"
        threads = f"{self.card.threads} thread{'s' * (self.card.threads > 1)}"
        return (
            f"A step takes {self.time.step_us / 1e3:.4g} ms ({self.provenance}, mean of {self.time.steps} profiled "
            f"steps on {self.card.device}, {threads}{cost})."
        )

    @cached_property
    def idle_us(self) -> float:
        """Of one step, in which no thread of the process had a core, outside of input and sync; on a GPU it is not
        told from waiting for the GPU, and 0."""
        steps = self.facts["phases_us"]
        if self.facts["device"] != "cpu" or not steps:
            return 0.0
        timed = (times for step in steps for phase, times in step.items() if phase not in OWN_IDLENESS)
        return sum(max(0.0, wall - busy) for wall, busy in timed) / len(steps)

    @property
    def phases(self) -> pd.DataFrame:
        """Columns phase, time_us (of one step), share; the times add up to the step."""
        return self.time.phases(self.idle_us)

    @cached_property
    def device(self) -> pd.DataFrame:
        """How a GPU spent the steps (`device_breakdown`); empty without one."""
        return device_breakdown(self.trace)

    @cached_property
    def operators(self) -> pd.DataFrame:
        """Operators of a step, dearest first, with what they did.

        Columns operator, calls, self_us, share (of the step), gflop_per_s, gb_per_s (NaN where no formula is known or
        no shapes were recorded), of_peak (achieved over the nearer of the machine's two limits); with a GPU also
        device_us (of the kernels that it launched itself), by which they are sorted then.
        """
        import pandas as pd

        done = operators_at_work(self.trace).replace({"operator": DONE_BY})
        sums = done.groupby("operator", as_index=False)[["time_us", "flop", "bytes"]].sum()
        frame = self.time.operators.merge(sums, on="operator", how="left")
        frame["gflop_per_s"], frame["gb_per_s"] = (frame[name] / frame["time_us"] / 1e3 for name in ("flop", "bytes"))
        frame = frame.drop(columns=["time_us", "flop", "bytes"])
        of_arithmetic = frame["gflop_per_s"] / max(self.card.fp32_gflops, self.card.bf16_gflops)
        with np.errstate(invalid="ignore"):  # of NaN, where nothing is known
            frame["of_peak"] = np.fmax(of_arithmetic, frame["gb_per_s"] / self.card.bandwidth_gb_per_s)
        if self.trace.kernels.empty:
            return frame
        events = self.time.events
        kernels_us = launched_directly_us(self.trace)[events["row"].to_numpy()] / self.time.steps
        by_name = pd.Series(kernels_us).groupby(events["name"].astype(str).to_numpy()).sum()
        frame["device_us"] = frame["operator"].map(by_name).fillna(0.0)
        return frame.sort_values(["device_us", "self_us"], ascending=False, ignore_index=True)

    @cached_property
    def work(self) -> tuple[float, float]:
        """GFLOP/s and GB/s of the whole step, of the operators that have a formula."""
        done = operators_at_work(self.trace)
        return tuple(float(done[name].sum() / self.time.total_us / 1e3) for name in ("flop", "bytes"))

    @cached_property
    def findings(self) -> list[Finding]:
        """What to change, the most promising first."""
        device = None
        if len(self.device):
            busiest = self.device.loc[self.device["compute_us"].idxmax()]
            busy_us = (busiest["span_us"] - busiest["idle_us"]) / self.time.steps
            device = GpuTime(
                idle_us=max(0.0, self.time.step_us - busy_us),
                copy_us=busiest["non_compute_us"] / self.time.steps,
                launched_us=launched_us(self.trace)[self.time.events["row"].to_numpy()],
            )
        return diagnose(Case(self.time, self.card, self.idle_us, device, self.overhead or 1.0, self.faults))

    @property
    def limits(self) -> str:
        """What the machine can do, in words."""
        fp32, bf16, bandwidth = self.card.fp32_gflops, self.card.bf16_gflops, self.card.bandwidth_gb_per_s
        return f"{fp32:,.0f} GFLOP/s in fp32, {bf16:,.0f} in bf16, {bandwidth:.3g} GB/s"

    def to_dict(self) -> dict[str, Any]:
        """The answer for programs; a figure that is not known is null."""
        operators = self.operators.astype(object).where(self.operators.notna(), None)
        gflops, gb = self.work
        return {
            "run": self.folder.name,
            "folder": str(self.folder),
            "step_us": self.time.step_us,
            "steps": self.time.steps,
            "unprofiled_step_us": self.unprofiled_step_us,
            "overhead": self.overhead,
            "page_faults": self.faults and asdict(self.faults),
            "phases": self.phases.to_dict("records"),
            "device": self.device.to_dict("records"),
            "operators": operators.to_dict("records"),
            "gflop_per_s": gflops,
            "gb_per_s": gb,
            "card": asdict(self.card),
            "findings": [asdict(finding) | {"bound": min(finding.bound, 1e9)} for finding in self.findings],
        }


def read_profile(folder: Path | str) -> Profile:
    """Read what was recorded into a run's folder; a UserError where it was not, was cut short, or is damaged."""
    folder = Path(folder)
    record = read_run(folder)
    if record.status == "failed":
        why = (record.result or {}).get("reason", "")
        raise UserError(
            f"{folder}: this run failed ({why}), so nothing is said of its steps: mend that, and profile again."
        )
    if not record.profiled:
        raise UserError(f"{folder}: this run was not profiled: `labkit profile dlrm` makes one that is.")
    if (tool := record.config["profile"].get("tool", "torch")) != "torch":
        raise UserError(f"{folder}: this run was profiled by {tool}; only --tool torch records its operators.")
    place, fix = folder / "trace", "Profile again."
    for name in (KINETO, FACTS, CARD):
        if not (place / name).is_file():
            raise UserError(
                f"{place / name}: the profile was cut short before this was written ({record.status}): profile again, "
                "with fewer steps before those that are recorded (--skip, --warmup)."
            )
    facts = read_json(place / FACTS, ProfileFacts, fix=fix)
    try:
        card = Calibration(**read_json(place / CARD, Calibration, fix=fix))
        if min(card.fp32_gflops, card.bf16_gflops, card.bandwidth_gb_per_s) <= 0:
            raise TypeError("a machine that computes or copies nothing")
    except TypeError as error:
        raise DataError(f"this card is damaged ({error}).", file=place / CARD, fix=fix) from error
    samples = record.config.get("train", {}).get("batch_size")
    return Profile(folder, facts, card, record.provenance.kind, samples)


def roofline_frames(profile: Profile) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The operators of a profile with shapes, those that take the longest, for `labkit.plots.roofline.figure_roofline`.

    Returns:
        roofs: columns name, provenance, peak_gflops, bandwidth_gb_per_s: one in fp32 and one in bf16.
        marks: columns name, provenance, flop_per_byte, gflops; an operator without arithmetic has no place.
    """
    import pandas as pd

    card = profile.card
    roofs = pd.DataFrame({"name": ["fp32", "bf16"], "peak_gflops": [card.fp32_gflops, card.bf16_gflops]})
    done = operators_at_work(profile.trace)
    done = done[(done["flop"] > 0) & (done["time_us"] > WORTH_A_POINT * profile.time.total_us)].head(12)
    marks = done.rename(columns={"operator": "name", "gflop_per_s": "gflops"})[["name", "flop_per_byte", "gflops"]]
    roofs["bandwidth_gb_per_s"] = card.bandwidth_gb_per_s
    return roofs.assign(provenance=profile.provenance), marks.assign(provenance=profile.provenance)


def save_card(folder: Path, card: Calibration) -> None:
    """Keep the machine's card beside a run's trace."""
    replace_text(folder / "trace" / CARD, json.dumps(asdict(card), indent=1) + "\n")

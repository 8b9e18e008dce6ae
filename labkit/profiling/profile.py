"""A profiled run, read back: its trace, its steps, the machine's limits, what to change; and two runs compared."""

import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import mean, median
from typing import Any, TypedDict

import numpy as np
import pandas as pd

from labkit import DataError, UserError, hardware, json_data, runs, tracking
from labkit.profiling.case import Case, Faults, Finding, GpuTime
from labkit.profiling.over_time import device_breakdown, launched_directly_us, launched_us, operators_at_work
from labkit.profiling.rules import diagnose
from labkit.profiling.step_time import OWN_IDLENESS, STEP, StepTime, step_time
from labkit.profiling.tools import FACTS, KINETO, LIMITS, ProfileSettings
from labkit.profiling.trace import Trace, read_trace


class ProfileFacts(TypedDict):
    """The part of `profile.json` that readers rely on."""

    settings: ProfileSettings
    device: str
    phases_us: list[dict[str, tuple[float, float]]]
    """Wall time and CPU time of each step, by phase"""
    unprofiled_step_us: list[float]
    fault_cost_us: float | None
    unprofiled_faults: list[float]
    phase_faults: list[dict[str, float]]


DONE_BY = {"aten::convolution": "aten::mkldnn_convolution", "aten::embedding": "aten::index_select"}
"""Operators with a formula, and the operators that they call to do the work."""
WORTH_A_POINT = 0.005
"""Least share of the time for a point on the roofline."""


@dataclass(frozen=True)
class Profile:
    """The profile of a run's steps, or of a trace file alone."""

    folder: Path
    """The run's folder, or the trace file"""
    facts: ProfileFacts
    limits: "hardware.Calibration | None"
    """The machine's limits, measured right after the steps; None of a trace file, which does not know them"""
    provenance: str
    """Origin of the times: "measured", "emulated" under a budget smaller than the machine, or "recorded" in a file"""
    samples: int | None = None
    """Samples per step; None if unknown"""

    @cached_property
    def trace(self) -> Trace:
        if self.limits is None:
            return replace(read_trace(self.folder), may_lack_steps=True)
        return read_trace(self.folder / "trace" / KINETO)

    @cached_property
    def time(self) -> StepTime:
        return step_time(self.trace, steps=len(self.facts["phases_us"]) or None, idle_us=self.idle_us)

    @property
    def settings(self) -> ProfileSettings:
        if self.limits is None:
            has_shapes = any(inputs.shapes for inputs in self.trace.events["inputs"])
            return ProfileSettings(shapes=has_shapes, memory=not self.trace.allocations.empty)
        return ProfileSettings(**self.facts["settings"])  # ty: ignore[invalid-argument-type]  # the fields as JSON

    @property
    def unprofiled_step_us(self) -> float | None:
        """Median time of the steps before the profiler started; None without such steps."""
        times = self.facts["unprofiled_step_us"]
        return self._middle(times) if times else None

    @property
    def overhead(self) -> float | None:
        """Time of a profiled step over that of an unprofiled one; both are medians, or means on a GPU."""
        lengths_us = self.time.segments.groupby("step")["us"].sum().tolist()
        return self._middle(lengths_us) / self.unprofiled_step_us if self.unprofiled_step_us else None

    def _middle(self, times: list[float]) -> float:
        # a GPU finishes its steps after the host, which waits for it only once, at their end
        return (median if self.facts["device"] == "cpu" else mean)(times)

    @cached_property
    def faults(self) -> Faults | None:
        """Minor page faults of a step; None if they were not counted."""
        plain, phases = self.facts["unprofiled_faults"], self.facts["phase_faults"]
        cost_us = self.facts["fault_cost_us"]
        if not plain or not phases or cost_us is None:
            return None
        by_phase: Counter[str] = sum(map(Counter, phases), Counter())
        return Faults(median(plain), {name: count / len(phases) for name, count in by_phase.items()}, cost_us)

    @property
    def headline(self) -> str:
        """The time of a step, as a sentence."""
        if self.limits is None:
            of, steps = f"{self.time.step_us / 1e3:.4g} ms", self.time.steps
            events = self.trace.events
            is_step = events["name"].astype(str).str.startswith(STEP) & (events["category"] == "user_annotation")
            lanes = events["lane"][is_step].astype(str)
            if lanes.empty:
                return f"The recording takes {of} ({self.provenance}); it has no steps, so it is shown as one."
            count = lanes.str.rpartition("/")[0].nunique()
            more = f" The file has steps of {count} processes: these are of the first." if count > 1 else ""
            return f"A step takes {of} ({self.provenance}, mean of {steps} step{'s' * (steps > 1)} of a trace).{more}"
        cost = ""
        if self.unprofiled_step_us and self.overhead:
            more = self.overhead - 1
            cost = f"profiling costs {more:.0%} (medians)" if more > 0 else "the cost of profiling is within the noise"
            cost = f"; unprofiled it took {self.unprofiled_step_us / 1e3:.4g} ms: {cost}"
        threads = f"{self.limits.threads} thread{'s' * (self.limits.threads > 1)}"
        return (
            f"A step takes {self.time.step_us / 1e3:.4g} ms ({self.provenance}, mean of {self.time.steps} profiled "
            f"steps on {self.limits.device}, {threads}{cost})."
        )

    @cached_property
    def idle_us(self) -> float:
        """Time of a step in which no thread of the process had a core, outside of input and sync; 0 on a GPU, where it
        cannot be distinguished from waiting for the GPU."""
        steps = self.facts["phases_us"]
        if self.facts["device"] != "cpu" or not steps:
            return 0.0
        timed = (times for step in steps for phase, times in step.items() if phase not in OWN_IDLENESS)
        return sum(max(0.0, wall - busy) for wall, busy in timed) / len(steps)

    @property
    def phases(self) -> pd.DataFrame:
        """Columns phase, time_us (of one step), share; the times add up to the step."""
        return self.time.phases

    @cached_property
    def device(self) -> pd.DataFrame:
        """How a GPU spent the steps (`device_breakdown`); empty without one."""
        return device_breakdown(self.trace)

    @cached_property
    def operators(self) -> pd.DataFrame:
        """Operators of a step and their speeds, most expensive first.

        Columns operator, calls, self_us, share (of the step), gflop_per_s, gb_per_s (NaN without a formula or without
        recorded shapes), of_peak (share of the nearer of the machine's two limits); with a GPU also device_us (of the
        kernels that it launched itself), which then sorts them.
        """
        done = operators_at_work(self.trace).replace({"operator": DONE_BY})
        sums = done.groupby("operator", as_index=False)[["time_us", "flop", "bytes"]].sum()
        frame = self.time.operators.merge(sums, on="operator", how="left")
        frame["gflop_per_s"], frame["gb_per_s"] = (frame[name] / frame["time_us"] / 1e3 for name in ("flop", "bytes"))
        frame = frame.drop(columns=["time_us", "flop", "bytes"])
        frame["of_peak"] = np.nan
        if (limits := self.limits) is not None:
            of_arithmetic = frame["gflop_per_s"] / max(limits.fp32_gflops, limits.bf16_gflops)
            with np.errstate(invalid="ignore"):  # NaN where nothing is known
                frame["of_peak"] = np.fmax(of_arithmetic, frame["gb_per_s"] / limits.bandwidth_gb_per_s)
        if not self.trace.is_of_gpu:
            return frame
        events = self.time.events
        kernels_us = launched_directly_us(self.trace)[events["row"].to_numpy()] / self.time.steps
        by_name = pd.Series(kernels_us).groupby(events["name"].astype(str).to_numpy()).sum()
        frame["device_us"] = frame["operator"].map(by_name).fillna(0.0)
        return frame.sort_values(["device_us", "self_us"], ascending=False, ignore_index=True)

    @cached_property
    def work(self) -> tuple[float, float]:
        """GFLOP/s and GB/s of the whole step, counting operators that have a formula."""
        done = operators_at_work(self.trace)
        flop, moved = (float(done[name].sum() / self.time.total_us / 1e3) for name in ("flop", "bytes"))
        return flop, moved

    @cached_property
    def findings(self) -> list[Finding]:
        """What to change, most promising first; nothing without the machine's limits."""
        device = None
        if self.limits is None:
            return []
        if len(self.device):
            busiest = self.device.loc[self.device["compute_us"].idxmax()]
            busy_us = (busiest["span_us"] - busiest["idle_us"]) / self.time.steps
            device = GpuTime(
                idle_us=max(0.0, self.time.step_us - busy_us),
                copy_us=busiest["non_compute_us"] / self.time.steps,
                launched_us=launched_us(self.trace)[self.time.events["row"].to_numpy()],
            )
        return diagnose(Case(self.time, self.limits, device, self.overhead or 1.0, self.faults))

    @property
    def limits_text(self) -> str:
        """The machine's limits, as text."""
        if self.limits is None:
            return "unknown: a trace does not have them"
        fp32, bf16, bandwidth = self.limits.fp32_gflops, self.limits.bf16_gflops, self.limits.bandwidth_gb_per_s
        return f"{fp32:,.0f} GFLOP/s in fp32, {bf16:,.0f} in bf16, {bandwidth:.3g} GB/s"

    def to_dict(self) -> dict[str, Any]:
        """The answer for programs; an unknown figure is null."""
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
            "card": self.limits and asdict(self.limits),
            "unused_events": self.trace.unused,
            "findings": [asdict(finding) | {"bound": min(finding.bound, 1e9)} for finding in self.findings],
        }


def profile_steps(
    step: Callable[[], object],
    runs_dir: Path | str,
    *,
    name: str = "steps",
    limits: "hardware.Calibration | None" = None,
    device: str = "cpu",
    **settings: Any,
) -> Profile:
    """Call a step as often as its profile needs, and record it into a run folder.

    Args:
        step: takes one step; the phases that it names with `labkit.tracking.phase` are distinguished.
        runs_dir: folder for the run's folder.
        name: name of the run.
        limits: the machine's limits; None measures them, which takes a second or two.
        device: device that computes.
        settings: fields of `ProfileSettings`.
    """
    import torch  # which reading a profile does not take

    from labkit.profiling.capture import StepRecorder, save_limits

    recorder = StepRecorder(ProfileSettings(**settings))
    on = torch.device(device)
    budget = tracking.whole_device(f"cuda:{on.index or 0}" if on.type == "cuda" else "cpu")
    command = tracking.ScriptCommand(runs_dir=str(runs_dir), budget=budget)
    harness = tracking.Harness(tracking.StopRequest(), command, observer=recorder)
    phases = tracking.watched_by(recorder.clock.watch)
    with contextlib.suppress(tracking.Enough), harness.wrapped(), phases, tracking.Run(name) as run:
        run.start_clock()
        while True:
            step()
            run.step(samples=0)
    save_limits(run.folder, limits or hardware.calibrate(device, repeats=3))
    return read_profile(run.folder)


def read_profile(folder: Path | str) -> Profile:
    """Read the profile in a run's folder, or in a trace file; a UserError if it is missing, cut short or damaged."""
    folder = Path(folder)
    if folder.is_file():
        unknown = ProfileFacts(settings=ProfileSettings(), device="cpu", phases_us=[], unprofiled_step_us=[],
                               fault_cost_us=None, unprofiled_faults=[], phase_faults=[])  # fmt: skip
        return Profile(folder, unknown, None, "recorded")
    record = runs.read_run(folder)
    if record.status == "failed":
        why = (record.result or {}).get("reason", "")
        raise UserError(f"{folder}: this run failed ({why}), so its steps are not analysed: fix it, and profile again.")
    if not record.profiled:
        raise UserError(f"{folder}: this run was not profiled: profile one, for example with `labkit profile dlrm`.")
    if (tool := record.config["profile"].get("tool", "torch")) != "torch":
        raise UserError(f"{folder}: this run was profiled by {tool}, without operators: profile one with --tool torch.")
    place, fix = folder / "trace", "Profile again."
    for name in (KINETO, FACTS, LIMITS):
        if not (place / name).is_file():
            raise UserError(
                f"{place / name}: the profile was cut short before this file was written ({record.status}): profile "
                "again, with fewer steps before the recorded ones (--skip, --warmup)."
            )
    facts = json_data.read_json(place / FACTS, ProfileFacts, fix=fix)
    try:
        limits = hardware.Calibration(**json_data.read_json(place / LIMITS, hardware.Calibration, fix=fix))
        if min(limits.fp32_gflops, limits.bf16_gflops, limits.bandwidth_gb_per_s) <= 0:
            raise TypeError("a speed of zero")
    except TypeError as error:
        raise DataError(f"this file is damaged ({error}).", file=place / LIMITS, fix=fix) from error
    samples = record.config.get("train", {}).get("batch_size")
    return Profile(folder, facts, limits, record.provenance.kind, samples)


def roofline_frames(profile: Profile) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The longest operators of a profile with shapes, for `labkit.plots.figure_roofline`.

    Returns:
        roofs: columns name, provenance, peak_gflops, bandwidth_gb_per_s: one row for fp32 and one for bf16.
        marks: columns name, provenance, flop_per_byte, gflops; operators without arithmetic are omitted.
    """
    limits = profile.limits
    if limits is None:
        raise UserError(f"{profile.folder}: a roofline needs the machine's limits, which a trace file does not have.")
    roofs = pd.DataFrame({"name": ["fp32", "bf16"], "peak_gflops": [limits.fp32_gflops, limits.bf16_gflops]})
    done = operators_at_work(profile.trace)
    done = done[(done["flop"] > 0) & (done["time_us"] > WORTH_A_POINT * profile.time.total_us)].head(12)
    marks = done.rename(columns={"operator": "name", "gflop_per_s": "gflops"})[["name", "flop_per_byte", "gflops"]]
    roofs["bandwidth_gb_per_s"] = limits.bandwidth_gb_per_s
    return roofs.assign(provenance=profile.provenance), marks.assign(provenance=profile.provenance)


@dataclass(frozen=True)
class Comparison:
    """The difference between the steps of two runs."""

    before: Profile
    after: Profile

    @cached_property
    def operators(self) -> pd.DataFrame:
        """Columns operator, calls_before, calls_after, before_us, after_us, difference_us (per step), largest
        difference first; an operator of only one run counts as zero in the other. The differences add up to
        `total_us`."""
        return _joined(self.before.time.operators, self.after.time.operators, "operator", "self_us", "calls")

    @cached_property
    def phases(self) -> pd.DataFrame:
        """Columns phase, before_us, after_us, difference_us; the differences add up as well."""
        return _joined(self.before.phases, self.after.phases, "phase", "time_us")

    @property
    def total_us(self) -> float:
        """The second step's time minus the first one's."""
        return self.after.time.step_us - self.before.time.step_us

    def headline(self) -> str:
        """The difference as a sentence; per sample where the steps differ in size."""
        before, after = self.before.samples, self.after.samples
        before_us, after_us = self.before.time.step_us, self.after.time.step_us
        ratio, unit = before_us / after_us, ""
        if before is not None and after is not None and before != after:
            ratio, unit = ratio * after / before, f" per sample (the steps have {before:,} and {after:,})"
        how = f"{ratio:.3g} times as fast" if ratio >= 1 else f"{1 / ratio:.3g} times as slow"
        steps = f"From {before_us / 1e3:.4g} to {after_us / 1e3:.4g} ms per step, both profiled"
        said = f"{steps}: {self.after.folder.name} is {how} as {self.before.folder.name}{unit}."
        was, now = map(_circumstances, (self.before, self.after))
        others = [f"{what} {was[what]} and {now[what]}" for what in was if was[what] != now[what]]
        return said + (f" Other differences: {'; '.join(others)}." if others else "")

    def to_dict(self) -> dict[str, Any]:
        return {
            "before": self.before.folder.name,
            "after": self.after.folder.name,
            "before_us": self.before.time.step_us,
            "after_us": self.after.time.step_us,
            "samples": (self.before.samples, self.after.samples),
            "difference_us": self.total_us,
            "operators": self.operators.to_dict("records"),
            "phases": self.phases.to_dict("records"),
        }


def compare(before: Profile, after: Profile) -> Comparison:
    """Match the operators of two profiles by name."""
    return Comparison(before, after)


def _circumstances(profile: Profile) -> dict[str, Any]:
    recorded = " and ".join(name for name in ("shapes", "memory") if getattr(profile.settings, name)) or "times alone"
    limits = profile.limits
    device, threads = (limits.device, limits.threads) if limits else ("an unknown machine", "unknown")
    return {"on": device, "threads": threads, "times": profile.provenance, "recorded with": recorded}


def _joined(before: pd.DataFrame, after: pd.DataFrame, key: str, time: str, *more: str) -> pd.DataFrame:
    columns = [key, time, *more]
    both = before[columns].merge(after[columns], on=key, how="outer", suffixes=("_before", "_after")).fillna(0.0)
    both = both.rename(columns={f"{time}_before": "before_us", f"{time}_after": "after_us"})
    both["difference_us"] = both["after_us"] - both["before_us"]
    return both.sort_values("difference_us", key=abs, ascending=False, kind="stable", ignore_index=True)

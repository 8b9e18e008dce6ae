"""Makes a machine's card: times the operators of training steps drawn at random, until a time is over.

An operator is timed among the others of its step, for what these leave in the caches is a part of its time. One step,
the reference, is taken again and again between the others: how much its time varies is the machine's own noise.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import metadata

import numpy as np
import torch

from labkit.hardware import Calibration, calibrate, cpu_device, cpu_tier, match_tier, read_cpu
from labkit.perfmodel.accelerators import measure_accelerators
from labkit.perfmodel.card import ALL, Card, Overheads
from labkit.perfmodel.kernels import FASTEST_S, KernelModel, Points, features_of, geometric_error
from labkit.perfmodel.operators import Operator, operator_times, operators_of, timing_s
from labkit.perfmodel.prediction import best_times_s, calls_of
from labkit.perfmodel.recorded_step import Call, RecordedStep
from labkit.perfmodel.workloads import Workload, build_workload, draw_workload

TURNS = ("dlrm", "speech", "tables", "dlrm", "cnn", "speech")
"""Whose step is next"""
TOLD = ("dlrm", "speech", "cnn")
"""Jobs with whole steps, of which a card tells the errors"""
REFERENCE = {
    "batch_size": 512, "dense_dim": 64, "num_tables": 8, "num_rows": 20_000, "embedding_dim": 32, "pooling_factor": 4,
    "mlp_width": 256, "mlp_depth": 2, "zipf": 0.0, "optimiser": "sgd", "kernels": "fast", "precision": "fp32",
    "seed": 0,
}  # fmt: skip
ENOUGH_S = 0.06
"""For the steps of one workload, and again for its operators"""
FEWEST, MOST = 3, 40
"""Times that a step is taken"""
REFERENCE_S = 0.04
SEEDS = 100_000
"""Workloads of one seed, at most"""
WARM = 4
"""Steps that pass first: they set up kernels, and touch the rows of all batches, and of their optimiser's state"""
FOLDS = 3
MOST_POINTS = 200
"""Of a kind that a card keeps"""
SHARE_OF_FIT = 0.2
"""Of the time, that is left for fitting"""


@dataclass(frozen=True)
class TimedStep:
    """A step, and what it was made of."""

    job: str
    settings: dict
    operators: list[Operator]
    times_s: np.ndarray
    """Of each operator, the median of several steps"""
    step_s: float
    """The median of steps whose operators were not timed"""

    @property
    def idle(self) -> float:
        """The share of the step in which no operator computes: between them, and in views."""
        computes = [seconds for each, seconds in zip(self.operators, self.times_s, strict=True) if not each.is_view]
        return max(0.0, 1 - sum(computes) / self.step_s)

    def as_calls(self) -> RecordedStep:
        """The step as calls of a host that launches nothing: T5 for each view, "compute" for each other operator, and
        before each an equal share of T1, the time that no operator takes."""
        left_us = max(0.0, 1e6 * (self.step_s - self.times_s.sum()))
        calls = []
        for each, seconds in zip(self.operators, self.times_s, strict=True):
            calls.append(Call("T1", each.name, left_us / len(self.operators)))
            calls.append(Call("T5" if each.is_view else "compute", each.name, 1e6 * float(seconds)))
        return RecordedStep(0.0, 1e6 * self.step_s, len(self.operators), tuple(calls), ())


def step_s(step: Callable[[], object], enough_s: float = ENOUGH_S) -> float:
    """The median of a step's times."""
    times: list[float] = []
    while len(times) < FEWEST or (sum(times) < enough_s and len(times) < MOST):
        began = time.perf_counter()
        step()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def time_step(step: Callable[[], object]) -> TimedStep:
    """Time a step of the reader's, such as a function in a notebook, and its operators.

    Raises:
        ValueError: it does not call the same operators each time.
    """
    timed = time_workload(Workload("mine", {}, step), timing_s())
    if timed is None:
        raise ValueError("this step calls other operators each time: let it take one batch")
    return timed


def time_workload(workload: Workload, timing: float) -> TimedStep | None:
    """Time a workload and its operators; None where its steps do not call the same each time.

    Args:
        workload: whose step is taken.
        timing: what timing adds to each operator, of `timing_s`.
    """
    for _ in range(WARM):
        workload.step()
    operators = operators_of(workload.step)
    enough_s = ENOUGH_S if workload.job in TOLD else ENOUGH_S / 6
    whole: list[float] = []
    rounds: list[list[float]] = []
    while len(rounds) < FEWEST or (sum(whole) < enough_s and len(rounds) < MOST):  # side by side
        began = time.perf_counter()
        workload.step()
        whole.append(time.perf_counter() - began)
        rounds.append(operator_times(workload.step))
        if len(rounds[-1]) != len(operators):
            return None
    times = np.maximum(np.median(rounds, axis=0) - timing, FASTEST_S)
    return TimedStep(workload.job, workload.settings, operators, times, statistics.median(whole))


class Reference:
    """One step that is taken before and after whatever is timed, and says how fast the machine is just then."""

    def __init__(self):
        self._step = build_workload("dlrm", REFERENCE).step
        step_s(self._step)
        self._last_s = step_s(self._step, REFERENCE_S)

    def beside(self) -> float:
        """Seconds that it takes now, the mean of before and after."""
        before, self._last_s = self._last_s, step_s(self._step, REFERENCE_S)
        return (before + self._last_s) / 2


def timed_steps(seconds: float, seed: int = 0) -> Iterator[tuple[TimedStep, float]]:
    """Steps drawn at random until the time is over, and what the reference took beside each."""
    until, timing, reference = time.perf_counter() + seconds, timing_s(), Reference()
    with no_collection():
        for turn in itertools.count(1):
            job = TURNS[turn % len(TURNS)]
            timed = time_workload(draw_workload(job, SEEDS * seed + turn), timing)
            gc.collect()
            beside_s = reference.beside()
            if timed is not None:
                yield timed, beside_s
            if turn >= len(TURNS) and time.perf_counter() > until:
                return


def at_usual_speed(found: Sequence[tuple[TimedStep, float]]) -> list[TimedStep]:
    """Steps as they would be were the machine always as fast as when the reference took its median."""
    usual_s = statistics.median(reference_s for _, reference_s in found)
    factors = [usual_s / reference_s for _, reference_s in found]
    return [
        replace(step, times_s=factor * step.times_s, step_s=factor * step.step_s)
        for (step, _), factor in zip(found, factors, strict=True)
    ]


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Collect no garbage in the block, which would be a part of whatever is timed then."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def points_of(steps: list[TimedStep]) -> dict[str, Points]:
    """Of each kind the operators of all steps, those that are alike within a step as one."""
    rows = defaultdict(list)
    for number, step in enumerate(steps):
        alike: dict[tuple, list[float]] = defaultdict(list)
        for operator, seconds in zip(step.operators, step.times_s, strict=True):
            alike[operator.kind, features_of(operator)].append(seconds)
        for (kind, features), times in alike.items():
            rows[kind].append((features, statistics.fmean(times), len(times), number))
    return {kind: Points(*(np.array(column) for column in zip(*found, strict=True))) for kind, found in rows.items()}


def fit_overheads(steps: list[TimedStep]) -> Overheads:
    """From steps and the times of their operators."""
    from scipy.optimize import nnls

    parts = np.array([[1.0, *calls_of(step.operators).values()] for step in steps]) / 1e6
    whole = np.array([step.step_s for step in steps])
    left = whole - [step.times_s.sum() for step in steps]
    (step_us, *calls_us), _ = nnls(parts / whole[:, None], left / whole)
    return Overheads(float(step_us), tuple(map(float, calls_us)))


def measure_card(seconds: float = 100.0, *, seed: int = 0, say: Callable[[str], None] = lambda words: None) -> Card:
    """Measure this CPU with as many threads as torch has.

    Args:
        seconds: that it may take, fitting included.
        seed: of what is timed.
        say: told how it goes.
    """
    began = time.perf_counter()
    limits = calibrate(repeats=3)
    steps: list[tuple[TimedStep, float]] = []
    for step, beside_s in timed_steps((1 - SHARE_OF_FIT) * seconds - (time.perf_counter() - began), seed):
        steps.append((step, beside_s))
        if len(steps) % 20 == 0:
            say(f"{len(steps)} steps timed, {time.perf_counter() - began:.0f} s")
    say(f"{len(steps)} steps timed; fitting")
    card = fit_card(steps, limits)
    accelerators = measure_accelerators()
    return replace(card, accelerators=accelerators, took_s=round(time.perf_counter() - began, 1))


def fit_card(found: Sequence[tuple[TimedStep, float]], limits: Calibration) -> Card:
    """The card of steps that were timed, each with what the reference took beside it.

    Models are fitted at the machine's usual speed; how good they are is judged by whole steps as they were measured,
    slow moments among them, in three folds of which each is predicted from the other two.
    """
    cpu, threads, steps = read_cpu(), torch.get_num_threads(), at_usual_speed(found)
    caches = float(cpu.caches.get("L2", 2**20) * threads), float(cpu.caches.get("L3", 2**23))
    rng = np.random.default_rng(0)
    points = {
        kind: own if len(own) <= MOST_POINTS else own.where(np.sort(rng.choice(len(own), MOST_POINTS, replace=False)))
        for kind, own in points_of(steps).items()
    }
    folds = rng.permutation(len(steps)) % FOLDS  # not in turns, as the jobs are
    off: dict[str, list[tuple[float, float]]] = {kind: [] for kind in points}
    misses: dict[str, list[float]] = {job: [] for job in TOLD}
    shared: dict[str, list[float]] = {job: [] for job in TOLD}
    for fold in range(FOLDS):
        models = {
            kind: KernelModel(own.where(folds[own.steps] != fold), caches, limits.bandwidth_gb_per_s)
            for kind, own in points.items()
            if (folds[own.steps] != fold).any()
        }
        overheads = fit_all_overheads([step for step, own in zip(steps, folds, strict=True) if own != fold])
        for number in np.flatnonzero(folds == fold):
            step = steps[number]
            told_s = predicted_times_s(step, models, limits)
            for operator, took_s, each_s in zip(step.operators, step.times_s, told_s, strict=True):
                if operator.kind in models:
                    off[operator.kind].append((abs(np.log(took_s / each_s)), took_s))
            if step.job in TOLD:
                for whose, misses_of in ((step.job, misses), (ALL, shared)):
                    beyond = overheads.get(whose, overheads[ALL])
                    seconds = told_s.sum() + beyond.seconds(calls_of(step.operators))
                    misses_of[step.job].append(float(np.log(found[number][0].step_s / seconds)))
    whole_s = sum(step.times_s.sum() for step in steps)
    reference_s = np.array([beside_s for _, beside_s in found])
    tier = match_tier(cpu_device()) if threads == cpu.machine_cores else cpu_tier(threads)
    return Card(
        device=cpu.model,
        tier=tier and tier.name,
        threads=threads,
        software={"torch": torch.__version__, "labkit": metadata.version("labkit")},
        when=time.strftime("%Y-%m-%d"),
        took_s=0.0,
        limits=limits,
        caches=caches,
        noise=geometric_error(np.log(reference_s / np.median(reference_s))),
        accelerators={},
        kernels=points,
        overheads=fit_all_overheads(steps),
        misses=misses,
        shared=shared,
        kinds={kind: _error_of(pairs, whole_s) for kind, pairs in off.items() if pairs},
    )


def fit_all_overheads(steps: list[TimedStep]) -> dict[str, Overheads]:
    """By job that was timed, and of all."""
    by_job = {job: [step for step in steps if step.job == job] for job in TOLD}
    by_job[ALL] = [step for step in steps if step.job in TOLD]
    return {job: fit_overheads(own) for job, own in by_job.items() if own}


def predicted_times_s(step: TimedStep, models: dict[str, KernelModel], limits: Calibration) -> np.ndarray:
    """Of each operator."""
    times_s = best_times_s(step.operators, limits)
    kinds = np.array([operator.kind for operator in step.operators])
    for kind in set(kinds) & models.keys():
        own = np.flatnonzero(kinds == kind)
        times_s[own] = models[kind].seconds(np.array([features_of(step.operators[number]) for number in own]))
    return times_s


def _error_of(pairs: list[tuple[float, float]], whole_s: float) -> tuple[float, float]:
    """The geometric error of operators by their time, and their share of all time."""
    off, took_s = np.array(pairs).T
    return float(np.expm1((off * took_s).sum() / took_s.sum())), float(took_s.sum() / whole_s)

"""Makes a machine's card: times the operators of randomly drawn training steps for a given time.

Each operator is timed within its step, because its time depends on what the others leave in the caches. One step, the
reference, is repeated between all others: the variation of its time is the machine's own noise.
"""

import contextlib
import gc
import itertools
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import metadata

import numpy as np
import torch

from labkit import hardware
from labkit.perfmodel.card import ALL, FASTEST_S, Card, KernelModel, Overheads, Points, features_of, geometric_error
from labkit.perfmodel.operators import Operator, operator_times, operators_of, timing_s
from labkit.perfmodel.predict import calls_of, times_of
from labkit.perfmodel.workloads import Workload, build_workload, draw_workload

TURNS = ("dlrm", "speech", "tables", "dlrm", "cnn", "speech")
"""Jobs of the steps, in turn"""
WHOLE = ("dlrm", "speech", "cnn")
"""Jobs with whole steps, whose errors a card reports"""
REFERENCE = {
    "batch_size": 512, "dense_dim": 64, "num_tables": 8, "num_rows": 20_000, "embedding_dim": 32, "pooling_factor": 4,
    "mlp_width": 256, "mlp_depth": 2, "zipf": 0.0, "optimiser": "sgd", "kernels": "fast", "precision": "fp32",
    "seed": 0,
}  # fmt: skip
ENOUGH_S = 0.06
"""Time for the steps of one workload, and again for its operators"""
FEWEST, MOST = 3, 40
"""Number of repeats of a step"""
REFERENCE_S = 0.04
SEEDS = 100_000
"""Largest number of workloads per seed"""
WARM = 4
"""Steps before timing: they set up kernels, and touch the rows of all batches and of their optimiser's state"""
FOLDS = 3
MOST_POINTS = 200
"""Largest number of points per kind that a card keeps"""
SHARE_OF_FIT = 0.2
"""Share of the time that is left for fitting"""


@dataclass(frozen=True)
class TimedStep:
    """A timed step and its operators."""

    job: str
    settings: dict
    operators: list[Operator]
    times_s: np.ndarray
    """Time of each operator, the median of several steps"""
    step_s: float
    """Median time of steps whose operators were not timed"""

    @property
    def idle(self) -> float:
        """Share of the step in which no operator computes: between operators, and in views."""
        computes = [seconds for each, seconds in zip(self.operators, self.times_s, strict=True) if not each.is_view]
        return max(0.0, 1 - sum(computes) / self.step_s)


def step_s(step: Callable[[], object], enough_s: float = ENOUGH_S) -> float:
    """Median time of a step."""
    times: list[float] = []
    while len(times) < FEWEST or (sum(times) < enough_s and len(times) < MOST):
        began = time.perf_counter()
        step()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def time_step(step: Callable[[], object]) -> TimedStep:
    """Time a step of your own, such as a function in a notebook, and its operators.

    Raises:
        ValueError: it does not call the same operators each time.
    """
    timed = time_workload(Workload("mine", {}, step), timing_s())
    if timed is None:
        raise ValueError("this step calls different operators each time: let it use the same batch")
    return timed


def time_workload(workload: Workload, timing: float) -> TimedStep | None:
    """Time a workload and its operators; None if its steps do not call the same operators each time.

    `timing` is the time that timing adds to each operator, of `timing_s`.
    """
    for _ in range(WARM):
        workload.step()
    operators = operators_of(workload.step)
    enough_s = ENOUGH_S if workload.job in WHOLE else ENOUGH_S / 6
    whole: list[float] = []
    rounds: list[list[float]] = []
    while len(rounds) < FEWEST or (sum(whole) < enough_s and len(rounds) < MOST):  # interleaved: same noise
        began = time.perf_counter()
        workload.step()
        whole.append(time.perf_counter() - began)
        rounds.append(operator_times(workload.step))
        if len(rounds[-1]) != len(operators):
            return None
    times = np.maximum(np.median(rounds, axis=0) - timing, FASTEST_S)
    return TimedStep(workload.job, workload.settings, operators, times, statistics.median(whole))


def timed_steps(seconds: float, seed: int = 0) -> Iterator[tuple[TimedStep, float]]:
    """Randomly drawn steps until the time is over, each with the time of the reference around it."""
    until, timing, reference = time.perf_counter() + seconds, timing_s(), build_workload("dlrm", REFERENCE).step
    step_s(reference)  # sets up its kernels and memory
    before_s = step_s(reference, REFERENCE_S)
    with no_collection():
        for turn in itertools.count(1):
            job = TURNS[turn % len(TURNS)]
            timed = time_workload(draw_workload(job, SEEDS * seed + turn), timing)
            gc.collect()
            after_s = step_s(reference, REFERENCE_S)
            if timed is not None:
                yield timed, (before_s + after_s) / 2
            before_s = after_s
            if turn >= len(TURNS) and time.perf_counter() > until:
                return


def at_usual_speed(found: Sequence[tuple[TimedStep, float]]) -> list[TimedStep]:
    """Steps scaled to the machine's usual speed, at which the reference takes its median time."""
    usual_s = statistics.median(reference_s for _, reference_s in found)
    factors = ((step, usual_s / reference_s) for step, reference_s in found)
    return [replace(step, times_s=factor * step.times_s, step_s=factor * step.step_s) for step, factor in factors]


@contextlib.contextmanager
def no_collection() -> Generator[None]:
    """Collect no garbage in the block, where it would be part of a timing."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def points_of(steps: list[TimedStep]) -> dict[str, Points]:
    """Operators of all steps by kind; those with the same features within a step become one point."""
    rows = defaultdict(list)
    for number, step in enumerate(steps):
        alike: dict[tuple, list[float]] = defaultdict(list)
        for operator, seconds in zip(step.operators, step.times_s, strict=True):
            alike[operator.kind, features_of(operator)].append(seconds)
        for (kind, features), times in alike.items():
            rows[kind].append((features, statistics.fmean(times), number))
    return {kind: Points(*(np.array(column) for column in zip(*found, strict=True))) for kind, found in rows.items()}


def fit_overheads(steps: list[TimedStep]) -> Overheads:
    """Fit overheads to steps and the times of their operators."""
    from scipy.optimize import nnls

    parts = np.array([[1.0, *calls_of(step.operators).values()] for step in steps]) / 1e6
    whole = np.array([step.step_s for step in steps])
    left = whole - [step.times_s.sum() for step in steps]
    step_us, forward_us, backward_us, optimiser_us = map(float, nnls(parts / whole[:, None], left / whole)[0])
    return Overheads(step_us, (forward_us, backward_us, optimiser_us))


def measure_card(seconds: float = 100.0, *, seed: int = 0, say: Callable[[str], None] = lambda words: None) -> Card:
    """Measure this CPU with torch's number of threads, in this time, fitting included; `say` receives messages."""
    began = time.perf_counter()
    limits = hardware.calibrate(repeats=3)
    steps: list[tuple[TimedStep, float]] = []
    for pair in timed_steps((1 - SHARE_OF_FIT) * seconds - (time.perf_counter() - began), seed):
        steps.append(pair)
        if len(steps) % 20 == 0:
            say(f"{len(steps)} steps timed, {time.perf_counter() - began:.0f} s")
    say(f"{len(steps)} steps timed; fitting")
    return replace(fit_card(steps, limits), took_s=round(time.perf_counter() - began, 1))


def fit_card(found: Sequence[tuple[TimedStep, float]], limits: "hardware.Calibration") -> Card:
    """Fit a card to timed steps, each with the time of the reference around it.

    Models are fitted at the machine's usual speed. Their errors are those of whole steps as measured, slow moments
    included, in three folds, each of which is predicted from the other two.
    """
    cpu, threads, steps = hardware.read_cpu(), torch.get_num_threads(), at_usual_speed(found)
    caches = float(cpu.caches.get("L2", 2**20) * threads), float(cpu.caches.get("L3", 2**23))
    rng = np.random.default_rng(0)
    points = {
        kind: own if len(own) <= MOST_POINTS else own.where(np.sort(rng.choice(len(own), MOST_POINTS, replace=False)))
        for kind, own in points_of(steps).items()
    }
    folds = rng.permutation(len(steps)) % FOLDS  # shuffled, because the jobs take turns
    off: dict[str, list[tuple[float, float]]] = {kind: [] for kind in points}
    misses: dict[str, list[float]] = {job: [] for job in WHOLE}
    shared: dict[str, list[float]] = {job: [] for job in WHOLE}
    for fold in range(FOLDS):
        models = {
            kind: KernelModel(own.where(folds[own.steps] != fold), caches, limits.bandwidth_gb_per_s)
            for kind, own in points.items()
            if (folds[own.steps] != fold).any()
        }
        overheads = fit_all_overheads([step for step, own in zip(steps, folds, strict=True) if own != fold])
        for number in np.flatnonzero(folds == fold):
            step = steps[number]
            times_s, _ = times_of(step.operators, models, limits)
            for operator, took_s, each_s in zip(step.operators, step.times_s, times_s, strict=True):
                if operator.kind in models:
                    off[operator.kind].append((abs(np.log(took_s / each_s)), took_s))
            if step.job in WHOLE:
                for whose, misses_of in ((step.job, misses), (ALL, shared)):
                    beyond = overheads.get(whose, overheads[ALL])
                    seconds = times_s.sum() + beyond.seconds(calls_of(step.operators))
                    misses_of[step.job].append(float(np.log(found[number][0].step_s / seconds)))
    whole_s = sum(step.times_s.sum() for step in steps)
    reference_s = np.array([each_s for _, each_s in found])
    tier = hardware.match_tier(hardware.cpu_device()) if threads == cpu.machine_cores else hardware.cpu_tier(threads)
    return Card(
        device=cpu.model,
        tier=tier.name if tier else None,
        threads=threads,
        software={"torch": torch.__version__, "labkit": metadata.version("labkit")},
        when=time.strftime("%Y-%m-%d"),
        took_s=0.0,
        limits=limits,
        caches=caches,
        noise=geometric_error(np.log(reference_s / np.median(reference_s))),
        kernels=points,
        overheads=fit_all_overheads(steps),
        misses=misses,
        shared=shared,
        kinds={kind: _error_of(pairs, whole_s) for kind, pairs in off.items() if pairs},
    )


def fit_all_overheads(steps: list[TimedStep]) -> dict[str, Overheads]:
    """Overheads by job, and of all jobs."""
    by_job = {job: [step for step in steps if step.job == job] for job in WHOLE}
    by_job[ALL] = [step for step in steps if step.job in WHOLE]
    return {job: fit_overheads(own) for job, own in by_job.items() if own}


def _error_of(pairs: list[tuple[float, float]], whole_s: float) -> tuple[float, float]:
    """Geometric error of operators, weighted by their time, and their share of all time."""
    off, took_s = np.array(pairs).T
    return float(np.expm1((off * took_s).sum() / took_s.sum())), float(took_s.sum() / whole_s)

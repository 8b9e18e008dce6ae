"""Makes a queue like the ones that CARMA was judged on, from profiles that one has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from labkit.collocation.packing.queued_job import QueuedJob
from labkit.errors import UserError

CARMA_MIX = {"light": 32 / 60, "medium": 22 / 60, "heavy": 6 / 60}
"""Shares of the first 60-task trace in CARMA's repository (philly_trace-t1.sh), as we count them: CIFAR-100 jobs are
light, transformers and Mask R-CNN heavy, the other models on large images and DLRM medium."""
CARMA_LOAD = 1.8
"""Work that arrives over what the devices can do one job at a time, of the same trace: jobs of 1,635 s on average (by
the times in CARMA's README, each counted on one GPU), one every 229 s, on 4 GPUs. Above 1, a queue grows unless jobs
share."""


def generate_queue(
    kinds: Mapping[str, Sequence[QueuedJob]],
    *,
    n: int = 60,
    seed: int = 0,
    devices: int = 2,
    load: float = CARMA_LOAD,
    mix: Mapping[str, float] = CARMA_MIX,
) -> list[QueuedJob]:
    """Draw a queue: a class by `mix`, a job of that class evenly, Poisson arrivals.

    Args:
        kinds: by class (light, medium, heavy), the jobs to draw from, with their profiles; their own arrivals count
            for nothing.
        n: jobs; CARMA's traces have 60 and 90.
        seed: the same seed gives the same queue.
        devices: how many the load is meant for.
        load: work that arrives over what the devices can do one job at a time; it sets the mean gap between arrivals.
        mix: how often each class is drawn, in any unit. A class without jobs in `kinds` is left out.

    Returns:
        Jobs named after what they were drawn from, with a number; the first arrives at 0.

    Raises:
        UserError: nothing to draw from, or a profile without a duration.
    """
    shares = {name: mix[name] for name in mix if kinds.get(name) and mix[name] > 0}
    if not shares:
        raise UserError(f"there is no job to draw from: give profiles of at least one of the classes {', '.join(mix)}.")
    unknown = [job.name for name in shares for job in kinds[name] if not (job.profile and job.profile.duration_s)]
    if unknown:
        raise UserError(f"the profile of {', '.join(unknown)} has no duration: run the job once alone, or write it.")
    if n < 1 or devices < 1 or not load > 0:
        raise UserError(f"n is {n}, devices {devices} and load {load:g}: give numbers above zero.")
    random = np.random.default_rng(seed)
    weights = np.array(list(shares.values())) / sum(shares.values())
    classes = random.choice(list(shares), size=n, p=weights)
    drawn = [kinds[name][random.integers(len(kinds[name]))] for name in classes]
    gap_s = np.mean([job.profile.duration_s for job in drawn]) / (devices * load)
    arrivals_s = np.concatenate([[0.0], np.cumsum(random.exponential(gap_s, size=n - 1))])
    width = len(str(n))
    return [
        QueuedJob(replace(job.job, name=f"{job.name[:50]}-{number:0{width}d}"), float(arrives_s), job.profile)
        for number, (job, arrives_s) in enumerate(zip(drawn, arrivals_s, strict=True), start=1)
    ]

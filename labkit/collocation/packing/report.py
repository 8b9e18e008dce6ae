"""Policies side by side on one queue, beside exclusive."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from labkit.collocation.packing.device_state import PackingDevice
from labkit.collocation.packing.policy import POLICIES, get_policy
from labkit.collocation.packing.queued_job import QueuedJob
from labkit.collocation.packing.schedule import side_by_side
from labkit.collocation.packing.simulate import simulate

CARMA_MAKESPAN = 0.65
CARMA_ENERGY = 0.85
"""Its best policy over exclusive: about 35 % less makespan and 15 % less energy (arXiv 2508.19073, abstract), on its
own trace of real jobs on GPUs: not a number to meet with other jobs on other devices."""


@dataclass(frozen=True)
class PackReport:
    """Frames of a comparison; every number in them is predicted."""

    totals: pd.DataFrame
    """One row a policy, `exclusive` first, as `side_by_side` has them: ratios are to exclusive"""
    schedule: pd.DataFrame
    """One row a start of a job, for a Gantt figure: policy and ATTEMPT_COLUMNS"""
    jobs: pd.DataFrame
    """One row a policy and job: policy and JOB_COLUMNS"""


def pack_report(
    queue: Sequence[QueuedJob],
    devices: Sequence[PackingDevice],
    policies: Iterable[str] = tuple(POLICIES),
    **settings,
) -> PackReport:
    """Simulate a queue under several policies.

    Args:
        queue: jobs with profiles.
        devices: what they run on.
        policies: their names; `exclusive` comes first, named or not.
        settings: of `simulate`.

    Raises:
        UserError: an unknown policy, or a queue that cannot be simulated.
    """
    names = list(dict.fromkeys(["exclusive", *policies]))
    schedules = [simulate(queue, devices, get_policy(name), **settings) for name in names]
    return PackReport(
        side_by_side(schedules),
        pd.concat([each.attempts.assign(policy=each.policy) for each in schedules], ignore_index=True),
        pd.concat([each.jobs.assign(policy=each.policy) for each in schedules], ignore_index=True),
    )

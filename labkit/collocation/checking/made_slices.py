"""The MIG slices that a plan lacks, made for as long as it runs where its user allows that."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from labkit.collocation.checking.plan_check import Estimate
from labkit.collocation.modes.device_choice import find_device
from labkit.collocation.modes.mig import proposed_layout
from labkit.collocation.modes.mig_changes import changed_layout
from labkit.collocation.modes.place import Place
from labkit.collocation.plan.plan import Plan
from labkit.hardware.devices import get_devices
from labkit.hardware.nvml import Nvml


@contextlib.contextmanager
def made_slices(plan: Plan, estimate: Estimate, tell: Callable[[str], None]) -> Iterator[None]:
    """Make what the workloads of mode mig lack, and remove just that at the end.

    Args:
        plan: what shares what.
        estimate: of a job's memory, which its slice must have.
        tell: told of each change.

    Raises:
        UserError: a layout cannot be made.
    """
    with contextlib.ExitStack() as stack:
        for workload in plan.workloads:
            if workload.mode != "mig":
                continue
            devices = get_devices()
            device = find_device(plan.device, devices)
            if device.mig_mode != "on":
                continue  # the check says so
            needs = {job.name: need for job in workload.jobs if (need := job.memory_bytes or estimate(job, "cuda"))}
            with Nvml() as session:
                layout, _ = proposed_layout(workload.jobs, Place(device, devices, session, needs))
            if layout is not None:
                tell(f"making MIG slices on {layout.gpu_uuid}, removed at the end: {layout.tuples}")
                stack.enter_context(changed_layout(layout))
        yield

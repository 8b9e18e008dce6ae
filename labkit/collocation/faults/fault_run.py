"""One fault, really run: a client that fails beside clients that do not."""

from __future__ import annotations

import tempfile
from pathlib import Path

from labkit.collocation.faults.fault import FAULTS
from labkit.collocation.faults.fault_play import FAULTY, POLITE_S, FaultPlay
from labkit.collocation.faults.fault_report import FaultReport
from labkit.collocation.faults.scene import Scene
from labkit.collocation.modes.choice import mode_shares
from labkit.collocation.modes.cpu import leased_cpu
from labkit.collocation.modes.device_choice import find_device
from labkit.collocation.plan.mistakes import did_you_mean
from labkit.collocation.plan.plan import MODES
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.errors import UserError
from labkit.hardware.devices import get_devices
from labkit.process.containment import marked
from labkit.process.supervised import SupervisedJobs


def run_fault(
    fault: str,
    mode: str,
    *,
    neighbours: int = 1,
    device: str | None = None,
    seconds: float = 1.0,
    recovery: bool = True,
) -> FaultReport:
    """Let a client fail beside its neighbours, and measure what becomes of them and of the device.

    Args:
        fault: one of `labkit.collocation.faults.fault.FAULTS`.
        mode: how they share the device; any of `labkit.collocation.plan.plan.MODES` but alone.
        neighbours: clients that train the same model and do not fail.
        device: as `find_device` takes it; None takes the CPU in modes of the CPU, else the first GPU.
        seconds: for which rates are measured before the fault, during a hang, and after it.
        recovery: whether fresh clients are started to see when the device is usable; it takes two more starts.

    Raises:
        UserError: the mode or the fault is not possible here, or a client does not start.
    """
    if fault not in FAULTS:
        raise UserError(f"fault {fault!r} is unknown: choose one of {', '.join(FAULTS)}.")
    kind = FAULTS[fault]
    if mode not in MODES:
        raise UserError(f"mode {mode!r} is unknown: {did_you_mean(mode, MODES)}")
    if mode == "alone":
        raise UserError("In mode alone nobody shares the device, so a fault has no neighbours: choose another mode.")
    if neighbours < 1:
        raise UserError(f"neighbours is {neighbours}: give a whole number from 1.")
    devices = get_devices()
    chosen = find_device("cpu" if device is None and mode.startswith("cpu") else device, devices)
    if kind.gpu_only and chosen.kind == "cpu":
        raise UserError(f"fault {fault} happens in a kernel of a GPU, and the device is the CPU: choose segfault.")
    names = [FAULTY, *(f"neighbour-{number}" for number in range(1, neighbours + 1))]
    # only their names and device matter to the mode; what they train is in their program
    with (
        leased_cpu(chosen),
        tempfile.TemporaryDirectory(prefix="labkit-fault-", ignore_cleanup_errors=True) as folder,
    ):
        shares = mode_shares(mode, [PlannedJob(name, "") for name in names], chosen, devices)
        with SupervisedJobs(POLITE_S) as supervised:
            supervised.remove_at_end(Path(folder))
            play = FaultPlay(kind, mode, shares, Scene(supervised, Path(folder)), seconds)
            play.run(recovery)
        return play.report(len({*play.scene.left, *(each.pid for each in marked(supervised.mark))}))

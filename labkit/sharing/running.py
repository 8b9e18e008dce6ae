"""Check a plan and run it, telling how it goes in a line a round: the notebooks' way to collocate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from labkit.errors import UserError
from labkit.hardware import find_device, get_devices
from labkit.sharing.launching.job import JobEvent
from labkit.sharing.launching.jobs_record import GroupRecord
from labkit.sharing.launching.plan_run import RoundEvent, run_plan
from labkit.sharing.modes.cpu import leased_cpu
from labkit.sharing.plan.jobs_text import parse_jobs
from labkit.sharing.plan.plan import Plan, Workload, with_baseline, with_seconds
from labkit.sharing.plan_check import check_plan, job_memory
from labkit.tracking import StopRequest


def plan_of(
    jobs: str,
    modes: Sequence[str],
    *,
    repeats: int = 1,
    seconds: float | None = None,
    baseline: str = "each",
    device: str | None = None,
    spin: bool = False,
) -> Plan:
    """The plan that `labkit collocate --jobs JOBS --mode MODES` runs.

    Args:
        jobs: such as "dlrm:tour x3, speech:tour".
        modes: of `labkit.sharing.plan.plan.MODES`.
        repeats: so often each round runs.
        seconds: as `with_seconds` has it.
        baseline: as `with_baseline` has it.
        device: cpu, a GPU's number or UUID; None takes the first GPU, or the CPU.
        spin: whether idle CPU threads wait busily.
    """
    parsed = tuple(parse_jobs(jobs))
    workloads = tuple(Workload(mode, mode, parsed) for mode in modes)
    plan = Plan("jobs", workloads, device=device, repeats=repeats, spin=spin)
    return with_baseline(with_seconds(plan, seconds), baseline)


def collocate(plan: Plan, runs_dir: Path | str, tell: Callable[[str], None] = print) -> Path:
    """Run a plan to its end; interrupting the kernel ends it politely, and what it did stays in its folder.

    Args:
        plan: what shares what.
        runs_dir: the folder that the group's folder is made in.
        tell: told of warnings and of each round.

    Returns:
        The group's folder, for `labkit.sharing.verdicts`.

    Raises:
        UserError: the plan cannot run here, with every reason; nothing was started then. Or a job failed.
    """
    with leased_cpu(find_device(plan.device, get_devices()), say=tell):
        found = check_plan(plan, job_memory)
        if found.refusals:
            raise UserError("\n".join(["nothing was started:", *found.refusals]))
        for warning in found.warnings:
            tell(warning)

        def hear(event: JobEvent | RoundEvent) -> None:
            if isinstance(event, RoundEvent) and event.record.ended_at is not None:
                tell(event.words)

        with StopRequest() as stop:
            known = {"needs": found.needs, "quiet": found.quiet}
            folder = run_plan(plan, runs_dir=Path(runs_dir), on_event=hear, stop=stop, **known)
    if stop:
        raise KeyboardInterrupt
    broken = [job for each in GroupRecord.read(folder).rounds for job in each.jobs if job.status != "done"]
    if broken:
        raise UserError("\n".join([f"{folder}:", *(f"{job.job} {job.status}: {job.reason}" for job in broken)]))
    return folder

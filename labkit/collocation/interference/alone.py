"""Profiles a job alone, in a process of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

from labkit.collocation.interference.held_job import HeldJob, Stretch
from labkit.collocation.interference.machine import Machine, measure_machine
from labkit.collocation.interference.solo_profile import SoloProfile
from labkit.collocation.plan.planned_job import PlannedJob
from labkit.errors import UserError
from labkit.runs import read_run
from labkit.runs.others import in_words
from labkit.telemetry.others import Look, own_affinity
from labkit.telemetry.samples import Sample, read_samples

TURNS = 3
"""Each way of running is timed so often, in turn; the fastest counts, since others only slow a job down."""
NO_GPU = "it ran on a CPU"
NO_CPU = "it ran on a GPU, where CPU cores are not what is shared"

COUNTERS = {
    "gpu_busy": "gpu_utilisation",
    "sm_active": "sm_active",
    "sm_occupancy": "sm_occupancy",
    "dram_active": "dram_active",
}
"""Fields of a profile, and the counters in % that they are means of."""


def profile_alone(job: PlannedJob, seconds: float = 6.0, *, machine: Machine | None = None) -> SoloProfile:
    """Train a job by itself for a while, and note what it used.

    On a CPU it is timed in three ways, its threads waiting passively: on all cores, with one thread on one core, and
    with all its threads on half of the cores. Then the operators of a few steps are counted, and another process times
    it on all cores as mode alone has it, with threads that wait busily. Nothing else should run meanwhile.

    Args:
        job: what to train; its place in a plan (name, cores, caps) does not matter.
        seconds: of training that are timed, over all ways.
        machine: what the device can do; None measures it afterwards.

    Raises:
        UserError: the job was refused, failed, or ended before its profile was made; or other programs disturbed it.
    """
    look = Look()
    with tempfile.TemporaryDirectory(prefix="labkit-") as scratch:
        with HeldJob(job, Path(scratch)) as held:
            on_gpu = held.device != "cpu"
            ways = {"whole": (None, None)} if on_gpu else cpu_ways(list(own_affinity()), held.threads)
            each_s = seconds / TURNS / len(ways)
            turns = [
                {name: held.run(each_s, cores=cores, threads=threads) for name, (cores, threads) in ways.items()}
                for _ in range(TURNS)
            ]
            flop, moved = held.work()
        alone_ms = None
        if len(ways) > 1:
            with HeldJob(job, Path(scratch), spin=True) as spinning:
                alone_ms = min(spinning.run(each_s).step_time_ms for _ in range(TURNS))
        # after its end, when all of its telemetry is written
        gpu = gpu_shares(held.folder, [turn["whole"] for turn in turns]) if on_gpu else {}
    if disturbed := in_words(look.others()):
        raise UserError(
            f"{job.label} cannot be profiled alone: {disturbed}, and every prediction would be wrong by as much. Close "
            "what else runs, and try again."
        )
    fastest = {name: min((turn[name] for turn in turns), key=lambda each: each.step_time_ms) for name in ways}
    machine = machine or measure_machine(held.device)
    profile = solo_profile(job, machine, fastest, flop=flop, moved=moved, threads=held.threads, gpu=gpu)
    return replace(profile, step_time_alone_ms=alone_ms)


def cpu_ways(cores: list[int], threads: int) -> dict[str, tuple[list[int] | None, int | None]]:
    """Cores and threads of each way in which a job is timed, by name."""
    if len(cores) == 1:
        return {"whole": (None, None)}
    return {"whole": (None, None), "one core": (cores[:1], 1), "crowded": (cores[: len(cores) // 2], threads)}


def solo_profile(
    job: PlannedJob,
    machine: Machine,
    stretches: dict[str, Stretch],
    *,
    flop: float,
    moved: float,
    threads: int,
    gpu: dict[str, float | str],
) -> SoloProfile:
    """A profile from what was measured.

    Args:
        job: that was trained.
        machine: that it was trained on.
        stretches: the fastest of each way: "whole", and on more than one core "one core" and "crowded".
        flop: floating-point operations of a step; 0 where no operator has a formula.
        moved: bytes of a step.
        threads: that computed.
        gpu: means of the GPU's counters as shares of 1, or why there is none; empty on a CPU.
    """
    whole = stretches["whole"]
    a_step_s = whole.wall_s / whole.steps
    on_gpu = bool(gpu)
    values: dict[str, float | int | None] = {
        "cpu_share": None if on_gpu else min(1.0, whole.cpu_s / whole.wall_s / machine.cores),
        "threads": threads,
        "step_time_one_core_ms": _time_of("one core", stretches, on_gpu),
        "step_time_crowded_ms": _time_of("crowded", stretches, on_gpu),
        "flop_per_step": flop or None,
        "bytes_per_step": moved or None,
        "arithmetic_share": flop / a_step_s / 1e9 / machine.gflops if flop else None,
        "bandwidth_share": moved / a_step_s / 1e9 / machine.gb_per_s if moved else None,
        "working_set_bytes": min(moved, whole.memory_bytes) if moved else None,
        "memory_bytes": whole.memory_bytes,
    }
    no_formula = "no operator of its steps has a formula"
    missing = {name: (NO_CPU if on_gpu else no_formula) for name, value in values.items() if value is None}
    for name in COUNTERS:
        counted = gpu.get(name, NO_GPU)
        values[name] = None if isinstance(counted, str) else counted
        if isinstance(counted, str):
            missing[name] = counted
    return SoloProfile(
        job=job.label,
        device=machine.device,
        cores=machine.cores,
        provenance="measured",
        step_time_ms=whole.step_time_ms,
        missing=missing,
        **values,
    )


def _time_of(way: str, stretches: dict[str, Stretch], on_gpu: bool) -> float | None:
    if on_gpu:
        return None
    return stretches.get(way, stretches["whole"]).step_time_ms  # one core is all there is


def gpu_shares(folder: Path, stretches: Sequence[Stretch] = ()) -> dict[str, float | str]:
    """Means of the counters of the GPU, or slice, that a run computed on.

    Args:
        folder: of the run.
        stretches: in which a sample counts; all do if there are none.

    Returns:
        By field of `SoloProfile`: a share of 1, or why there is none.
    """
    record = read_run(folder)
    name = str(record.budget.get("torch_name", "cpu"))
    gpu = next((each for each in record.devices if each.get("torch_name") == name), {})
    scope = "mig" if gpu.get("mig_parent_uuid") else "device"
    if not gpu.get("uuid"):
        return dict.fromkeys(COUNTERS, "its run does not say which GPU it was")
    samples = read_samples(folder, scope=scope, device=gpu["uuid"])
    return {name: _mean(samples.get(counter, []), stretches) for name, counter in COUNTERS.items()}


def _mean(samples: list[Sample], stretches: Sequence[Stretch]) -> float | str:
    counted = [
        sample
        for sample in samples
        if not stretches or any(0 <= sample.time_ns - each.began_ns <= each.took_ns for each in stretches)
    ]
    values = [sample.value for sample in counted if sample.value is not None]
    if values:
        return fmean(values) / 100
    return next((sample.note for sample in counted if sample.note), "it was not sampled")

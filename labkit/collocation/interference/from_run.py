"""A profile from the folder of a run that had its device to itself, as far as its telemetry goes."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from labkit.collocation.interference.gpu_shares import COUNTERS, gpu_shares
from labkit.collocation.interference.solo_profile import SoloProfile, job_of_request, likeness_of
from labkit.errors import UserError
from labkit.runs import read_run
from labkit.telemetry.samples import read_samples

NOT_SAID = "a run's telemetry does not say; profile_alone measures it"
ONLY_MEASURED = ("step_time_one_core_ms", "step_time_crowded_ms", "flop_per_step", "bytes_per_step",
                 "arithmetic_share", "bandwidth_share", "working_set_bytes")  # fmt: skip
"""Fields that need a look into the job."""


def profile_from_run(folder: Path | str) -> SoloProfile:
    """Read a profile from a run that shared its device with nobody, which the folder cannot tell.

    Steps count with the time spent training, evaluations and checkpoints left out.

    Raises:
        UserError: the run has not ended, took no step, or is not one of labkit's jobs.
    """
    folder = Path(folder)
    record = read_run(folder)
    result, request = record.result or {}, record.config.get("request")
    if not request:
        raise UserError(f"{folder}: this run is of no job that a plan can name: profile it with profile_alone.")
    if not result.get("steps") or not result.get("train_s"):
        raise UserError(f"{folder}: this run ({record.status}) took no step that counts: choose one that trained.")
    job = job_of_request(request)
    on_gpu = str(record.budget.get("torch_name", "cpu")).startswith("cuda")
    cpu = next((each for each in record.devices if each.get("torch_name") == "cpu"), {})
    cores = int(record.budget.get("cores") or cpu.get("cores") or 1)
    percent = [
        sample.value
        for sample in read_samples(folder, scope="process", device="host").get("cpu_percent", [])
        if sample.value is not None
    ]
    memory = result.get("peak_gpu_memory_bytes" if on_gpu else "peak_memory_bytes")
    missing = dict.fromkeys((*ONLY_MEASURED, "threads"), NOT_SAID)
    if not percent:
        missing["cpu_share"] = "it was not sampled"
    if memory is None:
        missing["memory_bytes"] = "it was not sampled"
    counted = gpu_shares(folder) if on_gpu else dict.fromkeys(COUNTERS, "it ran on a CPU")
    missing |= {name: why for name, why in counted.items() if isinstance(why, str)}
    device = next((each for each in record.devices if each.get("torch_name") == record.budget.get("torch_name")), cpu)
    return SoloProfile(
        job=job.label,
        likeness=likeness_of(job),
        device=device.get("name", "unknown device"),
        cores=cores,
        provenance=record.provenance.kind,
        step_time_ms=1000 * result["train_s"] / result["steps"],
        cpu_share=min(1.0, fmean(percent) / 100 / cores) if percent else None,
        memory_bytes=memory,
        missing=missing,
        **{name: share for name, share in counted.items() if not isinstance(share, str)},
    )

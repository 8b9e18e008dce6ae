"""From a group's folder to a frame: one row a job and round."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from labkit.collocation.launching.group_record import JobOutcome, read_group
from labkit.errors import UserError
from labkit.runs import read_events, read_metrics, read_run
from labkit.runs.notes import note_left_out
from labkit.runs.others import in_words
from labkit.telemetry import peak_memory
from labkit.tracking.ending import unreached

JOB_COLUMNS = [
    "round", "workload", "mode", "repeat", "job", "label", "job_key", "status", "reason", "wall_s", "steps", "samples",
    "steps_per_s", "window_s", "window_steps_per_s", "time_to_target_s", "target_reached", "last_evaluated_s", "target",
    "metric", "peak_memory_bytes", "on", "device", "go_at", "ended_at", "provenance", "run",
    "folder", "disturbed", "course",
]  # fmt: skip
NUMBERS = [name for name in JOB_COLUMNS if name.endswith(("_s", "_bytes")) or name in ("steps", "samples", "target")]


def job_table(group_folder: Path | str) -> pd.DataFrame:
    """How each job of a group fared, in the order of its rounds.

    All clocks begin at the barrier, once data and model are ready. wall_s goes from there until the job was through,
    as the launcher has it: its training, evaluations included, but neither its final test nor the end of its process.
    steps_per_s is that of the whole training; window_steps_per_s is that while *all* jobs of the round trained,
    window_s long: from the barrier until the first of them took its last step. What a job does afterwards it does
    with fewer neighbours, and would flatter the mode.

    Returns:
        JOB_COLUMNS. `round` counts the group's rounds from 0; in mode alone each job is a round by itself. `job_key`
        is equal for jobs that train the same. `on` is "cpu" or "gpu". last_evaluated_s is the last moment at which a
        job that did not reach its target is known to have been short of it, inf where it failed and never will. course
        is (N,) steps and (N,) seconds, from the barrier to the end of the training. disturbed says what other programs
        did to the job's run; empty where nothing is known of it. A number that there is not is NaN.

    Raises:
        UserError: the folder is no readable group. A run of it that cannot be read is noted, and a job without a run.
    """
    folder = Path(group_folder)
    group = read_group(folder)
    kinds = {
        (workload.name, workload.mode, job.name): repr(job.job_key)
        for workload in group.plan.workloads
        for job in workload.jobs
    }
    folders = [folder / job.run for round_ in group.rounds for job in round_.jobs if job.run]
    metrics = dict(list(read_metrics(folders).groupby("run", sort=False)))
    rows = []
    for number, round_ in enumerate(group.rounds):
        known = {"round": number, "provenance": group.provenance.kind}
        known |= {name: getattr(round_, name) for name in ("workload", "mode", "repeat", "go_at", "ended_at")}
        own = [_of_job(folder, job, metrics.get(job.run)) for job in round_.jobs]
        until_s = float(np.min([last_step_s(course) for _, course in own]))  # NaN where one of them has no run
        for job, (row, progress) in zip(round_.jobs, own, strict=True):
            rate = float(np.interp(until_s, *progress[::-1])) / until_s if until_s > 0 else np.nan
            job_key = kinds.get((round_.workload, round_.mode, job.job), job.label)
            window = {"window_s": until_s, "window_steps_per_s": rate, "course": progress}
            rows.append(known | row | {"job_key": job_key} | window)
    table = pd.DataFrame(rows, columns=JOB_COLUMNS)
    # a job that broke before it had a run was to reach the target of those like it
    alike = table.groupby("job_key", sort=False)[["target", "metric"]].transform("first")
    table = table.assign(target=table["target"].fillna(alike["target"]), metric=table["metric"].fillna(alike["metric"]))
    return table.astype(dict.fromkeys(NUMBERS, float))


def last_step_s(course: tuple[np.ndarray, np.ndarray]) -> float:
    """When a course came to its last step; an evaluation may follow."""
    steps, wall_s = course
    return float(wall_s[np.argmax(steps == steps[-1])]) if np.isfinite(steps[-1]) else np.nan


def _of_job(folder: Path, job: JobOutcome, metrics: pd.DataFrame | None) -> tuple[dict, tuple[np.ndarray, np.ndarray]]:
    """Its row, and (steps, wall_s) of its course from (0, 0) to the end of its training; NaN where it had none."""
    row = {name: getattr(job, name) for name in ("job", "label", "status", "reason", "wall_s", "device", "run")}
    broke = job.status in ("failed", "out_of_memory")
    row |= {"target_reached": False, "last_evaluated_s": np.inf if broke else 0.0, "disturbed": ""}
    no_course = np.array([np.nan]), np.array([np.nan])
    if not job.run:
        return row, no_course
    try:
        record = read_run(folder / job.run)
    except UserError as error:
        note_left_out(folder / job.run, str(error))
        return row, no_course
    result, train = record.result or {}, record.config.get("train", {})
    steps, wall_s = _course(metrics, result)
    reached_s = result.get("time_to_target_s")
    if "time_to_target_s" not in result:  # killed: what it had announced by then still counts
        events = [e for e in read_events(folder / job.run) if e["event"] == "target_reached" and e["kind"] == "first"]
        reached_s = events[0].get("wall_s") if events else None
    gave_up = job.status == "done" and unreached(record.status, result, train.get("max_seconds")) == "failed"
    evaluated = [] if metrics is None else metrics.loc[metrics["name"] == train.get("target_metric"), "wall_s"]
    memory = result["peak_memory_bytes"] if "peak_memory_bytes" in result else peak_memory(folder / job.run)
    row |= {
        "steps": steps[-1],
        "samples": result.get("samples"),
        "steps_per_s": steps[-1] / wall_s[-1] if wall_s[-1] > 0 else np.nan,
        "time_to_target_s": reached_s,
        "target_reached": reached_s is not None,
        "last_evaluated_s": np.inf if broke or gave_up else max(evaluated, default=0.0),
        "target": train.get("target"),
        "metric": train.get("target_metric"),
        "peak_memory_bytes": memory,
        "on": "gpu" if str(record.budget.get("torch_name", "cpu")).startswith("cuda") else "cpu",
        "folder": str(folder / job.run),
        "disturbed": in_words(result.get("others")),
    }
    return row, (steps, wall_s)


def _course(metrics: pd.DataFrame | None, result: dict) -> tuple[np.ndarray, np.ndarray]:
    """(N,) steps and (N,) seconds; the last of them are those of the result, where there is one."""
    steps, wall_s = [0.0], [0.0]
    if metrics is not None:
        # an evaluation takes time and no step, so one number of steps may stand at several times
        points = metrics[["wall_s", "step"]].drop_duplicates().sort_values(["wall_s", "step"])
        steps, wall_s = steps + points["step"].to_list(), wall_s + points["wall_s"].to_list()
    if result.get("wall_s", 0.0) > wall_s[-1]:
        steps, wall_s = [*steps, result.get("steps", steps[-1])], [*wall_s, result["wall_s"]]
    return np.array(steps, float), np.array(wall_s, float)

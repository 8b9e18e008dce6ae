"""From the folder of a mix to frames: one row per job and round, and one per job and turn, compared with alone."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from labkit import UserError, launch, runs, telemetry, tta
from labkit.sharing.rounds import read_mix

JOB_COLUMNS = [
    "round", "workload", "mode", "repeat", "job", "label", "job_key", "status", "wall_s", "steps", "steps_per_s",
    "window_s", "time_to_target_s", "target_reached", "last_evaluated_s", "target", "metric", "peak_memory_bytes",
    "energy_j", "energy_note", "sm_active", "on", "go_at", "provenance", "run", "folder", "disturbed", "progress",
]  # fmt: skip
LEAST_COVERED = 0.9
"""Share of a round that must have been sampled: the ends of a short one lie between two samples."""
NUMBERS = [
    name for name in JOB_COLUMNS if name.endswith(("_s", "_j", "_bytes")) or name in ("steps", "target", "sm_active")
]
BROKEN = ("failed", "out_of_memory")
"""How a job's speed says nothing; one that was stopped or timed out had a speed until then."""
ENDS = {"out_of_memory": "ran out of memory", "timed_out": "was stopped at its timeout", "stopped": "was stopped"}
DERIVED = ["starts_s", "slowdown", "alone_s", "alone_j", "alone"]
"""Columns that `turn_table` adds"""


def job_table(mix_folder: Path | str) -> pd.DataFrame:
    """How each job of a mix fared, in the order of its rounds.

    All clocks begin at the barrier, once data and model are ready. wall_s goes from there until the job was through,
    as the launcher has it: its training, evaluations included, but neither its final test nor the end of its process.
    steps_per_s is that of the whole training. window_s is the time in which *all* jobs of the round trained: from the
    barrier until the first of them took its last step. What a job does afterwards it does with fewer neighbours, and
    would flatter the mode.

    Returns:
        JOB_COLUMNS. `round` counts the rounds from 0; in mode alone each job is a round by itself. `job_key`
        is equal for jobs that train the same. `on` is "cpu" or "gpu". last_evaluated_s is the last moment at which a
        job that did not reach its target is known to have been short of it, inf where it failed and never will.
        progress is (N,) steps and (N,) seconds, from the barrier to the end of the training. disturbed says what other
        programs did to the job's run; empty where nothing is known of it. energy_j is that of the round: the counter of
        a device belongs to all of its jobs, and so does sm_active, the mean SM activity (%) of its GPU in the time of
        the run. A number that there is not is NaN.

    Raises:
        UserError: the folder is not a readable mix. A run of it that cannot be read is noted, and a job without a run.
    """
    launches = read_mix(mix_folder)
    folder, rounds = launches.folder, launches.rounds()
    folders = [folder / part.run for part in launches.parts.values() if part.run]
    metrics = dict(list(runs.read_metrics(folders).groupby("run", sort=False)))
    rows = []
    for number, parts in enumerate(rounds):
        first = parts[0]
        known: dict[str, Any] = {"round": number, "provenance": launches.head.provenance.kind}
        known |= {name: first.launch.about[name] for name in ("workload", "repeat")}
        known |= {"mode": first.launch.mode, "go_at": first.go_at}
        own = [_of_job(folder, part, metrics.get(part.run)) for part in parts]
        until_s = float(np.min([last_step_s(row["progress"]) for row in own]))  # NaN where one of them has no run
        energy = _round_energy(first.go_at, own)
        known |= {"window_s": until_s, "energy_j": energy.value_j, "energy_note": energy.note}
        rows += [known | row for row in own]
    table = pd.DataFrame(rows, columns=JOB_COLUMNS)
    # a job that broke before it had a run was to reach the target of those like it
    alike = table.groupby("job_key", sort=False)[["target", "metric"]].transform("first")
    table = table.assign(target=table["target"].fillna(alike["target"]), metric=table["metric"].fillna(alike["metric"]))
    return table.astype(dict.fromkeys(NUMBERS, float))


def last_step_s(progress: tuple[np.ndarray, np.ndarray]) -> float:
    """When a job took its last step; an evaluation may follow."""
    steps, wall_s = progress
    return float(wall_s[np.argmax(steps == steps[-1])]) if np.isfinite(steps[-1]) else np.nan


def _of_job(folder: Path, job: "launch.Part", metrics: pd.DataFrame | None) -> dict[str, Any]:
    """Its row; progress is (steps, wall_s) from (0, 0) to the end of its training, NaN where it had none."""
    row = {name: getattr(job, name) for name in ("status", "wall_s", "run")} | {"label": job.launch.label}
    row |= {name: job.launch.about[name] for name in ("job", "job_key")}
    broke = job.status in BROKEN
    row |= {"target_reached": False, "last_evaluated_s": np.inf if broke else 0.0, "disturbed": ""}
    row |= {"progress": (np.array([np.nan]), np.array([np.nan])), "record": None}
    if not job.run:
        return row
    try:
        record = runs.read_run(folder / job.run)
    except UserError as error:
        runs.note_left_out(folder / job.run, str(error))
        return row
    result, train = record.result or {}, record.config.get("train", {})
    steps, wall_s = _progress(metrics, result)
    reached_s = result.get("time_to_target_s")
    if "time_to_target_s" not in result:  # killed: what it had announced by then still counts
        reached = [e for e in runs.read_events(folder / job.run) if e["event"] == "target_reached"]
        reached_s = next((e.get("wall_s") for e in reached if e["kind"] == "first"), None)
    gave_up = job.status == "done" and runs.unreached(record.status, result, train.get("max_seconds")) == "failed"
    evaluated = [] if metrics is None else metrics.loc[metrics["name"] == train.get("target_metric"), "wall_s"]
    memory = result["peak_memory_bytes"] if "peak_memory_bytes" in result else telemetry.peak_memory(folder / job.run)
    row |= {
        "steps": steps[-1],
        "steps_per_s": steps[-1] / wall_s[-1] if wall_s[-1] > 0 else np.nan,
        "time_to_target_s": reached_s,
        "target_reached": reached_s is not None,
        "last_evaluated_s": np.inf if broke or gave_up else max(evaluated, default=0.0),
        "target": train.get("target"),
        "metric": train.get("target_metric"),
        "peak_memory_bytes": memory,
        "sm_active": _sm_active(folder / job.run, record),
        "on": "gpu" if _torch_name(record).startswith("cuda") else "cpu",
        "folder": str(folder / job.run),
        "record": record,
        "disturbed": runs.disturbance_text(result.get("others")),
        "progress": (steps, wall_s),
    }
    return row


def _sm_active(folder: Path, record: "runs.RunRecord") -> float:
    gpu = telemetry.gpu_of(record.devices, _torch_name(record))
    samples = telemetry.Samples(folder).of("device", [gpu]).get("sm_active", []) if gpu else []
    known = [sample.value for sample in samples if sample.value is not None]
    return float(np.mean(known)) if known else np.nan


def _progress(metrics: pd.DataFrame | None, result: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """(N,) steps and (N,) seconds; the last of them are those of the result, where there is one."""
    steps, wall_s = [0.0], [0.0]
    if metrics is not None:
        # an evaluation takes time and no step, so one number of steps may stand at several times
        points = metrics[["wall_s", "step"]].drop_duplicates().sort_values(["wall_s", "step"])
        steps, wall_s = steps + points["step"].to_list(), wall_s + points["wall_s"].to_list()
    if result.get("wall_s", 0.0) > wall_s[-1]:
        steps, wall_s = [*steps, result.get("steps", steps[-1])], [*wall_s, result["wall_s"]]
    return np.array(steps, float), np.array(wall_s, float)


def _round_energy(go_at: str | None, rows: list[dict[str, Any]]) -> "telemetry.Energy":
    """Joules that the devices of a round took from its barrier until the last of its jobs was through.

    Each run samples the counter of the device that it shares for as long as it trains: the last to end counts for it.
    """
    ended = sorted((row for row in rows if row["wall_s"] is not None), key=lambda row: row["wall_s"])
    if go_at is None or not ended:
        return telemetry.Energy(None, None, "the round has not ended")
    begin_ns, round_ns = int(datetime.fromisoformat(go_at).timestamp() * 1e9), int(ended[-1]["wall_s"] * 1e9)
    by_device: dict[str, telemetry.Energy] = {}
    for row in ended:
        if row["record"] is not None:
            energy = telemetry.run_energy(row["folder"], of_all=True)
            device = _device_of(row["record"], energy)
            if energy.steps or device not in by_device:
                by_device[device] = energy
    joules, sources, notes = 0.0, [], []
    for device, energy in by_device.items():
        if not energy.steps:
            return telemetry.Energy(None, None, f"{device}: {energy.note}")
        until_ns = min(max(step.end_ns for step in energy.steps), begin_ns + round_ns)
        covered_ns = until_ns - max(min(step.begin_ns for step in energy.steps), begin_ns)
        of_all = f"sampled for {covered_ns / 1e9:.3g} s of the round's {round_ns / 1e9:.3g}"
        if covered_ns < LEAST_COVERED * round_ns:
            return telemetry.Energy(None, None, f"{device}: {of_all}, too little to stand for all of it")
        before, after = tta.energy_until(np.array([begin_ns, until_ns], float), energy.steps)
        joules += float(after - before)
        sources.append(energy.source)
        notes.append(f"{energy.note}; {of_all}")
    if not by_device:
        return telemetry.Energy(None, None, "none of its jobs has a run")
    return telemetry.Energy(joules, " + ".join(dict.fromkeys(sources)), "; ".join(dict.fromkeys(notes)))


def _device_of(record: "runs.RunRecord", energy: "telemetry.Energy") -> str:
    """The device that the energy of a run is of: a GPU's UUID, or the whole machine."""
    torch_name = _torch_name(record)
    if not torch_name.startswith("cuda") or (energy.source or "").startswith("Jetson"):
        return "this machine"
    return telemetry.gpu_of(record.devices, torch_name) or torch_name


def _torch_name(record: "runs.RunRecord") -> str:
    return str(record.budget.get("torch_name", "cpu"))


def turn_table(jobs: pd.DataFrame) -> pd.DataFrame:
    """One row per turn and job: first each mix alone in turn, repeat by repeat, then the rounds that have ended.

    Where one copy was measured alone and several are asked for, its run stands for each of them. A repeat that lacks a
    job alone has no turn alone. `jobs` is of `job_table`.

    Returns:
        The columns of `job_table`, and turn (from 0), mix and

        - starts_s: when the job may begin: alone, when the one before it has ended; else at once;
        - slowdown: its time for the steps that it took while all jobs trained, by the time of the same steps alone in
          the same repeat (in mode alone: the median over the repeats, so that its spread is that of the machine). NaN
          where the job was not measured alone, and of a turn in which a job broke: its neighbours had more room than
          the mode gives;
        - alone_s and alone_j: seconds and joules of its runs alone that came to their end,
          medians; alone: how many runs it has alone.
    """
    alone = jobs[(jobs["mode"] == "alone") & jobs["wall_s"].notna()]
    mixes = _mixes(jobs)
    turns = []
    for mix, planned in mixes.values():
        for _, repeat in alone.groupby("repeat"):
            own = [_alone(job, alone).index.intersection(repeat.index)[:1] for _, job in planned.iterrows()]
            if all(map(len, own)):
                together = pd.concat([repeat.loc[each] for each in own], ignore_index=True)
                turns.append(together.assign(job=list(planned["job"]), mix=mix))
    for _, own in jobs[jobs["mode"] != "alone"].groupby("round"):
        if not own["status"].isin(["waiting", "running"]).any():
            turns.append(own.reset_index(drop=True).assign(mix=mixes[_job_keys(own)][0]))
    if not turns:
        return jobs.iloc[:0].assign(**dict.fromkeys(["turn", "mix", *DERIVED], None))
    frames = [_with_baseline(own, alone).assign(turn=turn) for turn, own in enumerate(turns)]
    return pd.concat(frames, ignore_index=True)


def what_broke(own: pd.DataFrame) -> str:
    """What is missing in the rows of a turn; empty where nothing is."""
    parts = [f"{job.job} {ENDS.get(job.status, job.status)}" for job in own.itertuples() if job.status != "done"]
    if unknown := list(own.loc[own["alone"] == 0, "job"]):
        parts.append(f"not measured alone: {', '.join(unknown)}")
    return "; ".join(parts)


def jain(values: Iterable[float]) -> float:
    """Jain's fairness index, (Σx)² / (n Σx²), from 1/n to 1; NaN of nothing (Jain, Chiu and Hawe, DEC-TR-301, 1984).

    >>> jain([2, 2, 2]), jain([1, 0, 0, 0])
    (1.0, 0.25)
    """
    x = np.asarray(list(values), float)
    return float(x.sum() ** 2 / (len(x) * (x**2).sum())) if x.any() else np.nan


def _mixes(jobs: pd.DataFrame) -> dict[tuple[str, ...], tuple[str, pd.DataFrame]]:
    """By what they train, the name of each mix and its jobs as they were planned first, those of mode alone too.

    Two mixes of one name that train differently also have the name of their workload.
    """
    found: dict[tuple[str, ...], pd.DataFrame] = {}
    for _, own in jobs.groupby(["workload", "mode"], sort=False):
        first = own.drop_duplicates("job")
        found.setdefault(_job_keys(first), first)
    names = {kinds: launch.mix_words(first["label"]) for kinds, first in found.items()}
    count = Counter(names.values())
    for kinds, first in found.items():
        if count[names[kinds]] > 1:
            names[kinds] += f" ({first['workload'].iloc[0]})"
    return {kinds: (names[kinds], first) for kinds, first in found.items()}


def _job_keys(own: pd.DataFrame) -> tuple[str, ...]:
    return tuple(sorted(own["job_key"]))


def _alone(job: pd.Series, alone: pd.DataFrame) -> pd.DataFrame:
    """The runs alone of a job: those of its name that train the same, else all that train the same."""
    alike = alone[alone["job_key"] == job["job_key"]]
    named = alike[alike["job"] == job["job"]]
    return alike if named.empty else named


def _with_baseline(own: pd.DataFrame, alone: pd.DataFrame) -> pd.DataFrame:
    """The jobs of one turn with DERIVED."""
    in_turn = own["mode"].iloc[0] == "alone"
    broke = own["status"].isin(BROKEN).any()
    rows = []
    for _, job in own.iterrows():
        alike = _alone(job, alone)
        whole = alike[alike["status"] == "done"]
        slowdown = np.nan if broke else _slowdown(job, alike, in_turn)
        rows.append((0.0, slowdown, whole["wall_s"].median(), whole["energy_j"].median(), len(alike)))
    own = own.join(pd.DataFrame(rows, columns=DERIVED, index=own.index))
    return own.assign(starts_s=own["wall_s"].cumsum().shift(fill_value=0.0)) if in_turn else own


def _slowdown(job: pd.Series, alone: pd.DataFrame, in_turn: bool) -> float:
    """Its first steps are slower than its others, and evaluations come now and then: only the same steps compare."""
    took_s = last_step_s(job["progress"]) if in_turn else job["window_s"]
    steps = float(np.interp(took_s, *job["progress"][::-1]))
    alone = alone[~alone["status"].isin(BROKEN)]
    same = alone[alone["repeat"] == job["repeat"]]
    compared = alone if in_turn or same.empty else same
    return took_s / compared["progress"].map(lambda each: _seconds(*each, steps)).median() if steps > 0 else np.nan


def _seconds(steps: np.ndarray, wall_s: np.ndarray, until: float) -> float:
    """When a job had taken this number of steps; beyond its last it goes on as fast as it was."""
    if until > steps[-1]:
        return wall_s[-1] * until / steps[-1] if steps[-1] > 0 else np.nan
    return float(np.interp(until, steps, wall_s))

"""Made-up runs: as frames, which `run_table` and `curves` would give of them, and as folders."""

import numpy as np
import pandas as pd

from labkit.runs import TELEMETRY, Provenance, RunWriter
from labkit.runs.parts import PartWriter
from labkit.tta.outcomes import OF_A_RUN

DISTURBED = {"cpu_share": 0.4, "largest": "stress (process 7)", "on_gpu": [], "disturbed": True}


def made_up(
    curves, *, job="dlrm", budget="all-cores", unreached="failed", status="done", seeds=None, every_s=10.0, **columns
):
    """(curves, runs): a run for each list of values, evaluated every `every_s` wall seconds (a list: each its own).

    A run ends at its last evaluation, one without any after 1 s; `columns` are further ones of `run_table`.
    """
    rows, frames, count = [], [], len(curves)
    every_s, unreached, status = (np.broadcast_to(each, count) for each in (every_s, unreached, status))
    for number, values in enumerate(curves):
        wall_s = np.arange(1, len(values) + 1) * every_s[number]
        end_s = wall_s[-1] if len(values) else 1.0
        row = {
            "run": f"{job}-{budget}-{number}", "job": job, "budget": budget, "setting": "",
            "seed": number if seeds is None else seeds[number], "provenance": "measured", "tier": None,
            "metric": "auc", "higher_is_better": None, "target": 0.7, "confirm": 2, "settings": {"budget": budget},
            "status": str(status[number]), "disturbed": "", "unreached": str(unreached[number]),
            "wall_s": end_s, "train_s": end_s / 2, "samples": end_s * 100, "samples_per_s": 100.0 + number,
            "peak_memory_bytes": 2.0**30 * (1 + number), "peak_gpu_memory_bytes": 2.0**31 * (1 + number),
            "energy_j": np.nan, "energy_note": "no counter here",
        } | columns  # fmt: skip
        rows.append(row)
        of_the_run = {name: row[name] for name in OF_A_RUN}
        frame = pd.DataFrame({"wall_s": wall_s, "train_s": wall_s / 2, "samples": wall_s * 100, "value": values})
        frames.append(frame.assign(**of_the_run))
    return pd.concat(frames, ignore_index=True).astype({"value": float}), pd.DataFrame(rows)


def together(*made):
    """Several of these as one."""
    return tuple(pd.concat(frames, ignore_index=True) for frames in zip(*made, strict=True))


def arriving(times, **more):
    """Runs that reach 0.7 at these seconds; one of inf fails after 3 s, one below 0 is cut off after so many."""
    kinds = [("failed", 3.0) if np.isinf(t) else ("censored", -t) if t < 0 else ("failed", t) for t in times]
    values = [[0.8] if 0 <= t < np.inf else [0.5] for t in times]
    return made_up(values, every_s=[end for _, end in kinds], unreached=[kind for kind, _ in kinds], **more)


def new_run(runs_dir, name="t", *, torch_name="cpu", provenance="measured", note="", **described):
    """The writer of a run that has begun, on no device by default; `described` replaces fields of its record."""
    given = {"config": {}, "budget": {"torch_name": torch_name}, "tier": None, "devices": [], "seed": 0, "software": {}}
    return RunWriter.create(runs_dir, name, provenance=Provenance.now(provenance, note), **given | described)


def write_samples(folder, device, counter, values, *, scope=None, unit="J", source="RAPL", note=None, begin_s=0):
    """Telemetry of one counter in a run's folder, by its seconds since `begin_s`."""
    parts, begin_ns = PartWriter(folder / "telemetry", TELEMETRY), round(begin_s * 10**9)
    about = {"device": device, "scope": scope or ("host" if device == "host" else "device"), "pid": 1, "unit": unit}
    about |= {"counter": counter, "source": source, "note": note}
    for second, value in values.items():
        parts.append(about | {"time_ns": begin_ns + round(second * 10**9), "value": value})
    parts.flush()


def write_run(
    runs_dir, values, *, budget="all-cores", seed=0, every_s=2.0, tier="cloud-cpu-2", data="synthetic", status="done",
    config=None, others=None, energy_note="no counter", **train,
):  # fmt: skip
    """A run's folder: an evaluation of the AUC every 1,000 samples, also of log loss; killed if status is None."""
    train = {"target": 0.78, "target_metric": "auc", "lr": 0.001, "seed": seed, **train}
    device = {"name": "A test's CPU", "kind": "cpu", "cores": 1, "machine_cores": 2, "memory_bytes": 2**33}
    run = new_run(
        runs_dir,
        "synthetic",
        config={"job": "dlrm", "data": {"name": data, "fingerprint": data}, "train": train, **(config or {})},
        budget={"name": budget, "torch_name": "cpu"},
        tier=tier,
        devices=[device | {"torch_name": "cpu"}],
        seed=seed,
        provenance="measured" if budget == "all-cores" else "emulated",
        software={"labkit": "0", "torch": "2"},
    )
    for number, value in enumerate(values, start=1):
        wall_s = number * every_s
        point = {"step": number * 10, "wall_s": wall_s, "train_s": 0.75 * wall_s, "samples": number * 1000}
        for name, each in (("loss", 1 - value), ("auc", value), ("log_loss", 1 - value)):
            run.metric(name=name, value=each, **point)
        run.event("evaluated", metric="auc", value=value, metrics={"auc": value}, **point)
        run.flush()
    if status is None:  # its number now belongs to a process that began later
        run.record.pid_started -= 60
        run.record.save(run.folder)
    else:
        energy = {"energy_j": None, "energy_note": energy_note} if energy_note else {}  # else its telemetry has it
        result = {"samples_per_s": 660.0, "peak_memory_bytes": 2**30, "others": others}
        run.finish(status, result | energy)
    return run.folder

"""Reads run folders into frames, with DuckDB over all their Parquet parts at once."""

from __future__ import annotations

import difflib
import json
import re
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.errors import UserError
from labkit.runs.record import read_run

if TYPE_CHECKING:  # `labkit runs` must start without pandas
    import pandas as pd


TOGETHER = ("group.json", "queue.json")
"""Lies in a folder of runs that were started together, by `labkit collocate` or `labkit pack`."""


def run_folders(runs_dir: Path | str) -> list[Path]:
    """The run folders below a folder, those of groups and queues too, oldest first; none where there is no such folder.

    Raises:
        UserError: it is a file.
    """
    if Path(runs_dir).is_file():
        raise UserError(f"{runs_dir}: this is a file, not a folder with runs: name their folder.")
    places = [Path(runs_dir), *(path.parent for name in TOGETHER for path in Path(runs_dir).glob(f"*/{name}"))]
    return sorted((path.parent for place in places for path in place.glob("*/run.json")), key=lambda each: each.name)


def list_runs(runs_dir: Path | str) -> pd.DataFrame:
    """One row a run, oldest first; a damaged record is warned of and left out.

    Returns:
        Columns run, folder, job, budget (of a run that shared its device: how, and with what), group (that it was
        started with, or None), seed, status, provenance, profiled, target_metric, target, target_reached,
        time_to_target_s, started_at.
    """
    import pandas as pd

    columns = [
        "run",
        "folder",
        "job",
        "budget",
        "group",
        "seed",
        "status",
        "provenance",
        "profiled",
        "target_metric",
        "target",
        "target_reached",
        "time_to_target_s",
        "started_at",
    ]
    return pd.DataFrame(list_rows(runs_dir), columns=columns)


def list_rows(runs_dir: Path | str) -> list[dict[str, Any]]:
    """The rows of `list_runs` as plain dictionaries."""
    rows = []
    for folder in run_folders(runs_dir):
        try:
            record = read_run(folder)
        except UserError as error:
            warnings.warn(str(error), stacklevel=2)
            continue
        result, train = record.result or {}, record.config.get("train", {})
        rows.append(
            {
                "run": record.id,
                "folder": str(folder),
                "job": record.config.get("job", record.name),
                "budget": record.ran_under,
                "group": record.config.get("collocation", {}).get("group"),
                "seed": record.seed,
                "status": record.status,
                "provenance": record.provenance.kind,
                "profiled": record.profiled,
                "target_metric": train.get("target_metric"),
                "target": train.get("target"),
                "target_reached": result.get("target_reached"),
                "time_to_target_s": result.get("time_to_target_s"),
                "started_at": record.started_at,
            }
        )
    return rows


def find_run(run: str, runs_dir: Path | str) -> Path:
    """The folder of a run named by its folder, its id, or the beginning of its id.

    Raises:
        UserError: no run, or more than one, goes by that name.
    """
    if (Path(run) / "run.json").is_file():
        return Path(run)
    folders = run_folders(runs_dir)
    matches = [folder for folder in folders if folder.name.startswith(run)]
    if len(matches) == 1:
        return matches[0]
    names = [folder.name for folder in folders]
    if matches:
        raise UserError(f"run {run!r} could be {', '.join(f.name for f in matches[:5])}: write more of its name.")
    near = difflib.get_close_matches(run, names, n=3, cutoff=0.4)
    hint = f"Near it: {', '.join(near)}." if near else f"There are {len(names)} runs; `labkit runs list` shows them."
    raise UserError(f"there is no run {run!r} in {runs_dir}. {hint}")


def read_events(folder: Path | str) -> list[dict[str, Any]]:
    """The events of a run that count: after a resume, evaluations beyond the resumed step are superseded.

    A line that a crash cut short is left out.
    """
    path = Path(folder) / "events.jsonl"
    events: list[dict[str, Any]] = []
    if not path.is_file():
        return events
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            event = json.loads(line)
        except json.JSONDecodeError:
            continue
        if event["event"] == "resumed":
            step = event["step"]
            events = [e for e in events if "wall_s" not in e or e.get("step", 0) <= step]
        events.append(event)
    return events


def read_metrics(folders: Iterable[Path | str]) -> pd.DataFrame:
    """Columns run, step, wall_s, train_s, samples, name, value of many runs, in the order recorded."""
    folders = [Path(folder) for folder in folders]
    frame = _read_parts(folders, "metrics", "run, step, wall_s, train_s, samples, name, value", extra=", part")
    resumed = [
        (folder.name, event["parts"], event["step"])
        for folder in folders
        for event in (read_events(folder) if _was_resumed(folder) else ())
        if event["event"] == "resumed"
    ]
    for run, parts, step in resumed:
        superseded = (frame["run"] == run) & (frame["part"] < f"part-{parts:05d}") & (frame["step"] > step)
        frame = frame[~superseded]
    return frame.drop(columns="part").reset_index(drop=True)


def _was_resumed(folder: Path) -> bool:
    path = folder / "events.jsonl"
    return path.is_file() and b'"resumed"' in path.read_bytes()


def read_telemetry(folders: Iterable[Path | str]) -> pd.DataFrame:
    """Columns run, time_ns, device, scope, pid, counter, value, unit, source, note of many runs."""
    columns = "run, time_ns, device, scope, pid, counter, value, unit, source, note"
    return _read_parts([Path(folder) for folder in folders], "telemetry", columns)


def _read_parts(folders: list[Path], kind: str, columns: str, extra: str = "") -> pd.DataFrame:
    import duckdb
    import pandas as pd

    from labkit.runs.parts import readable_parts

    paths = []
    for folder in folders:
        whole, broken = readable_parts(folder / kind)
        paths += whole
        for path in broken:
            warnings.warn(f"{path}: this part is no whole Parquet file and is left out", stacklevel=3)
    if not paths:
        return pd.DataFrame(columns=[name.strip() for name in (columns + extra).split(",")])
    query = f"""
        select {columns}{extra} from (
            select *, parse_filename(filename, true) as part, parse_path(filename)[-3] as run
            from read_parquet($paths, filename = true, union_by_name = true)
        )
    """
    with duckdb.connect() as connection:
        # preserve_insertion_order is DuckDB's default: rows come part by part as they were written
        return connection.execute(query, {"paths": [_literal(path) for path in paths]}).df()


def _literal(path: Path) -> str:
    """A path as DuckDB's pattern for just that path: in a set of its own, a wildcard stands for itself."""
    return re.sub(r"([*?\[])", r"[\1]", path.resolve().as_posix())

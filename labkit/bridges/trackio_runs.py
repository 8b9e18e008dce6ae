"""Trackio's runs as run folders."""

import contextlib
import os
from collections.abc import Generator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from labkit import UserError
from labkit.bridges.logged import UNKNOWN_END, Logged
from labkit.bridges.sources import copied_database, library


def read(path: str) -> Iterator[Logged]:
    """The runs of a Trackio folder, project after project, or of one project's database."""
    place = Path(path)
    files = sorted(place.glob("*.db")) if place.is_dir() else [place]
    if not place.exists() or not files:
        what = "has no .db files" if place.exists() else "does not exist"
        raise UserError(
            f"{path} {what}: give Trackio's folder (~/.cache/huggingface/trackio), or a project's .db file."
        )
    for file in files:
        with copied_database(file, {"metrics", "configs"}, "Trackio") as copy, storage_in(copy.parent) as storage:
            for run in storage.get_run_records(copy.stem):
                yield _logged(storage, copy.stem, run, file)


@contextlib.contextmanager
def storage_in(folder: Path) -> Generator[Any]:
    """Trackio's storage, in this folder."""
    os.environ.setdefault("TRACKIO_DIR", str(folder))  # it looks once, when it is imported
    storage = library("trackio.sqlite_storage", "trackio")
    before = storage.TRACKIO_DIR
    storage.TRACKIO_DIR = folder
    try:
        yield storage.SQLiteStorage
    finally:
        storage.TRACKIO_DIR = before


def _logged(storage: Any, project: str, run: dict[str, Any], file: Path) -> Logged:
    import trackio

    config = dict(storage.get_run_config(project, run["name"], run_id=run["id"]) or {})
    group, created = config.pop("_Group", None), config.pop("_Created", None)
    config.pop("_Username", None)
    tool, run_id = f"Trackio {trackio.__version__}", f"{project}/{run['id']}"
    logged = Logged(tool, id=run_id, name=str(run["name"]), group=project, source=str(file))
    logged.began_ns = _time_ns(created) if created else None
    logged.notes.append(UNKNOWN_END.format("Trackio does"))
    ours = config.pop("labkit", None)
    logged.settings = config | ({"_Group": group} if group else {})
    # without a limit: with one, Trackio keeps every n-th row
    for row in storage.get_logs(project, run["name"], max_points=None, run_id=run["id"]):
        step, time_ns = row.pop("step"), _time_ns(row.pop("timestamp"))
        for name, value in row.items():
            logged.take(name, step, time_ns, value)
    logged.take_ours(ours)
    for row in storage.get_system_logs(project, run["name"], run_id=run["id"]):
        time_ns = _time_ns(row.pop("timestamp"))
        for name, value in row.items():
            logged.take_sample(name, time_ns, value)
    return logged


def _time_ns(text: str) -> int:
    """Nanoseconds since 1970 of a time as Trackio has it; 0 for a text that is none."""
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return 0
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return since // timedelta(microseconds=1) * 1000

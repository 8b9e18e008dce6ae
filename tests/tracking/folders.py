"""Run folders: as a kill leaves them, gone on with, and read."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path

from labkit.runs import read_events, read_metrics
from labkit.tracking.harness import Harness
from labkit.tracking.stop import StopRequest


def as_killed(folder: Path) -> Path:
    """A copy of the run's folder, as a kill -9 at this moment would leave it."""
    copy = folder.with_name(f"{folder.name}-killed")
    shutil.copytree(folder, copy)
    record = json.loads((copy / "run.json").read_text())
    record |= {"id": copy.name, "pid_started": 0.0}  # this process is another one than the one that was killed
    (copy / "run.json").write_text(json.dumps(record))
    return copy


@contextlib.contextmanager
def resuming(folder: Path, stop: StopRequest | None = None, **harness):
    """Go on with a run in the block, as `labkit run --resume` does."""
    wrapped = Harness(StopRequest() if stop is None else stop, folder.parent, resume=folder, **harness)
    with wrapped.wrapped():
        yield wrapped


def losses(folder: Path) -> dict[int, float]:
    """The loss of each step."""
    rows = read_metrics([folder]).query("name == 'loss'")
    assert rows["step"].is_unique
    return dict(zip(rows["step"], rows["value"], strict=True))


def events(folder: Path, name: str) -> list[dict]:
    return [event for event in read_events(folder) if event["event"] == name]

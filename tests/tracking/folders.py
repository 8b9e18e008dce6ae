"""Run folders: as a kill leaves them, gone on with, and read."""

import contextlib
import json
import shutil
from pathlib import Path

from labkit.runs import read_events, read_metrics
from labkit.tracking.ending import StopRequest
from labkit.tracking.harness import Harness, ScriptCommand


def as_killed(folder: Path) -> Path:
    """A copy of the run's folder, as a kill -9 at this moment would leave it."""
    copy = folder.with_name(f"{folder.name}-killed-{len(list(folder.parent.iterdir()))}")
    shutil.copytree(folder, copy)
    record = json.loads((copy / "run.json").read_text())
    record |= {"id": copy.name, "pid_started": 0.0}  # this process is another one than the one that was killed
    (copy / "run.json").write_text(json.dumps(record))
    return copy


@contextlib.contextmanager
def in_harness(runs_dir: Path, stop: StopRequest | None = None, on_event=lambda event: None, **command):
    """What `labkit run` puts around a script."""
    command = ScriptCommand(runs_dir=str(runs_dir), **command)
    with Harness(StopRequest() if stop is None else stop, command, on_event).wrapped() as harness:
        yield harness


@contextlib.contextmanager
def resuming(folder: Path, stop: StopRequest | None = None, **command):
    """Go on with a run in the block, as `labkit run --resume` does."""
    with in_harness(folder.parent, stop, resume=str(folder), **command) as harness:
        yield harness


def losses(folder: Path) -> dict[int, float]:
    """The loss of each step."""
    rows = read_metrics([folder]).query("name == 'loss'")
    assert rows["step"].is_unique
    return dict(zip(rows["step"], rows["value"], strict=True))


def events(folder: Path, name: str) -> list[dict]:
    return [event for event in read_events(folder) if event["event"] == name]

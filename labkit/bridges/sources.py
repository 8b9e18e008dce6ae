"""Where runs come from: the readers of other trackers, and what they share."""

import contextlib
import importlib
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from labkit import UserError, runs
from labkit.bridges.folders import write_run
from labkit.bridges.logged import Logged, Wishes, refuse_unknown_metric


@dataclass
class Imported:
    """What became of an import."""

    folders: list[Path] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """Why runs were not imported"""
    left_out: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    """What was changed or is doubtful, with the number of runs"""


def import_runs(tool: str, path: str, runs_dir: Path, wishes: Wishes) -> Imported:
    """Write the runs that another tracker has at `path` as run folders; an earlier import of a run is replaced.

    Raises:
        UserError: there is nothing of that tracker, its library is missing, or no run logged the target's metric.
    """
    read: Callable[[str], Generator[Logged]] = importlib.import_module(f"labkit.bridges.{tool}_runs").read
    done, waiting, names = Imported(), [], set()
    with contextlib.closing(read(path)) as found:
        for logged in found:
            names |= {point.name for point in logged.points}
            waiting.append(logged)
            try:
                refuse_unknown_metric(wishes.target, names)
            except UserError:  # until a run has the metric, none is written
                continue
            while waiting:
                _take(waiting.pop(0), runs_dir, wishes, done)
    if waiting:
        refuse_unknown_metric(wishes.target, names)
    return done


def _take(logged: Logged, runs_dir: Path, wishes: Wishes, done: Imported) -> None:
    try:
        folder = write_run(logged, runs_dir, wishes)
    except UserError as error:
        if error.field in ("percent", "into"):  # options of the import
            raise
        done.refused.append(str(error))
        return
    done.folders.append(folder)
    done.left_out += logged.left_out
    done.notes.update(logged.notes)


def library(module: str, extra: str) -> ModuleType:
    """A tracker's own library, or a UserError that says how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(
            f"this needs a library that is not installed ({error}): install it with `pip install 'labkit[{extra}]'`."
        ) from error


@contextlib.contextmanager
def copied_database(path: Path, tables: set[str], what: str) -> Generator[Path]:
    """A copy of an SQLite file as it is now, because libraries write into what they open.

    Raises:
        UserError: it is damaged, or lacks one of `tables`: it is not `what`.
    """
    with tempfile.TemporaryDirectory(prefix="labkit-") as folder:
        copy = Path(folder) / path.name
        try:
            with (
                contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as source,
                contextlib.closing(sqlite3.connect(copy)) as target,
                runs.disk_full_as_user_error(Path(folder)),
            ):
                there = {name for (name,) in source.execute("select name from sqlite_master where type = 'table'")}
                if not tables <= there:
                    raise UserError(
                        f"{path} is a database, but none of {what}: it has no table {min(tables - there)!r}."
                    )
                source.backup(target)
        except sqlite3.Error as error:
            raise UserError(
                f"{path} cannot be read as a database of {what} ({error}): give another file, or a copy that is whole."
            ) from error
        yield copy

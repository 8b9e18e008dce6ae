"""A cache of the runs in a folder: an index of their records, and what ended runs wrote, merged into few sorted files.

The folders stay the source of truth. The cache may be deleted at any moment; several processes, also on several hosts,
may use it at once: files are renamed into place and never changed, and one small list of files says which count.
What two processes write at the same time is written twice, and counted once.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from labkit import UserError, errors, project
from labkit.runs.frames import run_folders
from labkit.runs.parts import write_part
from labkit.runs.record import read_run
from labkit.runs.safe_files import note_left_out, replace_text
from labkit.runs.tables import KINDS, RUNS, run_row

FOLDER, FORMAT = ".labkit-store", "1"
"""Name of the cache in a folder of runs, and of the folder in it for this format: versions do not share files"""
MOST_ROWS = 2_000_000
"""Rows of a file: what is sorted at once takes 200 MB."""
ROW_GROUP = 100_000
"""Rows that a reader skips at once by their lowest and highest names"""
FEW = 8
"""Number of small files that are merged into one"""
SETTLED_S = 2.0
"""Age of a change, in seconds, from which another one has another time, on file systems with coarse times, too"""
KEPT_S = 3600.0
"""Seconds for which a file that no longer counts stays for processes that have read an older list"""

_INDEX = pa.schema([*RUNS, ("place", pa.string()), ("changed_ns", pa.int64()), ("size", pa.int64())])


@dataclass
class Rows:
    """Where the rows of a table are."""

    files: dict[Path, list[str]] = field(default_factory=dict)
    """Files, each with the runs in it that no longer count"""
    tables: list[pa.Table] = field(default_factory=list)
    """Rows of runs that go on, or that could not be kept"""


class Store:
    """The runs in a folder, or one run's folder."""

    def __init__(self, runs_dir: Path | str):
        self.runs_dir = Path(runs_dir).resolve()
        self._live: dict[tuple[str, str], tuple[list[int], list[pa.Table]]] = {}
        is_run = (self.runs_dir / "run.json").is_file()
        self._folder = None if is_run else self._writable_folder()

    def _writable_folder(self) -> Path | None:
        """The cache's folder; if none can be made in the folder of runs, one in the user's cache."""
        key = hashlib.sha256(os.fsencode(self.runs_dir)).hexdigest()[:16]
        ships = self.runs_dir.is_relative_to(project.shipped_datasets())
        is_pattern = set("*?[") & set(str(self.runs_dir))  # to DuckDB
        beside = [] if ships or is_pattern else [self.runs_dir / FOLDER]
        for folder in (*beside, project.cache_root() / "stores" / key):
            with contextlib.suppress(OSError):
                (folder / FORMAT).mkdir(parents=True, exist_ok=True)
                if not (folder / ".gitignore").exists():
                    replace_text(folder / ".gitignore", "*\n")
                if os.access(folder / FORMAT, os.W_OK):
                    return folder / FORMAT
        return None

    def index(self) -> pa.Table:
        """One row per readable run, by name; the others are noted and left out.

        Columns of RUNS, and the place of the folder below `runs_dir` with the time and size of its run.json.
        """
        known = self._read_index()
        rows = {place: row for row, place in enumerate(known["place"].to_pylist())}
        changed, sizes = known["changed_ns"].to_pylist(), known["size"].to_pylist()
        kept, read, settled, names = [], [], 0, set()
        before_ns = time.time_ns() - round(SETTLED_S * 1e9)
        for folder in run_folders(self.runs_dir):
            place = folder.name if folder.parent == self.runs_dir else str(folder.relative_to(self.runs_dir))
            if folder.name in names:
                note_left_out(folder, "another run here has the same name")
                continue
            try:
                stat = os.stat(f"{folder}/run.json")  # noqa: PTH116 - of thousands, without making a Path of each
                row = rows.get(place)
                if row is not None and (changed[row], sizes[row]) == (stat.st_mtime_ns, stat.st_size):
                    kept.append(row)
                else:
                    record = read_run(folder)
                    about = {"place": place, "changed_ns": stat.st_mtime_ns, "size": stat.st_size}
                    read.append(run_row(folder, record) | about)
                    settled += record.status in ("done", "failed", "stopped") and stat.st_mtime_ns < before_ns
            except (UserError, OSError) as error:
                note_left_out(folder, str(error))
                continue
            names.add(folder.name)
        table = pa.concat_tables([known.take(pa.array(kept, pa.int64())), pa.Table.from_pylist(read, _INDEX)])
        if settled > len(kept) / 50 or len(kept) < len(known) / 2:
            ended = pc.field("status").isin(["done", "failed", "stopped"])  # a killed run may yet be resumed
            self._keep(table.filter(ended & (pc.field("changed_ns") < before_ns)), "index.parquet")
        places = table["place"].to_pylist()  # the cache may have been moved
        paths = [str(self.runs_dir) if place == "." else f"{self.runs_dir}{os.sep}{place}" for place in places]
        return table.set_column(RUNS.get_field_index("folder"), "folder", pa.array(paths, pa.string())).sort_by("run")

    def _read_index(self) -> pa.Table:
        with contextlib.suppress(OSError, pa.ArrowException, KeyError, ValueError):
            if self._folder is not None:
                table = pq.ParquetFile(self._folder / "index.parquet").read(use_threads=False)
                return table.select(_INDEX.names).cast(_INDEX)
        return _INDEX.empty_table()

    def rows(self, table: str, index: pa.Table) -> Rows:
        """Where the rows of these runs are, after those of runs that have ended were put into the cache."""
        kind, listed = KINDS[table], self._listed(table)
        found, ended, going_on = Rows(), {}, {}
        counted: dict[str, set[str]] = {name: set() for name in listed["files"]}
        before_ns = time.time_ns() - round(SETTLED_S * 1e9)
        columns = (index[name].to_pylist() for name in ("run", "place", "status", "changed_ns", "size"))
        for run, place, status, changed_ns, size in zip(*columns, strict=True):
            signature = [changed_ns, size, _changed_ns(f"{self.runs_dir}/{place}/{kind.source}")]
            have = listed["runs"].get(place)
            if have and have["signature"] == signature and counted.keys() >= set(have["files"]):
                for name in have["files"]:
                    counted[name].add(run)
            elif status != "running" and max(changed_ns, signature[2]) < before_ns and self._folder is not None:
                ended[place] = signature
            else:
                going_on[place] = signature
        listed["runs"] = {place: each for place, each in listed["runs"].items() if place not in ended}
        if ended and not self._compact(table, ended, listed, counted):
            going_on |= ended
        found.files = {
            errors.certain(self._folder) / name: sorted(set(listed["files"][name]["runs"]) - runs)
            for name, runs in counted.items()
            if runs
        }
        for place, signature in going_on.items():
            known = self._live.get((table, place))
            if known is None or known[0] != signature:
                with contextlib.suppress(FileNotFoundError):
                    known = self._live[table, place] = (signature, list(self._read(table, place)))
            found.tables += known[1] if known else []
        return found

    def is_damaged_by(self, error: str) -> bool:
        """Whether an error names a file of this cache; if so, everything is read from the folders again."""
        if self._folder is None or str(self._folder) not in error:
            return False
        for path in self._folder.glob("*.json"):
            path.unlink(missing_ok=True)
        return True

    def _read(self, table: str, place: str) -> Iterator[pa.Table]:
        """The rows of a run; a folder that is deleted while it is read is noted."""
        folder = self.runs_dir / place
        try:
            for part in KINDS[table].read(folder):
                run = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), len(part)), [folder.name])
                yield part.add_column(0, "run", run).cast(KINDS[table].schema)
        except FileNotFoundError:
            note_left_out(folder, "it was deleted or changed while it was read")
            raise

    def _listed(self, table: str) -> dict[str, Any]:
        """Which files there are, with the runs in them, and which runs they hold as their folders are now."""
        listed: dict[str, Any] = {"files": {}, "runs": {}}
        if self._folder is not None:
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                read = json.loads((self._folder / f"{table}.json").read_bytes())
                listed = {"files": dict(read["files"]), "runs": dict(read["runs"])}
            there = set(os.listdir(self._folder))  # noqa: PTH208
            listed["files"] = {name: each for name, each in listed["files"].items() if name in there}
        return listed

    def _compact(self, table: str, ended: dict[str, list[int]], listed: dict[str, Any], counted: dict) -> bool:
        """Put the rows of these runs into files, and list them. False if that is impossible."""
        batch, rows, new, broken = [], 0, {}, set()
        for place in ended:
            try:
                for part in self._read(table, place):
                    batch.append(part)
                    if (rows := rows + len(part)) >= MOST_ROWS:
                        rows = 0
                        if not self._write(table, batch, new):
                            return False
            except FileNotFoundError:
                broken.add(Path(place).name)
        if rows and not self._write(table, batch, new):
            return False
        listed["files"] |= new
        counted |= {name: set(each["runs"]) - broken for name, each in new.items()}
        for place, signature in ended.items():
            if (run := Path(place).name) not in broken:
                files = [name for name in new if run in counted[name]]
                listed["runs"][place] = {"signature": signature, "files": files}
        self._merge_small(table, listed, counted)
        self._save(table, listed, counted)
        return True

    def _merge_small(self, table: str, listed: dict[str, Any], counted: dict[str, set[str]]) -> None:
        """Merge small files, and those that mostly hold what no longer counts, if there are several."""
        small = [
            name
            for name, each in listed["files"].items()
            if each["rows"] < MOST_ROWS / 2 or len(counted[name]) < len(each["runs"]) / 2
        ]
        batch, new, instead = [], {}, {}
        for name in small if len(small) >= FEW else ():
            part = pq.ParquetFile(self._folder / name, read_dictionary=KINDS[table].words).read()
            batch.append(part.filter(pc.field("run").cast(pa.string()).isin(sorted(counted[name]))))
            instead[name] = len(new)
            if (sum(map(len, batch)) >= MOST_ROWS / 2 or name == small[-1]) and not self._write(table, batch, new):
                return
        listed["files"] |= new
        counted |= {name: set(each["runs"]) for name, each in new.items()} | {name: set() for name in instead}
        for each in listed["runs"].values():
            names = [list(new)[instead[name]] if name in instead else name for name in each["files"]]
            each["files"] = list(dict.fromkeys(names))

    def _write(self, table: str, batch: list[pa.Table], new: dict[str, Any]) -> bool:
        """Write a batch as a new file, and empty it. False if that is impossible."""
        merged, name = _sorted(table, batch), f"{table}-{uuid.uuid4().hex}.parquet"
        batch.clear()
        new[name] = {"rows": len(merged), "runs": sorted(merged["run"].unique().to_pylist())}
        return self._keep(merged, name)

    def _save(self, table: str, listed: dict[str, Any], counted: dict[str, set[str]]) -> None:
        """List the files, and delete those that have not counted for an hour."""
        folder = errors.certain(self._folder)
        for name in [name for name in listed["files"] if not counted[name]]:
            del listed["files"][name]
            with contextlib.suppress(OSError):
                os.utime(folder / name)  # its hour begins
        try:
            replace_text(folder / f"{table}.json", json.dumps(listed))
        except (OSError, UserError) as error:
            self._note(error)
        for old in (*folder.glob(f"{table}-*.parquet"), *folder.glob(".*.parquet.*")):
            with contextlib.suppress(OSError):
                if old.name not in listed["files"] and old.stat().st_mtime < time.time() - KEPT_S:
                    old.unlink()

    def _keep(self, table: pa.Table, name: str) -> bool:
        """Write a file of the cache. False, with a note, if that is impossible."""
        if self._folder is None:
            return False
        try:
            write_part(table, self._folder / name, row_group_size=ROW_GROUP, store_schema=False)
            return True
        except (OSError, UserError) as error:
            return self._note(error)

    def _note(self, error: Exception) -> bool:
        place = errors.certain(self._folder)
        note_left_out(place, f"this cache cannot be written, so each query reads the folders ({error})")
        return False


def _changed_ns(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116
    except OSError:
        return 0


def _sorted(table: str, batch: list[pa.Table]) -> pa.Table:
    """The rows of a file: equal texts together, in alphabetical order, so that readers skip most of it."""
    rows = pa.concat_tables(batch).unify_dictionaries().combine_chunks()
    code = np.zeros(len(rows), np.int64)
    for name in KINDS[table].sort_by:
        column = rows[name].combine_chunks()
        column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
        rank = np.argsort(np.argsort(np.array(column.dictionary.to_pylist(), object)))
        code = code * (len(rank) + 1) + rank[column.indices.fill_null(0).to_numpy()]
    return rows.take(np.argsort(code, kind="stable"))

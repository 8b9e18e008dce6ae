"""Reads run folders into frames; what is damaged is noted and left out."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit.errors import UserError
from labkit.runs.events import read_events
from labkit.runs.notes import note_left_out
from labkit.runs.record import RunRecord, in_words, read_run

if TYPE_CHECKING:  # `labkit runs` must start without pandas
    import pandas as pd


TOGETHER = ("launches.jsonl", "group.json", "queue.json")
"""Files in a folder of runs that were started together, by `labkit collocate` or `labkit pack`; the last two are those
of earlier versions"""


def run_folders(runs_dir: Path | str) -> list[Path]:
    """The run folders below a folder, those of groups and queues too, oldest first; none where there is no such folder.

    Raises:
        UserError: it is a file.
    """
    if Path(runs_dir).is_file():
        raise UserError(f"{runs_dir}: this is a file, not a folder with runs: name their folder.")
    places = [Path(runs_dir), *(path.parent for name in TOGETHER for path in Path(runs_dir).glob(f"*/{name}"))]
    return sorted((path.parent for place in places for path in place.glob("*/run.json")), key=lambda each: each.name)


def readable_runs(folders: Iterable[Path | str]) -> list[tuple[Path, RunRecord]]:
    """The records of run folders; an unreadable one is noted and left out.

    Raises:
        UserError: every folder given is unreadable; the reason of the first.
    """
    records, refused = [], {}
    for folder in map(Path, folders):
        try:
            records.append((folder, read_run(folder)))
        except UserError as error:
            refused[folder] = error
    if refused and not records:
        raise refused.pop(next(iter(refused)))
    for folder, error in refused.items():
        note_left_out(folder, str(error))
    return records


def list_runs(runs_dir: Path | str) -> pd.DataFrame:
    """One row a run, oldest first; a damaged record is noted and left out.

    Of a run that shared its device, budget says how and with what, and group what it was started with. seed
    is "none" where the script was given none; disturbed says in words what other programs did to it, if anything.
    """
    import pandas as pd

    columns = "run folder job budget group seed status provenance profiled trial target_metric target target_reached"
    return pd.DataFrame(list_rows(runs_dir), columns=[*columns.split(), "time_to_target_s", "disturbed", "started_at"])


def list_rows(runs_dir: Path | str) -> list[dict[str, Any]]:
    """The rows of `list_runs` as plain dictionaries."""
    rows = []
    for folder, record in readable_runs(run_folders(runs_dir)):
        result, train = record.result or {}, record.config.get("train", {})
        rows.append(
            {
                "run": record.id,
                "folder": str(folder),
                "job": record.config.get("job", record.name),
                "budget": record.ran_under,
                "group": record.config.get("collocation", {}).get("group"),
                "seed": record.told_seed,
                "status": record.status,
                "provenance": record.provenance.kind,
                "profiled": record.profiled,
                "trial": record.is_trial,
                "target_metric": train.get("target_metric"),
                "target": train.get("target"),
                "target_reached": result.get("target_reached"),
                "time_to_target_s": result.get("time_to_target_s"),
                "disturbed": in_words(result.get("others")),
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
    hint = "There is none at all: name the folder that has yours with --runs-dir, or start one."
    if names:
        which = f"near it: {', '.join(near)}" if near else f"the latest is {names[-1]}"
        hint = f"There are {len(names)}, {which}; `labkit runs list --runs-dir {runs_dir}` shows them."
    raise UserError(f"there is no run {run!r} in {runs_dir}. {hint}")


def read_metrics(folders: Iterable[Path | str]) -> pd.DataFrame:
    """Columns run, step, wall_s, train_s, samples, name, value of many runs, in the order recorded.

    A damaged part is noted and left out.
    """
    import pyarrow as pa

    from labkit.runs.parts import METRICS, current_parts, part_numbers, read_part

    tables = []
    for folder in map(Path, folders):
        path = folder / "events.jsonl"  # which is long, and of few runs matters
        events = read_events(folder) if path.is_file() and b'"resumed"' in path.read_bytes() else []
        resumed = [(event["parts"], event["step"]) for event in events if event["event"] == "resumed"]
        for path in current_parts(folder / "metrics"):
            table = read_part(path, METRICS)
            if table is None:
                continue
            last = min((step for parts, step in resumed if part_numbers(path)[0] < parts), default=None)
            if last is not None:
                table = table.filter(pa.compute.field("step") <= last)
            tables.append(table.add_column(0, "run", pa.repeat(folder.name, len(table))))
    schema = METRICS.insert(0, pa.field("run", pa.string()))
    return pa.concat_tables([schema.empty_table(), *tables]).to_pandas()


def read_telemetry(folders: Iterable[Path | str]) -> pd.DataFrame:
    """Columns run, time_ns, device, scope, pid, counter, value, unit, source, note of many runs.

    Words are categories, each kept once: group by them with observed=True. A damaged part is noted and left out.
    """
    import pyarrow as pa

    from labkit.runs.parts import TELEMETRY, current_parts, read_part

    word = pa.dictionary(pa.int32(), pa.string())
    schema = pa.schema([each.with_type(word) if each.type == pa.string() else each for each in TELEMETRY])
    tables = [schema.insert(0, pa.field("run", word)).empty_table()]
    for folder in map(Path, folders):
        for path in current_parts(folder / "telemetry"):
            if (part := read_part(path, schema)) is not None:
                run = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), len(part)), [folder.name])
                tables.append(part.add_column(0, "run", run))
    return pa.concat_tables(tables).unify_dictionaries().to_pandas(split_blocks=True, self_destruct=True)

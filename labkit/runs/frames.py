"""Reads run folders: their events, their list, and frames of many runs; damaged parts are noted and left out."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from labkit import UserError, errors, json_data
from labkit.runs.record import RunRecord, UsedDevice, disturbance_text, read_run
from labkit.runs.safe_files import note_left_out

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


class Series(NamedTuple):
    """The key of runs that differ only by seed and are pooled, with its label."""

    job: str
    budget: str
    setting: str
    """Other settings that vary among the runs of this job and budget, such as "lr 0.1"; mostly empty"""
    provenance: str

    @property
    def label(self) -> str:
        """The budget and the setting: what a table or a legend calls the series within its job."""
        return " · ".join(filter(None, (self.budget, self.setting)))

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Series:
        """The series of a row that has these columns."""
        return cls(*(row[name] for name in cls._fields))


SERIES = list(Series._fields)
"""Columns by which runs are pooled"""
OF_A_RUN = ["run", "job", "budget", "setting", "seed", "provenance", "tier", "metric"]
"""Columns of both frames"""
CURVE_COLUMNS = [*OF_A_RUN, "samples", "wall_s", "train_s", "value"]
RUN_COLUMNS = [
    *OF_A_RUN, "folder", "higher_is_better", "target", "status", "disturbed", "unreached", "confirm", "settings",
    "host", "wall_s", "train_s", "samples", "samples_per_s", "peak_memory_bytes", "peak_gpu_memory_bytes", "energy_j",
    "energy_note",
]  # fmt: skip


class Frames(NamedTuple):
    """Runs with their evaluations, measured here or recorded elsewhere: what analysis, figures and the report take."""

    runs: pd.DataFrame
    """RUN_COLUMNS, one row per run"""
    curves: pd.DataFrame
    """CURVE_COLUMNS, one row per evaluation; recordings also have epochs and energy_j"""

    @classmethod
    def together(cls, *several: Frames) -> Frames:
        """Runs of several sources in one pair of frames; each series stays its own.

        Raises:
            UserError: a run is in two of them.
        """
        import pandas as pd

        both = cls(*(pd.concat(frames, ignore_index=True) for frames in zip(*several, strict=True)))
        if (twice := both.runs["run"].duplicated()).any():
            raise UserError(f"run {both.runs.loc[twice, 'run'].iloc[0]} is in two of the sources: omit one of them.")
        return both


def add_setting(runs: pd.DataFrame) -> None:
    """Write into a column `setting` what varies among the settings of runs that would otherwise be of one series."""
    import pandas as pd

    runs["setting"] = ""
    for _, series in runs.groupby([*SERIES, "metric"], sort=False, dropna=False):
        settings = pd.DataFrame(list(series["settings"]), index=series.index)
        places = ["host", "device", "preset"]
        _add_what_varies(runs, settings[places])
        # other programs decide whether threads wait, so it makes no other series
        settings = settings.drop(columns="threads_wait", errors="ignore")
        for _, same in settings.groupby(places, sort=False, dropna=False):
            _add_what_varies(runs, same)


def _add_what_varies(runs: pd.DataFrame, settings: pd.DataFrame) -> None:
    for name in settings:
        values = settings[name].astype(object).where(settings[name].notna(), None).map(str)
        if values.nunique() > 1:
            named = values if name in ("host", "device", "preset") else f"{name} " + values
            before = runs.loc[settings.index, "setting"]
            runs.loc[settings.index, "setting"] = (before + " · " + named).where(before != "", named)


class _Known(TypedDict, total=False):
    """Fields that readers look for in any event."""

    step: int
    samples: float
    wall_s: float
    train_s: float
    metric: str | None
    value: float | None
    metrics: dict[str, float | None]
    loss: float | None
    samples_per_s: float | None
    kind: str
    what: str | None
    target: float | None
    host: str | None
    devices: list[UsedDevice]


class Event(_Known):
    """Fields of every event."""

    event: str
    time: json_data.Moment


class Resumed(Event):
    step: int  # ty: ignore[invalid-typed-dict-field]  # optional in other events only
    parts: int


class Began(Event):
    clock_s: float


class Windows(Event):
    name: str
    begin_ns: list[int]
    end_ns: list[int]


_SHAPES = {"resumed": Resumed, "began": Began, "windows": Windows}


def read_events(folder: Path | str) -> list[dict[str, Any]]:
    """The events of a run, without evaluations that a resume superseded (those beyond the resumed step).

    A line that is not an event is noted and left out. A last line that a crash cut short is left out without a note.
    """
    return events_since(folder)[0]


def events_since(folder: Path | str, byte: int = 0) -> tuple[list[dict[str, Any]], int]:
    """`read_events` from a byte of events.jsonl on, and the byte at which its whole lines end."""
    path = Path(folder) / "events.jsonl"
    events: list[dict[str, Any]] = []
    try:
        with path.open("rb") as file:
            file.seek(byte)
            text = file.read()
    except OSError as error:
        if not isinstance(error, FileNotFoundError):
            note_left_out(path, f"it cannot be read ({error.strerror})")
        return events, byte
    whole = text.rfind(b"\n") + 1
    lines = (text[:whole] if byte else text).split(b"\n")
    for number, line in enumerate(lines, 1):
        try:
            event = json_data.parse_json(line)
            json_data.check_shape(event, Event)
            if (own := _SHAPES.get(event["event"])) is not None:
                json_data.check_shape(event, own)
        except ValueError as error:
            if line.strip() and number < len(lines):
                after = f" after byte {byte}" * bool(byte)
                note_left_out(path, f"line {number}{after} is not an event ({error})")
            continue
        if event["event"] == "resumed":
            step = event["step"]
            events = [e for e in events if "wall_s" not in e or e.get("step", 0) <= step]
        events.append(event)
    return events, byte + whole


TOGETHER = ("launches.jsonl", "group.json", "queue.json")
"""Files in a folder of runs that were started together, by `labkit collocate` or `labkit pack`; the last two are those
of earlier versions"""


def run_folders(runs_dir: Path | str) -> list[Path]:
    """The run folders below a folder, including those of groups, oldest first; none if the folder does not exist.

    Of a run's own folder it is that folder.

    Raises:
        UserError: it is a file.
    """
    if Path(runs_dir).is_file():
        raise UserError(f"{runs_dir} is a file, not a folder of runs: give the folder.")
    if (Path(runs_dir) / "run.json").is_file():
        return [Path(runs_dir)]
    found, others = _folders_in(runs_dir)
    for folder in others:
        if any(os.path.exists(f"{folder}/{name}") for name in TOGETHER):  # noqa: PTH110 - as below
            found += _folders_in(folder)[0]
    return sorted(map(Path, found), key=lambda each: each.name)


def _folders_in(folder: Path | str) -> tuple[list[str], list[str]]:
    """The run folders in a folder, and what else is in it; nothing that the system refuses to list."""
    found, others = [], []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            is_run = os.path.exists(f"{entry.path}/run.json")  # noqa: PTH110 - of thousands, without a Path of each
            (found if is_run else others).append(entry.path)
    return found, others


def readable_runs(folders: Iterable[Path | str]) -> list[tuple[Path, RunRecord]]:
    """The records of run folders; an unreadable one is noted and left out.

    Raises:
        UserError: none of the folders is readable; the text is the reason for the first.
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
    """One row per run, oldest first; a damaged record is noted and left out.

    For a run that shared its device, `budget` has the mode and the jobs, and `group` the group. `seed` is "none" if the
    script was given none. `disturbed` is a text on what other programs took, or empty.
    """
    import pandas as pd

    columns = "run folder job budget group seed status provenance profiled trial target_metric target target_reached"
    rows = [list_row(*each) for each in readable_runs(run_folders(runs_dir))]
    return pd.DataFrame(rows, columns=[*columns.split(), "time_to_target_s", "disturbed", "started_at"])


def list_row(folder: Path, record: RunRecord) -> dict[str, Any]:
    """The row of a run in `list_runs`."""
    result, train = record.result or {}, record.config.get("train", {})
    return {
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
        "disturbed": disturbance_text(result.get("others")),
        "started_at": record.started_at,
    }


def find_run(run: str, runs_dir: Path | str) -> Path:
    """The folder of a run, given its folder, its id, or the beginning of its id.

    Raises:
        UserError: no run, or more than one, has that name.
    """
    if (Path(run) / "run.json").is_file():
        return Path(run)
    folders = run_folders(runs_dir)
    matches = [folder for folder in folders if folder.name.startswith(run)]
    if len(matches) == 1:
        return matches[0]
    names = [folder.name for folder in folders]
    if matches:
        raise UserError(f"run {run!r} could be {', '.join(f.name for f in matches[:5])}: give more of its id.")
    hint = "That folder has no runs: give the folder of your runs with --runs-dir, or start a run."
    if names:
        which = errors.nearest(run, names) or f"The latest is {names[-1]}. "
        hint = f"{which}`labkit runs list --runs-dir {runs_dir}` lists all {len(names)}."
    raise UserError(f"there is no run {run!r} in {runs_dir}. {hint}")


def read_metrics(folders: Iterable[Path | str], *, steps: tuple[float, float] | None = None) -> pd.DataFrame:
    """Columns run, step, wall_s, train_s, samples, name, value of many runs, in recorded order.

    `steps` are the first and the last step to read. A damaged part is noted and left out.
    """
    import pyarrow as pa

    from labkit.runs.parts import METRICS, current_parts

    tables = []
    for folder in map(Path, folders):
        path = folder / "events.jsonl"  # it is long, and matters only for resumed runs
        events = read_events(folder) if path.is_file() and b'"resumed"' in path.read_bytes() else []
        for table in metrics_tables(current_parts(folder / "metrics"), events, steps):
            tables.append(table.add_column(0, "run", pa.repeat(folder.name, len(table))))
    schema = METRICS.insert(0, pa.field("run", pa.string()))
    return pa.concat_tables([schema.empty_table(), *tables]).to_pandas()


def metrics_tables(
    paths: Iterable[Path], events: Iterable[Mapping[str, Any]], steps: tuple[float, float] | None = None
) -> Iterator[pa.Table]:
    """The rows of parts of metrics, without those that the resumes among the events took back."""
    import pyarrow.compute as pc

    from labkit.runs.parts import METRICS, part_numbers, read_part

    resumed = [(event["parts"], event["step"]) for event in events if event["event"] == "resumed"]
    for path in paths:
        table = read_part(path, METRICS, steps=steps)
        if table is None:
            continue
        last = min((step for parts, step in resumed if part_numbers(path)[0] < parts), default=None)
        yield table if last is None else table.filter(pc.field("step") <= last)


def read_telemetry(folders: Iterable[Path | str]) -> pd.DataFrame:
    """Columns run, time_ns, device, scope, pid, counter, value, unit, source, note of many runs.

    Text columns are categories: group by them with observed=True. A damaged part is noted and left out.
    """
    import pandas as pd

    from labkit.runs.parts import DAMAGED, TELEMETRY_WORDS, columns_of, current_parts, read_part

    paths = [path for folder in folders for path in current_parts(Path(folder) / "telemetry")]
    try:
        columns = columns_of(paths, TELEMETRY_WORDS)
    except DAMAGED:
        columns = columns_of([path for path in paths if read_part(path, TELEMETRY_WORDS) is not None], TELEMETRY_WORDS)
    return pd.DataFrame(columns, copy=False)

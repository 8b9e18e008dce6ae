"""What the runs of pipelines say: seconds, memory, joules and bytes of each stage, and which stage memory ended."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from labkit import UserError, runs, tta
from labkit.pipelines.kinds import STAGES
from labkit.runs import RunRecord


@dataclass(frozen=True)
class PipelineRun:
    """A run of a pipeline."""

    folder: Path
    record: RunRecord
    stages: pd.DataFrame
    """A row per finished stage: stage, seconds, peak_bytes, items, of, bytes"""
    unfinished: str | None
    """The stage in which it ended, if it did not finish"""

    @property
    def pipeline(self) -> str:
        return self.record.config["job"]

    @property
    def scale(self) -> float:
        return self.settings["scale"]

    @property
    def settings(self) -> dict[str, Any]:
        return self.record.config["pipeline"]

    @property
    def setup(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        """What two runs that differ only in scale share."""
        same = {name: value for name, value in self.settings.items() if name not in ("scale", "seed")}
        return self.pipeline, tuple(sorted((name, str(value)) for name, value in same.items()))

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds of each finished stage."""
        return dict(zip(self.stages["stage"], self.stages["seconds"], strict=True))

    @property
    def is_whole(self) -> bool:
        """Whether every stage was finished."""
        return set(STAGES) <= set(self.seconds)


COLUMNS = ["stage", "seconds", "peak_bytes", "items", "of", "bytes"]


def read_pipeline(folder: Path | str) -> PipelineRun:
    """Read a pipeline's run.

    Raises:
        UserError: there is no such run, or it was none of a pipeline.
    """
    folder, record = Path(folder), runs.read_run(folder)
    events = runs.read_events(folder)
    begun = [event["name"] for event in events if event["event"] == "stage_began"]
    rows = [{**event, "stage": event["name"]} for event in events if event["event"] == "stage"]
    if not _is_pipeline(record):
        raise UserError(f"{folder}: this run is not of a pipeline: `labkit pipeline run trips` makes one.")
    unfinished = begun[-1] if len(begun) > len(rows) else None
    return PipelineRun(folder, record, pd.DataFrame(rows, columns=COLUMNS), unfinished)


def pipeline_runs(runs_dir: Path | str) -> list[PipelineRun]:
    """All runs of pipelines below a folder, oldest first; of what else is there nothing is said."""
    readable = runs.readable_runs(runs.run_folders(runs_dir))
    return [read_pipeline(folder) for folder, record in readable if _is_pipeline(record)]


def _is_pipeline(record: RunRecord) -> bool:
    settings = record.config.get("pipeline")
    return isinstance(settings, dict) and "scale" in settings  # a script of the reader's may have such a setting, too


def stage_table(run: PipelineRun) -> pd.DataFrame:
    """A row per stage: seconds, share of the time, peak_bytes, energy_j (NaN if it is not known) and its note, items,
    bytes and bytes per item. Bytes are computed from rows and types, those of `load` are the files'."""
    table = run.stages.copy()
    table["share"] = table["seconds"] / table["seconds"].sum()
    windows = tta.windows_by_name(tta.window_energy(run.folder, estimate=True)).set_index("name")
    for column, name in (("energy_j", "energy_j"), ("energy_note", "note")):
        table[column] = table["stage"].map(windows[name]) if name in windows else None
    table["bytes_per_item"] = table["bytes"] / table["items"]
    if run.unfinished is not None:
        table = pd.concat([table, pd.DataFrame([{"stage": run.unfinished}])], ignore_index=True)
    return table


def shipped(run: PipelineRun) -> pd.DataFrame:
    """What would leave the edge if only the rest ran elsewhere: bytes per item after each stage that makes data.

    Returns:
        Columns after (stage), of, bytes_per_item, and reduction: how many times fewer than the raw data.
    """
    made = run.stages.dropna(subset="bytes")
    each = made["bytes"] / made["items"]
    table = pd.DataFrame({"after": made["stage"], "of": made["of"], "bytes_per_item": each})
    return table.assign(reduction=each.iloc[0] / each if len(each) else each).reset_index(drop=True)

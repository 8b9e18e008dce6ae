"""The two frames of analysis, a row per run and a row per evaluation, and the series that runs belong to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from labkit import UserError

if TYPE_CHECKING:
    import pandas as pd


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

"""The two frames of analysis, a row a run and a row an evaluation, and the labels that tell series apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from labkit.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

SERIES = ["job", "budget", "provenance"]
"""Runs that agree in these columns differ only by seed, and are pooled."""
OF_A_RUN = ["run", "job", "budget", "seed", "provenance", "tier", "metric"]
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
    """RUN_COLUMNS, one row a run"""
    curves: pd.DataFrame
    """CURVE_COLUMNS, one row an evaluation; of recordings epochs and energy_j, too"""

    @classmethod
    def together(cls, *several: Frames) -> Frames:
        """Runs of several sources in one pair of frames; each series stays its own.

        Raises:
            UserError: a run is in two of them.
        """
        import pandas as pd

        both = cls(*(pd.concat(frames, ignore_index=True) for frames in zip(*several, strict=True)))
        if (twice := both.runs["run"].duplicated()).any():
            raise UserError(f"run {both.runs.loc[twice, 'run'].iloc[0]} is in two of the sources: leave one out.")
        return both


def tell_series_apart(runs: pd.DataFrame) -> None:
    """Add to the budgets of runs what varies among the settings of those that would otherwise be of one series."""
    import pandas as pd

    for _, series in runs.groupby([*SERIES, "metric"], sort=False, dropna=False):
        settings = pd.DataFrame(list(series["settings"]), index=series.index)
        places = ["host", "device", "preset"]
        _add_what_varies(runs, settings[places])
        settings = settings.drop(columns="threads_wait", errors="ignore")  # other programs decide it: no other series
        for _, same in settings.groupby(places, sort=False, dropna=False):
            _add_what_varies(runs, same)


def _add_what_varies(runs: pd.DataFrame, settings: pd.DataFrame) -> None:
    for name in settings:
        values = settings[name].astype(object).where(settings[name].notna(), None).map(str)
        if values.nunique() > 1:
            told = "" if name in ("host", "device", "preset") else f"{name} "
            runs.loc[settings.index, "budget"] += f" · {told}" + values

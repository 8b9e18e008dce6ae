"""Recordings: runs and tables that others measured and published. Some ship with labkit; others are made from files."""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from labkit import DataError, UserError, errors, project
from labkit.runs.frames import CURVE_COLUMNS, OF_A_RUN, RUN_COLUMNS, Frames, add_setting

if TYPE_CHECKING:
    import pandas as pd

CARD, RUNS, EVALUATIONS = "card.toml", "runs.parquet", "evaluations.parquet"
SETTINGS = ["batch_size", "power_limit_w", "optimizer"]
"""Columns of runs.parquet that tell series apart; as does a learning rate where it does not follow from these."""


@dataclass(frozen=True)
class Archive:
    """A file to download."""

    url: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class Card:
    """The description of a recording: card.toml, next to its Parquet files."""

    folder: Path
    title: str
    """What was measured."""
    cite: str
    """Authors for a legend, such as "You et al. 2023"."""
    devices: list[str]
    derived: str
    """How these files follow from the originals."""
    authors: str = "not stated"
    """Names, and the paper to cite."""
    date: str = "not stated"
    """Date of the measurement, or of its publication, which it then says."""
    source: str = "not stated"
    licence: str = "not stated"
    cannot_say: str = "not stated"
    """Questions that the recording cannot answer."""
    originals: tuple[Archive, ...] = ()
    """Files as their authors publish them: url, size_bytes, sha256."""

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def provenance(self) -> str:
        """Text for frames, legends and tables."""
        return f"recorded, {self.cite}"

    @property
    def tables(self) -> list[str]:
        """Names for `recorded_table`."""
        return sorted({path.stem for path in self.folder.glob("*.parquet")} - {Path(RUNS).stem, Path(EVALUATIONS).stem})

    @property
    def has_runs(self) -> bool:
        return (self.folder / RUNS).is_file()


def recordings() -> list[Card]:
    """The cards of the recordings that ship."""
    return [read_card(path.parent) for path in sorted((project.shipped_datasets() / "recorded").glob(f"*/{CARD}"))]


def read_card(recording: str | Path) -> Card:
    """The card of a recording that ships, by its name, or of one in a folder.

    Raises:
        UserError: there is no such recording, or its card is damaged.
    """
    shipped = project.shipped_datasets() / "recorded"
    folder = next((each for each in (shipped / recording, Path(recording)) if (each / CARD).is_file()), None)
    if folder is None:
        names = sorted(path.parent.name for path in shipped.glob(f"*/{CARD}"))
        raise UserError(
            f"there is no recording {str(recording)!r}. {errors.nearest(str(recording), names)}Choose one of "
            f"{', '.join(names)}, or give the folder of one that you made (docs/recordings.md)."
        )
    try:
        content: dict[str, Any] = tomllib.loads((folder / CARD).read_text(encoding="utf-8")) | {"folder": folder}
        content["originals"] = tuple(Archive(**each) for each in content.get("originals", []))
        return Card(**content)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"this card is damaged ({error}).", file=folder / CARD, fix="Make the recording again (docs/recordings.md)."
        ) from error


def recorded(recording: str | Path, /, **only: Any) -> Frames:
    """The runs of a recording, in the frames that `labkit.tta.run_table` and `curves` make of your own runs.

    >>> runs, curves = recorded("zeus-nsdi23", batch_size=32, power_limit_w="max")
    >>> sorted(set(runs["tier"]))
    ['a40', 'p100-pcie', 'quadro-rtx-6000', 'v100-pcie']

    Args:
        recording: the name of one that ships (`labkit data recorded list`), or the folder of one that you made.
        only: runs to keep, by column: a value, several values, or "max" or "min", which is that of each job and device
            among the runs that the arguments before it have kept.

    Returns:
        Frames in which a run's `budget` names its device, and `setting` what else varies among the runs kept; settings
        are also columns. `curves` have an evaluation for each recorded target, at the time it was reached; between two
        of them nothing is known.

    Raises:
        UserError: there is no such recording, or it has no run with these values.
    """
    import numpy as np
    import pandas as pd

    card = read_card(recording)
    if not card.has_runs:
        raise UserError(
            f"recording {card.name!r} has tables, not runs: use labkit.runs.recorded_table({card.name!r}, TABLE) with "
            f"one of {', '.join(card.tables)}."
        )
    runs, curves = (pd.read_parquet(card.folder / name) for name in (RUNS, EVALUATIONS))
    runs = chosen(runs, only)
    names = [name for name in SETTINGS if name in runs]
    rates = runs.groupby(["job", "device", *names])["learning_rate"].nunique()
    settings = runs[names + ["learning_rate"] * bool((rates > 1).any())].to_dict("records")
    where = dict.fromkeys(("host", "device", "preset"))  # the budget is the device, and the machine is unknown
    runs = runs.assign(
        budget=runs["device"],
        provenance=card.provenance,
        status="done",
        disturbed="",
        confirm=1,
        folder=None,
        recording=str(recording),
        host=card.name,
        settings=[{"budget": own, **where, **more} for own, more in zip(runs["device"], settings, strict=True)],
    )
    runs = runs.assign(**dict.fromkeys(set(RUN_COLUMNS) - set(runs), np.nan)).reset_index(drop=True)
    add_setting(runs)
    curves = curves.merge(runs[OF_A_RUN], on="run")
    return Frames(
        runs[[*RUN_COLUMNS, *(name for name in runs if name not in RUN_COLUMNS)]],
        curves[[*CURVE_COLUMNS, *(name for name in curves if name not in CURVE_COLUMNS)]],
    )


def chosen(runs: "pd.DataFrame", only: dict[str, Any]) -> "pd.DataFrame":
    """The runs of a recording that have these values: one, several, or "max" and "min" (`recorded`).

    Raises:
        UserError: no run has them.
    """
    for name, wanted in only.items():
        if name not in runs:
            raise UserError(f"these runs have no {name!r}: choose from {', '.join(runs)}.")
        if isinstance(wanted, str) and wanted in ("max", "min"):
            if runs[name].dtype.kind not in "if":
                raise UserError(f"{name}={wanted!r}: {name} is not a number, so give a value instead of {wanted!r}.")
            runs = runs[runs[name] == runs.groupby(["job", "device"])[name].transform(wanted)]
            continue
        values = [wanted] if isinstance(wanted, str) or not isinstance(wanted, Iterable) else list(wanted)
        there = runs[name].drop_duplicates().sort_values().tolist()
        if absent := [value for value in values if value not in there]:
            choices = f"{', '.join(map(str, there[:20]))}{', …' * (len(there) > 20)}"
            raise UserError(f"no run has {name} {absent[0]!r}: choose from {choices}.")
        if not values:
            raise UserError(f"{name}=[] keeps no run: give a value, or omit {name}.")
        runs = runs[runs[name].isin(values)]
    return runs


def recorded_table(recording: str | Path, table: str) -> "pd.DataFrame":
    """A table of a recording, with a column `provenance`; its card says what the columns are.

    Raises:
        UserError: there is no such recording or table.
    """
    import pandas as pd

    card = read_card(recording)
    if table not in card.tables:
        raise UserError(
            f"recording {card.name!r} has no table {table!r}: choose from {', '.join(card.tables) or 'its runs'}."
        )
    return pd.read_parquet(card.folder / f"{table}.parquet").assign(provenance=card.provenance)

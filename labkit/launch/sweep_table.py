"""What came of a sweep as a frame, a row for each of its cells."""

from pathlib import Path
from typing import TYPE_CHECKING

from labkit import UserError, errors, tta
from labkit.launch.launches import FILE
from labkit.launch.sweep import read_progress, read_states, sweep_folder
from labkit.launch.sweep_file import find_sweep_file, read_sweep_file
from labkit.runs import RunRecord, read_metrics, readable_runs

if TYPE_CHECKING:
    import pandas as pd

OF_A_CELL = ["budget", "seed", "repeat", "state", "run", "folder", "seconds", "error"]
OF_ITS_RUN = [
    "provenance", "disturbed", "samples_per_s", "wall_s", "train_s", "samples", "peak_memory_bytes",
    "peak_gpu_memory_bytes", "energy_j",
]  # fmt: skip
"""Columns of `labkit.tta.run_table`"""
OF_ITS_TARGET = ["target_reached", "time_to_target_s", "cost_usd"]


def read_sweep(sweep: Path | str, runs_dir: Path | str = "runs") -> "pd.DataFrame":
    """Read what became of a sweep, finished or not: one row per cell in the order in which they run.

    Args:
        sweep: the path of its file, whose cells count; or the name of a sweep that has run, of which all count that
            ever were in its file; or that of a study that ships.
        runs_dir: the folder with the runs.

    Returns:
        The settings that vary, each a column (of numbers where all of its values are), then OF_A_CELL (seconds is what
        the process took), OF_ITS_RUN and OF_ITS_TARGET (cost_usd is the time to the target at the tier's price), then
        the last value of each number that the script evaluated or logged, and test_NAME of its test split. Cells
        without a result have NaN there. A setting or number named as another column is NAME_setting or NAME_logged.

    Raises:
        UserError: there is no such sweep, or its file has mistakes.
    """
    import pandas as pd

    runs_dir, path, folder = Path(runs_dir), Path(sweep), sweep_folder(runs_dir, str(sweep))
    if not path.is_file() and not folder.is_dir():
        path = find_sweep_file(path)
    if path.is_file() or path.suffix in (".yaml", ".yml"):
        asked = read_sweep_file(path)
        launches = read_progress(asked, runs_dir).launches
        parts = [launches.parts[cell.key] for cell in asked.cells]
    elif not folder.is_dir():
        known = sorted(other.name for other in folder.parent.glob("*/"))
        none = "none has run there: start one with `labkit sweep FILE`."
        hint = errors.did_you_mean(str(sweep), known) if known else none
        raise UserError(f"there is no sweep {str(sweep)!r} in {runs_dir}: {hint}")
    elif not (folder / FILE).is_file():
        raise UserError(f"{folder}: an earlier version of labkit ran this sweep: give its file instead of its name.")
    else:
        launches, *_ = read_states(str(sweep), runs_dir)
        parts = list(launches.parts.values())
    settings = pd.DataFrame([part.launch.about["settings"] for part in parts])
    table = settings.apply(_as_numbers).rename(columns=lambda name: _free(name, "setting"))
    cells = [
        part.launch.about  # seed and repeat
        | {
            "budget": errors.certain(part.launch.job.budget).name,
            "state": part.status,
            "run": part.run,
            "folder": part.run and str(launches.runs_dir / part.run),
            "seconds": part.seconds,
            "error": part.reason or None,
        }
        for part in parts
    ]
    table = table.join(pd.DataFrame(cells, columns=OF_A_CELL), how="right")
    done = [runs_dir / errors.certain(part.run) for part in parts if part.status == "done"]
    return table.merge(_results(dict(readable_runs(done))), on="run", how="left")


def _results(records: dict[Path, RunRecord]) -> "pd.DataFrame":
    """One row a run: run, OF_ITS_RUN, OF_ITS_TARGET, last values."""
    import pandas as pd

    runs = tta.table_of(records.items())
    targets = [{"run": folder.name} | (record.result or {}) for folder, record in records.items()]
    ends = pd.DataFrame(targets, columns=["run", "target_reached", "time_to_target_s"])
    ends["time_to_target_s"] = ends["time_to_target_s"].astype(float)
    ends["cost_usd"] = ends["time_to_target_s"] * tta.usd_per_s(runs["tier"])
    last = read_metrics(records).groupby(["run", "name"]).tail(1)  # .last() would pass over a NaN
    last = last.set_index(["run", "name"])["value"].unstack("name")
    tests = {folder.name: (record.result or {}).get("metrics", {}) for folder, record in records.items()}
    tested = pd.DataFrame.from_dict(tests, orient="index").add_prefix("test_")
    numbers = last.join(tested, how="outer").rename(columns=lambda name: _free(name, "logged"))
    return runs[["run", *OF_ITS_RUN]].merge(ends, on="run").merge(numbers, left_on="run", right_index=True, how="left")


def _free(name: str, kind: str) -> str:
    return f"{name}_{kind}" if name in (*OF_A_CELL, *OF_ITS_RUN, *OF_ITS_TARGET) else name


def _as_numbers(column: "pd.Series") -> "pd.Series":
    """The column as numbers, where all of its values are."""
    import pandas as pd

    numbers = pd.to_numeric(column, errors="coerce")
    return numbers if numbers.notna().sum() == column.notna().sum() else column

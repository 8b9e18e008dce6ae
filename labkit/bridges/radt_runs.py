"""radT's runs as run folders: from its MLflow, or from the CSV files that its web page saves."""

import csv
import math
from collections.abc import Iterator
from pathlib import Path

from labkit import DataError, UserError
from labkit.bridges import mlflow_runs
from labkit.bridges.logged import UNKNOWN_END, Logged, Point

COLUMNS = ["workload", "runId", "runName", "metric", "timestamp", "value"]
FIX = 'Save it again with radT\'s "Download Visible (CSV)".'


def read(path: str) -> Iterator[Logged]:
    """The runs of radT's MLflow, or of a CSV file, or of all CSV files of a folder."""
    place = Path(path)
    if place.suffix in (".yaml", ".yml"):
        raise UserError(f"{path} is a plan of radT's, not what was logged: `labkit sweep {path}` runs it.")
    files = sorted(place.glob("*.csv")) if place.is_dir() else [place] if place.suffix == ".csv" else []
    if not files:
        yield from mlflow_runs.read(path)
        return
    found: dict[str, Logged] = {}
    for file in files:
        with file.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
            rows = csv.reader(lines)
            if (columns := next(rows, [])) != COLUMNS:
                what = f"its columns are {', '.join(columns)[:200] or 'missing'}, not {', '.join(COLUMNS)}."
                raise DataError(what, file=file, line=1, fix=FIX)
            for row in rows:
                try:
                    workload, run_id, name, metric, moment, value = row
                    time_ns, number = round(float(moment)) * 10**6, float(value) if value else math.nan
                except ValueError as error:
                    what = f"this is not a row of radT's ({error})."
                    raise DataError(what, file=file, line=rows.line_num, fix=FIX) from error
                if (logged := found.get(run_id)) is None:
                    found[run_id] = logged = Logged("radT (CSV)", run_id, name or run_id, workload, path)
                    logged.notes.append(UNKNOWN_END.format("radT's CSV does"))
                point = Point(metric, None, time_ns, number)
                (logged.system if metric.startswith("system/") else logged.points).append(point)
    yield from found.values()

"""SQL over the runs of several folders: DuckDB reads their caches, and can reach nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from labkit import UserError, project
from labkit.runs.published import recordings
from labkit.runs.safe_files import note_left_out

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import pyarrow as pa


class View(NamedTuple):
    """What a query can read, besides the tables of rows."""

    words: str
    sql: str
    needs: tuple[str, ...] = ()


TABLES = {
    "runs": "one row per run: what ran, on what, how it ended, what it took; config, result and software are JSON",
    "settings": "one row per run, one column per setting of its script, model, data and sweep",
    "metrics": "what the training measured, without what a resume took back",
    "telemetry": "what the machine did meanwhile; a counter that could not be read is NULL with a note",
    "events": "one row per fact: started, evaluated, checkpoint, fault, ended; the rest of a fact is JSON",
}
VIEWS = {
    "evaluations": View(
        "the values of the metric that a run's target is about",
        """SELECT run, job, budget, seed, provenance, step, metrics.samples, metrics.wall_s, metrics.train_s, value
        FROM metrics JOIN runs USING (run) WHERE metrics.name = target_metric""",
        ("metrics",),
    ),
    "time_to_target": View(
        "one row per run with a target of its own: reached, failed, or censored (cut off), and what that took",
        """SELECT run, job, budget, seed, provenance, target_metric, target, outcome, time_to_target_s,
        samples_to_target, wall_s, train_s, disturbed <> '' AS is_disturbed
        FROM runs WHERE outcome IS NOT NULL AND NOT profiled AND NOT trial""",
    ),
    "energy": View(
        "joules of a run, on average in watts, and for each sample; NULL with a note if nothing measured them",
        """SELECT run, job, budget, seed, provenance, energy_j, energy_j / nullif(wall_s, 0) AS power_w,
        energy_j / nullif(samples, 0) AS joules_per_sample, energy_note FROM runs""",
    ),
    "counters": View(
        "one row per run, device and counter of the telemetry, with its number of samples, mean and extremes",
        """SELECT run, device, scope, counter, any_value(unit) AS unit, count(value) AS samples, avg(value) AS mean,
        min(value) AS lowest, max(value) AS highest, any_value(note) AS note FROM telemetry
        GROUP BY run, device, scope, counter""",
        ("telemetry",),
    ),
}
"""Views, each over the tables of rows that it needs"""
EXAMPLES = {
    "the fastest budget to the target": "SELECT job, budget, count(*) AS runs, median(time_to_target_s) AS seconds\n"
    "FROM time_to_target WHERE outcome = 'reached' GROUP BY ALL ORDER BY seconds",
    "final loss by learning rate": "SELECT lr, avg(last_loss) AS loss FROM settings JOIN (\n"
    "  SELECT run, last(value ORDER BY step) AS last_loss FROM metrics WHERE name = 'loss' GROUP BY run\n"
    ") USING (run) GROUP BY lr ORDER BY lr",
    "the median and the 99th percentile of a counter, minute by minute": "SELECT time_bucket(INTERVAL 1 minute, time) "
    "AS minute, quantile_cont(value, [0.5, 0.99])\nFROM telemetry WHERE counter = 'cpu_percent' GROUP BY minute "
    "ORDER BY minute",
}


def query(sql: str, *folders: Path | str, recorded: bool = False) -> pd.DataFrame:
    """The answer to one SELECT of DuckDB's SQL over the runs of these folders, by default `runs`.

    Tables and views are those of `docs/query.md`. What ended runs wrote is kept in a cache next to them
    (`.labkit-store`), which may be deleted at any time. The query reads nothing but the runs, and writes nothing.

    Args:
        sql: a statement that reads, such as "SELECT job, count(*) FROM runs GROUP BY job".
        folders: folders of runs, or single runs.
        recorded: also read the recordings that ship (`labkit data recorded list`).

    Raises:
        UserError: DuckDB is missing, or refuses the statement.
    """
    with Database(*folders, recorded=recorded) as database:
        return database.query(sql)


class Database:
    """The runs of several folders, opened for queries. A context manager; only one thread may use it at a time."""

    def __init__(self, *folders: Path | str, recorded: bool = False):
        from labkit.runs.store import Store

        _duckdb()
        chosen = folders or (() if recorded else ("runs",))
        paths = dict.fromkeys(Path(folder).resolve() for folder in chosen)
        for path in paths:
            if not path.is_dir():
                raise UserError(f"{path} is not a folder of runs: give one, such as `runs`, or start a run.")
        if recorded:  # some are folders of runs
            shipped = (project.shipped_datasets() / "recorded").resolve()
            paths |= dict.fromkeys(path for path in sorted(shipped.iterdir()) if any(path.glob("*/run.json")))
        self._stores, self._recorded = [Store(path) for path in paths], recorded
        self._opened: tuple[duckdb.DuckDBPyConnection, frozenset[str]] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception) -> None:
        self.refresh()

    def query(self, sql: str) -> pd.DataFrame:
        """The answer to one statement that reads.

        Raises:
            UserError: DuckDB refuses it.
        """
        return self._answer(sql, "df")

    def arrow(self, sql: str) -> pa.Table:
        """`query`, as a table of Arrow, which keeps integers that are missing."""
        return self._answer(sql, "to_arrow_table")

    def refresh(self) -> None:
        """Let the next query look at the folders again. One that is open for an hour must do so."""
        if self._opened is not None:
            self._opened[0].close()
        self._opened = None

    def _answer(self, sql: str, form: str) -> Any:
        duckdb = _duckdb()
        for again in (True, False):
            try:
                connection = self._open(sql)
                kinds = [each.type for each in connection.extract_statements(sql)]
                if kinds != [duckdb.StatementType.SELECT]:
                    raise UserError(
                        f"a query is one statement that reads (SELECT, FROM, WITH, DESCRIBE), and this is "
                        f"{'empty' if not kinds else ' and '.join(each.name for each in kinds)}."
                    )
                return getattr(connection.sql(sql), form)()
            except duckdb.Error as error:
                # a file of the cache is damaged, or was deleted with it
                if again and any(store.is_damaged_by(str(error)) for store in self._stores):
                    self.refresh()
                    continue
                text = str(error).strip()
                raise UserError(f"{text}\n`labkit query` without a query lists tables, views and examples.") from None

    def _open(self, sql: str) -> duckdb.DuckDBPyConnection:
        """A connection that has what the text names, and may have more."""
        words = set(re.findall(r"\w+", sql.lower()))
        wanted = {name for name in ("metrics", "telemetry", "events", "settings") if name in words}
        wanted |= {name for view in words & VIEWS.keys() for name in VIEWS[view].needs}
        if words & {"all_tables", "tables", "information_schema", "duckdb_views", "describe", "show"}:
            wanted |= TABLES.keys() - {"runs"}
        if self._opened is not None and self._opened[1] >= wanted:
            return self._opened[0]
        wanted |= self._opened[1] if self._opened else frozenset()
        self.refresh()
        connection = _fill(
            self._stores, wanted, [each.name for each in recordings() if each.has_runs and self._recorded]
        )
        self._opened = (connection, frozenset(wanted))
        return connection


def _fill(stores: list, wanted: Iterable[str], shipped: list[str]) -> duckdb.DuckDBPyConnection:
    """A database in memory with these tables, closed to everything but the files of the stores."""
    import pyarrow as pa

    from labkit.runs.store import Rows
    from labkit.runs.tables import KINDS, RUNS, recorded_rows, settings_table

    kinds = [name for name in KINDS if name in wanted]
    indexes, seen, rows = [], set(), {name: Rows() for name in kinds}
    for store in stores:
        index = store.index()
        names = index["run"].to_pylist()
        for folder in index.filter(pa.array([run in seen for run in names], pa.bool_()))["folder"].to_pylist():
            note_left_out(Path(folder), "a run of the same name is in another one of these folders")
        index = index.filter(pa.array([run not in seen for run in names], pa.bool_()))
        seen |= set(names)
        indexes.append(index.select(RUNS.names))
        for name in kinds:
            found = store.rows(name, index)
            rows[name].files |= found.files
            rows[name].tables += found.tables
    for name in shipped:
        index, metrics = recorded_rows(name)
        indexes.append(index)
        if "metrics" in rows:
            rows["metrics"].tables.append(metrics)
    runs = pa.concat_tables([RUNS.empty_table(), *indexes])

    settings = {"python_enable_replacements": "false", "temp_directory": "", "autoinstall_known_extensions": "false"}
    connection = _duckdb().connect(":memory:", config=settings | {"autoload_known_extensions": "false"})
    connection.execute("SET enable_progress_bar = false")  # it would stay in the output of a notebook
    connection.register("_runs", runs)
    times = ", ".join(f"make_timestamp({name}_ns // 1000) AS {name}" for name in ("started", "ended"))
    connection.execute(f"CREATE TABLE runs AS SELECT *, {times} FROM _runs")
    if "settings" in wanted:
        connection.register("_settings", settings_table(runs))
        connection.execute("CREATE TABLE settings AS SELECT * FROM _settings")
    files: list[str] = []
    for name, each in rows.items():
        live = pa.concat_tables([KINDS[name].schema.empty_table(), *each.tables]).unify_dictionaries()
        connection.register(f"_{name}", live)
        texts = KINDS[name].words
        columns = ", ".join(
            f"{column}::VARCHAR AS {column}" if column in texts else column for column in live.schema.names
        )
        pieces = [f"SELECT {columns} FROM _{name}"] if len(live) or not each.files else []
        whole = [path for path, stale in each.files.items() if not stale]
        for paths, stale in [(whole, []), *(([path], stale) for path, stale in each.files.items() if stale)]:
            if paths:
                without = f" WHERE run NOT IN ({', '.join(map(_text, stale))})" if stale else ""
                # no column is made of a folder's name, such as seed=01
                read = f"read_parquet([{', '.join(_text(str(path)) for path in paths)}], hive_partitioning = false)"
                pieces.append(f"SELECT {', '.join(live.schema.names)} FROM {read}{without}")
        time = ", make_timestamp(time_ns // 1000) AS time" if "time_ns" in live.schema.names else ""
        connection.execute(f"CREATE VIEW {name} AS SELECT *{time} FROM ({' UNION ALL '.join(pieces)})")
        files += map(str, each.files)
    for name, view in VIEWS.items():
        if set(view.needs) <= rows.keys():
            connection.execute(f"CREATE VIEW {name} AS {view.sql}")
    connection.execute(f"SET allowed_paths = [{', '.join(map(_text, files))}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _duckdb() -> Any:
    try:
        import duckdb
    except ImportError:
        raise UserError("queries need DuckDB: install it with `python -m pip install 'labkit[query]'`.") from None
    return duckdb

#!/usr/bin/env bash
# DuckDB gives a Parquet file's own column the name of the folder that it lies in.
# Guess: a file in a folder `run=01` keeps its own column `run`; a folder's name adds a column only where there is none.
# Seen: DuckDB has '01' in each row of the file's column, so a filter for one of its values finds nothing, without a
# word; pyarrow and pandas give the file's values. With hive_partitioning = false DuckDB does, too:
# https://duckdb.org/docs/stable/data/partitioning/hive_partitioning
# labkit: `labkit query` switches it off, since a folder of runs may have any name (labkit/runs/sql.py).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check duckdb==2.0.1 pyarrow==26.0.1 pandas==3.0.1
cd "$folder"
mkdir run=01
venv/bin/python - <<'PYTHON'
import duckdb
import pandas
import pyarrow
import pyarrow.parquet as parquet

file = "run=01/metrics.parquet"
parquet.write_table(pyarrow.table({"run": ["a", "b"], "loss": [0.5, 0.7]}), file)
found = {
    "duckdb": [run for run, in duckdb.sql(f"SELECT run FROM '{file}'").fetchall()],
    "duckdb, rows of run a": duckdb.sql(f"SELECT count(*) FROM '{file}' WHERE run = 'a'").fetchall()[0][0],
    "without": [run for run, in duckdb.sql(f"SELECT run FROM read_parquet('{file}', hive_partitioning = false)").fetchall()],
    "pyarrow": parquet.read_table(file)["run"].to_pylist(),
    "pandas": pandas.read_parquet(file)["run"].tolist(),
}
print(f"duckdb {duckdb.__version__}, pyarrow {pyarrow.__version__}, pandas {pandas.__version__}: {found}")
own = ["a", "b"]
expected = {"duckdb": ["01", "01"], "duckdb, rows of run a": 0, "without": own, "pyarrow": own, "pandas": own}
raise SystemExit(found != expected)
PYTHON

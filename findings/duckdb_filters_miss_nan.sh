#!/usr/bin/env bash
# A filter of DuckDB finds no NaN in a Parquet file that pyarrow wrote.
# Guess: NaN is above every number in DuckDB, so `loss > 1` finds a loss that is NaN, as it does in a table.
# Seen: 0 rows of the file, 1 of the same file without statistics. DuckDB skips the row group by its largest value, 0.7,
# and the format keeps NaN out of the statistics: https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
# labkit: columns of floats are written without statistics (labkit/runs/parts.py).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check duckdb==2.0.1 pyarrow==26.0.1
cd "$folder"
venv/bin/python - <<'PYTHON'
import duckdb
import pyarrow
import pyarrow.parquet as parquet

table = pyarrow.table({"loss": [0.5, float("nan"), 0.7]})
found = {}
for name, statistics in (("with", True), ("without", False)):
    parquet.write_table(table, f"{name}.parquet", write_statistics=statistics)
    found[name] = duckdb.sql(f"SELECT count(*) FROM '{name}.parquet' WHERE loss > 1").fetchall()[0][0]
found["a table"] = duckdb.sql("SELECT count(*) FROM (SELECT 'nan'::DOUBLE AS loss) WHERE loss > 1").fetchall()[0][0]
print(f"duckdb {duckdb.__version__}, pyarrow {pyarrow.__version__}: rows above 1, of one NaN: {found}")
raise SystemExit(found != {"with": 0, "without": 1, "a table": 1})
PYTHON

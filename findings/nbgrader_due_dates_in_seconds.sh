#!/usr/bin/env bash
# nbgrader reads a due date of +0100 as one of 100 seconds east of Greenwich.
# Guess: 12:00 +0100 is 11:00 UTC. nbgrader's own to_numeric_tz writes this form, "which can be read by parse_utc".
# Seen: 11:58:20 UTC, for the last word is made an int and taken for seconds; +01:00 is 12:00 UTC, as if it were not there.
# Source: https://github.com/jupyter/nbgrader/blob/v0.9.6/nbgrader/utils.py
# labkit: sets no due dates; give them in UTC, without a zone.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check nbgrader==0.9.6
cd "$folder"
venv/bin/python - <<'PYTHON'
import importlib.metadata

from nbgrader.utils import parse_utc, to_numeric_tz

zone = to_numeric_tz("Etc/GMT-1")  # one hour east
read = {each: str(parse_utc(f"2026-03-01 12:00:00 {each}")) for each in (zone, "+01:00", "CET")}
print(f"nbgrader {importlib.metadata.version('nbgrader')}: 2026-03-01 12:00:00, by zone, in UTC: {read}")
times = {"+0100": "11:58:20", "+01:00": "12:00:00", "CET": "11:00:00"}
raise SystemExit(read != {each: f"2026-03-01 {time}" for each, time in times.items()})
PYTHON

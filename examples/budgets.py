"""A budget: the same training with less hardware. `python examples/budgets.py one-core half`

`labkit budgets` lists what --budget can enforce on this machine. A run under a budget is marked as emulated.
"""

import subprocess
import sys
from pathlib import Path

from labkit.runs import run_folders
from labkit.tta import curves, run_table, summary

script, runs_dir = Path(__file__).with_name("digits_cnn.py"), Path("runs/budgets")
for budget in sys.argv[1:] or ["all-cores", "one-core", "cores=1,memory=1GiB"]:
    command = [sys.executable, "-m", "labkit", "run", "--budget", budget, "--runs-dir", str(runs_dir)]
    subprocess.run([*command, str(script), "--seed", "1"], check=True)

folders = run_folders(runs_dir)
runs = run_table(folders)
table = summary(curves(folders, runs=runs), runs)  # one row per job and budget, over all seeds that were run
table["peak_memory_mib"] = table["peak_memory_bytes"] / 2**20
columns = ["budget", "provenance", "runs", "reached", "time_median_s", "samples_per_s", "peak_memory_mib"]
print(table[columns].to_string(index=False, float_format="{:.3g}".format))

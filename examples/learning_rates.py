"""A sweep of a script: which learning rate reaches the target first? `python examples/learning_rates.py`

Stop it with Ctrl-C and start it again: it continues where it was.
"""

import subprocess
import sys
from pathlib import Path

from labkit.launch import read_sweep

sweep = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("learning_rates.yaml")
subprocess.run([sys.executable, "-m", "labkit", "sweep", str(sweep)], check=True)

cells = read_sweep(sweep)  # one row per cell: what varies, its state, and the result of its run
table = cells.groupby("lr").agg(
    runs=("run", "count"),
    reached=("target_reached", "sum"),
    time_to_target_s=("time_to_target_s", "median"),
    best_accuracy=("accuracy", "max"),
)
print(table.sort_values("time_to_target_s").to_string(float_format="{:.3g}".format))

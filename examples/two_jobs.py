"""Two jobs on one device: what sharing gains, and what it costs each job. `python examples/two_jobs.py`

The command is the one that you would type; with --json its last line is an object that a program can read.
"""

import json
import subprocess
import sys
from pathlib import Path

mode = sys.argv[1] if len(sys.argv) > 1 else "cpu-shared"  # or cpu-pinned; on a GPU naive, mps or mig
script = Path(__file__).with_name("digits_cnn.py")
jobs = f"{script}[memory=1GiB] --seed {{seed}} --epochs 3 x2"  # two copies, with the seeds 0 and 1
command = [sys.executable, "-m", "labkit", "collocate", "--jobs", jobs, "--mode", mode, "--baseline", "one", "--json"]
verdict = json.loads(subprocess.check_output(command, text=True).splitlines()[-1])

alone, together = (next(row for row in verdict["modes"] if row["mode"] == each) for each in ("alone", mode))
print(f"alone, one after another: {alone['jobs']} job, {alone['makespan_s']:.1f} s")
print(f"{mode}: {together['jobs']} jobs at once, {together['makespan_s']:.1f} s")
print(f"  work per second compared with one job at a time: {together['gain']:.2f} times")
print(f"  each job takes {together['slowdown']:.2f} times as long as alone")

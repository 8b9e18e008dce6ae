"""`python sweeper.py FILE RUNS_DIR`: runs a sweep of light runs, to be killed."""

import sys
from pathlib import Path

from light_run import LightRun

from labkit.launch import execute
from labkit.launch.sweep_file import read_sweep_file

if __name__ == "__main__":
    execute.LaunchedRun = LightRun
    file, runs_dir = map(Path, sys.argv[1:])
    with execute.opened(read_sweep_file(file), runs_dir) as progress:
        execute.run_sweep(progress, runs_dir, lambda cell, state, event: None)

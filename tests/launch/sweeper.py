"""`python sweeper.py FILE RUNS_DIR`: runs a sweep of light runs, to be killed."""

import sys
from pathlib import Path

from labkit.launch import engine, opened, read_sweep_file, run_sweep
from labkit.tracking import StopRequest

if __name__ == "__main__":
    engine.WORKER = "light_run"
    file, runs_dir = map(Path, sys.argv[1:])
    with opened(read_sweep_file(file), runs_dir) as progress, StopRequest() as stop:
        run_sweep(progress, lambda part, event: None, stop)

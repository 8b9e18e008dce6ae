"""What starting costs: labkit's own commands, and imports that labkit leaves out. `python benchmarks/start_up.py`.

Pairs alternate in one run. The first step of a tour is timed from the command to the step's end: as a rule, and once
with empty caches, when data is generated and kernels are compiled.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from statistics import median

from measuring import report, speed_ups

from labkit.runs import read_events, read_metrics, run_folders

PAIRS = {
    "plotly's notebook support": (
        "without a grammar of addresses",
        "with it",
        "from labkit.plots.descriptions import import_nbformat; import_nbformat(); import plotly.io._renderers",
        "from labkit.plots.descriptions import import_nbformat; import plotly.io._renderers",
    ),
    "pyarrow's first array": (
        "without pandas",
        "with it",
        "import pyarrow as pa; from labkit.runs.parts import spare_pandas; spare_pandas(); pa.array([])",
        "import pyarrow as pa; from labkit.runs.parts import spare_pandas; pa.array([])",
    ),
    "torch's first optimiser": (
        "without its compiler",
        "with it",
        "import torch; from labkit.fast.optimisers import without_compiler as w; "
        "w(torch.optim.Adam)([torch.nn.Parameter(torch.ones(1))])",
        "import torch; from labkit.fast.optimisers import without_compiler as w; "
        "torch.optim.Adam([torch.nn.Parameter(torch.ones(1))])",
    ),
}
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "import labkit": [sys.executable, "-c", "import labkit"],
    "labkit --help": [sys.executable, "-m", "labkit", "--help"],
    "labkit runs list": [sys.executable, "-m", "labkit", "runs", "list"],
}
TURNS = 5


def seconds(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def first_step_s(environment: dict[str, str] | None = None) -> float:
    """Seconds from the command `labkit tour` to the end of its first training step.

    The clock of a run says how long before its first evaluation that step ended.
    """
    with tempfile.TemporaryDirectory() as folder:
        began = time.time()
        command = [sys.executable, "-m", "labkit", "tour", "--jobs", "dlrm", "--seeds", "0", "--runs-dir", folder]
        command += ["--out", f"{folder}/report.html"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=os.environ | (environment or {})) as tour:
            try:
                while not (evaluated := [each for each in _events(Path(folder)) if each["event"] == "evaluated"]):
                    if tour.poll() is not None:
                        raise SystemExit("the tour ended before an evaluation")
                    time.sleep(0.05)
            finally:
                tour.send_signal(signal.SIGINT)
                tour.wait()
        metrics = read_metrics(run_folders(folder)[:1])
        first = metrics[metrics["name"] == "loss"]["wall_s"].min()
        return datetime.fromisoformat(evaluated[0]["time"]).timestamp() - evaluated[0]["wall_s"] + first - began


def _events(folder: Path) -> list[dict]:
    return [event for run in folder.iterdir() if (run / "events.jsonl").exists() for event in read_events(run)]


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    ratios = []
    for what, (without, with_it, *programs) in PAIRS.items():
        turns = [[seconds([sys.executable, "-c", program]) for program in programs] for _ in range(TURNS)]
        first, second = map(list, zip(*turns, strict=True))
        ratios += speed_ups(what, {with_it: second, without: first}, base=with_it, unit="s")
    commands = {name: [] for name in COMMANDS}
    for _ in range(TURNS):
        for name, command in COMMANDS.items():
            commands[name].append(seconds(command))
    with tempfile.TemporaryDirectory() as folder:
        new = {"LABKIT_CACHE": f"{folder}/labkit", "NUMBA_CACHE_DIR": f"{folder}/numba"}
        commands["first step of the first labkit tour"] = [first_step_s(new)]
    commands["first step of labkit tour"] = [first_step_s() for _ in range(3)]
    for name, taken in commands.items():
        print(f"{name}: {median(taken):.2f} s ({min(taken):.2f} to {max(taken):.2f})")
    report("start_up", ratios, commands=commands)


if __name__ == "__main__":
    main()

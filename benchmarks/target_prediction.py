"""Time to a target that `labkit predict --target` tells of batches and a budget that no run has had, beside such runs.

Runs of some batch sizes on all cores say how many samples the target takes; a card of one core says how long a step
takes there. What is predicted, the training at batches between them on one core, is then measured.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from math import log
from pathlib import Path
from statistics import median

import pandas as pd
from measuring import write_result

from labkit.perfmodel.kernels import geometric_error

ASKED = {
    "dlrm": ("auc=0.76", (128, 512, 2048), (256, 1024)),
    "speech": ("cer=0.2", (16, 64), (32,)),
}
"""Of each job the target, batch sizes that are trained first, and those that are predicted"""


def labkit(*arguments: str) -> dict:
    command = [sys.executable, "-m", "labkit", *arguments, "--json"]
    told = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout
    return json.loads(told.splitlines()[-1])


def train(job: str, batch_size: int, target: str, seed: int, runs: str, *more: str) -> float:
    """Seconds of training until the end of a run that reached its target."""
    told = labkit(
        "train",
        job,
        "--batch-size",
        str(batch_size),
        "--target",
        target,
        "--seed",
        str(seed),
        "--runs-dir",
        runs,
        *more,
    )
    return told["result"]["train_s"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", nargs="+", choices=ASKED, default=list(ASKED))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--card", type=Path, help="of one core, made before, instead of a new one")
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        card = args.card or Path(folder) / "card.json"
        if args.card is None:
            command = [sys.executable, "-m", "labkit", "calibrate", "--budget", "one-core", "--out", str(card)]
            subprocess.run(command, check=True)
        for job in args.jobs:
            target, known, asked = ASKED[job]
            runs, others = f"{folder}/{job}", f"{folder}/{job}-measured"
            for batch_size in known:
                for seed in range(args.seeds):
                    train(job, batch_size, target, seed, runs)
            for batch_size in asked:
                flags = (
                    "--batch-size",
                    str(batch_size),
                    "--target",
                    target,
                    "--runs-dir",
                    runs,
                    "--budget",
                    "one-core",
                )
                told = labkit("predict", job, *flags, "--card", str(card))["to_target"]
                real = [
                    train(job, batch_size, target, 100 + seed, others, "--budget", "one-core")
                    for seed in range(args.seeds)
                ]
                rows.append(
                    {"job": job, "batch_size": batch_size, "predicted_s": told["seconds"], "low_s": told["low_s"],
                     "high_s": told["high_s"], "measured_s": median(real), "ratio": median(real) / told["seconds"]}
                )  # fmt: skip
    table = pd.DataFrame(rows)
    print(table.to_string(index=False, float_format="{:.2f}".format))
    error = geometric_error([log(each) for each in table["ratio"]])
    print(f"{error:.0%} off (geometric mean)")
    write_result("target_prediction", pairs=rows, error=error)


if __name__ == "__main__":
    main()

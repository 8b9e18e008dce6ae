"""Time to a target that `labkit predict --target` tells of batches and a budget that no run has had, beside such runs.

Runs of some batch sizes on all cores say how many samples the target takes; a card of one core says how long a step
takes there. What is predicted, the training at batches between them on one core, is then measured.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import numpy as np
import pandas as pd
from measuring import write_result

from labkit.perfmodel import geometric_error

ASKED = {
    "dlrm": ("auc=0.77", (128, 512, 2048), (256, 1024)),
    "speech": ("cer=0.15", (16, 64), (24, 32, 48)),
}
"""Of each job the target, batch sizes that are trained first, and those that are predicted"""


def labkit(*arguments: str) -> dict:
    command = [sys.executable, "-m", "labkit", *arguments, "--json"]
    told = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout
    return json.loads(told.splitlines()[-1])


def train_s(job: str, flags: list[str], seed: int) -> float:
    """Seconds of training until the evaluation that reached the target, which later ones confirmed."""
    told = labkit("train", job, *flags, "--seed", str(seed))
    samples = told["result"]["samples_to_target"]
    events = map(json.loads, (Path(told["folder"]) / "events.jsonl").read_text().splitlines())
    return next(each["train_s"] for each in events if each.get("samples") == samples)


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
            for batch_size in known:
                flags = ["--batch-size", str(batch_size), "--target", target, "--runs-dir", f"{folder}/{job}"]
                for seed in range(args.seeds):
                    train_s(job, flags, seed)
            for batch_size in asked:
                flags = ["--batch-size", str(batch_size), "--target", target, "--budget", "one-core", "--runs-dir"]
                told = labkit("predict", job, *flags, f"{folder}/{job}", "--card", str(card))["to_target"]
                real = [train_s(job, [*flags, f"{folder}/measured"], 100 + seed) for seed in range(args.seeds)]
                rows.append(
                    {"job": job, "batch_size": batch_size, "predicted_s": told["seconds"], "low_s": told["low_s"],
                     "high_s": told["high_s"], "measured_s": median(real), "ratio": median(real) / told["seconds"]}
                )  # fmt: skip
    table = pd.DataFrame(rows)
    print(table.to_string(index=False, float_format="{:.2f}".format))
    errors = {job: geometric_error(np.log(own)) for job, own in table.groupby("job")["ratio"]}
    print(", ".join(f"{job} {error:.0%} off" for job, error in errors.items()), "(geometric means)")
    write_result("target_prediction", pairs=rows, errors=errors)


if __name__ == "__main__":
    main()

"""Gains that `labkit whatif` predicts, beside those that it then measures: signs, and how many within 20 %.

A card of all cores is made first. Predictions are made from it before anything is measured.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd
from measuring import write_result

WITHIN = 0.20
PLAIN = 0.05
"""Measured gains nearer to 1 than this have no sign to be right about"""
ASKED = {
    "dlrm": (
        ["--preset", "kaggle", "--data", "synthetic"],
        ["batch-size=4096", "batch-size=1024", "kernels=plain", "precision=fp32", "optimiser=adagrad,lr=0.01"],
    ),
    "speech": ([], ["batch-size=8", "batch-size=96", "kernels=plain", "precision=fp32"]),
}


def labkit(*arguments: str) -> str:
    command = [sys.executable, "-m", "labkit", *arguments]
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--card", type=Path, help="made before, instead of a new one")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        card = args.card or Path(folder) / "card.json"
        if args.card is None:
            labkit("calibrate", "--out", str(card))
        rows = []
        for job, (flags, changes) in ASKED.items():
            asked = [part for change in changes for part in ("--change", change)]
            told = labkit("whatif", job, *flags, "--card", str(card), "--measure", "--json", *asked)
            found = json.loads(told.splitlines()[-1])["changes"]
            rows += [{"job": job, **row} for row in found if row["change"] in changes]
    table = pd.DataFrame(rows)[["job", "change", "gain", "measured_gain"]]
    table["off"] = table["gain"] / table["measured_gain"] - 1
    has_sign = (table["measured_gain"] - 1).abs() > PLAIN
    table["sign"] = ((table["gain"] > 1) == (table["measured_gain"] > 1)).where(has_sign)
    print(table.to_string(index=False, float_format="{:.2f}".format))
    within = int((table["off"].abs() <= WITHIN).sum())
    print(
        f"{int(table['sign'].sum())} of {int(has_sign.sum())} signs right; {within} of {len(table)} within {WITHIN:.0%}"
    )
    write_result("what_if", changes=json.loads(table.to_json(orient="records")), within=within)


if __name__ == "__main__":
    main()

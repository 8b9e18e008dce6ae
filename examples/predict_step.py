"""How long will a step take? Predict it from a card, then measure it. `python examples/predict_step.py card.json`

`labkit calibrate` writes the card of this machine in two minutes; the card of another machine predicts for that one.
"""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT, BATCH_SIZE = Path(__file__).with_name("digits_cnn.py"), 64


def labkit(*arguments: str) -> dict:
    """Run a labkit command and return its result, the JSON object on its last line."""
    command = [sys.executable, "-m", "labkit", *arguments, "--json", str(SCRIPT)]
    return json.loads(subprocess.check_output(command, text=True).splitlines()[-1])


if len(sys.argv) != 2:
    sys.exit("Give a card: `labkit calibrate --out card.json` writes that of this machine in two minutes.")
predicted = labkit("predict", "run", "--card", sys.argv[1])
print(f"predicted for {predicted['device']}: {predicted['step_ms']:.2f} ms", end=" ")
print(f"({predicted['low_ms']:.2f} to {predicted['high_ms']:.2f})")
for operator in sorted(predicted["operators"], key=lambda each: -each["time_ms"])[:3]:
    print(f"  {operator['time_ms']:.2f} ms  {operator['kind']}")

measured_ms = 1000 * BATCH_SIZE / labkit("run")["result"]["samples_per_s"]
print(f"measured here: {measured_ms:.2f} ms, {measured_ms / predicted['step_ms']:.2f} times the prediction")

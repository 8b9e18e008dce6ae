"""Pipelines: what compiled features gain, where memory ends them, what micro-batches answer.

`python benchmarks/pipelines.py features limits serving` writes each to benchmarks/results/pipelines_NAME.json.
"""

import itertools
import json
import subprocess
import sys
import tempfile
from functools import partial
from statistics import median

import pandas as pd
from measuring import in_turn, report, speed_ups, write_result

from labkit import pipelines

BUDGET = "memory=400MiB"
FITTED = {"segments": (2, 4), "spam": (1, 2), "failures": (4, 8)}
"""Scales of the two runs through which the line goes"""
OPTIONS = {"failures": ["--rounds", "3"]}
ROUNDS, RATES, SECONDS = 5, (400, 1600, 6400), 3.0
"""The highest rate is beyond what either server answers, so the most that each answers is seen"""


def features() -> None:
    """The compiled pass against pandas' own aggregations and a function a group: 20,000 and 300,000 trips."""
    ratios = []
    for scale in (1, 15):
        folder = pipelines.ensure("trips", scale)
        lines = pd.read_csv(folder / "lines.csv").query("quantity != 0")
        names = ("pandas", "compiled", *(("function",) if scale == 1 else ()))
        ways = {name: partial(pipelines.make_features, lines, name) for name in names}
        found = {name: way() for name, way in ways.items()}
        apart = {name: pipelines.largest_difference(found["compiled"], each) for name, each in found.items()}
        assert max(apart.values()) <= pipelines.TOLERANCE, apart
        taken = in_turn(ways, turns=ROUNDS, warm_up=1 if scale > 1 else 0)
        for base in names:
            if base != "compiled":
                two = {name: taken[name] for name in ("compiled", base)}
                ratios += speed_ups(f"features of {20_000 * scale:,} trips", two, base=base, note="results equal")
    report("pipelines_features", ratios)


def limits() -> None:
    """The scale at which memory ends a pipeline: predicted from two runs, then found by bisection under the budget."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, scales in FITTED.items():
            for scale in scales:
                _run(name, scale, folder)
            fit = pipelines.fit_runs([run for run in pipelines.pipeline_runs(folder) if run.pipeline == name])
            predicted, _ = fit.breaks_at(pipelines.memory_of(BUDGET))
            low, high = 0.5 * predicted, 1.6 * predicted
            assert _run(name, low, folder, BUDGET) is None, f"{name} died at half of the predicted scale"
            stage = _run(name, high, folder, BUDGET)
            while high / low > 1.05:
                middle = (low * high) ** 0.5
                died_in = _run(name, middle, folder, BUDGET)
                low, high, stage = (middle, high, stage) if died_in is None else (low, middle, died_in)
            found = (low * high) ** 0.5
            dies_in = fit.dies_in(high, pipelines.memory_of(BUDGET))
            rows.append({"pipeline": name, "predicted": predicted, "stage": dies_in})
            rows[-1] |= {"found": found, "died_in": stage, "error": predicted / found - 1}
            print(rows[-1], flush=True)
    write_result("pipelines_limits", budget=BUDGET, rows=rows)


def _run(name: str, scale: float, folder: str, budget: str | None = None) -> str | None:
    """Run a pipeline; the stage that memory ended, or None."""
    flags = ["--budget", budget] if budget else []
    command = ["pipeline", "run", name, "--scale", f"{scale:.4g}", *OPTIONS.get(name, []), "--runs-dir", folder, *flags]
    subprocess.run([sys.executable, "-m", "labkit", *command], capture_output=True)
    return pipelines.pipeline_runs(folder)[-1].unfinished


def serving() -> None:
    """The most that a server answers per second, each request alone and in micro-batches of 4 ms, in turn."""
    model, rows = pipelines.make_model(pipelines.TripsJob())
    tables = [pipelines.serve_at(model.predict, rows, RATES, (0, 4), SECONDS) for _ in range(3)]
    most = [table.groupby("wait_ms")["answered_per_s"].max() for table in tables]
    gains = [each[4] / each[0] for each in most]
    print(tables[-1].to_string())
    print(f"micro-batches answer {median(gains):.2f} times as many ({min(gains):.2f} to {max(gains):.2f})")
    rounds = [json.loads(table.to_json(orient="records")) for table in tables]
    write_result("pipelines_serving", gains=gains, rounds=list(itertools.chain.from_iterable(rounds)))


if __name__ == "__main__":
    for name in sys.argv[1:] or ("features", "limits", "serving"):
        {"features": features, "limits": limits, "serving": serving}[name]()

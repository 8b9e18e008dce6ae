"""The live page over many runs: `python benchmarks/live_page.py --runs 1000 --points 10000`.

Run folders are made up: groups of five seeds that differ in `lr`, each with one long curve (`loss`), ten evaluations of
the target's metric, and telemetry of none. A server of its own reads them. A headless browser measures, each several
times: from navigation to the first curves (the server has read everything), from a new part of one run that goes on
until its points are drawn (without the server's wait for its next look), and a zoom. The server's memory is its peak
resident size. `cold_s` is from the server's start until it has read every run.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
from measuring import write_result
from playwright.sync_api import sync_playwright

from labkit.runs import Provenance, RunWriter, part_path, write_part
from labkit.runs.parts import METRICS

SEEDS, EVALUATIONS = 5, 10


def make_runs(runs_dir: Path, count: int, points: int, first: int = 0) -> RunWriter:
    """Finished runs and one that goes on, whose writer is the answer; they are counted from `first`."""
    random = np.random.default_rng(first)
    for number in range(first, first + count):
        config = {
            "job": "made-up",
            "train": {"target_metric": "auc", "target": 0.78, "lr": 0.001 * (1 + number // SEEDS)},
        }
        run = RunWriter.create(
            runs_dir,
            "made-up",
            config=config,
            budget={"name": "all-cores", "torch_name": "cpu"},
            tier="cloud-cpu-2",
            devices=[],
            seed=number % SEEDS,
            provenance=Provenance.now("measured"),
            software={},
        )
        step = np.arange(1, points + 1)
        loss = np.exp(-step / points * 3) + random.normal(0, 0.05, points)
        write_part(rows(step, loss, "loss"), part_path(run.folder / "metrics", 0))
        at = np.linspace(points / EVALUATIONS, points, EVALUATIONS).astype(int)
        value = 0.8 - 0.3 * np.exp(-at / points * 4) + random.normal(0, 0.01, EVALUATIONS)
        write_part(rows(at, value, "auc"), part_path(run.folder / "metrics", 1))
        if number == first + count - 1:
            return run
        known = {"wall_s": 0.01 * points, "train_s": 0.009 * points, "samples": 32 * points, "ended_by": "max_epochs"}
        run.finish("done", known | {"peak_memory_bytes": 2**30, "energy_j": None, "energy_note": "made up"})
    raise ValueError("no run was asked for")


def rows(step: np.ndarray, value: np.ndarray, name: str) -> pa.Table:
    columns = {"step": step, "wall_s": 0.01 * step, "train_s": 0.009 * step, "samples": 32 * step}
    return pa.table({**columns, "name": [name] * len(step), "value": value}, schema=METRICS)


def drawn(page, changed: str) -> float:
    """Seconds until the figure was drawn again after this expression was run."""
    return page.evaluate(f"""() => new Promise((done) => {{
      const plot = document.getElementById("curves"), began = performance.now();
      plot.once("plotly_afterplot", () => requestAnimationFrame(() => done((performance.now() - began) / 1000)));
      {changed};
    }})""")


def measure(address: str, run: RunWriter, points: int, turns: int) -> dict[str, list[float]]:
    taken = {"first_paint_s": [], "update_s": [], "zoom_s": []}
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for _ in range(turns):
            page = browser.new_page(viewport={"width": 1400, "height": 1000})
            page.set_default_timeout(180_000)
            began = time.perf_counter()
            page.goto(f"{address}#metric=loss")
            page.wait_for_function("() => document.getElementById('curves').data?.length > 1")
            page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
            taken["first_paint_s"].append(time.perf_counter() - began)
            page.wait_for_timeout(1500)
            # from the message that something is new until it is drawn
            page.evaluate("""() => {
              const plot = document.getElementById("curves");
              new MutationObserver(() => {
                const began = performance.now();
                plot.once("plotly_afterplot", () => { window.updateTook = (performance.now() - began) / 1000; });
              }).observe(document.documentElement, { attributes: true, attributeFilter: ["data-version"] });
            }""")
            step = points + 1 + len(taken["update_s"]) * 100 + np.arange(100)
            run.flush()
            number = 2 + len(taken["update_s"])
            write_part(rows(step, np.full(100, 0.1), "loss"), part_path(run.folder / "metrics", number))
            page.wait_for_function("() => window.updateTook !== undefined")
            taken["update_s"].append(page.evaluate("() => window.updateTook"))
            for at in (0.2, 0.4, 0.6):
                low, high = 0.01 * points * at, 0.01 * points * (at + 0.05)
                # plotly draws the part that it has at once; what counts is the finer one, which comes after
                taken["zoom_s"].append(
                    page.evaluate(f"""() => new Promise((done) => {{
                  const plot = document.getElementById("curves"), began = performance.now(), ask = window.fetch;
                  window.fetch = async (...given) => {{
                    const reply = await ask(...given);
                    if (String(given[0]).startsWith("curves")) {{
                      window.fetch = ask;
                      plot.once("plotly_afterplot", () => done((performance.now() - began) / 1000));
                    }}
                    return reply;
                  }};
                  Plotly.relayout(plot, {{ "xaxis.range[0]": {low}, "xaxis.range[1]": {high} }});
                }})""")
                )
            page.close()
        browser.close()
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, nargs="+", default=[100, 1000], help="how many (100 and 1000)")
    parser.add_argument("--points", type=int, default=10_000, help="rows of the long curve of each (10,000)")
    parser.add_argument("--turns", type=int, default=5, help="how many times each is timed (5)")
    args = parser.parse_args()
    results = []
    for count in args.runs:
        with tempfile.TemporaryDirectory() as folder:
            run = make_runs(Path(folder), count, args.points)
            results.append({"runs": count, "points": args.points, **served(Path(folder), run, args.points, args.turns)})
            run.finish("done", {})
        print(results[-1])
    write_result("live_page", results=results)


def served(folder: Path, run: RunWriter, points: int, turns: int) -> dict[str, object]:
    """What a page over the runs of a folder takes, of which `run` goes on."""
    load, began = psutil.getloadavg()[0], time.perf_counter()
    command = [sys.executable, "-m", "labkit", "live", str(folder), "--no-browser"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        address = server.stdout.readline().split()[-1]
        while unread(address) or time.perf_counter() - began < 1:
            time.sleep(0.1)
        cold_s = time.perf_counter() - began
        taken = measure(address, run, points, turns)
        status = Path(f"/proc/{server.pid}/status").read_text()
        peak = int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) * 1024
    finally:
        server.kill()
        server.wait()
    return {"cold_s": cold_s, "server_peak_bytes": peak, "load": load, **taken}


def unread(address: str) -> bool:
    """Whether the server has runs left to read."""
    with urllib.request.urlopen(address.replace("/?", "/events?"), timeout=60) as reply:
        message = json.loads(reply.readline().removeprefix(b"data: "))
    return bool(message["unread"] or not message["rows"])


if __name__ == "__main__":
    main()

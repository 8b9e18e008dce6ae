"""`labkit live` next to TensorBoard, MLflow and Trackio over the same numbers, in two steps.

    python benchmarks/live_peers.py --write FOLDER --points 1000
    python benchmarks/live_peers.py FOLDER/labkit-50x1000 FOLDER/mlflow-50x1000 …

The first step logs made-up runs with each tool's own library: a curve `loss`, in groups of five seeds. A tool that
takes longer than `LOGGING_S` gives up: it does not get the rest. With `--alike`, each run of TensorBoard's is a copy
of one of five, which is the way to 10^8 points. The second step, on a quiet machine, starts each tool's server with
its defaults. A headless browser measures the time from the server's start to the first curves, and the time to the
first curves of a page that is opened again. Memory is the sum of the peaks of the server's processes. A page that has
no curves after `PAGE_S` gave up. Results are kept by tool, runs and points in results/live_peers.json.

What is needed: `pip install mlflow==3.17.2 tensorboard==2.21.0 trackio==0.43.0`.
"""

import argparse
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import psutil
from live_page import SEEDS, make_runs, served
from measuring import RESULTS, write_result
from playwright.sync_api import Error, Page, sync_playwright

SIZES = 50, 250, 1000
LOGGING_S, PAGE_S = 120.0, 60.0
BEGAN_S = 1_790_000_000.0


def loss(number: int, points: int) -> np.ndarray:
    step = np.arange(1, points + 1)
    return np.exp(-step / points * 3) + np.random.default_rng(number).normal(0, 0.05, points)


Log = Callable[[Path, int, np.ndarray], None]
"""Logs one run into a folder: its number and its values"""


def to_labkit(place: Path, number: int, values: np.ndarray) -> None:
    run = make_runs(place, 1, len(values), first=number)  # which makes the same values
    run.finish("done", {"wall_s": 0.01 * len(values), "ended_by": "max_epochs"})


def to_tensorboard(place: Path, number: int, values: np.ndarray) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.record_writer import RecordWriter

    folder = place / f"run-{number:04d}"
    folder.mkdir()
    event = Event(wall_time=BEGAN_S, file_version="brain.Event:2")
    with (folder / f"events.out.tfevents.{BEGAN_S:.0f}.host").open("wb") as file:
        writer = RecordWriter(file)
        writer.write(event.SerializeToString())
        event = Event()
        number = event.summary.value.add(tag="loss")
        for event.step, number.simple_value in enumerate(values, 1):
            event.wall_time = BEGAN_S + 0.01 * event.step
            writer.write(event.SerializeToString())


def to_mlflow(place: Path, number: int, values: np.ndarray) -> None:
    logging.disable(logging.WARNING)
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    client = MlflowClient(f"sqlite:///{place}/mlflow.db")
    found = client.get_experiment_by_name("made-up")
    experiment = found.experiment_id if found else client.create_experiment("made-up", (place / "files").as_uri())
    run = client.create_run(experiment, run_name=f"run-{number:04d}").info.run_id
    client.log_param(run, "lr", number // SEEDS)
    points = [Metric("loss", float(value), int(BEGAN_S * 1000) + 10 * at, at) for at, value in enumerate(values, 1)]
    for first in range(0, len(points), 1000):
        client.log_batch(run, metrics=points[first : first + 1000])
    client.set_terminated(run)


def to_trackio(place: Path, number: int, values: np.ndarray) -> None:
    from labkit.bridges.trackio_runs import storage_in

    name, steps, rows = f"run-{number:04d}", [*range(1, len(values) + 1)], [{"loss": each} for each in values.tolist()]
    when = [f"2026-09-21T{at // 360_000:02d}:{at // 6000 % 60:02d}:{at // 100 % 60:02d}.{at % 100:02d}" for at in steps]
    config = {"lr": number // SEEDS, "seed": number % SEEDS}
    with storage_in(place) as storage:
        storage.bulk_log("made-up", name, rows, steps, when, config, run_id=name)


class Tool(NamedTuple):
    """Another tool, with its defaults."""

    log: Log
    server: Callable[[Path, int], list[str]]
    """Its command for a folder and a port"""
    page: str
    data: str
    """Part of the address of the answer that has the points of curves"""
    drawn: str
    """JavaScript: true once a curve is drawn"""


PYTHON = sys.executable
TOOLS = {
    "tensorboard": Tool(
        to_tensorboard,
        lambda place, port: [PYTHON, "-m", "tensorboard.main", "--logdir", str(place), "--port", str(port)],
        "/#timeseries",
        "timeSeries",
        "document.querySelector('line-chart canvas') !== null",
    ),
    "mlflow": Tool(
        to_mlflow,
        lambda place, port: [
            PYTHON, "-m", "mlflow", "server", "--port", str(port), "--backend-store-uri", f"sqlite:///{place}/mlflow.db",
        ],
        "/#/experiments/1/runs?compareRunsMode=CHART",
        "get-history-bulk",
        "document.querySelectorAll('.scatterlayer .trace, .gl-canvas').length > 0",
    ),
    "trackio": Tool(
        to_trackio,
        lambda place, port: [
            PYTHON, "-c", f"import trackio; trackio.show(open_browser=False, block_thread=True, server_port={port})",
        ],
        "/",
        "get_logs_batch",
        "[...document.querySelectorAll('canvas')].some(each => each.height > 100)",
    ),
}  # fmt: skip
LOGS: dict[str, Log] = {"labkit": to_labkit} | {name: tool.log for name, tool in TOOLS.items()}


def write(tool: str, folder: Path, points: int, *, alike: bool) -> None:
    """Log runs, and keep a copy of the tool's folder at each size."""
    place, began, taken = folder / f"{tool}-growing", time.perf_counter(), 0.0
    place.mkdir(parents=True)
    for number in range(SIZES[-1]):
        if alike and number >= SEEDS:
            shutil.copytree(place / f"run-{number % SEEDS:04d}", place / f"run-{number:04d}")
        else:
            LOGS[tool](place, number, loss(number, points))
        if number + 1 in SIZES:
            taken += time.perf_counter() - began
            shutil.copytree(place, folder / f"{tool}-{number + 1}x{points}")
            print(f"{tool}: {number + 1} runs, {points * (number + 1) / taken:,.0f} points/s", flush=True)
            began = time.perf_counter()
        if taken + time.perf_counter() - began > LOGGING_S:
            print(f"{tool}: {number + 1} runs of {points} in {LOGGING_S:.0f} s: it gave up")
            break
    shutil.rmtree(place)


def processes(server: subprocess.Popen) -> Iterator[psutil.Process]:
    yield psutil.Process(server.pid)
    yield from psutil.Process(server.pid).children(recursive=True)


def first_curves(page: Page, address: str, tool: Tool, until: float) -> float:
    """Seconds until a page has its curves; all of TensorBoard's runs are chosen first, of which it shows 40 at most."""
    began = time.perf_counter()
    page.set_default_timeout(max(until - began, 1) * 1000)
    with page.expect_response(lambda reply: tool.data in reply.url and reply.ok) as reply:
        page.goto(address + tool.page)
        if "tensorboard" in tool.server(Path(), 0)[2]:
            box = page.locator("runs-data-table tb-data-table-header-cell mat-checkbox input").first
            if not box.is_checked():
                box.click(force=True)
    reply.value.finished()
    page.wait_for_function(f"() => {tool.drawn}")
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return time.perf_counter() - began


def measure(name: str, place: Path, turns: int) -> dict[str, object]:
    """Start the tool's server; look at its page."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    tool, began, load = TOOLS[name], time.perf_counter(), psutil.getloadavg()[0]
    environment = {**os.environ, "TRACKIO_DIR": str(place), "MLFLOW_DISABLE_TELEMETRY": "true"}
    command = tool.server(place, port)
    server = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    address, found = f"http://localhost:{port}", {"load": load, "first_paint_s": []}
    try:
        while not answers(port):
            time.sleep(0.1)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            for turn in range(turns + 1):
                page = browser.new_page(viewport={"width": 1400, "height": 1000})
                taken = first_curves(page, address, tool, time.perf_counter() + PAGE_S)
                if turn:
                    found["first_paint_s"].append(taken)
                else:
                    found["cold_s"] = time.perf_counter() - began
                    page.screenshot(path=place.with_name(f"{place.name}.png"))
                page.close()
    except Error as error:
        found["gave_up"] = f"no curves within {PAGE_S:.0f} s ({str(error).splitlines()[0][:80]})"
    finally:
        found["server_peak_bytes"] = sum(memory(each) for each in processes(server))
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()
    return found


def memory(process: psutil.Process) -> int:
    """The most memory that a process has held, in bytes."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def answers(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, help="folders of the first step to measure: TOOL-RUNSxPOINTS")
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="log runs into subfolders of this one")
    parser.add_argument("--points", type=int, default=1000, help="of each run (1000)")
    parser.add_argument("--tools", nargs="+", choices=LOGS, default=[*LOGS], help="which log (all)")
    parser.add_argument("--alike", action="store_true", help="copy runs of TensorBoard's rather than log each")
    parser.add_argument("--turns", type=int, default=3, help="how many times a page is opened again (3)")
    args = parser.parse_args()
    if args.write:
        for tool in args.tools:
            write(tool, args.write.absolute(), args.points, alike=args.alike)
    path = RESULTS / "live_peers.json"
    kept = {key(each): each for each in (json.loads(path.read_text())["results"] if path.exists() else [])}
    for place in map(Path.absolute, args.folders):
        tool, size = place.name.split("-")
        runs, points = map(int, size.split("x"))
        if tool == "labkit":
            run = make_runs(place, 1, points, first=runs)
            found = served(place, run, points, args.turns)
            shutil.rmtree(run.folder)
            found["cold_s"] += found["first_paint_s"][0]
        else:
            found = measure(tool, place, args.turns)
        each = {"tool": tool, "runs": runs, "points": points, **found}
        kept[key(each)] = each
        print(each, flush=True)
        write_result("live_peers", results=[kept[name] for name in sorted(kept)])


def key(result: dict[str, object]) -> tuple[object, ...]:
    return result["tool"], result["points"], result["runs"]


if __name__ == "__main__":
    main()

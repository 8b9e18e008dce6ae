"""What two processes of one core gain over one process on one and on two cores, and what their exchange costs.

Both jobs, the DLRM at 512 and 4,096 samples per step, their ways in turn. The share of exchange is measured twice: as
1 − T(one process, half a batch) / T(two processes), and as the time in which the main threads of the ranks did not
compute. It is predicted from the bytes that a step exchanges and the speed of gloo here. It needs two cores on which
nothing else runs.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from statistics import median

import torch
import torch.distributed as dist
from measuring import RESULTS, paired, write_result

from labkit.data.clicks import ClickBatches, load_clicks
from labkit.jobs import DlrmJob, SpeechJob
from labkit.jobs.dlrm import build_model
from labkit.jobs.speech import build_model as build_recogniser, load_data
from labkit.models import DlrmConfig
from labkit.perfmodel import on_processes
from labkit.runs import exchange_s

WAYS = {
    "one process, one core": ["--budget", "one-core"],
    "one process, two cores": ["--budget", "cores=2"],
    "two processes": ["--nproc", "2"],
}
CASES = {"dlrm-512": ("dlrm", 512), "dlrm-4096": ("dlrm", 4096), "speech-32": ("speech", 32)}
NAME = "several_processes"
RESULT = RESULTS / f"{NAME}.json"
SIZES = tuple(4**power for power in range(2, 13))  # bytes of an exchange, 16 B to 16 MiB


def train(job: str, batch_size: int, seconds: float, flags: list[str]) -> dict:
    """The result of a training in a process of its own."""
    command = [sys.executable, "-m", "labkit", "train", job, "--batch-size", str(batch_size), "--target", "none"]
    with tempfile.TemporaryDirectory() as folder:
        more = ["--max-seconds", str(seconds), "--runs-dir", folder, "--precision", "fp32", "--json", *flags]
        said = subprocess.run([*command, *more], capture_output=True, text=True, check=True).stdout
    return json.loads(said[said.rindex("\n{") + 1 if "\n{" in said else said.index("{") :])["result"]


def time_exchanges() -> dict[str, list[float]]:
    """Seconds of an all-reduce and an all-gather of each size between two processes."""
    found: dict[str, list[float]] = {"all_reduce": [], "all_gather": []}
    for size in SIZES:
        own = torch.zeros(size // 4)
        parts = [torch.empty_like(own) for _ in range(2)]
        for name, exchange in (
            ("all_reduce", lambda own=own: dist.all_reduce(own)),
            ("all_gather", lambda own=own, parts=parts: dist.all_gather(parts, own)),
        ):
            times = []
            for _ in range(20):
                dist.barrier()
                began = time.perf_counter()
                exchange()
                times.append(time.perf_counter() - began)
            found[name].append(median(times))
    return found


def predicted_s(job: str, batch_size: int, times: dict[str, list[float]]) -> float:
    """Seconds of exchange in a step of two processes: gradients, rows of the tables, and what `run.step` sums."""

    def of(name: str, size: float) -> float:
        place = min(range(len(SIZES)), key=lambda each: abs(SIZES[each] - size))
        return times[name][place] * max(1.0, size / SIZES[place])

    if job == "speech":
        settings = SpeechJob(batch_size=batch_size)
        model = build_recogniser(load_data(settings)[1], settings.kernels)
        return of("all_reduce", 4 * sum(each.numel() for each in model.parameters())) + of("all_reduce", 64)
    settings = DlrmJob(batch_size=batch_size)
    log = load_clicks(settings.data)
    config = DlrmConfig(len(log.dense_names), log.table_rows, **settings.preset_values.model)
    model = build_model(config, "fast")
    dense = sum(each.numel() for part in (model.bottom, model.top) for each in part.parameters())
    _, categorical, _ = next(iter(ClickBatches(log.split("train"), batch_size, 0)))
    rows = (categorical[::2] + model.tables.row_start.view(1, -1, 1)).unique().numel()  # of a rank's share
    own_bytes = 4 * rows * (config.embedding_dim + 1)
    exchanged = of("all_reduce", 4 * dense) + of("all_reduce", 64)
    return exchanged + of("all_gather", own_bytes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=CASES, help="this one only; what is known of the others stays in the result")
    parser.add_argument("--rounds", type=int, default=5, help="of each case, at least 2 (5)")
    parser.add_argument("--seconds", type=float, default=10.0, help="that each run trains (10)")
    args = parser.parse_args()
    times = on_processes(2, time_exchanges)
    known = json.loads(RESULT.read_text())["cases"] if RESULT.exists() else {}
    for case in [args.case] if args.case else CASES:
        known[case] = measure(*CASES[case], args, times)
        write_result(NAME, cases=known)


def measure(job: str, batch_size: int, args: argparse.Namespace, times: dict[str, list[float]]) -> dict:
    """What two processes gain with a job, and the share of exchange of their steps."""
    step_s: dict[str, list[float]] = {name: [] for name in [*WAYS, "half a batch"]}
    idle = []
    for _ in range(args.rounds):
        for name, flags in WAYS.items():
            result = train(job, batch_size, args.seconds, flags)
            step_s[name].append(result["train_s"] / result["steps"])
        idle.append(sum(seconds for seconds, _ in exchange_s(result["ranks"]).values()) / result["train_s"])
        half = train(job, batch_size // 2, args.seconds, WAYS["one process, one core"])
        step_s["half a batch"].append(half["train_s"] / half["steps"])
    what, two = f"{job}, {batch_size} samples per step", step_s["two processes"]
    ratios = [paired(what, "two processes", base, two, step_s[base], unit="s per step") for base in [*WAYS][:2]]
    exchange = {
        "measured": 1 - median(step_s["half a batch"]) / median(two),
        "idle": median(idle),
        "predicted": predicted_s(job, batch_size, times) / median(two),
    }
    print(*ratios, exchange, sep="\n", flush=True)
    about = {"rounds": args.rounds, "seconds": args.seconds, "step_s": step_s}
    return about | {"ratios": [asdict(each) for each in ratios], "share_of_exchange": exchange, "exchange_s": times}


if __name__ == "__main__":
    main()

"""What two processes of one core gain over one process on one and on two cores, and what their exchange costs.

Both jobs, the DLRM at 512 and 4,096 samples per step, their ways in turn. The share of exchange is measured twice: as
1 − T(one process, half a batch) / T(two processes), and as the time in which the main threads of the ranks did not
compute. The first is predicted by made-up steps: products for as long as a step of half a batch, and exchanges of as
many bytes. It needs two cores on which nothing else runs.
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
from labkit.runs import exchange_s
from labkit_course.apparatus.sharding import on_processes

WAYS = {
    "one process, one core": ["--budget", "one-core"],
    "one process, two cores": ["--budget", "cores=2"],
    "two processes": ["--nproc", "2"],
}
CASES = {"dlrm-512": ("dlrm", 512), "dlrm-4096": ("dlrm", 4096), "speech-32": ("speech", 32)}
NAME = "several_processes"
RESULT = RESULTS / f"{NAME}.json"
STEPS = 200
"""Made-up steps that a prediction times"""


def train(job: str, batch_size: int, seconds: float, flags: list[str]) -> dict:
    """The result of a training in a process of its own."""
    command = [sys.executable, "-m", "labkit", "train", job, "--batch-size", str(batch_size), "--target", "none"]
    with tempfile.TemporaryDirectory() as folder:
        more = ["--max-seconds", str(seconds), "--runs-dir", folder, "--precision", "fp32", "--json", *flags]
        said = subprocess.run([*command, *more], capture_output=True, text=True, check=True).stdout
    return json.loads(said[said.rindex("\n{") + 1 if "\n{" in said else said.index("{") :])["result"]


def idle_share(work_s: float, reduced: list[float], gathered: list[float]) -> float:
    """The share of made-up steps in which the main thread of a process of two does not compute.

    A step is matrix products for `work_s`. The backward pass, two thirds of it, ends gradients one after another. Each
    bucket of them, of `reduced` bytes, is summed while it goes on. Then come exchanges of `gathered` bytes.
    """
    own, product = torch.rand(192, 192), torch.empty(192, 192)
    began = time.perf_counter()
    for _ in range(500):
        torch.mm(own, own, out=product)
    products = work_s / (time.perf_counter() - began) * 500
    buckets = [torch.zeros(round(size / 4)) for size in reduced]
    rows = [torch.zeros(round(size / 4)) for size in gathered]
    parts = [[torch.empty_like(each) for _ in range(2)] for each in rows]
    for step in range(STEPS + 5):
        if step == 5:
            wall, computed = time.perf_counter(), time.thread_time()
        done, size, sums = 0, 0.0, []
        for bucket in buckets:
            size += 4 * len(bucket)
            until = round(products * (1 / 3 + 2 / 3 * size / sum(reduced)))
            for _ in range(until - done):
                torch.mm(own, own, out=product)
            done = until
            sums.append(dist.all_reduce(bucket, async_op=True))
        for each in sums:
            each.wait()
        for each, found in zip(rows, parts, strict=True):
            dist.all_gather(found, each)
        dist.all_reduce(torch.zeros(16))  # what `run.step` sums
    return 1 - (time.thread_time() - computed) / (time.perf_counter() - wall)


def predicted_share(job: str, batch_size: int, work_s: float) -> float:
    """The predicted share, from the step of one process with half a batch and the bytes that two exchange."""
    if job == "speech":
        settings = SpeechJob(batch_size=batch_size)
        model = build_recogniser(load_data(settings)[1], settings.kernels)
        return on_processes(2, idle_share, work_s, buckets_of(model), [])
    settings = DlrmJob(batch_size=batch_size)
    log = load_clicks(settings.data)
    config = DlrmConfig(len(log.dense_names), log.table_rows, **settings.preset_values.model)
    model = build_model(config, "fast")
    _, categorical, _ = next(iter(ClickBatches(log.split("train"), batch_size, 0)))
    rows = (categorical[::2] + model.tables.row_start.view(1, -1, 1)).unique().numel()  # of a rank's share
    dense = torch.nn.ModuleList([model.bottom, model.top])
    return on_processes(2, idle_share, work_s, buckets_of(dense), [4.0 * rows * (config.embedding_dim + 1)])


def buckets_of(model: torch.nn.Module) -> list[float]:
    """Bytes of gradients that DistributedDataParallel sums at a time, last layers first: its first bucket is small."""
    buckets, most = [0.0], 2**20
    for each in reversed(list(model.parameters())):
        if buckets[-1] and buckets[-1] + 4 * each.numel() > most:
            buckets.append(0.0)
            most = 25 * 2**20
        buckets[-1] += 4.0 * each.numel()
    return buckets


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=CASES, help="this one only; what is known of the others stays in the result")
    parser.add_argument("--rounds", type=int, default=5, help="of each case, at least 2 (5)")
    parser.add_argument("--seconds", type=float, default=10.0, help="that each run trains (10)")
    args = parser.parse_args()
    known = json.loads(RESULT.read_text())["cases"] if RESULT.exists() else {}
    for case in [args.case] if args.case else CASES:
        known[case] = measure(*CASES[case], args)
        write_result(NAME, cases=known)


def measure(job: str, batch_size: int, args: argparse.Namespace) -> dict:
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
        "predicted": predicted_share(job, batch_size, median(step_s["half a batch"])),
    }
    print(*ratios, exchange, sep="\n", flush=True)
    about = {"rounds": args.rounds, "seconds": args.seconds, "step_s": step_s}
    return about | {"ratios": [asdict(each) for each in ratios], "share_of_exchange": exchange}


if __name__ == "__main__":
    main()

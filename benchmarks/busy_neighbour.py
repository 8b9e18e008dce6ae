"""Is a busy neighbour noticed, and what does a run lose beside one?

First twenty runs of the tour's DLRM on all cores, beside three of which another program computes on one core: which are
marked as disturbed? Then pairs of runs beside that program: threads that wait as labkit chooses, passively, and busily.
It needs a machine on which nothing else runs, and two cores or more.
"""

import argparse
import contextlib
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from measuring import Ratio, paired, report

from labkit.launch import watch

WAIT_POLICY = "OMP_WAIT_POLICY"
POLICIES = {"as labkit chooses": None, "passively": "PASSIVE", "busily": "ACTIVE"}
HOGS = 3


@contextlib.contextmanager
def hog() -> Iterator[None]:
    """A program that computes on one core, and is no descendant of the runs."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def run(seconds: float, policy: str | None = None) -> dict:
    """The result of a run on all cores."""
    os.environ.pop(WAIT_POLICY, None)
    if policy is not None:
        os.environ[WAIT_POLICY] = policy
    with tempfile.TemporaryDirectory() as folder:
        answer = watch("dlrm", folder, evaluations=False, budget="all-cores", max_seconds=seconds, target="none")
        return answer["result"]


def noticed(runs: int, seconds: float, seed: int) -> list[dict]:
    """Of each run, whether a hog was beside it and what it recorded of others."""
    planted = set(random.Random(seed).sample(range(runs), HOGS))
    found = []
    for number in range(runs):
        with hog() if number in planted else contextlib.nullcontext():
            result = run(seconds)
        found.append({"hog": number in planted, "samples_per_s": result["samples_per_s"], **result["others"]})
        print(f"run {number}: hog {found[-1]['hog']}, disturbed {found[-1]['disturbed']}, {found[-1]['cpu_share']:.1%}")
    return found


def beside_a_hog(pairs: int, seconds: float) -> tuple[list[Ratio], list[dict[str, float]]]:
    turns = []
    for _ in range(pairs):
        with hog():
            turns.append({name: run(seconds, policy)["samples_per_s"] for name, policy in POLICIES.items()})
        print(", ".join(f"{name} {rate:,.0f} samples/s" for name, rate in turns[-1].items()))
    chosen = [1e6 / turn["as labkit chooses"] for turn in turns]
    return [
        paired("a DLRM on all cores beside a busy process", "threads wait as labkit chooses", f"threads wait {name}",
               chosen, [1e6 / turn[name] for turn in turns], unit="us a sample")
        for name in ("passively", "busily")
    ], turns  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20, help=f"of which {HOGS} have a hog (20)")
    parser.add_argument("--pairs", type=int, default=5, help="beside a hog, at least 2 (5)")
    parser.add_argument("--seconds", type=float, default=4.0, help="that each run trains (4)")
    parser.add_argument("--seed", type=int, default=0, help="of which runs have it (0)")
    args = parser.parse_args()
    runs = noticed(args.runs, args.seconds, args.seed)
    hits = sum(each["hog"] and each["disturbed"] for each in runs)
    alarms = sum(each["disturbed"] and not each["hog"] for each in runs)
    print(f"{hits} of {HOGS} hogs noticed, {alarms} false alarms in {len(runs) - HOGS} runs")
    ratios, turns = beside_a_hog(args.pairs, args.seconds)
    report("busy_neighbour", ratios, runs=runs, noticed=hits, false_alarms=alarms, beside=turns)


if __name__ == "__main__":
    main()

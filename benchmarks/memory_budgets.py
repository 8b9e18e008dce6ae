"""Whether the jobs live within small memory budgets, and what the watch costs: `python benchmarks/memory_budgets.py`.

Each job trains for some seconds in both precisions under each budget. Then a process grows as fast as one call into C
can, and is killed: how far beyond the hard limit did it come, and at which rate? At last one stays near its budget
while the watch looks as often as it does there: what share of a core does that take?
"""

import argparse
import itertools
import os
import subprocess
import sys
import tempfile

from measuring import write_result

from labkit.errors import UserError
from labkit.hardware import hard_limit
from labkit.launch import watch

JOBS, PRECISIONS, SIZES = ("dlrm", "speech"), ("fp32", "bf16"), ("1536MiB", "2GiB", "3GiB")
LIMIT = 2**30
WATCH = "labkit.hardware.memory_watch"
GROWS = f"""
import sys, time
from labkit.hardware.budgets import Budget
Budget("small", 1, memory_bytes={LIMIT}).enforce()
began = time.perf_counter()
held = bytearray({LIMIT // 2})
print(len(held) / (time.perf_counter() - began), flush=True)
more = bytearray(6 * {LIMIT})
"""
STAYS = f"""
import os, psutil, time
from labkit.hardware.budgets import Budget
from labkit.hardware.memory_watch import held
Budget("small", 1, memory_bytes={LIMIT}).enforce()
(watch,) = [each for each in psutil.process_iter() if each.cmdline()[-2:] == [{WATCH!r}, str(os.getpid())]]
ballast = bytearray({LIMIT} - held(os.getpid()) - 2**23)  # 8 MiB are left
before, began = sum(watch.cpu_times()[:2]), time.perf_counter()
time.sleep(10)
print((sum(watch.cpu_times()[:2]) - before) / (time.perf_counter() - began))
"""


def trains(job: str, precision: str, size: str, seconds: float, runs_dir: str) -> dict[str, object]:
    """How a job ends under a budget, and the most that its processes had resident, libraries included."""
    told = {"job": job, "precision": precision, "memory": size}
    settings = {"precision": precision, "target": "none", "max_seconds": seconds}
    try:
        answer = watch(job, runs_dir, budget=f"cores=1,memory={size}", evaluations=False, **settings)
    except UserError as error:
        return told | {"status": "failed", "why": str(error)}
    result = answer["result"]
    return told | {"status": answer["status"], "steps": result["steps"], "peak": result["peak_memory_bytes"]}


def grows() -> dict[str, float]:
    """Bytes beyond the hard limit at which a process was stopped, and the bytes a second that it took."""
    with subprocess.Popen([sys.executable, "-c", GROWS], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        rate = float(child.stdout.readline())
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == -9, child.returncode
    return {"bytes_per_s": rate, "beyond_bytes": 1024 * used.ru_maxrss - hard_limit(LIMIT)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=6.0, help="that each job trains (6)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        jobs = []
        for job, precision, size in itertools.product(JOBS, PRECISIONS, SIZES):
            jobs.append(trains(job, precision, size, args.seconds, folder))
            print(jobs[-1], flush=True)
    killed = [grows() for _ in range(5)]
    stays = subprocess.run([sys.executable, "-c", STAYS], check=True, capture_output=True, text=True)
    share = float(stays.stdout)
    print(f"killed: {killed}\nthe watch near a budget: {share:.1%} of a core")
    write_result("memory_budgets", seconds=args.seconds, jobs=jobs, killed=killed, watch_share_of_a_core=share)


if __name__ == "__main__":
    main()

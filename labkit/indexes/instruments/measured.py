"""The program that is measured: builds indexes and answers a workload between two marks, in a process of its own.

valgrind's CPU is not the machine's, so here numba compiles for a generic one: the clock, the PMU and callgrind see the
same code.
"""

import functools
import os
import platform
import statistics
import time
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from labkit import compiled, process
from labkit.indexes.index import Index
from labkit.indexes.instruments.replay import replay
from labkit.indexes.kernels import GET, enlarged, rebound
from labkit.indexes.workloads import SCANNED, Requests, Workload, make_requests

ENVIRONMENT = {"NUMBA_CPU_NAME": "generic", "NUMBA_NUM_THREADS": "1"}
ROUNDS = 5
"""Rounds of requests that change nothing; the median counts"""
REPLAYED = 20_000
"""Requests that are replayed at most"""
X86 = ("x86_64", "AMD64")
CACHES = {"32 KiB": 2**15, "2 MiB": 2**21}


def main() -> None:
    parent = process.Parent()
    parent.listen(at_end=lambda: os._exit(1))
    plan = parent.content
    workload = Workload(**plan["workload"])
    requests = make_requests(workload)
    for name in plan["names"]:
        facts: dict[str, Any] = {"name": name}
        if plan["clock"] or plan["region"] is not None:
            _answer(Index(name, requests.loaded[:100]), requests.first(0))  # compiles, or loads what was compiled
            index = _fresh(name, requests)
            _order(plan["region"], "enable")
            times = [_answer(index, requests)]
            _order(plan["region"], "disable")
            facts |= {"seconds": times[0], "work": index.work, "bytes": index.nbytes}
            if plan["clock"] and workload.pattern == "reads":
                few, few_s = make_requests(replace(workload, pattern="few")), []
                for _ in range(ROUNDS):
                    few_s.append(_answer(index, few))
                    times.append(_answer(index, requests))
                facts |= {"seconds": statistics.median(times[1:]), "few_s": statistics.median(few_s)}
        if plan["replay"]:
            followed = replay(_fresh(name, requests), requests.first(REPLAYED))
            facts |= {"replayed": len(followed.found), "accesses": followed.accesses, "lines": followed.lines_touched}
            facts |= {"misses": {size: followed.misses(number) for size, number in CACHES.items()}}
        parent.tell("measured", **facts)


def _fresh(name: str, requests: Requests) -> Index:
    """The index as it is before the workload, its memory touched: page faults are not part of a request."""
    index = Index(name, requests.loaded, more=int((requests.kinds != GET).sum()))
    for array in index.arrays:
        array[::512] = array[::512]
    return index


def _answer(index: Index, requests: Requests) -> float:
    """Answer all requests, between marks for valgrind; the seconds that it took. The values found are checked."""
    run, words = _marked(index.kernels)
    found, values, done = np.empty(len(requests.keys), np.int64), np.empty(SCANNED, np.int64), 0
    begun = time.perf_counter()
    while (done := run(index.arrays, *requests[1:], found, values, done, *words)) < len(requests.keys):
        index.arrays = enlarged(index.arrays)
    seconds = time.perf_counter() - begun
    is_get = requests.kinds == GET
    assert (found[is_get] == np.searchsorted(requests.loaded, requests.keys[is_get])).all(), f"{index.kind} is wrong"
    return seconds


@functools.cache
def _marked(kernels: ModuleType) -> tuple[Any, list[np.ndarray]]:
    """An index' `run` with marks, where they are known, and its last arguments."""
    if compiled.why_not_compiled() or platform.machine() not in X86:
        return kernels.run, []
    from labkit.indexes.instruments import client_request

    scope = {"run": kernels.run, "__name__": kernels.__name__}
    return rebound(client_request.marked, scope), [client_request.new_words()]


def _order(control: str | None, word: str) -> None:
    """Let `perf stat`, if it runs this program, begin or end to count, and wait until it does."""
    if not control:
        return
    with Path(control, "control").open("w") as orders:
        orders.write(f"{word}\n")
    with Path(control, "answers").open() as answers:
        answers.readline()


if __name__ == "__main__":
    main()

"""What a learned index gains over a B+-tree: `python benchmarks/learned_index.py` (10^7 keys need 3 GB).

Reads take turns in one process, at 10^6 keys of four distributions and 10^7 uniform ones; so do reads of few keys, for
the share of the time that waits for memory. Instructions of inserts are callgrind's, where it is installed.

LABKIT_ALEX=/path/to/ALEX, a checkout of github.com/microsoft/ALEX, adds their index in C++; it needs g++.
"""

import argparse
import ctypes
import os
import subprocess
import tempfile
from pathlib import Path
from statistics import median

import numpy as np
from measuring import in_turn, report, speed_ups, write_result

from labkit import indexes

KINDS = ("btree", "art", "learned")
READS, TURNS = 10**6, 5
COMPILE = ("g++", "-std=c++14", "-O3", "-march=native", "-shared", "-fPIC", "-w")


class Alex:
    """microsoft/ALEX, bulk loaded with keys and their positions."""

    def __init__(self, keys: np.ndarray):
        with tempfile.TemporaryDirectory() as folder:
            library, source = f"{folder}/alex.so", Path(__file__).with_name("alex.cpp")
            headers = f"-I{os.environ['LABKIT_ALEX']}/src"
            subprocess.run([*COMPILE, headers, "-o", library, str(source)], check=True)
            self.functions = ctypes.CDLL(library)
        self.functions.load.restype = ctypes.c_void_p
        self.index = ctypes.c_void_p(self.functions.load(_pointer(keys), ctypes.c_int64(len(keys))))

    def get_many(self, keys: np.ndarray) -> np.ndarray:
        found = np.empty(len(keys), np.int64)
        self.functions.get_many(self.index, _pointer(keys), ctypes.c_int64(len(keys)), _pointer(found))
        return found

    def __del__(self):
        self.functions.drop(self.index)


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def reads(distribution: str, count: int) -> tuple[list, dict[str, float]]:
    """How many times as fast as the B+-tree each index is, and the share of its time that waits for memory."""
    requests, few = (
        indexes.make_requests(indexes.Workload(distribution, count, pattern, READS)) for pattern in ("reads", "few")
    )
    held: dict = {kind: indexes.Index(kind, requests.loaded) for kind in KINDS}
    if "LABKIT_ALEX" in os.environ:
        held["ALEX in C++"] = Alex(requests.loaded)
        assert (held["ALEX in C++"].get_many(requests.keys) == held["learned"].get_many(requests.keys)).all()
    ways = {
        f"{kind}, {name}": lambda index=index, keys=asked.keys: index.get_many(keys)
        for kind, index in held.items()
        for name, asked in (("all keys", requests), ("few keys", few))
    }
    taken = in_turn(ways, turns=TURNS)
    of_all = {kind: taken[f"{kind}, all keys"] for kind in held}
    waits = {
        kind: median(1 - quick / slow for slow, quick in zip(of_all[kind], taken[f"{kind}, few keys"], strict=True))
        for kind in held
    }
    return speed_ups(f"10^6 reads of {count:,} {distribution} keys", of_all, base="btree"), waits


def instructions() -> dict[str, float]:
    """Instructions per insert by callgrind, into 10^6 keys."""
    found = {}
    for name, pattern in (("random", "mixed:100"), ("append", "append")):
        load = indexes.Workload("uniform", 10**6, pattern, 4 * 10**5)
        for number in indexes.measure(("learned", "learned-bounded"), load, "callgrind"):
            if number.what == "instructions":
                found[f"{number.index}, {name}"] = number.value
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["reads", "inserts"], help="of reads and inserts (both)")
    parser.add_argument("--largest", type=float, default=1e7, help="keys of the largest index (default: 1e7)")
    args = parser.parse_args()
    if "reads" in args.parts:
        ratios, waits = [], {}
        cases = [(name, 10**6) for name in ("uniform", "lognormal", "zipf", "timestamps")]
        for distribution, count in [*cases, ("uniform", int(args.largest))]:
            more, waits[f"{distribution}, {count:,}"] = reads(distribution, count)
            ratios += more
        print("share of the time that waits for memory:", waits)
        report("learned_index", ratios, waits=waits)
    if "inserts" in args.parts and not indexes.why_not_callgrind():
        counted = instructions()
        print("instructions per insert:", counted)
        write_result("learned_index_inserts", instructions=counted)


if __name__ == "__main__":
    main()

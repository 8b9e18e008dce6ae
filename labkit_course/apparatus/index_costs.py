"""What reads and inserts cost in the kit's indexes, and in Python packages, which are called once per key."""

import bisect
import contextlib
import importlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd

from labkit import indexes
from labkit_course.timing import paired_times


def time_reads(
    kinds: Sequence[str],
    counts: Sequence[int],
    number: int,
    rounds: int,
    *,
    seed: int = 0,
) -> pd.DataFrame:
    """Nanoseconds per random read of indexes with these numbers of keys, and of `searchsorted`: a row per round."""
    frames = []
    for count in counts:
        requests = indexes.make_requests(indexes.Workload("uniform", count, "reads", number, seed))
        ways: dict[str, Callable[[], object]] = {
            kind: partial(indexes.Index(kind, requests.loaded).get_many, requests.keys) for kind in kinds
        }
        ways["searchsorted"] = partial(np.searchsorted, requests.loaded, requests.keys)
        frames.append((1e9 / number * paired_times(ways, rounds)).assign(keys=count))
    return pd.concat(frames).reset_index().melt(["keys", "round"], var_name="index", value_name="read_ns")


def count_inserts(loads: Mapping[str, indexes.Workload], instrument: str) -> pd.DataFrame:
    """What an insert costs the learned index and the repaired one: by the clock, and by an instrument if one counts.

    Args:
        loads: workloads by a name.
        instrument: perf, callgrind, or another one, with which there is the clock alone.
    """
    chosen = instrument if instrument in ("perf", "callgrind") else "clock"
    rows = [
        {"inserts": name} | vars(each)
        for name, load in loads.items()
        for each in indexes.measure(("learned", "learned-bounded"), load, chosen)
    ]
    return pd.DataFrame(rows, columns=["inserts", "index", "what", "value", "unit", "instrument"])


def time_packages(count: int, number: int) -> pd.DataFrame:
    """Nanoseconds per read of `number` random keys out of `count`, for each package that is installed."""
    requests = indexes.make_requests(indexes.Workload("uniform", count, "reads", number, 0))
    keys, asked = requests.loaded.tolist(), requests.keys.tolist()
    rows = []
    for name, how, read in _ways(keys):
        for key in asked[:1000]:
            read(key)
        begun = time.perf_counter()
        for key in asked:
            read(key)
        rows.append({"package": name, "call": how, "ns": 1e9 * (time.perf_counter() - begun) / number})
    begun = time.perf_counter()
    np.searchsorted(requests.loaded, requests.keys)
    each_ns = 1e9 * (time.perf_counter() - begun) / number
    rows.append({"package": "numpy", "call": "searchsorted, all keys in one call", "ns": each_ns})
    return pd.DataFrame(rows).set_index("package").rename(columns={"ns": "ns per read, measured"})


def _ways(keys: list[int]) -> Iterator[tuple[str, str, Callable[[int], object]]]:
    """Package, call, and the function that reads a key."""
    yield "(an empty call)", "", lambda key: None
    yield "Python", "dict[key], which has no order", dict.fromkeys(keys, 0).__getitem__
    yield "Python", "bisect_left on a list", lambda key: bisect.bisect_left(keys, key)
    with contextlib.suppress(ImportError):
        held = importlib.import_module("sortedcontainers").SortedList(keys)
        yield "sortedcontainers", "SortedList.bisect_left", held.bisect_left
    with contextlib.suppress(ImportError):
        held = importlib.import_module("pygm").SortedList(keys)
        yield "pygm", "SortedList.bisect_left, a learned index", held.bisect_left
    with contextlib.suppress(ImportError):
        held = importlib.import_module("BTrees.LLBTree").LLBTree(dict.fromkeys(keys, 0))
        yield "BTrees", "LLBTree[key]", held.__getitem__
    with contextlib.suppress(ImportError):
        names = {key: f"{key:020}" for key in keys}
        tree = importlib.import_module("blart").TreeMap()
        for key, name in names.items():
            tree[name] = key
        yield "blart-py", "an ART, with keys as text", lambda key: tree[names[key]]

"""What a learned index gains over a B+-tree: `python benchmarks/learned_index.py` (10^7 keys need 3 GB).

Reads take turns in one process, at 10^6 keys of four distributions and 10^7 uniform ones; so do reads of few keys, for
the share of the time that waits for memory. Instructions of inserts are callgrind's, where it is installed.
"""

import argparse
from statistics import median

from measuring import in_turn, report, speed_ups

from labkit import indexes

KINDS = ("btree", "art", "learned")
READS, TURNS = 10**6, 5


def reads(distribution: str, count: int) -> tuple[list, dict[str, float]]:
    """How many times as fast as the B+-tree each index is, and the share of its time that waits for memory."""
    requests, few = (
        indexes.make_requests(indexes.Workload(distribution, count, pattern, READS)) for pattern in ("reads", "few")
    )
    held = {kind: indexes.Index(kind, requests.loaded) for kind in KINDS}
    ways = {
        f"{kind}, {name}": lambda index=index, keys=asked.keys: index.get_many(keys)
        for kind, index in held.items()
        for name, asked in (("all keys", requests), ("few keys", few))
    }
    taken = in_turn(ways, turns=TURNS)
    of_all = {kind: taken[f"{kind}, all keys"] for kind in KINDS}
    waits = {
        kind: median(1 - quick / slow for slow, quick in zip(of_all[kind], taken[f"{kind}, few keys"], strict=True))
        for kind in KINDS
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--largest", type=float, default=1e7, help="keys of the largest index (default: 1e7)")
    parser.add_argument("--print", action="store_true", help="write no result")
    args = parser.parse_args()
    ratios, waits = [], {}
    cases = [(name, 10**6) for name in ("uniform", "lognormal", "zipf", "timestamps")]
    for distribution, count in [*cases, ("uniform", int(args.largest))]:
        more, waits[f"{distribution}, {count:,}"] = reads(distribution, count)
        ratios += more
    counted = {} if indexes.why_not_callgrind() else instructions()
    print("share of the time that waits for memory:", waits, "\ninstructions per insert:", counted)
    report("learned_index", ratios, write=not args.print, waits=waits, instructions=counted)


if __name__ == "__main__":
    main()

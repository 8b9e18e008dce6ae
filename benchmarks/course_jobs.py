"""How much sooner the authored notebooks are through when two run at once: `python benchmarks/course_jobs.py`.

Serial and parallel turns alternate in one run; what counts is the ratio of their medians.
"""

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

from labkit_course import authored, run_notebooks

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


def turn(jobs: int) -> tuple[float, float]:
    """Seconds of all notebooks together, and of the slowest one."""
    with tempfile.TemporaryDirectory() as out:
        began = time.perf_counter()
        executed = run_notebooks(authored(NOTEBOOKS), Path(out), jobs=jobs)
        took_s = time.perf_counter() - began
    faults = [f"{each.source.stem}: {fault}" for each in executed for fault in each.faults]
    if faults:
        raise SystemExit("\n".join(faults))
    return took_s, max(each.seconds for each in executed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=3, help="of each kind (3)")
    parser.add_argument("--jobs", type=int, default=2, help="how many at once (2)")
    args = parser.parse_args()
    turn(args.jobs)  # prepares the data
    serial, parallel = [], []
    for _ in range(args.turns):
        serial.append(turn(1))
        parallel.append(turn(args.jobs))
    ratio = median(took for took, _ in parallel) / median(took for took, _ in serial)
    for name, turns in (("one at a time", serial), (f"{args.jobs} at once", parallel)):
        slowest = max(slowest for _, slowest in turns)
        print(f"{name}: {', '.join(f'{took:.1f}' for took, _ in turns)} s; slowest notebook {slowest:.1f} s")
    print(f"{args.jobs} at once takes {100 * ratio:.0f} % of the time")


if __name__ == "__main__":
    main()

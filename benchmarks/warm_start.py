"""What a warm start gains, from the command to the result: `python benchmarks/warm_start.py [--base CHECKOUT]`.

Three ways take turns: warm, cold (LABKIT_WARM=0), and with `--base` the command of another checkout, which has its own
`.venv`. The share of a sweep outside its runs' own clocks is written, too.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from measuring import report, speed_ups

from labkit.runs import read_run, run_folders

SWEEP = """
job: dlrm:tour
settings: {{target: none, max_epochs: 1000000}}
max_seconds: {seconds}
seeds: {seeds}
budget: one-core
"""


def timed(python: str, arguments: list[str], folder: Path, **variables: str) -> float:
    """Seconds of a labkit command."""
    began = time.perf_counter()
    command = [python, "-m", "labkit", *arguments]
    subprocess.run(command, check=True, cwd=folder, env=os.environ | variables, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def own_clocks_s(runs: Path) -> float:
    """Seconds that the runs in a folder have on their own clocks."""
    return sum(read_run(folder).result["wall_s"] for folder in run_folders(runs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", type=Path, help="another checkout, with its .venv")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--cells", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=7.0, help="on the clock of a cell")
    parser.add_argument("--no-result", action="store_true", help="write no results/warm_start.json")
    args = parser.parse_args()
    pythons = {"cold": sys.executable, "warm": sys.executable}
    if args.base is not None:
        pythons["base"] = str(args.base.absolute() / ".venv/bin/python")
    trained: dict[str, list[float]] = {}
    swept: dict[str, list[float]] = {}
    clocks: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="lk-", dir="/tmp") as name:
        folder = Path(name)
        (folder / "sweep.yaml").write_text(SWEEP.format(seconds=args.seconds, seeds=[*range(args.cells)]))
        for turn in range(-1, args.turns):  # the first fills caches, and leaves the server
            for kernels in ("fast", "plain"):
                for way in ("warm", "cold") if kernels == "fast" else ("cold",):
                    runs = folder / f"{turn}-{kernels}-{way}"
                    variables = {"LABKIT_WARM": "" if way == "warm" else "0", "XDG_RUNTIME_DIR": name}
                    arguments = ["train", "dlrm", "--budget", "one-core", "--kernels", kernels, "--seed", str(turn + 1)]
                    taken = timed(sys.executable, [*arguments, "--runs-dir", str(runs)], folder, **variables)
                    if turn >= 0:
                        trained.setdefault(f"{kernels}, {way}", []).append(taken)
                        clocks.setdefault(f"{kernels}, {way}", []).append(own_clocks_s(runs))
                if turn < 0:
                    time.sleep(10)  # until the server has imported
        for turn in range(max(1, args.turns // 3)):
            for way, python in pythons.items():
                runs = folder / f"sweep-{turn}-{way}"
                variables = {"LABKIT_WARM": "0" if way == "cold" else ""}
                taken = timed(python, ["sweep", "sweep.yaml", "--runs-dir", str(runs)], folder, **variables)
                swept.setdefault(way, []).append(taken)
                clocks.setdefault(f"sweep, {way}", []).append(own_clocks_s(runs))
    ratios = speed_ups("labkit train dlrm, one core", trained, base="plain, cold", unit="s")
    ratios += speed_ups(f"sweep of {args.cells} cells", swept, base="base" if args.base else "cold", unit="s")
    outside = {way: 1 - median(clocks[f"sweep, {way}"]) / median(taken) for way, taken in swept.items()}
    print(json.dumps({"share outside the runs' own clocks": outside}, indent=1))
    report("warm_start", ratios, write=not args.no_result, own_clocks_s=clocks, outside_share=outside)


if __name__ == "__main__":
    main()

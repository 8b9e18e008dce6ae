"""Every benchmark that shows what the fast paths gain, one after another: `make bench`, half an hour.

Prints one table of ratios with their spread. What each measured, on what and when, is in results/*.json.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from click_pipeline import made_up_file
from measuring import RESULTS, Ratio

HERE = Path(__file__).parent
ARGUMENTS = {
    "start_up": [],
    "prepare_clicks": [],
    "dlrm_step": [],
    "dlrm_step_avx2": ["--isa", "avx2", "--seconds", "3", "--optimisers", "sgd"],
    "click_pipeline": ["--turns", "2"],
    "speech_epoch": ["--turns", "3", "--models", "tour"],
    "loop_overhead": ["--turns", "10", "--pairs", "4"],
    "time_to_target": ["--seeds", "3"],
    "scaling": [],
}
"""Of each part, so that all of them end in half an hour; by itself a part takes more turns."""
NAMES = tuple(ARGUMENTS)
TAKE_FILE = ("prepare_clicks", "click_pipeline")
"""Benchmarks of one raw file, which is made once for both."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(NAMES)} (all)")
    args = parser.parse_args()
    unknown = sorted(set(args.names) - set(NAMES))
    if unknown:
        parser.error(f"no benchmark is called {', '.join(unknown)}: choose from {', '.join(NAMES)}")
    chosen = args.names or NAMES
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        data = []
        if set(chosen) & set(TAKE_FILE):
            data = ["--data", str(made_up_file(Path(folder) / "criteo.tsv"))]
        for name in chosen:
            print(f"\n{name}", flush=True)
            began = time.perf_counter()
            program = HERE / f"{name.removesuffix('_avx2')}.py"
            command = [sys.executable, str(program), *ARGUMENTS[name], *(data if name in TAKE_FILE else [])]
            if subprocess.run(command, check=False).returncode:
                failed.append(name)
            print(f"took {time.perf_counter() - began:.0f} s", flush=True)
    print("\nTimes as fast: of medians and (lowest to highest turn), or of pairs and (95 % interval)")
    for name in chosen:
        path = RESULTS / f"{name}.json"
        if name not in failed and path.exists():
            for ratio in json.loads(path.read_text(encoding="utf-8")).get("ratios", []):
                print(Ratio(**ratio))
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

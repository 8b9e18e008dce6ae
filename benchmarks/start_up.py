"""What starting a process costs with and without two imports that labkit leaves out: `python benchmarks/start_up.py`.

Each pair alternates in one run; what counts is the difference of the medians, and their ratio.
"""

from __future__ import annotations

import subprocess
import sys
import time
from statistics import median

PAIRS = {
    "plotly's notebook support, without and with a grammar of web addresses": (
        "from labkit.quick_nbformat import import_nbformat; import_nbformat(); import plotly.io._renderers",
        "from labkit.quick_nbformat import import_nbformat; import plotly.io._renderers",
    ),
    "pyarrow's first array, without and with pandas": (
        "import pyarrow as pa; from labkit.runs.parts import spare_pandas; spare_pandas(); pa.array([])",
        "import pyarrow as pa; from labkit.runs.parts import spare_pandas; pa.array([])",
    ),
}
TURNS = 7


def seconds(program: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True)
    return time.perf_counter() - began


def main() -> None:
    for what, programs in PAIRS.items():
        times = [[seconds(program) for program in programs] for _ in range(TURNS)]
        without, with_it = (median(column) for column in zip(*times, strict=True))
        print(f"{what}: {without:.2f} s and {with_it:.2f} s, {with_it / without:.2f} times as long")


if __name__ == "__main__":
    main()

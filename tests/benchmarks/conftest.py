"""The benchmarks are scripts: what they compute is tested here, what they measure is not."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

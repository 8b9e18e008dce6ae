"""The style checks are tests, so that `make test` is the one command that says whether a change may land."""

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
TY_OPTIONS = ["--output-format", "concise", "--python", sys.prefix]
CHECKS = {
    "ruff finds nothing": [sys.executable, "-m", "ruff", "check", "--no-cache", "."],
    "ruff would format nothing": [sys.executable, "-m", "ruff", "format", "--no-cache", "--check", "."],
    "imports run one way": [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"],
    "types fit": [str(Path(sys.executable).with_name("ty")), "check", *TY_OPTIONS],
}


@pytest.mark.parametrize("check", CHECKS)
def test_style(check):
    done = subprocess.run(CHECKS[check], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(CHECKS[check])}\n{done.stdout}{done.stderr}"


def test_files_that_may_exist_are_replaced_in_one_step():
    """By `replace_text`; here is what else writes text: to a temporary file, to the kernel, or to a lock."""
    sources = [path for package in ("labkit", "labkit_course") for path in (REPOSITORY / package).rglob("*.py")]
    found = {path.relative_to(REPOSITORY).as_posix() for path in sources if ".write_text(" in path.read_text()}
    assert found == {
        "labkit/data/store.py", "labkit/hardware/calibration.py", "labkit/launch/launches.py",
        "labkit/runs/safe_files.py", "labkit/telemetry/sources/host.py",
        "labkit_course/labs/11_what_makes_dlrm_slow.py",
    }  # fmt: skip

"""A control daemon on PATH that behaves as NVIDIA's does with -f, without a GPU."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

PROGRAM = """\
import os, pathlib, sys, time
pipes = pathlib.Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
if sys.argv[1:] == ["-f"]:
    (pipes / "control").touch()
    while not (pipes / "quit").exists():
        time.sleep(0.02)
else:
    asked = sys.stdin.read().split()
    if not (pipes / "control").exists():
        sys.exit("Cannot find MPS control daemon process")
    if asked[0] == "quit":
        (pipes / "quit").touch()
"""


def put_on_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the daemon first on PATH."""
    tool = folder / "bin" / "nvidia-cuda-mps-control"
    tool.parent.mkdir()
    tool.write_text(f"#!{sys.executable} -S\n{PROGRAM}")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")

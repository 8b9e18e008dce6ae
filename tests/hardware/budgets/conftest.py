import pytest
from fake_nvml import put_on_path


@pytest.fixture
def mps(tmp_path, monkeypatch):
    """A daemon that stays in the foreground until it is asked to quit, as NVIDIA's does; where its pid stands."""
    code = f"""
import os, pathlib, sys, time
pipes = pathlib.Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
if sys.argv[1:] == ["-f"]:
    pathlib.Path({str(tmp_path / "pid")!r}).write_text(str(os.getpid()))
    if os.environ.get("FAKE_MPS_REFUSES"):
        sys.exit("An instance of this daemon is already running")
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
    put_on_path(tmp_path, monkeypatch, "nvidia-cuda-mps-control", code)
    return tmp_path / "pid"
